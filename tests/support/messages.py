"""Refusals in tests: *where* the fault is stands in the test, the sentence in ``tests/messages.txt``.

``refusal`` expects an error with a message for the user. The test names the place that the message begins with
(:attr:`rewind.errors.RewindError.place`: file, row, key); the whole message is compared with the snapshot, which
``make messages`` writes anew. Whoever rewords a message runs that command and reads the difference:

    with refusal("captions.csv: row 3"):
        read_captions(tmp_path / "captions.csv")
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from checkout import ROOT, TESTS
from rewind.errors import ConfigErrors, RewindError, place_of

SNAPSHOT = TESTS / "messages.txt"
PARTS = ROOT / ".pytest_cache/messages"
HEAD = """\
# What Rewind says where a test expects it to refuse something, by test: `make messages` writes this file.
# Paths of the test's own folder are left out.
"""


@dataclass
class Messages:
    """What the tests of one process saw, against the snapshot.

    Attributes:
        renew: note what is said instead of comparing it.
        wanted: test → messages, in the order in which the test sees them.
        seen: the same of this run.
    """

    renew: bool = False
    base: str = ""
    wanted: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[str, list[str]] = field(default_factory=dict)

    def check(self, text: str, *, varying: str = "") -> None:
        """Compare a message with the next one of this test.

        Args:
            text: the message.
            varying: a pattern of what differs between machines, such as an amount of memory; written as ``…``.
        """
        test = current_test()
        number = len(self.seen.setdefault(test, []))
        found = self.shorten(text, varying)
        self.seen[test].append(found)
        if self.renew:
            return
        wanted = self.wanted.get(test, [])
        if number >= len(wanted):
            pytest.fail(f"this message is not in {SNAPSHOT.name}; `make messages` adds it:\n{found}", pytrace=False)
        assert found == wanted[number], f"another message than in {SNAPSHOT.name}; if it is meant: make messages"

    def shorten(self, text: str, varying: str = "") -> str:
        """The text without what differs between machines: folders, and what ``varying`` matches."""
        for pattern, instead in ((rf"{re.escape(self.base)}/[^/\s:;,'\"]+/?", ""), (rf"{re.escape(str(ROOT))}/?", "")):
            text = re.sub(pattern, instead, text)
        return re.sub(varying, "…", text) if varying else text


messages = Messages()


def current_test() -> str:
    """``cli/test_init.py::test_name[case]`` of the test that runs."""
    return name_of(os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0])


def name_of(node: str) -> str:
    return node.removeprefix("tests/")


@contextlib.contextmanager
def refusal(
    *places: str, error: type[BaseException] = RewindError, varying: str = ""
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error whose message begins with these places, and is that of the snapshot.

    Args:
        places: file, row and key as the message has them, without the test's own folder; of faults of a
            configuration, ``FILE: KEY`` of each. None: the message names no place.
        error: the expected exception; one that is no :class:`RewindError` has the place that its text begins with.
        varying: a pattern of what differs between machines.
    """
    with pytest.raises(error) as caught:
        yield caught
    value = caught.value
    found = value.places if isinstance(value, ConfigErrors) else [place_of(str(value))]
    assert shortened(found, varying) == shortened(places, varying)
    messages.check(str(value), varying=varying)


@contextlib.contextmanager
def invalid(*places: str) -> Iterator[None]:
    """Expect that a model of the configuration refuses its keys; otherwise as :func:`refusal`.

    Args:
        places: of each fault, the key and what its sentence begins with.
    """
    with pytest.raises(ValidationError) as caught:
        yield
    faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in caught.value.errors()]
    lines = [": ".join(filter(None, (key, said.removeprefix("Value error, ")))) for key, said in faults]
    assert [place_of(line) for line in lines] == list(places)
    messages.check("\n".join(lines))


def shortened(places: Iterable[str], varying: str) -> list[str]:
    return list(filter(None, (messages.shorten(place, varying) for place in places)))


def expect_message(text: str, *, varying: str = "") -> None:
    """Compare what a command printed, or what a file says, with the snapshot; ``varying`` as for :func:`refusal`.

    The test itself asserts what decides: an exit code, a number, a key, a file that is or is not written. Empty lines
    and blanks at both ends and at the end of a line are left out.
    """
    messages.check("\n".join(filter(None, map(str.rstrip, text.strip().split("\n")))), varying=varying)


def expect_error(text: str, *places: str, varying: str = "") -> None:
    """Expect that a command printed one ``error: FILE: row N: KEY: …``, and compare all of it with the snapshot.

    Args:
        text: standard error; progress before the error is left out.
        places: file, row and key of each fault, as for :func:`refusal`.
        varying: a pattern of what differs between machines.
    """
    assert "Traceback" not in text, text
    _, mark, said = f"\n{text}".partition("\nerror: ")
    assert mark, f"no error is printed: {text}"
    assert shortened(printed_places(said), varying) == shortened(places, varying)
    expect_message(said, varying=varying)


def printed_places(text: str) -> list[str]:
    """Places of a printed message: of its lines, or of those below ``FILE:``; each once.

    >>> printed_places("a.yaml:\\n  training.lr: this must be a number\\n  seeds: this key is missing")
    ['a.yaml: training.lr', 'a.yaml: seeds']
    """
    found, file = [], ""
    for line in text.splitlines():
        if not line.startswith(" "):
            file = line[:-1] if re.fullmatch(r"\S*[./]\S*:", line) else ""
            found.append(place_of(line))
        elif file and not line.startswith("   "):
            found.append(": ".join(filter(None, (file, place_of(line.strip())))))
    return list(dict.fromkeys(filter(None, found)))


# ---- The snapshot --------------------------------------------------------------------------------------------------


def read_snapshot() -> dict[str, list[str]]:
    """Test → messages."""
    found: dict[str, list[str]] = {}
    test = ""
    for line in SNAPSHOT.read_text(encoding="utf-8").splitlines() if SNAPSHOT.is_file() else ():
        if line.startswith("    "):
            found[test][-1] += "\n" + line[4:]
        elif line.startswith("  "):
            found[test].append(line[2:])
        elif line and not line.startswith("#"):
            test = line
            found[test] = []
    return found


def write_snapshot(found: dict[str, list[str]]) -> None:
    blocks = []
    for test, texts in sorted(found.items()):
        lines = ["  " + "\n    ".join(text.split("\n")) for text in texts]
        blocks.append("\n".join([test, *lines]) + "\n")
    SNAPSHOT.write_text("\n".join([HEAD, *blocks]), encoding="utf-8")


def write_part(collected: Sequence[str]) -> None:
    """Leave what this process saw, and which tests there are, for :func:`merge_parts`."""
    PARTS.mkdir(parents=True, exist_ok=True)
    content = {"collected": list(collected), "seen": messages.seen}
    (PARTS / f"{os.getpid()}.json").write_text(json.dumps(content), encoding="utf-8")


def merge_parts() -> None:
    """Write the snapshot with what all processes saw; tests that no longer exist leave it."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in PARTS.glob("*.json")]
    collected = {test for part in parts for test in part["collected"]}
    files = {file_of(test) for test in collected}
    found = {
        test: texts
        for test, texts in read_snapshot().items()
        if (TESTS / file_of(test)).is_file() and (test in collected or file_of(test) not in files)
    }
    for part in parts:
        found |= part["seen"]
    write_snapshot({test: texts for test, texts in found.items() if texts})
    shutil.rmtree(PARTS, ignore_errors=True)


def file_of(test: str) -> str:
    return test.partition("::")[0]
