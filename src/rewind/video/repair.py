"""What a source is before it is normalised, and what is repaired: interlaced and telecined scan, HDR and wide colours.

``read_source_format`` reads the source from ffmpeg's messages, ``repair_scan`` and ``repair_colours`` repair its
frames, and ``repair_note`` says so in the report. What a file states about its scan is often wrong, so that is measured
(``sample_scan``); what it states about its colours cannot be measured, and is believed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ffmpeg
import numpy as np
import pandas as pd

from rewind.config.dataset import Video
from rewind.errors import RewindError
from rewind.platform import FFMPEG_REMEDY
from rewind.video.ffmpeg import available_filters, input_stream, run_ffmpeg, time_limit

# ---- What the header says ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceFormat:
    """A source's pictures, as ffmpeg's header states them; empty or 0 where it does not."""

    codec: str = ""  # ffmpeg's name, as are the next three and the matrix
    pixel_format: str = ""
    transfer: str = ""
    primaries: str = ""
    matrix: str = ""
    bit_depth: int = 0  # bits of a sample
    field_order: str = ""  # as flagged, in ffmpeg's words
    has_sound: bool = False
    scan: str = ""  # measured: progressive, or interlaced or telecine and its first field (tff, bff); empty: not known


# "Video: h264 (High) (avc1 / 0x31637661), yuv420p(tv, bt709, bottom coded first (swapped))": any number of brackets
# between codec and pixels, and one of what is known about these.
_PICTURES = re.compile(r"Video: (\w+)(?: \([^()]*\))*, (\w+)(?:\(((?:[^()]|\([^()]*\))*)\))?")
_FIELD_ORDER = re.compile(r"progressive|(?:top|bottom) (?:coded )?first(?: \(swapped\))?")
# As in yuv420p10le, gray12be, p010le, rgb48le (of three samples), x2rgb10le. Other names have numbers too, of 8 bits.
_DEEP_SAMPLES = re.compile(r"(?:[a-z]|[py][024])(9|10|12|14|16|48|64)(?:le|be)$")
_DEEP_PIXELS = {48: 16, 64: 16}


def read_source_format(messages: Iterable[str]) -> SourceFormat:
    """The first video stream of ffmpeg's log, and its scan where :func:`sample_scan` measured it.

    >>> line = "  Stream #0:0: Video: hevc (Main 10), yuv420p10le(tv, bt2020nc/bt2020/smpte2084), 64x48, 25 fps"
    >>> source = read_source_format([line])
    >>> source.codec, source.bit_depth, source.matrix, source.primaries, source.transfer
    ('hevc', 10, 'bt2020nc', 'bt2020', 'smpte2084')
    """
    messages, source = list(messages), SourceFormat()
    for line in messages:
        if "Stream mapping:" in line or "Output #0" in line:  # from here on the log is about the output
            break
        if "Stream #" in line and "Audio:" in line:
            source = replace(source, has_sound=True)
        if "Stream #" not in line or "(attached pic)" in line or source.codec:
            continue
        if match := _PICTURES.search(line):
            source = _read_pictures(replace(source, codec=match[1], pixel_format=match[2]), match[3] or "")
    return replace(source, scan=_measured_scan(source, messages)) if _may_be_interlaced(source) else source


def _read_pictures(source: SourceFormat, details: str) -> SourceFormat:
    depth = _DEEP_SAMPLES.search(source.pixel_format)
    bits = int(depth[1]) if depth else 8
    source = replace(source, bit_depth=_DEEP_PIXELS.get(bits, bits))
    for detail in details.split(", "):
        if _FIELD_ORDER.fullmatch(detail):
            source = replace(source, field_order=detail)
        elif detail not in ("", "tv", "pc", "unknown") and re.fullmatch(r"[a-z]\S*", detail):
            # matrix/primaries/transfer, or one name where all three have the same.
            names = detail.split("/") if detail.count("/") == 2 else [detail] * 3
            matrix, primaries, transfer = ("" if name in ("unknown", "reserved") else name for name in names)
            source = replace(source, matrix=matrix, primaries=primaries, transfer=transfer)
    return source


# ---- Interlaced and telecined sources ------------------------------------------------------------------------------
# idet compares each line with its neighbours in this frame (weave) and in those before and after. A frame is called
# interlaced if one order of fields fits better than the other by a factor, and fits about as well as the weave: in a
# progressive frame the weave fits best. A clip is, if a tenth of its frames are and nine in ten of these agree on the
# order. idet's verdict on several frames is not used: it sticks to the first one.
#
# Measured on 114 progressive drawn clips (test patterns, fractals, noise, stills, panned textures, and 88 of stripes 2
# to 12 lines wide that move by 0.5 to 5 lines a frame), each coded twice (crf 12 and 30), on all their frames: by the
# order alone with idet's own factor, 1.04, 28 of the 228 were called interlaced, with 1.2 four: stripes 8 and 12 lines
# wide that move by two, which look like this. In a short part of a test pattern one order may win by 1.2 too; the
# weave tells it apart. Interlaced clips with slow or coarsely coded motion reach only 1.1, so where the file is flagged
# as interlaced less evidence is needed.

_FLAGGED_FACTOR, _UNFLAGGED_FACTOR = 1.07, 1.2
_WEAVE_FACTOR = 1.5  # lines of other frames fit worse than the frame's own by more: progressive
_NEVER = 1e9  # a factor that no order of fields reaches, so that only the weave is judged
_REPEAT_FACTOR = 1.3  # a field differs from that before less than the other field does; idet's 3 misses coded film
_MIN_INTERLACED, _MIN_AGREEING = 0.1, 0.9  # shares of the frames, and of those called interlaced
_MIN_FRAMES = 3
# Frames in a row, and from the start of one row to the next: each row holds three periods of a 3:2 pulldown besides
# its first and last frame, whose neighbours are others than in the clip. Looking at more columns, or frames, costs
# more: with these, a clip of 12 s takes 5% more CPU time at 1920x1080 (90 ms), 10% at 640x360 (36 ms) and 11% at
# 320x240 (25 ms).
_ROW, _ROW_EVERY, _COLUMNS = 17, 100, 480
_PULLDOWN = 5  # frames
# Of each frame its number and then the verdict, which may be lost among other threads' lines.
_VERDICT = re.compile(r"\[metadata@(\w+) @ \w+\] \[info\] (?:frame:(\d+) |lavfi\.idet\.\w+\.current_frame=(\w+))")
# Nothing interlaced is stored as RGB or as a palette; nor are animations, whatever their pixels.
_PROGRESSIVE_PIXELS = re.compile(r"(yuvj?a?444|rgb|bgr|gbr|argb|abgr|0rgb|0bgr|x2rgb|x2bgr|pal8|gray|mono|ya\d)")
_ANIMATIONS = ("gif", "webp", "webp_anim", "apng", "png")


def can_sample_scan() -> bool:
    """Whether this ffmpeg can measure the scan."""
    return {"idet", "metadata", "crop", "select"} <= available_filters()


def sample_scan(clip: Any) -> Any:
    """An ffmpeg-python output that writes nothing and logs what idet finds in a sample of the frames of ``clip``."""
    clip = clip.filter("select", f"lt(mod(n,{_ROW_EVERY}),{_ROW})")
    clip = clip.filter("crop", f"min(iw,{_COLUMNS})", "ih")  # all lines of a part of the columns
    # scale: without it ffmpeg might convert the clip before it is split, and so change pixels of the other branch.
    clip = clip.filter("scale").filter("format", "gray")
    clip = _log_verdicts(clip, "flagged", intl_thres=_FLAGGED_FACTOR, rep_thres=_REPEAT_FACTOR)
    clip = clip.filter("metadata@repeated", mode="print", key="lavfi.idet.repeated.current_frame")
    clip = _log_verdicts(clip, "unflagged", intl_thres=_UNFLAGGED_FACTOR)
    # idet judges the weave by the lines that fit if the top field is first; a line further down, if the bottom one is.
    clip = _log_verdicts(clip, "tff", intl_thres=_NEVER, prog_thres=_WEAVE_FACTOR)
    clip = clip.filter("crop", "iw", "ih-2", "0", "1")
    clip = _log_verdicts(clip, "bff", intl_thres=_NEVER, prog_thres=_WEAVE_FACTOR)
    # map_metadata: a title would be logged once more, and might read like a message.
    return ffmpeg.output(clip, "-", f="null", fps_mode="passthrough", map_metadata=-1)


def _log_verdicts(clip: Any, name: str, **factors: float) -> Any:
    # The name after @ is how the log names the filter.
    clip = clip.filter("idet", **factors)
    return clip.filter(f"metadata@{name}", mode="print", key="lavfi.idet.single.current_frame")


def _may_be_interlaced(source: SourceFormat) -> bool:
    return source.codec not in _ANIMATIONS and not _PROGRESSIVE_PIXELS.match(source.pixel_format)


def _measured_scan(source: SourceFormat, messages: Iterable[str]) -> str:
    """The scan by what :func:`sample_scan` logged."""
    verdicts = _read_verdicts(messages)
    if parity := _telecine_parity(verdicts["repeated"]):
        return f"telecine {parity}"
    flagged = source.field_order not in ("", "progressive")
    judged = [
        "progressive" if order in ("tff", "bff") and verdicts[order][at] == "progressive" else order
        for at, order in enumerate(verdicts["flagged" if flagged else "unflagged"])
    ]
    frames = [verdict for row in _rows(judged) for verdict in row]
    counts = Counter(frames)
    parity = max("tff", "bff", key=lambda order: counts[order])
    interlaced = counts["tff"] + counts["bff"]
    enough = interlaced >= max(_MIN_FRAMES, _MIN_INTERLACED * len(frames))
    if enough and counts[parity] >= _MIN_AGREEING * interlaced:
        return f"interlaced {parity}"
    return "progressive" if counts["progressive"] else ""  # of stills and noise nothing can be said


def _read_verdicts(messages: Iterable[str]) -> dict[str, list[str]]:
    """What each of the filters said of each frame; empty where that is not known."""
    said: dict[str, dict[int, str]] = {name: {} for name in ("flagged", "unflagged", "repeated", "tff", "bff")}
    frame = dict.fromkeys(said, -1)
    for name, number, verdict in (match.groups() for match in map(_VERDICT.match, messages) if match):
        if number:
            frame[name] = int(number)
        elif frame[name] >= 0:
            said[name][frame[name]] = verdict
            frame[name] = -1
    length = max((max(found, default=-1) for found in said.values()), default=-1) + 1
    return {name: [found.get(at, "") for at in range(length)] for name, found in said.items()}


def _rows(verdicts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Frames that follow each other in the clip, without those at the ends, whose neighbours do not."""
    for start in range(0, len(verdicts), _ROW):
        yield verdicts[start : start + _ROW][1:-1]


