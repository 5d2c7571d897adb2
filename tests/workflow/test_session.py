"""Logs, messages, files."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkout import ROOT
from messages import expect_error, refusal
from rewind.data.tokenizers import ClipTokenizer, WordTokenizer
from rewind.errors import RewindError
from rewind.io.files import atomic_write, check_id, read_csv, read_spreadsheet, write_csv, write_spreadsheet
from rewind.progress import Progress, format_duration
from rewind.workflow.job import job_session


def test_output_goes_to_console_and_log(tmp_path, capsys):
    with job_session(tmp_path / "a.log"):
        print("one line")
        print("a warning", file=sys.stderr)
    log = (tmp_path / "a.log").read_text()
    captured = capsys.readouterr()
    assert "one line" in log and "a warning" in log and "finished in" in log
    assert captured.out == "one line\n" and captured.err == "a warning\n"


def test_a_log_begins_with_the_attempts_that_failed_and_only_with_those(tmp_path, monkeypatch):
    log = tmp_path / "logs" / "a.log"
    for number in (1, 2):
        log.unlink(missing_ok=True)  # as Snakemake does before it runs a job again
        with pytest.raises(SystemExit), job_session(log):
            print(f"attempt {number}")
            raise RewindError("no luck.")
    log.unlink()
    with job_session(log):
        print("attempt 3")
    text = log.read_text()
    assert [text.count(f"attempt {n}\n") for n in (1, 2, 3)] == [1, 1, 1] and text.count("no luck.") == 2
    assert text.count("did not come to its end") == 2 and list(log.parent.iterdir()) == [log]
    with job_session(log):
        print("once more")
    assert "attempt" not in log.read_text(), "of a job that came to its end nothing is kept"


def test_a_log_keeps_a_bounded_part_of_earlier_attempts(tmp_path, monkeypatch):
    monkeypatch.setattr("rewind.workflow.job.MAX_EARLIER_LOG_BYTES", 500)
    for number in range(20):
        with pytest.raises(SystemExit), job_session(tmp_path / "a.log"):
            print(f"line of attempt {number}\n" * 30)
            raise RewindError("no luck.")
    text = (tmp_path / "a.log").read_text()
    assert len(text) < 3_000 and "line of attempt 18\n" in text and "line of attempt 17\n" not in text
    assert text.startswith("[lines before these were left out]\nline of attempt 18\n")


def test_what_a_killed_job_wrote_is_in_the_log_of_the_next(tmp_path):
    log = tmp_path / "a.log"
    work = (
        f"import os; from rewind.workflow.job import job_session\nwith job_session({str(log)!r}):\n    print('so far')"
    )
    work += "\n    os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", work]).returncode == -9
    log.unlink()
    with job_session(log):
        print("and on")
    text = log.read_text()
    assert text.index("so far") < text.index("did not come to its end") < text.index("and on")


FAILS_TWICE = """
from pathlib import Path
from rewind.workflow.job import job_session
with job_session(snakemake.log[0]):
    Path("tries").open("a").write("x")
    count = len(Path("tries").read_text())
    print(f"attempt number {count}")
    assert count == 3
    Path(snakemake.output[0]).touch()
