"""All studies and data sets of a run, as rules ask: ``job(training.train_inputs)`` is a function of wildcards."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rewind.analyses.base import Rule
from rewind.config import Dataset, RunSpec, Study
from rewind.config.base import Affects, ConfigModel
from rewind.errors import RewindError
from rewind.workflow.plan import compute
from rewind.workflow.plan.code import code_dependencies
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.files import Files, UserFile
from rewind.workflow.plan.scoring import kind_of_run
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.stages import CodeDependencies
from rewind.workflow.staleness.accepted import AcceptedEditStore
from rewind.workflow.staleness.code_hash import StageCode, store_code_hash
from rewind.workflow.staleness.user_inputs import UserInputs

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

    What rules ask is answered by functions of a plan: of the study's where a job has a wildcard ``study``, else of the
    data set's.

    >>> from types import SimpleNamespace
    >>> from rewind.workflow.plan import compute
    >>> study = Study(name="demo", dataset="shapes", methods={"meanP": {}})
    >>> plan = WorkflowPlan({"demo": study}, {"shapes": Dataset(name="shapes", source={"format": "shapes"})})
    >>> plan.job(compute.training_gpus)(SimpleNamespace(study="demo", method="meanP")), plan.names(vectors=False)
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
        # (?!) matches nothing; an empty pattern would match the empty name.
        return "|".join(chosen) or "(?!)"

    def encodings(self) -> str:
        """Folders of vectors by models that studies name, as a pattern."""
        folders = [re.escape(folder) for plan in self.datasets.values() for folder in plan.encodings]
        return "|".join(folders) or "(?!)"

    def studies_with(self, *runs: str) -> str:
        """Names of studies as a pattern that also looks ahead to the method in a run's path, ``<study>/…/<method>/…``.

        ``runs`` are kinds of runs, see :func:`rewind.workflow.plan.scoring.kind_of_run`.
        """
        patterns = []
        for name, plan in self.studies.items():
            methods = [method for method in plan.keys.methods if kind_of_run(plan, method) in runs]
            ahead = rf"/\w+/(?:{'|'.join(map(re.escape, methods))})/" if methods else "(?!)"
            patterns.append(f"{re.escape(name)}(?={ahead})")
        return "|".join(patterns)

    def key(self, name: str, stage: Affects = "report") -> Callable[[Any], Any]:
        """A function of wildcards: a key of the study or data set, such as ``statistics.pairs``.

        It returns only the keys of a block that results of ``stage`` depend on. ``name`` may also be of a method of the
        study without arguments, such as ``runs``.
        """

        def value(wildcards: Any) -> Any:
            found: Any = self._plan_of(wildcards).keys
            for part in name.split("."):
                found = getattr(found, part)
            found = found() if callable(found) else found
            return found.fingerprint(stage) if isinstance(found, ConfigModel) else found

        return value

    def captions(self, *splits: str) -> Callable[[Any], dict[str, str]]:
        """A function of wildcards: the captions of splits of a study's data, by split."""
        return lambda wildcards: self.studies[wildcards.study].captions(*splits)

    def of_all_studies(self, files: Callable[[StudyPlan], list[str]]) -> list[str]:
        """Files of every study."""
        return [path for plan in self.studies.values() for path in files(plan)]

    def code(self, rule: str, stage: str = "") -> Callable[[Any], str]:
        """A function of wildcards: the hash of the code that computes a rule's output.

        ``stage`` is the stage whose code it is, if it is not named like the rule.
        """

        def code_hash(wildcards: Any) -> str:
            assert self._code is not None
            return self._code.of_job(stage or rule, self.code_dependencies(rule, wildcards), dict(wildcards.items()))

        return code_hash

    def code_dependencies(self, rule: str, wildcards: Any) -> CodeDependencies:
        """What keys name of the code of a rule's job."""
        ask = code_dependencies if hasattr(wildcards, "study") else DatasetPlan.code_dependencies
        dependencies: CodeDependencies = self._ask(ask, wildcards, rule=rule)
        return dependencies

    def clip_code(self, wildcards: Any) -> str:
        """The hash of the code that makes a clip, or an image, whichever the data set holds."""
        stage = "image" if self.datasets[wildcards.dataset].keys.items == "images" else "clip"
        return self.code(stage)(wildcards)

    def analysis_inputs(self, rule: Rule) -> Callable[[Any], Files]:
        """A function of wildcards: the files of an analysis' job."""
        return lambda wildcards: {name: self._ask(ask, wildcards) for name, ask in rule.inputs.items()}

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

        own = {"metrics": self.untracked(StudyPlan.own_metrics)} if rule.own_metrics else {}
        if not rule.function.startswith("rewind."):
            own["analyses"] = self.untracked(lambda plan: list(plan.keys.analyses))
        return {name: self.job(ask) for name, ask in rule.params.items()} | own | {"code": self.code(rule.name)}

    def analysis_memory(self, rule: Rule) -> Callable[..., int]:
        """A function of wildcards and attempt: MB of an analysis' job."""
        return self.job(getattr(compute, f"{rule.memory}_memory"))

    def accepted(self, wildcards: Any) -> list[str]:
        """What tables say of edits that somebody declared to change no number."""
        assert self._code is not None
        plan = self.studies[wildcards.study]
        return self._code.accepted.sentences(plan.name, plan.dataset.name)

    def job(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a job's wildcards that calls ``ask`` with its plan.

        Further parameters of ``ask`` are wildcards of their names; where it has ``attempt``, the result has, too.
        """
        # Snakemake goes by the names of parameters: only a function that names `attempt` is given it.
        if "attempt" in inspect.signature(ask).parameters:
            return lambda wildcards, attempt: self._ask(ask, wildcards, attempt=attempt)
        return lambda wildcards: _plain(self._ask(ask, wildcards))

    def untracked(self, ask: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """A parameter that makes nothing stale: Snakemake compares none that is made from inputs."""
        return lambda wildcards, input: self._ask(ask, wildcards)

    def execution(self, spec: Callable[..., RunSpec] | None = None) -> Callable[[Any, Any], dict[str, Any]]:
        """Such a parameter: the keys that a job needs although its results do not depend on them.

        ``spec`` returns the keys of the job's run.
        """

        def value(wildcards: Any, input: Any) -> dict[str, Any]:
            keys: dict[str, Any] = self._plan_of(wildcards).execution()
            return keys | ({"keys": self._ask(spec, wildcards).left_out("run")} if spec else {})

        return value

    def _plan_of(self, wildcards: Any) -> Any:
        """The plan that a job belongs to."""
        return self.studies[wildcards.study] if hasattr(wildcards, "study") else self.datasets[wildcards.dataset]

    def _ask(self, ask: Callable[..., Any], wildcards: Any, **further: Any) -> Any:
        """The answer for a job; parameters of ``ask`` with a default value may have no wildcard."""
        values: dict[str, Any] = {}
        for parameter in list(inspect.signature(ask).parameters)[1:]:
            if parameter in further:
                values[parameter] = further[parameter]
            elif hasattr(wildcards, parameter):
                value = str(getattr(wildcards, parameter))
                values[parameter] = int(value) if parameter in NUMBERS else value
        try:
            return self._as_input(ask(self._plan_of(wildcards), **values))
        except RewindError as error:
            raise self._error(str(error)) from None


def _plain(value: Any) -> Any:
    """Keys of a run as the part that counts."""
    return value.fingerprint() if isinstance(value, ConfigModel) else value
