"""The built-in dataset: generated clips of moving shapes with captions in both directions of time.

Scenes (:mod:`rewind.data.scenes`) are written as source clips, with annotations in RTime's JSON format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.config.dataset import Dataset, ShapesSource
from rewind.data import scenes
from rewind.data.annotations import SPLITS, TWIN_SUFFIX, Annotations
from rewind.data.clip_writer import RawClip, write_clips
from rewind.data.dummy import SplitSizes
from rewind.data.formats import rtime
from rewind.data.scenes import (
    BACKGROUNDS,
    COLOURS,
    EVENTS,
    CaptionedScene,
    Scene,
    compose_splits,
    describe_scene,
    random_style,
    render_scene,
)
from rewind.hashing import sha256_of, stable_hash
from rewind.io.files import read_json, write_json
from rewind.progress import Progress
from rewind.registry import DUMMY_DATA, FORMATS

WRITER_THREADS = 2
CLIPS_PER_PROCESS = 20  # clips that one process writes
ENCODER_OPTIONS = "-crf 8 -pix_fmt yuv444p"  # colour in every pixel (4:4:4) keeps odd sizes and small coloured edges


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Write ``folder/videos/<id>.mp4`` for every original, then ``folder/{train,valid,test}.json``.

    Deterministic: the same seed gives the same bytes with the same ffmpeg. After an interruption only missing clips are
    drawn; clips of other settings or of other drawing code are removed first.
    """
    source = dataset.source
    folder = Path(folder)
    videos = folder / "videos"
    splits = _source_scenes(source)
    clips = {name: entry for split in SPLITS for name, entry in _scenes_by_id(split, splits[split]).items()}
    _remove_outdated_clips(folder, source)
    missing = {name: entry for name, entry in clips.items() if not (videos / f"{name}.mp4").exists()}
    with ThreadPoolExecutor(WRITER_THREADS) as pool:
        # Threads are enough: most of the time goes to ffmpeg, which is a process of its own.
        jobs = [
            pool.submit(_draw_and_write, videos, dict(part), source)
            for part in batched(missing.items(), CLIPS_PER_PROCESS)
        ]
        progress = Progress(f"shapes {dataset.name}", len(missing), "clips")
        try:
            for job in as_completed(jobs):
                progress.advance(job.result())
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure: do not draw the rest first
    write_annotations(source, folder)


def write_annotations(source: ShapesSource, folder: Path) -> None:
    """Write ``folder/{train,valid,test}.json``; the clips need not exist."""
    splits = _source_scenes(source)
    for split in SPLITS:
        entries = _scenes_by_id(split, splits[split])
        write_json(folder / f"{split}.json", {name: rtime.rtime_entry(entry) for name, entry in entries.items()})


def has_groups(dataset: Dataset) -> bool:
    """True: the group of a caption is the clip's event."""
    return True


@FORMATS.register("shapes", make_sources=make_sources, has_groups=has_groups)
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read what :func:`make_sources` wrote into the folder ``sources``."""
    return rtime.read_rtime_files({split: str(Path(sources) / f"{split}.json") for split in SPLITS}, dataset.reverse)


def read_foils(source: ShapesSource, sources: str = "") -> pd.DataFrame:
    """Foils of every test caption, one of each kind: the same sentence with one thing changed.

    Kinds: ``direction`` (the event reversed), ``event`` (another one), ``colour``, ``shape`` and ``background``. Each
    takes the next possible value in the lists above, so that nothing is drawn and no foil is true of the clip.

    >>> foils = read_foils(ShapesSource(format="shapes", clips={"test": 1}))
    >>> foils["kind"].unique().tolist()
    ['direction', 'event', 'colour', 'shape', 'background']
    """
    rows = []
    for clip, entry in _scenes_by_id("test", _source_scenes(source)["test"]).items():
        for reverse in (False, True):
            caption_id = f"{clip}{TWIN_SUFFIX * reverse}#0"
            changed = {"direction": replace(entry.scene, onward=not entry.scene.onward)} | _other_scenes(entry.scene)
            for number, (kind, scene) in enumerate(changed.items()):
                text = describe_scene(scene, entry.wordings[0], reverse)
                rows.append((f"{caption_id}~{number}", caption_id, text, kind))
    return pd.DataFrame(rows, columns=["foil_id", "caption_id", "caption", "kind"])


def _other_scenes(scene: Scene) -> dict[str, Scene]:
    """A scene with its event, colour, shape or background changed."""
    events = [name for name, event in EVENTS.items() if scene.shape in event.shapes]
    return {
        "event": replace(scene, event=_next(scene.event, events)),
        "colour": replace(scene, colour=_next(scene.colour, COLOURS)),
        "shape": replace(scene, shape=_next(scene.shape, EVENTS[scene.event].shapes)),
        "background": replace(scene, background=_next(scene.background, BACKGROUNDS)),
    }


def _next(value: str, values: Sequence[str]) -> str:
    return values[(values.index(value) + 1) % len(values)]


def _source_scenes(source: ShapesSource) -> dict[str, list[CaptionedScene]]:
    counts = {str(split): count for split, count in source.clips.items()}
    return compose_splits(counts, source.paraphrases, source.seed)


def _scenes_by_id(split: str, entries: list[CaptionedScene]) -> dict[str, CaptionedScene]:
    return {f"{split}{number:04}": entry for number, entry in enumerate(entries)}


def _remove_outdated_clips(folder: Path, source: ShapesSource) -> None:
    """Keep the clips of an earlier call only if the same settings and the same code drew them."""
    code = sha256_of(__file__), sha256_of(scenes.__file__)
    fingerprint = stable_hash(source.model_dump(), *code)
    for temporary in (folder / "videos").glob(".*.part.mp4"):  # of a killed job
        temporary.unlink()
    fingerprint_file = folder / ".shapes.json"
    if fingerprint_file.exists() and read_json(fingerprint_file) == fingerprint:
        return
    for split in SPLITS:
        (folder / f"{split}.json").unlink(missing_ok=True)
        for clip in (folder / "videos").glob(f"{split}[0-9][0-9][0-9][0-9].mp4"):
            clip.unlink()
    write_json(fingerprint_file, fingerprint)


def _draw_and_write(videos: Path, clips: dict[str, CaptionedScene], source: ShapesSource) -> int:
    drawn = []
    for name, entry in clips.items():
        style = random_style(f"{source.seed} {name}", source.size)
        frames = render_scene(entry.scene, style)
        drawn.append(RawClip(videos / f"{name}.mp4", frames.tobytes(), (style.width, style.height), style.rate))
    write_clips(drawn, ENCODER_OPTIONS)
    return len(drawn)


def batched(clips: Iterable[tuple[str, CaptionedScene]], size: int) -> Iterator[list[tuple[str, CaptionedScene]]]:
    """Lists of ``size`` consecutive clips, the last with fewer."""
    remaining = iter(clips)
    while batch := list(islice(remaining, size)):
        yield batch


@DUMMY_DATA.register("shapes")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Nothing is written: fewer clips are drawn, as many as asked for, but no more than the data set has."""
    return {"clips": {split: min(count, dataset.source.clips.get(split, 0)) for split, count in sizes.counts().items()}}
