"""Damage of a source that ffmpeg decodes with exit code 0: what its log, the frames' times and the file itself say.

``find_damage`` is the entry point. Decoders and demuxers patch, skip or end early rather than fail, each in its own
way. What is certain refuses the source; what may also be found in an intact one is noted in the report.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rewind.video.ffmpeg import LogLine, read_log_line

DAMAGE_NOTE = "perhaps damaged: "
GAP_NOTE = "a gap in time: "
"""How notes begin in the report's column ``reason``."""


class Damage(NamedTuple):
    """Why a source is refused, and what is noted about one that is not; empty if there is nothing to say."""

    fault: str = ""
    note: str = ""


# ---- What ffmpeg's log says ----------------------------------------------------------------------------------------

_INPUT = re.compile(r"Input #0, ([\w,]+), from")
_START = re.compile(r"\s*Duration: .*, start: (-?[\d.]+)")
_STREAM_SECONDS = re.compile(r"DURATION\s*: (\d+):(\d\d):(\d\d\.\d+)")
_STREAM = re.compile(r"\s*Stream #0:(\d+)\S*: (\w+): (\w+)")
# Lines of -debug_ts. Of a packet the one that counts time from the file's start, as a decoded frame does.
_PACKET = re.compile(r"demuxer\+ffmpeg -> .* pkt_pts_time:(\S+) .* duration_time:(\S+)")
_FRAME = re.compile(r"decoder -> .*?(?:best_effort_ts_time|\bpts_time):([\d.-]+)")

# Parts of ffmpeg whose messages are about the output, and not about the source.
_OUTPUT_SPEAKERS = re.compile(r"(^| )(out#|vost#|enc:|libx264|mp4( |$)|swscaler|Parsed_|fc#|vf#|graph|auto_|format)")
# Errors that are reported for intact files as well: cut at a key frame, or written by careless cameras and encoders.
_HARMLESS_ERRORS = re.compile(
    r"mmco|number of reference frames|SEI type|Invalid NAL unit \d+, skip|VPS \d+ does not exist|APP fields|overread|"
    r"non.?monoton|side data"
)
# A decoder that goes on after one of these errors has guessed a picture; after others that is not certain.
_GUESSED_PICTURES = re.compile(
    r"decode failed|mismatch|error (y=|count|while|at)|bad vlc|conceal|overflow|damaged|EOB marker|Failed to parse|"
    r"invalid data|out of range|outside the valid range|too long|too many|corrupt|truncat",
    re.IGNORECASE,
)
_DOUBTFUL_DEMUXER_ERRORS = re.compile(r"Packet mismatch|Truncating packet|read_timestamp failed")
# Warnings that point to damage. "edit list": reports for ordinary cuts that a key frame is missing.
_DAMAGE_WARNINGS = re.compile(
    r"^(?!.*edit list).*(corrupt|damaged|broken|truncat|undecodable|missing|size mismatch|skipping chunk|emulating|"
    r"not a keyframe|prematurely|discontinuity|misdetection)",
    re.IGNORECASE,
)
_OTHER_STREAM = re.compile(r"\bstream\b\D{0,3}(\d+)", re.IGNORECASE)


class Packet(NamedTuple):
    """When a packet of the source is shown (seconds from the start; nan: unknown), and how long by its container."""

    shown: float
    duration: float