def _telecine_parity(repeated: Sequence[str]) -> str:
    """The first field of a 3:2 pulldown: in every five frames one repeats a top field and one a bottom field.

    Empty for anything else. Of film shown with the top field first, the bottom field repeats two frames after the top
    one, else three.
    """
    found: Counter[str] = Counter()
    for row in _rows(repeated):
        phases = [{at % _PULLDOWN for at, field in enumerate(row) if field == name} for name in ("top", "bottom")]
        if min(row.count("top"), row.count("bottom")) >= 2 and len(phases[0]) == len(phases[1]) == 1:
            found[{2: "tff", 3: "bff"}.get((phases[1].pop() - phases[0].pop()) % _PULLDOWN, "none")] += 1
        elif any(phases):
            found["none"] += 1
    parity = max(("tff", "bff"), key=lambda order: found[order])
    return parity if found[parity] > sum(found.values()) / 2 else ""


def repair_scan(clip: Any, source: SourceFormat, settings: Video) -> Any:
    """Filters that make whole pictures of fields. They need all frames of the source."""
    kind, _, parity = source.scan.partition(" ")
    if settings.deinterlace == "never" or kind not in ("interlaced", "telecine"):
        return clip
    if kind == "interlaced":
        # send_frame: one picture of each frame, at the time of its first field. deint: whatever its flag says.
        return clip.filter("bwdif", mode="send_frame", parity=parity, deint="all")
    # fieldmatch joins fields of one picture of the film, and flags frames in which that leaves combing (at cuts);
    # only these are deinterlaced. Of five frames, decimate then drops the one that is there twice.
    clip = clip.filter("fieldmatch", order=parity, combmatch="full")
    return clip.filter("bwdif", mode="send_frame", parity=parity, deint="interlaced").filter("decimate")


