"""Which frames of a clip are read."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rewind.errors import RewindError

Sampling = Literal["uniform", "ends", "head", "tail", "stride"]


def frame_indices(
    frames: int,
    max_frames: int,
    sampling: Sampling = "uniform",
    fps: float | None = None,
    rate: float | None = None,
    reversed: bool = False,
) -> np.ndarray:
    """Indices of the frames to read, int64, ascending, at most ``max_frames`` of them; ``stride`` alone repeats some.

    Args:
        frames: length of the clip in frames, at least 1.
        max_frames: most frames to keep; a clip with fewer keeps all (padding is left to the caller).
        sampling: what is kept of more: ``uniform`` (centres of equal segments), ``ends`` (evenly spaced from the
            first frame to the last), the ``head`` or the ``tail``. ``stride``, ViCLIP's ``frames[::frames // n][:n]``,
            always gives n = ``max_frames``: some twice, if short.
        fps: frames per second of the clip; needed with ``rate``.
        rate: frames per second taken before ``sampling``, at least one frame; none or above ``fps``: all.
        reversed: the clip is a twin. The result is then ``frames - 1 - idx[::-1]`` of the original's: the
            same content in opposite order, under ``head`` and ``tail`` too.

    Raises:
        RewindError: for a clip without frames, ``max_frames`` below 1, or ``rate`` without ``fps``.
    """
    if frames < 1 or max_frames < 1:
        raise RewindError(f"cannot choose {max_frames} of {frames} frames; both must be at least 1.")
    kept = np.arange(frames, dtype=np.int64)
    if rate is not None:
        kept = (_between_ends if sampling == "ends" else _spread)(frames, _rated(frames, fps, rate))
    if len(kept) > max_frames or sampling == "stride":
        kept = _cut(kept, max_frames, sampling)
    return frames - 1 - kept[::-1] if reversed else kept


def _rated(frames: int, fps: float | None, rate: float) -> int:
    if not fps or fps <= 0 or rate <= 0:
        raise RewindError(
            f"frames.rate = {rate} needs a positive rate and a clip whose frames per second are known (got {fps})."
        )
    return min(frames, max(1, round(frames * rate / fps)))


def _cut(kept: np.ndarray, max_frames: int, sampling: Sampling) -> np.ndarray:
    if sampling == "head":
        return kept[:max_frames]
    if sampling == "tail":
        return kept[-max_frames:]
    if sampling == "uniform":
        return kept[_spread(len(kept), max_frames)]
    if sampling == "ends":
        return kept[_between_ends(len(kept), max_frames)]
    if sampling == "stride":
        if len(kept) < max_frames:
            return kept[np.arange(max_frames) * len(kept) // max_frames]
        return kept[:: len(kept) // max_frames][:max_frames]
    raise RewindError(f"frames.sampling: {sampling!r} is unknown; use uniform, ends, head, tail or stride.")


def _spread(length: int, n: int) -> np.ndarray:
    """Centres of ``n`` ≤ ``length`` equal segments, symmetric in time.

    A centre between two frames takes the later one in the first half and the earlier one in the second; only
    the middle of an odd ``n`` over an even ``length`` has no symmetric place.
    """
    centres = (2 * np.arange(n, dtype=np.int64) + 1) * length // (2 * n)
    half = n // 2
    centres[n - half :] = length - 1 - centres[:half][::-1]
    return centres


def _between_ends(length: int, n: int) -> np.ndarray:
    """``n`` ≤ ``length`` places from 0 to ``length - 1``, evenly spaced and symmetric in time; of one, the middle.

    Only the middle of an odd ``n`` over an even ``length`` has no symmetric place.
    """
    if n == 1:
        return np.array([(length - 1) // 2], dtype=np.int64)
    places = (2 * np.arange(n, dtype=np.int64) * (length - 1) + n - 1) // (2 * (n - 1))
    half = n // 2
    places[n - half :] = length - 1 - places[:half][::-1]
    return places


def upstream_indices(frames: int, fps: float, rate: int, max_frames: int, position: int) -> np.ndarray:
    """CLIP4Clip's own choice of frames, int64: asymmetric in time, for comparison only; no study uses it.

    The clip's ``fps`` is cut to an integer F, the first ``rate`` multiples of ``max(F // rate, 1)`` below F
    are taken in every second of F frames, then ``position`` (``slice_framepos``) keeps the 0 head, 1 tail,
    2 floored ``linspace(0, n - 1, max_frames)`` of more than ``max_frames``. Source: ArrowLuo/CLIP4Clip,
    ``rawvideo_util.py`` and ``dataloader_msrvtt_retrieval.py``.

    Raises:
        RewindError: for a rate below one frame per second (upstream divides by zero).
    """
    whole = int(fps)
    if whole < 1 or rate < 1:
        raise RewindError(f"CLIP4Clip's sampling needs at least one frame per second (fps {fps}, rate {rate}).")
    inside = np.arange(0, whole, max(whole // rate, 1), dtype=np.int64)[:rate]
    taken = (np.arange(0, frames, whole, dtype=np.int64)[:, None] + inside).ravel()
    taken = taken[taken < frames]
    if len(taken) <= max_frames:
        return taken
    if position == 0:
        return taken[:max_frames]
    if position == 1:
        return taken[-max_frames:]
    return taken[np.linspace(0, len(taken) - 1, max_frames, dtype=np.int64)]