@dataclass
class SourceLog:
    """What the log says about the source."""

    demuxer: str = ""  # ffmpeg's name for the container
    stream: int = -1  # number of the stream of pictures
    others: list[str] = field(default_factory=list)  # codecs of other streams
    start: float = 0.0  # when the container's clock starts, in seconds
    probing: list[LogLine] = field(default_factory=list)  # errors and warnings while the file was opened
    decoding: list[tuple[int, LogLine]] = field(default_factory=list)  # later ones, after this many frames
    seconds: float = 0.0  # of the stream of pictures by a tag of its own, as in Matroska; 0 where there is none
    packets: list[Packet] = field(default_factory=list)  # of the stream of pictures
    frames: list[float] = field(default_factory=list)  # times of the decoded frames, in order

    def is_by_demuxer(self, line: LogLine) -> bool:
        return line.speaker in ("", "in#0", f"in#0/{self.demuxer}", self.demuxer)

    def place(self, line: LogLine, frames: int) -> str:
        """Where in the source a decoder said something; the demuxer may be anywhere ahead of it."""
        if self.is_by_demuxer(line) or not frames:
            return ""
        return f" (after picture {frames}, at {self.frames[frames - 1]:.2f} s)"

    def first_fault(self) -> int:
        """Frames that were decoded before the first error of the decoder; all of them if it reported none."""
        faults = (
            frames
            for frames, line in self.decoding
            if line.is_error and not self.is_by_demuxer(line) and not _OUTPUT_SPEAKERS.search(line.speaker)
        )
        return min(faults, default=len(self.frames))

    def cut_to(self, frames: int) -> SourceLog:
        """What it says of the first ``frames`` frames; of the demuxer, which may be anywhere ahead, all that it said.

        A decoder that holds frames back has read further than it has shown: what it said by then is left out.
        """
        last = max(self.frames[:frames], default=0.0)
        said = [entry for entry in self.decoding if entry[0] < frames or self.is_by_demuxer(entry[1])]
        packets = [packet for packet in self.packets if not packet.shown > last]
        return replace(self, decoding=said, packets=packets, frames=self.frames[:frames])

    def shown_seconds(self) -> float:
        """How long its frames are shown, the last one as long as most."""
        return max(self.frames) - min(self.frames) + _interval(self) if self.frames else 0.0

    def failure(self) -> str:
        """Why decoding failed, and where; empty if no error was said."""
        first = next((line for _, line in self.decoding if line.is_error), None)
        first = first or next((line for line in self.probing if line.is_error), None)
        return first.text + self.place(first, len(self.frames)) if first else ""


def read_source_log(messages: Iterable[str]) -> SourceLog:
    """Read the log of one source, whose option ``-debug_ts`` lists the times of packets and frames.

    >>> log = read_source_log(["[info] Input #0, avi, from 'file:a.avi':", "[info]   Stream #0:0: Video: mpeg4 (FMP4)"])
    >>> log.demuxer, log.stream, log.others
    ('avi', 0, [])
    """
    log, opened, said = SourceLog(), False, set()
    for line in filter(None, map(read_log_line, messages)):
        text = line.text
        # ffmpeg writes what it says of outputs in pieces, and another thread's line may come between two of these.
        # Before, a line that only contains such words is a title of the source; outputs get none.
        find_packet, find_frame = (_PACKET.search, _FRAME.search) if opened else (_PACKET.match, _FRAME.match)
        if "-> " in text and (match := find_packet(text)):
            log.packets.append(Packet(math.nan if match[1] == "NOPTS" else float(match[1]), float(match[2])))
        elif "-> " in text and (match := find_frame(text)):
            log.frames.append(float(match[1]))
        elif text == "Stream mapping:":
            opened = True
        elif not opened and line.level == "info":
            _read_header_line(log, text)
        elif line.level == "warning" or line.is_error:
            # A decoder may say the same of every frame; the first time counts, whose place is reported.
            if (opened, line) in said:
                continue
            said.add((opened, line))
            if opened:
                log.decoding.append((len(log.frames), line))
            else:
                log.probing.append(line)
    return log


def _read_header_line(log: SourceLog, text: str) -> None:
    if match := _INPUT.match(text):
        log.demuxer = match[1]
    elif match := _START.match(text):
        log.start = float(match[1])
    elif match := _STREAM.match(text):
        if match[2] == "Video" and log.stream < 0 and "(attached pic)" not in text:
            log.stream = int(match[1])
        else:
            log.others.append(match[3])
    elif (match := _STREAM_SECONDS.match(text)) and log.stream == len(log.others):  # of the stream just before
        log.seconds = int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])


# ---- Faults and notes ----------------------------------------------------------------------------------------------

_MIN_HOLE, _HOLE_INTERVALS = 0.5, 10  # a hole in time is longer than this many seconds, and than this many frames
# Of these formats pictures follow each other at one rate: in a regular row of them two lost ones can be seen. Single
# ones are left out by recorders.
_RAW = ("mpegvideo", "m4v", "h264", "hevc", "mjpeg")
_ONE_RATE = ("avi", "asf", "rm", "mxf", "mpegts", "mpeg", "wtv", "dv", "ivf", *_RAW)
_MIN_SHORTFALL = 0.5  # seconds by which headers may be wrong


