"""The four heads against numbers made by running CLIP4Clip's own code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from golden_numbers import Numbers, agree, load, load_json
from messages import refusal
from rewind.losses.infonce import infonce
from rewind.models.clip import ClipTowers
from rewind.models.clip4clip import Clip4Clip
from rewind.optional_packages import open_clip
from rewind.registry import HEADS
from rewind.training.grad_cache import exact_step

FILES = ["open_meanP", "open_seqLSTM", "open_seqTransf", "open_tightTransf", "open2_seqTransf", "open2_tightTransf"]
RENAMED = {"cross.embeddings.": "head.", "cross.transformer.": "head.transformer.", "cross.pooler.": "head."}


def own_names(golden: Numbers) -> dict[str, str]:
    """CLIP4Clip's name of a tensor -> ours."""
    names = {}
    for key in golden:
        if key.startswith("state/"):
            theirs = own = key.removeprefix("state/")
            for old, new in RENAMED.items():
                own = own.replace(old, new)
            if own.startswith("clip."):
                own = "backbone." + own
            elif not own.startswith("head."):
                own = "head." + own
            names[theirs] = own
    if str(golden["meta/sim_header"]) == "seqLSTM":
        names.pop("frame_position_embeddings.weight")  # upstream never uses it
    return names


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
    backbone = ClipTowers(towers, TokensAsGiven(number["vocab"]), number["max_words"])
    head = HEADS.find(str(meta["sim_header"]))(
        number["embed_dim"], layers=number["head_layers"], positions=number["context_length"]
    )
    model = Clip4Clip(backbone, head).eval()
    state = {own: torch.from_numpy(golden[f"state/{theirs}"]) for theirs, own in own_names(golden).items()}
    model.load_state_dict(state)
    return model


def features(model: Clip4Clip, golden):
    text = model.encode_text({"text": torch.from_numpy(golden["in/input_ids"])})
    mask = torch.from_numpy(golden["in/video_mask"][:, 0])
    pixels = torch.from_numpy(golden["in/frames_u8"])
    return text, model.encode_items({"pixels": pixels, "mask": mask})


def subject(golden: Numbers) -> str:
    return f"CLIP4Clip, {golden['meta/sim_header']}"


@pytest.mark.golden
@pytest.mark.parametrize("name", FILES)
def test_similarity_and_loss_equal_upstream(name):
    golden = load(f"clip4clip/{name}.npz")
    model = upstream_model(golden)
    text, items = features(model, golden)
    logits = model.similarity(text, items)
    agree(subject(golden), "similarity", logits, golden["out/logits"], atol=2e-5)
    n = golden["out/logits_square"].shape[0]
    square, first = {key: value[:n] for key, value in text.items()}, {key: value[:n] for key, value in items.items()}
    logits = model.similarity(square, first)
    agree(subject(golden), "similarity", logits, golden["out/logits_square"], atol=2e-5)
    agree(subject(golden), "loss", -logits.log_softmax(1).diagonal().mean(), golden["out/loss_rows"], atol=1e-5)
    agree(subject(golden), "loss", -logits.log_softmax(0).diagonal().mean(), golden["out/loss_cols"], atol=1e-5)
    loss = infonce(model, square, first, {"items": torch.arange(n)}).value
    agree(subject(golden), "loss", loss, golden["out/loss"], atol=1e-5)
    loss.backward()
    parameters = dict(model.named_parameters())
    gradients = {theirs: parameters[own].grad for theirs, own in own_names(golden).items()}
    for key in (key for key in [*golden, *golden.selections] if key.startswith("grad/")):
        kept, own = golden.selected(key), gradients[key.removeprefix("grad/")]
        agree(subject(golden), "gradients", kept.of(own), kept.values, atol=5e-5 * kept.largest)
    # Of the gradients that are not kept as a whole, and of all others, the 2-norms are.
    names, norms = golden["out/grad_norm_names"].tolist(), golden["out/grad_norm_values"]
    assert {name for name, gradient in gradients.items() if gradient is not None} == set(names)
    ours = torch.stack([gradients[name].double().norm() for name in names]).float()
    agree(subject(golden), "norms of all gradients", ours, norms, atol=5e-6 * norms.max())


@pytest.mark.golden
@pytest.mark.parametrize("name", FILES)
def test_features_on_the_way_equal_upstream(name):
    golden = load(f"clip4clip/{name}.npz")
    model, mask = upstream_model(golden), torch.from_numpy(golden["in/video_mask"][:, 0])
    real, pixels = mask.bool(), torch.from_numpy(golden["in/frames_u8"])
    seen = {}
    if model.head.pairwise:
        model.head.similarity_dense.register_forward_pre_hook(lambda layer, given: seen.update(pooled=given[0]))
    with torch.no_grad():
        text = model.backbone.encode_text(torch.from_numpy(golden["in/input_ids"]))
        frames = model.backbone.clip_features(pixels, mask)
        items = model.encode_items({"frames": frames, "mask": mask})
        pooled = model.head(frames, mask) if not model.head.pairwise else None
        model.similarity(model.encode_text({"text": torch.from_numpy(golden["in/input_ids"])}), items)
    agree(subject(golden), "caption features", text, golden["out/text_features"], atol=2e-5)
    agree(subject(golden), "frame features", frames[real], golden["out/frame_features"][real.numpy()], atol=2e-5)
    if model.head.pairwise:
        wanted = golden["out/cross_pooled"]
        agree(subject(golden), "pooled features", seen["pooled"].view(wanted.shape), wanted, atol=2e-5)
        return
    pooled = torch.nn.functional.normalize(pooled, dim=-1)
    agree(subject(golden), "pooled features", pooled[real], golden["out/frames_in_pool"][real.numpy()], atol=2e-5)
    video = golden["out/video_pooled"]
    unit = video / np.linalg.norm(video, axis=-1, keepdims=True)
    agree(subject(golden), "pooled features", items["video"], unit, atol=2e-5)


