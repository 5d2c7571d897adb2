"""Two machines' results of one study beside each other, and where they exclude one another."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pandas as pd

from rewind.publishing.agree import check_alike
from rewind.publishing.stored import Stored
from rewind.reporting import plain
from rewind.reporting.sheet import Entry, Part, Sheet, number

_SLACK = 1e-9  # ends and points of a metric without error, chance's for example, differ in the last bit
_APPENDIX = ("pairs_", "seeds_")


def comparison(one: Stored, other: Stored) -> str:
    """Every table with both machines' columns, cells whose interval excludes the other's value, marks that differ."""
    study = one.record["name"]
    ours, theirs = one.sheets.all(), other.sheets.all()
    pairs = {name: {one.name: ours[name], other.name: theirs[name]} for name in ours if name in theirs}
    texts = []
    for name, pair in pairs.items():
        check_alike(pair, f"{study}, {name}")
        texts += [] if name.startswith(_APPENDIX) else [plain.render(beside(pair))]
    texts += [_cells(one, other, name) for name in one.intervals if name in other.intervals]
    texts.append(_marks(pairs))
    return "\n".join(texts)


def beside(sheets: dict[str, Sheet]) -> Sheet:
    """One table with each column of numbers once per machine."""
    (first, left), (second, right) = sheets.items()
    labels = [at for at, head in enumerate(left.heads) if not head.number]
    numbers = [at for at, head in enumerate(left.heads) if head.number]
    heads = [left.heads[at] for at in labels]
    for at in numbers:
        title = left.heads[at].name
        heads += [replace(left.heads[at], title=title, arrow="", group=name) for name in (first, second)]
    parts = tuple(
        Part(
            ours.title,
            tuple(
                (*(a[at] for at in labels), *chain.from_iterable((a[at], b[at]) for at in numbers))
                for a, b in zip(ours.rows, theirs.rows, strict=True)
            ),
        )
        for ours, theirs in zip(left.parts, right.parts, strict=True)
    )
    return replace(left, heads=tuple(heads), parts=parts)


def excluded(one: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Rows of which an interval does not hold the other's point, with ``in_one`` and ``in_other``; and rows compared.

    Args:
        one, other: rows with estimate, low and high; what else is text names the row.
    """
    keys = [c for c in ("method", "setting", "direction", "split", "scoring", "quantity", "metric") if c in one]
    both = one.merge(other, on=keys, suffixes=("_one", "_other"))
    both = both[both[["low_one", "low_other"]].notna().all(axis=1)]
    both["in_one"] = _holds(both, "one", "other")
    both["in_other"] = _holds(both, "other", "one")
    out = both[~(both["in_one"] & both["in_other"])]
    return out.assign(key=[", ".join(row) for row in out[keys].itertuples(index=False)]), len(both)


def _holds(rows: pd.DataFrame, interval: str, point: str) -> pd.Series:
    inside = rows[f"low_{interval}"] - _SLACK <= rows[f"estimate_{point}"]
    return inside & (rows[f"estimate_{point}"] <= rows[f"high_{interval}"] + _SLACK)


def _cells(one: Stored, other: Stored, name: str) -> str:
    rows, count = excluded(one.intervals[name], other.intervals[name])
    lines = [f"{name}: {len(rows)} of {count} cells have an interval that does not contain the other machine's value"]
    for row in rows.to_dict("records"):
        shown = [
            f"{machine.name} {number(row[f'estimate_{side}'], 3)} "
            f"[{number(row[f'low_{side}'], 3)}, {number(row[f'high_{side}'], 3)}]"
            + ("" if row[f"in_{side}"] else " does not contain the other")
            for machine, side in ((one, "one"), (other, "other"))
        ]
        lines.append(f"  {row['key']}: {'; '.join(shown)}")
    return "\n".join(lines) + "\n"


def _marks(pairs: dict[str, dict[str, Sheet]]) -> str:
    lines = []
    for name, sheets in pairs.items():
        (first, left), (second, right) = sheets.items()
        for at, head in enumerate(left.heads):
            labels, ours, theirs = left.column(0), left.column(at), right.column(at)
            for label, x, y in zip(labels, ours, theirs, strict=True):
                if (x.raised, x.bold) != (y.raised, y.bold):
                    place = f"{name}, {label.value}, {head.name}"
                    lines.append(f"  {place}: {first} {_mark(x)}, {second} {_mark(y)}")
    return "\n".join([f"marks: {len(lines)} cells differ", *lines]) + "\n"


def _mark(entry: Entry) -> str:
    found = f"{'*' if entry.bold else ''}{f'({entry.raised})' if entry.raised else ''}"
    return found or "none"
