"""Readers of clips: decord (or decord2, which has the same name in Python), PyAV, and torchcodec where it is asked for.

``open_video`` opens a clip with the reader of this machine: the first of decord and PyAV that is installed, or the one
that the environment variable ``REWIND_FRAME_READER`` names. All give the same frames of a clip that
Rewind prepared, bit for bit: ``benchmarks/frame_readers.py`` compares them.

A prepared clip consists only of key frames, so each of its frames can be decoded by itself. Other files, which reach
this module only through Python (the workflow reads nothing but prepared clips), are decoded from their first frame on,
whichever frame is asked for. Seeking is where readers return wrong frames: decord 0.6 and decord2 3.4 do in HEVC, in
MPEG-4 in AVI and in Matroska of variable rate.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import importlib.util
import io
import itertools
import os
import re
import tempfile
from collections.abc import Generator, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rewind.errors import RewindError
from rewind.io.files import reraise_system_error
from rewind.video.ffmpeg import GLOBAL_OPTIONS, executable, run_command

Indices = Sequence[int] | np.ndarray


class FrameReader(Protocol):
    """Frames of a clip by their numbers."""

    fps: float

    def __len__(self) -> int:
        """Number of frames."""

    def read(self, indices: Indices) -> np.ndarray:
        """uint8 RGB (n, height, width, 3) of the frames at ``indices``, in any order and as often as they are named."""


class VideoReader(abc.ABC):
    """A video file, or one whose bytes (``content``) come from a shard; ``path`` then only names it in messages."""

    fps: float

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path, self.content = path, content
        try:
            self._open()
        except RewindError:
            raise
        except Exception as error:  # libraries raise types of their own, RuntimeError, ValueError and others
            reraise_system_error(error, path)
            advice = "delete it and prepare the videos again" if content is None else "prepare the videos again"
            raise RewindError(f"{path}: cannot be opened as a video; {advice}.") from error

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of frames that can be read."""

    def read(self, indices: Indices) -> np.ndarray:
        """uint8 RGB (n, height, width, 3) of the frames at ``indices``."""
        try:
            return np.stack(self._frames([int(index) for index in indices]))
        except Exception as error:
            reraise_system_error(error, self.path)
            raise RewindError(
                f"{self.path}: frames cannot be decoded; delete it and prepare the videos again."
            ) from error

    @abc.abstractmethod
    def _open(self) -> None:
        """Set ``fps`` and whatever reading needs."""

    @abc.abstractmethod
    def _frames(self, indices: list[int]) -> list[np.ndarray]: ...


class DecordReader(VideoReader):
    """Frames through decord or decord2, on one CPU thread (data loaders run many readers at once)."""

    def _open(self) -> None:
        import decord  # here: much that imports this module never decodes a video

        decord.logging.set_level(decord.logging.QUIET)
        source = str(self.path) if self.content is None else io.BytesIO(self.content)
        self._video = decord.VideoReader(source, ctx=decord.cpu(0), num_threads=1)
        self.fps = round(float(self._video.get_avg_fps()), 3)
        self._length = len(self._video)
        self._seekable = len(self._video.get_key_indices()) == self._length
        if not self._seekable:
            # decord counts what the container holds. Where fewer frames can be decoded (a clip that was cut without
            # coding it again, say), it repeats the last one without a word, or hangs with Python's lock held, so that
            # not even a signal ends it (dmlc/decord, issue 373). It is never asked for more than ffmpeg, a process that
            # can be ended, decodes. A prepared clip needs no such check: its frames were counted when it was written.
            self._length = min(self._length, _count_decodable_frames(self.path, self.content))

    def __len__(self) -> int:
        return self._length

    def _frames(self, indices: list[int]) -> list[np.ndarray]:
        if max(indices) >= self._length:
            raise IndexError(f"frame {max(indices)} of {self._length}")
        if self._seekable:
            return [_unpadded(self._video[index].asnumpy()) for index in indices]
        self._video.seek(0)
        wanted, frames = set(indices), {}
        for index in range(max(indices) + 1):
            frame = self._video.next()
            if index in wanted:
                frames[index] = _unpadded(frame.asnumpy())
        return [frames[index] for index in indices]


