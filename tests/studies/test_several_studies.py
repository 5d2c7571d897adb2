"""Several studies in one checkout, made by one run: what they share, what ties, what an edit makes stale.

``named`` and ``other`` compare models by name on one data set and share its vectors; ``plain`` and ``stored`` train on
the same clips without and with a frame store; ``photos`` trains on captioned images; ``untrained`` trains nothing and
has a test split alone.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from encoder_data import open_clip_folder
from encoder_families import FAMILIES, FRAMES
from mini_study import Workflow
from rewind import optional_packages
from rewind.config.encoders import Encoding
from rewind.data.captions import load_split
from rewind.encoders.base import build_encoder
from rewind.encoders.frames import read_clip
from rewind.encoders.tiny import write_transformers
from rewind.io.files import read_csv, read_json
from rewind.provenance import file_hash
from rewind.video.shards import extract_clip
from rewind.video.store_frames import group_twins

NAMED = """
dataset: shapes
frames: {max_frames: 4, size: 32}
methods:
  tiny:
    model: vectors
    options: {encoder: open_clip, name: model}
  eights:
    model: vectors
    options: {encoder: sentence_transformers, name: siglip, batch_size: 8}
  together:
    model: vectors
    options: {encoder: sentence_transformers, name: siglip_again, batch_size: 32}
  xclip:
    model: vectors
    options: {encoder: transformers, name: xclip, batch_size: 5}
  xclip_of_all:
    model: vectors
    options: {encoder: transformers, name: xclip, batch_size: 5}
    rerank: {first: tiny, top: 1000}
  xclip_of_two:
    model: vectors
    options: {encoder: transformers, name: xclip, batch_size: 5}
    rerank: {first: tiny, top: 2}
  xclip_of_binary:
    model: vectors
    options: {encoder: transformers, name: xclip, batch_size: 5}
    rerank: {first: tiny, binary_only: true}
  asked:
    model: vectors
    options:
      encoder: video_llm
      name: qwen3_vl
      encoder_options: {prompts: ["Is this {caption}?", "Does it show {caption}?"]}
    rerank: {first: tiny, binary_only: true}
  worded:
    model: vectors
    options:
      encoder: video_llm
      name: qwen3_vl
      encoder_options: {prompts: {0: ["Is this {caption}?"], 1: ["Does it show {caption}?"]}}
    rerank: {first: tiny, binary_only: true}
statistics: {resamples: 200}
"""
OTHER = """
dataset: shapes
frames: {max_frames: 4, size: 32}
methods:
  tiny:
    model: vectors
    options: {encoder: open_clip, name: model}
  always: &rigged
    model: vectors
    options: {encoder: rigged.Always, name: qwen3_vl}
    rerank: {first: chance, binary_only: true}
  order: {<<: *rigged, options: {encoder: rigged.Order, name: qwen3_vl}}
  chance: {model: chance}
evaluation: {settings: [binary]}
statistics: {resamples: 200}
"""
RIGGED = '''"""Language models that are rigged: one answers yes to everything, one sees where things move."""

import numpy as np

from rewind.encoders.video_llm import VideoLanguageModel

WAYS = {"right": (0, 1), "left": (0, -1), "down": (1, 0), "up": (-1, 0)}


class Always(VideoLanguageModel):
    def score_each(self, texts, clips):
        return np.full((len(texts), len(clips), 1), 3.0, np.float32)


class Order(VideoLanguageModel):
    def score_each(self, texts, clips):
        moves = np.stack([_middle(clip[-1]) - _middle(clip[0]) for clip in clips])
        asked = [sum((np.array(way) for word, way in WAYS.items() if word in text), np.zeros(2)) for text in texts]
        return (np.stack(asked) @ moves.T).astype(np.float32)[..., None]


def _middle(frame):
    """Where what differs from the ground is."""
    shown = np.abs(frame.mean(axis=-1) - np.median(frame.mean(axis=-1)))
    return np.array([np.average(np.indices(shown.shape)[axis], weights=shown) for axis in (0, 1)])
'''
WITHOUT = """
dataset: shapes
methods:
  a: {model: vectors, options: {encoder: transformers, name: flava}}
  b: {model: vectors, options: {encoder: transformers, name: blip2}}
  c: {model: vectors, options: {encoder: sentence_transformers, name: flava}}
  d: {model: vectors, options: {encoder: sentence_transformers, name: blip2}}
