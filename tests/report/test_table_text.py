"""Tables as text: Markdown, LaTeX, the terminal, and the footnotes under them."""

import re
import shutil
import subprocess
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages import expect_message, refusal
from rewind.figures import style
from rewind.report import tables
from rewind.report.page.document import html_paragraph
from rewind.tables import latex
from rewind.tables.footnotes import Footnotes, describe_coverage, shared_notes
from rewind.tables.notes import setting_notes, summary_table_key
from rewind.tables.render import MARKUPS, escape_markdown, render_text, write_table
from rewind.tables.settings import compare_in_setting
from rewind.tables.spec import TableInputs
from rewind.tables.table import Cell, Column, RowGroup, Table, format_number, format_p_value
from table_numbers import FACTS, results
from table_texts import NASTY, compile_latex, markdown_rows, needs_latex


def setting_table(folder, setting="hard", given_=None, facts=FACTS, dataset="RTime"):
    """Paths of a setting's own table: Markdown, LaTeX, HTML, CSV."""
    table = next(
        tables.build_tables(
            TableInputs(given_ or results(setting=setting), [setting], Footnotes.from_json(facts), dataset)
        )
    )
    return write_table(folder, table)


def test_markdown_as_printed(tmp_path):
    path, *_ = setting_table(tmp_path)
    text = path.read_text()
    assert path.name == "table_B_hard.md"
    assert text.startswith("**Table B. ") and "RTime, Hard" in text.splitlines()[0] and "\n\n| Method " in text
    assert len({len(line) for line in text.splitlines() if line.startswith("|")}) == 1, "the source is aligned too"
    head, _, *rows = markdown_rows(text)
    assert head == ["Method", "Train", "R@1 ↑", "R@5 ↑", "R@10 ↑", "MdR ↓", "MnR ↓"]
    assert rows[0] == [
        "meanP <sup>a</sup>",
        "RTime",
        "21.0±1.4",
        "31.0±1.4",
        "41.0±1.4",
        "24.8±0.4",
        "&numsp;99.0±1.4",
    ]
    assert rows[1][2] == "30.2±0.4"
    assert rows[2][0] == "seqTransf <sup>c</sup>"
    assert rows[2][2] == "**40.5**±0.7 <sup>a,b</sup>"
    assert rows[2][5] == "19.9±0.2"  # MdR is not tested: never bold, never marked
    assert rows[2][6] == "&numsp;79.5±0.7"  # R@1 decides
    assert rows[3][0] == "*Baselines*"
    assert rows[4][:3] == ["chance", "RTime", "&numsp;0.1"]  # no letter, no ±, at the point of the others
    assert len(rows) == 5


def test_binary_has_accuracy_with_interval_and_strict(tmp_path):
    paths = setting_table(tmp_path, "binary")
    assert [path.name for path in paths] == [f"table_binary.{kind}" for kind in ("md", "tex", "html", "csv")]
    rows = markdown_rows(paths[0].read_text())
    assert rows[0] == ["Method", "Train", "T2V accuracy ↑", "T2V strict ↑", "V2T accuracy ↑", "V2T strict ↑"]
    assert rows[2][2:4] == [r"21.0±1.4 \[17.8, 25.5\]", "10.5±0.7"]
    assert rows[4][2:4] == [r"**40.5**±0.7 \[37.2, 45.0\] <sup>a,b</sup>", "20.2±0.4"]  # strict is not tested
    expect_message("\n".join(line for line in paths[0].read_text().splitlines() if "95%" in line))


def test_summary_stands_at_the_decimal_point():
    lines = tables.summary_text(TableInputs(results(), ["hard"], dataset="RTime")).splitlines()
    numbers_ = [line for line in lines if "±" in line or line.startswith("   chance")]
    points = [re.search(r"(?<=\d)\.\d", line).start() for line in numbers_]
    assert len(numbers_) == 4 and len(set(points)) == 1
    assert "*40.5±0.7 (a,b)" in numbers_[2]
    last = [line.rindex(".") for line in numbers_ if "±" not in line] + [line.rindex("±") - 2 for line in numbers_[:3]]
    assert len(set(last)) == 1, "whatever the width before the point"
    expect_message(lines[0])


