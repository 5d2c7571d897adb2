"""MiniCLIP's metrics: several captions per image, golden numbers of the original, its JSON fields."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from golden_numbers import Numbers, agree, load, load_json
from rewind.config import Backbone, Frames, Study, Text
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.report.method_json import method_metrics
from rewind.tables.results import Results

NUMBERS = load_json("miniclip.json")
WORDS = Text(tokenizer="miniclip", max_words=12)
RESNET = Backbone(kind="miniclip_towers", architecture="resnet18")


@pytest.fixture(scope="module")
def golden() -> Numbers:
    return load("miniclip.npz")


def frames(count: int, per_item: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    items = pd.DataFrame({"item_id": [f"i{n}" for n in range(count)], "reversed": 0})
    own = np.repeat(items["item_id"], per_item).to_numpy()
    captions = pd.DataFrame({"video_id": own, "caption_id": [f"{v}#{n}" for n, v in enumerate(own)]})
    return captions, items.assign(cluster_id=items["item_id"])


@pytest.mark.parametrize("direction", ["text_to_item", "item_to_text"])
def test_a_perfect_matrix_scores_one_with_several_captions_per_image(direction: str) -> None:
    captions, items = frames(31, 2)
    perfect = (captions["video_id"].to_numpy()[:, None] == items["item_id"].to_numpy()).astype(np.float32)
    row = compute_metrics(rank_table(perfect, captions, items, ["test"], [direction]))
    assert row["R@1"] == 100 and row["R@1_pessimistic"] == 100 and row["MRR"] == 1 and row["MdR"] == 1
    assert row["queries"] == (62 if direction == "text_to_item" else 31)


@pytest.mark.golden
@pytest.mark.parametrize("block", ["a", "b"])
def test_test_metrics_are_the_originals(golden: dict, block: str) -> None:
    start = f"retrieval/{block}/"
    scores, truth = golden[start + "similarity"], golden[start + "caption_image_index"]
    _, items = frames(scores.shape[1], 1)
    ids = [f"c{n}" for n in range(len(truth))]
    captions = pd.DataFrame({"video_id": items["item_id"].to_numpy()[truth], "caption_id": ids})
    ranks = rank_table(scores, captions, items, ["test"], ["text_to_item"])
    assert (ranks["ties"] == 0).all()
    agree("MiniCLIP, metrics", "ranks", 1 + ranks["higher"].to_numpy(), golden[start + "rank_1based"])
    row = compute_metrics(ranks) | {"MedR": compute_metrics(ranks)["MdR"]}
    for name in ("R@1", "R@5", "R@10", "MRR", "MedR"):
        agree("MiniCLIP, metrics", "metrics", row[name], golden[f"{start}test/{name}"], atol=1e-9)


@pytest.mark.golden
@pytest.mark.parametrize("images", [3, 8, 32, 100])
def test_chance_is_the_originals(images: int) -> None:
    captions, items = frames(images, 1)
    row = compute_metrics(rank_table(np.zeros((images, images)), captions, items, ["test"], ["text_to_item"]))
    for name, wanted in NUMBERS["random_baseline"][str(images)].items():
        agree("MiniCLIP, metrics", "chance", row[name], wanted, rtol=1e-9)


def test_metrics_are_written_in_the_originals_fields() -> None:
    methods = {"lstm": {"model": "miniclip"}, "random": {"model": "chance", "seeds": [0]}}
    study = Study.model_validate(
        {"name": "s", "dataset": "d", "methods": methods, "seeds": [0, 1], "evaluation": {"settings": ["test"]}}
        | {"frames": Frames(max_frames=1).model_dump(), "text": WORDS.model_dump()}
        | {"backbone": RESNET.model_dump(), "training": {"lr": 3e-4}}
    )
    rows = [("lstm", 0, 40.0), ("lstm", 1, 50.0), ("random", 0, 3.0)]
    table = pd.DataFrame(rows, columns=["method", "seed", "R@1"]).assign(**{"R@5": 60.0, "R@10": 70.0, "MRR": 0.5})
    table = table.assign(MdR=2.0, setting="test", direction="text_to_item", queries=6, gallery=3)
    results = Results(table, pd.DataFrame(), pd.DataFrame(), {"lstm": "LSTM", "random": "Random"}, {}, ["random"])
    record = {"best": {"epoch": 7, "valid_R@1": 25.0}, "last": {"loss": 0.5}}
    found = method_metrics(study, results, {("lstm", 0): record, ("lstm", 1): record}, "lstm")
    assert list(found) == ["model_type", "test_metrics", "baselines", "training", "config", "runs"]
    assert found["test_metrics"] == {"R@1": 45.0, "R@5": 60.0, "R@10": 70.0, "MRR": 0.5, "MedR": 2.0}
    assert found["baselines"]["random"]["R@1"] == 3.0 and found["runs"][1]["test_metrics"]["R@1"] == 50.0
    assert found["training"] == {"best_epoch": 7, "best_val_r1": 25.0, "final_train_loss": 0.5}
    assert set(found["config"]) >= set(NUMBERS["config"]) and json.dumps(found)