"""
STORE = """
dataset: shapes
backbone: {{architecture: config/models/tiny.json}}
frames: {{max_frames: 4, size: 32, store: {store}}}
text: {{tokenizer: words, max_words: 24}}
training: {{epochs: 2, lr: 1.0e-3, freeze: [], batch: {{size: 16, captions: one, twins_together: true}}}}
methods:
  seqLSTM: {{head: seqLSTM}}
  frozen: {{head: meanP, training: {{freeze: [visual]}}}}
  chance: {{model: chance}}
seeds: [0]
sanity: null
"""
PHOTOS = """
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
UNTRAINED = """
dataset: mine
backbone: {architecture: data/tiny.json, weights: data/tiny.safetensors}
frames: {size: 32, max_frames: 1}
text: {max_words: 12}
methods:
  ours: {model: zero_shot, label: Ours}
  theirs: {model: clip_zero_shot, options: {architecture: data/tiny.json, weights: data/tiny.safetensors}}
  bow: {model: bow}
  chance: {model: chance}
evaluation: {settings: [test]}
statistics: {resamples: 200, pairs: [[ours, theirs], [ours, bow]]}
figures: {examples: 2}
"""
MINE = """
source: {format: table, table: data/mine.csv, videos: data/pictures, items: images}
image: {short_side: 32}
"""
TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
COLOURS = {"red": (220, 30, 30), "green": (20, 200, 60), "blue": (30, 40, 220), "grey": (120, 120, 120)}
MADE = ("runs/seqLSTM/seed0/model.safetensors", "similarity/seqLSTM/seed0.npz")
MORE_FRAMES = "overrides={{studies.stored: {{frames.max_frames: 5{}}}}}"
PRETRAINING = "{max_frames: 3, training: {batch: {size: 16}}}"
VECTORS = "results/data/shapes/vectors"
CONFIG = """
studies: [named, other, plain, stored, photos, untrained]
overrides:
  datasets.shapes.source.clips: {train: 12, valid: 4, test: 6}
  datasets.photos.max_missing: 0.1
  datasets.photos.image.short_side: 32
"""
TARGETS = (
    "results/named/tables",
    "results/other/tables",
    "results/plain/similarity/seqLSTM/seed0.npz",
    "results/stored/similarity/seqLSTM/seed0.npz",
    "results/photos/tables",
    "results/photos/figures/examples.png",
    "results/untrained/report.html",
)


def make_data(folder: Path) -> None:
    """Twelve captioned pictures, all of the test split, and weights of a network that somebody trained elsewhere."""
    (folder / "pictures").mkdir(parents=True)
    with (folder / "mine.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["item_id", "path", "split", "caption"])
        for n in range(12):
            name, colour = list(COLOURS.items())[n % 4]
            shade = tuple(int(value * (0.5 + n / 24)) for value in colour)
            Image.new("RGB", (36, 34), shade).save(folder / f"pictures/{n}.png")
            rows.writerows([f"item{n}", f"{n}.png", "test", text] for text in (f"a {name} thing", f"{name} thing {n}"))
    torch.manual_seed(0)
    (folder / "tiny.json").write_text(json.dumps(TINY))
    state = optional_packages.open_clip("model").CLIP(**TINY).state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "tiny.safetensors")


