"""What goes into ``run.json``: the user's command line (without secrets), versions, hardware and the git commit.

Which code computed a result is tracked separately, in :mod:`rewind.workflow.staleness.code_hash`.
"""

from __future__ import annotations

import base64
import datetime
import importlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from rewind.errors import RewindError
from rewind.hashing import SHORT_DIGITS, sha256_of
from rewind.packaged import checkout_folder, installed_version
from rewind.platform import ec2_instance_type, nvidia_driver_version, processor_name

# ---- The user's command line ---------------------------------------------------------------------------------------
# It is handed from Snakemake's first process to its jobs through the environment, without secrets and encoded so that
# no shell on the way changes it.

COMMAND_VARIABLE, CONFIG_VARIABLE = "REWIND_COMMAND", "REWIND_CONFIG"
REDACTED = "***"
CONFIG_KEYS = ("studies", "overrides", "custom_rules")
"""Keys of ``config/config.yaml``."""
_ENCODED_PREFIX = "encoded:"
_SHELL_SAFE = re.compile(r"[\w {}\[\]:,./=+%@-]*", re.ASCII)  # what every shell passes on as it is

# In the name of an option or of a `name=value` these words count anywhere. Inside a longer value they count only at the
# end of a name, because there `tokenizer: clip` is not a secret.
_SECRET_NAME = re.compile(r"key|secret|token|passw|passphrase|credential|auth|signature", re.I)
_SECRET_IN_VALUE = re.compile(
    r"""(?P<name>(?:key|secret|token|passw(?:or)?d|passphrase|credentials?|signature)["']?\s*[:=]\s*)"""
    r"""(?:"[^"]*"|'[^']*'|[^\s,}\]&]+)""",
    re.I,
)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # user:password of https://user:password@host


def record_typed_config(typed: Mapping[str, Any]) -> None:
    """Put what the user gave by ``--config`` and ``--configfile`` where the jobs that this process starts find it."""
    typed = dict(typed)
    decode_config(typed)
    os.environ[CONFIG_VARIABLE] = json.dumps(typed, default=str)


def typed_config() -> dict[str, Any]:
    """What :func:`record_typed_config` recorded; outside a workflow nothing."""
    content = json.loads(os.environ.get(CONFIG_VARIABLE) or "{}")
    return content if isinstance(content, dict) else {}


def record_command(arguments: Sequence[str], first: bool) -> None:
    """Put a command line where jobs find it: in the environment, which they inherit or get from their scheduler.

    It is encoded in base64, because Snakemake writes such values into shell commands as Python literals (``repr``),
    whose quoting is not a shell's.

    Only the process that the user started is ``first``; another one keeps the command that it was given.
    """
    if first or COMMAND_VARIABLE not in os.environ:
        plain = json.dumps(redacted_command(arguments))
        os.environ[COMMAND_VARIABLE] = base64.urlsafe_b64encode(plain.encode()).decode()


def encode_config(arguments: Iterable[str], config: Mapping[str, Any]) -> list[str]:
    """Arguments of ``--config`` for jobs on other machines, where a shell would read quotes and ``$`` in a value.

    Snakemake writes these values into a command as Python literals, and Slurm's plugin puts that command into
    ``sbatch --wrap="…"``: the shell there ends a word at a quote, and replaces ``$name`` by a variable.

    ``config`` is what the user's process made of the arguments, ``name=value`` as they were typed, and of its files.

    >>> arguments = encode_config(["studies=[demo]", "overrides={a: 'b'}"], {"overrides": {"a": "b"}})
    >>> arguments
    ['studies=[demo]', 'overrides=encoded:YTogYgo=']
    >>> config = {"overrides": "encoded:YTogYgo="}
    >>> decode_config(config)
    >>> config
    {'overrides': {'a': 'b'}}
    """
    encoded = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name in CONFIG_KEYS and not _SHELL_SAFE.fullmatch(value):
            text = yaml.safe_dump(config[name]).encode()
            argument = f"{name}={_ENCODED_PREFIX}{base64.urlsafe_b64encode(text).decode()}"
        encoded.append(argument)
    return encoded


def decode_config(config: MutableMapping[str, Any]) -> None:
    """Decode, in place, the values that :func:`encode_config` encoded."""
    for name in CONFIG_KEYS:
        value = config.get(name)
        if isinstance(value, str) and value.startswith(_ENCODED_PREFIX):
            config[name] = yaml.safe_load(base64.urlsafe_b64decode(value.removeprefix(_ENCODED_PREFIX)))


def user_command() -> str:
    """The user's command line, quoted for a shell and without secrets; outside a workflow this process's own."""
    try:
        return str(json.loads(base64.urlsafe_b64decode(os.environ[COMMAND_VARIABLE])))
    except (KeyError, ValueError):
        return redacted_command(sys.argv)


