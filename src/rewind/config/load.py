"""Load dataset and study files: strict YAML, overrides, defaults, validation with one line per fault.

:func:`load_dataset` and :func:`load_study` are the entry points.
"""

from __future__ import annotations

import copy
import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from rewind.config.base import DRAFT_CONTEXT, NAME_PATTERN, NAME_RULE, fault_message, history, nested_models
from rewind.config.dataset import BUILT_IN_SOURCES, Dataset
from rewind.config.methods import Method
from rewind.config.study import Study
from rewind.config.training import Sweep
from rewind.errors import CONTROL_CHARACTER, ConfigErrors, RewindError, printable
from rewind.io.files import require_regular_file
from rewind.io.strict import read_user_text

# ---- YAML: words, numbers, lists and blocks, each key once; anything else is refused with its line -----------------

MAX_YAML_DEPTH = 40  # nested blocks and lists
MAX_YAML_NODES = 100_000  # values of a file, those that an alias repeats counted each time
MAX_YAML_BYTES = 1_000_000  # of a file
MAX_YAML_INTEGER = 2**64  # no key takes a larger one
_YAML_TAG_PREFIX = "tag:yaml.org,2002:"
_UNSUPPORTED_YAML_TYPES = ("binary", "set", "omap", "pairs")  # types of YAML that no key takes
_OWN_ERROR = "ours"  # marks errors that are raised here, whose text is shown as it is


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """Safe YAML that refuses a key given twice (PyYAML keeps the last one) and a "billion laughs" of aliases."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > MAX_YAML_DEPTH:
            raise _yaml_error(
                self.peek_event(), f"more than {MAX_YAML_DEPTH} nested blocks and lists; write it flatter"
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_document(self, node: yaml.Node) -> Any:
        count = _count_nodes(node, {})
        if count == math.inf:
            raise _yaml_error(node, "an alias (`*name`) is inside the block that it names; write out what is meant")
        if count > MAX_YAML_NODES:
            raise _yaml_error(
                node, f"more than {MAX_YAML_NODES:,} values, aliases (`*name`) written out; remove what repeats them"
            )
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError):
            kind = node.tag.rpartition(":")[2]
            text = _shorten_text(str(node.value))
            raise _yaml_error(node, f"{text} is not a valid {kind}; correct it, or quote it") from None
        if isinstance(value, str):
            _check_yaml_text(value, node)
        if isinstance(value, int) and abs(value) > MAX_YAML_INTEGER:
            raise _yaml_error(node, "a number too large for any key; correct it")
        return value


def _construct_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == f"{_YAML_TAG_PREFIX}merge":  # `<<: *anchor`: keys next to it override the anchor's
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            raise _yaml_error(key_node, "the name of a key is needed here, not a list or a block")
        name = loader.construct_object(key_node, deep=True)
        if name in seen:
            raise _yaml_error(key_node, f"the key {name!r} is given twice; keep one")
        seen.add(name)
    mapping = loader.construct_mapping(node, deep=True)
    for key_node, _ in node.value:  # by now with the keys that were merged in
        name = loader.construct_object(key_node, deep=True)
        if not isinstance(name, str | int | float) or isinstance(name, bool):
            word = key_node.value or "(nothing)"
            raise _yaml_error(key_node, f"the key {word} is read as {name!r}, which is not a name; write it in quotes")
    return mapping


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)
# A date is text like any other.
_StrictLoader.add_constructor(f"{_YAML_TAG_PREFIX}timestamp", yaml.SafeLoader.construct_yaml_str)
for _unsupported_type in _UNSUPPORTED_YAML_TYPES:
    _StrictLoader.add_constructor(_YAML_TAG_PREFIX + _unsupported_type, yaml.SafeLoader.construct_undefined)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping.

    Raises:
        RewindError: naming the file and line, for syntax errors, characters that YAML does not allow, repeated keys.
    """
    value = parse_yaml(_read_yaml_text(path), str(path))
    if not isinstance(value, dict):
        raise RewindError(f"{path}: a mapping of keys is expected at the top.")
    return value


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; messages begin with ``where``, its file or key.

    Raises:
        RewindError: for what is not YAML, and for values larger or deeper than any key takes.

    >>> parse_yaml("epochs: 5\\nepochs: 6", "demo.yaml")
    Traceback (most recent call last):
        ...
    rewind.errors.RewindError: demo.yaml: line 2: the key 'epochs' is given twice; keep one.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise RewindError(
            f"{where}: line {line}: the character #x{error.character:04x} is not allowed there."
        ) from None
    except yaml.YAMLError as error:
        raise RewindError(f"{where}: {_explain_yaml_error(error)}.") from None
    except RecursionError:
        raise RewindError(f"{where}: too many nested blocks and lists; write it flatter.") from None


