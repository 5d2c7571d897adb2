"""Each encoder on tiny models from disk: what it gives, what it is blind to, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from encoder_data import OPEN_CLIP, SQUASH, keys, moving, open_clip_folder
from messages import refusal
from rewind import optional_packages
from rewind.encoders import base, frames
from rewind.encoders.base import build_encoder, check_encoder
from rewind.encoders.tiny import write_transformers
from rewind.errors import RewindError
from rewind.video.frames import resampled_indices

TEXTS = ["a dog runs to the left", "a cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return open_clip_folder(tmp_path_factory.mktemp("open_clip") / "tiny")


@pytest.fixture(autouse=True)
def offline(monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def refused(encoding, *words: str) -> None:
    with pytest.raises(RewindError) as error:
        check_encoder(encoding)
    text = str(error.value)
    assert all(word in text for word in words), text
    assert text.endswith((".", "?")) and "\n" not in text


# The mean over frames


def test_a_mean_is_blind_to_order_whatever_the_batch() -> None:
    clip = moving(7)
    random = np.random.default_rng(0).normal(size=(40 * 60 * 3, 5)).astype(np.float32)
    batches = []

    def encode(pictures):
        batches.append(len(pictures))
        rows = np.stack([picture.reshape(-1) @ random for picture in pictures])
        return rows * (1 + 1e-6 * np.arange(len(rows))[:, None])  # a batch's rounding depends on the place in it

    found = frames.mean_frame_features([clip, clip[::-1], clip[:3]], encode, 4)
    assert batches == [4, 3], "each picture is encoded once"
    assert (found[0] == found[1]).all() and not (found[0] == found[2]).all()
    rows = np.stack([picture.reshape(-1) @ random for picture in clip]).astype(np.float64)
    expected = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_frames_are_repeated_or_dropped_symmetrically(length: int, count: int) -> None:
    clip = np.arange(length)
    index = resampled_indices(length, count)
    forward, backward = clip[index], clip[::-1][index]
    assert len(forward) == count and (forward == backward[::-1]).all() and (np.diff(forward) >= 0).all()
    if count == length:
        assert (forward == clip).all()


# open_clip


def test_open_clip_gives_what_open_clip_gives(folder: Path) -> None:
    encoder, library = build_encoder(keys("open_clip", folder, batch_size=3)), optional_packages.open_clip()
    model, preprocess = library.create_model_from_pretrained(f"local-dir:{folder}")
    tokens = library.get_tokenizer(f"local-dir:{folder}")(TEXTS)
    picture = moving(1)[0]
    with torch.inference_mode():
        text = model.encode_text(tokens, normalize=True).numpy()
        image = model.encode_image(preprocess(Image.fromarray(picture))[None], normalize=True).numpy()
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), text, atol=1e-6)
    np.testing.assert_allclose(encoder.encode_clips([picture[None]]), image, atol=1e-6)
    assert list(encoder.facts["preprocess"]["mean"]) == SQUASH["mean"] and tokens.shape[1] == encoder.facts["context"]


def test_random_weights_are_seeded_and_said() -> None:
    name, options = "RN50", {"untrained": True, "seed": 3}
    assert "never trained" in build_encoder(keys("open_clip", name, encoder_options=options)).notes[1]


def test_a_folder_without_weights_is_refused_and_random_ones_are_seeded(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "open_clip_config.json").write_bytes((folder / "open_clip_config.json").read_bytes())
    refused(keys("open_clip", tmp_path), "has no weights", str(tmp_path))
    found = [
        build_encoder(keys("open_clip", tmp_path, encoder_options={"untrained": True, "seed": seed})).encode_texts(
            TEXTS
        )
        for seed in (1, 1, 2)
    ]
    assert (found[0] == found[1]).all() and not np.allclose(found[0], found[2])


def test_a_weights_file_of_an_architecture_has_its_own_preprocessing(tmp_path: Path, monkeypatch) -> None:
    library = optional_packages.open_clip()
    # Other tests of this process find open_clip's architectures as they were.
    for name in ("_MODEL_CONFIGS", "_MODEL_CONFIG_PATHS"):
        monkeypatch.setattr(library.factory, name, getattr(library.factory, name).copy())
    path = tmp_path / "tiny-enc.json"
    path.write_text(json.dumps(OPEN_CLIP))
    library.add_model_config(path)
    weights = tmp_path / "weights.pt"
    torch.save(library.create_model("tiny-enc").state_dict(), weights)
    given = {"pretrained": str(weights), "preprocess": SQUASH}
    encoder = build_encoder(keys("open_clip", "tiny-enc", encoder_options=given))
    assert tuple(encoder.facts["preprocess"]["mean"]) == tuple(SQUASH["mean"])
    assert encoder.facts["preprocess"]["resize_mode"] == "squash"
    weights.write_bytes(b"no weights")
    with refusal("name: tiny-enc"):
        build_encoder(keys("open_clip", "tiny-enc", encoder_options=given))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ViT-B-16-SigLP", {"untrained": True}, ["did you mean ViT-B-16-SigLIP"]),
        ("ViT-B-32", {}, ["name the weights of ViT-B-32", "laion2b_s34b_b79k"]),
        ("ViT-B-32", {"pretrained": "laion2b"}, ["neither a tag", "laion2b_e16"]),
        ("ViT-B-32", {"pretrained": "openai"}, ["QuickGELU", "ViT-B-32-quickgelu"]),
        ("ViT-B-32-quickgelu", {"pretrained": "openai"}, ["HF_HUB_OFFLINE", "timm/vit_base_patch32_clip_224.openai"]),
        ("PE-Core-B-16", {"pretrained": __file__}, ["encoder_options.preprocess", "squash", "meta"]),
        ("ViT-B-32", {"pretrained": __file__}, ["encoder_options.quick_gelu"]),
        ("ViT-B-32", {"pretrained": "openai", "untrained": True}, ["keep only one"]),
        ("ViT-B-32", {"untraind": True}, ["no such option", "untrained"]),
        ("/nowhere/model", {}, ["/nowhere/model", "no such folder"]),
        ("owner/model", {}, ["HF_HUB_OFFLINE", "owner/model/open_clip_model.safetensors"]),
    ],
)
def test_open_clip_refuses_before_the_first_job(name: str, options: dict, words: list[str]) -> None:
    refused(keys("open_clip", name, encoder_options=options), *words)


def test_what_is_no_encoder_is_refused() -> None:
    refused(keys("no_such", "x"), "no_such")
    refused(keys("rewind.encoders.base", "x"), "build")
    refused(keys("open_clip", "RN50", frames="model", encoder_options={"untrained": True}), "frames: model")


# transformers


def needs(package: str) -> None:
    if not optional_packages.is_installed(package):
        pytest.skip(f"{package} is not installed")


def test_an_absent_package_is_named_with_its_command(monkeypatch) -> None:
    monkeypatch.setattr(optional_packages, "is_installed", lambda package: False)
    for encoder, extra in (("transformers",) * 2, ("sentence_transformers", "sentence-transformers"), ("mteb",) * 2):
        refused(keys(encoder, "owner/model"), f"pip install 'rewind-bench[{extra}]'")
    refused(keys("open_clip", "ViT-B-16-SigLIP", encoder_options={"pretrained": "webli"}), "rewind-bench[transformers]")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> dict[str, Path]:
    """CLIP, SigLIP and X-CLIP of transformers with random weights, with CLIP's tokens."""
    needs("transformers")
    library, made = optional_packages.transformers(), {}
    root = tmp_path_factory.mktemp("transformers")
    tokenizer = _tokenizer(root / "tokenizer")
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text |= {"max_position_embeddings": 16, "vocab_size": len(tokenizer), "projection_dim": 16}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 32, "patch_size": 16, "projection_dim": 16}
    mit = {"mit_hidden_size": 16, "mit_intermediate_size": 32, "mit_num_hidden_layers": 1, "mit_num_attention_heads": 2}
    configs = {
        "clip": library.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16),
        "siglip": library.SiglipConfig(text_config=text, vision_config=vision),
        "xclip": library.XCLIPConfig(
            text_config=text, vision_config=vision | mit | {"num_frames": 4}, projection_dim=16
        ),
    }
    image = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    for name, config in configs.items():
        torch.manual_seed(0)
        folder = root / name
        library.AutoModel.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if name == "xclip":
            processor = library.XCLIPProcessor(library.VideoMAEImageProcessor(**image), tokenizer)
            processor.save_pretrained(folder)
        elif name == "siglip":
            library.SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
        else:
            library.CLIPImageProcessor(**image).save_pretrained(folder)
        made[name] = folder
    return made


