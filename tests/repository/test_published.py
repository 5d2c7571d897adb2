"""The documents of this checkout: what they print is what is published, and what is not says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import documents
import store
from documents import BLOCK_PATTERN, compare_documents, document_files
from library import read_stored
from publish import PublishOptions, publish
from published_runs import ROOT, make_checkout, make_results
from store import format_wall_time, wall_seconds

# What only a measurement has: a spread, or an interval.
MEASURED = re.compile(r"\d ?± ?\d|\[[−-]?\d*\.\d+, [−-]?\d*\.\d+\]")


def test_documents_print_what_is_published() -> None:
    found = compare_documents(ROOT)
    assert not found.untrue, [f"{block.file}:{block.line}: {reason}" for block, reason in found.untrue]
    assert not found.changed, [f"{block.file}:{block.line}: {block.what}" for block, _ in found.changed]
    assert not found.typed, "publish the study of a new block, or print nothing"
    assert documents.picture_faults(ROOT, ["demo"])[0] == []


def test_tables_of_unequal_budgets_say_so() -> None:
    """A document that prints rows of methods which did not train alike says so: in the table, or beside its numbers."""
    for file in document_files(ROOT):
        text = file.read_text(encoding="utf-8")
        for match in BLOCK_PATTERN.finditer(text):
            study, kind, *_ = match["what"].split()
            machines = store.machine_folders(ROOT, study)
            if kind not in ("table", "markdown", "number") or not machines:
                continue
            if len(read_stored(ROOT, machines[0]).budgets) > 1:
                said = match["body"] if kind == "table" else text
                assert "raining budgets differ" in said, f"{file}: {match['what']}: add `{study} budgets`"


def test_published_tests_against_chance_agree_with_their_intervals() -> None:
    """The test is the inversion of the interval, and exact ties are not tested."""
    for file in sorted((ROOT / "docs/published").glob("*/*/chance.csv")):
        found, intervals = pd.read_csv(file), pd.read_csv(file.parent / "intervals.csv")
        keys = ["method", "setting", "direction", "metric"]
        both = found.merge(intervals, on=keys, suffixes=("", "_of_intervals"), validate="one_to_one")
        assert len(both) == len(found) > 0 and (both["estimate"] == both["estimate_of_intervals"]).all(), file
        assert (both["low"] == both["low_of_intervals"]).all() and (both["high"] == both["high_of_intervals"]).all()
        tested = both[both["p"].notna()]
        assert ((tested["p"] < 0.05) == ((tested["low"] > 50) | (tested["high"] < 50))).all(), file
        assert both.loc[both["tied"] == 100, "p"].isna().all(), file


def test_what_the_calibration_page_says_of_tests_that_err_is_so() -> None:
    """ "Only two tests are wrong too often": unequal seeds, and a pre-training that nobody repeated."""
    (machine, *_) = store.machine_folders(ROOT, "calibration_edges")
    shown = read_stored(ROOT, machine).texts["outside"]
    erring = [line.split(" | ") for line in shown.splitlines() if "| type I |" in line and line.endswith("liberal |")]
    assert {row[0].removeprefix("| ") for row in erring} == {"unequal seeds", "pre-training"}
    assert all("2+10 seeds" in row[1] or "pre-training once" in row[1] for row in erring)
    assert read_stored(ROOT, machine).texts["points"] == "No interval has zero width; no p is 0."


def test_measured_numbers_stand_in_blocks() -> None:
    """Outside of them no document has a spread or an interval."""
    for file in document_files(ROOT):
        rest = BLOCK_PATTERN.sub("", file.read_text(encoding="utf-8"))
        assert not [line for line in rest.splitlines() if MEASURED.search(line)], file


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(make_checkout(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_the_first_publishing_of_every_study_fills_its_blocks(checkout: Path, capsys) -> None:
    """All markers name rows and columns that their studies' tables have."""
    command = [sys.executable, "benchmarks/calibration.py", "--replicates", "3", "--seeds", "3", "--clusters", "2"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([*command, "--queries", "1000", "--seed-sd", "0", "4"], check=True, env=env)
    Path("results/gap_calibration.csv").write_text(
        "items,seeds,seed_sd,studies,covers,false,alone\n5,1,0.0,2,0.957,,0.92\n200,3,0.3,2,0.943,0.0375,0.927\n"
    )
    measured = (
        "artefacts",
        "damage",
        "direction_probe",
        "evaluation",
        "families",
        "golden",
        "sampling",
        "sanw_step",
    )  # minutes of work each
    for name in measured:
        shutil.copy(next((ROOT / f"docs/published/{name}").glob("*/figures.csv")), f"results/{name}.csv")
    sources = {
        match["what"].split()[0] for file in document_files(ROOT) for match in BLOCK_PATTERN.finditer(file.read_text())
    }
    edges = "docs/published/calibration_edges"  # too many designs to simulate here
    shutil.copytree(ROOT / edges, checkout / edges)
    for name in sorted(sources - {"calibration_edges", "gpu"}):  # a GPU's figures: test_publish_gpu.py
        if (checkout / f"config/studies/{name}.yaml").is_file():
            store.publish_study(checkout, name, make_results(checkout, name), None)
        else:
            store.publish_benchmark(checkout, name, Path(f"results/{name}.csv"), None)
    assert publish(PublishOptions()) == 0
    found = compare_documents(checkout)
    assert not found.changed
    # All of the made-up differences are significant, and no mode wins: it takes too long.
    assert [block.body for block, _ in found.untrue] == ["No difference is significant"]
    said = capsys.readouterr().out
    assert re.search(
        r"no longer true, rewrite it: docs/translator\.md:\d+: No difference is significant \(avx2, ", said
    )
    assert {block.what.split()[1] for block, _ in found.typed} == {"wall"}, "made-up results have no measured jobs"
    assert publish(PublishOptions(check=True)) == 1, "for that sentence"
    text = (checkout / "docs/cosine-gap.md").read_text(encoding="utf-8")
    assert "| 200 | 3 | 0.3 | .943 | .037 | .927 |\n| 5 | 1 | 0 | .957 | – | .920 |" in text
    assert re.search(r"^\| InfoNCE +\| 0\.883 \\\[0\.860, 0\.900\\\] +\| 22\.8 +\| – +\| &numsp;– +\|$", text, re.M)
    assert '"HNAC − InfoNCE" p part="Test split, independent embeddings" -->0.370<!-- end -->' in text
    text = (checkout / "docs/translator.md").read_text(encoding="utf-8")
    assert re.search(r"^\| Linear <sup>a</sup> +\| 0\.203±0\.002 \\\[", text, re.M)
    assert re.search(r"^\| Linear +\| 492,800 +\| 1\.9 +\| 1 +\| 0\.0540 +\| 0\.0590 +\|$", text, re.M)


def test_the_calibration_in_documents_is_the_benchmarks_own_text(checkout: Path) -> None:
    """What the benchmark prints for its figures is what the documents print after publishing them."""
    command = [sys.executable, "benchmarks/calibration.py", "--replicates", "3", "--seeds", "3", "--clusters", "2"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command += ["--queries", "1000", "--seed-sd", "0", "4"]
    printed = subprocess.run(command, check=True, env=env, capture_output=True, text=True).stdout
    assert publish(PublishOptions("calibration")) == 0
    text = (checkout / "docs/calibration.md").read_text(encoding="utf-8")
    bodies = [
        match["body"] for match in BLOCK_PATTERN.finditer(text) if match["what"].startswith("calibration markdown ")
    ]
    assert len(bodies) == 5 and all(body.strip() in printed for body in bodies)
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    assert re.search(r"type-i-query-bootstrap -->\d+% to \d+%<!-- end -->", readme)


def job(file: Path, seconds: float, end: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"s\th:m:s\n{seconds}\t0:00:01\n")
    os.utime(file, (end, end))


def test_wall_time_is_known_only_of_jobs_that_ran_in_one_go(tmp_path: Path) -> None:
    study, data = tmp_path / "study", tmp_path / "data"
    assert wall_seconds([study, data], 2) is None
    job(study / "train/a.tsv", 90, 1000)  # 910 to 1000
    job(study / "b.tsv", 30, 1035)
    assert wall_seconds([study, data], 2) == 125
    job(data / "clips.tsv", 100, 905)  # just before: part of it
    assert wall_seconds([study, data], 2) == 230
    job(data / "clips.tsv", 100, 500)  # on another occasion
    assert wall_seconds([study, data], 2) == 125
    assert wall_seconds([study, data], 0) is None, "cores are not known"
    job(study / "late.tsv", 10, 5000)
    assert wall_seconds([study], 2) is None, "a stage ran again later"
    for file in study.rglob("*.tsv"):
        os.utime(file, (9000, 9000))
    assert wall_seconds([study], 1) is None, "copied files: more work at once than one core can do"
    assert [format_wall_time(394), format_wall_time(3725.4)] == ["6:34", "1:02:05"]
