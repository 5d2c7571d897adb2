"""The statistics stage: the bootstrap, the three tables, what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import rewind.ranking_metrics
from messages import expect_message, refusal
from rank_rows import ranks
from rewind.config.report import Statistics
from rewind.evaluation.ranking import rank_table
from rewind.io.files import write_parquet
from rewind.statistics.blocks import check_ranks
from rewind.statistics.bootstrap import Resamples, bootstrap_p_value, percentile_interval
from rewind.statistics.comparisons import GAP_COLUMNS, INTERVAL_COLUMNS, compare_methods
from rewind.statistics.pairs import ALL_RANDOM, PAIR_COLUMNS
from rewind.statistics.rank_files import ranks_path
from rewind.statistics.study import compute_statistics
from rewind.statistics.variance import Clusters

KEYS = Statistics(resamples=2000)


def random_runs(methods, seeds, queries=100, setting="test", start=0):
    rng = np.random.default_rng(start)
    easy = rng.geometric(0.3, queries)
    return {
        m: {s: ranks(np.maximum(easy + rng.integers(-2, 3, queries) - 1, 0), setting=setting) for s in range(seeds)}
        for m in methods
    }


def test_resampled_means_equal_a_plain_loop():
    rng = np.random.default_rng(0)
    ids = np.array(["a", "c", "b", "c", "a", "c"])
    values, clusters = rng.normal(size=(2, 6)), Clusters.of(ids)
    draws = Resamples.draw(clusters, 50, seed=1)
    assert (draws.weights.sum(axis=1) == 3).all()
    for b, found in enumerate(draws.means(clusters.totals(values))):
        rows = [
            i
            for name, w in zip("abc", draws.weights[b], strict=True)
            for i in np.flatnonzero(ids == name).tolist() * int(w)
        ]
        np.testing.assert_allclose(found, values[:, rows].mean(axis=1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("spread", [3, 60])
def test_resampled_medians_equal_a_plain_loop(spread):
    """Every order of two tied items is looked at: a tied query counts half at each of its places."""
    rng = np.random.default_rng(2)
    ids = rng.permutation(np.arange(15) // 3)
    higher, ties = rng.integers(0, spread, (2, 15)), rng.integers(0, 2, (2, 15))
    draws = Resamples.draw(Clusters.of(ids), 60, seed=1)
    for b, found in enumerate(draws.medians(higher, ties)):
        rows = [i for c in range(5) for i in np.flatnonzero(ids == c).tolist() * int(draws.weights[b, c])]
        pooled = np.sort(np.concatenate([1 + higher[:, rows], 1 + (higher + ties)[:, rows]], axis=None))
        assert found == pooled[int(np.ceil(len(pooled) / 2)) - 1]


def test_every_cluster_is_drawn_alike():
    weights = Resamples.draw(Clusters.of(np.arange(40)), 5000, seed=0).weights
    assert abs(weights.mean(axis=0) - 1).max() < 5 / 5000**0.5
    assert weights.var() == pytest.approx(1 - 1 / 40, rel=0.02)  # of a multinomial count


def test_bootstrap_intervals_cover_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    clusters, hits = Clusters.of(np.arange(200) // 2), 0
    for trial in range(300):
        values = np.repeat(rng.normal(size=100), 2) + rng.normal(size=200)
        samples = Resamples.draw(clusters, 500, trial).means(clusters.totals(values[None]))
        low, high = percentile_interval(samples[:, 0], 0.95)
        hits += low <= 0 <= high
    assert 0.90 <= hits / 300 <= 0.985
    # Drawing queries and not clusters would take them for independent and cover far less.


def test_identical_methods_differ_by_nothing():
    table = ranks(np.random.default_rng(0).integers(0, 5, 60))
    pairs = compare_methods({"a": {0: table, 1: table}, "b": {0: table, 1: table}}, [("a", "b")], KEYS).pairs
    for column, value in (("difference", 0), ("p", 1), ("p_holm", 1), ("boot_p", 1), ("boot_p_holm", 1), ("effect", 0)):
        assert (pairs[column] == value).all(), column


def test_equal_hits_of_other_queries_are_ties_in_the_bootstrap():
    """Resampled differences of exactly 0 count on both sides, with unlike numbers of seeds too."""
    a, b = np.zeros(40, int), np.zeros(40, int)
    a[:2], b[2:4] = 30, 30
    runs = {"a": {s: ranks(a) for s in range(2)}, "b": {s: ranks(b) for s in range(3)}}
    pairs = compare_methods(runs, [("a", "b")], KEYS).pairs.set_index("metric")
    assert pairs.loc["R@1", "difference"] == pytest.approx(0, abs=1e-12) and pairs.loc["R@1", "boot_p"] == 1


def test_a_clear_winner_is_found_and_the_bootstraps_p_is_never_zero():
    rng = np.random.default_rng(0)
    runs = {
        "good": {s: ranks(rng.integers(0, 2, 80)) for s in range(3)},
        "bad": {s: ranks(rng.integers(3, 30, 80)) for s in range(3)},
    }
    row = compare_methods(runs, [("good", "bad")], KEYS).pairs.set_index("metric").loc["R@1"]
    assert row["low"] < row["difference"] < row["high"] and 0 < row["p"] < 1e-4 and row["effect"] > 0.8
    assert row["boot_p"] == pytest.approx(2 / 2001)
    assert bootstrap_p_value(np.ones((99, 1)))[0] == pytest.approx(2 / 100)


def test_intervals_hold_the_mean_over_seeds():
    runs = random_runs("a", 3)
    intervals = compare_methods(runs, [], KEYS).intervals
    assert tuple(intervals.columns) == INTERVAL_COLUMNS and list(intervals["metric"]) == [
        *rewind.ranking_metrics.tested_metrics(),
        "MdR",
    ]
    per_seed = [100 * (t["higher"] < 1).mean() for t in runs["a"].values()]
    row = intervals.set_index("metric").loc["R@1"]
    assert row["estimate"] == pytest.approx(np.mean(per_seed)) and row["std"] == pytest.approx(np.std(per_seed, ddof=1))
    assert row["low"] < row["estimate"] < row["high"] and row["clusters"] == 50 and row["seeds"] == 3
    assert row["boot_low"] < row["estimate"] < row["boot_high"] and 0 < row["seed_share"] < 1 and 2 <= row["df"] <= 49


def test_one_and_two_seeds_are_labelled():
    runs = random_runs("ab", 2) | {"alone": random_runs("x", 1)["x"]}
    found = compare_methods(runs, [("a", "b"), ("a", "alone")], KEYS)
    by = found.intervals[found.intervals["metric"] == "R@1"].set_index("method")["procedure"]
    expect_message("\n".join(by))
    pairs = found.pairs[found.pairs["metric"] == "R@1"].set_index("second")
    expect_message("\n".join(pairs["procedure"]))
    assert np.isfinite(pairs.loc["b", "p"])
    assert pairs.loc["b", "p_holm"] == pytest.approx(min(1, 2 * pairs.loc["b", "p"])), "the family stays as declared"
    alone = pairs.loc["alone"]
    assert np.isnan(alone["p"]) and np.isnan(alone["p_holm"])
    assert alone["low"] < alone["difference"] < alone["high"] and 0 < alone["boot_p"] <= 1


def test_exact_ties_are_not_beyond_doubt():
    """An order-blind method in Binary: every query is tied with its twin, in every seed; other queries may not be."""
    tied = {s: ranks(np.zeros(20, int), setting="binary", ties=1) for s in range(3)}
    found = compare_methods({"a": tied, "b": tied}, [("a", "b")], KEYS)
    row = found.intervals.set_index(["method", "metric"]).loc[("a", "R@1")]
    assert row["estimate"] == row["boot_low"] == row["boot_high"] == 50
    unseen = 1 - 0.025 ** (1 / row["clusters"])
    assert (row["low"], row["high"]) == pytest.approx((50 * (1 - unseen), 50 * (1 + unseen)))
    assert (found.pairs["p"] == 1).all() and (found.pairs["low"] < 0).all() and (found.pairs["high"] > 0).all()


def test_the_effect_is_the_share_of_queries_won_less_that_lost():
    a = ranks([0, 0, 0, 5, 9, 2, 3, 4], clusters=np.arange(8))
    b = ranks([0, 1, 2, 0, 9, 3, 4, 5], clusters=np.arange(8))
    effect = compare_methods({"a": {0: a}, "b": {0: b}}, [("a", "b")], KEYS).pairs.set_index("metric")["effect"]
    assert effect["R@1"] == pytest.approx((2 - 1) / 8) and effect["MnR"] == pytest.approx((5 - 1) / 8)
    assert effect["MRR"] == pytest.approx(effect["MnR"])


def gap_runs():
    rng = np.random.default_rng(5)
    runs = {}
    for method in "ab":
        runs[method] = {}
        for seed in range(3):
            origin = ranks(rng.integers(0, 6, 40), clusters=np.arange(40), setting="origin")
            hard = ranks(rng.integers(0, 6, 80), clusters=np.arange(80) // 2, setting="hard")
            hard.loc[::2, "higher"] = origin["higher"].to_numpy() + hard["higher"][::2].to_numpy() // 5  # never fewer
            hard["rank"] = 1 + hard["higher"]
            hard["query_id"] = [f"q{i // 2:04}{'_rev' * (i % 2)}" for i in range(80)]
            runs[method][seed] = pd.concat([hard, origin], ignore_index=True)
    return runs


def test_gaps_compare_the_same_queries_of_the_same_runs():
    runs = gap_runs()
    gaps = compare_methods(runs, [], KEYS).gaps
    assert (
        tuple(gaps.columns) == GAP_COLUMNS
        and len(gaps) == 2 * len(rewind.ranking_metrics.tested_metrics())
        and (gaps["queries"] == 40).all()
    )
    row = gaps.set_index(["method", "metric"]).loc[("a", "R@1")]
    per_seed = []
    for table in runs["a"].values():
        hits = table.assign(hit=100.0 * (table["higher"] == 0)).pivot(index="query_id", columns="setting", values="hit")
        per_seed.append((hits["origin"] - hits["hard"]).dropna())
    values = np.stack(per_seed)
    assert row["gap"] == pytest.approx(values.mean()) and row["low"] < row["gap"] < row["high"]
    raw = values.mean(axis=0).var(ddof=1) / 40
    seed = values.mean(axis=1).var(ddof=1) / 3
    inner = values - values.mean(axis=1, keepdims=True)
    overlap = ((inner - inner.mean(axis=0)) ** 2).sum() / (3 * 2 * 40 * 39)
    variance = seed + raw - overlap if raw - overlap > raw / 10 else max(seed, raw)
    share, shrink = row["gap"] / 100, stats.t.ppf(0.975, row["df"]) ** 2 * variance / 1e4
    shrink /= share * (1 - share)  # Wilson's interval: a gap of R@k is a share, more clips never help
    half = (shrink * share * (1 - share) + shrink**2 / 4) ** 0.5
    ends = [100 * (share + shrink / 2 + sign * half) / (1 + shrink) for sign in (-1, 1)]
    assert (row["low"], row["high"]) == pytest.approx(tuple(ends))


def test_without_both_settings_there_is_no_gap():
    gaps = compare_methods(random_runs("ab", 2, setting="origin"), [], KEYS).gaps
    assert gaps.empty and tuple(gaps.columns) == GAP_COLUMNS


def test_the_order_of_rows_seeds_and_methods_does_not_matter():
    runs = gap_runs()
    shuffled = {m: {s: runs[m][s].sample(frac=1, random_state=7) for s in (2, 0, 1)} for m in ("b", "a")}
    one, other = compare_methods(runs, [("a", "b")], KEYS), compare_methods(shuffled, [("a", "b")], KEYS)
    for table, again in zip(vars(one).values(), vars(other).values(), strict=True):
        names = [c for c in table.columns if c in ("method", "first", "second", "setting", "direction", "metric")]
        left, right = (t.sort_values(names, ignore_index=True) for t in (table, again))
        pd.testing.assert_frame_equal(left, right, rtol=1e-6)


def written(folder, runs):
    for method, seeds in runs.items():
        for seed, table in seeds.items():
            write_parquet(ranks_path(str(folder / "ranks"), method, seed), table)
    return [(m, s) for m, seeds in runs.items() for s in seeds]


def stage(folder, runs, out="out", pairs=(("a", "b"),)):
    paths = [folder / out / f"{name}.csv" for name in ("intervals", "pairs", "gaps", "ranks", "chance")]
    compute_statistics(runs, str(folder / "ranks"), list(pairs), KEYS, ALL_RANDOM, *map(str, paths), ["a", "b"])
    return paths


def test_two_runs_of_the_stage_write_the_same_bytes(tmp_path):
    runs = written(tmp_path, gap_runs())
    for one, other in zip(stage(tmp_path, runs), stage(tmp_path, runs, "again"), strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert tuple(pd.read_csv(tmp_path / "out/pairs.csv").columns) == PAIR_COLUMNS


def test_a_missing_run_is_named(tmp_path):
    runs = written(tmp_path, random_runs("ab", 2))
    with refusal("ranks/b/seed7.parquet"):
        stage(tmp_path, [*runs, ("b", 7)])


@pytest.mark.parametrize(
    ("column", "value", "place"),
    [
        ("rank", np.nan, ""),
        ("higher", -1.0, ""),
        ("query_id", "q0002", ""),
    ],
)
def test_broken_rows_are_refused_with_their_file_and_row(tmp_path, column, value, place):
    runs = random_runs("ab", 2)
    table = runs["a"][1]
    table[column] = table[column].astype(object if column == "query_id" else float)
    table.loc[3, column] = value
    with refusal(place):
        stage(tmp_path, written(tmp_path, runs))


def test_broken_tables_are_refused():
    table = ranks(np.zeros(4, int))
    with refusal("x"):
        check_ranks(table.drop(columns="ties"), "x")
    with refusal("x"):
        check_ranks(table.iloc[:0], "x")


def test_runs_that_cannot_be_compared_are_refused():
    table = ranks(np.zeros(8, int))
    with refusal():
        compare_methods({"a": {0: table}, "b": {0: ranks(np.zeros(7, int))}}, [("a", "b")], KEYS)
    other = ranks(np.zeros(8, int), clusters=["c0"] * 8)
    with refusal():
        compare_methods(
            {"a": {0: ranks(np.zeros(8, int), clusters=["c0"] * 2 + ["c1"] * 6)}, "b": {0: other}}, [], KEYS
        )
    with refusal():
        both = pd.concat([table, ranks(np.zeros(8, int), setting="hard")])
        compare_methods({"a": {0: table}, "b": {0: both}}, [], KEYS)
    with refusal("statistics.pairs"):
        compare_methods({"a": {0: table}}, [("a", "z")], KEYS)
    with refusal("statistics"):
        compare_methods({}, [], KEYS)


def constant_runs(captions_of_item: int, seeds: int = 1) -> dict[int, pd.DataFrame]:
    """Ranks of a scorer that gives every pair the same score, of 12 clips with their twins, in both directions."""
    names = [f"v{n}{suffix}" for suffix in ("", "_rev") for n in range(12)]
    items = pd.DataFrame({"item_id": names, "cluster_id": [n % 12 for n in range(24)], "reversed": [0] * 12 + [1] * 12})
    videos = [name for name in names for _ in range(captions_of_item)]
    captions = pd.DataFrame({"caption_id": [f"{video}#{n}" for n, video in enumerate(videos)], "video_id": videos})
    scores = np.full((len(captions), len(items)), 0.25)
    directions = ["text_to_item", "item_to_text"]
    table = rank_table(scores, captions, items, ["origin", "hard", "binary"], directions)
    return {seed: table for seed in range(seeds)}


@pytest.mark.parametrize("captions_of_item", [1, 3])
@pytest.mark.parametrize("seeds", [1, 2])
def test_numbers_of_a_constant_scorer_have_no_error(captions_of_item, seeds):
    """Whatever queries are drawn, its numbers are the same: nothing was estimated."""
    constant = constant_runs(captions_of_item, seeds)
    runs = {"same": constant, "other": constant}
    found = compare_methods(runs, [("same", "other")], KEYS, compared=["same", "other"])
    for table, value in ((found.gaps, "gap"), (found.intervals[found.intervals["setting"] != "binary"], "estimate")):
        assert len(table) and (table["low"] == table[value]).all() and (table["high"] == table[value]).all()
    gaps = found.gaps[(found.gaps["metric"] == "R@1") & (found.gaps["method"] == "same")].set_index("direction")["gap"]
    assert gaps["text_to_item"] == pytest.approx(100 / 12 - 100 / 24)
    # By brute force: of the orders of an item's captions among all, those in which one of its own is first.
    own, every = captions_of_item, 12 * captions_of_item
    assert gaps["item_to_text"] == pytest.approx(100 / (every - own + 1) - 100 / (2 * every - own + 1))
    pairs = found.pairs[found.pairs["setting"] != "binary"]
    assert (pairs[["difference", "low", "high"]] == 0).all(axis=None)


def test_ties_that_other_queries_may_break_keep_their_error():
    """A perfect model that cannot see the order of frames ties each clip with its twin alone."""
    names = [f"v{n}{suffix}" for suffix in ("", "_rev") for n in range(12)]
    items = pd.DataFrame({"item_id": names, "cluster_id": [n % 12 for n in range(24)], "reversed": [0] * 12 + [1] * 12})
    captions = pd.DataFrame({"caption_id": [f"{name}#0" for name in names], "video_id": names})
    scores = np.tile(np.eye(12), (2, 2))
    table = rank_table(scores, captions, items, ["origin", "hard"], ["text_to_item", "item_to_text"])
    found = compare_methods({"blind": {0: table}}, [], KEYS)
    gaps = found.gaps[found.gaps["metric"] == "R@1"]
    assert (gaps["gap"] == 50).all() and (gaps["low"] < 50).all() and (gaps["high"] > 50).all()
