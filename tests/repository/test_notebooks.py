"""Notebooks run from top to bottom in a fresh process, as a reader runs them, and are stored without outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# A cell shows its last expression, as HTML where it has some.
RUN = """
import ast, json, sys
scope = {}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, sys.argv[1], "exec"), scope)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), sys.argv[1], "eval"), scope)
            if shown is not None:
                print(shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown))
"""


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", RUN, str(notebook)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("<h3>Yes</h3>") < done.stdout.index("<b>precise</b>") < done.stdout.index("<b>blind</b>")
    assert "<h3>No, it cannot</h3>" in done.stdout and "\\begin{tabular}" in done.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(notebook: Path) -> None:
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell["outputs"] or cell["execution_count"] for cell in cells)
