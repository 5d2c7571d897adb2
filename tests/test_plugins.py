"""Methods of one's own: one module and one entry in a study file."""

from __future__ import annotations

import sys

import pytest
import torch

from checkout import ROOT
from messages import refusal
from rewind.config import Backbone, Method, Text
from rewind.config.report import load_metrics
from rewind.models.clip4clip import build
from rewind.registry import BACKBONES, ENCODERS, FORMATS, HEADS, LOSSES, MODELS, SAMPLERS, import_path

HEAD = """
from torch import nn

class First(nn.Module):
    pairwise = False

    def __init__(self, width, layers, positions):
        super().__init__()

    def forward(self, frames, mask):
        return frames[:, :1].expand_as(frames)
"""


@pytest.fixture
def mylab(tmp_path, monkeypatch):
    folder = tmp_path / "mylab_for_tests"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "heads.py").write_text(HEAD)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("mylab_for_tests")]:
        del sys.modules[name]


def test_a_head_by_dotted_path(mylab):
    method = Method(head="mylab_for_tests.heads.First")
    tiny = Backbone(architecture=str(ROOT / "config/models/tiny.json"))
    model = build(method, tiny, Text(tokenizer="words", max_words=8), ["a red ring"]).eval()
    frames, mask = torch.randn(2, 3, 96), torch.ones(2, 3, dtype=torch.uint8)
    found = model.encode_items({"frames": frames, "mask": mask})["video"]
    torch.testing.assert_close(found, torch.nn.functional.normalize(frames[:, 0], dim=-1))


def test_a_module_itself_can_be_named(mylab):
    assert import_path("mylab_for_tests.heads", "model").First


@pytest.mark.parametrize("name", ["nowhere", "mylab_for_tests.heads.Last", "mylab_for_tests.tails.First"])
def test_what_is_not_there_is_named_with_its_key(mylab, name):
    with refusal("methods.*.model", varying=r"\(No module.*?\)") as caught:  # Python's words
        MODELS.find(name)
    assert f"'{name}'" in str(caught.value)


CODE = """
import functools, os
from os import system as build
from subprocess import Popen as Runner
from rewind.errors import RewindError

called = []
class Plain: ...
def nothing(): called.append(1)
def one(encoding): called.append(1)
def two(dataset, sources): called.append(1)
def four(retriever, text, items, batch, weight=1.0): called.append(1)
partly = functools.partial(four, weight=2.0)
class Instance:
    def __call__(self, retriever, text, items, batch): ...
loss = Instance()
"""
STANDARD = ("os.system", "builtins.exec", "builtins.eval", "subprocess.run", "shutil.rmtree", "pathlib.Path", "os")
REGISTRIES = (MODELS, HEADS, BACKBONES, LOSSES, SAMPLERS, ENCODERS, FORMATS)


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
@pytest.mark.parametrize("name", [*STANDARD, *(f"mylab_for_tests.odd.{name}" for name in ("build", "Runner", "os"))])
def test_what_python_brings_is_nothing_of_a_study(mylab, registry, name):
    (mylab / "odd.py").write_text(CODE)
    with refusal(registry.key):
        registry.find(name)


FITS = {LOSSES: ("four", "partly", "loss"), ENCODERS: ("one",), FORMATS: ("two",)}
NAMES = ("Plain", "nothing", "one", "two", "four", "partly", "loss", "RewindError")


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_only_what_fits_is_accepted_and_nothing_is_called_to_find_out(mylab, registry):
    (mylab / "odd.py").write_text(CODE)
    for name in NAMES:
        path = f"mylab_for_tests.odd.{name}"
        if name in FITS.get(registry, ()) or (registry is MODELS and name in ("four", "partly")) or name == "loss":
            registry.find(path)  # four arguments are as many as a model's function has; an object is looked at later
        else:
            with refusal(registry.key):
                registry.find(path)
    assert not sys.modules["mylab_for_tests.odd"].called


def test_modules_of_the_standard_library_are_not_even_imported(mylab):
    sys.modules.pop("antigravity", None)
    with refusal("metrics"):
        load_metrics(["antigravity.webbrowser"])
    assert "antigravity" not in sys.modules
