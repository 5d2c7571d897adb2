"""What a data set holds has one hash: made with the clips, kept by resumed shards, and in every run's record."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image as Picture

from checkout import ROOT
from rewind.config import Image, Video
from rewind.config.load import load_dataset, load_study
from rewind.data.captions import clips_digest, embeddings_digest
from rewind.io.files import read_csv, write_csv, write_json
from rewind.report.study import _decoding_facts, _hardware_counts
from rewind.tables.footnotes import Footnotes, finish_sentences, study_sentences
from rewind.training.run import TrainingJob
from rewind.video.prepare import prepare_report

SHARD = """
import sys
import tarfile
from rewind.video.dataset import make_shard
from rewind.config import Image
make_shard(sys.argv[1], 0, Image(short_side=24), "code", 1, sys.argv[2])
"""


@pytest.fixture
def inventory(tmp_path) -> Path:
    """Three pictures, one of them damaged."""
    rng, rows = np.random.default_rng(0), []
    for name in ("a", "b", "c"):
        source = tmp_path / f"{name}.bmp"
        Picture.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8)).save(source)
        rows.append({"item_id": name, "source": str(source), "reversed_source": "", "twin": 0, "split": "test"})
    (tmp_path / "c.bmp").write_bytes(b"no picture")
    path = tmp_path / "videos/inventory.csv"
    write_csv(path, pd.DataFrame(rows).assign(shard=0))
    return path


def make(inventory: Path) -> pd.DataFrame:
    """One shard, as its job makes it, in a fresh process."""
    result = inventory.parent / "shards/0-of-1.csv"
    command = [sys.executable, "-c", SHARD, str(inventory), str(result)]
    env = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read_csv(result).fillna("")


def test_every_item_has_the_hash_of_its_files(inventory):
    report = make(inventory)
    with tarfile.open(inventory.parent / "shards/0-of-1.tar") as shard:
        files = {member.name: shard.extractfile(member).read() for member in shard}
    assert list(files) == ["a.png", "b.png"]
    assert report["sha256"].tolist() == [*(hashlib.sha256(content).hexdigest() for content in files.values()), ""]
    assert report["status"].tolist() == ["ok", "ok", "failed"]
    rows = sorted(zip(report["item_id"][:2], report["sha256"][:2], strict=True))
    text = "".join(f"{item}\0{content}\n" for item, content in rows)
    assert clips_digest(report) == hashlib.sha256(text.encode()).hexdigest()
    assert clips_digest(report.iloc[::-1]) == clips_digest(report), "the order of rows is no content"


@pytest.mark.slow
def test_a_resumed_shard_keeps_its_hashes_and_an_old_one_gets_them(inventory):
    rows, out = read_csv(inventory), inventory.parent
    first = prepare_report(rows, out, Image(short_side=24), "code", 1)
    for state in (out / ".state").glob("*.json"):
        content = json.loads(state.read_text())
        del content["sha256"]  # as an early version wrote it
        state.write_text(json.dumps(content))
    made = {path: path.stat().st_mtime_ns for path in out.glob("*.png")}
    assert prepare_report(rows, out, Image(short_side=24), "code", 1).equals(first)
    assert {path: path.stat().st_mtime_ns for path in made} == made, "nothing was made anew"
    first = first.astype(object).fillna("")
    for _ in range(2):
        again = make(inventory).astype(object).fillna("")  # read from a file, in which what is empty has no type
        assert again.equals(first), "nor in a shard"


def test_other_pixels_are_another_content(inventory, tmp_path):
    before = clips_digest(make(inventory))
    Picture.new("RGB", (40, 40), "red").save(tmp_path / "b.bmp")
    assert clips_digest(make(inventory)) != before


def test_a_clips_hash_covers_its_twin(tmp_path):
    """Both files, the original first."""
    source = tmp_path / "clip.mp4"
    frames = [Picture.new("RGB", (32, 32), (40 * n, 0, 255 - 40 * n)) for n in range(5)]
    frames[0].save(tmp_path / "clip.gif", save_all=True, append_images=frames[1:], duration=200)
    (tmp_path / "clip.gif").rename(source)
    row = {"item_id": "clip", "source": str(source), "reversed_source": "", "twin": 1, "split": "test"}
    out = tmp_path / "videos"
    report = prepare_report(pd.DataFrame([row]), out, Video(fps=5, short_side=32), "code", 1)
    assert report["status"].tolist() == ["ok"], report["reason"].tolist()
    both = (out / "clip.mp4").read_bytes() + (out / "clip_rev.mp4").read_bytes()
    assert report["sha256"].tolist() == [hashlib.sha256(both).hexdigest()]


def test_folders_that_were_prepared_before_have_none():
    report = pd.DataFrame({"item_id": ["a", "b"], "status": ["ok", "failed"]})
    assert clips_digest(report) is None
    assert clips_digest(report.assign(sha256=[None, "0"])) is None
    assert clips_digest(report.assign(sha256=["0", None])) is not None, "what failed has no content"


def test_vectors_have_that_of_their_index():
    assert embeddings_digest({"text": "1", "images": "2"}) == embeddings_digest({"images": "2", "text": "1"})
    assert embeddings_digest({"text": "1", "images": "2"}) != embeddings_digest({"text": "2", "images": "1"})


def test_a_run_knows_its_content_and_does_not_resume_on_another(tmp_path):
    data, spec = tmp_path / "data", load_study("demo", ROOT / "config/studies").run_spec("chance")
    write_csv(data / "items.csv", pd.DataFrame({"item_id": ["a"]}))
    for split in ("train", "valid"):
        write_csv(data / f"captions/shapes_{split}.csv", pd.DataFrame({"caption": ["a"]}))
    job = TrainingJob("chance/seed0", spec, 0, data, "shapes", 4, tmp_path / "state.pt", "code")
    assert job.content() is None, "a folder without a report"
    marks = []
    for content in ({"dataset": "shapes"}, {"digest": "1" * 64}, {"digest": "2" * 64}):
        write_json(data / "captions/report.json", content)
        assert job.content() == content.get("digest")
        marks.append(job.state_file().fingerprint)
    assert len(set(marks)) == 3


def test_the_table_names_the_content():
    said = finish_sentences(study_sentences(Footnotes(data=["0123456789abcdef" * 4])))
    assert said == ["Data: content hash 0123456789ab."]
    said = finish_sentences(study_sentences(Footnotes(data=["0123456789abcdef" * 4, "f" * 64])))
    assert said == ["Data: content hash 0123456789ab and ffffffffffff (runs differ)."]
    assert finish_sentences(study_sentences(Footnotes())) == []


def hardware_of(*runs):
    """The footnote of runs, each ``(devices, instance)``."""
    records = [
        {"hardware": {"devices": devices}} | ({"instance": instance} if instance else {}) for devices, instance in runs
    ]
    return finish_sentences(study_sentences(Footnotes(hardware=_hardware_counts(records))))


def test_the_instance_type_stands_beside_the_device():
    two, instance = ["NVIDIA A10G"] * 2, "EC2 g5.12xlarge"
    assert hardware_of((two, instance), (two, instance)) == ["Hardware: 2 × NVIDIA A10G (EC2 g5.12xlarge)."]
    assert hardware_of((two, instance), (two, instance), (two, None)) == [
        "Hardware: 2 runs on 2 × NVIDIA A10G (EC2 g5.12xlarge), 1 run on 2 × NVIDIA A10G."
    ]


def test_runs_on_different_numbers_of_gpus_are_counted_apart():
    one, four = (["NVIDIA A10G"], None), (["NVIDIA A10G"] * 4, None)
    assert hardware_of(one, one, four, four, four, four) == [
        "Hardware: 2 runs on 1 × NVIDIA A10G, 4 runs on 4 × NVIDIA A10G."
    ]
    assert hardware_of(four, four) == ["Hardware: 4 × NVIDIA A10G."]
    mixed = (["NVIDIA L4", "NVIDIA A10G", "NVIDIA L4"], None)
    assert hardware_of(mixed) == ["Hardware: 1 × NVIDIA A10G and 2 × NVIDIA L4."]
    assert hardware_of() == []


def test_another_number_of_gpus_is_no_other_run():
    """What the rule of a run passes as parameters, which decide whether it is stale."""
    study = load_study("demo", ROOT / "config/studies")
    other = study.model_copy(update={"resources": study.resources.model_copy(update={"gpus": 4})})
    for method in study.methods:
        assert other.run_spec(method, seed=0).fingerprint() == study.run_spec(method, seed=0).fingerprint()
    assert other.run_spec("meanP").method.training.batch.size % 4 == 0


def test_every_version_of_the_decoder_is_named():
    study = load_study("demo", ROOT / "config/studies")
    dataset = load_dataset(study.dataset, ROOT / "config/datasets")
    packages = [{"torch": "2.5.1", "decord": "0.6.0"}, {"decord": "0.6.0"}, {"decord": "0.7.0"}]
    records = [{"packages": versions} for versions in packages]

    def last_words() -> str:
        facts = _decoding_facts(study, dataset, records)
        return finish_sentences(study_sentences(Footnotes(decoding=facts)))[0].partition("sampling, ")[2]

    assert last_words() == "decord 0.6.0 and 0.7.0."
    # What read the frames is named, not what else is installed and could.
    records.append({"packages": packages[0] | {"av": "18.1.0"}, "frame_reader": "av 18.1.0"})
    records.append({"packages": packages[0] | {"av": "18.1.0"}, "frame_reader": "decord 0.6.0"})
    assert last_words() == "decord 0.6.0 and 0.7.0 and av 18.1.0."
