"""Is the direction of clips readable from how they were filmed and coded, before and after each remedy?

The same drawn content (textures and a patch that move there and back by sums of sines, with noise: in its law it is the
same in both directions) is stored in a dozen formats, made into clips and twins as a data set's are, and its traces are
measured. A linear probe that is cross-validated by clip then tells a clip from its twin, in percent; half is chance.

    python benchmarks/artefacts.py --clips 200
    python tools/publish artefacts
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rewind.analyses.artefacts import FOLDS, cross_validated
from rewind.config.dataset import Video
from rewind.hashing import sha256_of
from rewind.io.files import write_csv
from rewind.progress import Progress
from rewind.video.ffmpeg import executable
from rewind.video.traces import VIEWS, measure_clip
from rewind.video.transcode import transcode_clip

WIDTH, HEIGHT, FRAMES, FPS = 256, 192, 120, 25
COLUMNS = (
    *("format", "remedy", "clips", "usable", "seen", "seen_low", "seen_high", "own", "own_low", "own_high"),
    *("transcoding", "traces", "note"),
)


class Format(NamedTuple):
    """How drawn content is stored: ``fields`` per frame that are drawn, ffmpeg's options, and filters before coding."""

    options: str
    suffix: str = "mkv"
    filters: str = "null"
    fields: int = 1
    fps: float = FPS
    order: str = "tff"


X264 = "-c:v libx264 -preset veryfast"
CLEAN = f"{X264} -qp 8 -g 1 -x264-params ipratio=1 -aq-mode 0"
FORMATS = {
    "intra, constant quantiser": Format(CLEAN),
    "intra, -crf 28": Format(f"{X264} -crf 28 -g 1"),
    "MJPEG": Format("-c:v mjpeg -q:v 5", suffix="avi"),
    "H.264, a key frame every 12": Format(f"{X264} -crf 26 -g 12", suffix="mp4"),
    "H.264, a key frame every 250": Format(f"{X264} -crf 26 -g 250", suffix="mp4"),
    "MPEG-2": Format("-c:v mpeg2video -q:v 6 -g 15 -bf 2", suffix="mpg"),
    "H.264, 10 bits": Format(f"{X264} -crf 26 -g 12 -pix_fmt yuv420p10le", suffix="mp4"),
    "interlaced, top first": Format(f"{CLEAN} -flags +ildct+ilme -x264opts tff=1", fields=2, filters="setfield=tff"),
    "interlaced, bottom first": Format(
        f"{CLEAN} -flags +ildct+ilme -x264opts bff=1", fields=2, filters="setfield=bff", order="bff"
    ),
    "interlaced, flagged progressive": Format(CLEAN, fields=2, filters="setfield=prog"),
    "telecine": Format(CLEAN, fps=24, filters="telecine=first_field=top:pattern=23,setfield=prog"),
    "PQ": Format(
        f"{X264} -crf 26 -g 12 -pix_fmt yuv420p10le",
        suffix="mp4",
        filters="setparams=color_trc=smpte2084:color_primaries=bt2020:colorspace=bt2020nc",
    ),
    "HLG": Format(
        f"{X264} -crf 26 -g 12 -pix_fmt yuv420p10le",
        suffix="mp4",
        filters="setparams=color_trc=arib-std-b67:color_primaries=bt2020:colorspace=bt2020nc",
    ),
    "variable rate": Format(f"{X264} -crf 26 -g 12 -fps_mode vfr", suffix="mp4", filters="select='gt(random(1),0.3)'"),
    "GIF": Format("-c:v gif", suffix="gif", fps=10),
}
REMEDIES = {
    "none": Video(deinterlace="never"),
    "as set": Video(),
    "launder": Video(launder=True),
}


def draw(seed: int, fields: int, order: str) -> np.ndarray:
    """Moving content, uint8 (T, H, W); with two fields a frame, each from its own moment."""
    from scipy.ndimage import gaussian_filter, shift

    rng = np.random.default_rng(seed)
    moments = FRAMES * fields
    margin = 48

    def texture(height: int, width: int) -> np.ndarray:
        noise = (rng.normal(size=(height, width)).astype(np.float32) for _ in range(3))
        return 20 * sum(side * gaussian_filter(each, side) for side, each in zip((1, 3, 9), noise, strict=True))

    def path(scale: float) -> np.ndarray:
        turns = np.arange(moments) / (fields * 2 * FPS)
        parts = zip(rng.uniform(0.3, 1, 3), rng.uniform(0.2, 1, 3), rng.uniform(0, 1, 3), strict=True)
        return scale * sum(size * np.sin(2 * np.pi * (turns * rate + phase)) for size, rate, phase in parts)

    ground, patch = texture(HEIGHT + 2 * margin, WIDTH + 2 * margin), texture(64, 64)
    (left, top), (right, down) = (path(6), path(6)), (path(50), path(30))
    shown = np.empty((moments, HEIGHT, WIDTH), np.float32)
    for at in range(moments):
        y, x = margin + top[at], margin + left[at]
        cut = ground[int(y) - 1 : int(y) + HEIGHT + 1, int(x) - 1 : int(x) + WIDTH + 1]
        shown[at] = shift(cut, (-(y % 1), -(x % 1)), order=1, mode="nearest")[1:-1, 1:-1] + 120
        y, x = (
            int(np.clip(HEIGHT / 2 - 32 + down[at], 0, HEIGHT - 64)),
            int(np.clip(WIDTH / 2 - 32 + right[at], 0, WIDTH - 64)),
        )
        shown[at, y : y + 64, x : x + 64] = patch + 130
    shown += rng.normal(scale=rng.uniform(1, 4), size=shown.shape)
    frames = shown.clip(0, 255).astype(np.uint8)
    if fields == 1:
        return frames
    woven, later = frames[0::2].copy(), int(order == "tff")  # which lines show the second moment
    woven[:, later::2] = frames[1::2][:, later::2]
    return woven


