"""Files that ``rewind evaluate`` writes: none of a command that fails, further models in a study that is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from brought_files import caption_ids, item_ids, write_captions, write_vectors
from checkout import ROOT
from messages import expect_error, expect_message, refusal
from rewind.cli.main import main
from rewind.config import load_study
from rewind.data.readers import read_embedding_file

STUDY, DATASET = Path("config/studies/doors.yaml"), Path("config/datasets/doors.yaml")
ARGUMENTS = ["evaluate", "--data", "doors.csv", "--vectors", "one/captions.npz", "one/items.npz"]


@pytest.fixture
def snakemake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A folder with captions and vectors of two models, in which Snakemake ends with ``code`` at once."""
    (tmp_path / "Snakefile").touch()
    shutil.copytree(ROOT / "config/models", tmp_path / "config/models")
    write_captions(tmp_path / "doors.csv")
    for name, seed in (("one", 0), ("two", 1)):
        write_vectors(tmp_path / name, seed)
    monkeypatch.chdir(tmp_path)
    process = SimpleNamespace(code=0, calls=0)

    def run(arguments: list[str], **_: object) -> int:
        process.calls += 1
        return process.code

    monkeypatch.setattr("rewind.cli.evaluate.run_snakemake", run)
    return process


def test_what_is_refused_leaves_no_file_behind(snakemake: SimpleNamespace, capsys) -> None:
    assert main([*ARGUMENTS[:4], "one/captions.npz", "gone.npz"]) == 1
    expect_error(capsys.readouterr().err, "config/studies/doors.yaml: gone.npz")
    assert not snakemake.calls
    assert not STUDY.exists() and not DATASET.exists()
    assert main([*ARGUMENTS, "--settings", "hart", "-n"]) == 1
    expect_error(capsys.readouterr().err, "config/studies/doors.yaml: evaluation.settings.0")
    assert main([*ARGUMENTS, "--label", "My \x1b[31mmodel", "-n"]) == 1
    expect_error(capsys.readouterr().err, "config/studies/doors.yaml: line 11")
    assert not STUDY.exists() and not DATASET.exists()
    assert main([*ARGUMENTS, "-n"]) == 0, "the corrected command"
    assert STUDY.exists() and DATASET.exists()


def test_a_folder_needs_no_workflow(snakemake: SimpleNamespace, capsys) -> None:
    """It gets one, with which `snakemake` goes on; and none where the command fails."""
    Path("Snakefile").unlink()
    snakemake.code = 1
    assert main(ARGUMENTS) == 1
    assert not Path("Snakefile").exists() and not Path("config/config.yaml").exists()
    snakemake.code = 0
    assert main([*ARGUMENTS, "-n"]) == 0
    assert "wrote Snakefile\nwrote config/config.yaml\n" in capsys.readouterr().out
    assert yaml.safe_load(Path("config/config.yaml").read_text()) == {"studies": ["doors"]}
    assert "rewind.packaged" in Path("Snakefile").read_text()


def test_what_fails_in_a_job_leaves_no_file_behind(snakemake: SimpleNamespace, capsys) -> None:
    snakemake.code = 1
    assert main(ARGUMENTS) == 1
    expect_message(capsys.readouterr().out)
    assert not STUDY.exists() and not DATASET.exists()
    snakemake.code = 0
    assert main([*ARGUMENTS, "-n"]) == 0
    before = STUDY.read_text()
    Path("results/doors").mkdir(parents=True)
    Path("results/doors/metrics.csv").touch()
    snakemake.code = 1
    assert main(ARGUMENTS) == 1 and STUDY.read_text() == before, "a study with numbers stays"
    assert main(["evaluate", "--data", "doors.csv", "--vectors", "two/captions.npz", "two/items.npz", "--add"]) == 1
    assert STUDY.read_text() == before, "and is as it was where what is added fails"


def test_vectors_in_the_folder_above_have_its_name(snakemake: SimpleNamespace, monkeypatch) -> None:
    Path("below").mkdir()
    for name in ("Snakefile", "config", "data", "doors.csv"):
        if Path(name).exists():
            Path("below", name).symlink_to(Path(name).absolute())
    monkeypatch.chdir("below")
    for name in ("captions", "items"):
        Path(f"../{name}.npz").write_bytes(Path(f"../one/{name}.npz").read_bytes())
    above = ["--vectors", "../captions.npz", "../items.npz"]
    assert main(["evaluate", "--data", "doors.csv", *above, "-n"]) == 0
    folder = Path("..").resolve().name
    assert next(method.label or name for name, method in load_study("doors").methods.items()) == folder


