"""The text of the column `procedure`: over what an interval generalises (training seeds, queries, or both)."""

from __future__ import annotations

SEEDS_AND_QUERIES = "t over training seeds and clusters of queries"
TWO_SEEDS_ONLY = "two seeds only"
FIXED_MODELS = "these models, other queries: t over clusters of queries"


def method(seeds: int, skewed: bool = False, fixed: bool = False) -> str:
    """Label of an interval of one method's mean; ``skewed``: Hall-corrected, ``fixed``: cannot be trained again.

    Example:
        >>> method(3), method(1)
        ('t over training seeds and clusters of queries', 'queries only, this checkpoint')
    """
    tail = ", Hall-corrected" if skewed else ""
    if fixed:
        return f"{FIXED_MODELS}{tail}"
    if seeds == 1:
        return f"queries only, this checkpoint{tail}"
    return f"{SEEDS_AND_QUERIES}{tail}{_two_seeds_flag(seeds)}"


def accuracy(seeds: int, fixed: bool = False) -> str:
    """Label of an interval of the share of images that a method classifies correctly."""
    if fixed:
        return "these models, other images"
    return "images only, this checkpoint" if seeds == 1 else f"t over training seeds and images{_two_seeds_flag(seeds)}"


def median(seeds: int, fixed: bool = False) -> str:
    """Label of an interval of a median rank."""
    return f"inverted intervals of R@r, {method(seeds, fixed=fixed)}"


def pair(first: int, second: int, fixed: int = 0, paired: bool = False) -> str:
    """Label of a difference between two methods, with ``first`` and ``second`` seeds.

    Of the two, ``fixed`` are fixed models; ``paired``: seed s of one goes with seed s of the other.
    """
    if fixed == 2:
        return FIXED_MODELS
    # A fixed model has one run, so that the larger number is that of the trained method.
    trained = max(first, second) if fixed else min(first, second)
    if trained == 1:
        return "queries only, these checkpoints"
    if fixed:
        return f"{SEEDS_AND_QUERIES}, against one fixed model{_two_seeds_flag(trained)}"
    return f"{SEEDS_AND_QUERIES}{', seeds in pairs' if paired else ''}{_two_seeds_flag(trained)}"


def for_images(label: str) -> str:
    """The same label where the random units are labelled images, not queries."""
    return label.replace("clusters of queries", "images").replace("queries", "images")


def _two_seeds_flag(seeds: int) -> str:
    return f"; {TWO_SEEDS_ONLY}" if seeds == 2 else ""
