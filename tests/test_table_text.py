"""Tables as text: Markdown, LaTeX, the terminal, and the footnotes under them."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewind.errors import RewindError
from rewind.reporting import latex, markup, tables
from rewind.reporting.cells import build
from rewind.reporting.footnotes import Footnotes, coverage, sentences
from table_numbers import FACTS, results


def markdown_rows(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_markdown_as_printed(tmp_path):
    path, *_ = tables.render(tmp_path, "hard", results(), Footnotes.from_json(FACTS), "RTime")
    text = path.read_text()
    assert path.name == "table_B_hard.md"
    assert text.startswith("**Table B. RTime, Hard: text→video retrieval**\n\n| Method | Train |")
    head, _, *rows = markdown_rows(text)
    assert head == ["Method", "Train", "R@1", "R@5", "R@10", "MdR", "MnR"]
    assert rows[0] == [
        "meanP <sup>a</sup>",
        "RTime",
        "21.0±1.4",
        "31.0±1.4",
        "41.0±1.4",
        "24.8±0.4",
        "99.0±1.4",
    ]
    assert rows[1][2] == "30.2±0.4"
    assert rows[2][0] == "seqTransf <sup>c</sup>"
    assert rows[2][2] == "**40.5**±0.7 <sup>a,b</sup>"
    assert rows[2][5] == "19.9±0.2"  # MdR is not tested: never bold, never marked
    assert rows[2][6] == "**79.5**±0.7 <sup>a,b</sup>"  # MnR: lower is better
    assert rows[3][0] == "*Baselines*"
    assert rows[4][:3] == ["chance", "RTime", "0.1"]  # no letter, no ±
    assert len(rows) == 5


def test_binary_has_accuracy_with_interval_and_strict(tmp_path):
    paths = tables.render(tmp_path, "binary", results(setting="binary"), Footnotes.from_json(FACTS), "RTime")
    assert [path.name for path in paths] == ["table_binary.md", "table_binary.tex", "table_binary.csv"]
    rows = markdown_rows(paths[0].read_text())
    assert rows[0] == ["Method", "Train", "T2V accuracy", "T2V strict", "V2T accuracy", "V2T strict"]
    assert rows[2][2:4] == ["21.0±1.4 [17.8, 25.5]", "10.5±0.7"]
    assert rows[4][2:4] == ["**40.5**±0.7 [37.2, 45.0] <sup>a,b</sup>", "20.2±0.4"]  # strict is not tested
    assert "In brackets 95% intervals" in paths[0].read_text()


def test_summary_stands_at_the_decimal_point():
    lines = tables.summary(results(), ["hard"], dataset="RTime").splitlines()
    numbers_ = [line for line in lines if "±" in line or line.startswith("   chance")]
    points = [re.search(r"(?<=\d)\.\d", line).start() for line in numbers_]
    assert len(numbers_) == 4 and len(set(points)) == 1
    assert "*40.5±0.7 (a,b)" in numbers_[2]
    assert lines[0] == "Table B. RTime, Hard: text→video retrieval"


def test_footnotes_say_what_was_given():
    found = sentences(Footnotes.from_json(FACTS), build(results(), "hard"))
    assert found[0] == "Hard: 2,000 captions search 2,000 videos."
    for sentence in (
        "Mean ± standard deviation over 2 seeds; a row without ± is a single run or a closed form.",
        "Backbone: CLIP ViT-B/32.",
        "At most 12 frames per clip, chosen on validation from 12, 16 and 24.",
        "Decoding: 3 frames per second, short side 224 pixels, uniform sampling, ffmpeg 7.1.",
        "Hardware: 4 × NVIDIA H100.",
        "Training seeds: 0, 1.",
        "Coverage: all 2,000 videos usable.",
        "First note.",
    ):
        assert sentence in found
    assert any("p < 0.05 after Holm's correction over 3 pairs (paired bootstrap)" in s for s in found)


def test_empty_footnotes_leave_only_how_to_read():
    assert len(sentences(Footnotes(), build(results(), "hard"))) == 3  # units, spread, marks


def test_an_unknown_fact_is_refused():
    with pytest.raises(RewindError, match="did you mean 'backbone'"):
        Footnotes.from_json({"bakcbone": "CLIP"})


def test_coverage():
    assert coverage(1080, {}, "clips") == "all 1,080 clips usable"
    lost = coverage(1000, {"not found": 10, "cannot be decoded": 2, "too long": 0})
    assert lost == "12 of 1,000 videos missing (10 not found, 2 cannot be decoded)"


@given(st.text(max_size=40))
def test_latex_text_is_ascii_with_balanced_braces(text):
    found = latex.escape(text)
    assert found.isascii() and "\n" not in found
    bare = re.sub(r"\\[{}]", "", found)
    depth = np.cumsum([(c == "{") - (c == "}") for c in bare] or [0])
    assert depth[-1] == 0 and depth.min() >= 0


@given(st.text(max_size=40))
def test_markdown_text_stays_in_its_cell(text):
    found = markup.escape(text)
    assert "\n" not in found
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", found)


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
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@needs_latex
def test_every_table_compiles_and_fits_the_page(tmp_path):
    facts = Footnotes.from_json(FACTS)
    names = ("origin", "hard", "binary", "test")
    inputs = [tables.render(tmp_path, name, results(setting=name), facts, "RTime")[1] for name in names]
    log = compile_latex(tmp_path, inputs)
    assert "Overfull" not in log and "Missing character" not in log and "multiply defined" not in log


@needs_latex
def test_any_label_and_note_compiles(tmp_path):
    notes = [*NASTY.values(), " ".join(map(chr, range(0x20, 0x250))), "Α Β Ω α ω ς ο µ ° † ± ∈ “x” ‘y’ … „z”"]
    nasty = results(setting="test", labels=NASTY, train=NASTY)
    facts = Footnotes.from_json(FACTS, {"notes": notes})
    log = compile_latex(tmp_path, [tables.render(tmp_path, "test", nasty, facts, "R&D_100%")[1]], "[twocolumn]")
    assert "Missing character" not in log
    if shutil.which("pdftotext"):
        subprocess.run(["pdftotext", "-layout", "all.pdf"], cwd=tmp_path, check=True, timeout=60)
        text = (tmp_path / "all.txt").read_text()
        for part in ("chance – 50% & more", "[a", "{x} $y$ #1 <z>", "40.5", "±", "[U+4E2D]"):
            assert part in text


def test_latex_has_one_backslash_and_no_preamble(tmp_path):
    text = tables.render(tmp_path, "hard", results(), Footnotes.from_json(FACTS))[1].read_text()
    assert r"\,$\pm$\,1.4" in text and r"$\\pm" not in text
    assert r"\textbf{40} & \textbf{.5}" in text and r"\textsuperscript{a,b}" in text
    assert r"\documentclass" not in text and r"\usepackage" not in text.replace(r"% Needs \usepackage", "")
    assert text.count(r"\midrule") == 2  # under the head, and above the baselines
