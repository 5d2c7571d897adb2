"""The table of zero-shot classification: accuracy on labelled images that no method was trained on."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.errors import RewindError
from rewind.report.footnotes import Footnotes, confidence_percent, finish_sentences, seed_caution
from rewind.report.results import Results
from rewind.report.sheet import ColumnHead, RowGroup, Sheet, SheetCell, format_bounds, format_number

DATA_TITLES = {"cifar10": "CIFAR-10"}


def csv_rows(results: Results) -> pd.DataFrame:
    """The table's CSV: accuracy in percent with its interval, methods in the order of the tables, with their names.

    Raises:
        RewindError: for a method that is not in the study.
    """
    order = {method: at for at, method in enumerate(results.ordered())}
    unknown = [method for method in results.zero_shot["method"] if method not in order]
    if unknown:
        raise RewindError(f"statistics/zero_shot.csv: method {unknown[0]!r} is not in the study; make the file anew.")
    rows = results.zero_shot.sort_values("method", key=lambda m: m.map(order), kind="stable", ignore_index=True)
    rows.insert(0, "label", rows["method"].map(results.labels))
    return rows


def sheet(results: Results) -> Sheet:
    """A row per method that has towers."""
    rows = csv_rows(results)
    groups = (
        ("", rows[~rows["method"].isin(list(results.baselines))]),
        ("Baselines", rows[rows["method"].isin(list(results.baselines))]),
    )
    parts = tuple(RowGroup(title, tuple(map(_line, group.itertuples()))) for title, group in groups if len(group))
    heads = (ColumnHead("Method", number=False), ColumnHead("Accuracy", "↑"))
    return Sheet(
        "Zero-shot", f"{_data_title(rows)}: zero-shot classification", f"{rows['data'].iloc[0]}-zero-shot", heads, parts
    )


def _line(row: Any) -> tuple[SheetCell, ...]:
    spread = "" if row.std != row.std else format_number(row.std)
    return SheetCell(row.label), SheetCell(format_number(row.estimate), spread, format_bounds(row.low, row.high))


def sentences(facts: Footnotes, results: Results) -> list[str]:
    """The notes of the table."""
    rows = csv_rows(results)
    first = rows.iloc[0]
    template = f"Prompts: {first['templates']}" + (
        " (open_clip’s for ImageNet)" if first["templates"] in ("simple", "openai") else ""
    )
    trained = rows[rows["method"].isin(results.trained())]
    several = len(trained) or rows["std"].notna().any()  # towers that were pre-trained with several seeds
    spread = "Mean ± standard deviation over training seeds; in brackets" if several else "In brackets"
    procedures = "; ".join(dict.fromkeys(rows["procedure"]))
    return finish_sentences(
        [
            f"Accuracy in percent on {first['images']:,} test images of {_data_title(rows)}, none of which were used "
            "in training; the predicted class is the one with the most similar prompts; a tie counts fractionally",
            template,
            f"{spread} {confidence_percent(results.confidence)} intervals, not adjusted for multiple comparisons: "
            f"{procedures}",
            _identical_prompts_sentence(rows),
            seed_caution(sorted(set(trained["seeds"]))) if len(trained) else "",
        ]
    )


def _identical_prompts_sentence(rows: pd.DataFrame) -> str:
    """Methods whose vocabulary lacks names of classes, so that several classes have the same prompts."""
    affected = [f"{row.alike} ({row.label})" for row in rows.itertuples() if row.alike]
    if not affected:
        return ""
    listed = ", ".join(affected)
    return f"Classes whose prompts are identical to the model, because their names are not in its vocabulary: {listed}"


def _data_title(rows: pd.DataFrame) -> str:
    return DATA_TITLES.get(rows["data"].iloc[0], rows["data"].iloc[0])
