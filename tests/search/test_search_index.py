"""What `rewind search` keeps, and when it makes it anew; the runs that it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import search_runs
from messages import expect_error, expect_message, refusal
from rewind.io.files import read_csv, read_json, write_csv, write_json
from rewind.search.run import open_run
from search_runs import copy_study, make_study, search


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return make_study(tmp_path_factory.mktemp("walls"), meanP=2, frozen=30, ridge=1, chance=1, bow=1)


@pytest.fixture
def runs(study, tmp_path, monkeypatch) -> Path:
    return copy_study(study, tmp_path, monkeypatch)


def test_an_index_is_used_until_something_changes(runs, capsys):
    path = Path("results/walls/index/meanP.seed0.npz")
    code, first, err = search(capsys, runs / "meanP/seed0", "a red wall", "--index")
    assert code == 0 and f"index {path}: 7 items written" in err
    made = path.read_bytes()
    _, again, err = search(capsys, runs / "meanP/seed0", "a red wall", "--index")
    assert f"index {path}: 7 items" in err and "written" not in err and "gallery:" not in err
    assert first == again and path.read_bytes() == made
    with np.load(path) as archive:  # what is in the file is what is searched
        arrays = dict(archive)
    arrays["feature:video"] = arrays["feature:video"][::-1]
    np.savez(path, **arrays)
    assert search(capsys, runs / "meanP/seed0", "a red wall", "--index")[1] != first
    for content in (made[: len(made) // 2], b""):
        path.write_bytes(content)
        _, out, err = search(capsys, runs / "meanP/seed0", "a red wall", "--index")
        assert out == first and path.read_bytes() == made
        expect_message(next(line for line in err.splitlines() if line.startswith(f"index {path}: ")))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["model", "data", "keys"])
def test_a_stale_index_is_made_anew(runs, capsys, part):
    folder = runs / "frozen/seed0"
    search(capsys, folder, "red", "--index", "kept.npz")
    if part == "model":
        search_runs.train(Path.cwd(), "frozen", epochs=2)
    elif part == "data":
        items = read_csv("results/data/walls/items.csv")
        write_csv("results/data/walls/items.csv", items[items["item_id"] != "test_red_rev"])
        captions = read_csv("results/data/walls/captions/walls_test.csv")
        write_csv("results/data/walls/captions/walls_test.csv", captions[captions["video_id"] != "test_red_rev"])
    else:
        record = read_json(folder / "run.json")
        record["spec"]["frames"]["sampling"] = "head"
        write_json(folder / "run.json", record)
    code, _, err = search(capsys, folder, "red", "--index", "kept.npz")
    line = next(line for line in err.splitlines() if "stale" in line)
    assert code == 0 and "kept.npz" in line and part in line
    expect_message(line)
    assert ("items.csv: changed since" in err) == (part == "data")


def test_an_edit_of_the_code_makes_an_index_stale(runs, capsys, monkeypatch):
    search(capsys, runs / "meanP/seed0", "red", "--index")
    monkeypatch.setattr("rewind.search.searcher.compute_code_hash", lambda stage, parts: " ".join(parts))
    err = search(capsys, runs / "meanP/seed0", "red", "--index")[2]
    expect_message(next(line for line in err.splitlines() if "stale" in line))


def test_cached_features_that_changed_are_not_used(runs, capsys):
    _, before, _ = search(capsys, runs / "frozen/seed0", "a red wall")
    for method in ("frozen", "ridge"):
        _, out, _ = search(capsys, runs / method / "seed0", "a red wall", "--top", 1)
        assert "test_red " in out
    Path("results/walls/features/frames2.npz").write_bytes(b"other")
    _, after, err = search(capsys, runs / "frozen/seed0", "a red wall")
    assert after == before
    expect_message(next(line for line in err.splitlines() if "frames2.npz" in line))
    code, out, _ = search(capsys, runs / "ridge/seed0", "something black", "--top", 1)
    assert code == 0 and "test_black" in out


def test_runs_that_cannot_be_searched(runs, capsys):
    folder = runs / "meanP/seed0"
    refused(capsys, runs / "chance/seed0")
    refused(capsys, runs / "bow/seed0", "methods.*.model")
    record = runs / "chance/seed0/run.json"
    keys = read_json(record) | {"max_frames": 0}  # as of data without clips
    write_json(record, keys)
    refused(capsys, runs / "chance/seed0")
    keys["spec"]["method"]["model"] = "vectors"
    write_json(record, keys)
    refused(capsys, runs / "chance/seed0")
    refused(capsys, runs / "meanP/seed7")
    assert str(runs / "ridge/seed0") in refused(capsys, Path("results/walls"))
    (folder / "model.safetensors").unlink()
    Path("results/walls/.state/runs").mkdir(parents=True)
    said = refused(capsys, folder)
    assert "model.safetensors" in said and "run.json" not in said
    Path("results/walls/.state/runs/meanP.seed0.pt").touch()
    assert refused(capsys, folder) != said, "training has started"
    (folder / "run.json").unlink()
    assert "model.safetensors and run.json" in refused(capsys, folder)


def refused(capsys: pytest.CaptureFixture[str], folder: Path, place: str = "") -> str:
    """What is said instead of an answer."""
    code, _, err = search(capsys, folder, "red")
    assert code == 1
    expect_error(err, place or str(folder))
    return err


def test_records_that_do_not_fit(runs):
    folder = runs / "meanP/seed0"
    record = read_json(folder / "run.json")
    for change, key in (
        ({"spec": record["spec"] | {"colour": 1}}, ": spec.colour"),
        ({"data": {}}, ": data"),
        ({"data": {k.replace("walls", "doors"): v for k, v in record["data"].items()}}, ""),
    ):
        write_json(folder / "run.json", record | change)
        with refusal(f"{folder / 'run.json'}{key}"):
            open_run(folder)


@pytest.mark.parametrize(
    ("options", "option", "place"),
    [
        (["red", "--random", 2], "--random ", ""),
        (["red", "--top", 0], "--top 0: ", ""),
        (["--index", "red"], "--index: ", "--index"),
    ],
)
def test_options_that_make_no_sense(runs, capsys, options, option, place):
    code, _, err = search(capsys, runs / "meanP/seed0", *options)
    assert code == 1 and err.startswith(f"error: {option}")
    expect_error(err, place)


def test_an_empty_split_is_named(runs, capsys):
    items = read_csv("results/data/walls/items.csv")
    write_csv(
        "results/data/walls/items.csv", items.assign(status=items["status"].where(items["split"] != "test", "bad"))
    )
    refused(capsys, runs / "frozen/seed0", "results/data/walls/items.csv")
