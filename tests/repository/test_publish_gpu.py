"""Figures of `rewind doctor --gpu`: published on another machine than their own, and what documents say before that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from messages import refusal
from publish import PublishOptions, publish
from published_runs import make_checkout
from rewind.io.files import read_json

CHECKS = [
    {"name": "device", "state": "ok", "figures": {"GB": 80.0}, "below_goal": [], "detail": "Made-up H100, CUDA 13.0"},
    {
        "name": "training step",
        "state": "below goal",
        "figures": {"clips/s": 1234.5, "% of peak": 31.4},
        "below_goal": ["31% of the measured peak; the goal is 40%"],
        "detail": "bf16",
    },
    {"name": "head meanP", "state": "FAILED", "figures": {}, "below_goal": [], "detail": "loss differs | a lot"},
    {"name": "two GPUs", "state": "not run", "figures": {}, "below_goal": [], "detail": ""},
]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(make_checkout(tmp_path))
    (tmp_path / "README.md").write_text("# Nothing is printed here.\n")
    for page in (tmp_path / "docs").glob("*.md"):
        if page.name != "cluster.md":
            page.unlink()
    return tmp_path


def write_figures(checkout: Path, device: str = "cuda") -> None:
    hardware = {"devices": ["Made-up H100"], "gpus": 1, "cores": 16, "instructions": "AVX512", "onednn_max": None}
    record = {"device": device, "checks": [check | {"seconds": 2.0} for check in CHECKS], "hardware": hardware}
    record |= {"date": "2031-02-03", "python": "3.12.1", "packages": {"torch": "9.9"}, "driver": "999.1"}
    record |= {"git": {"commit": "abcdef0123456789", "dirty": False}, "processor": "Made-up CPU", "instance": None}
    (checkout / "results").mkdir()
    (checkout / "results/gpu.json").write_text(json.dumps(record))


def test_documents_say_that_nothing_is_published_until_something_is(checkout):
    page = checkout / "docs/cluster.md"
    assert publish(PublishOptions()) == 0
    before = page.read_text()
    assert "-->none so far<!-- end -->" in before and "\nNo GPU has been checked yet" in before
    page.write_text(before.replace("none so far", "hundreds"))
    assert publish(PublishOptions(check=True)) == 1 and publish(PublishOptions()) == 0 and page.read_text() == before


def test_figures_are_published_with_the_machine_and_the_commit_that_they_name(checkout):
    write_figures(checkout)
    assert publish(PublishOptions("gpu")) == 0
    (folder,) = (checkout / "docs/published/gpu").iterdir()
    record = read_json(folder / "record.json")
    assert folder.name == "made-up-h100" and record["machine"]["processor"] == ["Made-up CPU"]
    assert record["driver"] == ["999.1"] and record["packages"] == {"torch": "9.9"}
    page = (checkout / "docs/cluster.md").read_text()
    assert "-->commit abcdef0, 3 February 2031, Made-up H100, Made-up CPU, 16 cores, AVX512<!-- end -->" in page
    assert "| device | ok | 2.0 | GB 80 | Made-up H100, CUDA 13.0 |\n" in page
    goal = "31% of the measured peak; the goal is 40%; bf16"
    assert f"| training step | below goal | 2.0 | clips/s 1,234, % of peak 31.4 | {goal} |\n" in page
    assert "| head meanP | **FAILED** | 2.0 |  | loss differs \\| a lot |\n" in page
    assert "| two GPUs | not run | 2.0 |  |  |\n" in page
    assert publish(PublishOptions(check=True)) == 0


def test_figures_of_a_cpu_are_not_published(checkout):
    write_figures(checkout, device="cpu")
    with refusal("results/gpu.json"):
        publish(PublishOptions("gpu"))
    assert not (checkout / "docs/published/gpu").exists()
