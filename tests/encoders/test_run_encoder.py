"""A finished run as an encoder of lists: captions and clips become the vectors that its evaluation compares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from box_runs import COLOURS, make_boxes, spec_of, train_boxes
from messages import refusal
from rewind.data.captions import load_split
from rewind.evaluation.similarity import compute_similarity
from rewind.exports.encoder import load_encoder
from rewind.loading.run_data import RunData
from search_runs import copy_study, make_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("boxes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_boxes(root)
        train_boxes(root, "meanP", 5)
        train_boxes(root, "tightTransf", 1)
        yield root


def test_vectors_of_captions_and_clips_score_as_the_evaluation_does(study):
    run, data = "results/boxes/runs/meanP/seed0", Path("results/data/boxes")
    model = load_encoder(run, say=lambda text: None)
    items, captions, _ = load_split(data, "boxes", "test")
    text = model.encode_query(captions["caption"].tolist())
    clips = model.encode_document([data / path for path in items["path"]])
    compute_similarity(RunData(data, "boxes", spec_of("meanP", 5), 4), f"{run}/model.safetensors", "matrix.npz")
    with np.load("matrix.npz") as archive:
        ours = archive["similarity"]
    scale = float(model.retriever.backbone.logit_scale.exp())
    np.testing.assert_allclose(scale * model.similarity(text, clips).numpy(), ours, rtol=1e-5, atol=1e-5)
    assert text.dtype == np.float32 and np.allclose(np.linalg.norm(clips, axis=1), 1, rtol=0, atol=1e-6)
    pairs = model.similarity_pairwise(text[: len(clips)], clips)
    np.testing.assert_allclose(pairs, np.diag(model.similarity(text, clips)), atol=1e-6)
    # Twins are exact mirrors, and the mean does not see the order.
    assert np.array_equal(clips[0], clips[1]) and not np.array_equal(clips[0], clips[2])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 9, 12])
def test_no_batch_breaks_a_tie(study, size):
    model = load_encoder("results/boxes/runs/meanP/seed0", say=lambda text: None)
    model.size = size
    videos = [Path(f"results/data/boxes/videos/test_{colour}{end}.mp4") for end in ("", "_rev") for colour in COLOURS]
    clips = model.encode_document(videos)
    assert np.array_equal(clips[:5], clips[5:]) and len(np.unique(clips, axis=0)) == 5


def test_rows_of_a_loader_are_encoded_as_lists_are(study):
    model = load_encoder("results/boxes/runs/meanP/seed0", say=lambda text: None)
    captions = ["a red box moves left", "a blue box moves right", "a lime box", "something yellow", "a black box"]
    rows = DataLoader([{"id": caption, "text": caption} for caption in captions], batch_size=2)
    assert np.array_equal(model.encode(rows, prompt_type="query", batch_size=2), model.encode(captions))
    with refusal():
        model.encode(DataLoader([{"text": "a red box", "image": np.zeros((2, 2, 3))}]))


def test_what_it_cannot_encode_is_refused(study):
    model = load_encoder("results/boxes/runs/meanP/seed0", say=lambda text: None)
    with refusal():
        model.encode(["a red box", Path("results/data/boxes/videos/test_red.mp4")])
    with refusal():
        model.encode([3])
    with refusal():
        model.encode([])
    with refusal("gone.mp4"):
        model.encode([Path("gone.mp4")])


def test_a_head_that_scores_pairs_is_refused(study):
    with refusal("results/boxes/runs/tightTransf/seed0"):
        load_encoder("results/boxes/runs/tightTransf/seed0", say=lambda text: None)


def test_a_closed_form_baseline_is_an_encoder_too(tmp_path_factory, tmp_path, monkeypatch):
    runs = copy_study(make_study(tmp_path_factory.mktemp("walls"), ridge=1), tmp_path, monkeypatch)
    model = load_encoder(runs / "ridge/seed0", say=lambda text: None, trust=True)
    videos = Path("results/data/walls/videos")
    colours = ["red", "lime", "blue"]
    scores = model.similarity(
        model.encode([f"a {colour} wall" for colour in colours]),
        model.encode([videos / f"test_{colour}.mp4" for colour in colours]),
    )
    assert scores.argmax(dim=1).tolist() == [0, 1, 2]
