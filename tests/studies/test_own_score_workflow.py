"""Models by name in a study, as its user runs it: a row is the model's own score, whatever the batch."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from encoder_families import FAMILIES, FRAMES
from mini_study import Workflow
from rewind import optional_packages
from rewind.config.encoders import Encoding
from rewind.data.captions import load_split
from rewind.encoders.frames import read_clip
from rewind.io.files import read_csv, read_json
from rewind.video.store_frames import group_twins

STUDY = """
dataset: shapes
frames: {max_frames: 4, size: 32}
methods:
  eights:
    model: vectors
    options: {encoder: sentence_transformers, name: siglip, batch_size: 8}
  together:
    model: vectors
    options: {encoder: sentence_transformers, name: siglip_again, batch_size: 32}
  xclip:
    model: vectors
    options: {encoder: transformers, name: xclip, batch_size: 5}
statistics: {resamples: 200}
"""
WITHOUT = """
dataset: shapes
methods:
  a: {model: vectors, options: {encoder: transformers, name: flava}}
  b: {model: vectors, options: {encoder: transformers, name: blip2}}
  c: {model: vectors, options: {encoder: sentence_transformers, name: flava}}
  d: {model: vectors, options: {encoder: sentence_transformers, name: blip2}}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workflow:
    for package in ("transformers", "sentence_transformers"):
        if not optional_packages.is_installed(package):
            pytest.skip(f"{package} is not installed")
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    for name in ("siglip", "xclip", "flava", "blip2"):
        FAMILIES[name](workflow.folder / name)
    shutil.copytree(workflow.folder / "siglip", workflow.folder / "siglip_again")
    (workflow.folder / "config/studies/named.yaml").write_text(STUDY)
    (workflow.folder / "config/config.yaml").write_text(
        "studies: [named]\noverrides:\n  datasets.shapes.source.clips: {train: 4, valid: 2, test: 6}\n"
    )
    workflow.run("results/named/tables")
    return workflow


def similarity(workflow: Workflow, method: str) -> tuple[np.ndarray, list[str], list[str]]:
    with np.load(workflow.folder / f"results/named/similarity/{method}/seed0.npz") as archive:
        return archive["similarity"], archive["query_ids"].tolist(), archive["item_ids"].tolist()


@pytest.mark.slow
def test_no_rank_changes_with_the_batch(finished: Workflow) -> None:
    eights, queries, _ = similarity(finished, "eights")
    together, same, _ = similarity(finished, "together")
    assert queries == same and len(queries) > 8
    np.testing.assert_allclose(eights, together, rtol=0, atol=1e-6)
    ranks = read_csv(finished.folder / "results/named/metrics.csv")
    columns = ["setting", "direction", "R@1", "MdR", "MRR"]
    rows = [ranks[ranks["method"] == name][columns].reset_index(drop=True) for name in ("eights", "together")]
    assert rows[0].equals(rows[1])


@pytest.mark.slow
def test_the_row_of_x_clip_is_what_its_forward_gives(finished: Workflow, monkeypatch) -> None:
    monkeypatch.chdir(finished.folder)
    found, queries, items = similarity(finished, "xclip")
    library = optional_packages.transformers()
    model, processor = (kind.from_pretrained("xclip") for kind in (library.AutoModel, library.AutoProcessor))
    split = load_split("results/data/shapes", "shapes", "test")
    captions = dict(zip(split.captions["caption_id"], split.captions["caption"], strict=True))
    encoding = Encoding(encoder="transformers", name="xclip", max_frames=FRAMES, sampling="uniform")
    clips = {
        clip.item_id: read_clip(clip, encoding)
        for family in group_twins(split.items, finished.folder / "results/data/shapes")
        for clip in family
    }
    expected = np.zeros_like(found)
    for row, query in enumerate(queries[:7]):
        text = processor(text=[captions[query]], truncation=True, return_tensors="pt")
        for column, item in enumerate(items):
            pictures = [[Image.fromarray(frame) for frame in clips[item]]]
            with torch.inference_mode():
                given = {**text, **processor(videos=pictures, return_tensors="pt")}
                expected[row, column] = model.eval()(**given).logits_per_text.item()
    np.testing.assert_allclose(found[:7], expected[:7], rtol=0, atol=1e-5 * model.logit_scale.exp().item())
    record = next(finished.folder.glob("results/data/shapes/vectors/transformers.xclip.*/record.json"))
    assert read_json(record)["pairs"] is True
    notes = "".join(path.read_text() for path in (finished.folder / "results/named/tables").glob("*.md"))
    assert "scores of transformers xclip" in notes and "model's own forward" in notes


@pytest.mark.slow
def test_families_without_a_score_end_a_study_before_its_first_job(finished: Workflow) -> None:
    study = finished.folder / "config/studies/without.yaml"
    study.write_text(WITHOUT)
    text = finished.run("-n", "results/without/metrics.csv", "--config", "studies=[without]", ok=False)
    study.unlink()
    assert all(f"methods.{name}.options.name" in text for name in "abcd")
    assert text.count("gives no score of a caption and a picture; take a model whose forward gives logits") == 4
    assert "Traceback" not in text
