"""What `make slurm-check` says and counts; the check itself needs a Slurm and a quarter of an hour."""

from __future__ import annotations

import os
from types import SimpleNamespace

import slurm_cluster
import slurm_watch
from messages import refusal
from slurm_cluster import Cluster

ROW = "{job}|rule_{rule}|{state}|1|n1|cpu=1,gres/gpu={gpus},node=1"


def test_only_root_can_set_up_a_slurm(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with refusal(), Cluster(tmp_path / "c"):
        raise AssertionError("it started")
    assert not (tmp_path / "c").exists()


def test_a_slurm_that_runs_is_left_alone(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    running = [SimpleNamespace(info={"name": "slurmd", "pid": 77})]
    monkeypatch.setattr(slurm_cluster.psutil, "process_iter", lambda *_: running)
    assert "slurmd, process 77" in slurm_cluster.lacking() and "left alone" in slurm_cluster.lacking()


def test_where_slurm_is_not_installed_the_packages_are_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(slurm_cluster.psutil, "process_iter", lambda *_: [])
    monkeypatch.setattr(slurm_cluster.shutil, "which", lambda name: None)
    assert "apt-get install slurm-wlm munge slurmdbd mariadb-server" in slurm_cluster.lacking()
    with refusal():
        slurm_cluster.install()


def watch(tmp_path, rows: list[str], waited: float, requeued: str) -> slurm_watch.Watch:
    """A watch whose cluster has these accounts."""
    text = "\n".join(["JobID|Comment|State|NNodes|NodeList|AllocTRES", *rows])
    made = slurm_watch.Watch(SimpleNamespace(ask=lambda *_: text), tmp_path, {}, tmp_path / "x.pt", print)
    made.waited, made.requeued = waited, requeued
    return made


def test_what_held_is_read_from_the_accounts(tmp_path):
    good = [
        ROW.format(job=4, rule="sanity_wildcards_x", state="COMPLETED", gpus=2),
        ROW.format(job=5, rule="train_wildcards_x", state="REQUEUED", gpus=1),
        ROW.format(job=5, rule="train_wildcards_x", state="COMPLETED", gpus=1),
        ROW.format(job=6, rule="train_wildcards_y", state="TIMEOUT", gpus=1),
        "7||RUNNING|1|n1|somebody else's",
    ]
    held = watch(tmp_path, good, slurm_watch.WAITED, "5").verdicts()
    assert all(passed for passed, _ in held) and held[0][1] == "3 submissions"
    assert not watch(tmp_path, good, 0, "5").verdicts()[3][0], "the job of two GPUs did not wait"
    assert not watch(tmp_path, good[:1] + good[2:], 20, "5").verdicts()[2][0], "nothing was put back"
    assert not watch(tmp_path, good[:3], 20, "5").verdicts()[1][0], "nothing hit its wall time"
    spread = good[0].replace("|1|n1|", "|2|n[1-2]|")
    assert not watch(tmp_path, [spread, *good[1:]], 20, "5").verdicts()[3][0], "two GPUs on two nodes"


def test_files_that_differ_or_are_missing_are_named(tmp_path):
    for folder, texts in {"a": "12", "b": "1"}.items():
        (tmp_path / folder).mkdir()
        for number, text in enumerate(texts):
            (tmp_path / folder / f"{number}.npz").write_text(text)
    assert slurm_watch.differing(tmp_path / "a", tmp_path / "b", "*.npz") == (2, ["1.npz"])
    (tmp_path / "b" / "1.npz").write_text("3")
    assert slurm_watch.differing(tmp_path / "a", tmp_path / "b", "*.npz") == (2, ["1.npz"])
    (tmp_path / "b" / "1.npz").write_text("2")
    assert slurm_watch.differing(tmp_path / "a", tmp_path / "b", "*.npz") == (2, [])
