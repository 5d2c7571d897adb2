"""What a query says to a model: its words in the model's vocabulary, and what is left of them."""

from __future__ import annotations

from typing import Any

from rewind.errors import RewindError
from rewind.text import ClipTokenizer, words

UNKNOWN = 1  # id of every word outside a word vocabulary


def word_vocabulary(backbone: Any) -> Any | None:
    """The backbone's tokenizer where it is a vocabulary of the training captions' words; else None.

    CLIP's byte pairs and packaged sentence encoders take any text.
    """
    tokenizer = backbone.tokenizer
    return None if tokenizer is None or isinstance(tokenizer, ClipTokenizer) else tokenizer


def check_query(query: str, backbone: Any) -> list[str]:
    """What is to be told about a query before its results: unknown words, words that were cut.

    Raises:
        RewindError: if it is empty, or the model knows none of its words: any ranking would be arbitrary.
    """
    refuse_empty(query)
    return _unknown(query, word_vocabulary(backbone)) + _cut(query, backbone)


def refuse_empty(query: str) -> None:
    """Refuse a query without a letter, or with one that is none, which needs no model to be told.

    Raises:
        RewindError: if it is empty or blank, or in another encoding than UTF-8.
    """
    if not query.strip():
        raise RewindError("the query is empty; describe in a few words what to look for.")
    try:
        query.encode("utf-8")
    except UnicodeEncodeError as error:  # Python's stand-in for a byte of another encoding
        raise RewindError(
            f"the query {query!a} is not UTF-8 text at its character {error.start + 1}; set the terminal, or the "
            "file that it comes from, to UTF-8."
        ) from None


def _unknown(query: str, vocabulary: Any | None) -> list[str]:
    if vocabulary is None:
        return []
    found = list(dict.fromkeys(getattr(vocabulary, "words", words)(query)))
    if not found:
        raise RewindError(f"{query!r} contains no word that this model can read, so nothing was ranked.")
    strangers = [word for word in found if UNKNOWN in vocabulary.encode([word], 4)[0]]
    if len(strangers) == len(found):
        raise RewindError(
            f"this model knows none of the words of {query!r}, so nothing was ranked; its vocabulary is that of its "
            "training captions."
        )
    return [f"not in the model's vocabulary: {', '.join(map(repr, strangers))}"] if strangers else []


def _cut(query: str, backbone: Any) -> list[str]:
    tokenizer, most = backbone.tokenizer, backbone.max_words
    count = tokenizer.count([query])[0] if tokenizer is not None else 0
    return [f"cut: the query has {count} tokens, but the model reads only {most}"] if most and count > most else []
