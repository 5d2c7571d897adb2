"""A SigLIP reads captions in lower case and with their punctuation, as it was trained, whichever library loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_data import keys
from encoder_families import FAMILIES, LETTERS, T5, unigram_tokenizer
from rewind import optional_packages
from rewind.encoders.base import build_encoder
from rewind.encoders.caption_text import CLIP, SIGLIP, UNKNOWN, UNKNOWN_NOTE
from rewind.models.registry import build_backbone

CAPTION, LOWER, BARE = "A man, running!", "a man, running!", "a man running"


@pytest.fixture(autouse=True)
def offline(monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def open_clip_siglip(folder: Path) -> Path:
    """As open_clip publishes SigLIP 2: a tokenizer of transformers, from whose captions it removes punctuation."""
    import torch

    tokenizer = unigram_tokenizer(T5, prefix=False)
    text = {"context_length": 20, "vocab_size": len(tokenizer), "width": 32, "heads": 2, "layers": 2}
    text |= {"hf_tokenizer_name": "timm/ViT-B-16-SigLIP2", "tokenizer_kwargs": {"clean": "canonicalize"}}
    text |= {"no_causal_mask": True, "pool_type": "last", "pad_id": 0}
    vision = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16}
    config = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}
    model_keys = {name: text[name] for name in text if name not in ("hf_tokenizer_name", "tokenizer_kwargs")}
    folder.mkdir(parents=True)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = optional_packages.open_clip("model").CLIP(**config | {"text_cfg": model_keys})
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": preprocess}))
    return folder


def siglip_of_its_authors(folder: Path) -> Path:
    """SigLIP with the tokenizer that transformers has for it, of a SentencePiece model of letters."""
    sentencepiece, library = pytest.importorskip("sentencepiece"), optional_packages.transformers()
    folder.mkdir(parents=True)
    sentences = [" ".join(LETTERS), CAPTION, LOWER, "a b, c! d"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(folder / "spiece"), vocab_size=34, model_type="char",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, pad_piece="<pad>", minloglevel=2,
    )  # fmt: skip
    tokenizer = library.SiglipTokenizer(str(folder / "spiece.model"), model_max_length=24)
    from encoder_families import VISION, _image, of_t5

    config = library.SiglipConfig(text_config=of_t5() | {"vocab_size": len(tokenizer)}, vision_config=VISION)
    processor = library.SiglipProcessor(_image("SiglipImageProcessor"), tokenizer)
    processor.save_pretrained(folder)
    library.SiglipModel(config).save_pretrained(folder)
    return folder


CHECKPOINTS: dict[str, tuple[str, Any]] = {
    "SigLIP 2 of transformers": ("transformers", FAMILIES["siglip"]),  # model_type siglip, a tokenizer of Gemma's kind
    "SigLIP 2 NaFlex of transformers": ("transformers", FAMILIES["siglip2"]),
    "SigLIP 2 of sentence-transformers": ("sentence_transformers", FAMILIES["siglip"]),
    "SigLIP 2 of open_clip": ("open_clip", open_clip_siglip),
    "SigLIP of transformers": ("transformers", siglip_of_its_authors),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_siglip_reads_lower_case_with_punctuation(name: str, tmp_path: Path) -> None:
    library, write = CHECKPOINTS[name]
    encoder = build_encoder(keys(library, write(tmp_path / "model")))
    written, lower, bare = np.asarray(encoder.encode_texts([CAPTION, LOWER, BARE]))
    assert (written == lower).all(), "capitals are lost"
    assert not np.allclose(written, bare, atol=1e-4), "punctuation is kept"
    assert encoder.facts["caption_text"] == SIGLIP


@pytest.mark.parametrize("library", ["transformers", "open_clip"])
def test_towers_that_are_trained_read_the_same(library: str, tmp_path: Path) -> None:
    from rewind.config import Backbone, Text

    write = FAMILIES["siglip"] if library == "transformers" else open_clip_siglip
    folder = write(tmp_path / "model")
    name = str(folder) if library == "transformers" else f"local-dir:{folder}"
    towers = build_backbone(Backbone(kind="encoder", encoder=library, name=name), Text(), [])
    written, lower, bare = towers.prepare_text([CAPTION, LOWER, BARE])
    assert (written == lower).all() and not (written == bare).all()


@pytest.mark.parametrize("library", ["transformers", "sentence_transformers", "towers"])
def test_clip_reads_what_its_authors_mend(library: str, tmp_path: Path) -> None:
    from rewind.config import Backbone, Text

    folder = FAMILIES["clip"](tmp_path / "siglip_experiments")  # a name says nothing
    captions = ["A &amp;#98;oy ", "a boy", "a &#98;oy"]
    if library == "towers":
        towers = build_backbone(Backbone(kind="encoder", encoder="transformers", name=str(folder)), Text(), [])
        first, second, third = towers.prepare_text(captions)
    else:
        encoder = build_encoder(keys(library, folder))
        assert encoder.facts["caption_text"] == CLIP and UNKNOWN_NOTE not in encoder.notes
        first, second, third = np.asarray(encoder.encode_texts(captions))
    assert (first == second).all() and (second == third).all()


def test_of_a_family_that_was_not_compared_a_note_says_so(tmp_path: Path) -> None:
    folder = FAMILIES["altclip"](tmp_path / "model")
    for library in ("transformers", "sentence_transformers"):
        encoder = build_encoder(keys(library, folder))
        assert encoder.facts["caption_text"] == UNKNOWN and UNKNOWN_NOTE in encoder.notes
