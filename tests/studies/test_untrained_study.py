"""A study in which nothing is trained, as its user runs it: local weights, a test split alone, up to report.html."""

from __future__ import annotations

import csv
import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from mini_study import Workflow
from rewind.optional_packages import open_clip

STUDY = """
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
DATASET = """
source: {format: table, table: data/mine.csv, videos: data/pictures, items: images}
image: {short_side: 32}
"""
TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
COLOURS = {"red": (220, 30, 30), "green": (20, 200, 60), "blue": (30, 40, 220), "grey": (120, 120, 120)}


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
    state = open_clip("model").CLIP(**TINY).state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "tiny.safetensors")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    (workflow.folder / "config/studies/untrained.yaml").write_text(STUDY)
    (workflow.folder / "config/datasets/mine.yaml").write_text(DATASET)
    (workflow.folder / "config/config.yaml").write_text("studies: [untrained]\n")
    make_data(workflow.folder / "data")
    workflow.output = workflow.run()
    return workflow


@pytest.mark.slow
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
    table = (results / "tables/table_A_test.md").read_text(encoding="utf-8")
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
    assert finished.stale() == {}


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_split_that_the_table_lacks_is_named_by_the_run_that_needs_it(finished: Workflow) -> None:
    over = "overrides={studies.untrained.text.tokenizer: words}"
    text = finished.run("results/untrained/runs/ours/seed0/run.json", "--config", over, ok=False)
    who = r"no item is in the split 'train', but method \w+ has its vocabulary from it"
    assert re.search(rf"data/mine\.csv: {who}", text) and "Traceback" not in text
