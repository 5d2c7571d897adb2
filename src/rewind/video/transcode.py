"""Transcode one source clip into a small normalised clip and its time-reversed twin, in one pass of ffmpeg.

``transcode_clip`` is the entry point: it never raises for a bad source but returns a ``ClipReport`` with the reason;
only a fault of the machine (no space, no memory, a killed ffmpeg) is an error.

Every frame is coded alone (intra) with one constant quantiser, so a decoded frame does not depend on its neighbours,
and the twin holds the frames of the original bit for bit, in opposite order. A source that decodes with errors is
refused rather than patched: which picture a decoder invents for a damaged one differs between versions.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import ffmpeg

from rewind.config.dataset import Video
from rewind.errors import RewindError
from rewind.io.files import atomic_write
from rewind.video.damage import SourceLog, find_damage, read_source_log
from rewind.video.ffmpeg import (
    ENCODER,
    GLOBAL_OPTIONS,
    TIMEOUT_EXIT_CODE,
    FfmpegResult,
    executable,
    run_command,
    run_ffmpeg,
)
from rewind.video.frames import open_file_frames

# ---- Read what ffmpeg's log says about a source --------------------------------------------------------------------


@dataclass(frozen=True)
class SourceHeader:
    """What ffmpeg's log says about a source: seconds, displayed size, frames per second; 0 where unknown."""

    seconds: float = 0.0
    width: int = 0
    height: int = 0
    fps: float = 0.0


# Matched from the start of a line, so that a title among the metadata which quotes these words is no length.
_DURATION = re.compile(r"(?:\[info\])?\s*Duration: (\d+):(\d\d):(\d\d(?:\.\d+)?)")
# After a comma: the tag of a codec, as in (avc1 / 0x31637661), looks like a size too.
_SIZE = re.compile(r", (\d+)x(\d+)[ ,\[]")
_FPS = re.compile(r"([\d.]+)(k?) fps")
_ROTATION = re.compile(r"rotation of (-?[\d.]+) degrees")


def read_header(messages: tuple[str, ...]) -> SourceHeader:
    """Read length, displayed size and rate of the first video stream from ffmpeg's log.

    >>> log = ("  Duration: 00:00:02.50, start: 0.000000", "  Stream #0:0: Video: h264, yuv420p, 640x360, 25 fps")
    >>> read_header(log)
    SourceHeader(seconds=2.5, width=640, height=360, fps=25.0)
    """
    header, in_video = SourceHeader(), False
    for line in messages:
        if "Stream mapping:" in line or "Output #0" in line:  # from here on the log is about the output
            break
        if match := _DURATION.match(line):
            hours, minutes, seconds = match.groups()
            header = replace(header, seconds=int(hours) * 3600 + int(minutes) * 60 + float(seconds))
        if "Stream #" in line:
            in_video = "Video:" in line and "(attached pic)" not in line and not header.width
        # Side data, such as the rotation, is on the lines below that of its stream.
        if in_video:
            header = _read_stream(header, line)
    return header


def _read_stream(header: SourceHeader, line: str) -> SourceHeader:
    # The blank: a size may end the line.
    size, fps, rotation = _SIZE.search(line + " "), _FPS.search(line), _ROTATION.search(line)
    if "Stream #" in line and size:
        header = replace(header, width=int(size[1]), height=int(size[2]))
    if "Stream #" in line and fps:
        header = replace(header, fps=float(fps[1]) * (1000 if fps[2] else 1))  # "1k fps" is a thousand
    if rotation and round(abs(float(rotation[1]))) % 180 == 90:
        header = replace(header, width=header.height, height=header.width)
    return header


# ---- Transparent clips, which are shown on white -------------------------------------------------------------------
# An alpha channel alone says little: every GIF is decoded with one. So its values are looked at, and only a clip that
# is transparent somewhere is treated differently from other clips.

TRANSPARENCY_NOTE = "transparent, shown on white"
"""What the report states about a clip or an image."""

