"""Which of open_clip's architectures can be used: text features against open_clip's own, refusals by their key."""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from messages import refusal
from rewind.config import Backbone, Text
from rewind.data.tokenizers import ClipTokenizer
from rewind.errors import RewindError
from rewind.models import architectures
from rewind.models.architectures import architecture_names, load_architecture, read_architecture
from rewind.models.clip import ClipTowers, build
from rewind.models.weights import check_pretrained_tag
from rewind.optional_packages import open_clip

CAPTIONS = ["A cat, turning; left!", "stop!(now)", "two  dogs &amp; a ball", "why " * 90, ""]
SMALL = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 32, "patch_size": 16},
    "text_cfg": {"width": 32, "heads": 2, "layers": 2},
}


def accepts(name: str) -> bool:
    try:
        load_architecture(name)
    except RewindError:
        return False
    return True


def small(config: dict, **text) -> dict:
    """The same kind of model, narrow and shallow; its frames do not matter here."""
    config = copy.deepcopy(config)
    return config | SMALL | {"text_cfg": config["text_cfg"] | SMALL["text_cfg"] | text}


@pytest.fixture(scope="module")
def tokenizer() -> ClipTokenizer:
    return ClipTokenizer()


def difference(config: dict, theirs: torch.Tensor, tokenizer: ClipTokenizer) -> float:
    """Largest difference between our features of the captions and open_clip's on its own tokens."""
    torch.manual_seed(0)
    towers = open_clip("model").CLIP(**config).double().eval()
    ours = ClipTowers(towers, tokenizer, towers.context_length).double()
    with torch.no_grad():
        found, wanted = ours.encode_text(ours.prepare_text(CAPTIONS)), towers.encode_text(theirs)
    assert found.abs().max() > 0.1
    return (found - wanted).abs().max().item()


def test_captions_are_encoded_as_open_clip_does_with_every_architecture_that_is_accepted(tokenizer) -> None:
    accepted = [name for name in architecture_names() if accepts(name)]
    assert {"ViT-B-32-quickgelu", "ViT-L-14", "RN50", "convnext_base_w", "ViT-bigG-14"} <= set(accepted)
    kinds = {}
    for name in accepted:
        config = small(load_architecture(name))
        kinds.setdefault(json.dumps(config, sort_keys=True), (name, config))
    for name, config in kinds.values():
        tokens = open_clip().get_tokenizer(name)(CAPTIONS)
        assert difference(config, tokens, tokenizer) < 1e-12, name


@pytest.mark.parametrize(
    "keys",
    [
        {"mlp_ratio": 2.0},
        {"ls_init_value": 0.1},
        {"norm_kwargs": {"eps": 0.1}},
        {"act_kwargs": {"approximate": "tanh"}},
        {"block_type": "custom"},
        {"qk_norm": True, "scale_heads": True},
        {"scale_attn_inner": True, "scale_attn": True, "scale_fc": True},
        {"context_length": 20},
    ],
)
def test_keys_of_the_text_tower_that_are_carried_out(tmp_path: Path, tokenizer, keys: dict) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps(small({"text_cfg": {}}, **keys)))
    config = load_architecture(str(path))
    tokens = open_clip("tokenizer").SimpleTokenizer(context_length=keys.get("context_length", 77))(CAPTIONS)
    assert difference(config, tokens, tokenizer) < 1e-12


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ViT-H-14-CLIPA", "text_cfg.hf_tokenizer_name: bert-base-uncased"),
        ("ViT-L-14-CLIPA-336", "text_cfg.pool_type: last, text_cfg.no_causal_mask: True"),
        ("ViT-H-14-worldwide-quickgelu", "text_cfg.pool_type: eos"),
        ("roberta-ViT-B-32", "text_cfg.hf_model_name: roberta-base"),
        ("ViT-B-16-SigLIP", "init_logit_bias: -10"),
        ("coca_ViT-B-32", "multimodal_cfg"),
        ("EVA02-B-16", "custom_text: True"),
        ("MobileCLIP-S1", "custom_text: True"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused_with_the_key(name: str, reason: str) -> None:
    with refusal(f"backbone.architecture: {name}") as caught:
        load_architecture(name)
    assert reason in str(caught.value)


@pytest.mark.parametrize("part", ["text_cfg", "vision_cfg"])
def test_every_key_that_open_clip_has_is_known(part: str) -> None:
    """A later open_clip with further keys is not taken at its word."""
    cls = {"text_cfg": open_clip().CLIPTextCfg, "vision_cfg": open_clip().CLIPVisionCfg}[part]
    carried_out, values = architectures._SUPPORTED_KEYS[part], architectures._ALLOWED_VALUES[part]
    for field in dataclasses.fields(cls):
        assert (field.name in carried_out) != (field.name in values), field.name
        assert field.name in carried_out or field.default in values[field.name], "the default is what we compute"


def written(folder: Path, config: object) -> str:
    path = folder / "own.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(path)


OTHER_MEAN = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}


