"""Retrieval examples: framed, marked, labelled by outcome, and legible."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_hex

from figure_texts import assert_legible
from messages import expect_message, refusal
from rewind.figures import style
from rewind.report.examples import retrieval_examples, twin_choices


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
    assert [text.split()[-1] for text in printed] == ["17.5", "1,234"]


def test_strips_stand_side_by_side():
    frames = np.stack([np.full((10, 20, 3), v, np.uint8) for v in (0, 100, 250)])
    given_ = {"caption": "x", "rank": 1, "hits": [{"image": frames, "score": 0.5, "truth": True}]}
    drawn = retrieval_examples([given_]).axes[0].images[0].get_array()
    assert drawn.shape[0] == 10 and [drawn[0, x, 0] for x in (0, 30, 61)] == [0, 100, 250]


def test_examples_that_cannot_be_drawn_are_refused():
    with refusal("examples"):
        retrieval_examples([query(), {**query(), "hits": [{"image": np.zeros((4, 4, 3)), "score": 0.0}]}])
    with refusal("examples: query 0"):
        retrieval_examples([query(caption=" ")])
    with refusal("examples"):
        retrieval_examples([{"caption": "x", "hits": []}])
    expect_message(retrieval_examples([]).axes[0].texts[0].get_text())


def test_the_twin_and_the_outcome_are_marked():
    one = query(truth=1) | {"kind": "confused with the twin"}
    one["hits"][0]["twin"] = True
    fig = retrieval_examples([one, query()], note="Chosen by outcome: " + "many words " * 40)
    assert_legible(fig)
    assert [axes.get_xlabel() for axes in fig.axes[:2]] == ["⇄ 0.900", "✓ 0.800"]
    assert fig.axes[0].spines["left"].get_linestyle() != "-" and fig.axes[1].spines["left"].get_linestyle() == "-"
    said = [text.get_text() for text in fig.texts]
    assert one["kind"].upper() in said and sum(text.startswith("Chosen by") for text in said) == 1
    expect_message("\n".join(text for text in said if "twin" in text))
    assert not any("twin" in text.get_text() for text in retrieval_examples([query()]).texts)


def test_methods_stand_below_what_they_preferred():
    frames = np.full((4, 32, 32, 3), 255, np.uint8)
    names = [f"a method number {n}" for n in range(9)]
    preferred = [
        {"clip": names, "twin": [], "tie": []},
        {"clip": ["seqTransf"], "twin": ["seqLSTM"], "tie": ["meanP", "X-Pool"]},
        {"clip": [], "twin": [], "tie": names},
    ]
    rows = [{"caption": LONG, "clip": frames, "twin": frames[::-1], "preferred": one} for one in preferred]
    fig = twin_choices(rows, "How they were chosen.")
    assert_legible(fig)
    for one, two in itertools.combinations([axes.get_window_extent() for axes in fig.axes], 2):
        assert not one.overlaps(two)
    at = {text.get_text(): text.get_window_extent() for text in fig.texts}
    right, wrong, equal = (at[name] for name in ("✓ seqTransf", "✗ seqLSTM", "= meanP, X-Pool"))
    clip, twin = (axes.get_window_extent() for axes in fig.axes[2:4])
    assert clip.x0 <= right.x0 < clip.x1 < twin.x0 <= wrong.x0 < twin.x1 < equal.x0
    assert right.y1 < clip.y0 and wrong.y1 < twin.y0
    expect_message(twin_choices([]).axes[0].texts[0].get_text())
