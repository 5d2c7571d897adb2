"""Configuration: every fault is named with its file, its key and a way out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from checkout import ROOT
from messages import refusal
from rewind.config import load_dataset, load_study
from rewind.config.docs import render_config_docs
from rewind.config.load import merge_config, read_yaml
from rewind.errors import ConfigErrors
from rewind.workflow.config import check_sources, load_config

STUDY = {"dataset": "shapes", "methods": {"a": {"head": "meanP"}, "b": {"head": "seqLSTM"}}}


def write(folder: Path, content, name="s") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def refused(tmp_path, change: dict, *keys: str) -> None:
    write(tmp_path, merge_config(STUDY, change))
    with refusal(*(f"s.yaml: {key}" for key in keys), error=ConfigErrors):
        load_study("s", tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "config/studies").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_study_and_its_data_set_are_valid(path):
    study = load_study(path.stem, path.parent)
    load_dataset(study.dataset, ROOT / "config/datasets")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"trainig": {}}, "trainig"),
        ({"training.lrr": 1}, "training.lrr"),
        ({"training.batch.sise": 1}, "training.batch.sise"),
        ({"methods.b.training.epoch": 1}, "methods.b.training.epoch"),
        ({"training.lr": 0}, "training.lr"),
        ({"frames.sampling": "middle"}, "frames.sampling"),
        ({"sweep": {"max_frames": [4], "method": "c"}}, "sweep.method"),
        ({"statistics.pairs": [["a", "z"]]}, "statistics.pairs"),
        ({"seeds": [1, 1]}, "seeds"),
    ],
)
def test_faults_are_named_with_their_key(tmp_path, change, key):
    refused(tmp_path, change, key)


def test_all_faults_are_told_at_once(tmp_path):
    refused(tmp_path, {"training.lrr": 1, "seeds": [], "dataset": None}, "dataset", "training.lrr", "seeds")


def test_data_set_faults_name_the_key_and_not_the_format(tmp_path):
    write(tmp_path, {"source": {"format": "table", "table": "t.csv", "videoz": "v"}}, "d")
    with refusal("d.yaml: source.videoz", error=ConfigErrors) as caught:
        load_dataset("d", tmp_path)
    assert len(str(caught.value).splitlines()) == 2, "one fault, in one line"


def test_a_method_called_like_a_format_keeps_its_place_in_the_path(tmp_path):
    refused(tmp_path, {"methods.table": {"hed": "meanP"}}, "methods.table.hed")


def test_a_key_given_twice_is_refused(tmp_path):
    path = write(tmp_path, "dataset: a\nseeds: [1]\ndataset: b\n")
    with refusal("s.yaml: line 3"):
        read_yaml(path)


def test_a_missing_study_names_the_nearest(tmp_path):
    write(tmp_path, STUDY, "rtime")
    with refusal("rtme.yaml"):
        load_study("rtme", tmp_path)


def test_unsafe_yaml_is_not_executed(tmp_path):
    path = write(tmp_path, "dataset: !!python/object/apply:os.system ['true']\n")
    with refusal("s.yaml: line 1"):
        read_yaml(path)


def test_methods_inherit_and_override_training(tmp_path):
    write(tmp_path, merge_config(STUDY, {"training.lr": 0.5, "training.batch.size": 8, "methods.b.training.lr": 0.25}))
    study = load_study("s", tmp_path, {"training.epochs": 7})
    a, b = study.methods["a"].training, study.methods["b"].training
    assert (a.lr, a.epochs, a.batch.size) == (0.5, 7, 8)
    assert (b.lr, b.epochs, b.batch.size) == (0.25, 7, 8)
    assert study.sanity.training.lr == 0.5
    assert study.runs() == [(m, s) for m in "ab" for s in (0, 1, 2)] and study.pairs() == [("a", "b")]


def test_overrides_reach_any_key(monkeypatch):
    monkeypatch.chdir(ROOT)
    over = {"studies.demo.training.epochs": 2, "datasets": {"shapes": {"video.fps": 4}}}
    studies, datasets = load_config({"studies": ["demo"], "overrides": over})
    assert studies["demo"].methods["meanP"].training.epochs == 2 and datasets["shapes"].video.fps == 4
    # On Snakemake's command line the values of a nested block arrive as text.
    over = {"studies.demo": {"sweep": "null", "seeds": ["4", "5"], "sanity.min_r1": "0.5", "training.lr": "1e-4"}}
    demo = load_config({"studies": ["demo"], "overrides": over})[0]["demo"]
    assert (demo.sweep, demo.seeds, demo.sanity.min_r1, demo.training.lr) == (None, [4, 5], 0.5, 1e-4)
    for name in ("studies.other", "demo"):
        with refusal(f"config/config.yaml: overrides.{name}"):
            load_config({"studies": ["demo"], "overrides": {f"{name}.seeds": [1]}})


def test_overrides_of_what_is_not_selected_are_refused(monkeypatch):
    monkeypatch.chdir(ROOT)
    over = {"studies.emoji.training.epochs": 2, "studies.demo.training.epochs": 2}
    with refusal("config/config.yaml: overrides.studies.emoji"):
        load_config({"studies": ["demo"], "overrides": over})
    with refusal("config/config.yaml: overrides.studies.emoji"):
        load_config({"studies": ["demo"], "overrides": over}, typed={"studies": ["demo"], "overrides": over})
    with refusal("config/config.yaml: overrides.datasets.emoji"):
        load_config({"studies": ["demo"], "overrides": {"datasets.emoji.video.fps": 4}})
    # Those of the file stay there for another time where the command line chose the studies.
    typed = {"studies": ["demo"], "overrides": {"studies.demo.seeds": [7]}}
    studies, _ = load_config({"studies": ["demo"], "overrides": over | typed["overrides"]}, typed=typed)
    assert studies["demo"].training.epochs == 2 and studies["demo"].seeds == [7]


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_no_key_takes_what_is_not_finite(tmp_path, value):
    write(tmp_path, f"{yaml.safe_dump(STUDY)}\n")
    odd = yaml.safe_load(value)
    for path in ("training.lr", "methods.a.options.depth", "methods.a.options.deep.list"):
        over = {path: [1, odd] if path.endswith("list") else odd}
        with refusal(f"s.yaml: {path}{'.1' * path.endswith('list')}", error=ConfigErrors):
            load_study("s", tmp_path, over)


def test_missing_raw_files_are_named_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    dataset = load_dataset("rtime", ROOT / "config/datasets")
    with refusal("config/datasets/rtime.yaml") as caught:
        check_sources(dataset)
    text = str(caught.value)
    assert "data/rtime/train.json" in text and "data/rtime/videos" in text and "2412.19178" in text


def test_the_configuration_page_is_up_to_date():
    assert (ROOT / "config/README.md").read_text() == render_config_docs(), "run `make docs`"


def test_a_column_of_a_direction_that_is_not_evaluated_is_refused_before_anything_runs():
    over = {"evaluation.directions": ["text_to_item"], "tables.columns": ["R@1", "item_to_text R@1"]}
    with refusal("config/studies/demo.yaml: tables.columns"):
        load_study("demo", overrides=over)


def test_merge_keys_lay_their_own_keys_on_top(tmp_path):
    text = "dataset: d\nmethods:\n  a: &a {head: meanP, label: A, options: {x: 1}}\n  b: {<<: *a, label: B}\n"
    (tmp_path / "s.yaml").write_text(text)
    study = load_study("s", tmp_path)
    assert (study.methods["b"].head, study.methods["b"].label, study.methods["b"].options) == ("meanP", "B", {"x": 1})
    (tmp_path / "s.yaml").write_text(text + "  b: {head: meanP}\n")
    with refusal("s.yaml: line 5"):
        load_study("s", tmp_path)


def test_p75_is_a_column_without_an_interval(tmp_path):
    write(tmp_path, {"dataset": "d", "methods": {"a": {}}, "tables": {"columns": ["MRR interval", "P75"]}}, "s")
    assert load_study("s", tmp_path).tables.columns[1] == "P75"
    write(tmp_path, {"dataset": "d", "methods": {"a": {}}, "tables": {"columns": ["P75 interval"]}}, "s")
    with refusal("s.yaml: tables.columns"):
        load_study("s", tmp_path)


def test_the_sweep_trains_its_method_as_it_is_trained(tmp_path):
    given = {
        "methods": {"a": {"training": {"lr": 0.25}}, "b": {"training": {"batch": {"size": 8}}}},
        "sweep": {"max_frames": [4], "method": "b", "training": {"lr": 0.125}},
        "training": {"lr": 0.5, "batch": {"size": 16}},
    }
    write(tmp_path, merge_config(STUDY, given))
    study = load_study("s", tmp_path)
    assert (study.sweep.training.lr, study.sweep.training.batch.size) == (0.125, 8)
    assert study.sanity.training.lr == 0.5, "the check's keys override the study's"
    other = load_study("s", tmp_path, {"sweep": {"method": "a", "training": {"epochs": 2}}})
    assert (other.sweep.training.lr, other.sweep.training.batch.size, other.sweep.training.epochs) == (0.125, 16, 2)
