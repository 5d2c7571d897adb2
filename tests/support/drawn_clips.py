"""Clips that FFmpeg draws, transcoded, and the frames and rows that come of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from rewind.config import Video
from rewind.video import ffmpeg, transcode
from rewind.video.frames import open_file_frames

SMALL = Video(fps=5, short_side=48)


def make(path: Path, *options: str, size: str = "80x60", rate: str = "25", seconds: float = 1.2) -> Path:
    """A moving, noisy source clip."""
    picture = f"testsrc2=s={size}:r={rate}:d={seconds},noise=alls=20:allf=t:all_seed=1"
    return call(path, "-f", "lavfi", "-i", picture, "-c:v", "libx264", "-preset", "ultrafast", *options)


def call(path: Path, *options: str) -> Path:
    outcome = ffmpeg.run_command([ffmpeg.executable(), "-y", "-loglevel", "level+error", *options, str(path)])
    assert outcome.code == 0, outcome.tail()
    return path


def frames_of(path: Path) -> np.ndarray:
    reader = open_file_frames(path)
    return reader.read(range(len(reader)))


def run(source: Path, out: Path, settings: Video = SMALL, **options) -> transcode.ClipReport:
    return transcode.transcode_clip(source, out / "c.mp4", out / "c_rev.mp4", settings, **options)


def rows(folder: Path, *names: str, twin: int = 1, reversed_source: str = "") -> pd.DataFrame:
    table = pd.DataFrame({"item_id": names, "split": "test", "bytes": 0, "twin": twin, "shard": 0})
    paths = [folder / f"{name}.mp4" for name in names]
    return table.assign(source=[str(path) if path.is_file() else "" for path in paths], reversed_source=reversed_source)
