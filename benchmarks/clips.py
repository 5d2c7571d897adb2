"""Clips out of shards beside single files, and what reading the workflow costs at many clips.

`python benchmarks/clips.py` reads clips at random, both ways in turn, from one shard: bytes alone, and decoded as a
model sees them. `--walk 21537 215370` also lists folders of that many source files as Snakemake does at its start, the
first time and again, beside `Path.rglob`, and reads the index of as many packed clips.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from rewind.hashing import stable_hash
from rewind.platform import processor_name
from rewind.provenance import environment
from rewind.video import ffmpeg, shards
from rewind.video.frames import sample_clip
from rewind.video.sources import SourceListing


def write_clips(folder: Path, count: int, seconds: float) -> Path:
    """``count`` clips and twins by other names, as single files in ``loose`` and as a shard beside ``videos``."""
    loose, videos = folder / "loose", folder / "videos"
    loose.mkdir()
    (videos / "shards").mkdir(parents=True)
    for n in range(count):
        picture = f"testsrc2=s=398x224:r=3:d={seconds},hue=h={n}"
        run = ["-f", "lavfi", "-i", picture, "-c:v", "libx264", "-g", "1", "-qp", "24", str(loose / f"v{n:05}.mp4")]
        assert ffmpeg.run_command([ffmpeg.executable(), "-loglevel", "error", *run]).code == 0
    members = ((path.name, path.read_bytes()) for path in sorted(loose.iterdir()))
    shards.write_clip_index(videos, [("shards/0-of-1.tar", shards.write_tar(videos / "shards/0-of-1.tar", members))])
    return folder


def reads(folder: Path, rounds: int) -> None:
    """Print clips per second both ways, and how many times as fast shards are, round by round."""
    names = sorted(path.name for path in (folder / "loose").iterdir())
    rng = np.random.default_rng(0)

    def content(way: str, name: str) -> None:
        path = folder / way / name
        place = shards.find_clip(path)
        assert (shards.read_packed_clip(place) if place else path.read_bytes())[4:8] == b"ftyp"

    def frames(way: str, name: str) -> None:
        sample_clip(folder / way / name, 12, 224)

    for title, read in (("bytes", content), ("12 frames of 224 x 224", frames)):
        speeds: dict[str, list[float]] = {"loose": [], "videos": []}
        for turn in range(rounds):
            order = rng.permutation(names).tolist()
            for way in ("loose", "videos") if turn % 2 else ("videos", "loose"):
                speeds[way].append(len(order) / seconds(partial(all_of, read, way, order)))
        ratios = [b / a for a, b in zip(speeds["loose"], speeds["videos"], strict=True)]
        middle = {way: statistics.median(found) for way, found in speeds.items()}
        print(
            f"{title}: single files {middle['loose']:,.0f} clips/s, out of the shard with its checksum "
            f"{middle['videos']:,.0f} clips/s; ratio {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}, {rounds} rounds of {len(names)} clips)"
        )


def all_of(read: Callable[[str, str], None], way: str, names: list[str]) -> None:
    """Read each of ``names``."""
    for name in names:
        read(way, name)


def walk(folder: Path, count: int) -> None:
    """Print seconds of listing ``count`` source files, and of finding one clip in an index of twice as many."""
    source, videos = folder / f"sources{count}", folder / f"videos{count}"
    source.mkdir()
    for n in range(count):
        (source / f"{n:011d}.mp4").touch()
    listing = lambda: SourceListing([str(source)], videos, folder / f"memory{count}.csv").digest()  # noqa: E731
    first, again = seconds(listing), seconds(listing)
    plain = seconds(lambda: stable_hash(sorted((str(p), p.stat().st_size) for p in source.rglob("*") if p.is_file())))
    members = [shards.ShardMember(f"{n:011d}{end}.mp4", n, 1, "0" * 64) for n in range(count) for end in ("", "_rev")]
    shards.write_clip_index(videos, [("shards/0-of-1.tar", shards.PackedShard(tuple(members), 1, "0" * 64))])
    found = seconds(lambda: shards.find_clip(videos / "00000000000.mp4"))
    print(
        f"{count:,} sources: listed in {first:.2f} s, again in {again:.2f} s (Path.rglob: {plain:.2f} s); "
        f"index of {2 * count:,} files read in {found:.2f} s; peak of this process so far "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:,} MB"
    )


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=108, help="clips in the shard (default: 108, as in rtime)")
    parser.add_argument("--seconds", type=float, default=15, help="length of a clip (default: 15)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--walk", type=int, nargs="*", default=[], metavar="N", help="numbers of source files to list")
    options = parser.parse_args()
    git = environment()["git"] or {}
    edits = " with edits" if git.get("dirty") else ""
    print(f"commit {git.get('commit')}{edits}; {processor_name()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        for count in options.walk:
            walk(Path(folder), count)
        reads(write_clips(Path(folder), options.clips, options.seconds), options.rounds)


if __name__ == "__main__":
    main()
