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
import numpy as np

from rewind.config.dataset import Video
from rewind.errors import RewindError
from rewind.io.files import atomic_write
from rewind.video.damage import SourceLog, find_damage, has_variable_rate, listed_pictures, read_source_log
from rewind.video.ffmpeg import (
    ENCODER,
    GLOBAL_OPTIONS,
    TIMEOUT_EXIT_CODE,
    FfmpegResult,
    executable,
    input_stream,
    run_command,
    run_ffmpeg,
    time_limit,
)
from rewind.video.frames import open_file_frames
from rewind.video.repair import (
    LAUNDER_STEPS,
    LAUNDERED_AWAY,
    SourceFormat,
    can_sample_scan,
    launder,
    level_means,
    missing_filters,
    needs_repair,
    read_source_format,
    repair_colours,
    repair_note,
    repair_scan,
    sample_scan,
)

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
    # The source's pictures, as of SourceFormat; earlier versions noted none of these. Empty or 0: not known.
    codec: str = ""
    pixel_format: str = ""
    bit_depth: int = 0
    transfer: str = ""
    field_order: str = ""  # as flagged
    scan: str = ""  # as measured
    sound: Literal["yes", "no", ""] = ""
    variable_rate: Literal["yes", "no", ""] = ""
    dropped_frames: int = 0  # of the source, at its damaged end


class UnusableSource(Exception):
    """A source that cannot become a clip; the message is the reason in the report."""


class DamagedSource(UnusableSource):
    """One whose pictures cannot all be decoded."""


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


@dataclass(frozen=True)
class _Treatment:
    """What is done about a source besides normalising it."""

    alpha: AlphaChannel | None = None  # lay it on white
    repair: SourceFormat | None = None  # None: measure its scan instead
    kept: int = 0  # frames before its damaged end; 0: it has none, and any error is one too many
    kept_seconds: float = 0.0  # and how long they are


@dataclass(frozen=True)
class _Transcoded:
    """What one run of ffmpeg found in the source, and how many frames it wrote."""

    header: SourceHeader
    format: SourceFormat
    alpha: AlphaChannel | None
    frames: int
    damage: str  # what is noted about it
    variable_rate: bool


def _encode(source: Path, targets: list[Path], settings: Video, item_id: str) -> ClipReport:
    """Encode ``source`` forward to the first of ``targets`` and, if there is a second, reversed to that one."""
    clips, wanted = targets, settings
    if settings.launder:  # without loss and in one direction: both clips are made of its levelled frames
        clips, settings = targets[:1], settings.model_copy(update={"qp": _LOSSLESS})
    # At first as if it were opaque, progressive and without HDR, which nearly all sources are: they are decoded once.
    treatment, dropped = _Treatment(), 0
    try:
        done = _run_transcoding(source, clips, settings, treatment)
    except DamagedSource as refusal:
        treatment, dropped = _damaged_end(source, clips, settings, refusal)
        done = _run_transcoding(source, clips, settings, treatment, dropped)
    pictures = done.format
    if fault := missing_filters(pictures, settings):
        raise UnusableSource(fault)
    transparency = _transparency_note(source, clips, done.alpha, settings, treatment.kept) if done.alpha else ""
    alpha = done.alpha if transparency == TRANSPARENCY_NOTE else None
    if alpha or needs_repair(pictures, settings):
        treatment = replace(treatment, alpha=alpha, repair=pictures)
        done = _run_transcoding(source, clips, settings, treatment, dropped)
    if settings.launder:
        _write_levelled(targets, *_written_size(targets[0], done.frames), wanted)
    sizes = {_written_size(target, done.frames) for target in targets}
    if len(sizes) != 1:
        raise UnusableSource("the clip and its twin differ in size")
    width, height = sizes.pop()
    notes = (transparency, repair_note(pictures, settings), _dropped_note(dropped), done.damage)
    return ClipReport(
        item_id=item_id,
        status="ok",
        reason="; ".join(filter(None, notes)),
        seconds=_seconds(done.header, done.frames, settings),
        source_width=done.header.width,
        source_height=done.header.height,
        source_fps=done.header.fps,
        frames=done.frames,
        width=width,
        height=height,
        bytes=sum(target.stat().st_size for target in targets),
        codec=pictures.codec,
        pixel_format=pictures.pixel_format,
        bit_depth=pictures.bit_depth,
        transfer=pictures.transfer,
        field_order=pictures.field_order,
        scan=pictures.scan,
        sound="yes" if pictures.has_sound else "no",
        variable_rate="yes" if done.variable_rate else "no",
        dropped_frames=dropped,
    )


