"""Normalise one shard of clips, in parallel, resuming clip by clip."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pandas as pd

from rewind.datasets.annotations import twin_of
from rewind.errors import RewindError
from rewind.files import check_id, digest, write_json
from rewind.progress import Progress
from rewind.study.dataset import Video
from rewind.video import ffmpeg
from rewind.video.transcode import ClipReport, transcode

REPORT_COLUMNS = (*(field.name for field in fields(ClipReport)), "split")
# The settings that change a clip's bytes or its refusal; shards and workers do not.
_SETTINGS = ("fps", "short_side", "qp", "max_seconds")


@dataclass(frozen=True)
class Job:
    """One clip to make: where from, where to, and whether the twin is made, mapped or not wanted."""

    item_id: str
    source: str
    reversed_source: str
    twin: bool
    out: Path

    @property
    def target(self) -> Path:
        return self.out / f"{self.item_id}.mp4"

    @property
    def twin_target(self) -> Path:
        return self.out / f"{twin_of(self.item_id)}.mp4"

    @property
    def state(self) -> Path:
        return self.out / ".state" / f"{self.item_id}.json"

    @property
    def outputs(self) -> list[Path]:
        return [self.target, self.twin_target] if self.twin else [self.target]


def prepare_shard(rows: pd.DataFrame, out: Path, settings: Video, code: str, workers: int) -> pd.DataFrame:
    """Make the clips of one shard; those that a former call finished are not made again.

    Each finished clip leaves ``out/.state/<id>.json`` with its report and a signature of everything that it
    depends on. Threads suffice: the work is done by ffmpeg processes, one per worker.

    Args:
        rows: rows of the inventory.
        out: folder of ``<id>.mp4`` and ``<id>_rev.mp4``.
        settings: how clips are normalised.
        code: fingerprint of the code; another one makes every clip again.
        workers: ffmpeg processes at a time.

    Returns:
        One row per row of ``rows``, in order: the fields of :class:`ClipReport` and split.
    """
    jobs = [_job(row, out) for row in rows.to_dict("records")]
    _sweep(out, {job.item_id for job in jobs})
    mark = digest({name: getattr(settings, name) for name in _SETTINGS}, ffmpeg.version(), code)
    reports = _run_all(jobs, lambda job: _prepare(job, settings, mark), workers)
    table = pd.DataFrame([asdict(report) for report in reports], columns=list(REPORT_COLUMNS))
    return table.assign(split=list(rows["split"]))


def _job(row: dict, out: Path) -> Job:
    item_id = check_id(row["item_id"], "videos")
    return Job(item_id, row["source"], row["reversed_source"], bool(row["twin"]), out)


def _run_all(jobs: list[Job], work: Callable[[Job], ClipReport], workers: int) -> list[ClipReport]:
    progress, failed = Progress("videos", len(jobs), "clips"), 0
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        futures = [pool.submit(work, job) for job in jobs]
        for future in as_completed(futures):
            failed += future.result().status != "ok"
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


def _prepare(job: Job, settings: Video, mark: str) -> ClipReport:
    """Make one clip unless its state vouches for it; the state is written last, so it never runs ahead."""
    if not job.source:
        _discard(job)
        return ClipReport(item_id=job.item_id, status="missing", reason="no source file")
    try:
        signature = digest(mark, _identity(job.source), _identity(job.reversed_source), job.twin)
    except OSError as error:
        _discard(job)
        return ClipReport(item_id=job.item_id, status="missing", reason=error.strerror or str(error))
    done = _finished(job, signature)
    if done:
        return done
    _discard(job)
    report = transcode(
        Path(job.source),
        job.target,
        job.twin_target if job.twin else None,
        settings,
        Path(job.reversed_source) if job.reversed_source else None,
    )
    write_json(job.state, {"signature": signature, "report": asdict(report)})
    return report


def _identity(path: str) -> tuple[str, int, int] | None:
    if not path:
        return None
    stat = os.stat(path)
    return path, stat.st_size, stat.st_mtime_ns


def _finished(job: Job, signature: str) -> ClipReport | None:
    """The report of an earlier call, if it holds for this signature and its files are whole."""
    try:
        state = json.loads(job.state.read_text(encoding="utf-8"))
        report = ClipReport(**state["report"])
        sizes = sum(path.stat().st_size for path in job.outputs)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    whole = report.status == "ok" and report.bytes == sizes and state["signature"] == signature
    return report if whole else None


def _discard(job: Job) -> None:
    """Remove what an earlier call made of this clip: first the state, which vouches for the rest."""
    for path in (job.state, job.target, job.twin_target):
        path.unlink(missing_ok=True)


def check_coverage(report: pd.DataFrame, max_missing: float, dataset_name: str, how_to_get: str) -> None:
    """Refuse a dataset of which too many clips are missing or failed.

    Args:
        report: rows of :func:`prepare_shard`, all shards together.
        max_missing: largest tolerated share of originals that are not ok.
        dataset_name: name of the dataset file, for the message.
        how_to_get: what the dataset file says of getting the clips, for the message.

    Raises:
        RewindError: naming the first ten clips with their reasons, and the total.
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
        f"dataset {dataset_name}: {len(lost)} of {len(report)} clips ({share:.1%}) are missing or unusable, "
        f"max_missing allows {max_missing:.1%}:\n"
        + "\n".join(named)
        + f"\nMend or get them, or raise {key}. {how_to_get}".rstrip()
    )
