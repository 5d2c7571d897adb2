"""Captioned animated clips: the animated Fluent emoji, named and tagged by emojibase (npm packages, MIT).

They are short loops on white: they test retrieval, not the direction of time, so they have no reversed twins. Packages
are the user's own or downloaded with npm; variants of one emoji are on one side of a split.
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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from rewind.config.dataset import Dataset, EmojiSource
from rewind.data.annotations import SPLITS, Annotations
from rewind.data.clip_writer import write_clip
from rewind.data.dummy import PublishedSizes, SplitSizes, draw_animation, make_dummy_items
from rewind.data.formats.photos import open_image
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.io.files import open_member, read_csv, reading_user_file, write_csv, write_json
from rewind.io.strict import read_user_json
from rewind.progress import track
from rewind.registry import DUMMY_DATA, FORMATS

# ---- npm packages as folders: the user's own, or downloaded --------------------------------------------------------


def npm_package_name(spec: str) -> str:
    """The last part of a package's name.

    >>> npm_package_name("@lobehub/fluent-emoji-anim-1@1.0.0")
    'fluent-emoji-anim-1'
    """
    return spec.rpartition("@")[0].rpartition("/")[2]


def npm_packages(specs: Mapping[str, str], user_folder: Path, store: Path, where: str, hint: str = "") -> list[Path]:
    """Unpacked folder of every package: the user's, or one that an earlier job left, or downloaded with npm.

    ``specs`` maps a specification (``@scope/name@version``) to a folder that the package must contain; ``hint`` is what
    else a user may do where nothing can be downloaded.
    """
    missing = [spec for spec, inside in specs.items() if not _find_npm_package_in(spec, inside, user_folder, store)]
    for spec in track(missing, "npm pack", len(missing), "packages"):
        if fault := _download_npm_package(spec, store):
            raise RewindError(
                f"{where}: {fault}. Install npm (Node.js) and check the network; or, on a machine with both, run\n"
                f"  npm pack {' '.join(missing)}\n"
                "and put the .tgz files, or each package unpacked into a folder of its name, into the folder "
                f"that source.folder names. {hint}".rstrip()
            )
    paths = {spec: _find_npm_package_in(spec, inside, user_folder, store) for spec, inside in specs.items()}
    return [
        path if path.is_dir() else _unpack_npm_package(path, spec, specs[spec], store)
        for spec, path in paths.items()
        if path
    ]


def _find_npm_package_in(spec: str, inside: str, *folders: Path) -> Path | None:
    return next((path for folder in folders if (path := _find_npm_package(spec, inside, folder))), None)


def _find_npm_package(spec: str, inside: str, folder: Path) -> Path | None:
    """An unpacked package, else its archive, under ``folder``: as npm, tar or a user would lay it out."""
    full = spec.rpartition("@")[0]  # with its scope
    roots = (
        folder / npm_package_name(spec) / "package",
        folder / npm_package_name(spec),
        folder / full,
        folder / "node_modules" / full,
    )
    archives = sorted(folder.glob(f"{full.lstrip('@').replace('/', '-')}-[0-9]*.tgz"))[-1:]
    return next((path for path in [*(r for r in roots if (r / inside).is_dir()), *archives]), None)


def _download_npm_package(spec: str, store: Path) -> str:
    """Run ``npm pack`` in ``part``, then rename its archive: no killed download looks complete. What failed, if any."""
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


def _unpack_npm_package(archive: Path, spec: str, inside: str, store: Path) -> Path:
    """Extract ``archive`` under ``store``, completely or not at all; no member can be written outside that folder."""
    target, part = store / npm_package_name(spec), store / "part"
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(part, ignore_errors=True)
    with reading_user_file(archive, "npm package", "download it again"):
        try:
            with tarfile.open(archive) as tar:
                for member in (member for member in tar if not member.isdir()):
                    opened = open_member(tar, member, part)
                    if opened is None:
                        raise tarfile.TarError(f"{member.name!r} is not a file of the package")
                    path, stream = opened
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("wb") as file:
                        shutil.copyfileobj(stream, file)
            if not (part / "package" / inside).is_dir():
                raise tarfile.TarError(f"it is not {spec}")
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise RewindError(f"{archive}: the archive is damaged ({error}); download it again.") from error
    os.replace(part, target)
    return target / "package"


# ---- Subjects: variants of one emoji stay on one side of a split ---------------------------------------------------

_PERSON_CODES = frozenset(
    {"1f468", "1f469", "1f9d1", "1f466", "1f467", "1f9d2"}
)  # man, woman, person, boy, girl, child
SKIN_TONE = re.compile("1f3f[b-f]")
_CODE_MODIFIERS = re.compile("-(200d|2640|2642|27a1)")  # joiner, female sign, male sign, facing right
_VARIANT_WORDS = re.compile(
    r"\b(wom[ae]n|m[ae]n|person|people|boy|girl|prince|princess|old|older|santa|mrs|mx|and|face|"
    r"red|orange|yellow|(light )?blue|green|purple|brown|black|white|grey|pink|small|large|not|done|closed|"
    r"up|down|left|right|facing|oncoming|backhand|front|with rain drops|without snow)\b"
)


def group_by_subject(labels: dict[str, str]) -> dict[str, str]:
    """Group emoji that show one subject: code points → the smallest code points of its subject.

    Two emoji share a subject if they share, directly or through others,

    - the first code point (``person surfing``, ``woman surfing``; ``bear``, ``polar bear``) or, where that is
      a bare person, what the person is joined with (``man farmer``, ``farmer``; all with red hair); or
    - the label less words of sex, age, colour, direction and size (hearts of all colours; ``taxi``,
      ``oncoming taxi``; ``dog``, ``dog face``), of ``family: man, boy`` only ``family``; moons; clock faces.

    Faces of different expressions stay apart: the captions are about the expression. ``labels`` are those of all of
    emojibase, so that a subject does not depend on the packages in use.

    >>> subjects = group_by_subject({"1f415": "dog", "1f436": "dog face", "1f695": "taxi"})
    >>> subjects["1f436"], subjects["1f695"]
    ('1f415', '1f695')
    """
    # Union-find: each code points to one of its group, at last to the smallest; two codes with a key in common join.
    parent = {code: code for code in labels if not SKIN_TONE.search(code)}

    def root(code: str) -> str:
        while parent[code] != code:
            code = parent[code]
        return code

    first_with_key: dict[str, str] = {}
    for code in sorted(parent):
        for key in _subject_keys(code, labels[code]):
            low, high = sorted((root(code), root(first_with_key.setdefault(key, code))))
            parent[high] = low
    return {code: root(code) for code in parent}


def _subject_keys(code: str, label: str) -> list[str]:
    base, *rest = _CODE_MODIFIERS.sub("", code).split("-")
    joined = [part for part in rest if part not in _PERSON_CODES]
    codes = [f"with {part}" for part in joined[:1]] if base in _PERSON_CODES else [f"base {base}"]
    return [*codes, f"label {_label_stem(label.lower())}"]


def _label_stem(label: str) -> str:
    if re.search(r"\bmoon( face)?$", label):
        return "moon"
    if re.search(r"o’clock$|-thirty$", label):
        return "clock face"
    parts = [" ".join(re.findall(r"[^\W_]+", _VARIANT_WORDS.sub("", part))) for part in label.split(":")]
    return next((part for part in parts if part), "person")


# ---- The dataset format: writing source clips and labels, reading them ---------------------------------------------

EMOJIBASE_PACKAGE = "emojibase-data@17.0.0"
CLIP_PACKAGE = "@lobehub/fluent-emoji-anim-{}@1.0.0"
EMOJI_COLUMNS = ["item_id", "label", "tags", "subject", "package", "frames", "seconds"]
DOWNLOAD_HINT = "With source.packages: [1] one package of clips is enough."
# qp 10 is close enough to lossless as a source for the next stage. 4:2:0 needs even sides, so odd ones are padded with
# white.
ENCODER_OPTIONS = "-vf pad=ceil(iw/2)*2:ceil(ih/2)*2:0:0:white,format=yuv420p -qp 10"
_TEXT_COLUMNS = ("label", "tags", "subject", "package", "file")


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Write ``folder/videos/<item_id>.mp4``, ``folder/skipped.csv`` and, last, ``folder/emoji.csv``.

    Every animated emoji without a skin tone becomes a clip of its own size and rate, composited on white.
    Its item id is its code points in lower case, without the variation selector ``fe0f``. Every other picture
    is a row of ``skipped.csv`` with the reason. A clip that exists already is not encoded again.
    """
    source, where, store = dataset.source, f"config/datasets/{dataset.name}.yaml", folder / ".packages"
    specs = [CLIP_PACKAGE.format(number) for number in sorted(set(source.packages))]
    contents = {EMOJIBASE_PACKAGE: "en"} | dict.fromkeys(specs, "assets")
    emojibase, *packages = npm_packages(contents, Path(source.folder or store), store, where, DOWNLOAD_HINT)
    emoji = _read_emojibase(emojibase / "en" / "data.json")
    subjects = group_by_subject({code: entry["label"] for code, entry in emoji.items()})
    chosen, skipped = _choose_files(dict(zip(map(npm_package_name, specs), packages, strict=True)), emoji)
    jobs = [(path, folder / "videos" / f"{code}.mp4") for code, (_, path) in chosen.items()]
    # Threads, because the work is libwebp's and ffmpeg's, outside Python's lock.
    with ThreadPoolExecutor(dataset.video.workers) as pool:
        results = list(track(pool.map(_make_clip, jobs), "emoji", len(jobs), "files"))

    rows = []
    for (code, (package, path)), result in zip(chosen.items(), results, strict=True):
        if isinstance(result, str):
            skipped.append((package, path.name, result))
        else:
            tags = "|".join(emoji[code].get("tags", []))
            rows.append((code, emoji[code]["label"], tags, subjects[code], package, *result))
    if not rows:
        raise RewindError(f"{where}: source.packages: no animated emoji in {', '.join(map(str, packages))}.")
    write_csv(folder / "skipped.csv", pd.DataFrame(skipped, columns=["package", "file", "reason"]))
    write_csv(folder / "emoji.csv", pd.DataFrame(rows, columns=EMOJI_COLUMNS).sort_values("item_id"))
    shutil.rmtree(store, ignore_errors=True)  # downloaded and unpacked here; the user's own files are elsewhere
    print(f"emoji: {len(rows)} clips; skipped: {dict(Counter(row[2] for row in skipped))}", file=sys.stderr)


