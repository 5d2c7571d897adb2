"""``sweep`` over keys of methods: which trials there are, and what is refused before the first of them."""

from __future__ import annotations

from typing import Any

import pytest

from messages import invalid
from rewind.config import Method, Study
from rewind.config.study import with_method_keys
from rewind.config.training import Sweep
from rewind.errors import RewindError
from rewind.io.files import read_csv, read_json, write_json
from rewind.training.sweep import choose_keys

LR = {"training.lr": [1e-4, 1e-3]}
ANY_LR = {"training.lr": {"low": 1e-5, "high": 1e-2, "log": True}}


def study(sweep: dict[str, Any], **more: Any) -> Study:
    methods = {"meanP": {}, "seqTransf": {"head": "seqTransf"}, "chance": {"model": "chance"}}
    return Study(**{"name": "s", "dataset": "d", "methods": methods, "sweep": sweep} | more)


def test_a_grid_is_every_combination_and_a_method_may_have_values_of_its_own() -> None:
    keys = LR | {"training.weight_decay": [0.1, 0.2]}
    tried = study({"keys": keys, "methods": {"seqTransf": {"training.lr": [0.5, 0.6]}}})
    assert tried.trials_of("chance") == []
    assert tried.trials_of("meanP")[1] == {"training.lr": 1e-4, "training.weight_decay": 0.2}
    assert [trial["training.lr"] for trial in tried.trials_of("seqTransf")] == [0.5, 0.5, 0.6, 0.6]
    other = {"training.weight_decay": None, "head_layers": [1, 2]}
    assert study({"keys": keys, "methods": {"seqTransf": other}}).trials_of("seqTransf")[0].keys() == {
        "training.lr",
        "head_layers",
    }


def test_random_trials_are_as_many_for_each_and_depend_on_seed_and_method() -> None:
    sweep = {"search": "random", "trials": 5, "keys": ANY_LR}
    tried = study(sweep)
    trials = tried.trials_of("meanP")
    assert trials == study(sweep).trials_of("meanP") and len(trials) == 5
    assert trials != tried.trials_of("seqTransf") and trials != study(sweep | {"seed": 1}).trials_of("meanP")
    assert all(1e-5 <= trial["training.lr"] <= 1e-2 for trial in trials)
    more = study(sweep | {"trials": 7}).trials_of("meanP")
    assert more[:5] == trials, "what was tried already is not tried again"
    many = [t["training.lr"] for t in study(sweep | {"trials": 400}).trials_of("meanP")]
    assert 0.25 < sum(rate < 10**-3.5 for rate in many) / 400 < 0.75, "uniform in the logarithm"


def test_the_choice_is_given_once_or_repeated() -> None:
    once, each = study({"keys": LR, "seed": 7}), study({"keys": LR, "repeat": True})
    assert (once.trial_seed(1), each.trial_seed(1)) == (7, 1)
    assert once.condition == "given one choice of keys" and each.condition == ""
    both = study({"keys": LR}, pretraining={"shared": True}).condition
    assert both == "given one pre-training and one choice of keys"
    (budget,) = once.budgets()
    assert budget == "5 epochs of batches of 128, after 2 trials each to choose keys"
    assert study({"max_frames": [4, 8]}).frames_sweep and not once.frames_sweep


def test_keys_are_put_in_their_place() -> None:
    method = Method(head="wti", options={"frames": "seqTransf"}, training={"objective": "hnac"})
    keys = {"training.objective_options.temperature": 0.1, "options.frames": "meanP", "training.lora.rank": 4}
    changed = with_method_keys(method, keys)
    assert changed.training.objective_options == {"temperature": 0.1} and changed.options == {"frames": "meanP"}
    assert changed.training.lora.rank == 4 and method.training.lora is None
    with pytest.raises(RewindError, match=r"^training\.lr: "):
        with_method_keys(method, {"training.lr": -1})


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"keys": {"training.epochs": [1, 2]}},
        {"keys": {"training.freeze": [[], ["visual"]]}},
        {"keys": {"training.batch": [{"size": 4}]}},
        {"keys": {"training.select_metric": ["R@1"]}},
        {"keys": {"backbone.width": [8, 16]}},
        {"keys": {"training.lr": []}},
        {"keys": {"training.lr": [0.1, 0.1]}},
        {"keys": ANY_LR},
        {"keys": LR, "search": "random"},
        {"keys": LR, "trials": 2},
        {"keys": {"training.lr": [n / 100 for n in range(1, 40)], "training.eps": [n * 1e-8 for n in range(1, 40)]}},
        {"keys": {"training.lr": {"low": 0, "high": 1, "log": True}}, "search": "random", "trials": 2},
    ],
)
def test_what_cannot_be_tried_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"validation errors? for Sweep"):
        Sweep(**keys)


@pytest.mark.parametrize(
    ("sweep", "places"),
    [
        ({"keys": LR, "methods": {"meanP": {"head_layers": [1, 2]}}}, ["sweep.keys"]),
        ({"keys": LR, "methods": {"meanQ": {"head_layers": [1, 2]}}}, ["sweep.methods.meanQ"]),
        ({"keys": LR, "methods": {"chance": {"head_layers": [1, 2]}}}, ["sweep.methods.chance"]),
        ({"keys": LR, "search": "random", "trials": 9}, ["sweep.trials"]),
        ({"keys": {"head_layers": [1, 200]}}, ["sweep.keys"]),
        ({"keys": {"head_layers": [1, 2]}}, ["sweep.keys"]),
        ({"keys": {"training.weight_decay": [0, 0.0]}}, ["sweep.keys"]),
        ({"keys": {"training.lr_floor": [0, 0.1], "training.optimiser": ["bert_adam"]}}, ["sweep.keys"]),
        ({"keys": {"training.lr": None, "training.eps": [1e-6, 1e-7]}}, ["sweep: training.lr"]),
        ({"keys": LR, "methods": {"meanP": {"training.eps": None}}}, ["sweep: methods.meanP.training.eps"]),
        ({"keys": LR, "training": {"epochs": 3}}, ["sweep.training"]),
        ({"keys": LR, "method": "seqTransf"}, ["sweep.method"]),
    ],
)
def test_what_is_not_fair_or_not_possible_is_refused_with_its_key(sweep: dict[str, Any], places: list[str]) -> None:
    with invalid(*places):
        study(sweep)


@pytest.mark.parametrize(("metric", "best"), [("sum", "b"), ("loss", "a")])
def test_the_best_trial_is_chosen_and_of_equals_the_first(tmp_path, metric: str, best: str) -> None:
    trials = {"a": {"training.lr": 0.1}, "b": {"training.lr": [0.2]}, "c": {"training.lr": 0.3}}
    records = []
    for name, score in (("a", 1.0), ("b", 2.0), ("c", 2.0)):
        path = tmp_path / f"{name}.json"
        write_json(path, {"best": {f"valid_{metric}": score, "epoch": 3}})
        records.append(str(path))
    choose_keys(records, trials, metric, str(tmp_path / "trials.csv"), str(tmp_path / "choice.json"))
    assert read_json(tmp_path / "choice.json") == {"keys": trials[best]}
    table = read_csv(tmp_path / "trials.csv")
    assert table["trial"].tolist() == (["b", "c", "a"] if metric == "sum" else ["a", "b", "c"])
