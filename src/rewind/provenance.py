"""What ran, on what, from which code and data."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import grimp

from rewind.command import command
from rewind.errors import RewindError
from rewind.machine import driver, instance, processor

PACKAGES = (
    "torch",
    "torchvision",
    "open-clip-torch",
    "decord",
    "decord2",
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


@functools.cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("rewind", cache_dir=None)


def reached(script: Path) -> set[str]:
    """Library modules that a script's imports reach, transitively; packages count with their ``__init__``."""
    direct = imported(script.read_text())
    graph = _graph()
    modules = {name for name in direct if name in graph.modules}
    for name in list(modules):
        modules |= graph.find_upstream_modules(name)
    return modules | {parent for name in modules for parent in _parents(name)}


def imported(source: str) -> set[str]:
    """Names under ``rewind`` that a script imports; ``from rewind.a import b`` may mean the module ``rewind.a.b``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "rewind"}


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def fingerprint(script: str | Path, *modules: str) -> str:
    """Content hash of a script, the library modules it reaches, and further ``modules`` found at run time.

    Snakemake does not see edits in imported modules; rules pass this as ``params: code=…``. Touching a file or a fresh
    checkout changes nothing, an edit changes it for exactly the rules whose scripts reach the module. A module of the
    user's own counts with its file, not with what it imports.
    """
    script = Path(script)
    names = reached(script)
    whole = hashlib.sha256(script.read_bytes())
    for module in modules:
        if module in _graph().modules:
            names |= {module} | _graph().find_upstream_modules(module)
        elif path := _foreign_file(module):
            whole.update(module.encode() + b"\0" + path.read_bytes())
    for name in sorted(names):
        whole.update(name.encode() + b"\0" + _module_file(name).read_bytes())
    return whole.hexdigest()[:16]


def fingerprint_of(module: str) -> str:
    """Content hash of one library module and of all that it imports."""
    whole = hashlib.sha256()
    for name in sorted({module} | _graph().find_upstream_modules(module)):
        whole.update(name.encode() + b"\0" + _module_file(name).read_bytes())
    return whole.hexdigest()[:16]


def _foreign_file(name: str) -> Path | None:
    """File of a module outside the library, or of the module that holds the attribute ``name``."""
    for candidate in (name, name.rpartition(".")[0]):
        try:
            found = importlib.util.find_spec(candidate) if candidate else None
        except ImportError:
            continue
        if found is not None and found.origin and Path(found.origin).is_file():
            return Path(found.origin)
    return None


@functools.cache
def _module_file(name: str) -> Path:
    root = Path(__file__).parent
    stem = root.joinpath(*name.split(".")[1:])
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def file_hash(path: str | Path) -> str:
    """sha256 of a file, 16 hex digits."""
    whole = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()[:16]


def environment() -> dict[str, Any]:
    """Versions, commit, machine and the user's command, for ``run.json``; what is not there is None."""
    return {
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES if _installed(name)},
        "ffmpeg": _ffmpeg(),
        "driver": driver(),
        "platform": platform.platform(),
        "processor": processor(),
        "instance": instance(),
        "git": _git(),
        "command": command(),
    }


def hardware() -> dict[str, Any]:
    """Devices as torch sees them now, the CUDA and cuDNN that it was built with, whether products are in TF32.

    What a CPU build or a CPU does not have is None.
    """
    import torch

    devices = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    threads = torch.get_num_threads()
    return {
        "devices": devices or [f"CPU ({processor()}, {threads} thread{'s' * (threads > 1)})"],
        "gpus": len(devices),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "tf32": _tf32(torch.backends.cuda.matmul.allow_tf32) if devices else None,
    }


def _tf32(allowed: bool) -> bool:
    return allowed and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def _ffmpeg() -> str | None:
    # Found at run time: a run's record names the program, but its code does not depend on the module that runs it.
    ffmpeg = importlib.import_module("rewind.video.ffmpeg")
    try:
        return ffmpeg.version()
    except RewindError:
        return None


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _git() -> dict[str, Any]:
    def ask(*arguments: str) -> str | None:
        try:
            out = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return out.stdout.strip() if out.returncode == 0 else None

    status = ask("status", "--porcelain", "--untracked-files=no")
    return {"commit": ask("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}
