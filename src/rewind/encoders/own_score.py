"""Whether the product of two vectors is the score that a model of transformers itself gives a pair.

Models are compared by vectors of captions and of clips, which are made apart. Some families score a pair otherwise:
X-CLIP adds to a caption what it sees in the clip. So, before anything is encoded, made captions are scored with made
pictures, by their vectors and by the model's own ``forward``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewind.encoders.frames import numbers, pictures, unit
from rewind.encoders.padding import CAPTIONS, TextKeys
from rewind.errors import RewindError
from rewind.files import read_json
from rewind.study.encoding import Encoding

TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 2e-2}
"""Largest difference of cosines that the numbers' rounding explains, by precision."""

INSTEAD = "take a model whose forward gives logits of captions and pictures, such as CLIP, SigLIP, AltCLIP or X-CLIP"

WITHOUT: Mapping[str, str] = {
    "flava": "FLAVA's FlavaModel gives no score of a caption and a picture",
    "blip-2": "BLIP-2's Blip2Model writes text about a picture and gives no score of a caption and a picture",
}
"""Families that are known to have no score, by ``model_type``: refused before the first job. Others are tried."""


def refuse_known(encoding: Encoding, model_type: str) -> None:
    """Refuse a family that is known to have no score of a caption and a picture.

    Raises:
        RewindError: naming the family and what to take instead.
    """
    if model_type in WITHOUT:
        raise RewindError(f"name: {encoding.name}: {WITHOUT[model_type]}; {INSTEAD}.")


def refuse_config(encoding: Encoding, config: Path | str | None) -> dict[str, Any]:
    """The same by a model's configuration, before the model is loaded; returns it, empty where it is not here.

    Raises:
        RewindError: naming the family and what to take instead.
    """
    content = read_json(config) if config else {}
    if not isinstance(content, dict):
        raise RewindError(f"name: {config}: not a model's configuration; put the model's own file there.")
    refuse_known(encoding, str(content.get("model_type")))
    return content


def made_clips(frames: int) -> list[np.ndarray]:
    """Three different clips uint8 (T, 64, 64, 3)."""
    ramp = np.linspace(0, 255, 64, dtype=np.uint8)
    red, blue = np.zeros((2, frames, 64, 64, 3), np.uint8)
    for frame in range(frames):
        red[frame, :, :, 0], blue[frame, :, :, 2] = np.roll(ramp, 8 * frame), ramp[::-1, None]
    return [np.random.default_rng(0).integers(0, 256, red.shape, dtype=np.uint8), red, blue]


def tokens(model: Any, processor: Any, texts: list[str], keys: TextKeys) -> dict[str, torch.Tensor]:
    """What a model is given of captions."""
    return on_device(model, processor(text=texts, **keys | {"return_tensors": "pt"}))


