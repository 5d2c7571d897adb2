"""Every architecture of the installed open_clip through our encoder, beside open_clip's own functions.

    python benchmarks/open_clip_architectures.py                  # all of them, one in memory at a time
    python benchmarks/open_clip_architectures.py --only SigLIP    # names that contain this

Nothing is downloaded: weights are random, from one seed on both sides, and towers have their own widths but only a few
blocks. For each architecture: does it build; does its own tokenizer work without a network (else its text tower gets
random tokens); the largest difference between our vectors and those of open_clip's `encode_text` and `encode_image`;
whether a weights file under each published tag is prepared as open_clip prepares pictures for that tag.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rewind import optional_packages
from rewind.config.encoders import Encoding
from rewind.encoders import open_clip as ours
from rewind.encoders.open_clip import Options
from rewind.errors import RewindError

BLOCKS, WORDS = 2, 1000
TEXTS = ["a red square moves to the left", "two dogs", "A cat, asleep!"]
SHALLOW = ({"depth": BLOCKS}, {"depths": (1, 1, 1, 1)}, {"layers": (1, 1, 1, 1)}, {})
"""Ways in which networks of timm take fewer blocks."""
WHOLE = ("fastvit_mci3", "fastvit_mci4")  # of five stages whose widths follow from their depths


def shallow(config: dict[str, Any], own_words: bool) -> dict[str, Any]:
    """A configuration with few blocks, and with few words where the tokens are random anyway."""
    vision, text = config["vision_cfg"], config["text_cfg"]
    if "layers" in vision:
        vision["layers"] = [1, 1, 1, 1] if isinstance(vision["layers"], list) else BLOCKS
    if "hf_model_name" not in text:
        text["layers"] = BLOCKS
        text["vocab_size"] = text.get("vocab_size", 49408) if own_words else WORDS
    if "multimodal_cfg" in config:
        config["multimodal_cfg"]["layers"] = BLOCKS
        config["multimodal_cfg"]["vocab_size"] = text.get("vocab_size", 49408)
    return config


@contextlib.contextmanager
def few_blocks() -> Iterator[None]:
    """Networks of timm with few blocks, where they take such a key."""
    timm = optional_packages.timm()
    create = timm.create_model

    def created(name: str, **given: Any) -> Any:
        for more in [{}] if name in WHOLE else SHALLOW:
            try:
                return create(name, **given | more)
            except TypeError:
                continue
        raise RuntimeError(f"{name}: no way to create it")

    timm.create_model = created
    try:
        yield
    finally:
        timm.create_model = create


class RandomTokens:
    """Stands in for a tokenizer that needs a download: the same tokens for the same words, and an end."""

    def __init__(self, context: int) -> None:
        self.context_length = context

    def __call__(self, texts: list[str]) -> torch.Tensor:
        rows = [np.random.default_rng(len(text)).integers(2, WORDS - 1, self.context_length) for text in texts]
        return torch.from_numpy(np.stack(rows))


def examine(name: str, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What became of one architecture.

    Args:
        name: of open_clip.
        config: its own configuration.
        folder: for the shallow one.
    """
    library, found = (
        optional_packages.open_clip(),
        {"name": name, "context": config["text_cfg"].get("context_length", 77)},
    )
    if source := config["text_cfg"].get("hf_model_name"):
        return found | {"reason": f"its text tower is read from {source} on the hub"}
    try:
        tokenizer = library.get_tokenizer(name)
        found["tokenizer"] = "offline"
    except Exception as error:  # a package or the network: what is raised depends on the tokenizer
        tokenizer = RandomTokens(found["context"])
        lacking = isinstance(error, ImportError)
        found["tokenizer"] = "needs the package transformers" if lacking else "needs a download"
    path = folder / f"{name}.json"
    path.write_text(json.dumps(shallow(config, found["tokenizer"] == "offline")))
    library.add_model_config(path)
    keys = Encoding(encoder="open_clip", name=name, encoder_options={"untrained": True, "seed": 1})
    picture = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    with few_blocks(), stand_in(tokenizer):
        encoder = ours.OpenClip(keys)
        text, image = encoder.encode_texts(TEXTS), encoder.encode_pictures([picture])
        del encoder
        torch.manual_seed(1)
        model, _, prepare = library.create_model_and_transforms(name, pretrained_text=False)
    model.eval()
    with torch.inference_mode():
        theirs = model.encode_text(tokenizer(TEXTS), normalize=True).numpy()
        their_image = model.encode_image(prepare(Image.fromarray(picture))[None], normalize=True).numpy()
    found |= {"text": float(np.abs(text - theirs).max()), "image": float(np.abs(image - their_image).max())}
    found["class"], found["bias"] = type(model).__name__, getattr(model, "logit_bias", None) is not None
    found["tags"], found["other_tags"] = preprocessing(name, keys, model.visual.image_size)
    return found


