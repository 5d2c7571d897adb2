"""What happens in a shapes clip, and the sentences that truthfully say so in either direction of time."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product

from rewind.datasets.annotations import SPLITS
from rewind.errors import RewindError

COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
BACKGROUNDS = ("white", "black", "grey", "striped")
SHAPES = ("circle", "square", "triangle", "star", "ring", "cross", "heart", "arrow", "moon")
# Only a shape without rotational symmetry shows which way it spins when few frames are seen.
ORIENTED = ("triangle", "heart", "arrow", "moon")


@dataclass(frozen=True)
class Event:
    """A process that has a direction; ``{it}`` stands for the object, ``{other}`` for the colour it ends
    with.

    ``onward`` and ``backward`` hold parallel wordings: the n-th of one is the n-th of the other with time
    reversed.
    """

    onward: tuple[str, ...]
    backward: tuple[str, ...]
    shapes: tuple[str, ...] = SHAPES


EVENTS = {
    "rise": Event(
        ("{it} rises from the bottom to the top", "{it} moves up", "{it} goes up to the top"),
        ("{it} falls from the top to the bottom", "{it} moves down", "{it} goes down to the bottom"),
    ),
    "right": Event(
        ("{it} moves from left to right", "{it} moves to the right", "{it} goes to the right"),
        ("{it} moves from right to left", "{it} moves to the left", "{it} goes to the left"),
    ),
    "grow": Event(
        ("{it} grows", "{it} gets bigger", "{it} becomes bigger"),
        ("{it} shrinks", "{it} gets smaller", "{it} becomes smaller"),
    ),
    "approach": Event(
        (
            "{it} approaches from the corner",
            "{it} comes closer from the corner",
            "{it} gets closer from the corner",
        ),
        ("{it} leaves to the corner", "{it} goes away to the corner", "{it} gets away to the corner"),
    ),
    "turn": Event(
        ("{it} turns {other}", "{it} becomes {other}", "{it} changes to {other}"),
        ("{it} turns {other}", "{it} becomes {other}", "{it} changes to {other}"),
    ),
    "appear": Event(
        ("{it} appears", "{it} fades in", "{it} slowly appears"),
        ("{it} vanishes", "{it} fades out", "{it} slowly vanishes"),
    ),
    "rotate": Event(
        ("{it} rotates clockwise", "{it} spins clockwise", "{it} turns clockwise"),
        ("{it} rotates anticlockwise", "{it} spins anticlockwise", "{it} turns anticlockwise"),
        ORIENTED,
    ),
    "orbit": Event(
        (
            "{it} moves around the centre clockwise",
            "{it} goes around the centre clockwise",
            "{it} travels clockwise around the centre",
        ),
        (
            "{it} moves around the centre anticlockwise",
            "{it} goes around the centre anticlockwise",
            "{it} travels anticlockwise around the centre",
        ),
    ),
    "split": Event(
        ("{it} splits into two copies", "{it} divides into two copies", "{it} turns into two copies"),
        (
            "two copies of {it} merge into one",
            "two copies of {it} join into one",
            "two copies of {it} turn into one",
        ),
    ),
    "fill": Event(
        ("{it} fills up", "{it} becomes full", "{it} slowly fills up"),
        ("{it} drains out", "{it} becomes empty", "{it} slowly drains out"),
    ),
}

SENTENCES = (
    "{clause} on a {background} background.",
    "on a {background} background, {clause}.",
    "the background is {background} and {clause}.",
    "in the video, {clause} on a {background} background.",
)
WORDINGS = tuple(product(range(len(SENTENCES)), range(3)))
"""Every way to say a thing: (sentence, wording of the event)."""


@dataclass(frozen=True)
class Scene:
    """One original clip; ``onward`` says which direction of its event was filmed."""

    shape: str
    colour: str
    background: str
    event: str
    onward: bool = True

    @property
    def partner(self) -> str:
        """The colour at the other end of a ``turn``."""
        # Three steps in a circle of eight: no two colours are each other's partner, so no two scenes share
        # captions.
        return COLOURS[(COLOURS.index(self.colour) + 3) % len(COLOURS)]


def describe(scene: Scene, wording: tuple[int, int], reverse: bool = False) -> str:
    """The caption of a scene, or of its reversed clip, in one of the :data:`WORDINGS`."""
    onward = scene.onward != reverse
    event = EVENTS[scene.event]
    start, end = scene.colour, scene.partner
    if scene.event == "turn" and not onward:
        start, end = end, start
    sentence, phrase = wording
    article = "an" if start[0] in "aeiou" else "a"
    clause = (event.onward if onward else event.backward)[phrase]
    clause = clause.format(it=f"{article} {start} {scene.shape}", other=end)
    text = SENTENCES[sentence].format(clause=clause, background=scene.background)
    return text[0].upper() + text[1:]


def words(caption: str) -> set[str]:
    """The lower-case words of a caption."""
    return set(re.findall(r"[a-z]+", caption.lower()))


@dataclass(frozen=True)
class Entry:
    """A scene with the wordings of its captions, the human one first; both directions share them."""

    scene: Scene
    wordings: tuple[tuple[int, int], ...]

    def captions(self, reverse: bool) -> list[str]:
        """All captions of one direction, the human one first."""
        return [describe(self.scene, wording, reverse) for wording in self.wordings]


def compose(counts: dict[str, int], paraphrases: int, seed: int) -> dict[str, list[Entry]]:
    """Draw the scenes of every split.

    No combination of shape, colour, background and event occurs twice, in one split or in two. Events, and
    the direction in which each is filmed, are balanced. Every word of a human caption in valid and test
    occurs in train (unless train is empty), so a model can understand unseen combinations of seen words.

    Args:
        counts: originals per split; a split that is not named is empty.
        paraphrases: captions per clip and direction.
        seed: another seed gives other scenes.

    Raises:
        RewindError: if there are not that many combinations.
    """
    rng = random.Random(f"shapes {seed}")
    free = _combinations(rng)
    total, available = sum(counts.values()), sum(map(len, free.values()))
    if total > available or min(counts.values(), default=0) < 0:
        raise RewindError(
            f"source.clips: {total} clips are wanted ({counts}), but there are {available} different "
            "scenes; choose counts of at least 0 that sum to at most that."
        )
    splits: dict[str, list[Entry]] = {}
    known: set[str] | None = None
    for split in SPLITS:
        scenes = _deal(free, rng)
        splits[split] = _entries(scenes, counts.get(split, 0), paraphrases, known, rng)
        if len(splits[split]) < counts.get(split, 0):
            raise RewindError(
                f"source.clips: only {len(splits[split])} of {counts[split]} {split} clips can be described "
                f"with words that occur in train ({counts.get('train', 0)} clips); ask for more train clips or "
                "for fewer others."
            )
        if split == "train" and splits[split]:
            known = vocabulary(splits[split])
    return splits


def vocabulary(entries: Collection[Entry]) -> set[str]:
    """All words in the captions of ``entries``, in both directions."""
    return {word for e in entries for way in (False, True) for c in e.captions(way) for word in words(c)}


def _combinations(rng: random.Random) -> dict[str, list[Scene]]:
    """Every scene, by event, shuffled."""
    free = {}
    for name, event in EVENTS.items():
        free[name] = [Scene(*parts, name) for parts in product(event.shapes, COLOURS, BACKGROUNDS)]
        rng.shuffle(free[name])
    return free


def _deal(free: dict[str, list[Scene]], rng: random.Random) -> Iterator[Scene]:
    """Take scenes out of ``free``, one event after another, each event's filmed direction alternating."""
    order = list(free)
    rng.shuffle(order)
    onward = {name: rng.random() < 0.5 for name in order}
    while any(free.values()):
        for name in order:
            if free[name]:
                scene = free[name].pop()
                yield Scene(scene.shape, scene.colour, scene.background, name, onward[name])
                onward[name] = not onward[name]


def _entries(
    scenes: Iterator[Scene], count: int, paraphrases: int, known: set[str] | None, rng: random.Random
) -> list[Entry]:
    entries: list[Entry] = []
    while len(entries) < count and (scene := next(scenes, None)):
        wordings = list(WORDINGS)
        rng.shuffle(wordings)
        human = next((w for w in wordings if known is None or _understood(scene, w, known)), None)
        if human is not None:
            wordings.remove(human)
            entries.append(Entry(scene, (human, *wordings[: paraphrases - 1])))
    rng.shuffle(entries)
    return entries


def _understood(scene: Scene, wording: tuple[int, int], known: set[str]) -> bool:
    return all(words(describe(scene, wording, reverse)) <= known for reverse in (False, True))