def make_photos(folder: Path) -> None:
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
    for package in ("transformers", "sentence_transformers"):
        if not optional_packages.is_installed(package):
            pytest.skip(f"{package} is not installed")
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    open_clip_folder(workflow.folder / "model")
    write_transformers(workflow.folder / "qwen3_vl", "qwen3_vl")
    for name in ("siglip", "xclip", "flava", "blip2"):
        FAMILIES[name](workflow.folder / name)
    shutil.copytree(workflow.folder / "siglip", workflow.folder / "siglip_again")
    (workflow.folder / "src/rigged.py").write_text(RIGGED)
    make_data(workflow.folder / "data")
    make_photos(workflow.folder / "data/photos")
    (workflow.folder / "config/datasets/mine.yaml").write_text(MINE)
    studies = {"plain": STORE.format(store="false"), "stored": STORE.format(store="true")}
    studies |= {"named": NAMED, "other": OTHER, "photos": PHOTOS, "untrained": UNTRAINED}
    for name, text in studies.items():
        (workflow.folder / f"config/studies/{name}.yaml").write_text(text)
    (workflow.folder / "config/config.yaml").write_text(CONFIG)
    workflow.output = workflow.run(*TARGETS)
    return workflow


# ---- Models by name ------------------------------------------------------------------------------------------------


def similarity(workflow: Workflow, method: str) -> tuple[np.ndarray, list[str], list[str]]:
    with np.load(workflow.folder / f"results/named/similarity/{method}/seed0.npz") as archive:
        return archive["similarity"], archive["query_ids"].tolist(), archive["item_ids"].tolist()


@pytest.mark.workflow
def test_one_set_of_vectors_serves_both_studies_and_ties_every_twin(finished: Workflow) -> None:
    folders = list((finished.folder / VECTORS).glob("open_clip.*"))
    assert len(folders) == 1 and {path.name for path in folders[0].iterdir()} == {
        "captions.npz",
        "items.npz",
        "record.json",
    }
    record = read_json(folders[0] / "record.json")
    assert record["twins"] == record["mirrored"] == 6
    metrics = read_csv(finished.folder / "results/other/metrics.csv")
    chosen = (metrics["method"] == "tiny") & (metrics["setting"] == "binary")
    binary = metrics[chosen & (metrics["direction"] == "text_to_item")]
    assert binary["R@1"].tolist() == [50], "a model blind to order ties a clip with its twin"
    files = [finished.folder / f"results/{name}/similarity/tiny/seed0.npz" for name in ("named", "other")]
    with np.load(files[0]) as one, np.load(files[1]) as two:
        assert (one["similarity"] == two["similarity"]).all()
    notes = "".join(path.read_text() for path in (finished.folder / "results/named/tables").glob("*.md"))
    assert "one by one" in notes and "vectors of open_clip model" in notes


@pytest.mark.workflow
def test_only_what_vectors_depend_on_makes_them_stale(finished: Workflow) -> None:
    target = "results/other/metrics.csv"
    assert not finished.stale(target)
    for harmless in ("batch_size: 7", "encoder_options: {}"):
        given = f"overrides={{studies.other.methods.tiny.options: {{{harmless}}}}}"
        assert "encode_vectors" not in finished.stale(target, "--config", given)
    given = "overrides={studies.other.methods.tiny.options.max_frames: 3}"
    assert {"encode_vectors", "untrained_run"} <= set(finished.stale(target, "--config", given))
    weights = finished.folder / "model/open_clip_pytorch_model.bin"
    content = weights.read_bytes()
    os.utime(weights)
    assert not finished.stale(target), "its content counts"
    weights.write_bytes(content + b"\0")
    assert "encode_vectors" in finished.stale(target)
    weights.write_bytes(content)


@pytest.mark.workflow
def test_a_wrong_name_ends_the_study_before_its_first_job(finished: Workflow) -> None:
    given = "overrides={studies.other.methods.tiny.options.name: ViT-B-16-SigLP}"
    text = finished.run("-n", "results/other/metrics.csv", "--config", given, ok=False)
    assert "methods.tiny.options.name" in text and "did you mean ViT-B-16-SigLIP" in text


