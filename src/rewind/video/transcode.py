"""One source clip → a small normalised clip and its time-reversed twin, in one ffmpeg pass.

Every frame is coded alone (intra) at one constant quantiser, so what a frame decodes to does not depend on
its neighbours and the twin holds bit for bit the frames of the original, in opposite order. A source that
decodes with errors is refused rather than patched: which picture a decoder invents for a damaged one differs
between versions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import ffmpeg

from rewind.errors import RewindError
from rewind.files import atomic
from rewind.study.dataset import Video
from rewind.video.ffmpeg import Outcome, run
from rewind.video.frames import open_reader
from rewind.video.header import Header, read_header
from rewind.video.transparency import NOTE, Channel, channel, lowest, on_white, transparent


@dataclass(frozen=True)
class ClipReport:
    """What became of one source clip.

    Attributes:
        item_id: the original's id.
        status: ``ok``; ``missing`` (no source file); ``failed`` (refused, with the reason).
        reason: why not ok, or what is odd about an ok clip; else empty.
        seconds: length of the source: what its header says, if the decoded frames bear it out, else theirs.
        source_width, source_height, source_fps: the source as displayed, rotation applied; 0 where unknown.
        frames, width, height: the normalised clip.
        bytes: size of the normalised clip and its twin together.
        twin: ``made`` by reversing, ``mapped`` from an existing reversed file, or ``none``.
    """

    item_id: str
    status: Literal["ok", "missing", "failed"]
    reason: str = ""
    seconds: float = 0.0
    source_width: int = 0
    source_height: int = 0
    source_fps: float = 0.0
    frames: int = 0
    width: int = 0
    height: int = 0
    bytes: int = 0
    twin: Literal["made", "mapped", "none"] = "none"


# Demuxers of files that hold their own frames. Left out are lists of other files: concat, DASH, HLS, IMF, sdp, image2.
CONTAINERS = (
    "mov,matroska,avi,flv,gif,asf,mpegts,mpeg,mpegvideo,m4v,h264,hevc,mjpeg,mxf,ogg,ivf,nut,dv,rm,wtv,apng,webp_anim"
)


# Messages of containers that know how much there should be, after which ffmpeg may end with code 0. A transport stream
# or Ogg file has no such knowledge: what is left of one is a shorter clip.
_CUT = ("File ended prematurely", "LZW decode failed")
SLOWEST, LEAST_SECONDS = 5.0, 120.0  # ffmpeg may take so long for each of `max_seconds`, and so long beside


class Refused(Exception):
    """A source that cannot become a clip; the message is the reason in the report."""


def transcode(
    source: Path, target: Path, twin: Path | None, settings: Video, reversed_source: Path | None = None
) -> ClipReport:
    """Normalise ``source`` to ``target`` (H.264, yuv420p, square pixels, no audio, no metadata).

    What is transparent becomes white.

    Args:
        source: any file that ffmpeg decodes; its rotation mark is applied.
        target: ``<id>.mp4``; the id names the clip in the report.
        twin: ``<id>_rev.mp4``, or none where no twin is wanted.
        settings: frames per second, short side (an odd one is raised to even), quantiser, longest duration.
        reversed_source: an existing reversed file, normalised as it is to ``twin`` instead of reversing
            ``source``. A frame count that differs from the original's is kept and said in ``reason``.

    Returns:
        The report. Only with status ``ok`` do the files exist; otherwise neither does, older ones included.

    Raises:
        RewindError: for a fault of the machine (no space, no memory, a killed ffmpeg, a lost disk), of which nothing
            may be recorded against the clip.
    """
    try:
        _check_file(source)
        report = _produce(source, target, twin, settings, reversed_source)
    except Refused as error:
        for path in filter(None, (target, twin)):
            path.unlink(missing_ok=True)
        status = "failed" if source.is_file() else "missing"
        return ClipReport(item_id=target.stem, status=status, reason=str(error))
    except OSError as error:
        raise machines_fault(source, f"{error.filename or target}: {error.strerror or error}") from error
    return report


def machines_fault(source: Path, what: str) -> RewindError:
    """The error for a fault of the machine while ``source`` was read or its clip was written."""
    return RewindError(
        f"{source}: {what}. That is a fault of the machine, and nothing is recorded against the file: mend it and "
        "start again; what is finished is kept. If it happens with this file alone, take the file away."
    )


def _check_file(source: Path) -> None:
    if not source.is_file():
        raise Refused("no such file")
    if source.stat().st_size == 0:
        raise Refused("empty file")


def _produce(
    source: Path, target: Path, twin: Path | None, settings: Video, reversed_source: Path | None
) -> ClipReport:
    if twin is None:
        with atomic(target) as draft:
            return _encode(source, [draft], settings, target.stem)
    with atomic(twin) as twin_draft, atomic(target) as draft:
        if reversed_source is None:
            return replace(_encode(source, [draft, twin_draft], settings, target.stem), twin="made")
        return _encode_mapped(source, reversed_source, draft, twin_draft, settings, target.stem)


def _encode_mapped(
    source: Path, reversed_source: Path, draft: Path, twin_draft: Path, settings: Video, item_id: str
) -> ClipReport:
    original = _encode(source, [draft], settings, item_id)
    try:
        _check_file(reversed_source)
        existing = _encode(reversed_source, [twin_draft], settings, item_id)
    except Refused as error:
        raise Refused(f"existing reversed clip {reversed_source.name}: {error}") from error
    reasons = [original.reason, existing.reason and f"existing reversed clip: {existing.reason}"]
    if existing.frames != original.frames:
        reasons.append(f"existing reversed clip has {existing.frames} frames, original {original.frames}")
    return replace(
        original, reason="; ".join(filter(None, reasons)), bytes=original.bytes + existing.bytes, twin="mapped"
    )


def _encode(source: Path, drafts: list[Path], settings: Video, item_id: str) -> ClipReport:
    """Encode ``source`` forward to the first draft and, if there is a second, reversed to that one."""
    header, frames, alpha = _run(source, drafts, settings)
    reason = _note(source, alpha, settings) if alpha else ""
    if reason == NOTE:
        header, frames, _ = _run(source, drafts, settings, alpha)
    sizes = {_written_size(draft, frames) for draft in drafts}
    if len(sizes) != 1:
        raise Refused("the clip and its twin differ in size")
    width, height = sizes.pop()
    return ClipReport(
        item_id=item_id,
        status="ok",
        reason=reason,
        seconds=_seconds(header, frames, settings.fps),
        source_width=header.width,
        source_height=header.height,
        source_fps=header.fps,
        frames=frames,
        width=width,
        height=height,
        bytes=sum(draft.stat().st_size for draft in drafts),
    )


def _run(
    source: Path, drafts: list[Path], settings: Video, alpha: Channel | None = None
) -> tuple[Header, int, Channel | None]:
    """Write the drafts, on white where ``alpha`` is given; the source's header, frames written, its alpha channel.

    Raises:
        Refused: with the reason.
    """
    limit = _limit(settings)
    outcome = run(_graph(source, drafts, settings, "round", alpha), limit)
    if outcome.code == 0 and not _frames_written(outcome):
        # Shorter than half a frame's time: keep its one frame instead of none.
        outcome = run(_graph(source, drafts, settings, "pass", alpha), limit)
    if what := outcome.machines():
        raise machines_fault(source, what)
    header, frames = read_header(outcome.messages), _frames_written(outcome)
    _check_outcome(outcome, header, frames, settings)
    return header, frames, channel(outcome.messages)


def _note(source: Path, alpha: Channel, settings: Video) -> str:
    """What the report says of a source with an alpha channel: nothing where no pixel is transparent."""
    outcome = run(lowest(_opened(source, settings, alpha)), _limit(settings))
    if what := outcome.machines():
        raise machines_fault(source, what)
    if any("Unknown decoder" in line for line in outcome.messages):
        return alpha.unread()
    if outcome.code != 0:
        raise Refused(f"its transparency cannot be decoded: {outcome.fault()}")
    return NOTE if transparent(outcome.output) else ""


def _limit(settings: Video) -> float:
    return LEAST_SECONDS + SLOWEST * settings.max_seconds


def _opened(source: Path, settings: Video, alpha: Channel | None) -> Any:
    """The video stream of a source, which ffmpeg reads as far as it may."""
    # "file:" and the whitelists keep a name such as "http:x", or a playlist or manifest under a clip's name, from
    # reaching further: ffmpeg goes by content, whatever the suffix is. Reading stops a little above the limit, so that
    # a wrong header cannot fill the memory.
    limit = settings.max_seconds + 2 / settings.fps
    clip = ffmpeg.input(
        f"file:{source}",
        protocol_whitelist="file",
        format_whitelist=CONTAINERS,
        threads=1,
        t=f"{limit:.6f}",
        **(alpha.options() if alpha else {}),
    )
    return clip["V:0"]  # "V" leaves out cover pictures


def _graph(source: Path, drafts: list[Path], settings: Video, at_end: str, alpha: Channel | None) -> Any:
    """The ffmpeg-python graph: decode once, normalise, encode; and reverse, encode."""
    # Scaling comes after dropping frames, and before reversing, which holds all frames in memory.
    clip = _opened(source, settings, alpha).filter("setpts", "PTS-STARTPTS")
    clip = clip.filter("fps", fps=settings.fps, eof_action=at_end)
    if alpha:
        clip = on_white(clip)
    clip = clip.filter("scale", **_scaling(settings.short_side))
    # Older ffmpegs convert the colours but keep the source's tag, so the tag is set too.
    clip = clip.filter("setparams", colorspace="smpte170m", range="tv")
    clip = clip.filter("setsar", "1").filter("format", "yuv420p")
    if len(drafts) == 1:
        return _output(clip, drafts[0], settings).global_args("-progress", "pipe:1")
    ways = clip.filter_multi_output("split")
    forward = _output(ways[0], drafts[0], settings)
    backward = _output(ways[1].filter("reverse"), drafts[1], settings)
    return ffmpeg.merge_outputs(forward, backward).global_args("-progress", "pipe:1")


def _scaling(short_side: int) -> dict[str, str]:
    side = short_side + short_side % 2  # yuv420p needs even sides
    return {
        "w": f"if(gte(dar,1),2*round({side}*dar/2),{side})",
        "h": f"if(gte(dar,1),{side},2*round({side}/dar/2))",
        "flags": "bicubic+accurate_rnd+bitexact",
        # What a decoder assumes of a small file: the same colours whatever the source was tagged with.
        "out_color_matrix": "bt601",
        "out_range": "tv",
    }


def _output(clip: Any, draft: Path, settings: Video) -> Any:
    coding = {
        "c:v": "libx264",
        "preset": "veryfast",
        "qp": settings.qp,
        "g": 1,  # every frame is a key frame
        "aq-mode": 0,
        "x264-params": "ipratio=1",  # x264 codes key frames finer than qp unless told not to
        "threads": 1,
        "fps_mode": "passthrough",
        "map_metadata": -1,
        "map_chapters": -1,
        "fflags": "+bitexact",
        "flags:v": "+bitexact",
        "f": "mp4",
    }
    return ffmpeg.output(clip, f"file:{draft}", **coding)


def _check_outcome(outcome: Outcome, header: Header, frames: int, settings: Video) -> None:
    if any("matches no streams" in line for line in outcome.messages):
        raise Refused("no video stream")
    if any("Format not on whitelist" in line for line in outcome.messages):
        raise Refused("by its content no video file; lists of other files (playlists, manifests) are not opened")
    if "Cannot determine format of input" in outcome.fault():  # it never saw a frame
        raise Refused("no frames")
    if outcome.code != 0:
        raise Refused(f"cannot be decoded: {outcome.fault()}")
    if any(what in line for line in outcome.messages for what in _CUT):
        raise Refused("cut off: the file ends before its own header says")
    if _seconds(header, frames, settings.fps) > settings.max_seconds:
        known = max(header.seconds, frames / settings.fps)
        raise Refused(f"{known:.1f} s long, the limit is {settings.max_seconds:g} s (video.max_seconds)")
    if not frames:
        raise Refused("no frames")


def _seconds(header: Header, frames: int, fps: float) -> float:
    """The header's length where the frames bear it out; it may be absent, or count sound or a late start."""
    decoded = frames / fps
    return header.seconds if abs(header.seconds - decoded) <= 1 / fps else round(decoded, 3)


def _frames_written(outcome: Outcome) -> int:
    """Frames of the first output, from ``-progress``."""
    counts = re.findall(r"^frame=\s*(\d+)", outcome.output, re.MULTILINE)
    return int(counts[-1]) if counts else 0


def _written_size(draft: Path, frames: int) -> tuple[int, int]:
    """Width and height of a finished file, after counting its frames with the decoder that will read it."""
    try:
        reader = open_reader(draft)
    except RewindError as error:
        raise Refused("the written file cannot be read back") from error
    if len(reader) != frames:
        raise Refused(f"the written file has {len(reader)} frames, {frames} were sent")
    height, width = reader.read([0]).shape[1:3]
    return width, height
