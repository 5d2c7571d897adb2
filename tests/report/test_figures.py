"""Figures: the numbers drawn are the numbers given, and nothing covers anything."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from figure_texts import assert_legible
from messages import expect_message, refusal
from rewind.figures import curves, forest, ranks, style
from rewind.figures import ranks as rank_intervals

HEADS = {m: m for m in ("meanP", "seqLSTM", "seqTransf", "tightTransf")}
SIX = {"chance": "chance", **HEADS, "ridge": "ridge (closed form)"}
BASELINES = ("chance", "ridge")
GALLERY = {"origin": 60, "hard": 120, "binary": 2}


def interval_table(labels):
    rows = [
        {
            "method": m,
            "setting": s,
            "direction": d,
            "metric": "R@1",
            "estimate": 50.0 - 4 * i,
            "low": 44.0 - 4 * i,
            "high": 57.0 - 4 * i,
            "boot_low": 46.0 - 4 * i,
            "boot_high": 54.0 - 4 * i,
        }
        for i, m in enumerate(labels)
        for s in GALLERY
        for d in ("text_to_item", "item_to_text")
    ]
    return pd.DataFrame(rows)


def rank_table(labels, seeds=3):
    rng, frames = np.random.default_rng(0), []
    for (method, seed), (setting, items) in itertools.product(itertools.product(labels, range(seeds)), GALLERY.items()):
        n = 50
        ties = np.full(n, items - 1) if method == "chance" else np.zeros(n, int)
        higher = np.zeros(n, int) if method == "chance" else rng.integers(0, items, n)
        shared = {"method": method, "seed": seed, "setting": setting, "direction": "text_to_item"}
        frames.append(pd.DataFrame({**shared, "higher": higher, "ties": ties, "rank": 1 + higher + ties / 2}))
    return pd.concat(frames, ignore_index=True)


def history_table(labels, epochs=12):
    rows = [
        {
            "method": m,
            "seed": seed,
            "epoch": e,
            "loss": 5 / e + seed / 10,
            "valid_sum": 100 + 20 * i + 5 * e + 3 * seed,
        }
        for i, m in enumerate(labels)
        for seed in range(3)
        for e in range(1, epochs + 1)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("labels", "baselines"), [(HEADS, ()), (SIX, BASELINES)])
def test_nothing_covers_anything(labels, baselines):
    trained = [m for m in labels if m not in baselines]
    origin = rank_table(labels).query("setting == 'origin'")
    for fig in (
        forest.interval_forest(interval_table(labels), labels, baselines),
        forest.interval_forest(interval_table(labels), labels, baselines, stacked=True),
        forest.interval_forest(interval_table(labels).query("setting == 'hard'"), labels, baselines),
        curves.training_curves(history_table(trained), labels, baselines),
        curves.training_curves(history_table(trained), labels, baselines, ("valid_sum",)),
        ranks.rank_curve(rank_table(labels), GALLERY, labels, baselines),
        ranks.rank_curve(origin, GALLERY, labels, baselines),
    ):
        assert_legible(fig)


def test_methods_differ_without_colour():
    look = style.method_styles([f"m{i}" for i in range(12)] + ["chance", "ridge"], ("chance", "ridge"))
    assert len({(v.marker, str(v.linestyle)) for v in look.values()}) == 14
    four = list(style.method_styles(HEADS).values())
    assert len({v.marker for v in four}) == len({str(v.linestyle) for v in four}) == len({v.color for v in four}) == 4
    assert look["chance"].color == look["ridge"].color == style.GREY


def test_a_method_looks_the_same_with_and_without_baselines():
    assert style.method_styles(SIX, BASELINES)["seqTransf"] == style.method_styles(HEADS)["seqTransf"]


def test_intervals_draw_what_is_given():
    fig = forest.interval_forest(interval_table(SIX), SIX, BASELINES)
    assert [axes.get_title(loc="left") for axes in fig.axes] == ["Origin", "Hard", "Binary"]
    names = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert names == ["meanP", "seqLSTM", "seqTransf", "tightTransf", "chance", "ridge (closed form)"]
    whiskers = [line for line in fig.axes[1].lines if len(line.get_xdata()) == 2]
    assert [list(w.get_xdata()) for w in whiskers[:4]] == [[40.0, 53.0], [42.0, 50.0], [36.0, 49.0], [38.0, 46.0]]
    assert whiskers[1].get_linewidth() < whiskers[0].get_linewidth(), "the bootstrap's is the thin one inside"
    chance = [[line for line in axes.lines if list(line.get_xdata()) == [50, 50]] for axes in fig.axes]
    assert [len(lines) for lines in chance] == [0, 0, 1] and chance[2][0].get_linestyle() == "--"
    left, right = fig.axes[2].get_xlim()
    assert left < 50 < right


def test_stacked_panels_draw_the_same_in_one_column():
    beside, stacked = (forest.interval_forest(interval_table(SIX), SIX, BASELINES, stacked=s) for s in (False, True))
    assert stacked.get_size_inches()[0] == style.SINGLE_COLUMN
    for one, other in zip(beside.axes, stacked.axes, strict=True):
        assert one.get_title(loc="left") == other.get_title(loc="left")
        drawn = [[[list(map(float, line.get_xdata())) for line in axes.lines] for axes in (one, other)]]
        assert drawn[0][0] == drawn[0][1]


def test_intervals_without_such_rows_are_refused():
    with refusal("intervals.csv"):
        forest.interval_forest(interval_table(HEADS).drop(columns="low"), HEADS)
    with refusal("intervals.csv"):
        forest.interval_forest(interval_table(HEADS), HEADS, metric="MnR")
    twice = pd.concat([interval_table(HEADS)] * 2)
    with refusal("intervals.csv"):
        forest.interval_forest(twice, HEADS)


def test_curves_are_the_mean_and_the_band_of_seeds():
    fig = curves.training_curves(history_table(["meanP"]), SIX, BASELINES, ("valid_sum",))
    (axes,) = fig.axes
    assert list(axes.lines[0].get_ydata()[:2]) == [108.0, 113.0]
    band = axes.collections[0].get_paths()[0].vertices
    first = band[band[:, 0] == 1][:, 1]
    assert (first.min(), first.max()) == (105.0, 111.0)


def test_epochs_that_a_seed_lacks_are_left_out():
    table = history_table(["meanP"])
    table.loc[(table["seed"] == 1) & (table["epoch"] > 5), "valid_sum"] = np.nan
    (axes,) = curves.training_curves(table, HEADS, values=("valid_sum",)).axes
    assert list(axes.lines[0].get_xdata()) == [1, 2, 3, 4, 5]
    with refusal():
        curves.training_curves(pd.concat([table, table.iloc[[0]]]), HEADS)


def test_closed_forms_alone_give_a_figure_that_says_so():
    fig = curves.training_curves(pd.DataFrame(columns=["method", "seed", "epoch"]), {"chance": "chance"}, ("chance",))
    assert "closed form" in fig.axes[0].texts[0].get_text()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.data())
def test_cumulative_is_the_expectation_under_ties(gallery, data):
    pairs = st.integers(0, gallery - 1).flatmap(lambda h: st.tuples(st.just(h), st.integers(0, gallery - 1 - h)))
    queries = data.draw(st.lists(pairs, min_size=1, max_size=30))
    higher, ties = np.array(queries).T
    k = np.arange(1, gallery + 1)[:, None]
    expected = np.clip((k - higher) / (ties + 1), 0, 1).mean(axis=1)
    np.testing.assert_allclose(ranks.cumulative_share(higher, ties, gallery), expected, atol=1e-12)


@pytest.mark.parametrize(("higher", "ties"), [([5], [0]), ([0], [5]), ([-1], [0]), ([0], [-1]), ([], [])])
def test_a_rank_outside_the_gallery_is_refused(higher, ties):
    with refusal("ranks"):
        ranks.cumulative_share(np.array(higher), np.array(ties), 5)


def test_rank_curve_of_chance_is_the_diagonal():
    fig = ranks.rank_curve(rank_table(SIX), GALLERY, SIX, BASELINES)
    assert [axes.get_title(loc="left") for axes in fig.axes] == ["Origin", "Hard"]
    line = next(line for line in fig.axes[1].lines if line.get_label() == "chance")
    np.testing.assert_allclose(line.get_ydata(), 100 * np.arange(1, 121) / 120)
    with refusal("ranks"):
        ranks.rank_curve(rank_table(SIX), GALLERY, SIX, direction="item_to_text")


def test_saved_figures_are_the_same_bytes(tmp_path):
    mine = dict(mpl.rcParams)
    with mpl.rc_context({"font.size": 20, "xtick.direction": "in"}):  # a user's own settings change nothing
        one = style.save(ranks.rank_curve(rank_table(HEADS), GALLERY, HEADS), tmp_path / "a" / "ranks.v1")
    two = style.save(ranks.rank_curve(rank_table(HEADS), GALLERY, HEADS), tmp_path / "b" / "ranks.v1")
    assert [p.name for p in one] == ["ranks.v1.png", "ranks.v1.pdf", "ranks.v1.svg"]
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    assert b"CreationDate" not in one[1].read_bytes() and b"dc:date" not in one[2].read_bytes()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["ranks.v1.pdf", "ranks.v1.png", "ranks.v1.svg"]
    assert dict(mpl.rcParams) == mine


def place_table(settings, count=9):
    """Places of methods whose neighbours cannot be told apart."""
    names = [f"Model with a long name {i}" for i in range(count)]
    ends = {"rank": range(1, count + 1), "low": [max(1, i) for i in range(count)]}
    ends["high"] = [min(count, i + 2) for i in range(count)]
    shared = {"direction": "text_to_item", "metric": "R@1", "compared": count, "confidence": 0.95}
    tables = [pd.DataFrame({"method": names, "setting": setting, **shared, **ends}) for setting in settings]
    return pd.concat(tables), {name: name for name in names}


@pytest.mark.parametrize("settings_", [("test",), ("origin", "hard"), ("origin", "hard", "binary")])
def test_every_place_is_drawn_with_its_interval(settings_):
    table, labels = place_table(settings_)
    shuffled = table.sample(frac=1, random_state=1)
    fig = rank_intervals.rank_intervals(shuffled, labels, dict.fromkeys(settings_, "R@1"))
    assert_legible(fig)
    assert len(fig.axes) == len(settings_)
    for axes in fig.axes:
        assert [tick.get_text() for tick in axes.get_yticklabels()] == list(labels), "the best at the top"
        bars = [(bar.get_x() + 0.25, bar.get_x() + bar.get_width() - 0.25) for bar in axes.patches]
        assert np.allclose(bars, table[["low", "high"]][: len(labels)])
        assert [line.get_xdata()[0] for line in axes.lines] == list(range(1, 10))


def test_two_methods_make_no_picture_of_ranks():
    table, labels = place_table(("test",), count=2)
    assert not rank_intervals.ranks_to_draw(table, {"test": "R@1"}, "text_to_item")
    for places in (table, table.iloc[:0], pd.DataFrame()):
        fig = rank_intervals.rank_intervals(places, labels, {"test": "R@1"})
        expect_message(fig.axes[0].texts[0].get_text())
