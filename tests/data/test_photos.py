"""Captioned images: captions.json with a folder, and Debian's stamps; packages are made here, no network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from checkout import ROOT
from golden_numbers import load_json
from messages import refusal
from rewind.config import Dataset, PhotosSource, load_dataset
from rewind.data.formats import photos, stamps
from rewind.errors import place_of
from rewind.io.files import check_id

GOLDEN = load_json("miniclip.json")
KEYS = PhotosSource(format="photos", captions="captions.json", images="images")


def entries(count: int, captions: int = 2) -> list[dict]:
    return [
        {"file_name": f"image_{n}.jpg", "caption": f"thing {n} seen {k}"} for n in range(count) for k in range(captions)
    ]


def read(folder: Path, content: object, **keys) -> photos.Annotations:
    (folder / "captions.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return photos.read_photos(folder / "captions.json", folder / "images", KEYS.model_copy(update=keys), "mine.yaml")


@pytest.mark.parametrize("golden", GOLDEN["split"], ids=lambda golden: str(golden["n_images"]))
def test_the_split_is_the_originals(tmp_path: Path, golden: dict) -> None:
    names = golden["train"] + golden["val"] + golden["test"]
    content = [{"file_name": f"image_{n}.jpg", "caption": "x"} for n in range(golden["n_images"])]
    if content[0]["file_name"] not in names:
        content = [{"file_name": f"image_{n + 1}.jpg", "caption": "x"} for n in range(golden["n_images"])]
    found = read(tmp_path, content, seed=golden["seed"]).items.set_index("source")["split"]
    for ours, theirs in (("train", "train"), ("valid", "val"), ("test", "test")):
        assert set(found.index[found == ours]) == set(golden[theirs])


def test_captions_of_an_image_stay_together(tmp_path: Path) -> None:
    content = entries(20, 3)
    found = read(tmp_path, content[::-1])
    assert len(found.items) == 20 and len(found.captions) == 60 and found.captions["caption_id"].is_unique
    assert found.items["item_id"].iloc[0] == "image_19" and (found.items["cluster_id"] == found.items["item_id"]).all()
    assert found.items["split"].value_counts().to_dict() == {"train": 14, "valid": 3, "test": 3}
    split = found.items.set_index("item_id")["split"]
    assert (found.captions["split"] == found.captions["video_id"].map(split)).all()
    assert found.notes["splits"]["train"]["captions_per_item"] == {"3": 14} and found.notes["splits"]["train"]["seed"]
    assert read(tmp_path, content[::-1]).items.equals(found.items)
    assert not read(tmp_path, content[::-1], seed=1).items.equals(found.items)


def test_odd_captions_are_read_as_they_are(tmp_path: Path) -> None:
    texts = ["Ein weißer Stuhl", "белый стул", "白い椅子", "كرسي أبيض", "cafe\u0301  chair\n", "🪑", "NA"]
    content = entries(10, 1) + [{"file_name": "image_0.jpg", "caption": text} for text in texts]
    captions = read(tmp_path, content).captions
    assert captions[captions["video_id"] == "image_0"]["caption"].tolist()[1:] == [*texts[:4], "café chair", "🪑", "NA"]


def test_an_image_may_have_a_thousand_captions(tmp_path: Path) -> None:
    content = entries(10, 1) + [{"file_name": "image_3.jpg", "caption": f"view {n}"} for n in range(999)]
    found = read(tmp_path, content)
    own = found.captions[found.captions["video_id"] == "image_3"]
    assert len(own) == 1000 and own["split"].nunique() == 1 and own["caption_id"].iloc[-1] == "image_3#999"


def test_images_without_a_caption_are_counted(tmp_path: Path) -> None:
    for name in ("image_1.jpg", "left.PNG", "deep/er/left.jpg", "notes.txt", "Thumbs.db"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_bytes(b"x")
    notes = read(tmp_path, entries(10)).notes
    assert notes["images_without_caption"] == 2
    assert notes["images_without_caption_shown"] == ["deep/er/left.jpg", "left.PNG"]


@pytest.mark.parametrize(
    "bad",
    [
        {"file_name": "a.jpg", "caption": " \n "},
        {"file_name": "a.jpg"},
        {"file_name": "a.jpg", "caption": None},
        {"file_name": 3, "caption": "x"},
        {"file_name": "../a.jpg", "caption": "x"},
        {"file_name": "/etc/passwd", "caption": "x"},
        {"file_name": "b\\..\\a.jpg", "caption": "x"},
        {"file_name": "", "caption": "x"},
        "a.jpg",
    ],
)
def test_bad_entries_are_named(tmp_path: Path, bad: object) -> None:
    with refusal("captions.json") as caught:
        read(tmp_path, [*entries(10), bad])
    assert place_of(str(caught.value).splitlines()[1].strip()) == "entry 20"


def test_many_bad_entries_are_counted(tmp_path: Path) -> None:
    empty = [{"file_name": "a.jpg", "caption": ""}] * 25
    with refusal("captions.json"):
        read(tmp_path, entries(10) + empty)


def test_files_that_are_no_list_are_refused(tmp_path: Path) -> None:
    with refusal("captions.json"):
        read(tmp_path, {"images": []})
    (tmp_path / "captions.json").write_text("[{")
    with refusal("captions.json"):
        photos.read_photos(tmp_path / "captions.json", tmp_path, KEYS, "mine.yaml")
    with refusal("mine.yaml: source"):
        read(tmp_path, entries(6))


def test_two_names_for_one_id_are_refused(tmp_path: Path) -> None:
    twice = [{"file_name": "image_0.png", "caption": "the same stem"}]
    with refusal("captions.json"):
        read(tmp_path, entries(10) + twice)
    same = [{"file_name": "./image_0.jpg", "caption": "the same file"}]
    assert len(read(tmp_path, entries(10) + same).items) == 10


@given(st.lists(st.text(st.characters(exclude_characters="/\x00"), min_size=1, max_size=120), min_size=2, unique=True))
def test_every_file_name_gives_a_safe_id(names: list[str]) -> None:
    odd = [name + ".jpg" for name in names]
    ids = [check_id(photos.item_id_from_file(name), "test") for name in odd]
    assert len(set(ids)) == len(odd) and not any(one.endswith("_rev") for one in ids)
    assert (
        photos.item_id_from_file("trip/café 1.jpg") == "trip_caf_1-" + photos.item_id_from_file("trip/café 1.jpg")[-8:]
    )
    assert photos.item_id_from_file("IMG_1.b.JPEG") == "IMG_1.b"


def tree(root: Path) -> Path:
    """Stamps in the package's layout: twelve good ones, and one of every kind that is passed over."""
    place = root / stamps.STAMPS_FOLDER

    def stamp(name: str, caption: bytes | None) -> None:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGBA", (12, 9), (len(name), 90, 30, 120)).save(path)
        if caption is not None:
            path.with_suffix(".txt").write_bytes(caption)

    for n in range(12):
        stamp(f"animals/cartoon/beast-{n}.png", f"Beast number {n}.\nde.utf8=Tier {n}.\n".encode())
    stamp("symbols/money/cent.png", b"A cent.")
    stamp("animals/mirror.png", None)
    stamp("animals/silent.png", b"\nde.utf8=Stille")
    stamp("plants/again.png", b"Beast number 3.")
    return root