def test_a_further_model_is_added_and_all_else_stays(snakemake: SimpleNamespace, capsys) -> None:
    assert main([*ARGUMENTS, "--label", "Mein  Modell: é", "-n"]) == 0
    edited = (
        STUDY.read_text().replace("figures:", "# seen by eye\nfigures:").replace("evaluation:", "\nevaluation: # here")
    )
    STUDY.write_text(edited)
    more = ["evaluate", "--data", "doors.csv", "--vectors", "two/captions.npz", "two/items.npz", "-n"]
    assert main(more) == 1 and STUDY.read_text() == edited
    expect_error(capsys.readouterr().err, "config/studies/doors.yaml")
    assert main([*more, "--add", "--label", "Second"]) == 0
    found = STUDY.read_text()
    assert [line for line in found.splitlines() if line not in edited.splitlines()] == [
        "  Second:",
        "      captions: two/captions.npz",
        "      items: two/items.npz",
    ]
    study = load_study("doors")
    assert list(study.methods) == ["Mein_Modell", "Second", "chance"]
    assert study.methods["Mein_Modell"].label == "Mein Modell: é"
    assert study.methods["Mein_Modell"] == load_of(edited).methods["Mein_Modell"]
    assert main([*more, "--add", "--label", "Second"]) == 0 and STUDY.read_text() == found, "it is there already"
    again = ["evaluate", "--data", "doors.csv", "--vectors", "one/captions.npz", "two/items.npz", "-n", "--add"]
    assert main([*again, "--label", "Second"]) == 0
    assert list(load_study("doors").methods) == ["Mein_Modell", "Second", "Second_2", "chance"]
    assert load_study("doors").methods["Second_2"].label == "Second (2)"
    assert main([*again, "--label", "a", "--label", "b"]) == 1
    expect_error(capsys.readouterr().err, "--label")


def load_of(text: str):
    Path("config/studies/before.yaml").write_text(text)
    return load_study("before")


def test_what_cannot_be_added_is_told(snakemake: SimpleNamespace, capsys) -> None:
    more = ["evaluate", "--data", "doors.csv", "--vectors", "two/captions.npz", "two/items.npz", "-n", "--add"]
    assert main(more) == 1
    expect_error(capsys.readouterr().err, "--add")
    assert main([*ARGUMENTS, "-n"]) == 0
    assert main([*more, "--settings", "hard"]) == 1
    expect_error(capsys.readouterr().err, "--settings")
    keys = yaml.safe_load(STUDY.read_text())
    STUDY.write_text(yaml.safe_dump(keys | {"dataset": "shapes"}))
    assert main(more) == 1
    said = capsys.readouterr().err
    assert "'shapes'" in said and "'doors'" in said
    expect_error(said, "--add")
    flow = json.dumps(keys["methods"])
    STUDY.write_text(yaml.safe_dump({name: keys[name] for name in ("dataset", "evaluation")}) + f"methods: {flow}\n")
    before = STUDY.read_text()
    assert main(more) == 1 and STUDY.read_text() == before
    said = capsys.readouterr().err
    assert "\ntwo:\n  model: vectors\n" in said
    expect_error(said, "config/studies/doors.yaml")


@pytest.mark.parametrize("listed", ["txt", "json"])
def test_npy_has_its_ids_beside_it(snakemake: SimpleNamespace, capsys, listed: str) -> None:
    text, items = np.load("one/captions.npz")["vectors"], np.load("one/items.npz")["vectors"]
    for name, ids, values in (("captions", caption_ids(), text), ("items", item_ids(), items)):
        np.save(f"{name}.npy", values)
        Path(f"{name}.{listed}").write_text(json.dumps(ids) if listed == "json" else "\n".join(ids) + "\n")
        found = read_embedding_file(f"{name}.npy", name)
        assert found.ids.tolist() == ids and (found.values == values).all()
    arguments = ["evaluate", "--data", "doors.csv", "--vectors", "captions.npy", "items.npy", "-n"]
    assert main(arguments) == 0
    method = next(iter(load_study("doors").methods.values()))
    assert method.precomputed_files() == ["captions.npy", "items.npy", f"captions.{listed}", f"items.{listed}"], (
        "all are followed"
    )
    Path(f"items.{listed}").unlink()
    with refusal("items.txt"):
        read_embedding_file("items.npy", "items")
    Path("items.txt").write_text("\n".join(item_ids()[1:]))
    with refusal("items.npy"):
        read_embedding_file("items.npy", "items")
    Path("items.npy").write_bytes(Path("items.npy").read_bytes()[:300])
    with refusal("items.npy"):
        read_embedding_file("items.npy", "items")


def test_a_run_of_distances_is_refused_and_read_with_the_option(snakemake: SimpleNamespace, capsys) -> None:
    lines = [
        f"{caption} Q0 {item} {rank} {rank / 10} theirs\n"
        for caption in caption_ids()
        for rank, item in enumerate(item_ids(), start=1)
    ]
    Path("theirs.run").write_text("".join(lines))
    command = ["evaluate", "--data", "doors.csv", "--scores", "theirs.run", "-n"]
    assert main(command) == 1 and not STUDY.exists()
    expect_error(capsys.readouterr().err, "config/studies/doors.yaml: theirs.run: line 2")
    assert main([*command, "--option", "higher_is_better=false"]) == 0
    assert load_study("doors").methods["theirs"].options == {"file": "theirs.run", "higher_is_better": False}
