"""A kind of table: which numbers it needs, and the functions that build it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import pandas as pd

from rewind.config.report import QuotedNumber
from rewind.tables.footnotes import Footnotes, confidence_percent
from rewind.tables.results import Results
from rewind.tables.settings import SettingResults, compare_in_setting, file_letter
from rewind.tables.short_notes import join_short_notes
from rewind.tables.table import Table


@dataclass(frozen=True, eq=False)
class TableInputs:
    """What the tables of a study are computed from."""

    results: Results
    settings: Sequence[str] = ()  # in order, among ``origin``, ``hard``, ``binary``, ``test``
    facts: Footnotes = field(default_factory=Footnotes)
    dataset: str = ""  # title of the data, for the captions
    costs: pd.DataFrame = field(default_factory=pd.DataFrame)  # rewind.analyses.efficiency.EFFICIENCY_COLUMNS
    quoted: list[QuotedNumber] = field(default_factory=list)

    _settings: dict[str, SettingResults] = field(default_factory=dict, init=False, repr=False)

    def setting_results(self, setting: str) -> SettingResults:
        """The numbers of a setting's table, computed once."""
        if setting not in self._settings:
            self._settings[setting] = compare_in_setting(self.results, setting, self.dataset)
        return self._settings[setting]

    def has(self, needed: str | Callable[[TableInputs], bool], setting: str = "") -> bool:
        """Whether there are numbers, and if they belong to settings, numbers of ``setting`` (empty for no setting).

        ``needed`` is the path of a field, for example ``results.pairs``; ``analyses.order`` for the result of an
        analysis; or a function that decides.
        """
        if callable(needed):
            return needed(self)
        kind, _, name = needed.partition(".")
        numbers = self.results.of(name) if kind == "analyses" else attrgetter(needed)(self)
        if isinstance(numbers, pd.DataFrame):
            return len(numbers) > 0 and (not setting or bool((numbers["setting"] == setting).any()))
        return numbers is not None


Layout = Callable[[TableInputs, str], Table]


@dataclass(frozen=True)
class TableSpec:
    """A kind of table. Its functions take the inputs and a setting, which is empty for a table of no setting."""

    kind: str
    file: str  # name of its files without prefix and suffix; ``{setting}`` where there is one per setting
    needs: str | Callable[[TableInputs], bool]  # which numbers it shows: TableInputs.has
    layout: Layout  # the table without notes and CSV
    notes: Callable[[TableInputs, str], list[str]]  # sentences below it
    data: Callable[[TableInputs, str], pd.DataFrame]  # its CSV
    short_note: Callable[[TableInputs, str], str] = lambda inputs, setting: ""
    summary: Layout | None = None  # the table as the terminal shows it at the end of a run; None: it does not
    appendix: bool = False  # whether it takes the notes that a paper's other tables leave out
    place: int = 0  # among all tables, in reading order

    @property
    def per_setting(self) -> bool:
        return "{setting}" in self.file

    def file_name(self, setting: str = "") -> str:
        """Name of its files without prefix and suffix."""
        return self.file.format(setting=setting, letter=file_letter(setting))

    def build(self, inputs: TableInputs, setting: str = "") -> Table:
        """The whole table, with the condition of all numbers in its caption."""
        return replace(
            self.layout(inputs, setting).with_condition(inputs.results.given),
            name=self.file_name(setting),
            kind=self.kind,
            setting=setting,
            appendix=self.appendix,
            notes=tuple(self.notes(inputs, setting)),
            short_note=self.short_note(inputs, setting),
            data=self.data(inputs, setting),
        )


def intervals_line(inputs: TableInputs, setting: str) -> str:
    """The short note of a table whose brackets are intervals."""
    return join_short_notes([f"brackets: {confidence_percent(inputs.results.confidence)} intervals"])
