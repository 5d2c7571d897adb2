"""Do all readers of clips give the same frames? Each on the same odd clips, compared with the first, bit for bit.

    python benchmarks/frame_readers.py                                   # the readers that are installed here
    python benchmarks/frame_readers.py --python /other/venv/bin/python   # and those of another environment

Every clip shows in each frame its number (``painted_clips.py``). A reader is asked for all frames in order, backwards,
at random with repetitions, and for 32 that are evenly spaced, each clip in a process of its own that is ended if it
hangs. The Markdown table says of every reader whether the numbers are right and whether the pixels equal those of the
first: ``equal``, the largest difference of a colour value (0 to 255) and the share of values that differ, ``refused``
with the reason, or ``WRONG``.

``--plain`` adds decord without what Rewind does around it: each frame by ``reader[index]``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from painted_clips import CLIPS, PaintedClip, encoders, make_clip
from rewind.errors import RewindError
from rewind.video import readers

SECONDS = 20  # after which a reader is taken to hang
PLAIN = "plain decord"


class PlainDecord(readers.DecordReader):
    """decord as its own documentation shows it."""

    def _open(self) -> None:
        import decord

        decord.logging.set_level(decord.logging.QUIET)
        self._video = decord.VideoReader(str(self.path), num_threads=1)
        self.fps, self._length, self._seekable = float(self._video.get_avg_fps()), len(self._video), True


def read_clip(reader: str, clip: PaintedClip, path: Path, out: Path) -> dict[str, Any]:
    """What a reader makes of one clip; frames in order go to ``out``."""
    video = PlainDecord(path) if reader == PLAIN else readers.READERS[reader](path)
    numbers, length = clip.numbers(), len(video)
    orders = {
        "in order": list(range(length)),
        "backwards": list(range(length))[::-1],
        "at random": np.random.default_rng(0).integers(0, length, 40).tolist(),
        "evenly": np.linspace(0, length - 1, 32, dtype=int).tolist(),
    }
    wrong = [] if length == len(numbers) else [f"{length} frames for {len(numbers)}"]
    for name, indices in orders.items():
        shown = clip.shown(video.read(indices))
        expected = [numbers[index] if index < len(numbers) else None for index in indices]
        bad = sum(a != b for a, b in zip(shown, expected, strict=True))
        wrong += [f"{name} {bad} of {len(indices)} frames"] if bad else []
    np.save(out, video.read(orders["in order"]))
    return {"wrong": wrong, "fps": video.fps}


def child(arguments: list[str]) -> None:
    """``READER CLIP PATH OUT``: print as JSON what became of it."""
    reader, name, path, out = arguments
    try:
        print(json.dumps(read_clip(reader, CLIPS[name], Path(path), Path(out))))
    except RewindError as error:
        print(json.dumps({"refused": str(error).replace(path, "").lstrip(": ").split(";")[0]}))


def ask(python: str, *arguments: str) -> dict[str, Any]:
    """Run this file in an environment; a process that hangs is ended."""
    try:
        done = subprocess.run([python, __file__, *arguments], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"wrong": [f"hangs (ended after {SECONDS} s)"]}
    if done.returncode:
        return {"wrong": [(done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1]]}
    return json.loads(done.stdout.splitlines()[-1])


def installed(plain: bool) -> dict[str, str]:
    """Readers of this environment → name and version; those that do not load are left out."""
    found = {}
    for name in readers.installed_readers():
        try:
            importlib.import_module(name)
        except Exception as error:  # a broken binary fails in its own way
            print(f"{name} does not load: {(str(error).strip().splitlines() or [''])[0]}", file=sys.stderr)
        else:
            found[name] = readers.reader_version(name)
    if plain and "decord" in found:
        found[PLAIN] = f"plain {found['decord']}"
    return found


def describe(result: dict[str, Any], frames: np.ndarray | None, reference: np.ndarray | None) -> str:
    """One cell of the table."""
    if "refused" in result:
        return f"refused: {result['refused']}"
    if result["wrong"]:
        return f"WRONG: {', '.join(result['wrong'])}"
    if reference is None or frames is None:
        return "right numbers"
    if reference.shape != frames.shape:
        return f"WRONG: shape {frames.shape} for {reference.shape}"
    difference = np.abs(frames.astype(int) - reference)
    return f"up to {difference.max()}, {np.mean(difference > 0):.1%} of values" if difference.any() else "equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], help="interpreter of another environment")
    parser.add_argument("--plain", action="store_true", help="also decord alone")
    parser.add_argument("--clips", nargs="*", choices=CLIPS, default=list(CLIPS))
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--installed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child)
    if options.installed:
        return print(json.dumps(installed(options.plain)))
    columns = {}  # title → interpreter and reader; the same version from two environments is one column
    flags = ["--installed", *(["--plain"] if options.plain else [])]
    for python in [sys.executable, *options.python]:
        for reader, title in ask(python, *flags).items():
            columns.setdefault(title, (python, reader))
    print(f"| clip | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    available = encoders()
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(options.clips):
            if CLIPS[name].encoder not in available:
                print(f"| {name} |{f' no {CLIPS[name].encoder} |' * len(columns)}")
                continue
            path = make_clip(CLIPS[name], Path(folder) / str(number))
            cells, reference = [], None
            for python, reader in columns.values():
                out = path.with_name("frames.npy")
                out.unlink(missing_ok=True)
                result = ask(python, "--child", reader, name, str(path), str(out))
                frames = np.load(out) if out.exists() else None
                cells.append(describe(result, frames, reference))
                if reference is None and not result.get("wrong") and frames is not None:
                    reference = frames
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
