"""Pairs, the gap, the heat map, the embedding space: the numbers drawn are the numbers given."""

import itertools

import numpy as np
import pandas as pd
import pytest

from figure_texts import assert_legible
from messages import expect_message, refusal
from rewind.figures import embedding, forest, style
from rewind.figures.embedding import similarity_heatmap
from rewind.figures.gaps import _move_apart, gap_slope

LABELS = {"meanP": "meanP", "seqLSTM": "seqLSTM", "seqTransf": "seqTransf", "chance": "Chance ($0)"}
ENDS = {"low": -3.0, "high": 5.0, "boot_low": -2.0, "boot_high": 4.0}


def pair_table(p=(0.001, 0.2, np.nan)):
    rows = []
    for setting, ((a, b), value) in itertools.product(
        ("origin", "hard"), zip(itertools.combinations(list(LABELS)[:3], 2), p, strict=True)
    ):
        row = {"first": a, "second": b, "setting": setting, "direction": "text_to_item", "metric": "R@1"}
        rows.append(row | {"difference": 1.0, "p_holm": value} | ENDS)
    return pd.DataFrame(rows)


def test_pairs_that_stand_are_filled_and_said():
    fig = forest.pair_forest(pair_table(), LABELS)
    assert_legible(fig)
    names = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert names == ["meanP − seqLSTM", "meanP − seqTransf", "seqLSTM − seqTransf"]
    marks = [line for line in fig.axes[1].lines if line.get_marker() in "so"]
    assert [(mark.get_marker(), mark.get_color()) for mark in marks] == [
        ("s", style.INK),
        ("o", "white"),
        ("o", "white"),
    ]
    assert [text.get_text() for text in fig.axes[1].texts] == ["+1.0", "p 0.001", "+1.0", "p 0.200", "+1.0", "no p"]
    assert [list(line.get_xdata()) for line in fig.axes[0].lines[:2]] == [[-3.0, 5.0], [-2.0, 4.0]]


def test_the_level_of_pairs_is_that_of_the_intervals():
    def filled(confidence):
        fig = forest.pair_forest(pair_table((0.04, 0.2, 0.9)), LABELS, confidence=confidence)
        return sum(line.get_marker() == "s" for line in fig.axes[0].lines)

    assert (filled(0.95), filled(0.99)) == (1, 0)


def test_pairs_that_are_not_there():
    assert (
        "No pairs" in forest.pair_forest(pd.DataFrame(columns=["first", "second"]), LABELS).axes[0].texts[0].get_text()
    )
    with refusal("pairs.csv"):
        forest.pair_forest(pd.concat([pair_table(), pair_table()]), LABELS)


def gap_tables(ends=(40.0, 40.2, 12.0, 1.0)):
    shared = {"direction": "text_to_item", "metric": "R@1"}
    starts = [{"method": m, "setting": "origin", "estimate": 50.0} | shared | ENDS for m in LABELS]
    gaps = [{"method": m, "gap": 50 - end} | shared | ENDS for m, end in zip(LABELS, ends, strict=True)]
    return pd.DataFrame(starts), pd.DataFrame(gaps)


def test_the_slope_ends_at_the_same_queries_in_hard():
    fig = gap_slope(*gap_tables(), LABELS, ("chance",))
    assert_legible(fig)
    left, right = fig.axes
    assert [list(line.get_ydata()) for line in left.lines] == [[50, 40], [50, 40.2], [50, 12], [50, 1]]
    assert [text.get_text() for text in left.texts] == [
        "meanP 40.0",
        "seqLSTM 40.2",
        "seqTransf 12.0",
        r"Chance (\$0) 1.0",
    ]
    assert [text.get_text() for text in right.texts] == ["+10.0", "+9.8", "+38.0", "+49.0"]
    assert list(right.lines[0].get_xdata()) == [-3.0, 5.0]


def test_a_gap_that_cannot_be_drawn():
    starts, gaps = gap_tables()
    expect_message(gap_slope(starts, gaps.iloc[:0], LABELS).axes[0].texts[0].get_text())
    with refusal("intervals.csv"):
        gap_slope(starts.iloc[1:], gaps, LABELS)
    with refusal("gaps.csv"):
        gap_slope(starts, pd.concat([gaps, gaps.iloc[[3]]]), LABELS)


def test_names_stand_apart_in_their_order():
    values = [5.0, 5.1, 5.05, 9.0]
    placed = _move_apart(values, 1.0)
    assert np.diff(np.sort(placed)).min() >= 1 - 1e-9
    assert np.argsort(placed).tolist() == np.argsort(values).tolist() and placed[3] == 9
    assert _move_apart([1.0, 3.0], 1.0).tolist() == [1, 3], "what stands apart stays"


def test_the_heat_map_frames_a_clip_with_its_twin():
    scores = np.arange(25.0).reshape(5, 5)
    fig = similarity_heatmap(scores, np.array([0, 0, 2, 2, 4]), "meanP, seed 0", twins=True)
    assert_legible(fig)
    axes = fig.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), scores)
    assert [(box.get_x(), box.get_width(), box.get_height()) for box in axes.patches] == [
        (-0.5, 2, 2),
        (1.5, 2, 2),
        (3.5, 1, 1),
    ]
    assert "No caption" in similarity_heatmap(np.zeros((0, 0)), np.zeros(0), "", False).axes[0].texts[0].get_text()


def space(kind="pca", where="joint", n=30):
    rng = np.random.default_rng(0)
    items, text = rng.normal(size=(n, 8)), rng.normal(size=(n, 8))
    at = np.arange(n)
    return embedding.embedding_space(text, items, at, at ^ 1, at % 2 == 1, kind, where, "meanP, seed 0")


@pytest.mark.parametrize("kind", ["pca", "tsne"])
def test_the_space_shows_every_caption_and_item(kind):
    fig = space(kind)
    assert_legible(fig)
    points = {c.get_label(): len(c.get_offsets()) for c in fig.axes[0].collections if c.get_label() != "_nolegend_"}
    assert (points["captions"], points["originals"], points["reversed twins"]) == (30, 15, 15)
    assert "compared" in fig.axes[0].get_title(loc="left")
    assert "scores pairs" in space(where="towers").axes[0].get_title(loc="left")
    assert "no vectors" in space(where="none").axes[0].texts[0].get_text()


def test_principal_components_are_exact_and_have_a_sign():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(40, 6)) * [5, 3, 1, 1, 1, 1]
    places, names = embedding.project_to_plane(vectors, "pca")
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values, axes = np.linalg.eigh(np.cov((unit - unit.mean(0)).T))
    expected = (unit - unit.mean(0)) @ axes[:, [-1, -2]]
    np.testing.assert_allclose(np.abs(places), np.abs(expected), atol=1e-10)
    assert (places[np.abs(places).argmax(axis=0), [0, 1]] > 0).all()
    assert names[0] == f"component 1 ({100 * values[-1] / values.sum():.0f}% of variance)"
    assert embedding.project_to_plane(np.ones((3, 1)), "pca")[0].tolist() == [[0, 0]] * 3


def test_layouts_repeat_and_missing_ones_are_named(monkeypatch):
    vectors = np.random.default_rng(2).normal(size=(40, 6))
    np.testing.assert_array_equal(
        embedding.project_to_plane(vectors, "tsne")[0], embedding.project_to_plane(vectors, "tsne")[0]
    )
    monkeypatch.setitem(__import__("sys").modules, "umap", None)
    with refusal("figures.embedding"):
        embedding.project_to_plane(vectors, "umap")
    with refusal("figures.embedding"):
        embedding.project_to_plane(vectors, "mds")
