"""The study of images as its user runs it: pictures made here, from captions.json to tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mini_study import Workflow
from rewind.io.files import read_csv
from rewind.video.shards import extract_clip

STUDY = """
dataset: photos
backbone: {kind: miniclip_towers, architecture: resnet18, width: 16}
frames: {max_frames: 1, size: 32}
text: {tokenizer: miniclip, max_words: 8}
training:
  epochs: 2
  batch: {size: 8}
  micro_batch: null
  backbone_lr_multiplier: 1.0
  select_metric: R@1
  freeze: [visual]
methods:
  lstm: {model: miniclip, options: {text: lstm}}
  bow: {model: bow, label: BoW (caption→caption), seeds: [0]}
seeds: [0]
sanity: null
evaluation: {settings: [test]}
statistics: {resamples: 200}
figures: {examples: 2}
"""
COLOURS = {"red": (220, 30, 30), "green": (20, 200, 60), "blue": (30, 40, 220), "grey": (120, 120, 120)}


def photos(folder: Path) -> None:
    """Twenty captioned pictures, one of them broken, in several modes."""
    (folder / "images").mkdir(parents=True)
    entries = []
    for n in range(20):
        name, colour = list(COLOURS)[n % 4], COLOURS[list(COLOURS)[n % 4]]
        image = Image.new("RGB", (40 + n, 36), colour)
        mode, kind = (("RGBA", "png"), ("CMYK", "jpg"), ("L", "png"), ("P", "png"))[n // 5]
        image.convert(mode).save(folder / "images" / f"photo {n}.{kind}")
        entries += [
            {"file_name": f"photo {n}.{kind}", "caption": text}
            for text in (f"A {name} número{n}, número{n}", f"All número{n}: número{n} {name}!")
        ]
    (folder / "images" / "photo 7.jpg").write_bytes(b"broken")
    (folder / "captions.json").write_text(json.dumps(entries), encoding="utf-8")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    (workflow.folder / "config/studies/mini.yaml").write_text(STUDY)
    (workflow.folder / "config/config.yaml").write_text(
        "studies: [mini]\noverrides: {datasets.photos.max_missing: 0.1, datasets.photos.image.short_side: 32}\n"
    )
    photos(workflow.folder / "data/photos")
    workflow.output = workflow.run("results/mini/tables", "results/mini/figures/examples.png")
    return workflow


@pytest.mark.slow
def test_from_captioned_images_to_tables(finished: Workflow) -> None:
    data, results = finished.folder / "results/data/photos", finished.folder / "results/mini"
    items, report = read_csv(data / "items.csv"), read_csv(data / "videos/report.csv")
    assert len(items) == 20 and (items["status"] == "ok").sum() == 19 and (items["reversed"] == 0).all()
    for row in items[items["status"] == "ok"].itertuples():
        with Image.open(extract_clip(data / row.path, finished.folder / "single.png")) as image:
            assert image.mode == "RGB" and min(image.size) == 32 and row.path.endswith(".png")
    assert report[report["status"] == "failed"]["reason"].str.contains("no image format").all()
    with np.load(results / "features/frames1.npz") as cache:
        assert cache["frames"].shape == (19, 1, 256 * 2 * 2)
    metrics = pd.read_csv(results / "metrics.csv").set_index(["method", "direction"])
    queries = (items["split"].eq("test") & items["status"].eq("ok")).sum()
    assert metrics.loc[("lstm", "text_to_item"), "queries"] == 2 * queries
    # The numbers in the captions are words that only an image's own other caption shares.
    assert metrics.loc[("bow", "text_to_item"), "R@1"] == 100
    table = (results / "tables/table_A_test.md").read_text(encoding="utf-8")
    assert "BoW (caption→caption)" in table and "images" in table and "video" not in table and "clips" not in table
    assert "ResNet-18 with random initial weights, the last third" in table and "1 of 20 source images missing" in table
    assert "short side 32 pixels" in table and "frames per second" not in table and "text→image retrieval" in table
    found = json.loads((results / "tables/metrics_lstm.json").read_text())
    assert found["test_metrics"]["R@1"] == metrics.loc[("lstm", "text_to_item"), "R@1"]
    assert (
        found["baselines"]["bow"]["R@1"] == 100
        and found["training"]["best_epoch"] in (1, 2)
        and len(found["runs"]) == 1
    )
    assert (results / "figures/examples.png").stat().st_size > 2000


@pytest.mark.slow
def test_a_new_photo_and_another_size_make_stale_what_they_must(finished: Workflow) -> None:
    targets = ("results/mini/tables",)
    assert finished.stale(*targets) == {}
    stale = finished.stale(*targets, "--config", "overrides={datasets.photos.image.short_side: 48}")
    assert "video_shard" in stale and "sources" not in stale
    Image.new("RGB", (40, 40)).save(finished.folder / "data/photos/images/new.png")
    assert "inventory" in finished.stale(*targets)
