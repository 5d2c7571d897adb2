"""Breaks every file between the stages of a finished study in every way, and looks at how each job takes it.

    python tests/support/broken_results.py FOLDER [--unsealed] [--every] [--sample SHARE]

FOLDER is a working folder with results. Each job that Snakemake started there is done again, its outputs elsewhere,
once for every input and every way to break it, in a process of its own. Prints a line of JSON for each case:
``refused`` (one sentence that names the file), ``same`` (the job gave what it gave before), ``traceback``, ``unnamed``
(a sentence about something else) or ``silent``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import re
import runpy
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from rewind.job_values import Job
from rewind.packaged import workflow_home
from rewind.workflow import checksums
from rewind.workflow import job as frame
from rewind.workflow.job import JOB_RECORDS, run_script

NUMBERS = {".csv", ".json", ".npz", ".parquet", ".safetensors", ".npy"}
TIMED = re.compile(r"history\.csv|run\.json|frames\d+\.(csv|json)")


def _flip(path: Path, content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def _sibling(path: Path, content: bytes) -> bytes | None:
    """The same file of another seed or method."""
    pattern = re.sub(r"seed\d+", "seed*", str(path))
    others = [other for other in sorted(Path().glob(pattern)) if other != path]
    return others[0].read_bytes() if others else None


def _objects(path: Path, content: bytes) -> bytes | None:
    if path.suffix not in (".npz", ".npy"):
        return None
    stream, evil = io.BytesIO(), np.array([{"a": 1}, None], dtype=object)
    if path.suffix == ".npy":
        np.save(stream, evil, allow_pickle=True)
    else:
        names = np.load(path).files
        np.savez(stream, **dict.fromkeys(names, evil))
    return stream.getvalue()


def _other_json(text: str) -> Callable[[Path, bytes], bytes | None]:
    return lambda path, content: text.encode() if path.suffix == ".json" else None


def _column(path: Path, content: bytes) -> bytes | None:
    """The first column under another name."""
    return b"strange" + content[content.index(b",") :] if path.suffix == ".csv" and b"," in content else None


def _latin(path: Path, content: bytes) -> bytes | None:
    return content + b"caf\xe9" if path.suffix in (".csv", ".json") else None


WAYS: dict[str, Callable[[Path, bytes], bytes | None]] = {
    "empty": lambda path, content: b"",
    "half": lambda path, content: content[: len(content) // 2],
    "a byte flipped": _flip,
    "text": lambda path, content: b"<html>404 not found</html>\n",
    "zeros": lambda path, content: bytes(len(content)),
    "another run's": _sibling,
    "objects": _objects,
    "null": _other_json("null"),
    "an empty object": _other_json("{}"),
    "deep": _other_json("[" * 5000 + "]" * 5000),
    "a huge number": _other_json('{"max_frames": ' + "9" * 5000 + "}"),
    "another column": _column,
    "Latin-1": _latin,
}


@contextlib.contextmanager
def broken(path: Path, way: str) -> Iterator[bool]:
    """A file, broken for a while; False where it cannot be in this way."""
    content = path.read_bytes()
    found = WAYS[way](path, content)
    if found is None or found == content:
        yield False
        return
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    kept = path.with_name(f"{path.name}.kept")
    path.rename(kept)  # other names of the file stay as they are
    try:
        path.write_bytes(found)
        yield True
    finally:
        kept.replace(path)
        os.utime(path, ns=times)


@contextlib.contextmanager
def folder_instead(path: Path) -> Iterator[bool]:
    kept = path.with_name(f"{path.name}.kept")
    path.rename(kept)
    try:
        path.mkdir()
        yield True
    finally:
        path.rmdir()
        kept.replace(path)


def records() -> Iterator[Job]:
    """What jobs were given: of every rule the first, or every job."""
    for path in sorted(JOB_RECORDS.glob("*.json")):
        yield Job.read(json.loads(path.read_text()))


def in_a_process(act: Callable[[], None]) -> tuple[int, str]:
    """Exit code and output of something done in a forked process."""
    with tempfile.TemporaryFile("w+") as out:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                act()
                code = 0
            except SystemExit as error:
                code = int(error.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        return code, out.read()


def outputs(given: Job, folder: Path) -> dict[str, str]:
    """Digests of what a job wrote below a folder, of all but what holds times."""
    found = {}
    for name in given.output:
        for path in sorted({folder / name, *(folder / name).rglob("*")}):
            if path.is_file() and path.suffix in NUMBERS and not TIMED.fullmatch(path.name):
                found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def once(given: Job, folder: Path) -> tuple[int, str]:
    """Do a job with its outputs below a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    moved = given.below(folder)
    for name in moved.output:
        Path(name).parent.mkdir(parents=True, exist_ok=True)

    def act() -> None:
        frame.JOB_RECORDS = folder / "records"  # not among those of what Snakemake started, which are the cases here
        run_script(moved)

    return in_a_process(act)


def verdict(code: int, said: str, path: str, same: bool) -> str:
    """How a job took a broken input."""
    if "Traceback" in said:
        return "traceback"
    if code:
        return "refused" if path in said and "error:" in said else "unnamed"
    return "same" if same else "silent"


def cases(every: bool, sample: float) -> Iterator[dict[str, str]]:
    """All cases, or a random share of them, always the same one; each with its verdict."""
    seen: set[tuple[str, str]] = set()
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        for given in records():
            expected = None
            for name in dict.fromkeys(given.input):
                kind = (given.rule, re.sub(r"\d+", "", name))
                path = Path(name)
                if not path.is_file() or path.parts[0] != "results" or (kind in seen and not every):
                    continue
                seen.add(kind)
                for way in (*WAYS, "a folder"):
                    if chance.random() > sample:
                        continue
                    breaking = folder_instead(path) if way == "a folder" else broken(path, way)
                    with breaking as possible:
                        if not possible:
                            continue
                        code, said = once(given, Path(place) / "broken")
                    if code == 0 and expected is None:
                        once(given, Path(place) / "whole")
                        expected = outputs(given, Path(place) / "whole")
                    same = code == 0 and outputs(given, Path(place) / "broken") == expected
                    found = verdict(code, said, name, same)
                    yield {"rule": given.rule, "file": name, "way": way, "verdict": found, "said": said[-700:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--unsealed", action="store_true", help="as results of an earlier version, without seals")
    parser.add_argument("--every", action="store_true", help="every job, and not one of each rule")
    parser.add_argument("--sample", type=float, default=1.0, help="share of the cases")
    options = parser.parse_args()
    os.chdir(options.folder)
    for script in sorted((workflow_home() / "workflow/scripts").glob("*.py")):
        runpy.run_path(str(script))  # its imports alone: here once, and not in every process that is forked
    for given in records():
        checksums.clear_checksums(given) if options.unsealed else checksums.write_checksums(given)
    counts: Counter[str] = Counter()
    for case in cases(options.every, options.sample):
        counts[case["verdict"]] += 1
        print(json.dumps(case), flush=True)
    print(json.dumps(counts), file=sys.stderr)


if __name__ == "__main__":
    main()
