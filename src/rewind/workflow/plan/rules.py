"""All studies and data sets of a run, as rules ask: ``plan.train_inputs`` is a function of a job's wildcards."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rewind.analyses.base import Ask, Rule
from rewind.config import Dataset, Study
from rewind.config.base import Affects, ConfigModel
from rewind.errors import RewindError
from rewind.workflow.accepted import AcceptedEditStore
from rewind.workflow.code_hash import StageCode, store_code_hash
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.files import Files, UserFile
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.stages import CodeDependencies
from rewind.workflow.user_inputs import UserInputs

NUMBERS = ("seed", "frames")  # wildcards that are numbers


class CodeHashes(NamedTuple):
    """Where code hashes come from: the code itself, the user's files that took another's place, and accepted edits."""

    code: StageCode
    files: UserInputs
    accepted: AcceptedEditStore

    def of_job(self, stage: str, dependencies: CodeDependencies, wildcards: Mapping[str, str]) -> str:
        """The hash of the code that computes a job's output."""
        definitions = self.code.parts(stage, dependencies)
        # Files are not taken from the rule's input: Snakemake compares no parameter that was computed from it.
        own = [path for path in dependencies.files if isinstance(path, UserFile)]
        current = store_code_hash(stage, definitions | self.files.parts(own))
        # Where a user accepted an edit, the output keeps the hash that it was computed with.
        return self.accepted.recorded(stage, wildcards, current)


