"""What a reader must know to trust a table, as plain sentences."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rewind.errors import RewindError
from rewind.reporting.cells import TITLES, Table


@dataclass(frozen=True)
class Footnotes:
    """Facts of a study, from its provenance. Every field may stay empty; an empty one gives no sentence.

    Attributes:
        settings: setting → ``{"queries": …, "items": …}``: captions that search, items searched.
        items: what is searched, in the plural: ``videos`` or ``images``.
        backbone: the towers, for example ``CLIP ViT-B/32 (OpenAI weights)``.
        pretraining: what they were trained on before, and that it was shared by all runs.
        max_frames: frames per clip.
        frames_chosen: how that number was chosen, for example ``on validation from 12, 16 and 24``.
        decoding: ``fps``, ``short_side`` (pixels), ``sampling``, ``decoders`` (name → version); any of them.
        hardware: device name → how many of them.
        seeds: method's label → its training seeds.
        interval: how intervals were computed.
        comparison: how pairs were compared.
        family: pairs in the family of the Holm correction.
        coverage: what share of the clips could be used; see :func:`coverage`.
        notes: anything else, one sentence each.
    """

    settings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    items: str = "videos"
    backbone: str = ""
    pretraining: str = ""
    max_frames: int | None = None
    frames_chosen: str = ""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, int] = field(default_factory=dict)
    seeds: Mapping[str, list[int]] = field(default_factory=dict)
    interval: str = ""
    comparison: str = ""
    family: int | None = None
    coverage: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, *parts: Mapping[str, Any]) -> Footnotes:
        """From JSON objects whose keys are this class's fields; a later object overrules an earlier one.

        Raises:
            RewindError: for a key that is no field.
        """
        known = [f.name for f in fields(cls)]
        merged: dict[str, Any] = {}
        for part in parts:
            for name in part:
                if name not in known:
                    near = difflib.get_close_matches(name, known, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(known)}"
                    raise RewindError(f"footnotes: unknown fact {name!r}; {hint}.")
            merged.update(part)
        return cls(**merged)


def coverage(total: int, missing: Mapping[str, int], items: str = "videos") -> str:
    """``all 1,080 clips usable`` or ``12 of 1,000 videos missing (10 not found, 2 cannot be decoded)``.

    Args:
        total: items that the annotations name.
        missing: reason → count.
        items: noun in the plural.
    """
    lost = sum(missing.values())
    if not lost:
        return f"all {total:,} {items} usable"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in missing.items() if count)
    return f"{lost:,} of {total:,} {items} missing ({reasons})"


def sentences(facts: Footnotes, table: Table) -> list[str]:
    """The footnotes of one table, each a sentence of plain text without markup."""
    found = [
        _queries(facts, table),
        _reading(table),
        _spread(table),
        _intervals(facts, table),
        _marks(facts, table),
        _towers(facts),
        _frames(facts),
        _decoding(facts),
        _hardware(facts),
        _seeds(facts),
        f"Coverage: {facts.coverage}" if facts.coverage else "",
        *map(str, facts.notes),
    ]
    return [_sentence(text) for text in found if text.strip()]


def _queries(facts: Footnotes, table: Table) -> str:
    counts = facts.settings.get(table.setting, {})
    if not counts:
        return ""
    title, queries, items = TITLES[table.setting], counts.get("queries"), counts.get("items")
    what = f"{items:,} {facts.items}" if items is not None else facts.items
    if table.setting == "binary":
        number = f"{queries:,} queries on {what}" if queries is not None else what
        choice = "each a choice between two (a clip or its reverse, or their captions)"
        return f"{title}: {number}, {choice}; chance is 50%"
    if queries is None:
        return f"{title}: {what}"
    if table.direction == "item_to_text":
        return f"{title}: {what} search {queries:,} captions"
    return f"{title}: {queries:,} captions search {what}"


def _reading(table: Table) -> str:
    if table.setting == "binary":
        return "In percent; a tie counts one half in accuracy and as wrong in strict accuracy"
    return (
        "R@k in percent, higher is better; MdR and MnR (median and mean rank), lower is better; ranks are "
        "expectations under random order of ties"
    )


def _spread(table: Table) -> str:
    counts = {row.cells[0].seeds for row in table.rows if row.cells[0].std == row.cells[0].std}
    if not counts:
        return ""
    number = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    single = any(row.cells[0].std != row.cells[0].std for row in table.rows)
    tail = "; a row without ± is a single run or a closed form" if single else ""
    return f"Mean ± standard deviation over {number} seeds{tail}"


def _intervals(facts: Footnotes, table: Table) -> str:
    if not any(column.interval for column in table.columns):
        return ""
    how = f": {facts.interval}" if facts.interval else ""
    return f"In brackets {100 * table.confidence:g}% intervals{how}"


def _marks(facts: Footnotes, table: Table) -> str:
    how = f" ({facts.comparison})" if facts.comparison else ""
    if not table.tested:
        return "No p-values are claimed for differences between methods, so nothing is bold" if facts.comparison else ""
    pairs = f" over {facts.family:,} {'pair' if facts.family == 1 else 'pairs'}" if facts.family else ""
    level = f"p < {1 - table.confidence:.3g} after Holm's correction{pairs}"
    if not table.marked:
        return f"No two methods differ significantly ({level}), so nothing is bold{how}"
    return (
        "A raised letter marks a value that is significantly better than that of the method with this "
        f"letter, {level}{how}; "
        "bold: the best value of a column in which any two methods differ significantly"
    )


def _towers(facts: Footnotes) -> str:
    parts = (
        f"Backbone: {facts.backbone}" if facts.backbone else "",
        facts.pretraining and f"Pretraining: {facts.pretraining}",
    )
    return ". ".join(_sentence(part).rstrip(".") for part in parts if part)


def _frames(facts: Footnotes) -> str:
    if facts.max_frames is None:
        return ""
    return f"At most {facts.max_frames} frames per clip" + (
        f", chosen {facts.frames_chosen}" if facts.frames_chosen else ""
    )


def _decoding(facts: Footnotes) -> str:
    known = facts.decoding
    parts = [
        f"{known['fps']:g} frames per second" if known.get("fps") else "",
        f"short side {known['short_side']} pixels" if known.get("short_side") else "",
        f"{known['sampling']} sampling" if known.get("sampling") else "",
        " and ".join(f"{name} {version}" for name, version in (known.get("decoders") or {}).items()),
    ]
    given = [part for part in parts if part]
    return "Decoding: " + ", ".join(given) if given else ""


def _hardware(facts: Footnotes) -> str:
    names = [f"{count} × {name}" for name, count in facts.hardware.items()]
    return "Hardware: " + ", ".join(names) if names else ""


def _seeds(facts: Footnotes) -> str:
    groups: dict[str, list[str]] = {}
    for label, seeds in facts.seeds.items():
        groups.setdefault(", ".join(map(str, seeds)), []).append(label)
    if len(groups) == 1:
        return f"Training seeds: {next(iter(groups))}"
    return (
        "Training seeds: " + "; ".join(f"{seeds} ({', '.join(labels)})" for seeds, labels in groups.items())
        if groups
        else ""
    )


def _sentence(text: str) -> str:
    """One line, with a capital where it starts with a word, and a full stop."""
    line = " ".join(text.split())
    line = line[:1].upper() + line[1:] if line[:2].isalpha() and line[:2].islower() else line
    return line if line.endswith((".", "!", "?")) else line + "."
