"""Faults of the machine, in a sentence: no space, no memory, no right to write, too many files; and what to do."""

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

from rewind.console import printable
from rewind.errors import RewindError

LASTING = frozenset({".safetensors", ".pt", ".bin", ".tar"})
"""Suffixes of what takes hours to make again: models, training states, shards of clips."""

_AGAIN = "start again; what is finished is kept"
_SPACE = f"free some space or name another place, and {_AGAIN}"
_FAULTS = {
    errno.ENOSPC: ("no space is left on this disk", _SPACE),
    errno.EDQUOT: ("your quota on this disk is used up", _SPACE),
    errno.EFBIG: ("larger than this file system or `ulimit -f` allows", f"raise the limit, and {_AGAIN}"),
    errno.EROFS: ("this disk is read-only", "name a place that can be written, or have the disk mounted for writing"),
    errno.EACCES: ("permission is denied", "give yourself the right to it, or name another place"),
    errno.EPERM: ("the system does not allow this", "give yourself the right to it, or name another place"),
    errno.EIO: ("the disk reports an error of its own", f"have it checked, or name another one, and {_AGAIN}"),
    errno.ESTALE: ("the network disk lost this file", f"see that the disk is there, and {_AGAIN}"),
    errno.ENOTCONN: ("the network disk does not answer", f"see that the disk is there, and {_AGAIN}"),
    errno.EHOSTDOWN: ("the network disk does not answer", f"see that the disk is there, and {_AGAIN}"),
    errno.ENAMETOOLONG: ("the name is too long for this disk", "use a shorter one"),
    errno.EISDIR: ("a folder, but a file is needed", "name a file, or remove the folder"),
    errno.EEXIST: ("a file stands where a folder is needed", "correct the path, or remove the file"),
    errno.ENOTDIR: ("a part of this path is a file, no folder", "correct the path, or remove the file"),
    errno.ELOOP: ("a symbolic link that leads to itself", "remove the link"),
    errno.EMFILE: ("too many files are open in this process", "raise the limit with `ulimit -n 4096`, and start again"),
    errno.ENFILE: ("too many files are open on this machine", f"close other programs, and {_AGAIN}"),
    errno.EAGAIN: ("no more processes can be started", f"raise `ulimit -u` or use fewer --cores, and {_AGAIN}"),
}
_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What a file says or how it is named brings none of these about.
_OF_MACHINE = {
    *_WRITING,
    *(errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN),
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
}
_NO_MEMORY = re.compile(r"can't allocate memory|cannot allocate memory|bad_alloc|unable to mmap|out of memory", re.I)
_NEEDED = re.compile(r"tried to allocate (\d+) bytes|Unable to allocate ([\d.]+ \w+)|Tried to allocate ([\d.]+ \w+)")
_NUMBER = re.compile(r"\(os error (\d+)\)|\(errno:? (\d+)\)")
_SHORT = re.compile(r"inline_container.*(unexpected pos|write failed)|PytorchStreamWriter failed", re.S)


@dataclass(frozen=True)
class _Place:
    """Where a file was being written when that failed: bytes of its draft, and bytes and names left on the disk."""

    path: Path
    written: int
    free: int
    names: int


def told(error: BaseException) -> str | None:
    """What to tell people of an error: its own sentence, or that of a fault of the machine; None: a defect of ours.

    Names in it are printable, wherever it will be shown.
    """
    sentence = _told(error)
    return None if sentence is None else printable(sentence)


def _told(error: BaseException) -> str | None:
    if isinstance(error, RewindError):
        return str(error)
    if isinstance(error, BrokenPipeError):
        return None
    place = getattr(error, "rewind_place", None)
    if (sentence := _memory(error)) is not None:
        return f"{_where(error, place)}{sentence}"
    code = _code(error)
    short = code is None and isinstance(error, RuntimeError) and _SHORT.search(str(error))
    if short and place and not place.free:  # torch does not say why
        code = errno.ENOSPC
    if code not in _FAULTS:
        return f"{_where(error, place)}{_short(place)}" if short else None
    what, to_do = _FAULTS[code]
    if code == errno.ENOSPC and place and not place.names:
        what = "no more files fit on this disk (it has no free inodes)"
    if code == errno.EMFILE:
        what += f" (the limit is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,})"
    if code in _WRITING and place:
        what += _left(place)
    if code in _WRITING and "torch_" in str(error):
        what, to_do = "the shared memory /dev/shm is full", f"enlarge it, or set frames.workers: 0, and {_AGAIN}"
    return f"{_where(error, place)}{what}; {to_do}."


