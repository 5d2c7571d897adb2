"""Vectors of a split: what the files hold, ties of twins, what a killed job goes on from, what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from checkout import ROOT
from encoder_data import NAMES, keys, open_clip_folder, prepared
from messages import expect_message, refusal
from rewind.data.captions import load_split
from rewind.distributed import World
from rewind.encoders import encode_vectors as job
from rewind.encoders import shards
from rewind.encoders.encode_vectors import make_foil_vectors, make_test_vectors
from rewind.io.files import read_csv, read_json, write_csv


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return prepared(tmp_path_factory.mktemp("encoders") / "tiny")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return open_clip_folder(tmp_path_factory.mktemp("models") / "tiny")


def vectors(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    found = {}
    for kind in ("captions", "items"):
        with np.load(folder / f"{kind}.npz", allow_pickle=False) as archive:
            found[kind] = {name: archive[name] for name in archive.files}
    return found


def made(data: Path, folder: Path, encoding, code: str = "code") -> dict[str, dict[str, np.ndarray]]:
    make_test_vectors(encoding, data, "tiny", folder, code)
    return vectors(folder)


@pytest.fixture(scope="module")
def whole(data: Path, model: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    make_test_vectors(keys("open_clip", model), data, "tiny", folder, "code")
    return folder


def test_the_files_hold_usable_captions_and_items_in_their_order(data: Path, whole: Path) -> None:
    found, items = vectors(whole), read_csv(data / "items.csv")
    assert found["items"]["ids"].tolist() == items["item_id"][items["status"] == "ok"].tolist()
    captions = read_csv(data / "captions/tiny_test.csv")
    assert found["captions"]["ids"].tolist() == captions["caption_id"][captions["video_id"] != "gone"].tolist()
    assert found["items"]["vectors"].shape == (6, 16) and found["captions"]["vectors"].shape == (6, 16)
    assert {array.dtype for part in found.values() for array in (part["vectors"],)} == {np.dtype(np.float32)}
    words = captions.set_index("caption_id")["caption"]
    rows = dict(zip(found["captions"]["ids"].tolist(), found["captions"]["vectors"], strict=True))
    same = [one for one in rows if words[one] == "a red square moves left"]
    assert len(same) == 2 and (rows[same[0]] == rows[same[1]]).all()
    assert len({row.tobytes() for row in rows.values()}) == words[list(rows)].nunique()


def test_a_model_blind_to_order_ties_every_clip_with_its_twin(whole: Path) -> None:
    found = vectors(whole)["items"]
    rows = dict(zip(found["ids"].tolist(), found["vectors"], strict=True))
    assert all((rows[name] == rows[f"{name}_rev"]).all() for name in NAMES)
    assert not np.allclose(rows["a"], rows["b"])


def test_the_record_says_how(whole: Path, model: Path) -> None:
    record = read_json(whole / "record.json")
    assert record["encoder"] == "open_clip" and record["name"] == str(model) and record["width"] == 16
    assert record["twins"] == record["mirrored"] == 3 and record["left_out"] == {"items": 1, "captions": 1}
    assert record["items"] == record["captions"] == 6
    expect_message("\n".join(record["notes"]))
    assert record["packages"]["open-clip-torch"] and record["seconds"]["items"] > 0
    assert not (whole / ".state").exists()
    assert record["captions_cut"] == 0 and not any("cut" in note for note in record["notes"])


def test_captions_longer_than_the_context_are_counted(data: Path, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(data, folder)
    captions = read_csv(folder / "captions/tiny_test.csv")
    captions.loc[captions["caption"] == "two circles", "caption"] = " ".join(["circle"] * 19)  # 20 tokens fit
    write_csv(folder / "captions/tiny_test.csv", captions)
    make_test_vectors(keys("open_clip", model), folder, "tiny", tmp_path / "out", "code")
    record = read_json(tmp_path / "out/record.json")
    assert record["captions_cut"] == 1
    (said,) = [note for note in record["notes"] if "1 of 3" in note]
    expect_message(said)


@pytest.mark.parametrize(("size", "frames"), [*((size, 4) for size in range(1, 8)), (1, 1), (3, 1), (3, 3)])
def test_no_batch_breaks_a_tie(data: Path, model: Path, whole: Path, tmp_path: Path, size: int, frames: int) -> None:
    found = made(data, tmp_path, keys("open_clip", model, batch_size=size, max_frames=frames))["items"]
    if frames == 4:
        np.testing.assert_allclose(found["vectors"], vectors(whole)["items"]["vectors"], atol=1e-5)
    rows = dict(zip(found["ids"].tolist(), found["vectors"], strict=True))
    assert all((rows[name] == rows[f"{name}_rev"]).all() for name in NAMES)


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from encoder_data import keys
from rewind.encoders import encode_vectors as job
from rewind.data.captions import load_split
from rewind.distributed import World
from rewind.encoders import shards
job.CLIPS_PER_SHARD = job.CAPTIONS_PER_SHARD = 1
write = shards.write_shard
def slowly(path, *rest):
    write(path, *rest)
    time.sleep(0.0 if path.name != {last!r} else 600)
shards.write_shard = slowly
job.make_test_vectors(keys("open_clip", {model!r}), Path({data!r}), "tiny", Path({folder!r}), "code")
"""