def check_plain_values(value: Any, where: str) -> None:
    """Refuse values that are too many or too deeply nested to be meant, as :func:`parse_yaml` does.

    For values that Snakemake has parsed from ``--config`` with a YAML loader of its own.
    """
    remaining, count = [(value, 1)], 0  # a stack instead of recursion, which deep values would exhaust
    while remaining:
        part, depth = remaining.pop()
        count += 1
        if count > MAX_YAML_NODES or depth > MAX_YAML_DEPTH:
            what = (
                f"more than {MAX_YAML_NODES:,} values"
                if count > MAX_YAML_NODES
                else f"more than {MAX_YAML_DEPTH} nested blocks"
            )
            raise RewindError(f"{where}: {what}; write less.")
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        remaining += [(child, depth + 1) for child in inner]


def _read_yaml_text(path: Path) -> str:
    try:
        require_regular_file(path, missing_ok=True)
        if (size := os.stat(path).st_size) > MAX_YAML_BYTES:
            raise RewindError(f"{path}: {size:,} bytes are not a file of keys; is it another file's content?")
        return read_user_text(path)
    except FileNotFoundError as error:
        near = difflib.get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.yaml") if p != path], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise RewindError(f"{path}: no such file.{hint}") from error
    except OSError as error:
        raise RewindError(f"{path}: cannot be read ({error.strerror}); correct the name or the file.") from None
    except ValueError:
        raise RewindError(f"{str(path)!r}: not a file name; correct it.") from None


