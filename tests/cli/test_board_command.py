"""`rewind board` as a user starts it: studies by name, the files that it writes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from board_studies import add_study
from checkout import ROOT
from messages import expect_error, expect_message
from page_reader import Reader
from rewind.cli.main import main


@pytest.fixture
def home(tmp_path, monkeypatch):
    add_study(tmp_path, "one", {"a": 90, "b": 40, "chance": 1})
    add_study(tmp_path, "two", {"c": 60})
    add_study(tmp_path, "later", {"d": 95}, frames=8)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_board_over_studies_in_a_process_of_its_own(home):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "rewind", "board", "one", "two", "later"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    expect_message(done.stdout)
    reader = Reader((home / "board/index.html").read_text())
    links = [address for address in reader.addresses if address.endswith("report.html")]
    assert {(home / "board" / link).resolve() for link in links} == {
        home / "results" / name / "report.html" for name in ("one", "two", "later")
    }
    content = json.loads((home / "board/board.json").read_text())
    assert [(group["letter"], group["studies"], group["frames"]) for group in content["groups"]] == [
        ("A", ["one", "two"], 12),
        ("B", ["later"], 8),
    ]
    assert not {cell["rank_low"] for cell in content["cells"] if cell["method"] in ("d", "chance")} - {None}
    assert str(home) not in "".join(path.read_text() for path in (home / "board").iterdir()), "a path of this machine"


HEADER = "method,data_set,setting,value,source\n"


def test_numbers_of_papers_are_quoted_without_rank_and_interval(home, capsys):
    rows = "X-CLIP,shapes,origin,46.1,Ma et al. 2022\nX-CLIP,shapes,hard,30.5,Ma et al. 2022\n"
    Path("papers.csv").write_text(HEADER + rows)
    assert main(["board", "one", "--quoted", "papers.csv"]) == 0
    content = json.loads((home / "board/board.json").read_text())
    assert content["quoted"] == [
        {"label": "X-CLIP", "data_set": "shapes", "source": "Ma et al. 2022", "values": {"origin": 46.1, "hard": 30.5}}
    ]
    assert "X-CLIP" not in {cell["label"] for cell in content["cells"]}
    row = re.search(r'<tr data-kind="quoted".*?</tr>', (home / "board/index.html").read_text(), re.S)[0]
    assert "46.1" in row and "quoted: Ma et al. 2022" in row and 'class="rank"' not in row
    assert "Quoted numbers" in (home / "board/index.html").read_text()


@pytest.mark.parametrize(
    "row",
    [
        "X,other,origin,40,P",
        "X,shapes,origin,140,P",
        "X,shapes,origin,,P",
        "X,shapes,far,40,P",
        "X,shapes,hard,40,",
        "X,shapes,origin,40,P\nX,shapes,hard,30,Q",
        "X,shapes,origin,40,P\nX,shapes,origin,30,P",
    ],
    ids=["data set", "over 100", "no value", "setting", "no source", "two sources", "twice"],
)
def test_quoted_numbers_that_cannot_be_are_refused(home, capsys, row):
    Path("papers.csv").write_text(f"{HEADER}{row}\n")
    assert main(["board", "one", "--quoted", "papers.csv"]) == 1
    expect_error(capsys.readouterr().err, f"papers.csv: row {3 if chr(10) in row else 2}")
    assert not Path("board").exists()


def test_pages_are_copied_for_a_site_of_its_own(home, capsys):
    data = home / "results/one/report_data"
    data.mkdir()
    (data / "ranks.js").write_text("1")
    assert main(["board", "one", "two", "--pages", "--out", "site"]) == 0
    capsys.readouterr()
    links = {a for a in Reader((home / "site/index.html").read_text()).addresses if a.endswith(".html")}
    assert links == {"studies/1-one/report.html", "studies/2-two/report.html"}
    assert all((home / "site" / link).is_file() for link in links)
    assert (home / "site/studies/1-one/report_data/ranks.js").read_text() == "1"


def test_a_folder_of_results_is_a_study_and_leads_to_no_page_outside(home, tmp_path, capsys, monkeypatch):
    elsewhere = tmp_path / "work/deep"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    assert main(["board", "../../results/one"]) == 0
    capsys.readouterr()
    assert not [a for a in Reader(Path("board/index.html").read_text()).addresses if "report.html" in a]


def test_a_second_board_replaces_the_first_and_nothing_else_is_overwritten(home, capsys):
    assert main(["board", "one"]) == 0 and main(["board", "one", "two"]) == 0
    (home / "mine").mkdir()
    (home / "mine/thesis.txt").write_text("")
    capsys.readouterr()
    assert main(["board", "one", "--out", "mine"]) == 1
    expect_error(capsys.readouterr().err, "--out: mine")
    assert [path.name for path in (home / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("studies", [["none"], ["one", "one"], ["one", "results/two", "results/one"]], ids=" ".join)
def test_what_is_no_study_or_is_there_twice_is_refused(home, capsys, studies):
    assert main(["board", *studies]) == 1
    expect_error(capsys.readouterr().err, studies[0])
    assert not (home / "board").exists()


def test_results_without_their_configuration_are_refused(home, capsys):
    (home / "config/studies/two.yaml").unlink()
    assert main(["board", "one", "two"]) == 1
    expect_error(capsys.readouterr().err, "two")
