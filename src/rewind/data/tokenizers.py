"""Tokenizers: CLIP's byte-pair encoding, or a vocabulary of the words in the training captions.

:func:`make_tokenizer` builds the one that a study's ``text.tokenizer`` names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from rewind.config.base import DEFAULT_VOCABULARY_SIZE
from rewind.errors import RewindError
from rewind.optional_packages import open_clip

_WORD_PATTERN = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_PUNCTUATION_TO_BLANKS = str.maketrans(dict.fromkeys(",.!?:;'\"()[]", " "))


class Tokenizer(Protocol):
    """Captions → token ids, padded with zeros.

    For CLIP-like towers a row is start, words, end; the end token has the largest id, because CLIP pools the text
    features there (``argmax``). A zero is not always padding: CLIP's id 0 is a ``!`` with no space before the next
    word.
    """

    vocabulary: int  # number of ids

    def encode(self, captions: list[str], length: int) -> np.ndarray:
        """int64 (n, length); longer captions are cut before the end token."""

    def count(self, captions: list[str]) -> list[int]:
        """Tokens per uncut caption, start and end included."""


class WordTokenizer:
    """Lower-cased words without punctuation; words outside the vocabulary share one id.

    Ids: 0 padding, 1 unknown, 2 start, words from 3 (the most frequent first), end last (CLIP pools at the largest
    id).

    >>> tokenizer = WordTokenizer(["A dog runs.", "a dog sleeps"])
    >>> tokenizer.encode(["A cat runs"], length=6).tolist(), tokenizer.vocabulary
    ([[2, 3, 1, 5, 7, 0]], 8)
    """

    def __init__(self, captions: list[str], most: int = DEFAULT_VOCABULARY_SIZE) -> None:
        counts = Counter(word for caption in captions for word in split_words(caption))
        # Equally frequent words by the alphabet: ids must not depend on the order of captions.
        ranked = sorted(counts, key=lambda word: (-counts[word], word))[:most]
        if not ranked:
            raise RewindError("The training captions contain no words; a vocabulary cannot be built.")
        self._ids = {word: 3 + rank for rank, word in enumerate(ranked)}
        self.vocabulary = len(ranked) + 4

    def _tokens(self, caption: str) -> list[int]:
        return [self._ids.get(word, 1) for word in split_words(caption)]

    def encode(self, captions: list[str], length: int) -> np.ndarray:
        return _pad([self._tokens(caption) for caption in captions], 2, self.vocabulary - 1, length)

    def count(self, captions: list[str]) -> list[int]:
        return [len(self._tokens(caption)) + 2 for caption in captions]


class MiniclipTokenizer:
    """MiniCLIP's words: lower-cased, cut at white space after ``,.!?:;'"()[]`` became blanks (hyphens stay).

    Ids: 0 padding, 1 unknown, 2 and 3 start and end, which are never used; words from 4, the most frequent first, and
    of equally frequent ones the one that appears first. Longer captions are cut.

    >>> tokenizer = MiniclipTokenizer(["a dog, a cat"])
    >>> tokenizer.encode(["a bird"], length=4).tolist()
    [[4, 1, 0, 0]]
    """

    def __init__(self, captions: list[str], most: int = DEFAULT_VOCABULARY_SIZE) -> None:
        counts = Counter(word for caption in captions for word in self.words(caption))
        if not counts:
            raise RewindError("The training captions contain no words; a vocabulary cannot be built.")
        # Among equal counts, Counter.most_common keeps the order of first appearance.
        self.ids = {word: 4 + rank for rank, (word, _) in enumerate(counts.most_common(most - 4))}
        self.vocabulary = len(self.ids) + 4

    @staticmethod
    def words(caption: str) -> list[str]:
        """Words of a caption, split as MiniCLIP does."""
        return caption.lower().translate(_PUNCTUATION_TO_BLANKS).split()

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


def make_tokenizer(kind: str, train_captions: list[str], most: int = DEFAULT_VOCABULARY_SIZE) -> Tokenizer:
    """The tokenizer named by a study's ``text.tokenizer``; ``most``: ids of ``miniclip``; rarer words share one."""
    if kind == "clip":
        return ClipTokenizer()
    return MiniclipTokenizer(train_captions, most) if kind == "miniclip" else WordTokenizer(train_captions)


def count_truncated(token_counts: Iterable[int], context: int) -> int:
    """Number of captions that a model with this context length sees only the beginnings of.

    Counts (:meth:`Tokenizer.count`) and ``context`` include the start and the end token of tokenizers that have them.

    >>> count_truncated(WordTokenizer(["a dog runs"]).count(["a dog", "a dog runs"]), context=4)
    1
    """
    return sum(count > context for count in token_counts)


def split_words(caption: str) -> list[str]:
    """Lower-cased words of a caption: runs of letters and digits in any script, with inner apostrophes.

    >>> split_words("The dog's 2 balls!")
    ['the', "dog's", '2', 'balls']
    """
    return _WORD_PATTERN.findall(caption.lower())


def plain_text(text: str) -> str:
    """A text in lower case, with single blanks, the form in which texts are compared."""
    return " ".join(text.lower().split())


def same_text_labels(captions: list[str]) -> np.ndarray:
    """(n,) an integer for each caption: the same for texts that are equal up to case and white space.

    >>> same_text_labels(["A dog", "a cat", "a  dog"]).tolist()
    [1, 0, 1]
    """
    return np.unique([plain_text(caption) for caption in captions], return_inverse=True)[1]


def _pad(tokens: list[list[int]], start: int, end: int, length: int) -> np.ndarray:
    ids = np.zeros((len(tokens), length), dtype=np.int64)
    for row, words in zip(ids, tokens, strict=True):
        line = [start, *words[: length - 2], end]
        row[: len(line)] = line
    return ids
