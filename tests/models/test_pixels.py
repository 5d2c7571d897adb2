"""The baseline of words and pixels: what colour and coarse movement tell, in a clip and in its twin."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from messages import refusal
from rewind.config import Backbone, Method, Text, Training
from rewind.loading.run_data import PreparedSplit
from rewind.models.baselines import PIXELS_FRAMES, PixelBaseline, PixelFeatures, build_pixels, check_pixels
from rewind.training.run import _fit_closed_form

SIDE, LENGTH = 32, 6


class Moving:
    """A square that moves to the right or to the left, bright or dark."""

    copies = True

    def __init__(self, clips: list[tuple[str, int]]) -> None:
        self.clips = clips

    def __len__(self) -> int:
        return len(self.clips)

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        pixels = torch.zeros(len(rows), LENGTH, 3, SIDE, SIDE, dtype=torch.uint8)
        for clip, row in zip(pixels, rows, strict=True):
            way, value = self.clips[row]
            for frame in range(LENGTH):
                at = 4 * (frame if way == "right" else LENGTH - 1 - frame)
                clip[frame, :, 8:16, at : at + 8] = value
        return {"pixels": pixels, "mask": torch.ones(len(rows), LENGTH, dtype=torch.uint8)}


def split(model: PixelBaseline, seed: int, count: int = 40) -> PreparedSplit:
    rng = np.random.default_rng(seed)
    clips = [(way, int(value)) for way in ("right", "left") for value in rng.integers(60, 255, count // 2)]
    captions = [f"a {'bright' if value > 157 else 'dark'} square moves to the {way}" for way, value in clips]
    items = pd.DataFrame({"item_id": [f"v{n}" for n in range(count)], "cluster_id": range(count)})
    table = pd.DataFrame({"caption_id": items["item_id"] + "#0", "video_id": items["item_id"], "caption": captions})
    return PreparedSplit(items, table, Moving(clips), model.backbone.prepare_text(captions), 0)


def test_the_direction_of_movement_is_found_without_a_network() -> None:
    words = ["a bright square moves to the right", "a dark square moves to the left"]
    model = build_pixels(Method(model="pixels"), Backbone(), Text(), words)
    _fit_closed_form(model, split(model, 0), split(model, 1))
    test = split(model, 2)
    items = model.encode_items(test.inputs.batch(np.arange(len(test.items))))
    scores = model.similarity(model.encode_text({"text": test.text}), items)
    right = torch.tensor([way == "right" for way, _ in test.inputs.clips])
    best = scores.argmax(dim=1)
    assert (right[best] == right).all(), "every caption finds a clip that moves its way"


def test_a_twin_shows_the_same_frames_in_reverse() -> None:
    pictures = PixelFeatures(["a b"])
    rng = np.random.default_rng(0)
    for frames in (1, 3, 4, 7):
        clip = torch.from_numpy(rng.integers(0, 256, (1, 8, 3, SIDE, SIDE), dtype=np.uint8))
        twin = clip.clone()
        twin[:, :frames] = clip[:, :frames].flip(1)
        mask = torch.zeros(1, 8, dtype=torch.uint8)
        mask[:, :frames] = 1
        one, two = (pictures.clip_features(part, mask)[0, 0].view(PIXELS_FRAMES, -1) for part in (clip, twin))
        assert torch.equal(one, two.flip(0)) and torch.isfinite(one).all()


def test_words_that_training_never_saw_are_left_out() -> None:
    pictures = PixelFeatures(["a red square", "a red circle"])
    rows = pictures.prepare_text(["red red zebra", "nothing known"])
    assert pictures.text_width == 4 and rows.shape == (2, 4)
    assert rows[0].sum() == pytest.approx(2**0.5) and rows[1].sum() == 0


def test_cached_features_of_other_towers_are_refused() -> None:
    with refusal("methods.*.training.freeze: visual"):
        check_pixels(Method(model="pixels", training=Training(freeze=["visual"])), Backbone())
    with refusal("methods.*.model"):
        check_pixels(Method(model="pixels"), Backbone(kind="embeddings"))
    with refusal("methods: options.size"):
        check_pixels(Method(model="pixels", options={"size": 3}), Backbone())
