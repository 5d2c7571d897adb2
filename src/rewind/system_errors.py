"""Faults of the machine in a sentence: the file, what the system says, and what to do about it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

from rewind.errors import RewindError, printable, printable_name

_AGAIN = "rerun; finished work is kept"
_FREE_SPACE = f"free some space (`df -h` and `df -i` show it) or name another place, and {_AGAIN}"
_NETWORK_DISK = f"check that the network disk is connected, and {_AGAIN}"
_RIGHT = "get permission to use it, or name another place"
# What to do about an error that neither the content nor the name of a file can cause.
_MACHINE_REMEDIES = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: f"raise the limit of the file system or of `ulimit -f`, and {_AGAIN}",
    errno.EROFS: "name a place that can be written, or have the disk mounted for writing",
    errno.EIO: f"have the disk checked, or name another one, and {_AGAIN}",
    errno.ESTALE: _NETWORK_DISK,
    errno.ENOTCONN: _NETWORK_DISK,
    errno.EHOSTDOWN: _NETWORK_DISK,
    errno.EMFILE: f"raise the limit with `ulimit -n 4096`, and {_AGAIN}",
    errno.ENFILE: f"close other programs, and {_AGAIN}",
    errno.EAGAIN: f"raise the number of processes (`ulimit -u`) or use fewer --cores, and {_AGAIN}",
    errno.ENOMEM: "close other programs, run fewer jobs at once (--cores), let the study ask for more "
    f"(resources.mem_mb) or raise `ulimit -v`, and {_AGAIN}",
}
_PATH_REMEDIES = {
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.ENAMETOOLONG: "use a shorter one",
    errno.EISDIR: "name a file, or remove the folder",
    errno.EEXIST: "correct the path, or remove the file that is where a folder is needed",
    errno.ENOTDIR: "correct the path, or remove the file that is a part of it",
    errno.ELOOP: "remove the symbolic link that leads to itself",
}
# Error number → what the system says, and what to do.
_PATH_FAULTS = {code: (os.strerror(code), remedy) for code, remedy in _PATH_REMEDIES.items()}
_FAULTS = {code: (os.strerror(code), remedy) for code, remedy in _MACHINE_REMEDIES.items()} | _PATH_FAULTS
# Libraries raise errors of their own with the reason only in the text.
_FAULTS_BY_TEXT = {
    r"(CUDA|HIP|MPS).*out of memory": (
        "the GPU's memory is used up",
        "lower training.micro_batch or evaluation.batch_size",
    ),
    r"can't allocate memory|bad_alloc|unable to mmap|[Oo]ut of memory|failed to map segment": _FAULTS[errno.ENOMEM],
    r"torch_\d.*No space left": ("/dev/shm is full", f"enlarge it, or set frames.workers: 0, and {_AGAIN}"),
    r"can't start new thread": _FAULTS[errno.EAGAIN],
    # PyTorch does not say whether the disk, a quota or `ulimit -f` is at its end.
    r"PytorchStreamWriter failed|inline_container.*(unexpected pos|write failed)": (
        "could not be written whole",
        _FREE_SPACE,
    ),
    **{rf"{re.escape(fault[0])}|\(os error {code}\)|\(errno:? {code}\)": fault for code, fault in _FAULTS.items()},
}
_LIBRARY_ERRORS = ("SafetensorError", "OSError", "ArrowInvalid", "error")  # and every RuntimeError


def user_message(error: BaseException) -> str | None:
    """The message for an error: its own, or a sentence about the fault of the machine; None for a bug in Rewind.

    Names in it are printable, wherever it will be shown.

    >>> user_message(OSError(errno.EROFS, "Read-only file system", "results/run.json"))
    'results/run.json: Read-only file system; name a place that can be written, or have the disk mounted for writing.'
    >>> str(user_message(MemoryError("Unable to allocate 7.2 TiB"))).partition(";")[0]
    'Cannot allocate memory (Unable to allocate 7.2 TiB)'
    >>> user_message(KeyError("a bug")) is None
    True
    """
    if isinstance(error, RewindError):
        return printable(str(error))
    if (fault := _fault_of(error)) is None:
        return None
    path = getattr(error, "filename", None) or getattr(error, "rewind_file", None)
    detail = ""
    if not isinstance(error, OSError):
        detail = f" ({str(error).splitlines()[0].rstrip('.')})" if str(error) else ""
    elif path is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        path = "standard output"  # every file is written by `atomic_write`, which notes its path on the error
    where = f"{printable_name(path)}: " if path else ""
    return printable(f"{where}{fault[0]}{detail}; {fault[1]}.")


def is_system_error(error: BaseException) -> bool:
    """Whether a full disk, a lack of memory or the like is the reason, and not the content of a file."""
    fault = _fault_of(error)
    return fault is not None and fault not in _PATH_FAULTS.values()


def attach_file_name(error: BaseException, path: str | Path) -> None:
    """Note on an error which file was being read or written, so that :func:`user_message` can name it."""
    if not hasattr(error, "rewind_file"):
        with contextlib.suppress(AttributeError):
            error.rewind_file = str(path)  # type: ignore[attr-defined]


def path_error_reason(error: OSError) -> str:
    """Why a path cannot be looked at or opened, and what to do, as the end of a sentence.

    >>> path_error_reason(OSError(errno.EACCES, "Permission denied"))
    'Permission denied; get permission to use it, or name another place'
    """
    what, remedy = _fault_of(error) or (f"cannot be read ({error.strerror or error})", "correct the path")
    return f"{what}; {remedy}"


def _fault_of(error: BaseException) -> tuple[str, str] | None:
    """What the system reports and what to do; None where the machine is not at fault."""
    if isinstance(error, MemoryError):
        return _FAULTS[errno.ENOMEM]
    if isinstance(error, OSError) and error.errno:
        return _FAULTS.get(error.errno)
    if isinstance(error, RuntimeError | ImportError) or type(error).__name__ in _LIBRARY_ERRORS:
        texts = _FAULTS_BY_TEXT.items()
        return next((fault for pattern, fault in texts if re.search(pattern, str(error), re.S)), None)
    return None
