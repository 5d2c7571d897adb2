"""What this machine has, what is missing for a run, and how to get it."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from rewind import compat
from rewind.machine import cores
from rewind.packaged import DISTRIBUTION, checkout, home, installing, page, version

OLDEST_PYTHON = (3, 11)
LEAST_DISK_GB = 10
# Compiled packages can be installed and still not load, for want of a system library.
_LOADED = ("torch", "torchvision", "open_clip", "decord", "pyarrow")
_FFMPEG = "put ffmpeg 5.1 or newer with libx264 on PATH, or: pip install imageio-ffmpeg, which includes one"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        subject: what was looked at.
        found: what was found there.
        good: whether it will do.
        how: how to get it, where it will not.
        needed: whether nothing runs without it.
    """

    subject: str
    found: str
    good: bool = True
    how: str = ""
    needed: bool = True


def examine() -> list[Finding]:
    """Everything that a run needs or records, in the order of the report."""
    findings = [_python(), *_packages(), *_loading()]
    if any(not finding.good for finding in findings):
        return [*findings, _ffmpeg(), *_machine()]  # versions and devices cannot be asked yet
    from rewind.provenance import environment

    here = environment()
    return [*findings, *_versions(here), _ffmpeg(), *_devices(here), *_machine(), _git(here), *_studies()]


def show(findings: list[Finding]) -> str:
    """The report as text: one line a finding, then what to do."""
    width = max(len(finding.subject) for finding in findings)
    lines = [f"{_mark(finding):<8}{finding.subject:<{width}}  {finding.found}" for finding in findings]
    missing = [finding for finding in findings if not finding.good]
    lines += [""] + [f"{finding.subject}: {finding.how}" for finding in missing if finding.how]
    needed = sum(finding.needed for finding in missing)
    lines.append(f"{needed} of the things above must be fixed." if needed else _enough(missing))
    return "\n".join(lines)


def _enough(missing: list[Finding]) -> str:
    """The last line where Rewind can run; what only some studies need, and is not there, is named in it again."""
    wanted = [finding.subject for finding in missing if finding.how]
    if not wanted:
        return "Everything that is needed is there."
    return f"Rewind can run: what all studies need is there. What only some need is missing: {', '.join(wanted)}."


def _mark(finding: Finding) -> str:
    return "ok" if finding.good else "MISSING" if finding.needed else "none"


def _python() -> Finding:
    good = sys.version_info[:2] >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    how = f"install Python {oldest} or newer, then " + (
        f"make PYTHON=python{oldest} demo" if checkout() else "Rewind in a virtual environment of it"
    )
    return Finding("Python", f"{platform.python_version()} ({sys.executable})", good, how)


def _packages() -> list[Finding]:
    """The library's own requirements: one line if all are met, else one for each that is not."""
    try:
        from packaging.requirements import Requirement

        listed = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or []]
    except (ImportError, metadata.PackageNotFoundError) as error:
        return [Finding("packages", f"Rewind is not installed ({error})", False, installing())]
    wanted = [one for one in listed if one.marker is None or one.marker.evaluate({"extra": ""})]
    bad = [finding for one in wanted if (finding := _requirement(one))]
    return bad or [Finding("packages", f"all {len(wanted)} requirements are met")]


def _requirement(wanted: Any) -> Finding | None:
    try:
        found = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return Finding(wanted.name, f"not installed ({wanted.specifier} is needed)", False, installing())
    if wanted.specifier.contains(found, prereleases=True):
        return None
    return Finding(wanted.name, f"{found} ({wanted.specifier} is needed)", False, installing())


def _loading() -> list[Finding]:
    return [finding for name in _LOADED if (finding := _load(name))]


def _load(name: str) -> Finding | None:
    try:
        getattr(compat, name, partial(importlib.import_module, name))()
    except Exception as error:  # a broken binary fails in its own way
        reason = (str(error).splitlines() or [""])[0]
        return Finding(name, f"does not load: {type(error).__name__}: {reason}", False, f"reinstall it: {installing()}")
    return None


def _versions(here: dict[str, Any]) -> list[Finding]:
    return [Finding(name, version) for name, version in here["packages"].items()]


def _ffmpeg() -> Finding:
    from rewind.errors import RewindError
    from rewind.video import ffmpeg

    try:
        path = ffmpeg.executable()
        encoders = ffmpeg.execute([path, "-hide_banner", "-encoders"]).output
        found = f"{ffmpeg.version()} ({path})"
    except RewindError:
        return Finding("ffmpeg", "not found", False, _FFMPEG)
    if " libx264 " not in encoders:
        return Finding("ffmpeg", f"{found}, without libx264", False, _FFMPEG)
    return Finding("ffmpeg", found)


