"""Scenes of moving shapes: drawn at random from a seed, described by a small grammar, rendered as frames.

The built-in data set (:mod:`rewind.data.formats.shapes`) and made-up clips (:mod:`rewind.data.dummy`) consist of them.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from PIL import Image, ImageDraw

from rewind.data.annotations import SPLITS
from rewind.errors import RewindError

# ---- Scenes and captions: what happens in a clip, and sentences that are true of it in either direction of time ----

COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
BACKGROUNDS = ("white", "black", "grey", "striped")
SHAPES = ("circle", "square", "triangle", "star", "ring", "cross", "heart", "arrow", "moon")
# Only a shape without rotational symmetry shows which way it spins when few frames are seen.
ORIENTED_SHAPES = ("triangle", "heart", "arrow", "moon")


@dataclass(frozen=True)
class Event:
    """A process that has a direction."""

    onward: tuple[str, ...]  # wordings; {it} stands for the object, {other} for the colour that it ends with
    backward: tuple[str, ...]  # wordings with time reversed: the n-th belongs to the n-th of onward
    shapes: tuple[str, ...] = SHAPES  # that show it


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
        ORIENTED_SHAPES,
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

SENTENCE_TEMPLATES = (
    "{clause} on a {background} background.",
    "on a {background} background, {clause}.",
    "the background is {background} and {clause}.",
    "in the video, {clause} on a {background} background.",
)
WORDINGS = tuple(product(range(len(SENTENCE_TEMPLATES)), range(3)))
"""Every way to describe a scene: (index of the sentence, index of the event's wording)."""


@dataclass(frozen=True)
class Scene:
    """One original clip; ``onward``: whether its event was filmed in the onward direction.

    >>> scene = Scene("circle", "red", "white", "rise")
    >>> describe_scene(scene, (0, 1)), describe_scene(scene, (0, 1), reverse=True)
    ('A red circle moves up on a white background.', 'A red circle moves down on a white background.')
    """

    shape: str
    colour: str
    background: str
    event: str
    onward: bool = True

    @property
    def partner(self) -> str:
        """The colour at the other end of a ``turn``."""
        # Three steps around a circle of eight: no two colours are each other's partner, so no two scenes share
        # captions.
        return COLOURS[(COLOURS.index(self.colour) + 3) % len(COLOURS)]


def describe_scene(scene: Scene, wording: tuple[int, int], reverse: bool = False) -> str:
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
    text = SENTENCE_TEMPLATES[sentence].format(clause=clause, background=scene.background)
    return text[0].upper() + text[1:]


def caption_words(caption: str) -> set[str]:
    """The set of a caption's lower-case words."""
    return set(re.findall(r"[a-z]+", caption.lower()))


@dataclass(frozen=True)
class CaptionedScene:
    """A scene with the wordings of its captions, the "human" one first; both directions share them.

    >>> CaptionedScene(Scene("star", "blue", "grey", "grow"), ((0, 0), (1, 1))).captions(reverse=True)
    ['A blue star shrinks on a grey background.', 'On a grey background, a blue star gets smaller.']
    """

    scene: Scene
    wordings: tuple[tuple[int, int], ...]

    def captions(self, reverse: bool) -> list[str]:
        """All captions of one direction, the "human" one first; the others stand for rewrites."""
        return [describe_scene(self.scene, wording, reverse) for wording in self.wordings]


def compose_splits(counts: dict[str, int], paraphrases: int, seed: int) -> dict[str, list[CaptionedScene]]:
    """Draw the scenes of every split; one that ``counts`` does not name is empty.

    No combination of shape, colour, background and event occurs twice, in one split or in two. Events, and
    the direction in which each is filmed, are balanced. Every word of a human caption in valid and test
    occurs in train (unless train is empty), so a model can understand unseen combinations of seen words.
    ``paraphrases`` is the number of captions per clip and direction.

    >>> {split: len(scenes) for split, scenes in compose_splits({"train": 40, "test": 4}, 2, seed=0).items()}
    {'train': 40, 'valid': 0, 'test': 4}
    """
    rng = random.Random(f"shapes {seed}")  # it hashes a text by itself, not by hash(), which differs by process
    free = _all_scenes(rng)
    total, available = sum(counts.values()), sum(map(len, free.values()))
    if total > available or min(counts.values(), default=0) < 0:
        raise RewindError(
            f"source.clips: {total} clips are requested ({counts}), but there are {available} different "
            "scenes; choose counts of at least 0 that sum to at most that."
        )
    splits: dict[str, list[CaptionedScene]] = {}
    vocabulary: set[str] | None = None  # of train
    for split in SPLITS:
        scenes = _draw_scenes(free, rng)
        splits[split] = _caption_scenes(scenes, counts.get(split, 0), paraphrases, vocabulary, rng)
        if len(splits[split]) < counts.get(split, 0):
            raise RewindError(
                f"source.clips: only {len(splits[split])} of {counts[split]} {split} clips can be described "
                f"with words that occur in train ({counts.get('train', 0)} clips); ask for more train clips or "
                "for fewer others."
            )
        if split == "train" and splits[split]:
            vocabulary = caption_vocabulary(splits[split])
    return splits


def caption_vocabulary(entries: Collection[CaptionedScene]) -> set[str]:
    """All words in the captions of ``entries``, in both directions."""
    return {word for e in entries for way in (False, True) for c in e.captions(way) for word in caption_words(c)}


def _all_scenes(rng: random.Random) -> dict[str, list[Scene]]:
    free = {}
    for name, event in EVENTS.items():
        free[name] = [Scene(*parts, name) for parts in product(event.shapes, COLOURS, BACKGROUNDS)]
        rng.shuffle(free[name])
    return free


def _draw_scenes(free: dict[str, list[Scene]], rng: random.Random) -> Iterator[Scene]:
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


def _caption_scenes(
    scenes: Iterator[Scene], count: int, paraphrases: int, vocabulary: set[str] | None, rng: random.Random
) -> list[CaptionedScene]:
    """The first ``count`` scenes that can be described with the words of ``vocabulary`` (None: any), shuffled."""
    entries: list[CaptionedScene] = []
    while len(entries) < count and (scene := next(scenes, None)):
        wordings = list(WORDINGS)
        rng.shuffle(wordings)
        human = next((w for w in wordings if vocabulary is None or _uses_known_words(scene, w, vocabulary)), None)
        if human is not None:
            wordings.remove(human)
            entries.append(CaptionedScene(scene, (human, *wordings[: paraphrases - 1])))
    rng.shuffle(entries)
    return entries


def _uses_known_words(scene: Scene, wording: tuple[int, int], vocabulary: set[str]) -> bool:
    return all(caption_words(describe_scene(scene, wording, reverse)) <= vocabulary for reverse in (False, True))


# ---- Rendering: large flat shapes, one slow event that fills the whole clip ----------------------------------------

COLOUR_RGB = {
    "red": (225, 25, 25),
    "orange": (255, 140, 0),
    "yellow": (250, 225, 20),
    "green": (20, 150, 45),
    "cyan": (0, 205, 225),
    "blue": (35, 60, 235),
    "purple": (125, 35, 165),
    "pink": (255, 125, 200),
}
BACKGROUND_GREYS = {"white": (255, 255), "black": (0, 0), "grey": (128, 128), "striped": (80, 190)}
FRAME_RATES = ("8", "10", "25/2", "15", "30000/1001")
# Added to the short side: square, wide, tall, and odd numbers of pixels, as real footage has.
SIZE_MARGINS = ((0, 0), (8, 0), (0, 12), (1, 9), (13, 5))


@dataclass(frozen=True)
class ClipStyle:
    """What varies between clips besides the scene: the format of the file, and where exactly things are."""

    width: int  # of the frames, in pixels, as height
    height: int
    rate: str  # frames per second, as ffmpeg takes it
    frames: int
    dx: float  # shift of the object, in units of the central square, as dy
    dy: float
    scale: float  # factor of the object's size
    angle: float  # of a rotating object half-way through the clip, in radians
    corner: tuple[int, int]  # signs of x and y of the corner from which an object approaches


@dataclass(frozen=True)
class PlacedShape:
    """One object in one frame, in units of the central square (0 to 1, y downwards)."""

    x: float
    y: float
    radius: float
    colour: tuple[float, ...]
    angle: float = 0.0  # in radians
    opacity: float = 1.0  # 0 to 1, blends it with the background
    level: float = 1.0  # 0 to 1, how full it is


def random_style(key: str, size: int) -> ClipStyle:
    """The style of a clip, drawn with a string that names the clip as seed; sides are ``size`` plus a few pixels."""
    rng = random.Random(key)
    rate = rng.choice(FRAME_RATES)
    numerator, denominator = (int(part) for part in f"{rate}/1".split("/")[:2])
    right, down = rng.choice(SIZE_MARGINS)
    # The order of the draws is part of the data: with another one every clip would look different.
    return ClipStyle(
        width=size + right,
        height=size + down,
        rate=rate,
        frames=round(rng.uniform(2.1, 3.9) * numerator / denominator),  # 2.1 to 3.9 seconds
        dx=rng.uniform(-0.1, 0.1),
        dy=rng.uniform(-0.1, 0.1),
        scale=rng.uniform(0.9, 1.1),
        angle=rng.uniform(-math.pi, math.pi),
        corner=(rng.choice((-1, 1)), rng.choice((-1, 1))),
    )


def render_scene(scene: Scene, style: ClipStyle) -> np.ndarray:
    """Frames of a scene, uint8 RGB (T, H, W, 3); the event proceeds evenly from first to last frame."""
    # Drawn large and averaged down, which smooths edges.
    factor = 4 if min(style.width, style.height) <= 64 else 2
    background = _draw_background(scene.background, style)
    steps = [index / (style.frames - 1) for index in range(style.frames)]
    placed = [place_shapes(scene, style, step if scene.onward else 1 - step) for step in steps]
    frames = np.broadcast_to(background, (style.frames, *background.shape))
    for path in zip(*placed, strict=True):
        frames = _blend_shape(frames, scene.shape, path, style, factor)
    return np.rint(frames).astype(np.uint8)


def place_shapes(scene: Scene, style: ClipStyle, p: float) -> list[PlacedShape]:
    """Objects at progress ``p`` (0 to 1) of the event in its onward direction: one, or two for ``split``."""
    x, y = 0.5 + style.dx, 0.5 + style.dy
    small, large = 0.18 * style.scale, 0.35 * style.scale
    colour = COLOUR_RGB[scene.colour]
    match scene.event:
        case "rise":
            return [PlacedShape(x, 0.8 - 0.6 * p, small, colour)]
        case "right":
            return [PlacedShape(0.2 + 0.6 * p, y, small, colour)]
        case "grow":
            return [PlacedShape(0.5, 0.5, 0.08 + (large + 0.04 - 0.08) * p, colour)]
        case "approach":
            away = 0.36 * (1 - p)
            sideways, upwards = style.corner
            return [PlacedShape(0.5 + away * sideways, 0.5 + away * upwards, 0.07 + (large - 0.07) * p, colour)]
        case "turn":
            mixed = tuple((1 - p) * a + p * b for a, b in zip(colour, COLOUR_RGB[scene.partner], strict=True))
            return [PlacedShape(0.5, 0.5, large, mixed)]
        case "appear":
            return [PlacedShape(0.5, 0.5, large, colour, opacity=p)]
        case "rotate":
            return [PlacedShape(0.5, 0.5, large, colour, angle=style.angle + math.radians(240) * (p - 0.5))]
        case "orbit":
            turn = style.angle + math.radians(270) * (p - 0.5)
            return [PlacedShape(0.5 + 0.3 * math.cos(turn), 0.5 + 0.3 * math.sin(turn), small, colour)]
        case "split":
            return [PlacedShape(0.5 + side * 0.29 * p, y, small, colour) for side in (-1, 1)]
        case "fill":
            return [PlacedShape(0.5, 0.5, large, colour, level=p)]
    raise ValueError(f"no drawing for the event {scene.event!r}")


def _draw_background(background: str, style: ClipStyle) -> np.ndarray:
    """The empty background, float (H, W, 3)."""
    band = max(2, round(min(style.width, style.height) / 8))
    rows = (np.arange(style.height) // band) % 2
    tones = np.array(BACKGROUND_GREYS[background], float)[rows]
    return np.broadcast_to(tones[:, None, None], (style.height, style.width, 3))


def _blend_shape(
    frames: np.ndarray, shape: str, path: Sequence[PlacedShape], style: ClipStyle, factor: int
) -> np.ndarray:
    """Blend one object over every frame, float (T, H, W, 3); ``path``: where it is in each."""
    alpha = np.stack([_pixel_coverage(shape, placed, style, factor) for placed in path])[..., None]
    colours = np.array([placed.colour for placed in path])[:, None, None]
    return frames + (colours - frames) * alpha


def _pixel_coverage(shape: str, placed: PlacedShape, style: ClipStyle, factor: int) -> np.ndarray:
    """How much of each pixel an object covers, float (H, W), 0 to 1."""
    side = min(style.width, style.height)
    # The scene is in the central square, so a centre crop loses nothing.
    left, top = (style.width - side) / 2, (style.height - side) / 2
    cos, sin = math.cos(placed.angle), math.sin(placed.angle)
    turned = SHAPE_OUTLINES[shape] @ np.array([[cos, sin], [-sin, cos]])
    points = (turned * placed.radius + (placed.x, placed.y)) * side + (left, top)
    mask = Image.new("L", (style.width * factor, style.height * factor))
    ImageDraw.Draw(mask).polygon((points * factor).ravel().tolist(), fill=255)
    alpha = np.asarray(mask.reduce(factor), float) / 255 * placed.opacity
    if placed.level < 1:
        # An empty vessel is a faint shape; the filled part grows from below.
        surface = top + (placed.y + placed.radius - 2 * placed.radius * placed.level) * side
        filled = np.clip(np.arange(style.height) + 1 - surface, 0, 1)
        alpha = alpha * (0.25 + 0.75 * filled[:, None])
    return alpha


def _arc(start: float, end: float, radius: float = 1.0, x: float = 0.0) -> np.ndarray:
    """48 points (n, 2) on a circle around (x, 0), from ``start`` to ``end`` degrees."""
    turn = np.radians(np.linspace(start, end, 48))
    return np.stack([x + radius * np.cos(turn), radius * np.sin(turn)], axis=1)


def _star() -> np.ndarray:
    turn = np.radians(-90 + 36 * np.arange(10))
    radius = np.where(np.arange(10) % 2, 0.45, 1.1)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)


def _heart() -> np.ndarray:
    t = np.linspace(0, 2 * np.pi, 64)
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([16 * np.sin(t) ** 3, -y - 2.5], axis=1) / 15


def _shape_outlines() -> dict[str, np.ndarray]:
    """Every shape as one closed polygon of about unit radius, (n, 2), y downwards."""
    arm, long = 0.36, 1.0
    cross = [(-arm, -long), (arm, -long), (arm, -arm), (long, -arm), (long, arm), (arm, arm)]
    cross += [(-a, -b) for a, b in cross]
    arrow = [(0, -1.05), (0.85, -0.05), (0.34, -0.05), (0.34, 1), (-0.34, 1), (-0.34, -0.05), (-0.85, -0.05)]
    return {
        "circle": _arc(0, 360),
        "square": np.array([(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]),
        "triangle": np.array([(0, -1.1), (0.8, 0.85), (-0.8, 0.85)]),
        "star": _star(),
        # Out along the rim, back along the hole: the seam has no area.
        "ring": np.concatenate([_arc(0, 360), _arc(360, 0, 0.52)]),
        "cross": np.array(cross),
        "heart": _heart(),
        "arrow": np.array(arrow),
        "moon": np.concatenate([_arc(60, 300), _arc(290, 70, 0.92, 0.52)]),
    }


SHAPE_OUTLINES = _shape_outlines()
