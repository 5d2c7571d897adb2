"""Captions as word numbers: where they begin and end, and what happens to long ones."""

from __future__ import annotations

import pytest

from rewind.data.tokenizers import ClipTokenizer, WordTokenizer

CAPTIONS = ["a dog runs after a red ball", "a dog"]


@pytest.mark.parametrize("kind", ["words", "clip"])
def test_a_caption_that_is_too_long_keeps_its_end(kind):
    # CLIP pools at the end token, the largest id: without it the features of a word would be the caption's.
    tokenizer = WordTokenizer(CAPTIONS) if kind == "words" else ClipTokenizer()
    whole, short = tokenizer.encode(CAPTIONS, 12), tokenizer.encode(CAPTIONS, 5)
    end = tokenizer.vocabulary - 1
    assert whole.argmax(axis=1).tolist() == [8, 3] and (whole.max(axis=1) == end).all()
    assert short[0].tolist() == [*whole[0, :4].tolist(), end]
    assert short[1].tolist() == whole[1, :5].tolist()
