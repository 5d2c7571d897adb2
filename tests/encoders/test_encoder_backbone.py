"""Models by name as towers that are trained: the encoder's own vectors, frozen, with adapters, or whole."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import nn

from broken_runs import BreakingFile, Interrupt
from checkout import ROOT
from encoder_families import CAPTIONS, FAMILIES, FRAMES, SIZE
from gradients import error, gradients
from messages import refusal
from rewind import optional_packages
from rewind.config import Frames, Method, Text, Training
from rewind.config.methods import Backbone
from rewind.encoders.base import build_encoder
from rewind.encoders.frames import l2_normalise
from rewind.encoders.tiny import Size, write_open_clip, write_transformers
from rewind.errors import RewindError
from rewind.loading.run_data import TrainingData
from rewind.losses.infonce import infonce
from rewind.models.backbone import Backbone as Towers
from rewind.models.checkpoint import load_model, save_model
from rewind.models.encoder_backbone import UnknownTowers, probe_pixel_input
from rewind.models.lora import is_adapter
from rewind.models.registry import build_backbone, build_model
from rewind.models.retriever import Retriever
from rewind.models.weights import shapes_only
from rewind.training.grad_cache import exact_step
from rewind.training.loop import freeze, train_model
from rewind.training.optim import parameter_groups

pytestmark = pytest.mark.skipif(
    not optional_packages.is_installed("transformers"), reason="transformers is not installed"
)
needs_peft = pytest.mark.skipif(not optional_packages.is_installed("peft"), reason="peft is not installed")

VIDEO = ("xclip", "videoprism")
TRAINABLE = [name for name in FAMILIES if name not in ("siglip2", "owlv2", "blip2", "flava")]
FROZEN, ADAPTERS, WHOLE = {"freeze": ["text", "visual"]}, {"lora": {"rank": 2}}, {}


@pytest.fixture(autouse=True)
def offline(monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def keys_of(tmp_path_factory):
    """The backbone block of a family, whose folder is written when it is first asked for."""
    root = tmp_path_factory.mktemp("families")

    def keys(name: str) -> Backbone:
        folder = root / name
        if not folder.is_dir():
            (write_open_clip if name == "open_clip" else FAMILIES[name])(folder)
        kind = "open_clip" if name == "open_clip" else "transformers"
        return Backbone(kind="encoder", encoder=kind, name=str(folder))

    return keys


def frames(count: int, clips: int = 3) -> np.ndarray:
    """Clips uint8 (n, T, S, S, 3) of noise."""
    return np.random.default_rng(0).integers(0, 256, (clips, count, SIZE, SIZE, 3), dtype=np.uint8)


def as_pixels(clips: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(clips).permute(0, 1, 4, 2, 3).contiguous()


def model_of(keys: Backbone, training: dict, head: str = "meanP") -> Retriever:
    torch.manual_seed(0)
    return build_model(Method(head=head, training=training), keys, Text(), [])


def batch_of(model: Retriever, count: int = 8, length: int = FRAMES) -> dict[str, torch.Tensor]:
    assert isinstance(model.backbone, Towers)
    pixels, mask = as_pixels(frames(length, count)), torch.ones(count, length)
    text = model.backbone.prepare_text(CAPTIONS[:count])
    return {"text": text, "pixels": pixels, "mask": mask, "items": torch.arange(count), "rows": torch.arange(count)}


@torch.no_grad()
def scores(model: Retriever, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    model.eval()
    return model.similarity(model.encode_text(batch), model.encode_items(batch))


# --- vectors


@pytest.mark.parametrize("name", [*TRAINABLE, "open_clip"])
def test_vectors_are_those_of_the_encoder(keys_of, name: str) -> None:
    keys = keys_of(name)
    towers = build_backbone(keys, Text(), []).eval()
    encoding = keys.encoding()
    assert encoding is not None
    encoder = build_encoder(encoding.model_copy(update={"max_frames": FRAMES}))
    clips = frames(FRAMES)
    with torch.inference_mode():
        text = towers.encode_text(towers.prepare_text(CAPTIONS)).numpy()
        found = towers.clip_features(as_pixels(clips), torch.ones(len(clips), FRAMES)).numpy()
    if name == "xclip":
        wanted_text, wanted = encoder._encode_text_batch(CAPTIONS), encoder._encode_clip_batch(list(clips))
    elif name in VIDEO:
        wanted_text, wanted = encoder.encode_texts(CAPTIONS), encoder.encode_clips(list(clips))
    else:
        wanted_text = encoder.encode_texts(CAPTIONS)
        wanted = np.stack([encoder.encode_pictures(list(clip)) for clip in clips])
    np.testing.assert_allclose(l2_normalise(text), l2_normalise(wanted_text), atol=2e-5)
    assert text.shape[1] == towers.width == found.shape[-1]
    every = np.broadcast_to(wanted[:, None] if name in VIDEO else wanted, found.shape)
    np.testing.assert_allclose(l2_normalise(found), l2_normalise(every), atol=1e-4)
    assert towers.sees_single_frames == (name not in VIDEO)


@pytest.mark.parametrize("name", ["siglip", "xclip"])
def test_padded_frames_are_not_looked_at(keys_of, name: str) -> None:
    towers = build_backbone(keys_of(name), Text(), []).eval()
    pixels, mask = as_pixels(frames(FRAMES)), torch.ones(3, FRAMES)
    mask[1, 2:] = 0
    with torch.inference_mode():
        one = towers.clip_features(pixels, mask)
        pixels[1, 2:] = 7
        two = towers.clip_features(pixels, mask)
    assert torch.equal(one, two) and not one[1, 2:].any() and one[1, :2].abs().sum() > 0


def test_a_text_tower_reads_its_own_tokens_alone(keys_of) -> None:
    towers = build_backbone(keys_of("chinese_clip"), Text(max_words=4), []).eval()
    prepared = towers.prepare_text(CAPTIONS)
    assert prepared.shape[1] == 2 and prepared.dtype == torch.int64
    with torch.inference_mode():
        together = towers.encode_text(prepared)
        alone = torch.cat([towers.encode_text(prepared[row : row + 1]) for row in range(len(prepared))])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    assert torch.equal(towers.encode_text(together), together), "vectors from a cache stay as they are"
    torch.testing.assert_close(towers.cached_text(CAPTIONS), together, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", [*TRAINABLE, "open_clip"])
def test_captions_count_as_cut_when_more_words_change_nothing(keys_of, name: str) -> None:
    towers = build_backbone(keys_of(name), Text(), [])
    growing = [" ".join(["a"] * words) for words in range(1, 2 + (towers.max_words or 0))]
    counts, prepared = towers.token_counts(growing), towers.prepare_text(growing)
    assert counts is not None and counts == sorted(counts)
    cut = [count > towers.max_words for count in counts]
    assert not cut[0] and cut[-1]
    for number, (shorter, longer) in enumerate(itertools.pairwise(prepared)):
        if cut[number] or not cut[number + 1]:  # of the first that is cut, some tokens of its last word may be left
            assert torch.equal(shorter, longer) == cut[number], growing[number]
    real = prepared[:, 1].sum(1).tolist()
    if real[0] < real[-1]:  # not every model has a mask
        assert real == [min(count, towers.max_words) for count in counts]


@pytest.mark.parametrize("name", ["clip", "siglip", "videoprism", "open_clip"])
def test_towers_know_their_parameters_before_there_are_numbers(keys_of, name: str) -> None:
    keys = keys_of(name)
    real = build_backbone(keys, Text(), [])
    with shapes_only():
        shapes = build_backbone(keys, Text(), [])
    assert shapes.width == real.width and type(shapes) is type(real)
    assert [p.shape for p in shapes.visual_parameters()] == [p.shape for p in real.visual_parameters()]
    own = {id(parameter) for parameter in [*real.visual_parameters(), *real.text_parameters()]}
    assert len(own) == len(real.visual_parameters()) + len(real.text_parameters()), "a parameter of both"
    assert {n for n, p in real.named_parameters() if id(p) not in own and p.requires_grad} == {"logit_scale"}


def test_a_model_that_is_not_here_is_not_fetched_while_the_workflow_is_read() -> None:
    keys = Backbone(kind="encoder", encoder="open_clip", name="hf-hub:nobody/nothing")
    with pytest.MonkeyPatch.context() as patch, shapes_only():
        patch.delenv("HF_HUB_OFFLINE")
        assert isinstance(build_backbone(keys, Text(), []), UnknownTowers)


# --- frozen, adapters, whole


@needs_peft
@pytest.mark.parametrize("name", ["siglip", "videoprism", "open_clip"])
@pytest.mark.parametrize("training", [FROZEN, ADAPTERS, WHOLE], ids=["frozen", "adapters", "whole"])
def test_what_was_trained_is_saved_and_gives_the_same_scores(
    keys_of, tmp_path: Path, name: str, training: dict
) -> None:
    keys, head = keys_of(name), "seqLSTM"
    model = model_of(keys, training, head)
    batch, start = batch_of(model), scores(model, batch_of(model))
    freeze(model, training.get("freeze", []))
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    for _ in range(3):
        model.train()
        optimiser.zero_grad()
        infonce(model, model.encode_text(batch), model.encode_items(batch), batch).value.backward()
        optimiser.step()
    path, trained = tmp_path / "model.safetensors", scores(model, batch)
    assert not torch.equal(start, trained)
    save_model(path, model, {})
    saved, own = set(load_file(path)), dict(model.named_parameters())
    of_model = [n for n in saved if n.startswith("backbone.model.") and n in own]
    learnt = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert learnt <= saved
    if training is FROZEN:
        assert not of_model, "it is read from the model's own files"
    if training is ADAPTERS:
        assert of_model and all(map(is_adapter, of_model))
    if training is WHOLE:
        assert len(of_model) >= len(list(model.backbone.model.parameters())) - 3  # scales and biases of its own loss
    other = model_of(keys, training, head)
    load_model(path, other)
    assert torch.equal(scores(other, batch), trained)
    other_way = model_of(keys, FROZEN if training is WHOLE else WHOLE, head)
    with pytest.raises(RewindError, match="not a checkpoint of this method"):
        load_model(path, other_way)


@needs_peft
@pytest.mark.parametrize("name", ["siglip", "xclip", "open_clip", "altclip"])
def test_fresh_adapters_change_nothing_and_learn_as_new_parameters(keys_of, name: str) -> None:
    keys = keys_of(name)
    plain, adapted = model_of(keys, WHOLE), model_of(keys, ADAPTERS)
    batch = batch_of(plain)
    torch.testing.assert_close(scores(adapted, batch), scores(plain, batch), atol=1e-6, rtol=1e-5)
    before = {name: value.clone() for name, value in adapted.named_parameters()}
    training = Method(training=ADAPTERS).training
    groups = parameter_groups(adapted, training)
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    adapters = [p for name, p in adapted.named_parameters() if is_adapter(name)]
    assert adapters and all(rates[id(p)] == training.lr for p in adapters)
    assert set(rates) == {*map(id, adapters), id(adapted.backbone.logit_scale)}
    infonce(adapted, adapted.encode_text(batch), adapted.encode_items(batch), batch).value.backward()
    torch.optim.SGD([p for group in groups for p in group["params"]], lr=1.0).step()
    moved = {name for name, value in adapted.named_parameters() if not torch.equal(value, before[name])}
    assert moved and all(is_adapter(name) or name == "backbone.logit_scale" for name in moved)


@needs_peft
def test_an_adapter_is_the_product_of_two_matrices(keys_of) -> None:
    keys, rank, alpha = keys_of("open_clip"), 2, 6.0
    model = model_of(keys, {"lora": {"rank": rank, "alpha": alpha, "towers": ["visual"]}})
    batch, merged = batch_of(model), model_of(keys, WHOLE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_adapter(name):
                parameter.normal_(0, 0.1)
        state = dict(model.named_parameters())
        for name, parameter in merged.named_parameters():
            if name in state:
                assert torch.equal(state[name], parameter)
                continue
            module, _, weight = name.rpartition(".")
            inside = f"{module}.parametrizations.{weight}"
            assert ".visual." in name and torch.equal(state[f"{inside}.original"], parameter)
            parameter += alpha / rank * state[f"{inside}.0.lora_B"] @ state[f"{inside}.0.lora_A"]
    torch.testing.assert_close(scores(model, batch), scores(merged, batch), atol=1e-5, rtol=1e-4)


@needs_peft
@pytest.mark.parametrize("name", ["siglip", "videoprism", "open_clip"])
def test_adapters_learn_the_same_from_micro_batches(keys_of, name: str) -> None:
    model = model_of(keys_of(name), ADAPTERS).double()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if is_adapter(parameter_name):
                parameter.normal_(0, 0.1)
    batch = batch_of(model)
    loss = infonce(model, model.encode_text(batch), model.encode_items(batch), batch).value
    loss.backward()
    wanted = gradients(model)
    for size in (1, 3):
        assert exact_step(model, infonce, batch, size).value == pytest.approx(loss.item(), rel=1e-9)
        assert error(gradients(model), wanted) < 1e-8, size


def test_frozen_towers_neither_drop_nor_count_batches(keys_of) -> None:
    model = model_of(keys_of("align"), {"freeze": ["visual"]})  # an EfficientNet: it has batch norms
    towers = model.backbone
    norms = [part for part in towers.modules() if isinstance(part, nn.BatchNorm2d)]
    before = [norm.running_mean.clone() for norm in norms]
    batch = batch_of(model)
    model.train()
    model.encode_items(batch)
    assert norms and all(torch.equal(norm.running_mean, mean) for norm, mean in zip(norms, before, strict=True))
    assert any(part.training for part in towers.model.modules()), "the text tower trains"


# --- refusals


def test_frames_that_the_model_cannot_read_are_refused(keys_of) -> None:
    pictures, clips = (build_backbone(keys_of(name), Text(), []) for name in ("siglip", "videoprism"))
    right = {"size": SIZE, "fit": "stretch", "max_frames": FRAMES}
    with refusal("frames.size"):
        pictures.check_frames(Frames(**right | {"size": 64}))
    with refusal("frames.fit"):
        pictures.check_frames(Frames(**right | {"fit": "crop"}))
    with refusal("frames.max_frames"):
        clips.check_frames(Frames(**right | {"max_frames": 3}))
    pictures.check_frames(Frames(**right | {"max_frames": 3}))


def test_a_number_of_frames_that_the_files_leave_out_is_that_of_the_family(tmp_path: Path) -> None:
    """Of VideoPrism 16 frames; published configurations need not hold what is their family's default."""
    folder = write_transformers(tmp_path / "videoprism", "videoprism", size=Size(frames=16))
    config = json.loads((folder / "config.json").read_text())
    assert config["vision_config"].pop("num_frames") == 16
    (folder / "config.json").write_text(json.dumps(config))
    keys = Backbone(kind="encoder", encoder="transformers", name=str(folder))
    with shapes_only():
        early = build_backbone(keys, Text(), [])
    assert early.frame_count == build_backbone(keys, Text(), []).frame_count == 16


