"""What `make s3-check` and `make slurm-check` print where a run of theirs fails: the words of the job itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from failed_jobs import LINES, reasons

SNAKEFILE = """
rule all:
    input: "made/end.txt"

rule middle:
    output: "made/{name}.txt"
    log: "logs/{name}.log"
    group: "together"
    shell: "echo {wildcards.name} > {output}; echo finished in 0.1 s > {log}"

rule last:
    input: expand("made/{name}.txt", name=["a", "b", "c"])
    output: "made/end.txt"
    log: "logs/end.log"
    shell: "(seq 100; echo 'error: a.csv: row 3: no such split') > {log}; exit 1"
"""
STORED = """
Error in rule tables:
    message: None
    jobid: 1
    input: s3://b/p/results/mini/metrics.csv (retrieve from storage)
    output: s3://b/p/results/mini/tables (send to storage)
    log: s3://b/p/results/mini/logs/tables.log (send to storage) (check log file(s) for error details)
Storing in storage: s3://b/p/results/mini/logs/tables.log
"""
GROUPED = """
Error in group report:
    log: slurm/17.log (check log file(s) for error details)
    jobs:
        rule ranks:
            jobid: 3
            output: ranks.parquet
            log: logs/ranks.log (check log file(s) for error details)
        rule tables:
            jobid: 4
            output: tables
            log: logs/tables.log (check log file(s) for error details)
"""


def snakemake(folder, text: str) -> str:
    (folder / "Snakefile").write_text(text)
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True)
    assert done.returncode
    return done.stdout + done.stderr


def test_a_job_that_fails_is_quoted_and_those_that_ended_well_are_not(tmp_path):
    said = reasons(snakemake(tmp_path, SNAKEFILE), tmp_path).splitlines()
    assert said[0] == f"last failed; {tmp_path}/logs/end.log ends:"
    assert said[-1] == "  error: a.csv: row 3: no such split" and len(said) == 1 + LINES


def test_where_no_job_failed_snakemake_is_quoted_from_its_error_on(tmp_path):
    said = reasons(snakemake(tmp_path, 'rule all:\n    input: "nobody.txt"\n'), tmp_path)
    assert said.splitlines()[0].startswith("  MissingInputException") and "nobody.txt" in said


@pytest.mark.parametrize(
    ("output", "place"),
    [(STORED, ".snakemake/storage/s3/b/p/results/mini/logs/tables.log"), (GROUPED, "logs/tables.log")],
)
def test_logs_are_found_on_their_way_to_a_bucket_and_among_those_of_a_group(tmp_path, output, place):
    for path, text in ((place, "error: no space is left\n"), ("logs/ranks.log", "ranked\nfinished in 3.0 s\n")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert reasons(output, tmp_path) == f"tables failed; {tmp_path / place} ends:\n  error: no space is left"