def dataset(folder: Path | None) -> Dataset:
    source = {"format": "stamps", "folder": folder and str(folder)}
    return Dataset.model_validate({"name": "stamps", "reverse": False, "source": source})


def check(folder: Path) -> None:
    found = stamps.read(dataset(None), str(folder))
    assert len(found.items) == 12 and found.items["item_id"].iloc[0] == "animals_cartoon_beast-0"
    assert found.captions["caption"].iloc[2] == "Beast number 10."  # in the order of paths
    assert found.notes["skipped"] == {"caption of another stamp": 1, "no caption": 2, "symbol": 1}
    assert sorted(path.name for path in (folder / "images").iterdir()) == sorted(found.items["source"])
    assert sorted(path.name for path in folder.iterdir()) == ["captions.json", "images", "skipped.csv"]


def test_an_unpacked_tree_is_used_and_kept(tmp_path: Path) -> None:
    given_tree, out = tree(tmp_path / "given" / "unpacked"), tmp_path / "out"
    (out / "images").mkdir(parents=True)
    (out / "images" / "of_another_version.png").write_bytes(b"x")
    stamps.make_sources(dataset(tmp_path / "given"), out)
    check(out)
    assert len(list(given_tree.rglob("*.png"))) == 16
    times = {path: path.stat().st_mtime_ns for path in (out / "images").iterdir()}
    stamps.make_sources(dataset(given_tree / stamps.STAMPS_FOLDER), out)
    check(out)
    assert times == {path: path.stat().st_mtime_ns for path in (out / "images").iterdir()}


def fake(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch, alone: bool = False) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder) if alone else f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not here")
def test_the_package_is_fetched_unpacked_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree(tmp_path / "root")
    (root / "DEBIAN").mkdir()
    control = (
        f"Package: {stamps.DEBIAN_PACKAGE}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x.org>\nDescription: x\n"
    )
    (root / "DEBIAN" / "control").write_text(control)
    package = tmp_path / "shop" / f"{stamps.DEBIAN_PACKAGE}_1_all.deb"
    package.parent.mkdir()
    subprocess.run(["dpkg-deb", "-Zgzip", "--build", str(root), str(package)], check=True, capture_output=True)
    stamps.make_sources(dataset(package.parent), tmp_path / "b")  # the user's own package stays
    check(tmp_path / "b")
    script = f'[ "$1 $2" = "download {stamps.DEBIAN_PACKAGE}" ] && cp {package} .'
    fake(tmp_path / "bin", "apt-get", script, monkeypatch)
    stamps.make_sources(dataset(None), tmp_path / "a")
    check(tmp_path / "a")
    package.write_bytes(package.read_bytes()[:700])
    with refusal("config/datasets/stamps.yaml", varying=r"(?<=failed: ).*(?= On a Debian)"):  # in whatever order
        stamps.make_sources(dataset(package.parent), tmp_path / "c")
    assert not (tmp_path / "c" / "captions.json").exists()


def test_without_apt_or_network_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path / "bin", "apt-get", "echo 'E: Unable to locate package' >&2; exit 100", monkeypatch)
    with refusal("config/datasets/stamps.yaml"):
        stamps.make_sources(dataset(None), tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path))
    with refusal("config/datasets/stamps.yaml"):
        stamps.make_sources(dataset(None), tmp_path / "out")
    (tmp_path / "bare").mkdir()
    with refusal("config/datasets/stamps.yaml: source.folder"):
        stamps.make_sources(dataset(tmp_path / "bare"), tmp_path / "out")


def test_the_dataset_files_are_valid() -> None:
    folder = ROOT / "config" / "datasets"
    mine, made = load_dataset("photos", folder), load_dataset("stamps", folder)
    assert mine.items == made.items == "images" and made.made_here and not mine.made_here
    assert mine.media is mine.image and not mine.reverse  # images take the image keys
    with refusal("config/datasets/photos.yaml"):
        load_dataset("photos", folder, {"source.train_share": 0.9})
    with refusal("config/datasets/photos.yaml: source.image"):
        load_dataset("photos", folder, {"source.image": "x"})