def remember_place(error: Exception, path: Path, draft: Path) -> None:
    """Keep with an error where it came from, while the draft still takes its space."""
    known = _code(error) is not None or _memory(error) is not None or _SHORT.search(str(error))
    if hasattr(error, "rewind_place") or not known:
        return
    with contextlib.suppress(OSError, AttributeError):
        disk = os.statvfs(path.parent)
        names = 1 if disk.f_files == 0 else disk.f_favail  # some file systems do not count them
        written = draft.stat().st_size if draft.exists() else 0
        error.rewind_place = _Place(path, written, shutil.disk_usage(path.parent).free, names)  # type: ignore[attr-defined]


def is_machine_fault(error: BaseException) -> bool:
    """Whether a full disk, a lack of memory or the like is the reason, and not what a file holds."""
    return _memory(error) is not None or _code(error) in _OF_MACHINE


def remember_file(error: BaseException, path: str | Path) -> None:
    """Keep with an error which file was being read, so that :func:`told` can name it."""
    if not getattr(error, "filename", None) and not hasattr(error, "rewind_file"):
        with contextlib.suppress(AttributeError):
            error.rewind_file = str(path)  # type: ignore[attr-defined]


def path_fault(error: OSError) -> str:
    """Why a path cannot be looked at or opened, and what to do, as the end of a sentence."""
    what, to_do = _FAULTS.get(error.errno or 0, (f"cannot be read ({error.strerror or error})", "correct the path"))
    return f"{what}; {to_do}"


def refuse_no_file(path: Path) -> None:
    """Refuse to put a file where there is a folder, a device or a pipe.

    Raises:
        RewindError: naming it.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # nothing there yet, or nothing that can be looked at: writing will tell
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise RewindError(f"{path}: {kind}, but a file is to be written; name a file.")


def put_down(draft: Path, path: Path) -> None:
    """Give a finished draft its name; of what lasts the bytes are on the disk first, and then the name is.

    Without that a power cut may leave the name of a file whose bytes never came to the disk.
    """
    lasting = path.suffix in LASTING
    if lasting:
        _sync(draft)
    os.replace(draft, path)
    if lasting:
        _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # file systems that cannot
            error.filename = str(path)
            raise
    finally:
        os.close(handle)


def _code(error: BaseException) -> int | None:
    """The system's number of a fault: the error's own, or what its text says of it."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    if type(error).__name__ not in ("RuntimeError", "SafetensorError", "OSError", "ArrowInvalid", "error"):
        return None
    text = str(error)
    if text == "can't start new thread":
        return errno.EAGAIN
    if found := _NUMBER.search(text):
        return int(found[1] or found[2])
    return next((code for code in _FAULTS if os.strerror(code) in text), None)


def _memory(error: BaseException) -> str | None:
    text = str(error)
    ours = isinstance(error, RuntimeError) and _NO_MEMORY.search(text)
    system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if not (isinstance(error, MemoryError) or ours or system):
        return None
    found = _NEEDED.search(text)
    needed = (
        f" ({_size(int(found[1])) if found[1] else (found[2] or found[3]).replace('. ', ' ')} were asked for)"
        if found
        else ""
    )
    if "CUDA" in text or type(error).__name__ == "OutOfMemoryError":
        return f"the GPU's memory is used up{needed}; lower training.micro_batch or evaluation.batch_size."
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    allowed = "" if limit == resource.RLIM_INFINITY else f", and `ulimit -v` allows this process {_size(limit)}"
    free = _size(psutil.virtual_memory().available)
    return (
        f"the memory is used up{needed}; {free} are free on this machine{allowed}. Close other programs, run fewer "
        f"jobs at once (--cores), or let the study ask for more (resources.mem_mb), and {_AGAIN}."
    )


def _short(place: _Place | None) -> str:
    return f"could not be written whole{_left(place)}: the disk, a quota or `ulimit -f` is at its end; {_SPACE}."


def _left(place: _Place | None) -> str:
    """How far the writing came, where its draft is still there, and what the disk has left."""
    if place is None:
        return ""
    written = f"{_size(place.written)} were written, " if place.written else ""
    return f" ({written}{_size(place.free)} are free)"


def _where(error: BaseException, place: _Place | None) -> str:
    path = getattr(error, "filename", None) or (place.path if place else getattr(error, "rewind_file", None))
    if path is None and isinstance(error, OSError) and error.errno in _WRITING:
        path = "standard output"  # files are written as drafts, whose place is remembered
    return f"{path}: " if path else ""


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
