"""A study that reads a frame store ends with the bytes of one that reads clips."""

from __future__ import annotations

import json
import os
import re
from types import SimpleNamespace

import pandas as pd
import pytest

from mini_study import Workflow
from rewind.io.files import write_json
from rewind.loading.frame_source import ClipFrames, StoredFrames
from rewind.provenance import file_hash
from rewind.video.frame_store import FrameView, write_store_index
from rewind.workflow.job_inputs import run_data

STUDY = """
dataset: shapes
backbone: {{architecture: config/models/tiny.json}}
frames: {{max_frames: 4, size: 32, store: {store}}}
text: {{tokenizer: words, max_words: 24}}
training: {{epochs: 2, lr: 1.0e-3, freeze: [], batch: {{size: 16, captions: one, twins_together: true}}}}
methods:
  seqLSTM: {{head: seqLSTM}}
  frozen: {{head: meanP, training: {{freeze: [visual]}}}}
  chance: {{model: chance}}
seeds: [0]
sanity: null
"""
MADE = ("runs/seqLSTM/seed0/model.safetensors", "similarity/seqLSTM/seed0.npz")
OTHER = "overrides={{studies.stored: {{frames.max_frames: 5{}}}}}"
PRETRAINING = "{max_frames: 3, training: {batch: {size: 16}}}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workflow:
    """The study with and without a store, on one data set."""
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    for name, store in (("plain", "false"), ("stored", "true")):
        (workflow.folder / f"config/studies/{name}.yaml").write_text(STUDY.format(store=store))
    (workflow.folder / "config/config.yaml").write_text(
        "studies: [plain, stored]\noverrides:\n  datasets.shapes.source.clips: {train: 12, valid: 4, test: 6}\n"
    )
    workflow.run(*(f"results/{study}/similarity/seqLSTM/seed0.npz" for study in ("plain", "stored")))
    return workflow


@pytest.mark.slow
def test_the_same_bytes_with_and_without_a_store(finished):
    results = finished.folder / "results"
    for name in MADE:
        assert (results / "stored" / name).read_bytes() == (results / "plain" / name).read_bytes(), name
    assert not (results / "plain/frames").exists()
    stores = {path.parent.name: json.loads(path.read_text()) for path in results.glob("stored/frames/*/index.json")}
    assert {name: store["max_frames"] for name, store in stores.items()} == {"frames4": 4}
    assert all(store["clips"] == 2 * store["rows"] == 44 for store in stores.values()), "twins take no room"
    record = json.loads((results / "stored/runs/seqLSTM/seed0/run.json").read_text())
    index = "results/stored/frames/frames4/index.json"
    assert record["data"][index] == file_hash(finished.folder / index), "a run's record names the frames that it saw"


@pytest.mark.slow
def test_which_jobs_a_store_brings(finished):
    keys = f"sweep: {{max_frames: [2, 4], method: seqLSTM}}, sanity: {{clips: 4}}, pretraining: {PRETRAINING}"
    target = "results/stored/similarity/seqLSTM/seed0.npz"
    stale = finished.stale(target, "--config", f"overrides={{studies.stored: {{{keys}}}}}")
    assert stale["sweep_trial"] == 2 and stale["sanity"] == stale["pretrain"] == 1
    assert stale["frames"] == 2, "of 2 frames for the sweep, of 3 for the pre-training; of 4 there is one"
    frozen = finished.stale(target, "--config", OTHER.format(", methods.seqLSTM.training.freeze: [visual]"))
    assert "frames" not in frozen and frozen["features"] == 1, "cached features alone need no store"
    chance = "results/stored/similarity/chance/seed0.npz"
    assert finished.stale(chance, "--config", OTHER.format(""))["frames"] == 1
    lonely = finished.stale(chance, "--config", OTHER.format(", methods.seqLSTM.training.freeze: [visual]"))
    assert "frames" not in lonely, "nor does a baseline that learns nothing"
    assert finished.stale(target) == {}
    assert finished.stale(target, "--config", "overrides={studies.stored.resources.gpus: 4}") == {}


