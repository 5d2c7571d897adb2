"""What the column ``procedure`` says: over what an interval generalises."""

from __future__ import annotations

BOTH = "t over training seeds and clusters of queries"
TWO = "two seeds only"


def method(seeds: int, skewed: bool = False) -> str:
    """Of an interval of one method's mean."""
    if seeds == 1:
        return f"queries only, this checkpoint{', Hall-corrected' if skewed else ''}"
    return f"{BOTH}{', Hall-corrected' if skewed else ''}{_flag(seeds)}"


def accuracy(seeds: int) -> str:
    """Of an interval of the share of images that a method classifies rightly."""
    return "images only, this checkpoint" if seeds == 1 else f"t over training seeds and images{_flag(seeds)}"


def median(seeds: int) -> str:
    """Of an interval of a median rank."""
    return f"inverted intervals of R@r, {method(seeds)}"


def pair(first: int, second: int) -> str:
    """Of a difference between two methods with so many seeds."""
    least = min(first, second)
    return "queries only, these checkpoints" if least == 1 else f"{BOTH}{_flag(least)}"


def _flag(seeds: int) -> str:
    return f"; {TWO}" if seeds == 2 else ""