@pytest.mark.slow
def test_a_killed_job_goes_on(data: Path, model: Path, whole: Path, tmp_path: Path, monkeypatch) -> None:
    last = "items-00001.npz"
    places = {"tests": str(ROOT / "tests/support"), "model": str(model), "data": str(data), "folder": str(tmp_path)}
    text = KILLED.format(last=last, **places)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen([sys.executable, "-c", text], env=environment)
    state = tmp_path / ".state"
    while not (state / last).exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL and not (tmp_path / "items.npz").exists()
    kept = sorted(path.name for path in state.glob("*.npz"))
    assert last in kept and "items-00002.npz" not in kept

    monkeypatch.setattr(job, "CLIPS_PER_SHARD", 1)
    monkeypatch.setattr(job, "CAPTIONS_PER_SHARD", 1)
    written = []
    write = shards.write_shard
    monkeypatch.setattr(shards, "write_shard", lambda path, *rest: (written.append(path.name), write(path, *rest)))
    found = made(data, tmp_path, keys("open_clip", model))
    assert written == ["items-00002.npz"]
    for kind, part in vectors(whole).items():
        np.testing.assert_allclose(found[kind]["vectors"], part["vectors"], atol=1e-5)


@pytest.mark.parametrize("change", ["code", "keys", "clip", "weights"])
def test_no_shard_of_other_keys_code_or_files_is_kept(
    data: Path, tmp_path: Path, monkeypatch, change: str, tmp_path_factory
) -> None:
    model = open_clip_folder(tmp_path_factory.mktemp("model") / "tiny")
    monkeypatch.setattr(job, "_join_shards", lambda *_: None)  # the state stays
    make_test_vectors(keys("open_clip", model), data, "tiny", tmp_path, "code")
    written = []
    write = shards.write_shard
    monkeypatch.setattr(shards, "write_shard", lambda path, *rest: (written.append(path.name), write(path, *rest)))
    make_test_vectors(keys("open_clip", model), data, "tiny", tmp_path, "code")
    assert not written
    if change == "clip":
        os.utime(data / "videos/a.mp4", ns=(0, 0))
    if change == "weights":
        os.utime(model / "open_clip_pytorch_model.bin", ns=(0, 0))
    encoding = keys("open_clip", model, max_frames=3 if change == "keys" else 4)
    make_test_vectors(encoding, data, "tiny", tmp_path, "other" if change == "code" else "code")
    assert written == (["items-00000.npz"] if change == "clip" else ["captions-00000.npz", "items-00000.npz"])


def test_a_broken_shard_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "shard.npz"
    shards.write_shard(path, shards.make_vector_shard(["x"], np.ones((1, 3)), "model"), "mark")
    assert shards.read_shard(path, "mark").vectors.shape == (1, 3)
    assert shards.read_shard(path, "other") is None
    path.write_bytes(path.read_bytes()[:-40])
    assert shards.read_shard(path, "mark") is None


def test_many_vectors_of_each_are_kept_with_their_lengths(tmp_path: Path) -> None:
    first = shards.make_vector_shard(["x", "y"], [np.ones((2, 3)), np.ones((1, 3))], "model")
    second = shards.make_vector_shard(["z"], [np.full((4, 3), 2.0)], "model")
    whole = shards.join_shards([first, second])
    assert whole.vectors.shape == (3, 4, 3) and whole.lengths.tolist() == [2, 1, 4]
    assert (whole.vectors[1, 1:] == 0).all()
    shards.write_vector_file(tmp_path / "a.npz", shards.select_rows(whole, ["q", "r"], [2, 0]))
    with np.load(tmp_path / "a.npz") as archive:
        assert archive["ids"].tolist() == ["q", "r"] and archive["lengths"].tolist() == [4, 2]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (np.ones((1, 3)), "model"),
        (np.ones((2, 3, 4)), "model"),
        (np.array([[1.0, 1.0], [0.0, 0.0]]), "model"),
        (np.array([[np.nan, 1.0], [0.0, 1.0]]), "model"),
        ([np.ones((1, 3)), np.ones((1, 2))], "model"),
    ],
)
def test_what_is_no_vector_is_refused(given, place: str) -> None:
    with refusal(place):
        shards.make_vector_shard(["x", "y"], given, "model")


