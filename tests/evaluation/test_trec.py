"""TREC files: what they hold, and that another tool computes our metrics from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messages import refusal
from rewind.evaluation import trec
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.evaluation.trec import export_trec, write_trec_tables

WAYS = ["text_to_item", "item_to_text"]
SETTINGS = ["origin", "hard", "binary"]


def tables(n: int, captions_each: int = 1):
    """``n`` clips with their twins, each with some captions."""
    ids = [name for i in range(n) for name in (f"v{i}", f"v{i}_rev")]
    items = pd.DataFrame({"item_id": ids, "cluster_id": [i.removesuffix("_rev") for i in ids]})
    items["reversed"] = [int("_rev" in i) for i in ids]
    rows = [(f"{i}#{k}", i) for i in ids for k in range(captions_each)]
    return pd.DataFrame(rows, columns=["caption_id", "video_id"]), items


@pytest.fixture
def study(tmp_path):
    """Writes matrices of runs and what is needed to export them; returns the exporting function."""

    def made(matrices, captions, items, **changes):
        folder = tmp_path / "data"
        (folder / "captions").mkdir(parents=True, exist_ok=True)
        items.assign(path="", split="test", status="ok").to_csv(folder / "items.csv", index=False)
        written = captions.assign(caption=captions["caption_id"])[["video_id", "caption", "caption_id"]]
        written.to_csv(folder / "captions/toy_test.csv", index=False)
        paths = {}
        for run, matrix in matrices.items():
            paths[run] = str(tmp_path / f"{run[0]}{run[1]}.npz")
            names = {"query_ids": captions["caption_id"], "item_ids": items["item_id"]} | changes.get(run[0], {})
            arrays = {name: np.array(ids, dtype=str) for name, ids in names.items()}
            np.savez(paths[run], similarity=np.asarray(matrix, dtype=np.float32), **arrays)
        keys = {"settings": SETTINGS, "directions": WAYS} | changes.get("keys", {})
        return export_trec(
            folder, "toy", keys["settings"], keys["directions"], paths, tmp_path / "trec", changes.get("depth", 1000)
        )

    return made


def read_run(path: Path) -> pd.DataFrame:
    names = ["query", "Q0", "document", "rank", "score", "tag"]
    return pd.read_csv(path, sep=" ", names=names, dtype={"score": np.float32, "query": str})


def measured(qrels: Path, run: Path, names=("Success@1", "Success@5", "Success@10", "RR", "nDCG@10")) -> pd.DataFrame:
    """Query × measure, by ir_measures."""
    tool = pytest.importorskip("ir_measures", reason="ir-measures is not installed")
    found = tool.iter_calc(
        [tool.parse_measure(name) for name in names],
        list(tool.read_trec_qrels(str(qrels))),
        list(tool.read_trec_run(str(run))),
    )
    return pd.DataFrame([(m.query_id, str(m.measure), m.value) for m in found]).pivot(index=0, columns=1, values=2)


@pytest.mark.parametrize("each", [1, 3])
def test_another_tool_agrees_on_every_setting_without_ties(study, tmp_path, each):
    captions, items = tables(30, each)
    scores = np.random.default_rng(each).permutation(captions.shape[0] * len(items)).reshape(len(captions), len(items))
    study({("m", 0): scores}, captions, items)
    ours = rank_table(scores.astype(np.float32), captions, items, SETTINGS, WAYS)
    assert (ours["ties"] == 0).all()
    for (setting, way), part in ours.groupby(["setting", "direction"]):
        found = measured(
            tmp_path / f"trec/qrels_{setting}_{way}.txt", tmp_path / f"trec/run_m_seed0_{setting}_{way}.txt"
        )
        expected = compute_metrics(part)
        assert len(found) == expected["queries"]
        for k in (1, 5, 10):
            assert 100 * found[f"Success@{k}"].mean() == pytest.approx(expected[f"R@{k}"], abs=1e-9)
        assert found["RR"].mean() == pytest.approx(expected["MRR"], abs=1e-9)
        assert (1 / found["RR"]).mean() == pytest.approx(expected["MnR"], abs=1e-9)
        assert np.median(1 / found["RR"]) == pytest.approx(expected["MdR"], abs=1e-9)
        if each == 1 or way == "text_to_item":  # trec_eval's counts all captions of an item, ours its best
            assert found["nDCG@10"].mean() == pytest.approx(expected["nDCG@10"], abs=1e-9)


@pytest.mark.slow
def test_tied_runs_lie_within_our_bounds_and_average_to_our_expectation(study, tmp_path):
    captions, items = tables(8)
    random = np.random.default_rng(5)
    scores = random.integers(0, 4, (16, 16)).astype(np.float32)
    ours = rank_table(scores, captions, items, ["hard"], ["text_to_item"])
    expected = compute_metrics(ours)
    assert (ours["ties"] > 0).mean() > 0.5
    keys = {"keys": {"settings": ["hard"], "directions": ["text_to_item"]}}

    def tool(matrix):
        study({("m", 0): matrix}, captions, items, **keys)
        names = [tmp_path / f"trec/{kind}_hard_text_to_item.txt" for kind in ("qrels", "run_m_seed0")]
        found = measured(*names)
        return {column: float(found[column].mean()) for column in found}

    asis = tool(scores)
    truth = np.eye(16, dtype=np.float32) / 4  # less than the step between scores: it moves the truth among its ties
    best, worst = tool(scores + truth), tool(scores - truth)
    for k in (1, 5, 10):
        name = f"Success@{k}"
        assert 100 * best[name] == pytest.approx(expected[f"R@{k}_optimistic"])
        assert 100 * worst[name] == pytest.approx(expected[f"R@{k}_pessimistic"])
        assert worst[name] - 1e-9 <= asis[name] <= best[name] + 1e-9
    drawn = [tool(scores + random.permuted(np.tile(np.arange(16) / 64, (16, 1)), axis=1)) for _ in range(150)]
    assert 100 * np.mean([d["Success@1"] for d in drawn]) == pytest.approx(expected["R@1"], abs=2.5)
    assert np.mean([d["RR"] for d in drawn]) == pytest.approx(expected["MRR"], abs=0.02)


def test_files_and_their_lines(study, tmp_path):
    captions, items = tables(2)
    scores = [[3, 4, 0, 0], [1, 2, 0, 0], [5, 0, 3, 3], [0, 0, 1, 2]]
    written = study({("a", 0): scores, ("b", 1): scores}, captions, items)
    assert len(written) == 6 + 2 * 6 and all(path.is_file() for path in written)
    lines = (tmp_path / "trec/run_a_seed0_hard_text_to_item.txt").read_text().splitlines()
    assert lines[:4] == [
        "v0#0 Q0 v0_rev 1 4 a_seed0",
        "v0#0 Q0 v0 2 3 a_seed0",
        "v0#0 Q0 v1_rev 3 0 a_seed0",  # tied: ids descending
        "v0#0 Q0 v1 4 0 a_seed0",
    ]
    assert (tmp_path / "trec/qrels_origin_item_to_text.txt").read_text() == "v0 0 v0#0 1\nv1 0 v1#0 1\n"
    binary = (tmp_path / "trec/run_b_seed1_binary_item_to_text.txt").read_text().splitlines()
    assert binary[:2] == ["v0/v0#0 Q0 v0#0 1 3 b_seed1", "v0/v0#0 Q0 v0_rev#0 2 1 b_seed1"]


def test_a_cut_run_keeps_the_truth_and_what_is_measured_above_the_cut(study, tmp_path):
    captions, items = tables(20)
    scores = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    keys = {"settings": ["hard"], "directions": ["text_to_item"]}
    study({("m", 0): scores}, captions, items, depth=10, keys=keys)
    run = read_run(tmp_path / "trec/run_m_seed0_hard_text_to_item.txt")
    ours = rank_table(scores, captions, items, ["hard"], ["text_to_item"])
    truth = run[run["query"].str.removesuffix("#0") == run["document"]].set_index("query")["rank"]
    assert truth.loc[ours["query_id"]].tolist() == ours["rank"].tolist()
    assert set(run.groupby("query").size()) == {10, 11}
    found = measured(tmp_path / "trec/qrels_hard_text_to_item.txt", tmp_path / "trec/run_m_seed0_hard_text_to_item.txt")
    expected = compute_metrics(ours)
    assert [100 * found[f"Success@{k}"].mean() for k in (1, 5, 10)] == pytest.approx(
        [expected[f"R@{k}"] for k in (1, 5, 10)]
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=4, max_size=4))
def test_scores_are_read_back_to_the_last_bit(tmp_path_factory, values):
    captions, items = tables(1)
    scores = np.array(values, dtype=np.float32).reshape(2, 2)
    asked = trec.make_retrieval_task(scores, captions, items, "hard", "text_to_item")
    path = write_trec_tables(tmp_path_factory.mktemp("run") / "run.txt", trec.run_tables(asked, "t"))
    found = read_run(path).pivot(index="query", columns="document", values="score")
    read = found.loc[captions["caption_id"], items["item_id"]].to_numpy(dtype=np.float32)
    assert (read == scores).all()


def test_blanks_in_ids_are_escaped_and_distinct_ids_stay_distinct():
    assert trec.escape_id("a b%20c\td") == "a%20b%2520c%09d" and trec.escape_id("v0#0") == "v0#0"
    names = ["a b", "a%20b", "a\u00a0b", "a\u2003b", "a  b"]
    assert len({trec.escape_id(name) for name in names}) == len(names)
    assert not any(len(trec.escape_id(name).split()) > 1 for name in names)


def test_the_same_matrix_gives_the_same_bytes(study, tmp_path):
    captions, items = tables(5)
    scores = np.random.default_rng(1).integers(0, 3, (10, 10))
    first = {path.name: path.read_bytes() for path in study({("m", 0): scores}, captions, items)}
    assert first == {path.name: path.read_bytes() for path in study({("m", 0): scores}, captions, items)}


def test_what_cannot_be_exported_is_refused_by_file_and_id(study, tmp_path):
    captions, items = tables(2)
    good = np.eye(4)
    spoilt = good.copy()
    spoilt[1, 2] = np.nan
    with refusal("m0.npz"):
        study({("m", 0): spoilt}, captions, items)
    with refusal("m0.npz"):
        study({("m", 0): good}, captions, items, m={"item_ids": ["v0", "v0_rev", "v1", "other"]})
    with refusal("m0.npz"):
        study(
            {("m", 0): good}, captions, items, m={"item_ids": ["v0", "v0", "v1", "v1_rev"]}, keys={"settings": ["test"]}
        )
    with refusal("n0.npz"):
        names = {"query_ids": ["v0#0", "v0_rev#0", "v1#0"]}
        study({("m", 0): good, ("n", 0): good[:3]}, captions, items, n=names, keys={"settings": ["test"]})
    with refusal("m0.npz"):
        study({("m", 0): good}, captions, items, m={"query_ids": ["v0#0", "v0_rev#0", "v1#0"]})
    same = captions.assign(caption_id=items["item_id"])
    with refusal("m0.npz"):
        study({("m", 0): good}, same, items)
    (tmp_path / "m0.npz").unlink()
    with refusal("m0.npz"):
        export_trec(tmp_path / "data", "toy", ["hard"], WAYS, {("m", 0): str(tmp_path / "m0.npz")}, tmp_path / "trec")
