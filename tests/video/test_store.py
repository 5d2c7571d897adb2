"""The frame store gives what clips give, bit for bit, survives a kill, and refuses what is not whole."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pytest
import torch

from messages import expect_message, refusal
from patience import patience
from rewind.config import Frames, Video
from rewind.io.files import read_csv, write_csv
from rewind.loading.frame_source import ClipFrames, StoredFrames
from rewind.video import ffmpeg
from rewind.video import store_frames as job
from rewind.video.frame_store import FrameStore, FrameView, verify_store
from rewind.video.store_frames import make_frame_store
from rewind.video.transcode import transcode_clip

SETTINGS = Video(fps=5, short_side=32)
KEYS = Frames(size=24, max_frames=6)
VIEW = FrameView.of(KEYS, 6)
SECONDS = {"a": 2.0, "b": 0.6, "c": 3.1, "d": 1.4, "e": 2.2}  # at 5 frames per second, b has 3 frames and is padded
MAPPED = {"d": 2.0, "e": 2.2}  # twins that are no mirror: of another length, of another content


def draw(path: Path, seconds: float, picture: str = "testsrc2") -> Path:
    drawing = ["-f", "lavfi", "-i", f"{picture}=s=60x40:r=25:d={seconds}", "-c:v", "libx264", "-qp", "10"]
    assert ffmpeg.run_command([ffmpeg.executable(), *drawing, str(path), "-y"]).code == 0
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A data folder: ``a`` to ``e`` with twins, ``f`` without one, ``gone`` unusable."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "videos").mkdir()
    rows = [("gone", "videos/gone.mp4", "train", "gone", 0, "missing")]
    for name, seconds in {**SECONDS, "f": 1.0}.items():
        clip, twin = folder / f"videos/{name}.mp4", folder / f"videos/{name}_rev.mp4"
        mapped = draw(folder / "mapped.mp4", MAPPED[name], "testsrc") if name in MAPPED else None
        source = draw(folder / "source.mp4", seconds)
        assert transcode_clip(source, clip, twin if name != "f" else None, SETTINGS, mapped).status == "ok"
        rows.append((name, f"videos/{clip.name}", "train", name, 0, "ok"))
        rows += [(twin.stem, f"videos/{twin.name}", "train", name, 1, "ok")] * (name != "f")
    columns = ["item_id", "path", "split", "cluster_id", "reversed", "status"]
    write_csv(folder / "items.csv", pd.DataFrame(rows, columns=columns))
    return folder


def usable(data: Path) -> pd.DataFrame:
    items = read_csv(data / "items.csv")
    return items[items["status"] == "ok"].reset_index(drop=True)


def make(data: Path, folder: Path, view: FrameView = VIEW, workers: int = 2, rows: int = 2, code: str = "code") -> Path:
    """A store of shards that hold two families each."""
    make_frame_store(str(data / "items.csv"), str(folder / "index.json"), view, code, workers, rows * view.bytes)
    return folder / "index.json"


@pytest.fixture(scope="module")
def index(data, tmp_path_factory) -> Path:
    return make(data, tmp_path_factory.mktemp("store"))


@pytest.fixture
def copy(index, tmp_path) -> Path:
    """A store that a test may damage."""
    shutil.copytree(index.parent, tmp_path / "copy")
    return tmp_path / "copy" / "index.json"


def content(folder: Path) -> dict[str, bytes]:
    """All files of a store; not what its job keeps for the next one."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: (folder / name).read_bytes() for name in found if not name.startswith(".state/")}


