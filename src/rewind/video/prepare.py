"""Normalise one shard of clips or images, in parallel, resuming one by one.

Here each is still a file of its own; :mod:`rewind.video.shard` packs finished ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.datasets.annotations import twin_of
from rewind.errors import RewindError
from rewind.files import check_id, digest, sha256_of, write_json
from rewind.progress import Progress
from rewind.study.dataset import Image, Video
from rewind.video import ffmpeg, images
from rewind.video.images import SUFFIXES, normalise_image
from rewind.video.transcode import ClipReport, transcode

REPORT_COLUMNS = (*(field.name for field in fields(ClipReport)), "sha256", "split")
# The settings that change no byte and no refusal.
_MACHINE = {"shards", "workers"}
Settings = Video | Image


@dataclass(frozen=True)
class Job:
    """One clip or image to make: where from, where to, and whether the twin is made, mapped or not wanted."""

    item_id: str
    source: str
    reversed_source: str
    twin: bool
    out: Path
    suffix: str

    @property
    def target(self) -> Path:
        return self.out / f"{self.item_id}{self.suffix}"

    @property
    def twin_target(self) -> Path:
        return self.out / f"{twin_of(self.item_id)}.mp4"

    @property
    def state(self) -> Path:
        return self.out / ".state" / f"{self.item_id}.json"

    @property
    def outputs(self) -> list[Path]:
        return [self.target, self.twin_target] if self.twin else [self.target]

    @property
    def other_formats(self) -> list[Path]:
        """What an image may have been before ``image.format`` was changed."""
        return [
            self.out / f"{self.item_id}{suffix}" for suffix in SUFFIXES.values() if self.suffix in SUFFIXES.values()
        ]


@dataclass(frozen=True)
class Made:
    """What became of one item.

    Attributes:
        report: in words and numbers.
        sha256: of the normalised file and its twin; empty where there is none.
        signature: of all that these depend on; of sources their path, size and time.
        content: the same, of sources their bytes: it decides where a source was touched or moved.
        sources: SHA-256 of the source and, if there is one, of the reversed source.
    """

    report: ClipReport
    sha256: str = ""
    signature: str = ""
    content: str = ""
    sources: tuple[str, ...] = ()

    def holds(self, signature: str, content: str) -> bool:
        """Whether it was made of these sources with these settings."""
        return self.signature == signature or bool(content and self.content == content)

    def notes(self) -> dict[str, Any]:
        """All of it, as :func:`read_notes` takes it."""
        return asdict(self)

    def row(self) -> dict[str, Any]:
        """A row of the report."""
        return asdict(self.report) | {"sha256": self.sha256}


Kept = Callable[[Job, str, str], Made | None]
"""Looks up what an earlier call packed of a job, by its signature or else by its content."""


def read_notes(notes: dict[str, Any]) -> Made:
    """What :meth:`Made.notes` wrote; earlier versions wrote less."""
    report = ClipReport(**notes["report"])
    rest = {key: notes[key] for key in ("sha256", "signature", "content") if key in notes}
    return Made(report, **rest, sources=tuple(notes.get("sources", ())))


def prepare_shard(
    rows: pd.DataFrame, out: Path, settings: Settings, code: str, workers: int, kept: Kept = lambda *_: None
) -> pd.DataFrame:
    """:func:`make_clips` as a table.

    Returns:
        One row per row of ``rows``, in order: the fields of :class:`ClipReport`, sha256 (of the normalised files) and
        split.
    """
    return as_table(rows, make_clips(clip_jobs(rows, out, settings), settings, code, workers, kept))


def clip_jobs(rows: pd.DataFrame, out: Path, settings: Settings) -> list[Job]:
    """What is to be made of rows of the inventory, in their order; ``out`` is the folder of finished files."""
    suffix = file_suffix(settings)
    return [_job(row, out, suffix) for row in rows.to_dict("records")]


def as_table(rows: pd.DataFrame, made: list[Made]) -> pd.DataFrame:
    """The report of a shard."""
    table = pd.DataFrame([one.row() for one in made], columns=list(REPORT_COLUMNS))
    return table.assign(split=list(rows["split"]))


def make_clips(
    jobs: list[Job], settings: Settings, code: str, workers: int, kept: Kept = lambda *_: None
) -> list[Made]:
    """Make the clips or images of one shard; those that a former call finished are not made again.

    Each finished one leaves ``.state/<id>.json`` beside it with its report and a signature of everything that it
    depends on. Threads suffice: the work is done by ffmpeg processes, one per worker, or inside Pillow.

    Args:
        jobs: of :func:`clip_jobs`.
        settings: how clips or images are normalised.
        code: fingerprint of the code; another one makes everything again.
        workers: how many are made at a time.
        kept: finds what is packed already; that is not made again, and leaves no file of its own.

    Returns:
        What became of each job, in order.
    """
    if jobs:
        _sweep(jobs[0].out, {job.item_id for job in jobs})
    program = images.version() if isinstance(settings, Image) else ffmpeg.version()
    mark = digest(settings.signature(exclude=_MACHINE), program, code)
    named = ("images", "images") if isinstance(settings, Image) else ("videos", "clips")
    progress = Progress(named[0], len(jobs), named[1])
    return _run_all(jobs, lambda job: _prepare(job, settings, mark, kept), workers, progress)


def file_suffix(settings: Settings) -> str:
    """Suffix of normalised files."""
    return SUFFIXES[settings.format] if isinstance(settings, Image) else ".mp4"


def _job(row: dict[str, Any], out: Path, suffix: str) -> Job:
    item_id = check_id(row["item_id"], "videos")
    return Job(item_id, row["source"], row["reversed_source"], bool(row["twin"]), out, suffix)


def _run_all(jobs: list[Job], work: Callable[[Job], Made], workers: int, progress: Progress) -> list[Made]:
    failed = 0
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        futures = [pool.submit(work, job) for job in jobs]
        for future in as_completed(futures):
            failed += future.result().report.status != "ok"
            progress.advance(note=f"{failed} not ok" if failed else "")
    finally:
        # After an interrupt, clips not yet begun are left for the next call.
        pool.shutdown(cancel_futures=True)
    return [future.result() for future in futures]


def _sweep(out: Path, ids: set[str]) -> None:
    """Remove the drafts that a killed call left of these clips."""
    mine = ids | {twin_of(item_id) for item_id in ids}
    for folder in (out, out / ".state"):
        for draft in folder.glob(".*.part.*") if folder.is_dir() else ():
            if draft.name[1:].rsplit(".", 3)[0] in mine:
                draft.unlink(missing_ok=True)


def _prepare(job: Job, settings: Settings, mark: str, kept: Kept) -> Made:
    """Make one item unless its state vouches for it; the state is written last, so it never runs ahead."""
    if not job.source:
        _discard(job)
        return Made(ClipReport(item_id=job.item_id, status="missing", reason="no source file"))
    try:
        signature = digest(mark, _identity(job.source), _identity(job.reversed_source), job.twin)
        done = kept(job, signature, "") or _finished(job, signature, "")
        if done and done.sha256:
            return done
        sources = tuple(sha256_of(path) for path in (job.source, job.reversed_source) if path)
    except OSError as error:
        _discard(job)
        return Made(ClipReport(item_id=job.item_id, status="missing", reason=error.strerror or str(error)))
    content = digest(mark, sources, job.twin)
    if packed := kept(job, signature, content):
        return packed
    done = done or _finished(job, signature, content)
    if not done:
        _discard(job)
        done = Made(_make(job, settings))
    # Files of a version that kept no hash are hashed where they lie.
    made = Made(done.report, _content(job.outputs) if done.report.status == "ok" else "", signature, content, sources)
    write_json(job.state, made.notes())
    return made


def _content(paths: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()


def _make(job: Job, settings: Settings) -> ClipReport:
    if isinstance(settings, Image):
        return normalise_image(Path(job.source), job.target, settings)
    return transcode(
        Path(job.source),
        job.target,
        job.twin_target if job.twin else None,
        settings,
        Path(job.reversed_source) if job.reversed_source else None,
    )


def _identity(path: str) -> tuple[str, int, int] | None:
    if not path:
        return None
    stat = os.stat(path)
    return path, stat.st_size, stat.st_mtime_ns


def _finished(job: Job, signature: str, content: str) -> Made | None:
    """What an earlier call made, if it holds for this signature or this content and its files are whole."""
    try:
        made = read_notes(json.loads(job.state.read_text(encoding="utf-8")))
        sizes = sum(path.stat().st_size for path in job.outputs)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    whole = made.report.status == "ok" and made.report.bytes == sizes
    return made if whole and made.holds(signature, content) else None


def _discard(job: Job) -> None:
    """Remove what an earlier call made of this item: first the state, which vouches for the rest."""
    for path in (job.state, job.target, job.twin_target, *job.other_formats):
        path.unlink(missing_ok=True)


def check_coverage(
    report: pd.DataFrame, max_missing: float, dataset_name: str, how_to_get: str, items: str = "clips"
) -> None:
    """Refuse a dataset of which too many clips or images are missing or failed.

    Args:
        report: rows of :func:`prepare_shard`, all shards together.
        max_missing: largest tolerated share of originals that are not ok.
        dataset_name: name of the dataset file, for the message.
        how_to_get: what the dataset file says of getting the clips, for the message.
        items: what is counted, in the plural.

    Raises:
        RewindError: naming the first ten with their reasons, and the total.
    """
    lost = report[report["status"] != "ok"]
    if len(lost) <= max_missing * len(report):
        return
    named = [f"  {row.item_id}: {row.reason}" for row in lost.head(10).itertuples()]
    if len(lost) > len(named):
        named.append(f"  … and {len(lost) - len(named)} more (videos/report.all.csv has them all)")
    share = len(lost) / len(report)
    key = f"max_missing in config/datasets/{dataset_name}.yaml"
    raise RewindError(
        f"dataset {dataset_name}: {len(lost)} of {len(report)} {items} ({share:.1%}) are missing or unusable, "
        f"but max_missing allows {max_missing:.1%}:\n"
        + "\n".join(named)
        + f"\nRepair or get them, or raise {key}. {how_to_get}".rstrip()
    )
