"""What jobs ask of a scheduler in memory: it follows from counts, and an attempt after the first asks for more."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from checkout import ROOT
from rewind.config import load_dataset, load_study
from rewind.workflow import memory
from rewind.workflow.plan import compute
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.rules import WorkflowPlan
from rule_files import rules_text

TEXT = rules_text()
ASKED = re.findall(r"\bmem_mb=job\((compute|DatasetPlan)\.(\w+)\)", TEXT)


@pytest.fixture
def plan() -> WorkflowPlan:
    """Of a study and its data set, which nobody has prepared."""
    study = load_study("demo", ROOT / "config/studies")
    dataset = load_dataset(study.dataset, ROOT / "config/datasets")
    return WorkflowPlan({"demo": study}, {dataset.name: dataset})


def test_a_second_attempt_asks_for_twice_the_memory(plan, monkeypatch):
    monkeypatch.setattr("rewind.workflow.plan.dataset.DatasetPlan._most", lambda self, encoding, key: 3000)
    assert len(ASKED) > 8 and len(re.findall(r"\bmem_mb=", TEXT)) == len(ASKED)
    for owner, name in set(ASKED):
        of_study = owner == "compute"
        wildcards = SimpleNamespace(study="demo") if of_study else SimpleNamespace(dataset="shapes", encoding="x")
        memory_of_job = plan.job(getattr(compute if of_study else DatasetPlan, name))
        first, second = (memory_of_job(wildcards, attempt=attempt) for attempt in (1, 2))
        assert second == 2 * first >= 2000, name


def test_memory_follows_the_counts_of_prepared_captions(plan, tmp_path):
    study, dataset = plan.studies["demo"].keys, plan.datasets["shapes"].keys
    floor = memory.matrix_job_mb(dataset, tmp_path), memory.ranks_job_mb(dataset, study, tmp_path)
    table = tmp_path / "data" / dataset.name / "captions" / f"{dataset.name}_test.csv"
    table.parent.mkdir(parents=True)
    table.write_text("video_id,caption,caption_id\n" + "v,a caption,v#0\n" * 20_000)
    splits = "a,a.mp4,train,a,0,ok\n" * 7 + "v,v.mp4,test,v,0,ok\n" * 30_000
    (table.parents[1] / "items.csv").write_text("item_id,path,split,cluster_id,reversed,status\n" + splits)
    assert memory.count_test_split(dataset, tmp_path) == (20_000, 30_000)
    large = memory.matrix_job_mb(dataset, tmp_path), memory.ranks_job_mb(dataset, study, tmp_path)
    assert all(more > less for more, less in zip(large, floor, strict=True))
    matrix_mb = 4 * 20_000 * 30_000 / 2**20
    assert memory.whole_matrix_job_mb(dataset, study, tmp_path) > study.resources.mem_mb + 2 * matrix_mb - 1
    assert memory.scoring_job_mb(dataset, study, tmp_path) < study.resources.mem_mb + matrix_mb


def test_memory_follows_the_size_of_annotations(tmp_path):
    dataset = load_dataset("rtime", ROOT / "config/datasets")
    files = {split: str(tmp_path / f"{split}.json") for split in dataset.source.annotations}
    for path in files.values():
        with open(path, "wb") as stream:
            stream.truncate(100 * 2**20)
    here = dataset.model_copy(update={"source": dataset.source.model_copy(update={"annotations": files})})
    assert memory.annotation_job_mb(here) == memory.annotation_job_mb(dataset) + 4 * 100 * len(files)
