"""Traces in a clip's frames that tell its direction and show nothing: of fields, coding, brightness, repeated frames.

Frames of a clip and of its twin are the same, so only their order can tell the two apart, and it does wherever a camera
or an encoder worked forward in time: an interlaced frame holds two moments, the later in the lines of one parity; a
predicted frame copies the noise of the one before it, until a key frame makes the picture sharp again at once.

A trace is a series, one number a frame or a pair of neighbouring frames, and is measured on brightness alone, in one
cut-out at the source's own size. Its features are numbers that change their sign when the series is reversed (its
skewness above all: slow decay and sudden rise), so that a clip that equals its twin has none of them.

Wei et al. (Learning and Using the Arrow of Time, CVPR 2018) found that classifiers of the direction learn coding first,
and trained on intra-coded film; Ramsey and Rothman (Time Irreversibility and Business Cycle Asymmetry, 1996) test
series by such third moments.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ffmpeg
import numpy as np
import pandas as pd

from rewind.config.dataset import Video
from rewind.data.annotations import twin_of
from rewind.data.captions import USABLE_STATUS
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.io.files import read_csv, write_csv
from rewind.progress import track
from rewind.video.ffmpeg import input_stream, run_ffmpeg, time_limit
from rewind.video.frames import open_frames
from rewind.video.repair import SourceFormat, inspect_source, repair_scan

# ---- Series and features -------------------------------------------------------------------------------------------

MAX_FRAMES = 96
"""Most frames that are looked at, from the clip's start: four key frames of a coder that writes one every 24."""
MAX_WIDTH, MAX_HEIGHT = 224, 160
"""Largest cut-out, from the middle of the frame: sides are multiples of 16, and so is where it begins."""

Series = dict[str, np.ndarray]
"""Name of a trace → one number a frame, or a pair of neighbouring frames; of ``energy`` one a block too."""

FAMILIES = ("interlacing", "coding", "brightness", "duplicates")
"""Kinds of traces; the part of a feature's name before its first full stop."""

MAX_SOURCES = 2000
"""Most sources of a data set that are measured at their own size, which is the most work: ±2 percent points.

They are drawn by hashes of their ids.
"""

_BLOCK, _TRANSFORM = 16, 8
"""Sides of the blocks in which energy is measured, and of the transform whose edges show as blocking."""
_QUIET = 1.0
"""Added to energies, in squared steps of brightness: below it, noise is that of rounding to 8 bits."""


def measure_series(frames: np.ndarray) -> Series:
    """The series of a clip, from ``frames`` uint8 (T, H, W), whose first line is even in the source.

    >>> series = measure_series(np.zeros((3, 32, 32), np.uint8))
    >>> series["brightness"].shape, series["copied"].shape, series["energy"].shape
    ((3,), (2,), (3, 4))
    """
    if 0 in frames.shape:
        frames = np.zeros((1, _BLOCK, _BLOCK), np.uint8)
    single: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    before = None
    for frame in frames:  # one by one: what a frame takes stays in the processor's cache
        shown = frame.astype(np.float32)
        residual = _high_pass(shown)
        single.append(_of_frame(shown, residual))
        if before is not None:
            pairs.append(_of_pair(*before, shown, residual))
        before = shown, residual
    series = {name: np.array([values[name] for values in single]) for name in single[0]}
    for name in PAIR_SERIES:
        series[name] = np.array([values[name] for values in pairs], np.float32)
    return series


def _of_frame(shown: np.ndarray, residual: np.ndarray) -> dict[str, Any]:
    energy = _block_means((residual * residual)[None])[0] + _QUIET
    return {
        "brightness": shown.mean(),
        "sharpness": np.log(energy.mean()),
        "energy": np.log(energy),
        "blocking": _blocking(shown),
    }


PAIR_SERIES = ("copied", "same", "change", "odd_to_even", "even_to_odd")