def _run_transcoding(
    source: Path, targets: list[Path], settings: Video, treatment: _Treatment, dropped: int = 0
) -> _Transcoded:
    """Write ``targets``. Damage of what is dropped at the end of the source is expected, other damage is not."""
    graph = _graph(source, targets, settings, "round", treatment)
    outcome = _run_until_believed(graph, source, targets, settings, not treatment.kept)
    nothing = outcome.code == 0 or any("before EOF" in text for text in outcome.errors())
    if nothing and not _frames_written(outcome):
        # Shorter than half a frame's time: the fps filter rounds it away. Keep its one frame instead. Or shorter than
        # what is laundered into one frame.
        graph = _graph(source, targets, settings, "pass", treatment)
        outcome = _run_until_believed(graph, source, targets, settings, not treatment.kept)
    header, frames = read_header(outcome.messages), _frames_written(outcome)
    log = read_source_log(outcome.messages)
    if treatment.kept:
        log = log.cut_to(treatment.kept)
    _check_result(outcome, log, header, frames, settings)
    damage = find_damage(source, log, header.seconds, frames / settings.fps, dropped)
    if damage.fault:
        raise DamagedSource(damage.fault)
    return _Transcoded(
        header=header,
        format=read_source_format(outcome.messages),
        alpha=alpha_channel(outcome.messages),
        frames=frames,
        damage=damage.note,
        variable_rate=has_variable_rate(log),
    )


def _transparency_note(source: Path, targets: list[Path], alpha: AlphaChannel, settings: Video, kept: int) -> str:
    """What the report says about a source with an alpha channel: nothing if no pixel is transparent."""
    graph = min_alpha_graph(_source_frames(source, settings, _Treatment(alpha, kept=kept)))
    outcome = _run_until_believed(graph, source, targets, settings, not kept)
    if any("Unknown decoder" in text for text in outcome.errors()):
        return alpha.missing_decoder_note()
    if outcome.code != 0:
        raise UnusableSource(f"its transparency cannot be decoded: {outcome.fault()}")
    return TRANSPARENCY_NOTE if is_transparent(outcome.output) else ""


_LOSSLESS = 0  # quantiser


