"""What cannot work is told before the first job, with its own reason: a model's files, and what Snakemake refuses."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from brought_files import COUNT, caption_ids, item_ids, made, write_captions, write_vectors
from checkout import ROOT
from messages import expect_error, expect_message, refusal
from rewind.config import load_dataset
from rewind.data.annotations import read_annotations
from rewind.data.captions import write_captions as prepare
from rewind.data.readers import read_score_file
from rewind.errors import ConfigErrors
from rewind.system_errors import user_message
from rewind.workflow.config import load_checked_config
from rewind.workflow.staleness.reasons import refusal_reason


@pytest.fixture()
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a data set of captions, vectors for it, and a study of them; nothing is made yet."""
    monkeypatch.chdir(tmp_path)
    for kind in ("datasets", "studies", "models"):
        (tmp_path / "config" / kind).mkdir(parents=True)
    write_captions(tmp_path / "captions.csv")
    write_vectors(tmp_path / "mine")
    data()
    return tmp_path


def data(**keys: object) -> None:
    source = {"format": "table", "table": "captions.csv"} | ({"videos": "clips"} if keys.get("clips") else {})
    Path("config/datasets/doors.yaml").write_text(
        yaml.safe_dump({"source": source, "reverse": True, "clips": False} | keys)
    )


def study(model: str = "vectors", **options: str) -> None:
    given = {"captions": "mine/captions.npz", "items": "mine/items.npz"} if model == "vectors" else {}
    keys = {
        "dataset": "doors",
        "methods": {"mine": {"model": model, "options": given | options}, "chance": {"model": "chance"}},
        "evaluation": {"settings": ["hard"]},
        "figures": {"method": "mine"},
    }
    Path("config/studies/s.yaml").write_text(yaml.safe_dump(keys))


def refused(*places: str, memory: Path | None = None) -> str:
    """What the workflow says of these places of the study when it is read."""
    file = "config/studies/s.yaml"
    with refusal(*(f"{file}: {place}" if place else file for place in places), error=ConfigErrors) as caught:
        load_checked_config({"studies": ["s"]}, memory)
    return str(caught.value)


def accepted(memory: Path | None = None) -> None:
    load_checked_config({"studies": ["s"]}, memory)


def items(ids: list[str], vectors: np.ndarray) -> None:
    np.savez("items.npz", ids=np.array(ids), vectors=vectors)
    study(items="items.npz")


def test_ids_are_compared_before_anything_is_prepared(checkout: Path) -> None:
    vectors = made()[1]
    study()
    accepted()
    items([*item_ids()[:-1], "stranger"], vectors)
    assert "'stranger'" in refused("items.npz")
    items(item_ids()[3:], vectors[3:])
    assert "'v0', 'v1', 'v2'" in refused("items.npz")
    np.savez("scores.npz", similarity=np.ones((1, 1)), query_ids=["v0#7"], item_ids=["v0"])
    study("scores", file="scores.npz")
    assert "'v0#7'" in refused("scores.npz")
    assert not Path("results").exists()


def test_of_clips_that_may_be_broken_only_unknown_ids_are_told_beforehand(checkout: Path) -> None:
    """A clip that cannot be decoded is left out, and needs no vector: which these are only the job knows."""
    Path("clips").mkdir()
    data(clips=True)
    items(item_ids()[3:], made()[1][3:])
    accepted()
    items([*item_ids()[:-1], "stranger"], made()[1])
    assert "'stranger'" in refused("items.npz")


def test_a_table_that_has_grown_is_believed_and_not_what_was_made_of_it_before(checkout: Path) -> None:
    import pandas as pd

    memory = checkout / ".snakemake/rewind/preflight.json"
    dataset = load_dataset("doors")
    found = read_annotations(dataset, "")
    ready = pd.DataFrame({"item_id": [f"v{n}" for n in range(COUNT)], "status": "ok", "reason": ""})
    prepare(found, ready, checkout / "results/data/doors", "doors")
    study()
    accepted(memory)
    with Path("captions.csv").open("a") as table:
        table.write("new,somebody opens a new door,somebody closes a new door\n")
    assert "'new" in refused("mine/captions.npz", memory=memory)
    text, vectors = made()
    more, names = np.ones((2, vectors.shape[1])), ["new", "new_rev"]
    np.savez("c.npz", ids=[*caption_ids(), *(f"{n}#0" for n in names)], vectors=np.vstack([text, more]))
    np.savez("i.npz", ids=[*item_ids(), *names], vectors=np.vstack([vectors, more]))
    study(captions="c.npz", items="i.npz")
    accepted(memory)  # what is prepared is of the table as it was


def test_scores_that_no_single_precision_holds_are_told_before_the_first_job(checkout: Path) -> None:
    scores = np.ones((2 * COUNT, 2 * COUNT))
    for value in (1e39, -1e39, 3.4028e38, np.inf, np.nan):
        scores[1, 2] = value
        np.savez("s.npz", similarity=scores, query_ids=caption_ids(), item_ids=item_ids())
        study("scores", file="s.npz")
        said = refused("s.npz")
        assert "'v1#0'" in said and "'v2'" in said and "train" not in said
        assert ("divide" in said) == np.isfinite(value)
    scores[1, 2] = -np.inf  # a pair without a score
    np.savez("s.npz", similarity=scores.astype(np.float16), query_ids=caption_ids(), item_ids=item_ids())
    accepted()
    text, vectors = made()
    np.savez("c.npz", ids=caption_ids(), vectors=text * 1e20)
    np.savez("i.npz", ids=item_ids(), vectors=vectors * 1e20)
    study(captions="c.npz", items="i.npz", score="dot")
    said = refused("")
    assert "c.npz and i.npz: " in said and "divide" in said
    study(captions="c.npz", items="i.npz")
    accepted()  # a cosine knows no length
    np.savez("i.npz", ids=item_ids(), vectors=vectors * 1e-200)
    refused("i.npz")


