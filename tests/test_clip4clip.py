"""The four heads against numbers made by running CLIP4Clip's own code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rewind.compat import open_clip
from rewind.errors import RewindError
from rewind.models.clip import Clip
from rewind.models.clip4clip import Clip4Clip
from rewind.models.heads import HEADS
from rewind.objectives.infonce import infonce
from rewind.training.grad_cache import exact_step

FILES = ["open_meanP", "open_seqLSTM", "open_seqTransf", "open_tightTransf", "open2_seqTransf", "open2_tightTransf"]
RENAMED = {"cross.embeddings.": "head.", "cross.transformer.": "head.transformer.", "cross.pooler.": "head."}


class TokensAsGiven:
    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary


def upstream_model(golden) -> Clip4Clip:
    meta = {name.removeprefix("meta/"): golden[name] for name in golden.files if name.startswith("meta/")}
    number = {name: int(value) for name, value in meta.items() if value.dtype.kind in "iu"}
    towers = open_clip("model").CLIP(
        embed_dim=number["embed_dim"],
        quick_gelu=True,
        vision_cfg={
            "image_size": number["image"],
            "layers": number["vision_layers"],
            "width": number["vision_width"],
            "patch_size": number["vision_patch"],
            "head_width": 64,
        },
        text_cfg={
            "context_length": number["context_length"],
            "vocab_size": number["vocab"],
            "width": number["text_width"],
            "heads": number["text_heads"],
            "layers": number["text_layers"],
        },
    )
    backbone = Clip(towers, TokensAsGiven(number["vocab"]), number["max_words"])
    head = HEADS[str(meta["sim_header"])](
        number["embed_dim"], layers=number["head_layers"], positions=number["context_length"]
    )
    model = Clip4Clip(backbone, head).eval()
    state = {}
    for name in golden.files:
        if not name.startswith("state/"):
            continue
        own = name.removeprefix("state/")
        for old, new in RENAMED.items():
            own = own.replace(old, new)
        if own.startswith("clip."):
            own = "backbone." + own
        elif not own.startswith("head."):
            own = "head." + own
        state[own] = torch.from_numpy(golden[name])
    if str(meta["sim_header"]) == "seqLSTM":
        state.pop("head.frame_position_embeddings.weight")  # upstream never uses it
    model.load_state_dict(state)
    return model


def features(model: Clip4Clip, golden):
    text = model.encode_text({"text": torch.from_numpy(golden["in/input_ids"])})
    mask = torch.from_numpy(golden["in/video_mask"][:, 0])
    pixels = torch.from_numpy(golden["in/frames_u8"])
    return text, model.encode_items({"pixels": pixels, "mask": mask})


@pytest.mark.parametrize("name", FILES)
def test_similarity_and_loss_equal_upstream(shared, name):
    golden = np.load(shared / "golden/clip4clip" / f"{name}.npz", allow_pickle=False)
    model = upstream_model(golden)
    text, items = features(model, golden)
    logits = model.similarity(text, items)
    np.testing.assert_allclose(logits.detach(), golden["out/logits"], atol=2e-5)
    n = golden["out/logits_square"].shape[0]
    square = {key: value[:n] for key, value in text.items()}
    loss = infonce(model, square, items, {"items": torch.arange(n)}).value
    np.testing.assert_allclose(loss.item(), golden["out/loss"], atol=1e-5)
    loss.backward()
    for key in (k for k in golden.files if k.startswith("grad/clip")):
        own = dict(model.named_parameters())["backbone." + key.removeprefix("grad/")]
        wanted = golden[key]
        assert np.abs(own.grad.numpy() - wanted).max() < 5e-5 * np.abs(wanted).max(), key


@pytest.mark.parametrize("name", FILES)
def test_double_precision_equals_upstream(shared, name):
    golden = np.load(shared / "golden/clip4clip" / f"{name}.npz", allow_pickle=False)
    model = upstream_model(golden).double()
    # The golden run took pixels that had been normalised in float32.
    video = torch.from_numpy(golden["in/video"])[:, 0, :, 0].double()
    frames = model.backbone.clip.visual(video.flatten(0, 1)).unflatten(0, video.shape[:2])
    mask = torch.from_numpy(golden["in/video_mask"][:, 0])
    text = model.encode_text({"text": torch.from_numpy(golden["in/input_ids"])})
    items = model.encode_items({"frames": frames, "mask": mask})
    np.testing.assert_allclose(model.similarity(text, items).detach(), golden["ref64/logits"], atol=1e-9)


def tiny(head: str, positions: int = 77) -> Clip4Clip:
    torch.manual_seed(0)
    vision = {"image_size": 16, "layers": 1, "width": 64, "patch_size": 8}
    text = {"context_length": 8, "vocab_size": 40, "width": 64, "heads": 1, "layers": 1}
    towers = open_clip("model").CLIP(embed_dim=64, quick_gelu=True, vision_cfg=vision, text_cfg=text)
    return Clip4Clip(Clip(towers, TokensAsGiven(40), 8), HEADS[head](64, layers=1, positions=positions)).eval()


def random_batch(frames: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    text = torch.randint(1, 39, (6, 8), generator=draw)
    text[:, -1] = 39  # the end token is the largest
    pixels = torch.randint(0, 256, (6, frames, 3, 16, 16), generator=draw, dtype=torch.uint8)
    return {"text": text, "pixels": pixels, "mask": torch.ones(6, frames), "items": torch.arange(6)}


@pytest.mark.parametrize("head", HEADS)
def test_under_autocast_features_and_logits_are_single_precision(head):
    model, batch = tiny(head), random_batch(3)
    seen = {}

    def objective(retriever, text, items, given):
        seen["logits"] = retriever.similarity(text, items)
        seen["features"] = {name: v.dtype for name, v in (text | items).items() if name not in ("mask", "words")}
        return infonce(retriever, text, items, given)

    with torch.no_grad():  # a scale as trained models have it
        model.backbone.logit_scale.fill_(np.log(100))
    exact_step(model, objective, batch, precision="bf16")
    logits = seen["logits"].detach()
    assert logits.dtype == torch.float32 and set(seen["features"].values()) == {torch.float32}
    # In half precision there would be few different values, far apart: 8 bits of a score near 100.
    assert not torch.equal(logits, logits.bfloat16().float())
    if not model.head.pairwise:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            text, items = model.encode_text(batch), model.encode_items(batch)
        np.testing.assert_allclose(logits, 100 * text["text"] @ items["video"].T, rtol=1e-5, atol=1e-5)
    exact_step(model.double(), objective, batch)
    assert seen["logits"].dtype == torch.float64


@pytest.mark.parametrize(("head", "most"), [("seqTransf", 5), ("tightTransf", 4)])
def test_more_frames_than_positions_are_refused(head, most):
    model = tiny(head, positions=5)
    for frames in (most, most + 1):
        batch = random_batch(frames)
        text, items = model.encode_text(batch), model.backbone.clip_features(batch["pixels"], batch["mask"])
        wanted = {"frames": items, "mask": batch["mask"]}
        if frames == most:
            assert model.similarity(text, model.encode_items(wanted)).shape == (6, 6)
            continue
        with pytest.raises(RewindError, match=rf"frames\.max_frames: a clip has {frames} frames, .* only {most} \("):
            model.similarity(text, model.encode_items(wanted))


@pytest.mark.parametrize("head", ["meanP", "seqLSTM"])
def test_heads_without_positions_take_any_number_of_frames(head):
    model, batch = tiny(head, positions=5), random_batch(9)
    assert model.encode_items(batch)["video"].shape == (6, 64)