def _check_yaml_text(text: str, node: yaml.Node) -> None:
    if "\0" in text:
        raise _yaml_error(node, r"a text with a zero character (\0); remove it")
    # Labels and titles reach tables, and a table that is shown with `cat` must not move the cursor or the title bar.
    if found := CONTROL_CHARACTER.search(text):
        raise _yaml_error(node, f"a text with the control character {printable(found[0])}; remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _yaml_error(node, r"half of a character (\ud800 to \udfff); correct it") from None


def _count_nodes(node: yaml.Node, counts: dict[int, float]) -> float:
    """Number of values below a node with its aliases written out; infinite where it contains itself.

    ``counts`` has the results by node, so that each is visited once, however often aliases repeat it.
    """
    if id(node) not in counts:
        counts[id(node)] = math.inf  # what is found if the node is met again below itself
        parts = node.value if isinstance(node.value, list) else []
        children = [child for part in parts for child in (part if isinstance(part, tuple) else (part,))]
        counts[id(node)] = 1 + sum(_count_nodes(child, counts) for child in children)
    return counts[id(node)]


def _yaml_error(node: Any, what: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark, note=_OWN_ERROR)


def _explain_yaml_error(error: yaml.YAMLError) -> str:
    """An error as one line of text that names the line of the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line = f"line {error.problem_mark.line + 1}: "
        if error.note == _OWN_ERROR:
            return f"{line}{error.problem}"
        return f"{line}not valid YAML: {', '.join(filter(None, (error.context, error.problem)))}"
    return f"not valid YAML: {' '.join(str(error).split())}"


def _shorten_text(text: str, most: int = 60) -> str:
    return repr(text) if len(text) <= most else f"{text[:most]!r}…"


# ---- Search path of configuration files: the user's folder first, then the installed workflow's --------------------


def find_config_file(path: Path, home: Path | None) -> Path:
    """A configuration file in the working folder, else the installed workflow's file of that name.

    ``home`` is the folder of the installed workflow; None: it is not on this machine, or is the working folder.
    """
    return home / path if home and not path.is_file() and (home / path).is_file() else path


def resolve_config_paths(value: Any, home: Path | None) -> Any:
    """The values with paths below ``config/`` resolved by :func:`find_config_file`."""
    if isinstance(value, dict):
        return {name: resolve_config_paths(part, home) for name, part in value.items()}
    if isinstance(value, list):
        return [resolve_config_paths(part, home) for part in value]
    if isinstance(value, str) and value.startswith("config/"):
        return str(find_config_file(Path(value), home))
    return value


# ---- Datasets and studies: merge overrides, fill in defaults, validate, explain every fault ------------------------

M = TypeVar("M", bound=BaseModel)
MAX_PARTIAL_ROUNDS = 3  # a key that is left out may leave its block without what it needs
# Pydantic puts the tags of a tagged union into the path of a fault; they are not keys of the file.
_UNION_TAGS = frozenset(
    {"ModuleSource", *(source.__name__ for source in BUILT_IN_SOURCES)}
    | {tag for source in BUILT_IN_SOURCES for tag in get_args(source.model_fields["format"].annotation)}
)


def merge_config(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` overridden by ``over``, block by block; a key ``a.b.c`` in ``over`` means the nested key.

    >>> merge_config({"training": {"epochs": 5, "lr": 0.1}}, {"training.epochs": 2})
    {'training': {'epochs': 2, 'lr': 0.1}}
    """
    result = copy.deepcopy(dict(base))
    for name, value in over.items():
        head, _, rest = str(name).partition(".")
        if rest:
            value = {rest: value}
        if isinstance(value, Mapping):
            below = result.get(head)
            result[head] = merge_config(below if isinstance(below, Mapping) else {}, value)
        else:
            result[head] = copy.deepcopy(value)
    return result


def load_dataset(
    name: str,
    folder: str | Path = "config/datasets",
    overrides: Mapping[str, Any] | None = None,
    home: Path | None = None,
) -> Dataset:
    """Read and validate ``<folder>/<name>.yaml``.

    Args:
        overrides: keys that replace the file's: nested, or with dotted names.
        home: folder of the installed workflow, for files that the working folder lacks; see :func:`find_config_file`.

    Raises:
        RewindError: naming every fault with its file and key.
    """
    path = _config_path(folder, name)
    raw = merge_config(merge_config(read_yaml(find_config_file(path, home)), overrides or {}), {"name": name})
    return _validate(Dataset, resolve_config_paths(raw, home), path)


def load_study(
    name: str,
    folder: str | Path = "config/studies",
    overrides: Mapping[str, Any] | None = None,
    home: Path | None = None,
) -> Study:
    """Read and validate ``<folder>/<name>.yaml``.

    Every block with its own ``training`` is completed: those of methods, the pre-training and the over-fitting check
    from the study's, the sweep's from that of the method that it trains.

    Args:
        overrides, home: see :func:`load_dataset`.

    Raises:
        ConfigErrors: naming every fault with its file and key.
        RewindError: for a file that is missing or not YAML.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = "{dataset: shapes, methods: {meanP: {}}}"
    ...     _ = (Path(folder) / "demo.yaml").write_text(text)
    ...     study = load_study("demo", folder, {"training.epochs": 2})
    >>> study.methods["meanP"].training.epochs
    2
    """
    path = _config_path(folder, name)
    raw = resolve_config_paths(
        merge_config(merge_config(read_yaml(find_config_file(path, home)), overrides or {}), {"name": name}), home
    )
    base, keys_in_file = raw.get("training") or {}, set(raw)
    raw.setdefault("sanity", {})  # on by default, and completed like the others
    if isinstance(raw.get("methods"), dict):
        raw["methods"] = {name: {} if block is None else block for name, block in raw["methods"].items()}
        for block in raw["methods"].values():
            _inherit_training(block, base)
    for part in ("pretraining", "sanity"):
        _inherit_training(raw.get(part), base)
    _inherit_training(raw.get("sweep"), _sweep_base_training(raw, base))
    study = _validate(Study, _apply_untrained_defaults(raw, keys_in_file), path)
    try:
        return study.with_encoded_files()
    except ConfigErrors as error:
        raise ConfigErrors({str(path): error.files[""]}, error.draft, error.left_out) from None


def _config_path(folder: str | Path, name: str) -> Path:
    """``<folder>/<name>.yaml``; a name that could lead out of the folder or is too long for a file is refused."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise RewindError(f"{_shorten_value(name)}: not the name of a file in {folder} (without .yaml); {NAME_RULE}.")
    return Path(folder) / f"{name}.yaml"


def _inherit_training(block: Any, base: Any) -> None:
    """Fill in a block's ``training`` from ``base``; what is not a mapping is left for validation to report."""
    if isinstance(block, dict) and isinstance(base, dict) and isinstance(block.get("training", {}), dict):
        block["training"] = merge_config(base, block.get("training", {}))


def _sweep_base_training(raw: dict[str, Any], base: Any) -> Any:
    """The ``training`` block of the method that the sweep trains; the study's where there is no such method."""
    methods, keys = raw.get("methods"), raw.get("sweep")
    if not isinstance(methods, dict) or not isinstance(keys, dict):
        return base
    name = keys.get("method", Sweep.model_fields["method"].default)
    block = methods.get(name) if isinstance(name, str) else None
    return block.get("training", base) if isinstance(block, dict) else base


def _apply_untrained_defaults(raw: dict[str, Any], keys_in_file: set[str]) -> dict[str, Any]:
    """Defaults of a study in which no method is trained: no over-fitting check, and one seed.

    Where methods start from a pre-training of each seed, the usual seeds stay.
    """
    try:
        methods = [Method.model_validate(block) for block in raw["methods"].values()]
    except (KeyError, AttributeError, ValidationError):
        return raw  # validation will report it with all other faults
    if not all(method.baseline for method in methods):
        return raw
    keys = raw.get("pretraining")
    seeded = (
        isinstance(keys, dict)
        and keys.get("shared") is not True
        and any(method.uses_study_backbone for method in methods)
    )
    defaults: dict[str, Any] = {"sanity": None} if seeded else {"sanity": None, "seeds": [0]}
    return raw | {name: value for name, value in defaults.items() if name not in keys_in_file}


def _validate(model: type[M], raw: dict[str, Any], path: Path) -> M:
    non_finite = dict(_non_finite_numbers(raw))  # models do not check the free options of a user's own classes
    try:
        config = model.model_validate(raw)
        if non_finite:
            raise ConfigErrors({str(path): _without_inherited_lines(non_finite.values())}, config, non_finite)
        return config
    except ValidationError as error:
        lines = [_explain_error(model, fault) for fault in error.errors() if not _is_rejected_alternative(raw, fault)]
        reported = {line.partition(": ")[0] for line in lines}
        lines += [line for where, line in non_finite.items() if where not in reported]
        lines = _without_inherited_lines(line for part in lines for line in part.splitlines())
        left_out = {".".join(map(str, fault["loc"])) for fault in error.errors() if fault["loc"]}
        raise ConfigErrors({str(path): lines}, _partial_model(model, raw, error), left_out) from None


def _without_inherited_lines(lines: Iterable[str]) -> list[str]:
    """Every line once, without faults that blocks inherit from the study's ``training``."""
    unique = list(dict.fromkeys(lines))
    return [line for line in unique if not _is_inherited(line, unique)]


def _non_finite_numbers(value: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Paths of infinite numbers and NaN, with the message for each."""
    if isinstance(value, float) and not math.isfinite(value):
        path = ".".join(where)
        yield path, f"{path}: must be a finite number (given: {value})"
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from _non_finite_numbers(part, (*where, str(name)))


def _partial_model(model: type[M], raw: dict[str, Any], error: ValidationError) -> M | None:
    """The model without the faulty keys, so that later checks can go on; None if a required key is among them."""
    remaining = copy.deepcopy(raw)
    for _ in range(MAX_PARTIAL_ROUNDS):
        for fault in error.errors():
            _remove_key(remaining, fault["loc"][:-1] if fault["type"] == "missing" else fault["loc"])
        try:
            return model.model_validate(remaining, context={DRAFT_CONTEXT: True})
        except ValidationError as further:
            error = further
    return None


def _remove_key(raw: dict[str, Any], where: tuple[int | str, ...]) -> None:
    block: dict[Any, Any] = raw
    for part in where[:-1]:
        if not isinstance(block.get(part), dict):
            break  # inside a list, or behind a union's tag: the key that holds it is removed
        block = block[part]
    block.pop(next((part for part in reversed(where) if part in block), None), None)


def _is_inherited(line: str, lines: list[str]) -> bool:
    """Whether a fault in a block's ``training`` was inherited from the study's ``training``."""
    block, training, rest = line.partition(".training.")
    return bool(block and training) and f"training.{rest}" in lines


def _is_rejected_alternative(raw: Mapping[str, Any], fault: Mapping[str, Any]) -> bool:
    """Whether a fault only says that a built-in format is not a module of the user's own.

    Pydantic tries every alternative of ``source`` and reports the faults of each.
    """
    source = raw.get("source")
    name = source.get("format") if isinstance(source, Mapping) else None
    return isinstance(name, str) and name in _UNION_TAGS and "ModuleSource" in fault["loc"]


def _explain_error(model: type[BaseModel], fault: Mapping[str, Any]) -> str:
    where = list(fault["loc"])
    if where[:1] == ["source"]:
        where = [
            part
            for part in where
            if part not in _UNION_TAGS and not str(part).startswith(("tagged-union[", "function-after["))
        ]
    path = ".".join(map(str, where)) or "(file)"
    if fault["type"] == "extra_forbidden":
        valid = _valid_keys_at(model, where[:-1])
        near = difflib.get_close_matches(str(where[-1]), valid, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(sorted(valid))}"
        return f"{path}: unknown key; {hint}"
    if fault["type"] == "missing":
        return f"{path}: {fault_message(fault)}"
    message, value = _error_message(fault), fault.get("input")
    if not fault["loc"] and fault["type"] == "value_error":
        return message  # about several keys, which it names itself
    shown = "" if isinstance(value, dict) else f" (given: {_shorten_value(value)})"
    return f"{path.removesuffix('.[key]')}: {message}{shown}"


def _error_message(fault: Mapping[str, Any]) -> str:
    """As :func:`rewind.config.base.fault_message`, for names of keys and files too."""
    kind, key = fault["type"], fault["loc"][-1:] == ("[key]",)
    if kind == "invalid_key" or (key and kind == "string_type"):
        return "this name is read as a number; write it in quotes"
    if kind == "string_pattern_mismatch" and fault["ctx"]["pattern"] == NAME_PATTERN:
        return f"not a valid file name; {NAME_RULE}"
    return fault_message(fault)


def _shorten_value(value: Any, most: int = 200) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= most else f"{text[:most]}…"


def _valid_keys_at(model: type[BaseModel], where: list[Any]) -> list[str]:
    """Valid keys of the block at ``where`` (of every alternative, where there are several)."""
    models = [model]
    for part in where:
        inner: list[type[BaseModel]] = []
        for current in models:
            field = current.model_fields.get(str(part))
            # What is not a key is the name of a method or a union's tag: the models stay the same.
            inner += nested_models(field.annotation) if field else [current]
        models = inner
    fields = [entry for current in models for entry in current.model_fields.items()]
    return sorted({name for name, field in fields if "retired" not in history(field)})
