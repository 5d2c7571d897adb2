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

from rewind.datasets.annotations import TWIN_SUFFIX
from rewind.datasets.captions import USABLE
from rewind.errors import RewindError
from rewind.files import digest, read_csv, sha256_of, write_json
from rewind.jobs.given import Given
from rewind.progress import Progress
from rewind.video.packed import identity
from rewind.video.row_checksums import publish_row_checksums
from rewind.video.store import (
    SHARDS,
    VERSION,
    Clip,
    Shard,
    View,
    shard_name,
    shard_path,
    write_index,
    write_shard,
)

SHARD_BYTES = 256 * 2**20
MOST_SHARDS = 256  # a reader keeps every shard open

Family = list[Clip]


def frames(given: Given) -> None:
    """Rule ``frames``."""
    params = given.params
    make_store(given.input.item_table, given.output.index, View(**params.view), params.frame_code, given.threads)


def make_store(
    item_table: str, index: str, view: View, code: str, workers: int, shard_bytes: int = SHARD_BYTES
) -> None:
    """Decode every usable clip of ``items.csv`` into the store of ``index``.

    Each finished shard is ``.state/<shard>.bin``, with a signature of all that it depends on beside it, until all are
    there; then they get a second name under ``shards`` (a hard link; where there are none, another place). A job that
    was killed goes on at the next shard, and its store has the bytes of an unbroken one, whatever the number of
    workers. A workflow deletes a job's outputs before it runs again: what did not change returns from ``.state``.

    Args:
        item_table: ``items.csv``; clips lie beside it.
        index: ``index.json`` of the store, written last; ``shards`` lies beside it.
        view: which frames.
        code: fingerprint of the code that decides pixels; another one decodes every clip again.
        workers: decoding processes.
        shard_bytes: size at which a shard ends, if no clip has a twin of its own pixels.

    Raises:
        RewindError: naming a clip that cannot be read, or if the disk is too small.
    """
    folder = Path(index).parent
    (folder / ".state").mkdir(parents=True, exist_ok=True)
    shards = split(families(read_csv(item_table), Path(item_table).parent), view, shard_bytes)
    signatures = [
        digest(VERSION, asdict(view), code, [_identity(clip) for f in shard for clip in f]) for shard in shards
    ]
    _sweep(folder, len(shards))
    done = {n: shard for n, signature in enumerate(signatures) if (shard := _finished(folder, n, signature, view))}
    left = {n: shard for n, shard in enumerate(shards) if n not in done}
    if done:
        print(f"frames: {len(done)} of {len(shards)} shards are finished already")
    _check_disk(folder, sum(len(shard) for shard in left.values()) * view.bytes)
    done |= _decode(folder, left, view, signatures, workers)
    _publish(folder, len(shards))
    publish_row_checksums(folder, view, done)
    write_index(folder, view, [done[n] for n in range(len(shards))])
    rows, clips = sum(shard.rows for shard in done.values()), sum(len(shard.places) for shard in done.values())
    print(f"frames: {clips:,} clips in {rows:,} rows, {rows * view.bytes / 1e9:,.2f} GB; the other clips reuse a row")


def families(items: pd.DataFrame, folder: Path) -> list[Family]:
    """Usable clips, an original with its twin, in the order of ``items``."""
    found: dict[str, Family] = {}
    for item in items[items["status"] == USABLE].itertuples():
        twin = item.reversed == 1
        name = item.item_id.removesuffix(TWIN_SUFFIX) if twin else item.item_id
        found.setdefault(name, []).append(Clip(item.item_id, str(folder / item.path), bool(twin)))
    return list(found.values())


def split(found: list[Family], view: View, shard_bytes: int) -> list[list[Family]]:
    """Families shard by shard: each about ``shard_bytes``, or more where there would be too many shards."""
    share = max(1, shard_bytes // view.bytes, -(-len(found) // MOST_SHARDS))
    return [found[at : at + share] for at in range(0, len(found), share)]


def _decode(
    folder: Path, left: dict[int, list[Family]], view: View, signatures: list[str], workers: int
) -> dict[int, Shard]:
    progress = Progress("frames", sum(len(f) for shard in left.values() for f in shard), "clips")
    done: dict[int, Shard] = {}
    # Forked, because the other ways run the job's own script again in each worker.
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(max(1, min(workers, len(left))), context, _end_with_parent)
    try:
        work = {pool.submit(_make, folder, n, shard, view, signatures[n]): n for n, shard in left.items()}
        for future in as_completed(work):
            done[work[future]] = future.result()
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
    """A job that is killed outright cannot end its workers, which would then wait for work for ever."""

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _make(folder: Path, number: int, shard: list[Family], view: View, signature: str) -> Shard:
    """One shard, then the state that vouches for it."""
    state = _state(folder, number)
    state.unlink(missing_ok=True)
    made = write_shard(_draft(folder, number), shard, view)
    write_json(state, {"signature": signature, "shard": asdict(made)})
    return made


def _finished(folder: Path, number: int, signature: str, view: View) -> Shard | None:
    """What an earlier call made of a shard, if it holds for this signature and the file is whole."""
    try:
        state = json.loads(_state(folder, number).read_text(encoding="utf-8"))
        content = state["shard"]
        shard = Shard(content["rows"], content["sha256"], [tuple(place) for place in content["places"]])
        size = _draft(folder, number).stat().st_size
        whole = state["signature"] == signature and size == shard.rows * view.bytes
        return shard if whole and sha256_of(_draft(folder, number)) == shard.sha256 else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _publish(folder: Path, shards: int) -> None:
    """Give finished shards their place in the store."""
    target = folder / SHARDS
    target.mkdir(exist_ok=True)
    for old in target.iterdir():
        old.unlink()
    for number in range(shards):
        draft, path = _draft(folder, number), shard_path(folder, number)
        try:
            os.link(draft, path)
        except OSError:  # no hard links here
            draft.replace(path)


def _draft(folder: Path, number: int) -> Path:
    return folder / ".state" / shard_name(number)


def _state(folder: Path, number: int) -> Path:
    return folder / ".state" / f"{number:05}.json"


def _identity(clip: Clip) -> tuple[Any, ...]:
    try:
        return clip.item_id, clip.reversed, *identity(clip.path)
    except OSError as error:
        raise RewindError(f"{clip.path}: cannot be read ({error.strerror}); prepare the videos again.") from error


def _sweep(folder: Path, shards: int) -> None:
    """Remove drafts of a killed call, and shards beyond the last one now."""
    for draft in (*folder.glob(".*.part.*"), *(folder / ".state").glob(".*.part.*")):
        draft.unlink(missing_ok=True)
    for path in folder.glob("[0-9]*.bin"):  # where version 1 had them
        path.unlink()
    for path in (folder / ".state").glob("[0-9]*.bin"):
        if int(path.stem) >= shards:
            _state(folder, int(path.stem)).unlink(missing_ok=True)
            path.unlink()


def _check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RewindError(
            f"{folder}: the frame store needs {needed / 1e9:,.1f} GB more, but the disk has {free / 1e9:,.1f} GB free. "
            "Make room, lower frames.size or frames.max_frames (or the sweep's values), or set frames.store: false."
        )