OWN = """
import numpy as np
from rewind.encoders.base import Encoder

class Files(Encoder):
    notes = ["sees names"]
    def encode_texts(self, texts):
        return np.array([[len(t), 1.0] for t in texts])
    def encode_clips(self, clips):
        return np.array([[c[0].mean(), 1.0] for c in clips])
    def encode_files(self, paths):
        return np.array([[1.0 + p.stem.endswith("_rev"), 1.0] for p in paths])

def build(encoding):
    return Files()
"""


def test_an_encoder_of_the_users_own_with_its_own_sampler(data: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/encoder.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    encoding = keys("own.encoder", "x", frames="model")
    found = made(data, tmp_path / "out", encoding)
    rows = dict(zip(found["items"]["ids"].tolist(), found["items"]["vectors"][:, 0].tolist(), strict=True))
    assert rows == {item: 1.0 + item.endswith("_rev") for item in rows}
    expect_message(read_json(tmp_path / "out/record.json")["notes"][-1])


def test_content_is_json(model: Path) -> None:
    encoding = keys("open_clip", model, batch_size=3)
    assert "batch_size" not in encoding.content() and json.loads(json.dumps(encoding.content())) == encoding.content()
    assert encoding.folder() == keys("open_clip", model, batch_size=9).folder()
    assert encoding.folder() != keys("open_clip", model, max_frames=5).folder()
    assert encoding.folder().startswith("open_clip.tiny.")


def test_several_processes_share_the_shards(data: Path, model: Path, whole: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(job, "CLIPS_PER_SHARD", 1)
    monkeypatch.setattr(job, "CAPTIONS_PER_SHARD", 1)
    split = load_split(data, "tiny", "test")
    texts = list(dict.fromkeys(split.captions["caption"]))
    written: list[str] = []
    write = shards.write_shard
    monkeypatch.setattr(shards, "write_shard", lambda path, *rest: (written.append(path.name), write(path, *rest)))
    counts = []
    for rank in (1, 0):
        work = job._ShardedEncoding(keys("open_clip", model), tmp_path / ".state", "code", 1, {})
        work.run(texts, job.group_twins(split.items, data), World(rank, 2))
        counts.append(len(written))
    assert len(written) == len(set(written)) == len(texts) + 3 and counts[0] in (2, 3)
    job._join_shards(work, split, texts, tmp_path, World(0, 2))
    assert read_json(tmp_path / "record.json")["processes"] == 2
    for kind, part in vectors(whole).items():
        np.testing.assert_allclose(vectors(tmp_path)[kind]["vectors"], part["vectors"], atol=1e-5)


def test_foils_are_encoded_beside_the_captions(data, model, tmp_path):
    encoding = keys("open_clip", model)
    found = made(data, tmp_path / "vectors", encoding)["captions"]
    texts = ["a red square moves right", "a blue square", "a red square moves right"]
    foils = pd.DataFrame(
        {"foil_id": ["a#0~0", "a#0~1", "b#0~0"], "caption_id": ["a#0", "a#0", "b#0"], "caption": texts}
    )
    write_csv(tmp_path / "foils.csv", foils)
    make_foil_vectors(encoding, tmp_path / "vectors/captions.npz", tmp_path / "foils.csv", tmp_path / "both.npz")
    with np.load(tmp_path / "both.npz", allow_pickle=False) as archive:
        ids, both = archive["ids"].tolist(), archive["vectors"]
    assert ids == [*found["ids"].tolist(), "a#0~0", "a#0~1", "b#0~0"]
    assert np.array_equal(both[: len(found["ids"])], found["vectors"]), "those of captions are the same"
    assert np.array_equal(both[-3], both[-1]) and not np.array_equal(both[-3], both[-2])
    expected = job.build_encoder(encoding).encode_texts(texts[:2])
    assert both[-3:-1] == pytest.approx(np.asarray(expected), abs=1e-6)
