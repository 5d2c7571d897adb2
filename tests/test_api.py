"""The functions for notebooks: numbers of the workflow, and refusals that name the argument."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from rewind.api import compare, metrics, ranks
from rewind.config.report import Statistics
from rewind.errors import RewindError
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.pairs import RandomFactors

IDS = [f"v{number}" for number in range(40)]
ITEMS = pd.DataFrame({"item_id": IDS, "cluster_id": [f"film{number // 2}" for number in range(40)], "reversed": 0})
CAPTIONS = pd.DataFrame({"caption_id": [f"{name}#{k}" for name in IDS for k in (0, 1)], "video_id": np.repeat(IDS, 2)})
TRUTH = np.repeat(np.arange(40), 2)


def matrix(seed: int, strength: float) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(80, 40)).round(1)  # rounded, so that there are ties
    return strength * np.eye(40)[TRUTH] + noise


def workflow(scores: np.ndarray) -> pd.DataFrame:
    return rank_table(scores, CAPTIONS, ITEMS, ["test"], ["text_to_item"])


def test_numbers_are_the_workflows_to_the_last_bit():
    scores = {"mine": [matrix(0, 2.0), matrix(1, 2.0)], "theirs": [matrix(2, 1.5)], "third": [matrix(3, 1.0)] * 2}
    runs = {name: {seed: workflow(one) for seed, one in enumerate(given)} for name, given in scores.items()}
    pairs = [("mine", "theirs"), ("mine", "third"), ("theirs", "third")]
    random = RandomFactors(fixed=frozenset({"theirs"}), paired=frozenset({"mine", "third"}))
    wanted = compare_methods(runs, pairs, Statistics(resamples=500), random, list(runs))
    ours = {
        name: [ranks(one, TRUTH, ITEMS["cluster_id"].to_numpy(), CAPTIONS["caption_id"]) for one in given]
        for name, given in scores.items()
    }
    assert metrics(ours["mine"][1]) == compute_metrics(runs["mine"][1])
    given = {"mine": ours["mine"], "theirs": ours["theirs"][0], "third": ours["third"]}
    found = compare(given, resamples=500, seeds_are_paired=["mine", "third"])
    for table in ("intervals", "pairs", "ranks"):
        pd.testing.assert_frame_equal(getattr(found, table), getattr(wanted, table), check_exact=True)


def test_without_names_query_i_belongs_to_item_i_and_clusters_are_items():
    found = ranks(np.eye(3))
    assert found["query_id"].tolist() == ["0", "1", "2"] and found["cluster_id"].tolist() == [0, 1, 2]
    assert metrics(found)["R@1"] == 100.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scores": np.zeros(3)}, "scores: a matrix"),
        ({"scores": np.zeros((2, 2)), "truth": [0]}, "truth: 1 values for 2 queries"),
        ({"scores": np.zeros((2, 2)), "truth": [0, 2]}, "truth: column numbers from 0 to 1"),
        ({"scores": np.zeros((2, 2)), "clusters": ["a"]}, "clusters: 1 values for 2 items"),
        ({"scores": np.zeros((2, 2)), "queries": ["a", "a"]}, "caption id 'a' occurs twice"),
        ({"scores": np.full((2, 2), np.nan)}, "scores: 4 scores are not numbers"),
        ({"scores": np.zeros((3, 2))}, "truth: column numbers from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(given, message):
    with pytest.raises(RewindError, match=re.escape(message)):
        ranks(**given)


def test_methods_of_other_queries_and_without_runs_are_refused():
    with pytest.raises(RewindError, match="different queries"):
        compare({"a": ranks(np.eye(3)), "b": ranks(np.eye(4))})
    with pytest.raises(RewindError, match="methods: 'a' has no run"):
        compare({"a": []})
    with pytest.raises(RewindError, match="method 'c' has no run"):
        compare({"a": ranks(np.eye(3)), "b": ranks(np.eye(3))}, pairs=[("a", "c")])


def test_the_page_runs_as_it_stands_and_imports_no_torch():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python-api.md").read_text(), re.DOTALL)
    code += "\nimport sys\nassert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"[+−-]\d+\.\d \[.*\], Holm's p \d\.\d{3}", done.stdout) and r"\begin{tabular}" in done.stdout
