"""A miniature study with the lowest versions that pyproject.toml allows; docs/cluster.md then says when it passed.

    python benchmarks/lowest.py .venv-lowest       # or: make lowest

The environment is made anew. The study runs from clips to tables; then nothing may be stale, an edited head must train
its runs again, and what is asked for by `--until` must be there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT, LINE = ROOT / "docs/cluster.md", re.compile(r"^<!-- lowest -->.*$", re.M)
STUDY = "tests/workflow/test_workflow.py"
TESTS = [
    f"{STUDY}::test_from_clips_to_tables",
    f"{STUDY}::test_nothing_to_do_and_touching_changes_nothing",
    f"{STUDY}::test_editing_a_head_retrains_it_and_leaves_the_rest_alone",
    "tests/workflow/test_until.py",
]


def lowest_versions() -> dict[str, str]:
    """Package → the lower bound of its requirement, where it is required on this machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [Requirement(line) for line in project["dependencies"]]
    here = [one for one in required if one.marker is None or one.marker.evaluate()]
    return {one.name: str(one.specifier).removeprefix(">=") for one in here}


def make_environment(folder: Path, versions: dict[str, str]) -> Path:
    """An environment with exactly these versions, and pytest; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin/python"
    pins = [f"{name}=={version}" for name, version in versions.items()]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pins, "pytest", "hypothesis"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", ROOT], check=True)
    return python


def main() -> None:
    versions = lowest_versions()
    python = make_environment(Path(sys.argv[1]).absolute(), versions)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    subprocess.run([python, "-m", "pytest", "-p", "no:cacheprovider", *TESTS], cwd=ROOT, env=environment, check=True)
    release = sys.version.split()[0]
    words = ", ".join(f"{name} {version}" for name, version in versions.items())
    line = f"<!-- lowest -->It last passed on {time.strftime('%-d %B %Y')}, with Python {release}, {words}."
    text, replaced = LINE.subn(line, DOCUMENT.read_text())
    assert replaced == 1, f"{DOCUMENT}: no line that begins with <!-- lowest -->"
    DOCUMENT.write_text(text)
    print(line)


if __name__ == "__main__":
    main()
