"""ViCLIP: the original's numbers, sizes, masks, positions, files of the wrong kind, pictures of the wrong shape."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from golden_numbers import agree, load
from messages import refusal
from rewind.config import Backbone, Method, Text
from rewind.data.tokenizers import WordTokenizer
from rewind.models.clip4clip import build as build_clip4clip
from rewind.models.viclip import (
    SIZES,
    TextSize,
    ViClip,
    ViclipArchitecture,
    VisionSize,
    VisionTower,
    _drop_patches,
    build,
    load_viclip,
    load_viclip_architecture,
)

TINY = ViclipArchitecture(
    embed_dim=48,
    vision=VisionSize(width=64, heads=4, layers=2, patch=8, image=32, frames=4),
    text=TextSize(width=64, heads=4, layers=2, context=32, vocabulary=300),
)
WORDS = WordTokenizer(["a cat runs", "a dog sleeps"])


def state() -> dict[str, torch.Tensor]:
    """Random weights under upstream's names."""
    torch.manual_seed(0)
    found = {name: value.clone() for name, value in ViClip(TINY, WORDS, 32).state_dict().items() if "encoder" in name}
    found["vision_encoder.temporal_positional_embedding"] += torch.randn(1, 4, 64) / 50
    return found | {"temp": torch.tensor(0.07)}


@pytest.fixture
def file(tmp_path) -> Path:
    torch.save({"model": state(), "epoch": 3}, tmp_path / "tiny.pth")
    return tmp_path / "tiny.pth"


@pytest.fixture
def tiny(file) -> ViClip:
    model = ViClip(TINY, WORDS, 32)
    load_viclip(model, file, "tiny")
    return model.eval()


