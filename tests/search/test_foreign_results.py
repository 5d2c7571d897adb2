"""Results that somebody else made: a search runs none of their code, and shows no file outside of their data."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from checkout import ROOT
from messages import expect_error, expect_message, refusal
from rewind.cli.main import main
from rewind.io.files import read_csv, read_json, write_csv, write_json, write_npz
from rewind.provenance import file_hash
from rewind.report.run_pictures import item_picture
from rewind.search.render import StripReader
from rewind.search.run import open_run
from rewind.search.searcher import load_searcher
from search_runs import copy_study, make_study

HEAD = "results/walls/runs/meanP/seed0"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("walls"), meanP=1)


@pytest.fixture
def study(made, tmp_path, monkeypatch) -> Path:
    copy_study(made, tmp_path / "own", monkeypatch)
    return Path.cwd()


def change(path: str, keys: dict) -> None:
    write_json(path, read_json(path) | keys)


def said(capsys, *arguments: object) -> str:
    assert main(["search", HEAD, "red", *map(str, arguments)]) == 1
    return capsys.readouterr().err


def refused(capsys, place: str, *arguments: object, varying: str = "") -> None:
    expect_error(said(capsys, *arguments), place, varying=varying)


# Files

LINKS = ["../../../secret.mp4", "{}/secret.mp4", "videos/link.mp4", "videos/folder/secret.mp4"]


def put_item(study: Path, path: str) -> None:
    """The blue wall's clip is now whatever ``path`` leads to; so is the file outside of the results, a sound clip."""
    data = study / "results/data/walls"
    shutil.copy(data / "videos/test_blue.mp4", study / "secret.mp4")
    (data / "videos/link.mp4").symlink_to(study / "secret.mp4")
    (data / "videos/folder").symlink_to(study)
    items = read_csv(data / "items.csv")
    items.loc[items["item_id"] == "test_blue", "path"] = path.format(study)
    write_csv(data / "items.csv", items)
    record = read_json(f"{HEAD}/run.json")  # whoever made the folder made both fit
    change(
        f"{HEAD}/run.json", {"data": record["data"] | {"results/data/walls/items.csv": file_hash(data / "items.csv")}}
    )


@pytest.mark.parametrize("path", LINKS)
def test_files_outside_of_the_data_are_not_served(study, path):
    pytest.importorskip("flask")
    from rewind.search.server import create_app

    put_item(study, path)
    run = open_run(HEAD)
    searcher = load_searcher(run, say=lambda text: None)
    client = create_app(run, searcher).test_client()
    for address in ("/strip/test_blue.jpg", "/clip/test_blue"):
        answer = client.get(address)
        assert answer.status_code == 404 and "--trust" in answer.text
        expect_message(re.search("<p>(.*?)</p>", answer.text)[1])
        assert client.get(address.replace("blue", "red")).status_code == 200
    trusting = create_app(run, searcher, trust=True).test_client()
    assert trusting.get("/clip/test_blue").data == (study / "secret.mp4").read_bytes()
    assert trusting.get("/strip/test_blue.jpg").status_code == 200


@pytest.mark.parametrize("path", LINKS)
def test_nor_are_they_drawn(study, capsys, path):
    put_item(study, path)
    refused(capsys, Path(path).name, "--save", "found", "--top", 7)
    assert not list(Path("found").glob("*.png"))


@pytest.mark.parametrize("path", LINKS[:2])
def test_nor_do_they_come_into_a_report(study, path):
    put_item(study, path)
    data = Path("results/data/walls")
    with refusal("results/data/walls/items.csv"):
        item_picture(data, path.format(study), False, 3, 32)
    Path("results/data/other/videos").mkdir(parents=True)
    shutil.copy(data / "videos/test_red.mp4", "results/data/other/videos")
    for own in ("videos/link.mp4", "../other/videos/test_red.mp4"):  # the link is on this machine, no table names it
        assert item_picture(data, own, False, 3, 32).shape[1:] == (32, 32, 3)


def test_results_behind_a_link_are_served_as_others(study):
    shutil.move("results", "elsewhere")
    Path("results").symlink_to("elsewhere")
    items = read_csv("results/data/walls/items.csv")
    assert StripReader(items, Path("results/data/walls")).jpeg(0)


# Code

MARK = "open('ran', 'w')\n"


