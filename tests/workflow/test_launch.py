"""A job that was granted several GPUs: one process each, one log, one clear sentence when one fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from patience import patience
from rewind.distributed import join_process_group
from rewind.errors import RewindError
from rewind.workflow.launch import run_on_all_gpus

pytestmark = pytest.mark.slow


def meet(folder: str) -> None:
    """Every process adds its rank to a sum that all see; rank 1 is silent."""
    with join_process_group() as world:
        total = world.sum(torch.tensor([10.0 + world.rank]))
        print(f"rank {world.rank} of {world.size}: {total.item():.0f}, {torch.get_num_threads()} threads")
        Path(folder, f"rank{world.rank}").write_text(str(total.item()))


def fail(folder: str) -> None:
    with join_process_group() as world:
        if world.rank == 1:
            raise RewindError("row 7 is odd; mend it.")
        world.sum(torch.ones(1))


def wait(folder: str) -> None:
    with join_process_group() as world:
        Path(folder, f"pid{world.rank}").write_text(str(os.getpid()))
        time.sleep(600)


def test_two_processes_work_as_one_and_rank_0_writes_the_log(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    run_on_all_gpus(meet, str(tmp_path), log=log, processes=2)
    assert (tmp_path / "rank0").read_text() == (tmp_path / "rank1").read_text() == "21.0"
    assert log.read_text().startswith("before\nrank 0 of 2: 21") and "rank 1" not in log.read_text()


def test_one_process_starts_nothing(tmp_path, capsys):
    run_on_all_gpus(meet, str(tmp_path), log=tmp_path / "log", processes=1)
    assert "rank 0 of 1: 10" in capsys.readouterr().out and not (tmp_path / "log").exists()


def test_a_failed_process_ends_the_others_and_says_so(tmp_path, capfd):
    with pytest.raises(RewindError, match="of 2 ended with exit code"):
        run_on_all_gpus(fail, str(tmp_path), log=tmp_path / "log", processes=2)
    assert "row 7 is odd; mend it." in capfd.readouterr().err and "row 7" in (tmp_path / "log").read_text()


def test_processes_die_with_a_killed_job(tmp_path):
    arguments = f"t.wait, {str(tmp_path)!r}, log={str(tmp_path / 'log')!r}, processes=2"
    code = f"import test_launch as t; t.run_on_all_gpus({arguments})"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    job = subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL)
    pids = [tmp_path / f"pid{rank}" for rank in range(2)]
    _until(lambda: all(path.exists() and path.read_text() for path in pids))
    job.send_signal(signal.SIGKILL)
    job.wait()
    _until(lambda: not any(_alive(int(path.read_text())) for path in pids))


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _until(done) -> None:
    end = time.monotonic() + patience(60)
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)
