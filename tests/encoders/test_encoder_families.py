"""Every family of transformers: a caption's batch does not matter, and a pair's score is the library's own."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from encoder_data import OPEN_CLIP, SQUASH, keys, moving, prepared
from encoder_families import CAPTIONS, CONTEXT, FAMILIES, FRAMES, T5, unigram_tokenizer
from messages import refusal
from rewind import optional_packages
from rewind.config.methods import VectorOptions
from rewind.data.annotations import twin_rows
from rewind.data.captions import load_split
from rewind.distributed import SINGLE_PROCESS
from rewind.encoders import encode_vectors as job
from rewind.encoders import frames, padding, transformers
from rewind.encoders import score_candidates as score_candidates_module
from rewind.encoders.base import build_encoder, check_encoder
from rewind.encoders.encode_vectors import make_test_vectors
from rewind.encoders.frames import read_clip
from rewind.encoders.score_candidates import PairScorer, score_candidates
from rewind.io.files import read_json
from rewind.models.precomputed import load_precomputed

SCORELESS = ("flava", "blip2")
VIDEO = ("xclip", "videoprism")
SCORED = [name for name in FAMILIES if name not in SCORELESS]
WHOLE = {"siglip": CONTEXT, "siglip2": 64, "align": 64, "owlvit": CONTEXT, "owlv2": CONTEXT}
WHOLE |= {"tipsv2": 64, "videoprism": 64}
"""Families whose captions are filled up to a fixed length, by their documentation, and that length here."""


@pytest.fixture(autouse=True)
def offline(monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A folder of a family, written when it is first asked for."""
    if not optional_packages.is_installed("transformers"):
        pytest.skip("transformers is not installed")
    root = tmp_path_factory.mktemp("families")

    def folder(name: str) -> Path:
        return root / name if (root / name).is_dir() else FAMILIES[name](root / name)

    return folder


def clips_of(name: str) -> list[np.ndarray]:
    return [moving(FRAMES if name in VIDEO else 1, seed) for seed in range(3)]


def scores(encoder: Any, size: int, clips: list[np.ndarray]) -> np.ndarray:
    """Scores (captions, clips) with captions in batches of a size."""
    encoder.size = size
    if getattr(encoder, "pairs", False):
        found = np.concatenate([encoder.score(some, clips) for some in frames.batched(CAPTIONS, size)])
        return found / encoder.model.logit_scale.exp().item()
    text = np.concatenate([encoder.encode_texts(some) for some in frames.batched(CAPTIONS, size)])
    return frames.l2_normalise(text) @ frames.l2_normalise(encoder.encode_clips(clips)).T


@pytest.mark.parametrize("kind", ["transformers", "sentence_transformers"])
@pytest.mark.parametrize("name", SCORED)
def test_no_score_depends_on_what_else_is_in_its_batch(family, kind: str, name: str) -> None:
    if kind == "sentence_transformers" and not optional_packages.is_installed(kind):
        pytest.skip(f"{kind} is not installed")
    if (kind, name) == ("sentence_transformers", "xclip"):
        pytest.skip("sentence-transformers sees X-CLIP's text tower alone, and refuses it")
    clips = clips_of(name)
    encoder = build_encoder(keys(kind, family(name)))
    alone, eights, all_of_them = (scores(encoder, size, clips) for size in (1, 8, 32))
    assert len(np.unique(alone.round(4))) > len(alone), "the captions' scores differ"
    np.testing.assert_allclose(eights, alone, rtol=0, atol=1e-6)
    np.testing.assert_allclose(all_of_them, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["siglip", "siglip2", "aimv2"])
def test_both_libraries_give_one_score(family, name: str) -> None:
    if not optional_packages.is_installed("sentence_transformers"):
        pytest.skip("sentence_transformers is not installed")
    one, other = (build_encoder(keys(kind, family(name))) for kind in ("transformers", "sentence_transformers"))
    np.testing.assert_allclose(
        frames.l2_normalise(one.encode_texts(CAPTIONS)),
        frames.l2_normalise(other.encode_texts(CAPTIONS)),
        rtol=0,
        atol=1e-6,
    )
    assert one.facts["captions"] == other.facts["captions"]


