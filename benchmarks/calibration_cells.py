"""The designs that the calibration measures: the main grid, and the edges where small numbers break formulas."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from itertools import product

from reference_tests import REFERENCE_TESTS
from rewind.statistics.calibration import OUR_TEST, TABLE_METRICS
from rewind.statistics.simulation import PRETRAINED_ONCE, PRETRAINED_PER_SEED, SIMULATED_METRICS, Design

SLICE = (1000, 2)  # queries and cluster size where the other procedures and power are measured in the main grid
KEYS = tuple(field.name for field in fields(Design))
WITH_TABLE = (*SIMULATED_METRICS[:1], "R@5", *SIMULATED_METRICS[1:])


@dataclass(frozen=True)
class Cell:
    """One design to measure.

    Attributes:
        group: what it is there for.
        design: of its studies.
        metrics: measured.
        procedures: measured.
    """

    group: str
    design: Design
    metrics: tuple[str, ...] = SIMULATED_METRICS
    procedures: tuple[str, ...] = (OUR_TEST,)

    @property
    def name(self) -> str:
        """The design in words; unlike designs have unlike names."""
        return name(self.design)

    def row(self) -> dict[str, object]:
        """The design as columns of the stored figures; several numbers are joined by +."""
        return {key: _joined(value) for key, value in zip(KEYS, astuple(self.design), strict=True)}


def name(design: Design) -> str:
    """For example ``3 seeds, 500 clusters of 2, R@1 40%, seed sd 1``; what is as always is left out."""
    seeds = _joined(design.seeds)
    parts = [
        "fixed models" if seeds == "1" else f"{seeds} seeds",
        f"{design.clusters:,} cluster{'s' if design.clusters > 1 else ''} of {design.cluster}",
        f"R@1 {design.r1:g}%",
    ]
    usual = Design(seeds=design.seeds, queries=design.queries, cluster=design.cluster, r1=design.r1)
    said = {
        "seed_sd": "" if seeds == "1" else f"seed sd {_joined(design.seed_sd)}",
        "difference": f"{design.difference:g} points apart",
        "methods": f"{design.methods} methods",
        "disagreement": f"disagreement {design.disagreement:g}",
        "pretraining_sd": f"pre-training {design.pretraining}, sd {design.pretraining_sd:g}",
        "pretraining_alike": f"alike {design.pretraining_alike:g}",
        "gallery": f"gallery of {design.gallery:,}",
        "alike": f"methods alike {design.alike:g}",
        "together": f"clusters alike {design.together:g}",
    }
    shown = [key for key in said if key == "seed_sd" or getattr(design, key) != getattr(usual, key)]
    return ", ".join(part for part in (*parts, *(said[key] for key in shown)) if part)


def main_grid(seeds, clusters, queries, spreads, differences, **common: float) -> list[Cell]:
    """Every combination; on ``SLICE`` the other procedures too, and power at the differences."""
    cells = []
    for n, cluster, count, spread in product(seeds, clusters, queries, spreads):
        design = {"seeds": n, "cluster": cluster, "queries": count, "seed_sd": spread} | common
        on_slice = (count, cluster) == SLICE
        procedures = (OUR_TEST, *REFERENCE_TESTS) if on_slice else (OUR_TEST,)
        cells.append(Cell("main", Design(**design), SIMULATED_METRICS, procedures))
        if on_slice:
            cells += [Cell("power", Design(**design, difference=d), ("R@1",), procedures) for d in differences]
    return cells


def edges() -> list[Cell]:
    """Where few seeds, few clusters, ceilings or what no seed redraws may break the formulas."""
    return [*_few_seeds(), *_few_clusters(), *_ceilings(), *_unequal(), *_pretraining(), *_mean_ranks(), *_letters()]


def _few_seeds() -> list[Cell]:
    two = [
        Cell("two seeds", Design(seeds=2, queries=queries, cluster=2, seed_sd=spread))
        for queries, spread in product((200, 1000), (0.0, 1.0, 4.0))
    ]
    return two + [
        Cell("fixed models", Design(seeds=1, queries=queries, cluster=cluster, seed_sd=0.0, r1=r1))
        for queries, cluster, r1 in product((120, 240, 1000), (1, 2), (3.0, 40.0))
    ]


def _few_clusters() -> list[Cell]:
    cells = []
    for clusters, size, seeds in product((3, 5, 8, 11, 15, 20, 30, 50), (1, 2), (1, 2, 3, 5)):
        for spread in (0.0,) if seeds == 1 else (0.0, 4.0):
            design = Design(seeds=seeds, queries=clusters * size, cluster=size, seed_sd=spread)
            cells.append(Cell("few clusters", design))
    return cells


def _ceilings() -> list[Cell]:
    cells = []
    for r1, seeds, queries, cluster in product((90.0, 95.0, 97.0, 98.0, 99.0), (1, 2, 3, 5), (120, 240), (1, 2)):
        for spread in (0.0,) if seeds == 1 else (0.0, 0.5):
            design = Design(seeds=seeds, queries=queries, cluster=cluster, seed_sd=spread, r1=r1)
            cells.append(Cell("ceilings", design, WITH_TABLE))
    return cells


def _unequal() -> list[Cell]:
    """Three methods of which one spreads more, and that one against one other, whose pair is the worst of the three."""
    three = {(4.0, 1.0, 1.0): ((2, 10, 10), (3, 10, 10), (3, 3, 3), (5, 5, 5)), (4.0, 0.0, 0.0): ((3, 3, 3),)}
    two = {(4.0, 1.0): ((2, 10), (3, 10), (3, 3), (5, 5), (10, 10))}
    return [
        Cell("unequal seeds", Design(seeds=seeds, seed_sd=spread, queries=queries, methods=len(seeds)))
        for spread, counts in (three | two).items()
        for seeds, queries in product(counts, (200, 1000))
    ]


def _pretraining() -> list[Cell]:
    return [
        Cell("pre-training", Design(seeds=seeds, pretraining_sd=2.0, pretraining=when, pretraining_alike=alike))
        for seeds, when, alike in product((3, 5), (PRETRAINED_PER_SEED, PRETRAINED_ONCE), (1.0, 0.7))
    ]


def _mean_ranks() -> list[Cell]:
    return [
        Cell("mean ranks", Design(seeds=seeds, queries=queries, cluster=cluster, seed_sd=0.0, r1=r1), ("MnR",))
        for seeds, (queries, cluster), r1 in product((3, 10), ((200, 1), (200, 5), (1000, 2)), (40.0, 85.0))
    ]


def _letters() -> list[Cell]:
    """Four methods as a table has them: all equal, and one of them better by 8 points."""
    return [
        Cell(
            "letters", Design(seeds=seeds, queries=queries, seed_sd=spread, methods=4, difference=apart), TABLE_METRICS
        )
        for seeds, queries, spread, apart in product((3, 5), (120, 240, 1000), (0.0, 1.0, 4.0), (0.0, 8.0))
    ]


def _joined(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(_joined(each) for each in value)
    return f"{value:g}" if isinstance(value, int | float) else str(value)
