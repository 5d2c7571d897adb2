"""GPU leases, with invented GPUs."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from messages import expect_message
from patience import patience
from rewind.gpu import VISIBLE_DEVICES, allowed_gpus, lease_gpus

FOUR = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, FOUR),
        ("1,3", ["GPU-b", "GPU-d"]),
        ("GPU-c", ["GPU-c"]),
        ("", []),
        ("-1", []),
        ("2,-1,0", ["GPU-c"]),
        ("MIG-7", ["MIG-7"]),
    ],
)
def test_a_mask_is_respected(mask, expected):
    assert allowed_gpus(FOUR, mask) == expected


def test_two_jobs_never_hold_one_device(tmp_path, monkeypatch):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    with lease_gpus(2, lambda: FOUR, tmp_path) as first:
        assert os.environ[VISIBLE_DEVICES] == ",".join(first) == "GPU-a,GPU-b"
        monkeypatch.delenv(VISIBLE_DEVICES)
        with lease_gpus(2, lambda: FOUR, tmp_path) as second:
            assert not set(first) & set(second)
    with lease_gpus(4, lambda: FOUR, tmp_path) as again:
        assert again == FOUR, "devices are free again"


def test_a_mask_of_numbers_meets_one_of_names(tmp_path, monkeypatch):
    monkeypatch.setenv(VISIBLE_DEVICES, "0,1")
    with lease_gpus(1, lambda: FOUR, tmp_path) as first:
        monkeypatch.setenv(VISIBLE_DEVICES, "GPU-a,GPU-b")
        with lease_gpus(1, lambda: FOUR, tmp_path) as second:
            assert (first, second) == (["GPU-a"], ["GPU-b"])


def test_without_a_gpu_the_job_says_so_and_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    with lease_gpus(2, list, tmp_path) as devices:
        assert devices == [] and os.environ[VISIBLE_DEVICES] == ""
    assert VISIBLE_DEVICES not in os.environ
    expect_message(capsys.readouterr().out)


def test_asking_for_more_than_there_are_takes_all(tmp_path, monkeypatch):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    with lease_gpus(8, lambda: FOUR[:2], tmp_path) as devices:
        assert devices == FOUR[:2]


def test_zero_gpus_hide_all_of_them(tmp_path, monkeypatch):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    with lease_gpus(0, lambda: FOUR, tmp_path):
        assert os.environ[VISIBLE_DEVICES] == ""


def _hold(folder, ready):
    with lease_gpus(1, lambda: FOUR[:1], folder):
        ready.set()
        time.sleep(600)


def test_a_killed_job_frees_its_device(tmp_path, monkeypatch):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(patience(30))
    os.kill(holder.pid, 9)
    holder.join()
    with lease_gpus(1, lambda: FOUR[:1], tmp_path, poll=0.05) as devices:
        assert devices == FOUR[:1]


def test_waiting_is_announced_once(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(patience(30))
    import threading

    threading.Timer(patience(0.4), holder.kill).start()
    with lease_gpus(1, lambda: FOUR[:1], tmp_path, poll=0.05) as devices:
        assert devices == FOUR[:1]
    expect_message(capsys.readouterr().out)
    holder.join()
