"""What a job left behind is what the next one finds, or it is refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from messages import refusal
from rewind.job_values import Job, NamedList
from rewind.video.sources import pack_sources, unpack_sources
from rewind.workflow import checksums

MODEL = "results/mini/runs/meanP/seed{}/model.safetensors"


def given(*outputs: str, rule: str = "train", inputs: tuple[str, ...] = (), **wildcards: str) -> Job:
    return Job(rule, NamedList(inputs, {}), NamedList(outputs, {}), NamedList([], {}), wildcards, 1, {}, "a.log")


def made(path: str, content: bytes, **wildcards: str) -> Path:
    """A file that a job wrote."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    checksums.write_checksums(given(path, **wildcards))
    return file


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Times, and what other libraries say of a file.
VARYING = r"\d{4}-\d\d-\d\d \d\d:\d\d|(?<=changed )\(.*\)(?=\. To make)"


def said(path: str | Path, place: str | Path = "") -> str:
    with refusal(str(place or path), varying=VARYING) as caught:
        checksums.verify_file(path)
    return str(caught.value)


def test_a_file_as_it_was_made_passes_touched_moved_or_linked(folder):
    file = made(MODEL.format(0), b"weights", seed="0")
    os.utime(file, (1, 1))
    checksums.verify_file(file)
    checksums.verify_file(folder / file)
    (folder / "results").rename(folder / "elsewhere")
    (folder / "results").symlink_to(folder / "elsewhere")
    checksums.verify_file(file)


def test_what_is_another_file_by_now_is_named_with_how_it_came_and_what_to_do():
    first, second = (made(MODEL.format(seed), f"weights {seed}".encode(), seed=str(seed)) for seed in (0, 1))
    first.write_bytes(second.read_bytes())
    text = said(first)
    assert (
        "train (seed=0)" in text and str(second) in text and f"`snakemake --cores all --force {first} --config" in text
    )
    first.write_bytes(b"weigh")
    assert "5 bytes" in said(first)
    first.write_bytes(b"weighty 0")
    seal = Path("results/mini/.seals/runs/meanP/seed0/model.safetensors.json")
    assert str(seal) in said(first)
    seal.write_text("{")
    assert "safetensors" in said(first).partition(": ")[2].partition("`")[0], "of a broken seal, the structure speaks"
    first.unlink()
    first.mkdir()
    said(first)


def test_a_job_refuses_its_inputs_and_forgets_what_its_outputs_were():
    file = made("results/mini/metrics.csv", b"method\n")
    file.write_bytes(b"methods\n")
    with refusal("results/mini/metrics.csv", varying=VARYING):
        checksums.verify_inputs(given("results/mini/tables/a.csv", inputs=(str(file),)))
    draft = Path("results/mini/.seals/.metrics.csv.77.part.json")
    draft.write_text("")
    checksums.clear_checksums(given(str(file)))
    assert not draft.exists() and not list(Path("results/mini/.seals").iterdir())


def test_files_beside_an_index_count_with_it():
    folder = Path("results/data/vectors/source")
    folder.mkdir(parents=True)
    np.save(folder / "text.npy", np.ones((2, 3), np.float32))
    index = made(str(folder / "embeddings.json"), b'{"text_width": 3, "item_width": 3}')
    checksums.verify_file(index)
    np.save(folder / "text.npy", np.zeros((2, 3), np.float32))
    said(index, folder / "text.npy")


@pytest.mark.parametrize("earlier", [False, True])
def test_a_large_file_that_is_damaged_is_refused_whatever_its_time(monkeypatch, earlier):
    monkeypatch.setattr(checksums, "MIN_CRC_BYTES", 4)
    if earlier:  # which wrote no CRC-32
        monkeypatch.setattr(checksums, "MIN_CRC_BYTES", 8)
    file = made(MODEL.format(0), b"weights")
    monkeypatch.setattr(checksums, "MIN_CRC_BYTES", 4)
    then = file.stat().st_mtime_ns
    checksums.verify_file(file)
    os.utime(file, ns=(1, 1))
    checksums.verify_file(file)
    file.write_bytes(b"WEIGHTS")
    said(file)
    os.utime(file, ns=(then, then))
    said(file)


