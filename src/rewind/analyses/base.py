"""An analysis: what a study's key asks for, the jobs that answer, and how the answer is shown.

Its parts are plain functions, which are called with the study, with the plan of its stages
(:class:`rewind.workflow.plan.study.StudyPlan`), or with the numbers of the report. The module that they stand in
imports neither torch nor matplotlib at its top, since every command reads it: what needs them is imported inside a
function, or named by a string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rewind.config import Dataset, Study
from rewind.tables.best_method import Finding
from rewind.tables.results import Results
from rewind.tables.spec import Layout, TableInputs, TableSpec, intervals_line

Ask = Callable[[Any], Any]
"""A function of a study's plan: files of an input, or the value of a parameter."""


@dataclass(frozen=True)
class Rule:
    """A rule of the workflow with one job for each study, which is made from results of runs.

    Attributes:
        name: also of its log and its benchmark.
        function: ``module:function`` of its work, called with the job; the root of its code hash.
        output: name of an output → its file below the study's folder; without a name where there is one.
        inputs: name of an input → its files.
        params: name of a parameter → its value: exactly what the output depends on besides inputs and code.
        applies: whether a study that has the analysis has the rule.
        picture: name of a picture that it draws, as PNG, PDF and SVG; with ``{setting}`` there is a job for each.
        caption: of the picture in a study, and in a setting where there is one for each.
        reported: names of outputs that stand in Snakemake's report.
        level, grows, shows: see :class:`rewind.workflow.stages.Stage`.
        memory: which of the plan's estimates is its memory, ``<memory>_memory``.
        own_metrics: whether it depends on metrics that the study brings itself.
    """

    name: str
    function: str
    output: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Ask] = field(default_factory=dict)
    params: Mapping[str, Ask] = field(default_factory=dict)
    applies: Ask = lambda plan: True
    picture: str = ""
    caption: Callable[[Study, str], str] = lambda study, setting: ""
    reported: tuple[str, ...] = ()
    level: int = 21
    grows: str = "test"
    shows: bool = False
    memory: str = "ranks"
    own_metrics: bool = False

    def captions(self, study: Study) -> dict[str, str]:
        """Name of each of its pictures → the caption."""
        settings = study.evaluation.settings if "{setting}" in self.picture else [""] * bool(self.picture)
        return {self.picture.format(setting=setting): self.caption(study, setting) for setting in settings}

    @property
    def log_name(self) -> str:
        """Path of its log and its benchmark, without suffix, below the study's folders of them."""
        return f"{self.name}/{{setting}}" if "{setting}" in self.picture else self.name


def picture_rule(
    name: str,
    function: str,
    inputs: Mapping[str, Ask],
    picture: str,
    caption: Callable[[Study, str], str],
    **other: Any,
) -> Rule:
    """A rule that draws a picture of numbers that are there already; its job gets the study's keys."""
    usual: dict[str, Any] = {"level": 22, "grows": "", "shows": True, "memory": "little"}
    params: Mapping[str, Ask] = {"study": lambda plan: plan.study_keys()}
    return Rule(name, function, inputs=inputs, params=params, picture=picture, caption=caption, **usual | other)


@dataclass(frozen=True)
class Result:
    """A CSV file of a rule that the report reads.

    Attributes:
        file: below the study's folder.
        columns: that must be there.
        applies: whether a study that has the analysis has the file.
    """

    file: str
    columns: tuple[str, ...]
    applies: Ask = lambda plan: True


def analysis_table(name: str, place: int, layout: Layout, notes: Callable[[TableInputs, str], list[str]]) -> TableSpec:
    """The table of a result, as most analyses have one: with intervals, and shown in the terminal."""
    return TableSpec(
        name,
        file=f"table_{name}",
        needs=f"analyses.{name}",
        layout=layout,
        notes=notes,
        data=lambda inputs, _: inputs.results.of(name),
        short_note=intervals_line,
        summary=layout,
        place=place,
    )


@dataclass(frozen=True)
class Analysis:
    """What a module of this folder defines.

    Attributes:
        applies: whether a study asks for it, and its data has what it takes; tables also need their numbers.
        faults: why a study cannot have it, a sentence each that names the key.
        dataset_faults: why it cannot be had with this data set, likewise.
        rules: its jobs.
        results: name of a result → where the report reads it.
        tables: kinds of tables, which need ``analyses.<name of a result>``.
        finding: what the answer of a study says of it; None where it has no numbers.
        decides: whether that is the whole answer.
    """

    applies: Ask = lambda plan: True
    rules: tuple[Rule, ...] = ()
    faults: Callable[[Study], Iterator[str]] = lambda study: iter(())
    dataset_faults: Callable[[Study, Dataset], Iterator[str]] = lambda study, dataset: iter(())
    results: Mapping[str, Result] = field(default_factory=dict)
    tables: tuple[TableSpec, ...] = ()
    finding: Callable[[Results], Finding | None] = lambda results: None
    decides: bool = False