# "Video: h264 (High) (avc1 / 0x31637661), yuv420p(tv)": any number of brackets between codec and pixels.
_STREAM_PIXEL_FORMAT = re.compile(r"Video: (\w+)(?: \([^()]*\))*, (\w+)")
# pal8 is a palette, whose colours may be transparent.
_ALPHA_PIXEL_FORMATS = re.compile(r"yuva|rgba|bgra|argb|abgr|gbrap|ya8|ya16|pal8")
_FRAME_MIN_ALPHA = re.compile(r"lavfi\.signalstats\.YMIN=(\d+)")
# In WebM the channel is coded as pictures of its own next to the others, which ffmpeg's own decoders pass over.
_ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
_OPAQUE = 255


@dataclass(frozen=True)
class AlphaChannel:
    """A source's alpha channel."""

    decoder: str = ""  # what decodes it, if it is not what ffmpeg chooses

    def input_options(self) -> dict[str, str]:
        """Options for reading the source: ``-c:v`` before ``-i`` names its decoder."""
        return {"c:v": self.decoder} if self.decoder else {}

    def missing_decoder_note(self) -> str:
        """What the report says where this ffmpeg lacks the decoder."""
        return f"transparent, shown as it is stored: this ffmpeg has no {self.decoder}, which reads transparency"


def alpha_channel(messages: tuple[str, ...]) -> AlphaChannel | None:
    """The alpha channel of the first video stream, from ffmpeg's log; None if it has none."""
    codec = ""
    for line in messages:
        if "Stream mapping:" in line or "Output #0" in line or (codec and "Stream #" in line):
            break
        if (
            "Stream #" in line
            and "Video:" in line
            and "(attached pic)" not in line
            and (match := _STREAM_PIXEL_FORMAT.search(line))
        ):
            codec, pixels = match.groups()
            if _ALPHA_PIXEL_FORMATS.match(pixels):
                return AlphaChannel()
        # A tag of the stream in WebM, where the pixel format is that of the pictures without alpha.
        if re.search(r"alpha_mode\s*: 1", line) and codec in _ALPHA_DECODERS:
            return AlphaChannel(_ALPHA_DECODERS[codec])
    return None


def min_alpha_graph(clip: Any) -> Any:
    """The ffmpeg-python graph that prints the lowest alpha of every frame."""
    # alphaextract makes alpha the brightness of a grey picture, the least of which signalstats notes as YMIN.
    alpha = clip.filter("alphaextract").filter("format", "gray").filter("signalstats")
    alpha = alpha.filter("metadata", mode="print", key="lavfi.signalstats.YMIN", file="-")
    return ffmpeg.output(alpha, "-", f="null")  # null: all is decoded, and nothing is written


def is_transparent(output: str) -> bool:
    """Whether a clip is transparent somewhere, from what :func:`min_alpha_graph` printed."""
    return any(int(value) < _OPAQUE for value in _FRAME_MIN_ALPHA.findall(output))


def overlay_on_white(clip: Any) -> Any:
    """Filters that lay every frame on white."""
    # The white comes from the frames themselves and so has their size and times whatever these are. Mixing is done in
    # RGB; the filter's default is yuv420, whose halved colour resolution would blur the edges.
    copies = clip.filter("format", "rgba").filter_multi_output("split")
    white = copies[0].filter("lutrgb", r=255, g=255, b=255, a=255)
    return ffmpeg.filter([white, copies[1]], "overlay", format="rgb")


# ---- Transcode a clip and its twin ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClipReport:
    """What became of one source clip."""

    item_id: str
    status: Literal["ok", "missing", "failed"]  # missing: no source file; failed: refused, with the reason
    reason: str = ""  # why not ok, or what is unusual about an ok clip; else empty
    seconds: float = 0.0  # of the source by its header, if the decoded frames agree with that, else by the frames
    source_width: int = 0  # as displayed, rotation applied; 0 where unknown
    source_height: int = 0
    source_fps: float = 0.0
    frames: int = 0  # this and the next two are the normalised clip's
    width: int = 0
    height: int = 0
    bytes: int = 0  # of the normalised clip and its twin together
    twin: Literal["made", "mapped", "none"] = "none"  # made by reversing, mapped from an existing reversed file


