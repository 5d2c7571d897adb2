"""`rewind share` and what `rewind board` makes of a shared file: of a whole one, and of every kind that does harm."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import socket
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from board_studies import add_study
from checkout import ROOT
from messages import expect_error, expect_message
from page_reader import Reader
from rewind.cli.main import main
from rewind.exports import share
from rewind.io.files import read_csv
from rewind.job_values import NamedList
from rewind.workflow.checksums import write_checksums

Members = dict[str, bytes]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A working folder with a finished study, and an empty one beside it, where the tests stand."""
    add_study(tmp_path / "there", "one", {"a": 90, "b": 40, "chance": 1}, tests=True)
    tables = tmp_path / "there/results/one/tables"
    tables.mkdir()
    (tables / "table_A.md").write_text("| a |\n")
    (tables / "table_A.html").write_text("<script>alert(1)</script>")
    run = tmp_path / "there/results/one/runs/a/seed0"
    (run / "model.safetensors").write_bytes(b"weights")
    monkeypatch.chdir(tmp_path / "there")
    assert main(["share", "one"]) == 0
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "there/one.rewind.zip").rename(here / "one.rewind.zip")
    monkeypatch.chdir(here)
    return here


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, members: Members, sealed: bool = True) -> None:
    """A shared file with these members; ``sealed``: under a manifest that is true of them."""
    if sealed:
        manifest = json.loads(members["manifest.json"])
        manifest["members"] = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in members.items()
            if name != "manifest.json"
        }
        members = members | {"manifest.json": json.dumps(manifest).encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rewind", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


# ---- A whole file --------------------------------------------------------------------------------------------------


def test_a_study_travels_and_has_the_same_row_on_another_board(tmp_path):
    add_study(tmp_path / "there", "one", {"a": 90, "b": 40, "chance": 1}, tests=True)
    add_study(tmp_path / "here", "two", {"c": 60})
    shared = run("share", "one", "--out", "../here/one.rewind.zip", folder=tmp_path / "there")
    assert shared.returncode == 0, shared.stderr
    expect_message(shared.stdout, varying=r"\d+ members, [\d.]+ MB")
    board = run("board", "two", "one.rewind.zip", folder=tmp_path / "here")
    assert board.returncode == 0, board.stderr
    expect_message(board.stdout)
    assert run("board", "one", folder=tmp_path / "there").returncode == 0
    here, there = (json.loads((tmp_path / name / "board/board.json").read_text()) for name in ("here", "there"))
    rows = [cell for cell in here["cells"] if cell["study"] == "one"]
    same = ("method", "setting", "direction", "estimate", "low", "high", "digest", "budget", "frames")
    assert [[row[key] for key in same] for row in rows] == [[row[key] for key in same] for row in there["cells"]]
    assert {row["source"] for row in rows} == {"one.rewind.zip"}
    assert [group["studies"] for group in here["groups"]] == [["two", "one"]]
    links = Reader((tmp_path / "here/board/index.html").read_text()).addresses
    assert not [link for link in links if "one" in link], "its page is not here"


def test_what_is_packed(home):
    members = members_of(home / "one.rewind.zip")
    assert next(iter(members)) == "manifest.json" and {"card.json", "metrics.csv", "tables/table_A.md"} <= set(members)
    assert not [name for name in members if name.endswith((".html", ".safetensors"))]
    assert all(info.compress_type == 0 for info in zipfile.ZipFile(home / "one.rewind.zip").infolist())
    manifest = json.loads(members.pop("manifest.json"))
    assert manifest["format"] == 1 and manifest["study"] == "one" and len(manifest["data"]) == 1
    assert manifest["members"] == {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }


def test_weights_travel_where_asked_for_and_bytes_are_the_same_again(home, monkeypatch):
    before = (home / "one.rewind.zip").read_bytes()
    monkeypatch.chdir(home.parent / "there")
    assert main(["share", "one"]) == 0 and Path("one.rewind.zip").read_bytes() == before
    assert main(["share", "one", "--weights"]) == 0
    assert members_of(Path("one.rewind.zip"))["runs/a/seed0/model.safetensors"] == b"weights"
    assert main(["board", "one.rewind.zip", "--out", "elsewhere"]) == 0


def test_mteb_and_hugging_face_can_read_their_parts(home):
    members = members_of(home / "one.rewind.zip")
    content = json.loads(members["mteb/a/RewindShapesHardT2V.json"])
    scores = content["scores"]["test"][0]
    assert scores["main_score"] == scores["expected_recall_at_1"] and 0.8 < scores["main_score"] < 1
    (index,) = yaml.safe_load(members["model-index/a.yaml"])["model-index"]
    assert index["name"] == "a" and {"task", "dataset", "metrics"} <= index["results"][0].keys()
    assert index["results"][0]["metrics"][0]["type"] == "recall_at_1"
    assert "model-index/chance.yaml" not in members
    results = pytest.importorskip("mteb.results")
    read = results.TaskResult.model_validate(content)
    assert read.task_name == "RewindShapesHardT2V" and read.scores["test"][0]["main_score"] == scores["main_score"]


def test_numbers_are_written_as_other_tools_have_them(home, capsys, monkeypatch):
    monkeypatch.chdir(home.parent / "there")
    assert main(["export", "results", "one", "forms"]) == 0
    expect_message(capsys.readouterr().out)
    of_a = {path.parts[1] for path in Path("forms").rglob("a.*")}
    assert of_a == {"eval_results", "every_eval_ever", "model-index"} and not list(Path("forms").rglob("*/chance.*"))
    members = members_of(home / "one.rewind.zip")
    for name in ("model-index/a.yaml", "mteb/a/RewindShapesHardT2V.json"):
        assert (Path("forms") / name).read_bytes() == members[name], "as in a shared file"
    intervals = read_csv(Path("results/one/statistics/intervals.csv"))
    rows = intervals[intervals["method"] == "a"]
    hub = yaml.safe_load(Path("forms/eval_results/a.yaml").read_text())
    decided = rows[rows["metric"] == "R@1"]
    assert [entry["value"] for entry in hub] == pytest.approx(decided["estimate"].tolist(), abs=1e-4)
    assert hub[0]["dataset"] == {"id": "shapes", "task_id": "origin_t2v"} and "95% interval" in hub[0]["notes"]
    record = json.loads(Path("forms/every_eval_ever/a.json").read_text())
    assert {"schema_version", "evaluation_id", "retrieved_timestamp", "model_info", "eval_library"} <= set(record)
    found = record["evaluation_results"]
    assert [each["score_details"]["score"] for each in found] == rows["estimate"].tolist()
    interval = found[0]["score_details"]["uncertainty"]["confidence_interval"]
    assert [interval["lower"], interval["upper"]] == rows[["low", "high"]].iloc[0].tolist()
    assert found[0]["metric_config"]["max_score"] == 100 and found[0]["source_data"]["source_version"]
    before = {path: path.read_bytes() for path in Path("forms").rglob("*.*")}
    assert main(["export", "results", "one", "forms"]) == 0
    assert {path: path.read_bytes() for path in Path("forms").rglob("*.*")} == before


def test_a_file_of_mine_is_not_overwritten(home, capsys, monkeypatch):
    monkeypatch.chdir(home.parent / "there")
    with zipfile.ZipFile("mine.zip", "w") as archive:
        archive.writestr("thesis.txt", "")
    for out in ("mine.zip", "one.tar"):
        assert main(["share", "one", "--out", out]) == 1
        expect_error(capsys.readouterr().err, f"--out: {out}")


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(home, capsys, monkeypatch):
    monkeypatch.chdir(home.parent / "there")
    assert main(["share", "one", "--out", "/proc/one.zip"]) == main(["board", "one", "--out", "/proc/board"]) == 1
    expect_message(capsys.readouterr().err)


# ---- What must not be handed on ------------------------------------------------------------------------------------


def record(*paths: Path) -> None:
    """The checksums that the job of these files would have written."""
    paths_made = [str(path) for path in paths]
    write_checksums(SimpleNamespace(rule="made", wildcards={}, params=NamedList([], {}), input=[], output=paths_made))


@pytest.fixture
def study(home, monkeypatch):
    """The folder of the study, with a secret beside it that no file of it may bring along."""
    monkeypatch.chdir(home.parent / "there")
    Path("secret.txt").write_text("PRIVATE KEY")
    return Path("results/one")


def linked(study: Path) -> None:
    (study / "tables/table_B.md").symlink_to(Path("secret.txt").absolute())


def linked_in_steps(study: Path) -> None:
    """A link within the study to one that leads out."""
    (study / "step").symlink_to(Path("secret.txt").absolute())
    (study / "tables/table_B.md").symlink_to("../step")


def bound_socket(study: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(study / "tables/table_B.md"))


def moved_away(study: Path, name: str) -> None:
    """A part of the study lies elsewhere and is linked."""
    (study / name).rename("away")
    (study / name).symlink_to(Path("away").absolute())


UNSHARED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a link": ("tables/table_B.md", linked),
    "a link to a link": ("tables/table_B.md", linked_in_steps),
    "a link to nothing": ("tables/table_B.md", lambda study: (study / "tables/table_B.md").symlink_to("/no/file")),
    "a link to itself": ("tables/table_B.md", lambda study: (study / "tables/table_B.md").symlink_to("table_B.md")),
    "a link to a device": ("tables/table_B.md", lambda study: (study / "tables/table_B.md").symlink_to("/dev/zero")),
    "a linked folder": ("tables", lambda study: moved_away(study, "tables")),
    "a linked run": ("runs/a", lambda study: moved_away(study, "runs/a")),
    "linked numbers": ("metrics.csv", lambda study: moved_away(study, "metrics.csv")),
    "a hard link": ("tables/table_B.md", lambda study: os.link("secret.txt", study / "tables/table_B.md")),
    "a named pipe": ("tables/table_B.md", lambda study: os.mkfifo(study / "tables/table_B.md")),
    "a socket": ("tables/table_B.md", bound_socket),
    "a folder": ("tables/table_B.md", lambda study: (study / "tables/table_B.md").mkdir()),
}


