"""A twin that no caption describes: what can be asked is asked, the rest is counted in the open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evaluated_runs import evaluate
from messages import expect_message, refusal
from rewind.evaluation.ranking import rank_table
from rewind.evaluation.trec import export_trec
from rewind.evaluation.twins import UNDESCRIBED, count_binary_left_out
from rewind.report.explorer import ScoredSplit, make_query_view

ITEMS = pd.DataFrame(
    {
        "item_id": ["a", "a_rev", "b", "b_rev", "c"],
        "cluster_id": ["a", "a", "b", "b", "c"],
        "reversed": [0, 1, 0, 1, 0],
    }
)
CAPTIONS = pd.DataFrame(
    {"video_id": ["a", "a_rev", "b", "b", "c"], "caption": list("stuvw"), "caption_id": ["1", "2", "3", "4", "5"]}
)
SETTINGS, WAYS = ["origin", "hard", "binary"], ["text_to_item", "item_to_text"]
ASKED = {
    ("origin", "text_to_item"): ["1", "3", "4", "5"],
    ("origin", "item_to_text"): ["a", "b", "c"],
    ("hard", "text_to_item"): ["1", "2", "3", "4", "5"],
    ("hard", "item_to_text"): ["a", "a_rev", "b", "c"],
    ("binary", "text_to_item"): ["1"],
    ("binary", "item_to_text"): ["1"],
}
"""b_rev has no caption, so nothing of b is a choice between two; c has no twin at all."""


def test_ranks_the_export_and_the_explorer_ask_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = np.random.default_rng(0).random((5, 5)).astype(np.float32)
    (tmp_path / "captions").mkdir()
    ITEMS.assign(path="", split="test", status="ok").to_csv(tmp_path / "items.csv", index=False)
    CAPTIONS.to_csv(tmp_path / "captions/toy_test.csv", index=False)
    names = {"query_ids": CAPTIONS["caption_id"], "item_ids": ITEMS["item_id"]}
    arrays = {name: ids.to_numpy(dtype=str) for name, ids in names.items()}
    run = {("m", 0): str(tmp_path / "m.npz")}
    np.savez(run["m", 0], similarity=scores, **arrays)
    evaluate(tmp_path, "toy", SETTINGS, WAYS, run, str(tmp_path / "ranks"), str(tmp_path / "metrics.csv"))
    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.endswith("are not used as queries")]
    expect_message(said)
    ranks = pd.read_parquet(tmp_path / "ranks/m/seed0.parquet")
    split = ScoredSplit.of(CAPTIONS, ITEMS)
    for (setting, way), part in ranks.groupby(["setting", "direction"]):
        assert part["query_id"].tolist() == ASKED[setting, way], (setting, way)
        assert make_query_view(split, setting, way).ids.tolist() == ASKED[setting, way]
    export_trec(tmp_path, "toy", SETTINGS, WAYS, run, tmp_path / "trec", 1000)
    found = (tmp_path / "trec/qrels_binary_item_to_text.txt").read_text().split()
    assert found == ["a/1", "0", "1", "1"]


def test_how_many_are_left_out_counts_only_twins_that_are_there() -> None:
    assert count_binary_left_out(CAPTIONS, ITEMS) == {UNDESCRIBED: 2}, (
        "both captions of b; c has no twin that could be described"
    )
    assert not count_binary_left_out(CAPTIONS[:2], ITEMS)


def test_binary_without_any_described_twin_is_refused() -> None:
    forward = CAPTIONS[CAPTIONS["video_id"] != "a_rev"].reset_index(drop=True)
    with refusal("evaluation.settings"):
        rank_table(np.zeros((4, 5)), forward, ITEMS, ["binary"], WAYS)


@pytest.mark.slow
def test_queries_without_a_word_are_refused_before_a_run_is_looked_for() -> None:
    """In a fresh process, with a folder that is not there: the query is told first."""
    asked = [
        [""],
        ["  "],
        ["x", "--top", "0"],
        ["--top", "-3"],
        ["--random", "0"],
        ["--random", "-1"],
        ["--seed", "-1"],
    ]
    code = (
        f"from rewind.cli.main import main\nfor words in {asked}: print(main(['search', 'no/run', *words]), flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["1"] * len(asked)
    expected = ["the query is empty", "the query is empty", "--top 0: give a number of hits", "--top -3: give"]
    expected += [
        "--random 0: give a number of captions",
        "--random -1: give a number",
        "--seed -1: give a whole number",
    ]
    for line, message in zip(done.stderr.strip().splitlines(), expected, strict=True):
        assert line.startswith("error: ") and message in line