def find_damage(
    source: Path, log: SourceLog, header_seconds: float, decoded_seconds: float, dropped: int = 0
) -> Damage:
    """What is damaged in a source that was decoded with exit code 0.

    Args:
        header_seconds: its length by its header, sound included; 0 where unknown.
        decoded_seconds: length of the decoded frames at the rate to which they were brought.
        dropped: frames at its end that were left out because they are damaged; ``log`` is without them.
    """
    said, seen = _spoken_damage(log), _structure_damage(source, log.demuxer)
    # A stream's own length may be left from before its file was cut, so that the shorter one counts.
    own = seen.seconds or log.seconds or (0.0 if log.others else header_seconds)
    decoded_seconds = max([*log.frames, decoded_seconds]) + dropped * _interval(log) if dropped else decoded_seconds
    missing = _missing_end(log, min(filter(None, (own, header_seconds)), default=0.0), decoded_seconds)
    if fault := said.fault or seen.fault or (missing if own else ""):
        return Damage(fault)
    absent = max(0, seen.samples - len(log.packets) - dropped)
    unread = f"{absent} of the {seen.samples} pictures that its header lists cannot be read" if absent else ""
    doubts = "; ".join(filter(None, (said.note, seen.note, missing, unread, _missing_start(log), _lost(log))))
    hole = "" if seen.samples else _hole(log)  # where each picture is listed with its length, there is none
    return Damage(note="; ".join(filter(None, (doubts and DAMAGE_NOTE + doubts, hole))))


def _spoken_damage(log: SourceLog) -> Damage:
    """What demuxer and decoder said. Only the stream of pictures counts, and no word about the written files."""
    # While a file is opened, decoders of its sound log too (mp3float of mp3).
    opening = [line for line in log.probing if not line.speaker.startswith(tuple(log.others))]
    doubts = [line.text for line in opening if _points_to_damage(line, log)]
    # The demuxer first: in newer ffmpegs it runs in parallel with the decoder, and which logs first varies by run.
    for frames, line in sorted(log.decoding, key=lambda said: not log.is_by_demuxer(said[1])):
        if _OUTPUT_SPEAKERS.search(line.speaker) or not _points_to_damage(line, log):
            continue
        if "File ended prematurely" in line.text:  # of Matroska, whose clusters know how much there should be
            return Damage("cut off: the file ends before its own header says")
        if log.is_by_demuxer(line):
            certain = not _DOUBTFUL_DEMUXER_ERRORS.search(line.text)
        else:
            certain = bool(_GUESSED_PICTURES.search(line.text))
        if line.is_error and certain:
            return Damage(f"damaged: {line.text}{log.place(line, frames)}")
        doubts.append(f"{line.text}{log.place(line, frames)}")
    return Damage(note=doubts[0] if doubts else "")


def _points_to_damage(line: LogLine, log: SourceLog) -> bool:
    other = _OTHER_STREAM.search(line.text)
    if other and int(other[1]) != log.stream:
        return False
    if line.is_error:
        return not _HARMLESS_ERRORS.search(line.text)
    return bool(_DAMAGE_WARNINGS.match(line.text))


def _interval(log: SourceLog) -> float:
    """The usual time from frame to frame; 0 if there are no two."""
    times = sorted(set(log.frames))
    return statistics.median(later - time for time, later in itertools.pairwise(times)) if len(times) > 1 else 0.0


_STEADY, _MAX_UNSTEADY = 0.5, 0.01  # share of the interval; of the steps, some of which a recorder may leave out


def has_variable_rate(log: SourceLog) -> bool:
    """Whether the time from frame to frame differs by more than containers round it."""
    interval, times = _interval(log), sorted(set(log.frames))
    unsteady = sum(abs(later - time - interval) > _STEADY * interval for time, later in itertools.pairwise(times))
    return unsteady > _MAX_UNSTEADY * len(times)


def listed_pictures(source: Path, log: SourceLog) -> int:
    """Pictures that the source should have: as its header lists them, at least as many as it has packets."""
    return max(len(log.packets), _structure_damage(source, log.demuxer).samples)


