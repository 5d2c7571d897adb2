"""Numbers of papers and of people in a table of their own."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from messages import invalid
from rewind.config import Study
from rewind.report import tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import MARKUPS, render_text
from rewind.tables.spec import TableInputs
from rewind.tables.table import Table
from table_numbers import FACTS, results
from table_texts import markdown_rows

PEOPLE = {"method": "People", "setting": "binary", "value": 97.3, "source": "2412.19178, Table 3, p. 6"}
PAPER = {"method": "CLIP4Clip", "setting": "hard", "value": 14.2, "source": "2412.19178, Table 2"}
OTHER = {
    "method": "Other",
    "setting": "hard",
    "value": 21,
    "source": "Its page, 2026",
    "differs": "one seed",
}


def study(*numbers: dict[str, Any], **keys: Any) -> Study:
    evaluation = {"settings": ["hard", "binary"], "directions": ["text_to_item"]} | keys
    return Study(name="s", dataset="d", methods={"m": {}}, evaluation=evaluation, tables={"quoted": list(numbers)})


def table(*numbers: dict[str, Any]) -> Table:
    inputs = TableInputs(
        results(with_gaps=True), ["hard"], Footnotes.from_json(FACTS), "RTime", quoted=study(*numbers).tables.quoted
    )
    made = list(tables.build_tables(inputs))
    assert [each.name for each in made[:2]] == ["table_B_hard", "table_quoted"], "below the study's own numbers"
    assert made[0] == next(iter(tables.build_tables(TableInputs(results(), ["hard"], inputs.facts, "RTime"))))
    return made[1]


def test_quoted_numbers_stand_apart_with_what_to_cite() -> None:
    made = table(PEOPLE, PAPER, OTHER, PAPER | {"metric": "MdR", "value": 7})
    assert [column.title for column in made.columns] == ["Method", "Source", "accuracy or R@1", "MdR"]
    assert [group.title for group in made.groups] == ["Hard", "Binary"]
    rows = [[cell.replace("&numsp;", "") for cell in row] for row in markdown_rows(MARKUPS[".md"](made))]
    assert ["CLIP4Clip", "2412.19178, Table 2", "14.2", "7.0"] in rows
    assert ["Other", "Its page, 2026", "21.0 <sup>1</sup>", "–"] in rows
    text = render_text(made)
    assert "97.3" in text and "[" not in text, "no intervals"
    assert any("1: one seed" in note for note in made.notes)
    for name in ("Its page, 2026", "14", "97"):
        assert MARKUPS[".tex"](made).count(name) == 1
    assert made.data["value"].tolist() == [97.3, 14.2, 21.0, 7.0]


def test_a_study_without_quoted_numbers_has_no_such_table() -> None:
    names = [each.name for each in tables.build_tables(TableInputs(results(), ["hard"], Footnotes.from_json(FACTS)))]
    assert "table_quoted" not in names


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        (PAPER | {"setting": "origin"}, "tables.quoted[1].setting: origin is not among evaluation.settings"),
        (PAPER | {"direction": "item_to_text"}, "tables.quoted[1].direction: item_to_text is not among"),
        (PAPER | {"value": 142}, "tables.quoted[1].value: 142 cannot be: R@1 is in percent, from 0 to 100"),
        (PAPER | {"metric": "MdR", "value": 0.5}, "tables.quoted[1].value: 0.5 cannot be: MdR is in ranks"),
        (PEOPLE, "tables.quoted[1]: People’s R@1 is quoted in tables.quoted[0] too"),
    ],
)
def test_what_cannot_stand_beside_the_study_is_refused(number: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError) as error:
        study(PEOPLE, number)
    assert fault in str(error.value)


@pytest.mark.parametrize("change", [{"metric": "R@0"}, {"value": "much"}, {"source": ""}, {"setting": "near"}])
def test_a_number_that_is_none_is_refused_by_its_key(change: dict[str, Any]) -> None:
    with invalid(f"tables.quoted.0.{next(iter(change))}"):
        study(PAPER | change)
