"""What ``benchmarks/sigkill.py`` prints: kills by stage and moment, and how the killed jobs came back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from sigkill_moments import KINDS

RANDOM = "random"


@dataclass
class Kill:
    """One kill.

    Attributes:
        kind: kind of its moment.
        moment: the moment, in words.
        jobs: stage and first output of every job that was at work; the one that was meant comes first.
        again: first output of each that is done again → whether a training state was taken up, whether all that it
            made is as in the unbroken run.
    """

    kind: str
    moment: str
    jobs: list[tuple[str, str]]
    again: dict[str, tuple[bool, bool]] = field(default_factory=dict)

    def text(self) -> str:
        names = [f"{stage} ({job})" for stage, job in self.jobs] or ["no job"]
        return f"{names[0]}, {self.kind}: {self.moment}" + (f"; beside it {', '.join(names[1:])}" if names[1:] else "")

    def back(self, job: str, resumed: bool, same: bool) -> None:
        """Note that a job is done; only the first time after the kill counts."""
        if any(job == name for _, name in self.jobs):
            self.again.setdefault(job, (resumed, same))

    def lost(self) -> list[str]:
        """Jobs that were not done again, or not with the same end."""
        return [name for _, name in self.jobs if not self.again.get(name, (False, False))[1]]


def show(kills: list[Kill]) -> str:
    """A row for each stage: kills by kind of moment, and how killed jobs came back.

    They went on from a training state, or were done anew; and their outputs are those of the unbroken run.
    """
    rows: dict[str, dict[str, int]] = {}
    for kill in kills:
        for place, (stage, job) in enumerate(kill.jobs or [("(no job)", "")]):
            row = rows.setdefault(stage, dict.fromkeys([*KINDS, RANDOM, "beside", "resumed", "redone", "identical"], 0))
            row[kill.kind if place == 0 or kill.kind == RANDOM else "beside"] += 1
            resumed, same = kill.again.get(job, (False, False))
            row["resumed"] += resumed
            row["redone"] += job in kill.again and not resumed
            row["identical"] += same
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.loc["all"] = table.sum()
    legend = [f"{kind}: {what}" for kind, what in KINDS.items()]
    legend += ["random: at a random moment", "beside: at work when another job was hit"]
    return "\n".join([table.to_string(), "", *legend])
