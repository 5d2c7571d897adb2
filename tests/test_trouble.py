"""A machine at its end: each fault is one sentence that names the file and says what to do, and nothing is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from checkout import ROOT
from messages import expect_error, expect_message, refusal
from rewind.cli.main import main
from rewind.errors import RewindError
from rewind.io import files
from rewind.io.files import atomic_write, check_output_file, check_output_folder, write_text
from rewind.models.checkpoint import save_model
from rewind.system_errors import user_message
from rewind.training.checkpoint import StateFile

START = """
import resource
import numpy as np, pandas as pd
from rewind.io import files
from rewind.workflow.job import job_session

table = pd.DataFrame({"a": np.random.default_rng(0).random(20_000)})
files.write_text("kept.csv", "old")

def most(kind, amount):
    resource.setrlimit(kind, (amount, amount))
"""


def job(folder: Path, body: str, **limits: object) -> tuple[int, str, str]:
    """A job in a process of its own: exit code, standard error, log."""
    script = START + 'with job_session("job.log"):\n' + textwrap.indent(textwrap.dedent(body), "    ")
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        **limits,
    )
    log = folder / "job.log"
    return done.returncode, done.stderr, log.read_text() if log.is_file() else ""


MODEL = """
import torch
from rewind.models.checkpoint import save_model
from rewind.training.checkpoint import StateFile
model = torch.nn.Linear(300, 300)
"""
LARGE = "File too large"


@pytest.mark.slow
@pytest.mark.parametrize(
    "write, said",
    [
        ('files.write_csv("kept.csv", table)', f"error: kept.csv: {LARGE}; raise the limit"),
        ('files.write_csv_parts("kept.csv", [table])', f"error: kept.csv: {LARGE}; raise the limit"),
        ('files.write_npz("a.npz", a=table.a)', f"error: a.npz: {LARGE}; raise the limit"),
        ('files.write_parquet("a.parquet", table)', f"error: a.parquet: {LARGE}; raise the limit"),
        (
            f'{MODEL}save_model("a.safetensors", model, {{}})',
            f"error: a.safetensors: {LARGE} (Error while serializing: ",
        ),
        (
            f'{MODEL}StateFile("a.pt", "").save(model.state_dict())',
            "error: a.pt: could not be written whole ([enforce fail at inline_container.cc:",
        ),
    ],
)
def test_a_file_that_finds_no_room_is_named(tmp_path, write, said):
    code, err, log = job(tmp_path, f"most(resource.RLIMIT_FSIZE, 65536)\n{write}")
    assert code == 1 and "Traceback" not in err
    assert said in err and said in log and "rerun; finished work is kept." in err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".job.log.attempts") == [
        "job.log",
        "kept.csv",
    ]
    assert (tmp_path / "kept.csv").read_text() == "old"


@pytest.mark.slow
@pytest.mark.parametrize(
    "body, said",
    [
        ("np.zeros(1 << 34)", "error: Cannot allocate memory (Unable to allocate 128. GiB for an array"),
        ("import torch; torch.zeros(1 << 36)", "you tried to allocate 274877906944 bytes"),
        ("bytearray(1 << 36)", "error: Cannot allocate memory; close other programs"),
    ],
)
def test_memory_that_is_used_up(tmp_path, body, said):
    code, err, log = job(tmp_path, f"most(resource.RLIMIT_AS, 24 << 30)\n{body}")
    assert code == 1 and "Traceback" not in err and said in err and said in log
    assert "raise `ulimit -v`" in err and "resources.mem_mb" in err


def test_files_that_are_too_many(tmp_path):
    code, err, _ = job(tmp_path, 'most(resource.RLIMIT_NOFILE, 30)\nheld = [open("kept.csv") for _ in range(40)]')
    assert code == 1 and "Traceback" not in err
    assert "error: kept.csv: Too many open files; raise the limit with" in err


def test_a_defect_of_ours_keeps_its_traceback(tmp_path):
    for body in ("raise ValueError('x')", "raise RuntimeError('shape mismatch')", "open('nowhere')"):
        code, err, log = job(tmp_path, body)
        assert code == 1 and "Traceback" in err and "Traceback" in log


def test_a_log_that_finds_no_room_does_not_hide_the_fault(tmp_path):
    body = "most(resource.RLIMIT_FSIZE, 1000)\nprint('x' * 5000)\nraise files.RewindError('the fault')"
    code, err, _ = job(tmp_path, body)
    assert code == 1 and "error: the fault" in err and "Traceback" not in err


def test_a_log_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "job.log").mkdir()
    code, err, _ = job(tmp_path, "pass")
    assert code == 1 and err.count("\n") < 5 and "job.log: " in err and "Traceback" not in err


@pytest.mark.slow
def test_standard_output_without_room():
    if not Path("/dev/full").is_char_device():
        pytest.skip("no /dev/full here")
    command = [sys.executable, "-m", "rewind", "doctor"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, text=True
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: ") and done.stderr.count("\n") == 1
    expect_error(done.stderr, varying=os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE], ids=errno.errorcode.get
)
def test_every_fault_of_a_disk_has_its_sentence(tmp_path, monkeypatch, code):
    monkeypatch.chdir(tmp_path)

    def fail() -> None:
        with atomic_write("a.csv") as draft:
            draft.write_bytes(bytes(2000))
            raise OSError(code, os.strerror(code))

    with pytest.raises(OSError) as caught:
        fail()
    assert user_message(caught.value).startswith(f"a.csv: {os.strerror(code)}; ")
    expect_message(user_message(caught.value), varying=os.strerror(code))
    assert not list(tmp_path.iterdir())
    for text in (os.strerror(code), f"in other words (os error {code})"):
        assert (
            user_message(RuntimeError(text))
            == f"{os.strerror(code)} ({text}); {user_message(caught.value).partition('; ')[2]}"
        )


def test_shared_memory_of_data_workers_is_no_disk():
    error = RuntimeError("unable to write to file </torch_12_345_0>: No space left on device (28)")
    assert "/dev/shm" in user_message(error) and "frames.workers: 0" in user_message(error)
    expect_message(user_message(error))


def test_the_file_that_was_read_is_named_and_not_the_one_that_was_being_written(tmp_path):
    def fail() -> None:
        with atomic_write(tmp_path / "out.csv"), files.name_file_in_errors("in.csv"):
            raise MemoryError

    with pytest.raises(MemoryError) as caught:
        fail()
    assert user_message(caught.value).startswith(f"in.csv: {os.strerror(errno.ENOMEM)}; ")
    expect_message(user_message(caught.value), varying=os.strerror(errno.ENOMEM))


def test_other_errors_are_none_of_the_machine():
    for error in (ValueError("x"), KeyError(28), FileNotFoundError(2, "no"), BrokenPipeError(32, "x"), IndexError()):
        assert user_message(error) is None
    assert user_message(RewindError("so")) == "so"
    said = user_message(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"))
    assert "(CUDA out of memory. " in said and "training.micro_batch" in said
    expect_message(said)


# On the disk before it has its name


def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).suffix or 'folder'}")
        sync(handle)

    def replaced(draft: Path, path: Path) -> None:
        done.append("name")
        replace(draft, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return done


def test_what_lasts_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    done = steps(monkeypatch)
    save_model(folder / "model.safetensors", torch.nn.Linear(2, 2), {})
    StateFile(folder / "state.pt", "").save({})
    with atomic_write(folder / "0-of-1.tar") as draft:
        draft.write_bytes(b"clips")
    assert done == [
        step for suffix in (".safetensors", ".pt", ".tar") for step in (f"sync {suffix}", "name", "sync folder")
    ]
    done.clear()
    write_text(folder / "table.txt", "quickly made again")
    assert done == ["name"]


def test_a_file_system_that_cannot_sync_is_no_fault(tmp_path, monkeypatch):
    def refuse(handle: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    with atomic_write(tmp_path / "a.pt") as draft:
        draft.write_bytes(b"x")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError) as caught, atomic_write(tmp_path / "a.pt") as draft:
        draft.write_bytes(b"y")
    assert os.strerror(errno.EIO) in user_message(caught.value)
    assert (tmp_path / "a.pt").read_bytes() == b"x"


# Targets


def test_a_file_is_put_over_no_folder_and_no_device(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with refusal(name):
            write_text(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()


def test_targets_are_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("something")
    for path in (Path("file/a"), Path("file/deeper/a")):
        with pytest.raises(RewindError, match=r"--out: .*(Not a directory|File exists)"):
            check_output_folder(path, "--out")
    with refusal("--out: file"):
        check_output_folder(Path("file"), "--out")
    check_output_folder(Path("new/folder"), "--out")
    check_output_file(Path("new/file"), "--out")
    assert not Path("new").exists(), "what is only looked at leaves nothing"
    with refusal("--json: file"):
        check_output_file(Path("file"), "--json", files.Path.is_dir)
    Path("file").write_text("")
    check_output_file(Path("file"), "--json", files.Path.is_dir)  # nothing is lost
    with refusal(f"--out: {'x' * 300}", varying=f"x{{300}}|{os.strerror(errno.ENAMETOOLONG)}"):
        check_output_file(Path("x" * 300), "--out")


@pytest.mark.parametrize(
    "command, place",
    [
        (["rehearse", "demo", "--json", "pipe"], "--json: pipe"),
        (["rehearse", "demo", "--json", "notes.txt"], "--json: notes.txt"),
        (["export-clip4clip", "run", "notes.txt"], "OUT: notes.txt"),
        (["export-clip4clip", "run", "folder"], "OUT: folder"),
        (["import", "mteb", "a_predictions.json", "folder"], "OUT: folder"),
        (["job", "a.csv", "--out", "notes.txt"], "--out: notes.txt"),
        (["search", "run", "--save", "notes.txt"], "--save: notes.txt"),
    ],
)
def test_commands_look_at_their_targets_first(tmp_path, monkeypatch, capsys, command, place):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("my notes")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    assert main(command) == 1
    expect_error(capsys.readouterr().err, place)
    assert Path("notes.txt").read_text() == "my notes"


def test_a_library_for_which_there_is_no_room_is_no_broken_installation() -> None:
    """As under `ulimit -v 700000`."""
    expect_message(
        str(user_message(ImportError("libtorch_cpu.so: failed to map segment from shared object"))),
        varying=os.strerror(errno.ENOMEM),
    )
    assert user_message(ImportError("no module named torch")) is None
