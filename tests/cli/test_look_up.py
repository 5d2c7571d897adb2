"""The look-up of docs/bring-your-model.md as it stands there: no towers, and a data set that has only a test split."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from checkout import ROOT
from messages import refusal
from rewind.config import Dataset, Study
from rewind.config.load import load_study
from rewind.evaluation.run_metrics import compute_ranks
from rewind.evaluation.similarity import compute_similarity
from rewind.loading.run_data import RunData, build_untrained_model
from rewind.training.run import TrainingJob, train_run
from rewind.video import ffmpeg
from rewind.workflow.preflight.annotations import missing_splits

PAGE = (ROOT / "docs/bring-your-model.md").read_text()
CODE = re.search(r"`mine/my_scores.py`:\n\n```python\n(.*?)```", PAGE, re.S)[1]
METHODS = re.search(r"```yaml\n(methods:\n  found: .*?)```", PAGE, re.S)[1]
PARAMETER = """    reads_ids = True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
"""
COUNT, TEXT = 4, "eine Tür öffnet sich"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study with the page's method, in a folder with its module."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/my_scores.py").write_text(CODE)
    (tmp_path / "s.yaml").write_text(f"dataset: d\n{METHODS}frames: {{max_frames: 2, size: 32}}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.delitem(sys.modules, "mine.my_scores", raising=False)
    return load_study("s", tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """``results/data/d`` of clips of the test split alone."""
    folder = tmp_path / "results/data/d"
    (folder / "captions").mkdir(parents=True)
    names = [f"{name}{twin}" for twin in ("", "_rev") for name in (f"clip{n}" for n in range(COUNT))]
    black = ["-f", "lavfi", "-i", "color=black:size=32x32:rate=4", "-t", "1", str(folder / "black.mp4")]
    assert ffmpeg.run_command([ffmpeg.executable(), *black]).code == 0
    for name in names[:COUNT]:
        shutil.copy(folder / "black.mp4", folder / f"{name}.mp4")
    items = pd.DataFrame({"item_id": names, "split": "test", "status": "ok"})
    items["path"] = items["item_id"].str.removesuffix("_rev") + ".mp4"
    items["cluster_id"] = items["item_id"].str.removesuffix("_rev")
    items["reversed"] = items["item_id"].str.endswith("_rev").astype(int)
    items.to_csv(folder / "items.csv", index=False)
    captions = pd.DataFrame({"video_id": names, "caption": TEXT, "caption_id": [f"{n}#0" for n in names]})
    for split in ("train", "valid", "test"):
        captions[: len(captions) if split == "test" else 0].to_csv(folder / f"captions/d_{split}.csv", index=False)
    (folder / "captions/report.json").write_text("{}")
    return folder


def test_what_is_not_trained_needs_the_test_split_alone(study: Study, data: Path, tmp_path: Path) -> None:
    assert study.sanity is None and study.seeds == [0] and study.trained() == []
    dataset = Dataset(name="d", source={"format": "table", "table": "d.csv", "videos": "."})
    assert not list(missing_splits(study, dataset, {"train": [0, 0], "valid": [0, 0], "test": [COUNT, COUNT, COUNT]}))
    job = TrainingJob("found/seed0", study.run_spec("found", seed=0), 0, data, "d", 2, tmp_path / "state", "code")
    model, matrix, ranks = (tmp_path / name for name in ("model.safetensors", "scores.npz", "ranks.parquet"))
    train_run(job, model, tmp_path / "history.csv", tmp_path / "run.json")
    compute_similarity(job.folder(), str(model), str(matrix))
    ways = ["text_to_item", "item_to_text"]
    compute_ranks(data, "d", ["hard"], ways, str(matrix), str(ranks), str(ranks.with_suffix(".json")))
    found = json.loads(ranks.with_suffix(".json").read_text())["metrics"]
    assert [row["R@1"] for row in found] == [100.0, 100.0], "captions have their ids"


def test_a_fixed_model_of_one_s_own_keeps_its_parameters(study: Study, data: Path, tmp_path: Path) -> None:
    code = CODE.replace("    reads_ids = True\n", PARAMETER)
    (tmp_path / "mine/my_scores.py").write_text(code)
    job = TrainingJob("found/seed0", study.run_spec("found", seed=0), 0, data, "d", 2, tmp_path / "state", "code")
    record = train_run(job, tmp_path / "m.safetensors", tmp_path / "history.csv", tmp_path / "run.json")
    assert record["parameters"] == 1 and record["best"] == {}


def test_without_towers_and_ids_captions_are_not_zeros(study: Study, data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine/my_scores.py").write_text(CODE.replace("reads_ids = True", "pass"))
    folder = RunData(data, "d", study.run_spec("found", seed=0), 2)
    with refusal("methods.*.model"):
        folder.split("test", build_untrained_model(folder))


def test_texts_come_as_they_are(study: Study, data: Path) -> None:
    from rewind.models.retriever import decode_names

    folder = RunData(data, "d", study.run_spec("found", seed=0), 2)
    batch = folder.split("test", build_untrained_model(folder)).training_data().batch(np.array([1, 0]))
    assert decode_names(batch["caption_ids"]) == ["clip1#0", "clip0#0"] and decode_names(batch["item_ids"]) == [
        "clip1",
        "clip0",
    ]
    assert decode_names(batch["captions"]) == [TEXT] * 2
