"""What a Slurm cannot do is said before anything is submitted to it: with programs that answer as Slurm's do."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from messages import expect_message
from rewind.errors import RewindError
from rewind.workflow.preflight.checks import Preflight, run_checks
from rewind.workflow.preflight.cluster import max_gpus_per_node

DISABLED = "echo 'Slurm accounting storage is disabled' >&2; exit 1"


def studies(gpus: int) -> dict:
    return {"demo": SimpleNamespace(resources=SimpleNamespace(gpus=gpus))}


def cluster_faults(studies: dict, status_command: str | None, first_check: int | None) -> str:
    """What is said just before the first job; empty where nothing is wrong."""
    slurm = SimpleNamespace(status_command=status_command, init_seconds_before_status_checks=first_check)
    try:
        run_checks("start", Preflight(studies, slurm=slurm))
    except RewindError as error:
        return str(error)
    return ""


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Puts programs before those of this machine: name → lines of a shell script."""

    def put(**scripts: str) -> None:
        for name, text in {"sinfo": "echo gpu:2", "sacct": "exit 0", **scripts}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return put


def test_a_cluster_with_accounting_is_as_it_should_be(answers):
    answers()
    assert cluster_faults(studies(2), "sacct", 40) == "" == cluster_faults(studies(1), None, None)


def test_without_accounting_another_command_is_named_and_then_accepted(answers):
    answers(sacct=DISABLED, scontrol="echo 'MinJobAge               = 300 sec'")
    for asked in ("sacct", None):
        fault = cluster_faults(studies(1), asked, 40)
        assert "--slurm-status-command squeue" in fault
        expect_message(fault)
    assert cluster_faults(studies(1), "squeue", 40) == ""


def test_where_jobs_are_forgotten_too_soon_a_shorter_wait_is_named_and_then_accepted(answers):
    answers(sacct=DISABLED, scontrol="echo 'MinJobAge               = 60 sec'")
    fault = cluster_faults(studies(1), "squeue", 40)
    assert " 20" in fault
    expect_message(fault)
    assert cluster_faults(studies(1), "squeue", 20) == ""


def test_more_gpus_than_any_node_has_are_refused(answers):
    answers(sinfo="echo '(null)'; echo 'gpu:a100:2(S:0-1)'; echo gpu:4")
    assert cluster_faults(studies(4), "sacct", 40) == ""
    fault = cluster_faults(studies(8), "sacct", 40)
    assert "config/studies/demo.yaml" in fault and "resources.gpus: 8" in fault and "more than 4" in fault


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("", 0),
        ("(null)", 0),
        ("gpu:2", 2),
        ("gpu:a100:4(S:0-1),gpu:v100:2(S:0)", 6),
        ("nic:9,gpu:tesla:8\n(null)\ngpu:1", 8),
        ("shard:16", 0),
    ],
)
def test_gpus_of_nodes_as_sinfo_lists_them(listed, expected):
    assert max_gpus_per_node(listed) == expected