@contextlib.contextmanager
def stand_in(tokenizer: Any) -> Iterator[None]:
    """Give our encoder a tokenizer that is there already."""
    own = ours._tokenizer
    ours._tokenizer = lambda encoding: tokenizer
    try:
        yield
    finally:
        ours._tokenizer = own


def preprocessing(name: str, keys: Encoding, size: Any) -> tuple[int, list[str]]:
    """How many tags of an architecture are prepared as open_clip does it, and which are not."""
    library, transform = optional_packages.open_clip(), optional_packages.open_clip("transform")
    default, differ, tags = transform.PreprocessCfg(), [], library.list_pretrained_tags_by_model(name)
    for tag in tags:
        published = library.get_pretrained_cfg(name, tag)
        theirs = transform.merge_preprocess_dict(default, published) | {"size": size}
        given = ours._preprocess_override(keys, Options(pretrained="file", preprocess=tag))
        mine = transform.merge_preprocess_dict(transform.merge_preprocess_dict(default, {"size": size}), given)
        plain = [{k: list(v) if isinstance(v, tuple) else v for k, v in one.items()} for one in (theirs, mine)]
        if plain[0] != plain[1]:
            differ.append(tag)
    return len(tags), differ


def main() -> None:
    """Print a summary, and a line for each architecture that is not like the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--json", type=Path, help="write everything that was found")
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    library, began, rows = optional_packages.open_clip(), time.monotonic(), []
    configs = {name: library.get_model_config(name) for name in library.list_models() if given.only in name}
    with tempfile.TemporaryDirectory() as folder:
        for name, config in configs.items():
            try:
                row = examine(name, config, Path(folder))
            except RewindError as error:
                row = {"name": name, "reason": f"refused: {error}"}
            except Exception as error:  # what an architecture raises is what is looked for
                row = {"name": name, "reason": f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"}
            rows.append(row)
            print(json.dumps(row), flush=True)
            gc.collect()
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    summarise(rows, time.monotonic() - began)


def summarise(rows: list[dict[str, Any]], seconds: float) -> None:
    """Print what was found of all."""
    built = [row for row in rows if "text" in row]
    print(f"\n{len(rows)} architectures in {seconds:.0f} s: {len(built)} build")
    for what, count in collections.Counter(row["tokenizer"] for row in built).most_common():
        print(f"  tokenizer: {what}: {count}")
    for side in ("text", "image"):
        worst = max((row[side] for row in built), default=0.0)
        same = sum(row[side] == 0 for row in built)
        print(f"  encode_{side}: {same} equal to the last bit, largest difference {worst:.1e}")
    print(f"  with a logit bias, which changes no rank: {sum(row['bias'] for row in built)}")
    tags, other = sum(row["tags"] for row in built), [(r["name"], t) for r in built for t in r["other_tags"]]
    print(f"  published tags: {tags}, prepared as open_clip does: {tags - len(other)}; otherwise: {other or 'none'}")
    for reason, count in collections.Counter(row["reason"] for row in rows if "reason" in row).most_common():
        print(f"  {count} × {reason}")


if __name__ == "__main__":
    main()
