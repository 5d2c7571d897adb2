"""Training states outside the machine: a killed run goes on elsewhere with the same bits; faults are said in words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem

from checkout import ROOT
from messages import expect_message, refusal
from rewind.config import load_study
from rewind.errors import RewindError
from rewind.job_values import Job
from rewind.training.checkpoint import StateFile
from rewind.training.checkpoint_store import RemoteStore, open_checkpoint_store, state_folder_problems, state_path
from rewind.workflow.preflight.files import study_faults
from s3_server import bucket_server, keys, lacking

pytestmark = pytest.mark.slow

KILLED = -9


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """The environment of an S3 server with the bucket ``states``."""
    if missing := lacking("s3fs"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    with bucket_server("states", tmp_path_factory.mktemp("s3") / "server.log") as environment:
        yield environment


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Weights of the run that nobody killed."""
    folder = tmp_path_factory.mktemp("unbroken")
    done = process(folder, folder / "state.pt")
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "model.pt")


def process(folder: Path, state, saves: int = 0, environment=()) -> subprocess.CompletedProcess:
    """The run in a folder of its own, which is all that it has on this machine."""
    folder.mkdir(exist_ok=True)
    command = [
        sys.executable,
        str(ROOT / "tests/support/killed_run.py"),
        str(state),
        str(folder / "model.pt"),
        str(saves),
    ]
    env = {**os.environ, **dict(environment), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests/support'}"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def goes_on(tmp_path: Path, state: str, unbroken, environment=()) -> None:
    """Kill a run on machine A in the middle of its second epoch, and end it on machine B."""
    first = process(tmp_path / "a", state, 6, environment)
    assert first.returncode == KILLED, first.stderr
    assert list((tmp_path / "a").iterdir()) == [], "machine A keeps nothing that machine B could have read"
    second = process(tmp_path / "b", state, 0, environment)
    assert second.returncode == 0, second.stderr
    assert "resumed after epoch 1, step 2" in second.stdout
    found = torch.load(tmp_path / "b/model.pt")
    assert found.keys() == unbroken.keys()
    assert all(torch.equal(found[name], unbroken[name]) for name in unbroken)


def test_a_run_killed_on_one_machine_goes_on_from_a_shared_folder(tmp_path, unbroken):
    folder = tmp_path / "with space"
    url = folder.as_uri() + "/runs/a.pt"
    goes_on(tmp_path, url, unbroken)
    assert list((folder / "runs").iterdir()) == [], "a finished run leaves no state"


def test_a_run_killed_on_one_machine_goes_on_from_a_bucket(tmp_path, unbroken, bucket):
    goes_on(tmp_path, "s3://states/demo/runs/a.pt", unbroken, bucket)
    assert keys(bucket, "states") == {}, "a finished run leaves no state"


@pytest.fixture
def at_bucket(bucket, monkeypatch):
    for name, value in bucket.items():
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    yield bucket
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_state_in_a_bucket_is_checked_replaced_and_set_aside(at_bucket, capsys):
    url = "s3://states/demo/sanity.pt"
    StateFile(url, "old").save({"epoch": 1})
    StateFile(url, "old").save({"epoch": 2})
    assert StateFile(url, "old").load() == {"epoch": 2}
    assert StateFile(url, "new").load() is None and "sanity.other.pt" in capsys.readouterr().out
    assert set(keys(at_bucket, "states")) == {"demo/sanity.other.pt"}
    StateFile(url, "new").remove()  # of nothing
    with open_checkpoint_store(url).writing() as draft:
        draft.write_bytes(b"half")
    assert StateFile(url, "new").load() is None and "cannot be read" in capsys.readouterr().out
    StateFile("s3://states/demo/sanity.other.pt", "old").remove()
    assert keys(at_bucket, "states") == {}


def test_a_bucket_that_is_not_there_is_refused_before_training(at_bucket):
    with pytest.raises(RewindError, match=r"s3://nowhere/demo/a\.pt: no such bucket"):
        StateFile("s3://nowhere/demo/a.pt", "x").load()


def test_without_credentials_it_says_what_to_set(at_bucket, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RewindError, match=r"no credentials .*AWS_ACCESS_KEY_ID"):
        StateFile("s3://states/demo/a.pt", "x").load()


class Slow(LocalFileSystem):
    """A store on which a file can be seen while it is written."""

    protocol = "slow"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("slow://"))