@pytest.mark.parametrize("keys", [{}, {"sampling": "head"}, {"rate": 2.0}, {"sampling": "tail", "size": 40}])
@pytest.mark.parametrize("frames", [5, 6])
def test_the_store_gives_what_clips_give(data, tmp_path, keys, frames):
    chosen = KEYS.model_copy(update=keys)
    index = make(data, tmp_path, FrameView.of(chosen, frames))
    items = usable(data).sample(frac=1, random_state=0)
    clips = ClipFrames(items, data, chosen, frames).batch(np.arange(len(items)))
    stored = StoredFrames(items, index, chosen, frames)
    found = stored.batch(np.arange(len(items)))
    assert len(stored) == len(items) == 11
    for name in ("pixels", "mask"):
        assert found[name].dtype == clips[name].dtype and torch.equal(found[name], clips[name])
    assert found["pixels"].is_contiguous()
    one = stored.batch(np.array([3, 0, 3]))["pixels"]
    assert torch.equal(one, clips["pixels"][[3, 0, 3]])
    one.zero_()  # a batch is memory of its own: a model may write into it
    assert torch.equal(stored.batch(np.array([3]))["pixels"], clips["pixels"][[3]])


def test_only_twins_that_are_no_mirror_take_room(index):
    items = read_csv(index.parent / "items.csv").set_index("item_id")
    assert set(items.index[items["mirrored"] == 1]) == {"a_rev", "b_rev", "c_rev"}
    assert items.loc["b", "frames"] == 3 and items.loc["b_rev", "row"] == items.loc["b", "row"]
    assert json.loads(index.read_text())["rows"] == 8
    assert sum(path.stat().st_size for path in index.parent.glob("shards/*.bin")) == 8 * VIEW.bytes
    assert len(list(index.parent.glob("shards/*.bin"))) == 3


def test_bytes_depend_on_neither_workers_nor_place_nor_time(data, index, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(data, moved, copy_function=shutil.copy)  # new times
    assert content(make(moved, tmp_path / "again", workers=1).parent) == content(index.parent)


KILLED = """
import sys, time
from pathlib import Path
from rewind.video import store_frames as frames
from rewind.video import frame_store
whole = frame_store.sample_clip
def slow(*arguments, **named):
    while len(list(Path(sys.argv[2]).parent.glob(".state/0*.json"))) >= 2:  # until it is killed
        time.sleep(0.1)
    return whole(*arguments, **named)
frame_store.sample_clip = slow
frames.make_frame_store(sys.argv[1], sys.argv[2], frame_store.FrameView(6, 24, "uniform", None), "code", 2, 1)
"""


def test_a_killed_job_goes_on_and_leaves_no_process(data, tmp_path, capsys):
    whole = make(data, tmp_path / "whole", rows=1)
    folder = tmp_path / "killed"
    arguments = [sys.executable, "-c", KILLED, str(data / "items.csv"), str(folder / "index.json")]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    while len(list(folder.glob(".state/0*.json"))) < 2 and process.poll() is None:
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert workers and not psutil.wait_procs(workers, timeout=patience(10))[1], "workers end with a job that is killed"
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob(".state/0*.bin")}
    finished = {path.stem for path in folder.glob(".state/0*.json")}
    assert 2 <= len(finished) < 6 and not (folder / "index.json").exists()
    make(data, folder, rows=1)
    assert content(folder) == content(whole.parent), "the bytes of an unbroken job, and no draft left"
    assert f"{len(finished)} of 6 shards are finished" in capsys.readouterr().out
    for name in finished:
        made = (folder / f"shards/{name}.bin").stat()
        assert made.st_mtime_ns == kept[f"{name}.bin"] and made.st_nlink == 2, "neither made again nor held twice"


def test_what_changed_is_decoded_again_and_nothing_else(data, copy, tmp_path):
    moved = tmp_path / "data"
    shutil.copytree(data, moved)
    make(moved, copy.parent)  # other paths: all anew
    before = {path.name: _mark(path) for path in copy.parent.glob("shards/*.bin")}
    os.utime(moved / "videos/c.mp4")
    make(moved, copy.parent)
    assert _changed(copy, before) == {"00001.bin"}, "the shard of the clip that was touched"
    make(moved, copy.parent, code="another")
    assert _changed(copy, before) == set(before)
    table = read_csv(moved / "items.csv")
    write_csv(moved / "items.csv", table[~table["item_id"].isin(["e", "e_rev", "f"])])
    make(moved, copy.parent, code="another")
    assert {path.name for path in copy.parent.glob("shards/*.bin")} == {"00000.bin", "00001.bin"}, (
        "no shard is left over"
    )
    verify_store(copy)


