"""What results were made with against what is configured now, as the commands that read results see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from board_studies import add_study
from rewind.cli.main import main
from rewind.commands import STUDY_RECORD
from rewind.config import load_dataset, load_study
from rewind.hashing import sha256_of

METRICS = "results/one/metrics.csv"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A finished study with the record that its tables' job writes."""
    add_study(tmp_path, "one", {"a": 90, "b": 40})
    monkeypatch.chdir(tmp_path)
    Path("results/one/tables").mkdir()
    write_record()
    return tmp_path


def write_record(**typed: object) -> None:
    study = load_study("one", overrides=typed)
    record = {
        "format": 1,
        "command": "snakemake --cores 4 --profile 'my profile' --config 'studies=[one, two]'",
        "overrides": {"studies": {"one": typed}} if typed else {},
        "study": study.fingerprint(),
        "dataset": load_dataset(study.dataset).fingerprint(),
        "files": {"metrics.csv": sha256_of(METRICS)},
    }
    Path("results/one", STUDY_RECORD).write_text(json.dumps(record))


def edit(file: str, text: str) -> None:
    path = Path(file)
    path.write_text(path.read_text() + text)


def boarded(capsys) -> tuple[int, str, str]:
    code = main(["board", "one"])
    return code, *capsys.readouterr()


def test_what_is_as_it_ran_is_shown_without_a_word(home, capsys):
    code, _, said = boarded(capsys)
    assert (code, said) == (0, "")


@pytest.mark.parametrize(
    "file, text, line",
    [
        ("config/studies/one.yaml", "statistics: {confidence: 0.6}\n", "statistics.confidence: 0.95 → 0.6"),
        (
            "config/studies/one.yaml",
            "evaluation: {item_to_text: best_caption}\n",
            "item_to_text: nothing → best_caption",
        ),
        ("config/studies/one.yaml", "seeds: [0, 1]\n", "seeds: 0, 1, 2 → 0, 1"),
        ("config/studies/one.yaml", "title: Another\n", "title: "),
        ("config/config.yaml", "", "statistics.confidence: 0.95 → 0.8"),
        ("config/datasets/shapes.yaml", "allow_overlap: true\n", "shapes.yaml: allow_overlap: nothing → true"),
    ],
)
def test_a_key_that_was_changed_since_is_named_with_both_values(home, capsys, file, text, line):
    if not Path(file).exists():
        Path(file).write_text("overrides: {studies.one.statistics.confidence: 0.8}\n")
    edit(file, text)
    for command in (["board", "one"], ["share", "one"]):
        assert main(command) == 1
        said = capsys.readouterr().err
        assert line in said, said
        assert "`snakemake --cores all results/one/tables --profile 'my profile' --config 'studies=[one, two]'`" in said


def test_more_seeds_are_what_power_is_asked_about(home, capsys):
    edit("config/studies/one.yaml", "seeds: [0, 1, 2, 3, 4]\n")
    assert main(["power", "one"]) == 0
    edit("config/studies/one.yaml", "frames: {max_frames: 3}\n")
    assert main(["power", "one"]) == 1 and "max_frames" in capsys.readouterr().err


def test_what_was_typed_is_repeated(home, capsys):
    write_record(statistics={"confidence": 0.6})
    assert boarded(capsys)[0] == 0
    assert {cell["confidence"] for cell in json.loads(Path("board/board.json").read_text())["cells"]} == {0.6}


def test_numbers_made_after_the_tables_are_refused(home, capsys):
    edit(METRICS, "\n")
    code, _, said = boarded(capsys)
    assert code == 1 and f"{METRICS}: not the file from which the study's tables were built" in said


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": 9, "overrides": {}, "study": {}, "dataset": {}, "files": {}}']
)
def test_a_broken_record_is_refused(home, capsys, content):
    Path("results/one", STUDY_RECORD).write_text(content)
    code, _, said = boarded(capsys)
    assert code == 1 and f"results/one/{STUDY_RECORD}: " in said and "Traceback" not in said


def test_results_without_a_record_are_compared_with_their_runs(home, capsys):
    Path("results/one", STUDY_RECORD).unlink()
    code, _, said = boarded(capsys)
    assert code == 0 and said.startswith("note: results/one: an earlier version of Rewind wrote it")
    edit("config/studies/one.yaml", "training: {epochs: 7}\n")
    code, _, said = boarded(capsys)
    assert code == 1 and "methods.a.training.epochs: 5 → 7" in said