@pytest.mark.parametrize("name", ["siglip2", "owlv2", "blip2", "flava"])
def test_what_has_no_towers_of_one_size_is_refused(keys_of, name: str) -> None:
    keys = keys_of(name)
    with shapes_only(), refusal(f"backbone.name: {name}"):
        build_backbone(keys, Text(), [])
    with refusal(f"backbone.name: {name}"):
        build_backbone(keys, Text(), [])


def test_an_encoder_without_towers_is_refused() -> None:
    keys = Backbone(kind="encoder", encoder="sentence_transformers", name="anything")
    with refusal("backbone.encoder"):
        build_backbone(keys, Text(), [])


@needs_peft
def test_adapters_that_cannot_be_are_refused(keys_of, monkeypatch) -> None:
    def adding(name: str, **lora) -> None:
        model_of(keys_of(name), {"lora": lora})

    with refusal("training.lora.dropout"):
        adding("open_clip", dropout=0.1)
    with refusal("training.lora.targets"):
        adding("open_clip", targets=["q_proj"])
    with refusal("training.lora"):
        adding("align")
    monkeypatch.setattr(optional_packages, "is_installed", lambda name: name != "peft")
    adding("open_clip")  # needs nothing of it
    with refusal("training.lora"):
        adding("clip")


@pytest.mark.parametrize(
    "keys",
    [
        {"lora": {}, "freeze": ["text", "visual"]},
        {"lora": {"towers": ["visual"]}, "freeze": ["visual"]},
        {"lora": {}, "freeze_layers": 0},
        {"lora": {"rank": 0}},
    ],
)
def test_adapters_of_what_is_frozen_are_refused(keys: dict) -> None:
    with pytest.raises(ValidationError):
        Training(**keys)