@pytest.mark.workflow
def test_no_rank_changes_with_the_batch(finished: Workflow) -> None:
    eights, queries, _ = similarity(finished, "eights")
    together, same, _ = similarity(finished, "together")
    assert queries == same and len(queries) > 8
    np.testing.assert_allclose(eights, together, rtol=0, atol=1e-6)
    ranks = read_csv(finished.folder / "results/named/metrics.csv")
    columns = ["setting", "direction", "R@1", "MdR", "MRR"]
    rows = [ranks[ranks["method"] == name][columns].reset_index(drop=True) for name in ("eights", "together")]
    assert rows[0].equals(rows[1])


@pytest.mark.workflow
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
    records = finished.folder.glob("results/data/shapes/vectors/transformers.xclip.*/record.json")
    assert [read_json(record)["pairs"] for record in records] == [True, True]  # the one that re-ranks is the second
    notes = "".join(path.read_text() for path in (finished.folder / "results/named/tables").glob("*.md"))
    assert "scores of transformers xclip" in notes and "model's own forward" in notes


@pytest.mark.workflow
def test_a_model_by_name_scores_only_the_first_results_of_another(finished: Workflow) -> None:
    results, vectors = finished.folder / "results/named", finished.folder / "results/data/shapes/vectors"
    metrics = read_csv(results / "metrics.csv").drop(columns="seed").set_index("method")
    pd.testing.assert_frame_equal(*(metrics.loc[[name]].reset_index(drop=True) for name in ("xclip", "xclip_of_all")))
    arrays = [sorted(np.load(path / "captions.npz").files) for path in vectors.glob("transformers.xclip.*")]
    assert sorted(arrays) == [["item_ids", "query_ids"], ["item_ids", "query_ids", "similarity"]]
    said = read_json(results / "ranks/xclip_of_two/seed0.json")["reranked"]
    queries, gallery = np.load(results / "similarity/xclip/seed0.npz")["similarity"].shape
    assert 0 < said["pairs"] < queries * gallery and said["share"] == 100 * said["pairs"] / (queries * gallery)
    notes = "".join(path.read_text() for path in (results / "tables").glob("*.md"))
    assert "only the first 2 results of tiny" in " ".join(notes.split())
    assert not (results / ".state/rerank/xclip_of_two.seed0").exists()


@pytest.mark.workflow
def test_a_judge_scores_the_pairs_of_binary_and_no_others(finished: Workflow) -> None:
    results = finished.folder / "results/named"
    whole, judged = (pd.read_parquet(results / f"ranks/{name}/seed0.parquet") for name in ("xclip", "xclip_of_binary"))
    pd.testing.assert_frame_equal(judged, whole[whole["setting"] == "binary"].reset_index(drop=True))
    said = read_json(results / "ranks/xclip_of_binary/seed0.json")
    captions = len(np.load(results / "similarity/xclip/seed0.npz")["similarity"])
    assert said["reranked"]["pairs"] <= 2 * captions, "a caption with its clip and the twin; of both the same pairs"
    assert set(said["not_evaluated"]) == {"origin", "hard"}
    tables = " ".join("".join(path.read_text() for path in (results / "tables").glob("*.md")).split())
    assert "xclip_of_binary (only Binary's pairs are scored)" in tables
    assert "Of xclip_of_binary: only Binary’s pairs are scored" in tables


