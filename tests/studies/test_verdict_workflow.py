"""A study in Flickr8k's format with zero-shot accuracy and a verdict, as the workflow plans it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelled_images import write_cifar10
from mini_study import Workflow

STUDY = """
dataset: flickr8k
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 1, size: 32}
text: {tokenizer: words, max_words: 12}
training: {epochs: 2, lr: 1.0e-3, backbone_lr_multiplier: 1.0, batch: {size: 16}}
methods:
  base: {label: Baseline}
  new: {label: New loss, training: {lr: 2.0e-3}}
  base_small: {label: "Baseline, small lr", training: {lr: 1.0e-4}}
  new_small: {label: "New loss, small lr", training: {lr: 2.0e-4}}
  random: {model: chance, label: Random, seeds: [0]}
seeds: [0, 1]
sanity: null
evaluation: {settings: [test], zero_shot: {folder: data/cifar10, validation_images: 20, templates: simple}}
statistics: {resamples: 200, pairs: [[new, base], [new_small, base_small]]}
tables:
  verdict: {baseline: base, methods: [new], control: {base: base_small, new: new_small}, rounds: 5}
figures: {examples: 2}
"""
COLOURS = {"red": (220, 30, 30), "green": (20, 200, 60), "blue": (30, 40, 220), "grey": (120, 120, 120)}


def make_flickr8k(folder: Path, count: int = 40) -> None:
    """Captioned pictures of one colour and a brightness, five captions each."""
    (folder / "Images").mkdir(parents=True)
    rows = ["image,caption"]
    for n in range(count):
        name, colour = list(COLOURS.items())[n % 4]
        pixel = tuple(int(value * (0.4 + 0.6 * n / count)) for value in colour)
        Image.new("RGB", (40, 36), pixel).save(folder / f"Images/{n:04d}.jpg")
        rows += [f"{n:04d}.jpg,{text} {name} thing number {n}" for text in ("a", "the", "one", "this", "some")]
    (folder / "captions.txt").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    (workflow.folder / "config/studies/mini.yaml").write_text(STUDY)
    (workflow.folder / "config/config.yaml").write_text(
        "studies: [mini]\noverrides:\n  datasets.flickr8k.source.split_file: null\n"
        "  datasets.flickr8k.image: {short_side: 32, shards: 1}\n"
    )
    make_flickr8k(workflow.folder / "data/flickr8k")
    labels = np.random.default_rng(0).integers(0, 10, 50).tolist()
    write_cifar10(workflow.folder / "data/cifar10", labels, labels)
    return workflow


@pytest.mark.workflow
def test_every_run_is_classified_and_the_verdict_has_its_inputs(checkout: Workflow) -> None:
    planned = checkout.stale()
    assert planned["train"] == planned["zero_shot"] == 8 and planned["untrained_run"] == 1, "chance has no towers"
    assert planned["zero_shot_table"] == planned["step_time"] == planned["control"] == planned["tables"] == 1