def _missing_end(log: SourceLog, header_seconds: float, decoded_seconds: float) -> str:
    # ffmpeg estimates from the bit rate where a file states no length; from that nothing can be missing.
    if not header_seconds or any("Estimating duration" in line.text for line in log.probing):
        return ""
    interval, last = _interval(log), max(log.frames, default=0.0)
    durations = (packet.duration for packet in log.packets if packet.shown == last)
    end = max(last + next(durations, interval), decoded_seconds)
    # A late start counts into the length of some containers.
    shortfall = header_seconds - max(log.start, 0.0) - end
    if not shortfall > max(_MIN_SHORTFALL, 2 * interval):  # not a number where the length is not known
        return ""
    return f"the pictures end after {end:.2f} s of the {header_seconds:.2f} s in its header"


def _missing_start(log: SourceLog) -> str:
    # Times below zero are what an edit list leaves out.
    first = min((packet.shown for packet in log.packets if packet.shown >= 0), default=0.0)
    late = min(log.frames, default=first) - first
    return f"its first {late:.2f} s cannot be decoded" if late > max(0.3, 4 * _interval(log)) else ""


def _hole(log: SourceLog) -> str:
    """The longest time without a frame, where the container does not say that the frame before lasts so long."""
    interval, durations = _interval(log), {packet.shown: packet.duration for packet in log.packets}
    rows = [(time, max(durations.get(time, 0.0), interval)) for time in sorted(set(log.frames))]
    steps = [later - time for (time, _), (later, _) in itertools.pairwise(rows)]
    irregular = sum(abs(step - interval) > 0.5 * interval for step in steps)
    is_regular = log.demuxer in _ONE_RATE and irregular <= 0.1 * len(steps)
    smallest = 1.5 * interval if is_regular else max(_MIN_HOLE, _HOLE_INTERVALS * interval)
    holes = [(later - time - duration, time, later) for (time, duration), (later, _) in itertools.pairwise(rows)]
    length, time, later = max(holes, default=(0.0, 0.0, 0.0))
    if length <= smallest:
        return ""
    return f"{GAP_NOTE}no pictures from {time:.2f} to {later:.2f} s, where the one before is shown"


def _lost(log: SourceLog) -> str:
    """Packets in whose time there is no frame; the second field of an interlaced picture is no such packet."""
    times, interval = sorted(log.frames), _interval(log)
    if not times or not interval:
        return ""
    decoded = {round(time / interval) + step for time in times for step in (-1, 0, 1)}
    lost = [packet.shown for packet in log.packets if packet.shown >= times[0]]
    lost = [time for time in lost if round(time / interval) not in decoded]
    return f"{len(lost)} of {len(log.packets)} packets give no picture (first at {lost[0]:.2f} s)" if lost else ""


# ---- What the file itself states, where ffmpeg does not look -------------------------------------------------------

_CUT_OFF = "cut off: the file has {} bytes, {} by its own header"
# The GUID of the File Properties object, as it is stored: its first three parts are little-endian.
_ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
# MPEG-TS: plain, with a time before each packet (M2TS), or with error correction; DV: a frame of NTSC or PAL.
_ROWS_OF_PACKETS = {"mpegts": (188, 192, 204), "dv": (120_000, 144_000)}  # bytes of a packet
_UNKNOWN_SIZE = 2**32 - 16  # of a recording without an end
_MAX_ZERO_SHARE = 0.05  # of the file, at its end
_TAIL_BYTES = 70_000  # more than an Ogg page has


class _Structure(NamedTuple):
    fault: str = ""
    note: str = ""
    seconds: float = 0.0  # length of the pictures' own track
    samples: int = 0  # and how many it has


def _structure_damage(source: Path, demuxer: str) -> _Structure:
    size = source.stat().st_size
    with source.open("rb") as file:
        head = file.read(4096)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read()
        zeros = len(tail) - len(tail.rstrip(b"\0"))
        if zeros == len(tail) or zeros > _MAX_ZERO_SHARE * size:  # as an unfinished download leaves them
            return _Structure(note="its last part is zeros")
        if demuxer.startswith("mov,"):
            return _box_damage(file, size)
    declared = 0
    if head[:4] == b"RIFF":
        declared = int.from_bytes(head[4:8], "little") + 8  # it does not count these first 8 bytes
        if declared == 8 or declared >= _UNKNOWN_SIZE:
            return _Structure(seconds=math.nan)  # nor is the number of frames known, which is written with it
    elif demuxer == "asf" and (at := head.find(_ASF_PROPERTIES)) >= 0:
        # The object: GUID (16 bytes), its own size (8), id of the file (16), size of the file (8).
        declared = int.from_bytes(head[at + 40 : at + 48], "little")
    if declared > size:
        return _Structure(_CUT_OFF.format(f"{size:,}", f"{declared:,}"))
    if demuxer == "ogg" and not _ends_with_last_page(tail):
        return _Structure(note="cut off: the file does not end with a last page")
    if demuxer == "gif" and tail.rstrip(b"\0")[-1:] != b";":
        return _Structure(note="the file has no trailer")
    if demuxer in _ROWS_OF_PACKETS and all(size % packet for packet in _ROWS_OF_PACKETS[demuxer]):
        return _Structure(note="the file ends within a packet")
    return _Structure()


