"""CLIP's two towers from open_clip: by architecture name or JSON file, random or from a local weights file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from torch import Tensor, nn

import rewind.compat  # noqa: F401 - before open_clip
from rewind.errors import RewindError
from rewind.models.retriever import Backbone
from rewind.study import Backbone as BackboneKeys
from rewind.study import Text as TextKeys
from rewind.text import make_tokenizer

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


class Clip(Backbone):
    """open_clip's CLIP with captions cut to ``max_words`` tokens."""

    def __init__(self, model: nn.Module, tokenizer, max_words: int) -> None:
        super().__init__()
        context = model.positional_embedding.shape[0]
        if max_words > context:
            raise RewindError(f"text.max_words: {max_words} is more than the architecture's context length {context}.")
        self.clip = model
        self.tokenizer = tokenizer
        self.max_words = max_words
        self.width = self.feature_width = model.text_projection.shape[1]
        self.register_buffer("mean", torch.tensor(CLIP_MEAN).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(CLIP_STD).view(3, 1, 1) * 255, persistent=False)

    @property
    def logit_scale(self) -> nn.Parameter:
        return self.clip.logit_scale

    def prepare_text(self, captions: list[str]) -> Tensor:
        return torch.from_numpy(self.tokenizer.encode(captions, self.max_words))

    def encode_text(self, prepared: Tensor) -> Tensor:
        # open_clip adds all 77 positions; attention is causal, so places behind the end token change nothing and
        # are left out: cut to the longest caption of the batch.
        clip, tokens = self.clip, prepared[:, : int(prepared.ne(0).sum(dim=1).max())]
        length = tokens.shape[1]
        x = clip.token_embedding(tokens) + clip.positional_embedding[:length]
        x = clip.transformer(x, attn_mask=clip.attn_mask[:length, :length])
        x = clip.ln_final(x)
        end = x[torch.arange(len(x), device=x.device), tokens.argmax(dim=1)]
        return end @ clip.text_projection

    def frame_features(self, pixels: Tensor) -> Tensor:
        return self.clip.visual((pixels.to(self.mean.dtype) - self.mean) / self.std)

    def visual_parameters(self) -> list[nn.Parameter]:
        return list(self.clip.visual.parameters())

    def text_parameters(self) -> list[nn.Parameter]:
        visual = {id(p) for p in self.clip.visual.parameters()}
        return [p for p in self.clip.parameters() if id(p) not in visual and p is not self.clip.logit_scale]

    def text_blocks(self) -> dict[str, Tensor]:
        """CLIP's text positions and blocks, from which temporal transformers start."""
        return {
            name: p for name, p in self.clip.state_dict().items() if name.startswith(("positional", "transformer."))
        }


def build(keys: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Clip:
    """Make the towers of a study.

    Raises:
        RewindError: for an unknown architecture, a missing weights file, or weights of another architecture.
    """
    from open_clip.model import CLIP

    tokenizer = make_tokenizer(text.tokenizer, train_captions)
    config = architecture(keys.architecture)
    if text.tokenizer == "words":
        config["text_cfg"] = {**config["text_cfg"], "vocab_size": tokenizer.vocabulary}
    model = Clip(CLIP(**config), tokenizer, text.max_words)
    if keys.weights:
        load_weights(model.clip, Path(keys.weights), keys.architecture)
    return model


def architecture(name: str) -> dict:
    """Constructor arguments of open_clip's CLIP, by model name or from a JSON file."""
    from open_clip import get_model_config

    if name.endswith(".json"):
        path = Path(name)
        if not path.exists():
            raise RewindError(f"backbone.architecture: {name}: no such file.")
        config = json.loads(path.read_text())
    else:
        config = get_model_config(name)
        if config is None:
            raise RewindError(f"backbone.architecture: open_clip knows no {name!r}; see open_clip.list_models().")
    known = ("embed_dim", "vision_cfg", "text_cfg", "quick_gelu")
    extra = [key for key in config if key not in known]
    if extra:
        raise RewindError(f"backbone.architecture: {name}: only plain CLIP models can be used here; it has {extra}.")
    return dict(config)


def load_weights(model: nn.Module, path: Path, architecture: str) -> None:
    """Load a plain state dict or safetensors file; every key must fit.

    Raises:
        RewindError: if the file is missing or its keys or shapes differ, naming the first of them.
    """
    if not path.exists():
        raise RewindError(
            f"backbone.weights: {path}: no such file; put {architecture} weights there or correct the key."
        )
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        state = load_file(path)
    else:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise RewindError(
                f"backbone.weights: {path} is no plain state dict ({type(error).__name__}). A TorchScript archive "
                "such as OpenAI's ViT-B-32.pt must be converted first; docs/rtime.md shows how."
            ) from error
        state = state.get("state_dict", state)
    if any(name.startswith("backbone.clip.") for name in state):  # a run of ours: its head is left behind
        state = {name: value for name, value in state.items() if name.startswith("backbone.clip.")}
    state = {re.sub(r"^(module\.|backbone\.|clip\.)+", "", name): value for name, value in state.items()}
    for constant in ("input_resolution", "context_length", "vocab_size"):  # OpenAI's files carry these
        state.pop(constant, None)
    own = model.state_dict()
    wrong = [name for name in own if name not in state] + [name for name in state if name not in own]
    wrong += [n for n in own if n in state and own[n].shape != state[n].shape]
    if wrong:
        name = wrong[0]
        shapes = [tuple(d[name].shape) if name in d else "absent" for d in (own, state)]
        raise RewindError(
            f"backbone.weights: {path} does not fit {architecture}: {len(wrong)} tensors differ, first {name!r} "
            f"(model {shapes[0]}, file {shapes[1]})."
        )
    model.load_state_dict(state)
