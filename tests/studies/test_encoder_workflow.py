"""A study of models by name from clips to tables: what is shared, what ties, what an edit makes stale."""

from __future__ import annotations

import os

import numpy as np
import pytest

from encoder_data import open_clip_folder
from mini_study import Workflow
from rewind.io.files import read_csv, read_json

STUDY = """
dataset: shapes
frames: {{max_frames: 4, size: 32}}
methods:
  tiny:
    model: vectors
    options: {{encoder: open_clip, name: model}}
  chance: {{model: chance}}
statistics: {{resamples: 200}}
"""
VECTORS = "results/data/shapes/vectors"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    open_clip_folder(workflow.folder / "model")
    for name in ("one", "other"):
        (workflow.folder / f"config/studies/{name}.yaml").write_text(STUDY.format())
    (workflow.folder / "config/config.yaml").write_text(
        "studies: [one, other]\noverrides:\n  datasets.shapes.source.clips: {train: 4, valid: 2, test: 6}\n"
    )
    workflow.run("results/one/tables", "results/other/metrics.csv")
    return workflow


@pytest.mark.slow
def test_one_set_of_vectors_serves_both_studies_and_ties_every_twin(finished: Workflow) -> None:
    folders = list((finished.folder / VECTORS).iterdir())
    assert len(folders) == 1 and {path.name for path in folders[0].iterdir()} == {
        "captions.npz",
        "items.npz",
        "record.json",
    }
    record = read_json(folders[0] / "record.json")
    assert record["twins"] == record["mirrored"] == 6
    metrics = read_csv(finished.folder / "results/one/metrics.csv")
    chosen = (metrics["method"] == "tiny") & (metrics["setting"] == "binary")
    binary = metrics[chosen & (metrics["direction"] == "text_to_item")]
    assert binary["R@1"].tolist() == [50], "a model blind to order ties a clip with its twin"
    files = [finished.folder / f"results/{name}/similarity/tiny/seed0.npz" for name in ("one", "other")]
    with np.load(files[0]) as one, np.load(files[1]) as other:
        assert (one["similarity"] == other["similarity"]).all()
    notes = "".join(path.read_text() for path in (finished.folder / "results/one/tables").glob("*.md"))
    assert "one by one" in notes and "vectors of open_clip model" in notes


@pytest.mark.slow
def test_only_what_vectors_depend_on_makes_them_stale(finished: Workflow) -> None:
    target = "results/one/metrics.csv"
    assert not finished.stale(target)
    for harmless in ("batch_size: 7", "encoder_options: {}"):
        given = f"overrides={{studies.one.methods.tiny.options: {{{harmless}}}}}"
        assert "encode_vectors" not in finished.stale(target, "--config", given)
    given = "overrides={studies.one.methods.tiny.options.max_frames: 3}"
    assert {"encode_vectors", "untrained_run"} <= set(finished.stale(target, "--config", given))
    weights = finished.folder / "model/open_clip_pytorch_model.bin"
    os.utime(weights)
    assert "encode_vectors" in finished.stale(target)


@pytest.mark.slow
def test_a_wrong_name_ends_the_study_before_its_first_job(finished: Workflow) -> None:
    given = "overrides={studies.one.methods.tiny.options.name: ViT-B-16-SigLP}"
    text = finished.run("-n", "results/one/metrics.csv", "--config", given, ok=False)
    assert "methods.tiny.options.name" in text and "did you mean ViT-B-16-SigLIP" in text
