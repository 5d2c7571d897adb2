"""Embedders made of language models: a tower, its last token, unit length.

Qwen3-VL-Embedding is published so; GME and VLM2Vec-V2 are towers of Qwen2-VL's line with the same pooling.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_data import keys, moving
from rewind import optional_packages
from rewind.encoders.base import build_encoder
from video_llms import qwen2_5_vl, qwen3_vl

TEXTS = ["a cup", "a man opens a door, and goes out of the house"]
CLIPS = [moving(4), moving(4)[::-1], moving(4, seed=1)]


@pytest.fixture(scope="module", params=[qwen3_vl, qwen2_5_vl])
def folder(request, tmp_path_factory) -> Path:
    library, parts = optional_packages.sentence_transformers(), optional_packages.sentence_transformers("models")
    path = tmp_path_factory.mktemp("embedder")
    tower = parts.Transformer(str(request.param(path / "tower")))
    width = tower.model.config.text_config.hidden_size
    model = library.SentenceTransformer(modules=[tower, parts.Pooling(width, "lasttoken"), parts.Normalize()])
    model.save(str(path / "model"))
    return path / "model"


def encoded(folder: Path, **more: Any) -> np.ndarray:
    return np.asarray(build_encoder(keys("sentence_transformers", folder, **more)).encode_clips(CLIPS))


def test_vectors_are_those_that_the_library_gives(folder: Path) -> None:
    model = optional_packages.sentence_transformers().SentenceTransformer(str(folder), device="cpu")
    encoder = build_encoder(keys("sentence_transformers", folder, batch_size=2))
    told = {"fps": 1.0, "total_num_frames": 4, "duration": 4.0, "frames_indices": [0, 1, 2, 3]}
    inputs = [{"array": clip.transpose(0, 3, 1, 2).copy(), "video_metadata": told} for clip in CLIPS]
    own = np.concatenate([model.encode_document([each]) for each in inputs])
    np.testing.assert_allclose(encoder.encode_clips(CLIPS), own, atol=1e-5)
    own = np.concatenate([model.encode_query([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), own, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1, atol=1e-5)


def test_all_frames_count_in_their_order_whatever_the_batch(folder: Path) -> None:
    vectors = encoded(folder, batch_size=3)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3, "a clip and its twin"
    np.testing.assert_allclose(vectors, encoded(folder, batch_size=1), atol=1e-5)
    changed = CLIPS[0].copy()
    for place in range(4):
        changed[place] = 255 - changed[place]
        other = build_encoder(keys("sentence_transformers", folder)).encode_clips([changed])
        assert np.abs(other - vectors[:1]).max() > 1e-3, "no frame is left out"
        changed[place] = CLIPS[0][place]