def _mark(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns  # a file system may give an old inode out again


def _changed(index: Path, before: dict[str, tuple[int, int]]) -> set[str]:
    return {name for name, mark in before.items() if _mark(index.parent / "shards" / name) != mark}


def test_a_damaged_store_is_refused_by_name(copy):
    verify_store(copy)
    shard = copy.parent / "shards/00001.bin"
    whole = shard.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    shard.write_bytes(flipped)
    store = FrameStore(copy, VIEW)  # sizes are right; only the checksums tell
    with refusal("copy/shards/00001.bin", varying=r"(?<=row )\d+ \([^)]*\)"):
        read_all(store)
    with refusal("copy/shards/00001.bin"):
        verify_store(copy)
    shard.write_bytes(whole[:-1])
    for look in (verify_store, lambda path: FrameStore(path, VIEW)):
        with refusal("copy/shards/00001.bin"):
            look(copy)
    shard.unlink()
    with refusal("copy/shards/00001.bin"):
        FrameStore(copy, VIEW)
    items = copy.parent / "items.csv"
    items.write_text(items.read_text().replace("a,0,0", "a,0,1"))
    shard.write_bytes(whole)
    with refusal("copy/items.csv"):
        FrameStore(copy, VIEW)


def read_all(store: FrameStore) -> np.ndarray:
    places = store.places(store._items.index)
    pixels = np.empty((len(places), *store.view.shape), np.uint8)
    store.read(places, pixels)
    return pixels


@pytest.mark.parametrize("item", ["a", "a_rev", "d_rev"])  # an original, its mirror, a twin with a row of its own
def test_a_row_that_is_damaged_while_a_process_reads_is_refused_and_the_others_are_not(copy, item):
    store = FrameStore(copy, VIEW)
    before = read_all(store)
    shard, row = store.places([item])[0][:2]
    path = copy.parent / f"shards/{shard:05}.bin"
    then = path.stat()
    with path.open("r+b") as stream:
        stream.seek(row * VIEW.bytes + VIEW.bytes // 2)
        byte = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte[0] ^ 4]))
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    hit = {name for name in store._items.index if tuple(store.places([name])[0][:2]) == (shard, row)}
    for position, name in enumerate(store._items.index):
        pixels = np.empty((1, *VIEW.shape), np.uint8)
        if name in hit:
            with refusal(f"copy/shards/{path.name}") as caught:
                store.read(store.places([name]), pixels)
            assert f"row {row} ({', '.join(sorted(hit))})" in str(caught.value)
        else:
            store.read(store.places([name]), pixels)
            assert np.array_equal(pixels[0], before[position])


@pytest.mark.parametrize("left", [None, "{", "[]", '{"sha256": "of another shard", "crc32": []}'])
def test_a_store_without_checksums_of_rows_is_compared_whole(copy, capsys, left):
    whole = read_all(FrameStore(copy, VIEW))
    for path in copy.parent.glob("shards/*.crc32"):
        path.unlink()
        if left is not None:
            path.write_text(left)
    capsys.readouterr()
    store = FrameStore(copy, VIEW)
    assert np.array_equal(read_all(store), whole)
    expect_message(capsys.readouterr().out)
    damage(copy.parent / "shards/00002.bin")
    with refusal("copy/shards/00002.bin"):
        read_all(store)
    with refusal("copy/shards/00002.bin"):
        read_all(FrameStore(copy, VIEW))


def damage(path: Path) -> None:
    """Flip 200 bytes; size and time stay."""
    then, content = path.stat(), bytearray(path.read_bytes())
    for at in range(0, len(content), len(content) // 200):
        content[at] ^= 0x55
    path.write_bytes(content)
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))


def test_checksums_that_are_not_those_of_the_shard_are_found(copy):
    path = copy.parent / "shards/00000.crc32"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"crc32": content["crc32"][::-1]}))
    with refusal("copy/shards/00000.crc32"):
        verify_store(copy)


