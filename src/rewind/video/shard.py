"""One shard of clips or images, from sources to a tar file.

While a shard is made, its clips are files of their own, so that a killed job goes on with the next clip. When all are
there they are packed, and only the shard is left. A workflow deletes a job's outputs before the job runs again, so a
second name of the same file (a hard link: no disk space) is kept under ``.state/shards`` with a note of what every clip
in it depends on. From there a shard whose clips are all as wanted returns in a moment, and one in which something
changed takes the rest. Where the file system has no hard links nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import pandas as pd

from rewind.errors import RewindError
from rewind.files import sha256_of, write_json
from rewind.video.packed import Member, Packed, Place, read, write_tar
from rewind.video.prepare import Job, Made, Settings, as_table, clip_jobs, make_clips, read_notes

_NAME = re.compile(r"(\d+)-of-(\d+)")


def make_shard(
    rows: pd.DataFrame, tar: Path, settings: Settings, code: str, workers: int
) -> tuple[pd.DataFrame, Packed]:
    """Make the clips or images of one shard and pack them.

    Args:
        rows: rows of the inventory, all of one shard.
        tar: ``videos/shards/<n>-of-<N>.tar``; the work is done in ``videos``.
        settings: how clips or images are normalised.
        code: fingerprint of the code that makes a clip; another one makes everything again.
        workers: how many are made at a time.

    Returns:
        The report, as of :func:`rewind.video.prepare.prepare_shard`, and what the shard holds: files of usable clips in
        the order of ids, each followed by its twin's.
    """
    kept = KeptShards(tar)
    jobs = clip_jobs(rows, tar.parents[1], settings)
    made = make_clips(jobs, settings, code, workers, kept.find)
    good = sorted((pair for pair in zip(jobs, made, strict=True) if pair[1].report.status == "ok"), key=_id)
    packed = kept.whole(good) or write_tar(tar, _contents(good, kept))
    kept.keep(good, packed)
    for job in jobs:
        _forget(job)
    return as_table(rows, made), packed


def _id(pair: tuple[Job, Made]) -> str:
    return pair[0].item_id


def _contents(good: Iterable[tuple[Job, Made]], kept: KeptShards) -> Iterator[tuple[str, bytes]]:
    for job, made in good:
        places = kept.places(job, made.signature)
        for path in job.outputs:
            yield path.name, (read(places[path.name]) if places else path.read_bytes())


def _forget(job: Job) -> None:
    """Remove the files of a packed clip: first what vouches for them."""
    for path in (job.state, *job.outputs, *job.other_formats):
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Entry:
    """A clip of a kept shard: what became of it, what it depends on, and its files."""

    made: Made
    places: dict[str, Place]


class KeptShards:
    """What earlier calls packed, of this shard and of shards that were cut otherwise.

    Args:
        tar: the shard that is to be made.
    """

    def __init__(self, tar: Path) -> None:
        self.tar = tar
        self.folder = tar.parents[1] / ".state" / "shards"
        self.entries: dict[str, _Entry] = {}
        self.sums: dict[Path, str] = {}
        for note in sorted(self.folder.glob("*.json"), key=lambda path: path.stem == tar.stem):  # its own last
            if note.stem == tar.stem or _parts(note) != _parts(tar):
                self._load(note)

    def find(self, job: Job, signature: str, content: str) -> Made | None:
        """What was packed of a job, if its files are whole."""
        entry = self.entries.get(job.item_id)
        if entry and entry.made.holds(signature, content):
            self.entries[job.item_id] = replace(entry, made=replace(entry.made, signature=signature))
        places = self.places(job, signature)
        if set(places) != {path.name for path in job.outputs}:
            return None
        try:
            for place in places.values():
                read(place)
        except RewindError:
            del self.entries[job.item_id]  # it is made again
            return None
        return self.entries[job.item_id].made

    def places(self, job: Job, signature: str) -> dict[str, Place]:
        """Where a job's files are packed, by name; empty where what they depend on has changed."""
        entry = self.entries.get(job.item_id)
        return entry.places if entry and entry.made.signature == signature else {}

    def whole(self, good: list[tuple[Job, Made]]) -> Packed | None:
        """Give the kept shard its name back, if it holds exactly these clips."""
        mine = self.folder / self.tar.name
        places = [
            places[path.name]
            for job, made in good
            if (places := self.places(job, made.signature))
            for path in job.outputs
        ]
        if mine not in self.sums or len(places) != sum(len(job.outputs) for job, _ in good):
            return None
        offsets = [place.member.offset for place in places]
        if offsets != sorted(offsets) or any(place.shard != mine for place in places):
            return None
        held = sum(len(entry.places) for entry in self.entries.values() if _shard_of(entry) == mine)
        if held != len(places) or sha256_of(mine) != self.sums[mine]:
            return None
        if not self.tar.exists():
            self.tar.parent.mkdir(parents=True, exist_ok=True)
            os.link(mine, self.tar)
        return Packed(tuple(place.member for place in places), mine.stat().st_size, self.sums[mine])

    def keep(self, good: list[tuple[Job, Made]], packed: Packed) -> None:
        """Keep a finished shard under its second name, then the note that vouches for its clips."""
        note, mine = self.folder / f"{self.tar.stem}.json", self.folder / self.tar.name
        if not _link(self.tar, mine):
            note.unlink(missing_ok=True)
            return
        members = {member.name: member for member in packed.members}
        clips = {
            job.item_id: {
                **made.notes(),
                "members": [astuple(members[path.name]) for path in job.outputs],
            }
            for job, made in good
        }
        write_json(note, {"sha256": packed.sha256, "clips": clips})

    def _load(self, note: Path) -> None:
        shard = note.with_suffix(".tar")
        if not shard.is_file():
            return
        try:
            content = json.loads(note.read_text(encoding="utf-8"))
            for item, clip in content["clips"].items():
                made = read_notes(clip)
                places = [Place(shard, Member(*member)) for member in clip["members"]]
                self.entries[item] = _Entry(made, {place.member.name: place for place in places})
            self.sums[shard] = content["sha256"]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return


def _shard_of(entry: _Entry) -> Path | None:
    return next((place.shard for place in entry.places.values()), None)


def _parts(path: Path) -> int:
    """N of ``<n>-of-<N>``."""
    found = _NAME.fullmatch(path.stem)
    return int(found[2]) if found else 0


def _link(path: Path, second: Path) -> bool:
    """Give a file a second name, in place of what had it; False where the file system cannot."""
    if second.exists() and second.samefile(path):
        return True
    second.parent.mkdir(parents=True, exist_ok=True)
    draft = second.with_name(f".{second.name}.{os.getpid()}.part")
    with contextlib.suppress(OSError):
        draft.unlink()
    try:
        os.link(path, draft)
        os.replace(draft, second)
    except OSError:
        second.unlink(missing_ok=True)
        return False
    return True


def forget_others(folder: Path, parts: int) -> None:
    """Remove shards of a data set that is now cut into another number of them.

    Args:
        folder: its ``videos``, of which all shards of today's number are there.
        parts: today's number.
    """
    for place in (folder / "shards", folder / ".state" / "shards"):
        for path in place.glob("*-of-*"):
            found = _NAME.match(path.name)
            if found and int(found[2]) != parts:
                path.unlink(missing_ok=True)
