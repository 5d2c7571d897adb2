"""Queries of a frame and a text: what each model is given of both, and what is encoded of one alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from encoder_data import NAMES, keys, moving, open_clip_folder, prepared
from messages import refusal
from rewind import optional_packages
from rewind.data.captions import load_split
from rewind.encoders import base
from rewind.encoders.base import Encoder, PairEncoder, build_encoder
from rewind.encoders.composed import MEAN_NOTE, NOTES, TOGETHER_NOTE
from rewind.encoders.encode_vectors import make_test_vectors
from rewind.io.files import read_csv, read_json, write_csv
from rewind.video.frames import middle_frame, open_frames
from video_llms import qwen3_vl

TEXTS = ("make it darker", "two of them", "make it darker")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Two queries say the same about different clips; a clip that is only shown, and one that is searched too."""
    folder = prepared(tmp_path_factory.mktemp("composed") / "tiny")
    items = read_csv(folder / "items.csv")
    items = items[(items["reversed"] == 0) & (items["status"] == "ok")]
    write_csv(folder / "items.csv", items.assign(split=["test", "test", "shown"]))
    rows = zip(("a", "b", "b"), ("c", "a", "a"), TEXTS, strict=True)
    captions = [(own, f"{shown} | {text}", f"{own}#{n}", shown, text) for n, (own, shown, text) in enumerate(rows)]
    columns = ["video_id", "caption", "caption_id", "shown_id", "query_text"]
    write_csv(folder / "captions/tiny_test.csv", pd.DataFrame(captions, columns=columns))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return open_clip_folder(tmp_path_factory.mktemp("models") / "tiny")


