"""What `rewind search` keeps, and when it makes it anew; the runs that it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import search_runs
from rewind.errors import RewindError
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
    for content, why in ((made[: len(made) // 2], "could not be read"), (b"", "could not be read")):
        path.write_bytes(content)
        _, out, err = search(capsys, runs / "meanP/seed0", "a red wall", "--index")
        assert why in err and "made again" in err and out == first and path.read_bytes() == made


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
    assert code == 0 and "was stale (changed: " in err and part in err and "made again" in err
    assert ("items.csv: changed since" in err) == (part == "data")


def test_an_edit_of_the_code_makes_an_index_stale(runs, capsys, monkeypatch):
    search(capsys, runs / "meanP/seed0", "red", "--index")
    monkeypatch.setattr("rewind.search.searcher.compute_code_hash", lambda stage, parts: " ".join(parts))
    err = search(capsys, runs / "meanP/seed0", "red", "--index")[2]
    assert "stale (changed: code); made again" in err


def test_cached_features_that_changed_are_not_used(runs, capsys):
    _, before, _ = search(capsys, runs / "frozen/seed0", "a red wall")
    for method in ("frozen", "ridge"):
        _, out, _ = search(capsys, runs / method / "seed0", "a red wall", "--top", 1)
        assert "test_red " in out
    Path("results/walls/features/frames2.npz").write_bytes(b"other")
    _, after, err = search(capsys, runs / "frozen/seed0", "a red wall")
    assert "clips are read instead" in err and after == before
    code, out, _ = search(capsys, runs / "ridge/seed0", "something black", "--top", 1)
    assert code == 0 and "test_black" in out


def test_runs_that_cannot_be_searched(runs, capsys):
    folder = runs / "meanP/seed0"
    assert "scores all items the same" in search(capsys, runs / "chance/seed0", "red")[2]
    assert "'bow' cannot search" in search(capsys, runs / "bow/seed0", "red")[2]
    record = runs / "chance/seed0/run.json"
    keys = read_json(record) | {"max_frames": 0}  # as of data without clips
    write_json(record, keys)
    assert "scores all items the same" in search(capsys, runs / "chance/seed0", "red")[2]
    keys["spec"]["method"]["model"] = "vectors"
    write_json(record, keys)
    assert "a run of vectors from files has nothing that reads a new" in search(capsys, runs / "chance/seed0", "red")[2]
    assert "no such folder" in search(capsys, runs / "meanP/seed7", "red")[2]
    err = search(capsys, "results/walls", "red")[2]
    assert "name one run" in err and str(runs / "ridge/seed0") in err
    (folder / "model.safetensors").unlink()
    Path("results/walls/.state/runs").mkdir(parents=True)
    assert "not finished: model.safetensors is missing. `snakemake" in search(capsys, folder, "red")[2]
    Path("results/walls/.state/runs/meanP.seed0.pt").touch()
    assert "Training has started" in search(capsys, folder, "red")[2]
    (folder / "run.json").unlink()
    assert "model.safetensors and run.json are missing" in search(capsys, folder, "red")[2]


def test_records_that_do_not_fit(runs):
    folder = runs / "meanP/seed0"
    record = read_json(folder / "run.json")
    for change, message in (
        ({"spec": record["spec"] | {"colour": 1}}, "spec.colour"),
        ({"data": {}}, "items.csv and the training captions missing"),
        ({"data": {k.replace("walls", "doors"): v for k, v in record["data"].items()}}, "its data are missing"),
    ):
        write_json(folder / "run.json", record | change)
        with pytest.raises(RewindError, match=message):
            open_run(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["red", "--random", 2], "leave out --random or the query"),
        (["red", "--top", 0], "at least 1"),
        (["--index", "red"], "is not an .npz file"),
    ],
)
def test_options_that_make_no_sense(runs, capsys, options, message):
    code, _, err = search(capsys, runs / "meanP/seed0", *options)
    assert code == 1 and message in err


def test_an_empty_split_is_named(runs, capsys):
    items = read_csv("results/data/walls/items.csv")
    write_csv(
        "results/data/walls/items.csv", items.assign(status=items["status"].where(items["split"] != "test", "bad"))
    )
    assert "'test' has no usable item" in search(capsys, runs / "frozen/seed0", "red")[2]