def _unpadded(frame: np.ndarray) -> np.ndarray:
    """A frame without the padding that decord leaves at the end of each row at some widths.

    It takes the channels of a frame to be row bytes / width. Rows are padded, at width 48 to 192 bytes, and so it finds
    four channels there (also at widths 16, 24, 72; decord2, which pads to longer rows, also at 96). Its ``get_batch``
    fails at these widths, so frames are read singly.
    """
    height, width, channels = frame.shape
    return frame if channels == 3 else frame.reshape(height, -1)[:, : 3 * width].reshape(height, width, 3)


_COUNT_SECONDS = 600.0
# Containers without an index. decord finds no way back to their first frame and begins at a later one.
_WITHOUT_INDEX = ("mpegts", "mpeg")


def _count_decodable_frames(path: Path, content: bytes | None) -> int:
    """How many frames ffmpeg decodes of a file; refused if it is not decodable to its end, or if decord misreads it."""
    with contextlib.ExitStack() as stack:
        name = path
        if content is not None:
            file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=path.suffix))
            file.write(content)
            file.flush()  # ffmpeg opens it by its name
            name = Path(file.name)
        source = ["-protocol_whitelist", "file", "-threads", "1", "-i", f"file:{name}", "-map", "0:V:0"]
        # passthrough: every decoded frame counts once, none dropped or doubled for an even rate. -progress prints the
        # count.
        count = ["-fps_mode", "passthrough", "-progress", "pipe:1", "-f", "null", "-"]
        outcome = run_command([executable(), *GLOBAL_OPTIONS, *source, *count], _COUNT_SECONDS)
    for line in outcome.messages:
        if (kind := re.search(r"Input #0, ([\w,]+), from", line)) and kind[1] in _WITHOUT_INDEX:
            raise RewindError(
                f"{path}: an MPEG stream ({kind[1]}), of which decord returns wrong frames; convert it (ffmpeg -i "
                f"{path.name} -c copy {path.stem}.mp4), or pip install av and set REWIND_FRAME_READER=av."
            )
    counts = re.findall(r"^frame=\s*(\d+)", outcome.output, re.MULTILINE)
    if outcome.code or not counts:
        raise RewindError(f"{path}: cannot be decoded to its end: {outcome.fault()}; repair it, or encode it again.")
    return int(counts[-1])


class AvReader(VideoReader):
    """Frames through PyAV, on one CPU thread."""

    def _open(self) -> None:
        with self._stream() as stream:
            # The last packet is empty, and only flushes the decoder; those outside of an edit list are marked to be
            # discarded.
            packets = [
                (packet.is_keyframe, packet.is_corrupt)
                for packet in stream.container.demux(stream)
                if packet.size and not packet.is_discard
            ]
            self.fps = round(float(stream.average_rate or 0), 3)
        if not packets or any(corrupt for _, corrupt in packets):
            raise ValueError("no frames, or a file that ends inside one")
        self._seekable = all(key for key, _ in packets)
        self._length = len(packets)
        if not self._seekable:  # a container may hold more than can be decoded, as one that was cut does
            self._length = sum(1 for _ in self._decode(None))

    def __len__(self) -> int:
        return self._length

    def _frames(self, indices: list[int]) -> list[np.ndarray]:
        wanted = sorted(set(indices))
        frames: dict[int, np.ndarray] = {}
        convert: _RgbConverter | None = None
        # Closed at once where the loop ends early; else the file would stay open until the generator is collected.
        with contextlib.closing(self._decode(set(wanted))) as decoded:
            # Where each frame decodes by itself only those wanted come, in their order; else all come, counted from the
            # first.
            for index, frame in zip(wanted if self._seekable else itertools.count(), decoded, strict=False):
                if index in wanted:
                    convert = convert or _RgbConverter(frame)
                    frames[index] = convert(frame)
                if len(frames) == len(wanted):
                    break
        return [frames[index] for index in indices]

    @contextlib.contextmanager
    def _stream(self) -> Iterator[Any]:
        import av  # here: much that imports this module never decodes a video

        with av.open(str(self.path) if self.content is None else io.BytesIO(self.content)) as container:
            stream = container.streams.best("video")
            if stream is None:
                raise ValueError("no video stream")
            stream.thread_type, stream.codec_context.thread_count = "NONE", 1
            yield stream

    def _decode(self, wanted: set[int] | None) -> Generator[Any]:
        """Frames in the order in which they are shown; where each can be decoded by itself, only those ``wanted``."""
        with self._stream() as stream:
            number = -1
            for packet in stream.container.demux(stream):
                if wanted is not None and self._seekable and packet.size:
                    number += not packet.is_discard
                    if packet.is_discard or number not in wanted:
                        continue
                yield from packet.decode()  # the last packet is empty and yields what the decoder still holds


