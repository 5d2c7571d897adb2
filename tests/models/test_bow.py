"""Baselines of MiniCLIP: bag of words against golden cosines and brute force; CLIP as it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from checkout import ROOT
from golden_numbers import agree, load_json
from messages import expect_message, refusal
from rewind.config import Backbone, Method, Text
from rewind.config.evaluation import Evaluation
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.evaluation.similarity import similarity_matrix
from rewind.models import baselines
from rewind.models.checkpoint import load_model, save_model
from rewind.models.clip import ClipTowers
from rewind.models.clip import build as build_clip
from rewind.models.clip4clip import Clip4Clip
from rewind.models.registry import build_model
from rewind.models.towers import freeze_as_buffers
from rewind.models.zero_shot import build_clip_zero_shot as zero_shot
from rewind.registry import HEADS

GOLDEN = load_json("miniclip.json")["bow_baseline"]
CPU = torch.device("cpu")


def tables(texts: list[str], owners: list[str], items: list[str] | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    names = items or list(dict.fromkeys(owners))
    ids = [f"{owner}#{n}" for n, owner in enumerate(owners)]
    captions = pd.DataFrame({"video_id": owners, "caption": texts, "caption_id": ids})
    return captions, pd.DataFrame({"item_id": names, "cluster_id": names, "reversed": 0})


def matrix(captions: pd.DataFrame, items: pd.DataFrame, **sizes) -> np.ndarray:
    model = baselines.make_bow()
    inputs, text = model.from_captions(items, captions)
    return similarity_matrix(model, text, inputs, Evaluation(**sizes), CPU)


def cosines(texts: list[str]) -> np.ndarray:
    counts = baselines.word_counts(texts).toarray()
    norms = np.linalg.norm(counts, axis=1)
    return counts @ counts.T / np.maximum(np.outer(norms, norms), 1e-12)


@pytest.mark.golden
@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{len(case['captions'])} captions")
def test_cosines_and_ranks_are_the_originals(case: dict) -> None:
    found = cosines(case["captions"])
    agree("MiniCLIP, bag of words", "cosines", found, np.array(case["cosine"]), atol=1e-9)
    captions, items = tables(case["captions"], case["image_ids"])
    ranks = rank_table(matrix(captions, items), captions, items, ["test"], ["text_to_item"])
    owners = np.array(case["image_ids"])
    for row, (best, worst) in enumerate(zip(case["rank_optimistic"], case["rank_pessimistic"], strict=True)):
        own, other = (owners == owners[row]) & (np.arange(len(owners)) != row), owners != owners[row]
        higher, ties = ranks["higher"][row], ranks["ties"][row]
        if best is None:  # left out upstream, chance here
            assert not own.any() and (higher, ties) == (0, len(items) - 1)
            continue
        rivals, truth = found[row][other].round(9), found[row][own].max().round(9)
        ends = [1 + (rivals > truth).sum(), 1 + (rivals >= truth).sum()]
        agree("MiniCLIP, bag of words", "ranks", ends, [best, worst])
        assert higher == len(set(owners[other][rivals > truth]))
        assert higher + ties == len(set(owners[other][rivals >= truth]))


@given(st.lists(st.tuples(st.lists(st.sampled_from("abcd"), max_size=5), st.integers(0, 4)), min_size=2, max_size=14))
def test_an_item_has_the_score_of_its_best_other_caption(drawn: list) -> None:
    texts, owners = [" ".join(words) for words, _ in drawn], [f"i{item}" for _, item in drawn]
    captions, items = tables(texts, owners, [f"i{n}" for n in (3, 0, 4, 1, 2)])
    scores, pairs = matrix(captions, items), cosines(texts)
    for row, owner in enumerate(owners):
        alone = owners.count(owner) == 1
        for column, item in enumerate(items["item_id"]):
            others = [pairs[row, n] for n, o in enumerate(owners) if o == item and n != row]
            expected = 0.0 if alone else max(others, default=0.0)
            assert scores[row, column] == pytest.approx(expected, abs=1e-6)
    assert np.array_equal(scores, matrix(captions, items, batch_size=3, pair_batch_size=2))


def test_captions_without_a_sibling_rank_as_chance_does(capsys: pytest.CaptureFixture) -> None:
    captions, items = tables(["a red mug", "a red cat", "a red door"], ["x", "y", "z"])
    row = compute_metrics(rank_table(matrix(captions, items), captions, items, ["test"], ["text_to_item"]))
    assert row["R@1"] == pytest.approx(100 / 3) and row["MRR"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    said = capsys.readouterr().out
    assert "3 of 3 captions" in said
    expect_message(said)


def test_equal_ratios_tie() -> None:
    """1/√12 and 3/√108 are one cosine: an item is not above another by the last bit."""
    texts = ["a b c", "x", "x y z w a", "p q r s a", "a a a b b b c c c k k k k k k k k k", "a b c g g g"]
    captions, items = tables(["a b c", *texts[1:]], ["t", "t", "u", "v", "w", "x"])
    scores = matrix(captions, items)
    assert scores[0, 1] == scores[0, 2] > 0


def test_it_takes_no_options() -> None:
    with refusal("methods: options.n"):
        baselines.build_bow(Method(model="bow", options={"n": 2}), Backbone(), Text(), [])


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[ClipTowers, dict[str, str]]:
    """A small CLIP, and the keys that name its weights."""
    config = json.loads((ROOT / "config/models/tiny.json").read_text())
    config["text_cfg"] |= {"vocab_size": 49408}
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(config))
    torch.manual_seed(3)
    clip = build_clip(Backbone(architecture=str(path)), Text(tokenizer="clip", max_words=8), [])
    torch.save(clip.clip.state_dict(), tmp_path / "clip.pt")
    return clip, {"architecture": str(path), "weights": str(tmp_path / "clip.pt"), "family": "openai"}


def test_clip_zero_shot_is_zero_shot_with_a_backbone_of_its_own(tiny: tuple[ClipTowers, dict[str, str]]) -> None:
    """Bit for bit what the former model computed: meanP over frames, CLIP's own tokens."""
    options = {"backbone": tiny[1], "text": {"tokenizer": "clip"}, "unit_frames": True}
    towers = build_clip(Backbone(**tiny[1]), Text(tokenizer="clip", max_words=24), [])
    former = freeze_as_buffers(Clip4Clip(towers, HEADS.find("meanP")(towers.width, layers=1, positions=77)))
    named = Method(model="clip_zero_shot", options=tiny[1]), Method(model="zero_shot", options=options)
    models = [build_model(method, Backbone(kind="towers"), Text(tokenizer="words"), []) for method in named]
    pixels = torch.randint(0, 256, (4, 3, 3, 32, 32), dtype=torch.uint8)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]])

    def scores(model: Clip4Clip) -> torch.Tensor:
        text = model.encode_text({"text": model.backbone.prepare_text(["a cat", "two red mugs " * 9])})
        return model.similarity(text, model.encode_items({"pixels": pixels, "mask": mask}))

    wanted = scores(former)
    assert all(torch.equal(scores(model), wanted) for model in models) and wanted.std() > 0
    assert not models[0].state_dict() and models[1].state_dict().keys() == dict(models[1].named_buffers()).keys() - {
        "backbone.mean",
        "backbone.std",
        "backbone.clip.attn_mask",
    }
    plain = build_model(Method(model="zero_shot", options=options | {"unit_frames": False}), Backbone(), Text(), [])
    assert not torch.equal(scores(plain), wanted), "frames' lengths count"
    for changed, place in (
        ({"text": {"tokeniser": "clip"}}, "text.tokeniser"),
        ({"unit_frames": 1}, "unit_frames"),
        ({"backbone": tiny[1] | {"weights": "gone.pt"}}, "backbone.weights: gone.pt"),
    ):
        with refusal(f"methods.*.options.{place}"):
            build_model(Method(model="zero_shot", options=options | changed), Backbone(), Text(), [])
    with refusal("methods.*.options.text"):
        build_model(Method(model="zero_shot", options={"text": {}}), Backbone(**tiny[1]), Text(), [])


