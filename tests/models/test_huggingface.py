"""Hugging Face's layout of CLIP against a forward pass written from its names alone, and what its folder says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from messages import refusal
from rewind.config import Backbone, Text
from rewind.models.clip import ClipTowers, build
from rewind.models.weights import from_huggingface
from rewind.video.frames import CLIP_MEAN, CLIP_STD

State = dict[str, torch.Tensor]
WIDTH, HEADS, LAYERS, SHARED, VOCABULARY = 128, 2, 2, 48, 7
OWN = {
    "embed_dim": SHARED,
    "vision_cfg": {"image_size": 32, "layers": LAYERS, "width": WIDTH, "head_width": WIDTH // HEADS, "patch_size": 16},
    "text_cfg": {"context_length": 9, "vocab_size": VOCABULARY, "width": WIDTH, "heads": HEADS, "layers": LAYERS},
}
WORDS = ["red ring turns"]  # seven ids with padding, unknown, start and end


def stored(seed: int = 0) -> State:
    """Random weights under the names and in the shapes of transformers' CLIPModel."""
    draw = torch.Generator().manual_seed(seed)

    def tensor(*shape: int) -> torch.Tensor:
        return 0.3 * torch.randn(*shape, generator=draw)

    state = {
        "logit_scale": torch.tensor(2.5),
        "text_projection.weight": tensor(SHARED, WIDTH),
        "visual_projection.weight": tensor(SHARED, WIDTH),
        "text_model.embeddings.token_embedding.weight": tensor(VOCABULARY, WIDTH),
        "text_model.embeddings.position_embedding.weight": tensor(9, WIDTH),
        "text_model.embeddings.position_ids": torch.arange(9)[None],
        "vision_model.embeddings.class_embedding": tensor(WIDTH),
        "vision_model.embeddings.patch_embedding.weight": tensor(WIDTH, 3, 16, 16),
        "vision_model.embeddings.position_embedding.weight": tensor(5, WIDTH),
        "vision_model.embeddings.position_ids": torch.arange(5)[None],
    }
    norms = ["text_model.final_layer_norm", "vision_model.pre_layrnorm", "vision_model.post_layernorm"]
    for tower in ("text_model", "vision_model"):
        for layer in (f"{tower}.encoder.layers.{n}" for n in range(LAYERS)):
            norms += [f"{layer}.layer_norm1", f"{layer}.layer_norm2"]
            shapes = {"mlp.fc1": (4 * WIDTH, WIDTH), "mlp.fc2": (WIDTH, 4 * WIDTH)}
            shapes |= {f"self_attn.{part}_proj": (WIDTH, WIDTH) for part in ("q", "k", "v", "out")}
            for part, shape in shapes.items():
                state |= {f"{layer}.{part}.weight": tensor(*shape), f"{layer}.{part}.bias": tensor(shape[0])}
    for norm in norms:
        state |= {f"{norm}.weight": 1 + tensor(WIDTH), f"{norm}.bias": tensor(WIDTH)}
    return state


