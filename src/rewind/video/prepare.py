"""Normalise one shard of clips or images in parallel, and pack the results into a tar file.

``make_shard`` is the entry point. While a shard is made, its clips are files of their own, so that a killed job
resumes with the next clip; when all are finished they are packed, and the single files are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.config.dataset import Image, Video
from rewind.data.annotations import twin_of
from rewind.errors import RewindError
from rewind.hashing import sha256_hex, sha256_of, stable_hash
from rewind.io.files import check_id, reraise_system_error, write_json
from rewind.progress import Progress
from rewind.video import ffmpeg, images
from rewind.video.images import FORMAT_SUFFIXES, normalise_image
from rewind.video.shards import ClipLocation, PackedShard, ShardMember, read_packed_clip, write_tar
from rewind.video.transcode import ClipReport, transcode_clip

# ---- Make the clips or images of a shard, each a file of its own at first ------------------------------------------

_SHARD_NAME = re.compile(r"(\d+)-of-(\d+)")
REPORT_COLUMNS = (*(field.name for field in fields(ClipReport)), "sha256", "split")
MediaSettings = Video | Image


@dataclass(frozen=True)
class ClipTask:
    """One clip or image to make; ``out`` is the folder of finished files.

    >>> task = ClipTask("clip1", "in/clip1.avi", "", twin=True, out=Path("videos"), suffix=".mp4")
    >>> [path.name for path in task.outputs]
    ['clip1.mp4', 'clip1_rev.mp4']
    """

    item_id: str  # the original's
    source: str  # empty if it is missing
    reversed_source: str  # an existing reversed file, which becomes the twin; empty if there is none
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
        """Files of an image from before ``image.format`` was changed, and its own."""
        return [
            self.out / f"{self.item_id}{suffix}"
            for suffix in FORMAT_SUFFIXES.values()
            if self.suffix in FORMAT_SUFFIXES.values()
        ]


@dataclass(frozen=True)
class ClipResult:
    """What became of one item.

    >>> result = ClipResult(ClipReport("clip1", "ok"), signature="a", content="b")
    >>> result.holds("a", ""), result.holds("c", "b"), result.holds("c", "")
    (True, True, False)
    """

    report: ClipReport
    sha256: str = ""  # of the normalised file and its twin; empty if there is none
    signature: str = ""  # hash of all that these depend on, of sources by path, size and time: quick to compute
    content: str = ""  # the same, of sources by their bytes: it decides if a source was touched or moved
    sources: tuple[str, ...] = ()  # SHA-256 of the source and, if there is one, of the reversed source

    def holds(self, signature: str, content: str) -> bool:
        """Whether it was made from these sources with these settings."""
        return self.signature == signature or bool(content and self.content == content)

    def notes(self) -> dict[str, Any]:
        """All of it as plain values, for :func:`read_result`."""
        return asdict(self)

    def row(self) -> dict[str, Any]:
        """A row of the report."""
        return asdict(self.report) | {"sha256": self.sha256}


FindPacked = Callable[[ClipTask, str, str], ClipResult | None]
"""Looks up what an earlier call packed of a task, by its signature or else by its content."""


def read_result(notes: dict[str, Any]) -> ClipResult:
    """The inverse of :meth:`ClipResult.notes`; earlier versions wrote fewer keys."""
    report = ClipReport(**notes["report"])
    rest = {key: notes[key] for key in ("sha256", "signature", "content") if key in notes}
    return ClipResult(report, **rest, sources=tuple(notes.get("sources", ())))


def prepare_report(
    rows: pd.DataFrame,
    out: Path,
    settings: MediaSettings,
    code: str,
    workers: int,
    find_packed: FindPacked = lambda *_: None,
) -> pd.DataFrame:
    """:func:`make_clips` as a table: :data:`REPORT_COLUMNS`, one row per row of ``rows``, in order."""
    return report_table(rows, make_clips(clip_tasks(rows, out, settings), settings, code, workers, find_packed))


def clip_tasks(rows: pd.DataFrame, out: Path, settings: MediaSettings) -> list[ClipTask]:
    """The tasks of rows of the inventory, in their order; ``out`` is the folder of finished files."""
    suffix = file_suffix(settings)
    return [_clip_task(row, out, suffix) for row in rows.to_dict("records")]


def report_table(rows: pd.DataFrame, results: list[ClipResult]) -> pd.DataFrame:
    """The report of a shard: one row per row of the inventory, :data:`REPORT_COLUMNS`."""
    table = pd.DataFrame([result.row() for result in results], columns=list(REPORT_COLUMNS))
    return table.assign(split=list(rows["split"]))


def make_clips(
    tasks: list[ClipTask], settings: MediaSettings, code: str, workers: int, find_packed: FindPacked = lambda *_: None
) -> list[ClipResult]:
    """Make the clips or images of one shard; those that an earlier call finished are not made again.

    Each finished one leaves ``.state/<id>.json`` next to it with its report and a signature of everything that it
    depends on. Threads suffice: the work is done by ffmpeg processes, one per worker, or inside Pillow.

    Args:
        code: hash of the code; another one makes everything again.
        find_packed: finds what is packed already; that is not made again, and leaves no file of its own.
    """
    _remove_temporary_files(tasks)
    if tasks and isinstance(settings, Video):
        ffmpeg.require_encoder()
    program = images.pillow_version() if isinstance(settings, Image) else ffmpeg.ffmpeg_version()
    settings_hash = stable_hash(settings.fingerprint("data", exclude={"shards"}), program, code)
    labels = ("images", "images") if isinstance(settings, Image) else ("videos", "clips")
    progress = Progress(labels[0], len(tasks), labels[1])
    results = _run_all(tasks, lambda task: _prepare(task, settings, settings_hash, find_packed), workers, progress)
    _remove_temporary_files(tasks)  # again: an ffmpeg that outlived its killed job may have opened its files since
    return results


def file_suffix(settings: MediaSettings) -> str:
    """Suffix of normalised files."""
    return FORMAT_SUFFIXES[settings.format] if isinstance(settings, Image) else ".mp4"


def _clip_task(row: dict[str, Any], out: Path, suffix: str) -> ClipTask:
    item_id = check_id(row["item_id"], "videos")
    return ClipTask(item_id, row["source"], row["reversed_source"], bool(row["twin"]), out, suffix)


def _run_all(
    tasks: list[ClipTask], work: Callable[[ClipTask], ClipResult], workers: int, progress: Progress
) -> list[ClipResult]:
    failed = 0
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        futures = [pool.submit(work, task) for task in tasks]
        for future in as_completed(futures):
            failed += future.result().report.status != "ok"
            progress.advance(note=f"{failed} not ok" if failed else "")
    finally:
        # After an interrupt, clips not yet begun are left for the next call.
        pool.shutdown(cancel_futures=True)
    return [future.result() for future in futures]


def _remove_temporary_files(tasks: Sequence[ClipTask]) -> None:
    """Remove the temporary files that a killed call left of these clips; other shards are made in the same folder."""
    ids = {name for task in tasks for name in (task.item_id, twin_of(task.item_id))}
    for folder in {folder for task in tasks for folder in (task.out, task.out / ".state")}:
        for path in folder.glob(".*.part.*") if folder.is_dir() else ():  # .<id>.<pid>.part.<suffix>
            if path.name[1:].rsplit(".", 3)[0] in ids:
                path.unlink(missing_ok=True)


def _prepare(task: ClipTask, settings: MediaSettings, settings_hash: str, find_packed: FindPacked) -> ClipResult:
    """Make one item unless it is finished.

    The state is written last, so that a kill leaves a finished clip without its state, but never a state without its
    clip. Sources are hashed only if their path, size or time changed: then a touched or moved source whose bytes are
    the same still finds its clip.
    """
    if not task.source:
        _discard(task)
        return ClipResult(ClipReport(item_id=task.item_id, status="missing", reason="no source file"))
    forget_damaged_clip(task)
    try:
        signature = stable_hash(settings_hash, _file_stamp(task.source), _file_stamp(task.reversed_source), task.twin)
        done = find_packed(task, signature, "") or _finished(task, signature, "")
        if done and done.sha256:
            return done
        sources = tuple(sha256_of(path) for path in (task.source, task.reversed_source) if path)
    except OSError as error:
        # A file that is gone or may not be read is missing; a disk that fails ends the job.
        reraise_system_error(error, task.source)
        _discard(task)
        return ClipResult(ClipReport(item_id=task.item_id, status="missing", reason=error.strerror or str(error)))
    content = stable_hash(settings_hash, sources, task.twin)
    if packed := find_packed(task, signature, content):
        return packed
    done = done or _finished(task, signature, content)
    if not done:
        _discard(task)
        done = ClipResult(_make(task, settings))
    # The hash is computed here for finished clips too: an earlier version kept none.
    result = ClipResult(
        done.report, _files_sha256(task.outputs) if done.report.status == "ok" else "", signature, content, sources
    )
    write_json(task.state, result.notes())
    return result


def _files_sha256(paths: list[Path]) -> str:
    return sha256_hex(*(path.read_bytes() for path in paths))


def _make(task: ClipTask, settings: MediaSettings) -> ClipReport:
    if isinstance(settings, Image):
        return normalise_image(Path(task.source), task.target, settings)
    return transcode_clip(
        Path(task.source),
        task.target,
        task.twin_target if task.twin else None,
        settings,
        Path(task.reversed_source) if task.reversed_source else None,
    )


def _file_stamp(path: str) -> tuple[str, int, int] | None:
    if not path:
        return None
    stat = os.stat(path)
    return path, stat.st_size, stat.st_mtime_ns


def _finished(task: ClipTask, signature: str, content: str) -> ClipResult | None:
    """What an earlier call made, if it is of this signature or this content and its files have their size."""
    try:
        result = read_result(json.loads(task.state.read_text(encoding="utf-8")))
        sizes = sum(path.stat().st_size for path in task.outputs)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    intact = result.report.status == "ok" and result.report.bytes == sizes
    return result if intact and result.holds(signature, content) else None


def forget_damaged_clip(task: ClipTask) -> None:
    """Remove the state of a clip that a killed job finished and whose files changed since, so that it is made again.

    :func:`_finished` looks only at their size.
    """
    try:
        noted = read_result(json.loads(task.state.read_text(encoding="utf-8"))).sha256
        if not noted or _files_sha256(task.outputs) == noted:  # an earlier version noted none
            return
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return  # nothing is finished
    task.state.unlink(missing_ok=True)


def _discard(task: ClipTask) -> None:
    """Remove what an earlier call made of this item: the state first, which marks the files as finished."""
    for path in (task.state, task.target, task.twin_target, *task.other_formats):
        path.unlink(missing_ok=True)


def check_coverage(
    report: pd.DataFrame, max_missing: float, dataset_name: str, how_to_get: str, items: str = "clips"
) -> None:
    """Refuse a data set with a share of originals above ``max_missing`` that are not ok, naming the first ten."""
    unusable = report[report["status"] != "ok"]
    if len(unusable) <= max_missing * len(report):
        return
    lines = [f"  {row.item_id}: {row.reason}" for row in unusable.head(10).itertuples()]
    if len(unusable) > len(lines):
        lines.append(f"  … and {len(unusable) - len(lines)} more (videos/report.all.csv has them all)")
    share = len(unusable) / len(report)
    key = f"max_missing in config/datasets/{dataset_name}.yaml"
    raise RewindError(
        f"dataset {dataset_name}: {len(unusable)} of {len(report)} {items} ({share:.1%}) are missing or unusable, "
        f"but max_missing allows {max_missing:.1%}:\n"
        + "\n".join(lines)
        + f"\nRepair or get them, or raise {key}. {how_to_get}".rstrip()
    )


# ---- Pack finished clips, and keep what earlier jobs packed --------------------------------------------------------
# Snakemake deletes a job's outputs before the job runs again. So a hard link to the shard (it takes no disk space) is
# kept under ``.state/shards``, with a note of what every clip in it depends on. A shard whose clips are all up to date
# returns from there in a moment, and one in which something changed reuses the other clips. Where the file system has
# no hard links, nothing is kept.


def make_shard(
    rows: pd.DataFrame, tar: Path, settings: MediaSettings, code: str, workers: int
) -> tuple[pd.DataFrame, PackedShard]:
    """Make the clips or images of one shard and pack them.

    Args:
        tar: ``videos/shards/<n>-of-<N>.tar``; the work is done in ``videos``.
        code: hash of the code that makes a clip; another one makes everything again.

    Returns:
        The report, as of :func:`prepare_report`, and what the shard holds: files of usable clips in the order of ids,
        each followed by its twin's.
    """
    kept_shards = KeptShards(tar)
    tasks = clip_tasks(rows, tar.parents[1], settings)
    results = make_clips(tasks, settings, code, workers, kept_shards.find)
    # By id, whatever the order of the inventory: the same clips give the same bytes.
    usable = sorted(
        (pair for pair in zip(tasks, results, strict=True) if pair[1].report.status == "ok"),
        key=lambda pair: pair[0].item_id,
    )
    packed = kept_shards.restore(usable) or write_tar(tar, _contents(usable, kept_shards))
    # The single files go last: a kill before that leaves them, or the kept shard, to resume from.
    kept_shards.keep(usable, packed)
    for task in tasks:
        _remove_packed_files(task)
    return report_table(rows, results), packed


def _contents(usable: Iterable[tuple[ClipTask, ClipResult]], kept_shards: KeptShards) -> Iterator[tuple[str, bytes]]:
    for task, result in usable:
        locations = kept_shards.locations(task, result.signature)
        for path in task.outputs:
            yield path.name, (read_packed_clip(locations[path.name]) if locations else path.read_bytes())


def _remove_packed_files(task: ClipTask) -> None:
    """Remove the files of a packed clip, the state first, which marks them as finished."""
    for path in (task.state, *task.outputs, *task.other_formats):
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _KeptClip:
    """A clip of a kept shard: what became of it, and where each of its files is."""

    result: ClipResult
    locations: dict[str, ClipLocation]


class KeptShards:
    """What earlier calls packed: this shard, and shards from when the data set was cut into another number of them."""

    def __init__(self, tar: Path) -> None:
        self.tar = tar
        self.folder = tar.parents[1] / ".state" / "shards"
        self.entries: dict[str, _KeptClip] = {}  # by id
        self.sums: dict[Path, str] = {}  # SHA-256 of each kept shard
        # Its own note is read last, so that its entries win. Other shards of today's number have no clips in common.
        for note in sorted(self.folder.glob("*.json"), key=lambda path: path.stem == tar.stem):
            if note.stem == tar.stem or _shard_count(note) != _shard_count(tar):
                self._load(note)

    def find(self, task: ClipTask, signature: str, content: str) -> ClipResult | None:
        """What was packed of a task, if its files are undamaged."""
        entry = self.entries.get(task.item_id)
        if entry and entry.result.holds(signature, content):
            # Found by content, under a touched or moved source: from here on it has the signature of today.
            self.entries[task.item_id] = replace(entry, result=replace(entry.result, signature=signature))
        locations = self.locations(task, signature)
        if set(locations) != {path.name for path in task.outputs}:
            return None
        try:
            for location in locations.values():
                read_packed_clip(location)
        except RewindError:
            del self.entries[task.item_id]  # it is made again
            return None
        return self.entries[task.item_id].result

    def locations(self, task: ClipTask, signature: str) -> dict[str, ClipLocation]:
        """Where a task's files are packed, by name; empty if what they depend on has changed."""
        entry = self.entries.get(task.item_id)
        return entry.locations if entry and entry.result.signature == signature else {}

    def restore(self, usable: list[tuple[ClipTask, ClipResult]]) -> PackedShard | None:
        """Give the kept shard its name back if it holds exactly these clips in this order and is undamaged."""
        kept_path = self.folder / self.tar.name
        locations = [
            locations[path.name]
            for task, result in usable
            if (locations := self.locations(task, result.signature))
            for path in task.outputs
        ]
        if kept_path not in self.sums or len(locations) != sum(len(task.outputs) for task, _ in usable):
            return None
        offsets = [location.member.offset for location in locations]
        # Clips in another order, or from several shards, would be other bytes in a shard that is written now.
        if offsets != sorted(offsets) or any(location.shard != kept_path for location in locations):
            return None
        clips_in_shard = sum(len(entry.locations) for entry in self.entries.values() if _shard_of(entry) == kept_path)
        # So would be a shard that also holds clips which are gone.
        if clips_in_shard != len(locations) or sha256_of(kept_path) != self.sums[kept_path]:
            return None
        if not self.tar.exists():
            self.tar.parent.mkdir(parents=True, exist_ok=True)
            os.link(kept_path, self.tar)
        return PackedShard(
            tuple(location.member for location in locations), kept_path.stat().st_size, self.sums[kept_path]
        )

    def keep(self, usable: list[tuple[ClipTask, ClipResult]], packed: PackedShard) -> None:
        """Keep a finished shard under a second name, and then write the note about its clips."""
        note, kept_path = self.folder / f"{self.tar.stem}.json", self.folder / self.tar.name
        # A note without its shard would say where clips are in a file that is not there.
        if not _link(self.tar, kept_path):
            note.unlink(missing_ok=True)
            return
        members = {member.name: member for member in packed.members}
        clips = {
            task.item_id: {
                **result.notes(),
                "members": [astuple(members[path.name]) for path in task.outputs],
            }
            for task, result in usable
        }
        write_json(note, {"sha256": packed.sha256, "clips": clips})

    def _load(self, note: Path) -> None:
        shard = note.with_suffix(".tar")
        if not shard.is_file():
            return
        try:
            content = json.loads(note.read_text(encoding="utf-8"))
            for item, clip in content["clips"].items():
                result = read_result(clip)
                locations = [ClipLocation(shard, ShardMember(*member)) for member in clip["members"]]
                self.entries[item] = _KeptClip(result, {location.member.name: location for location in locations})
            self.sums[shard] = content["sha256"]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return


