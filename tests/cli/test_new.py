"""`rewind new`: what a wheel holds, the folder that is laid down from it, and a study that runs there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from checkout import ROOT
from messages import expect_error, expect_message
from mini_study import Workflow
from rewind import packaged
from rewind.cli import new, scaffold
from rewind.cli.main import main
from rewind.provenance import _commit_in_version, environment
from rewind.workflow.stages import RULES, SUB_STAGES
from rewind.workflow.staleness.code_hash import StageCode, library_hash

NEEDED = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "Snakefile")
NEEDED_FOLDERS = ("src", "workflow", "config", "profiles", "envs")
FOR_CHECKOUTS = {"workflow/lint.py", "workflow/unlock.py"}
STUDY = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 2, size: 32}
text: {tokenizer: words, max_words: 24}
training: {epochs: 1, batch: {size: 16, twins_together: true}}
methods:
  own: {head: mine.Mine}
  chance: {model: chance, seeds: [0]}
seeds: [0]
sanity: null
evaluation: {settings: [origin]}
statistics: {resamples: 200}
figures: {examples: 1}
"""
MINE = "from rewind.models.heads.clip4clip import MeanP\n\n\nclass Mine(MeanP):\n    pass\n"


def below(top: Path, *places: str) -> set[str]:
    """Files of some folders, by their path from the top."""
    paths = [path for place in places for path in (top / place).rglob("*") if path.is_file()]
    return {path.relative_to(top).as_posix() for path in paths if "__pycache__" not in path.parts}