def _of_pair(first: np.ndarray, noise: np.ndarray, second: np.ndarray, later_noise: np.ndarray) -> dict[str, Any]:
    change = np.abs(second - first)
    power = (np.vdot(noise, noise) / noise.size + _QUIET) * (np.vdot(later_noise, later_noise) / noise.size + _QUIET)
    return {
        # The correlation of residuals, 1 where the later frame copies the earlier one's noise.
        "copied": np.vdot(noise, later_noise) / noise.size / np.sqrt(power),
        "same": np.count_nonzero(change <= 1) / change.size,
        "change": change.mean(),
        # Lines of one parity against lines of the other in the next frame: where the odd lines are the later moment,
        # they are one field before the next frame's even lines, and the even ones three before its odd lines.
        "odd_to_even": np.abs(first[1::2] - second[0::2]).mean(),
        "even_to_odd": np.abs(first[0::2] - second[1::2]).mean(),
    }


def _high_pass(shown: np.ndarray) -> np.ndarray:
    """Each pixel of (H, W) minus the mean of its neighbours on the same line: fields do not show in it."""
    residual = np.zeros_like(shown)
    residual[:, 1:-1] = shown[:, 1:-1] - (shown[:, :-2] + shown[:, 2:]) / 2
    return residual


def _block_means(values: np.ndarray, side: int = _BLOCK) -> np.ndarray:
    """(T, H, W) → (T, blocks)."""
    count, height, width = values.shape
    rows, columns = height // side, width // side
    cut = values[:, : rows * side, : columns * side].reshape(count, rows, side, columns, side)
    return cut.mean(axis=(2, 4)).reshape(count, rows * columns)


def _blocking(shown: np.ndarray) -> float:
    """Log of how much larger steps between columns of (H, W) are at edges of a transform's blocks than elsewhere."""
    steps = np.abs(shown[:, 1:] - shown[:, :-1]).mean(axis=0)
    at_edge = np.arange(1, shown.shape[1]) % _TRANSFORM == 0
    return float(np.log((steps[at_edge].mean() + 0.5) / (steps[~at_edge].mean() + 0.5)))


def reverse_series(series: Series) -> Series:
    """The series of the clip with its frames in opposite order, bit for bit."""
    turned = {name: values[::-1] for name, values in series.items()}
    return turned | {"odd_to_even": turned["even_to_odd"], "even_to_odd": turned["odd_to_even"]}


def trace_features(series: Series) -> dict[str, float]:
    """Features of a clip by name, ``<family>.<trace>``; all are 0 for a clip that equals its twin."""
    fields = series["odd_to_even"], series["even_to_odd"]
    both = fields[0].sum() + fields[1].sum()
    repeated = _repeated(series["change"])
    return {
        "interlacing.parity": float((fields[1].sum() - fields[0].sum()) / both) if both else 0.0,
        "coding.sharpness": skewness(np.diff(series["sharpness"])),
        "coding.sharpness_jump": jump(np.diff(series["sharpness"])),
        "coding.energy": skewness(np.diff(series["energy"], axis=0)),
        "coding.energy_jump": jump(np.diff(series["energy"], axis=0)),
        "coding.blocking": skewness(np.diff(series["blocking"])),
        "coding.blocking_jump": jump(np.diff(series["blocking"])),
        "coding.copied": skewness(np.diff(series["copied"])),
        "coding.copied_jump": jump(np.diff(series["copied"])),
        "coding.same": skewness(np.diff(series["same"])),
        "brightness.drift": drift(series["brightness"]),
        "brightness.change": skewness(np.diff(series["brightness"])),
        "brightness.sharpness_drift": drift(series["sharpness"]),
        "duplicates.where": float((repeated * np.linspace(-1, 1, len(repeated))).sum() / max(1, repeated.sum())),
        "duplicates.same_drift": drift(series["same"]),
    }


def trace_names() -> list[str]:
    """Names of the features, in order."""
    return list(trace_features(measure_series(np.zeros((0, 0, 0), np.uint8))))


def skewness(values: np.ndarray) -> float:
    """Third moment about 0 of all values by their second: 0 if rises are like falls. Its sign is the direction's."""
    spread = float(np.mean(values**2, dtype=np.float64)) if values.size else 0.0
    return float(np.mean(values.astype(np.float64) ** 3) / (spread**1.5)) if spread > 1e-12 else 0.0