"""


@pytest.mark.slow
def test_snakemake_leaves_the_log_of_a_job_that_failed_twice(tmp_path):
    (tmp_path / "Snakefile").write_text('rule job:\n    output: "out"\n    log: "logs/job.log"\n    script: "job.py"\n')
    (tmp_path / "job.py").write_text(FAILS_TWICE)
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--retries", "1"]
    assert subprocess.run(command, cwd=tmp_path, env=env, capture_output=True).returncode == 1
    assert subprocess.run(command, cwd=tmp_path, env=env, capture_output=True).returncode == 0
    text = (tmp_path / "logs/job.log").read_text()
    assert [text.count(f"attempt number {n}\n") for n in (1, 2, 3)] == [1, 1, 1]


def test_a_message_for_people_has_no_traceback_and_a_defect_has(tmp_path, capsys):
    with pytest.raises(SystemExit), job_session(tmp_path / "a.log"):
        raise RewindError("row 3: no caption; add one.")
    text = capsys.readouterr().err
    assert "error: row 3: no caption; add one." in text and "Traceback" not in text
    with pytest.raises(SystemExit), job_session(tmp_path / "b.log"):
        raise ZeroDivisionError("ours")
    assert "Traceback" in capsys.readouterr().err and "ZeroDivisionError: ours" in (tmp_path / "b.log").read_text()


def test_a_job_that_must_have_a_gpu_does_not_start_without(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with job_session(tmp_path / "a.log", gpus=1):
        started = True
    assert started
    with pytest.raises(SystemExit), job_session(tmp_path / "b.log", gpus=1, require_gpu=True):
        raise AssertionError("it started")
    text = capsys.readouterr().err
    assert "resources.require_gpu" in text
    expect_error(text)
    with job_session(tmp_path / "c.log", gpus=0, require_gpu=True):
        pass  # a closed form never uses one


def test_a_half_written_file_never_appears(tmp_path):
    target = tmp_path / "a.csv"
    target.write_text("old")
    with pytest.raises(KeyError), atomic_write(target) as draft:
        draft.write_text("half")
        raise KeyError
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("value", ["", "../x", "a/b", ".hidden", "-rf", "a..b", "x" * 201, "a b", "é", "a\n"])
def test_ids_that_could_leave_their_folder_are_refused(value):
    with refusal():
        check_id(value, "f.json, row 3")


def test_ids_stay_strings_and_a_caption_na_is_a_word(tmp_path):
    table = pd.DataFrame({"video_id": ["0012", "1e5"], "caption": ["NA", "null"], "n": [1, 2]})
    write_csv(tmp_path / "t.csv", table)
    assert read_csv(tmp_path / "t.csv").to_dict("list") == table.to_dict("list")


FORMULAS = [
    "=1+1",
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "'=1",
    "''+1",
    "'",
    "'quoted'",
    "−3",
    "a=b",
]


def test_no_text_of_a_spreadsheet_is_a_formula(tmp_path):
    table = pd.DataFrame({"group": FORMULAS, "gain": [-1.5] * len(FORMULAS), "n": range(len(FORMULAS))})
    write_spreadsheet(tmp_path / "t.csv", table)
    with (tmp_path / "t.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert not [row["group"] for row in rows if row["group"][0] in "=+-@\t\r"]
    assert {row["gain"] for row in rows} == {"-1.5"}, "a number stays one"
    assert [row["group"] for row in rows[-4:]] == FORMULAS[-4:], "what is no formula stays as it is"
    back = read_spreadsheet(tmp_path / "t.csv", text=("group",))
    assert back.to_dict("list") == table.to_dict("list")


@given(st.lists(st.text(alphabet="'=+-@\t ax,\"", min_size=1), min_size=1, max_size=5))
def test_a_spreadsheet_reads_back_as_it_was(texts):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        write_spreadsheet(path, pd.DataFrame({"label": texts, "empty": np.nan}))
        assert read_spreadsheet(path, text=("label",))["label"].tolist() == texts


def test_progress_tells_rate_and_time_left(capsys):
    progress = Progress("train a/seed0", 10, "steps", every=0)
    progress.advance(4, "loss 1.0")
    line = capsys.readouterr().err
    assert line.startswith("train a/seed0: 4/10 steps, ") and "left" in line and line.endswith("loss 1.0\n")
    assert (format_duration(75), format_duration(3725)) == ("1:15", "1:02:05")


def test_word_tokens():
    tokenizer = WordTokenizer(["A red ring, rising!", "a blue ring"])
    ids = tokenizer.encode(["a red unicorn", "ring " * 9], 6)
    assert ids.shape == (2, 6) and ids.max() == tokenizer.vocabulary - 1
    assert ids[0, 0] == 2 and ids[0, 3] == 1 and ids[0, 4] == ids.max() and ids[0, 5] == 0
    assert ids[1, -1] == ids.max(), "a cut caption keeps its end"
    assert tokenizer.count(["ring " * 9, ""]) == [11, 2]


def test_clip_tokens():
    tokenizer = ClipTokenizer()
    ids = tokenizer.encode(["a photo of a cat"], 12)[0]
    assert ids.tolist()[:7] == [49406, 320, 1125, 539, 320, 2368, 49407] and not ids[7:].any()
    assert tokenizer.count(["a photo of a cat"]) == [7]