# Demuxers of files that hold their own frames. Left out are lists of other files: concat, DASH, HLS, IMF, sdp, image2.
ALLOWED_DEMUXERS = (
    "mov,matroska,avi,flv,gif,asf,mpegts,mpeg,mpegvideo,m4v,h264,hevc,mjpeg,mxf,ogg,ivf,nut,dv,rm,wtv,apng,webp_anim"
)
TIMEOUT_PER_SECOND, MIN_TIMEOUT = 5.0, 120.0  # seconds for ffmpeg, per second of `max_seconds` and besides


class UnusableSource(Exception):
    """A source that cannot become a clip; the message is the reason in the report."""


def transcode_clip(
    source: Path, target: Path, twin: Path | None, settings: Video, reversed_source: Path | None = None
) -> ClipReport:
    """Normalise ``source`` to ``target`` (H.264, yuv420p, square pixels, upright, no audio, no metadata).

    What is transparent becomes white.

    Args:
        source: any file that ffmpeg decodes.
        target: ``<id>.mp4``; the id names the clip in the report.
        twin: ``<id>_rev.mp4``; None if no twin is needed.
        settings: an odd ``short_side`` is raised to even.
        reversed_source: an existing reversed file, normalised as it is to ``twin`` instead of reversing
            ``source``. If it has another number of frames than the original, it keeps them, and ``reason`` states that.

    Returns:
        The report. Only with status ``ok`` do the files exist; otherwise neither does, older ones included.

    Raises:
        RewindError: for a fault of the machine (no space, no memory, a killed ffmpeg, a lost disk), which must not be
            recorded as the clip's.
    """
    try:
        _check_file(source)
        return _produce(source, target, twin, settings, reversed_source)
    except UnusableSource as error:
        for path in filter(None, (target, twin)):
            path.unlink(missing_ok=True)
        status: Literal["failed", "missing"] = "failed" if source.is_file() else "missing"
        return ClipReport(item_id=target.stem, status=status, reason=str(error))
    except OSError as error:
        raise system_fault(source, f"{error.filename or target}: {error.strerror or error}") from error


def system_fault(source: Path, what: str) -> RewindError:
    """The error for a fault of the machine while ``source`` was read or its clip was written."""
    return RewindError(
        f"{source}: {what}. That is a fault of the machine, and nothing is recorded against the file: fix it and "
        "rerun; finished work is kept. If it happens with this file alone, take the file away."
    )


def _check_file(source: Path) -> None:
    if not source.is_file():
        raise UnusableSource("no such file")
    if source.stat().st_size == 0:
        raise UnusableSource("empty file")


def _produce(
    source: Path, target: Path, twin: Path | None, settings: Video, reversed_source: Path | None
) -> ClipReport:
    if twin is None:
        with atomic_write(target) as file:
            return _encode(source, [file], settings, target.stem)
    # These end from the inside out: the original gets its name first. A kill between the two leaves it without the
    # state that marks it as finished, and both are made again.
    with atomic_write(twin) as twin_file, atomic_write(target) as file:
        if reversed_source is None:
            return replace(_encode(source, [file, twin_file], settings, target.stem), twin="made")
        return _encode_mapped(source, reversed_source, file, twin_file, settings, target.stem)


def _encode_mapped(
    source: Path, reversed_source: Path, file: Path, twin_file: Path, settings: Video, item_id: str
) -> ClipReport:
    original = _encode(source, [file], settings, item_id)
    try:
        _check_file(reversed_source)
        twin = _encode(reversed_source, [twin_file], settings, item_id)
    except UnusableSource as error:
        raise UnusableSource(f"existing reversed clip {reversed_source.name}: {error}") from error
    reasons = [original.reason, twin.reason and f"existing reversed clip: {twin.reason}"]
    if twin.frames != original.frames:
        reasons.append(f"existing reversed clip has {twin.frames} frames, original {original.frames}")
    return replace(original, reason="; ".join(filter(None, reasons)), bytes=original.bytes + twin.bytes, twin="mapped")


