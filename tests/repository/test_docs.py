"""What the documents name is there: paths, links with their anchors, and modules."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from pathlib import Path

import pytest

from checkout import ROOT
from rewind.config.load import load_dataset
from rewind.data.formats.shapes import write_annotations

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "config/README.md", *sorted(ROOT.glob("docs/*.md"))]
TOPS = {path.name for path in ROOT.iterdir()} & {
    *("src", "workflow", "config", "profiles", "envs", "benchmarks", "tests", "docs"),
    *("Snakefile", "Makefile", "pyproject.toml", "LICENSE"),
}
# Files that a reader is told to write.
EXAMPLES = {
    "config/datasets/clips.yaml",
    "config/datasets/my_clips.yaml",
    "config/datasets/mylab.yaml",
    "config/studies/clips.yaml",
    "config/studies/my_heads.yaml",
    "config/studies/squares.yaml",
    "src/rewind/models/closest.py",
    "src/rewind/losses/margin.py",
}
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
MODULE = re.compile(r"\brewind(?:\.[A-Za-z_]\w*)+\b")


def prose(document: Path) -> str:
    """The text without fenced and indented code."""
    return re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)


def paths(text: str) -> set[str]:
    """Paths inside of code marks that start in a folder of the repository; those with placeholders are left out."""
    words = {word.rstrip(",;:") for code in CODE.findall(text) for word in code.split()}
    return {word for word in words if word.split("/")[0] in TOPS and not re.search(r"[<>*{}…|=]", word)}


def anchors(document: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(document), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def module_exists(name: str) -> bool:
    """Whether a dotted name is a module, or something inside one."""
    parent, _, last = name.rpartition(".")
    try:
        return importlib.util.find_spec(name) is not None or hasattr(importlib.import_module(parent), last)
    except ModuleNotFoundError:
        return hasattr(importlib.import_module(parent), last) if importlib.util.find_spec(parent) else False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_exist(document: Path) -> None:
    found = paths(prose(document))
    assert not sorted(path for path in found - EXAMPLES if not (ROOT / path).exists())


def test_the_page_on_architecture_names_every_package_and_module() -> None:
    """A new folder or file at the top of the library gets its line."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    library = ROOT / "src/rewind"
    there = [f"`{path.parent.name}/`" for path in library.glob("*/__init__.py")]
    there += [f"`{path.name}`" for path in library.glob("*.py") if not path.name.startswith("__")]
    assert len(there) > 20
    assert not [name for name in there if name not in text]
    assert paths(prose(ROOT / "docs/architecture.md")), "paths are found at all"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    dead = []
    for target in LINK.findall(prose(document)):
        file, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (document.parent / file) if file else document
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            dead.append(target)
    assert not dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_modules_exist(document: Path) -> None:
    names = {name for code in CODE.findall(prose(document)) for name in MODULE.findall(code)}
    assert not sorted(name for name in names if not module_exists(name))


@pytest.mark.parametrize("document", ["docs/demo.md", "docs/search.md"])
def test_what_documents_search_for_is_in_the_test_split(document: str, tmp_path: Path) -> None:
    """A reader who types the example finds what it names."""
    searched = re.findall(r'rewind search results/demo/\S+ "([^"]+)"', (ROOT / document).read_text(encoding="utf-8"))
    source = load_dataset("shapes", ROOT / "config/datasets").source
    write_annotations(source, tmp_path)
    captions = " ".join(
        caption.lower()
        for entry in json.loads((tmp_path / "test.json").read_text(encoding="utf-8")).values()
        for caption in entry["forward_captions"]
    )
    assert searched and not [query for query in searched if query.lower() not in captions]
