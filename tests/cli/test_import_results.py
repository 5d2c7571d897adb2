"""``rewind import results``: numbers of other tools as rows that a board quotes, and back again what Rewind wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from board_studies import add_study
from messages import expect_error, expect_message
from rewind.cli.main import main
from rewind.io.files import read_csv, read_spreadsheet

MTEB = {
    "task_name": "MSRVTTT2V",
    "mteb_version": "2.26.24",
    "dataset_revision": "abc",
    "scores": {"test": [{"main_score": 0.6, "hit_rate_at_1": 0.415, "recall_at_1": 0.4, "hf_subset": "default"}]},
}
RECORD = {
    "schema_version": "0.3.0",
    "evaluation_id": "lab/model-x/1780000000",
    "eval_library": {"name": "theirs", "version": "1"},
    "model_info": {"name": "Model X", "id": "lab/model-x"},
    "evaluation_results": [
        {
            "evaluation_name": "films",
            "source_data": {"dataset_name": "films", "source_type": "other"},
            "metric_config": {"metric_name": "recall_at_10", "lower_is_better": False, "max_score": 1},
            "score_details": {"score": 0.9},
        },
        {
            "evaluation_name": "films",
            "source_data": {"dataset_name": "films", "source_type": "other"},
            "metric_config": {"metric_name": "R@1", "lower_is_better": False, "max_score": 1},
            "score_details": {"score": 0.4375, "uncertainty": {"num_samples": 16}},
        },
    ],
}


@pytest.fixture
def home(tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rewind"])
    add_study(tmp_path, "one", {"a": 60, "b": 30, "chance": 1}, tests=True)
    capsys.readouterr()
    return tmp_path


def rows_of(path: str) -> list[tuple]:
    return list(read_spreadsheet(Path(path)).itertuples(index=False, name=None))


def test_what_rewind_wrote_comes_back(home, capsys):
    assert main(["export", "results", "one", "forms"]) == 0
    intervals = read_csv(home / "results/one/statistics/intervals.csv")
    wanted = intervals[(intervals["metric"] == "R@1") & (intervals["direction"] == "text_to_item")]
    capsys.readouterr()
    assert main(["import", "results", "forms/every_eval_ever/a.json", "a.csv"]) == 0
    expect_message(capsys.readouterr().out)
    found = rows_of("a.csv")
    assert [row[:3] for row in found] == [("a", "shapes", setting) for setting in ("origin", "hard")]
    expected = wanted[wanted["method"] == "a"]["estimate"].tolist()
    assert [row[3] for row in found] == pytest.approx(expected) and found[0][4].startswith("Every Eval Ever, one/a/")

    files = sorted(map(str, Path("forms/mteb/b").glob("*.json")))
    hard = next(name for name in files if name.endswith("HardT2V.json"))
    assert main(["import", "results", hard, "b.csv", "--data-set", "shapes", "--method", "b, again"]) == 0
    value = wanted[(wanted["method"] == "b") & (wanted["setting"] == "hard")]["estimate"].item()
    assert rows_of("b.csv") == [
        ("b, again", "shapes", "hard", pytest.approx(value, abs=1e-3), "MTEB, RewindShapesHardT2V")
    ]
    assert main(["board", "one", "--quoted", "b.csv"]) == 0
    assert "b, again" in Path("board/index.html").read_text()
    back = next(name for name in files if name.endswith("HardV2T.json"))
    assert main(["import", "results", back, "c.csv", "--data-set", "shapes", "--method", "b"]) == 1
    expect_error(capsys.readouterr().err, back)


def test_numbers_of_others_need_what_their_files_do_not_say(home, capsys):
    (home / "task.json").write_text(json.dumps(MTEB))
    (home / "record.json").write_text(json.dumps(RECORD))
    given = ["--data-set", "films", "--setting", "test"]
    assert main(["import", "results", "task.json", "out.csv", *given]) == 1
    expect_error(capsys.readouterr().err, "task.json")
    (home / "model_meta.json").write_text(json.dumps({"name": "lab/embedder"}))
    assert main(["import", "results", "task.json", "record.json", "out.csv", *given]) == 0
    assert rows_of("out.csv") == [
        ("lab/embedder", "films", "test", 41.5, "MTEB, MSRVTTT2V"),
        ("Model X", "films", "test", 43.75, "Every Eval Ever, lab/model-x/1780000000"),
    ]
    assert main(["import", "results", "record.json", "out.csv", *given, "--method", "X", "--source", "their page"]) == 0
    assert rows_of("out.csv") == [("X", "films", "test", 43.75, "their page")]
    assert main(["import", "results", "record.json", "out.csv", "--data-set", "films"]) == 1
    expect_error(capsys.readouterr().err, "record.json")


def edited(content, path, value):
    changed = json.loads(json.dumps(content))
    part = changed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return changed


SCORE, SECOND = ("scores", "test", 0, "hit_rate_at_1"), ("evaluation_results", 1)
HOSTILE = {
    "a list": ("", []),
    "another object": ("", {"a": 1}),
    "no mapping of scores": ("scores", edited(MTEB, ("scores",), "x")),
    "two subsets": ("scores.test", edited(MTEB, ("scores", "test"), [{}, {}])),
    "no known score": ("scores.test", edited(MTEB, ("scores", "test"), [{"main_score": 0.5}])),
    "a text": ("scores.test.hit_rate_at_1", edited(MTEB, SCORE, "0.5")),
    "a truth": ("scores.test.hit_rate_at_1", edited(MTEB, SCORE, True)),
    "percent": ("scores.test.hit_rate_at_1", edited(MTEB, SCORE, 41.5)),
    "a task of no name": ("task_name", edited(MTEB, ("task_name",), 5)),
    "results of no list": ("evaluation_results", edited(RECORD, ("evaluation_results",), {})),
    "a result of no object": ("evaluation_results[0]", edited(RECORD, ("evaluation_results",), [5])),
    "nothing": ("", edited(RECORD, ("evaluation_results",), [])),
    "no range": ("evaluation_results[1].metric_config", edited(RECORD, (*SECOND, "metric_config", "max_score"), 7)),
    "out of range": (
        "evaluation_results[1].score_details.score",
        edited(RECORD, (*SECOND, "score_details", "score"), 2),
    ),
    "no score": ("evaluation_results[1].score_details.score", edited(RECORD, (*SECOND, "score_details"), {})),
    "a formula for a name": ("", edited(RECORD, ("model_info", "name"), "=cmd()")),
    "a control character": ("", edited(RECORD, ("model_info", "name"), "a\u001b[31m")),
    "no model": ("model_info", edited(RECORD, ("model_info",), None)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_anybody_may_have_written_is_refused_with_its_place(home, capsys, name):
    place, content = HOSTILE[name]
    (home / "it.json").write_text(json.dumps(content))
    given = ["--data-set", "films", "--setting", "test", *(["--method", "m"] if "task_name" in str(content) else [])]
    assert main(["import", "results", "it.json", "out.csv", *given]) == 1
    expect_error(capsys.readouterr().err, ": ".join(filter(None, ["it.json", place])))
    assert not Path("out.csv").exists()


def test_two_numbers_of_one_method_are_refused(home, capsys):
    (home / "record.json").write_text(json.dumps(RECORD))
    command = ["import", "results", "record.json", "record.json", "out.csv", "--data-set", "films", "--setting", "test"]
    assert main(command) == 1
    expect_error(capsys.readouterr().err, "record.json")
    assert main([*command[:3], "out.csv", "--data-set", "films", "--setting", "tests"]) == 1
    expect_error(capsys.readouterr().err, "--setting")