def _encode(source: Path, targets: list[Path], settings: Video, item_id: str) -> ClipReport:
    """Encode ``source`` forward to the first of ``targets`` and, if there is a second, reversed to that one."""
    # At first as if it were opaque, which nearly all sources are: they are decoded once.
    header, frames, alpha, damage = _run_transcoding(source, targets, settings)
    transparency = _transparency_note(source, targets, alpha, settings) if alpha else ""
    if transparency == TRANSPARENCY_NOTE:
        header, frames, _, damage = _run_transcoding(source, targets, settings, alpha)
    sizes = {_written_size(target, frames) for target in targets}
    if len(sizes) != 1:
        raise UnusableSource("the clip and its twin differ in size")
    width, height = sizes.pop()
    return ClipReport(
        item_id=item_id,
        status="ok",
        reason="; ".join(filter(None, (transparency, damage))),
        seconds=_seconds(header, frames, settings.fps),
        source_width=header.width,
        source_height=header.height,
        source_fps=header.fps,
        frames=frames,
        width=width,
        height=height,
        bytes=sum(target.stat().st_size for target in targets),
    )


def _run_transcoding(
    source: Path, targets: list[Path], settings: Video, alpha: AlphaChannel | None = None
) -> tuple[SourceHeader, int, AlphaChannel | None, str]:
    """Write ``targets``, on white if ``alpha`` is given.

    Returns:
        The source's header, the number of frames written, the source's alpha channel, if it has one, and what is noted
        about damage.
    """
    outcome = _run_until_believed(_graph(source, targets, settings, "round", alpha), source, targets, settings)
    if outcome.code == 0 and not _frames_written(outcome):
        # Shorter than half a frame's time: the fps filter rounds it away. Keep its one frame instead.
        outcome = _run_until_believed(_graph(source, targets, settings, "pass", alpha), source, targets, settings)
    header, frames = read_header(outcome.messages), _frames_written(outcome)
    log = read_source_log(outcome.messages)
    _check_result(outcome, log, header, frames, settings)
    damage = find_damage(source, log, header.seconds, frames / settings.fps)
    if damage.fault:
        raise UnusableSource(damage.fault)
    return header, frames, alpha_channel(outcome.messages), damage.note


def _transparency_note(source: Path, targets: list[Path], alpha: AlphaChannel, settings: Video) -> str:
    """What the report says about a source with an alpha channel: nothing if no pixel is transparent."""
    graph = min_alpha_graph(_input_stream(source, settings, alpha))
    outcome = _run_until_believed(graph, source, targets, settings)
    if any("Unknown decoder" in text for text in outcome.errors()):
        return alpha.missing_decoder_note()
    if outcome.code != 0:
        raise UnusableSource(f"its transparency cannot be decoded: {outcome.fault()}")
    return TRANSPARENCY_NOTE if is_transparent(outcome.output) else ""


# ---- Whether the file or the machine is at fault -------------------------------------------------------------------
# ffmpeg's messages do not tell: for a damaged size in a file it reports "Cannot allocate memory", for a lack of memory
# an invalid file. So a failure counts against a file only if this machine, there and then, makes a clip of that size,
# and fails with the file again.

_MAX_CONTROL_SIZE = (3840, 2160)  # a damaged header may state any size
_CONTROL_SIZE, _CONTROL_BYTES = (640, 360), 1 << 20


def _run_until_believed(graph: Any, source: Path, targets: list[Path], settings: Video) -> FfmpegResult:
    """Run ffmpeg; a result that failed is the file's own fault. One of the machine raises RewindError or OSError."""
    limit = _time_limit(settings)
    outcome = run_ffmpeg(graph, limit)
    if outcome.code not in (0, TIMEOUT_EXIT_CODE) and not outcome.was_stopped:
        _check_machine(source, targets, settings, read_header(outcome.messages))
        outcome = run_ffmpeg(graph, limit)
    if outcome.was_stopped:
        raise system_fault(source, outcome.fault())
    return outcome