def jump(values: np.ndarray) -> float:
    """How much more often than not steps are falls, from -1 to 1: few large rises are made up by many small falls."""
    return float(-np.mean(np.sign(values))) if values.size else 0.0


def drift(values: np.ndarray) -> float:
    """Correlation of a series with time."""
    time = np.linspace(-1, 1, len(values))
    centred = values - values.mean() if len(values) else values
    norm = float(np.sqrt((centred**2).sum() * (time**2).sum()))
    return float((centred * time).sum() / norm) if norm > 1e-9 else 0.0


def _repeated(change: np.ndarray) -> np.ndarray:
    return (change < 0.1 * np.median(change)).astype(float) if len(change) else change


# ---- What is the same in both directions ---------------------------------------------------------------------------

_SENSITIVITY_BLOCK = 8
_LEVELS = 255


def time_sensitivity(frames: np.ndarray) -> float:
    """How far a clip is from its own mirror: mean difference of brightness, in percent of its range.

    Frame t is compared with frame T − 1 − t of ``frames`` uint8 (T, H, W), after a mean over 8 × 8 pixels, which leaves
    out noise. 0 for a clip that equals its twin. Arrow-of-Time's Temporal Divergence Score (arXiv 2506.03340) compares
    a model's answers instead, and so is a property of models.

    >>> frames = np.zeros((2, 16, 16), np.uint8)
    >>> frames[1] = 51
    >>> time_sensitivity(frames)
    20.0
    """
    means = _block_means(frames.astype(np.float32), _SENSITIVITY_BLOCK)
    return float(100 * np.abs(means - means[::-1]).mean() / _LEVELS) if means.size else 0.0


_CUT_STEP, _CUT_FACTOR = 20.0, 6.0  # mean change of brightness at a cut, and by how much it exceeds the median
_BLACK, _FADED = 24, 0.5  # brightness of borders at most, and of a faded end as a part of the clip's median


def clip_facts(frames: np.ndarray) -> dict[str, float]:
    """Cuts, black borders (percent of the lines of either side) and fades from or to black, of uint8 (T, H, W)."""
    change = np.abs(np.diff(frames.astype(np.float32), axis=0)).mean(axis=(1, 2))
    cuts = (change > np.maximum(_CUT_STEP, _CUT_FACTOR * np.median(change))).sum() if len(change) else 0
    brightest = frames.max(axis=0)
    borders = [_dark_ends(brightest.max(axis=axis)) for axis in (0, 1)]
    level = frames.mean(axis=(1, 2))
    faded = [end < _BLACK and end < _FADED * np.median(level) for end in (level[0], level[-1])]
    return {"cuts": int(cuts), "borders": round(100 * max(borders), 1), "fades": int(sum(faded))}


def _dark_ends(brightest: np.ndarray) -> float:
    """Share of lines that are dark in all frames from either end on; a clip that is dark everywhere has no border."""
    shown = np.flatnonzero(brightest > _BLACK)
    return 1 - (shown[-1] - shown[0] + 1) / len(brightest) if len(shown) else 0.0


# ---- Reading frames ------------------------------------------------------------------------------------------------

_HEADER = re.compile(rb"YUV4MPEG2 W(\d+) H(\d+)[^\n]*\n")
_FRAME_MARK = b"FRAME\n"
_KEY_FRAME = re.compile(r"showinfo.*\biskey:(\d)")
_SIDE = 16  # cut-outs begin at, and are, multiples of it, so that a coder's blocks are where they are in the frame