def _shard_of(entry: _KeptClip) -> Path | None:
    return next((location.shard for location in entry.locations.values()), None)


def _shard_count(path: Path) -> int:
    """N of ``<n>-of-<N>``."""
    match = _SHARD_NAME.fullmatch(path.stem)
    return int(match[2]) if match else 0


def _link(path: Path, second: Path) -> bool:
    """Give a file a second name, replacing a file of that name; False if the file system cannot."""
    # Renaming a file to another name of the same file does nothing, and would leave the temporary name.
    if second.exists() and second.samefile(path):
        return True
    second.parent.mkdir(parents=True, exist_ok=True)
    temporary = second.with_name(f".{second.name}.{os.getpid()}.part")
    with contextlib.suppress(OSError):
        temporary.unlink()  # of a killed call with this process id: os.link replaces nothing
    try:
        os.link(path, temporary)
        os.replace(temporary, second)
    except OSError:
        second.unlink(missing_ok=True)
        return False
    return True


def remove_outdated_shards(folder: Path, parts: int) -> None:
    """Remove shards from before the data set was cut into ``parts``; all of those are finished in ``folder``."""
    for shards in (folder / "shards", folder / ".state" / "shards"):
        for path in shards.glob("*-of-*"):
            match = _SHARD_NAME.match(path.name)
            if match and int(match[2]) != parts:
                path.unlink(missing_ok=True)
