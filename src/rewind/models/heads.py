"""The heads that a study may name."""

from __future__ import annotations

from rewind.errors import RewindError
from rewind.models.head import Head, with_hooks
from rewind.models.retriever import find
from rewind.models.temporal import MeanP, SeqLSTM, SeqTransf, TightTransf
from rewind.models.wti import Wti
from rewind.models.xpool import XPool
from rewind.packaged import page
from rewind.study import Method
from rewind.study.keys import read_options

HEADS = {
    "meanP": MeanP,
    "seqLSTM": SeqLSTM,
    "seqTransf": SeqTransf,
    "tightTransf": TightTransf,
    "xpool": XPool,
    "wti": Wti,
}

POSITIONS = 77  # rows of the heads' position tables, as upstream


def head_class(name: str) -> type[Head]:
    """A head by its name or dotted path.

    Raises:
        RewindError: if there is none, or it is no class.
    """
    if name not in HEADS and "." not in name:
        raise RewindError(f"methods.*.head: no head {name!r}; available: {', '.join(HEADS)}.")
    found = HEADS.get(name) or find(name, "rewind.models", "methods.*.head")
    if not isinstance(found, type):
        raise RewindError(f"methods.*.head: {name} is not a class ({page('add-a-method.md')}).")
    return with_hooks(found)


def make_head(method: Method, width: int) -> Head:
    """The untrained head of a method, new parameters drawn from torch's global generator.

    Raises:
        RewindError: for an unknown head, or options that it has not.
    """
    kind = head_class(method.head)
    given = {"layers": method.head_layers, "positions": POSITIONS}
    if kind.Options is not None:
        given["options"] = read_options(kind.Options, method.options, "methods.*.options", f"head: {method.head}")
    elif method.options:
        raise RewindError(f"methods.*.options.{next(iter(method.options))}: head: {method.head} has no options.")
    return kind(width, **given)