def read_source(path: Path, scan: str, settings: Video) -> tuple[np.ndarray, list[int]]:
    """Brightness of the first :data:`MAX_FRAMES` frames of a source, uint8 (T, H, W), and which are key frames.

    Fields are repaired as for the normalised clip; colours and size are the source's own. Nothing, (0, 0, 0), for a
    source that is smaller than one block.
    """
    clip = input_stream(path, settings.max_seconds).filter("showinfo", checksum=0)
    clip = repair_scan(clip, SourceFormat(scan=scan), settings)
    size = {name: f"max({_SIDE},min({side},{own})-mod(min({side},{own}),{_SIDE}))" for name, side, own in _CUT_OUT}
    where = {
        axis: f"trunc(({own}-out_{name})/2/{_SIDE})*{_SIDE}" for axis, name, own in (("x", "w", "iw"), ("y", "h", "ih"))
    }
    clip = clip.filter("crop", **size, **where).filter("format", "gray")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "frames.y4m"
        options = {"f": "yuv4mpegpipe", "strict": -1, "frames:v": MAX_FRAMES, "fps_mode": "passthrough"}
        # Errors do not stop it: a source that lost its damaged end has frames before that.
        written = ffmpeg.output(clip, f"file:{target}", **options)
        outcome = run_ffmpeg(written, time_limit(settings.max_seconds), stop_at_errors=False)
        frames = _read_y4m(target.read_bytes() if target.is_file() else b"")
    keys = [int(match[1]) for line in outcome.messages if (match := _KEY_FRAME.search(line))]
    return frames, keys[: len(frames)]


_CUT_OUT = (("w", MAX_WIDTH, "iw"), ("h", MAX_HEIGHT, "ih"))


def _read_y4m(content: bytes) -> np.ndarray:
    """The frames of a YUV4MPEG2 file of grey pictures; (0, 0, 0) without any."""
    header = _HEADER.match(content)
    if header is None:
        return np.zeros((0, 0, 0), np.uint8)
    width, height = int(header[1]), int(header[2])
    each = len(_FRAME_MARK) + width * height
    body = np.frombuffer(content, np.uint8, offset=header.end())
    count = len(body) // each
    return body[: count * each].reshape(count, each)[:, len(_FRAME_MARK) :].reshape(count, height, width)


