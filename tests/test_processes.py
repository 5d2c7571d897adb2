"""Commands that start programs, ended in the middle: by Ctrl-C, a signal, a closed pipe, a terminal that is gone."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from brought_files import write_captions, write_vectors
from checkout import ROOT
from rewind.job_values import Job, NamedList, Outputs
from rewind.workflow.job import job_record_path

DATA = "results/data/shapes"
EVALUATE = ["evaluate", "--data", "doors.csv", "--vectors", "one/captions.npz", "one/items.npz", "--probes"]
# A job that does not end, and says who it is; `why` and `rehearse` meet it before any job.
SNAKEFILE = """
import os, sys, time
if "-n" in sys.argv or "rehearsal" in os.getcwd():
    print(os.getpid(), file=open("PID", "a"), flush=True)
    time.sleep(600)
rule all:
    output: "made.txt"
    shell: "echo $$ >> PID; for n in 1 2 3 4 5 6 7 8 9; do echo line $n; done; sleep 600; touch {output}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("PID", str(tmp_path / "pid")))
    for name in ("models", "studies", "datasets"):
        shutil.copytree(ROOT / "config" / name, tmp_path / "config" / name)
    write_captions(tmp_path / "doors.csv")
    write_vectors(tmp_path / "one")
    return tmp_path


def start(folder: Path, arguments: list[str], **options: object) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "rewind", *arguments]
    usual = {"start_new_session": True, "preexec_fn": heed_signals}
    return subprocess.Popen(command, cwd=folder, env=environment, **usual, **options)


def heed_signals() -> None:
    """As in a shell: tests that run behind `nohup` or `&` ignore signals, and what they start would too."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def soon(condition: Callable[[], object], seconds: float = 120) -> bool:
    """Whether it was true once: a draft that was seen may have its name before a second look."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def child(folder: Path) -> psutil.Process:
    """The program that a command has started, once it says so."""
    assert soon(lambda: (folder / "pid").is_file() and (folder / "pid").read_text().endswith("\n"))
    return psutil.Process(int((folder / "pid").read_text().split()[0]))


def nothing_is_left(folder: Path, process: psutil.Process) -> None:
    assert soon(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 5)
    assert not list(folder.rglob(".snakemake/locks/*"))
    assert not (folder / "config/studies/doors.yaml").exists(), "the corrected command is not in its own way"
    here = str(folder)
    others = [other for other in psutil.process_iter(["cwd"]) if str(other.info["cwd"] or "").startswith(here)]
    assert not others, [other.cmdline() for other in others]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (EVALUATE, signal.SIGTERM),
        (EVALUATE, signal.SIGINT),
        (["why"], signal.SIGHUP),
        (["rehearse", "demo"], signal.SIGTERM),
        (["rehearse", "demo"], signal.SIGQUIT),
    ],
)
def test_a_signal_ends_what_a_command_started(folder, arguments, number):
    process = start(folder, arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    started = child(folder)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number and "Traceback" not in said, said
    nothing_is_left(folder, started)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [EVALUATE, ["why"], ["rehearse", "demo"]], ids=["evaluate", "why", "rehearse"])
def test_a_closed_pipe_ends_what_a_command_started(folder, arguments):
    process = start(folder, arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = child(folder)
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert "Traceback" not in (said := process.stderr.read()), said
    nothing_is_left(folder, started)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed", "Ctrl-C"])
def test_a_terminal_ends_what_a_command_started(folder, how):
    """Where the terminal is gone, and after Ctrl-C in one."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        heed_signals()
        os.environ["PYTHONPATH"] = str(ROOT / "src")
        os.execv(sys.executable, [sys.executable, "-m", "rewind", *EVALUATE])
    started = child(folder)
    if how == "closed":
        os.close(terminal)
    else:
        os.write(terminal, b"\x03")
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + (signal.SIGHUP if how == "closed" else signal.SIGINT)
    nothing_is_left(folder, started)
    with contextlib.suppress(OSError):
        os.close(terminal)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_job_by_hand_that_is_ended_leaves_no_drafts(tmp_path, number):
    source = {"format": "shapes", "seed": 0, "clips": {"train": 400, "valid": 1, "test": 1}, "size": 64}
    outputs = {"ready": f"{DATA}/source/ready.json", "files": f"{DATA}/source.tar"}
    params = {"dataset": {"name": "shapes", "source": source}, "workers": 2, "code": "c"}
    output, given = Outputs(list(outputs.values()), outputs), NamedList(list(params.values()), params)
    job = Job("sources", NamedList([], {}), output, given, {"dataset": "shapes"}, 2, {}, f"{DATA}/logs/sources.log")
    record = tmp_path / job_record_path(job.rule, job.output)
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps(job.content()))

    def drafts() -> list[Path]:
        return list((tmp_path / "out").rglob("*.part*"))

    process = start(tmp_path, ["job", outputs["ready"], "--out", "out"], stderr=subprocess.PIPE, text=True)
    assert soon(drafts), "it writes a clip"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if number == signal.SIGKILL:  # nobody could tidy up: the next attempt does
        params["dataset"]["source"]["clips"]["train"] = 40
        record.write_text(json.dumps(job.content()))
        process = start(tmp_path, ["job", outputs["ready"], "--out", "out"], stderr=subprocess.PIPE, text=True)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    else:
        assert process.returncode == 128 + number and "Traceback" not in said, said
    assert not drafts()
