"""What a job is given: files, parameters and resources as plain values, from Snakemake or from a record of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload


class Named:
    """Values in order, of which some have a name: ``input[0]``, ``input.model``, ``input.get("store")``.

    A name stands for one value, or for a list of them where the rule gives a list.
    """

    def __init__(self, values: Iterable[Any], names: Mapping[str, Any]) -> None:
        self._values, self._names = list(values), dict(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"{name!r} is not given; there are: {', '.join(self.__dict__.get('_names', ()))}")
        return self._names[name]

    def __getitem__(self, place: int) -> Any:
        return self._values[place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        return self._names.get(name, default)

    def items(self) -> dict[str, Any]:
        """Names and what they stand for."""
        return dict(self._names)


class Outputs(Named):
    """Files that a job writes, each a path as text: a function that wants a :class:`pathlib.Path` is given one."""

    if TYPE_CHECKING:  # the same calls; what they give is known here, so that mypy sees a path that is still text

        def __getattr__(self, name: str) -> str: ...

        def __getitem__(self, place: int) -> str: ...

        def __iter__(self) -> Iterator[str]: ...

        @overload
        def get(self, name: str, default: str) -> str: ...

        @overload
        def get(self, name: str, default: None = None) -> str | None: ...

        def get(self, name: str, default: str | None = None) -> str | None: ...


@dataclass(frozen=True)
class Given:
    """One job of the workflow.

    Attributes:
        rule: its name; in a workflow that uses this one as a module it may have a prefix.
        input: files; a name stands for one or for a list of them.
        output: files, each under its own name.
        params: parameters, plain values.
        wildcards: name → value.
        threads: cores that it was granted.
        resources: name → number or text; ``gpu`` is there for jobs that may use GPUs.
        log: its log file.
    """

    rule: str
    input: Named
    output: Outputs
    params: Named
    wildcards: dict[str, str]
    threads: int
    resources: dict[str, Any]
    log: str

    @classmethod
    def of(cls, snakemake: Any) -> Given:
        """From the object that Snakemake hands to a script, by way of what a record holds: both are the same job."""
        content = {
            "rule": snakemake.rule,
            "input": _files(snakemake.input),
            "output": _files(snakemake.output),
            "params": {"values": list(snakemake.params), "names": dict(snakemake.params.items())},
            "wildcards": {name: str(value) for name, value in snakemake.wildcards.items()},
            "threads": snakemake.threads,
            "resources": {name: _plain(value) for name, value in snakemake.resources.items()},
            "log": str(snakemake.log[0]),
        }
        return cls.read(json.loads(json.dumps(content)))

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Given:
        """From what :meth:`content` gave."""
        named = {name: Named(**content[name]) for name in ("input", "params")}
        return cls(**{**content, **named, "output": Outputs(**content["output"])})

    def content(self) -> dict[str, Any]:
        """All of it as values that JSON holds."""
        parts = {"input": self.input, "output": self.output, "params": self.params}
        named = {name: {"values": list(part), "names": part.items()} for name, part in parts.items()}
        return {**vars(self), **named}

    def below(self, folder: Path) -> Given:
        """The same job with all that it writes (outputs, log, the state that it resumes from) below a folder."""
        output = self.output.items()
        moved = {name: _moved(value, folder) for name, value in output.items()}
        params = self.params.items()
        if "state" in params:
            params["state"] = _moved(params["state"], folder)
        resources = {name: value for name, value in self.resources.items() if name != "state_folder"}
        return replace(
            self,
            output=Outputs([_moved(path, folder) for path in self.output], moved),
            params=Named(list(self.params), params),
            resources=resources,
            log=_moved(self.log, folder),
        )


def _files(given: Any) -> dict[str, Any]:
    names = {
        name: [str(path) for path in value] if isinstance(value, list) else str(value) for name, value in given.items()
    }
    return {"values": [str(path) for path in given], "names": names}


def _plain(value: Any) -> int | float | str | None:
    return value if isinstance(value, int | float | None) else str(value)


def _moved(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_moved(path, folder) for path in value]
    path = Path(value)
    return str(folder / path.relative_to(path.anchor))
