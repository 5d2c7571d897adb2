"""How the captions of a batch get one length: what each family of models was trained with, for all encoders.

Most families mask what fills a caption up, or look back from its end, so that the rest of its batch does not matter.
Others were trained on whole contexts without a mask, and read another vector from a shorter one. The library does not
say which is which for every family, and some lose their mask where nothing is to be masked. So what a family declares
is tried: captions of very different lengths are encoded together and one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from rewind.encoders.frames import unit
from rewind.errors import RewindError
from rewind.study.encoding import Encoding

TextKeys = dict[str, Any]
"""Arguments of a tokenizer: ``padding``, ``truncation`` and, where there is a context, ``max_length``."""

CAPTIONS = ("a dog", "two people walk slowly along the river at night", "a man turns around " * 40)
"""Captions to try a model with; the last one is longer than most contexts."""

TOLERANCE = {"fp32": 1e-3, "fp16": 0.1, "bf16": 0.1}
"""Largest distance of two unit vectors of a caption that the numbers' rounding explains, by precision."""

UNBOUNDED = 10**6  # a tokenizer without a context says some 10**30


def declared(model: Any, processor: Any) -> TextKeys:
    """How a family fills captions up, and where it cuts them, by what its files and its processor say.

    Args:
        model: of transformers, with its configuration.
        processor: its processor, with a tokenizer.
    """
    own = _own_keys(processor)
    whole = own.get("padding") == "max_length" or model.config.model_type.startswith("siglip")
    length = _context(model, processor, own.get("max_length"))
    keys: TextKeys = {"padding": "max_length" if whole else "longest", "truncation": True}
    return keys if length is None else keys | {"max_length": length}


def settle(
    model: Any,
    keys: TextKeys,
    use: Callable[[TextKeys], None],
    encode: Callable[[list[str]], np.ndarray],
    encoding: Encoding,
) -> TextKeys:
    """The first way to fill captions up with which a caption's vector does not depend on its batch; it is in use then.

    Args:
        model: of transformers.
        keys: the way to start with, see :func:`declared`.
        use: makes the encoder fill captions up in a way.
        encode: one batch of captions → (n, D).
        encoding: names the model and its precision.

    Raises:
        RewindError: if there is no such way.
    """
    found = []
    whole = keys | {"padding": "max_length"}
    for chosen in [keys] if whole == keys or "max_length" not in keys else [keys, whole]:
        use(chosen)
        found.append(batch_effect(encode))
        if found[-1] <= TOLERANCE[encoding.precision]:
            return chosen
    # Some models mask by a flag of the fused attention, which is dropped where no caption is filled up.
    model.set_attn_implementation("eager")
    use(keys)
    found.append(batch_effect(encode))
    if found[-1] <= TOLERANCE[encoding.precision]:
        return keys
    raise RewindError(
        f"name: {encoding.name}: the vector that {type(model).__name__} gives a caption depends on the other captions "
        f"of its batch (by {min(found):.2g} of its length), filled up to whichever length; take another model, or an "
        "encoder of your own that knows how it was trained."
    )


def batch_effect(encode: Callable[[list[str]], np.ndarray]) -> float:
    """Largest distance of two unit vectors of a caption: encoded with others, and alone.

    Args:
        encode: one batch of captions → (n, D).
    """
    together = unit(encode(list(CAPTIONS)))
    alone = unit(np.concatenate([encode([caption]) for caption in CAPTIONS]))
    return float(np.linalg.norm(together - alone, axis=-1).max())


def longer(tokenizer: Any, texts: list[str], keys: TextKeys) -> int | None:
    """How many texts have more tokens than are kept; None where that is not known."""
    if tokenizer is None or "max_length" not in keys:
        return None
    return sum(len(ids) > keys["max_length"] for ids in tokenizer(texts, truncation=False).input_ids)


def _own_keys(processor: Any) -> Mapping[str, Any]:
    """How a processor fills captions up if it is not told: said by its class, or by its keys' class in older ones."""
    own = getattr(processor, "text_kwargs", None)
    older = getattr(getattr(processor, "valid_processor_kwargs", None), "_defaults", None) or {}
    return own or older.get("text_kwargs", {})


def _context(model: Any, processor: Any, own: int | None) -> int | None:
    """Tokens of a caption that the model reads: its processor's number, or its tokenizer's, if it has such places."""
    tokenizer = getattr(processor, "tokenizer", None)
    wanted = own or getattr(tokenizer, "model_max_length", None) or UNBOUNDED
    config = model.config
    places = getattr(getattr(config, "text_config", config), "max_position_embeddings", None)
    if places is not None:
        wanted = min(wanted, places - _first_place(model))
    return int(wanted) if wanted < UNBOUNDED else None


def _first_place(model: Any) -> int:
    """Where the first token of a caption stands: behind that of padding in RoBERTa's family."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), torch.nn.Embedding):
            return padding + 1
    return 0
