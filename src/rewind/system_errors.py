"""Operating-system errors in plain sentences: disk full, out of memory, permission denied, too many open files.

:func:`user_message` turns an exception into what the user is told, or None for a bug in Rewind. While a file is
being read or written, the ``attach_*`` functions keep its name with the error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

import psutil

from rewind.errors import RewindError, printable

DURABLE_SUFFIXES = frozenset({".safetensors", ".pt", ".bin", ".tar"})
"""Suffixes of files that take hours to make again: models, training states, shards of clips."""

# ---- What is said about each error ---------------------------------------------------------------------------------

_RESTART_HINT = "start again; what is finished is kept"
_FREE_SPACE_HINT = f"free some space or name another place, and {_RESTART_HINT}"
_MESSAGES = {
    errno.ENOSPC: ("no space is left on this disk", _FREE_SPACE_HINT),
    errno.EDQUOT: ("your quota on this disk is used up", _FREE_SPACE_HINT),
    errno.EFBIG: ("larger than this file system or `ulimit -f` allows", f"raise the limit, and {_RESTART_HINT}"),
    errno.EROFS: ("this disk is read-only", "name a place that can be written, or have the disk mounted for writing"),
    errno.EACCES: ("permission is denied", "give yourself the right to it, or name another place"),
    errno.EPERM: ("the system does not allow this", "give yourself the right to it, or name another place"),
    errno.EIO: ("the disk reports an error of its own", f"have it checked, or name another one, and {_RESTART_HINT}"),
    errno.ESTALE: ("the network disk lost this file", f"see that the disk is there, and {_RESTART_HINT}"),
    errno.ENOTCONN: ("the network disk does not answer", f"see that the disk is there, and {_RESTART_HINT}"),
    errno.EHOSTDOWN: ("the network disk does not answer", f"see that the disk is there, and {_RESTART_HINT}"),
    errno.ENAMETOOLONG: ("the name is too long for this disk", "use a shorter one"),
    errno.EISDIR: ("a folder, but a file is needed", "name a file, or remove the folder"),
    errno.EEXIST: ("a file stands where a folder is needed", "correct the path, or remove the file"),
    errno.ENOTDIR: ("a part of this path is a file, no folder", "correct the path, or remove the file"),
    errno.ELOOP: ("a symbolic link that leads to itself", "remove the link"),
    errno.EMFILE: ("too many files are open in this process", "raise the limit with `ulimit -n 4096`, and start again"),
    errno.ENFILE: ("too many files are open on this machine", f"close other programs, and {_RESTART_HINT}"),
    errno.EAGAIN: ("no more processes can be started", f"raise `ulimit -u` or use fewer --cores, and {_RESTART_HINT}"),
}
_NO_SPACE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Errors that neither the content nor the name of a file can cause.
_SYSTEM_ERRNOS = {
    *_NO_SPACE_ERRNOS,
    *(errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN),
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
}
# torch, Arrow and safetensors raise a RuntimeError or an error of their own with the reason in the text alone.
_OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|bad_alloc|unable to mmap|out of memory", re.I
)
_REQUESTED_SIZE = re.compile(
    r"tried to allocate (\d+) bytes|Unable to allocate ([\d.]+ \w+)|Tried to allocate ([\d.]+ \w+)"
)
_ERRNO_IN_TEXT = re.compile(r"\(os error (\d+)\)|\(errno:? (\d+)\)")
_INCOMPLETE_WRITE = re.compile(r"inline_container.*(unexpected pos|write failed)|PytorchStreamWriter failed", re.S)


@dataclass(frozen=True)
class _WriteFailure:
    """A file that could not be written, and the state of its disk at that moment."""

    path: Path
    written: int  # bytes of the temporary file
    free: int  # bytes left on the disk
    names: int  # inodes left on the disk, or 1 where the file system does not count them


def user_message(error: BaseException) -> str | None:
    """The message for an error: its own, or a sentence about the fault of the machine; None for a bug in Rewind.

    Names in it are printable, wherever it will be shown.

    >>> user_message(RewindError("clips.csv: no such file."))
    'clips.csv: no such file.'
    >>> user_message(OSError(errno.EROFS, "Read-only file system", "results/run.json"))
    'results/run.json: this disk is read-only; name a place that can be written, or have the disk mounted for writing.'
    >>> user_message(KeyError("a bug")) is None
    True
    """
    sentence = _user_message(error)
    return None if sentence is None else printable(sentence)


def _user_message(error: BaseException) -> str | None:
    if isinstance(error, RewindError):
        return str(error)
    if isinstance(error, BrokenPipeError):  # the reader of a pipe has gone, as `head` does: nothing to report
        return None
    failure = getattr(error, "rewind_place", None)
    if (sentence := _out_of_memory_message(error)) is not None:
        return f"{_file_prefix(error, failure)}{sentence}"
    code = _errno_of(error)
    incomplete = code is None and isinstance(error, RuntimeError) and _INCOMPLETE_WRITE.search(str(error))
    if incomplete and failure and not failure.free:  # torch does not say why its write failed
        code = errno.ENOSPC
    if code not in _MESSAGES:
        return f"{_file_prefix(error, failure)}{_incomplete_write_message(failure)}" if incomplete else None
    what, remedy = _MESSAGES[code]
    if code == errno.ENOSPC and failure and not failure.names:
        what = "no more files fit on this disk (it has no free inodes)"
    if code == errno.EMFILE:
        what += f" (the limit is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,})"
    if code in _NO_SPACE_ERRNOS and failure:
        what += _describe_space(failure)
    if code in _NO_SPACE_ERRNOS and "torch_" in str(error):  # torch_<pid>_…: a tensor that data workers share
        what = "the shared memory /dev/shm is full"
        remedy = f"enlarge it, or set frames.workers: 0, and {_RESTART_HINT}"
    return f"{_file_prefix(error, failure)}{what}; {remedy}."


def attach_write_failure(error: Exception, path: Path, draft: Path) -> None:
    """Note on an error which file was being written and how full its disk is, while the temporary file takes space.

    :func:`user_message` reads the note; errors that are no fault of the machine are left as they are.
    """
    is_write_failure = (
        _errno_of(error) is not None
        or _out_of_memory_message(error) is not None
        or _INCOMPLETE_WRITE.search(str(error))
    )
    if hasattr(error, "rewind_place") or not is_write_failure:
        return
    with contextlib.suppress(OSError, AttributeError):
        disk = os.statvfs(path.parent)
        names = 1 if disk.f_files == 0 else disk.f_favail  # some file systems do not count inodes
        written = draft.stat().st_size if draft.exists() else 0
        error.rewind_place = _WriteFailure(path, written, shutil.disk_usage(path.parent).free, names)  # type: ignore[attr-defined]


def is_system_error(error: BaseException) -> bool:
    """Whether a full disk, a lack of memory or the like is the reason, and not what a file holds."""
    return _out_of_memory_message(error) is not None or _errno_of(error) in _SYSTEM_ERRNOS


def attach_file_name(error: BaseException, path: str | Path) -> None:
    """Note on an error which file was being read, so that :func:`user_message` can name it."""
    if not getattr(error, "filename", None) and not hasattr(error, "rewind_file"):
        with contextlib.suppress(AttributeError):
            error.rewind_file = str(path)  # type: ignore[attr-defined]


def path_error_reason(error: OSError) -> str:
    """Why a path cannot be looked at or opened, and what to do, as the end of a sentence.

    >>> path_error_reason(OSError(errno.EACCES, "Permission denied"))
    'permission is denied; give yourself the right to it, or name another place'
    """
    what, remedy = _MESSAGES.get(error.errno or 0, (f"cannot be read ({error.strerror or error})", "correct the path"))
    return f"{what}; {remedy}"


def require_file_target(path: Path) -> None:
    """Refuse to put a file where there is a folder, a device or a pipe.

    Raises:
        RewindError: naming it.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # nothing there yet, or a path that cannot be looked at: writing will report that
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise RewindError(f"{path}: {kind}, but a file is to be written; name a file.")