def test_a_pictures_border_channels_and_flips_are_told_apart() -> None:
    def probe(change) -> None:
        def preprocess(picture: np.ndarray) -> torch.Tensor:
            return change(torch.from_numpy(picture.astype(np.float32)).permute(2, 0, 1))

        probe_pixel_input(preprocess, "example")

    def square(pixels: torch.Tensor) -> torch.Tensor:
        return pixels[:, :32, :32]

    changes = [
        lambda pixels: square(pixels).flip(0),  # blue first
        lambda pixels: square(pixels) ** 2 / 255,
        lambda pixels: square(pixels)[:1],
        lambda pixels: pixels[:, :32, :16],
    ]
    for change in changes:
        with refusal("name: example"):
            probe(change)


# --- adapters of other backbones, and recomputed activations


@needs_peft
@pytest.mark.parametrize(
    "keys",
    [
        Backbone(architecture="config/models/tiny.json"),
        Backbone(kind="viclip", architecture="config/models/viclip_tiny.json"),
    ],
    ids=["clip", "viclip"],
)
def test_any_towers_can_have_adapters(tmp_path: Path, monkeypatch, keys: Backbone) -> None:
    monkeypatch.chdir(ROOT)
    text = Text(tokenizer="words", max_words=8)

    def made() -> Retriever:
        torch.manual_seed(0)
        method = Method(training={"freeze": ["text"], "lora": {"rank": 2}})
        return build_model(method, keys, text, CAPTIONS)

    model = made()
    towers = model.backbone
    size = 32 if keys.kind == "clip" else towers.vision_encoder.image
    pixels = torch.randint(0, 256, (4, 2, 3, size, size), dtype=torch.uint8)
    batch = {"text": towers.prepare_text(CAPTIONS[:4]), "pixels": pixels, "mask": torch.ones(4, 2)}
    batch |= {"items": torch.arange(4), "rows": torch.arange(4)}
    freeze(model, ["text"])
    before = {name: value.clone() for name, value in model.named_parameters()}
    infonce(model, model.encode_text(batch), model.encode_items(batch), batch).value.backward()
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0).step()
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert any(map(is_adapter, moved)) and all(is_adapter(name) or "logit_scale" in name for name in moved)
    save_model(tmp_path / "model.safetensors", model, {})
    assert len(load_file(tmp_path / "model.safetensors")) >= len(before), "their first weights may be of no file"
    torch.manual_seed(1)
    other = made()
    load_model(tmp_path / "model.safetensors", other)
    assert torch.equal(scores(other, batch), scores(model, batch))