def run(folder: Path, env: dict[str, str], *arguments: str, ok: bool = True) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=folder, env=env, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert (done.returncode == 0) == ok, text[-6000:]
    return text


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """This checkout without git, elsewhere so that nothing is left here."""
    top = tmp_path_factory.mktemp("source")
    for name in NEEDED:
        shutil.copy2(ROOT / name, top / name)
    for name in NEEDED_FOLDERS:
        shutil.copytree(ROOT / name, top / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return top


def build_wheel(folder: Path, source: str) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-w", "made", source]
    run(folder, {**os.environ}, "pip", "wheel", *options)
    (found,) = (folder / "made").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def wheel(source) -> Path:
    return build_wheel(source, ".")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The wheel as it is installed, without what it requires."""
    site = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(site), str(wheel)]
    run(site, {**os.environ}, "pip", "install", *options)
    return site


def with_library(place: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_wheel_holds_the_library_the_workflow_and_the_configuration(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    held = {name.removeprefix("rewind/_workflow/") for name in names if name.startswith("rewind/_workflow/")}
    wanted = below(ROOT, "workflow", "config", "profiles") - FOR_CHECKOUTS | {"Snakefile", "envs/constraints.txt"}
    assert held == wanted
    source = {name.removeprefix("src/") for name in below(ROOT, "src/rewind")}
    packages = {name for name in names if name.startswith("rewind/") and not name.startswith("rewind/_workflow/")}
    assert packages == source


@pytest.mark.slow
def test_an_sdist_builds_the_same_wheel(wheel, source, tmp_path):
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=source, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    built = build_wheel(tmp_path, sdist.name)
    assert contents(built) == contents(wheel)


def contents(wheel: Path) -> dict[str, int]:
    """Files of a wheel with their checksums, without those of its metadata."""
    files = zipfile.ZipFile(wheel).infolist()
    return {file.filename: file.CRC for file in files if ".dist-info/" not in file.filename}


def test_every_file_that_the_workflow_names_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    top = "rewind/_workflow/"
    included = re.findall(r'^include: "(.*)"', (ROOT / "Snakefile").read_text(), re.M)
    assert len(included) > 8 and {top + name for name in included} <= names
    for rules in (ROOT / "workflow/rules").glob("*.smk"):
        for name in re.findall(r'"\.\./((?:scripts|report)/.*?)"', rules.read_text()):
            assert f"{top}workflow/{name}" in names, rules


@pytest.mark.slow
def test_the_code_of_stages_is_the_same_in_a_wheel_and_in_a_checkout(installed):
    assert (installed / "rewind/_workflow/workflow/scripts/train.py").is_file()
    here, there = StageCode(library=ROOT / "src/rewind"), StageCode(library=installed / "rewind")
    assert all(here.parts(stage) == there.parts(stage) for stage in (*RULES, *SUB_STAGES))
    code = "from rewind.workflow.staleness.code_hash import library_hash; "
    code += "from rewind.packaged import checkout_folder, workflow_home; "
    code += "print(library_hash(), workflow_home(), checkout_folder())"
    command = [sys.executable, "-c", code]
    text = subprocess.run(command, cwd=installed, env=with_library(installed), capture_output=True, text=True).stdout
    mark, home, checkout = text.split()
    assert mark == library_hash() and home == str(installed / "rewind/_workflow") and checkout == "None"


def test_a_folder_is_laid_down_with_the_files_of_the_checkout(tmp_path, capsys):
    work = tmp_path / "my work"
    assert main(["new", str(work)]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"Next:\n    cd '{work}'\n    snakemake --cores all\n") and "config/ (" in said
    taken = below(ROOT, "config", "profiles") | {"envs/constraints.txt"}
    assert below(work, ".") == taken | {"Snakefile", "README.md", ".gitignore", ".rewind.json"}
    assert all((work / name).read_bytes() == (ROOT / name).read_bytes() for name in taken)


def test_the_next_commands_of_the_current_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "."]) == 0
    assert capsys.readouterr().out.endswith("Next:\n    snakemake -n\n    snakemake --cores all\n")


def test_a_folder_of_data_becomes_a_working_folder(tmp_path, capsys):
    for name in (".git/HEAD", "data/clips/a.mp4", "notes.txt", "config/mine.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    assert main(["new", str(tmp_path)]) == 0
    assert (tmp_path / "Snakefile").is_file() and (tmp_path / "notes.txt").read_text() == "mine"
    assert main(["new", str(tmp_path)]) == 1
    expect_error(capsys.readouterr().err)


@pytest.mark.parametrize("name", ["README.md", "config/config.yaml", "config", "profiles/default", "Snakefile/a.txt"])
def test_a_file_in_the_way_is_named(tmp_path, capsys, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = below(tmp_path, ".")
    assert main(["new", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert name.removesuffix("/a.txt") in said
    expect_error(said)
    assert below(tmp_path, ".") == before


def test_what_cannot_be_updated_is_refused(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["new", str(tmp_path), "--update"]) == 1
    expect_error(capsys.readouterr().err)
    assert main(["new", str(tmp_path / "notes.txt")]) == 1
    expect_error(capsys.readouterr().err, "FOLDER: notes.txt")
    (tmp_path / ".rewind.json").write_text('{"files": [1]}')
    assert main(["new", str(tmp_path), "--update"]) == 1
    expect_error(capsys.readouterr().err, ".rewind.json")
    assert below(tmp_path, ".") == {"notes.txt", ".rewind.json"}


@pytest.mark.parametrize("there, here", [("0.3.0", "0.2.0"), ("0.2.1.dev9+gabc1234", "0.2.1.dev8"), ("10.0", "9.1")])
def test_an_older_rewind_does_not_replace_files_of_a_newer_one(tmp_path, capsys, monkeypatch, there, here):
    monkeypatch.setattr(new, "installed_version", lambda: there)
    assert main(["new", str(tmp_path / "work")]) == 0
    monkeypatch.setattr(new, "initial_files", lambda: {"Snakefile": "older"})
    monkeypatch.setattr(new, "installed_version", lambda: here)
    capsys.readouterr()
    assert main(["new", "--update", str(tmp_path / "work")]) == 1
    expect_error(capsys.readouterr().err, "work")
    assert (tmp_path / "work/Snakefile").read_text() != "older"
    monkeypatch.setattr(new, "installed_version", lambda: there)
    assert main(["new", "--update", str(tmp_path / "work")]) == 0


def test_a_folder_that_could_not_be_finished_stays_empty(tmp_path, capsys, monkeypatch):
    write, count = scaffold.write_text, []

    def full(path, text):
        count.append(path)
        if len(count) == 5:
            raise OSError(28, "No space left on device", str(path))
        write(path, text)

    monkeypatch.setattr(scaffold, "write_text", full)
    assert main(["new", str(tmp_path / "work")]) == 1
    assert "Traceback" not in capsys.readouterr().err and below(tmp_path, ".") == set()


def test_an_update_rewrites_only_what_the_user_left_alone(tmp_path, capsys, monkeypatch):
    work, before = tmp_path / "work", new.initial_files()
    main(["new", str(work)])
    capsys.readouterr()
    assert main(["new", "--update", str(work)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{work}: ")
    expect_message(said, varying=r"(?<=Rewind )\d\S*")
    (work / "config/config.yaml").write_text("studies: [mine]\n")
    (work / "config/studies/rtime.yaml").write_text("mine too\n")
    (work / "config/studies/emoji.yaml").unlink()
    (work / "config/studies/late.yaml").write_text("my own study\n")
    now = before | {
        "config/studies/rtime.yaml": "newer\n",
        "config/studies/demo.yaml": "newer\n",
        "config/studies/emoji.yaml": "newer\n",
        "config/studies/late.yaml": "Rewind's of that name\n",
        "config/studies/other.yaml": "another\n",
    }
    del now["config/studies/sanw.yaml"]
    monkeypatch.setattr(new, "initial_files", lambda: now)
    assert main(["new", "--update", str(work)]) == 0
    lines = sorted(capsys.readouterr().out.splitlines())
    named = ("demo", "emoji", "late", "other", "rtime", "sanw")
    assert [line.partition(":")[0] for line in lines if line.startswith("config/")] == [
        "config/config.yaml",
        *(f"config/studies/{name}.yaml" for name in named),
    ]
    assert lines[0].endswith(f" {ROOT}"), "where Rewind's own files are"
    expect_message("\n".join(lines).replace(str(ROOT), "<checkout>"))
    texts = {name: (work / f"config/studies/{name}.yaml").read_text() for name in ("demo", "rtime", "late", "other")}
    assert texts == {"demo": "newer\n", "rtime": "mine too\n", "late": "my own study\n", "other": "another\n"}
    assert (work / "config/config.yaml").read_text() == "studies: [mine]\n"
    assert not (work / "config/studies/emoji.yaml").exists() and (work / "config/studies/sanw.yaml").exists()
    main(["new", "--update", str(work)])
    assert "written again" not in capsys.readouterr().out


def test_what_is_said_of_an_installation_holds_there(tmp_path, monkeypatch, capsys):
    assert (
        packaged.checkout_folder() == packaged.workflow_home() == ROOT
        and packaged.docs_page("rtime.md") == "docs/rtime.md"
    )
    assert (ROOT / packaged.docs_page("rtime.md")).is_file() and "--editable ." in packaged.install_command()
    monkeypatch.setattr(packaged, "_library_folder", lambda: tmp_path / "rewind")
    assert main(["new", str(tmp_path / "work")]) == 1
    expect_error(capsys.readouterr().err, "rewind")
    top = tmp_path / "rewind/_workflow"
    top.mkdir(parents=True)
    assert packaged.workflow_home() == top and packaged.checkout_folder() is None
    assert packaged.install_command() == f"pip install --constraint {top}/envs/constraints.txt rewind-bench"
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
    assert packaged.docs_page("rtime.md") == f"{address}/blob/main/docs/rtime.md"


def test_the_commit_is_that_of_the_code_and_not_of_the_folder(tmp_path, monkeypatch):
    def git(folder: Path, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
        return done.stdout.strip()

    git(tmp_path, "init", "--quiet")
    git(tmp_path, "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "--quiet", "--allow-empty", "-m", "mine")
    monkeypatch.chdir(tmp_path)
    assert git(tmp_path, "rev-parse", "HEAD")
    assert environment()["git"]["commit"] == (git(ROOT, "rev-parse", "HEAD") or None)
    monkeypatch.setattr("rewind.provenance.checkout_folder", lambda: None)
    monkeypatch.setattr("rewind.provenance.installed_version", lambda: "0.3.1.dev4+gc51ba5204.d20261123")
    assert environment()["git"] == {"commit": "c51ba5204", "dirty": True}


@pytest.mark.parametrize(
    ("text", "commit", "dirty"),
    [
        ("0.1.1.dev345+gc51ba5204", "c51ba5204", False),
        ("0.1.1.dev345+gc51ba5204.d20261123", "c51ba5204", True),
        ("0.2.0", None, None),
        ("0.2.0+d20261123", None, None),
        ("unknown", None, None),
    ],
)
def test_a_version_names_its_commit(text, commit, dirty):
    assert _commit_in_version(text) == {"commit": commit, "dirty": dirty}


@pytest.mark.workflow
def test_the_wheel_alone_runs_a_study_that_is_not_stale_in_a_checkout(wheel, installed, tmp_path):
    env = with_library(installed)
    assert "snakemake --cores all" in run(tmp_path, env, "rewind", "new", "work")
    work = tmp_path / "work"
    counts = dict(re.findall(r"^(\w+) +(\d+)$", run(work, env, "snakemake", "-n", "--quiet", "rules"), re.M))
    assert counts["train"] == counts["similarity"] == "20" and counts["page"] == counts["default"] == "1"
    (work / "config/config.yaml").write_text("studies: [demo\n")
    said = run(work, env, "snakemake", "-n", ok=False)
    assert "config/config.yaml: line 2: not valid YAML" in said and "Traceback" not in said

    (tmp_path / "checkout").mkdir()
    checkout = Workflow(tmp_path / "checkout")
    for folder in (work, checkout.folder):
        (folder / "mine.py").write_text(MINE)
        (folder / "config/studies/mini.yaml").write_text(STUDY)
    shutil.copy2(checkout.folder / "config/config.yaml", work / "config/config.yaml")
    run(work, env, "snakemake", "--cores", "2")
    table = (work / "results/mini/tables/table_A_origin.md").read_text()
    assert re.search(r"\bown\b", table) and re.search(r"\bchance\b", table)
    record = json.loads((work / "results/mini/runs/own/seed0/run.json").read_text())
    assert record["version"] == wheel.name.split("-")[1]
    assert "nothing is stale" in run(work, env, "rewind", "why")
    for name in ("results", ".snakemake"):
        shutil.copytree(work / name, checkout.folder / name)
    assert checkout.stale() == {}, "what a wheel made is up to date in a checkout"
    checkout.edit("src/rewind/analyses/gap.py", '"table_gap"', '"table_of_gaps"')
    assert checkout.stale() == {"tables": 1, "page": 1}