def store(frames: np.ndarray, kind: Format, path: Path) -> None:
    raw = f"-f rawvideo -pix_fmt gray -s {WIDTH}x{HEIGHT} -r {kind.fps} -i -"
    pixels = "" if "pix_fmt" in kind.options or kind.suffix in ("gif",) else "-pix_fmt yuv420p"
    command = [executable(), "-y", "-loglevel", "error", *raw.split(), "-vf", kind.filters, *pixels.split()]
    done = subprocess.run([*command, *kind.options.split(), str(path)], input=frames.tobytes(), capture_output=True)
    if done.returncode:
        raise SystemExit(f"{kind}: {done.stderr.decode()[-400:]}")


def measure(seed: int, names: Iterable[str]) -> list[dict[str, Any]]:
    """A row per format, remedy and direction of one clip."""
    rows, drawn = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in names:
            form = FORMATS[kind]
            key = (form.fields, form.order)
            if key not in drawn:
                drawn[key] = draw(seed, *key)
            path = folder / f"source.{form.suffix}"
            store(drawn[key], form, path)
            for remedy, settings in REMEDIES.items():
                if remedy == "none" and "interlaced" not in kind and kind != "telecine":
                    continue  # it is the same as what is set
                began = time.process_time(), children_seconds()
                report = transcode_clip(path, folder / "a.mp4", folder / "a_rev.mp4", settings)
                between = time.process_time(), children_seconds()
                what = {"format": kind, "remedy": remedy, "clip": seed, "status": report.status, "note": report.reason}
                row = {
                    "item_id": "a",
                    "source": str(path),
                    "scan": report.scan,
                    "twin": report.twin,
                    "reversed_source": "",
                }
                if report.status == "ok":
                    found = measure_clip(row | {"sha256": sha256_of(folder / "a.mp4")}, folder, settings)
                    seconds = {
                        "transcoding": sum(between) - sum(began),
                        "traces": time.process_time() + children_seconds() - sum(between),
                    }
                    rows += [what | seconds | traces | {"reversed": at} for at, traces in enumerate(found)]
                else:
                    rows.append(what)
    return rows


def children_seconds() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each format and remedy: :data:`COLUMNS`."""
    found = []
    for (kind, remedy), part in rows.groupby(["format", "remedy"], sort=False):
        usable = part[part["status"] == "ok"].sort_values(["reversed", "clip"])
        row = {"format": kind, "remedy": remedy, "clips": part["clip"].nunique(), "usable": usable["clip"].nunique()}
        if row["usable"] >= 2 * FOLDS:
            for view in VIEWS:
                values = usable[[name for name in usable if name.startswith(f"{view}.")]].to_numpy(float)
                told = cross_validated(*np.split(values, 2), 0.95)
                name = "own" if view == "source" else view
                row |= {name: told["estimate"], f"{name}_low": told["low"], f"{name}_high": told["high"]}
        seconds = {name: usable[name].mean() for name in ("transcoding", "traces")}
        found.append(row | seconds | {"note": part["note"].mode().iloc[0]})
    return pd.DataFrame(found, columns=list(COLUMNS))


def table_text(table: pd.DataFrame) -> str:
    """Markdown: a row for each format and remedy."""
    heads = ("source", "remedy", "clips", "as models see it", "at its own size", "note")
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    for row in table.itertuples():
        seen = f"{row.seen:.0f} [{row.seen_low:.0f}, {row.seen_high:.0f}]"
        own = f"{row.own:.0f} [{row.own_low:.0f}, {row.own_high:.0f}]" if row.remedy != "launder" else ""
        note = row.note if isinstance(row.note, str) else ""  # an empty cell is read as NaN
        lines.append(f"| {row.format} | {row.remedy} | {row.usable} | {seen} | {own} | {note} |")
    return "\n".join(lines)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print (``python tools/publish artefacts``)."""
    spent = table.loc[table["remedy"] == "as set", ["transcoding", "traces"]].mean()
    return {
        "table": table_text(table),
        "transcoding": f"{spent['transcoding']:.2f}",
        "traces": f"{spent['traces']:.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=200)
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--add", action="store_true", help="keep the rows of other formats that --out has")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/artefacts.csv"))
    options = parser.parse_args()
    progress, rows = Progress("drawn", options.clips, "clips"), []
    with ProcessPoolExecutor(options.cores) as pool:
        for part in pool.map(partial(measure, names=options.formats), range(options.clips)):
            rows += part
            progress.advance()
    table = summarise(pd.DataFrame(rows))
    if options.add:
        before = pd.read_csv(options.out)
        table = pd.concat([before[~before["format"].isin(options.formats)], table], ignore_index=True)
    write_csv(options.out, table)
    print(table_text(pd.read_csv(options.out)))


if __name__ == "__main__":
    main()
