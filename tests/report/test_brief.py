"""``tables.notes``: what stands below tables in LaTeX, and that nothing of it is lost."""

from pathlib import Path

import pytest

from rewind.report.tables import build_tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.latex import escape_latex
from rewind.tables.render import write_table
from rewind.tables.short_notes import with_latex_notes
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, results


def made(folder: Path, notes: str) -> dict[str, str]:
    """Every file of a study with one setting."""
    tables = list(build_tables(TableInputs(results(with_gaps=True), ["hard"], Footnotes.from_json(FACTS), "RTime")))
    for table in with_latex_notes(tables, notes):
        write_table(folder, table)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@pytest.mark.parametrize("notes", ["short", "none"])
def test_other_formats_keep_all_notes_and_numbers(tmp_path: Path, notes: str) -> None:
    full, brief = made(tmp_path / "full", "full"), made(tmp_path / notes, notes)
    assert set(full) == set(brief)
    assert {name for name in full if full[name] != brief[name]} == {name for name in full if name.endswith(".tex")}


@pytest.mark.parametrize("notes", ["short", "none"])
def test_no_note_is_lost(tmp_path: Path, notes: str) -> None:
    """The appendix has every sentence that the table of the setting, of pairs and of gaps leave out."""
    made(tmp_path, notes)
    appendix = (tmp_path / "table_seeds_hard.tex").read_text(encoding="utf-8")
    for table in build_tables(TableInputs(results(with_gaps=True), ["hard"], Footnotes.from_json(FACTS), "RTime")):
        assert table.notes
        for sentence in table.notes:
            assert escape_latex(sentence) in appendix, (table.name, sentence)


def test_one_line_has_what_a_reviewer_asks_for(tmp_path: Path) -> None:
    text = made(tmp_path, "short")["table_B_hard.tex"]
    below = text[text.index(r"\raggedright") :].splitlines()[1:]
    assert len([line for line in below if line.strip(" }") and not line.startswith("\\end")]) == 1, below
    for words in ("2,000 queries in 1,000 clusters", "over 2 seeds", "Holm over 3 pairs", "0.05", "every run"):
        assert words in below[0], (words, below[0])
    none = made(tmp_path / "none", "none")["table_B_hard.tex"]
    assert r"\raggedright" not in none


def test_without_a_table_of_runs_notes_stay(tmp_path: Path) -> None:
    tables = [
        table
        for table in build_tables(TableInputs(results(), ["hard"], Footnotes.from_json(FACTS), "RTime"))
        if not table.name.startswith("table_seeds")
    ]
    assert with_latex_notes(tables, "none") == tables