@pytest.mark.golden
@pytest.mark.parametrize("name", FILES)
def test_double_precision_equals_upstream(name):
    golden = load(f"clip4clip/{name}.npz")
    model = upstream_model(golden).double()
    # The golden run took pixels that had been normalised in float32.
    video = torch.from_numpy(golden["in/video"])[:, 0, :, 0].double()
    frames = model.backbone.clip.visual(video.flatten(0, 1)).unflatten(0, video.shape[:2])
    mask, tokens = torch.from_numpy(golden["in/video_mask"][:, 0]), torch.from_numpy(golden["in/input_ids"])
    text = model.encode_text({"text": tokens})
    items = model.encode_items({"frames": frames, "mask": mask})
    logits, wanted = model.similarity(text, items), golden["ref64/logits"]
    agree(subject(golden), "similarity", logits, wanted, atol=1e-9)
    n = len(golden["ref64/logits_square"])
    square, first = {key: value[:n] for key, value in text.items()}, {key: value[:n] for key, value in items.items()}
    agree(subject(golden), "similarity", model.similarity(square, first), golden["ref64/logits_square"], atol=1e-9)
    loss = infonce(model, square, first, {"items": torch.arange(n)}).value
    agree(subject(golden), "loss", loss, golden["ref64/loss"], atol=1e-9)
    real = mask.bool().numpy()
    agree(
        subject(golden),
        "caption features",
        model.backbone.encode_text(tokens),
        golden["ref64/text_features"],
        atol=1e-9,
    )
    agree(subject(golden), "frame features", frames[real], golden["ref64/frame_features"][real], atol=1e-9)


@pytest.mark.parametrize("name", FILES)
def test_a_head_starts_from_what_upstreams_starts_from(name):
    golden, wanted = load(f"clip4clip/{name}.npz"), load_json("clip4clip/init.json")[name]
    assert wanted["sim_header"] == str(golden["meta/sim_header"])
    model, layers = upstream_model(golden), int(golden["meta/head_layers"]) if "meta/head_layers" in golden else 4
    torch.manual_seed(0)
    width, positions = int(golden["meta/embed_dim"]), int(golden["meta/context_length"])
    head = HEADS.find(wanted["sim_header"])(width, layers=layers, positions=positions)
    blocks = model.backbone.text_blocks()
    if head.copies_text:
        head.start_from(blocks)
    own, said = dict(head.named_parameters()), wanted["init_from_clip"]
    starts = {theirs: ours for theirs, ours in own_names(golden).items() if ours.startswith("head.")}
    assert set(starts) == set(said) - (
        {"frame_position_embeddings.weight"} if wanted["sim_header"] == "seqLSTM" else set()
    )
    for theirs, ours in starts.items():
        value, start = own[ours.removeprefix("head.")], said[theirs]
        if start.startswith("random std="):
            spread = float(start.removeprefix("random std="))
            assert value.std().item() == pytest.approx(spread, rel=0.25), theirs
            continue
        constant = {"const0": 0.0, "const1": 1.0}.get(start)
        origin = golden[f"state/{start}"][: len(value)] if constant is None else np.full(value.shape, constant)
        assert np.array_equal(value.detach(), origin), theirs


def tiny(head: str, positions: int = 77) -> Clip4Clip:
    torch.manual_seed(0)
    vision = {"image_size": 16, "layers": 1, "width": 64, "patch_size": 8}
    text = {"context_length": 8, "vocab_size": 40, "width": 64, "heads": 1, "layers": 1}
    towers = open_clip("model").CLIP(embed_dim=64, quick_gelu=True, vision_cfg=vision, text_cfg=text)
    return Clip4Clip(
        ClipTowers(towers, TokensAsGiven(40), 8), HEADS.find(head)(64, layers=1, positions=positions)
    ).eval()


def random_batch(frames: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    text = torch.randint(1, 39, (6, 8), generator=draw)
    text[:, -1] = 39  # the end token is the largest
    pixels = torch.randint(0, 256, (6, frames, 3, 16, 16), generator=draw, dtype=torch.uint8)
    return {"text": text, "pixels": pixels, "mask": torch.ones(6, frames), "items": torch.arange(6)}


@pytest.mark.parametrize("head", HEADS.names())
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
        with refusal("frames.max_frames"):
            model.similarity(text, model.encode_items(wanted))


@pytest.mark.parametrize("head", ["meanP", "seqLSTM"])
def test_heads_without_positions_take_any_number_of_frames(head):
    model, batch = tiny(head, positions=5), random_batch(9)
    assert model.encode_items(batch)["video"].shape == (6, 64)
