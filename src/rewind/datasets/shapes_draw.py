"""Draw a scene as frames: large flat shapes, one slow event that fills the whole clip."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from rewind.datasets.shapes_grammar import Scene

RGB = {
    "red": (225, 25, 25),
    "orange": (255, 140, 0),
    "yellow": (250, 225, 20),
    "green": (20, 150, 45),
    "cyan": (0, 205, 225),
    "blue": (35, 60, 235),
    "purple": (125, 35, 165),
    "pink": (255, 125, 200),
}
GREYS = {"white": (255, 255), "black": (0, 0), "grey": (128, 128), "striped": (80, 190)}
FRAME_RATES = ("8", "10", "25/2", "15", "30000/1001")
# Added to the short side: square, wide, tall, and odd numbers of pixels, as real footage has.
MARGINS = ((0, 0), (8, 0), (0, 12), (1, 9), (13, 5))


@dataclass(frozen=True)
class Style:
    """What varies between clips beside the scene: the format of the file, and where exactly things are.

    ``rate`` is frames per second as ffmpeg writes it; ``dx``, ``dy`` and ``scale`` shift and size the object;
    ``angle`` (radians) is where a rotation is half-way; ``corner`` is the sign of x and y.
    """

    width: int
    height: int
    rate: str
    frames: int
    dx: float
    dy: float
    scale: float
    angle: float
    corner: tuple[int, int]


@dataclass(frozen=True)
class Placed:
    """One object in one frame, in units of the central square (0 to 1, y downwards)."""

    x: float
    y: float
    radius: float
    colour: tuple[float, ...]
    angle: float = 0.0
    opacity: float = 1.0
    level: float = 1.0


def draw_style(key: str, size: int) -> Style:
    """The style of a clip, from a string that names it; sides are ``size`` plus a few pixels."""
    rng = random.Random(key)
    rate = rng.choice(FRAME_RATES)
    over, under = (int(part) for part in f"{rate}/1".split("/")[:2])
    right, down = rng.choice(MARGINS)
    return Style(
        width=size + right,
        height=size + down,
        rate=rate,
        frames=round(rng.uniform(2.1, 3.9) * over / under),
        dx=rng.uniform(-0.1, 0.1),
        dy=rng.uniform(-0.1, 0.1),
        scale=rng.uniform(0.9, 1.1),
        angle=rng.uniform(-math.pi, math.pi),
        corner=(rng.choice((-1, 1)), rng.choice((-1, 1))),
    )


def render(scene: Scene, style: Style) -> np.ndarray:
    """Frames of a scene, uint8 RGB (T, H, W, 3); the event proceeds evenly from first to last frame."""
    # Drawn large and averaged down, which smooths edges.
    factor = 4 if min(style.width, style.height) <= 64 else 2
    ground = _ground(scene.background, style)
    steps = [index / (style.frames - 1) for index in range(style.frames)]
    placed = [place(scene, style, step if scene.onward else 1 - step) for step in steps]
    frames = np.broadcast_to(ground, (style.frames, *ground.shape))
    for path in zip(*placed, strict=True):
        frames = _paint(frames, scene.shape, path, style, factor)
    return np.rint(frames).astype(np.uint8)


def place(scene: Scene, style: Style, p: float) -> list[Placed]:
    """Objects at progress ``p`` (0 to 1) of the event in its onward direction."""
    x, y = 0.5 + style.dx, 0.5 + style.dy
    small, large = 0.18 * style.scale, 0.35 * style.scale
    colour = RGB[scene.colour]
    match scene.event:
        case "rise":
            return [Placed(x, 0.8 - 0.6 * p, small, colour)]
        case "right":
            return [Placed(0.2 + 0.6 * p, y, small, colour)]
        case "grow":
            return [Placed(0.5, 0.5, 0.08 + (large + 0.04 - 0.08) * p, colour)]
        case "approach":
            away = 0.36 * (1 - p)
            sideways, upwards = style.corner
            return [Placed(0.5 + away * sideways, 0.5 + away * upwards, 0.07 + (large - 0.07) * p, colour)]
        case "turn":
            mixed = tuple((1 - p) * a + p * b for a, b in zip(colour, RGB[scene.partner], strict=True))
            return [Placed(0.5, 0.5, large, mixed)]
        case "appear":
            return [Placed(0.5, 0.5, large, colour, opacity=p)]
        case "rotate":
            return [Placed(0.5, 0.5, large, colour, angle=style.angle + math.radians(240) * (p - 0.5))]
        case "orbit":
            turn = style.angle + math.radians(270) * (p - 0.5)
            return [Placed(0.5 + 0.3 * math.cos(turn), 0.5 + 0.3 * math.sin(turn), small, colour)]
        case "split":
            return [Placed(0.5 + side * 0.29 * p, y, small, colour) for side in (-1, 1)]
        case "fill":
            return [Placed(0.5, 0.5, large, colour, level=p)]
    raise ValueError(f"no drawing for the event {scene.event!r}")


def _ground(background: str, style: Style) -> np.ndarray:
    """The empty background, float (H, W, 3)."""
    band = max(2, round(min(style.width, style.height) / 8))
    rows = (np.arange(style.height) // band) % 2
    tones = np.array(GREYS[background], float)[rows]
    return np.broadcast_to(tones[:, None, None], (style.height, style.width, 3))


def _paint(frames: np.ndarray, shape: str, path: Sequence[Placed], style: Style, factor: int) -> np.ndarray:
    """Blend one object over every frame, float (T, H, W, 3); ``path``: where it is in each."""
    alpha = np.stack([_cover(shape, placed, style, factor) for placed in path])[..., None]
    colours = np.array([placed.colour for placed in path])[:, None, None]
    return frames + (colours - frames) * alpha


def _cover(shape: str, placed: Placed, style: Style, factor: int) -> np.ndarray:
    """How much of each pixel an object covers, float (H, W), 0 to 1."""
    side = min(style.width, style.height)
    # The scene lives in the central square, so a centre crop loses nothing.
    left, top = (style.width - side) / 2, (style.height - side) / 2
    cos, sin = math.cos(placed.angle), math.sin(placed.angle)
    turned = OUTLINES[shape] @ np.array([[cos, sin], [-sin, cos]])
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


def _outlines() -> dict[str, np.ndarray]:
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


OUTLINES = _outlines()