def test_a_large_file_of_the_same_time_is_read_once_by_its_fast_checksum(monkeypatch):
    monkeypatch.setattr(checksums, "MIN_CRC_BYTES", 4)
    file = made(MODEL.format(0), b"weights")
    monkeypatch.setattr(checksums, "sha256_of", lambda path: pytest.fail("read a second time"))
    checksums.verify_file(file)


def test_a_pipe_in_place_of_an_input_is_refused_and_not_waited_for():
    pipe = Path("results/mini/metrics.csv")
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    said(pipe)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results/mini/sweep/best.json", b"{}"),
        ("results/mini/sweep/best.json", b'{"max_frames": "many"}'),
        ("results/mini/sweep/best.json", b"[" * 100_000),
        ("results/data/a/items.csv", b"item_id,path\n"),
        ("results/data/a/items.csv", b"\xff\xfe"),
        ("results/mini/similarity/a/seed0.npz", b"PK"),
        ("results/mini/ranks/a/seed0.parquet", b"PAR1"),
        (MODEL.format(0), b"weights"),
    ],
)
def test_without_a_seal_the_structure_is_looked_at(name, content):
    Path(name).parent.mkdir(parents=True)
    Path(name).write_bytes(content)
    said(name)


def test_a_made_source_that_was_changed_comes_back_from_what_was_packed():
    folder = Path("results/data/shapes/source")
    (folder / "videos").mkdir(parents=True)
    clip = folder / "videos/a.mp4"
    clip.write_bytes(b"clip")
    pack_sources(folder)
    for content in (b"CLIP", b"cl", None):
        clip.unlink()
        if content:
            clip.write_bytes(content)
        unpack_sources(folder.with_name("source.tar"), folder)
        assert clip.read_bytes() == b"clip"


def test_files_elsewhere_and_those_of_a_bucket_have_no_seals():
    for name in ("data/x.json", ".snakemake/storage/s3/b/results/mini/best.json", "results/x.json"):
        made(name, b"{")
        checksums.verify_file(name)
    assert not list(Path().rglob(".seals"))


def test_outputs_that_were_touched_get_their_time_back_and_others_keep_theirs(folder):
    files = [made(MODEL.format(seed), f"weights {seed}".encode()) for seed in (0, 1, 2)]
    then = [file.stat().st_mtime_ns for file in files]
    for file, time in zip(files, (1, 2**62, 2**61), strict=True):
        os.utime(file, ns=(time, time))
    files[1].write_bytes(b"weights 7")
    os.utime(files[1], ns=(5, 5))
    checksums.restore_times(Path("results/mini"))
    assert [file.stat().st_mtime_ns for file in files] == [then[0], 5, then[2]]
    checksums.restore_times(Path("results/mini"), lambda output: 1e9 if output == str(files[0]) else None)
    assert files[0].stat().st_mtime_ns == then[0], "one of the two times is enough"
    os.utime(files[0], ns=(7, 7))
    checksums.restore_times(Path("results/mini"), lambda output: 1e9 if output == str(files[0]) else None)
    assert files[0].stat().st_mtime == 1e9, "jobs in one submission have the time at which it ended"


def test_what_has_no_checksum_is_never_older_than_what_was_made_first(folder):
    file = made(MODEL.format(0), b"weights")
    benchmark = folder / "results/mini/benchmarks/train/meanP.seed0.tsv"
    benchmark.parent.mkdir(parents=True)
    benchmark.touch()
    then = benchmark.stat().st_mtime_ns
    checksums.restore_times(Path("results/mini"))
    assert benchmark.stat().st_mtime_ns == then
    os.utime(benchmark, (0, 0))
    checksums.restore_times(Path("results/mini"))
    assert benchmark.stat().st_mtime_ns == file.stat().st_mtime_ns