def _tokenizer(folder: Path):
    """CLIP's tokenizer with letters alone as its vocabulary."""
    folder.mkdir()
    letters = [chr(code) for code in range(97, 123)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return optional_packages.transformers().CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=16
    )


def test_a_folder_of_open_clip_with_a_tokenizer_of_another_library(folder: Path, tiny: dict, tmp_path: Path) -> None:
    config = OPEN_CLIP | {"text_cfg": OPEN_CLIP["text_cfg"] | {"hf_tokenizer_name": "timm/ViT-B-16-SigLIP"}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": SQUASH}))
    (tmp_path / "open_clip_pytorch_model.bin").write_bytes((folder / "open_clip_pytorch_model.bin").read_bytes())
    refused(keys("open_clip", tmp_path), "has no tokenizer", "timm/ViT-B-16-SigLIP")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny["clip"] / name).read_bytes())
    encoder = build_encoder(keys("open_clip", tmp_path))
    assert encoder.tokenizer(["a dog"])[0, :6].tolist() == [0, 28, 5, 16, 34, 1], "the folder's own words"
    assert encoder.encode_texts(TEXTS).shape == (2, 16) and encoder.cut(["a " * 30, "a"]) == 1


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_transformers_averages_pictures(tiny: dict[str, Path], name: str) -> None:
    encoder = build_encoder(keys("transformers", tiny[name], batch_size=3))
    clip = moving(4)
    found = encoder.encode_clips([clip, clip[::-1], moving(4, 1)])
    assert (found[0] == found[1]).all() and not np.allclose(found[0], found[2])
    text = encoder.encode_texts(["a dog", "a very long caption that goes on and on and on", "a dog"])
    assert text.shape == (3, found.shape[1]) and np.isfinite(text).all()
    np.testing.assert_allclose(text[0], text[2], atol=1e-5)
    np.testing.assert_allclose(encoder.encode_texts(["a dog"])[0], text[0], atol=1e-5)
    assert encoder.cut(["a dog", "a very long caption that goes on and on and on"]) == 1, "16 tokens, mostly letters"
    assert encoder.notes == [frames.FRAMES_AVERAGED_NOTE]


