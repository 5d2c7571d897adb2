"""Read dataset and study files: merge, validate whole, and say precisely what is wrong."""

from __future__ import annotations

import copy
import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rewind.errors import Faults, RewindError
from rewind.study.dataset import BUILT_IN, Dataset
from rewind.study.encoding import with_vectors
from rewind.study.keys import DRAFT, NAME, NAMES
from rewind.study.model import Method, Study, Sweep
from rewind.study.places import at_home, found
from rewind.study.pretraining import starts
from rewind.study.yaml_file import read_yaml

M = TypeVar("M", bound=BaseModel)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid on top, block by block; a key ``a.b.c`` in ``over`` means the nested key."""
    result = copy.deepcopy(dict(base))
    for name, value in over.items():
        head, _, rest = str(name).partition(".")
        if rest:
            value = {rest: value}
        if isinstance(value, Mapping):
            below = result.get(head)
            result[head] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            result[head] = copy.deepcopy(value)
    return result


def load_dataset(
    name: str,
    folder: str | Path = "config/datasets",
    overrides: Mapping[str, Any] | None = None,
    home: Path | None = None,
) -> Dataset:
    """Read and validate ``<folder>/<name>.yaml`` under ``overrides`` (nested, or with dotted keys).

    What is not in the working folder is looked for in ``home``, see :mod:`rewind.study.places`.

    Raises:
        RewindError: naming every fault with its file and key.
    """
    path = _named(folder, name)
    raw = merge(merge(read_yaml(found(path, home)), overrides or {}), {"name": name})
    return _validate(Dataset, at_home(raw, home), path)


def load_study(
    name: str,
    folder: str | Path = "config/studies",
    overrides: Mapping[str, Any] | None = None,
    home: Path | None = None,
) -> Study:
    """Read and validate ``<folder>/<name>.yaml`` under ``overrides`` (nested, or with dotted keys).

    What is not in the working folder is looked for in ``home``, see :mod:`rewind.study.places`.
    Every block with its own ``training`` is completed: those of methods, the pre-training and the over-fitting check
    from the study's, the sweep's from that of the method which it trains.

    Raises:
        RewindError: naming every fault with its file and key.
    """
    path = _named(folder, name)
    raw = at_home(merge(merge(read_yaml(found(path, home)), overrides or {}), {"name": name}), home)
    base, given = raw.get("training") or {}, set(raw)
    raw.setdefault("sanity", {})  # on by default, and completed like the others
    if isinstance(raw.get("methods"), dict):
        raw["methods"] = {name: {} if block is None else block for name, block in raw["methods"].items()}
        for block in raw["methods"].values():
            _complete(block, base)
    for part in ("pretraining", "sanity"):
        _complete(raw.get(part), base)
    _complete(raw.get("sweep"), _swept(raw, base))
    study = _validate(Study, _without_training(raw, given), path)
    try:
        return with_vectors(study)
    except RewindError as error:
        raise Faults({str(path): [str(error)]}, study) from None


def _named(folder: str | Path, name: str) -> Path:
    """The file of a name; one that could lead out of the folder, or that no file system takes, is refused."""
    if not re.fullmatch(NAME, name):
        raise RewindError(f"{_shown(name)}: not the name of a file in {folder} (without .yaml); {NAMES}.")
    return Path(folder) / f"{name}.yaml"


def _complete(block: Any, base: Any) -> None:
    """Fill in a block's ``training``; what is no mapping is told with all other faults."""
    if isinstance(block, dict) and isinstance(base, dict) and isinstance(block.get("training", {}), dict):
        block["training"] = merge(base, block.get("training", {}))


def _swept(raw: dict[str, Any], base: Any) -> Any:
    """The ``training`` block of the method that the sweep trains; the study's where there is no such method."""
    methods, keys = raw.get("methods"), raw.get("sweep")
    if not isinstance(methods, dict) or not isinstance(keys, dict):
        return base
    name = keys.get("method", Sweep.model_fields["method"].default)
    block = methods.get(name) if isinstance(name, str) else None
    return block.get("training", base) if isinstance(block, dict) else base


def _without_training(raw: dict[str, Any], given: set[str]) -> dict[str, Any]:
    """Defaults of a study in which no method is trained: no over-fitting check, and one seed.

    Methods that start from a pre-training of each seed have a row for each.
    """
    try:
        methods = [Method.model_validate(block) for block in raw["methods"].values()]
    except (KeyError, AttributeError, ValidationError):
        return raw  # told with all other faults
    if not all(method.baseline for method in methods):
        return raw
    keys = raw.get("pretraining")
    seeded = isinstance(keys, dict) and keys.get("shared") is not True and any(map(starts, methods))
    defaults: dict[str, Any] = {"sanity": None} if seeded else {"sanity": None, "seeds": [0]}
    return raw | {name: value for name, value in defaults.items() if name not in given}


