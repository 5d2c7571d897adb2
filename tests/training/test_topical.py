"""Topical batches: coverage, share, spill, odds of clusters, refresh, resumption; what is told and refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broken_runs import BreakingFile, Interrupt
from gradients import CPU
from messages import expect_message, refusal
from rewind.config.training import Batch
from rewind.loading.run_data import TrainingData
from rewind.training.loop import train_model
from rewind.training.samplers.base import make_sampler
from training_runs import data, keys, later_is_better, retriever, same

TOPICS = {"sea": "wave boat fish shore", "sky": "cloud bird plane wind", "town": "street car shop roof"}
TOPIC = [name for name in TOPICS for _ in range(40)]


def sampler_of(options):
    return make_sampler(Batch(sampler="topical", sampler_options=options))


def captions() -> list[str]:
    draw = np.random.default_rng(0)
    return [f"the {' '.join(draw.choice(TOPICS[name].split(), 3, replace=False))} and a {name}" for name in TOPIC]


def split(texts: list[str], per_item: int = 1) -> TrainingData:
    items = np.arange(len(texts)) // per_item
    return TrainingData(None, None, items, np.unique(items), [str(row) for row in range(len(texts))], texts)


def plan(cluster, size, epoch=0, seed=0, per_item=1, over=None, **options):
    cluster = np.asarray(cluster)
    items = np.arange(len(cluster)) // per_item
    state = {"cluster": cluster, "count": np.array(cluster.max() + 1)}
    batch = Batch(size=size, sampler="topical", **over or {})
    sampler = sampler_of(options)
    made = sampler.batches(items, np.unique(items), batch, seed, epoch, state)
    return made, sampler.describe(made, state)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=9),
    size=st.integers(2, 40),
    p=st.floats(0, 1),
    spill=st.floats(0, 0.6),
    seed=st.integers(0, 5),
)
def test_every_caption_is_seen_once_an_epoch(sizes, size, p, spill, seed):
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    made, _ = plan(cluster, size, seed, p_topical=p, max_spill=spill)
    n = len(cluster)
    assert [len(rows) for rows in made] == [min(size, n)] * -(-n // size)
    seen = np.bincount(np.concatenate(made), minlength=n)
    assert (seen >= 1).all() and seen.sum() - n == (-n % size if n > size else 0) and seen.max() <= 2
    assert all(len(np.unique(rows)) == len(rows) for rows in made)


def test_share_and_spill_keep_to_their_keys():
    cluster = np.repeat(np.arange(80), 61)  # three less than a batch
    shares, spills = [], []
    for epoch in range(40):
        made, said = plan(cluster, 64, epoch, p_topical=0.5)
        counts = np.array([np.bincount(cluster[rows]).max() for rows in made])
        topical = counts >= 58  # 64 less a spill of 6.4
        assert ((counts > 30) == topical).all(), "nothing in between"
        assert said["topical_pct"] == pytest.approx(100 * topical.mean())
        assert said["spill_pct"] == pytest.approx(100 * (1 - counts[topical].mean() / 64)) and said["spill_pct"] <= 10
        shares.append(topical.mean())
        spills.append(said["spill_pct"])
    assert abs(np.mean(shares) - 0.5) < 4 * np.sqrt(0.25 / (40 * len(made))) and len(set(shares)) > 5
    assert np.allclose(spills, 100 * 3 / 64, rtol=1e-12, atol=0)
    assert plan(cluster, 64, p_topical=0.0)[1]["topical_pct"] == 0
    nearly_all = plan(np.repeat(np.arange(12), 410), 205, p_topical=1.0)[1]
    assert nearly_all["topical_pct"] == 100 and nearly_all["spill_pct"] == 0


def test_a_spill_fills_what_a_cluster_lacks():
    _, said = plan(np.repeat([0, 1], [19, 61]), 20, p_topical=1.0, max_spill=0.05)
    assert said["topical_pct"] == 100 and said["spill_pct"] == pytest.approx(100 * 1 / 80)
    _, said = plan(np.repeat([0, 1], [18, 62]), 20, p_topical=1.0, max_spill=0.05)
    assert said["topical_pct"] == 75, "18 of 20 are too few for a spill of one"


def test_clusters_are_drawn_by_their_size_to_a_power():
    """Epochs with one topical batch, which has one of two clusters; all others are too small."""
    cluster = np.concatenate([np.repeat([0, 1], [20, 30]), np.arange(2, 202)])
    drawn = []
    for epoch in range(1200):
        made, _ = plan(cluster, 20, epoch, p_topical=1 / 13)
        pure = [cluster[rows][0] for rows in made if np.ptp(cluster[rows]) == 0]
        drawn += pure if len(pure) == 1 else []
    odds = 30 ** (1 / 0.7) / (20 ** (1 / 0.7) + 30 ** (1 / 0.7))
    assert len(drawn) > 300 and abs(np.mean(drawn) - odds) < 4 * np.sqrt(odds * (1 - odds) / len(drawn))


def test_the_order_follows_from_seed_and_epoch():
    cluster = np.repeat(np.arange(4), 50)
    orders = [
        np.concatenate(plan(cluster, 16, epoch, seed)[0]).tolist() for epoch, seed in ((1, 2), (1, 2), (2, 2), (1, 3))
    ]
    assert orders[0] == orders[1] and orders[0] != orders[2] and orders[0] != orders[3]


def test_one_caption_of_each_item_is_drawn():
    cluster = np.repeat(np.arange(4), 50)
    made, _ = plan(cluster, 10, per_item=5, over={"captions": "one"})
    other, _ = plan(cluster, 10, 1, per_item=5, over={"captions": "one"})
    assert sorted(np.concatenate(made) // 5) == list(range(40)) == sorted(np.concatenate(other) // 5)
    assert sorted(np.concatenate(made)) != sorted(np.concatenate(other))


def test_uniform_batches_spread_the_captions_of_an_item():
    made, _ = plan(np.zeros(200, int), 20, per_item=5, p_topical=0.0)
    assert max(np.bincount(rows // 5).max() for rows in made) <= 2


def test_topics_are_found_in_the_words_and_then_in_the_vectors(capsys):
    sampler = sampler_of({"clusters": 3})
    state = sampler.prepare(split(captions()), Batch(size=8), 0)
    assert len({(name, label) for name, label in zip(TOPIC, state["cluster"], strict=True)}) == 3
    assert np.array_equal(sampler.prepare(split(captions()), Batch(size=8), 5)["cluster"], state["cluster"])
    turned = np.arange(120) % 3
    vectors = np.eye(3, dtype=np.float32)[turned] + np.random.default_rng(0).normal(0, 0.05, (120, 3)).astype(
        np.float32
    )
    new = sampler.refresh(2, vectors, state)
    assert len(set(zip(turned, new["cluster"], strict=True))) == 3 and int(new["count"]) == 3
    assert capsys.readouterr().out == ""


def test_a_broken_run_goes_on_with_the_same_batches(tmp_path):
    def run(path, stop_after=None):
        model = retriever("meanP")
        given = data(model)
        given.captions = captions()[::15]

        batch = {
            "size": 2,
            "sampler": "topical",
            "sampler_options": {"clusters": 3, "p_topical": 0.9, "refresh_every": 1},
        }
        training = keys(epochs=3, batch=batch, save_every_steps=1)
        return model, train_model(
            model, given, training, 0, CPU, later_is_better, BreakingFile(path, "x", stop_after), "run"
        )

    whole, history = run(tmp_path / "whole.pt")
    assert all(row["topical_pct"] > 0 and row["clusters"] == 3 for row in history)
    with pytest.raises(Interrupt):
        run(tmp_path / "broken.pt", 6)  # in the middle of the second epoch, after its refresh
    resumed, again = run(tmp_path / "broken.pt")
    assert same(whole, resumed) and [r["loss"] for r in history] == [r["loss"] for r in again]


# --- what is told and refused


def test_more_clusters_than_captions_can_fill_are_reduced(capsys):
    state = sampler_of({"clusters": 500}).prepare(split(captions()), Batch(size=30), 0)
    assert state["cluster"].max() == 3 and int(state["count"]) == 4
    said = capsys.readouterr().out
    assert "500 clusters" in said and "120 captions" in said
    expect_message(said, varying=r"\d+%(?= of the)")


def test_small_clusters_are_told_with_their_share(capsys):
    rare = captions() + ["a lonely lighthouse keeper"] * 3
    sampler_of({"clusters": 4}).prepare(split(rare), Batch(size=30), 0)
    said = capsys.readouterr().out
    assert "1 of 4 clusters" in said and "2%" in said
    expect_message(said, varying=r"\d+%(?= of the)")


def test_what_topical_batches_cannot_be_made_of_is_refused():
    sampler = sampler_of({})
    with refusal("training.batch.twins_together"):
        sampler.prepare(split(captions()), Batch(twins_together=True), 0)
    with refusal("training.batch.sampler"):
        sampler.prepare(split(["the", "and of", "to"] * 40), Batch(size=8), 0)
    with refusal("training.batch.sampler"):
        sampler.prepare(TrainingData(None, None, np.arange(4), np.arange(4), list("abcd")), Batch(size=2), 0)
    for options, place in (({"k": 3}, "k: sampler"), ({"p_topical": 2}, "p_topical")):
        with refusal(f"training.batch.sampler_options.{place}"):
            make_sampler(Batch(sampler="topical", sampler_options=options))
