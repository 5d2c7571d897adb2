"""Facts that readers need to trust a table, taken from provenance and put into plain sentences."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rewind.errors import RewindError


@dataclass(frozen=True)
class Footnotes:
    """Facts about a study, from its provenance. Every field may be empty; an empty one gives no sentence.

    Attributes:
        settings: setting → ``{"queries": …, "items": …, "clusters": …}``: numbers of captions that search, of items
            that are searched and of clusters of queries.
        decoding: ``fps``, ``short_side`` (pixels), ``sampling``, ``decoders`` (name → version); any of them.
        hardware: devices of a run, for example ``4 × NVIDIA A10G`` → number of runs that had them.
        budgets: how long methods train, for example ``5 epochs of batches of 128`` → labels of those that do.
        procedures: how intervals and tests were computed → labels of the trained methods.
        data: content hashes of the dataset that the runs used; several if it was prepared again between them.

    Example:
        >>> facts = Footnotes.from_json({"backbone": "CLIP ViT-B/32", "max_frames": 12})
        >>> finish_sentences(study_sentences(facts))
        ['Backbone: CLIP ViT-B/32.', 'At most 12 frames per clip.']
    """

    settings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    items: str = "videos"  # what is searched, in the plural: ``videos`` or ``images``
    backbone: str = ""  # the towers, for example ``CLIP ViT-B/32 (OpenAI weights)``
    pretraining: str = ""  # what the towers were pre-trained on, and whether once or again for each seed
    max_frames: int | None = None
    frames_chosen: str = ""  # how max_frames was chosen, for example ``on validation from 12, 16 and 24``
    decoding: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, int] = field(default_factory=dict)
    seeds: Mapping[str, list[int]] = field(default_factory=dict)  # method's label → its training seeds
    budgets: Mapping[str, list[str]] = field(default_factory=dict)
    procedures: Mapping[str, list[str]] = field(default_factory=dict)
    bootstrap: str = ""  # how the bootstrap next to the intervals was computed
    family: int | None = None  # number of pairs in the family of Holm's correction
    coverage: str = ""  # what share of the clips could be used: describe_coverage
    data: list[str] = field(default_factory=list)
    noise: Sequence[str] = ()  # names of methods that were evaluated on noise instead of clips
    notes: list[str] = field(default_factory=list)  # anything else, one sentence each

    @classmethod
    def from_json(cls, *parts: Mapping[str, Any]) -> Footnotes:
        """From JSON objects whose keys are fields of this class (others are refused); later objects take precedence."""
        names = [f.name for f in fields(cls)]
        merged: dict[str, Any] = {}
        for part in parts:
            for name in part:
                if name not in names:
                    similar = difflib.get_close_matches(name, names, n=1)
                    hint = f"did you mean {similar[0]!r}?" if similar else f"valid: {', '.join(names)}"
                    raise RewindError(f"footnotes: unknown fact {name!r}; {hint}.")
            merged.update(part)
        return cls(**merged)


def describe_coverage(total: int, missing: Mapping[str, int], items: str = "videos") -> str:
    """``all 1,080 clips usable`` or ``12 of 1,000 videos missing (10 not found, 2 cannot be decoded)``.

    ``total`` counts the items that the annotations name; ``missing``: reason → count.
    """
    total_missing = sum(missing.values())
    if not total_missing:
        return f"all {total:,} {items} usable"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in missing.items() if count)
    return f"{total_missing:,} of {total:,} {items} missing ({reasons})"


def study_sentences(facts: Footnotes) -> list[str]:
    """What applies to every table of a study."""
    return [
        _towers(facts),
        _frames(facts),
        _decoding(facts),
        _hardware(facts),
        budget_sentence(facts.budgets),
        seed_sentence(facts),
        f"Coverage: {facts.coverage}" if facts.coverage else "",
        _data(facts),
        *map(str, facts.notes),
    ]


def budget_sentence(budgets: Mapping[str, list[str]]) -> str:
    """How long methods train; rows of unequal budgets differ in more than the method, so it names them.

    >>> budget_sentence({"5 epochs of batches of 128": ["meanP", "seqLSTM"]})
    'Training: 5 epochs of batches of 128'
    """
    if len(budgets) < 2:
        return "".join(f"Training: {budget}" for budget in budgets)
    return "Training budgets differ: " + "; ".join(
        f"{budget} ({', '.join(labels)})" for budget, labels in budgets.items()
    )


def finish_sentences(texts: list[str]) -> list[str]:
    """The non-empty texts as sentences: on one line, with a capital if they begin with a word, and a full stop."""
    return [_sentence(text) for text in texts if text.strip()]


def table_notes(*notes: Sequence[str]) -> list[str]:
    """The notes of a table, of one or more sentences each; what is empty is left out.

    There are five at most, in this order: who searches what; how to read the numbers; what is marked; what is missing;
    one caution. What holds for all tables of a study is stated once, by :func:`shared_notes`.

    >>> table_notes(["In percent", ""], [""], ["Two seeds are few"])
    ['In percent.', 'Two seeds are few.']
    """
    return [" ".join(found) for note in notes if (found := finish_sentences(list(note)))]


READING = (
    "↑ higher is better, ↓ lower is better; a metric is its expected value when tied items are ordered at random; "
    "intervals are not adjusted for multiple comparisons"
)


def shared_notes(facts: Footnotes, seeds: list[int] | None = None) -> list[str]:
    """What holds for every table of a study; empty where nothing is known.

    ``seeds`` are the numbers of seeds of trained methods, where few call for a caution.
    """
    said = finish_sentences([procedure_sentence(facts), *study_sentences(facts), seed_caution(seeds or [])])
    return [*said[:1], *finish_sentences([READING]), *said[1:]] if said else []


def procedure_sentence(facts: Footnotes) -> str:
    """How intervals and tests were computed; if methods differ, which method by which procedure."""
    if len(facts.procedures) == 1:
        return f"Intervals and tests: {next(iter(facts.procedures))}"
    listed = "; ".join(f"{procedure} ({', '.join(labels)})" for procedure, labels in facts.procedures.items())
    return f"Intervals and tests: {listed}" if listed else ""


def pair_count(count: int) -> str:
    """``1 pair``, ``1,035 pairs``."""
    return f"{count:,} {'pair' if count == 1 else 'pairs'}"


def confidence_percent(confidence: float) -> str:
    """``95%``."""
    return f"{100 * confidence:g}%"


def seed_caution(counts: list[int]) -> str:
    """What few seeds cannot show; ``counts`` are the numbers of seeds of trained methods, ascending."""
    if counts == [1]:
        return (
            "One training seed per method: these results say nothing about other seeds, and differences between "
            "trained methods have no p-value"
        )
    if counts and counts[0] == 1:
        return "A method with one training seed is a single checkpoint: its comparisons have no p-value"
    if counts and counts[0] == 2:
        return (
            "Two training seeds are few: if results vary much between seeds, intervals cover the true value too "
            "rarely; where more than three are tested together, none can be shown to differ"
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
    decoding = facts.decoding
    parts = [
        f"{decoding['fps']:g} frames per second" if decoding.get("fps") else "",
        f"short side {decoding['short_side']} pixels" if decoding.get("short_side") else "",
        f"stretched to {decoding['square']} × {decoding['square']} pixels" if decoding.get("square") else "",
        f"{decoding['sampling']} sampling" if decoding.get("sampling") else "",
        " and ".join(f"{name} {version}" for name, version in (decoding.get("decoders") or {}).items()),
    ]
    present = [part for part in parts if part]
    return "Decoding: " + ", ".join(present) if present else ""


def _hardware(facts: Footnotes) -> str:
    """The devices of a run; if runs had different ones, how many runs had which."""
    if len(facts.hardware) == 1:
        return f"Hardware: {next(iter(facts.hardware))}"
    listed = [f"{runs} run{'s' if runs > 1 else ''} on {devices}" for devices, runs in facts.hardware.items()]
    return "Hardware: " + ", ".join(listed) if listed else ""


def _data(facts: Footnotes) -> str:
    """The beginning of each hash, which is enough to distinguish versions of the data."""
    if not facts.data:
        return ""
    listed = " and ".join(digest[:12] for digest in facts.data)
    return f"Data: content hash {listed}" + (" (runs differ)" if len(facts.data) > 1 else "")


def _sentence(text: str) -> str:
    """One line, with a capital if it begins with a lower-case word, and a full stop."""
    line = " ".join(text.split())
    line = line[:1].upper() + line[1:] if line[:2].isalpha() and line[:2].islower() else line
    return line if line.endswith((".", "!", "?")) else line + "."
