"""A cost estimate from made-up measurements."""

from __future__ import annotations

from pathlib import Path

from rewind.cli.rehearse.cost import (
    CostEstimate,
    Machine,
)
from rewind.cli.rehearse.counts import DatasetCounts
from rewind.cli.rehearse.measured import StepTimes
from rewind.cli.rehearse.shrink import PreparedRehearsal
from rewind.config import Study


def rates(study: Study, steps=None, gpus: int = 0, share: float = 1.0) -> CostEstimate:
    whole = DatasetCounts(
        {"train": 1000, "valid": 100, "test": 200}, {"train": 5000, "valid": 100, "test": 200}, 650, "", True
    )
    few = DatasetCounts({"train": 16, "valid": 10, "test": 20}, {"train": 80, "valid": 10, "test": 20}, 23, "", True)
    same = {name: StepTimes(2.0, 6.0, 4, 12, 0, None, 10**6) for name in ("meanP", "tightTransf")}
    prepared = PreparedRehearsal(Path(), {"resources": {"threads": 1}, "pretraining": {"threads": 1}}, [], share)
    return CostEstimate(study, Machine(2, gpus, 100.0), prepared, whole, few, 12, steps or same)