def test_clip_as_it_is_reads_its_own_weights(tmp_path: Path, tiny: tuple[ClipTowers, dict[str, str]]) -> None:
    clip, options = tiny
    model = zero_shot(Method(options=options), Backbone(kind="towers"), Text(), [])
    assert not list(model.parameters()) and not model.state_dict()
    pixels = torch.randint(0, 256, (2, 1, 3, 32, 32), dtype=torch.uint8)
    images = model.encode_items({"pixels": pixels, "mask": torch.ones(2, 1)})
    text = model.encode_text({"text": model.backbone.prepare_text(["a cat", "a dog", "a red mug"])})
    with torch.no_grad():
        expected = torch.nn.functional.normalize(clip.frame_features(pixels[:, 0]), dim=1)
    torch.testing.assert_close(images["video"], expected)
    assert model.similarity(text, images).shape == (3, 2)
    save_model(tmp_path / "model.safetensors", model, {"method": "clip_zero_shot/seed0"})
    load_model(tmp_path / "model.safetensors", model)
    for options_, place in (
        ({}, "methods.*.options: model"),
        (options | {"weights": "gone.pt"}, "methods.*.options.weights: gone.pt"),
        (options | {"wieghts": "x"}, "methods.*.options.wieghts"),
    ):
        with refusal(place):
            zero_shot(Method(options=options_), Backbone(), Text(), [])
    with refusal("methods.*.training.freeze"):
        zero_shot(Method(options=options, training={"freeze": ["visual"]}), Backbone(), Text(), [])