def _read_emojibase(path: Path) -> dict[str, dict[str, Any]]:
    """Emojibase's entries (label, tags, …) by code points."""
    entries = read_user_json(path)
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        keys = (entry.get("hexcode"), entry.get("label")) if isinstance(entry, dict) else (None,)
        tags = entry.get("tags", []) if isinstance(entry, dict) else []
        if not all(isinstance(text, str) for text in (*keys, *(tags if isinstance(tags, list) else [tags]))):
            raise RewindError(
                f"{path}: entry {number} (from 0) has no hexcode and label of text; is it {EMOJIBASE_PACKAGE}?"
            )
    return {_normalise_code(entry["hexcode"]): entry for entry in entries}


def _normalise_code(name: str) -> str:
    """One spelling of an emoji's code points: emojibase and file names differ in case, padding and ``fe0f``.

    >>> _normalise_code("A9-FE0F")
    '00a9'
    """
    parts = [part for part in name.lower().replace("_", "-").split("-") if part != "fe0f"]
    return "-".join(part.zfill(4) for part in parts)


def _choose_files(packages: dict[str, Path], emoji: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """(package, file) to decode, by code points; and (package, file, reason) of files that their names exclude."""
    chosen, skipped = {}, []
    files = [(name, path) for name, root in packages.items() for path in sorted(root.glob("assets/*.webp"))]
    for package, path in files:
        code = _normalise_code(path.stem)
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
    """Encode one animation (file, target); return its number of frames and seconds, or why there is no clip."""
    path, target = job
    try:
        with open_image(path) as image:
            count = getattr(image, "n_frames", 1)  # formats without animation lack it
            if count < 2:
                return "not animated"
            pictures, durations = zip(*(_frame_on_white(image, n) for n in range(count)), strict=True)
            size = image.size
    except (OSError, ValueError, EOFError, SyntaxError, Image.DecompressionBombError) as error:
        return f"not decodable ({type(error).__name__})"
    # Nearly all clips show every frame equally long. The rate is that of the median; a longer frame is repeated.
    step = max(statistics.median_low(durations), 1)
    frames = [p for p, d in zip(pictures, durations, strict=True) for _ in range(max(1, round(d / step)))]
    if not target.exists():
        write_clip(target, b"".join(frames), size, f"1000/{step}", ENCODER_OPTIONS)
    return len(frames), round(len(frames) * step / 1000, 3)


def _frame_on_white(image: Image.Image, number: int) -> tuple[bytes, int]:
    """RGB bytes of one frame composited on white, and its duration in milliseconds."""
    image.seek(number)
    frame = image.convert("RGBA")
    white = Image.new("RGBA", frame.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, frame).convert("RGB").tobytes(), int(image.info.get("duration", 0))


@FORMATS.register("emoji", make_sources=make_sources)
def read(dataset: Dataset, sources: str) -> Annotations:
    """Items and captions of what :func:`make_sources` wrote into ``sources``.

    Splits are drawn by subject, which is also the cluster of the statistics. A validation or test clip has
    one caption, its label. A training clip also has its tags (``cook, kitchen``) and both (``man cook: cook,
    kitchen``), where it has tags. The notes give the sizes of splits, labels that occur twice in the test split, and
    counts of skipped files by reason.
    """
    table = read_csv(Path(sources) / "emoji.csv", text=_TEXT_COLUMNS)
    splits = _assign_splits(sorted(set(table["subject"])), dataset.source, f"config/datasets/{dataset.name}.yaml")
    table["split"] = table["subject"].map(splits)
    items = table[["item_id", "split"]].assign(cluster_id=table["subject"], reversed=0)
    items.insert(1, "source", table["item_id"] + ".mp4")
    rows = [
        (row.item_id, caption, f"{row.item_id}#{number}", row.split)
        for row in table.itertuples(index=False)
        for number, caption in enumerate(_captions_of_emoji(row.label, row.tags, row.split))
    ]
    captions = pd.DataFrame(rows, columns=["video_id", "caption", "caption_id", "split"])
    skipped = read_csv(Path(sources) / "skipped.csv", text=_TEXT_COLUMNS)
    return Annotations(items, captions, _reader_notes(table, captions, skipped))


def _assign_splits(subjects: list[str], source: EmojiSource, where: str) -> dict[str, str]:
    """Subject → split, in the order of a hash of seed and subject, so that adding packages moves few of them."""
    ordered = sorted(subjects, key=lambda subject: stable_hash(source.seed, subject))
    test, valid = round(len(ordered) * source.test_share), round(len(ordered) * source.valid_share)
    train = len(ordered) - test - valid
    if min(test, valid, train) < 1:
        raise RewindError(f"{where}: source: {len(ordered)} subjects leave a split empty; use larger shares.")
    return dict(zip(ordered, ["test"] * test + ["valid"] * valid + ["train"] * train, strict=True))


def _captions_of_emoji(label: str, tags: str, split: str) -> list[str]:
    words = tags.replace("|", ", ")
    return [label, words, f"{label}: {words}"] if words and split == "train" else [label]


def _reader_notes(table: pd.DataFrame, captions: pd.DataFrame, skipped: pd.DataFrame) -> dict[str, Any]:
    count = {"clips": ("item_id", "size"), "subjects": ("subject", "nunique")}
    sizes = table.groupby("split").agg(**count).assign(captions=captions["split"].value_counts())
    labels = table[table["split"] == "test"].groupby("label")["item_id"].agg(list)
    splits = {split: {k: int(v) for k, v in sizes.loc[split].items()} for split in SPLITS}
    repeated = labels[labels.str.len() > 1].to_dict()
    reasons = skipped["reason"].value_counts().sort_index().to_dict()
    return {"splits": splits, "duplicate_test_captions": repeated, "skipped": reasons}


# ---- Dummy data ----------------------------------------------------------------------------------------------------

# 734 clips; about two captions more for each training clip that has tags. The split is by subject, so about by shares.
PUBLISHED = PublishedSizes((294, 850), (73, 73), (367, 367), 734, "the packages' versions that the study names")
_FIRST_DUMMY_CODE = 0xF0000  # a private-use plane of Unicode: it contains no real emoji


@DUMMY_DATA.register("emoji", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Packages with animations that are each a subject of their own, so that the split follows the source's shares."""
    source = dataset.source
    train_share = 1 - source.test_share - source.valid_share
    count = max(round(sizes.train / train_share), round(sizes.valid / source.valid_share))
    package = folder / npm_package_name(CLIP_PACKAGE.format(source.packages[0]))
    entries = []
    for number, item in enumerate(make_dummy_items(SplitSizes(min(count, 4 * sizes.train), 0, 0), 1)):
        code, scene = f"{_FIRST_DUMMY_CODE + number:x}", item.entry.scene
        draw_animation(item, package / "assets" / f"{code}.webp")
        label = f"{item.entry.captions(False)[0].rstrip('.').lower()} {number}"
        entries.append({"hexcode": code.upper(), "label": label, "tags": [scene.shape, scene.colour]})
    write_json(folder / npm_package_name(EMOJIBASE_PACKAGE) / "en" / "data.json", entries)
    return {"folder": str(folder), "packages": source.packages[:1]}