@pytest.mark.parametrize("case", UNSHARED)
def test_nothing_but_files_of_the_study_is_handed_on(study, capsys, case):
    place, change = UNSHARED[case]
    change(study)
    assert main(["share", "one", "--out", "new.zip"]) == 1
    expect_error(capsys.readouterr().err, f"{study}/{place}")
    assert not Path("new.zip").exists()


def test_a_file_that_no_job_recorded_stays_and_is_named(study, capsys):
    others = [study / "tables/notes.txt", study / "statistics/mine.csv", study / "runs/a/seed0/model.safetensors"]
    record(study / "tables", *study.glob("statistics/*.csv"), *study.glob("runs/*/*/run.json"), study / "metrics.csv")
    os.link("secret.txt", others[0])
    others[1].write_text("PRIVATE KEY")
    capsys.readouterr()
    assert main(["share", "one", "--weights"]) == 0
    said = capsys.readouterr().out
    members = members_of(Path("one.rewind.zip"))
    assert "tables/table_A.md" in members and b"PRIVATE" not in Path("one.rewind.zip").read_bytes()
    assert all(str(path.relative_to(study)) in said and str(path.relative_to(study)) not in members for path in others)
    expect_message(said, varying=r"\d+ members, [\d.]+ MB")


def test_a_link_within_the_study_to_what_was_recorded_is_a_file_like_others(study):
    (study / "tables/table_A.md").rename(study / "A.md")
    (study / "tables/table_A.md").symlink_to("../A.md")
    record(study / "tables", *study.glob("statistics/*.csv"), study / "metrics.csv")
    assert main(["share", "one"]) == 0
    assert members_of(Path("one.rewind.zip"))["tables/table_A.md"] == b"| a |\n"