@needs_peft
@pytest.mark.parametrize("training", [ADAPTERS, WHOLE], ids=["adapters", "whole"])
@pytest.mark.parametrize("name", ["siglip", "open_clip"])
def test_recomputed_activations_give_the_same_gradients(keys_of, name: str, training: dict) -> None:
    model = model_of(keys_of(name), training).double().train()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if is_adapter(parameter_name):
                parameter.normal_(0, 0.1)
    batch, found = batch_of(model), []
    for _ in range(2):
        model.zero_grad()
        infonce(model, model.encode_text(batch), model.encode_items(batch), batch).value.backward()
        found.append(gradients(model))
        model.backbone.checkpoint_towers()
    assert error(found[1], found[0]) < 1e-10


class Noise:
    """Clips of noise, as a frame source."""

    copies = False

    def __init__(self) -> None:
        self.pixels = as_pixels(frames(FRAMES, 12))

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        return {"pixels": self.pixels[rows], "mask": torch.ones(len(rows), FRAMES)}


def trained(keys: Backbone, training: dict, path: Path, stop_after: int | None = None) -> Retriever:
    model = model_of(keys, training, "seqLSTM")
    text = model.backbone.prepare_text(CAPTIONS[:12])
    data = TrainingData(Noise(), text, np.arange(12), np.arange(12), [f"c{n}" for n in range(12)])
    steps = Training(epochs=2, lr=1e-2, backbone_lr_multiplier=1.0, batch={"size": 4}, save_every_steps=1, **training)
    state = BreakingFile(path, "x", stop_after)
    train_model(model, data, steps, 0, torch.device("cpu"), sum_of_learnt, state, "x")
    return model