@pytest.mark.slow
def test_a_store_made_again_alike_makes_nothing_stale(finished):
    index = "results/stored/frames/frames4/index.json"
    (finished.folder / index).unlink()
    assert "1 of 1 shards are finished already" in finished.run(index)
    assert finished.stale("results/stored/similarity/seqLSTM/seed0.npz") == {}


@pytest.mark.slow
@pytest.mark.parametrize("earlier", [False, True], ids=["with checksums of rows", "of an earlier version"])
def test_a_store_that_is_damaged_at_the_same_size_and_time_is_refused_and_comes_back(finished, earlier):
    folder, target = finished.folder / "results/stored/frames/frames4", "results/stored/similarity/seqLSTM/seed0.npz"
    shard, before = folder / "shards/00000.bin", (finished.folder / target).read_bytes()
    if earlier:
        (folder / "shards/00000.crc32").unlink()
    then, content = shard.stat(), bytearray(shard.read_bytes())
    for place in range(len(content) - 20_000, len(content)):  # test clips are last
        content[place] ^= 0x55
    shard.write_bytes(content)
    os.utime(shard, ns=(then.st_atime_ns, then.st_mtime_ns))
    text = finished.run(target, "--force", ok=False)
    assert "its checksum differs" in text if earlier else re.search(r"row \d+ \(test\d+, .*\) is not as it was", text)
    advice = re.search(r"00000\.bin: .*`snakemake (--cores all --force \S+/index\.json)`", text)[1]
    assert "1 of 1 shards are finished" not in finished.run(*advice.split()), "its second name was damaged with it"
    finished.run(target, "--force")
    assert (finished.folder / target).read_bytes() == before and finished.stale(target) == {}


@pytest.mark.slow
def test_runs_read_the_store_and_refuse_a_damaged_one(finished):
    shard = finished.folder / "results/stored/frames/frames4/shards/00000.bin"
    shard.write_bytes(shard.read_bytes()[:-5])
    text = finished.run("results/stored/runs/seqLSTM/seed0/run.json", "--forcerun", "train", ok=False)
    assert (
        "frames4/shards/00000.bin: has" in text and "snakemake --cores all --force" in text and "Traceback" not in text
    )


@pytest.mark.parametrize("frames", [2, 4])
def test_a_job_takes_the_store_of_the_sweeps_choice(tmp_path, frames):
    write_json(tmp_path / "best.json", {"max_frames": frames})
    spec = {"backbone": {}, "text": {}, "frames": {"size": 16}}
    indices = [tmp_path / f"frames{n}/index.json" for n in (2, 4)]
    for index, n in zip(indices, (2, 4), strict=True):
        index.parent.mkdir()
        write_store_index(index.parent, FrameView(n, 16, "uniform", None), [])
    inputs = {"item_table": str(tmp_path / "items.csv"), "best": str(tmp_path / "best.json")}
    rule = given({"spec": spec, "dataset": "mine"}, inputs | {"store": [str(index) for index in indices]})
    found = run_data(rule).inputs(pd.DataFrame({"item_id": [], "path": [], "reversed": []}))
    assert isinstance(found, StoredFrames) and found.store.view.max_frames == frames
    without = run_data(given({"spec": spec, "dataset": "mine"}, inputs | {"store": []}))
    assert isinstance(without.inputs(pd.DataFrame({"item_id": [], "path": [], "reversed": []})), ClipFrames)


class Named(dict):
    """Snakemake's named lists: by attribute and by ``get``."""

    __getattr__ = dict.__getitem__


def given(params: dict, inputs: dict) -> SimpleNamespace:
    execution = {"workers": 0, "keep_in_memory": False}
    return SimpleNamespace(params=Named(params), execution=execution, input=Named(inputs))
