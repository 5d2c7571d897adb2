"""How far the probe of direction can be trusted, on drawn features: its interval, and its test of "more than chance".

    python benchmarks/direction_probe.py
    python tools/publish direction_probe

A clip and its twin are a cluster. Written for each design: the mean accuracy, the share of 95% intervals that hold
it, as if queries were independent and with rewind.analyses.probes.FOLDS_FACTOR, and the share of studies in which the
permutation test finds a direction, at 5%: an error where none is there, else power. The same call gives the same
figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rewind.analyses.probes import probe_tables
from rewind.config.evaluation import BY_CHANCE, VALUE_COLUMNS
from rewind.io.files import write_csv
from rewind.models.direction import direction_by_chance, pair_accuracy, probe_direction
from rewind.progress import Progress
from rewind.statistics.pairs import RandomFactors

PERMUTATIONS = 199
COLUMNS = ("design", "clips", "features", "studies", "accuracy", "independent", "covers", "found")


class Design(NamedTuple):
    """Clips, each with its twin, and their features.

    Attributes:
        clips: number of pairs.
        features: D.
        signal: by how much the mean of five features differs between the directions, in standard deviations of each.
        mirrored: "frames", where a twin's features are its clip's in the reverse order of six frames; "events", where
            every event is filmed in both directions, and both clips are one cluster; or neither.
    """

    clips: int
    features: int
    signal: float = 0.0
    mirrored: str = ""

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Features (2n, D), clips and twins in turn, and the cluster (n,) of each clip."""
        shape = (self.clips, self.features)
        step = self.signal / 2 * (np.arange(self.features) < 5)
        forward, backward = rng.standard_normal(shape) + step, rng.standard_normal(shape) - step
        cluster = np.arange(self.clips)
        if self.mirrored == "frames":
            backward = forward.reshape(self.clips, 6, -1)[:, ::-1].reshape(shape)
        if self.mirrored == "events":
            cluster %= self.clips // 2
            events = rng.standard_normal((2, self.clips // 2, self.features))
            forward = np.concatenate(events) + forward / 2
            backward = np.concatenate(events[::-1]) + backward / 2
        return np.stack([forward, backward], axis=1).reshape(-1, self.features), cluster


DESIGNS = {
    "nothing to find": Design(60, 30),
    "nothing to find, more clips": Design(120, 30),
    "nothing to find, more features than clips": Design(120, 192),
    "a direction": Design(120, 30, 0.5),
    "a direction, more features than clips": Design(120, 192, 0.5),
    "twins with their frames in reverse": Design(120, 192, mirrored="frames"),
    "every event in both directions": Design(60, 30, mirrored="events"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--studies", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("results/direction_probe.csv"))
    given = parser.parse_args()
    progress, rows = Progress("studies", len(DESIGNS) * given.studies, "studies"), []
    for number, (name, design) in enumerate(DESIGNS.items()):
        rng = np.random.default_rng(number)
        intervals = []
        for _ in range(given.studies):
            intervals.append(probe(design, rng))
            progress.advance()
        rows.append({"design": name} | measure(design, pd.DataFrame(intervals)))
        write_csv(given.out, pd.DataFrame(rows, columns=list(COLUMNS)))
    print(table_text(pd.read_csv(given.out)))


def probe(design: Design, rng: np.random.Generator) -> dict[str, float]:
    """One study: its interval in both ways, and the p-value."""
    features, cluster = design.draw(rng)
    backward, twin = np.tile([0, 1], design.clips), np.arange(2 * design.clips).reshape(-1, 2)[:, ::-1].ravel()
    clusters = np.repeat(cluster, 2)
    probed = probe_direction(features, backward, clusters)
    told = pair_accuracy(probed["score"].to_numpy(), backward, twin)
    chance = direction_by_chance(features, backward, twin, clusters, PERMUTATIONS)
    row = {"part": "", "direction": "", "metric": "direction"}
    answers = pd.DataFrame({"query_id": told["item"].astype(str), "cluster_id": cluster.astype(str)})
    draws = pd.DataFrame({"query_id": np.arange(PERMUTATIONS).astype(str), "cluster_id": ""})
    values = pd.concat(
        [
            answers.assign(value=100 * told["right"], probe="direction", **row),
            draws.assign(value=100 * chance, probe="direction", **row | {"metric": f"direction{BY_CHANCE}"}),
            answers.assign(value=100 * told["right"], probe="independent", **row),
        ]
    )[list(VALUE_COLUMNS)]
    table, _ = probe_tables({"model": {0: values}}, [], 0.95, RandomFactors(fixed=frozenset(["model"])))
    folds, independent = table.set_index("probe").loc[["direction", "independent"]].itertuples()
    ends = {
        "low": folds.low,
        "high": folds.high,
        "low_independent": independent.low,
        "high_independent": independent.high,
    }
    return {"estimate": folds.estimate, "p": folds.p} | ends


def measure(design: Design, studies: pd.DataFrame) -> dict[str, float]:
    """A row of :data:`COLUMNS` but for the name."""
    accuracy = studies["estimate"].mean()
    covers = {
        name: float(((studies[f"low{end}"] <= accuracy) & (accuracy <= studies[f"high{end}"])).mean())
        for name, end in (("independent", "_independent"), ("covers", ""))
    }
    sizes = {"clips": design.clips, "features": design.features, "studies": len(studies)}
    return {**sizes, "accuracy": accuracy, **covers, "found": float((studies["p"] <= 0.05).mean())}


def table_text(table: pd.DataFrame) -> str:
    """Markdown: a row for each design."""
    lines = [
        "| features | clips | numbers | accuracy | interval covers, independent → here | a direction is found |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.design} | {row.clips} | {row.features} | {row.accuracy:.1f} | {row.independent:.3f} → "
        f"{row.covers:.3f} | {row.found:.3f} |"
        for row in table.itertuples()
    ]
    return "\n".join(lines)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print (``python tools/publish direction_probe``)."""
    return {"table": table_text(table), "studies": f"{table['studies'].min():,}"}


if __name__ == "__main__":
    main()