def sum_of_learnt(model: Retriever) -> dict[str, float]:
    return {"valid_sum": sum(float(p.detach().double().sum()) for p in model.parameters() if p.requires_grad)}


@needs_peft
@pytest.mark.parametrize("name", ["siglip", "open_clip"])
@pytest.mark.parametrize("training", [ADAPTERS, {"freeze": ["visual"], "lora": {"rank": 2}}], ids=["both", "text"])
def test_a_killed_run_of_adapters_ends_with_the_same_bits(keys_of, tmp_path: Path, name: str, training: dict) -> None:
    whole = trained(keys_of(name), training, tmp_path / "a.pt")
    with pytest.raises(Interrupt):
        trained(keys_of(name), training, tmp_path / "b.pt", stop_after=3)
    torch.manual_seed(999)
    resumed = trained(keys_of(name), training, tmp_path / "b.pt")
    untouched = model_of(keys_of(name), training, "seqLSTM")
    learnt = {name for name, value in whole.named_parameters() if value.requires_grad}
    for one, other, first in zip(*(model.named_parameters() for model in (whole, resumed, untouched)), strict=True):
        assert torch.equal(one[1], other[1]), one[0]
        assert torch.equal(one[1], first[1]) == (one[0] not in learnt), one[0]


MINE = """
import torch
from rewind.models.backbone import Backbone


class Towers(Backbone):
    width = feature_width = 3

    def __init__(self, scale):
        super().__init__()
        self.logit_scale = torch.nn.Parameter(torch.tensor(float(scale)))
        self.words = torch.nn.Linear(1, 3)

    def prepare_text(self, captions):
        return torch.tensor([[float(len(caption))] for caption in captions])

    def encode_text(self, prepared):
        return self.words(prepared)

    def frame_features(self, pixels):
        return pixels.float().mean((2, 3))

    def visual_parameters(self):
        return []

    def text_parameters(self):
        return list(self.words.parameters())


def backbone(encoding):
    return Towers(encoding.encoder_options["scale"])


def build(encoding):
    raise NotImplementedError
"""


def test_an_encoder_of_ones_own_brings_towers_of_any_kind(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "my_encoder.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    keys = Backbone(kind="encoder", encoder="my_encoder", name="mine", encoder_options={"scale": 2})
    with pytest.raises(RewindError, match=r"^backbone\.encoder: cannot find 'my_encoder'"):
        build_backbone(keys, Text(), [])  # a name without a dot is one of the built-in ones
    (tmp_path / "mylab").mkdir()
    (tmp_path / "my_encoder.py").rename(tmp_path / "mylab/encoder.py")
    keys = keys.model_copy(update={"encoder": "mylab.encoder"})
    model = model_of(keys, {"freeze": ["visual"]})
    batch = batch_of(model, 2)
    assert scores(model, batch).shape == (2, 2) and model.backbone.logit_scale == 2
