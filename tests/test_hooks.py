"""Hooks are declared: the page lists each of them, what is not written has its default, and what is no part is told."""

from __future__ import annotations

import inspect
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from conftest import ROOT
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.chance import Chance
from rewind.models.dual_encoder import DualEncoder
from rewind.models.head import Head
from rewind.models.making import Maker, make_retriever, make_towers, maker, with_defaults
from rewind.models.retriever import Retriever, offers
from rewind.models.translator import Geometry, TranslatorOptions
from rewind.objectives.infonce import infonce
from rewind.objectives.interface import Loss, Objective, make_objective
from rewind.rehearsal.formats import StandIns, format_of
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method, Text, Training
from rewind.study.training import Batch
from rewind.training.samplers.interface import Sampler, make_sampler
from test_grad_cache import tiny

MUST = {"encode_text", "encode_items", "similarity"}


def hooks(declared: type) -> set[str]:
    """Public names of a class as the page writes them: a method with its arguments."""
    found = set()
    for name, value in {**inspect.get_annotations(declared), **vars(declared)}.items():
        if not name.startswith("_") and name not in MUST:
            names = list(inspect.signature(value).parameters)[1:] if inspect.isfunction(value) else None
            found.add(name if names is None else f"{name}({', '.join(names)})")
    return found


