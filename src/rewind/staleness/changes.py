"""What changed since an output was made, in words: keys, code, files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rewind.identity.accepted import Accepted
from rewind.identity.brought import CONTENT
from rewind.identity.follow import Parts
from rewind.identity.marks import recall
from rewind.staleness.plan import Planned, record

_SHOWN = 6  # names of one module


@dataclass(frozen=True)
class Code:
    """Code of a job that is not the code that its outputs were made with.

    Attributes:
        stage: whose.
        old, new: the sums.
        changed: modules, each with what in it differs; None: the parts of the older sum were not kept.
    """

    stage: str
    old: str
    new: str
    changed: list[str] | None

    def words(self) -> list[str]:
        if self.changed is None:
            return ["code of another version, whose parts were not recorded"]
        return self.changed or ["code"]


@dataclass(frozen=True)
class Change:
    """Why a job would run.

    Attributes:
        code: code that differs.
        keys: keys that differ, with both values.
        files: what is to say of files.
    """

    code: list[Code]
    keys: list[str]
    files: list[str]

    def words(self) -> list[str]:
        return list(dict.fromkeys([*self.keys, *(word for code in self.code for word in code.words()), *self.files]))


def change(job: Planned, accepted: Accepted | None = None) -> Change:
    """Why a job would run, apart from what other jobs make anew before it; of its code, since it was last accepted."""
    old, new = ([ast.literal_eval(value) for value in values] for values in (job.old, job.new))
    marks = [value for value in old if _is_mark(value)]
    counted = {mark: (accepted or Accepted()).counted(job.wildcards, mark) for mark in marks}
    code = list(_code(counted, [value for value in new if _is_mark(value)]))
    known = {mark for one in code for mark in (one.old, one.new)}
    rest = ([value for value in values if not (_is_mark(value) and value in known)] for values in (old, new))
    return Change(code, list(_keys(*rest)), list(_files(job)))


def _is_mark(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 16 and not set(value) - set("0123456789abcdef")


def _code(old: Mapping[str, str], new: list[str]) -> Iterator[Code]:
    """``old``: sums that outputs were made with → those that count for them."""
    known = {found[0]: (mark, found[1]) for mark, counted in old.items() if (found := recall(counted))}
    strange = [mark for mark in old if mark not in {mark for mark, _ in known.values()}]
    for mark in new:
        if not (found := recall(mark)):
            continue  # another hash
        stage, parts = found
        if stage in known:
            before, older = known[stage]
            yield Code(stage, before, mark, differing(older, parts))
        elif strange:
            yield Code(stage, strange.pop(0), mark, None)


def differing(old: Parts, new: Parts) -> list[str]:
    """Modules that differ, for example ``models/temporal.py changed (SeqTransf.forward)``."""
    modules: dict[str, dict[str, list[str]]] = {}
    for part in sorted(old.keys() | new.keys()):
        if old.get(part) != new.get(part):
            how = "changed" if part in old and part in new else "came" if part in new else "went"
            module, _, name = part.partition(":")
            modules.setdefault(module, {}).setdefault(how, []).append(name)
    return [_module(module, found) for module, found in modules.items()]


def _module(module: str, found: Mapping[str, list[str]]) -> str:
    if {name for names in found.values() for name in names} == {CONTENT}:
        return f"{module}: another file took its place"
    said = []
    for how, names in found.items():
        names = [name for name in names if name]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        what = f" ({', '.join(names[:_SHOWN])}{more})" if names else ""
        verb = {"changed": "changed", "came": "is used now", "went": "is no longer used"}[how]
        said.append(f"{verb}{what}")
    return f"{_file(module)} {'; '.join(said)}"


def _file(module: str) -> str:
    if "/" in module:
        return module
    return module.removeprefix("rewind.").replace(".", "/") + ".py"


def _keys(old: list[Any], new: list[Any]) -> Iterator[str]:
    left = list(new)
    for before in old:
        near = max(left, key=lambda value: _likeness(before, value), default=None)
        if near is None or not _likeness(before, near):
            yield f"key: {_short(before)} was removed"
            continue
        left.remove(near)
        yield from _differences(before, near, "")
    yield from (f"key: {_short(value)} is new" for value in left)


def _likeness(first: Any, second: Any) -> int:
    if type(first) is not type(second):
        return int(isinstance(first, int | float | None) and isinstance(second, int | float | None))
    if isinstance(first, dict):
        return 1 + len(first.keys() & second.keys())
    return 1


def _differences(old: Any, new: Any, where: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            if old.get(name) != new.get(name) or (name in old) != (name in new):
                path = f"{where}.{name}" if where else str(name)
                yield from _differences(old.get(name), new.get(name), path)
    else:
        yield f"{where or 'key'}: {_short(old)} → {_short(new)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _files(job: Planned) -> Iterator[str]:
    for line in job.reason.split("; "):
        head, _, rest = line.partition(": ")
        if head == "Missing output files":
            yield f"{rest} {'are' if ', ' in rest else 'is'} not there"
        elif head == "Incomplete output files":
            yield f"{rest}: the job that made it was interrupted"
        elif head == "Updated input files":
            yield f"{rest} changed"
        elif head == "Set of input files has changed since last execution":
            yield from _inputs(job)
        elif head == "Forced execution":
            yield "you forced it"


def _inputs(job: Planned) -> Iterator[str]:
    before = next((known["input"] for output in job.outputs if (known := record(output)).get("input")), [])
    came, went = (sorted(set(a) - set(b)) for a, b in ((job.inputs, before), (before, job.inputs)))
    yield (
        "other input files"
        + (f": now {', '.join(came)}" if came else "")
        + (f"{';' if came else ':'} no longer {', '.join(went)}" if went else "")
    )