@pytest.mark.workflow
def test_of_several_prompts_the_tables_say_what_each_gives_alone(finished: Workflow, monkeypatch) -> None:
    monkeypatch.chdir(finished.folder)
    said = read_json(finished.folder / "results/named/ranks/asked/seed0.json")["reranked"]
    prompts, split = (
        ["Is this {caption}?", "Does it show {caption}?"],
        load_split("results/data/shapes", "shapes", "test"),
    )
    captions = split.captions[split.captions["video_id"].isin(split.items["item_id"])]
    encoding = Encoding(encoder="video_llm", name="qwen3_vl", max_frames=FRAMES, sampling="uniform")
    right: dict[str, list[bool]] = {}
    for prompt in prompts:
        encoder = build_encoder(encoding.model_copy(update={"encoder_options": {"prompts": [prompt]}}))
        right[prompt] = []
        for family in group_twins(split.items, finished.folder / "results/data/shapes"):
            original, twin = sorted(family, key=lambda clip: clip.reversed)
            texts = captions.loc[captions["video_id"] == original.item_id, "caption"].tolist()
            own, other = encoder.score(texts, [read_clip(clip, encoding) for clip in (original, twin)]).T
            right[prompt] += (own > other).tolist()
    assert said["binary_by_prompt"] == pytest.approx([100 * np.mean(values) for values in right.values()])
    first, second = said["binary_by_prompt"]
    tables = " ".join(
        "".join(path.read_text() for path in (finished.folder / "results/named/tables").glob("*.md")).split()
    )
    assert f"Of asked: accuracy in Binary by one prompt alone is {first:.1f} and {second:.1f}" in tables


@pytest.mark.workflow
def test_prompts_of_seeds_are_runs_over_which_intervals_are(finished: Workflow) -> None:
    results = finished.folder / "results/named"
    metrics = (
        read_csv(results / "metrics.csv").set_index(["method", "setting", "direction", "seed"])["R@1"].sort_index()
    )
    by_prompt = read_json(results / "ranks/asked/seed0.json")["reranked"]["binary_by_prompt"]
    assert metrics["worded", "binary", "text_to_item"].to_dict() == pytest.approx(dict(enumerate(by_prompt)))
    intervals = read_csv(results / "statistics/intervals.csv").set_index(["method", "setting", "direction", "metric"])
    width = intervals["high"] - intervals["low"]
    row = ("binary", "text_to_item", "R@1")
    assert width["worded", *row] > width["asked", *row]
    tables = " ".join("".join(path.read_text() for path in (results / "tables").glob("*.md")).split())
    assert "Of worded: each seed has its own prompts, over which intervals are too" in tables
    assert "worded: all seeds start from the same weights" not in tables


@pytest.mark.workflow
def test_rigged_judges_get_the_answers_that_they_deserve(finished: Workflow) -> None:
    results = finished.folder / "results/other"
    right = read_csv(results / "metrics.csv").set_index(["method", "direction"])["R@1"]
    assert right["always"].eq(50).all() and right["order"].gt(50).all()
    assert read_json(results / "ranks/order/seed0.json")["reranked"]["inside"] == {
        "binary text_to_item": 100.0,
        "binary item_to_text": 100.0,
    }
    summary = " ".join((results / "tables/summary.txt").read_text().split())
    assert "Cannot: " in summary and "always (every clip ties with its twin)" in summary.replace(
        "tiny, always", "always"
    )
    assert "Of order: only Binary’s pairs are scored" in summary and "results of chance" not in summary


@pytest.mark.workflow
def test_families_without_a_score_end_a_study_before_its_first_job(finished: Workflow) -> None:
    study = finished.folder / "config/studies/without.yaml"
    study.write_text(WITHOUT)
    text = finished.run("-n", "results/without/metrics.csv", "--config", "studies=[without]", ok=False)
    study.unlink()
    assert all(f"methods.{name}.options.name" in text for name in "abcd")
    assert text.count("gives no score of a caption and a picture; take a model whose forward gives logits") == 4
    assert "Traceback" not in text


# ---- With and without a frame store -------------------------------------------------------------------------------


@pytest.mark.workflow
def test_the_same_bytes_with_and_without_a_store(finished):
    results = finished.folder / "results"
    for name in MADE:
        assert (results / "stored" / name).read_bytes() == (results / "plain" / name).read_bytes(), name
    assert not (results / "plain/frames").exists()
    stores = {path.parent.name: json.loads(path.read_text()) for path in results.glob("stored/frames/*/index.json")}
    assert {name: store["max_frames"] for name, store in stores.items()} == {"frames4": 4}
    assert all(store["clips"] == 2 * store["rows"] == 44 for store in stores.values()), "twins take no room"
    record = json.loads((results / "stored/runs/seqLSTM/seed0/run.json").read_text())
    index = "results/stored/frames/frames4/index.json"
    assert record["data"][index] == file_hash(finished.folder / index), "a run's record names the frames that it saw"