def redacted_command(arguments: Sequence[str]) -> str:
    """A command line with only the name of the program, and ``***`` for keys, tokens, passwords and other secrets.

    >>> redacted_command(["/opt/bin/rewind", "--api-key", "abc", "--repo", "https://me:pw@host/x", "TOKEN=abc"])
    "rewind --api-key '***' --repo 'https://***@host/x' 'TOKEN=***'"
    """
    words, after_secret_option = [_program(arguments[0])], False
    for argument in arguments[1:]:
        is_option = argument.startswith("-")
        if after_secret_option and not is_option:  # all values of `--token a b`, up to the next option
            words.append(REDACTED)
            continue
        name, equals, _ = argument.partition("=")
        secret = bool(_SECRET_NAME.search(name)) and (is_option or bool(equals))
        after_secret_option = is_option and secret and not equals
        words.append(f"{name}={REDACTED}" if secret and equals and _is_option_name(name) else _redact_value(argument))
    return shlex.join(words)


def _is_option_name(text: str) -> bool:
    """Whether a text is a plain name, and not the beginning of a longer value such as a URL with a query."""
    return re.fullmatch(r"[\w.-]+", text) is not None


def _redact_value(value: str) -> str:
    return _URL_CREDENTIALS.sub(REDACTED, _SECRET_IN_VALUE.sub(rf"\g<name>{REDACTED}", value))


def _program(path: str) -> str:
    """``snakemake`` for …/bin/snakemake, and for …/snakemake/__main__.py, which ``python -m snakemake`` runs."""
    file = Path(path)
    return file.parent.name if file.name == "__main__.py" else file.name


# ---- Versions, hardware and git commit -----------------------------------------------------------------------------

RECORDED_PACKAGES = (
    "torch",
    "torchvision",
    "open-clip-torch",
    "decord",
    "decord2",
    "av",
    "torchcodec",
    "ffmpeg-python",
    "imageio-ffmpeg",
    "pillow",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "safetensors",
    "snakemake",
)


def file_hash(path: str | Path) -> str:
    """The first 16 hex digits of a file's SHA-256."""
    return sha256_of(path)[:SHORT_DIGITS]


def environment() -> dict[str, Any]:
    """Versions, commit of the code, date (UTC), machine and the user's command, for ``run.json``; None where unknown.

    ``frame_reader`` is what reads clips here, since several packages that do may be installed: ``decord 0.6.0``.
    Packages that are not installed are left out.
    """
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in RECORDED_PACKAGES if _is_distribution_installed(name)},
        "frame_reader": _frame_reader(),
        "ffmpeg": _ffmpeg_version(),
        "driver": nvidia_driver_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "instance": ec2_instance_type(),
        "version": installed_version(),
        "git": _git_state(),
        "command": user_command(),
    }


def hardware() -> dict[str, Any]:
    """Devices as torch sees them now, its CUDA and cuDNN versions, and whether matrix products use TF32.

    Also the CPU cores that this process may use, and the vector instructions that torch, oneDNN and MKL compute with:
    others round differently, so training on a CPU ends at other weights. What a CPU or CPU build does not have is None.
    """
    import torch  # here, because the workflow starts without it

    devices = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    threads = torch.get_num_threads()
    return {
        "devices": devices or [f"CPU ({processor_name()}, {threads} thread{'s' * (threads > 1)})"],
        "gpus": len(devices),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "tf32": _tf32(torch.backends.cuda.matmul.allow_tf32) if devices else None,
        "cores": len(os.sched_getaffinity(0)),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "onednn_max": os.environ.get("ONEDNN_MAX_CPU_ISA"),
        "mkl_cbwr": os.environ.get("MKL_CBWR"),
    }


def _tf32(allowed: bool) -> bool:
    # NVIDIA's libraries obey this variable whatever torch allows.
    return allowed and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def _ffmpeg_version() -> str | None:
    # Imported by name: a run's record states the version, but a run's code hash must not depend on that module.
    ffmpeg = importlib.import_module("rewind.video.ffmpeg")
    try:
        return ffmpeg.ffmpeg_version()
    except RewindError:
        return None


def _frame_reader() -> str | None:
    readers = importlib.import_module("rewind.video.readers")  # by name, as above
    try:
        return readers.reader_version()
    except RewindError:
        return None


def _is_distribution_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _git_state() -> dict[str, Any]:
    """Commit of the running code: that of its checkout, or the one that the version of a wheel names."""
    if (folder := checkout_folder()) is None:
        return _commit_in_version(installed_version())

    def git(*arguments: str) -> str | None:
        try:
            out = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return out.stdout.strip() if out.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def _commit_in_version(text: str) -> dict[str, Any]:
    """Commit in a version such as ``0.1.1.dev345+gc51ba5204.d20261123``; a date at its end marks uncommitted changes.

    >>> _commit_in_version("0.1.1.dev345+gc51ba5204.d20261123")
    {'commit': 'c51ba5204', 'dirty': True}
    """
    match = re.search(r"\+(?:.*\.)?g([0-9a-f]{7,40})(\.d\d{8})?$", text)
    return {"commit": match[1] if match else None, "dirty": bool(match[2]) if match else None}
