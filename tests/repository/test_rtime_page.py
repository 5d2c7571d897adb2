"""What docs/rtime.md says of its study is what the study's file ships, and what Snakemake would run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import reduce

import pytest
import torch
import yaml
from safetensors.torch import save_file

from checkout import ROOT
from rewind.config import Study
from rewind.config.load import load_study
from rewind.loading.frame_source import MAX_LOADER_THREADS, load_batches

pytestmark = pytest.mark.slow

PAGE = " ".join((ROOT / "docs/rtime.md").read_text(encoding="utf-8").split())
STUDIES = [path.stem for path in sorted((ROOT / "config/studies").glob("*.yaml"))]
RTIME_CLIPS = 21_537


def shipped(name: str = "rtime") -> Study:
    return load_study(name, ROOT / "config/studies")


def test_the_settings_on_the_page_are_those_of_the_file():
    rows = re.findall(r"\| `((?:training|frames|resources)\.[a-z_.]+)` \| `([^`]+)` \|", PAGE)
    assert len(rows) >= 8
    study = shipped()
    for path, value in rows:
        assert reduce(getattr, path.split("."), study) == yaml.safe_load(value), path
    for name in study.trained():
        assert study.methods[name].training.precision == study.training.precision == "bf16", name
    assert study.sanity.training.precision == study.sweep.training.precision == "bf16"


def batch_bytes(study: Study, frames: int) -> int:
    return max(study.training.batch.size, study.evaluation.batch_size) * frames * study.frames.size**2 * 3


def waiting_bytes(study: Study, frames: int) -> int:
    """Of batches that decoding processes keep in shared memory: torch asks each for two, and one is being read."""
    return (2 * study.frames.workers + 1) * batch_bytes(study, frames)


def test_the_memory_on_the_page_follows_from_the_file():
    study = shipped()
    assert study.sweep.max_frames == [12, 16, 24]
    ahead = [(MAX_LOADER_THREADS + 1) * batch_bytes(study, n) / 1e9 for n in (12, 24)]
    assert min(study.frames.workers, MAX_LOADER_THREADS) + 1 == 5
    assert f"at most 5 ahead: {ahead[0]:.1f} GB at 12 frames, {ahead[1]:.1f} GB at 24" in PAGE
    shared = [waiting_bytes(study, n) / 1e9 for n in (12, 24)]
    assert f"{shared[0]:.1f} GB a job at 12 frames, {shared[1]:.1f} GB at 24" in PAGE
    assert f"24 frames would need {4 * shared[1]:.0f} GB" in PAGE
    assert f"{batch_bytes(study, 12) / 1e6:.0f} MB at 12 frames and {batch_bytes(study, 24) / 1e6:.0f} MB at 24" in PAGE
    assert study.resources.mem_mb / 1000 > 5 * ahead[1], "a job's memory holds them and the model"
    disk = [RTIME_CLIPS * n * study.frames.size**2 * 3 / 1e9 for n in study.sweep.max_frames]
    said = f"{disk[0]:.0f} GB at 12 frames, {disk[1]:.0f} GB at 16, {disk[2]:.0f} GB at 24, and {sum(disk):.0f} GB"
    assert said in PAGE


class Batches:
    """Stands for clips, which are decoded, or for a store, which is copied."""

    def __init__(self, copies: bool) -> None:
        self.copies = copies

    def __call__(self, key):
        return {"rows": torch.tensor([key, os.getpid()])}


@pytest.mark.parametrize("store", [True, False])
def test_only_decoding_hands_batches_through_shared_memory(store):
    made = Batches(store)
    found = list(load_batches(made, range(6), made, 2, torch.device("cpu")))
    assert [int(batch["rows"][0]) for batch in found] == list(range(6))
    makers = {int(batch["rows"][1]) for batch in found}
    assert (makers == {os.getpid()}) if store else (os.getpid() not in makers and len(makers) == 2)
    assert all(batch["rows"].is_shared() != store for batch in found)


@pytest.mark.parametrize("name", STUDIES)
def test_four_jobs_of_every_study_fit_the_container(name):
    """With the ``--shm-size`` that the docs and the Dockerfile name."""
    study = shipped(name)
    texts = [(ROOT / path).read_text(encoding="utf-8") for path in ("docs/cluster.md", "envs/Dockerfile")]
    sizes = {int(size) for text in texts for size in re.findall(r"--shm-size (\d+)g", text)}
    assert len(sizes) == 1
    decoding = study.frames.workers > 0 and not study.frames.store
    frames = max([study.frames.max_frames, *(study.sweep.max_frames if study.sweep else [])])
    needed = 4 * waiting_bytes(study, frames) if decoding else 0
    assert needed < sizes.pop() * 1e9


def test_heavy_studies_do_not_run_on_a_cpu_by_accident():
    """A study whose towers are of full size and learn needs a GPU, and says so."""
    for name in STUDIES:
        study = shipped(name)
        full = study.backbone.architecture in ("ViT-B-32-quickgelu", "viclip-l") and study.backbone.kind in (
            "clip",
            "viclip",
        )
        # A frozen visual tower reads each clip once; a text tower that learns from large batches is heavy all the same.
        trained = [study.methods[m].training for m in study.trained()]
        learn = full and any(t.freeze != ["visual"] or t.batch.size > 256 for t in trained)
        # Tiny models from disk, and one without weights, are for any machine.
        names = [study.backbone.name or "", *(m.options.get("name", "") for m in study.methods.values())]
        light = ("data/", "local-dir:data/", "mteb/baseline-random")
        published = any("/" in model and not model.startswith(light) for model in names)
        assert study.resources.require_gpu == (learn or published), name


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    """`snakemake -n` of the study, on three invented clips a split."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("workflow", "config", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "Snakefile", folder)
    (folder / "data/rtime/videos").mkdir(parents=True)
    (folder / "data/weights").mkdir()
    save_file({"visual.conv1.weight": torch.zeros(1)}, folder / "data/weights/ViT-B-32.safetensors")
    for place, split in enumerate(("train", "valid", "test")):
        entries = {}
        for clip in range(3 * place, 3 * place + 3):
            captions = {"forward_captions": [f"It opens {clip}."], "reverse_captions": [f"It closes {clip}."]}
            rewrites = {"forward_rewrites": [], "reverse_rewrites": []}
            entries[str(clip)] = {"temporal": True, "reverse": True, **captions, **rewrites, "url": ""}
            (folder / f"data/rtime/videos/{clip}.mp4").write_bytes(b"invented")
        (folder / f"data/rtime/{split}.json").write_text(json.dumps(entries))
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "4", "--config", "studies=[rtime]"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    block = re.search(r"^job +count\n-+ +-+\n(.*?)^total +(\d+)", text, re.M | re.S)
    return {"total": int(block[2])} | {line.split()[0]: int(line.split()[1]) for line in block[1].strip().splitlines()}


def test_the_jobs_on_the_page_are_those_of_a_dry_run(dry_run):
    assert f"# {dry_run['total']} jobs with the 200 shards" in PAGE
    assert dry_run["video_shard"] == 200
    rows = re.findall(r"\| ((?:`[a-z_]+`(?:, )?)+) \| ([\d +]+) \|", PAGE)
    counted = {}
    for names, numbers in rows:
        jobs = re.findall(r"`([a-z_]+)`", names)
        said = [int(number) for number in numbers.split(" + ")]
        assert sum(dry_run[job] for job in jobs) == sum(said), names
        counted |= dict.fromkeys(jobs)
    data = {"inventory", "video_shard", "videos", "captions", "all", "total"}
    assert set(dry_run) - data == set(counted), "the table names every job that is not of the clips"