def _validate(model: type[M], raw: dict[str, Any], path: Path) -> M:
    odd = dict(_not_finite(raw))  # models do not look into the free options of parts of the user's own
    try:
        found = model.model_validate(raw)
        if odd:
            raise Faults({str(path): _own_lines(odd.values())}, found, odd)
        return found
    except ValidationError as error:
        lines = [_explain(model, fault) for fault in error.errors() if not _of_another_format(raw, fault)]
        told = {line.partition(": ")[0] for line in lines}
        lines += [line for where, line in odd.items() if where not in told]
        lines = _own_lines(line for part in lines for line in part.splitlines())
        left_out = {".".join(map(str, fault["loc"])) for fault in error.errors() if fault["loc"]}
        raise Faults({str(path): lines}, _draft(model, raw, error), left_out) from None


def _own_lines(lines: Iterable[str]) -> list[str]:
    """Every line once, without those that blocks have from the study."""
    unique = list(dict.fromkeys(lines))
    return [line for line in unique if not _inherited(line, unique)]


def _not_finite(value: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Paths of infinite numbers and of NaN, with what is said of each."""
    if isinstance(value, float) and not math.isfinite(value):
        path = ".".join(where)
        yield path, f"{path}: Input should be a finite number (given: {value})"
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from _not_finite(part, (*where, str(name)))


def _draft(model: type[M], raw: dict[str, Any], error: ValidationError) -> M | None:
    """What the file says without its faulty keys; None where a key that it needs is among them."""
    kept = copy.deepcopy(raw)
    for _ in range(ROUNDS):
        for fault in error.errors():
            _leave_out(kept, fault["loc"][:-1] if fault["type"] == "missing" else fault["loc"])
        try:
            return model.model_validate(kept, context={DRAFT: True})
        except ValidationError as further:
            error = further
    return None


ROUNDS = 3  # a key that is left out may leave its block without what it needs


def _leave_out(raw: dict[str, Any], where: tuple[int | str, ...]) -> None:
    block = raw
    for part in where[:-1]:
        if not isinstance(block.get(part), dict):
            break  # within a list, or behind a union's tag: the key that holds it goes
        block = block[part]
    block.pop(next((part for part in reversed(where) if part in block), None), None)


def _inherited(line: str, lines: list[str]) -> bool:
    """Whether a fault in a block's ``training`` is the study's own, which the block was completed with."""
    block, training, rest = line.partition(".training.")
    return bool(block and training) and f"training.{rest}" in lines


def _of_another_format(raw: Mapping[str, Any], fault: Mapping[str, Any]) -> bool:
    """Whether a fault only says that a built-in format is no module of the user's own."""
    source = raw.get("source")
    name = source.get("format") if isinstance(source, Mapping) else None
    return isinstance(name, str) and name in _UNION_TAGS and "ModuleSource" in fault["loc"]


def _explain(model: type[BaseModel], fault: Mapping[str, Any]) -> str:
    where = list(fault["loc"])
    if where[:1] == ["source"]:
        where = [
            part
            for part in where
            if part not in _UNION_TAGS and not str(part).startswith(("tagged-union[", "function-after["))
        ]
    path = ".".join(map(str, where)) or "(file)"
    if fault["type"] == "extra_forbidden":
        valid = _fields_at(model, where[:-1])
        near = difflib.get_close_matches(str(where[-1]), valid, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(sorted(valid))}"
        return f"{path}: unknown key; {hint}"
    if fault["type"] == "missing":
        return f"{path}: this key is missing"
    message, given = _message(fault), fault.get("input")
    if not fault["loc"] and fault["type"] == "value_error":
        return message  # of several keys, which it names itself
    shown = "" if isinstance(given, dict) else f" (given: {_shown(given)})"
    return f"{path.removesuffix('.[key]')}: {message}{shown}"


def _message(fault: Mapping[str, Any]) -> str:
    """What pydantic says, and in words of ours what it says in those of Python."""
    kind, key = fault["type"], fault["loc"][-1:] == ("[key]",)
    if kind == "invalid_key" or (key and kind == "string_type"):
        return "this name is read as a number; write it in quotes"
    if kind in ("model_type", "dict_type", "dataclass_type"):
        return "a block of keys is expected here"
    if kind == "string_pattern_mismatch" and fault["ctx"]["pattern"] == NAME:
        return f"no name of a file; {NAMES}"
    return str(fault["msg"]).removeprefix("Value error, ")


def _shown(given: Any, most: int = 200) -> str:
    """A value in a message, cut where it is long."""
    try:
        text = repr(given)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= most else f"{text[:most]}…"


# Pydantic puts the tags of a tagged union into the path of a fault; they are not keys of the file.
_UNION_TAGS = frozenset(
    {"ModuleSource", *(source.__name__ for source in BUILT_IN)}
    | {tag for source in BUILT_IN for tag in get_args(source.model_fields["format"].annotation)}
)


def _fields_at(model: type[BaseModel], where: list[Any]) -> list[str]:
    """Valid keys of the block at ``where`` (of every alternative, where there are several)."""
    models = [model]
    for part in where:
        found: list[type[BaseModel]] = []
        for current in models:
            field = current.model_fields.get(str(part))
            found += _models_in(field.annotation) if field else [current]
        models = found
    return sorted({name for current in models for name in current.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in get_args(annotation) for m in _models_in(part)] if get_origin(annotation) else []