def test_a_store_of_an_earlier_version_gets_its_checksums_without_decoding_again(data, copy):
    make(data, copy.parent)
    whole = content(copy.parent)
    for path in copy.parent.rglob("*.crc32"):
        path.unlink()
    before = {path.name: _mark(path) for path in copy.parent.glob("shards/*.bin")}
    make(data, copy.parent)
    assert content(copy.parent) == whole and not _changed(copy, before)


def test_what_the_message_advises_mends_the_store(data, copy):
    whole = content(copy.parent)
    make(data, copy.parent)
    assert content(copy.parent) == whole
    with (copy.parent / "shards/00002.bin").open("ab") as stream:
        stream.write(b"x")
    with refusal("copy/shards/00002.bin"):
        FrameStore(copy, VIEW)
    shutil.rmtree(copy.parent / "shards")  # as the workflow does with outputs before it starts their job
    copy.unlink()
    make(data, copy.parent)
    assert content(copy.parent) == whole


@pytest.mark.parametrize("key, value", [("max_frames", 4), ("size", 32), ("sampling", "head"), ("rate", 1.0)])
def test_a_store_of_other_keys_is_refused(index, key, value):
    with refusal("index.json") as caught:
        FrameStore(index, replace(VIEW, **{key: value}))
    assert f"frames.{key} = {value}" in str(caught.value)


def test_what_is_no_store_is_refused(tmp_path, copy):
    with refusal("index.json"):
        FrameStore(tmp_path / "index.json", VIEW)
    made = json.loads(copy.read_text())
    for text in ("[]", json.dumps(made | {"version": 99}), "{"):
        copy.write_text(text)
        with refusal("copy/index.json"):
            FrameStore(copy, VIEW)
    copy.write_text(json.dumps({key: value for key, value in made.items() if key != "rate"}))
    with refusal("copy/index.json"):
        FrameStore(copy, VIEW)


def test_an_item_that_the_store_lacks_is_named(index):
    with refusal("items.csv"):
        FrameStore(index, VIEW).places(["a", "gone"])


def test_a_clip_that_cannot_be_read_stops_the_job_and_keeps_what_is_done(data, tmp_path):
    broken = tmp_path / "data"
    shutil.copytree(data, broken)
    (broken / "videos/f.mp4").write_text("no video")
    with refusal("data/videos/f.mp4"):
        make(broken, tmp_path / "store", workers=1)
    assert not (tmp_path / "store/index.json").exists() and (tmp_path / "store/.state/00000.bin").exists()
    (broken / "videos/f.mp4").unlink()
    with refusal("data/videos/f.mp4"):
        make(broken, tmp_path / "store")


def test_a_disk_too_small_is_told_before_decoding(data, tmp_path, monkeypatch):
    monkeypatch.setattr(job.shutil, "disk_usage", lambda path: SimpleNamespace(free=1))
    with refusal():
        make(data, tmp_path)
    assert not list(tmp_path.rglob("*.bin"))


class _Batches(torch.utils.data.Dataset):
    def __init__(self, inputs: StoredFrames) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return self.inputs.batch(np.arange(place, place + 4))


@pytest.mark.parametrize("start, workers", [("fork", 2), ("spawn", 1)])
def test_loader_workers_read_the_same(data, index, start, workers):
    stored = StoredFrames(usable(data), index, KEYS, 6)
    expected = [stored.batch(np.arange(n, n + 4)) for n in range(6)]  # maps are open when the workers start
    assert len(pickle.dumps(stored)) < 10_000 and stored.store._maps
    assert not pickle.loads(pickle.dumps(stored)).store._maps
    loader = torch.utils.data.DataLoader(
        _Batches(stored), batch_size=None, num_workers=workers, multiprocessing_context=start
    )
    for batch, whole in zip(loader, expected, strict=True):
        assert torch.equal(batch["pixels"], whole["pixels"]) and torch.equal(batch["mask"], whole["mask"])


def test_the_job_needs_no_torch():
    code = "import sys, rewind.video.store_frames; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
