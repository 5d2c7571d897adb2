"""``python tools/publish``, as its user runs it: store, print documents, check them, compare machines."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from documents import marked_blocks
from library import _stored_files
from messages import expect_message
from published_runs import PNG, ROOT, make_checkout, make_results, publish
from rewind.analyses.trials import read_trials
from rewind.workflow.config import load_config
from store import result_tables

LINE = re.compile(r"^    [a-z]  (\w+) +Shapes +(.*)$", re.M)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the demo was published on two machines that do not agree on tightTransf."""
    folder = make_checkout(tmp_path_factory.mktemp("checkout"))
    make_results(folder, "demo", weak=("tightTransf",), shift=9.0, instructions="AVX512")
    moved = (folder / "results/demo").rename(folder / "elsewhere")
    make_results(folder, "demo")
    for arguments in ((), ("--from", str(moved))):
        done = publish(folder, "demo", *arguments)
        assert done.returncode == 0, done.stderr
    return folder


def test_documents_print_the_first_machines_numbers_with_commit_and_date(checkout: Path) -> None:
    text = (checkout / "docs/demo.md").read_text(encoding="utf-8")
    where = "commit 0123456, 2 March 2026, A Processor, 2 cores, AVX2; run again on commit 0123456, 2 March 2026, A "
    assert where in text
    assert re.search(r"^    a  meanP +Shapes +20\.5±0\.4 ", text, re.M), "AVX2 is first by name"
    assert (checkout / "docs/images/demo_intervals.png").read_bytes() == PNG + b"demo intervals 0.0"
    assert "29.5±0.4" not in text, "the other machine's mean of meanP"


def test_marks_are_those_of_both_machines(checkout: Path) -> None:
    text = (checkout / "docs/demo.md").read_text(encoding="utf-8")
    assert "significantly better than method a\n    Only marks that both machines agree on are shown.\n" in text
    marks = dict(
        LINE.findall(next(b.body for b in marked_blocks(checkout, checkout / "docs/demo.md") if "table hard" in b.what))
    )
    assert marks["seqTransf"].startswith("28.5±0.4 (a,b) "), "better than meanP and seqLSTM on both machines"
    assert "(" not in marks["tightTransf"] and "*" not in marks["tightTransf"], "on AVX512 it differs from none"
    assert claims(checkout) > 0


def test_an_answer_is_that_of_both_machines(checkout: Path) -> None:
    """Made-up accuracies are below chance; on AVX512 that of tightTransf is not shown to be."""
    (block,) = (b for b in marked_blocks(checkout, checkout / "docs/demo.md") if b.what == "demo answer")
    nobody, rest = block.body.split(". Below chance: ")
    below, unlike = rest.split(". Not ")
    assert nobody == "No method was shown to know which way time runs"
    assert [part.split(" (")[0] for part in below.split("), ")] == ["seqTransf", "seqLSTM", "meanP"]
    assert unlike.startswith("the same on both machines: tightTransf (32.5% [") and unlike.endswith("on 0 of them.")


def test_every_mark_of_the_demo_s_page_is_in_every_stored_machines_comparisons() -> None:
    """Of this checkout itself; nothing else may be claimed."""
    claims(ROOT)


def claims(root: Path) -> int:
    """Check the demo's letters and stars against the stored comparisons by themselves; returns how many there are."""
    files, count = sorted((root / "docs/published/demo").glob("*/pairs.csv")), 0
    for block in marked_blocks(root, root / "docs/demo.md") if files else ():
        if not block.what.startswith("demo table "):
            continue
        head, rows = cells(block.body)
        named = {row[0][0]: row[1] for row in rows}
        for at, title in enumerate(head[2:], 3):
            for file in files:
                setting = block.what.split()[-1]
                better = winners(pd.read_csv(file), setting, title)
                for row in rows:
                    letters = re.search(r"\(([a-z,]+)\)", row[at])
                    for letter in letters[1].split(",") if letters else ():
                        assert (row[1], named[letter]) in better, f"{file}: {block.what}, {title}: {row[1]}, {letter}"
                        count += 1
                    if row[at].startswith("*"):
                        best = best_method(pd.read_csv(file.with_name("intervals.csv")), setting, title)
                        assert better and (best, row[1]) not in better, f"{file}: {title}: {row[1]}"
                        count += 1
    return count


