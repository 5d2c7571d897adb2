"""Whether sources are still the same: names, sizes, and in doubt their content."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture

from packed_clips import inventory, make
from rewind.config import Dataset
from rewind.hashing import stable_hash
from rewind.video import sources
from rewind.workflow.config import source_digest

pytest_plugins = ["packed_clips"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four source pictures under ``in``, the videos stage done; the working folder is the data set's."""
    (tmp_path / "in/sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "sub/c"):
        pixels = np.random.default_rng(len(name)).integers(0, 255, (30, 40, 3), np.uint8)
        Picture.fromarray(pixels).save(f"in/{name}.bmp")
    return tmp_path


def listed() -> str:
    return sources.SourceListing(["in"], Path("videos"), Path("memory.csv")).digest()


def prepare() -> None:
    table = inventory(Path("in"), ["a", "b", "sub/c"], ".bmp")
    table.assign(item_id=["a", "b", "c"]).to_csv("in/videos/inventory.csv", index=False)
    make(Path("in"))
    os.rename("in/videos", "videos")


def test_names_and_sizes_are_summed_up_as_they_always_were(folder):
    sizes = sorted((name, (Path("in") / name).stat().st_size) for name in ("a.bmp", "b.bmp", "sub/c.bmp"))
    assert listed() == stable_hash(sizes) == listed()
    Path("in/d.bmp").write_bytes(b"x")
    assert listed() != stable_hash(sizes)


def test_a_touched_source_is_the_same_and_a_replaced_one_is_not(folder, monkeypatch):
    prepare()
    first = listed()
    read = []
    whole = sources.sha256_of
    monkeypatch.setattr(sources, "sha256_of", lambda path: read.append(str(path)) or whole(path))
    os.utime("in/a.bmp", (1, 1))
    assert listed() == first and read == ["in/a.bmp"]
    assert listed() == first and read == ["in/a.bmp"], "what was found is remembered"
    content = bytearray(Path("in/b.bmp").read_bytes())
    content[100] ^= 1
    Path("in/b.bmp").write_bytes(content)
    second = listed()
    assert second != first and read == ["in/a.bmp", "in/b.bmp"]
    assert listed() == second, "and stays"
    os.utime("in/b.bmp", (2, 2))
    assert listed() == second, "a replaced file may be touched too"
    os.utime("in/sub/c.bmp", (3, 3))
    content[100] ^= 1
    Path("in/b.bmp").write_bytes(content)
    assert listed() not in (first, second), (
        "put back: the clip in its place was made of the other one, as far as is known"
    )


def test_without_checksums_names_and_sizes_decide(folder):
    first = listed()
    os.utime("in/a.bmp", (1, 1))
    assert listed() == first
    Path("memory.csv").write_text("broken")
    assert listed() == first


def test_a_shard_keeps_what_was_made_of_a_touched_source(folder, made):
    prepare()
    made.clear()
    os.rename("videos", "in/videos")
    for name in ("a", "b", "sub/c"):
        os.utime(f"in/{name}.bmp", (5, 5))
    make(Path("in"))
    assert made == []
    content = bytearray(Path("in/b.bmp").read_bytes())
    content[200] ^= 1
    Path("in/b.bmp").write_bytes(content)
    make(Path("in"))
    assert made == ["b"]


def test_data_sets_that_are_made_here_have_no_listing(folder):
    assert source_digest(Dataset.model_validate({"name": "m", "source": {"format": "shapes"}})) is None
