"""What lies in two splits is refused by name, or said; splits that a study needs are there before the first job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from checkout import ROOT
from messages import expect_message, refusal
from rewind.config import Dataset
from rewind.data import splits
from rewind.errors import ConfigErrors
from rewind.io.files import read_csv, read_json
from rewind.video import sources
from rewind.video.dataset import make_captions, make_inventory, report_vectors
from rewind.video.prepare import REPORT_COLUMNS
from rewind.workflow.config import load_checked_config

HEAD = "item_id,path,split,caption,cluster_id"


def dataset(folder: Path, *rows: str, **keys: object) -> Dataset:
    """Clips of a CSV in ``folder``, whose files differ and are there."""
    (folder / "clips").mkdir(exist_ok=True)
    (folder / "a.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    for number, row in enumerate(rows):
        file = folder / "clips" / row.split(",")[1]
        if not file.exists():
            file.write_bytes(bytes([number]) * 200_000)
    source = {"format": "table", "table": str(folder / "a.csv"), "videos": str(folder / "clips")}
    return Dataset.model_validate({"name": "d", "source": source} | keys)


def refused(chosen: Dataset, folder: Path) -> str:
    with refusal("config/datasets/d.yaml") as caught:
        make_inventory(chosen, str(folder / "results/videos/inventory.csv"))
    assert not (folder / "results/videos/inventory.csv").exists()
    return str(caught.value)


pytestmark = pytest.mark.filterwarnings("error")
SOUND = ("k1,a.mp4,train,A dog,", "k2,b.mp4,valid,A cat,", "k3,c.mp4,test,A cow,")


@pytest.mark.parametrize("path", ["./a.mp4", "link.mp4", "linked/a.mp4", "a"])
def test_one_file_in_two_splits(tmp_path: Path, path: str) -> None:
    chosen = dataset(tmp_path, *SOUND)
    (tmp_path / "clips/linked").symlink_to(tmp_path / "clips")
    (tmp_path / "clips/link.mp4").symlink_to(tmp_path / "clips/a.mp4")
    with (tmp_path / "a.csv").open("a") as stream:
        stream.write(f"k4,{path},test,Another dog,\n")
    text = refused(chosen, tmp_path)
    assert "'k1' (train: " in text and "a.mp4) and 'k4' (test: " in text


def test_one_content_in_two_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = dataset(tmp_path, *SOUND, "k4,d.mp4,test,A fly,", "k5,e.mp4,test,A fly,")
    clips = tmp_path / "clips"
    (clips / "d.mp4").write_bytes((clips / "b.mp4").read_bytes())
    (clips / "e.mp4").write_bytes((clips / "c.mp4").read_bytes())  # of one split: no leak
    read = []
    whole = splits.sha256_of
    monkeypatch.setattr(splits, "sha256_of", lambda path: read.append(Path(path).name) or whole(path))
    text = refused(chosen, tmp_path)
    files = f"'k2' (valid: {clips / 'b.mp4'}) and 'k4' (test: {clips / 'd.mp4'}) "
    assert files in text and "'k3'" not in text and "'k5'" not in text
    assert sorted(read) == ["b.mp4", "d.mp4"], "only what is alike so far is read whole"


def test_files_that_differ_in_the_middle_are_no_leak(tmp_path: Path) -> None:
    chosen = dataset(tmp_path, *SOUND)
    middle = bytearray((tmp_path / "clips/a.mp4").read_bytes())
    middle[100_000] = 7
    (tmp_path / "clips/c.mp4").write_bytes(middle)
    (tmp_path / "clips/b.mp4").write_bytes(b"")
    make_inventory(chosen, str(tmp_path / "videos/inventory.csv"))
    assert len(read_csv(tmp_path / "videos/inventory.csv")) == 3


def test_one_cluster_in_two_splits(tmp_path: Path) -> None:
    rows = ("k1,a.mp4,train,A dog,film7", "k2,b.mp4,train,A cat,film7", "k3,c.mp4,test,A cow,film7")
    text = refused(dataset(tmp_path, *rows), tmp_path)
    assert "'film7'" in text and "('k1')" in text and "('k3')" in text
    alone = dataset(tmp_path, *rows, clips=False)
    with refusal("config/datasets/d.yaml"):
        report_vectors(alone, str(tmp_path / "report.csv"))
    named = ("k1,a.mp4,train,A dog,", "k3,./a.mp4,test,A cow,")
    with refusal("config/datasets/d.yaml"):
        report_vectors(dataset(tmp_path, *named, clips=False), str(tmp_path / "report.csv"))


def test_overlap_that_is_allowed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (*SOUND, "k4,./a.mp4,test,A dog,film", "k5,e.mp4,train,A fly,film")
    chosen = dataset(tmp_path, *rows, allow_overlap=True)
    folder = tmp_path / "results"
    make_inventory(chosen, str(folder / "videos/inventory.csv"))
    said = capsys.readouterr().out
    assert "2 overlaps" in said and "'film'" in said
    expect_message(said)
    report = pd.DataFrame("", index=range(5), columns=list(REPORT_COLUMNS))
    report = report.assign(item_id=["k1", "k2", "k3", "k4", "k5"], status="ok", sha256="0")
    report.to_csv(folder / "videos/report.csv", index=False)
    table = str(folder / "items.csv")
    make_captions(chosen, str(folder / "videos/report.csv"), table, tmp_path, str(folder / "videos/inventory.csv"))
    notes = read_json(folder / "captions/report.json")["annotations"]
    assert notes["overlap"]["clusters"] == 1 and notes["overlap"]["items"] == 1
    assert "'k1' (train: " in notes["overlap"]["shown"][1]
    expect_message(splits.overlap_sentence(notes))
    assert splits.overlap_sentence({}) == ""


def test_ids_that_this_file_system_takes_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = dataset(tmp_path, *SOUND, "K1,d.mp4,test,A fly,")
    path = str(tmp_path / "videos/inventory.csv")
    assert sources.ignores_case(tmp_path) == (tmp_path / "A.CSV").exists()
    monkeypatch.setattr(sources, "ignores_case", lambda folder: True)
    with refusal("config/datasets/d.yaml"):
        make_inventory(chosen, path)
    monkeypatch.setattr(sources, "ignores_case", lambda folder: False)
    make_inventory(chosen, path)
    assert sorted(entry.name for entry in (tmp_path / "videos").iterdir()) == ["inventory.csv"], "no probe stays"
    forms = ["caf\u00e9", "cafe\u0301"]
    sources.refuse_name_clashes(forms, tmp_path, "d")
    monkeypatch.setattr(sources, "ignores_unicode_form", lambda folder: True)
    with refusal("d"):
        sources.refuse_name_clashes(forms, tmp_path, "d")


STUDY = {
    "dataset": "d",
    "backbone": {"architecture": "config/models/tiny.json"},
    "frames": {"max_frames": 4, "size": 32},
    "text": {"tokenizer": "words", "max_words": 24},
    "training": {"batch": {"size": 2}},
    "methods": {"meanP": {"head": "meanP"}, "chance": {"model": "chance"}},
    "evaluation": {"settings": ["test"]},
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("config/datasets", "config/studies"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("config/models", "workflow", "src", "profiles", "Snakefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "config/config.yaml").write_text("studies: [s]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, rows: tuple[str, ...], study: dict | None = None, **keys: object) -> None:
    source = dataset(folder, *rows).source.model_dump(include={"format", "table", "videos"})
    Path("config/datasets/d.yaml").write_text(yaml.safe_dump({"source": source, **keys}))
    Path("config/studies/s.yaml").write_text(yaml.safe_dump(STUDY | (study or {})))


def refused_study(*places: str, memory: Path | None = None) -> None:
    with refusal(*places, error=ConfigErrors):
        load_checked_config({"studies": ["s"]}, memory)


@pytest.mark.slow
def test_splits_that_annotations_leave_empty_are_told_before_the_first_job(checkout: Path) -> None:
    written(checkout, ("k1,a.mp4,train,A dog,", "k3,c.mp4,test,A cow,"))
    refused_study("config/studies/s.yaml: dataset: config/datasets/d.yaml: a.csv")
    only = {"methods": {"bow": {"model": "bow"}, "chance": {"model": "chance"}}}
    written(checkout, ("k3,c.mp4,test,A cow,",), only)
    load_checked_config({"studies": ["s"]})
    written(checkout, SOUND, {"evaluation": {"settings": ["hard"]}})
    refused_study("config/studies/s.yaml: dataset: config/datasets/d.yaml: a.csv")
    (checkout / "only.txt").write_text("k1\nk2\n")
    written(checkout, SOUND, only="only.txt")
    refused_study("config/studies/s.yaml: dataset: config/datasets/d.yaml")


def test_annotations_are_read_again_only_when_they_change(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rewind.workflow.preflight import annotations

    written(checkout, SOUND)
    counted, read = [], annotations.read_annotations
    monkeypatch.setattr(annotations, "read_annotations", lambda *given: counted.append(1) or read(*given))
    memory = checkout / ".snakemake/rewind/preflight.json"
    for _ in range(2):
        load_checked_config({"studies": ["s"]}, memory)
    assert len(counted) == 1
    written(checkout, ("k1 ,a.mp4,train,A dog,", *SOUND[1:]))
    refused_study("config/datasets/d.yaml: a.csv: row 2: column 'item_id'", memory=memory)
    assert len(counted) == 2
    memory.write_text("[" * 100_000)
    written(checkout, SOUND)
    load_checked_config({"studies": ["s"]}, memory)
    counts = {"train": [1, 0, 0], "valid": [1, 0, 0], "test": [1, 0, 0]}
    assert counts in json.loads(memory.read_text()).values()


@pytest.mark.workflow
def test_the_workflow_refuses_what_overlaps(checkout: Path) -> None:
    """With the real command: an empty split and a cluster when it is read, one content in the first job."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}

    def run(*rows: str) -> str:
        written(checkout, rows)
        command = [sys.executable, "-m", "snakemake", "--cores", "1", "prepared"]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode and "Traceback" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "no item is in the split 'valid', but method meanP chooses" in run(SOUND[0], SOUND[2])
    assert not (checkout / "results").exists()
    said = run(*SOUND, "k4,d.mp4,train,A fly,film", "k5,e.mp4,test,A fly,film")
    assert "the cluster 'film' is in train ('k4') and test ('k5')" in said and not (checkout / "results").exists()
    (checkout / "clips/e.mp4").write_bytes((checkout / "clips/a.mp4").read_bytes())
    said = run(*SOUND, "k5,e.mp4,test,A fly,")
    assert "'k1' (train: " in said and "have the same content" in said and "allow_overlap: true" in said


def test_copies_are_found_whatever_their_names(tmp_path: Path) -> None:
    """Files of one content and links to one of them are one group; what is empty is like nothing else."""
    contents = {"a": b"one", "b": b"one", "c": b"two", "d": b"longer", "e": b"", "f": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "again").symlink_to(tmp_path / "d")
    found = splits.duplicate_files(str(tmp_path / name) for name in (*contents, "link", "again"))
    assert [[Path(path).name for path in group] for group in found] == [["a", "b", "link"], ["d", "again"]]
