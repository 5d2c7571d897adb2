"""What changes the identity of code, and what does not: words, comments, other people's heads."""

from __future__ import annotations

from pathlib import Path

import pytest

from messages import refusal
from rewind.workflow.staleness.code_hash import DefinitionHashes, ModuleReader, reachable_definitions


def is_ignored(name: str) -> bool:
    return name.partition(":")[0] in ("rewind.errors", "rewind.progress") or name == "rewind.said:where"


FILES = {
    "__init__.py": "",
    "errors.py": "class RewindError(Exception):\n    pass\n",
    "progress.py": "class Progress:\n    def advance(self, n):\n        print(n)\n",
    "said.py": "def where():\n    return 'here'\n",
    "heads.py": """
from rewind import numbers

class First:
    def forward(self, x):
        return x * numbers.FACTOR

class Second(First):
    def forward(self, x):
        return helper(x)

def helper(x):
    return x + 1

HEADS = {"first": First, "second": Second, "third": 3}
""",
    "numbers.py": "FACTOR = 2\nOTHER = 3\n",
    "door.py": "from rewind.stage import run\n",
    "stage.py": '''
"""What the module is about."""
from rewind.errors import RewindError
from rewind.progress import Progress
from rewind.said import where
from rewind.heads import HEADS

def run(x, head):
    """What it does."""
    progress = Progress("stage", 3, "steps")
    if x < 0:
        raise RewindError(f"stage: {x} is below 0; {where()} is no place for it.")
    for step in range(3):
        # a step
        x = shift(x)
        progress.advance(1, f"step {step}")
    print(f"stage: {x:,} was found")
    return HEADS[head]().forward(x)

def shift(x):
    return x + 1

def untouched(x):
    return x
''',
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "rewind"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def parts(library: Path, root: str = "rewind.stage:run", **chosen: list[str]) -> DefinitionHashes:
    return reachable_definitions(
        ModuleReader(library, is_ignored), [root], {"rewind.heads:HEADS": chosen.get("heads", [])}
    )


def edited(library: Path, name: str, old: str, new: str, **chosen: list[str]) -> set[str]:
    """Parts that differ after an edit."""
    before, text = parts(library, **chosen), (library / name).read_text()
    assert old in text
    (library / name).write_text(text.replace(old, new))
    after = parts(library, **chosen)
    return {part for part in before.keys() | after.keys() if before.get(part) != after.get(part)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""What the module is about."""', '"""About something else."""'),
        ('    """What it does."""\n', ""),
        ("        # a step\n", "        # one step of three\n"),
        ("x = shift(x)", "x = shift( x )  # moved"),
        ("is below 0; {where()} is no place", "is negative: {x} is no value"),
        ('"stage", 3, "steps"', '"this stage", 3, "rounds"'),
        ('f"step {step}"', 'f"round {step + 1}"'),
        ("{x:,} was found", "found {x} at last"),
        ("def untouched(x):\n    return x", "def untouched(x):\n    return 2 * x"),
        ("def run(x, head):", "def run(x: int, head: str) -> float:"),
    ],
)
def test_words_and_what_is_not_reached_do_not_count(library, old, new):
    assert edited(library, "stage.py", old, new) == set()


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("return x + 1", "return x + 2", "shift"),
        ("if x < 0:", "if x <= 0:", "run"),
        ('Progress("stage", 3, "steps")', 'Progress("stage", shift(3), "steps")', "run"),
        ('print(f"stage: {x:,} was found")', 'print(f"stage: {shift(x):,} was found")', "run"),
        ("range(3)", "range(4)", "run"),
        ("raise RewindError(", "raise ValueError(", "run"),
    ],
)
def test_what_computes_counts_by_its_name(library, old, new, part):
    assert edited(library, "stage.py", old, new) == {f"rewind.stage:{part}"}


def test_what_guards_a_file_does_not_count_and_what_it_stands_around_does(library):
    """A reader that is guarded anew must not make finished runs stale."""
    old = "        x = shift(x)\n"
    inside = "            require_regular_file(x)\n            x = shift(x)\n"
    guarded = f"        with reading_user_file(x, 'a number'):\n{inside}"
    door = "from rewind.said import where\n"
    names = f"{door}from rewind.io.files import reading_user_file, require_regular_file\n"
    (library / "stage.py").write_text((library / "stage.py").read_text().replace(door, names))
    assert edited(library, "stage.py", old, guarded) == set()
    assert edited(library, "stage.py", "x = shift(x)", "x = 2 * shift(x)") == {"rewind.stage:run"}
    with_another = "with reading_user_file(x, 'a number'), shift(x) as y:"
    assert edited(library, "stage.py", "with reading_user_file(x, 'a number'):", with_another) == {"rewind.stage:run"}
    bare = with_another.replace("reading_user_file(x, 'a number'), ", "")
    assert edited(library, "stage.py", with_another, bare) == set()


def test_a_head_of_a_table_counts_where_it_is_named(library):
    chosen = {"heads": ["rewind.heads:HEADS[first]"]}
    assert edited(library, "heads.py", "return helper(x)", "return helper(2 * x)", **chosen) == set()
    assert edited(library, "numbers.py", "FACTOR = 2", "FACTOR = 5", **chosen) == {"rewind.numbers:FACTOR"}
    found = edited(library, "heads.py", "x * numbers.FACTOR", "x / numbers.FACTOR", **chosen)
    assert found == {"rewind.heads:First.forward"}
    second = {"heads": ["rewind.heads:HEADS[second]"]}
    assert edited(library, "heads.py", "return x + 1", "return x - 1", **second) == {"rewind.heads:helper"}
    assert "rewind.heads:First.forward" in parts(library, **second), "a class counts with its bases"
    other = edited(library, "heads.py", '"third": 3', '"third": 4', heads=["rewind.heads:HEADS[third]"])
    assert other == {"rewind.heads:HEADS[third]"}


def test_without_a_name_the_whole_table_counts(library):
    everything = reachable_definitions(ModuleReader(library, is_ignored), ["rewind.stage:run"], {})
    assert {"rewind.heads:HEADS", "rewind.heads:Second.forward", "rewind.heads:helper"} <= everything.keys()
    assert "rewind.numbers:OTHER" not in everything


def test_a_name_is_followed_through_a_door_and_an_unknown_one_counts_with_all_of_its_module(library):
    assert "rewind.stage:shift" in parts(library, "rewind.door:run")
    (library / "stage.py").write_text("from rewind.numbers import made_later\n\ndef run():\n    return made_later\n")
    assert {"rewind.numbers:FACTOR", "rewind.numbers:OTHER"} <= parts(library).keys()
    (library / "stage.py").write_text("from rewind import numbers\n\ndef run():\n    return vars(numbers)\n")
    assert {"rewind.numbers:FACTOR", "rewind.numbers:OTHER"} <= parts(library).keys()


@pytest.mark.parametrize(
    "text",
    [
        "from rewind import registry\n\n@registry.add\ndef hidden():\n    return 1\n\ndef run():\n    return 0\n",
        "import atexit\n\n@atexit.register\ndef hidden():\n    return 1\n\ndef run():\n    return 0\n",
        "HEADS = {}\nHEADS['x'] = 1\n\ndef run():\n    return 0\n",
        "import torch\n\ntorch.set_flush_denormal(1)\n\ndef run():\n    return 0\n",
        "def run():\n    from rewind.numbers import FACTOR\n    return FACTOR * 1\n",
        "from rewind.numbers import *\n\ndef run():\n    return FACTOR * 1\n",
        "if True:\n    def run():\n        return 1\nelse:\n    def run():\n        return 0\n",
        "def run():\n    with open('x') as out:\n        print('a result: 1', file=out)\n",
    ],
)
def test_what_runs_on_import_and_other_ways_to_compute_count(library, text):
    (library / "registry.py").write_text("def add(what):\n    return what\n")
    (library / "stage.py").write_text(text)
    before = parts(library)
    (library / "stage.py").write_text(text.replace("1", "2"))
    assert before != parts(library)


def test_a_root_that_is_not_there_is_refused(library):
    with refusal():
        parts(library, "rewind.stage:gone")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine" / "lab_of_mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "heads.py").write_text("from .blocks import Block\nimport beside_it\n\nclass Head(Block):\n    pass\n")
    (folder / "blocks.py").write_text(
        "from rewind.numbers import FACTOR\nSIZE = 3\n\nclass Block:\n    size = FACTOR\n"
    )
    (folder / "notes.py").write_text("PRICE = 1\n")
    (folder.parent / "beside_it.py").write_text("DEPTH = 1\n")
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def test_modules_of_ones_own_count_with_what_they_import(library, mine):
    def mark() -> DefinitionHashes:
        return parts(library, "lab_of_mine.heads.Head")

    first = mark()
    assert "rewind.numbers:FACTOR" in first and "lab_of_mine.heads:Head" in first
    for path, old, new, counts in (
        (mine / "blocks.py", "SIZE = 3", "SIZE = 4", True),
        (mine.parent / "beside_it.py", "DEPTH = 1", "DEPTH = 2", True),
        (mine / "__init__.py", "", "import os\nos.umask(2)\n", True),
        (library / "numbers.py", "FACTOR = 2", "FACTOR = 7", True),
        (mine / "heads.py", "    pass", '    """Mine."""  # a comment', False),
        (mine / "notes.py", "PRICE = 1", "PRICE = 2", False),
    ):
        before, text = mark(), path.read_text()
        path.write_text(text.replace(old, new) if old else new)
        assert (mark() != before) == counts, path


def test_of_a_package_that_imports_by_string_all_counts(library, mine):
    (mine / "heads.py").write_text("import importlib\n\ndef build(name):\n    return importlib.import_module(name)\n")
    assert "lab_of_mine.notes:PRICE" in parts(library, "lab_of_mine.heads")
