"""What a study may name: built-in components by short names, code of one's own by dotted paths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from messages import refusal
from rewind import registry
from rewind.config import dataset as dataset_config
from rewind.config.training import Training
from rewind.losses.base import make_loss
from rewind.models.registry import backbone_builder, model_hooks
from rewind.registry import Registry

REGISTRIES = [value for value in vars(registry).values() if isinstance(value, Registry)]


@pytest.mark.parametrize("kind", REGISTRIES, ids=lambda kind: kind.variable)
def test_every_name_is_found_where_its_full_name_says(kind):
    assert len(kind.names()) >= 3
    for name in kind.names():
        component = kind.find(name)
        module, _, attribute = kind.full_name(name).partition(":")
        assert (component.__module__, component.__name__) == (module, attribute)


def test_the_names_are_those_that_the_documents_list():
    described = Training.model_fields["objective"].description
    assert all(f"`{name}`" in described for name in registry.LOSSES.names())
    formats = {source.model_fields["format"].annotation.__args__[0] for source in dataset_config.BUILT_IN_SOURCES}
    assert set(registry.FORMATS.names()) == formats


def test_hooks_of_a_component_come_with_it():
    assert model_hooks("pixels").check.__name__ == "check_pixels"
    assert model_hooks("vectors").notes.__name__ == "notes_vectors"
    assert registry.FORMATS.find("shapes").has_groups and not hasattr(registry.FORMATS.find("photos"), "has_groups")
    assert backbone_builder("clip").__module__ == "rewind.models.clip"


def test_a_misspelt_name_is_answered_with_those_that_there_are():
    with refusal("training.objective") as fault:
        make_loss("sigmoyd")
    message = str(fault.value)
    assert all(name in message for name in registry.LOSSES.names())


def test_names_are_known_without_torch():
    code = (
        "import sys; from rewind.registry import LOSSES, MODELS; MODELS.full_name('ridge'), LOSSES.names(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("first", ["import torchvision", "from torchvision import ops", "import open_clip"])
def test_a_module_of_ones_own_imports_torchvision_as_usual(tmp_path: Path, first: str):
    (tmp_path / "mine.py").write_text(
        f"{first}\n\n\ndef loss(retriever, text, items, batch):\n    raise NotImplementedError\n"
    )
    code = "from rewind.losses.base import make_loss; make_loss('mine.loss')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
