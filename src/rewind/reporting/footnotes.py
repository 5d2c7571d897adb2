"""What a reader must know to trust a table: facts from provenance, as plain sentences."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rewind.errors import RewindError


@dataclass(frozen=True)
class Footnotes:
    """Facts of a study, from its provenance. Every field may stay empty; an empty one gives no sentence.

    Attributes:
        settings: setting → ``{"queries": …, "items": …, "clusters": …}``: captions that search, items searched,
            clusters that the queries are resampled in.
        items: what is searched, in the plural: ``videos`` or ``images``.
        backbone: the towers, for example ``CLIP ViT-B/32 (OpenAI weights)``.
        pretraining: what they were trained on before, and whether once or anew for each seed.
        max_frames: frames per clip.
        frames_chosen: how that number was chosen, for example ``on validation from 12, 16 and 24``.
        decoding: ``fps``, ``short_side`` (pixels), ``sampling``, ``decoders`` (name → version); any of them.
        hardware: what one run had, for example ``4 × NVIDIA A10G`` → how many runs had that.
        seeds: method's label → its training seeds.
        procedures: how intervals and tests were computed → labels of the trained methods.
        bootstrap: how the bootstrap beside them was.
        family: pairs in the family of the Holm correction.
        coverage: what share of the clips could be used; see :func:`coverage`.
        data: content hashes of the data set as the runs found it, one unless it was made anew between them.
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
    procedures: Mapping[str, list[str]] = field(default_factory=dict)
    bootstrap: str = ""
    family: int | None = None
    coverage: str = ""
    data: list[str] = field(default_factory=list)
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


def study_sentences(facts: Footnotes) -> list[str]:
    """What holds for every table of a study."""
    return [
        _towers(facts),
        _frames(facts),
        _decoding(facts),
        _hardware(facts),
        seed_sentence(facts),
        f"Coverage: {facts.coverage}" if facts.coverage else "",
        _data(facts),
        *map(str, facts.notes),
    ]


def finished(texts: list[str]) -> list[str]:
    """Those that say something, each on one line, with a capital where it starts with a word, and a full stop."""
    return [_sentence(text) for text in texts if text.strip()]


def procedure_sentence(facts: Footnotes, tested: bool) -> str:
    """The primary procedure, named once; with several, who falls under which."""
    if not facts.procedures:
        return ""
    what = "Intervals and tests" if tested else "Intervals"
    if len(facts.procedures) == 1:
        return f"{what}: {next(iter(facts.procedures))}"
    return f"{what}: " + "; ".join(f"{how} ({', '.join(labels)})" for how, labels in facts.procedures.items())


def seed_caution(counts: list[int]) -> str:
    """What few seeds cannot carry; ``counts`` are the numbers of seeds of trained methods."""
    if counts == [1]:
        return (
            "One training seed per method: these results say nothing about other seeds, and differences between "
            "trained methods have no p-value"
        )
    if counts and counts[0] == 1:
        return "A method with one training seed is a single checkpoint: its comparisons have no p-value"
    if counts and counts[0] == 2:
        return (
            "Two training seeds are few: if results vary much between seeds, intervals cover the true value too rarely"
        )
    return ""


def seed_sentence(facts: Footnotes) -> str:
    """The training seeds, by method where they differ."""
    groups: dict[str, list[str]] = {}
    for label, seeds in facts.seeds.items():
        groups.setdefault(", ".join(map(str, seeds)), []).append(label)
    if len(groups) == 1:
        return f"Training seeds: {next(iter(groups))}"
    listed = "; ".join(f"{seeds} ({', '.join(labels)})" for seeds, labels in groups.items())
    return f"Training seeds: {listed}" if groups else ""


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
        f"stretched to {known['square']} × {known['square']} pixels" if known.get("square") else "",
        f"{known['sampling']} sampling" if known.get("sampling") else "",
        " and ".join(f"{name} {version}" for name, version in (known.get("decoders") or {}).items()),
    ]
    given = [part for part in parts if part]
    return "Decoding: " + ", ".join(given) if given else ""


def _hardware(facts: Footnotes) -> str:
    """The devices of a run; where runs had different ones, how many runs had which."""
    if len(facts.hardware) == 1:
        return f"Hardware: {next(iter(facts.hardware))}"
    listed = [f"{runs} run{'s' if runs > 1 else ''} on {devices}" for devices, runs in facts.hardware.items()]
    return "Hardware: " + ", ".join(listed) if listed else ""


def _data(facts: Footnotes) -> str:
    """The beginning of each hash: enough to tell two states of the data apart."""
    if not facts.data:
        return ""
    listed = " and ".join(digest[:12] for digest in facts.data)
    return f"Data: content hash {listed}" + (" (runs differ)" if len(facts.data) > 1 else "")


def _sentence(text: str) -> str:
    """One line, with a capital where it starts with a word, and a full stop."""
    line = " ".join(text.split())
    line = line[:1].upper() + line[1:] if line[:2].isalpha() and line[:2].islower() else line
    return line if line.endswith((".", "!", "?")) else line + "."
