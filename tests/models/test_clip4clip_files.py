"""CLIP4Clip's checkpoints: read, refused by name, written, and read again."""

from __future__ import annotations

import json

import pytest
import torch

from golden_numbers import load
from messages import expect_message, refusal
from rewind.config import Backbone, Method, Text
from rewind.models import clip4clip
from rewind.models.clip import ClipTowers
from rewind.models.clip4clip_checkpoint import CLIP4CLIP_HEADS, read_clip4clip, write_clip4clip
from rewind.optional_packages import open_clip
from rewind.registry import HEADS

GOLDEN = ["open_meanP", "open_seqLSTM", "open_seqTransf", "open_tightTransf", "open2_seqTransf", "open2_tightTransf"]
CONFIG = {
    "embed_dim": 64,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 16, "layers": 2, "width": 64, "patch_size": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 40, "width": 64, "heads": 1, "layers": 2},
}


class Tokens:
    vocabulary = 40


def model(head: str, seed: int = 0, **changes) -> clip4clip.Clip4Clip:
    torch.manual_seed(seed)
    towers = ClipTowers(open_clip("model").CLIP(**(CONFIG | changes)), Tokens(), 8)
    return clip4clip.Clip4Clip(towers, HEADS.find(head)(64, layers=2, positions=77))


def equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in a)


def written(tmp_path, head: str, **extra) -> tuple[dict, object]:
    """The tensors of a file of ours, and where it lies; ``extra`` tensors are put in, None takes one out."""
    path = tmp_path / "pytorch_model.bin.0"
    write_clip4clip(model(head), path)
    state = torch.load(path, weights_only=True) | extra
    torch.save({name: value for name, value in state.items() if value is not None}, path)
    return state, path


@pytest.mark.parametrize("name", GOLDEN)
def test_upstreams_own_states_come_back_as_they_were(tmp_path, name, capsys):
    golden = load(f"clip4clip/{name}.npz")
    state = {n.removeprefix("state/"): torch.from_numpy(golden[n]) for n in golden.files if n.startswith("state/")}
    # Upstream's files are mixed: most of CLIP in half precision, which these values fit exactly.
    mixed = {n: v.half() if n.startswith("clip.") and v.ndim > 1 else v for n, v in state.items()}
    torch.save(mixed, tmp_path / "theirs.bin")
    head, ours = read_clip4clip(tmp_path / "theirs.bin")
    assert head == str(golden["meta/sim_header"])
    assert ("frame_position_embeddings.weight" in capsys.readouterr().out) == (head == "seqLSTM")

    number = {
        n.removeprefix("meta/"): int(golden[n]) for n in golden.files if golden[n].dtype.kind in "iu" and "meta" in n
    }
    config = {
        "embed_dim": number["embed_dim"],
        "quick_gelu": True,
        "vision_cfg": {
            "image_size": number["image"],
            "layers": number["vision_layers"],
            "width": number["vision_width"],
            "patch_size": number["vision_patch"],
        },
        "text_cfg": {
            "context_length": number["context_length"],
            "vocab_size": number["vocab"],
            "width": number["text_width"],
            "heads": number["text_heads"],
            "layers": number["text_layers"],
        },
    }
    layers, positions = number.get("head_layers", 4), number["context_length"]
    towers = ClipTowers(open_clip("model").CLIP(**config), Tokens(), 8)
    retriever = clip4clip.Clip4Clip(towers, HEADS.find(head)(number["embed_dim"], layers=layers, positions=positions))
    retriever.load_state_dict(ours)
    write_clip4clip(retriever, tmp_path / "ours.bin")
    exported = torch.load(tmp_path / "ours.bin", weights_only=True)
    if head == "seqLSTM":
        state["frame_position_embeddings.weight"] = torch.zeros(positions, number["embed_dim"])
    assert equal(exported, state)
    assert equal(read_clip4clip(tmp_path / "ours.bin")[1], ours)


@pytest.mark.parametrize("head", CLIP4CLIP_HEADS)
def test_export_import_export_is_identical_to_the_byte(tmp_path, head):
    first = model(head)
    write_clip4clip(first, tmp_path / "pytorch_model.bin.0")
    found, state = read_clip4clip(tmp_path / "pytorch_model.bin.0")
    assert found == head and equal(state, first.state_dict())
    second = model(head, seed=1)
    second.load_state_dict(state)
    write_clip4clip(second, tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "pytorch_model.bin.0").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.bin", "pytorch_model.bin.0"]


def test_parameters_at_full_width_are_as_many_as_upstreams(tmp_path):
    for head, count in {"seqLSTM": 2_140_672, "seqTransf": 12_648_960, "tightTransf": 12_913_153}.items():
        torch.manual_seed(0)
        vision = CONFIG["vision_cfg"]
        towers = open_clip("model").CLIP(
            **CONFIG | {"embed_dim": 512, "vision_cfg": vision, "text_cfg": CONFIG["text_cfg"] | {"context_length": 77}}
        )
        retriever = clip4clip.Clip4Clip(ClipTowers(towers, Tokens(), 8), HEADS.find(head)(512, layers=4, positions=77))
        write_clip4clip(retriever, tmp_path / "model.bin")
        state = torch.load(tmp_path / "model.bin", weights_only=True)
        assert sum(value.numel() for name, value in state.items() if not name.startswith("clip.")) == count