def test_a_broken_file_is_blamed_and_no_architecture(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for vectors in (np.ones(2 * COUNT), np.float32(1), np.ones((2 * COUNT, 0)), np.ones((2 * COUNT, 2, 2, 2))):
        items(item_ids(), vectors)
        said = refused("items.npz")
        assert "architecture" not in said and "Error" not in said
    study()
    monkeypatch.setattr("rewind.models.precomputed.load_precomputed_embeddings", lambda keys: {}["a bug"])
    refused("methods.mine.options: KeyError")

    def no_memory(keys: object) -> None:
        raise MemoryError("Unable to allocate 9.00 TiB")

    monkeypatch.setattr("rewind.models.precomputed.load_precomputed_embeddings", no_memory)
    with pytest.raises(MemoryError):
        accepted()


@pytest.mark.slow
def test_a_lack_of_memory_names_the_file(tmp_path: Path) -> None:
    """In a process that may use 200 MB more than it does, and reads 800."""
    path = tmp_path / "s.npz"
    np.savez_compressed(path, similarity=np.zeros((10_000, 10_000)), query_ids=["a"], item_ids=["b"])
    code = (
        "import resource, sys, psutil\n"
        "from rewind.data.readers import read_score_file\n"
        "from rewind.system_errors import user_message\n"
        "limit = psutil.Process().memory_info().vms + 200 * 10**6\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n    read_score_file(sys.argv[1])\nexcept MemoryError as error:\n    print(user_message(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], env=environment(), capture_output=True, text=True)
    words = os.strerror(errno.ENOMEM)
    assert done.stdout.startswith(f"{path}: {words}"), done.stdout + done.stderr
    assert str(user_message(MemoryError())).startswith(f"{words}; ")


def test_a_number_of_any_length_is_no_score(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text(f"q Q0 d 1 {'9' * 400} tag\n")
    with refusal("a.run: line 1"):
        read_score_file(tmp_path / "a.run")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src")}


@pytest.mark.slow
def test_why_and_accept_say_why_snakemake_refuses(checkout: Path) -> None:
    """The reason is on standard output where the profile's line is on standard error."""
    for name in ("workflow", "profiles", "Snakefile"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, checkout / name)
    Path("config/config.yaml").write_text("studies: [s]\n")
    study(items="absent.npz")
    for command in ("why", "accept"):
        done = subprocess.run(
            [sys.executable, "-m", "rewind", command, "s"], env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 1
        expect_error(done.stderr, "config/studies/s.yaml: absent.npz")


@pytest.mark.slow
def test_a_workflow_that_is_started_elsewhere_compares_with_its_own_folder(checkout: Path, tmp_path: Path) -> None:
    """`--directory`: ids are those of the dataset that was made there, and not of one where the user stands."""
    Path("config/config.yaml").write_text("studies: [s]\n")
    Path("config/datasets/doors.yaml").write_text("source: {format: emoji}\nimage: {shards: 1}\n")
    elsewhere, here, there = tmp_path / "elsewhere", *([f"{name}{n}" for n in range(40)] for name in ("here", "there"))
    for folder, names in ((checkout, here), (elsewhere, there)):
        sources = folder / "results/data/doors/source"
        sources.mkdir(parents=True)
        rows = [f"{name},{name},a {name}," for name in names]
        (sources / "emoji.csv").write_text("\n".join(["item_id,subject,label,tags", *rows, ""]))
        (sources / "skipped.csv").write_text("item_id,reason\n")
        (sources / "ready.json").write_text("{}")
    items(there, np.eye(40, dtype=np.float32))
    np.savez("mine/captions.npz", ids=np.array([f"{name}#0" for name in there]), vectors=np.eye(40, dtype=np.float32))
    keys = yaml.safe_load(Path("config/studies/s.yaml").read_text())
    Path("config/studies/s.yaml").write_text(yaml.safe_dump(keys | {"evaluation": {"settings": ["test"]}}))
    command = [sys.executable, "-m", "snakemake", "-n", "-s", ROOT / "Snakefile", "--directory", checkout]
    done = subprocess.run(command, cwd=elsewhere, env=environment(), capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if "mine/captions.npz: " in line)
    assert "'there0#0'" in line and "'here0#0'" in line
    expect_message(line)


def test_a_refusal_loses_no_reason() -> None:
    profile = "Using workflow specific profile profiles/default for setting default command line arguments."
    assert refusal_reason("MissingRuleException:\nNo rule to produce x.\n", profile) == (
        "MissingRuleException:\nNo rule to produce x."
    )
    assert refusal_reason("", f"{profile}\nsnakemake: error: unrecognized arguments: -x") == (
        "snakemake: error: unrecognized arguments: -x"
    )
    assert refusal_reason("", profile) == profile and refusal_reason("", "") == "it gave no reason"