# ---- HDR and wide colours ------------------------------------------------------------------------------------------

_HDR = {"smpte2084": "PQ", "arib-std-b67": "HLG"}
_WHITE_NITS = 100  # what becomes white
_COLOUR_FILTERS = ("zscale", "tonemap")


def _is_wide(source: SourceFormat) -> bool:
    return source.primaries == "bt2020" and source.transfer not in _HDR


def repair_colours(clip: Any, source: SourceFormat) -> Any:
    """Filters that bring HDR and BT.2020 to BT.709 as RGB of 8 bits. They look at one frame at a time."""
    if source.transfer not in _HDR and not _is_wide(source):
        return clip
    # What the header leaves out is what goes with these, and other filters lose what it says: zscale converts nothing
    # from or to unknown colours.
    clip = clip.filter(
        "setparams",
        color_trc=source.transfer or "bt709",
        color_primaries=source.primaries or "bt2020",
        colorspace=source.matrix or "bt2020nc",
    )
    clip = clip.filter("zscale", t="linear", npl=_WHITE_NITS).filter("format", "gbrpf32le")
    clip = clip.filter("zscale", p="bt709")
    # clip: what is brighter than white becomes white, in its hue. Softer curves darken white, or depend on the
    # brightness that a file states, which may differ from frame to frame. desat=0: with ffmpeg's default, greys from
    # 60 nits up become brighter (80 nits come out as 255 instead of 233).
    clip = clip.filter("tonemap", "clip", desat=0)
    return clip.filter("zscale", t="bt709").filter("format", "gbrp")


