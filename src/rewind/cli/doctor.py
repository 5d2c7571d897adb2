"""``rewind doctor``: what this machine has, what is missing for a run, and how to get it."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

# torch, pydantic and all that imports them are imported inside functions, after the packages were checked: this command
# also has to run where they are missing or do not load.
from rewind import optional_packages
from rewind.errors import RewindError, count_noun
from rewind.packaged import (
    DISTRIBUTION_NAME,
    checkout_folder,
    docs_page,
    install_command,
    installed_version,
    workflow_home,
)
from rewind.platform import FFMPEG_REMEDY, usable_cores
from rewind.system_errors import is_system_error, user_message

MIN_PYTHON = (3, 11)
MIN_FREE_DISK_GB = 10
# Compiled packages can be installed and still not load, for lack of a system library; so each is really imported.
_BINARY_PACKAGES = ("torch", "torchvision", "open_clip", "pyarrow")


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    >>> print(format_findings([Finding("Python", "3.12.1"), Finding("GPUs", "none", good=False, needed=False)]))
    ok      Python  3.12.1
    none    GPUs    none
    <BLANKLINE>
    Everything that is needed is installed.
    """

    subject: str
    found: str
    good: bool = True  # good enough
    how: str = ""  # how to get it, where it is not good; empty where nothing can be done
    needed: bool = True  # nothing runs without it


def examine_machine(studies: Sequence[str] = ()) -> list[Finding]:
    """Look at everything that a run needs or records, in the order of the report.

    Without names the studies are those that ``config/config.yaml`` selects.
    """
    findings = [_python(), *_packages(), *_check_imports()]
    frames = _frame_reader()
    if any(not finding.good for finding in [*findings, frames]):
        return [*findings, frames, _ffmpeg(), *_machine()]  # versions and devices cannot be queried yet
    from rewind.provenance import environment

    record = environment()
    return [
        *findings,
        *_versions(record),
        frames,
        _ffmpeg(),
        *_devices(record),
        *_machine(),
        _git(record),
        *_studies(studies),
    ]


def format_findings(findings: list[Finding]) -> str:
    """The report as text: one line per finding, then what to do."""
    width = max(len(finding.subject) for finding in findings)
    lines = [f"{_status_word(finding):<8}{finding.subject:<{width}}  {finding.found}" for finding in findings]
    missing = [finding for finding in findings if not finding.good]
    lines += [""] + [f"{finding.subject}: {finding.how}" for finding in missing if finding.how]
    needed = sum(finding.needed for finding in missing)
    lines.append(f"Fix what is marked above: {count_noun(needed, 'problem')}." if needed else _closing_line(missing))
    return "\n".join(lines)


def _closing_line(missing: list[Finding]) -> str:
    """The last line where Rewind can run; it repeats what is missing that only some studies need."""
    subjects = [finding.subject for finding in missing if finding.how]
    if not subjects:
        return "Everything that is needed is installed."
    listed = ", ".join(subjects)
    return f"Rewind can run: all required parts are installed. Missing, and needed by some studies only: {listed}."


def _status_word(finding: Finding) -> str:
    return "ok" if finding.good else "MISSING" if finding.needed else "none"


def _python() -> Finding:
    good = sys.version_info[:2] >= MIN_PYTHON
    oldest = ".".join(map(str, MIN_PYTHON))
    how = f"install Python {oldest} or newer, then " + (
        f"make PYTHON=python{oldest} demo" if checkout_folder() else "Rewind in a virtual environment of it"
    )
    return Finding("Python", f"{platform.python_version()} ({sys.executable})", good, how)


