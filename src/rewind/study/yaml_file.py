"""YAML as configuration uses it: words, numbers, lists and blocks, each key once; other things are told with a line."""

from __future__ import annotations

import difflib
import math
import os
from pathlib import Path
from typing import Any

import yaml

from rewind.errors import RewindError
from rewind.files import require_regular_file
from rewind.reading.text import read_text

DEEPEST = 40  # blocks and lists in one another
MOST = 100_000  # values of a file, those that an alias repeats counted each time
LARGEST = 1_000_000  # bytes of a file
NUMBERS = 2**64  # no key takes a larger one
_TAG = "tag:yaml.org,2002:"
_BUILT_FROM_PARTS = ("binary", "set", "omap", "pairs")  # YAML's own kinds that no key takes


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice (YAML itself would silently keep the last), and a bomb of aliases."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _fault(self.peek_event(), f"more than {DEEPEST} blocks and lists in one another; write it flatter")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_document(self, node: yaml.Node) -> Any:
        count = _count(node, {})
        if count == math.inf:
            raise _fault(node, "an alias (`*name`) stands within what it names; write out what is meant")
        if count > MOST:
            raise _fault(node, f"more than {MOST:,} values, aliases (`*name`) written out; remove what repeats them")
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError):
            said = str(node.value)
            raise _fault(node, f"{_cut(said)} is no {node.tag.rpartition(':')[2]}; correct it, or quote it") from None
        if isinstance(value, str):
            _check_text(value, node)
        if isinstance(value, int) and abs(value) > NUMBERS:
            raise _fault(node, "a number too large for any key; correct it")
        return value


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == f"{_TAG}merge":  # `<<: *anchor`: keys beside it are laid on top
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            raise _fault(key_node, "a list or a block stands where the name of a key is needed")
        name = loader.construct_object(key_node, deep=True)
        if name in seen:
            raise _fault(key_node, f"the key {name!r} is given twice; keep one")
        seen.add(name)
    found = loader.construct_mapping(node, deep=True)
    for key_node, _ in node.value:  # by now with those that were merged in
        name = loader.construct_object(key_node, deep=True)
        if not isinstance(name, str | int | float) or isinstance(name, bool):
            word = key_node.value or "(nothing)"
            raise _fault(key_node, f"the key {word} is read as {name!r}, which is no name; write it in quotes")
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor(f"{_TAG}timestamp", yaml.SafeLoader.construct_yaml_str)  # a date is a word like any other
for _kind in _BUILT_FROM_PARTS:
    _Loader.add_constructor(_TAG + _kind, yaml.SafeLoader.construct_undefined)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; syntax faults, odd letters and repeated keys are refused with their line."""
    value = parse_yaml(_text(path), str(path))
    if not isinstance(value, dict):
        raise RewindError(f"{path}: a mapping of keys is expected at the top.")
    return value


def parse_yaml(text: str, where: str) -> Any:
    """The value that a text of YAML stands for.

    Args:
        text: of a file, or what stands behind a key on the command line.
        where: the file or the key, which messages begin with.

    Raises:
        RewindError: for what is no YAML, or more than keys can mean.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise RewindError(f"{where}: line {line}: the character #x{error.character:04x} cannot stand there.") from None
    except yaml.YAMLError as error:
        raise RewindError(f"{where}: {_explained(error)}.") from None
    except RecursionError:
        raise RewindError(f"{where}: too many blocks and lists in one another; write it flatter.") from None


def check_plain(value: Any, where: str) -> None:
    """Refuse plain values that are too many or too deep for anyone to have meant them.

    They may come from Snakemake, which reads what is typed behind ``--config`` with a YAML of its own.
    """
    left, count = [(value, 1)], 0
    while left:
        part, depth = left.pop()
        count += 1
        if count > MOST or depth > DEEPEST:
            what = f"more than {MOST:,} values" if count > MOST else f"more than {DEEPEST} blocks in one another"
            raise RewindError(f"{where}: {what}; write less.")
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        left += [(one, depth + 1) for one in inner]


def _text(path: Path) -> str:
    try:
        require_regular_file(path, missing_ok=True)
        if (size := os.stat(path).st_size) > LARGEST:
            raise RewindError(f"{path}: {size:,} bytes are no file of keys; is it another file's content?")
        return read_text(path)
    except FileNotFoundError as error:
        near = difflib.get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.yaml") if p != path], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise RewindError(f"{path}: no such file.{hint}") from error
    except OSError as error:
        raise RewindError(f"{path}: cannot be read ({error.strerror}); correct the name or the file.") from None
    except ValueError:
        raise RewindError(f"{str(path)!r}: no name of a file; correct it.") from None


def _check_text(text: str, node: yaml.Node) -> None:
    if "\0" in text:
        raise _fault(node, r"a text with a zero character (\0); remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _fault(node, r"half of a character (\ud800 to \udfff); correct it") from None


def _count(node: yaml.Node, known: dict[int, float]) -> float:
    """Values below a node with its aliases written out; infinitely many where it holds itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        parts = node.value if isinstance(node.value, list) else []
        inner = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
        known[id(node)] = 1 + sum(_count(one, known) for one in inner)
    return known[id(node)]


def _fault(place: Any, what: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=place.start_mark, note="ours")


def _explained(error: yaml.YAMLError) -> str:
    """A fault on one line, with the line of the file that it is in."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        place = f"line {error.problem_mark.line + 1}: "
        if error.note == "ours":
            return f"{place}{error.problem}"
        return f"{place}not valid YAML: {', '.join(filter(None, (error.context, error.problem)))}"
    return f"not valid YAML: {' '.join(str(error).split())}"


def _cut(text: str, most: int = 60) -> str:
    return repr(text) if len(text) <= most else f"{text[:most]!r}…"
