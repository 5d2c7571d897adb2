"""Baselines that see too little to answer Binary: what each can find on data where words or clips give the answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from messages import refusal
from rewind.config import Backbone, Method
from rewind.config.evaluation import Evaluation
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import PreparedSplit
from rewind.loading.text import IdentifiedText
from rewind.models.blind import BlindProduct, CaptionOnly, ClipOnly, SingleFrame, check_blind
from rewind.models.checkpoint import load_model, save_model
from rewind.models.embeddings import EmbeddingTowers
from rewind.training.run import make_validator

FRAMES, WIDTH = 6, 4
OPENING, CLOSING = "opens", "closes"


class Towers(EmbeddingTowers):
    """Towers of one space: a caption is a vector that its words name, frames are what they are."""

    def __init__(self) -> None:
        super().__init__(text_width=WIDTH, item_width=WIDTH, width=WIDTH)
        for projection in (self.text_projection, self.frame_projection):
            torch.nn.init.eye_(projection.weight)
            torch.nn.init.zeros_(projection.bias)

    def prepare_text(self, captions: list[str]) -> torch.Tensor:
        text = torch.zeros(len(captions), WIDTH)
        for row, caption in zip(text, captions, strict=True):
            row[0 if OPENING in caption else 1] = 1
        return text


def split(seed: int, physics: bool = False, forward: str = "mixed", count: int = 40) -> PreparedSplit:
    """Doors that open or close, each with its twin.

    Args:
        physics: whether forward clips show so in their last feature, which rises with time.
        forward: ``mixed``, half of the originals open; ``opening``, all of them do.
    """
    rng = np.random.default_rng(seed)
    rows, captions, frames = [], [], []
    for number in range(count):
        opens = forward == "opening" or number % 2 == 0
        clip = rng.normal(0, 0.1, (FRAMES, WIDTH))
        clip[:, 0] += np.linspace(0, 1, FRAMES) if opens else np.linspace(1, 0, FRAMES)  # how far the door is open
        clip[:, 1] += np.linspace(1, 0, FRAMES) if opens else np.linspace(0, 1, FRAMES)
        if physics:
            clip[:, 3] += np.linspace(0, 1, FRAMES)
        for is_twin in (0, 1):
            item = f"v{number}{'_rev' * is_twin}"
            rows.append({"item_id": item, "cluster_id": f"v{number}", "reversed": is_twin})
            verb = OPENING if opens != bool(is_twin) else CLOSING
            captions.append({"caption_id": f"{item}#0", "video_id": item, "caption": f"the door {verb}"})
            frames.append(clip[::-1] if is_twin else clip)
    table = pd.DataFrame(captions)
    inputs = CachedFrames(np.stack(frames).astype(np.float32), np.ones((len(frames), FRAMES), np.uint8))
    text = IdentifiedText(Towers().prepare_text(table["caption"].tolist()), table)
    return PreparedSplit(pd.DataFrame(rows), table, inputs, text)


def accuracy(model, train, valid, test) -> tuple[float, float]:
    """Percent of Binary from text to item, and from item to text."""

    def prepared(part):
        own = model.from_captions(part.items, part.captions)
        return part if own is None else PreparedSplit(part.items, part.captions, *own)

    def validator(part):
        return make_validator(prepared(part), "binary", Evaluation(), torch.device("cpu"))

    model.fit_splits(prepared(train), prepared(valid), validator(valid))
    scores = validator(test)(model)
    return scores["valid_R@1"], scores["valid_item_to_text R@1"]


def test_words_alone_answer_from_item_to_text_where_originals_have_other_words():
    splits = [split(seed, forward="opening") for seed in range(3)]
    model = CaptionOnly(splits[0].captions["caption"].tolist())
    assert accuracy(model, *splits) == (50.0, 100.0)


def test_words_alone_find_nothing_where_both_directions_have_the_same_words():
    model = CaptionOnly(["the door opens", "the door closes"])
    assert accuracy(model, *[split(seed) for seed in range(3)]) == (50.0, 50.0)


def test_clips_alone_answer_from_text_to_item_where_time_shows():
    text_to_item, item_to_text = accuracy(ClipOnly(Towers()), *[split(seed, physics=True) for seed in range(3)])
    assert text_to_item > 95 and item_to_text == 50


def test_clips_alone_find_nothing_where_time_does_not_show():
    text_to_item, item_to_text = accuracy(ClipOnly(Towers()), *[split(seed, count=120) for seed in range(3)])
    assert 35 < text_to_item < 65 and item_to_text == 50


def test_the_product_is_right_where_both_guesses_agree():
    splits = [split(seed, physics=True, forward="opening") for seed in range(3)]
    model = BlindProduct(Towers(), splits[0].captions["caption"].tolist())
    text_to_item, item_to_text = accuracy(model, *splits)
    assert text_to_item > 95 and item_to_text > 95


def test_one_frame_answers_where_the_last_one_shows_what_the_caption_says():
    model = SingleFrame(Towers())
    text_to_item, item_to_text = accuracy(model, *[split(seed) for seed in range(3)])
    assert text_to_item > 90 and item_to_text > 90 and model.moment > 0.5, "an open door at the end has been opened"


@pytest.mark.parametrize("model", [CaptionOnly, BlindProduct, SingleFrame, ClipOnly], ids=lambda kind: kind.__name__)
def test_a_fitted_baseline_is_the_same_after_it_was_stored(model, tmp_path):
    splits = [split(seed, physics=True, forward="opening") for seed in range(3)]
    words = splits[0].captions["caption"].tolist()

    def build():
        return {
            CaptionOnly: lambda: CaptionOnly(words),
            BlindProduct: lambda: BlindProduct(Towers(), words),
            SingleFrame: lambda: SingleFrame(Towers()),
            ClipOnly: lambda: ClipOnly(Towers()),
        }[model]()

    fitted, loaded = build(), build()
    accuracy(fitted, *splits)
    save_model(tmp_path / "model.safetensors", fitted, {})
    load_model(tmp_path / "model.safetensors", loaded)
    for name, value in fitted.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])


def test_originals_whose_twin_has_no_caption_teach_nothing():
    train = split(0, forward="opening")
    undescribed = train.captions["video_id"].isin([f"v{number}_rev" for number in range(10, 40)])
    captions = train.captions[~undescribed].reset_index(drop=True)
    captions.loc[captions["video_id"].isin([f"v{number}" for number in range(10, 40)]), "caption"] += " in a garden"
    model = CaptionOnly(captions["caption"].tolist())
    text = IdentifiedText(Towers().prepare_text(captions["caption"].tolist()), captions)
    few = PreparedSplit(train.items, captions, train.inputs, text)
    accuracy(model, few, split(1, forward="opening"), split(2, forward="opening"))
    assert model.weight[model.number["garden"]] == 0 < model.weight[model.number[OPENING]]


def test_a_training_split_without_captions_of_twins_is_refused():
    train = split(0)
    captions = train.captions[~train.captions["video_id"].str.endswith("_rev")].reset_index(drop=True)
    text = IdentifiedText(Towers().prepare_text(captions["caption"].tolist()), captions)
    one_way = PreparedSplit(train.items, captions, train.inputs, text)
    model = CaptionOnly(captions["caption"].tolist())
    with refusal():
        accuracy(model, one_way, split(1), split(2))


def test_a_validation_split_without_captions_of_twins_is_refused_as_what_it_is():
    train, valid = split(0, physics=True), split(1)
    captions = valid.captions[~valid.captions["video_id"].str.endswith("_rev")].reset_index(drop=True)
    text = IdentifiedText(Towers().prepare_text(captions["caption"].tolist()), captions)
    with refusal():
        ClipOnly(Towers()).fit_splits(train, PreparedSplit(valid.items, captions, valid.inputs, text), lambda model: {})


def test_options_and_towers_that_do_not_fit_are_refused():
    with refusal("methods: options.k"):
        check_blind(Method(model="clip_only", options={"k": 1}), Backbone())
    with refusal("methods.*.model: single_frame"):
        check_blind(Method(model="single_frame"), Backbone(kind="viclip"))
