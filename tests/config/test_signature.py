"""What rules compare of keys: a key that a release brings must not cost anybody the runs that are there."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rewind.config import Backbone, Frames, Method, RunSpec, Text
from rewind.config.base import ConfigModel, config_field, retired_field
from rewind.config.evaluation import Evaluation

LEAVES = 54
"""Keys that a training run is compared by, of these models with their defaults."""


class Old(ConfigModel):
    lr: float = config_field(0.1, "learning rate")


class New(Old):
    warmup: int = config_field(0, "came later", legacy_default=0)


class Changed(Old):
    warmup: int = config_field(5, "came later, and its default was changed since", legacy_default=0)


class Renamed(ConfigModel):
    rate: float = config_field(0.1, "learning rate", formerly="lr")
    gain: float = retired_field(1.0, "scale the clips instead.")


class Named(ConfigModel):
    lr: float = config_field(0.1, "learning rate")
    gain: float = config_field(1.0, "gain")


class Many(ConfigModel):
    parts: dict[str, list[New]] = config_field({}, "blocks")


def spec() -> RunSpec:
    backbone = Backbone(architecture="config/models/tiny.json")
    return RunSpec(backbone=backbone, frames=Frames(), text=Text(), evaluation=Evaluation(), method=Method())


def test_a_key_that_came_later_counts_once_it_says_something_else():
    assert New().fingerprint() == Old().fingerprint() == {"lr": 0.1}
    assert New(warmup=3).fingerprint() == {"lr": 0.1, "warmup": 3}
    parts = Many(parts={"a": [New(), New(warmup=1)]}).fingerprint()
    assert parts == {"parts": {"a": [{"lr": 0.1}, {"lr": 0.1, "warmup": 1}]}}
    assert New().fingerprint(exclude={"lr"}) == {}


def test_a_job_reads_what_was_left_out_as_it_was_meant():
    for given in (New(), New(warmup=3), Changed(), Changed(warmup=0)):
        assert type(given)(**given.fingerprint()) == given
    assert "warmup" in Changed(warmup=0).fingerprint(), "left out it would be read as 5"


def test_a_key_that_was_renamed_or_removed_makes_no_results_stale():
    found, before = Renamed(rate=0.3).fingerprint(), Named(lr=0.3).fingerprint()
    assert found == before and list(found) == list(before), "Snakemake compares texts"
    assert Renamed(**before) == Renamed(rate=0.3), "jobs and earlier files have the former name"
    with pytest.raises(ValidationError, match="`lr` is the former name of `rate`: give one of the two"):
        Renamed(lr=0.2, rate=0.3)
    with pytest.raises(ValidationError, match="`gain` was removed: scale the clips instead"):
        Renamed(gain=2.0)


def test_a_run_does_not_depend_on_how_its_method_is_compared():
    fixed = spec().model_copy(update={"method": Method(fixed=True)})
    assert fixed.fingerprint() == spec().fingerprint()


def test_a_new_key_of_a_run_says_what_was_before_it():
    def leaves(value: object) -> int:
        return sum(map(leaves, value.values())) if isinstance(value, dict) and value else 1

    assert leaves(spec().fingerprint()) == LEAVES, (
        "another key makes every finished run stale: give it legacy_default=, the value that stands for what was "
        "done until now, or say in CHANGELOG.md that runs must be made again and count it here"
    )