def test_x_clip_tells_a_clip_from_its_twin(tiny: dict[str, Path]) -> None:
    encoder = build_encoder(keys("transformers", tiny["xclip"]))
    clip, short = moving(4), moving(2, 1)
    found = encoder.score(TEXTS, [clip, clip[::-1], short])
    assert found.shape == (2, 3) and np.abs(found[:, 0] - found[:, 1]).max() > 1e-4
    np.testing.assert_allclose(encoder.score(TEXTS, [clip])[:, 0], found[:, 0], atol=1e-5)
    assert "together" in encoder.notes[0]
    refused(keys("transformers", tiny["xclip"], max_frames=6), "exactly 4 frames", "max_frames: 4")


def test_transformers_refuses_what_is_not_there(tiny: dict[str, Path], tmp_path: Path) -> None:
    refused(keys("transformers", "owner/model"), "HF_HUB_OFFLINE", "owner/model/config.json")
    refused(keys("transformers", tmp_path), "config.json", "no such file")
    (tmp_path / "config.json").write_bytes((tiny["clip"] / "config.json").read_bytes())
    refused(keys("transformers", tmp_path), "has no weights")


# sentence-transformers


def test_sentence_transformers_averages_pictures(tiny: dict[str, Path]) -> None:
    needs("sentence_transformers")
    encoder = build_encoder(keys("sentence_transformers", tiny["clip"], batch_size=3))
    clip = moving(4)
    found = encoder.encode_clips([clip, clip[::-1], moving(4, 1)])
    assert (found[0] == found[1]).all() and not np.allclose(found[0], found[2])
    assert encoder.encode_texts(TEXTS).shape == (2, found.shape[1])
    other = build_encoder(keys("transformers", tiny["clip"])).encode_clips([clip])
    np.testing.assert_allclose(found[:1], other, atol=1e-4)
    assert encoder.notes == [frames.FRAMES_AVERAGED_NOTE]