@pytest.mark.parametrize("file", ["tables/table_A.md", "runs/a/seed0/run.json", "runs/a/seed0/model.safetensors"])
def test_a_file_that_is_not_as_its_job_left_it_is_refused(study, capsys, file):
    record(study / "tables", *study.glob("statistics/*.csv"), *study.glob("runs/*/*/*"), study / "metrics.csv")
    (study / file).write_text("PRIVATE KEY")
    assert main(["share", "one", "--weights", "--out", "new.zip"]) == 1
    expect_error(capsys.readouterr().err, str(study / file), varying=r"(wrote|since) \w*\s?[\d: -]+")
    assert not Path("new.zip").exists()


def test_a_file_that_changes_while_it_is_packed_is_refused(study, capsys, monkeypatch):
    described = share._described_file

    def changing(path):
        found = described(path)
        if path.name == "table_A.md":
            path.write_text("PRIVATE KEY")
        return found

    monkeypatch.setattr(share, "_described_file", changing)
    assert main(["share", "one", "--out", "new.zip"]) == 1
    expect_error(capsys.readouterr().err, f"{study}/tables/table_A.md")
    assert not Path("new.zip").exists()


# ---- Files that somebody made to do harm, or that were damaged -----------------------------------------------------


def manifest_with(archive: Members, **changes: Any) -> Members:
    return archive | {"manifest.json": json.dumps(json.loads(archive["manifest.json"]) | changes).encode()}


