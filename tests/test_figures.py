"""Figures: the numbers drawn are the numbers given, and nothing covers anything."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from rewind.errors import RewindError
from rewind.reporting import figures, style
from rewind.reporting.examples import retrieval_examples

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


def shown_texts(fig):
    """Every text that is drawn, with its box in pixels."""
    fig.draw_without_rendering()
    texts = [*fig.texts, *(t for legend in fig.legends for t in legend.get_texts())]
    for axes in fig.axes:
        if not axes.axison:
            continue
        texts += [axes.title, axes._left_title, *axes.texts, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
    kept = [t for t in texts if t is not None and t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent()) for t in kept]


def assert_legible(fig):
    page = fig.bbox
    boxes = shown_texts(fig)
    assert len(boxes) >= 3
    for text, box in boxes:
        assert box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1, f"{text!r} leaves the page"
        assert box.y0 >= page.y0 - 1 and box.y1 <= page.y1 + 1, f"{text!r} leaves the page"
    for (a, one), (b, two) in itertools.combinations(boxes, 2):
        wide = min(one.x1, two.x1) - max(one.x0, two.x0)
        tall = min(one.y1, two.y1) - max(one.y0, two.y0)
        assert wide <= 1 or tall <= 1, f"{a!r} covers {b!r}"
    for legend, axes in itertools.product(fig.legends, fig.axes):
        assert not legend.get_window_extent().overlaps(axes.get_window_extent())


@pytest.mark.parametrize(("labels", "baselines"), [(HEADS, ()), (SIX, BASELINES)])
def test_nothing_covers_anything(labels, baselines):
    trained = [m for m in labels if m not in baselines]
    origin = rank_table(labels).query("setting == 'origin'")
    for fig in (
        figures.intervals(interval_table(labels), labels, baselines),
        figures.intervals(interval_table(labels).query("setting == 'hard'"), labels, baselines),
        figures.training_curves(history_table(trained), labels, baselines),
        figures.training_curves(history_table(trained), labels, baselines, ("valid_sum",)),
        figures.rank_curve(rank_table(labels), GALLERY, labels, baselines),
        figures.rank_curve(origin, GALLERY, labels, baselines),
    ):
        assert_legible(fig)


def test_methods_differ_without_colour():
    look = style.looks([f"m{i}" for i in range(12)] + ["chance", "ridge"], ("chance", "ridge"))
    assert len({(v.marker, str(v.linestyle)) for v in look.values()}) == 14
    four = list(style.looks(HEADS).values())
    assert len({v.marker for v in four}) == len({str(v.linestyle) for v in four}) == len({v.color for v in four}) == 4
    assert look["chance"].color == look["ridge"].color == style.GREY


def test_a_method_looks_the_same_with_and_without_baselines():
    assert style.looks(SIX, BASELINES)["seqTransf"] == style.looks(HEADS)["seqTransf"]


def test_intervals_draw_what_is_given():
    fig = figures.intervals(interval_table(SIX), SIX, BASELINES)
    assert [axes.get_title(loc="left") for axes in fig.axes] == ["Origin", "Hard", "Binary"]
    names = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert names == ["meanP", "seqLSTM", "seqTransf", "tightTransf", "chance", "ridge (closed form)"]
    whiskers = [line.get_xdata() for line in fig.axes[1].lines if len(line.get_xdata()) == 2]
    assert [list(w) for w in whiskers[:2]] == [[40.0, 53.0], [36.0, 49.0]]
    chance = [[line for line in axes.lines if list(line.get_xdata()) == [50, 50]] for axes in fig.axes]
    assert [len(lines) for lines in chance] == [0, 0, 1] and chance[2][0].get_linestyle() == "--"
    left, right = fig.axes[2].get_xlim()
    assert left < 50 < right


def test_intervals_without_such_rows_are_refused():
    with pytest.raises(RewindError, match="no row of MnR"):
        figures.intervals(interval_table(HEADS), HEADS, metric="MnR")
    twice = pd.concat([interval_table(HEADS)] * 2)
    with pytest.raises(RewindError, match="'meanP' is there twice"):
        figures.intervals(twice, HEADS)


def test_curves_are_the_mean_and_the_band_of_seeds():
    fig = figures.training_curves(history_table(["meanP"]), SIX, BASELINES, ("valid_sum",))
    (axes,) = fig.axes
    assert list(axes.lines[0].get_ydata()[:2]) == [108.0, 113.0]
    band = axes.collections[0].get_paths()[0].vertices
    first = band[band[:, 0] == 1][:, 1]
    assert (first.min(), first.max()) == (105.0, 111.0)


def test_epochs_that_a_seed_lacks_are_left_out():
    table = history_table(["meanP"])
    table.loc[(table["seed"] == 1) & (table["epoch"] > 5), "valid_sum"] = np.nan
    (axes,) = figures.training_curves(table, HEADS, values=("valid_sum",)).axes
    assert list(axes.lines[0].get_xdata()) == [1, 2, 3, 4, 5]
    with pytest.raises(RewindError, match="twice"):
        figures.training_curves(pd.concat([table, table.iloc[[0]]]), HEADS)


def test_closed_forms_alone_give_a_figure_that_says_so():
    fig = figures.training_curves(pd.DataFrame(columns=["method", "seed", "epoch"]), {"chance": "chance"}, ("chance",))
    assert "closed form" in fig.axes[0].texts[0].get_text()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.data())
def test_cumulative_is_the_expectation_under_ties(gallery, data):
    pairs = st.integers(0, gallery - 1).flatmap(lambda h: st.tuples(st.just(h), st.integers(0, gallery - 1 - h)))
    queries = data.draw(st.lists(pairs, min_size=1, max_size=30))
    higher, ties = np.array(queries).T
    k = np.arange(1, gallery + 1)[:, None]
    expected = np.clip((k - higher) / (ties + 1), 0, 1).mean(axis=1)
    np.testing.assert_allclose(figures.cumulative(higher, ties, gallery), expected, atol=1e-12)


@pytest.mark.parametrize(("higher", "ties"), [([5], [0]), ([0], [5]), ([-1], [0]), ([0], [-1]), ([], [])])
def test_a_rank_outside_the_gallery_is_refused(higher, ties):
    with pytest.raises(RewindError, match="gallery of 5"):
        figures.cumulative(np.array(higher), np.array(ties), 5)


def test_rank_curve_of_chance_is_the_diagonal():
    fig = figures.rank_curve(rank_table(SIX), GALLERY, SIX, BASELINES)
    assert [axes.get_title(loc="left") for axes in fig.axes] == ["Origin", "Hard"]
    line = next(line for line in fig.axes[1].lines if line.get_label() == "chance")
    np.testing.assert_allclose(line.get_ydata(), 100 * np.arange(1, 121) / 120)
    with pytest.raises(RewindError, match="no row of item_to_text"):
        figures.rank_curve(rank_table(SIX), GALLERY, SIX, direction="item_to_text")


def test_saved_figures_are_the_same_bytes(tmp_path):
    mine = dict(mpl.rcParams)
    with mpl.rc_context({"font.size": 20, "xtick.direction": "in"}):  # a user's own settings change nothing
        one = style.save(figures.rank_curve(rank_table(HEADS), GALLERY, HEADS), tmp_path / "a" / "ranks.v1")
    two = style.save(figures.rank_curve(rank_table(HEADS), GALLERY, HEADS), tmp_path / "b" / "ranks.v1")
    assert [p.name for p in one] == ["ranks.v1.png", "ranks.v1.pdf"]
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    assert b"CreationDate" not in one[1].read_bytes()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["ranks.v1.pdf", "ranks.v1.png"]
    assert dict(mpl.rcParams) == mine


def query(caption="a red circle rises", truth=0, rank=1.0, shape=(112, 112, 3), top=5):
    image = np.full(shape, 255, np.uint8)
    hits = [{"image": image, "score": 0.9 - j / 10, "truth": j == truth} for j in range(top)]
    return {"caption": caption, "rank": rank, "hits": hits}


LONG = "a small red circle rises slowly above a dark striped background and then it quickly shrinks to nothing"


@pytest.mark.parametrize("shape", [(112, 112, 3), (3, 112, 112, 3), (90, 160, 3)])
def test_examples_cover_nothing(shape):
    queries = [query(shape=shape), query(LONG, None, 1234.5, shape), query("$5 or $6 & 10%", 4, 5.0, shape)]
    fig = retrieval_examples(queries, score="cosine")
    assert_legible(fig)
    for one, two in itertools.combinations([axes.get_window_extent() for axes in fig.axes], 2):
        assert not one.overlaps(two)


def test_the_truth_is_framed_ticked_or_its_rank_printed():
    fig = retrieval_examples([query(truth=1, rank=2.0), query(truth=None, rank=17.5), query(truth=None, rank=1234.0)])
    labels = [axes.get_xlabel() for axes in fig.axes]
    assert labels[:5] == ["0.900", "✓ 0.800", "0.700", "0.600", "0.500"]
    assert not any("✓" in label for label in labels[5:])
    frames = [to_hex(axes.spines["left"].get_edgecolor()) for axes in fig.axes]
    assert [f == style.TRUTH for f in frames] == [i == 1 for i in range(15)]
    printed = [t.get_text() for t in fig.texts if "rank" in t.get_text()]
    assert printed == ["truth at rank 17.5", "truth at rank 1,234"]


def test_strips_stand_side_by_side():
    frames = np.stack([np.full((10, 20, 3), v, np.uint8) for v in (0, 100, 250)])
    given_ = {"caption": "x", "rank": 1, "hits": [{"image": frames, "score": 0.5, "truth": True}]}
    drawn = retrieval_examples([given_]).axes[0].images[0].get_array()
    assert drawn.shape[0] == 10 and [drawn[0, x, 0] for x in (0, 30, 61)] == [0, 100, 250]


def test_examples_that_cannot_be_drawn_are_refused():
    with pytest.raises(RewindError, match=r"query 1, hit 0: .* float64 \[4, 4, 3\]"):
        retrieval_examples([query(), {**query(), "hits": [{"image": np.zeros((4, 4, 3)), "score": 0.0}]}])
    with pytest.raises(RewindError, match="query 0: the caption is empty"):
        retrieval_examples([query(caption=" ")])
    with pytest.raises(RewindError, match="query 0 has no 'rank'"):
        retrieval_examples([{"caption": "x", "hits": []}])
    assert retrieval_examples([]).axes[0].texts[0].get_text().startswith("No retrieval examples")