class _RgbConverter:
    """Frames of one stream as uint8 RGB (height, width, 3), upright.

    A filter graph, as decord has one: it makes libswscale convert with the same options, and so to the same bits.
    ``VideoFrame.to_ndarray`` chooses others for 10-bit clips.
    """

    def __init__(self, frame: Any) -> None:
        from av.filter import Graph

        self._graph = Graph()
        source = self._graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base
        )
        to_rgb, sink = self._graph.add("format", "pix_fmts=rgb24"), self._graph.add("buffersink")
        source.link_to(to_rgb)
        to_rgb.link_to(sink)
        self._graph.configure()

    def __call__(self, frame: Any) -> np.ndarray:
        self._graph.push(frame)
        return np.rot90(self._graph.pull().to_ndarray(), round(frame.rotation / 90))


class TorchcodecReader(VideoReader):
    """Frames through torchcodec, on one CPU thread; it needs FFmpeg's shared libraries and, mostly, CUDA's.

    It refuses more of the files that Rewind did not prepare than the others do, and measures their rate: ``fps`` is
    that of the frames' times, not that of the header.
    """

    def _open(self) -> None:
        from torchcodec.decoders import VideoDecoder

        source = str(self.path) if self.content is None else self.content
        self._video = VideoDecoder(source, dimension_order="NHWC", num_ffmpeg_threads=1, seek_mode="exact")
        self.fps = round(float(self._video.metadata.average_fps), 3)
        # There is no public name for it yet; without it, frames are decoded in order.
        key_frames: Any = getattr(self._video, "_get_key_frame_indices", tuple)()
        self._seekable = len(key_frames) == len(self._video)

    def __len__(self) -> int:
        return len(self._video)

    def _frames(self, indices: list[int]) -> list[np.ndarray]:
        if self._seekable:
            return list(self._video.get_frames_at(indices).data.numpy())
        wanted, frames = set(indices), {}
        for index in range(max(indices) + 1):
            frame = self._video[index]
            if index in wanted:
                frames[index] = frame.numpy()
        return [frames[index] for index in indices]


# ---- Which reader a machine uses -----------------------------------------------------------------------------------

READER_VARIABLE = "REWIND_FRAME_READER"
READERS: dict[str, type[VideoReader]] = {"decord": DecordReader, "av": AvReader, "torchcodec": TorchcodecReader}
"""Package, as it is imported → its reader."""
_BY_DEFAULT = ("decord", "av")
_DISTRIBUTIONS = {"decord": ("decord", "decord2")}
HOW_TO_INSTALL = "pip install decord (Linux and Windows on x86-64), decord2 (ARM) or av (any)"


def reader_name() -> str:
    """The package that reads clips here, by the name that it is imported by: ``decord``, ``av`` or ``torchcodec``.

    Raises:
        RewindError: if none is installed, or not the one that ``REWIND_FRAME_READER`` names.
    """
    name = os.environ.get(READER_VARIABLE, "")
    if not name:
        found = next(filter(_is_installed, _BY_DEFAULT), None)
        if found is None:
            raise RewindError(f"no package that reads clips is installed: {HOW_TO_INSTALL}.")
        return found
    if name not in READERS:
        raise RewindError(f"{READER_VARIABLE}={name}: unknown; use decord, av or torchcodec.")
    if not _is_installed(name):
        install = HOW_TO_INSTALL if name == "decord" else f"pip install {name}"
        raise RewindError(f"{READER_VARIABLE}={name}: {name} is not installed: {install}, or unset the variable.")
    return name


def installed_readers() -> list[str]:
    """Keys of :data:`READERS` whose packages are installed; whether these load is not tried."""
    return [name for name in READERS if _is_installed(name)]


def reader_version(name: str = "") -> str:
    """What reads clips here, or ``name``, with its version, such as ``decord 0.6.0``; the package is not imported."""
    name = name or reader_name()
    installed = {name: version for name in _DISTRIBUTIONS.get(name, (name,)) if (version := _installed_version(name))}
    # Of two that are installed into the same folder the later one replaced the files of the other: decord2 is
    # installed only on request where decord already exists.
    return " ".join(list(installed.items())[-1]) if installed else name


@functools.cache
def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def open_video(path: Path, content: bytes | None = None) -> FrameReader:
    """Open a video with the reader of this machine; where ``content`` is given, ``path`` only names it in messages."""
    return READERS[reader_name()](path, content)