def read_shown(path: Path) -> np.ndarray:
    """Brightness of the first :data:`MAX_FRAMES` frames of a normalised clip, uint8 (T, H, W)."""
    reader = open_frames(path)
    red, green, blue = np.moveaxis(reader.read(range(min(len(reader), MAX_FRAMES))).astype(np.uint16), -1, 0)
    return ((2 * red + 5 * green + blue) // 8).astype(np.uint8)  # BT.601's weights, to an eighth


def cut_out(frames: np.ndarray) -> np.ndarray:
    """The middle of frames (T, H, W), as :func:`read_source` takes it."""
    height, width = (
        (min(most, own) // _SIDE or 1) * _SIDE
        for most, own in zip((MAX_HEIGHT, MAX_WIDTH), frames.shape[1:], strict=True)
    )
    top, left = (
        (own - size) // 2 // _SIDE * _SIDE for own, size in zip(frames.shape[1:], (height, width), strict=True)
    )
    return frames[:, max(top, 0) : max(top, 0) + height, max(left, 0) : max(left, 0) + width]


# ---- The table of a data set ---------------------------------------------------------------------------------------

VIEWS = ("seen", "source")
"""Where traces are measured: in the normalised clip, as models see it, and at the source's own size and rate."""


def make_traces(
    inventory: str, report: str, folder: Path, settings: Video, code: str, workers: int, result: str
) -> None:
    """Write the traces of every usable clip and twin, a row each, in the order of ids.

    Of more than :data:`MAX_SOURCES` clips, the others have empty columns for what is measured in the source.
    A killed call goes on with the next clip: finished ones are noted in ``folder/.state``, by the hash of the
    normalised clip, which decides what was measured.
    """
    listed = read_csv(inventory, text=("source", "reversed_source")).set_index("item_id")
    usable = read_csv(report, text=("scan",))
    usable = usable[usable["status"] == USABLE_STATUS].join(listed[["source", "reversed_source"]], on="item_id")
    done = _Finished(
        folder / ".state" / "traces.jsonl", stable_hash(code, settings.fingerprint("data", exclude={"shards"}))
    )

    drawn = set(sorted(usable["item_id"], key=stable_hash)[:MAX_SOURCES])

    def measure(row: dict[str, Any]) -> list[dict[str, Any]]:
        views = VIEWS if row["item_id"] in drawn else ("seen",)
        clip = f"{row['item_id']} {row['sha256']} {' '.join(views)}"
        return done.find(clip) or done.keep(clip, measure_clip(row, folder, settings, views))

    rows = usable.sort_values("item_id", kind="stable").to_dict("records")
    with ThreadPoolExecutor(workers) as pool:
        measured = [row for rows_of in track(pool.map(measure, rows), "traces", len(rows), "clips") for row in rows_of]
    write_csv(result, pd.DataFrame(measured, columns=list(max(measured, key=len, default=["item_id"]))))
    done.forget()


def measure_clip(
    row: Mapping[str, Any], folder: Path, settings: Video, views: Sequence[str] = VIEWS
) -> list[dict[str, Any]]:
    """The rows of a clip and of its twin, if it has one: features of the views, and facts that need frames."""
    item = str(row["item_id"])
    shown = read_shown(folder / f"{item}.mp4")
    facts = {"time_sensitivity": round(time_sensitivity(shown), 3), **clip_facts(shown)}
    series = {"seen": measure_series(cut_out(shown))}
    if "source" in views:
        frames, keys = read_source(Path(row["source"]), row.get("scan") or "", settings)
        series["source"] = measure_series(frames)
        repeated = round(100 * float(_repeated(series["source"]["change"]).mean()), 1) if len(frames) > 1 else 0.0
        facts |= {"key_interval": _key_interval(keys), "repeated": repeated}
    rows = [{"item_id": item, **facts, **_features(series)}]
    if row["twin"] == "made":
        turned = {view: reverse_series(of_view) for view, of_view in series.items()}
    elif row["twin"] == "mapped":
        turned = {"seen": measure_series(cut_out(read_shown(folder / f"{twin_of(item)}.mp4")))}
        if "source" in views:
            path = Path(row["reversed_source"])
            turned["source"] = measure_series(read_source(path, inspect_source(path, settings).scan, settings)[0])
    else:
        return rows
    return [*rows, {"item_id": twin_of(item), **facts, **_features(turned)}]


def _features(series: Mapping[str, Series]) -> dict[str, float]:
    return {f"{view}.{name}": value for view in series for name, value in trace_features(series[view]).items()}


def _key_interval(keys: list[int]) -> int:
    """Frames from one key frame to the next, the median; 0 where only one is seen."""
    at = np.flatnonzero(keys)
    return int(np.median(np.diff(at))) if len(at) > 1 else 0


class _Finished:
    """Clips that an earlier call measured with the same code and settings, a line of JSON each."""

    def __init__(self, path: Path, version: str) -> None:
        self.path, self.version, self.lock = path, version, threading.Lock()
        self.rows: dict[str, list[dict[str, Any]]] = {}
        with contextlib.suppress(OSError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):  # a kill may leave half a line
                    note = json.loads(line)
                    if note["version"] == version:
                        self.rows[note["clip"]] = note["rows"]

    def find(self, clip: str) -> list[dict[str, Any]] | None:
        return self.rows.get(clip)

    def keep(self, clip: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        note = json.dumps({"version": self.version, "clip": clip, "rows": rows})
        with self.lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{note}\n")
        return rows

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


def read_traces(path: str | Path, view: str) -> tuple[list[str], np.ndarray, list[str]]:
    """Ids of clips and twins that have them, features (n, F) of one view, and the features' names without it.

    Raises:
        RewindError: for a table without such features.
    """
    table = read_csv(path, text=("item_id",))
    names = [name for name in table if name.startswith(f"{view}.")]
    if not names:
        raise RewindError(f"{path}: no column {view}.…; delete it and run again.")
    table = table.dropna(subset=names)
    return table["item_id"].tolist(), table[names].to_numpy(float), [name.removeprefix(f"{view}.") for name in names]


def family_columns(names: list[str]) -> Iterator[tuple[str, list[int]]]:
    """Each family of traces, and the places of its features."""
    for family in FAMILIES:
        yield family, [at for at, name in enumerate(names) if name.startswith(f"{family}.")]