def _check_machine(source: Path, targets: list[Path], settings: Video, header: SourceHeader) -> None:
    """Read the source, draw another of its size and length in the folder of its clip, and make that one's clip.

    What fails is the machine, and raises a RewindError or an OSError.
    """
    _check_file(source)
    with source.open("rb") as file:
        # A disk that fails raises OSError here; by what ffmpeg says it cannot be told from a damaged file.
        while file.read(1 << 20):
            pass
    size = (header.width, header.height) if header.width and header.height else _CONTROL_SIZE
    if size[0] * size[1] > _MAX_CONTROL_SIZE[0] * _MAX_CONTROL_SIZE[1]:
        size = _MAX_CONTROL_SIZE
    width, height = (side + side % 2 for side in size)
    seconds = min(max(header.seconds, 1 / settings.fps), settings.max_seconds)  # at least one frame
    picture = f"color=gray:s={width}x{height}:r={settings.fps}:d={seconds:.6f}"
    with tempfile.TemporaryDirectory(prefix=".control-", dir=targets[0].parent) as folder:
        # So small a clip would still find a place on a disk that is full.
        (Path(folder) / "space").write_bytes(bytes(_CONTROL_BYTES))
        drawn, clips = Path(folder) / "drawn.mp4", [Path(folder) / f"{number}.mp4" for number in range(len(targets))]
        coding = ["-c:v", ENCODER, "-preset", "ultrafast", "-threads", "1"]
        command = [executable(), *GLOBAL_OPTIONS, "-f", "lavfi", "-i", picture, *coding, f"file:{drawn}"]
        outcome = run_command(command, _time_limit(settings))
        if outcome.code == 0:
            outcome = run_ffmpeg(_graph(drawn, clips, settings, "round", None), _time_limit(settings))
            if outcome.crashed:  # an ffmpeg that can draw clips does not crash for want of something
                return
    if outcome.code:
        raise system_fault(source, f"ffmpeg cannot make a clip of a drawn one either ({outcome.fault()})")


def _time_limit(settings: Video) -> float:
    return MIN_TIMEOUT + TIMEOUT_PER_SECOND * settings.max_seconds


# ---- What ffmpeg is asked to do ------------------------------------------------------------------------------------


def _input_stream(source: Path, settings: Video, alpha: AlphaChannel | None) -> Any:
    """The first video stream of a source, as ffmpeg's input."""
    # "file:" keeps a name such as "http:x" a file's name. The whitelists keep a playlist or manifest under a clip's
    # name from opening other files or addresses: ffmpeg goes by content, whatever the suffix is. -t: reading stops a
    # little above the limit, so that a wrong header cannot fill the memory; _check_result then sees that it is too
    # long. One decoding thread: the work is parallel over clips.
    limit = settings.max_seconds + 2 / settings.fps
    clip = ffmpeg.input(
        f"file:{source}",
        protocol_whitelist="file",
        format_whitelist=ALLOWED_DEMUXERS,
        threads=1,
        t=f"{limit:.6f}",
        **(alpha.input_options() if alpha else {}),
    )
    return clip["V:0"]  # unlike "v", "V" leaves out cover pictures


def _graph(source: Path, targets: list[Path], settings: Video, at_end: str, alpha: AlphaChannel | None) -> Any:
    """The ffmpeg-python graph: decode once, normalise, encode; and reverse, encode."""
    # setpts: time counts from the first frame, so that which frames fps keeps does not depend on where a container
    # starts its clock.
    clip = _input_stream(source, settings, alpha).filter("setpts", "PTS-STARTPTS")
    # Scaling comes after dropping frames, which saves work, and before reversing, which holds all frames in memory.
    clip = clip.filter("fps", fps=settings.fps, eof_action=at_end)
    if alpha:
        clip = overlay_on_white(clip)
    clip = clip.filter("scale", **_scaling(settings.short_side))
    # Older ffmpegs convert the colours but keep the source's tag, so the tag is set too.
    clip = clip.filter("setparams", colorspace="smpte170m", range="tv")
    # setsar: scaling rounds the sides, which would leave pixels a little off square.
    clip = clip.filter("setsar", "1").filter("format", "yuv420p")
    # -progress: ffmpeg prints the number of frames written to stdout, which _frames_written reads. -debug_ts: it prints
    # the times of packets and frames, which read_source_log reads.
    reports = ("-progress", "pipe:1", "-debug_ts")
    if len(targets) == 1:
        return _output(clip, targets[0], settings).global_args(*reports)
    copies = clip.filter_multi_output("split")
    forward = _output(copies[0], targets[0], settings)
    backward = _output(copies[1].filter("reverse"), targets[1], settings)
    return ffmpeg.merge_outputs(forward, backward).global_args(*reports)