def _packages() -> list[Finding]:
    """The library's own requirements: one line if all are met, else one for each that is not."""
    try:
        from packaging.requirements import Requirement  # may itself be missing where nothing is installed

        declared = [Requirement(text) for text in metadata.requires(DISTRIBUTION_NAME) or []]
    except (ImportError, metadata.PackageNotFoundError) as error:
        return [Finding("packages", f"Rewind is not installed ({error})", False, install_command())]
    requirements = [
        requirement
        for requirement in declared
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    bad = [finding for requirement in requirements if (finding := _requirement(requirement))]
    return bad or [Finding("packages", f"all {len(requirements)} requirements are met")]


def _requirement(requirement: Any) -> Finding | None:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Finding(requirement.name, f"not installed ({requirement.specifier} is needed)", False, install_command())
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return Finding(requirement.name, f"{version} ({requirement.specifier} is needed)", False, install_command())


def _check_imports() -> list[Finding]:
    return [finding for name in _BINARY_PACKAGES if (finding := _check_import(name))]


def _check_import(name: str) -> Finding | None:
    try:
        # rewind.optional_packages imports some packages with work-arounds for what breaks in them.
        getattr(optional_packages, name, partial(importlib.import_module, name))()
    except Exception as error:  # a broken binary fails in its own way
        if is_system_error(error):
            return Finding(name, "does not load", False, str(user_message(error)).rstrip("."))
        reason = (str(error).splitlines() or [""])[0]
        return Finding(
            name, f"does not load: {type(error).__name__}: {reason}", False, f"reinstall it: {install_command()}"
        )
    return None


def _frame_reader() -> Finding:
    """What reads clips, by its default or by the environment variable; it is imported."""
    try:
        readers = importlib.import_module("rewind.video.readers")
        name, version = readers.reader_name(), readers.reader_version()
    except RewindError as error:
        return Finding("frames", "nothing reads them", False, str(error))
    except ImportError as error:
        return Finding("frames", f"nothing reads them ({error})", False, install_command())
    if broken := _check_import(name):
        return broken
    chosen = f" ({readers.READER_VARIABLE})" if os.environ.get(readers.READER_VARIABLE) else ""
    return Finding("frames", f"are read by {version}{chosen}")


def _versions(record: dict[str, Any]) -> list[Finding]:
    return [Finding(name, version) for name, version in record["packages"].items()]


def _ffmpeg() -> Finding:
    from rewind.video import ffmpeg

    try:
        path = ffmpeg.executable()
        found = f"{ffmpeg.ffmpeg_version()} ({path})"
    except RewindError:
        return Finding("ffmpeg", "not found", False, FFMPEG_REMEDY)
    try:
        ffmpeg.require_encoder()
    except RewindError:
        return Finding("ffmpeg", f"{found}, without {ffmpeg.ENCODER}", False, FFMPEG_REMEDY)
    return Finding("ffmpeg", found)


def _devices(record: dict[str, Any]) -> list[Finding]:
    from rewind.gpu import list_gpus
    from rewind.provenance import hardware

    torch_hardware, driver, gpu_names = hardware(), record["driver"], list_gpus()
    has_gpu = driver or gpu_names
    cpu_build = torch_hardware["cuda"] is None
    how = f"without a GPU everything runs on the CPU; real studies need one ({docs_page('rtime.md')})"
    if has_gpu and cpu_build:
        how = "there is a GPU, but torch was built for the CPU: install a CUDA build of torch"
    elif has_gpu:
        how = "there is a GPU, but torch sees none: look at CUDA_VISIBLE_DEVICES and the driver's version"
    return [
        Finding("CUDA", torch_hardware["cuda"] or "none (CPU build of torch)", not cpu_build, needed=False),
        Finding("cuDNN", str(torch_hardware["cudnn"] or "none"), not cpu_build, needed=False),
        Finding("driver", driver or "none", driver is not None, needed=False),
        Finding(
            "GPUs",
            ", ".join(_gpu_names(torch_hardware)) or _describe_unusable_gpus(gpu_names),
            torch_hardware["gpus"] > 0,
            how,
            needed=False,
        ),
    ]


def _describe_unusable_gpus(gpu_names: list[str]) -> str:
    """GPUs that jobs would lease, where torch sees none."""
    return f"none that torch can use; on this machine: {', '.join(gpu_names)}" if gpu_names else "none"


def _gpu_names(torch_hardware: dict[str, Any]) -> list[str]:
    import torch

    sizes = [torch.cuda.get_device_properties(n).total_memory / 1e9 for n in range(torch_hardware["gpus"])]
    return [f"{name} ({size:.0f} GB)" for name, size in zip(torch_hardware["devices"], sizes, strict=False)]


def _machine() -> list[Finding]:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    how = f"results and normalised clips need space: free {MIN_FREE_DISK_GB} GB, or work in another folder"
    return [
        Finding("cores", f"{usable_cores()} usable of {os.cpu_count()}"),
        Finding("memory", _memory()),
        Finding("shared memory", _shared_memory()),
        Finding("free disk", f"{free:.0f} GB in {Path.cwd()}", free >= MIN_FREE_DISK_GB, how, needed=False),
    ]


def _memory() -> str:
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(rows[name].split()[0]) / 1e6 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return "unknown"
    return f"{total:.0f} GB, {free:.0f} GB available"


def _shared_memory() -> str:
    """Shared memory, through which decoding processes pass batches; containers have little (docs/cluster.md)."""
    try:
        return f"{shutil.disk_usage('/dev/shm').total / 1e9:.2f} GB in /dev/shm"
    except OSError:
        return "none"


def _git(record: dict[str, Any]) -> Finding:
    commit, dirty = (record["git"][name] for name in ("commit", "dirty"))
    if checkout_folder() is None and commit is None:
        # An installed release: its version says which code it is.
        return Finding("Rewind", f"{installed_version()} ({workflow_home()})")
    how = "use a git checkout, so that run.json names the code of every run"
    found = f"{commit}{' with uncommitted changes' if dirty else ''}" if commit else "no git checkout here"
    return Finding("git commit", f"{found} ({workflow_home()})", commit is not None, how, needed=False)


def _studies(names: Sequence[str]) -> list[Finding]:
    """Studies whose large towers start from random weights, or from a file that does not exist."""
    from rewind.commands import selected_by_default

    return [finding for name in names or selected_by_default() if (finding := _study(name))]


def _study(name: str) -> Finding | None:
    from rewind.workflow.config import load_configured_study

    try:
        study = load_configured_study(name)
    except RewindError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines())
        return Finding(f"study {name}", reason, False, "correct the file", needed=False)
    backbone, subject = study.backbone, f"study {name}"
    if backbone.weights and not Path(backbone.weights).exists():
        how = f"put the weights there, or name others in config/studies/{name}.yaml, backbone.weights"
        return Finding(subject, f"{backbone.weights} does not exist", False, how, needed=False)
    start = backbone.has_weights or study.pretraining
    # Towers that are described in a file of their own are small ones, meant to be trained from scratch.
    if start or backbone.architecture.endswith(".json") or backbone.kind not in ("clip", "viclip", "miniclip_towers"):
        return None
    if backbone.architecture == "efficientnet_lite0" or not study.trained():
        return None
    found = f"{backbone.architecture} starts from random weights"
    how = f"name a weights file in config/studies/{name}.yaml, backbone.weights (the study states which)"
    return Finding(subject, found, False, how, needed=False)
