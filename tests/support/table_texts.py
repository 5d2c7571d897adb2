"""Tables as text: names that no format may read as its own, rows of Markdown, and a LaTeX that sets them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from rewind.report import tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import write_table
from rewind.tables.spec import TableInputs


def markdown_rows(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


NASTY = {
    "chance": "chance – 50% & more",
    "meanP": '[a_b] ~ ^ \\ {x} $y$ #1 <z> "q" `c` |',
    "seqLSTM": "* Gödel's Σ-λ → ≥ 3 × é ñ ł ß ç ő ij",
    "seqTransf": "-- 中文 😀 ﬁ x² ½ Ⅳ",
}


needs_latex = pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")


def compile_latex(folder, inputs, options=""):
    body = "\n".join(rf"\input{{{path.stem}}}" for path in inputs)
    source = rf"\documentclass{options}{{article}}\usepackage{{booktabs}}\begin{{document}}{body}\end{{document}}"
    (folder / "all.tex").write_text(source)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def published(folder, setting, given_, facts=None):
    """Every file of a setting."""
    return [
        path
        for table in tables.build_tables(TableInputs(given_, [setting], facts or Footnotes()))
        for path in write_table(folder, table)
    ]