def own_logits(folder: Path, name: str, clips: list[np.ndarray]) -> np.ndarray:
    """Scores (captions, clips) that the library gives when it is called as its documentation says."""
    library = optional_packages.transformers()
    model, processor = library.AutoModel.from_pretrained(folder).eval(), library.AutoProcessor.from_pretrained(folder)
    filled = {"padding": "max_length", "max_length": WHOLE[name]} if name in WHOLE else {"padding": True}
    text = processor(text=list(CAPTIONS), truncation=True, **filled | {"return_tensors": "pt"})
    if name in WHOLE:
        assert text["input_ids"].shape[1] == WHOLE[name]
    pictures = [[Image.fromarray(frame) for frame in clip] for clip in clips]
    if name == "videoprism":
        pixels = processor(videos=pictures, return_tensors="pt", do_sample_frames=False)
    elif name in VIDEO:
        pixels = processor(videos=pictures, return_tensors="pt")
    else:
        pixels = processor(images=[one for (one,) in pictures], return_tensors="pt")
    with torch.inference_mode():
        output = model(**{**text, **pixels})
    return output.logits_per_text.double().numpy()


@pytest.mark.parametrize("name", SCORED)
def test_the_score_of_a_pair_is_the_librarys_own(family, name: str) -> None:
    clips, folder = clips_of(name), family(name)
    found, own = scores(build_encoder(keys("transformers", folder)), 8, clips), own_logits(folder, name, clips)
    if name == "videoprism":  # a softmax over captions
        np.testing.assert_allclose(np.exp(found) / np.exp(found).sum(axis=0), own, rtol=0, atol=1e-6)
        return
    design = np.stack([found.ravel(), np.ones(found.size)], axis=1)
    (scale, bias), *_ = np.linalg.lstsq(design, own.ravel(), rcond=None)
    assert scale > 0 and found.std() > 1e-3
    np.testing.assert_allclose(found, (own - bias) / scale, rtol=0, atol=1e-5)


# What has no score of its own


@pytest.mark.parametrize("kind", ["transformers", "sentence_transformers"])
@pytest.mark.parametrize("name", ["flava", "blip2"])
def test_a_family_without_a_score_is_refused_before_the_first_job(family, kind: str, name: str) -> None:
    if not optional_packages.is_installed(kind):
        pytest.skip(f"{kind} is not installed")
    for refuse in (check_encoder, build_encoder):
        with refusal(f"name: {name}"):
            refuse(keys(kind, family(name)))


@pytest.mark.parametrize("kind", ["transformers", "sentence_transformers"])
@pytest.mark.parametrize("name", SCORELESS)
def test_a_family_that_nobody_listed_is_found_out_by_its_forward(family, monkeypatch, kind: str, name: str) -> None:
    if not optional_packages.is_installed(kind):
        pytest.skip(f"{kind} is not installed")
    monkeypatch.setattr(transformers, "FAMILIES_WITHOUT_SCORE", {})
    with refusal(f"name: {name}"):
        build_encoder(keys(kind, family(name)))


def test_vectors_that_are_not_the_models_score_are_refused(family, monkeypatch) -> None:
    kind = optional_packages.transformers().GroupViTModel  # whose forward does not call it
    given = kind.get_text_features

    @functools.wraps(given)
    def other(self: Any, *arguments: Any, **more: Any) -> Any:
        output = given(self, *arguments, **more)
        output.pooler_output = output.pooler_output.roll(1, dims=-1)
        return output

    monkeypatch.setattr(kind, "get_text_features", other)
    with refusal("name: groupvit"):
        build_encoder(keys("transformers", family("groupvit")))
    if optional_packages.is_installed("sentence_transformers"):
        with refusal("name: groupvit"):
            build_encoder(keys("sentence_transformers", family("groupvit")))


def test_weights_of_another_class_are_refused(tmp_path: Path) -> None:
    library = optional_packages.transformers()
    FAMILIES["blip"](tmp_path)
    config = library.AutoConfig.from_pretrained(tmp_path)
    library.BlipForImageTextRetrieval(config).save_pretrained(tmp_path)
    for kind in ("transformers", "sentence_transformers"):
        if optional_packages.is_installed(kind):
            with refusal("name: "):
                build_encoder(keys(kind, tmp_path))


