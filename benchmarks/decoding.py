"""How fast clips reach a model: decoded each time, from the frame store, and CLIP4Clip's way.

    python benchmarks/decoding.py                        # 200 clips of 4 s, 12 frames of 224² each, and their twins
    python benchmarks/decoding.py --clips 60 --seconds 20

All ways run in turn in the same call, on the same clips, several rounds; the table shows medians, in clips a second.
``cold`` drops the store from the page cache first; ``by processes`` sends its batches through worker processes, which
the training loop does not do. CLIP4Clip's way reads what its ``compress_video.py`` writes, as its
``rawvideo_util.py`` does: OpenCV, one seek per frame, then Pillow and float normalisation frame by frame. It is told to
take as many frames as the others. Without OpenCV (``pip install opencv-python-headless``) decord reads all frames in
order in its place, and the table says so. Clips are decoded by every reader that is installed (``decord``, ``av``,
``torchcodec``).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

from rewind.config import Frames, Video
from rewind.loading.frame_source import ClipFrames, FrameSource, StoredFrames, load_batches
from rewind.optional_packages import torchvision
from rewind.video.frame_store import FrameView
from rewind.video.frames import CLIP_MEAN, CLIP_STD
from rewind.video.prepare import prepare_report
from rewind.video.readers import READER_VARIABLE, installed_readers, reader_version
from rewind.video.store_frames import make_frame_store
from video_stage import UPSTREAM_SCALE, command, make_sources

try:
    import cv2
except ImportError:
    cv2 = None

KEYS = Frames()  # 12 frames of 224², as config/studies/rtime.yaml has them


class Upstream:
    """CLIP4Clip's reading of its compressed clips: float32 (n, T, 3, 224, 224), zero after the last frame."""

    def __init__(self, paths: list[Path], rate: int) -> None:
        transforms = torchvision("transforms")

        self.paths, self.rate = paths, rate
        self.preprocess = transforms.Compose(
            [
                transforms.Resize(KEYS.size, transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(KEYS.size),
                transforms.ToTensor(),
                transforms.Normalize(CLIP_MEAN, CLIP_STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        pixels = torch.zeros(len(rows), KEYS.max_frames, 3, KEYS.size, KEYS.size)
        mask = torch.zeros(len(rows), KEYS.max_frames, dtype=torch.uint8)
        for place, row in enumerate(rows):
            read = seek_each(self.paths[row], self.rate) if cv2 else in_order(self.paths[row])
            clip = torch.stack([self.preprocess(frame) for frame in read])
            kept = np.linspace(0, len(clip) - 1, KEYS.max_frames, dtype=int) if len(clip) > KEYS.max_frames else ...
            clip = clip[kept]
            pixels[place, : len(clip)], mask[place, : len(clip)] = clip, 1
        return {"pixels": pixels, "mask": mask}


def seek_each(path: Path, rate: int) -> Iterator[Image.Image]:
    """``rate`` frames of every second, a seek for each."""
    video = cv2.VideoCapture(str(path))
    fps, frames = int(video.get(cv2.CAP_PROP_FPS)), int(video.get(cv2.CAP_PROP_FRAME_COUNT))
    inside = np.arange(0, fps, max(fps // rate, 1))[:rate]
    for second in range(-(-frames // fps)):
        for place in inside:
            video.set(cv2.CAP_PROP_POS_FRAMES, second * fps + int(place))
            there, frame = video.read()
            if there:
                yield Image.fromarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    video.release()


def in_order(path: Path) -> Iterator[Image.Image]:
    import decord  # here: PyAV may be all that is installed

    video = decord.VideoReader(str(path), num_threads=1)
    return (Image.fromarray(video.next().asnumpy()) for _ in range(len(video)))


@dataclass
class Way:
    """One way to get batches; ``rows`` are read in each round."""

    name: str
    inputs: FrameSource
    workers: int
    rows: np.ndarray
    before: Callable[[], None] = lambda: None


class ByProcesses(StoredFrames):
    """The store as if its batches cost decoding."""

    copies = False


def clips_per_second(way: Way, size: int) -> float:
    """As the training loop asks for batches; the start of the workers included."""
    way.before()
    parts = [way.rows[at : at + size] for at in range(0, len(way.rows), size)]
    start, seen = time.perf_counter(), 0
    for batch in load_batches(way.inputs.batch, parts, way.inputs, way.workers, torch.device("cpu")):
        seen += len(batch["pixels"])
    return seen / (time.perf_counter() - start)


def use_reader(name: str) -> None:
    os.environ[READER_VARIABLE] = name  # worker processes inherit it


def drop_from_cache(folder: Path) -> None:
    for path in folder.glob("*.bin"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def make_data(folder: Path, options: argparse.Namespace) -> tuple[pd.DataFrame, list[Path]]:
    """Normalised clips with twins as items, and the same sources compressed as CLIP4Clip does."""
    (folder / "in").mkdir()
    (folder / "upstream").mkdir()
    sources = make_sources(folder / "in", options.clips, options.seconds, options.size)
    rows = pd.DataFrame({"item_id": [path.stem for path in sources], "split": "test", "twin": 1})
    rows = rows.assign(source=[str(path) for path in sources], reversed_source="")
    report = prepare_report(rows, folder / "videos", Video(), "benchmark", options.workers)
    if not (report["status"] == "ok").all():
        raise SystemExit(report[report["status"] != "ok"].to_string())
    compressed = [folder / "upstream" / path.name for path in sources]
    for source, target in zip(sources, compressed, strict=True):
        command(["-i", str(source), "-filter:v", UPSTREAM_SCALE, "-map", "0:v", "-r", "3", str(target)])
    names = [name for path in sources for name in (path.stem, f"{path.stem}_rev")]
    items = pd.DataFrame({"item_id": names, "path": [f"videos/{name}.mp4" for name in names]})
    items = items.assign(split="test", cluster_id=items["item_id"], reversed=[0, 1] * len(sources), status="ok")
    items.to_csv(folder / "items.csv", index=False)
    return items, compressed


def make_ways(folder: Path, items: pd.DataFrame, compressed: list[Path], options: argparse.Namespace) -> list[Way]:
    index, view = folder / "store/index.json", FrameView.of(KEYS, KEYS.max_frames)
    start = time.perf_counter()
    make_frame_store(str(folder / "items.csv"), str(index), view, "benchmark", options.workers)
    print(f"store: made at {len(items) / (time.perf_counter() - start):,.0f} clips/s with {options.workers} workers")
    order = np.random.default_rng(0).permutation(len(items))
    clips, stored = ClipFrames(items, folder, KEYS, KEYS.max_frames), StoredFrames(items, index, KEYS, KEYS.max_frames)
    upstream = Upstream(compressed, rate=3)
    few = np.random.default_rng(1).permutation(len(compressed))[: options.sample]
    name = "CLIP4Clip's way" if cv2 else "all frames in order (no OpenCV)"
    ways = []
    for workers in (0, options.workers):
        ways += [
            Way(name, upstream, workers, few),
            *(
                Way(
                    f"clips, {reader_version(name)}", clips, workers, order[: options.sample], partial(use_reader, name)
                )
                for name in installed_readers()
            ),
            Way("store, cold", stored, workers, order, lambda: drop_from_cache(index.parent)),
            Way("store, warm", stored, workers, np.tile(order, options.passes)),
        ]
    through = ByProcesses(items, index, KEYS, KEYS.max_frames)
    return [*ways, Way("store, warm, by processes", through, options.workers, order)]


def measure(folder: Path, options: argparse.Namespace) -> None:
    ways = make_ways(folder, *make_data(folder, options), options)
    found: list[list[float]] = [[] for _ in ways]
    for _ in range(options.rounds):
        for way, figures in zip(ways, found, strict=True):
            figures.append(clips_per_second(way, options.batch))
    base = {
        way.workers: statistics.median(f) for way, f in zip(ways, found, strict=True) if way.inputs is ways[0].inputs
    }
    print(f"{'way':<32}{'workers':>8}{'clips/s':>10}{'lowest':>10}{'highest':>10}{'ratio':>8}")
    for way, figures in zip(ways, found, strict=True):
        middle = statistics.median(figures)
        spread = f"{middle:>10,.0f}{min(figures):>10,.0f}{max(figures):>10,.0f}"
        print(f"{way.name:<32}{way.workers:>8}{spread}{middle / base[way.workers]:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--size", default="640x360", help="source size, WIDTHxHEIGHT")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--sample", type=int, default=50, help="clips that the slow ways read in each round")
    parser.add_argument("--passes", type=int, default=4, help="times that a warm store is read in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help="where to work, for the disk that is to be measured; a temporary folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        measure(Path(temporary), options)


if __name__ == "__main__":
    main()
