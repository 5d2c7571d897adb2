"""The data of the explorer: every query's rank, first ten and distance to the twin, in few bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.reporting.lists import Split, View, margins, top, view

TOP = 10
MARGIN_STEPS = 1000  # a margin is stored in thousandths of a standard deviation
NO_TWIN = -32768
APART = 1_000_000
"""Bytes of ranks and first places up to which they are in the page; more lie beside it, in files read on demand."""

PARTS = {"ranks": ("rank", "margin"), "top": ("top",)}
"""What each file of a run in a view holds: all runs' ranks are shown together, first places of one run at a time."""

Run = tuple[str, int]


class Explorer:
    """Collects one run after the other, so that a single similarity matrix is in memory at a time.

    Args:
        captions: rows of the similarity matrices: caption_id, video_id, caption.
        items: columns: item_id, path, reversed.
        settings: which to show.
        directions: which to show.
    """

    def __init__(
        self, captions: pd.DataFrame, items: pd.DataFrame, settings: Sequence[str], directions: Sequence[str]
    ) -> None:
        self.split = Split.of(captions, items)
        self.views = [view(self.split, setting, way) for setting in settings for way in directions]
        self.runs: dict[Run, list[dict[str, str]]] = {}

    def check(self, split: Split, where: str) -> None:
        """Refuse a run of other captions or items.

        Raises:
            RewindError: naming the run's file.
        """
        for mine, other, name in (
            (self.split.captions, split.captions, "caption_id"),
            (self.split.items, split.items, "item_id"),
        ):
            if mine[name].tolist() != other[name].tolist():
                raise RewindError(f"{where}: its {name}s are not those of the other runs; evaluate the run again.")

    def add(self, method: str, seed: int, scores: np.ndarray, ranks: pd.DataFrame, where: str) -> None:
        """Add a run.

        Args:
            method, seed: which.
            scores: float (n_captions, n_items).
            ranks: its rank table: query_id, setting, direction, rank.
            where: names the rank table in messages.

        Raises:
            RewindError: if the matrix has another shape, or a query has no rank.
        """
        shape = len(self.split.captions), len(self.split.items)
        if scores.shape != shape:
            raise RewindError(f"{where}: the similarity matrix is {scores.shape}, but the test split is {shape}.")
        tables = dict(iter(ranks.groupby(["setting", "direction"])))
        self.runs[method, seed] = [self._packed(found, scores, tables, where) for found in self.views]

    def bytes(self) -> int:
        """Length of what the runs' ranks, margins and first places are packed into."""
        return sum(len(text) for views in self.runs.values() for packed in views for text in packed.values())

    def files(self, folder: str) -> dict[str, str]:
        """Address → text of the scripts that hold what :meth:`data` leaves out where it is given this folder.

        A page that was opened from a disk may not read files, but it may run them: each hands its values to a function
        of the page.
        """
        found = {}
        for place in range(len(self.views)):
            for number, views in enumerate(self.runs.values()):
                for part, names in PARTS.items():
                    address = _address(folder, place, number, part)
                    values = {name: views[place][name] for name in names}
                    found[address] = f"rewindData({json.dumps(address)}, {json.dumps(values)});\n"
        return found

    def data(
        self,
        labels: Mapping[str, str],
        baselines: Collection[str],
        clips: Sequence[str],
        strips: Sequence[int],
        kind: str = "videos",
        folder: str = "",
    ) -> dict[str, Any]:
        """Everything the page's script needs, JSON-able; arrays are little-endian bytes in base64.

        Args:
            labels: method → name.
            baselines: methods that the methods' disagreement leaves out.
            clips: (m,) address of each item's clip, relative to the page.
            strips: (m,) number of each item's picture strip; ``~number`` for the strip played backwards; the number of
                strips for none. See :mod:`rewind.reporting.page.strips`.
            kind: what items are, ``videos`` or ``images``.
            folder: where :meth:`files` are, relative to the page, if ranks and first places are not to be in it.
        """
        methods: dict[str, list[int]] = {}
        for method, seed in self.runs:
            methods.setdefault(method, []).append(seed)
        items = self.split.items
        return {
            "methods": [
                {"key": m, "label": labels[m], "seeds": seeds, "baseline": m in baselines}
                for m, seeds in methods.items()
            ],
            "items": {
                "id": items["item_id"].tolist(),
                "clip": list(clips),
                "twin": pack(self.split.twin, "i4"),
                "strip": pack(np.asarray(strips), "i4"),
            },
            "captions": {
                "id": self.split.captions["caption_id"].astype(str).tolist(),
                "text": self.split.captions["caption"].tolist(),
                "item": pack(self.split.own, "i4"),
            },
            "kind": kind,
            "noTwin": NO_TWIN,
            "marginSteps": MARGIN_STEPS,
            "views": [self._view(place, found, folder) for place, found in enumerate(self.views)],
        }

    def _packed(
        self, found: View, scores: np.ndarray, tables: Mapping[tuple[str, str], Any], where: str
    ) -> dict[str, str]:
        key = found.setting, found.direction
        rows = tables.get(key)
        ranks = rows.set_index("query_id")["rank"].reindex(found.ids) if rows is not None else None
        if ranks is None or ranks.isna().any():
            first = found.ids[0] if ranks is None else ranks.index[ranks.isna()][0]
            raise RewindError(f"{where}: no rank of query {first!r} in {', '.join(key)}; evaluate the run again.")
        size = len(self.split.items) if found.to_items else len(self.split.captions)
        return {
            "rank": pack(ranks.to_numpy(), "f4"),
            "top": pack(top(found, scores, TOP), _width(size)),
            "margin": pack(quantised(margins(found, scores, self.split)), "i2"),
        }

    def _view(self, place: int, found: View, folder: str) -> dict[str, Any]:
        count = min(TOP, found.candidates.shape[-1])
        return {
            "setting": found.setting,
            "direction": found.direction,
            "queries": pack(found.queries, "i4"),
            "gallery": int(found.candidates.shape[-1]),
            "top": count,
            "wide": _width(len(self.split.items) if found.to_items else len(self.split.captions)) == "u4",
            "runs": {
                f"{method}/{seed}": {"files": {part: _address(folder, place, number, part) for part in PARTS}}
                if folder
                else packed[place]
                for number, ((method, seed), packed) in enumerate(self.runs.items())
            },
        }


def quantised(margin: np.ndarray) -> np.ndarray:
    """Margins as whole thousandths; 0 stands for an exact tie alone, :data:`NO_TWIN` for none."""
    steps = np.nan_to_num(margin) * MARGIN_STEPS
    away = np.sign(steps) * np.clip(np.round(np.abs(steps)), 1, 32_767)
    return np.where(np.isnan(margin), NO_TWIN, away).astype(int)


def pack(values: np.ndarray, kind: str) -> str:
    """Base64 of the values as little-endian ``kind``, row by row."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()).decode("ascii")


def unpack(text: str, kind: str) -> np.ndarray:
    """The values of :func:`pack`, flat."""
    return np.frombuffer(base64.b64decode(text), dtype=f"<{kind}")


def _address(folder: str, view: int, run: int, part: str) -> str:
    return f"{folder}/view{view}.run{run}.{part}.js"


def _width(size: int) -> str:
    return "u2" if size <= 65_536 else "u4"