def test_prompts_change_texts_and_are_known_by_name(tiny: dict[str, Path]) -> None:
    needs("sentence_transformers")
    plain = build_encoder(keys("sentence_transformers", tiny["clip"])).encode_texts(["dog"])
    given = {"text_prompt": "a "}
    with_words = build_encoder(keys("sentence_transformers", tiny["clip"], encoder_options=given)).encode_texts(["dog"])
    assert not np.allclose(plain, with_words)
    with refusal("encoder_options.text_prompt_name"):
        build_encoder(keys("sentence_transformers", tiny["clip"], encoder_options={"text_prompt_name": "search"}))
    both = {"text_prompt": "a", "text_prompt_name": "query"}
    refused(keys("sentence_transformers", tiny["clip"], encoder_options=both), "keep only one")
    with refusal("name: xclip"):
        build_encoder(keys("sentence_transformers", tiny["xclip"]))


# MTEB


def test_mtebs_random_baseline_sees_our_frames() -> None:
    needs("mteb")
    encoder = build_encoder(keys("mteb", "mteb/baseline-random-encoder", batch_size=2))
    clip = moving(4)
    found = encoder.encode_clips([clip, clip[::-1], clip])
    assert (found[0] == found[2]).all() and not np.allclose(found[0], found[1]), "it hashes the frames in their order"
    text = encoder.encode_texts([*TEXTS, TEXTS[0]])
    assert text.shape == (3, found.shape[1]) and (text[0] == text[2]).all()


def test_mteb_refuses_what_cannot_work() -> None:
    needs("mteb")
    refused(keys("mteb", "microsoft/xclip-base-patch3"), "registry", "microsoft/xclip-base-patch32")
    refused(keys("mteb", "sentence-transformers/all-MiniLM-L6-v2"), "texts and video are needed")
    refused(keys("mteb", "OpenGVLab/ViCLIP-B-16-hf"), "HF_HUB_OFFLINE", "OpenGVLab/ViCLIP-B-16-hf")
    refused(keys("mteb", "mteb/baseline-random-encoder", revision="none"), "revision")


def test_a_clip_looks_like_a_decoder() -> None:
    needs("mteb")
    from rewind.encoders.mteb import FrameDecoder

    collate = optional_packages.mteb("models.modality_collators").FramesCollator
    clip = moving(4)
    for given in ({}, {"num_frames": 4}, {"num_frames": 10}, {"num_frames": 2}, {"fps": 0.5}):
        one, other = (
            collate(**given)([{"video": FrameDecoder(value, 1.0)}])["video"][0].numpy() for value in (clip, clip[::-1])
        )
        assert (one == other[::-1]).all(), f"{given}: the twin is the mirror image"
        assert one.shape[1:] == (3, 40, 60)


def test_the_hubs_cache_is_looked_at(monkeypatch) -> None:
    monkeypatch.setattr(base, "is_any_file_cached", lambda *_: True)
    base.require_cached_repository(keys("transformers", "owner/model"), "owner/model", ["config.json"], "nothing")
    monkeypatch.setattr(base, "is_any_file_cached", lambda *_: False)
    with refusal("name: owner/model"):
        base.require_cached_repository(keys("transformers", "owner/model"), "owner/model", ["config.json"], "nothing")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    base.require_cached_repository(keys("transformers", "owner/model"), "owner/model", ["config.json"], "nothing")


def test_a_package_that_a_model_needs_is_no_matter_of_a_network() -> None:
    def load() -> None:
        raise ImportError("Package `num2words` is required to run SmolVLM processor.")

    with refusal("name: hub/model"):
        base.load_pretrained(keys("video_llm", "hub/model"), load, "Look for a network.")


@pytest.mark.parametrize("encoder", ["transformers", "sentence_transformers", "video_llm"])
def test_code_that_comes_with_a_model_is_not_run_and_nobody_is_asked(encoder, tmp_path, monkeypatch) -> None:
    write_transformers(tmp_path / "model", "siglip")
    config = json.loads((tmp_path / "model/config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    (tmp_path / "model/theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    asked = []
    monkeypatch.setattr("builtins.input", lambda *words: asked.append(words) or "y")
    with refusal("name: model"):
        build_encoder(keys(encoder, tmp_path / "model"))
    assert not asked and not (tmp_path / "ran").exists()
