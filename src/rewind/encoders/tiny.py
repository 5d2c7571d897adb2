"""Tiny models with random weights, written as folders, to try the encoders without a download.

``python -m rewind.encoders.tiny FOLDER`` writes ``open_clip`` (for the encoder `open_clip`), ``clip`` (for
`sentence_transformers` and `transformers`) and ``xclip`` (for `transformers`; it sees the order of frames). Their
retrieval is at chance.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from rewind import optional_packages
from rewind.io.files import write_json, write_text

IMAGE_SIZE = 32  # pixels
WIDTH = 32
TEXT_CONFIG = {"context_length": 32, "vocab_size": 49408, "width": WIDTH, "heads": 2, "layers": 2}
VISION_CONFIG = {"image_size": IMAGE_SIZE, "layers": 2, "width": WIDTH, "head_width": 16, "patch_size": 8}
PREPROCESS_CONFIG = {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bilinear", "resize_mode": "squash"}


def write_open_clip(folder: Path, seed: int = 0) -> Path:
    """Write a folder as open_clip publishes models: configuration, its own preprocessing, weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"embed_dim": WIDTH, "vision_cfg": VISION_CONFIG, "text_cfg": TEXT_CONFIG}
    torch.manual_seed(seed)
    model = optional_packages.open_clip("model").CLIP(**config)
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    write_json(folder / "open_clip_config.json", {"model_cfg": config, "preprocess_cfg": PREPROCESS_CONFIG})
    return folder


def write_transformers(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write a folder as ``save_pretrained`` does, with a ``clip`` or an ``xclip`` whose tokens are letters."""
    library = optional_packages.transformers()
    tokenizer = _tokenizer(folder, library)
    shape = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = shape | {"vocab_size": len(tokenizer), "max_position_embeddings": 77, "projection_dim": WIDTH}
    # CLIP pools at the end token, whose id it reads from the configuration.
    text |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    vision = shape | {"image_size": IMAGE_SIZE, "patch_size": 8, "projection_dim": WIDTH}
    torch.manual_seed(seed)
    image: dict[str, Any] = {
        "size": {"shortest_edge": IMAGE_SIZE},
        "crop_size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
    }
    if kind == "xclip":
        frames = {"mit_hidden_size": WIDTH, "mit_intermediate_size": 64, "num_frames": 8}
        frames |= {"mit_num_hidden_layers": 1, "mit_num_attention_heads": 2}
        config = library.XCLIPConfig(text_config=text, vision_config=vision | frames, projection_dim=WIDTH)
        library.XCLIPProcessor(library.VideoMAEImageProcessor(**image), tokenizer).save_pretrained(folder)
    else:
        config = library.CLIPConfig(text_config=text, vision_config=vision, projection_dim=WIDTH)
        library.CLIPProcessor(library.CLIPImageProcessor(**image), tokenizer).save_pretrained(folder)
    library.AutoModel.from_config(config).save_pretrained(folder)
    return folder


def _tokenizer(folder: Path, library: Any) -> Any:
    """CLIP's tokenizer with letters alone as its vocabulary: it has no merges, so no vocabulary must be fetched."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    write_json(folder / "vocab.json", {word: index for index, word in enumerate(words)})
    write_text(folder / "merges.txt", "#version: 0.2\n")
    return library.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)


def main(folder: Path) -> None:
    """Write all three models, except those that are there already."""
    if not (folder / "open_clip").is_dir():
        write_open_clip(folder / "open_clip")
    for kind in ("clip", "xclip"):
        if not (folder / kind).is_dir():
            write_transformers(folder / kind, kind)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