def test_a_file_of_a_known_time_is_not_read(monkeypatch):
    file = made(MODEL.format(0), b"weights")
    monkeypatch.setattr(checksums, "sha256_of", lambda path: pytest.fail("read"))
    checksums.restore_times(Path("results/mini"))
    os.utime(file, (1e9, 1e9))
    checksums.restore_times(Path("results/mini"), lambda output: 1e9)


def test_a_folder_goes_by_the_file_that_stands_for_its_time():
    folder = Path("results/mini/tables")
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("table")
    checksums.write_checksums(given(str(folder), rule="tables"))
    stamp = folder / ".snakemake_timestamp"
    stamp.touch()
    os.utime(stamp, (2e9, 2e9))
    checksums.restore_times(Path("results/mini"))
    assert stamp.stat().st_mtime_ns == (folder / "a.md").stat().st_mtime_ns


def test_what_was_made_and_is_gone_is_named_as_far_as_the_study_still_has_it():
    made("results/mini/metrics.csv", b"method,seed\nmeanP,0\n")
    for method in ("meanP", "old"):
        made(f"results/mini/ranks/{method}/seed0.json", b"{}").unlink()
    trial = Path("results/mini/sweep/frames2.safetensors")
    trial.parent.mkdir()
    trial.write_bytes(b"")
    checksums.write_checksums(given(str(trial), rule="sweep_trial"))
    trial.unlink()
    lost = checksums.lost_outputs(Path("results/mini"))
    assert list(map(str, lost)) == ["results/mini/ranks/meanP/seed0.json"]
    with refusal("results/mini/ranks/meanP/seed0.json"):
        checksums.verify_files_below("results/mini", "ranks/*/*")
    checksums.verify_files_below("results/mini", "metrics.csv")


SHARD = "results/data/d/videos/shards/0-of-1"


def shard_of(qp: int) -> Job:
    outputs = NamedList([f"{SHARD}.csv", f"{SHARD}.index.csv"], {})
    return Job("video_shard", NamedList([], {}), outputs, NamedList([qp], {"media": {"qp": qp}}), {}, 1, {}, "a.log")


@pytest.mark.parametrize("earlier", [False, True])
def test_a_shard_that_is_gone_is_lost_unless_it_was_being_made_otherwise(monkeypatch, earlier):
    origin = checksums.job_origin
    if earlier:  # which wrote no origins
        monkeypatch.setattr(checksums, "job_origin", lambda *_: None)
    for path in shard_of(20).output:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("name,offset,bytes,sha256\n")
    checksums.write_checksums(shard_of(20))
    made_table = given("results/data/d/videos/shards.csv", rule="videos", inputs=(f"{SHARD}.index.csv",))
    Path(made_table.output[0]).write_text("shard,files,bytes,sha256\n")
    checksums.write_checksums(made_table)
    monkeypatch.setattr(checksums, "job_origin", origin)
    same, other = (checksums.job_origin(shard_of(qp).params.items(), []) for qp in (20, 30))
    tar = f"{SHARD}.tar"
    assert not checksums.is_made_otherwise(tar) and not checksums.is_made_otherwise(tar, same)
    if not earlier:
        Path(f"{SHARD}.index.csv").rename("index.csv")  # Snakemake removes what a job makes; the job was killed at once
        assert checksums.is_made_otherwise(tar) and not checksums.is_made_otherwise(tar, same)
        Path("index.csv").rename(f"{SHARD}.index.csv")
    checksums.clear_checksums(shard_of(30))  # killed
    assert checksums.is_made_otherwise(tar) and checksums.is_made_otherwise(tar, other)
    if not earlier:
        assert not checksums.is_made_otherwise(tar, same), "the key was set back: it comes back as it was"
        checksums.write_checksums(shard_of(30))  # finished, and killed before its index was joined with the others
        assert checksums.is_made_otherwise(tar) and checksums.is_made_otherwise(tar, other)
