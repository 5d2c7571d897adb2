"""Weights of others: recognised by what the file shows, checked whole, loaded in float32, refused in one sentence."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from messages import refusal
from rewind.config import Backbone, Text, load_study
from rewind.models import viclip
from rewind.models.architectures import weights_family
from rewind.models.clip import build
from rewind.models.weights import fitting_architectures, load_weights, read_state
from rewind.optional_packages import open_clip

CONFIG = {
    "embed_dim": 64,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 16, "layers": 2, "width": 64, "patch_size": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 8, "width": 64, "heads": 1, "layers": 2},
}
WORDS = ["a red ring turns"]
OPENAI = {"input_resolution": 16, "context_length": 8, "vocab_size": 8}


def towers(seed: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {name: value.clone() for name, value in open_clip("model").CLIP(**CONFIG).state_dict().items()}


class Half(torch.nn.Module):
    """A model as OpenAI publishes it: half precision, three constants, under open_clip's names."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, value in state.items():
            *path, last = name.split(".")
            parent = self
            for part in path:
                if not hasattr(parent, part):
                    parent.add_module(part, torch.nn.Module())
                parent = getattr(parent, part)
            parent.register_buffer(last, value.half())
        for name, value in OPENAI.items():
            self.register_buffer(name, torch.tensor(value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def load(folder: Path, weights: Path | None, quick: bool = True, **keys) -> dict[str, torch.Tensor]:
    """The tensors of towers built in ``folder`` with these weights."""
    architecture = folder / "tiny.json"
    architecture.write_text(json.dumps(CONFIG | {"quick_gelu": quick}))
    keys = Backbone(architecture=str(architecture), weights=weights and str(weights), **keys)
    return build(keys, Text(tokenizer="words", max_words=8), WORDS).clip.state_dict()


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    return all(v.dtype == torch.float32 for v in found.values()) and all(
        torch.equal(found[n], wanted[n]) for n in wanted
    )


def in_half(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.half().float() for name, value in state.items()}


FORMS = {
    "plain state dict": lambda s, p: torch.save(s, p),
    "training checkpoint": lambda s, p: torch.save({"epoch": 3, "name": "run", "state_dict": s}, p),
    "data parallel": lambda s, p: torch.save({"state_dict": {f"module.{n}": v for n, v in s.items()}}, p),
    "before zip archives": lambda s, p: torch.save(s, p, _use_new_zipfile_serialization=False),
    "safetensors": lambda s, p: save_file(s, p),
    "a run of ours": lambda s, p: save_file(
        {f"backbone.clip.{n}": v for n, v in s.items()} | {"head.lstm_visual.bias": torch.ones(3)}, p
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(tmp_path, form):
    state = towers()
    path = tmp_path / ("w.safetensors" if form in ("safetensors", "a run of ours") else "w.pt")
    FORMS[form](state, path)
    torch.manual_seed(9)
    assert same(load(tmp_path, path), state)


def test_half_precision_becomes_single(tmp_path):
    state = towers()
    torch.save({name: value.half() for name, value in state.items()}, tmp_path / "w.pt")
    assert same(load(tmp_path, tmp_path / "w.pt"), in_half(state))


def archive(folder: Path) -> Path:
    path = folder / "ViT.pt"
    torch.jit.save(torch.jit.script(Half(towers())), path)
    return path


@pytest.mark.filterwarnings("ignore")
def test_openais_archive_is_opened_only_on_the_users_word(tmp_path):
    path = archive(tmp_path)
    with refusal("backbone.weights"):
        load(tmp_path, path)
    assert same(load(tmp_path, path, allow_torchscript=True), in_half(towers()))
    with refusal("backbone.weights: ViT.pt"):
        load(tmp_path, path, quick=False, allow_torchscript=True)


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_archive_is_one_sentence(tmp_path):
    path = tmp_path / "ViT.pt"
    with zipfile.ZipFile(archive(tmp_path)) as whole:
        entries = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(path, "w") as damaged:
        for name, content in entries.items():
            damaged.writestr(name, content[: len(content) // 2])
    with refusal("backbone.weights: ViT.pt"):
        read_state(path, allow_torchscript=True)


@pytest.mark.parametrize("read", [read_state, viclip.read_viclip])
def test_numbers_that_changed_in_a_file_of_pytorch_are_refused(tmp_path, read):
    """PyTorch keeps a checksum of every tensor in its files, and does not compare it."""
    path = tmp_path / "w.pt"
    torch.save({"w": torch.zeros(5000)}, path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)["w"].count_nonzero() == 1
    with refusal("w.pt"):
        read(path)


def test_openais_tensors_are_recognised_by_their_constants(tmp_path):
    constants = {name: torch.tensor(value) for name, value in OPENAI.items()}
    state = {name: value.half() for name, value in towers().items()} | constants
    assert weights_family(state) == "openai" and weights_family(towers()) is None
    save_file(state, tmp_path / "w.safetensors")
    assert same(load(tmp_path, tmp_path / "w.safetensors"), in_half(towers()))
    with refusal("backbone.family"):
        load(tmp_path, tmp_path / "w.safetensors", family="open_clip")


@pytest.mark.parametrize(("family", "quick"), [("openai", True), ("open_clip", False)])
def test_the_family_key_settles_what_a_file_does_not_show(tmp_path, family, quick):
    torch.save(towers(), tmp_path / "w.pt")
    assert same(load(tmp_path, tmp_path / "w.pt", quick=quick, family=family), towers())
    with refusal("backbone.weights: w.pt"):
        load(tmp_path, tmp_path / "w.pt", quick=not quick, family=family)


def full_size(tmp_path: Path, extra: dict[str, torch.Tensor] | None = None) -> Path:
    """ViT-B/32's names and shapes, every tensor one number expanded, so that the file stays small."""
    with torch.device("meta"):
        own = open_clip("model").CLIP(**open_clip().get_model_config("ViT-B-32")).state_dict()
    path = tmp_path / "ViT-B-32.pt"
    torch.save({name: torch.tensor(0.5).expand(v.shape) for name, v in own.items()} | (extra or {}), path)
    assert path.stat().st_size < 1_000_000
    return path


def load_named(architecture: str, **keys) -> None:
    """Load into towers that have shapes alone: everything is checked, nothing is copied."""
    config = open_clip().get_model_config(architecture)
    with torch.device("meta"):
        own = open_clip("model").CLIP(**config)
    load_weights(own, Backbone(architecture=architecture, **keys), config.get("quick_gelu", False))


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta")
def test_a_wrong_activation_names_the_right_architecture(tmp_path):
    marked = full_size(tmp_path, {"vocab_size": torch.tensor(49408)})
    with refusal("backbone.weights: ViT-B-32.pt"):
        load_named("ViT-B-32", weights=str(marked))
    plain = full_size(tmp_path)
    with refusal("backbone.weights: ViT-B-32.pt"):
        load_named("ViT-B-32-quickgelu", weights=str(plain), family="open_clip")
    load_named("ViT-B-32-quickgelu", weights=str(plain), family="openai")
    load_named("ViT-B-32", weights=str(plain), family="open_clip")


@pytest.mark.parametrize("architecture", ["ViT-B-32", "ViT-B-32-quickgelu"])
def test_a_file_that_shows_nothing_needs_its_family_where_either_activation_would_load(tmp_path, architecture):
    plain = full_size(tmp_path)
    with refusal("backbone.weights") as caught:
        load_named(architecture, weights=str(plain))
    for advice in (
        "family: openai and backbone.architecture: ViT-B-32-quickgelu;",
        "family: open_clip and backbone.architecture: ViT-B-32.",
    ):
        assert advice in str(caught.value)


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta")
def test_open_clips_own_configuration_beside_a_file_tells_its_family_and_its_frames(tmp_path):
    plain, beside = full_size(tmp_path), tmp_path / "open_clip_config.json"
    config = open_clip().get_model_config("ViT-B-32")
    beside.write_text(json.dumps({"model_cfg": config}))
    load_named("ViT-B-32", weights=str(plain))
    with refusal("backbone.weights: ViT-B-32.pt"):
        load_named("ViT-B-32-quickgelu", weights=str(plain))
    beside.write_text(json.dumps({"model_cfg": config | {"quick_gelu": True}, "preprocess_cfg": {}}))
    load_named("ViT-B-32-quickgelu", weights=str(plain))
    beside.write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {"mean": [0.5, 0.5, 0.5]}}))
    with refusal("open_clip_config.json"):
        load_named("ViT-B-32", weights=str(plain))
    beside.write_text(json.dumps({"model_cfg": open_clip().get_model_config("RN50")}))  # of other weights
    with refusal("backbone.weights"):
        load_named("ViT-B-32", weights=str(plain))


def test_a_wrong_architecture_names_the_first_tensor_and_the_one_that_fits(tmp_path):
    with refusal("backbone.weights") as caught:
        load_named("ViT-B-16-quickgelu", weights=str(full_size(tmp_path)))
    text = str(caught.value)
    assert "'visual.positional_embedding'" in text and "(model (197, 768), file (50, 768))" in text
    assert "ViT-B-32-quickgelu" in text, "which fits"
    with refusal("backbone.weights"):
        load_named("ViT-B-16-quickgelu", weights=str(full_size(tmp_path)), family="open_clip")


def test_candidates_keep_to_the_activation(tmp_path):
    state = read_state(full_size(tmp_path))
    assert fitting_architectures(state, quick_gelu=False) == ["ViT-B-32"]
    assert fitting_architectures({"visual.proj": torch.ones(2, 2)}, quick_gelu=False) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"ln_final.bias": None}, "backbone.weights"),
        ({"visual.proj": torch.ones(3, 3)}, "backbone.weights"),
        ({"visual.extra": torch.ones(3)}, "backbone.weights"),
        ({"visual.proj": torch.full((64, 64), torch.nan)}, "backbone.weights: w.pt"),
        ({"visual.proj": "text"}, "backbone.weights"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, place):
    state = {name: value for name, value in (towers() | change).items() if value is not None}
    torch.save(state, tmp_path / "w.pt")
    with refusal(place):
        load(tmp_path, tmp_path / "w.pt")


class Danger:
    def __reduce__(self):
        return (Path.touch, (Path("touched"),))


def test_code_in_a_file_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"visual.proj": Danger()}, tmp_path / "w.pt")
    with refusal("backbone.weights"):
        read_state(tmp_path / "w.pt")
    assert not Path("touched").exists()


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("w.safetensors", b"\0" * 40, "backbone.weights"),
        ("w.pt", b"not a checkpoint", "backbone.weights"),
        ("absent.pt", None, "backbone.weights: absent.pt"),
    ],
)
def test_files_that_are_no_weights_are_refused(tmp_path, name, content, place):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with refusal(place):
        read_state(tmp_path / name)


@pytest.mark.parametrize("value", [[1], {}], ids=str)
def test_values_that_are_no_state_dict_are_refused(tmp_path, value):
    torch.save(value, tmp_path / "w.pt")
    with refusal("backbone.weights"):
        read_state(tmp_path / "w.pt")


def test_hub_weights_are_checked_before_anything_is_fetched():
    for architecture, tag, place in (
        ("ViT-B-32-quickgelu", "nonsense", "backbone.pretrained"),
        ("ViT-B-32", "openai", "backbone.pretrained: openai"),
    ):
        with refusal(place):
            load_named(architecture, pretrained=tag)


def test_hub_weights_without_a_network_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with refusal("backbone.pretrained"):
        load_named("RN50-quickgelu", pretrained="openai")


def test_a_file_and_a_tag_exclude_each_other(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "dataset: shapes\nmethods: {a: {}}\nbackbone: {weights: w.pt, pretrained: openai}\n"
    )
    with refusal("s.yaml: backbone"):
        load_study("s", tmp_path)