def image_pixels(model: Any, processor: Any, frames: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """What a model is given of pictures uint8 (H, W, 3)."""
    return on_device(model, processor(images=pictures(frames), return_tensors="pt"))


def clip_pixels(model: Any, processor: Any, clips: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """What a model is given of clips uint8 (T, H, W, 3) of one length: all of their frames."""
    # Only processors that choose frames by themselves know of that choice.
    inner = getattr(processor, "video_processor", None)
    chooses = {"do_sample_frames": False} if hasattr(inner, "do_sample_frames") else {}
    return on_device(model, processor(videos=[pictures(clip) for clip in clips], return_tensors="pt", **chooses))


def on_device(model: Any, processed: Any) -> dict[str, torch.Tensor]:
    """Tensors on the model's device, pictures in the model's numbers."""
    return {
        name: value.to(model.device, model.dtype if value.is_floating_point() else None)
        for name, value in processed.items()
        if isinstance(value, torch.Tensor)
    }


def scores_pairs(
    model: Any,
    processor: Any,
    keys: TextKeys,
    text: np.ndarray,
    items: np.ndarray,
    pixels: dict[str, torch.Tensor],
    encoding: Encoding,
) -> bool:
    """Whether the model's own score of a pair is another than the cosine of the pair's vectors.

    Args:
        model: of transformers.
        processor: its processor.
        keys: how captions are filled up.
        text: vectors (3, D) of ``CAPTIONS``.
        items: vectors (m, D) of pictures or clips.
        pixels: what the model is given of the same.
        encoding: names the model and its precision.

    Raises:
        RewindError: if its own score of a pair cannot be had at all.
    """
    given = tokens(model, processor, list(CAPTIONS), keys)
    scores, joint = forward(model, given | pixels, encoding)
    if joint:
        return True
    error = disagreement(unit(text) @ unit(items).T, scores)
    if error <= TOLERANCE[encoding.precision]:
        return False
    one = {name: value[:1] for name, value in (given | pixels).items()}
    alone, _ = forward(model, one, encoding)
    if abs(alone[0, 0] - scores[0, 0]) <= TOLERANCE[encoding.precision] * max(1.0, float(np.abs(scores).max())):
        return True
    raise RewindError(
        f"name: {encoding.name}: the score that {type(model).__name__} gives a pair is neither the cosine of its "
        f"vectors (off by {error:.2g}) nor the same in every batch; {INSTEAD}."
    )


def refuse_missing(model: Any, given: dict[str, torch.Tensor], missing: set[str], encoding: Encoding) -> None:
    """Refuse a model whose scores depend on weights that were drawn at random, since its files have none.

    Args:
        model: of transformers; the missing weights are changed.
        given: what it is given of captions and pictures.
        missing: names of weights, see :func:`rewind.encoders.hub.missing_weights`.
        encoding: names the model.

    Raises:
        RewindError: naming the weights, and the class that the files are of.
    """
    weights = dict(model.named_parameters())
    lacking = sorted(missing & weights.keys())
    if not lacking:
        return
    # What the library left there may not be a number, so two draws of our own are compared.
    found = []
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name in lacking:
                shape = weights[name].shape  # a scale or a bias is near 1, a matrix keeps lengths
                drawn = torch.randn(shape, generator=generator)
                weights[name].copy_(drawn * shape[-1] ** -0.5 if len(shape) > 1 else 1 + 0.2 * drawn)
        found.append(_standard(forward(model, given, encoding)[0]))
    if np.allclose(found[0], found[1], atol=1e-3):
        return  # such as a factor of all scores, or a pooling layer that nobody asks
    made = ", ".join(getattr(model.config, "architectures", None) or []) or "another class"
    some = ", ".join(lacking[:2]) + (" …" if len(lacking) > 2 else "")
    raise RewindError(
        f"name: {encoding.name}: its files have no {some}, which {type(model).__name__} needs and would draw at "
        f"random ({len(lacking):,} in all). They are of {made}: take the model that was published for retrieval, "
        "or an encoder of your own."
    )


def forward(model: Any, given: dict[str, torch.Tensor], encoding: Encoding) -> tuple[np.ndarray, bool]:
    """Scores (n_text, n_items) that a model gives captions and pictures, and whether it makes a vector for each pair.

    Raises:
        RewindError: if it gives none.
    """
    kind = type(model).__name__
    try:
        return logits(model, given)
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RewindError(
            f"name: {encoding.name}: {kind} gives no score of a caption and a picture ({reason}); {INSTEAD}."
        ) from error


@torch.inference_mode()
def logits(model: Any, given: dict[str, torch.Tensor]) -> tuple[np.ndarray, bool]:
    """The same of a model that was found to give scores.

    Raises:
        ValueError: if it gives none.
    """
    output = model(**given)
    found = getattr(output, "logits_per_text", None)
    if found is None:
        other = getattr(output, "logits_per_image", getattr(output, "logits_per_video", None))
        found = None if other is None else other.T
    if not isinstance(found, torch.Tensor) or found.ndim != 2:
        raise ValueError("its forward has no logits_per_text")
    vectors = getattr(output, "text_embeds", None)
    return numbers(found), isinstance(vectors, torch.Tensor) and vectors.ndim > 2


def disagreement(cosines: np.ndarray, scores: np.ndarray) -> float:
    """How far scores are from a rising line through cosines, both (n, m), at most, in cosines.

    A softmax over one side is looked through: it adds to the logarithm of a query's scores the same number.
    """
    if (scores > 0).all() and any(np.allclose(scores.sum(axis=axis), 1, atol=1e-3) for axis in (0, 1)):
        cosines, scores = _interactions(cosines), _interactions(np.log(scores))
    own, theirs = cosines - cosines.mean(), scores - scores.mean()
    slope = float((own * theirs).sum()) / max(float((own * own).sum()), 1e-20)
    return float(np.abs(theirs / slope - own).max()) if slope > 0 else float("inf")


def _standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / max(float(values.std()), 1e-12)


def _interactions(values: np.ndarray) -> np.ndarray:
    return values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()


@contextlib.contextmanager
def computed_once(tower: torch.nn.Module) -> Iterator[None]:
    """Within, a tower gives its first output again: the same pictures meet one block of captions after another."""
    compute: Any = tower.forward
    kept: list[Any] = []

    def first(*args: Any, **keys: Any) -> Any:
        if not kept:
            kept.append(compute(*args, **keys))
        return kept[0]

    tower.forward = first
    try:
        yield
    finally:
        del tower.forward  # the class's own is behind it