@pytest.mark.workflow
def test_which_jobs_a_store_brings(finished):
    keys = f"sweep: {{max_frames: [2, 4], method: seqLSTM}}, sanity: {{clips: 4}}, pretraining: {PRETRAINING}"
    target = "results/stored/similarity/seqLSTM/seed0.npz"
    stale = finished.stale(target, "--config", f"overrides={{studies.stored: {{{keys}}}}}")
    assert stale["sweep_trial"] == 2 and stale["sanity"] == stale["pretrain"] == 1
    assert stale["frames"] == 2, "of 2 frames for the sweep, of 3 for the pre-training; of 4 there is one"
    frozen = finished.stale(target, "--config", MORE_FRAMES.format(", methods.seqLSTM.training.freeze: [visual]"))
    assert "frames" not in frozen and frozen["features"] == 1, "cached features alone need no store"
    chance = "results/stored/similarity/chance/seed0.npz"
    assert finished.stale(chance, "--config", MORE_FRAMES.format(""))["frames"] == 1
    lonely = finished.stale(chance, "--config", MORE_FRAMES.format(", methods.seqLSTM.training.freeze: [visual]"))
    assert "frames" not in lonely, "nor does a baseline that learns nothing"
    assert finished.stale(target) == {}
    assert finished.stale(target, "--config", "overrides={studies.stored.resources.gpus: 4}") == {}


@pytest.mark.workflow
def test_a_store_made_again_alike_makes_nothing_stale(finished):
    index = "results/stored/frames/frames4/index.json"
    (finished.folder / index).unlink()
    assert "1 of 1 shards are finished already" in finished.run(index)
    assert finished.stale("results/stored/similarity/seqLSTM/seed0.npz") == {}


@pytest.mark.workflow
@pytest.mark.parametrize("earlier", [False, True], ids=["with checksums of rows", "of an earlier version"])
def test_a_store_that_is_damaged_at_the_same_size_and_time_is_refused_and_comes_back(finished, earlier):
    folder, target = finished.folder / "results/stored/frames/frames4", "results/stored/similarity/seqLSTM/seed0.npz"
    shard, before = folder / "shards/00000.bin", (finished.folder / target).read_bytes()
    if earlier:
        (folder / "shards/00000.crc32").unlink()
    then, content = shard.stat(), bytearray(shard.read_bytes())
    for place in range(len(content) - 20_000, len(content)):  # test clips are last
        content[place] ^= 0x55
    shard.write_bytes(content)
    os.utime(shard, ns=(then.st_atime_ns, then.st_mtime_ns))
    text = finished.run(target, "--force", ok=False)
    assert "its checksum differs" in text if earlier else re.search(r"row \d+ \(test\d+, .*\) is not as it was", text)
    advice = re.search(r"00000\.bin: .*`snakemake (--cores all --force \S+/index\.json)`", text)[1]
    assert "1 of 1 shards are finished" not in finished.run(*advice.split()), "its second name was damaged with it"
    finished.run(target, "--force")
    assert (finished.folder / target).read_bytes() == before and finished.stale(target) == {}


@pytest.mark.workflow
def test_runs_read_the_store_and_refuse_a_damaged_one(finished):
    shard = finished.folder / "results/stored/frames/frames4/shards/00000.bin"
    shard.write_bytes(shard.read_bytes()[:-5])
    text = finished.run("results/stored/runs/seqLSTM/seed0/run.json", "--forcerun", "train", ok=False)
    assert (
        "frames4/shards/00000.bin: has" in text and "snakemake --cores all --force" in text and "Traceback" not in text
    )


# ---- Captioned images ----------------------------------------------------------------------------------------------


