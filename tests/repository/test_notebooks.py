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


def shown(name: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", RUN, str(ROOT / f"examples/{name}.ipynb")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_vectors_in_and_the_answer_out(tmp_path: Path) -> None:
    text = shown("which_way", tmp_path)
    assert text.index("<h3>Yes</h3>") < text.index("<b>precise</b>") < text.index("<b>blind</b>")
    assert "<h3>No, it cannot</h3>" in text and "\\begin{tabular}" in text


@pytest.mark.slow
def test_a_head_of_ones_own_is_trained_and_judged(tmp_path: Path) -> None:
    text = shown("own_model", tmp_path)
    assert "<b>neighbours</b>" in text and text.index("<h3>No, it cannot</h3>") < text.index("<b>meanP</b>")
    assert (tmp_path / "results/own/report.html").is_file()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(notebook: Path) -> None:
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell["outputs"] or cell["execution_count"] for cell in cells)
