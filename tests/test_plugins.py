"""Methods of one's own: one module and one entry in a study file."""

from __future__ import annotations

import sys

import pytest
import torch

from checkout import ROOT
from messages import refusal
from rewind.config import Backbone, Method, Text
from rewind.models.clip4clip import build
from rewind.registry import MODELS, import_path

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