class WorkflowPlan:
    """The plans of all studies and data sets of a run.

    A method of a plan is here a function of a job's wildcards, as rules want it: of the study's plan where there is a
    wildcard ``study``, else of the data set's. A method that asks for ``attempt`` is a function of the attempt too.

    >>> from types import SimpleNamespace
    >>> study = Study(name="demo", dataset="shapes", methods={"meanP": {}})
    >>> plan = WorkflowPlan({"demo": study}, {"shapes": Dataset(name="shapes", source={"format": "shapes"})})
    >>> plan.training_gpus(SimpleNamespace(study="demo", method="meanP")), plan.names(vectors=False)
    (1, 'shapes')
    """

    def __init__(
        self,
        studies: Mapping[str, Study],
        datasets: Mapping[str, Dataset],
        chosen_frames: Callable[[str], int] | None = None,
        chosen_keys: Callable[[str, str, int], dict[str, Any]] | None = None,
        as_input: Callable[[Any], Any] = lambda files: files,
        code: CodeHashes | None = None,
        error: type[Exception] = RewindError,
    ) -> None:
        """
        Args:
            chosen_frames: study → the sweep's choice, see :class:`StudyPlan`.
            chosen_keys: study, method and seed of trials → the keys that they chose.
            as_input: puts Snakemake's flags on :class:`Unwatched` files and :class:`UserFile`.
            error: what is raised for a file that the study does not make.
        """
        self.datasets = {
            name: DatasetPlan(dataset, datasets, list(studies.values())) for name, dataset in datasets.items()
        }
        self.studies = {
            name: StudyPlan(
                study,
                self.datasets[study.dataset],
                functools.partial(chosen_frames, name) if chosen_frames else None,
                chosen_keys=functools.partial(chosen_keys, name) if chosen_keys else None,
            )
            for name, study in studies.items()
        }
        self._as_input, self._code, self._error = as_input, code, error

    def names(self, vectors: bool | None = None, clips: bool | None = None) -> str:
        """Names of data sets as a pattern: that hold vectors or not, whose clips or images are normalised or not."""
        chosen = [
            name
            for name, plan in self.datasets.items()
            if vectors in (None, plan.keys.vectors) and clips in (None, plan.keys.clips and not plan.keys.vectors)
        ]
        return "|".join(chosen) or "(?!)"

    def encodings(self) -> str:
        """Folders of vectors by models that studies name, as a pattern."""
        folders = [re.escape(folder) for plan in self.datasets.values() for folder in plan.encodings]
        return "|".join(folders) or "(?!)"

    def studies_with(self, *runs: str) -> str:
        """Names of studies as a pattern that also looks ahead to the method in a run's path, ``<study>/…/<method>/…``.

        ``runs`` are kinds of runs, see :meth:`StudyPlan.kind_of_run`.
        """
        patterns = []
        for name, plan in self.studies.items():
            methods = [method for method in plan.keys.methods if plan.kind_of_run(method) in runs]
            ahead = rf"/\w+/(?:{'|'.join(map(re.escape, methods))})/" if methods else "(?!)"
            patterns.append(f"{re.escape(name)}(?={ahead})")
        return "|".join(patterns)

    def key(self, name: str, stage: Affects = "report") -> Callable[[Any], Any]:
        """A function of wildcards: a key of the study or data set, such as ``statistics.pairs``.

        It returns only the keys of a block that results of ``stage`` depend on.
        """

        def value(wildcards: Any) -> Any:
            found: Any = self._plan_of(wildcards).keys
            for part in name.split("."):
                found = getattr(found, part)
            return found.fingerprint(stage) if isinstance(found, ConfigModel) else found

        return value

    def captions(self, *splits: str) -> Callable[[Any], dict[str, str]]:
        """A function of wildcards: the captions of splits of a study's data, by split."""
        return lambda wildcards: self.studies[wildcards.study].captions(*splits)

    def of_all_studies(self, files: str) -> list[str]:
        """Files of every study, by the name of the method that lists them: ``targets`` is what studies are for."""
        return [path for plan in self.studies.values() for path in getattr(plan, files)()]

    def code(self, rule: str, stage: str = "") -> Callable[[Any], str]:
        """A function of wildcards: the hash of the code that computes a rule's output.

        ``stage`` is the stage whose code it is, if it is not named like the rule.
        """

        def code_hash(wildcards: Any) -> str:
            assert self._code is not None
            dependencies = self._ask(wildcards, "code_dependencies", rule=rule)
            return self._code.of_job(stage or rule, dependencies, dict(wildcards.items()))

        return code_hash

    def clip_code(self, wildcards: Any) -> str:
        """The hash of the code that makes a clip, or an image, whichever the data set holds."""
        stage = "image" if self.datasets[wildcards.dataset].keys.items == "images" else "clip"
        return self.code(stage)(wildcards)

    def analysis_inputs(self, rule: Rule) -> Callable[[Any], Files]:
        """A function of wildcards: the files of an analysis' job."""
        return lambda wildcards: {name: self._answer(wildcards, ask) for name, ask in rule.inputs.items()}

    def analysis_outputs(self, rule: Rule, report: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """Paths of what an analysis' job writes, without a name and by name.

        ``report`` is Snakemake's flag of files that are in its report.
        """

        def shown(path: str, category: str) -> Any:
            caption = f"../report/{rule.name}.rst" if rule.function.startswith("rewind.") else None
            return report(path, category=category, caption=caption)

        paths = {name: f"results/{{study}}/{file}" for name, file in rule.output.items()}
        named = {name: shown(path, "Results") if name in rule.reported else path for name, path in paths.items()}
        stem = f"results/{{study}}/figures/{rule.picture}"
        drawn = [shown(f"{stem}.png", "Figures"), shown(f"{stem}.pdf", "Figures"), f"{stem}.svg"] * bool(rule.picture)
        return drawn + [path for name, path in named.items() if not name], {n: p for n, p in named.items() if n}

    def analysis_params(self, rule: Rule) -> dict[str, Callable[..., Any]]:
        """Name of a parameter of an analysis → a function of wildcards."""

        def param(ask: Ask) -> Callable[[Any], Any]:
            return lambda wildcards: _plain(self._answer(wildcards, ask))

        own = {"metrics": self.untracked("own_metrics")} if rule.own_metrics else {}
        if not rule.function.startswith("rewind."):
            own["analyses"] = lambda wildcards, input: list(self._plan_of(wildcards).keys.analyses)
        return {name: param(ask) for name, ask in rule.params.items()} | own | {"code": self.code(rule.name)}

    def accepted(self, wildcards: Any) -> list[str]:
        """What tables say of edits that somebody declared to change no number."""
        assert self._code is not None
        plan = self.studies[wildcards.study]
        return self._code.accepted.sentences(plan.name, plan.dataset.name)

    def untracked(self, name: str) -> Callable[[Any, Any], Any]:
        """A parameter that makes nothing stale: Snakemake compares none that is made from inputs."""
        return lambda wildcards, input: self._ask(wildcards, name)

    def execution(self, spec: str = "") -> Callable[[Any, Any], dict[str, Any]]:
        """Such a parameter: the keys that a job needs although its results do not depend on them.

        ``spec`` is the method of a study's plan that returns the keys of the run.
        """

        def value(wildcards: Any, input: Any) -> dict[str, Any]:
            keys: dict[str, Any] = self._ask(wildcards, "execution")
            return keys | ({"keys": self._ask(wildcards, spec).left_out("run")} if spec else {})

        return value

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: list[Any] = [getattr(kind, name, None) for kind in (StudyPlan, DatasetPlan)]
        methods = [method for method in found if callable(method)]
        if name.startswith("_") or not methods:
            raise AttributeError(f"no plan has {name!r}")
        if any("attempt" in inspect.signature(method).parameters for method in methods):
            return lambda wildcards, attempt: self._ask(wildcards, name, attempt=attempt)
        return lambda wildcards: _plain(self._ask(wildcards, name))

    def _plan_of(self, wildcards: Any) -> Any:
        """The plan that a job belongs to."""
        return self.studies[wildcards.study] if hasattr(wildcards, "study") else self.datasets[wildcards.dataset]

    def _ask(self, wildcards: Any, name: str, **further: Any) -> Any:
        """The answer of a job's plan."""
        method = getattr(self._plan_of(wildcards), name)
        values: dict[str, Any] = {}
        for parameter in inspect.signature(method).parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            if parameter.name in further:
                values[parameter.name] = further[parameter.name]
            elif hasattr(wildcards, parameter.name):
                value = str(getattr(wildcards, parameter.name))
                values[parameter.name] = int(value) if parameter.name in NUMBERS else value
        return self._answer(wildcards, lambda plan: method(**values))

    def _answer(self, wildcards: Any, ask: Ask) -> Any:
        try:
            return self._as_input(ask(self._plan_of(wildcards)))
        except RewindError as error:
            raise self._error(str(error)) from None


def _plain(value: Any) -> Any:
    """Keys of a run as the part that counts."""
    return value.fingerprint() if isinstance(value, ConfigModel) else value
