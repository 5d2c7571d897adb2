"""From annotations and a folder of sources to normalised clips, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import pytest

from drawn_clips import rows
from messages import expect_message, refusal
from rewind.config import Dataset, Video
from rewind.data.annotations import Annotations, twin_of
from rewind.video import ffmpeg, prepare
from rewind.video import sources as inventory
from rewind.video.prepare import check_coverage, prepare_report
from rewind.video.sources import build_inventory as take_inventory

SMALL = Video(fps=5, short_side=32)


def dataset(reversed_videos: Path | None = None, **keys) -> Dataset:
    source = {"format": "rtime", "annotations": {"test": "test.json"}, "videos": "clips"}
    if reversed_videos:
        source["reversed_videos"] = str(reversed_videos)
    return Dataset.model_validate({"name": "mine", "source": source, **keys})


def annotations(*sources: str, twins: tuple[str, ...] = ()) -> Annotations:
    """Originals named after their source's last part, and twins of those in ``twins``."""
    rows = []
    for source in sources:
        item_id = Path(source).name.split(".")[0]
        rows.append((item_id, source, "test", item_id, 0))
        if item_id in twins:
            rows.append((twin_of(item_id), source, "test", item_id, 1))
    items = pd.DataFrame(rows, columns=["item_id", "source", "split", "cluster_id", "reversed"])
    return Annotations(items, pd.DataFrame())


def touch(folder: Path, *names: str, data: bytes = b"x") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def test_sources_are_found_by_any_video_suffix(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "b.MOV",
        "a.mp4",
        "a.txt",
        "a.jpg",
        "c.webm.part",
        "sub/d.v2.mkv",
        "e.avi",
        "f.mp4/inside.mp4",
    )
    notes = annotations("b", "a", "c", "sub/d.v2", "e.avi", "f", "sub/a.mp4", twins=("a", "e"))
    table = take_inventory(dataset(), notes, tmp_path)
    found = [Path(source).relative_to(tmp_path).as_posix() if source else "" for source in table["source"]]
    assert found == ["b.MOV", "a.mp4", "", "sub/d.v2.mkv", "e.avi", "", ""]
    assert table.columns.tolist() == list(inventory.INVENTORY_COLUMNS)
    assert table["item_id"].tolist() == ["b", "a", "c", "d", "e", "f", "a"]
    assert table["bytes"].tolist() == [1, 1, 0, 1, 1, 0, 0]
    assert table["twin"].tolist() == [0, 1, 0, 0, 1, 0, 1]
    assert set(table["reversed_source"]) == {""} and set(table["split"]) == {"test"}


def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, *(f"{i}.mp4" for i in range(50)))
    listed, scandir = [], os.scandir
    monkeypatch.setattr(inventory.os, "scandir", lambda folder: listed.append(folder) or scandir(folder))
    take_inventory(dataset(), annotations(*map(str, range(60))), tmp_path)
    assert listed == [tmp_path]


def test_shards_depend_on_the_id_alone(tmp_path: Path) -> None:
    names = [f"clip{i}" for i in range(400)]
    touch(tmp_path, "clip7.mp4")
    many = dataset(video=Video(shards=8))
    table = take_inventory(many, annotations(*names), tmp_path)
    assert table["shard"].tolist() == [zlib.crc32(name.encode()) % 8 for name in names]
    assert table["shard"].value_counts().min() > 25
    fewer = take_inventory(many, annotations(*names[5:90]), tmp_path)
    assert fewer["shard"].tolist() == table["shard"].tolist()[5:90]


def test_two_files_for_one_clip_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "a.MKV", "b.mp4")
    with refusal():
        take_inventory(dataset(), annotations("b", "a"), tmp_path)
    assert take_inventory(dataset(), annotations("b"), tmp_path)["source"].all()  # a's files are nobody's problem


def test_existing_reversed_clips_are_found(tmp_path: Path) -> None:
    clips = touch(tmp_path / "clips", "a.mp4", "b.mp4", "c.mp4", "d.mp4")
    back = touch(tmp_path / "back", "a_rev.mp4", "b-reverse.MOV", "d_rev.mp4")
    notes = annotations("a", "b", "c", "d", twins=("a", "b", "c"))
    table = take_inventory(dataset(back), notes, clips)
    assert [Path(path).name for path in table["reversed_source"]] == ["a_rev.mp4", "b-reverse.MOV", "", ""]

    touch(back, "a-reverse.mp4")
    with refusal("back"):
        take_inventory(dataset(back), notes, clips)
    with refusal("config/datasets/mine.yaml: source.reversed_videos"):
        take_inventory(dataset(tmp_path / "nowhere"), notes, clips)


