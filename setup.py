"""The wheel holds the workflow and its configuration too, which lie beside ``src``; all else is in pyproject.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# MANIFEST.in puts the same files into an sdist, and src/rewind/packaged.py finds them in a wheel.
SHIPPED = (
    "Snakefile",
    "workflow/report",
    "workflow/rules",
    "workflow/scripts",
    "config",
    "profiles",
    "envs/constraints.txt",
)
TARGET = "rewind/_workflow"


class BuildWithWorkflow(build_py):
    """Copies the workflow into the package that is built; an editable install uses the checkout's own files."""

    def run(self) -> None:
        super().run()
        shutil.rmtree(Path(self.build_lib, TARGET), ignore_errors=True)  # an earlier build may have left other files
        for source, copy in self._files():
            Path(copy).parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(source, copy)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *(copy for _, copy in self._files())]

    def _files(self) -> list[tuple[str, str]]:
        """Every file, and where it goes; paths begin at the repository's top, where a build runs."""
        if self.editable_mode:
            return []
        found: list[Path] = []
        for name in map(Path, SHIPPED):
            below = sorted(path for path in name.rglob("*") if path.is_file()) if name.is_dir() else [name]
            found += [path for path in below if not any(part.startswith((".", "__pycache__")) for part in path.parts)]
        return [(str(path), str(Path(self.build_lib, TARGET, path))) for path in found]


setup(cmdclass={"build_py": BuildWithWorkflow})
