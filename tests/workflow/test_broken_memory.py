"""What is remembered between two readings of the workflow may be broken: it is looked up anew, or refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from messages import refusal
from rewind.io.cache import JsonCache
from rewind.video.shards import missing_shards
from rewind.video.sources import SourceListing
from rewind.workflow.preflight import models
from rewind.workflow.staleness.accepted import ACCEPTED_FILE, AcceptedEditStore
from rewind.workflow.staleness.code_hash import ModuleReader, load_code_hash
from rewind.workflow.staleness.user_inputs import UserInputs

CONTENTS = {
    "empty": b"",
    "cut": b'[{"stage": "tra',
    "a list": b"[1, [2], null]",
    "an object": b'{"a": {"b": [1]}}',
    "null": b"null",
    "a number": b"9" * 5000,
    "Latin-1": b'["caf\xe9"]',
    "zeros": bytes(100),
    "deep": b"[" * 100_000,
    "quoted": b'"a,b\nc,d\n',
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_a_broken_memory_is_none(tmp_path, content):
    file = tmp_path / "memory.json"
    file.write_bytes(content)
    assert JsonCache(file).get("memory") is None and "memory" not in JsonCache(file)
    assert models.all_model_faults({}, {}, JsonCache(file)) == {} and file.read_bytes() == content
    assert ModuleReader(Path("src/rewind"), memory=file).module("rewind.errors").units
    assert load_code_hash("memory", tmp_path) is None
    assert UserInputs(file, writes=True).parts([file]) == {}
    state = tmp_path / "videos/.state/shards"
    state.mkdir(parents=True)
    for name in ("inventory.csv", ".state/shards/0.json", "report.csv", "shards.csv"):
        (tmp_path / "videos" / name).write_bytes(content)
    assert SourceListing([str(tmp_path / "videos")], tmp_path / "videos", file).digest()
    assert missing_shards(tmp_path / "videos") == []


READER = r"(?<=can be read )\(.*\)(?=; without)"  # Python's words


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_broken_acceptances_are_refused_since_without_them_runs_would_be_made_again(tmp_path, content):
    (tmp_path / "mini").mkdir()
    file = tmp_path / "mini" / ACCEPTED_FILE
    file.write_bytes(content)
    with refusal("mini/accepted.json", varying=READER):
        AcceptedEditStore(tmp_path).recorded("train", {"study": "mini"}, "a" * 16)
    with refusal("mini/accepted.json", varying=READER):
        AcceptedEditStore(tmp_path).add(file, [])
    assert file.read_bytes() == content, "nothing is written over it"