@pytest.fixture
def slow():
    fsspec.register_implementation("slow", Slow, clobber=True)


def test_where_a_file_shows_half_a_draft_is_renamed(tmp_path, slow, monkeypatch):
    url, seen = f"slow://{tmp_path}/deep/a.pt", []
    StateFile(url, "x").save({"epoch": 1})
    whole = Slow.put_file

    def broken(self, source, target, **options):
        seen.append(target)
        whole(self, source, target, **options)
        raise OSError("the line went dead")

    monkeypatch.setattr(Slow, "put_file", broken)
    with refusal("resources.state_folder: slow://deep/a.pt"):
        StateFile(url, "x").save({"epoch": 2})
    assert StateFile(url, "x").load() == {"epoch": 1} and not any(path.endswith("/a.pt") for path in seen)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.pt"]


def test_two_processes_may_set_the_same_state_aside():
    url = "memory://aside/a.pt"
    StateFile(url, "old").save({"epoch": 1})
    late = StateFile(url, "new")
    assert StateFile(url, "new").load() is None
    assert "a.other.pt" in late._set_aside()
    assert StateFile("memory://aside/a.other.pt", "old").load() == {"epoch": 1}


def test_captions_of_a_bad_batch_are_kept_beside_the_state():
    where = StateFile("memory://notes/a.pt", "x").note(".batch.json", {"captions": ["c1"]})
    assert where == "memory://notes/a.batch.json"
    with open_checkpoint_store(where).reading() as path:
        assert '"c1"' in path.read_text()


@pytest.mark.parametrize("url", ["nosuch://a/b", "s3://key:secret@bucket/a"])
def test_a_url_that_cannot_work_is_refused_before_the_first_job(url):
    chosen = load_study("demo", ROOT / "config/studies")
    resources = chosen.resources.model_copy(update={"state_folder": url})
    found = study_faults(chosen.model_copy(update={"resources": resources}))
    assert len(found) == 1 and found[0].startswith("resources.state_folder: ") and "secret" not in found[0]
    expect_message(found[0])


def test_a_missing_package_is_named_before_the_first_job(monkeypatch):
    def absent(scheme):
        raise ImportError(f"Install another package to access {scheme}")

    monkeypatch.setattr(fsspec, "get_filesystem_class", absent)
    assert "rewind-bench[cloud]" in state_folder_problems("s3://bucket/a")[0]
    assert "gcsfs" in state_folder_problems("gs://bucket/a")[0]
    for url in ("s3://bucket/a", "gs://bucket/a"):
        expect_message(state_folder_problems(url)[0])
    assert state_folder_problems("/some/folder") == []


def test_a_missing_package_is_named_in_a_job(monkeypatch):
    def absent(url, **options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", absent)
    with refusal("resources.state_folder"):
        RemoteStore("s3://bucket/a.pt")


def test_a_state_keeps_its_name_below_the_folder_that_a_study_gives():
    made = "results/demo/.state/sweep/frames4.pt"
    assert state_path(made) == state_path(made, "") == made
    assert state_path(made, "s3://bucket/rewind/") == "s3://bucket/rewind/demo/sweep/frames4.pt"
    assert state_path(made, "/scratch") == "/scratch/demo/sweep/frames4.pt"


def test_a_job_done_again_elsewhere_leaves_the_states_of_the_study_alone(tmp_path):
    none = {"values": [], "names": {}}
    given = Job.read(
        {
            "rule": "train",
            "input": none,
            "output": none,
            "params": {
                "values": [],
                "names": {
                    "state": "results/demo/.state/runs/a.pt",
                    "execution": {"state_folder": "s3://bucket/rewind", "workers": 2},
                },
            },
            "wildcards": {},
            "threads": 1,
            "resources": {"gpu": 0},
            "log": "a.log",
        }
    )
    moved = given.below(tmp_path)
    assert moved.params.execution == {"workers": 2}
    assert moved.params.state == str(tmp_path / "results/demo/.state/runs/a.pt")


def test_paths_of_rules_are_text_and_not_outputs_of_other_rules():
    """Snakemake refuses ``format`` of an output that is kept in a bucket, and no dry-run without one would notice."""
    texts = {path.name: path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk")}
    found = {name: re.findall(r"\brules\.[\w.\[\]]+", text) for name, text in texts.items()}
    assert len(texts) > 8 and not any(found.values()), found