@pytest.mark.parametrize(
    "key, spec",
    [
        ("method.model", {"method": {"model": "stranger.Model"}}),
        ("method.head", {"method": {"head": "stranger.Head"}}),
        ("backbone.kind", {"backbone": {"kind": "stranger.Towers"}}),
        ("backbone.weights", {"backbone": {"weights": "w.pt", "allow_torchscript": True, "kind": "viclip"}}),
    ],
)
def test_code_that_a_record_names_is_not_run(study, capsys, monkeypatch, key, spec):
    Path("stranger.py").write_text(MARK)
    monkeypatch.syspath_prepend(str(study))
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    record = read_json(f"{HEAD}/run.json")
    changed = {name: block | spec.get(name, {}) for name, block in record["spec"].items()}
    change(f"{HEAD}/run.json", {"spec": changed})
    refused(capsys, f"{HEAD}/run.json: spec.{key}")
    assert not Path("ran").exists()
    if key != "backbone.weights":
        said(capsys, "--trust")  # it is no model, but it was loaded
        assert Path("ran").exists()


@pytest.mark.parametrize(
    "text, key",
    [
        ({"name": "stranger.Text"}, "name"),
        ({"name": "x", "encoder": "stranger"}, None),
        ({"name": "x", "encoder": "stranger.Text"}, "encoder"),
        ({"name": "x", "encoder": "mteb"}, "encoder"),
        ({"name": "clip", "weights": "w.pt", "allow_torchscript": True}, "weights"),
    ],
)
def test_code_that_a_data_set_names_is_not_run(text, key):
    from rewind.config.dataset import MadeFrom
    from rewind.search.trust import refuse_encoders

    made = MadeFrom.model_validate({"dataset": "d", "text": text, "image": {"name": "clip"}})
    if key is None:
        refuse_encoders(made, Path("ready.json"))  # a short name is a module of Rewind's, or none
        return
    with refusal(f"ready.json: source.made_from.text.{key}"):
        refuse_encoders(made, Path("ready.json"))


@pytest.mark.slow
def test_nothing_is_imported_from_the_working_folder(tmp_path):
    names = ["torch", "json", "argparse", "yaml", "pandas", "numpy", "pathlib", "signal", "csv", "psutil", "flask"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(MARK.replace("ran", f"ran_{name}"))
    command = [sys.executable, "-m", "rewind", "search", "nowhere", "a"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert not list(tmp_path.glob("ran_*"))
    assert done.returncode == 1
    expect_error(done.stderr, "nowhere")


@pytest.mark.slow
def test_what_pythonpath_names_is_still_imported(tmp_path):
    (tmp_path / "yaml.py").write_text(MARK + "raise SystemExit('mine')\n")
    path = f"{tmp_path}{os.pathsep}{ROOT / 'src'}"
    command = [sys.executable, "-m", "rewind", "doctor"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    assert (tmp_path / "ran").exists() and done.stderr.strip() == "mine"


# Records


@pytest.mark.parametrize(
    "keys, key",
    [
        ({"run": "seqLSTM/seed0"}, ": run"),
        ({"spec": [1]}, ": spec"),
        ({"spec": {"backbone": [1]}}, ": spec.backbone"),
        ({"max_frames": "8"}, ": max_frames"),
        ({"max_frames": True}, ": max_frames"),
        ({"max_frames": 10**9}, ": max_frames"),
        ({"data": ["a"]}, ": data"),
        ({"data": {"/etc/items.csv": "", "a_train.csv": ""}}, ": data: /etc/items.csv"),
        ({"data": {"../items.csv": "", "a_train.csv": ""}}, ": data: ../items.csv"),
    ],
)
def test_a_record_that_is_none(study, capsys, keys, key):
    change(f"{HEAD}/run.json", keys)
    refused(capsys, f"{HEAD}/run.json{key}")


@pytest.mark.parametrize("content", ["[" * 100_000, '{"max_frames": ' + "9" * 5000 + "}", "[1]", "null", "\udcff", ""])
def test_a_record_that_is_no_json(study, capsys, content):
    Path(f"{HEAD}/run.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    refused(capsys, f"{HEAD}/run.json")


@pytest.mark.parametrize("size", [0, 7, 1000])
def test_a_model_that_is_cut_off(study, capsys, size):
    path = Path(f"{HEAD}/model.safetensors")
    path.write_bytes(path.read_bytes()[:size])
    refused(capsys, str(path), varying=r"\(Error while .*?\)")  # the library's words


# What is written


def test_another_archive_is_not_overwritten_by_an_index(study, capsys):
    write_npz("vectors.npz", items=np.zeros(3))
    before = Path("vectors.npz").read_bytes()
    refused(capsys, "--index: vectors.npz", "--index", "vectors.npz")
    assert Path("vectors.npz").read_bytes() == before
    Path("folder.npz").mkdir()
    refused(capsys, "--index: folder.npz", "--index", "folder.npz")
    Path("file").touch()
    refused(capsys, "--save: file", "--save", "file")
    system = os.strerror(errno.ENOTDIR)
    refused(capsys, f"--index: {study}/file", "--index", "file/deeper/a.npz", varying=system)
