"""One job of the workflow as plain values: its files, its parameters, and the runs that they are of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload


class NamedList:
    """Values in order, of which some have a name: ``input[0]``, ``input.model``, ``input.get("store")``.

    A name stands for one value, or for a list of them where the rule gives a list.

    >>> values = NamedList(["a.csv", "b.npz"], {"model": "b.npz"})
    >>> values[0], values.model, values.get("store"), len(values)
    ('a.csv', 'b.npz', None, 2)
    """

    def __init__(self, values: Iterable[Any], names: Mapping[str, Any]) -> None:
        self._values, self._names = list(values), dict(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"{name!r} is not given; available: {', '.join(self.__dict__.get('_names', ()))}")
        return self._names[name]

    def __getitem__(self, position: int) -> Any:
        return self._values[position]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        return self._names.get(name, default)

    def items(self) -> dict[str, Any]:
        """Names and what they stand for."""
        return dict(self._names)


class Outputs(NamedList):
    """Files that a job writes, each a path as ``str``; callers make a :class:`pathlib.Path` where one is needed."""

    if TYPE_CHECKING:  # the same methods with known types, so that mypy finds a str where a Path is needed

        def __getattr__(self, name: str) -> str: ...

        def __getitem__(self, place: int) -> str: ...

        def __iter__(self) -> Iterator[str]: ...

        @overload
        def get(self, name: str, default: str) -> str: ...

        @overload
        def get(self, name: str, default: None = None) -> str | None: ...

        def get(self, name: str, default: str | None = None) -> str | None: ...


@dataclass(frozen=True)
class Job:
    """One job of the workflow: what a script gets from :func:`start_job`.

    >>> output = Outputs(["results/demo/metrics.csv"], {"table": "results/demo/metrics.csv"})
    >>> job = Job("metrics", NamedList([], {}), output, NamedList([], {}), {"study": "demo"}, 1, {}, "logs/metrics.log")
    >>> job.below(Path("/tmp/again")).output.table
    '/tmp/again/results/demo/metrics.csv'
    """

    rule: str  # in a workflow that uses this one as a module it may have a prefix
    input: NamedList
    output: Outputs
    params: NamedList
    wildcards: dict[str, str]
    threads: int
    resources: dict[str, Any]  # numbers or texts; jobs that may use GPUs have `gpu`
    log: str
    by_hand: bool = False  # a user runs it again, and not Snakemake

    @property
    def execution(self) -> Mapping[str, Any]:
        """Keys of the study on which no result depends: a parameter that Snakemake does not compare."""
        return self.params.get("execution") or {}

    @classmethod
    def of(cls, snakemake: Any) -> Job:
        """From the object that Snakemake hands to a script.

        It goes through JSON, as a record does, so that a job that is run again from its record gets the same values.
        """
        content = {
            "rule": snakemake.rule,
            "input": _file_values(snakemake.input),
            "output": _file_values(snakemake.output),
            "params": {"values": list(snakemake.params), "names": dict(snakemake.params.items())},
            "wildcards": {name: str(value) for name, value in snakemake.wildcards.items()},
            "threads": snakemake.threads,
            "resources": {name: _plain_value(value) for name, value in snakemake.resources.items()},
            "log": str(snakemake.log[0]),
        }
        return cls.read(json.loads(json.dumps(content)))

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Job:
        """From the result of :meth:`content`."""
        lists = {name: NamedList(**content[name]) for name in ("input", "params")}
        return cls(**{**content, **lists, "output": Outputs(**content["output"])})

    def content(self) -> dict[str, Any]:
        """The job as values that JSON can hold."""
        parts = {"input": self.input, "output": self.output, "params": self.params}
        lists = {name: {"values": list(part), "names": part.items()} for name, part in parts.items()}
        return {name: value for name, value in vars(self).items() if name != "by_hand"} | lists

    def below(self, folder: Path) -> Job:
        """The same job with everything that it writes (outputs, log, the state that it resumes from) below a folder."""
        output = self.output.items()
        moved = {name: _below_folder(value, folder) for name, value in output.items()}
        params = self.params.items()
        if "state" in params:
            params["state"] = _below_folder(params["state"], folder)
        if self.execution:
            params["execution"] = {name: value for name, value in self.execution.items() if name != "state_folder"}
        return replace(
            self,
            output=Outputs([_below_folder(path, folder) for path in self.output], moved),
            params=NamedList(list(self.params), params),
            log=_below_folder(self.log, folder),
        )


def _file_values(files: Any) -> dict[str, Any]:
    names = {
        name: [str(path) for path in value] if isinstance(value, list) else str(value) for name, value in files.items()
    }
    return {"values": [str(path) for path in files], "names": names}


def _plain_value(value: Any) -> int | float | str | None:
    return value if isinstance(value, int | float | None) else str(value)


def _below_folder(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_below_folder(path, folder) for path in value]
    path = Path(value)
    return str(folder / path.relative_to(path.anchor))


# ---- Runs and pairs ------------------------------------------------------------------------------------------------


def job_runs(job: Job) -> list[tuple[str, int]]:
    """Method and seed of every run of a rule, in the order of the study."""
    return [(method, seed) for method, seed in job.params.runs]


def files_by_run(job: Job, files: Iterable[str]) -> dict[tuple[str, int], str]:
    """Files of all runs, by method and seed."""
    return dict(zip(job_runs(job), files, strict=True))


def job_pairs(job: Job) -> list[tuple[str, str]]:
    """Pairs of methods that a study compares."""
    return [(first, second) for first, second in job.params.pairs]
