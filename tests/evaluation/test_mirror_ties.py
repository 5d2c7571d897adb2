"""A clip and its mirror tie to the last bit where order cannot be seen, whatever batches they are encoded in."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from box_runs import make_boxes, spec_of
from rewind.config import Method
from rewind.config.evaluation import Evaluation
from rewind.data.annotations import twin_rows
from rewind.evaluation.similarity import compute_similarity, similarity_matrix
from rewind.loading.encode import _equal_batches
from rewind.loading.features import compute_features
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import RunData, build_untrained_model
from rewind.models.baselines import Ridge
from rewind.models.checkpoint import save_model
from training_runs import retriever

BLIND = ("meanP", "projection", "xpool", "wti")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def boxes(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("boxes")
    make_boxes(root)
    return root


def run_data(head: str, size: int, frames: int, cache: Path | None = None) -> RunData:
    spec = spec_of("meanP", 1)
    method = Method(head=head).model_copy(update={"training": spec.method.training})
    evaluation = Evaluation(settings=["origin", "hard", "binary"], batch_size=size)
    spec = spec.model_copy(update={"method": method, "evaluation": evaluation})
    return RunData(Path("results/data/boxes"), "boxes", spec, frames, cache)


def stirred(model, path: Path) -> str:
    """Its file, with parameters away from where training starts."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05)
    save_model(path, model, {})
    return str(path)


CASES = [*product(BLIND, (1, 3), [False], [1]), ("meanP", 3, False, 2), ("meanP", 1, True, 1), ("meanP", 3, True, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("head", "frames", "cached", "threads"), CASES)
def test_the_job_ties_every_clip_with_its_mirror(boxes, tmp_path, monkeypatch, head, frames, cached, threads):
    monkeypatch.chdir(boxes)
    torch.set_num_threads(threads)
    try:
        for size in (2, 3, 7, 10) if cached or threads > 1 else range(1, 12):  # of 10 clips
            cache = tmp_path / f"{size}.npz" if cached else None
            if cache is not None:
                compute_features(run_data(head, size, frames), str(cache))
            data = run_data(head, size, frames, cache)
            model = stirred(build_untrained_model(data), tmp_path / "model.safetensors")
            if cached:  # its tower is not the cache's
                monkeypatch.setattr(RunData, "check_tower", lambda *_: None)
            compute_similarity(data, model, str(tmp_path / "scores.npz"))
            with np.load(tmp_path / "scores.npz") as archive:
                scores, twins = archive["similarity"], twin_rows(archive["item_ids"].tolist())
            assert (twins >= 0).all() and np.array_equal(scores, scores[:, twins]), size
            assert len(np.unique(scores)) > 0.4 * scores.size, "clips differ"
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("named", [True, False], ids=["twins known", "twins unknown"])
@pytest.mark.parametrize("head", [*BLIND, "ridge"])
def test_no_odd_end_breaks_a_tie(head, named):
    rng = np.random.default_rng(0)
    if head == "ridge":
        model, text = Ridge(64, 96, alpha=0.1), torch.randn(2, 64)
        model.fit(torch.randn(50, 64), torch.randn(50, 96))
    else:
        model = retriever(head).eval()
        text = model.backbone.prepare_text(["a red ring up", "a blue star down"])
    for pairs, frames in product((1, 2, 5, 13, 32), (1, 3)):
        lengths = rng.integers(1, frames + 1, pairs)
        mask = (np.arange(frames) < lengths[:, None]).astype(np.uint8)
        clips = rng.normal(size=(pairs, frames, 96)).astype(np.float32) * mask[..., None]
        mirrors = np.zeros_like(clips)
        for n, length in enumerate(lengths):
            mirrors[n, :length] = clips[n, :length][::-1]
        # One clip has no twin; the mirrors are not beside their clips.
        values, mask = np.concatenate([clips, clips[:1] + 1, mirrors]), np.concatenate([mask, mask[:1], mask])
        twins = np.r_[np.arange(pairs) + pairs + 1, -1, np.arange(pairs)]
        inputs = CachedFrames(values, mask, twins if named else None)
        for size in {*range(1, 10), 2 * pairs - 1, 2 * pairs, 2 * pairs + 1}:
            scores = similarity_matrix(model, text, inputs, Evaluation(batch_size=size), CPU)
            assert np.array_equal(scores[:, :pairs], scores[:, pairs + 1 :]), (pairs, frames, size)


@pytest.mark.parametrize("head", ["meanP", "xpool"])
def test_equal_captions_tie_in_every_block(head):
    model = retriever(head).eval()
    inputs = CachedFrames(
        np.random.default_rng(0).normal(size=(5, 3, 96)).astype(np.float32), np.ones((5, 3), np.uint8)
    )
    words = ["a red ring up", "blue", "star up red blue ring down", "a ring"]  # batches are cut at their longest
    for count, size, block in product((1, 3, 4, 6), (1, 2, 3, 4, 7), (1, 2, 3, 5, 7)):
        text = model.backbone.prepare_text([words[n % 4] for n in range(2 * count + 1)] + ["a red ring up"])
        scores = similarity_matrix(model, text, inputs, Evaluation(batch_size=size, pair_batch_size=5 * block), CPU)
        assert np.array_equal(scores[0], scores[-1]), (count, size, block)
        assert all(np.array_equal(row, scores[n % 4]) for n, row in enumerate(scores[:-1])), (count, size, block)


@pytest.mark.parametrize("count", [1, 2, 7, 240])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 239, 500])
def test_batches_have_one_shape_and_twins_one_place(count, size):
    rng = np.random.default_rng(count)
    shuffled = rng.permutation(count)
    twins = np.full(count, -1)
    first, second = shuffled[: count // 3], shuffled[count // 3 : 2 * (count // 3)]
    twins[first], twins[second] = second, first
    for given in (None, twins):
        batches = _equal_batches(count, size, given)
        counted = np.concatenate([rows[:kept] for rows, kept in batches])
        assert sorted(counted.tolist()) == list(range(count)), "each row once"
        assert max(len(rows) for rows, _ in batches) <= size
        assert sum(len(rows) - kept for rows, kept in batches) < len(batches), "a row is repeated per batch at most"
    place = {
        row: (len(rows), at) for rows, kept in _equal_batches(count, size, twins) for at, row in enumerate(rows[:kept])
    }
    assert all(place[row] == place[twins[row]] for row in first)


def test_a_twin_of_a_twin_is_encoded_too():
    for ids in (["a", "a_rev", "a_rev_rev"], ["a_rev", "a", "a_rev_rev"], ["a_rev_rev", "a_rev", "a"]):
        batches = _equal_batches(3, 2, twin_rows(ids))
        assert {row for rows, kept in batches for row in rows[:kept].tolist()} == {0, 1, 2}