def test_the_summary_has_the_notes_of_its_tables():
    """Who reads the terminal alone learns what a row is, and why it has no numbers."""
    random = "Wild: a network with random weights, on purpose (untrained: true), for reference"
    facts = Footnotes.from_json(FACTS, {"notes": [random]})
    text = tables.summary_text(TableInputs(results(), ["hard"], dataset="RTime", facts=facts))
    said = " ".join(text.split())
    assert said.count(f"{random}.") == 1
    made = next(tables.build_tables(TableInputs(results(), ["hard"], facts, "RTime")))
    shared = shared_notes(facts)
    assert len(shared) > 5 and all(note in said for note in shared)
    assert len(made.notes) <= 5 and not {*made.notes} & {*shared}, "what holds for all tables is said once"
    assert all(len(line) <= 120 for line in text.splitlines()[8:])
    unknown = tables.summary_text(TableInputs(results(), ["hard"]))
    assert unknown.count("\n- ") == 2, "nothing else is known"
    expect_message(unknown[unknown.index("\n- ") :])
    table = compare_in_setting(results(), "hard")
    absent = replace(table, rows=(*table.rows[:-1], replace(table.rows[-1], absent="no score of its captions")))
    expect_message(summary_table_key(Footnotes(), absent))


def test_footnotes_say_what_was_given():
    facts = Footnotes.from_json(FACTS)
    found = [*setting_notes(facts, compare_in_setting(results(), "hard")), *shared_notes(facts)]
    expect_message("\n".join(found))
    said = " ".join(found)
    assert said.count("t over seeds and queries") == 1, "the procedure is named once"
    for fact in ("1,000 clusters", "2,000 videos", "3 pairs", "ViT-B/32", "H100", "0, 1", "First note"):
        assert fact in said


def test_empty_footnotes_leave_only_how_to_read():
    assert len(setting_notes(Footnotes(), compare_in_setting(results(), "hard"))) == 3  # reading, marks, two seeds
    assert shared_notes(Footnotes()) == []


def test_one_seed_claims_nothing_of_methods():
    single = results({"meanP": [20.0], "seqLSTM": [30.0]}, {})
    facts = FACTS | {"procedures": {"queries only, this checkpoint": ["meanP", "seqLSTM"]}}
    found = setting_notes(Footnotes.from_json(facts), compare_in_setting(single, "hard"))
    assert not any("Holm" in sentence for sentence in found)
    expect_message("\n".join(found))


def test_three_seeds_need_no_caution_and_a_lone_checkpoint_does():
    three = {"meanP": [20.0, 21.0, 22.0], "seqLSTM": [30.0, 31.0, 32.0]}
    plain = setting_notes(Footnotes(), compare_in_setting(results(three, {}), "hard"))
    assert len(plain) == 1, "units and spread"
    mixed = setting_notes(Footnotes(), compare_in_setting(results(three | {"tight": [25.0]}, {}), "hard"))
    expect_message("\n".join(sentence for sentence in mixed if sentence not in plain))


def test_numbers_as_text():
    assert [format_number(v) for v in (0.04, -0.04, -12.35, 100)] == ["0.0", "0.0", "−12.3", "100.0"]
    assert [format_number(v, 2, signed=True) for v in (0.001, 0.5, -0.5)] == ["0.00", "+0.50", "−0.50"]
    assert format_number(float("nan")) == "–" and format_p_value(float("nan")) == "–"
    assert [format_p_value(p) for p in (0.0009, 0.001, 0.04999, 1)] == ["<0.001", "0.001", "0.050", "1.000"]


def test_an_unknown_fact_is_refused():
    with refusal("footnotes"):
        Footnotes.from_json({"bakcbone": "CLIP"})


def test_coverage():
    expect_message(describe_coverage(1080, {}, "clips"))
    lost = describe_coverage(1000, {"not found": 10, "cannot be decoded": 2, "too long": 0})
    assert "12 of 1,000" in lost and "too long" not in lost
    expect_message(lost)


@given(st.text(max_size=40))
def test_latex_text_is_ascii_with_balanced_braces(text):
    found = latex.escape_latex(text)
    assert found.isascii() and "\n" not in found
    bare = re.sub(r"\\[{}]", "", found)
    depth = np.cumsum([(c == "{") - (c == "}") for c in bare] or [0])
    assert depth[-1] == 0 and depth.min() >= 0


@given(st.text(max_size=40))
def test_markdown_text_stays_in_its_cell(text):
    found = escape_markdown(text)
    assert "\n" not in found
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", found)


