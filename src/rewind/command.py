"""What the user typed, for ``run.json``: handed down from Snakemake's first process to its jobs, without secrets."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "REWIND_COMMAND"
HIDDEN = "***"

# In the name of an option or of a `name=value`, anywhere; inside a longer value, where `tokenizer: clip` is none, at
# the end of a name.
_SECRET = re.compile(r"key|secret|token|passw|passphrase|credential|auth|signature", re.I)
_INSIDE = re.compile(
    r"""(?P<name>(?:key|secret|token|passw(?:or)?d|passphrase|credentials?|signature)["']?\s*[:=]\s*)"""
    r"""(?:"[^"]*"|'[^']*'|[^\s,}\]&]+)""",
    re.I,
)
_USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def hand_down(arguments: Sequence[str], first: bool) -> None:
    """Put a command line where jobs find it: in the environment, which they inherit or are given by their scheduler.

    It is encoded, because Snakemake writes such values into shell commands between quotes of Python's.

    Args:
        arguments: ``sys.argv``.
        first: this is the process that the user started; another one keeps what it was handed.
    """
    if first or VARIABLE not in os.environ:
        plain = json.dumps(shown(arguments))
        os.environ[VARIABLE] = base64.urlsafe_b64encode(plain.encode()).decode()


def command() -> str:
    """The user's command line as a shell takes it; outside a workflow that of this process."""
    try:
        return str(json.loads(base64.urlsafe_b64decode(os.environ[VARIABLE])))
    except (KeyError, ValueError):
        return shown(sys.argv)


def shown(arguments: Sequence[str]) -> str:
    """A command line with the program's name alone, and ``***`` for keys, tokens, passwords and other secrets."""
    words, hiding = [_program(arguments[0])], False
    for argument in arguments[1:]:
        option = argument.startswith("-")
        if hiding and not option:
            words.append(HIDDEN)
            continue
        name, equals, _ = argument.partition("=")
        secret = bool(_SECRET.search(name)) and (option or bool(equals))
        hiding = option and secret and not equals
        words.append(f"{name}={HIDDEN}" if secret and equals and _is_name(name) else _without_secrets(argument))
    return shlex.join(words)


def _is_name(text: str) -> bool:
    """Not the beginning of a longer value, such as an address with a question mark."""
    return re.fullmatch(r"[\w.-]+", text) is not None


def _without_secrets(value: str) -> str:
    return _USER.sub(HIDDEN, _INSIDE.sub(rf"\g<name>{HIDDEN}", value))


def _program(path: str) -> str:
    """``snakemake`` for …/bin/snakemake and for ``python -m snakemake``."""
    file = Path(path)
    return file.parent.name if file.name == "__main__.py" else file.name
