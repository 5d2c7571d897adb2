"""Names of files and labels reach a terminal as text, not as commands to it."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from init_room import CLIPS, told
from rewind.errors import RewindError, printable, printable_name
from rewind.io.files import reading_user_file
from rewind.io.strict import read_user_text
from rewind.system_errors import user_message as sentence_of
from rewind.video.sources import SourceListing
from rewind.workflow.job import job_session

pytest_plugins = ["init_room"]
ODD = "\x1b]0;title\x07\x1b[31m\u202e\udcff"
SHOWN = r"\x1b]0;title\x07\x1b[31m\u202e\xff"


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert printable(f"a{ODD}z") == f"a{SHOWN}z"
    for kept in ("été 王 👩‍🔬 – “q”", "a\tb\nc\r\n", ""):
        assert printable(kept) == kept
    assert sentence_of(RewindError(f"{ODD}: x")) == f"{SHOWN}: x"
    assert SHOWN in sentence_of(OSError(28, "No space", ODD))


def test_commands_print_what_is_printable(tmp_path: Path) -> None:
    """In a process of its own, whose streams are those of a user."""
    command = [sys.executable, "-m", "rewind", "init", os.fsencode("a\x1b[31m\udcff.txt")]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    (tmp_path / "Snakefile").touch()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=env)
    assert done.returncode == 1 and rb"error: a\x1b[31m\xff.txt: name a .csv" in done.stderr, done.stderr


def test_jobs_print_and_log_what_is_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with job_session(tmp_path / "job.log"):
        print(f"a label {ODD}")
    assert f"a label {SHOWN}" in capsys.readouterr().out and SHOWN in (tmp_path / "job.log").read_text()
    with pytest.raises(SystemExit), job_session(tmp_path / "job.log"):
        raise RewindError(f"{ODD}: broken")
    assert f"error: {SHOWN}: broken" in capsys.readouterr().err


NAMES = ["x\udcff", " x", "x\x1b[31m", "x\nerror: y", "x\ry"]


@pytest.mark.parametrize("name", NAMES)
def test_a_clip_that_no_table_can_name_is_refused(here, init, name: str) -> None:
    folder = Path("mine/videos")
    for row, path in zip(told(), sorted(folder.glob("*.mp4")), strict=True):
        path.with_suffix(".txt").write_text(row[1])
    for suffix in ("mp4", "txt"):
        os.rename(folder / f"clip3.{suffix}", folder / f"{name}.{suffix}")
    place = f"mine/videos/{printable_name(name)}.txt"
    said = init("mine/videos", places=[] if name == " x" else [place])
    assert f"'{printable_name(name)}.mp4'" in said
    assert not Path("config/datasets").exists() or not list(Path("config/datasets").iterdir())


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_name_of_two_lines_is_one_line_of_a_message(here, init, end: str) -> None:
    """A second line would look like a message of its own."""
    name, shown = f"x{end}error: y", printable_name(f"x{end}error: y")
    folder = Path("mine/videos")
    for row, path in zip(told(), sorted(folder.glob("*.mp4")), strict=True):
        path.with_suffix(".txt").write_text(row[1])
    (folder / f"{name}.mp4").write_bytes((folder / "clip3.mp4").read_bytes())
    (folder / f"{name}2.txt").write_text("a caption")
    said = init("mine/videos")
    assert f"\n  {shown}.mp4\n" in said and f"\n  {shown}2.txt\n" in said
    init(f"{name}.txt", places=[f"{shown}.txt"])
    Path(name).write_bytes(b"\xff")
    for read in (read_user_text, lambda path: reading_user_file(path, "npz").__enter__()):
        for path in (name, f"{name} that is absent"):
            with pytest.raises((RewindError, AssertionError)) as caught:
                read(path)
                raise AssertionError
            assert "\n" not in str(caught.value) and "\r" not in str(caught.value)
    assert sentence_of(OSError(28, "No space", name)).startswith(f"{shown}: ")


def test_other_files_of_a_folder_may_be_called_anything(here, init) -> None:
    with Path("mine/clips.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["item_id", "caption"], *(row[:2] for row in told())])
    for name in (*NAMES, ODD):
        Path("mine/videos", f"{name.replace('/', '')}.mp4").touch()
    assert f"{CLIPS} videos" in init("mine/clips.csv")
    memory = Path(".snakemake/sources.csv")
    first = SourceListing(["mine/videos"], Path("videos"), memory).digest()
    assert first == SourceListing(["mine/videos"], Path("videos"), memory).digest()
    assert any("\udcff" in path for path in SourceListing(["mine/videos"], Path("videos"), memory)._recall())