def _ends_with_last_page(tail: bytes) -> bool:
    """Whether the last page of an Ogg file is whole and says that it is the last of its stream (flag 4)."""
    # The header of a page has 27 bytes: flags at 5, the number of segments at 26. Then come the lengths of these, a
    # byte each, and their content.
    page = tail[tail.rfind(b"OggS") :]
    segments = page[27 : 27 + page[26]] if len(page) > 27 else b""
    return bool(segments) and len(page) >= 27 + len(segments) + sum(segments) and bool(page[5] & 4)


def _boxes(file: BinaryIO, at: int, end: int) -> Iterator[tuple[int, bytes, int, int]]:
    """Start, kind, start of the content and end of each box of an MP4 or QuickTime file, which may be no box at all."""
    while at + 8 <= end:
        file.seek(at)
        header = file.read(16)
        length, kind, content = int.from_bytes(header[:4], "big"), header[4:8], at + 8
        if length == 1:  # too long for 4 bytes: the length follows the kind
            length, content = int.from_bytes(header[8:16], "big"), at + 16
        if length == 0 and kind.strip(b"\0"):  # up to the end
            length = end - at
        yield at, kind, content, at + length
        if length < 8:  # less than its own header: the walk would not move on
            return
        at += length


def _box_damage(file: BinaryIO, size: int) -> _Structure:
    """Whether the file is a row of boxes up to its end (zeros may follow), and how long its video track is."""
    movie = _Structure()
    for at, kind, content, end in _boxes(file, 0, size):
        if end < at + 8 or not kind.replace(b"\xa9", b"c").decode("latin-1").isprintable():
            file.seek(at)
            rest = file.read()
            if rest.strip(b"\0"):
                said = f"its parts do not join at byte {at:,}"
                # With pictures behind the break some are lost for certain; any other rest is only noted.
                return _Structure(*(f"damaged: {said}", "") if b"moof" in rest or b"mdat" in rest else ("", said))
            break
        if end > size:
            return _Structure(note=f"the file ends {end - size:,} bytes early")
        if kind == b"moov":
            movie = _read_movie(file, content, end)
    return movie


def _read_movie(file: BinaryIO, at: int, end: int) -> _Structure:
    """Length and number of samples of the only video track of a movie; 0 where they are not said."""
    tracks, scale = [], 0
    for _, kind, content, stop in _boxes(file, at, end):
        file.seek(content)
        if kind == b"mvhd":
            header = file.read(36)
            # Version 1 of a box (its first byte) has times of 8 bytes instead of 4, so that what follows them lies
            # further on.
            scale = int.from_bytes(header[20:24] if header[0] else header[12:16], "big")
        elif kind == b"trak" and b"vide" in (track := file.read(stop - content)):
            tracks.append(track)
    if len(tracks) != 1 or not scale:
        return _Structure()
    header, media, table = (tracks[0].partition(name)[2] for name in (b"tkhd", b"mdhd", b"stsz"))
    wide = header[:1] == b"\1"
    # A track's length counts in the time scale of the movie, that of its media in one of its own.
    duration = int.from_bytes(header[28:36] if wide else header[20:24], "big")
    seconds = 0.0 if duration == 256 ** (8 if wide else 4) - 1 else duration / scale  # all bits set: not known
    wide = media[:1] == b"\1"
    media_scale = int.from_bytes(media[20:24] if wide else media[12:16], "big") or 1
    media_seconds = int.from_bytes(media[24:32] if wide else media[16:20], "big") / media_scale
    is_cut = abs(media_seconds - seconds) > 0.1  # by an edit list
    return _Structure(seconds=seconds, samples=0 if is_cut else int.from_bytes(table[8:12], "big"))
