"""Zero-shot classification on files in CIFAR-10's format that are made here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from checkout import ROOT
from labelled_images import ColourCosine, ColourVectors, write_cifar10
from messages import refusal
from rewind.config import Backbone, Method, Text
from rewind.config.evaluation import Evaluation
from rewind.data.formats.cifar10 import CIFAR10_CLASSES, RECORD_BYTES, find_cifar10, read_cifar10
from rewind.evaluation.zero_shot import ZeroShotTask, class_prompts, resize_and_centre_crop
from rewind.models.baselines import Chance
from rewind.models.clip4clip import build
from rewind.optional_packages import torchvision

CPU = torch.device("cpu")
SEED = ["a photo of a {class}"]
SEVERAL = ["a photo of a {class}", "one {class}", "an art of my very own {class} there"]
LABELS = [*range(10), *range(10), 3, 3]
PAINTED = [*range(10), *range(5), 0, 0, 0, 0, 0, 3, 4]  # 16 of 22 as their label says


def read(folder: Path):
    write_cifar10(folder, LABELS, PAINTED)
    return read_cifar10(folder)


def task(data, templates=SEED, size: int = 8, frozen: bool = False) -> ZeroShotTask:
    return ZeroShotTask(data.images, data.labels, data.classes, templates, size, Evaluation(batch_size=4), frozen)


def test_records_are_a_class_and_three_planes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    planes = rng.integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
    content = b"".join(bytes([label]) + image.tobytes() for label, image in zip((7, 0, 9), planes, strict=True))
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin/test_batch.bin").write_bytes(content)
    found = read_cifar10(tmp_path, hashlib.sha256(content).hexdigest().upper())
    assert found.labels.tolist() == [7, 0, 9] and found.images.shape == (3, 32, 32, 3)
    assert (found.images[1, 4, 5] == planes[1, :, 4, 5]).all(), "row 4, column 5: red, green, blue"


def test_equally_many_of_each_class_are_kept(tmp_path: Path) -> None:
    data = read(tmp_path)
    assert data.first(None) is data and data.first(22) is data
    assert data.first(10).labels.tolist() == list(range(10)) and len(data.first(11).labels) == 20


def test_files_that_are_not_it_are_refused(tmp_path: Path) -> None:
    with refusal("evaluation.zero_shot.folder: "):
        find_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py/test_batch").write_bytes(b"pickle")
    with refusal("evaluation.zero_shot.folder"):
        find_cifar10(tmp_path)
    path = write_cifar10(tmp_path, [0, 1], [0, 1])
    with refusal("test_batch.bin"):
        read_cifar10(tmp_path, "0" * 64)
    path.write_bytes(path.read_bytes()[:-1])
    with refusal("test_batch.bin"):
        read_cifar10(tmp_path)
    path.write_bytes(b"")
    with refusal("test_batch.bin"):
        read_cifar10(tmp_path)
    path.write_bytes(bytes(RECORD_BYTES) + b"\x0a" + bytes(RECORD_BYTES - 1))
    with refusal("test_batch.bin"):
        read_cifar10(tmp_path)


def test_prompts_name_every_class_under_every_template() -> None:
    assert class_prompts(["cat", "dog"], ["a {class}", "one {class}!"]) == ["a cat", "one cat!", "a dog", "one dog!"]
    assert class_prompts(CIFAR10_CLASSES, SEED)[3] == "a photo of a cat"
    for name, count in (("simple", 7), ("openai", 80)):
        made = class_prompts(["zebra", "yak"], name)
        assert len(made) == len(set(made)) == 2 * count
        assert all("zebra" in text for text in made[:count]) and all("yak" in text for text in made[count:])


@pytest.mark.parametrize("shape", [(32, 32), (40, 61), (90, 33)])
@pytest.mark.parametrize("size", [32, 224])
def test_pictures_are_enlarged_and_cropped_as_torchvision_does(shape: tuple[int, int], size: int) -> None:
    v2 = torchvision("transforms.v2")
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    steps = [v2.Resize(round(size * 256 / 224), v2.InterpolationMode.BICUBIC), v2.CenterCrop(size)]
    expected = np.asarray(v2.Compose(steps)(Image.fromarray(image)))
    assert (resize_and_centre_crop(image, size) == expected).all()


def test_the_share_that_is_painted_rightly_is_found(tmp_path: Path) -> None:
    data, keys = read(tmp_path), Evaluation(batch_size=4)
    found = ZeroShotTask(data.images, data.labels, CIFAR10_CLASSES, SEED, 8, keys).accuracy(ColourCosine(), CPU)
    assert found == pytest.approx(100 * 16 / 22)
    credits = task(data).credits(ColourCosine(), CPU)
    assert credits.tolist() == [float(a == b) for a, b in zip(LABELS, PAINTED, strict=True)]


def test_classes_that_tie_share_the_credit(tmp_path: Path) -> None:
    model = ColourCosine()
    model.backbone.encode_text = lambda prepared: torch.ones(len(prepared), 3)
    assert task(read(tmp_path)).accuracy(model, CPU) == pytest.approx(10)


@pytest.mark.parametrize("kind", [ColourVectors, ColourCosine])
def test_several_prompts_are_averaged_as_vectors_where_there_are_vectors(tmp_path: Path, kind: type) -> None:
    data, model = read(tmp_path), kind()
    model.backbone.turn = 120.0  # so large that prompts of one class point apart
    text = model.backbone.prepare_text(class_prompts(CIFAR10_CLASSES, SEVERAL))
    vectors = model.encode_text({"text": text})["text"].reshape(10, 3, 3).mean(dim=1)
    if kind is ColourVectors:
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    pictures = torch.nn.functional.normalize(torch.from_numpy(data.images).float().mean((1, 2)), dim=-1)
    expected = (vectors @ pictures.T).argmax(dim=0).numpy() == data.labels
    found = task(data, SEVERAL).credits(model, CPU)
    assert found.tolist() == expected.astype(float).tolist()
    ways = [task(data, SEVERAL).credits(m, CPU).tolist() for m in (_turned(ColourVectors), _turned(ColourCosine))]
    assert ways[0] != ways[1], "the two averages differ here"


def _turned(kind: type) -> ColourCosine:
    model = kind()
    model.backbone.turn = 120.0
    return model


def test_a_frozen_tower_looks_once(tmp_path: Path) -> None:
    data, model = read(tmp_path), ColourCosine()
    once, always = task(data, frozen=True), task(data)
    first = [once.accuracy(model, CPU) for _ in range(3)]
    assert model.backbone.looked == 24  # the last batch of 2 is filled up to the size of the others
    assert [always.accuracy(model, CPU) for _ in range(3)] == first and model.backbone.looked == 4 * 24


def test_what_cannot_classify_is_told(tmp_path: Path) -> None:
    data, broken = read(tmp_path), ColourCosine()
    with refusal("evaluation.zero_shot"):
        task(data).accuracy(Chance(), CPU)
    with torch.no_grad():
        broken.backbone.logit_scale.fill_(float("nan"))
    with refusal("evaluation.zero_shot"):
        task(data).accuracy(broken, CPU)


@pytest.mark.parametrize("head", ["meanP", "seqTransf", "tightTransf"])
def test_clip_with_any_head_classifies(tmp_path: Path, head: str) -> None:
    tiny = Backbone(architecture=str(ROOT / "config/models/tiny.json"))
    torch.manual_seed(0)
    method = Method(head=head, head_layers=1, head_start="random")
    model = build(
        method, tiny, Text(tokenizer="words", max_words=12), [f"a photo of a {name}" for name in CIFAR10_CLASSES]
    )
    data = read(tmp_path)
    found = task(data, SEVERAL, size=32).credits(model, CPU)
    assert set(found) <= {0.0, 1.0} and not model.training
    again = task(data, SEVERAL, size=32, frozen=True).credits(model, CPU)
    assert (found == again).all(), "features that are kept are the features"


def test_one_row_of_pandas_is_a_float(tmp_path: Path) -> None:
    value = task(read(tmp_path)).accuracy(ColourCosine(), CPU)
    assert isinstance(value, float) and pd.DataFrame([{"zs_cifar10": value}])["zs_cifar10"].dtype == float
