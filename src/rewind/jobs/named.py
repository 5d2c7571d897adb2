"""Models that methods name (``encoder``): what is known to fail, before the first job.

Looking starts torch and the model's library, which takes seconds. What was found sound is remembered with its keys, its
local files, the code and the packages; what is refused never is, nor is a module of the user's own.
"""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import digest, remembered, write_json
from rewind.identity.marks import library
from rewind.study import Dataset, Study
from rewind.study.encoding import Encoding, encodings_of

PACKAGES = ("torch", "open-clip-torch", "torchvision", "transformers", "sentence-transformers", "mteb")
MOST = 1000  # marks kept, the newest


def encoder_faults(study: Study, dataset: Dataset | None, memory: Path | None = None) -> list[str]:
    """What is known to fail of the models that methods name, as lines under the study's file.

    Args:
        study: one that is sound by its keys.
        dataset: its data set; None: it is faulty itself.
        memory: JSON file of marks; None: nothing is remembered.
    """
    try:
        chosen = encodings_of(study)
    except RewindError as error:
        return [str(error).removesuffix(".")]
    if not chosen:
        return []
    if dataset is not None and dataset.vectors:
        what = f"dataset {dataset.name} holds vectors, but an encoder needs clips or images"
        return [f"methods.{name}.options.encoder: {what}" for name in chosen]
    known, found = _read(memory), []
    sound = list(known)
    for name, keys in chosen.items():
        mark = _mark(keys) if memory and "." not in keys.encoder else ""
        if mark in known:
            continue
        if fault := _refusal(keys):
            found.append(f"methods.{name}.options.{fault}")
        elif mark:
            sound.append(mark)
    if memory and len(sound) > len(known):
        write_json(memory, list(dict.fromkeys(sound))[-MOST:])
    return found


def _refusal(keys: Encoding) -> str:
    """Why an encoder cannot work, without a full stop; empty if nothing is known."""
    interface = importlib.import_module("rewind.encoders.interface")  # starts torch: only where a study needs it
    try:
        interface.check(keys)
    except RewindError as error:
        return str(error).removesuffix(".")
    return ""


def _mark(keys: Encoding) -> str:
    files = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in keys.files()]
    offline = [os.environ.get(name) for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_HUB_CACHE")]
    return digest(library(), [_version(name) for name in PACKAGES], keys.content(), files, offline)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _read(memory: Path | None) -> list[str]:
    found = remembered(memory)
    return found if isinstance(found, list) else []