def test_finding_nothing_says_where_and_how_to_get_it(tmp_path: Path) -> None:
    touch(tmp_path, "other.mp4")
    mine = dataset(how_to_get="Ask for the clips at the library desk.")
    with refusal("config/datasets/mine.yaml") as error:
        take_inventory(mine, annotations("a", "b"), tmp_path)
    assert str(tmp_path) in str(error.value)
    with refusal("config/datasets/mine.yaml"):
        take_inventory(mine, annotations("a"), tmp_path / "nowhere")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips ``0`` to ``7`` and a file that is none."""
    folder = tmp_path_factory.mktemp("sources")
    for i in range(8):
        make(folder / f"{i}.mp4", f"testsrc2=s=64x48:r=10:d={1 + i * 0.2}")
    return touch(folder, "broken.mp4", data=b"not a video")


def make(path: Path, picture: str) -> None:
    options = ["-f", "lavfi", "-i", picture, "-c:v", "libx264", "-preset", "ultrafast", "-y", str(path)]
    assert ffmpeg.run_command([ffmpeg.executable(), *options]).code == 0


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.mp4"))}


def stamps(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in sorted(out.glob("*.mp4"))}


def test_one_clips_failure_never_stops_the_others(sources: Path, tmp_path: Path) -> None:
    table = rows(sources, "3", "broken", "0", "absent", "5")
    table.loc[2, "twin"] = 0
    report = prepare_report(table, tmp_path, SMALL, "code", workers=2)
    assert report.columns.tolist() == list(prepare.REPORT_COLUMNS)
    assert report["item_id"].tolist() == ["3", "broken", "0", "absent", "5"]
    assert report["status"].tolist() == ["ok", "failed", "ok", "missing", "ok"]
    assert report["twin"].tolist() == ["made", "none", "none", "none", "made"]
    assert report["frames"].tolist() == [8, 0, 5, 0, 10]
    expect_message(report["reason"][3])
    assert report["reason"].tolist()[1].startswith("cannot be decoded: ")
    assert list(contents(tmp_path)) == ["0.mp4", "3.mp4", "3_rev.mp4", "5.mp4", "5_rev.mp4"]


def test_a_finished_clip_is_not_made_again(sources: Path, tmp_path: Path) -> None:
    table = rows(sources, "0", "1", "broken")
    first = prepare_report(table, tmp_path, SMALL, "code", workers=2)
    made = stamps(tmp_path)
    other_jobs = Video(fps=5, short_side=32, shards=9, workers=7)  # how many jobs there are changes no byte
    second = prepare_report(table.iloc[::-1], tmp_path, other_jobs, "code", workers=1)
    assert stamps(tmp_path) == made
    pd.testing.assert_frame_equal(first, second.iloc[::-1].reset_index(drop=True))


def rewrite_source(copy: Path, out: Path) -> dict:
    make(copy, "testsrc2=s=64x48:r=10:d=2")
    return {}


def lose_twin(copy: Path, out: Path) -> dict:
    (out / "x_rev.mp4").unlink()
    return {}


def cut_output(copy: Path, out: Path) -> dict:
    (out / "x.mp4").write_bytes((out / "x.mp4").read_bytes()[:-1])
    return {}


def flip_output(path: Path) -> dict:
    """As a failing disk does: neither size nor time tell."""
    times, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return {}


def spoil_state(copy: Path, out: Path) -> dict:
    (out / ".state" / "x.json").write_text('{"signature": ')
    return {}


CHANGES: dict[str, Callable[[Path, Path], dict]] = {
    "a byte of the output flipped": lambda copy, out: flip_output(out / "x.mp4"),
    "source rewritten": rewrite_source,
    "other settings": lambda copy, out: {"settings": Video(fps=4, short_side=32)},
    "other code": lambda copy, out: {"code": "edited"},
    "twin lost": lose_twin,
    "output cut": cut_output,
    "state spoilt": spoil_state,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_no_longer_holds_is_made_again(change: str, sources: Path, tmp_path: Path) -> None:
    copy, out = tmp_path / "in" / "x.mp4", tmp_path / "out"
    touch(tmp_path / "in", "x.mp4", data=(sources / "2.mp4").read_bytes())
    touch(tmp_path / "in", "y.mp4", data=(sources / "3.mp4").read_bytes())
    asked = {"settings": SMALL, "code": "code"}
    prepare_report(rows(tmp_path / "in", "x", "y"), out, **asked, workers=2)
    before = stamps(out)
    asked |= CHANGES[change](copy, out)
    prepare_report(rows(tmp_path / "in", "x", "y"), out, **asked, workers=2)
    after = stamps(out)
    assert after["x.mp4"] != before["x.mp4"] and after["x_rev.mp4"] != before.get("x_rev.mp4")
    assert (after["y.mp4"] == before["y.mp4"]) == (not change.startswith("other"))
    fresh = tmp_path / "fresh"
    prepare_report(rows(tmp_path / "in", "x", "y"), fresh, **asked, workers=2)
    assert contents(out) == contents(fresh)


def test_a_touched_source_keeps_its_clip(sources: Path, tmp_path: Path) -> None:
    folder, out = touch(tmp_path / "in", "x.mp4", data=(sources / "2.mp4").read_bytes()), tmp_path / "out"
    prepare_report(rows(folder, "x"), out, SMALL, "code", workers=1)
    before = stamps(out)
    os.utime(folder / "x.mp4", ns=(1, 1))
    prepare_report(rows(folder, "x"), out, SMALL, "code", workers=1)
    assert stamps(out) == before


def test_another_ffmpeg_makes_every_clip_again(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_report(rows(sources, "0"), tmp_path, SMALL, "code", workers=1)
    before = stamps(tmp_path)
    monkeypatch.setattr(prepare.ffmpeg, "ffmpeg_version", lambda: "ffmpeg version 0")
    prepare_report(rows(sources, "0"), tmp_path, SMALL, "code", workers=1)
    assert all(before[name] != stamp for name, stamp in stamps(tmp_path).items())


def test_outputs_that_lost_their_reason_to_be_are_removed(sources: Path, tmp_path: Path) -> None:
    prepare_report(rows(sources, "0", "1"), tmp_path, SMALL, "code", workers=2)
    table = rows(sources, "0", "1", twin=0)
    table.loc[1, "source"] = ""
    report = prepare_report(table, tmp_path, SMALL, "code", workers=2)
    assert report["status"].tolist() == ["ok", "missing"]
    assert list(contents(tmp_path)) == ["0.mp4"]

    gone = rows(sources, "0").assign(source=str(tmp_path / "removed since.mp4"))
    assert prepare_report(gone, tmp_path, SMALL, "code", workers=1)["status"].tolist() == ["missing"]
    assert contents(tmp_path) == {}


def test_existing_reversed_clips_are_mapped(sources: Path, tmp_path: Path) -> None:
    table = rows(sources, "0", "1", reversed_source=str(sources / "1.mp4"))
    report = prepare_report(table, tmp_path, SMALL, "code", workers=2)
    assert report["twin"].tolist() == ["mapped", "mapped"]
    assert report["reason"][1] == ""
    expect_message(report["reason"][0])
    made = contents(tmp_path)
    assert made["0_rev.mp4"] == made["1_rev.mp4"] == made["1.mp4"]
    prepare_report(rows(sources, "1"), tmp_path, SMALL, "code", workers=1)  # without it, the twin is made
    assert contents(tmp_path)["1_rev.mp4"] != made["1_rev.mp4"]


def test_an_empty_shard_is_an_empty_report(tmp_path: Path) -> None:
    report = prepare_report(rows(tmp_path), tmp_path, SMALL, "code", workers=2)
    assert len(report) == 0 and report.columns.tolist() == list(prepare.REPORT_COLUMNS)


def test_an_id_cannot_leave_the_folder(sources: Path, tmp_path: Path) -> None:
    table = rows(sources, "0").assign(item_id="../0")
    with refusal("videos"):
        prepare_report(table, tmp_path, SMALL, "code", workers=1)


SHARD_JOB = """
import sys
import pandas as pd
import psutil
from pathlib import Path
from rewind.config import Video
from rewind.video.prepare import prepare_report
rows = pd.read_csv(sys.argv[1], dtype=str, keep_default_na=False).astype({"twin": int})
prepare_report(rows, Path(sys.argv[2]), Video(fps=5, short_side=160), "code", workers=2)
"""


def kill_after(states: int, table: Path, out: Path) -> None:
    """Start the job, wait for ``states`` finished clips, kill it (and not its ffmpeg) where it stands."""
    job = subprocess.Popen([sys.executable, "-c", SHARD_JOB, str(table), str(out)], stderr=subprocess.DEVNULL)
    while len(list((out / ".state").glob("[!.]*.json"))) < states:
        assert job.poll() is None, "the job ended before it could be killed"
        time.sleep(0.002)
    job.send_signal(signal.SIGSTOP)  # it starts no ffmpeg between the list of them and its end
    os.waitpid(job.pid, os.WUNTRACED)
    orphans = psutil.Process(job.pid).children(recursive=True)
    job.send_signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    psutil.wait_procs(orphans)  # ffmpeg ends its clip


@pytest.mark.slow
def test_a_killed_job_finishes_when_called_again(tmp_path: Path) -> None:
    names = [f"clip{i}" for i in range(12)]
    make(tmp_path / "long.mp4", "testsrc2=s=320x240:r=10:d=6")
    touch(tmp_path / "in", *(f"{n}.mp4" for n in names), data=(tmp_path / "long.mp4").read_bytes())
    table, out, settings = rows(tmp_path / "in", *names), tmp_path / "out", Video(fps=5, short_side=160)
    table.to_csv(tmp_path / "rows.csv", index=False)

    kill_after(2, tmp_path / "rows.csv", out)
    finished = {path.stem for path in (out / ".state").glob("[!.]*.json")}
    first = {name: stamp for name, stamp in stamps(out).items() if name[:-4].removesuffix("_rev") in finished}
    damaged = finished.pop()  # by a failing disk, after its job was killed: it is made again
    flip_output(out / f"{damaged}.mp4")
    first = {name: stamp for name, stamp in first.items() if name not in (f"{damaged}.mp4", f"{damaged}_rev.mp4")}
    kill_after(6, tmp_path / "rows.csv", out)
    draft = touch(out, ".clip11.99999.part.mp4") / ".clip11.99999.part.mp4"  # as an earlier kill leaves one
    neighbour = touch(out, ".elsewhere.99999.part.mp4") / ".elsewhere.99999.part.mp4"
    report = prepare_report(table, out, settings, "code", workers=2)

    assert report["status"].tolist() == ["ok"] * 12 and set(report["frames"]) == {30}
    assert len(first) >= 2 and first.items() <= stamps(out).items()  # what was finished stayed
    assert not draft.exists() and neighbour.exists()  # another shard's drafts are its own
    neighbour.unlink()
    assert [path for folder in (out, out / ".state") for path in folder.glob(".*.part*")] == []
    assert set(contents(out)) == {f"{name}{end}.mp4" for name in names for end in ("", "_rev")}
    unbroken = prepare_report(table.head(1), tmp_path / "unbroken", settings, "code", workers=1)
    assert unbroken["bytes"].tolist() == report["bytes"].tolist()[:1]
    assert set(contents(out).values()) == set(contents(tmp_path / "unbroken").values())


def test_what_an_outliving_ffmpeg_opens_late_is_removed(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transcode_beside_an_orphan(*args):
        touch(tmp_path, ".0.99999.part.mp4", ".0_rev.99999.part.mp4")  # of a job killed a moment ago
        return transcode(*args)

    transcode = prepare.transcode_clip
    monkeypatch.setattr(prepare, "transcode_clip", transcode_beside_an_orphan)
    report = prepare_report(rows(sources, "0"), tmp_path, SMALL, "code", workers=1)
    assert report["status"].tolist() == ["ok"]
    assert list(tmp_path.glob(".*.part.*")) == []


def test_coverage_is_a_share_with_names() -> None:
    names = [f"c{i}" for i in range(200)]
    report = pd.DataFrame({"item_id": names, "status": "ok", "reason": ""})
    check_coverage(report, 0.0, "mine", "")
    report.loc[: 200 // 10 - 1, ["status", "reason"]] = ["failed", "empty file"]
    report.loc[0, ["status", "reason"]] = ["missing", "no source file"]
    check_coverage(report, 0.1, "mine", "")
    with refusal() as error:
        check_coverage(report, 0.09, "mine", "Ask at the desk.")
    lines = str(error.value).splitlines()
    assert "mine: 20 of 200 clips (10.0%)" in lines[0] and "9.0%" in lines[0]
    assert lines[1].startswith("  c0: ") and lines[10].startswith("  c9: ") and "10 more" in lines[11]
    check_coverage(report.head(0), 0.0, "mine", "")
