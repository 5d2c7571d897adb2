"""Put on PYTHONPATH, it writes down which files a job of the workflow looks at: ``$REWIND_OPENED/<rule>.*.jsonl``.

The first line is what the job was given, every other one a file below the folder in which the workflow runs, and what
was done with it: read, write, list (a folder), look (asked for its size or its time, or whether it is there).

Python imports a module of this name at its start, so jobs are those of a user, and their own processes are watched too.
``tests/support/undeclared.py`` compares the files with what rules declare.
"""

import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_BY = "REWIND_OPENED_BY"  # set while a job works: the file in which its processes write, and the workflow's folder
_STAT = os.stat


def _kind(path: str, test: Callable[[int], bool]) -> bool:
    try:
        return test(_STAT(path).st_mode)
    except OSError:
        return False


class Watch:
    """Writes a line for each file and kind of use, at once: a process of a job may end without a farewell."""

    def __init__(self, file: str, root: str) -> None:
        self.stream = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self.root = os.path.join(root, "")
        self.seen: set[tuple[str, str]] = set()
        self.on = True

    def line(self, content: object) -> None:
        os.write(self.stream, json.dumps(content).encode() + b"\n")

    def note(self, use: str, path: object) -> None:
        if not self.on or path is None or isinstance(path, int):
            return
        full = os.path.abspath(os.fsdecode(os.fspath(path)))
        if not full.startswith(self.root):
            return
        if use == "read" and not _kind(full, stat.S_ISREG):  # it is not there, or a folder that is seen to the disk
            use = "look"
        if (use, full) not in self.seen:
            self.seen.add((use, full))
            self.line([use, full[len(self.root) :]])

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An event of ``sys.addaudithook``."""
        if event == "open":
            path, mode, flags = arguments
            writes = set(mode) & set("wax+") if mode else (flags or 0) & _WRITING
            self.note("write" if writes else "read", path)
        elif event in ("os.listdir", "os.scandir"):
            self.note("list", "." if arguments[0] is None else arguments[0])
        elif event in ("os.rename", "os.link"):
            self.note("read", arguments[0])
            self.note("write", arguments[1])
        elif event in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
            self.started([arguments[0], *arguments[1]])

    def started(self, command: list[Any]) -> None:
        """A program may read what its arguments name, if it is there before it starts."""
        for word in command:
            text = os.fsdecode(word).removeprefix("file:") if isinstance(word, str | bytes | os.PathLike) else ""
            if text and "\0" not in text and _kind(text, stat.S_ISREG):
                self.note("read", text)

    def status(self, find: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        """``os.stat``, of which Python tells no hook."""

        def watched(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
            try:
                found = find(path, *arguments, **named)
            except OSError:
                self.note("look", path)
                raise
            if not stat.S_ISDIR(found.st_mode):  # folders come and go with what is in them
                self.note("look", path)
            return found

        return watched


def _watch(file: str, root: str) -> Watch:
    watch = Watch(file, root)
    os.stat, os.lstat = watch.status(os.stat), watch.status(os.lstat)
    sys.addaudithook(watch.hear)
    return watch


class _Compiled(MetaPathFinder):
    """Watches what compiled libraries open without Python's knowledge, from their import on."""

    readers: ClassVar = {"safetensors": "safe_open", "pyarrow.parquet": "read_table"}

    def __init__(self, note: Callable[[str, Any], None]) -> None:
        self.note = note

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.readers:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                setattr(module, self.readers[name], self.watched(getattr(module, self.readers[name])))

            spec.loader.exec_module = exec_module
        return spec

    def watched(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            for value in [*arguments[:1], named.get("filename"), named.get("source")]:
                if isinstance(value, str | os.PathLike):
                    self.note("read", value)
            return read(*arguments, **named)

        return noted


def _watch_job(folder: str) -> None:
    """From where the job itself begins: what its frame does before (records, seals) reads what rules declare."""
    watches: list[Watch] = []
    sys.meta_path.insert(0, _Compiled(lambda use, path: [watch.note(use, path) for watch in watches] and None))
    from rewind.workflow import job

    start = job.start_job

    @contextlib.contextmanager
    def watched(snakemake: Any) -> Iterator[Any]:
        with start(snakemake) as given:
            root = os.getcwd()
            file = os.path.join(folder, f"{given.rule}.{os.getpid()}.{time.time_ns()}.jsonl")
            watch = _watch(file, root)
            watches.append(watch)
            watch.line({"folder": root, "given": given.content()})
            os.environ[_BY] = json.dumps([file, root])
            try:
                yield given
            finally:
                watch.on = False

    job.start_job = watched


if by := os.environ.get(_BY):  # a process that a job started
    _child = _watch(*json.loads(by))
    sys.meta_path.insert(0, _Compiled(_child.note))
elif (folder := os.environ.get("REWIND_OPENED")) and any("/.snakemake/scripts/tmp" in part for part in sys.orig_argv):
    _watch_job(folder)