def _devices(here: dict[str, Any]) -> list[Finding]:
    from rewind.devices import list_gpus
    from rewind.provenance import hardware

    now, driver, listed = hardware(), here["driver"], list_gpus()
    there = driver or listed
    cpu_build = now["cuda"] is None
    how = f"without a GPU everything runs on the CPU; real studies need one ({page('rtime.md')})"
    if there and cpu_build:
        how = "there is a GPU, but torch was built for the CPU: install a CUDA build of torch"
    elif there:
        how = "there is a GPU, but torch sees none: look at CUDA_VISIBLE_DEVICES and the driver's version"
    return [
        Finding("CUDA", now["cuda"] or "none (CPU build of torch)", not cpu_build, needed=False),
        Finding("cuDNN", str(now["cudnn"] or "none"), not cpu_build, needed=False),
        Finding("driver", driver or "none", driver is not None, needed=False),
        Finding("GPUs", ", ".join(_gpu_names(now)) or _unusable(listed), now["gpus"] > 0, how, needed=False),
    ]


def _unusable(listed: list[str]) -> str:
    """What jobs would lease, where torch sees nothing."""
    return f"none that torch can use; on this machine: {', '.join(listed)}" if listed else "none"


def _gpu_names(now: dict[str, Any]) -> list[str]:
    import torch

    sizes = [torch.cuda.get_device_properties(n).total_memory / 1e9 for n in range(now["gpus"])]
    return [f"{name} ({size:.0f} GB)" for name, size in zip(now["devices"], sizes, strict=False)]


def _machine() -> list[Finding]:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    how = f"results and normalised clips need space: free {LEAST_DISK_GB} GB, or work in another folder"
    return [
        Finding("cores", f"{cores()} usable of {os.cpu_count()}"),
        Finding("memory", _memory()),
        Finding("shared memory", _shared_memory()),
        Finding("free disk", f"{free:.0f} GB in {Path.cwd()}", free >= LEAST_DISK_GB, how, needed=False),
    ]


def _memory() -> str:
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(rows[name].split()[0]) / 1e6 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return "unknown"
    return f"{total:.0f} GB, {free:.0f} GB available"


def _shared_memory() -> str:
    """Where decoding processes hand batches on; containers have little (docs/cluster.md)."""
    try:
        return f"{shutil.disk_usage('/dev/shm').total / 1e9:.2f} GB in /dev/shm"
    except OSError:
        return "none"


def _git(here: dict[str, Any]) -> Finding:
    commit, dirty = (here["git"][name] for name in ("commit", "dirty"))
    if checkout() is None and commit is None:
        return Finding("Rewind", f"{version()} ({home()})")  # a release: its version says which code it is
    how = "use a git checkout, so that run.json names the code of every run"
    found = f"{commit}{' with uncommitted changes' if dirty else ''}" if commit else "no git checkout here"
    return Finding("git commit", f"{found} ({home()})", commit is not None, how, needed=False)


def _studies() -> list[Finding]:
    """Studies of this folder whose large towers start from random weights, or from a file that is not there."""
    return [finding for path in sorted(Path("config/studies").glob("*.yaml")) if (finding := _study(path.stem))]


def _study(name: str) -> Finding | None:
    from rewind.errors import RewindError
    from rewind.study import load_study

    try:
        study = load_study(name)
    except RewindError as error:
        return Finding(f"study {name}", str(error).splitlines()[0], False, "correct the file", needed=False)
    keys, subject = study.backbone, f"study {name}"
    if keys.weights and not Path(keys.weights).exists():
        how = f"put the weights there, or name others in config/studies/{name}.yaml, backbone.weights"
        return Finding(subject, f"{keys.weights} is not there", False, how, needed=False)
    given = keys.weights or keys.pretrained or study.pretraining
    # Towers that are described in a file of their own are small ones, made to be trained from nothing.
    if given or keys.architecture.endswith(".json") or keys.kind not in ("clip", "viclip", "miniclip_towers"):
        return None
    if keys.architecture == "efficientnet_lite0" or not study.trained():
        return None
    found = f"{keys.architecture} starts from random weights"
    how = f"name a weights file in config/studies/{name}.yaml, backbone.weights (the study says which)"
    return Finding(subject, found, False, how, needed=False)