def pixels() -> torch.Tensor:
    return torch.randint(256, (4, 4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def words() -> torch.Tensor:
    tokens = torch.randint(1, 299, (5, 32), generator=torch.Generator().manual_seed(2))
    tokens[:, 20] = 299  # the end token is the largest
    tokens[:, 21:] = 0
    return tokens


@pytest.mark.golden
@pytest.mark.parametrize(("dtype", "kind"), [(torch.float64, "ref64"), (torch.float32, "out")])
def test_vision_text_and_similarity_are_the_originals(tmp_path, dtype, kind) -> None:
    golden = load("viclip.npz")
    given = {n.removeprefix("state/"): torch.from_numpy(golden[n]) for n in golden if n.startswith("state/")}
    torch.save({"model": given, "epoch": 3}, tmp_path / "golden.pth")
    model = ViClip(TINY, WORDS, 32).eval()
    load_viclip(model, tmp_path / "golden.pth", "tiny")
    model, mask = model.to(dtype), torch.ones(4, 4)
    frames, tokens = torch.from_numpy(golden["in/frames_u8"]), torch.from_numpy(golden["in/token_ids"]).long()
    with torch.no_grad():
        video, text = model.clip_features(frames, mask), model.encode_text(tokens)
        image = model.frame_features(frames[:, 1])
    assert video.shape == (4, 4, 48) and (video == video[:, :1]).all(), "a clip's vector at the place of every frame"
    # The golden inputs were normalised in float32.
    tolerance = {"rtol": 1e-6, "atol": 1e-7} if kind == "ref64" else {"rtol": 1e-4, "atol": 1e-5}
    note = " (frames from bytes)" if kind == "ref64" else ""
    agree("ViCLIP", f"clip features{note}", video[:, 0], golden[f"{kind}/encode_vision"], **tolerance)
    agree("ViCLIP", f"image features{note}", image, golden[f"{kind}/encode_vision_image"], **tolerance)
    exact = {"rtol": 1e-9, "atol": 1e-10} if kind == "ref64" else tolerance
    agree("ViCLIP", "caption features", text, golden[f"{kind}/encode_text"], **exact)
    sides = F.normalize(video[:, 0], dim=-1), F.normalize(text, dim=-1)
    sims = sides[0] @ sides[1].T
    agree("ViCLIP", f"similarity{note}", sims, golden[f"{kind}/sims"], **tolerance)
    if kind == "ref64":  # the same from the very pixels that the original read
        pixels = torch.from_numpy(golden["in/video"]).double()
        with torch.no_grad():
            video = model.vision_encoder(pixels, 0.0)
            image = model.vision_encoder(torch.from_numpy(golden["in/image"]).double().unflatten(0, (4, 1)), 0.0)
        agree("ViCLIP", "clip features", video, golden["ref64/encode_vision"], **exact)
        agree("ViCLIP", "image features", image, golden["ref64/encode_vision_image"], **exact)
        agree("ViCLIP", "similarity", F.normalize(video, dim=-1) @ sides[1].T, golden["ref64/sims"], **exact)
    else:
        agree("ViCLIP", "clip features", sides[0], golden["out/vid_features"], **tolerance)
        agree("ViCLIP", "caption features", sides[1], golden["out/text_features"], **tolerance)
    chances, place = (100 * sims).softmax(dim=1).topk(3)
    agree("ViCLIP", "three best captions", place, golden["out/top3_index"])
    agree("ViCLIP", "three best captions", chances.float(), golden["out/top3_probs"], rtol=1e-4, atol=1e-5)
    assert model.logit_scale.exp().item() == pytest.approx(1 / golden["state/temp"].item(), rel=1e-6)


@pytest.mark.parametrize(("name", "millions"), [("viclip-b", 86.2), ("viclip-l", 304.0)])
def test_parameter_counts_of_the_published_sizes(name: str, millions: float) -> None:
    with torch.device("meta"):  # shapes alone
        tower = VisionTower(SIZES[name].vision, SIZES[name].embed_dim)
    assert sum(p.numel() for p in tower.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


def test_masked_tokens_in_training_alone(tiny) -> None:
    tiny.token_mask = 0.5
    tiny.vision_encoder.transformer.resblocks.apply(lambda part: setattr(part, "drop", 0.0))
    torch.manual_seed(0)
    with torch.no_grad():
        plain = tiny.clip_vectors(pixels())
        assert torch.equal(plain, tiny.clip_vectors(pixels())), "evaluating twice gives the same bits"
        masked = [tiny.train().clip_vectors(pixels()) for _ in range(2)]
        assert not torch.equal(*masked) and not torch.equal(plain, masked[0])
        torch.manual_seed(5)
        again = tiny.clip_vectors(pixels())
        torch.manual_seed(5)
        assert torch.equal(again, tiny.clip_vectors(pixels())), "the seed draws the masks"
    rows = torch.arange(24.0).view(2, 12, 1)
    kept = _drop_patches(rows, 0.9)
    assert kept.shape == (2, 2, 1), "as upstream, int(0.9 · 12) = 10 of 12 rows are left out"
    assert (kept.diff(dim=1) > 0).all()


def test_temporal_positions_of_another_number_of_frames(tiny, tmp_path) -> None:
    tower = tiny.vision_encoder
    positions = tower.temporal_positional_embedding[0]
    assert torch.equal(tower.times(4)[:, 0], positions)
    assert torch.allclose(tower.times(1)[0, 0], positions.mean(0))
    assert torch.allclose(tower.times(8)[0, 0], positions[0]) and torch.allclose(tower.times(8)[7, 0], positions[3])
    assert torch.allclose(tower.times(2)[0, 0], (positions[0] + positions[1]) / 2)
    given = state()
    name = "vision_encoder.temporal_positional_embedding"
    given[name] = given[name][:, [0, 0, 1, 1, 2, 2, 3, 3]]
    torch.save({"model": given}, tmp_path / "eight.pth")
    load_viclip(tiny, tmp_path / "eight.pth", "tiny")
    assert torch.allclose(tower.temporal_positional_embedding[0], positions, rtol=0, atol=1e-6)


def test_padding_of_a_short_clip_is_not_seen(tiny) -> None:
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.uint8)
    dirty = pixels().clone()
    dirty[1, 2:] = 7
    with torch.no_grad():
        found, other = tiny.clip_features(pixels(), mask), tiny.clip_features(dirty, mask)
        assert torch.equal(found, other) and (found[1, 2:] == 0).all()
        assert torch.allclose(found[1, 0], tiny.clip_vectors(pixels()[1:2, :2])[0], rtol=0, atol=1e-5)
        assert torch.allclose(found[3, 0], tiny.frame_features(pixels()[3, :1])[0], rtol=0, atol=1e-5)


def test_recomputed_activations_give_the_same_gradients(tiny) -> None:
    tiny.token_mask = 0.5
    tokens = words()
    found = []
    for recompute in (False, True):
        tiny.zero_grad()
        if recompute:
            tiny.checkpoint_towers()
        torch.manual_seed(1)  # masks and dropped branches
        (tiny.train().clip_vectors(pixels()).sum() + tiny.encode_text(tokens).sum()).backward()
        found.append(torch.cat([p.grad.flatten() for p in tiny.parameters() if p.grad is not None]))
    assert found[0].abs().max() > 0 and torch.equal(*found)


def test_it_is_a_backbone_under_a_head(file, tmp_path, tiny) -> None:
    (tmp_path / "tiny.json").write_text(TINY.model_dump_json())
    keys = Backbone(kind="viclip", architecture=str(tmp_path / "tiny.json"))
    model = build_clip4clip(Method(head="meanP"), keys, Text(tokenizer="words", max_words=8), ["a cat runs", "a dog"])
    batch = {"pixels": pixels(), "mask": torch.ones(4, 4)}
    model.eval()
    with torch.no_grad():
        items = model.encode_items(batch)
        alone = model.backbone.clip_vectors(pixels())
        text = model.encode_text({"text": model.backbone.prepare_text(["a cat", "a dog runs"])})
        assert torch.allclose(items["video"], F.normalize(alone, dim=-1), rtol=0, atol=1e-6)
        left, right = model.vectors(text, items)
        expected = model.backbone.logit_scale.exp() * left @ right.T
        assert torch.allclose(model.similarity(text, items), expected, rtol=0, atol=1e-4)


def test_a_checkpoint_of_a_run_is_read_too(tiny, tmp_path) -> None:
    saved = {f"backbone.{name}": value.contiguous() for name, value in tiny.state_dict().items()}
    save_file(saved, tmp_path / "model.safetensors")
    other = ViClip(TINY, WORDS, 32)
    load_viclip(other, tmp_path / "model.safetensors", "tiny")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in tiny.state_dict().items())


def test_a_file_of_the_other_size_is_named(tmp_path) -> None:
    # What tells the sizes apart is the first tensor; nothing of 300 million numbers is needed.
    torch.save({"model": {"vision_encoder.conv1.weight": torch.zeros(1024, 3, 1, 14, 14)}}, tmp_path / "l.pth")
    with torch.device("meta"):
        model = ViClip(SIZES["viclip-b"], WORDS, 32)
    with refusal("backbone.weights: l.pth"):
        load_viclip(model, tmp_path / "l.pth", "viclip-b")


def test_files_that_do_not_fit_are_told(tiny, tmp_path) -> None:
    good = state()
    nan = good["text_encoder.text_projection"].clone()
    nan[0, 0] = float("nan")
    bad = [
        None,
        b"not a file of weights",
        {"model": {"visual.conv1.weight": torch.zeros(2)}},
        {n: v for n, v in good.items() if "ln_final.bias" not in n},
        good | {"extra": torch.zeros(1)},
        good | {"text_encoder.token_embedding.weight": torch.zeros(7, 64)},
        good | {"text_encoder.text_projection": nan},
        good | {"temp": torch.tensor(-1.0)},
    ]
    for number, content in enumerate(bad):
        path = tmp_path / f"{number}.pth"
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            torch.save(content, path)
        with refusal(f"backbone.weights: {path.name}" if number in (0, 6, 7) else "backbone.weights") as caught:
            load_viclip(tiny, path, "tiny")
        assert str(path) in str(caught.value)


def test_bad_keys_and_pictures_are_told(tiny, tmp_path) -> None:
    text = Text(tokenizer="words", max_words=33)
    (tmp_path / "odd.json").write_text(
        TINY.model_copy(update={"vision": TINY.vision.model_copy(update={"heads": 5})}).model_dump_json()
    )
    (tmp_path / "tiny.json").write_text(TINY.model_dump_json())
    for keys, place in (
        (Backbone(kind="viclip"), "backbone.architecture: 'ViT-B-32-quickgelu': kind"),
        (Backbone(kind="viclip", architecture="none.json"), "backbone.architecture: none.json"),
        (Backbone(kind="viclip", architecture=str(tmp_path / "odd.json")), "backbone.architecture: odd.json: vision"),
        (Backbone(kind="viclip", architecture="viclip-b", pretrained="openai"), "backbone.pretrained: kind"),
        (Backbone(kind="viclip", architecture=str(tmp_path / "tiny.json")), "text.max_words"),
    ):
        with refusal(place):
            build(keys, text, ["a cat"])
    for shape in ((1, 4, 1, 32, 32), (1, 4, 4, 32, 32), (1, 4, 3, 24, 24)):  # grey, alpha, another size
        with refusal("frames"):
            tiny.clip_features(torch.zeros(shape, dtype=torch.uint8), torch.ones(1, 4))
    assert load_viclip_architecture("viclip-l").vision.patch == 14


def test_a_caption_of_more_than_32_tokens_is_cut_before_its_end(tiny) -> None:
    long = " ".join(["a cat runs"] * 20)
    assert WORDS.count([long])[0] == 62
    tokens = tiny.prepare_text([long, "a cat"])
    assert tokens.shape == (2, 32) and tokens[0, -1] == tokens.max()
    assert torch.isfinite(tiny.encode_text(tokens)).all()