@pytest.mark.parametrize("render", [*MARKUPS.values(), render_text, html_paragraph, style.escape_dollars])
def test_no_medium_prints_what_a_reader_would_not_see(render):
    """Direction marks, characters without width, ends of lines: whatever a label holds is written out."""
    odd = "a\u202eb\u200bc\u2066d\ufeffe\U000e0041f\u00adg\x1b[2Jh"
    column = Column(odd, number=False, group=odd)
    table = Table("T", odd, "t", (column,), (RowGroup(odd, ((Cell(odd, marks=odd),),)),), key=odd, notes=(odd,))
    made = render(odd if render in (html_paragraph, style.escape_dollars) else table)
    assert not [c for c in made if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"], made


@needs_latex
def test_every_table_compiles_and_fits_the_page(tmp_path):
    inputs = [setting_table(tmp_path, name)[1] for name in ("origin", "hard", "binary", "test")]
    log = compile_latex(tmp_path, inputs)
    assert "Overfull" not in log and "Missing character" not in log and "multiply defined" not in log


@needs_latex
def test_any_label_and_note_compiles(tmp_path):
    notes = [*NASTY.values(), " ".join(map(chr, range(0x20, 0x250))), "Α Β Ω α ω ς ο µ ° † ± ∈ “x” ‘y’ … „z”"]
    nasty = results(setting="test", labels=NASTY, train=NASTY)
    path = setting_table(tmp_path, "test", nasty, FACTS | {"notes": notes}, "R&D_100%")[1]
    log = compile_latex(tmp_path, [path], "[twocolumn]")
    assert "Missing character" not in log
    if shutil.which("pdftotext"):
        subprocess.run(["pdftotext", "-layout", "all.pdf"], cwd=tmp_path, check=True)
        text = (tmp_path / "all.txt").read_text()
        for part in ("chance – 50% & more", "[a", "{x} $y$ #1 <z>", "40.5", "±", "[U+4E2D]"):
            assert part in text


WIDE = ["R@1", "R@5", "R@10", "MdR", "MnR", "item_to_text R@1", "item_to_text R@5", "item_to_text MnR interval"]


@needs_latex
@pytest.mark.parametrize("columns", [WIDE, ["R@1 interval", "R@5 interval", "R@10 interval", "MRR interval", "MdR"]])
def test_columns_that_do_not_fit_are_stacked(tmp_path, columns):
    values = {"chance": [0.05], "meanP": [20.0, 22.0], "seqTransf": [40.0, 41.0], "tightTransf": [10.0, 70.0]}
    path = setting_table(tmp_path, given_=results(values, {("meanP", "seqTransf"): 0.01}, columns=columns))[1]
    assert path.read_text().count(r"\begin{tabular}") > 1
    assert "Overfull" not in compile_latex(tmp_path, [path])


def test_latex_has_one_backslash_and_no_preamble(tmp_path):
    text = setting_table(tmp_path)[1].read_text()
    assert r"\,$\pm$\,1.4" in text and r"$\\pm" not in text
    assert r"\textbf{40} & \textbf{.5}" in text and r"\textsuperscript{a,b}" in text
    assert r"\documentclass" not in text and r"\usepackage" not in text.replace(r"% Needs \usepackage", "")
    assert text.count(r"\midrule") == 2  # under the head, and above the baselines


def test_unequal_budgets_are_said_wherever_a_table_is_read():
    """In the key that the terminal prints, in the notes, and in the line of a paper's table."""
    alike = Footnotes(budgets={"5 epochs of batches of 128": ["meanP", "seqLSTM"]})
    unlike = Footnotes(budgets={"5 epochs of batches of 128": ["meanP"], "8 epochs of batches of 16": ["seqLSTM"]})
    said = "Training budgets differ: 5 epochs of batches of 128 (meanP); 8 epochs of batches of 16 (seqLSTM)."
    for facts, expected in ((alike, False), (unlike, True)):
        inputs = TableInputs(results(), ["hard"], facts, "RTime")
        made = next(tables.build_tables(inputs))
        assert (said in " ".join(made.notes)) == expected and (said in " ".join(made.key.split())) == expected
        assert ("training budgets differ" in made.short_note) == expected
        assert said in " ".join(tables.summary_text(inputs).split()) or not expected
    assert "Training: 5 epochs of batches of 128." in shared_notes(alike)