def made(data: Path, folder: Path, encoding) -> tuple[dict[str, np.ndarray], list[str]]:
    make_test_vectors(encoding, data, "tiny", folder, "code")
    with np.load(folder / "captions.npz", allow_pickle=False) as archive:
        found = dict(zip(archive["ids"].tolist(), archive["vectors"], strict=True))
    with np.load(folder / "items.npz", allow_pickle=False) as archive:
        assert archive["ids"].tolist() == ["a", "b"], "a clip that is only shown is not searched"
    return found, read_json(folder / "record.json")["notes"]


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_the_middle_frame_is_shown(data: Path) -> None:
    for name in NAMES:
        clip = data / f"videos/{name}.mp4"
        reader = open_frames(clip)
        assert (middle_frame(clip) == reader.read(np.array([len(reader) // 2]))[0]).all()


def test_of_two_towers_a_query_is_the_mean_of_unit_vectors_or_either_part(data: Path, model: Path, tmp_path) -> None:
    encoder = build_encoder(keys("open_clip", model))
    frames = [middle_frame(data / f"videos/{name}.mp4")[None] for name in ("c", "a", "a")]
    said, seen = unit(encoder.encode_texts(list(TEXTS))), unit(encoder.encode_clips(frames))
    expected = {"both": (said + seen) / 2, "text": said, "frame": seen}
    notes = NOTES | {"both": MEAN_NOTE}
    for parts, vectors in expected.items():
        found, told = made(data, tmp_path / parts, keys("open_clip", model, query=parts))
        given = np.stack([found[f"{own}#{n}"] for n, own in enumerate("abb")])
        np.testing.assert_allclose(unit(given), unit(vectors), atol=1e-6)
        assert notes[parts] in told
    assert len({keys("open_clip", model, query=parts).folder() for parts in expected}) == 3
    assert keys("open_clip", model, query="both").content() == keys("open_clip", model).content()


def test_another_clip_in_a_query_is_encoded_again(data: Path, model: Path, tmp_path) -> None:
    before, _ = made(data, tmp_path / "one", keys("open_clip", model))
    captions = read_csv(data / "captions/tiny_test.csv")
    changed = captions.assign(shown_id=["b", "a", "a"], caption=["b | make it darker", *captions["caption"][1:]])
    other = tmp_path / "data"
    for name in ("videos", "items.csv"):
        (other / name).parent.mkdir(exist_ok=True)
        (other / name).symlink_to(data / name)
    write_csv(other / "captions/tiny_test.csv", changed)
    after, _ = made(other, tmp_path / "two", keys("open_clip", model))
    same = {name: (before[name] == after[name]).all() for name in before}
    assert same == {"a#0": False, "b#1": True, "b#2": True}


def test_a_language_model_reads_both_in_one_message(tmp_path: Path) -> None:
    library, parts = optional_packages.sentence_transformers(), optional_packages.sentence_transformers("models")
    tower = parts.Transformer(str(qwen3_vl(tmp_path / "tower")))
    width = tower.model.config.text_config.hidden_size
    model = library.SentenceTransformer(modules=[tower, parts.Pooling(width, "lasttoken"), parts.Normalize()])
    model.save(str(tmp_path / "model"))
    encoder = build_encoder(keys("sentence_transformers", tmp_path / "model", batch_size=2))
    pictures, texts = [moving(1, seed)[0] for seed in range(3)], list(TEXTS)
    assert encoder.composes
    found = np.asarray(encoder.encode_composed(texts, pictures))
    own = [
        model.encode_query([{"image": Image.fromarray(picture), "text": text}])
        for picture, text in zip(pictures, texts, strict=True)
    ]
    np.testing.assert_allclose(found, np.concatenate(own), atol=1e-5)
    assert np.abs(found[0] - found[2]).max() > 1e-3, "the picture counts"
    other = np.asarray(encoder.encode_composed(["two of them", *texts[1:]], pictures))
    assert np.abs(found[0] - other[0]).max() > 1e-3, "the text counts"


class Composer(Encoder):
    """Of the user's own: reads both."""

    composes = True

    def encode_texts(self, texts):
        return np.ones((len(texts), 2), np.float32)

    def encode_clips(self, clips):
        return np.ones((len(clips), 2), np.float32)

    def encode_composed(self, texts, pictures):
        return np.array([[len(text), picture.mean()] for text, picture in zip(texts, pictures, strict=True)])


class Several(Encoder):
    """Of the user's own: several vectors of each."""

    def encode_texts(self, texts):
        return [np.ones((2, 3), np.float32) for _ in texts]

    encode_clips = encode_texts


class Plain:
    """Of the user's own, with nothing but what is needed."""

    def encode_texts(self, texts):
        return np.array([[len(text), 1.0] for text in texts])

    def encode_clips(self, clips):
        return np.array([[clip.mean(), 2.0] for clip in clips])

    notes, facts, packages = (), {}, ()


class Pairs(PairEncoder):
    def score(self, texts, clips):
        return np.zeros((len(texts), len(clips)), np.float32)


@pytest.fixture
def own(monkeypatch):
    def use(encoder):
        monkeypatch.setattr(base, "find_encoder", lambda name: lambda encoding: encoder)
        return keys("mine.module", "mine")

    return use


def test_encoders_of_the_users_own(data: Path, own, tmp_path: Path) -> None:
    found, told = made(data, tmp_path / "both", own(Composer()))
    frame = middle_frame(data / "videos/c.mp4")
    np.testing.assert_allclose(found["a#0"], [len(TEXTS[0]), frame.mean()], rtol=1e-6)
    assert TOGETHER_NOTE in told
    found, told = made(data, tmp_path / "mean", own(Plain()))
    expected = (unit(np.array([14, 1.0])) + unit(np.array([frame.mean(), 2.0]))) / 2
    np.testing.assert_allclose(found["a#0"], expected, rtol=1e-6)
    assert MEAN_NOTE in told


def test_what_has_no_mean_is_refused(data: Path, own, tmp_path: Path) -> None:
    with refusal("query: both"):
        made(data, tmp_path / "several", own(Several()))
    with refusal("name: mine"):
        made(data, tmp_path / "pairs", own(Pairs()))


def test_a_model_of_mteb_gets_picture_and_text_together(monkeypatch) -> None:
    pytest.importorskip("mteb")
    from rewind.encoders.mteb import Mteb

    seen = []

    class Model:
        def encode(self, loader, **more):
            seen.extend(loader)
            assert {"image", "text"} == set(loader.dataset.features) and str(more["prompt_type"]) == "query"
            return np.ones((len(loader.dataset), 2), np.float32)

    encoder = Mteb.__new__(Mteb)
    encoder.model, encoder.size, encoder.task = Model(), 2, None
    pictures = [moving(1, seed)[0] for seed in range(3)]
    assert encoder.encode_composed(list(TEXTS), pictures).shape == (3, 2)
    assert [text for batch in seen for text in batch["text"]] == list(TEXTS)
    shown = [np.asarray(picture) for batch in seen for picture in batch["image"]]
    assert all((one == other).all() for one, other in zip(shown, pictures, strict=True))


def test_the_split_keeps_what_queries_show(data: Path) -> None:
    captions = load_split(data, "tiny", "test").captions
    assert captions["query_text"].tolist() == list(TEXTS) and captions["caption"].nunique() == 3
