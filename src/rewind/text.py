"""Captions to token ids: CLIP's byte pairs, or the words of the training captions."""

from __future__ import annotations

import re
from collections import Counter
from typing import Protocol

import numpy as np

from rewind.compat import open_clip
from rewind.errors import RewindError
from rewind.study.keys import VOCABULARY

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_BLANKS = str.maketrans(dict.fromkeys(",.!?:;'\"()[]", " "))


class Tokenizer(Protocol):
    """Token ids, then zeros. For CLIP-like towers: start, words, end, of which the end token is the largest id.

    A zero is not always padding: CLIP's id 0 is a ``!`` with no space before the next word.
    """

    vocabulary: int

    def encode(self, captions: list[str], length: int) -> np.ndarray:
        """int64 (n, length); longer captions are cut before the end token."""

    def count(self, captions: list[str]) -> list[int]:
        """Tokens per uncut caption, start and end included."""


class WordTokenizer:
    """Lower-cased words without punctuation; words outside the vocabulary share one id.

    Ids: 0 padding, 1 unknown, 2 start, words from 3, end last (CLIP pools at the largest id).
    """

    def __init__(self, captions: list[str], most: int = VOCABULARY) -> None:
        counts = Counter(word for caption in captions for word in words(caption))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))[:most]
        if not ranked:
            raise RewindError("The training captions contain no words; a vocabulary cannot be built.")
        self._ids = {word: 3 + place for place, word in enumerate(ranked)}
        self.vocabulary = len(ranked) + 4

    def _tokens(self, caption: str) -> list[int]:
        return [self._ids.get(word, 1) for word in words(caption)]

    def encode(self, captions: list[str], length: int) -> np.ndarray:
        return _pad([self._tokens(caption) for caption in captions], 2, self.vocabulary - 1, length)

    def count(self, captions: list[str]) -> list[int]:
        return [len(self._tokens(caption)) + 2 for caption in captions]


class MiniclipTokenizer:
    """MiniCLIP's words: lower-cased, cut at white space after ``,.!?:;'"()[]`` became blanks (hyphens stay).

    Ids: 0 padding, 1 unknown, 2 and 3 start and end, which are never used; words from 4, the most frequent first, and
    of equally frequent ones that which appears first. Longer captions are cut.
    """

    def __init__(self, captions: list[str], most: int = VOCABULARY) -> None:
        counts = Counter(word for caption in captions for word in self.words(caption))
        if not counts:
            raise RewindError("The training captions contain no words; a vocabulary cannot be built.")
        self.ids = {word: 4 + place for place, (word, _) in enumerate(counts.most_common(most - 4))}
        self.vocabulary = len(self.ids) + 4

    @staticmethod
    def words(caption: str) -> list[str]:
        """Words of a caption."""
        return caption.lower().translate(_BLANKS).split()

    def encode(self, captions: list[str], length: int) -> np.ndarray:
        ids = np.zeros((len(captions), length), dtype=np.int64)
        for row, caption in zip(ids, captions, strict=True):
            tokens = [self.ids.get(word, 1) for word in self.words(caption)][:length]
            row[: len(tokens)] = tokens
        return ids

    def count(self, captions: list[str]) -> list[int]:
        return [len(self.words(caption)) for caption in captions]


class ClipTokenizer:
    """CLIP's byte-pair encoding, as packaged with open_clip (49,408 ids)."""

    vocabulary = 49408

    def __init__(self) -> None:
        self._tokenizer = open_clip("tokenizer").SimpleTokenizer()

    def encode(self, captions: list[str], length: int) -> np.ndarray:
        tokens = [self._tokenizer.encode(caption) for caption in captions]
        return _pad(tokens, self._tokenizer.sot_token_id, self._tokenizer.eot_token_id, length)

    def count(self, captions: list[str]) -> list[int]:
        return [len(self._tokenizer.encode(caption)) + 2 for caption in captions]


def make_tokenizer(kind: str, train_captions: list[str], most: int = VOCABULARY) -> Tokenizer:
    """The tokenizer named by a study's ``text.tokenizer``; a word vocabulary sees training captions only.

    Args:
        kind: the name.
        train_captions: of the training split.
        most: ids of ``miniclip``; rarer words share one.
    """
    if kind == "clip":
        return ClipTokenizer()
    return MiniclipTokenizer(train_captions, most) if kind == "miniclip" else WordTokenizer(train_captions)


def words(caption: str) -> list[str]:
    """Lower-cased words of a caption: runs of letters and digits in any script, with inner apostrophes."""
    return _WORD.findall(caption.lower())


def same_texts(captions: list[str]) -> np.ndarray:
    """(n,) number of each caption's text: equal ones, up to case and spaces, have the same."""
    return np.unique([" ".join(caption.lower().split()) for caption in captions], return_inverse=True)[1]


def _pad(tokens: list[list[int]], start: int, end: int, length: int) -> np.ndarray:
    ids = np.zeros((len(tokens), length), dtype=np.int64)
    for row, body in zip(ids, tokens, strict=True):
        line = [start, *body[: length - 2], end]
        row[: len(line)] = line
    return ids
