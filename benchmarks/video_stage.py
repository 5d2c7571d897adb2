"""How fast the video stage is, and how it compares with CLIP4Clip's way of doing the same.

    python benchmarks/video_stage.py                       # 1,000 clips of 2 s at 320x240
    python benchmarks/video_stage.py --clips 40 --seconds 15 --size 1280x720

Both ways run in the same call, on the same clips, with the same number of parallel ffmpeg processes.
CLIP4Clip's way is its ``compress_video.py`` on the clip, ffmpeg's ``reverse`` at full size, and
``compress_video.py`` on that: three passes, whose twin is not an exact mirror.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import psutil

from rewind.config import Video
from rewind.video import ffmpeg
from rewind.video.prepare import prepare_report

# How much of the clips each picture makes up, in turn: cheap to draw, dear to draw, hard to code.
PICTURES = (
    "testsrc2=s={size}:r=25:d={seconds}",
    "mandelbrot=s={size}:r=25:maxiter=100:end_scale=0.05:end_pts={frames},trim=duration={seconds}",
    "testsrc=s={size}:r=25:d={seconds},noise=alls=30:allf=t:all_seed=1",
)
UPSTREAM_SCALE = "scale='if(gt(a,1),trunc(oh*a/2)*2,224)':'if(gt(a,1),224,trunc(ow*a/2)*2)'"


def make_sources(folder: Path, clips: int, seconds: float, size: str) -> list[Path]:
    """Draw one long video per picture and cut it into clips, so that all clips differ."""
    share = -(-clips // len(PICTURES))
    for number, picture in enumerate(PICTURES):
        length = share * seconds
        source = picture.format(size=size, seconds=length, frames=round(25 * length))
        cuts = [
            "-force_key_frames",
            f"expr:gte(t,n_forced*{seconds})",
            "-f",
            "segment",
            "-segment_time",
            str(seconds),
        ]
        coding = [
            "-c:v",
            "libx264",
            "-preset",
            "veryfast",
            "-pix_fmt",
            "yuv420p",
            *cuts,
            "-reset_timestamps",
            "1",
        ]
        command(["-f", "lavfi", "-i", source, *coding, str(folder / f"{number}_%05d.mp4")])
    return sorted(folder.glob("*.mp4"))[:clips]


def command(options: list[str]) -> None:
    outcome = ffmpeg.run_command([ffmpeg.executable(), "-y", "-loglevel", "error", *options])
    if outcome.code:
        raise SystemExit(outcome.tail())


def clip4clip(source: Path, out: Path) -> None:
    """Compress, reverse at full size, compress again."""
    reverse = out / f"{source.stem}_full.mp4"
    compress = ["-filter:v", UPSTREAM_SCALE, "-map", "0:v", "-r", "3"]
    command(["-i", str(source), *compress, str(out / f"{source.stem}.mp4")])
    command(["-i", str(source), "-vf", "reverse", "-map", "0:v", str(reverse)])
    command(["-i", str(reverse), *compress, str(out / f"{source.stem}_rev.mp4")])


def time_upstream(sources: list[Path], out: Path, workers: int) -> float:
    start = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda source: clip4clip(source, out), sources))
    return time.monotonic() - start


def time_ours(sources: list[Path], out: Path, workers: int) -> float:
    rows = pd.DataFrame({"item_id": [path.stem for path in sources], "split": "test", "twin": 1})
    rows = rows.assign(source=[str(path) for path in sources], reversed_source="")
    start = time.monotonic()
    report = prepare_report(rows, out, Video(), "benchmark", workers)
    elapsed = time.monotonic() - start
    if not (report["status"] == "ok").all():
        raise SystemExit(report[report["status"] != "ok"].to_string())
    print(f"normalised: {report['bytes'].sum() / len(report) / 1e3:,.0f} kB per clip with its twin")
    return elapsed


def measure(folder: Path, options: argparse.Namespace) -> None:
    for name in ("in", "ours", "again", "upstream"):
        (folder / name).mkdir()
    sources = make_sources(folder / "in", options.clips, options.seconds, options.size)
    with PeakMemory() as peak:
        elapsed = time_ours(sources, folder / "ours", options.workers)
    print(f"{ffmpeg.ffmpeg_version()}, {options.workers} workers")
    print(f"ours: {len(sources)} clips in {elapsed:.1f} s = {len(sources) / elapsed:.1f} clips/s (with twins)")
    print(f"peak memory: {peak.total / 2**20:.0f} MiB, of which ffmpeg {peak.children / 2**20:.0f} MiB")

    sample = sources[:: max(1, len(sources) // options.sample)][: options.sample]
    ours = time_ours(sample, folder / "again", options.workers)
    theirs = time_upstream(sample, folder / "upstream", options.workers)
    times = f"ours {ours:.2f} s, CLIP4Clip's way {theirs:.2f} s: {theirs / ours:.1f} times"
    print(f"on {len(sample)} of them: {times}")


class PeakMemory(threading.Thread):
    """Largest resident memory in bytes of this process and its children together, looked at every 50 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.total = self.children = 0
        self._over = threading.Event()

    def __enter__(self) -> PeakMemory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.05):
            children = sum(resident(child) for child in me.children(recursive=True))
            self.children = max(self.children, children)
            self.total = max(self.total, children + resident(me))


def resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:  # it has just ended
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--size", default="320x240", help="source size, WIDTHxHEIGHT")
    parser.add_argument("--sample", type=int, default=20, help="clips that are also done CLIP4Clip's way")
    parser.add_argument("--workers", type=int, default=2, help="parallel ffmpeg processes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(Path(temporary), options)


if __name__ == "__main__":
    main()