@pytest.mark.workflow
def test_from_captioned_images_to_tables(finished: Workflow) -> None:
    data, results = finished.folder / "results/data/photos", finished.folder / "results/photos"
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
    table = "".join((results / f"tables/{name}.md").read_text(encoding="utf-8") for name in ("table_A_test", "notes"))
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


@pytest.mark.workflow
def test_a_new_photo_and_another_size_make_stale_what_they_must(finished: Workflow) -> None:
    targets = ("results/photos/tables",)
    assert finished.stale(*targets) == {}
    stale = finished.stale(*targets, "--config", "overrides={datasets.photos.image.short_side: 48}")
    assert "video_shard" in stale and "sources" not in stale
    Image.new("RGB", (40, 40)).save(finished.folder / "data/photos/images/new.png")
    assert "inventory" in finished.stale(*targets)


# ---- Nothing is trained --------------------------------------------------------------------------------------------


@pytest.mark.workflow
def test_from_weights_to_the_report_without_a_seed(finished: Workflow) -> None:
    results = finished.folder / "results/untrained"
    metrics = pd.read_csv(results / "metrics.csv")
    assert set(metrics["seed"]) == {0} and set(metrics["method"]) == {"ours", "theirs", "bow", "chance"}
    assert not (results / "sanity.json").exists(), "there is nothing to over-fit"
    scores = [np.load(results / f"similarity/{name}/seed0.npz")["similarity"] for name in ("ours", "theirs")]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4, err_msg="the same weights by two ways")
    pairs = pd.read_csv(results / "statistics/pairs.csv")
    assert len(pairs) and pairs["p"].notna().all() and (pairs["procedure"].str.startswith("these models")).all()
    assert (pairs.loc[pairs["second"] == "theirs", "p"] == 1).all(), "the same weights"
    table = "".join((results / f"tables/{name}.md").read_text(encoding="utf-8") for name in ("table_A_test", "notes"))
    assert "there are no training seeds, and intervals generalise to other queries only" in table
    assert "No letters: they need 20 clusters of queries, and there are 12" in table
    printed = " ".join((results / "tables/summary.txt").read_text(encoding="utf-8").split())
    assert "there are no training seeds, and intervals generalise to other queries only" in printed
    assert "these models, other queries: t over clusters of queries" in table
    assert re.search(r"^\| Ours <sup>a</sup> +\| – +\|", table, re.M), "nothing was trained on the data set"
    page = unescape((results / "report.html").read_text(encoding="utf-8"))
    captions = dict(re.findall(r'<figure id="figure-(\w+)">.*?<figcaption>(.*?)</figcaption>', page, re.S))
    assert "over other queries (nothing is trained" in captions["intervals"] and "training_curves" not in captions
    assert captions["examples"].startswith("What captions found with Ours.")
    assert finished.stale("results/untrained/report.html") == {}


@pytest.mark.workflow
def test_absent_weights_are_told_though_all_results_are_there(finished: Workflow) -> None:
    weights = finished.folder / "data/tiny.safetensors"
    aside = weights.rename(weights.with_suffix(".aside"))
    try:
        text = finished.run("-n", ok=False)
    finally:
        aside.rename(weights)
    assert text.count("backbone.weights: data/tiny.safetensors: no such file. Put the weights of") == 1
    assert "methods.theirs.options.weights: data/tiny.safetensors: no such file" in text
    assert "Nothing to be done" not in text and "Traceback" not in text


@pytest.mark.workflow
def test_a_split_that_the_table_lacks_is_named_by_the_run_that_needs_it(finished: Workflow) -> None:
    over = "overrides={studies.untrained.text.tokenizer: words}"
    text = finished.run("results/untrained/runs/ours/seed0/run.json", "--config", over, ok=False)
    who = r"no item is in the split 'train', but method \w+ has its vocabulary from it"
    assert re.search(rf"data/mine\.csv: {who}", text) and "Traceback" not in text