def move_into_place(draft: Path, path: Path) -> None:
    """Rename a finished temporary file to ``path``; both are in one folder, so this is atomic.

    Files of :data:`DURABLE_SUFFIXES` are flushed to the disk before the rename, and their folder after it. Otherwise a
    power cut may leave the name of a file whose bytes never reached the disk.
    """
    durable = path.suffix in DURABLE_SUFFIXES
    if durable:
        _sync(draft)
    os.replace(draft, path)
    if durable:
        _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # no fsync here
            error.filename = str(path)
            raise
    finally:
        os.close(handle)


def _errno_of(error: BaseException) -> int | None:
    """The system's number of a fault: the error's own, or the one that its text names."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    if type(error).__name__ not in ("RuntimeError", "SafetensorError", "OSError", "ArrowInvalid", "error"):
        return None
    text = str(error)
    if text == "can't start new thread":
        return errno.EAGAIN
    if match := _ERRNO_IN_TEXT.search(text):
        return int(match[1] or match[2])
    return next((code for code in _MESSAGES if os.strerror(code) in text), None)


def _out_of_memory_message(error: BaseException) -> str | None:
    text = str(error)
    of_torch = isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(text)
    of_system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if not (isinstance(error, MemoryError) or of_torch or of_system):
        return None
    match = _REQUESTED_SIZE.search(text)
    needed = (
        f" ({_format_size(int(match[1])) if match[1] else (match[2] or match[3]).replace('. ', ' ')} were asked for)"
        if match
        else ""
    )
    if "CUDA" in text or type(error).__name__ == "OutOfMemoryError":
        return f"the GPU's memory is used up{needed}; lower training.micro_batch or evaluation.batch_size."
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    allowed = "" if limit == resource.RLIM_INFINITY else f", and `ulimit -v` allows this process {_format_size(limit)}"
    free = _format_size(psutil.virtual_memory().available)
    return (
        f"the memory is used up{needed}; {free} are free on this machine{allowed}. Close other programs, run fewer "
        f"jobs at once (--cores), or let the study ask for more (resources.mem_mb), and {_RESTART_HINT}."
    )


def _incomplete_write_message(failure: _WriteFailure | None) -> str:
    return (
        f"could not be written whole{_describe_space(failure)}: the disk, a quota or `ulimit -f` is at its end; "
        f"{_FREE_SPACE_HINT}."
    )


def _describe_space(failure: _WriteFailure | None) -> str:
    """How much was written before the failure, and what the disk has left."""
    if failure is None:
        return ""
    written = f"{_format_size(failure.written)} were written, " if failure.written else ""
    return f" ({written}{_format_size(failure.free)} are free)"


def _file_prefix(error: BaseException, failure: _WriteFailure | None) -> str:
    path = getattr(error, "filename", None) or (failure.path if failure else getattr(error, "rewind_file", None))
    if path is None and isinstance(error, OSError) and error.errno in _NO_SPACE_ERRNOS:
        path = "standard output"  # every file is written by `atomic_write`, which notes its path on the error
    return f"{path}: " if path else ""


def _format_size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
