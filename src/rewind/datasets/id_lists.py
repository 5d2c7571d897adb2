"""Ids that come with vectors and scores: a list of text, none of it empty or with white space around."""

from __future__ import annotations

from typing import Any

import numpy as np

from rewind.errors import RewindError


def text_ids(values: object, what: str, where: str) -> np.ndarray:
    """(n,) text from an array or list of ids; whole numbers are written out.

    Args:
        values: the ids.
        what: how the file calls them, for messages.
        where: the file.

    Raises:
        RewindError: naming the first place at which something else stands; places count from 0, as in NumPy.
    """
    ids = _array(values)
    if ids.ndim != 1:
        raise RewindError(f"{where}: {what} must be a list, not an array of shape {ids.shape}.")
    if ids.dtype.kind in "iu":
        return ids.astype(str)
    names = ids.tolist()
    for at, name in enumerate(names):
        if fault := id_fault(name):
            raise RewindError(f"{where}: {what}, place {at}: {fault}.")
    return np.array([_text(name) for name in names], dtype=str)


def _array(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    found = np.empty(len(values), dtype=object)  # lists inside of it stay what they are
    found[:] = values
    return found


def _text(name: object) -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)


def id_fault(name: object) -> str:
    """What is wrong with an id; empty where nothing is."""
    if isinstance(name, bool) or not isinstance(name, str | bytes | int):
        return f"{name!r} is no text; save ids as text"
    try:
        text = _text(name)
        text.encode("utf-8")
    except UnicodeError:
        return f"{name!r} is not UTF-8 text"
    if not text.strip():
        return "the id is empty; give it the name that the data set has for it"
    if text != text.strip():
        return f"the id {text!r} has white space around it; remove it"
    return f"the id {text!r} has a NUL character" if "\0" in text else ""