@pytest.mark.parametrize(
    "config",
    [
        "{",
        [1],
        {"embed_dim": 8, "text_cfg": {}},
        SMALL | {"init_logit_bias": -1.0},
        SMALL | {"text_cfg": {"proj_bias": True}},
        SMALL | {"text_cfg": {"invented": 1}},
        SMALL | {"vision_cfg": {"pool_type": "none"}},
        SMALL | {"vision_cfg": {"output_tokens": True}},
        SMALL | {"vision_cfg": {"timm_model_pretrained": True}},
        SMALL | {"vision_cfg": {"image_size": [224, 112]}},
        {"model_cfg": SMALL, "preprocess_cfg": OTHER_MEAN},
    ],
)
def test_files_that_say_more_than_is_computed_are_refused(tmp_path: Path, config: object) -> None:
    inside = ": preprocess_cfg" if isinstance(config, dict) and "preprocess_cfg" in config else ""
    with refusal(f"backbone.architecture: own.json{inside}"):
        load_architecture(written(tmp_path, config))


def test_a_file_of_open_clips_hub_is_read_and_defaults_may_be_spelt_out(tmp_path: Path) -> None:
    spelt = SMALL | {"text_cfg": SMALL["text_cfg"] | {"pool_type": "argmax", "hf_tokenizer_name": None}}
    own = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
    found = load_architecture(written(tmp_path, {"model_cfg": spelt | {"custom_text": False}, "preprocess_cfg": own}))
    assert found == spelt


def test_an_unknown_name_has_a_near_one() -> None:
    with refusal("backbone.architecture"):
        load_architecture("ViT-B/32-quickgelu")
    assert read_architecture("ViT-B-32") == open_clip().get_model_config("ViT-B-32") and architecture_names() == sorted(
        open_clip().list_models()
    )


def test_asking_builds_and_imports_nothing(tmp_path: Path) -> None:
    """It is asked where a study file is read."""
    code = (
        "import sys; from rewind.models.architectures import load_architecture; "
        "print(load_architecture('RN50')['embed_dim'], "
        "sorted({'torch', 'open_clip', 'torchvision', 'timm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "1024 []", done.stderr


def test_tags_whose_frames_are_normalised_otherwise_are_refused() -> None:
    with refusal("backbone.pretrained"):
        check_pretrained_tag(Backbone(architecture="ViT-L-14", pretrained="laion2b_s32b_b82k"), False)
    for name, tag, quick in (("ViT-L-14", "datacomp_xl_s13b_b90k", False), ("ViT-B-32-quickgelu", "openai", True)):
        check_pretrained_tag(Backbone(architecture=name, pretrained=tag), quick)


def test_what_tokens_and_frames_do_not_fit_is_said_in_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL | {"text_cfg": SMALL["text_cfg"] | {"vocab_size": 64}})
    with refusal("backbone.architecture: own.json: text_cfg.vocab_size"):
        build(Backbone(architecture=path), Text(tokenizer="clip", max_words=8), [])
    with refusal("text.tokenizer"):
        build(Backbone(architecture=path), Text(tokenizer="miniclip", max_words=8), ["a cat"])
    model = build(Backbone(architecture=path), Text(tokenizer="words", max_words=8), ["a cat"])
    with refusal("frames.size"):
        model.frame_features(torch.zeros(1, 3, 48, 48, dtype=torch.uint8))
