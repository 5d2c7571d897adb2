"""Places of methods with their intervals, and methods that were not evaluated in every setting."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from evaluated_runs import evaluate
from messages import refusal
from rank_rows import ranks
from rewind.config.report import Statistics
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.inference import difference_inference, holm_adjusted
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import read_not_evaluated, read_ranks
from rewind.statistics.ranks import METHOD_RANK_COLUMNS, method_ranks, rank_bounds, rank_by_mean
from rewind.statistics.simulation import Design, cluster_totals, draw_ranks, metric_values, true_means
from rewind.statistics.variance import stack_components, variance_components

KEYS = Statistics(resamples=100)
LEVELS = {"a": 0.8, "b": 0.79, "c": 0.5, "d": 0.2}


def fixed_runs(levels=LEVELS, queries=300, settings=("test",), start=0):
    """One run of each method, hits with the given chances."""
    rng = np.random.default_rng(start)
    hard = rng.random(queries)
    return {
        name: {0: pd.concat([ranks(np.where(hard + rng.normal(0, 0.05, queries) < level, 0, 9), setting=setting)
                             for setting in settings])}
        for name, level in levels.items()
    }  # fmt: skip


def compared(runs, pairs=None, confidence=0.95, **more):
    names = list(runs)
    keys = Statistics(resamples=100, confidence=confidence)
    wanted = list(combinations(names, 2)) if pairs is None else pairs
    return compare_methods(runs, wanted, keys, RandomFactors(fixed=frozenset(names)), names, **more)


def test_ends_count_who_is_shown_to_be_better_and_worse():
    better = np.zeros((4, 4), dtype=bool)
    better[0, 2:] = better[1, 3] = True
    low, high = rank_bounds(better)
    assert low.tolist() == [1, 1, 2, 3] and high.tolist() == [2, 3, 4, 4]


def test_equal_means_share_a_place():
    assert rank_by_mean(np.array([3.0, 7.0, 7.0 * (1 + 1e-15), 1.0])).tolist() == [3, 1, 1, 4]
    assert rank_by_mean(np.array([3.0, 7.0, 7.0, 1.0]), lower_is_better=True).tolist() == [2, 3, 3, 1]


@pytest.mark.parametrize("metric", ["R@1", "MnR"])
def test_every_method_has_a_rank_with_its_interval(metric):
    found = compared(fixed_runs()).ranks
    assert tuple(found.columns) == METHOD_RANK_COLUMNS
    rows = found[found["metric"] == metric].set_index("method")
    assert (rows["compared"] == 4).all() and (rows["confidence"] == 0.95).all()
    assert rows.loc[["c", "d"], ["rank", "low", "high"]].to_numpy().tolist() == [[3, 3, 3], [4, 4, 4]]
    assert sorted(rows.loc[["a", "b"], "rank"]) == [1, 2]
    assert (rows.loc[["a", "b"], "low"] == 1).all() and (rows.loc[["a", "b"], "high"] == 2).all()
    assert ((rows["low"] <= rows["rank"]) & (rows["rank"] <= rows["high"])).all()


def test_intervals_read_the_adjusted_p_of_the_family():
    found = compared(fixed_runs())
    pairs = found.pairs.assign(p_holm=1.0)
    wide = method_ranks(found.intervals, pairs, list(LEVELS), 0.95)
    assert (wide["low"] == 1).all() and (wide["high"] == 4).all()


def test_there_are_no_ranks_where_two_methods_were_not_compared():
    star = [("a", "b"), ("a", "c"), ("a", "d")]
    assert compared(fixed_runs(), star).ranks.empty
    assert compared(fixed_runs(), []).ranks.empty
    alone = fixed_runs({"a": 0.5})
    assert compared(alone).ranks.empty
    runs = fixed_runs()
    no_p = compare_methods(
        runs, list(combinations(runs, 2)), KEYS, compared=list(runs)
    )  # trained, one seed: no p-value
    assert no_p.pairs["p"].isna().all() and no_p.ranks.empty


def test_chance_has_no_place():
    runs = fixed_runs()
    found = compare_methods(
        runs, list(combinations("abc", 2)), KEYS, RandomFactors(fixed=frozenset(runs)), ["a", "b", "c"]
    )
    assert set(found.ranks["method"]) == {"a", "b", "c"} and (found.ranks["compared"] == 3).all()


@pytest.mark.parametrize(
    "design",
    [
        Design(seeds=1, seed_sd=0.0, queries=200, methods=6, difference=20.0),
        Design(seeds=3, queries=200, methods=5, difference=0.0),
        Design(seeds=3, seed_sd=2.0, queries=200, methods=5, difference=25.0),
    ],
)
def test_intervals_hold_all_places_at_once_as_often_as_they_say(design):
    """All but the last method are truly equal: every order of them is right, so all their places must be held."""
    studies, rng = 400, np.random.default_rng(3)
    drawn = draw_ranks(design, studies, rng)
    totals = cluster_totals(design, 100 * metric_values(drawn, "R@1").astype(float))
    sizes, pairs = np.full(design.clusters, design.cluster), np.array(list(combinations(range(design.methods), 2)))
    found = stack_components(
        [variance_components(totals[:, m], sizes, fixed=design.seeds == 1) for m in range(design.methods)]
    )
    apart = difference_inference(found[pairs[:, 0]], found[pairs[:, 1]], 0.95, 100.0)
    won = holm_adjusted(apart.p.T) < 0.05
    better = np.zeros((studies, design.methods, design.methods), dtype=bool)
    up = apart.estimate.T > 0
    better[:, pairs[:, 0], pairs[:, 1]], better[:, pairs[:, 1], pairs[:, 0]] = won & up, won & ~up
    low, high = rank_bounds(better)
    known = true_means(design, "R@1")
    best = rank_by_mean(known)  # of equal methods, the first of their places
    worst = design.methods + 1 - rank_by_mean(-known)
    held = ((low <= best) & (worst <= high)).all(axis=1).mean()
    assert held >= 0.95 - 2 * (0.95 * 0.05 / studies) ** 0.5
    if design.difference:
        assert (low[:, -1] == high[:, -1]).mean() > 0.3, "intervals that always hold everything say nothing"


def test_a_method_may_lack_settings_for_a_known_reason():
    runs = fixed_runs(settings=("origin", "hard"))
    runs["b"] = {0: runs["b"][0].query("setting == 'origin'")}
    runs = {name: runs[name] for name in "bacd"}  # the first run lacks a setting
    with refusal():
        compared(runs)
    found = compared(runs, left_out={"b": {"hard": "no twins"}})
    assert set(found.intervals.query("setting == 'hard'")["method"]) == set("acd")
    hard = found.pairs.query("setting == 'hard'")
    assert not {"b"} & {*hard["first"], *hard["second"]} and (hard["family"] == 3).all()
    assert (found.pairs.query("setting == 'origin'")["family"] == 6).all()
    assert set(found.gaps["method"]) == set("acd")
    assert found.ranks.groupby("setting")["compared"].first().to_dict() == {"origin": 4, "hard": 3}
    rest = {name: runs[name] for name in "acd"}
    again = compared(rest).pairs.query("setting == 'hard'")
    pd.testing.assert_frame_equal(hard.reset_index(drop=True), again.reset_index(drop=True))


@pytest.fixture
def evaluated(tmp_path):
    """Evaluates matrices on six clips with their twins; returns the folder of ranks and the table of metrics."""
    ids = [name for i in range(6) for name in (f"v{i}", f"v{i}_rev")]
    items = pd.DataFrame({"item_id": ids, "cluster_id": [i.removesuffix("_rev") for i in ids]})
    items["reversed"] = [int("_rev" in i) for i in ids]
    captions = pd.DataFrame(
        {"video_id": ids, "caption": [f"words of {i}" for i in ids], "caption_id": [f"{i}#0" for i in ids]}
    )
    (tmp_path / "captions").mkdir()
    items.assign(path="", split="test", status="ok").to_csv(tmp_path / "items.csv", index=False)
    captions.to_csv(tmp_path / "captions/toy_test.csv", index=False)
    scores = np.random.default_rng(0).normal(size=(12, 12)).astype(np.float32)

    def made(lacking, settings=("origin", "hard", "binary"), queries=None):
        """``lacking``: method → items that its matrix has not."""
        paths = {}
        for method, gone in lacking.items():
            columns = [at for at, name in enumerate(ids) if name not in gone]
            rows = columns if queries is None else queries
            paths[method, 0] = str(tmp_path / f"{method}.npz")
            chosen = {"query_ids": captions["caption_id"].to_numpy(str)[rows], "item_ids": np.array(ids)[columns]}
            np.savez(paths[method, 0], similarity=scores[np.ix_(rows, columns)], **chosen)
        ways = ["text_to_item", "item_to_text"]
        evaluate(tmp_path, "toy", list(settings), ways, paths, str(tmp_path / "ranks"), str(tmp_path / "metrics.csv"))
        return str(tmp_path / "ranks"), pd.read_csv(tmp_path / "metrics.csv")

    made.twins = [name for name in ids if name.endswith("_rev")]
    return made


def test_a_run_without_twins_is_evaluated_in_origin_and_says_why_not_elsewhere(evaluated):
    folder, table = evaluated({"whole": [], "half": evaluated.twins})
    runs = [("whole", 0), ("half", 0)]
    reason = "its vectors have no time-reversed twins"
    assert read_not_evaluated(runs, folder) == {"half": {"hard": reason, "binary": reason}}
    found = read_ranks(runs, folder)
    assert set(found["half"][0]["setting"]) == {"origin"} and set(table.query("method == 'half'")["setting"]) == {
        "origin"
    }
    whole = found["whole"][0].query("setting == 'origin'").reset_index(drop=True)
    pd.testing.assert_frame_equal(found["half"][0], whole)  # the same scores of the same originals
    evaluated({"whole": [], "half": []})
    assert read_not_evaluated(runs, folder) == {}, "a reason that no longer holds is gone"


def test_a_gallery_of_all_items_needs_all_items(evaluated):
    folder, table = evaluated({"whole": [], "half": evaluated.twins}, settings=("origin", "test"))
    assert set(table.query("method == 'half'")["setting"]) == {"origin"}
    assert list(read_not_evaluated([("half", 0)], folder)["half"]) == ["test"]


def test_only_all_twins_together_may_be_missing(evaluated):
    for gone in (["v3"], evaluated.twins[:-1], ["v0", *evaluated.twins]):
        with refusal("half.npz"):
            evaluated({"half": gone})
    with refusal("half.npz"):
        evaluated({"half": evaluated.twins}, queries=[0, 2, 6, 8, 10])
    with refusal("half.npz"):
        evaluated({"half": evaluated.twins}, settings=("hard", "binary"))
    with refusal("evaluation.settings"):
        evaluated({"half": evaluated.twins}, settings=("origin", "hard"))
