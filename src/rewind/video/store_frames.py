"""The frame store of a study: every usable clip decoded once, shard by shard, in parallel."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import threading
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.data.annotations import TWIN_SUFFIX
from rewind.data.captions import USABLE_STATUS
from rewind.errors import RewindError
from rewind.hashing import sha256_of, stable_hash
from rewind.io.files import read_csv, write_json
from rewind.progress import Progress
from rewind.video.frame_store import (
    STORE_SHARDS,
    STORE_VERSION,
    ClipToStore,
    FrameView,
    StoreShard,
    publish_row_checksums,
    store_shard_name,
    store_shard_path,
    write_store_index,
    write_store_shard,
)
from rewind.video.shards import clip_identity

SHARD_BYTES = 256 * 2**20
MAX_SHARDS = 256  # a reader keeps every shard open, and open files are limited

ClipGroup = list[ClipToStore]
"""A clip and its twin, if it has one."""


def make_frame_store(
    item_table: str, index: str, view: FrameView, code: str, workers: int, shard_bytes: int = SHARD_BYTES
) -> None:
    """Decode every usable clip of ``items.csv`` into the store of ``index``.

    Each finished shard is ``.state/<shard>.bin``, with a signature of all that it depends on next to it. When all are
    finished they get a second name under ``shards`` (a hard link; without hard links they are moved). A job that was
    killed goes on at the next shard, and its store has the bytes of an uninterrupted one, whatever the number of
    workers. Snakemake deletes a job's outputs before it runs again, so unchanged shards are restored from ``.state``.

    Args:
        item_table: ``items.csv``; the paths of clips in it are relative to its folder.
        index: ``index.json`` of the store, written last; ``shards`` is next to it.
        code: hash of the code that decides pixels; another one decodes every clip again.
        shard_bytes: size at which a shard ends, if no clip has a twin with pixels of its own.
    """
    folder = Path(index).parent
    (folder / ".state").mkdir(parents=True, exist_ok=True)
    shards = split_into_shards(group_twins(read_csv(item_table), Path(item_table).parent), view, shard_bytes)
    signatures = [
        stable_hash(STORE_VERSION, asdict(view), code, [_clip_identity(clip) for group in shard for clip in group])
        for shard in shards
    ]
    _remove_stale_shards(folder, len(shards))
    done = {
        n: shard for n, signature in enumerate(signatures) if (shard := _finished_shard(folder, n, signature, view))
    }
    unfinished = {n: shard for n, shard in enumerate(shards) if n not in done}
    if done:
        print(f"frames: {len(done)} of {len(shards)} shards are finished already")
    _check_disk(folder, sum(len(shard) for shard in unfinished.values()) * view.bytes)
    done |= _decode_shards(folder, unfinished, view, signatures, workers)
    _publish_shards(folder, len(shards))
    publish_row_checksums(folder, view, done)
    write_store_index(folder, view, [done[n] for n in range(len(shards))])
    rows, clips = sum(shard.rows for shard in done.values()), sum(len(shard.places) for shard in done.values())
    print(f"frames: {clips:,} clips in {rows:,} rows, {rows * view.bytes / 1e9:,.2f} GB; the other clips reuse a row")


def group_twins(items: pd.DataFrame, folder: Path) -> list[ClipGroup]:
    """Usable clips, an original together with its twin, in the order of ``items``.

    >>> items = pd.DataFrame({"item_id": ["a", "a_rev"], "path": ["a.mp4"] * 2, "reversed": [0, 1], "status": "ok"})
    >>> [[clip.item_id for clip in group] for group in group_twins(items, Path("data"))]
    [['a', 'a_rev']]
    """
    groups: dict[str, ClipGroup] = {}
    for item in items[items["status"] == USABLE_STATUS].itertuples():
        twin = item.reversed == 1
        name = item.item_id.removesuffix(TWIN_SUFFIX) if twin else item.item_id
        groups.setdefault(name, []).append(ClipToStore(item.item_id, str(folder / item.path), bool(twin)))
    return list(groups.values())


def split_into_shards(groups: list[ClipGroup], view: FrameView, shard_bytes: int) -> list[list[ClipGroup]]:
    """Groups shard by shard: each about ``shard_bytes``, or more where there would be over :data:`MAX_SHARDS`."""
    groups_per_shard = max(1, shard_bytes // view.bytes, -(-len(groups) // MAX_SHARDS))
    return [groups[start : start + groups_per_shard] for start in range(0, len(groups), groups_per_shard)]


def _decode_shards(
    folder: Path, unfinished: dict[int, list[ClipGroup]], view: FrameView, signatures: list[str], workers: int
) -> dict[int, StoreShard]:
    progress = Progress("frames", sum(len(group) for shard in unfinished.values() for group in shard), "clips")
    done: dict[int, StoreShard] = {}
    # Forked: spawned processes would run the job's own script once more in each worker.
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(max(1, min(workers, len(unfinished))), context, _end_with_parent)
    try:
        shard_of_future = {
            pool.submit(_make_shard, folder, n, shard, view, signatures[n]): n for n, shard in unfinished.items()
        }
        for future in as_completed(shard_of_future):
            done[shard_of_future[future]] = future.result()
            progress.advance(len(future.result().places))
    except BrokenProcessPool as error:
        raise RewindError(
            f"{folder}: a decoding process was killed (out of memory?); finished shards are kept: run again "
            "with fewer frames.workers or more memory."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
    return done


def _end_with_parent() -> None:
    """Make this worker exit when its job is gone: a job killed with SIGKILL cannot end workers, which wait for ever."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None  # this runs only in workers
        parent.join()
        os._exit(1)  # sys.exit would end only this thread

    threading.Thread(target=watch, daemon=True).start()


