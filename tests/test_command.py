"""``run.json`` has the command that the user typed, whatever started the job, and none of its secrets."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

from checkout import ROOT
from rewind.provenance import COMMAND_VARIABLE, record_command, redacted_command, user_command
from startup_lines import STARTUP

TYPED = ["--cores", "all", "--resources", "gpu=4", "--config", "studies=[rtime]"]
OVER = "overrides={studies.x.text.tokenizer: 'clip', studies.x.backbone.token_mask: 0.5}"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (TYPED, TYPED),
        (["--keep-going", "results/demo/tables", "--config", OVER], None),
        (["--storage-s3-access-key", "AKIA", "--storage-s3-secret-key=hush"], ["***", "***"]),
        (["--storage-s3-token", "one", "two", "--cores", "4"], ["***", "***", "4"]),
        (["--config", "api_token=hush", "-n"], ["api_token=***", "-n"]),
        (["--config", "overrides={a.password: hush, b: 2}"], ["overrides={a.password: ***, b: 2}"]),
        (["--default-storage-prefix", "s3://me:hush@bucket/x"], ["s3://***@bucket/x"]),
        (["https://host/file?token=hush&part=2"], ["https://host/file?token=***&part=2"]),
        (["--storage-http-auth", "HTTPBasicAuth('me', 'hush')"], ["***"]),
    ],
)
def test_secrets_are_hidden_and_nothing_else(typed, expected):
    words = shlex.split(redacted_command(["/home/someone/.venv/bin/snakemake", *typed]))
    assert words[0] == "snakemake" and len(words) == len(typed) + 1
    for word in expected if expected is not None else typed:
        assert any(word in found for found in words), (word, words)
    text = " ".join(words)
    assert "hush" not in text and "AKIA" not in text and "someone" not in text and " one" not in text


def test_only_the_first_process_says_what_was_typed(monkeypatch):
    monkeypatch.setenv(COMMAND_VARIABLE, "of an outer workflow")
    record_command(["/x/snakemake/__main__.py", "-n", 'it\'s "odd" $HOME'], first=True)
    assert user_command() == shlex.join(["snakemake", "-n", 'it\'s "odd" $HOME'])
    assert not set(os.environ[COMMAND_VARIABLE]) & set("'\"$ \\"), "it passes any shell"
    record_command(["snakemake", "--mode", "remote"], first=False)
    assert shlex.split(user_command())[1] == "-n", "a job keeps what it was handed"
    monkeypatch.delenv(COMMAND_VARIABLE)
    record_command(["snakemake", "--mode", "remote"], first=False)
    assert user_command() == "snakemake --mode remote", "a job that was handed nothing says at least what it is"
    monkeypatch.setenv(COMMAND_VARIABLE, "%%%")
    assert user_command() == redacted_command(sys.argv)


SNAKEFILE = f"""
import json
{STARTUP}

rule all:
    input: "out.json"

rule job:
    output: "out.json"
    script: "job.py"
"""
JOB = """
import json
from rewind.provenance import environment
with open(snakemake.output[0], "w") as stream:
    json.dump(environment(), stream)
"""


def test_a_job_of_snakemakes_records_what_the_user_typed(tmp_path):
    """Through Snakemake's own processes, with a value that no shell passes on unharmed."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "job.py").write_text(JOB)
    typed = ["--cores", "1", "--quiet", "all", "--config", 'note=it\'s "5 $"', "access_key=hush"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), COMMAND_VARIABLE: "of an outer workflow"}
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *typed], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "out.json").read_text())
    assert shlex.split(record["command"]) == ["snakemake", *typed[:-1], "access_key=***"]
    for name in ("torch", "torchvision", "scipy", "ffmpeg-python", "numpy", "snakemake"):
        assert record["packages"][name], name
    assert record["python"].count(".") == 2 and record["ffmpeg"].startswith("ffmpeg version")
    assert "hush" not in json.dumps(record)