def card_with(members: Members, **changes: Any) -> Members:
    return members | {"card.json": json.dumps(json.loads(members["card.json"]) | changes).encode()}


def add(name: str, content: bytes = b"x") -> Callable[[Path, Members], None]:
    return lambda path, members: pack(path, members | {name: content})


def infos(change: Callable[[zipfile.ZipInfo], None], name: str = "metrics.csv") -> Callable[[Path, Members], None]:
    """One member is written with another entry of the archive's list."""

    def write(path: Path, members: Members) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for member, content in members.items():
                info = zipfile.ZipInfo(member)
                if member == name:
                    change(info)
                archive.writestr(info, content, compress_type=info.compress_type)

    return write


def is_link(info: zipfile.ZipInfo) -> None:
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


def is_compressed(info: zipfile.ZipInfo) -> None:
    info.compress_type = zipfile.ZIP_DEFLATED


def patched(path: Path, members: Members, change: Callable[[bytearray], None]) -> None:
    pack(path, members)
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def twice(path: Path, members: Members) -> None:
    pack(path, members)
    with pytest.warns(UserWarning), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("metrics.csv", b"other")


def flipped(content: bytearray) -> None:
    content[content.index(b"text_to_item")] ^= 1


def claims_a_terabyte(content: bytearray) -> None:
    """The list says that a member is larger than the whole file."""
    at = content.index(b"PK\x01\x02")
    struct.pack_into("<2L", content, at + 20, 2**32 - 2, 2**32 - 2)


def claims_many(content: bytearray) -> None:
    struct.pack_into("<2H", content, len(content) - 14, 60_000, 60_000)


def encrypted(content: bytearray) -> None:
    at = content.index(b"PK\x01\x02")
    content[at + 8] |= 1


def bomb(path: Path, members: Members) -> None:
    """Ten megabytes of zeros in ten kilobytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, b"0" * 10_000_000 if name == "metrics.csv" else content)


class Harm:
    """What Python would run if anything unpickled it."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("harmed",)


def relabelled(text: str) -> Callable[[Path, Members], None]:
    return lambda p, m: pack(p, card_with(m, methods={"a": {"label": text, "kind": "trained"}}))


ODD_LABELS = ("", "a\x1b[2J", "a\nb", "a\tb", "a\u2028b", "=1+1", "＝1+1", " =1")


def lines_of(members: Members, file: str) -> list[str]:
    return members[file].decode().splitlines()


