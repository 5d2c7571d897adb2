"""Inspect the user's clips and images: which exist, which can be decoded, how long they are, which are identical."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rewind.cli.init.read import UserData
from rewind.config.dataset import Video
from rewind.data.annotations import twin_of
from rewind.data.formats.photos import IMAGE_SUFFIXES, open_image
from rewind.data.splits import duplicate_files
from rewind.errors import RewindError, first_lines, printable_name
from rewind.progress import track
from rewind.video.ffmpeg import require_encoder
from rewind.video.images import upright_rgb
from rewind.video.sources import VIDEO_SUFFIXES, SourceFinder
from rewind.video.traces import measure_series, read_source, reverse_series, trace_features
from rewind.video.transcode import ClipReport, UnusableSource, transcode_clip

MEDIA_FOLDERS = ("videos", "clips", "images")  # names of folders next to a table in which clips are looked for
MAX_LOST_SHARE = 0.2  # share of clips that may be missing or broken; with more the folder or the table is at fault
DECODE_SETTINGS = Video(short_side=16)  # every frame is decoded, but hardly anything is encoded or written


@dataclass
class MediaReport:
    """What is known about the files of the items.

    Attributes:
        items: ``videos`` or ``images``.
        files: id → file, of the items that have one.
        broken: id → why its file cannot be used.
        noted: id → what is unusual about a clip that can be used.
        same: groups of ids that have the same file, or files of the same content.
        own_reverse: ids of clips that were decoded and are the same played backwards, such as only one frame.
        traces: id → those of a clip that was decoded, and of the same played backwards (:mod:`rewind.video.traces`).
    """

    folder: Path
    items: str = "videos"
    files: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    noted: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # lengths of the clips that were decoded
    decoded: int = 0  # number of files
    same: list[list[str]] = field(default_factory=list)
    own_reverse: list[str] = field(default_factory=list)
    traces: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)


def inspect_media(data: UserData, videos: str, max_decoded: int, cores: int) -> MediaReport:
    """Find the files of all items, and decode up to ``max_decoded`` of them, spread evenly, to their ends.

    What is wrong with the whole is added to ``data.faults``. Without ``videos``, the folder that the user named, files
    are looked for where the table is and next to it; ``cores`` files are decoded at once.

    Raises:
        RewindError: if no file is found at all.
    """
    media = _find_best_folder(data, videos)
    kinds = _media_kinds(list(media.files.values()))
    if len(kinds) > 1:
        shown = " and ".join(f"{kind} ({printable_name(path.name)})" for kind, path in sorted(kinds.items()))
        data.faults.append(f"{media.folder}: contains {shown}; a data set has one kind: name a folder of one.")
    media.items = "videos" if "videos" in kinds else "images"
    # Groups of different files with the same content, then single files that several items name.
    owners: dict[str, list[str]] = {}
    for name, path in media.files.items():
        owners.setdefault(str(path), []).append(name)
    media.same = [[name for path in group for name in owners[path]] for group in duplicate_files(owners)]
    grouped = {name for group in media.same for name in group}
    media.same += [names for names in owners.values() if len(names) > 1 and names[0] not in grouped]
    _decode_sample(media, max_decoded, cores)
    _add_loss_fault(data, media)
    return media


def _find_best_folder(data: UserData, videos: str) -> MediaReport:
    if videos and not Path(videos).is_dir():
        raise RewindError(f"--videos {videos}: no such folder; name the one that has the clips.")
    parent = data.folder or data.source.parent
    folders = [Path(videos)] if videos else [parent, *(parent / name for name in MEDIA_FOLDERS), Path()]
    reports = [_find_files_in(folder, data) for folder in dict.fromkeys(folders) if folder.is_dir()]
    best = max(reports, key=lambda report: len(report.files))  # the first of equally good ones
    if not best.files:
        first = next(iter(data.items.values()))
        where = ", ".join(str(report.folder) for report in reports)
        raise RewindError(
            f"{data.source}: none of its {len(data.items):,} clips is in {where} (looked for {first.path!r}, with or "
            "without a suffix); name their folder with --videos FOLDER, or correct the names."
        )
    return best


def _find_files_in(folder: Path, data: UserData) -> MediaReport:
    report, videos, images = MediaReport(folder), SourceFinder(folder), SourceFinder(folder, IMAGE_SUFFIXES)
    for name, item in data.items.items():
        try:
            path = videos.find(item.path) or images.find(item.path)
        except RewindError as error:  # several files fit
            report.broken[name] = str(error)
            continue
        if path is None:
            report.missing.append(name)
        else:
            report.files[name] = path
    return report


def _media_kinds(paths: list[Path]) -> dict[str, Path]:
    """``videos`` and ``images``, as far as there are any → an example of this kind.

    Files whose suffix may be either (such as GIF) are clips if any of them moves or there are other clips.
    """
    ambiguous = [path for path in paths if path.suffix.lower() in VIDEO_SUFFIXES & IMAGE_SUFFIXES]
    videos = [path for path in paths if path.suffix.lower() in VIDEO_SUFFIXES - IMAGE_SUFFIXES]
    images = [path for path in paths if path.suffix.lower() not in VIDEO_SUFFIXES]
    if ambiguous:
        (videos if videos or any(map(_is_animated, ambiguous)) else images).append(ambiguous[0])
    return {kind: files[0] for kind, files in (("images", images), ("videos", videos)) if files}


def _is_animated(path: Path) -> bool:
    """Whether an image file holds several pictures; False for one that cannot be read, which decoding will report."""
    try:
        with open_image(path) as image:
            return getattr(image, "n_frames", 1) > 1
    except Exception:  # as many types as Pillow has formats
        return False


def _decode_sample(media: MediaReport, max_decoded: int, cores: int) -> None:
    sample = list(media.files)
    if len(sample) > max_decoded:
        sample = [sample[int(n * len(sample) / max_decoded)] for n in range(max_decoded)]
    media.decoded = len(sample)
    if media.items == "videos":
        require_encoder()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores) as pool:

        def check(name: str) -> tuple[str, float, str, bool]:
            if media.items == "images":
                return name, 0.0, _image_fault(media.files[name]), False
            report, own_reverse = _compare_with_reverse(media.files[name], Path(folder) / name, DECODE_SETTINGS)
            if own_reverse:  # at this size; what moves little is told apart at the size of data sets
                own_reverse = _compare_with_reverse(media.files[name], Path(folder) / name, Video())[1]
            if report.status == "ok":
                media.traces[name] = _traces(media.files[name], report.scan)
                if report.reason:
                    media.noted[name] = report.reason
            fault = "" if report.status == "ok" else _explain_refusal(media.files[name], report.reason)
            return name, report.seconds, fault, own_reverse

        for name, seconds, fault, own_reverse in track(pool.map(check, sample), "looked at", len(sample), "files"):
            media.own_reverse += [name] * own_reverse
            if fault:
                media.broken[name] = fault
            elif media.items == "videos":
                media.seconds.append(seconds)


def _traces(source: Path, scan: str) -> tuple[list[float], list[float]]:
    series = measure_series(read_source(source, scan, Video())[0])
    forward, backward = trace_features(series), trace_features(reverse_series(series))
    return [*forward.values()], [*backward.values()]


def _compare_with_reverse(source: Path, stem: Path, settings: Video) -> tuple[ClipReport, bool]:
    """The report of a clip that is transcoded with its twin, and whether both are the same file."""
    clip, twin = stem.with_name(f"{stem.name}.mp4"), stem.with_name(f"{twin_of(stem.name)}.mp4")
    report = transcode_clip(source, clip, twin, settings)
    same = report.status == "ok" and clip.read_bytes() == twin.read_bytes()
    for path in (clip, twin):
        path.unlink(missing_ok=True)
    return report, same


def _explain_refusal(path: Path, reason: str) -> str:
    """Why a file cannot be used as a clip; for a still picture among moving ones a clearer reason than ffmpeg's."""
    ambiguous = path.suffix.lower() in VIDEO_SUFFIXES & IMAGE_SUFFIXES
    is_still = ambiguous and not _image_fault(path) and not _is_animated(path)
    return "a picture that does not move, among others that do" if is_still else reason


def _image_fault(path: Path) -> str:
    try:
        upright_rgb(path)
    except UnusableSource as error:
        return str(error)
    return ""


def _add_loss_fault(data: UserData, media: MediaReport) -> None:
    """Add a fault where so much is missing or broken that the folder or the table cannot be the right one."""
    lines = [f"  {data.items[name].where}: {name}: no file {data.items[name].path!r}" for name in media.missing]
    lines += [f"  {name}: {reason}" for name, reason in media.broken.items()]
    if len(lines) > MAX_LOST_SHARE * len(data.items):
        data.faults.append(
            f"{media.folder}: {len(lines):,} of {len(data.items):,} clips are missing or cannot be decoded:\n"
            f"{first_lines(lines)}\nCorrect the names or the folder, or delete their rows."
        )