def cells(body: str) -> tuple[list[str], list[list[str]]]:
    """Titles, and per method with a letter: the letter, its name, Train, numbers. A column begins below its title."""
    lines = [line.removeprefix("    ") for line in body.splitlines()]
    head = next(line for line in lines if line.startswith("Method "))
    starts = [match.start(1) for match in re.finditer(r"(?:^| {2,})(\S)", head)]
    cut = [
        [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        for line in [head, *(line for line in lines if re.match(r"[a-z]  \S", line))]
    ]
    return cut[0], [[*re.split(" +", row[0], maxsplit=1), *row[1:]] for row in cut[1:]]


def best_method(intervals: pd.DataFrame, setting: str, title: str) -> str:
    """The method with the best estimate in a column, chance aside."""
    rows, sign = in_column(intervals[intervals["method"] != "chance"], setting, title)
    return str(rows.loc[(sign * rows["estimate"]).idxmax(), "method"])


def in_column(rows: pd.DataFrame, setting: str, title: str) -> tuple[pd.DataFrame, int]:
    """The rows of a column, and 1 if a higher value is better, else -1."""
    way = "item_to_text" if title.startswith("V2T") else "text_to_item"
    metric = title.split()[-2].replace("accuracy", "R@1")
    found = rows[(rows["setting"] == setting) & (rows["direction"] == way) & (rows["metric"] == metric)]
    return found, -1 if metric in ("MdR", "MnR") else 1


def winners(pairs: pd.DataFrame, setting: str, title: str) -> set[tuple[str, str]]:
    """(better, worse) of a column's significant pairs."""
    rows, sign = in_column(pairs, setting, title)
    found = rows[(rows["p_holm"] < 0.05) & (rows["difference"] != 0)]
    return {(r.first, r.second) if sign * r.difference > 0 else (r.second, r.first) for r in found.itertuples()}


def test_an_edited_digit_and_another_picture_fail_the_check_which_says_where(checkout: Path) -> None:
    page, picture = checkout / "docs/demo.md", checkout / "docs/images/demo_intervals.png"
    sound, drawn = page.read_text(encoding="utf-8"), picture.read_bytes()
    done = publish(checkout, "--check")
    assert done.returncode == 0, done.stdout
    line = next(n for n, text in enumerate(sound.splitlines(), 1) if "published: demo table hard" in text)
    try:
        page.write_text(re.sub(r"(b  seqLSTM +Shapes +\*?)24\.5", r"\g<1>24.6", sound), encoding="utf-8")
        assert page.read_text(encoding="utf-8") != sound
        picture.write_bytes(PNG + b"another")
        done = publish(checkout, "--check")
    finally:
        page.write_text(sound, encoding="utf-8")
        picture.write_bytes(drawn)
    assert done.returncode == 1 and f"docs/demo.md:{line}" in done.stdout
    assert re.search(r"^-.*24\.6±", done.stdout, re.M) and re.search(r"^\+.*24\.5±", done.stdout, re.M)
    assert "docs/images/demo_report.png" in done.stdout, "no browser took it"
    assert "docs/calibration.md:" in done.stdout and "Traceback" not in done.stderr
    expect_message("\n".join(line for line in done.stdout.splitlines() if "docs/images/demo_" in line))


def test_what_is_stored_is_small_and_names_no_place(checkout: Path) -> None:
    folders = sorted((checkout / "docs/published/demo").iterdir())
    assert [folder.name for folder in folders] == ["avx2", "avx512"]
    for folder in folders:
        files = sorted(folder.iterdir())
        assert [file.name for file in files] == [
            *("blind.csv", "chance.csv", "gaps.csv", "intervals.csv", "keys.json", "metrics.csv", "order.csv"),
            *("pairs.csv", "record.json"),
        ]  # fmt: skip
        assert sum(file.stat().st_size for file in files) < 150_000
        for file in files:
            text = file.read_text(encoding="utf-8")
            assert str(checkout) not in text and platform.node() not in text and "/home/" not in text
    stored = (folders[0] / "metrics.csv").read_text(encoding="utf-8")
    assert stored == (checkout / "results/demo/metrics.csv").read_text(encoding="utf-8"), "digit for digit"
    machine = json.loads((folders[1] / "record.json").read_text())["machine"]
    assert machine["instructions"] == ["AVX512"] and machine["cores"] == [2]


def test_every_table_of_a_report_is_stored_and_read_again(tmp_path: Path, monkeypatch) -> None:
    """What the plan lists for a report is what is published: also what few studies have."""
    root = make_checkout(tmp_path)
    study = yaml.safe_load((root / "config/studies/demo.yaml").read_text())
    study["evaluation"] |= {"transductive": ["dual_softmax"]}
    study["tables"] = study.get("tables", {}) | {"columns": ["R@1", "Rank"]}
    study["sweep"] = {"keys": {"training.lr": [1.0e-3, 2.0e-3]}}
    (root / "config/studies/demo.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    monkeypatch.chdir(root)
    results = make_results(root, "demo")
    studies, datasets = load_config({"studies": ["demo"]})
    tables = result_tables(studies["demo"], datasets["shapes"])
    assert {"transductive", "trials", "places", "groups"} <= set(tables)
    for files in tables.values():
        for within in files.values():
            path = results / within
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                trial = "trial,epoch,valid_sum,training.lr\na,1,2.0,0.1\n"
                path.write_text(trial if "sweep" in within else "method,setting\n")
    done = publish(root, "demo")
    stored = root / "docs/published/demo/avx2"
    for files in tables.values():
        for name, within in files.items():
            heads = [path.read_text().splitlines()[0] for path in (stored / name, results / within)]
            assert heads[0] == heads[1], done.stderr
    read = _stored_files(studies["demo"], datasets["shapes"], stored)
    for field in ("places", "chance"):
        assert Path(getattr(read, field)).is_file()
    assert set(read.analyses) == {"transductive", "order", "blind", "groups"}
    assert all(Path(path).is_file() for path in read.analyses.values())
    assert set(read_trials(read.trials)["method"]) == set(studies["demo"].trained())


def test_machines_are_compared_cell_by_cell(checkout: Path) -> None:
    done = publish(checkout, "demo", "--compare", "avx2", "avx512")
    assert done.returncode == 0, done.stderr
    head = next(line for line in done.stdout.splitlines() if line.startswith("Method"))
    assert "avx2 R@1 ↑" in head and "avx512 R@1 ↑" in head
    # Ends lie 3.25 below and 4.5 above a value, and R@1 is 9 points higher on the second machine.
    assert re.search(r"meanP, hard, text_to_item, R@1: avx2 20\.500 \[17\.250, 25\.000\] does not contain", done.stdout)
    assert "meanP, hard, text_to_item, MRR:" not in done.stdout, "9 points of R@1 are 0.09 of MRR, well inside"
    assert "hard, tightTransf, R@1 ↑: avx2 *(a,b,c), avx512 none" in done.stdout


@pytest.mark.slow
def test_what_cannot_be_done_is_said(checkout: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(checkout)
    for arguments, named in (
        (["demo", "--compare", "avx2", "avx"], "avx2, avx512"),
        (["--compare"], ""),
        (["demmo"], "config/studies/demmo.yaml"),
        (["viclip_step"], "viclip_step"),
        (["gap_calibration"], "results/gap_calibration.csv: "),
        (["emoji"], "results/emoji/metrics.csv: "),
    ):
        done = publish(checkout, *arguments)
        assert done.returncode == 1 and named in done.stderr
        expect_message(done.stderr)
    done = publish(checkout / "docs", "--check")
    assert done.returncode == 1
    expect_message(done.stderr)


def test_results_of_other_keys_are_refused(checkout: Path) -> None:
    file = checkout / "results/demo/runs/seqLSTM/seed1/run.json"
    sound = file.read_text()
    run = json.loads(sound)
    run["spec"]["method"]["training"]["epochs"] = 1
    try:
        file.write_text(json.dumps(run))
        done = publish(checkout, "demo")
    finally:
        file.write_text(sound)
    assert done.returncode == 1 and "seqLSTM" in done.stderr
    assert re.search(r"training.epochs: 1 → \d+", done.stderr) and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_marker_that_cannot_be_understood_is_named_with_its_line(checkout: Path) -> None:
    page = checkout / "docs/search.md"
    sound = page.read_text(encoding="utf-8")
    asked = ("demo table", 'demo number hard "nobody" "R@1 ↑"', 'demo markdown hard columns="R@2"', 'demo table "hard')
    lines = [f"<!-- published: {what} --><!-- end -->" for what in asked]
    try:
        page.write_text("\n".join(["# Search", *lines]), encoding="utf-8")
        done = publish(checkout, "--check")
        page.write_text("x\n<!-- published: demo made -->", encoding="utf-8")
        open_ended = publish(checkout)
    finally:
        page.write_text(sound, encoding="utf-8")
    assert done.returncode == 1 and all(f"line {n}, {what}:" in done.stderr for n, what in enumerate(asked, 2))
    for said in ("write `<study> table|", "row 'nobody' of", "no column 'R@2' in", "between double quotes"):
        assert said in done.stderr
    assert open_ended.returncode == 1 and "docs/search.md: " in open_ended.stderr
    expect_message(open_ended.stderr)


def test_a_browser_on_path_takes_the_picture_of_the_explorer(checkout: Path, tmp_path: Path) -> None:
    """A stand-in for the browser: what is asked of it, and that its picture is kept."""
    program = tmp_path / "chromium"
    program.write_text(
        "#!/bin/sh\nfor word; do case $word in\n"
        "--screenshot=*) printf '\\211PNG of a page' > \"${word#--screenshot=}\";;\n"
        f'esac; page=${{word#file://}}; done\necho "$@" > {tmp_path}/asked\ncp "$page" {tmp_path}/shown\n'
    )
    program.chmod(0o755)
    page = checkout / "results/demo/report.html"
    page.write_text("<head></head><main><p>above</p><section id='explorer'></section></main>")
    done = publish(checkout, "demo", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0 and "docs/images/demo_report.png: " in done.stdout, done.stdout + done.stderr
    assert (checkout / "docs/images/demo_report.png").read_bytes() == b"\x89PNG of a page"
    asked = (tmp_path / "asked").read_text()
    assert "--headless" in asked and "--window-size=1440,1000" in asked
    shown = (tmp_path / "shown").read_text()
    assert "main > :not(#explorer) { display: none" in shown and "<section id='explorer'>" in shown
    assert page.read_text().startswith("<head></head>"), "the page itself stays as it is"


def test_a_run_records_its_instructions() -> None:
    code = "import json; from rewind.provenance import hardware; print(json.dumps(hardware()))"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["instructions"] == "DEFAULT" and found["onednn_max"] == "AVX2" and found["cores"] >= 1