def blocks(state: State, tower: str, x: torch.Tensor, causal: bool, quick: bool) -> torch.Tensor:
    """The encoder of a tower as transformers computes it, written out with plain matrix products."""

    def linear(name: str, value: torch.Tensor) -> torch.Tensor:
        return value @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    length, each = x.shape[1], WIDTH // HEADS
    for layer in (f"{tower}.encoder.layers.{n}" for n in range(LAYERS)):
        inner = norm(state, f"{layer}.layer_norm1", x)
        q, k, v = (
            linear(f"{layer}.self_attn.{part}_proj", inner).reshape(len(x), length, HEADS, each).transpose(1, 2)
            for part in "qkv"
        )
        weights = q @ k.transpose(2, 3) / each**0.5
        if causal:
            weights = weights.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
        mixed = (weights.softmax(dim=-1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + linear(f"{layer}.self_attn.out_proj", mixed)
        hidden = linear(f"{layer}.mlp.fc1", norm(state, f"{layer}.layer_norm2", x))
        x = x + linear(f"{layer}.mlp.fc2", hidden * torch.sigmoid(1.702 * hidden) if quick else F.gelu(hidden))
    return x


def norm(state: State, name: str, x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def text_features(state: State, tokens: torch.Tensor, quick: bool) -> torch.Tensor:
    table = "text_model.embeddings."
    x = state[f"{table}token_embedding.weight"][tokens] + state[f"{table}position_embedding.weight"][: tokens.shape[1]]
    x = norm(state, "text_model.final_layer_norm", blocks(state, "text_model", x, True, quick))
    return x[torch.arange(len(x)), tokens.argmax(dim=1)] @ state["text_projection.weight"].T


def image_features(state: State, pixels: torch.Tensor, quick: bool) -> torch.Tensor:
    mean, std = (torch.tensor(value, dtype=torch.float64).view(3, 1, 1) for value in (CLIP_MEAN, CLIP_STD))
    table = "vision_model.embeddings."
    patches = F.conv2d((pixels / 255 - mean) / std, state[f"{table}patch_embedding.weight"], stride=16)
    first = state[f"{table}class_embedding"].expand(len(pixels), 1, -1)
    x = torch.cat([first, patches.flatten(2).transpose(1, 2)], dim=1) + state[f"{table}position_embedding.weight"]
    x = blocks(state, "vision_model", norm(state, "vision_model.pre_layrnorm", x), False, quick)
    return norm(state, "vision_model.post_layernorm", x[:, 0]) @ state["visual_projection.weight"].T


def load(folder: Path, state: State, quick: bool = True, name: str = "model.safetensors", **beside: dict) -> ClipTowers:
    """Our towers with the weights of a folder as the hub has it."""
    path = folder / name
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    for file, keys in beside.items():
        (folder / f"{file}.json").write_text(json.dumps(keys))
    (folder / "own.json").write_text(json.dumps(OWN | {"quick_gelu": quick}))
    keys = Backbone(architecture=str(folder / "own.json"), weights=str(path))
    return build(keys, Text(tokenizer="words", max_words=8), WORDS).eval()


@torch.no_grad()
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("quick", [True, False])
def test_features_are_those_of_the_layouts_own_forward_pass(tmp_path: Path, name: str, quick: bool) -> None:
    state = stored()
    model = load(tmp_path, state, quick, name).double()
    exact = {key: value.double() if value.is_floating_point() else value for key, value in state.items()}
    tokens = model.prepare_text(["ring", "red ring turns red", "unheard"])
    pixels = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    assert model.logit_scale.item() == 2.5
    torch.testing.assert_close(model.encode_text(tokens), text_features(exact, tokens, quick), rtol=1e-9, atol=1e-9)
    wanted = image_features(exact, pixels, quick)
    torch.testing.assert_close(model.frame_features(pixels), wanted, rtol=1e-5, atol=1e-5)  # the mean is float32


SMALL = {"num_attention_heads": HEADS}


def config(text: dict | None = None, vision: dict | None = None, **more: dict) -> dict:
    return {"text_config": SMALL | (text or {}), "vision_config": SMALL | (vision or {}), **more}


def test_the_configuration_beside_tells_the_activation(tmp_path: Path) -> None:
    gelu, state = {"hidden_act": "gelu"}, stored()
    load(tmp_path, state, True, config=config())  # transformers leaves its default, quick_gelu, out
    load(tmp_path, state, False, config=config(gelu, gelu))
    with refusal("backbone.weights: model.safetensors"):
        load(tmp_path, state, True, config=config(gelu, gelu))
    with refusal("backbone.weights: model.safetensors"):
        load(tmp_path, state, False, config=config())
    older = {name: {"hidden_act": "gelu"} for name in ("text_config_dict", "vision_config_dict")}
    load(tmp_path, state, False, config=config(**older))
    with refusal("config.json: hidden_act"):
        load(tmp_path, state, True, config=config(gelu))


@pytest.mark.parametrize(
    ("beside", "place"),
    [
        ({"config": config({"num_attention_heads": 4})}, "config.json: text_config.num_attention_heads"),
        ({"config": config(None, {"layer_norm_eps": 1e-6})}, "config.json: vision_config.layer_norm_eps"),
        ({"preprocessor_config": {"image_mean": [0.5, 0.5, 0.5]}}, "preprocessor_config.json"),
    ],
)
def test_what_no_shape_shows_is_read_beside_the_file(tmp_path: Path, beside: dict, place: str) -> None:
    with refusal(place):
        load(tmp_path, stored(), **beside)


def test_other_models_and_parts_are_named() -> None:
    state = stored()
    with refusal("w"):
        from_huggingface(state | {"vision_model.head.probe": torch.ones(1)}, "w")
    state.pop("text_model.encoder.layers.1.self_attn.k_proj.bias")
    with refusal("w"):
        from_huggingface(state, "w")