def test_weights_that_change_no_score_may_be_missing(family, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(family("clip"), tmp_path / "clip")
    weights = load_file(tmp_path / "clip/model.safetensors")
    for lacking, harmless in (("logit_scale", True), ("text_projection.weight", False)):
        save_file(
            {n: v for n, v in weights.items() if n != lacking}, tmp_path / "clip/model.safetensors", {"format": "pt"}
        )
        for kind in ("transformers", "sentence_transformers"):
            if harmless and optional_packages.is_installed(kind):
                build_encoder(keys(kind, tmp_path / "clip"))
            elif optional_packages.is_installed(kind):
                with refusal("name: clip") as caught:
                    build_encoder(keys(kind, tmp_path / "clip"))
                assert lacking in str(caught.value)


def test_a_model_that_needs_the_whole_batch_is_refused(family, monkeypatch) -> None:
    kind = optional_packages.transformers().CLIPModel
    given = kind.get_text_features

    @functools.wraps(given)
    def centred(self: Any, *arguments: Any, **more: Any) -> Any:
        output = given(self, *arguments, **more)
        output.pooler_output = output.pooler_output - 0.5 * output.pooler_output.mean(dim=0)
        return output

    monkeypatch.setattr(kind, "get_text_features", centred)
    with refusal("name: clip", varying=r"0\.\d+"):
        build_encoder(keys("transformers", family("clip")))


def test_the_context_is_what_the_family_reads(family) -> None:
    library = optional_packages.transformers()
    expected = {"clip": CONTEXT, "siglip": CONTEXT, "siglip2": 64, "align": 64, "altclip": CONTEXT}
    for name, length in expected.items():
        model, processor = (kind.from_pretrained(family(name)) for kind in (library.AutoModel, library.AutoProcessor))
        found = padding.declared_padding(model, processor)
        assert found["max_length"] == length, name
        assert (found["padding"] == "max_length") == (name in WHOLE), name
    processor.tokenizer.model_max_length = 10**30  # a tokenizer that names no context; AltCLIP's places begin at 2
    assert padding.declared_padding(model, processor)["max_length"] == CONTEXT


def test_a_tokenizer_of_open_clip_fills_its_context_up(tmp_path: Path) -> None:
    """SigLIP's text tower of open_clip: no mask, the last token is pooled."""
    text = OPEN_CLIP["text_cfg"] | {"hf_tokenizer_name": "timm/ViT-B-16-SigLIP", "context_length": CONTEXT}
    text |= {"vocab_size": 64, "no_causal_mask": True, "pool_type": "last", "proj_bias": True}
    text |= {"tokenizer_kwargs": {"clean": "canonicalize"}}
    config = OPEN_CLIP | {"text_cfg": text}
    torch.manual_seed(0)
    torch.save(
        optional_packages.open_clip("model").CLIP(**config).state_dict(), tmp_path / "open_clip_pytorch_model.bin"
    )
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": SQUASH}))
    unigram_tokenizer(T5, prefix=False).save_pretrained(tmp_path)
    encoder = build_encoder(keys("open_clip", tmp_path))
    clips = clips_of("clip")
    alone, eights, all_of_them = (scores(encoder, size, clips) for size in (1, 8, 32))
    np.testing.assert_allclose(eights, alone, rtol=0, atol=1e-6)
    np.testing.assert_allclose(all_of_them, alone, rtol=0, atol=1e-6)


def test_mteb_is_refused_where_it_leaves_out_what_the_clip_adds() -> None:
    if not optional_packages.is_installed("mteb"):
        pytest.skip("mteb is not installed")
    with refusal("name: microsoft/xclip-base-patch32"):
        check_encoder(keys("mteb", "microsoft/xclip-base-patch32"))


# Pairs


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return prepared(tmp_path_factory.mktemp("pairs") / "tiny")


def loaded(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "captions.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def test_pairs_are_scored_in_blocks_as_one_by_one(family, data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(job, "CLIPS_PER_SHARD", 2)
    monkeypatch.setattr("rewind.encoders.transformers.CAPTION_BATCH_FACTOR", 1)
    found = []
    for size in (2, 7):
        make_test_vectors(
            keys("transformers", family("xclip"), batch_size=size), data, "tiny", tmp_path / str(size), "code"
        )
        found.append(loaded(tmp_path / str(size)))
    np.testing.assert_allclose(found[0]["similarity"], found[1]["similarity"], rtol=0, atol=1e-5)
    record = read_json(tmp_path / "2/record.json")
    assert record["pairs"] is True and record["width"] is None and record["mirrored"] == record["twins"] == 3
    assert any("own forward" in note for note in record["notes"]) and record["notes"][0].startswith("scores of")
    assert record["facts"]["captions"]["max_length"] == CONTEXT
    made = VectorOptions(captions=str(tmp_path / "2/captions.npz"), items=str(tmp_path / "2/items.npz"))
    from rewind.models import precomputed

    assert type(precomputed.load_precomputed(made)).__name__ == "PrecomputedScores"
    with refusal("methods.*.options.score"):
        precomputed.load_precomputed(made.model_copy(update={"score": "dot"}))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_clip_without_direction_ties_with_its_mirror_in_every_batch(
    family, data: Path, tmp_path: Path, monkeypatch, size: int
) -> None:
    def symmetric(clip, keys):
        frames = read_clip(clip, keys)
        return np.maximum(frames, frames[::-1])

    monkeypatch.setattr("rewind.encoders.frames.read_clip", symmetric)
    encoding = keys("transformers", family("xclip"), batch_size=size)
    make_test_vectors(encoding, data, "tiny", tmp_path / "all", "code")
    whole, split = loaded(tmp_path / "all"), load_split(data, "tiny", "test")
    twins = twin_rows(whole["item_ids"].tolist())
    assert (twins >= 0).all() and np.array_equal(whole["similarity"], whole["similarity"][:, twins])
    rows, columns = (part.ravel() for part in np.indices((3, len(twins))))
    scorer = PairScorer(encoding.model_copy(update={"scored_pairs": "candidates"}), tmp_path / "state", "code")
    captions = split.captions["caption"].tolist()
    found, _ = score_candidates(scorer, data, split.items, captions, rows, columns, SINGLE_PROCESS)
    assert np.array_equal(found.reshape(3, -1), found.reshape(3, -1)[:, twins])


OWN = """
import numpy as np

class Pairs:
    pairs = True
    notes = ["counts letters"]
    facts, packages = {}, ()
    def score(self, texts, clips):
        return np.array([[len(text) * clip[0].mean() for clip in clips] for text in texts])

def build(encoding):
    return Pairs()
"""


def test_an_encoder_of_the_users_own_may_score_pairs(data: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/pairs.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    make_test_vectors(keys("own.pairs", "x"), data, "tiny", tmp_path / "out", "code")
    found = loaded(tmp_path / "out")
    assert found["similarity"].shape == (6, 6) and np.linalg.matrix_rank(found["similarity"]) == 1
    with refusal("frames: model"):
        build_encoder(keys("own.pairs", "x", frames="model"))
    with refusal("model"):
        job.shards.make_score_shard(["a"], ["b"], [np.zeros((2, 1))], "model")
    with refusal("model"):
        job.shards.make_score_shard(["a"], ["b"], [np.full((1, 1), np.nan)], "model")


def test_scores_of_other_captions_are_made_again(family, data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(job, "_join_shards", lambda *_: None)  # the state stays
    encoding, written = keys("transformers", family("xclip")), []
    write = job.shards.write_shard
    monkeypatch.setattr(job.shards, "write_shard", lambda path, *rest: (written.append(path.name), write(path, *rest)))
    make_test_vectors(encoding, data, "tiny", tmp_path, "code")
    make_test_vectors(encoding, data, "tiny", tmp_path, "code")
    assert written == ["captions-00000.npz", "items-00000.npz"]
    captions = data / "captions/tiny_test.csv"
    before = captions.read_text()
    captions.write_text(before.replace("two circles", "three circles"))
    try:
        make_test_vectors(encoding, data, "tiny", tmp_path, "code")
    finally:
        captions.write_text(before)
    assert written[2:] == ["captions-00000.npz", "items-00000.npz"]


def test_who_needs_vectors_is_refused_by_a_model_that_scores_pairs(family) -> None:
    encoder = build_encoder(keys("transformers", family("xclip")))
    for refuse in (lambda: encoder.encode_texts(["a dog"]), lambda: encoder.encode_clips([moving(FRAMES)])):
        with refusal("name: xclip"):
            refuse()


def test_disagreement_is_in_cosines() -> None:
    random = np.random.default_rng(0)
    cosines = random.uniform(-1, 1, (3, 4))
    assert transformers.score_disagreement(cosines, 30 * cosines - 7) < 1e-9
    assert transformers.score_disagreement(cosines, -cosines) == float("inf")
    for axis in (0, 1):
        shares = np.exp(5 * cosines) / np.exp(5 * cosines).sum(axis=axis, keepdims=True)
        assert transformers.score_disagreement(cosines, shares) < 1e-9
    other = cosines.copy()
    other[0, 0] += 0.3
    assert transformers.score_disagreement(cosines, 30 * other) > 0.05


def _pairs_of(scored_pairs: str, model: Path, **more: Any):
    return keys("transformers", model, **more).model_copy(update={"scored_pairs": scored_pairs})


@pytest.mark.parametrize("size", [1, 4])
def test_chosen_pairs_have_the_scores_of_all_pairs(family, data: Path, tmp_path: Path, size: int) -> None:
    make_test_vectors(_pairs_of("all", family("xclip")), data, "tiny", tmp_path / "all", "code")
    split, whole = load_split(data, "tiny", "test"), loaded(tmp_path / "all")["similarity"]
    rows, columns = np.array([5, 0, 0, 3, 2, 5]), np.array([1, 0, 3, 3, 0, 1])  # equal captions, a pair twice
    scorer = PairScorer(_pairs_of("candidates", family("xclip"), batch_size=size), tmp_path / "state", "code")
    captions = split.captions["caption"].tolist()
    what = scorer, data, split.items, captions, rows, columns
    found, notes = score_candidates(*what, SINGLE_PROCESS)
    np.testing.assert_allclose(found[:, 0], whole[rows, columns], rtol=0, atol=1e-5)
    assert notes == [] and found[0] == found[5]

    # A shard of other pairs is made again.
    fewer, _ = score_candidates(scorer, data, split.items, captions, rows[1:3], columns[1:3], SINGLE_PROCESS)
    np.testing.assert_allclose(fewer, found[1:3], rtol=0, atol=1e-5)


def test_a_killed_job_scores_no_shard_of_pairs_again(family, data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(score_candidates_module, "FAMILIES_PER_SHARD", 1)
    scorer = PairScorer(_pairs_of("candidates", family("xclip")), tmp_path, "code")
    split = load_split(data, "tiny", "test")
    rows, columns = (part.ravel() for part in np.indices((len(split.captions), len(split.items))))
    what = scorer, data, split.items, split.captions["caption"].tolist(), rows, columns, SINGLE_PROCESS
    whole, _ = score_candidates(*what)
    parts = sorted(tmp_path.glob("pairs-*.npz"))
    assert [path.name for path in parts] == ["pairs-00000.npz", "pairs-00001.npz", "pairs-00002.npz"]
    parts[1].write_bytes(parts[1].read_bytes()[:50])  # as damaged
    times = {path.name: path.stat().st_mtime_ns for path in parts}
    again, _ = score_candidates(*what)
    made = [path.name for path in parts if path.stat().st_mtime_ns != times[path.name]]
    assert made == ["pairs-00001.npz"] and (again == whole).all()


def test_before_its_pairs_are_known_such_a_model_has_ids_alone(family, data: Path, tmp_path: Path) -> None:
    make_test_vectors(_pairs_of("candidates", family("xclip")), data, "tiny", tmp_path, "code")
    assert sorted(loaded(tmp_path)) == ["item_ids", "query_ids"]
    record = read_json(tmp_path / "record.json")
    assert record["pairs"] is True and record["captions"] == 6 and record["seconds"]["items"] == 0
    assert any("own forward" in note for note in record["notes"])
    made = VectorOptions(captions=str(tmp_path / "captions.npz"), items=str(tmp_path / "items.npz"))
    model = load_precomputed(made)
    assert type(model).__name__ == "UnscoredPairs" and len(model.known_items()) == 6
    with refusal(str(tmp_path / "captions.npz")):
        model.from_captions(pd.DataFrame({"item_id": ["nobody"]}), pd.DataFrame({"caption_id": []}))


def test_a_model_with_vectors_makes_them_whoever_asks(family, data: Path, tmp_path: Path) -> None:
    for scored_pairs in ("all", "candidates"):
        encoding = _pairs_of(scored_pairs, family("clip"))
        make_test_vectors(encoding, data, "tiny", tmp_path / scored_pairs, "code")
    assert (loaded(tmp_path / "all")["vectors"] == loaded(tmp_path / "candidates")["vectors"]).all()
    with refusal("name: clip", varying=r"/\S+/(?=clip)"):
        split, scorer = load_split(data, "tiny", "test"), PairScorer(encoding, tmp_path / "state", "code")
        score_candidates(scorer, data, split.items, ["a"], np.array([0]), np.array([0]), SINGLE_PROCESS)


@pytest.mark.parametrize(("scores", "message"), [("np.zeros((9, 9))", "shape"), ("np.full(shape, np.nan)", "finite")])
def test_wrong_scores_of_chosen_pairs_are_refused(data: Path, tmp_path: Path, monkeypatch, scores, message) -> None:
    (tmp_path / message).mkdir()
    body = f"shape = (len(texts), len(clips)); return {scores}"
    module = "import numpy as np\nclass Pairs:\n    pairs, notes, facts, packages = True, (), {}, ()\n"
    module += f"    def score(self, texts, clips):\n        {body}\n"
    (tmp_path / message / "broken.py").write_text(module + "\ndef build(encoding):\n    return Pairs()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    encoding = keys(f"{message}.broken", "x").model_copy(update={"scored_pairs": "candidates"})
    split, scorer = load_split(data, "tiny", "test"), PairScorer(encoding, tmp_path / "state", "code")
    with refusal("x"):
        score_candidates(scorer, data, split.items, ["a"], np.array([0]), np.array([0]), SINGLE_PROCESS)