def _write_levelled(targets: list[Path], width: int, height: int, settings: Video) -> None:
    """Make clips, of which every frame has a levelled mean, of the first one, which has no loss and is replaced."""
    planes = [(height, width), (height // 2, width // 2), (height // 2, width // 2)]  # yuv420p
    with tempfile.TemporaryDirectory(dir=targets[0].parent, prefix=".level-") as folder:
        frames = Path(folder) / "frames.yuv"
        raw = {"f": "rawvideo", "pix_fmt": "yuv420p"}
        clip = input_stream(targets[0], settings.max_seconds + 2 / settings.fps)
        _run_on_own_clip(ffmpeg.output(clip, f"file:{frames}", fps_mode="passthrough", **raw), targets[0], settings)
        ends = np.cumsum([down * across for down, across in planes])
        parts = np.split(np.fromfile(frames, np.uint8).reshape(-1, ends[-1]), ends[:-1], axis=1)
        levelled = [
            level_means(part.reshape(-1, *size)).reshape(part.shape) for part, size in zip(parts, planes, strict=True)
        ]
        np.concatenate(levelled, axis=1).tofile(frames)
        clip = ffmpeg.input(f"file:{frames}", framerate=settings.fps, video_size=(width, height), **raw)
        clip = _as_stored(clip["v"])
        _run_on_own_clip(ffmpeg.merge_outputs(*_outputs(clip, targets, settings)), targets[0], settings)


def _run_on_own_clip(graph: Any, clip: Path, settings: Video) -> None:
    outcome = run_ffmpeg(graph, time_limit(settings.max_seconds))
    if outcome.code:
        raise system_fault(clip, f"what ffmpeg wrote cannot be coded once more ({outcome.fault()})")


# ---- A damaged end -------------------------------------------------------------------------------------------------


def _damaged_end(source: Path, targets: list[Path], settings: Video, refusal: DamagedSource) -> tuple[_Treatment, int]:
    """Which frames of a damaged source come before the first fault, and how many are lost from there to its end.

    Raises:
        DamagedSource: ``refusal``, if these are none or more than ``drop_damaged_end``.
    """
    if not settings.drop_damaged_end:
        raise refusal
    # Decoded to its end, whatever its faults, to see how many pictures follow the first one. Frames that a decoder
    # holds back to put them in order count as lost if they come out after the error: nothing tells them from a
    # picture that it invented.
    frames = _source_frames(source, settings, _Treatment())
    graph = ffmpeg.output(frames, "-", f="null", fps_mode="passthrough", map_metadata=-1).global_args("-debug_ts")
    outcome = _run_until_believed(graph, source, targets, settings, stop_at_errors=False)
    log = read_source_log(outcome.messages)
    kept = log.first_fault()
    lost = listed_pictures(source, log) - kept
    if outcome.code or not kept or lost < 1:
        raise refusal
    if lost > settings.drop_damaged_end:
        raise DamagedSource(
            f"{refusal}; from there to its end are {lost} frames, more than the {settings.drop_damaged_end} that may "
            "be dropped (video.drop_damaged_end)"
        ) from refusal
    return _Treatment(kept=kept, kept_seconds=log.cut_to(kept).shown_seconds()), lost


def _dropped_note(dropped: int) -> str:
    if not dropped:
        return ""
    last = "last frame does not decode and was" if dropped == 1 else f"last {dropped} frames do not decode and were"
    return f"its {last} dropped (video.drop_damaged_end)"


# ---- Whether the file or the machine is at fault -------------------------------------------------------------------
# ffmpeg's messages do not tell: for a damaged size in a file it reports "Cannot allocate memory", for a lack of memory
# an invalid file. So a failure counts against a file only if this machine, there and then, makes a clip of that size,
# and fails with the file again.

_MAX_CONTROL_SIZE = (3840, 2160)  # a damaged header may state any size
_CONTROL_SIZE, _CONTROL_BYTES = (640, 360), 1 << 20


def _run_until_believed(
    graph: Any, source: Path, targets: list[Path], settings: Video, stop_at_errors: bool = True
) -> FfmpegResult:
    """Run ffmpeg; a result that failed is the file's own fault. One of the machine raises RewindError or OSError."""
    limit = time_limit(settings.max_seconds)
    outcome = run_ffmpeg(graph, limit, stop_at_errors)
    if outcome.code not in (0, TIMEOUT_EXIT_CODE) and not outcome.was_stopped:
        _check_machine(source, targets, settings, read_header(outcome.messages))
        outcome = run_ffmpeg(graph, limit, stop_at_errors)
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
        outcome = run_command(command, time_limit(settings.max_seconds))
        if outcome.code == 0:
            outcome = run_ffmpeg(
                _graph(drawn, clips, settings, "round", _Treatment()), time_limit(settings.max_seconds)
            )
            if outcome.crashed:  # an ffmpeg that can draw clips does not crash for want of something
                return
    if outcome.code:
        raise system_fault(source, f"ffmpeg cannot make a clip of a drawn one either ({outcome.fault()})")


# ---- What ffmpeg is asked to do ------------------------------------------------------------------------------------


def _source_frames(source: Path, settings: Video, treatment: _Treatment) -> Any:
    """The frames of a source that are used, as an ffmpeg-python stream."""
    # Reading stops a little above the limit, so that a wrong header cannot fill the memory; _check_result then sees
    # that it is too long.
    seconds = settings.max_seconds + 2 / settings.fps
    clip = input_stream(source, seconds, **(treatment.alpha.input_options() if treatment.alpha else {}))
    return clip.filter("trim", end_frame=treatment.kept) if treatment.kept else clip


def _graph(source: Path, targets: list[Path], settings: Video, at_end: str, treatment: _Treatment) -> Any:
    """The ffmpeg-python graph: decode once, normalise, encode; and reverse, encode."""
    # setpts: time counts from the first frame, so that which frames fps keeps does not depend on where a container
    # starts its clock.
    clip = _source_frames(source, settings, treatment).filter("setpts", "PTS-STARTPTS")
    samples = []
    if treatment.repair:
        clip = repair_scan(clip, treatment.repair, settings)
    elif can_sample_scan():
        copies = clip.filter_multi_output("split")
        clip, samples = copies[0], [sample_scan(copies[1])]
    # Scaling and converting colours come after dropping frames, which saves work, and before reversing, which holds all
    # frames in memory.
    fps = settings.fps * (LAUNDER_STEPS if settings.launder else 1)
    clip = clip.filter("fps", fps=fps, eof_action=at_end)
    if treatment.kept:
        # To fps, the first frame that is left out is still the end of the one before it, which would be there twice.
        clip = clip.filter("trim", end_frame=max(1, round(treatment.kept_seconds * fps)))
    if treatment.alpha:
        clip = overlay_on_white(clip)
    if treatment.repair:
        clip = repair_colours(clip, treatment.repair)
    clip = clip.filter("scale", **_scaling(settings.short_side))
    clip = _as_stored(clip)
    if settings.launder:
        clip = launder(clip, settings, short=at_end == "pass")
    outputs = _outputs(clip, targets, settings)
    # -progress: ffmpeg prints the number of frames written to stdout, which _frames_written reads. -debug_ts: it prints
    # the times of packets and frames, which read_source_log reads.
    return ffmpeg.merge_outputs(*outputs, *samples).global_args("-progress", "pipe:1", "-debug_ts")


def _as_stored(clip: Any) -> Any:
    # Older ffmpegs convert the colours but keep the source's tag, so the tag is set too.
    clip = clip.filter("setparams", colorspace="smpte170m", range="tv")
    # setsar: scaling rounds the sides, which would leave pixels a little off square.
    return clip.filter("setsar", "1").filter("format", "yuv420p")


def _outputs(clip: Any, targets: list[Path], settings: Video) -> list[Any]:
    if len(targets) == 1:
        return [_output(clip, targets[0], settings)]
    copies = clip.filter_multi_output("split")
    return [_output(copies[0], targets[0], settings), _output(copies[1].filter("reverse"), targets[1], settings)]


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
        refusal = UnusableSource if ended else DamagedSource
        raise refusal(f"cannot be decoded: {(not ended and log.failure()) or outcome.fault()}")
    if _seconds(header, frames, settings) > settings.max_seconds:
        seconds = max(header.seconds, frames / settings.fps)
        raise UnusableSource(f"{seconds:.1f} s long, the limit is {settings.max_seconds:g} s (video.max_seconds)")
    if not frames:
        raise UnusableSource("no frames")


def _seconds(header: SourceHeader, frames: int, settings: Video) -> float:
    """The header's length if the frames agree with it; it may be absent, or count sound or a late start."""
    away = LAUNDERED_AWAY if settings.launder else 0
    if -1 <= header.seconds * settings.fps - frames <= 1 + away:
        return header.seconds
    return round((frames + away) / settings.fps, 3)


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