# ---- Laundering ----------------------------------------------------------------------------------------------------
# What remains of how a source was coded (docs/artefacts.md): frames are sharper right after a key frame, and noise is
# copied forward. A mean over neighbouring frames with weights that fall off alike to both sides has no direction of its
# own, and evens out key frames that come every half second or so. A Hann window over three intervals of the normalised
# clip lets through less of that rhythm than a triangle over two. With rarer key frames brightness drifts instead, by
# less than a step: small deviations of a frame's mean are taken out.

LAUNDER_STEPS = 8
"""Frames to an interval of the normalised clip, over which means are taken."""
_LAUNDER_INTERVALS = 3  # of a window
# A clip begins with a key frame, and ends anywhere: what whole windows leave over, 0 to 7 frames, would all be at its
# end. With half of that at the start neither end is favoured.
_LAUNDER_FROM = LAUNDER_STEPS // 2
LAUNDERED_AWAY = 3
"""Frames of a normalised clip, at most, that lie beyond all windows."""


def launder(clip: Any, settings: Video, short: bool) -> Any:
    """Filters that show moments of a clip, ``fps`` a second, as means over the time around each.

    Where no whole window fits, nothing is left: the clip has two frames less, or :data:`LAUNDERED_AWAY`.

    Args:
        clip: as it would be stored, with :data:`LAUNDER_STEPS` times as many frames a second.
        short: of a clip that is shorter than a window, show one mean, as if its last frame went on.
    """
    length = LAUNDER_STEPS * _LAUNDER_INTERVALS - 1
    # Halves are the same texts: those of a computed window differ by rounding.
    half = [f"{math.sin(math.pi * at / (length + 1)) ** 2:.6f}" for at in range(1, length // 2 + 1)]
    if short:
        clip = clip.filter("tpad", stop=length, stop_mode="clone")
    # tmix looks back: the first whole window is that of its last frame.
    clip = clip.filter("tmix", frames=length, weights=" ".join((*half, "1", *reversed(half))))
    where = {"start_frame": length - 1, "end_frame": length} if short else {"start_frame": length - 1 + _LAUNDER_FROM}
    clip = clip.filter("trim", **where).filter("select", f"not(mod(n,{LAUNDER_STEPS}))")
    return clip.filter("setpts", f"N/({settings.fps}*TB)")


_SMALL_STEPS = 2.0  # of 255; a key frame among predicted ones differs by half a step
_DITHER = (0.7548776662466927, 0.5698402909980532)  # powers of the plastic number, whose multiples fill a square evenly


def level_means(plane: np.ndarray) -> np.ndarray:
    """A plane of a clip, uint8 (T, H, W), in which every frame's mean is nearer to the clip's median by two steps.

    A soft threshold (Donoho, De-noising by soft-thresholding, 1995): drifts by less vanish, fades and flashes stay. A
    part of a step is added by dithering, with one pattern for all frames, so that a frame with a mean of its own still
    mirrors its twin's.

    >>> clip = np.stack([np.full((8, 8), level, np.uint8) for level in (99, 100, 100, 100, 140)])
    >>> level_means(clip)[:, 0, 0].tolist()
    [100, 100, 100, 100, 138]
    """
    means = plane.mean(axis=(1, 2), dtype=np.float64)
    deviation = means - np.median(means)
    wanted = np.sign(deviation) * np.maximum(np.abs(deviation) - _SMALL_STEPS, 0)
    across, down = (part * np.arange(1, side + 1) for part, side in zip(_DITHER, plane.shape[:0:-1], strict=True))
    dither = (across + down[:, None]) % 1
    levelled = np.empty_like(plane)
    for at, step in enumerate(wanted - deviation):
        levelled[at] = np.clip(np.floor(plane[at] + step + dither), 0, 255)
    return levelled


# ---- All of it -----------------------------------------------------------------------------------------------------


def needs_repair(source: SourceFormat, settings: Video) -> bool:
    """Whether :func:`repair_scan` or :func:`repair_colours` changes anything."""
    return bool(_needed_filters(source, settings))


def missing_filters(source: SourceFormat, settings: Video) -> str:
    """Why this ffmpeg cannot repair the source, with the remedy; empty if it can."""
    missing = [name for name in _needed_filters(source, settings) if name not in available_filters()]
    if not missing:
        return ""
    what = "; ".join(name for name, _ in _findings(source, settings))
    return f"{what}: this ffmpeg has no filter {' and no filter '.join(missing)}; {FFMPEG_REMEDY}"


def _needed_filters(source: SourceFormat, settings: Video) -> tuple[str, ...]:
    kind = "" if settings.deinterlace == "never" else source.scan.partition(" ")[0]
    scan = {"interlaced": ("bwdif",), "telecine": ("fieldmatch", "bwdif", "decimate")}.get(kind, ())
    return (*scan, *(_COLOUR_FILTERS if source.transfer in _HDR or _is_wide(source) else ()))


def repair_note(source: SourceFormat, settings: Video) -> str:
    """What the report says about the source and what was done about it; empty if there is nothing to say.

    >>> repair_note(SourceFormat(scan="interlaced tff", transfer="smpte2084"), Video())
    'interlaced (top field first), deinterlaced; PQ (HDR), tone-mapped to BT.709'
    """
    return "; ".join(f"{what}, {done}" for what, done in _findings(source, settings))


_DEINTERLACED, _RESTORED, _TONE_MAPPED = "deinterlaced", "its pictures restored", "tone-mapped to BT.709"
_LEFT = "left as it is (video.deinterlace: never)"


def count_repairs(notes: pd.Series) -> dict[str, int]:
    """What was done about how many sources, by their notes (the column ``reason`` of usable ones), for a footnote."""
    words = {
        "deinterlaced": _DEINTERLACED,
        "restored from telecined film": _RESTORED,
        "interlaced or telecined, and left so": _LEFT,
        "tone-mapped from HDR": _TONE_MAPPED,
    }
    return {what: int(notes.str.contains(f", {done}", regex=False).sum()) for what, done in words.items()}


def count_sources(report: pd.DataFrame) -> dict[str, Any]:
    """What the usable sources of a video report are, for the data set's report; empty for one without clips."""
    text = ("codec", "scan", "transfer", "field_order", "variable_rate", "sound")
    usable = report[report["status"] == "ok"]
    if not {*text, "bit_depth", "dropped_frames"} <= set(report):
        return {}  # of an earlier version
    usable = usable.assign(**{name: usable[name].astype(object).fillna("") for name in text})
    if not usable["codec"].astype(bool).any():
        return {}
    interlaced = usable["scan"].str.contains("interlaced|telecine")
    flagged = ~usable["field_order"].isin(("", "progressive"))
    return {
        "codecs": usable["codec"].value_counts().to_dict(),
        "interlaced": int(usable["scan"].str.startswith("interlaced").sum()),
        "telecined": int(usable["scan"].str.startswith("telecine").sum()),
        "wrongly_flagged": int((interlaced != flagged)[usable["scan"] != ""].sum()),
        "hdr": int(usable["transfer"].isin(tuple(_HDR)).sum()),
        "more_than_8_bits": int((usable["bit_depth"] > 8).sum()),
        "variable_rate": int((usable["variable_rate"] == "yes").sum()),
        "with_sound": int((usable["sound"] == "yes").sum()),
        "damaged_end_dropped": int((usable["dropped_frames"] > 0).sum()),
    }


def _findings(source: SourceFormat, settings: Video) -> Iterator[tuple[str, str]]:
    """What is unusual about the source, and what is done about it."""
    kind, _, parity = source.scan.partition(" ")
    first = {"tff": "top field first", "bff": "bottom field first"}.get(parity, "")
    left = _LEFT if settings.deinterlace == "never" else ""
    if kind == "interlaced":
        yield f"interlaced ({first})", left or _DEINTERLACED
    if kind == "telecine":
        yield f"telecined film (3:2 pulldown, {first})", left or _RESTORED
    if source.transfer in _HDR:
        yield f"{_HDR[source.transfer]} (HDR)", _TONE_MAPPED
    elif _is_wide(source):
        yield "BT.2020 colours", "converted to BT.709"


def inspect_source(path: Path, settings: Video) -> SourceFormat:
    """A source's format and its scan, in one run of ffmpeg that decodes it and writes nothing.

    Raises:
        RewindError: it cannot be read.
    """
    clip = input_stream(path, settings.max_seconds + 2 / settings.fps)
    output = sample_scan(clip) if can_sample_scan() else ffmpeg.output(clip, "-", f="null", fps_mode="passthrough")
    outcome = run_ffmpeg(output, time_limit(settings.max_seconds), stop_at_errors=False)
    if outcome.code:
        raise RewindError(f"{path}: cannot be decoded: {outcome.fault()}")
    return read_source_format(outcome.messages)