def _scaling(short_side: int) -> dict[str, str]:
    side = short_side + short_side % 2  # yuv420p needs even sides
    return {
        # dar, the aspect as displayed, because pixels may not be square. The long side is rounded to an even number.
        "w": f"if(gte(dar,1),2*round({side}*dar/2),{side})",
        "h": f"if(gte(dar,1),{side},2*round({side}/dar/2))",
        # accurate_rnd and bitexact: the scaler's faster paths round differently from CPU to CPU.
        "flags": "bicubic+accurate_rnd+bitexact",
        # What a decoder assumes of a small file: the same colours whatever the source was tagged with.
        "out_color_matrix": "bt601",
        "out_range": "tv",
    }


def _output(clip: Any, target: Path, settings: Video) -> Any:
    options = {
        "c:v": ENCODER,
        "preset": "veryfast",
        # One constant quantiser, no adaptive quantisation, every frame a key frame: what a frame is coded to follows
        # from its pixels alone, so the twin's frames decode to the original's, bit for bit, in opposite order.
        "qp": settings.qp,
        "g": 1,
        "aq-mode": 0,
        "x264-params": "ipratio=1",  # x264 codes key frames finer than qp unless told not to
        "threads": 1,  # x264 gives the same bytes only for the same number of threads
        "fps_mode": "passthrough",  # frames as the filters send them: none is dropped or doubled to fit a clock
        # Without these, dates, titles and the encoder's version would be in the file: the same frames, other bytes.
        "map_metadata": -1,
        "map_chapters": -1,
        "fflags": "+bitexact",
        "flags:v": "+bitexact",
        "f": "mp4",
    }
    return ffmpeg.output(clip, f"file:{target}", **options)


def _check_result(outcome: FfmpegResult, log: SourceLog, header: SourceHeader, frames: int, settings: Video) -> None:
    """Refuse what cannot become a clip. The order matters: the first reason that fits is the one that helps."""
    errors = outcome.errors()
    if any("matches no streams" in text for text in errors):
        raise UnusableSource("no video stream")
    if any("Format not on whitelist" in text for text in errors):
        raise UnusableSource("by its content no video file; lists of other files (playlists, manifests) are not opened")
    if outcome.code and any("Cannot determine format of input" in text for text in errors):  # it never saw a frame
        raise UnusableSource("no frames")
    if outcome.code != 0:
        ended = outcome.crashed or outcome.code == TIMEOUT_EXIT_CODE
        raise UnusableSource(f"cannot be decoded: {(not ended and log.failure()) or outcome.fault()}")
    if _seconds(header, frames, settings.fps) > settings.max_seconds:
        seconds = max(header.seconds, frames / settings.fps)
        raise UnusableSource(f"{seconds:.1f} s long, the limit is {settings.max_seconds:g} s (video.max_seconds)")
    if not frames:
        raise UnusableSource("no frames")


def _seconds(header: SourceHeader, frames: int, fps: float) -> float:
    """The header's length if the frames agree with it; it may be absent, or count sound or a late start."""
    decoded = frames / fps
    return header.seconds if abs(header.seconds - decoded) <= 1 / fps else round(decoded, 3)


def _frames_written(outcome: FfmpegResult) -> int:
    """Frames of the first output, from ``-progress``."""
    counts = re.findall(r"^frame=\s*(\d+)", outcome.output, re.MULTILINE)
    return int(counts[-1]) if counts else 0  # it is printed again and again; the last one is final


def _written_size(target: Path, frames: int) -> tuple[int, int]:
    """Width and height of a finished file, after counting its frames with the decoder that will read it."""
    try:
        reader = open_file_frames(target)
    except RewindError as error:  # ffmpeg wrote it with exit code 0: whatever the source was, it is a clip
        raise system_fault(target, "what ffmpeg wrote cannot be read back") from error
    if len(reader) != frames:
        raise UnusableSource(f"the written file has {len(reader)} frames, {frames} were sent")
    height, width = reader.read([0]).shape[1:3]
    return width, height