@pytest.mark.parametrize(
    ("head", "change", "place"),
    [
        ("meanP", {"clip.visual.proj": None}, "pytorch_model.bin.0"),
        ("meanP", {"clip.visual.conv2.weight": torch.ones(1)}, "pytorch_model.bin.0"),
        ("seqLSTM", {"lstm_visual.bias_hh_l0": None}, "pytorch_model.bin.0"),
        ("seqTransf", {"frame_position_embeddings.weight": None}, "pytorch_model.bin.0"),
        (
            "seqTransf",
            {"transformerClip.resblocks.0.ln_1.bias": None},
            "pytorch_model.bin.0",
        ),
        ("tightTransf", {"cross.pooler.dense.bias": None}, "pytorch_model.bin.0"),
        ("tightTransf", {"similarity_dense.weight": None}, "pytorch_model.bin.0"),
        ("meanP", {"optimizer": torch.ones(1)}, "pytorch_model.bin.0"),
        ("seqLSTM", {"cross.pooler.dense.bias": torch.ones(1)}, "pytorch_model.bin.0"),
        ("meanP", {"frame_position_embeddings.weight": torch.ones(8, 64)}, "pytorch_model.bin.0"),
    ],
)
def test_missing_and_unexpected_tensors_are_refused_by_name(tmp_path, head, change, place):
    _, path = written(tmp_path, head, **change)
    with refusal(place):
        read_clip4clip(path)


def test_another_kind_of_file_is_refused(tmp_path):
    torch.save({"visual.proj": torch.ones(1)}, tmp_path / "other.bin")
    with refusal("other.bin"):
        read_clip4clip(tmp_path / "other.bin")


def test_wrapped_by_data_parallel_it_is_the_same(tmp_path):
    state, path = written(tmp_path, "seqTransf")
    plain = read_clip4clip(path)[1]
    torch.save({f"module.{name}": value for name, value in state.items()}, path)
    assert equal(read_clip4clip(path)[1], plain)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"quick_gelu": False}, "model.bin"),
        ({"vision_cfg": CONFIG["vision_cfg"] | {"head_width": 32}}, "model.bin"),
        (
            {"vision_cfg": CONFIG["vision_cfg"] | {"layers": [1, 1, 1, 1], "image_size": 32}},
            "model.bin",
        ),
    ],
)
def test_towers_that_upstream_would_compute_otherwise_are_not_written(tmp_path, changes, place):
    with refusal(place):
        write_clip4clip(model("meanP", **changes), tmp_path / "model.bin")
    assert not list(tmp_path.iterdir())


def test_a_head_of_ones_own_is_not_written(tmp_path):
    retriever = model("meanP")
    retriever.head = torch.nn.Linear(2, 2)
    with refusal("model.bin"):
        write_clip4clip(retriever, tmp_path / "model.bin")


def build(tmp_path, weights, head: str, layers: int = 2) -> clip4clip.Clip4Clip:
    architecture = tmp_path / "tiny.json"
    words = ["one red ring turns", "two dots fall down"]
    from rewind.data.tokenizers import make_tokenizer

    vocabulary = make_tokenizer("words", words).vocabulary
    architecture.write_text(json.dumps(CONFIG | {"text_cfg": CONFIG["text_cfg"] | {"vocab_size": vocabulary}}))
    keys = Backbone(architecture=str(architecture), weights=weights and str(weights))
    return clip4clip.build(Method(head=head, head_layers=layers), keys, Text(tokenizer="words", max_words=8), words)


@pytest.mark.parametrize("head", CLIP4CLIP_HEADS)
def test_backbone_weights_bring_towers_and_the_same_head(tmp_path, head):
    torch.manual_seed(5)
    first = build(tmp_path, None, head)
    path = tmp_path / "pytorch_model.bin.4"
    write_clip4clip(first, path)
    torch.manual_seed(6)
    assert equal(build(tmp_path, path, head).state_dict(), first.state_dict())


def test_a_method_with_another_head_takes_the_towers_alone_and_says_so(tmp_path, capsys):
    torch.manual_seed(5)
    first = build(tmp_path, None, "seqTransf")
    write_clip4clip(first, tmp_path / "model.bin")
    second = build(tmp_path, tmp_path / "model.bin", "tightTransf")
    assert equal(second.backbone.state_dict(), first.backbone.state_dict())
    expect_message(capsys.readouterr().out)


def test_the_same_head_of_another_size_is_refused(tmp_path):
    write_clip4clip(build(tmp_path, None, "seqTransf"), tmp_path / "model.bin")
    with refusal("backbone.weights: model.bin"):
        build(tmp_path, tmp_path / "model.bin", "seqTransf", layers=1)
