"""How captions of a batch are padded to one length, for encoders of transformers and sentence-transformers.

Most model families mask the padding or pool the last real token, so that the rest of the batch does not matter. Others
were trained on full contexts without a mask and give another vector at a shorter length. Libraries do not state which
is which for every family, and some drop the mask if nothing is padded. So the padding that a family declares is
tested: captions of very different lengths are encoded together and one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from rewind.config.encoders import Encoding
from rewind.encoders.frames import l2_normalise
from rewind.errors import RewindError

TokenizerOptions = dict[str, Any]
"""Arguments of a tokenizer: ``padding``, ``truncation`` and, if the model has a context length, ``max_length``."""

PROBE_CAPTIONS = ("a dog", "two people walk slowly along the river at night", "a man turns around " * 40)
"""Captions to try a model with; the last one is longer than most contexts."""

BATCH_EFFECT_TOLERANCE = {"fp32": 1e-3, "fp16": 0.1, "bf16": 0.1}
"""Largest distance of two unit vectors of a caption that rounding explains, by precision."""

UNBOUNDED_LENGTH = 10**6  # a tokenizer without a context length reports about 10**30


def declared_padding(model: Any, processor: Any) -> TokenizerOptions:
    """How a family pads captions, and where it truncates them, according to its files and its processor."""
    processor_options = _processor_text_options(processor)
    # SigLIP was trained without a mask, on captions padded to the whole context.
    to_context = processor_options.get("padding") == "max_length" or model.config.model_type.startswith("siglip")
    length = _context_length(model, processor, processor_options.get("max_length"))
    options: TokenizerOptions = {"padding": "max_length" if to_context else "longest", "truncation": True}
    return options if length is None else options | {"max_length": length}


def choose_padding(
    model: Any,
    keys: TokenizerOptions,
    use: Callable[[TokenizerOptions], None],
    encode: Callable[[list[str]], np.ndarray],
    encoding: Encoding,
) -> TokenizerOptions:
    """The first way of padding with which a caption's vector does not depend on its batch; refused if there is none.

    Tried in turn: ``keys`` (:func:`declared_padding`), padding to the whole context, and ``keys`` with another
    implementation of attention. ``use`` makes the encoder pad in a given way; ``encode`` maps one batch to (n, D).
    """
    effects = []
    to_context = keys | {"padding": "max_length"}
    for options in [keys] if to_context == keys or "max_length" not in keys else [keys, to_context]:
        use(options)
        effects.append(batch_effect(encode))
        if effects[-1] <= BATCH_EFFECT_TOLERANCE[encoding.precision]:
            return options
    # Some models mask by a flag of the fused attention, which is dropped if no caption is padded.
    model.set_attn_implementation("eager")
    use(keys)
    effects.append(batch_effect(encode))
    if effects[-1] <= BATCH_EFFECT_TOLERANCE[encoding.precision]:
        return keys
    raise RewindError(
        f"name: {encoding.name}: the vector that {type(model).__name__} gives a caption depends on the other captions "
        f"of its batch (by {min(effects):.2g} of its length), whatever length they are padded to; take another model, "
        "or an encoder of your own that knows how it was trained."
    )


def batch_effect(encode: Callable[[list[str]], np.ndarray]) -> float:
    """Largest distance between the unit vectors of a caption encoded with others and alone.

    ``encode`` maps one batch of captions to (n, D).

    >>> def pad_to_longest(texts):  # a model that sees the padding
    ...     return np.array([[len(text), max(map(len, texts))] for text in texts])
    >>> batch_effect(pad_to_longest) > 0.1, batch_effect(lambda texts: np.ones((len(texts), 2))) < 1e-6
    (True, True)
    """
    together = l2_normalise(encode(list(PROBE_CAPTIONS)))
    alone = l2_normalise(np.concatenate([encode([caption]) for caption in PROBE_CAPTIONS]))
    return float(np.linalg.norm(together - alone, axis=-1).max())


def token_counts(tokenizer: Any, texts: list[str]) -> list[int]:
    """Tokens of each uncut text, according to a tokenizer of transformers.

    >>> from types import SimpleNamespace
    >>> token_counts(lambda texts, **_: SimpleNamespace(input_ids=[[0, 5, 2], [0, 2]]), ["dog", ""])
    [3, 2]
    """
    # verbose=False: no warning that they are too long for the model, which is what is to be found out.
    return [len(ids) for ids in tokenizer(texts, truncation=False, verbose=False).input_ids]


def _processor_text_options(processor: Any) -> Mapping[str, Any]:
    """How a processor pads captions by default: its own attribute, or in older ones that of its options' class."""
    own = getattr(processor, "text_kwargs", None)
    older = getattr(getattr(processor, "valid_processor_kwargs", None), "_defaults", None) or {}
    return own or older.get("text_kwargs", {})


def _context_length(model: Any, processor: Any, processor_length: int | None) -> int | None:
    """Tokens of a caption that the model reads: what its processor or its tokenizer says, at most its positions."""
    tokenizer = getattr(processor, "tokenizer", None)
    length = processor_length or getattr(tokenizer, "model_max_length", None) or UNBOUNDED_LENGTH
    config = model.config
    positions = getattr(getattr(config, "text_config", config), "max_position_embeddings", None)
    if positions is not None:
        length = min(length, positions - _first_position(model))
    return int(length) if length < UNBOUNDED_LENGTH else None


def _first_position(model: Any) -> int:
    """Position of a caption's first token: RoBERTa's family counts from behind the padding's index, others from 0."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), torch.nn.Embedding):
            return padding + 1
    return 0
