"""What jobs ask of a scheduler in memory: it follows from counts, and an attempt after the first asks for more."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from conftest import ROOT
from rewind.config import load_dataset, load_study
from rewind.workflow import memory

RULE = re.compile(r"^(?:rule|checkpoint) (\w+):\n(.*?)(?=^\S|\Z)", re.M | re.S)
TEXTS = {path.name: path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk")}
ASKED = {name: re.findall(r"\bmem_mb=(.*),\n", body) for text in TEXTS.values() for name, body in RULE.findall(text)}


@pytest.fixture
def workflow():
    """The functions of ``resources.smk`` with a study and its data set, which nobody has prepared."""
    study = load_study("demo", ROOT / "config/studies")
    dataset = load_dataset(study.dataset, ROOT / "config/datasets")
    names = {"STUDIES": {"demo": study}, "DATASETS": {dataset.name: dataset}, "Path": type(ROOT)}
    names |= {"study": lambda w: study, "dataset": lambda w: dataset, "encoding_resource": lambda w, name: 3000}
    exec(compile(TEXTS["resources.smk"], "resources.smk", "exec"), names)
    return names


def test_every_rule_asks_for_memory_by_a_function_and_more_at_the_second_attempt(workflow):
    assert len(ASKED) > 30
    wildcards = SimpleNamespace(study="demo")
    for rule, functions in ASKED.items():
        assert len(functions) == 1, f"{rule} says nothing of memory"
        first, second = (workflow[functions[0]](wildcards, attempt) for attempt in (1, 2))
        assert second == 2 * first >= 2000, rule


def test_memory_follows_the_counts_of_prepared_captions(workflow, tmp_path):
    study, dataset = workflow["STUDIES"]["demo"], next(iter(workflow["DATASETS"].values()))
    floor = memory.matrix_job_mb(dataset, tmp_path), memory.ranks_job_mb(dataset, study, tmp_path)
    table = tmp_path / "data" / dataset.name / "captions" / f"{dataset.name}_test.csv"
    table.parent.mkdir(parents=True)
    table.write_text("video_id,caption,caption_id\n" + "v,a caption,v#0\n" * 20_000)
    assert memory.count_test_split(dataset, tmp_path) == (20_000, 20_000)
    large = memory.matrix_job_mb(dataset, tmp_path), memory.ranks_job_mb(dataset, study, tmp_path)
    assert all(more > less for more, less in zip(large, floor, strict=True))
    assert memory.scoring_job_mb(dataset, study, tmp_path) > study.resources.mem_mb + 2 * 4 * 20_000**2 / 2**20 - 1


def test_memory_follows_the_size_of_annotations(tmp_path):
    dataset = load_dataset("rtime", ROOT / "config/datasets")
    files = {split: str(tmp_path / f"{split}.json") for split in dataset.source.annotations}
    for path in files.values():
        with open(path, "wb") as stream:
            stream.truncate(100 * 2**20)
    here = dataset.model_copy(update={"source": dataset.source.model_copy(update={"annotations": files})})
    assert memory.annotation_job_mb(here) == memory.annotation_job_mb(dataset) + 4 * 100 * len(files)
