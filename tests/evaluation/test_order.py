"""Order controls: which frames are shown, what they cost, and that nothing is lost by a head that is blind to order."""

import numpy as np
import pandas as pd
import pytest
import torch

from messages import refusal
from rank_rows import ranks
from rewind.analyses.order import read_order_ranks
from rewind.config.evaluation import Evaluation, OrderControl
from rewind.config.report import Statistics
from rewind.evaluation.order import ReorderedFrames, shown_frames
from rewind.evaluation.similarity import similarity_matrix
from rewind.loading.frame_source import CachedFrames
from rewind.statistics.controls import compare_with_controls
from rewind.statistics.pairs import RandomFactors
from training_runs import CAPTIONS, retriever

CONTROLS = OrderControl.__args__
CPU = torch.device("cpu")


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_only_frames_of_the_clip_are_shown(control, count):
    shown = shown_frames(control, count, "clip")
    assert set(shown.tolist()) <= set(range(count)) and len(shown) == (1 if control == "single" else count)
    if control in ("reversed", "shuffled", "halves"):
        assert sorted(shown) == list(range(count)), "each once"


def test_shuffled_orders_are_drawn_for_each_clip_and_always_the_same():
    orders = {item: tuple(shown_frames("shuffled", 8, item)) for item in map(str, range(50))}
    assert len(set(orders.values())) > 45 and orders == {i: tuple(shown_frames("shuffled", 8, i)) for i in orders}


def clips(seed: int = 0):
    """Five clips of up to six frames, padded with zeros."""
    frames = np.random.default_rng(seed).normal(size=(5, 6, 96)).astype(np.float32)
    mask = (np.arange(6) < np.array([6, 3, 1, 5, 2])[:, None]).astype(np.uint8)
    return frames * mask[..., None], mask


@pytest.mark.parametrize("name", ["frames", "pixels"])
def test_padding_stays_at_the_end(name):
    frames, mask = clips()
    source = CachedFrames(frames, mask)
    if name == "pixels":
        source.batch = lambda rows: {"pixels": source.frames[rows], "mask": source.mask[rows]}
    rows = np.array([3, 1, 2])
    batch = ReorderedFrames(source, "reversed", list("abcde")).batch(rows)
    for at, row in enumerate(rows):
        count = mask[row].sum()
        assert np.array_equal(batch[name][at, :count], frames[row, :count][::-1]) and not batch[name][at, count:].any()
    assert np.array_equal(batch["mask"], mask[rows])
    single = ReorderedFrames(source, "single", list("abcde")).batch(rows)
    assert single["mask"].sum(dim=1).tolist() == [1, 1, 1] and not single[name][:, 1:].any()
    assert np.array_equal(single[name][0, 0], frames[3, 2]), "the middle of five"


def scores(head: str, control: str = "") -> np.ndarray:
    model = retriever(head)
    source = CachedFrames(*clips())
    shown = ReorderedFrames(source, control, list("abcde")) if control else source
    return similarity_matrix(model, model.backbone.prepare_text(CAPTIONS), shown, Evaluation(batch_size=2), CPU)


@pytest.mark.parametrize("head", ["meanP", "projection", "xpool", "wti"])
@pytest.mark.parametrize("control", ["reversed", "shuffled", "halves"])
def test_a_head_that_is_blind_to_order_loses_nothing_at_all(head, control):
    assert np.array_equal(scores(head), scores(head, control))


@pytest.mark.parametrize("head", ["seqLSTM", "seqTransf", "tightTransf"])
@pytest.mark.parametrize("control", CONTROLS)
def test_a_head_that_sees_order_scores_otherwise(head, control):
    assert not np.allclose(scores(head), scores(head, control))


def test_one_frame_is_the_same_alone_and_repeated_for_a_mean():
    assert np.allclose(scores("meanP", "single"), scores("meanP", "frozen"), atol=1e-5)


def made_ranks(count: int = 40):
    """Ranks of two methods of two seeds: one loses ten hits of forty when frames are reversed, the other nothing."""
    rng = np.random.default_rng(0)
    whole = {m: {s: ranks(rng.integers(0, 2, count), setting="origin") for s in (0, 1)} for m in ("seq", "mean")}
    lost = {
        seed: table.assign(higher=np.where(np.arange(count) < 10, 3, table["higher"]))
        for seed, table in whole["seq"].items()
    }
    lost = {seed: table.assign(rank=1 + table["higher"]) for seed, table in lost.items()}
    same = {seed: table.sample(frac=1, random_state=1).reset_index(drop=True) for seed, table in whole["mean"].items()}
    return whole, {"reversed": {"seq": lost, "mean": same}}


def test_a_loss_is_the_difference_of_the_same_queries():
    whole, controlled = made_ranks()
    rows = compare_with_controls(whole, controlled, "origin", Statistics(resamples=100), RandomFactors())
    found = rows[rows["metric"] == "R@1"].set_index("method")
    for method in ("seq", "mean"):
        hits = [
            np.mean([(t["higher"] == 0).mean() for t in of[method].values()]) for of in (whole, controlled["reversed"])
        ]
        assert found.loc[method, "estimate"] == pytest.approx(100 * hits[0])
        assert found.loc[method, "controlled"] == pytest.approx(100 * hits[1])
        assert found.loc[method, "loss"] == pytest.approx(100 * (hits[0] - hits[1]))
    assert found["identical"].to_dict() == {"seq": 0, "mean": 1} and found.loc["mean", "loss"] == 0
    assert found.loc["seq", "low"] > 0 and found.loc["seq", "p_holm"] < 0.05 and (found["family"] == 2).all()


def test_files_of_ranks_are_read_by_control_and_others_refused(tmp_path):
    _, controlled = made_ranks()
    paths = []
    for seed, table in controlled["reversed"]["seq"].items():
        paths.append(str(tmp_path / f"seed{seed}.parquet"))
        pd.concat([table.assign(control=c) for c in ("reversed", "single")]).to_parquet(paths[-1])
    runs = [("seq", 0), ("seq", 1)]
    found = read_order_ranks(runs, paths)
    assert list(found) == ["reversed", "single"] and list(found["single"]["seq"]) == [0, 1]
    assert "control" not in found["single"]["seq"][0] and len(found["single"]["seq"][0]) == 40
    controlled["reversed"]["seq"][0].to_parquet(paths[0])
    with refusal(paths[0]):
        read_order_ranks(runs, paths)