def edited(file: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path, Members], None]:
    """A table with its lines changed, under a manifest that is true of it."""
    return lambda p, m: pack(p, m | {file: "".join(f"{line}\n" for line in change(lines_of(m, file))).encode()})


def better(lines: list[str]) -> list[str]:
    """Every interval of a method is as it was, but its estimate is a tenth of a point higher."""
    cells = lines[1].split(",")
    at = lines[0].split(",").index("estimate")
    cells[at] = str(float(cells[at]) + 0.1)
    return [lines[0], ",".join(cells), *lines[2:]]


PAIRS = (
    "first,second,setting,direction,metric,difference,p_holm\n"
    "a,b,hard,text_to_item,R@1,50,0.01\nb,a,hard,text_to_item,R@1,-50,0.01\n"
)

HOSTILE: dict[str, Callable[[Path, Members], None]] = {
    "no archive": lambda path, members: path.write_bytes(b"hello") and None,
    "empty": lambda path, members: path.write_bytes(b"") and None,
    "python object": lambda path, members: path.write_bytes(pickle.dumps(Harm())) and None,
    "python object as a member": add("runs/a/seed0/state.pkl", pickle.dumps(Harm())),
    "python object as metrics": lambda path, members: pack(path, members | {"metrics.csv": pickle.dumps(Harm())}),
    "cut short": lambda path, members: pack(path, members) or (path.write_bytes(path.read_bytes()[:-200]) and None),
    "another archive": lambda path, members: pack(path, {"a.txt": b"a"}, sealed=False),
    "no manifest": lambda p, members: pack(p, {k: v for k, v in members.items() if k[0:4] != "mani"}, sealed=False),
    "above": add("../escaped.txt"),
    "above inside": add("tables/../../escaped.txt"),
    "absolute": add("/tmp/escaped.txt"),
    "backslashes": add("..\\escaped.txt"),
    "drive": add("C:escaped.txt"),
    "name with NUL": lambda path, members: patched(
        path, members | {"tables/xZx.md": b""}, lambda c: c.__setitem__(slice(None), c.replace(b"xZx", b"x\0x"))
    ),
    "script": add("tables/evil.html", b"<script>"),
    "code": add("sitecustomize.py", b"import os"),
    "twice": twice,
    "link": infos(is_link),
    "compressed": infos(is_compressed),
    "bomb": bomb,
    "encrypted": lambda path, members: patched(path, members, encrypted),
    "larger than the file": lambda path, members: patched(path, members, claims_a_terabyte),
    "too many": lambda path, members: patched(path, members, claims_many),
    "a bit flipped": lambda path, members: patched(path, members, flipped),
    "not as packed": lambda p, members: pack(
        p, members | {"metrics.csv": members["metrics.csv"] + b"\n"}, sealed=False
    ),
    "not in the manifest": lambda path, members: pack(path, members | {"tables/new.md": b""}, sealed=False),
    "not in the archive": lambda p, members: pack(p, {k: v for k, v in members.items() if k != "metrics.csv"}, False),
    "newer": lambda path, members: pack(path, manifest_with(members, format=2)),
    "no format": lambda path, members: pack(path, manifest_with(members, format=None)),
    "another kind": lambda path, members: pack(path, manifest_with(members, kind="recipes")),
    "another study": lambda path, members: pack(path, manifest_with(members, study="two")),
    "no list": lambda path, members: pack(path, manifest_with(members, members=[1]), sealed=False),
    "not UTF-8": lambda path, members: pack(path, members | {"metrics.csv": "café".encode("latin-1")}),
    "deep JSON": lambda path, members: pack(path, members | {"card.json": b"[" * 100_000}),
    "a key twice": lambda path, members: pack(path, members | {"card.json": b'{"name": "a", "name": "b"}'}),
    "card without a key": lambda path, members: pack(path, members | {"card.json": b'{"name": "a"}'}),
    "name of a study": lambda path, members: pack(path, card_with(members, name="../../x")),
    "name of a method": lambda p, m: pack(p, card_with(m, methods={"../x": {"label": "x", "kind": "trained"}})),
    "long label": lambda p, m: pack(p, card_with(m, methods={"a": {"label": "x" * 10_000, "kind": "trained"}})),
    "confidence": lambda path, members: pack(path, card_with(members, confidence=float(10**300))),
    "metric": lambda path, members: pack(path, card_with(members, metrics={"origin": "__class__"})),
    "no methods": lambda path, members: pack(path, card_with(members, methods={})),
    "formula in a number": lambda p, m: pack(p, m | {"metrics.csv": m["metrics.csv"].replace(b",200,", b",=1+1,", 1)}),
    **{
        f"label {text!r}": relabelled(text)
        for text in ("", "a\x1b[2J", "a\nb", "a\tb", "a\u2028b", "=1+1", "＝1+1", " =1")
    },
    "labels that look the same": lambda p, m: pack(
        p, card_with(m, methods={n: {"label": t, "kind": "trained"} for n, t in {"a": "x", "b": "x\u200b"}.items()})
    ),
    "title": lambda path, members: pack(path, card_with(members, title="Clips\x1b]0;owned\x07")),
    "pretraining": lambda path, members: pack(path, card_with(members, pretraining="=cmd()")),
    "own metrics": lambda path, members: pack(path, card_with(members, own_metrics="R@2")),
    "no rows": lambda p, m: pack(p, m | {"metrics.csv": lines_of(m, "metrics.csv")[0].encode() + b"\n"}),
    "no intervals": lambda p, m: pack(
        p, m | {"statistics/intervals.csv": lines_of(m, "statistics/intervals.csv")[0].encode() + b"\n"}
    ),
    "metric of intervals": edited("statistics/intervals.csv", lambda lines: [*lines, lines[1].replace("R@1", "R@2")]),
    "metric of ranks": edited("statistics/ranks.csv", lambda lines: [*lines, lines[1].replace("R@1", "F1")]),
    "method of metrics": edited("metrics.csv", lambda lines: [*lines, lines[1].replace("a,", "z,", 1)]),
    "method of ranks": edited("statistics/ranks.csv", lambda lines: [*lines, lines[1].replace("a,", "z,", 1)]),
    "a run twice": edited("metrics.csv", lambda lines: [*lines, lines[1]]),
    "an interval twice": edited("statistics/intervals.csv", lambda lines: [*lines, lines[1]]),
    "a rank twice": edited("statistics/ranks.csv", lambda lines: [*lines, lines[1]]),
    "a run less": edited("metrics.csv", lambda lines: [lines[0], *lines[2:]]),
    "a run more": edited("metrics.csv", lambda lines: [*lines, lines[1].replace(",0,", ",7,", 1)]),
    "a method less": edited("metrics.csv", lambda lines: [line for line in lines if line[:2] != "b,"]),
    "an interval less": edited("statistics/intervals.csv", lambda lines: [lines[0], *lines[2:]]),
    "another estimate": edited("statistics/intervals.csv", better),
    "a pair twice": lambda p, m: pack(p, m | {"statistics/pairs.csv": PAIRS.encode()}),
    "run that is none": lambda path, members: pack(path, members | {"runs/a/seed0/run.json": b"[]"}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_by_name_and_does_nothing(home, capsys, case):
    path, before = home / "bad.rewind.zip", {*home.parent.rglob("*")}
    HOSTILE[case](path, members_of(home / "one.rewind.zip"))
    assert main(["board", "one.rewind.zip", "bad.rewind.zip"]) == 1
    said = capsys.readouterr().err
    assert (
        said.startswith("error: bad.rewind.zip") and "Traceback" not in said and "/tmp" not in said.replace("'/tmp", "")
    )
    expect_message(said)
    assert {*home.parent.rglob("*")} - before == {path}, "nothing is written"


NASTY = ("inf", "-1", "1e300", "1e-300", "0.5", "19", "", "x", "9" * 400)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("file", ["metrics.csv", "statistics/intervals.csv", "statistics/ranks.csv"])
def test_no_number_of_others_crashes_the_board(home, capsys, file):
    """Every number of a file is replaced by every nasty one: the board is written, or the file is refused by name."""
    members = members_of(home / "one.rewind.zip")
    header, first, *rest = members[file].decode().splitlines()
    outcomes = set()
    for column in range(len(header.split(","))):
        for value in NASTY:
            cells = first.split(",")
            cells[column] = value
            pack(home / "odd.rewind.zip", members | {file: "\n".join([header, ",".join(cells), *rest, ""]).encode()})
            outcomes.add(code := main(["board", "odd.rewind.zip"]))
            said = capsys.readouterr().err
            assert code == 0 or said.startswith("error: odd.rewind.zip"), (header.split(",")[column], value, said)
            if code == 0:
                json.loads((home / "board/board.json").read_text(), parse_constant=pytest.fail)
    assert outcomes == {0, 1}


def test_large_members_and_many_are_refused_before_they_are_read(home, capsys, monkeypatch):
    monkeypatch.setattr(share, "MAX_READ_BYTES", 1000)
    assert main(["board", "one.rewind.zip"]) == 1
    expect_message(capsys.readouterr().err, varying=r"'.*' ?: [\d,]+ bytes")
    monkeypatch.undo()
    monkeypatch.setattr(share, "MAX_MEMBERS", 3)
    monkeypatch.chdir(home)
    assert main(["board", "one.rewind.zip"]) == 1
    expect_message(capsys.readouterr().err, varying=r"\([\d,]+\)")


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\u202egnp.exe"]
)
def test_text_of_others_stays_text(home, capsys, text):
    members = members_of(home / "one.rewind.zip")
    methods = {name: {"label": f"{text}{name}", "kind": "trained"} for name in ("a", "b", "chance")}
    pack(home / "odd.rewind.zip", card_with(members, methods=methods, title=text, pretraining=text))
    assert main(["board", "odd.rewind.zip"]) == 0
    assert text not in capsys.readouterr().out or "<" in text, "a terminal gets no control characters"
    page = (home / "board/index.html").read_text()
    reader = Reader(page)
    assert len(reader.scripts) == 2 and not [a for a in reader.addresses if not a.startswith(("#", "data:"))]
    assert "<script>alert" not in page and "<img" not in page


def test_what_a_shared_file_names_is_never_imported(home):
    Path("evil.py").write_text("open('imported', 'w').close()\n")
    members = members_of(home / "one.rewind.zip")
    for name in [name for name in members if name.endswith("run.json")]:
        record = json.loads(members[name])
        record["spec"]["method"] |= {"model": "evil.build", "head": "evil.Head"}
        record["spec"] |= {"metrics": ["evil.METRIC"], "backbone": {"kind": "evil.Towers"}}
        members[name] = json.dumps(record).encode()
    pack(home / "odd.rewind.zip", card_with(members, own_metrics=["evil.METRIC"]))
    done = run("board", "odd.rewind.zip", folder=home)
    assert done.returncode == 0 and not (home / "imported").exists(), done.stderr


def test_a_device_or_a_folder_is_no_shared_file(home, capsys):
    os.mkfifo(home / "pipe.zip")
    (home / "folder.zip").mkdir()
    for name in ("pipe.zip", "folder.zip", "missing.zip"):
        assert main(["board", name]) == 1
        expect_error(capsys.readouterr().err, name)


def test_reading_needs_no_more_memory_than_the_texts_of_a_board(home):
    """Members that a board does not read are compared in parts."""
    large = io.BytesIO(b"0" * 3_000_000).getvalue()
    pack(home / "large.rewind.zip", members_of(home / "one.rewind.zip") | {"ranks/a/seed0.parquet": large})
    with share.opened_share(home / "large.rewind.zip") as opened:
        assert not list(opened.folder.rglob("*.parquet")) and (opened.folder / "metrics.csv").is_file()
        folder = opened.folder
    assert not folder.exists()