def _make_shard(folder: Path, number: int, shard: list[ClipGroup], view: FrameView, signature: str) -> StoreShard:
    """Write one shard, then the state file that marks it as complete."""
    state = _shard_state_path(folder, number)
    state.unlink(missing_ok=True)  # a state stands for a complete shard: it goes first and comes last
    stored = write_store_shard(_unpublished_path(folder, number), shard, view)
    write_json(state, {"signature": signature, "shard": asdict(stored)})
    return stored


def _finished_shard(folder: Path, number: int, signature: str, view: FrameView) -> StoreShard | None:
    """A shard of an earlier call, if it has this signature and its file is intact."""
    try:
        state = json.loads(_shard_state_path(folder, number).read_text(encoding="utf-8"))
        content = state["shard"]
        shard = StoreShard(content["rows"], content["sha256"], [tuple(place) for place in content["places"]])
        size = _unpublished_path(folder, number).stat().st_size
        valid = state["signature"] == signature and size == shard.rows * view.bytes
        return shard if valid and sha256_of(_unpublished_path(folder, number)) == shard.sha256 else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _publish_shards(folder: Path, shards: int) -> None:
    """Link or move finished shards into the store."""
    target = folder / STORE_SHARDS
    target.mkdir(exist_ok=True)
    for old in target.iterdir():
        old.unlink()  # os.link would not replace it
    for number in range(shards):
        unpublished, path = _unpublished_path(folder, number), store_shard_path(folder, number)
        try:
            os.link(unpublished, path)
        except OSError:  # no hard links here
            unpublished.replace(path)


def _unpublished_path(folder: Path, number: int) -> Path:
    return folder / ".state" / store_shard_name(number)


def _shard_state_path(folder: Path, number: int) -> Path:
    return folder / ".state" / f"{number:05}.json"


def _clip_identity(clip: ClipToStore) -> tuple[Any, ...]:
    try:
        return clip.item_id, clip.reversed, *clip_identity(clip.path)
    except OSError as error:
        raise RewindError(f"{clip.path}: cannot be read ({error.strerror}); prepare the videos again.") from error


def _remove_stale_shards(folder: Path, shards: int) -> None:
    """Remove temporary files of a killed call, and shards beyond the present last one."""
    for temporary in (*folder.glob(".*.part.*"), *(folder / ".state").glob(".*.part.*")):
        temporary.unlink(missing_ok=True)
    for path in folder.glob("[0-9]*.bin"):  # where version 1 of the store had shards
        path.unlink()
    for path in (folder / ".state").glob("[0-9]*.bin"):
        if int(path.stem) >= shards:
            _shard_state_path(folder, int(path.stem)).unlink(missing_ok=True)
            path.unlink()


def _check_disk(folder: Path, needed: int) -> None:
    """Refuse to begin where ``needed`` bytes do not fit."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RewindError(
            f"{folder}: the frame store needs {needed / 1e9:,.1f} GB more, but the disk has {free / 1e9:,.1f} GB free. "
            "Make room, lower frames.size or frames.max_frames (or the sweep's values), or set frames.store: false."
        )
