"""Examples in docstrings run, and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import rewind
from checkout import ROOT

COMMANDS = {"rewind.__main__"}  # importing it runs the command line
FOR_FOREIGN_TOOLS = {"rewind.exports.templates.mteb_tasks"}  # is copied to where MTEB and its data are
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(rewind.__path__, "rewind.")
    if module.name not in COMMANDS | FOR_FOREIGN_TOOLS
)
TOOLS = ["reference_tests", *sorted(path.stem for path in (ROOT / "tools/publish").glob("[a-z]*.py"))]


@pytest.mark.parametrize("name", [*MODULES, *TOOLS])
def test_examples_print_what_they_say(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert not failed


def test_there_are_examples_in_every_package() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    packages = {
        name.split(".")[1]
        for name in MODULES
        for example in finder.find(importlib.import_module(name))
        if example.examples
    }
    library = {"config", "data", "video", "models", "loading", "encoders", "losses", "training", "evaluation"}
    assert packages >= library | {"statistics", "report", "workflow"}
