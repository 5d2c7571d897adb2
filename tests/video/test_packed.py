"""Clips in shards: what a shard is, what returns from an earlier one, what is said of a damaged one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from checkout import ROOT
from messages import expect_message, refusal
from packed_clips import IMAGES, inventory, make
from rewind.cli.main import main
from rewind.config import Video
from rewind.hashing import sha256_of
from rewind.io.files import read_csv, write_csv
from rewind.video import ffmpeg, prepare, shards
from rewind.video import prepare as shard
from rewind.video.frames import open_file_frames, open_frames, sample_clip

pytest_plugins = ["packed_clips"]

NAMES = ["b", "a", "d", "c"]
CLIPS = Video(fps=5, short_side=32)


@pytest.fixture
def pictures(tmp_path: Path) -> pd.DataFrame:
    """An inventory of four pictures, as it was read, and one that is not there."""
    from PIL import Image as Picture

    rng = np.random.default_rng(0)
    for name in NAMES:
        Picture.fromarray(rng.integers(0, 255, (30, 40, 3), np.uint8)).save(tmp_path / f"{name}.png")
    return inventory(tmp_path, [*NAMES, "gone"], ".png")


def test_a_shard_is_a_plain_tar_whose_bytes_follow_from_its_clips(tmp_path, pictures):
    videos = make(tmp_path)
    tar = videos / "shards/0-of-1.tar"
    listed = subprocess.run(["tar", "tvf", str(tar)], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["a.png", "b.png", "c.png", "d.png"]
    with tarfile.open(tar) as archive:
        for row in read_csv(videos / "clips.csv").itertuples():
            member = archive.getmember(row.name)
            assert (member.offset_data, member.size, member.mtime) == (row.offset, row.bytes, 0)
            assert archive.extractfile(member).read() == shards.read_packed_clip(shards.find_clip(videos / row.name))
    assert read_csv(videos / "shards.csv").to_numpy().tolist() == [
        ["shards/0-of-1.tar", 4, tar.stat().st_size, sha256_of(tar)]
    ]
    assert read_csv(videos / "report.csv")["status"].tolist() == ["ok"] * 4 + ["missing"]
    left = {path.name for path in videos.iterdir()}
    assert left == {".state", "shards", "inventory.csv", "report.csv", "clips.csv", "shards.csv"}, "no single files"
    before, index = tar.read_bytes(), (videos / "clips.csv").read_bytes()
    shutil.rmtree(videos)
    inventory(tmp_path, [*reversed(NAMES), "gone"], ".png")
    make(tmp_path)
    assert tar.read_bytes() == before and (videos / "clips.csv").read_bytes() == index, "whatever the order of rows"


def test_long_names_and_no_clips_at_all(tmp_path):
    name = "x" * 190 + ".mp4"
    written = shards.write_tar(tmp_path / "s.tar", [(name, b"abc"), ("y.mp4", b"")])
    with tarfile.open(tmp_path / "s.tar") as archive:
        assert archive.getnames() == [name, "y.mp4"]
        assert [m.offset_data for m in archive.getmembers()] == [m.offset for m in written.members]
    assert written.sha256 == sha256_of(tmp_path / "s.tar")
    shards.write_members(tmp_path / "s.index.csv", written)
    assert shards.read_members(tmp_path / "s.index.csv") == written
    empty = shards.write_tar(tmp_path / "e.tar", [])
    shards.write_members(tmp_path / "e.index.csv", empty)
    assert shards.read_members(tmp_path / "e.index.csv") == empty and (tmp_path / "e.tar").stat().st_size == 10240


def test_clips_are_read_out_of_shards_as_from_files(tmp_path):
    run = ["-f", "lavfi", "-i", "testsrc=s=64x48:r=10:d=2", "-c:v", "libx264", str(tmp_path / "v.mp4")]
    assert ffmpeg.run_command([ffmpeg.executable(), *run]).code == 0
    inventory(tmp_path, ["v"], ".mp4", twin=1)
    videos = make(tmp_path, settings=CLIPS)
    for name in ("v.mp4", "v_rev.mp4"):
        single = shards.extract_clip(videos / name, tmp_path / "single" / name)
        plain, inside = open_file_frames(single), open_frames(videos / name)
        assert len(plain) == len(inside) == 10 and plain.fps == inside.fps
        assert np.array_equal(plain.read(range(10)), inside.read(range(10)))
        forth = sample_clip(videos / name, 4, 24, reversed="rev" in name)
        assert all(
            np.array_equal(a, b) for a, b in zip(forth, sample_clip(single, 4, 24, reversed="rev" in name), strict=True)
        )
    assert np.array_equal(
        open_frames(videos / "v.mp4").read(range(10)), open_frames(videos / "v_rev.mp4").read(range(10))[::-1]
    )
    with refusal("videos/w.mp4"):
        open_frames(videos / "w.mp4")


def test_what_is_unchanged_returns_without_work(tmp_path, pictures, made):
    videos = make(tmp_path)
    tar = videos / "shards/0-of-1.tar"
    inode, content, reports = tar.stat().st_ino, tar.read_bytes(), read_csv(videos / "report.csv")
    assert sorted(made) == sorted(NAMES) and tar.stat().st_nlink == 2, "its second name takes no room"
    made.clear()
    make(tmp_path)
    assert made == [] and tar.stat().st_ino == inode and read_csv(videos / "report.csv").equals(reports)
    shutil.copy(tmp_path / "a.png", tmp_path / "c.png")
    make(tmp_path)
    assert made == ["c"], "the one whose source changed"
    assert shards.read_packed_clip(shards.find_clip(videos / "c.png")) == shards.read_packed_clip(
        shards.find_clip(videos / "a.png")
    )
    assert tar.read_bytes() != content and tar.stat().st_nlink == 2
    made.clear()
    (tmp_path / "d.png").unlink()
    inventory(tmp_path, NAMES, ".png")
    make(tmp_path)
    assert made == [] and read_csv(videos / "clips.csv")["name"].tolist() == ["a.png", "b.png", "c.png"]
    make(tmp_path, code="other")
    assert sorted(made) == ["a", "b", "c"], "other code makes all again"


def test_single_files_of_earlier_versions_are_packed_as_they_are(tmp_path, pictures, made):
    prepare.prepare_report(pictures, tmp_path / "videos", IMAGES, "code", 2)
    before = {path.name: path.read_bytes() for path in (tmp_path / "videos").glob("*.png")}
    made.clear()
    videos = make(tmp_path)
    assert made == [] and not list(videos.glob("*.png")) and not list((videos / ".state").glob("*.json"))
    assert {name: shards.read_packed_clip(shards.find_clip(videos / name)) for name in before} == before


def test_another_number_of_shards_takes_what_is_there(tmp_path, pictures, made):
    make(tmp_path)
    made.clear()
    inventory(tmp_path, [*NAMES, "gone"], ".png", parts=3)
    videos = make(tmp_path, parts=3)
    assert made == []
    names = {path.name for path in (videos / "shards").iterdir()} | {
        p.name for p in (videos / ".state/shards").iterdir()
    }
    assert names and all("-of-3" in name for name in names), "nothing is left of the former division"
    assert read_csv(videos / "clips.csv")["name"].tolist() == ["b.png", "c.png", "a.png", "d.png"]
    assert shards.verify_shards(videos) == (4, [])


def test_without_hard_links_nothing_is_kept_and_all_is_right(tmp_path, pictures, made, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(shard.os, "link", refuse)
    videos = make(tmp_path)
    assert shards.verify_shards(videos) == (4, []) and not list((videos / ".state/shards").iterdir())
    make(tmp_path)
    assert sorted(made) == sorted(NAMES * 2)


def test_damage_is_named_and_the_advice_mends_only_what_is_damaged(tmp_path, pictures, made):
    videos = make(tmp_path)
    tar, place = videos / "shards/0-of-1.tar", shards.find_clip(videos / "b.png")
    content = tar.read_bytes()
    with tar.open("r+b") as stream:
        stream.seek(place.member.offset + 20)
        stream.write(bytes([content[place.member.offset + 20] ^ 1]))
    with refusal("videos/shards/0-of-1.tar"):
        open_frames(videos / "b.png")
    open_frames(videos / "a.png")
    count, (said,) = shards.verify_shards(videos)
    assert count == 4 and "0-of-1.tar: b.png: " in said
    expect_message(said)
    made.clear()
    make(tmp_path)
    assert made == ["b"] and tar.read_bytes() == content
    with tar.open("r+b") as stream:  # a header, which no reader of ours looks at
        stream.write(b"?")
    (said,) = shards.verify_shards(videos)[1]
    assert ".png" not in said, "none of the clips"
    expect_message(said)
    made.clear()
    make(tmp_path)
    assert made == [] and tar.read_bytes() == content
    os.truncate(tar, 700)
    with refusal("videos/shards/0-of-1.tar"):
        open_frames(videos / "d.png")
    tar.unlink()
    with refusal("videos/shards/0-of-1.tar"):
        open_frames(videos / "a.png")
    expect_message(shards.verify_shards(videos)[1][0])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "clips.csv"),
        ("name,offset\n", "clips.csv"),
        ("name,shard,offset,bytes,sha256\na.png,s.tar,x,1,0\n", "clips.csv"),
    ],
)
def test_a_broken_index_is_refused_by_name(tmp_path, text, place):
    (tmp_path / "clips.csv").write_text(text + "a,b\n" * bool(text))
    with refusal(place):
        open_frames(tmp_path / "a.png")


@pytest.fixture
def prepared(tmp_path, pictures, monkeypatch, capsys) -> Path:
    """``results/data/mine`` of the present folder."""
    monkeypatch.chdir(tmp_path)
    videos = make(tmp_path)
    folder = tmp_path / "results/data/mine"
    folder.mkdir(parents=True)
    shutil.move(videos, folder / "videos")
    rows = [(name, f"videos/{name}.png", "test", name, 0, "ok") for name in NAMES]
    rows.append(("gone", "videos/gone.png", "test", "gone", 0, "missing"))
    columns = ["item_id", "path", "split", "cluster_id", "reversed", "status"]
    write_csv(folder / "items.csv", pd.DataFrame(rows, columns=columns))
    capsys.readouterr()
    return folder


def test_a_person_gets_clips_out(prepared, capsys):
    folder = prepared
    assert main(["clips", "extract", "mine", "a", "c"]) == 0
    assert capsys.readouterr().out.split() == ["results/data/mine/clips/a.png", "results/data/mine/clips/c.png"]
    assert main(["clips", "extract", "mine", "--split", "test", "--out", "all"]) == 0
    assert sorted(path.name for path in Path("all").iterdir()) == ["a.png", "b.png", "c.png", "d.png"]
    assert Path("all/b.png").read_bytes() == shards.read_packed_clip(shards.find_clip(folder / "videos/b.png"))
    for arguments, named in (
        (["mine"], "--split"),
        (["mine", "zebra"], "zebra"),
        (["mine", "gone"], "gone"),
        (["other", "a"], "other"),
    ):
        assert main(["clips", "extract", *arguments]) == 1
        said = capsys.readouterr().err
        assert named in said
        expect_message(said)
    assert main(["verify", "mine"]) == 0
    said = capsys.readouterr().out
    assert "4 files" in said
    expect_message(said)


@pytest.mark.parametrize("named", ["absolute", "above", "link", "shard", "absolute shard"])
def test_no_file_outside_of_the_data_is_copied(prepared, tmp_path, capsys, named):
    secret = tmp_path / "secret/key.png"
    secret.parent.mkdir()
    secret.write_bytes(b"private")
    items, index = prepared / "items.csv", prepared / "videos/clips.csv"
    if "shard" in named:
        shard = str(secret) if "absolute" in named else os.path.relpath(secret, prepared / "videos")
        lines = [line for line in index.read_text().splitlines() if not line.startswith("a.png")]
        index.write_text("\n".join([*lines, f"a.png,{shard},0,7,{sha256_of(secret)}", ""]))
    else:
        paths = {"absolute": str(secret), "above": "../../../secret/key.png", "link": "videos/link.png"}
        (prepared / "videos/link.png").symlink_to(secret)
        items.write_text(items.read_text().replace("videos/a.png", paths[named]))
    assert main(["clips", "extract", "mine", "c", "a", "--out", "out"]) == 1
    said = capsys.readouterr().err
    expect_message(said)
    if "shard" in named:
        assert f"{index.relative_to(tmp_path)}: names '{shard}'" in said
        assert main(["verify", "mine"]) == 1 and f"'{shard}'" in capsys.readouterr().err
    else:
        assert "--trust" in said and ("link.png: " if named == "link" else "key.png: ") in said
    assert not Path("out").exists(), "nothing is written, of other clips neither"
    if "shard" not in named:
        assert main(["clips", "extract", "mine", "a", "--out", "out", "--trust"]) == 0
        assert [path.read_bytes() for path in Path("out").iterdir()] == [b"private"]


CLIPS_HEADER = "name,shard,offset,bytes,sha256\n"
SHARDS_HEADER = "shard,files,bytes,sha256\n"


@pytest.mark.parametrize(
    ("table", "text", "named"),
    [
        ("videos/shards.csv", SHARDS_HEADER, "clips.csv"),
        ("videos/shards.csv", "", "shards.csv"),
        ("videos/shards.csv", "shard,files\nshards/0-of-1.tar,4\n", "shards.csv"),
        ("videos/shards.csv", SHARDS_HEADER + 'a,"1\n', "shards.csv"),
        ("videos/shards.csv", SHARDS_HEADER + "../../../x.tar,4,1,0\n", "'../../../x.tar'"),
        ("videos/clips.csv", CLIPS_HEADER, "clips.csv"),
        ("videos/clips.csv", CLIPS_HEADER + 'a,"1\n', "clips.csv"),
        ("videos/clips.csv", CLIPS_HEADER + "a.png,shards/0-of-1.tar,-5,9,0\n", "clips.csv"),
        ("items.csv", "item_id,split,status\na,test,ok\n", "'path'"),
        ("items.csv", "item_id,path,split,status\na,a,test,ok\na,b,test,ok\n", "'a'"),
        ("items.csv", "item_id,path,split,status\na,,test,ok\n", "'a'"),
    ],
)
def test_broken_tables_are_refused_by_name(prepared, capsys, table, text, named):
    (prepared / table).write_text(text)
    command = ["clips", "extract", "mine", "a"] if table == "items.csv" else ["verify", "mine"]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert named in said
    expect_message(said)


@pytest.mark.parametrize(("offset", "count"), [(-5, 9), (512, -1), (0, 10**18), (10**18, 5)])
def test_a_clip_that_cannot_be_where_the_index_says_is_refused(prepared, capsys, offset, count):
    index = prepared / "videos/clips.csv"
    lines = [line for line in index.read_text().splitlines() if not line.startswith("a.png")]
    index.write_text("\n".join([*lines, f"a.png,shards/0-of-1.tar,{offset},{count},{'0' * 64}", ""]))
    assert main(["clips", "extract", "mine", "a"]) == 1
    said = capsys.readouterr().err
    assert "a.png" in said and f"{offset:,}" in said
    expect_message(said, varying=r"(?<=there are )[\d,]+")
    assert main(["verify", "mine"]) == 1
    said = capsys.readouterr().out
    assert "0-of-1.tar: a.png: " in said
    expect_message(said)


@pytest.mark.parametrize("name", ["clips.csv", "shards.csv", "shards/0-of-1.tar", "../items.csv"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(prepared, tmp_path, name):
    (prepared / "videos" / name).unlink()
    os.mkfifo(prepared / "videos" / name)
    for command in (["verify", "mine"], *([["clips", "extract", "mine", "a"]] if name != "shards.csv" else [])):
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        run = [sys.executable, "-m", "rewind", *command]
        done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert Path(name).name in done.stdout + done.stderr
        assert "this is a named pipe" in done.stderr or "not a regular file" in done.stdout


@pytest.mark.parametrize("table", ["clips.csv", "shards.csv"])
def test_bytes_of_a_broken_table_are_not_put_out(prepared, capsys, table):
    (prepared / "videos" / table).write_bytes(b"\xff" * 5000)
    assert main(["verify", "mine"]) == 1
    text = capsys.readouterr().err
    assert f"{table}: " in text and len(text) < 400
    expect_message(text)


def test_reading_clips_needs_no_torch():
    code = "import sys, rewind.cli.clips, rewind.video.frames; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT / "src")}).returncode == 0
    )
