"""The embedded default: clips of moving shapes, made from a seed, with annotations in RTime's JSON format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

from rewind.datasets import rtime, shapes_draw, shapes_grammar
from rewind.datasets.annotations import SPLITS, Annotations
from rewind.datasets.clip_file import Pictures, write_clips
from rewind.datasets.shapes_draw import draw_style, render
from rewind.datasets.shapes_grammar import Entry, compose
from rewind.files import digest, read_json, write_json
from rewind.progress import Progress
from rewind.study.dataset import Dataset, ShapesSource

WORKERS = 2
TOGETHER = 20  # clips that one process writes
CODING = "-crf 8 -pix_fmt yuv444p"  # colour in every pixel (4:4:4) keeps odd sizes and small coloured edges


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Write ``folder/videos/<id>.mp4`` for every original, then ``folder/{train,valid,test}.json``.

    Deterministic: the same seed gives the same bytes on the same ffmpeg. A broken-off call resumes with the
    clips that are missing; clips of other settings or of other drawing code are removed first.

    Raises:
        RewindError: if more clips are asked for than there are scenes, or ffmpeg fails.
    """
    source = dataset.source
    folder = Path(folder)
    videos = folder / "videos"
    splits = compose(source.clips, source.paraphrases, source.seed)
    clips = {name: entry for split in SPLITS for name, entry in _named(split, splits[split]).items()}
    _start(folder, source)
    missing = {name: entry for name, entry in clips.items() if not (videos / f"{name}.mp4").exists()}
    with ThreadPoolExecutor(WORKERS) as pool:
        # Threads are enough: most of the time goes to ffmpeg, which is a process of its own.
        jobs = [pool.submit(_make, videos, dict(part), source) for part in batched(missing.items(), TOGETHER)]
        progress = Progress(f"shapes {dataset.name}", len(missing), "clips")
        try:
            for job in as_completed(jobs):
                progress.advance(job.result())
        finally:
            pool.shutdown(cancel_futures=True)
    write_annotations(source, folder)


def write_annotations(source: ShapesSource, folder: Path) -> None:
    """Write ``folder/{train,valid,test}.json``; no clip is needed for them."""
    splits = compose(source.clips, source.paraphrases, source.seed)
    for split in SPLITS:
        entries = _named(split, splits[split])
        write_json(folder / f"{split}.json", {name: annotation(entry) for name, entry in entries.items()})


def read(dataset: Dataset, sources: str) -> Annotations:
    """Read what :func:`make_sources` wrote into the folder ``sources``."""
    return rtime.read_files({split: str(Path(sources) / f"{split}.json") for split in SPLITS}, dataset.reverse)


def has_groups(dataset: Dataset) -> bool:
    """Every clip shows one kind of motion."""
    return True


def _named(split: str, entries: list[Entry]) -> dict[str, Entry]:
    return {f"{split}{number:04}": entry for number, entry in enumerate(entries)}


def annotation(entry: Entry) -> dict[str, object]:
    """An entry as RTime's JSON has it."""
    forward, reverse = entry.captions(False), entry.captions(True)
    return {
        "temporal": True,
        "reverse": True,
        "forward_captions": forward[:1],
        "reverse_captions": reverse[:1],
        "forward_rewrites": forward[1:],
        "reverse_rewrites": reverse[1:],
        "group": entry.scene.event,
        "url": "",
    }


def _start(folder: Path, source: ShapesSource) -> None:
    """Make the folder ready: keep the clips of an earlier call only if it would draw the same ones."""
    code = [hashlib.sha256(Path(m.__file__).read_bytes()).hexdigest() for m in (shapes_draw, shapes_grammar)]
    signature = digest(source.model_dump(), code)
    for draft in (folder / "videos").glob(".*.part.mp4"):
        draft.unlink()
    mark = folder / ".shapes.json"
    if mark.exists() and read_json(mark) == signature:
        return
    for split in SPLITS:
        (folder / f"{split}.json").unlink(missing_ok=True)
        for clip in (folder / "videos").glob(f"{split}[0-9][0-9][0-9][0-9].mp4"):
            clip.unlink()
    write_json(mark, signature)


def _make(videos: Path, clips: dict[str, Entry], source: ShapesSource) -> int:
    """Draw and write some clips; how many."""
    drawn = []
    for name, entry in clips.items():
        style = draw_style(f"{source.seed} {name}", source.size)
        frames = render(entry.scene, style)
        drawn.append(Pictures(videos / f"{name}.mp4", frames.tobytes(), (style.width, style.height), style.rate))
    write_clips(drawn, CODING)
    return len(drawn)


def batched(clips: Iterable[tuple[str, Entry]], size: int) -> Iterator[list[tuple[str, Entry]]]:
    """``size`` at a time, fewer in the last."""
    rest = iter(clips)
    while part := list(islice(rest, size)):
        yield part
