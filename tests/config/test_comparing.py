"""What a study compares by its keys: fixed models, the deciding metric, seeds that go in pairs."""

from __future__ import annotations

import pytest

from rewind.config import Study

SEQ = {"head": "seqTransf"}


def study(methods, **keys) -> Study:
    given = {"name": "s", "dataset": "d", "methods": methods, "sanity": None}
    return Study.model_validate(given | keys)


def test_models_that_learn_nothing_are_fixed_and_scored_ones_are_compared() -> None:
    made = study({"a": {}, "z": {"model": "zero_shot"}, "c": {"model": "chance"}, "r": {"model": "ridge"}})
    assert made.fixed_methods() == ["z", "c", "r"] and made.compared_methods() == ["a", "z"]
    assert made.pairs() == [("a", "z")]
    named = study({"a": {}, "r": {"model": "ridge"}}, statistics={"pairs": [["a", "r"]]})
    assert named.compared_methods() == ["a", "r"], "who is named is compared"
    random = study({"a": {}, "z": {"model": "zero_shot", "options": {"untrained": True}}})
    assert random.compared_methods() == ["a"], "a network with random weights is no rival"
    alone = study({"r": {"model": "ridge"}, "b": {"model": "bow"}, "c": {"model": "chance"}}, seeds=[0])
    assert alone.compared_methods() == ["r", "b"]


def test_pre_training_per_seed_pairs_the_seeds_of_what_starts_from_it() -> None:
    methods = {"a": {}, "b": SEQ, "other": {"seeds": [5, 6]}, "z": {"model": "zero_shot"}, "c": {"model": "chance"}}
    anew = study(methods, seeds=[0, 1], pretraining={"method": SEQ})
    assert anew.random_factors() == {"fixed": ["c"], "exact": ["c"], "paired": ["a", "b", "z"]}
    shared = study(methods, seeds=[0, 1], pretraining={"method": SEQ, "shared": True})
    assert shared.random_factors()["paired"] == [] and shared.fixed_methods() == ["z", "c"]
    assert study(methods, seeds=[0, 1]).random_factors()["paired"] == []


def test_a_fixed_model_has_one_seed() -> None:
    made = study({"a": {}, "model": {"fixed": True, "seeds": [3]}})
    assert made.fixed_methods() == ["model"] and made.compared_methods() == ["a", "model"]
    with pytest.raises(ValueError, match=r"methods\.model\.fixed: a fixed model has one seed, but this has 3"):
        study({"model": {"fixed": True}}, seeds=[0, 1, 2])


def test_the_deciding_metric_is_one_that_tables_show() -> None:
    assert study({"a": {}}).primary_metric() == "R@1"
    assert study({"a": {}}, tables={"columns": ["MdR", "MRR interval", "R@5"]}).primary_metric() == "MRR"
    with pytest.raises(ValueError, match=r"statistics\.primary: R@10 is the only metric with letters, but no column"):
        study({"a": {}}, statistics={"primary": "R@10"}, tables={"columns": ["R@1"]})


def test_binary_is_decided_by_accuracy_whatever_decides_the_other_settings() -> None:
    settings = {"settings": ["origin", "hard", "binary"]}
    made = study({"a": {}}, statistics={"primary": "MnR"}, evaluation=settings, tables={"columns": ["R@1", "MnR"]})
    assert made.primary_metric_by_setting() == {"origin": "MnR", "hard": "MnR", "binary": "R@1"}
