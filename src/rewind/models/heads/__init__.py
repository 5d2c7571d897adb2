"""The heads that a study may name in ``methods.*.head``, and how one is found and built.

They are importable from here as well:

    >>> import torch
    >>> from rewind.models.heads import SeqTransf
    >>> head = SeqTransf(width=64, layers=1)
    >>> head(torch.rand(2, 5, 64), torch.ones(2, 5)).shape  # clips, frames, width; 1 where there is a frame
    torch.Size([2, 5, 64])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewind.config import Method
from rewind.config.base import read_options
from rewind.errors import RewindError
from rewind.models.heads.base import Head, with_head_defaults
from rewind.packaged import docs_page
from rewind.registry import HEADS

if TYPE_CHECKING:
    from rewind.models.heads.clip4clip import MeanP, SeqLSTM, SeqTransf, TightTransf
    from rewind.models.heads.projection import Projection
    from rewind.models.heads.wti import Wti
    from rewind.models.heads.xpool import XPool

__all__ = ["MeanP", "Projection", "SeqLSTM", "SeqTransf", "TightTransf", "Wti", "XPool", "head_class", "make_head"]

POSITION_ROWS = 77  # rows of the heads' position tables, as many as CLIP's text tower has, from which they are copied


def head_class(name: str) -> type[Head]:
    """A head by its name or dotted path.

    >>> head_class("xpool").pairwise, head_class("meanP").pairwise
    (True, False)
    """
    kind = HEADS.find(name)
    if not isinstance(kind, type):
        raise RewindError(f"methods.*.head: {name} is not a class ({docs_page('add-a-method.md')}).")
    return with_head_defaults(kind)


def make_head(method: Method, width: int) -> Head:
    """The untrained head of a method, new parameters drawn from torch's global generator."""
    kind = head_class(method.head)
    arguments: dict[str, Any] = {"layers": method.head_layers, "positions": POSITION_ROWS}
    if kind.Options is not None:
        arguments["options"] = read_options(kind.Options, method.options, "methods.*.options", f"head: {method.head}")
    elif method.options:
        raise RewindError(f"methods.*.options.{next(iter(method.options))}: head: {method.head} has no options.")
    return kind(width, **arguments)


def __getattr__(name: str) -> Any:
    # On first access: the modules of heads import this one.
    return HEADS.attribute(name)
