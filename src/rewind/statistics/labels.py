"""What the column ``procedure`` says: over what an interval generalises."""

from __future__ import annotations

BOTH = "t over training seeds and clusters of queries"
TWO = "two seeds only"
FIXED = "these models, other queries: t over clusters of queries"


def method(seeds: int, skewed: bool = False, fixed: bool = False) -> str:
    """Of an interval of one method's mean; ``fixed``: it is one model, which cannot be trained again."""
    tail = ", Hall-corrected" if skewed else ""
    if fixed:
        return f"{FIXED}{tail}"
    if seeds == 1:
        return f"queries only, this checkpoint{tail}"
    return f"{BOTH}{tail}{_flag(seeds)}"


def accuracy(seeds: int, fixed: bool = False) -> str:
    """Of an interval of the share of images that a method classifies rightly."""
    if fixed:
        return "these models, other images"
    return "images only, this checkpoint" if seeds == 1 else f"t over training seeds and images{_flag(seeds)}"


def median(seeds: int, fixed: bool = False) -> str:
    """Of an interval of a median rank."""
    return f"inverted intervals of R@r, {method(seeds, fixed=fixed)}"


def pair(first: int, second: int, fixed: int = 0, paired: bool = False) -> str:
    """Of a difference between two methods.

    Args:
        first, second: their numbers of seeds.
        fixed: how many of the two are fixed models.
        paired: whether seed s of one goes with seed s of the other.
    """
    if fixed == 2:
        return FIXED
    trained = max(first, second) if fixed else min(first, second)
    if trained == 1:
        return "queries only, these checkpoints"
    if fixed:
        return f"{BOTH}, against one fixed model{_flag(trained)}"
    return f"{BOTH}{', seeds in pairs' if paired else ''}{_flag(trained)}"


def of_images(said: str) -> str:
    """The same, where what is drawn are labelled images."""
    return said.replace("clusters of queries", "images").replace("queries", "images")


def _flag(seeds: int) -> str:
    return f"; {TWO}" if seeds == 2 else ""
