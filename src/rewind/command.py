"""What the user typed, handed down from Snakemake's first process to its jobs: for ``run.json``, without secrets, and
keys of the configuration, in a spelling that every shell between leaves as it is."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import yaml

VARIABLE = "REWIND_COMMAND"
OURS = ("studies", "overrides", "custom_rules")
"""Keys of ``config/config.yaml``."""
_ENCODED = "encoded:"
_PLAIN = re.compile(r"[\w {}\[\]:,./=+%@-]*", re.ASCII)
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


def shell_proof(arguments: Iterable[str], config: Mapping[str, Any]) -> list[str]:
    """``--config`` for jobs on other machines, where quotes and ``$`` of a value would be read by a shell.

    Snakemake writes these values into a command between quotes of Python's, and Slurm's plugin that command into
    ``sbatch --wrap="…"``: a shell there ends a word at a quote, and puts in a variable for ``$name``.

    Args:
        arguments: ``name=value`` as they were typed.
        config: the configuration that the user's process made of them and of its files.
    """
    proof = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name in OURS and not _PLAIN.fullmatch(value):
            text = yaml.safe_dump(config[name]).encode()
            argument = f"{name}={_ENCODED}{base64.urlsafe_b64encode(text).decode()}"
        proof.append(argument)
    return proof


def restore(config: MutableMapping[str, Any]) -> None:
    """Put back, in place, what :func:`shell_proof` encoded."""
    for name in OURS:
        value = config.get(name)
        if isinstance(value, str) and value.startswith(_ENCODED):
            config[name] = yaml.safe_load(base64.urlsafe_b64decode(value.removeprefix(_ENCODED)))


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
