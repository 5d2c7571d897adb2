"""The table of zero-shot accuracy, and both tables of a study with a verdict on paper."""

from __future__ import annotations

import dataclasses

import pandas as pd

from messages import expect_message, refusal
from rewind.io.files import write_csv
from rewind.report import tables
from rewind.report.study import read_result
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import MARKUPS, write_table
from rewind.tables.spec import TableInputs
from table_numbers import results as plain_results
from table_texts import compile_latex, markdown_rows, needs_latex
from verdict_numbers import VALUES, results


def accuracy(method: str, estimate: float, seeds: int = 3, alike: int = 0) -> dict:
    place = {"method": method, "data": "cifar10", "templates": "openai", "images": 10_000, "alike": alike}
    ends = {"low": estimate - 1.5, "high": estimate + 1.25, "procedure": f"t over {seeds} seeds and images"}
    return place | {"seeds": seeds, "estimate": estimate, "std": 0.5 if seeds > 1 else float("nan")} | ends


def with_accuracy(given, *rows: dict):
    return dataclasses.replace(given, analyses={**given.analyses, "zero_shot": pd.DataFrame(rows)})


def published(given, stem: str = "table_zero_shot", setting: str = "test"):
    facts = Footnotes(items="images", family=2)
    return next(
        table for table in tables.build_tables(TableInputs(given, [setting], facts, "Stamps")) if table.name == stem
    )


def test_methods_in_the_studys_order_and_baselines_apart():
    given = with_accuracy(
        plain_results(), accuracy("chance", 55.0, 1), accuracy("seqLSTM", 62.25, alike=10), accuracy("meanP", 40.0)
    )
    table = published(given, setting="hard")
    rows = markdown_rows(MARKUPS[".md"](table))
    assert [row[0] for row in rows[2:]] == ["meanP", "seqLSTM", "*Baselines*", "chance"]
    assert rows[3][1] == r"62.2±0.5 \[60.8, 63.5\]" and rows[5][1] == r"55.0 \[53.5, 56.2\]", "one run has no spread"
    assert "10,000" in " ".join(table.notes) and "10 (seqLSTM)" in " ".join(table.notes)
    expect_message("\n".join([table.heading, *table.notes]))
    assert table.data["label"].tolist() == ["meanP", "seqLSTM", "chance"]
    assert table.heading in tables.summary_text(TableInputs(given, ["hard"]))


def test_without_accuracy_there_is_no_table_and_strangers_are_refused(tmp_path):
    assert "table_zero_shot" not in [
        table.name for table in tables.build_tables(TableInputs(plain_results(), ["hard"], Footnotes()))
    ]
    write_csv(tmp_path / "zero_shot.csv", pd.DataFrame([accuracy("other", 1.0)]))
    with refusal("zero_shot.csv"):
        read_result(str(tmp_path / "zero_shot.csv"), plain_results().labels)


@needs_latex
def test_both_tables_compile_and_fit_the_page(tmp_path):
    long = {name: f"Band-pass weights, topical batches {name}" for name in VALUES}
    given = with_accuracy(dataclasses.replace(results(p=0.2), labels=long), *(accuracy(name, 60.0) for name in VALUES))
    made = [published(given, stem) for stem in ("table_verdict", "table_zero_shot")]
    log = compile_latex(tmp_path, [write_table(tmp_path, table)[1] for table in made])
    assert "Overfull" not in log and "Missing character" not in log and "multiply defined" not in log
