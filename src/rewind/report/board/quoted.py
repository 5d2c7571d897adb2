"""Numbers that papers report, quoted beside those that were measured: without an interval, and never ranked.

They come from the studies (``tables.quoted``) and from a CSV, which has a row per number: ``method``, ``data_set`` (one
of the board's), ``setting``, ``value`` (accuracy in Binary, R@1 elsewhere, from text to items, in percent) and
``source`` (what to cite). A method's rows have one source.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from rewind.config import Study
from rewind.errors import RewindError
from rewind.io.schema import FILLED, Column, Schema
from rewind.io.strict import read_user_csv
from rewind.ranking_metrics import ACCURACY_METRIC
from rewind.tables.settings import SETTING_TITLES

QUOTED = "quoted"


@dataclass
class QuotedMethod:
    """A method's numbers on a data set, by setting, in percent."""

    label: str
    data_set: str
    source: str
    values: dict[str, float] = field(default_factory=dict)


def quoted_by_study(study: Study, data_set: str) -> tuple[QuotedMethod, ...]:
    """What a study quotes itself (``tables.quoted``) of a board's kind: R@1 and accuracy, from text to items.

    Where its source measured in another way, what to cite says so.
    """
    found: dict[tuple[str, str], QuotedMethod] = {}
    for number in study.tables.quoted:
        if number.metric == ACCURACY_METRIC and number.direction == "text_to_item":
            source = f"{number.source} ({number.differs})" if number.differs else number.source
            method = found.setdefault((number.method, source), QuotedMethod(number.method, data_set, source))
            method.values[number.setting] = number.value
    return tuple(found.values())


def read_quoted(path: Path, data_sets: Collection[str]) -> list[QuotedMethod]:
    """Read the quoted numbers of a file; ``data_sets`` are those of the board.

    Raises:
        RewindError: naming the row, for a cell that cannot be, a number given twice, or two sources of a method.
    """
    columns = {
        "method": FILLED,
        "data_set": Column(filled=True, choices=tuple(data_sets)),
        "setting": Column(filled=True, choices=tuple(SETTING_TITLES)),
        "value": Column(filled=True, kind="number", least=0),
        "source": FILLED,
    }
    schema = Schema(columns, unique=(("method", "data_set", "setting"),))
    found: dict[tuple[str, str], QuotedMethod] = {}
    for row in read_user_csv(path, schema):
        cells, where = row.cells, f"{path}: row {row.number}"
        if float(cells["value"]) > 100:
            raise RewindError(f"{where}: 'value' is {cells['value']}; it is in percent, up to 100.")
        key = cells["method"], cells["data_set"]
        method = found.setdefault(key, QuotedMethod(*key, cells["source"]))
        if method.source != cells["source"]:
            raise RewindError(
                f"{where}: {cells['method']!r} is from {cells['source']!r} here but from {method.source!r} above; give "
                "each of them a name of its own."
            )
        method.values[cells["setting"]] = float(cells["value"])
    return list(found.values())