@pytest.mark.parametrize(
    ("heading", "declared"),
    [
        ("A temporal head", Head),
        ("A retriever", Retriever),
        ("An objective", Objective),
        ("A sampler", Sampler),
        ("Checks before the first job", Maker),
    ],
)
def test_the_page_lists_every_hook_and_no_other(heading: str, declared: type) -> None:
    page = (ROOT / "docs/add-a-method.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {heading}\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)[1]
    listed = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(listed) == len(set(listed)) and set(listed) == hooks(declared)


def test_a_retriever_that_writes_no_hook_has_every_default() -> None:
    plain = Retriever()
    assert plain.backbone is None and plain.pairs_at_once is None and not plain.attends_to_pairs
    assert not plain.compares_vectors and not offers(plain.fit) and not offers(plain.check_state)
    for given in (plain.outputs({}, {}), plain.from_captions(None, None), plain.parameter_groups(Training())):
        assert given is None
    assert plain.similarity_rows({}, {}, slice(0, 1)) is None
    for hook in (lambda: plain.vectors({}, {}), lambda: plain.translate(torch.zeros(1, 2)), lambda: plain.fit(*"abcd")):
        with pytest.raises(RewindError, match="Retriever has no"):
            hook()


def test_what_is_written_is_told_from_the_default() -> None:
    loose, tight = tiny("meanP"), tiny("tightTransf")
    assert loose.compares_vectors and not tight.compares_vectors and offers(tight.vectors)
    assert tight.pairs_at_once and loose.pairs_at_once is None
    assert not offers(Chance().fit) and offers(Geometry(nn.Linear(2, 2), TranslatorOptions()).fit)
    plain = Retriever()
    plain.fit = lambda *pairs: None  # of one object
    assert offers(plain.fit)
    assert not offers(Backbone().freeze_layers) and offers(loose.backbone.freeze_layers)
    assert not DualEncoder(loose.backbone).attends_to_pairs
    assert DualEncoder(loose.backbone, nn.Identity()).attends_to_pairs


def test_parts_of_a_retriever_are_modules_whatever_their_defaults() -> None:
    """A default that is an attribute of the class would hide a module of the same name."""

    class Towers(Backbone):
        def __init__(self) -> None:
            super().__init__()
            self.tokenizer = nn.Embedding(3, 2)

    class Model(Retriever):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = Towers()

    class Borrowed(Retriever):
        @property
        def backbone(self) -> str:
            return "of another object"

    assert set(Model().state_dict()) == {"backbone.tokenizer.weight"}
    assert isinstance(Model().backbone.tokenizer, nn.Embedding) and Borrowed().backbone == "of another object"


class Named:
    """As much of a loss and of a sampler as a user may have written, of no class of ours."""

    refresh_every = 2

    def __call__(self, retriever, text, items, batch) -> Loss:
        return Loss(torch.tensor(7.0))

    def summary(self, logs):
        return {"seen": 1.0}

    def batches(self, item_of_caption, cluster_of_item, keys, seed, epoch, state):
        return [np.arange(3)]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package of the user's own."""
    found = ModuleType("lab_of_hooks")
    found.__spec__ = SimpleNamespace(name="lab_of_hooks")
    monkeypatch.setitem(sys.modules, "lab_of_hooks", found)
    return found


def test_a_loss_and_a_sampler_of_no_class_of_ours_get_the_defaults_of_what_they_lack(lab: ModuleType) -> None:
    lab.parts = SimpleNamespace(build=lambda options: Named())
    loss = make_objective(Training(objective="lab_of_hooks.parts"))
    assert loss(None, {}, {}, {}).value == 7 and loss.summary({"a": 2.0}) == {"seen": 1.0}
    assert loss.state_dict() is None and loss.check(None, Training()) is None
    sampler = make_sampler(Batch(sampler="lab_of_hooks.parts"))
    assert sampler.refresh_every == 2 and sampler.batches(None, None, None, 0, 0, {})[0].tolist() == [0, 1, 2]
    assert sampler.prepare(None, Batch(), 0) == {} and sampler.describe([], {}) == {}
    lab.loss = infonce
    plain = make_objective(Training(objective="lab_of_hooks.loss"))
    assert plain.summary({"a": 2.0}) == {"a": 2.0} and plain.state_dict() is None
    own = make_objective(Training(objective="hnac"))
    assert with_defaults(own, Objective) is own


def test_what_is_no_retriever_or_no_towers_is_told_what_to_subclass(lab: ModuleType) -> None:
    class Model(Retriever):
        def __init__(self, towers) -> None:
            super().__init__()
            self.backbone = towers

    lab.plain = SimpleNamespace(build=lambda *given: nn.Linear(2, 2))
    lab.half = SimpleNamespace(build=lambda *given: Model(nn.Linear(2, 2)))
    lab.whole = SimpleNamespace(build=lambda *given: Model(Backbone()), check=lambda method, backbone: 1 / 0)
    keys = BackboneKeys(), Text(), []
    with pytest.raises(
        RewindError, match=r"lab_of_hooks\.plain is a Linear, which is not a rewind\.models\.retriever\.Ret"
    ):
        make_retriever(Method(model="lab_of_hooks.plain"), *keys)
    with pytest.raises(
        RewindError, match=r"half: its `backbone` is a Linear, which is not a rewind\.models\.backbone\.Back"
    ):
        make_retriever(Method(model="lab_of_hooks.half"), *keys)
    with pytest.raises(RewindError, match=r"backbone\.kind: lab_of_hooks\.plain is a Linear"):
        make_towers(BackboneKeys.model_construct(kind="lab_of_hooks.plain"), Text(), [])
    assert isinstance(make_retriever(Method(model="lab_of_hooks.whole"), *keys), Model)
    with pytest.raises(ZeroDivisionError):
        maker("lab_of_hooks.whole").check(Method(), BackboneKeys())
    assert maker("chance").check(Method(), BackboneKeys()) is None
    with pytest.raises(RewindError, match=r"methods\.\*\.model: rewind\.errors has no `build\(…\)`"):
        maker("rewind.errors")


def test_a_data_format_has_stand_ins_or_none(tmp_path) -> None:
    assert format_of("rtime").PUBLISHED.originals == 21_537 and format_of("table").PUBLISHED is None
    for nothing in (format_of("nowhere_at_all"), StandIns()):
        assert nothing.stand_in({}, tmp_path, None) is None and nothing.part(None, tmp_path, None) is None
