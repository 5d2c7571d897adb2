"""A file of the user's own that takes another's place is noticed, whatever its size and time say."""

from __future__ import annotations

import os
from pathlib import Path

from rewind.workflow.staleness.user_inputs import UserInputs


def seen(memory: Path, *paths: Path, writes: bool = True) -> dict[str, str]:
    """What a fresh process finds."""
    brought = UserInputs(memory, writes)
    found = brought.parts(paths)
    brought.keep()
    return found


def put(path: Path, content: bytes, time: int) -> None:
    """Put a file in place as ``cp -p`` or ``tar`` do: with the time that it had."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    os.utime(draft, ns=(time, time))
    draft.replace(path)


def test_a_replaced_file_of_the_same_size_and_an_older_time_is_noticed(tmp_path):
    memory, file = tmp_path / "seen.csv", tmp_path / "weights.pt"
    put(file, b"first", 2_000)
    assert seen(memory, file) == {}
    put(file, b"other", 1_000)
    (part, sha256), *rest = seen(memory, file).items()
    assert part == f"{file}:content" and not rest
    assert seen(memory, file) == {part: sha256}, "it stays another file"
    put(file, b"first", 1_000)
    assert seen(memory, file) == {}, "and is the first again, of the same time as the other"


def test_a_touched_copied_or_lost_file_is_no_other_one(tmp_path):
    memory, file = tmp_path / "seen.csv", tmp_path / "a.json"
    put(file, b"{}", 1_000)
    assert seen(memory, file, tmp_path / "none.json") == {}
    put(file, b"{}", 9_000)
    assert seen(memory, file) == {}
    file.unlink()
    assert seen(memory, file) == {}


def test_a_process_that_does_not_write_compares_with_what_is_known_only(tmp_path):
    memory, file = tmp_path / "seen.csv", tmp_path / "a.json"
    put(file, b"one", 1_000)
    assert seen(memory, file, writes=False) == {} and not memory.exists()
    seen(memory, file)
    put(file, b"two", 1_000 - 1)
    assert seen(memory, file, writes=False) == seen(memory, file) != {}


def test_a_memory_that_was_broken_is_none(tmp_path):
    memory, file = tmp_path / "seen.csv", tmp_path / "a.json"
    put(file, b"one", 1_000)
    for content in (b"", b"a,b\n", b"\xff\xfe\x00", b'"x,1,2,3\n', f"{file},x,y,z,w\n".encode()):
        memory.write_bytes(content)
        assert seen(memory, file) == {}
