"""MiniCLIP's published checkpoints: the whole model comes in, or the file is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from messages import refusal
from rewind.config import Backbone, Method, Text
from rewind.models import miniclip, zero_shot
from rewind.models.miniclip import TEXT_TOWERS
from rewind.models.miniclip_checkpoint import read_vocabulary_captions
from rewind.models.registry import build_model
from rewind.optional_packages import torchvision

CAPTIONS = ["white chair on dark floor", "a mug, on a white chair", "mug"]
WIDTH = 32


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("words") / "captions.json"
    path.write_text(json.dumps([{"file_name": f"image_{n}.jpg", "caption": one} for n, one in enumerate(CAPTIONS)]))
    return str(path)


def upstream(folder: Path, tower: str, ids: int = 11) -> tuple[str, nn.Module, nn.Module, nn.Module]:
    """A checkpoint as the original's main.py saves one, and the three parts that are in it."""
    torch.manual_seed(0)
    image = nn.Sequential(*list(torchvision("models").resnet18(weights=None).children())[:-1])
    for module in image.modules():
        if isinstance(module, nn.BatchNorm2d):  # the statistics drift while upstream trains
            (
                module.running_mean.normal_(std=0.1),
                module.running_var.uniform_(0.5, 2),
                module.num_batches_tracked.fill_(7),
            )
    projection = nn.Sequential(
        nn.Flatten(), nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, WIDTH)
    )
    text = TEXT_TOWERS[tower](ids, WIDTH)
    parts = {"img_enc.backbone": image, "img_enc.projection": projection, "txt_enc": text}
    state = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    content = {"epoch": 9, "model_state_dict": state | {"logit_scale": torch.tensor(3.0)}, "val_r1": 17.2}
    path = folder / f"best_model_{tower}.pth"
    torch.save(content | {"config": {"embed_dim": WIDTH, "vocab_size": ids, "model_type": tower}}, path)
    return str(path), image.eval(), projection.eval(), text.eval()


def published(path: str, words: str | None) -> Method:
    towers = {"kind": "miniclip_towers", "architecture": "resnet18", "weights": path, "width": WIDTH}
    return Method(
        model="zero_shot", options={"backbone": towers, "text": {"tokenizer": "miniclip", "vocabulary": words}}
    )


@pytest.mark.parametrize("tower", ["lstm", "transformer"])
def test_a_published_model_scores_as_the_parts_in_its_file(tmp_path: Path, words: str, tower: str) -> None:
    path, image, projection, text = upstream(tmp_path, tower)
    method = published(path, words)
    zero_shot.check_zero_shot(method, Backbone())
    found = build_model(method, Backbone(), Text(), ["words of other captions"]).backbone
    pixels = torch.randint(0, 256, (3, 3, 224, 224), dtype=torch.uint8)
    mean, std = (torch.tensor(of).view(3, 1, 1) for of in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.no_grad():
        wanted = projection(image((pixels / 255 - mean) / std))
        assert torch.allclose(found.encode_frames(found.frame_features(pixels)), wanted, rtol=1e-4, atol=1e-5)
        ids = found.prepare_text(CAPTIONS)
        assert torch.equal(found.encode_text(ids), text(ids)) and float(found.logit_scale) == 3
    assert ids[2].tolist()[:2] == [8, 0], "white, chair, on and a stand twice too, and come before"


def test_the_vocabulary_is_asked_for_where_the_file_has_another(tmp_path: Path, words: str) -> None:
    path = upstream(tmp_path, "lstm")[0]
    with refusal("methods.*.options.backbone.weights: best_model_lstm.pth"):
        build_model(published(path, None), Backbone(), Text(), ["word"])
    with refusal("text.vocabulary: none.json"):
        build_model(published(path, str(tmp_path / "none.json")), Backbone(), Text(), ["word"])


def test_training_starts_from_a_checkpoint_with_the_same_text_tower(tmp_path: Path, words: str) -> None:
    path = upstream(tmp_path, "lstm")[0]
    keys = Backbone(kind="miniclip_towers", architecture="resnet18", weights=path, width=WIDTH)
    text = Text(tokenizer="miniclip", vocabulary=words)
    made = miniclip.build_miniclip(Method(model="miniclip", options={"text": "lstm"}), keys, text, [])
    assert float(made.backbone.logit_scale.detach()) == 3 and made.backbone.image.network.bn1.num_batches_tracked == 7
    with refusal("backbone.weights"):
        miniclip.build_miniclip(Method(model="miniclip", options={"text": "transformer"}), keys, text, [])


def test_what_is_no_such_model_is_refused_by_name(tmp_path: Path, words: str) -> None:
    path = Path(upstream(tmp_path, "lstm")[0])
    content = torch.load(path, weights_only=True)
    state = content["model_state_dict"]
    torch.save({"model_state_dict": state | {"img_enc.backbone.8.weight": torch.zeros(2)}}, path)
    with refusal("methods.*.options.backbone.weights: best_model_lstm.pth"):
        build_model(published(str(path), words), Backbone(), Text(), [])
    del state["txt_enc.layer_norm.bias"]
    torch.save(content, path)
    with refusal("methods.*.options.backbone.weights: best_model_lstm.pth"):
        build_model(published(str(path), words), Backbone(), Text(), [])


def test_captions_of_a_vocabulary_are_read_or_refused(tmp_path: Path) -> None:
    lines, odd = tmp_path / "captions.txt", tmp_path / "captions.json"
    lines.write_text("one caption\n\nanother\n")
    assert read_vocabulary_captions(str(lines)) == ["one caption", "another"]
    for content in ('[{"caption": 3}]', '{"a": 1}', "[7]"):
        odd.write_text(content)
        with refusal("text.vocabulary"):
            read_vocabulary_captions(str(odd))
    lines.write_bytes(b"caf\xe9")
    with refusal("text.vocabulary"):
        read_vocabulary_captions(str(lines))
