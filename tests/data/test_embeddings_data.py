"""Data sets of vectors: read, split, laid out, and everything that is refused."""

from __future__ import annotations

import pickle
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from checkout import GOLDEN
from golden_numbers import load_json
from messages import refusal
from rewind.config import load_dataset
from rewind.config.dataset import Dataset, EmbeddingsSource
from rewind.data.captions import embeddings_digest
from rewind.data.formats.embeddings import make_sources, read, split_embedded_images, write_embedding_rows
from rewind.data.readers import NpzArchive
from rewind.io.files import read_json
from rewind.loading.run_data import EmbeddingFiles
from rewind.video.dataset import make_captions, report_vectors
from rewind.workflow.config import check_sources, load_config

CHALLENGE = GOLDEN / "challenge"
EXPECTED = load_json("challenge/expected.json")  # what the original's loader makes of it
TARGETS = EXPECTED["targets"]  # image of each caption


def source(folder: Path = CHALLENGE, **keys: object) -> Dataset:
    given = {"format": "embeddings", "train": str(folder / "train.npz"), "captions": str(folder / "captions.txt")}
    return Dataset(name="challenge", source=given | {"valid_share": 0.25, "test_share": 0.25} | keys)


def small(folder: Path, **changes: object) -> Dataset:
    """Six images with two captions each, float16; ``changes`` replace members, None takes one out."""
    rng = np.random.default_rng(0)
    arrays = {
        "metadata/num_captions": np.array([12]),
        "captions/ids": np.arange(12),
        "captions/text": np.array([f"caption {n}" for n in range(12)]),
        "captions/embeddings": rng.normal(size=(12, 5)).astype(np.float16),
        "images/names": np.array([f"photos/p{n}.jpg" for n in range(6)]),
        "images/embeddings": rng.normal(size=(6, 7)).astype(np.float16),
    }
    lines = changes.pop("lines", [f"photos/p{n // 2}.jpg,caption {n}" for n in range(12)])
    arrays = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(folder / "train.npz", **arrays)
    (folder / "captions.txt").write_text("\n".join(["image,caption", *lines]) + "\n", encoding="utf-8")
    return source(folder)


def test_the_challenge_is_read_as_the_original_reads_it(tmp_path):
    make_sources(source(), tmp_path)
    images, captions = pd.read_csv(tmp_path / "items.csv"), pd.read_csv(tmp_path / "captions.csv")
    with np.load(CHALLENGE / "train.npz", allow_pickle=False) as archive:
        names, texts = archive["images/names"], archive["captions/text"]
        vectors, pictures = archive["captions/embeddings"], archive["images/embeddings"]
    owner = dict(zip(captions["id"], captions["item_id"], strict=True))
    expected = {n: names[image].removesuffix(".jpg") for n, image in enumerate(TARGETS)}
    assert {n: str(item) for n, item in owner.items()} == expected
    stored, shown = np.load(tmp_path / "text.npy"), np.load(tmp_path / "images.npy")
    assert np.array_equal(stored, vectors[captions["id"]])
    assert captions["caption"].tolist() == texts[captions["id"]].tolist()
    order = [names.tolist().index(name) for name in images["name"]]
    assert np.array_equal(shown, pictures[order])


def test_the_challenges_split_is_that_of_the_original():
    with np.load(CHALLENGE / "train.npz", allow_pickle=False) as archive:
        names = archive["images/names"].tolist()
    shares = {"seed": EXPECTED["split_seed"], "valid_share": EXPECTED["split_val_ratio"]}
    splits = split_embedded_images(names, EmbeddingsSource(format="embeddings", train="a", captions="b", **shares), "d")
    valid = sorted(name for name in names if splits[name] == "valid")
    assert [names.index(name) for name in valid] == EXPECTED["val_image_indices_in_gallery_order"]
    assert [splits[names[image]] == "valid" for image in TARGETS] == [bool(x) for x in EXPECTED["split_caption_is_val"]]


def test_the_split_is_that_of_the_original():
    for case in load_json("translator.json")["split"]:
        names = case["all_image_names"]
        keys = EmbeddingsSource(
            format="embeddings", train="a", captions="b", seed=case["seed"], valid_share=case["val_ratio"]
        )
        splits = split_embedded_images(names, keys, "d")
        valid = sorted(name for name in names if splits[name] == "valid")
        assert [names.index(name) for name in valid] == case["val_image_indices_in_gallery_order"]
        train_or_test = [splits[names[image]] != "valid" for image in case["caption_image_index"]]
        assert train_or_test == [bool(flag) for flag in case["caption_is_train"]]


def test_a_split_is_a_piece_of_the_mapped_file(tmp_path):
    chosen = small(tmp_path)
    make_sources(chosen, tmp_path / "s")
    annotations, found = read(chosen, str(tmp_path / "s")), EmbeddingFiles(tmp_path / "s" / "embeddings.json")
    with np.load(tmp_path / "train.npz") as archive:
        vectors = archive["captions/embeddings"]
    for split in ("train", "valid", "test"):
        captions = annotations.captions[annotations.captions["split"] == split]
        text = found.text(captions)
        assert text.dtype == torch.float16
        assert text.untyped_storage().data_ptr() == found._text.untyped_storage().data_ptr()
        rows = [int(caption.split()[1]) for caption in captions["caption"]]
        assert np.array_equal(text.numpy(), vectors[rows])
        items = annotations.items[annotations.items["split"] == split]
        batch = found.items(items).batch(np.array([0]))
        assert batch["frames"].shape == (1, 1, 7)
        assert batch["frames"].dtype == torch.float32
    shuffled = annotations.captions.sample(frac=1, random_state=0)
    rows = [int(caption.split()[1]) for caption in shuffled["caption"]]
    assert np.array_equal(found.text(shuffled).numpy(), vectors[rows])
    with refusal("s/embeddings.json"):
        found.text(pd.DataFrame({"caption_id": ["stranger#0"]}))


def test_the_stages_of_clips_have_nothing_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = small(tmp_path)
    folder = Path("results/data/challenge")
    make_sources(chosen, folder / "source")
    report_vectors(chosen, str(folder / "videos/report.csv"))
    make_captions(chosen, str(folder / "videos/report.csv"), str(folder / "items.csv"))
    items = pd.read_csv(folder / "items.csv", keep_default_na=False)
    assert set(items["status"]) == {"ok"}
    assert set(items["path"]) == {""}
    assert len(pd.read_csv(folder / "captions/challenge_train.csv")) == 8
    hashes = read_json(folder / "source/embeddings.json")["hashes"]
    assert read_json(folder / "captions/report.json")["digest"] == embeddings_digest(hashes), (
        "the content is the vectors'"
    )


def test_the_label_matrix_is_never_unpacked(tmp_path, monkeypatch):
    small(tmp_path, **{"captions/label": np.zeros((12, 6), dtype=bool)})
    unpacked, plain = Counter(), zipfile.ZipExtFile.read

    def watched(self, size=-1):
        content = plain(self, size)
        unpacked[self.name] += len(content)
        return content

    monkeypatch.setattr(zipfile.ZipExtFile, "read", watched)
    make_sources(source(tmp_path), tmp_path / "s")
    assert unpacked["captions/embeddings.npy"] > 100
    assert 0 < unpacked["captions/label.npy"] < 100, "which version of the format it is, and no more"


def test_texts_in_object_arrays_are_read_without_running_anything(tmp_path):
    texts = np.array([f"caption {n}" for n in range(12)], dtype=object)
    chosen = small(tmp_path, **{"captions/text": texts})
    make_sources(chosen, tmp_path / "s")
    assert len(pd.read_csv(tmp_path / "s" / "captions.csv")) == 12


class Evil:
    def __reduce__(self):
        return (open, ("/tmp/never", "w"))


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    texts = np.array([Evil(), *["x"] * 11], dtype=object)
    with refusal("train.npz", varying=r"would run (\w+)\.open"):  # its module has another name from Python 3.13 on
        make_sources(small(tmp_path, **{"captions/text": texts}), tmp_path / "s")
    with refusal("train.npz"):
        make_sources(small(tmp_path, **{"captions/text": np.array(["x", 7, *"abcdefghij"], object)}), tmp_path / "s")
    assert not Path("/tmp/never").exists()
    assert pickle.dumps(Evil())  # it is one


def broken(shape: tuple[int, int], row: int, value: float) -> np.ndarray:
    found = np.ones(shape, np.float32)
    found[row] = value
    return found


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"captions/embeddings": np.ones((12, 5, 2))}, "train.npz"),
        ({"images/embeddings": np.ones((6, 7), dtype=int)}, "train.npz"),
        ({"images/embeddings": broken((6, 7), 3, np.nan)}, "train.npz"),
        ({"captions/embeddings": broken((12, 5), 11, np.inf)}, "train.npz"),
        ({"captions/embeddings": broken((12, 5), 2, 0)}, "train.npz"),
        ({"metadata/num_captions": np.array([13])}, "train.npz"),
        ({"metadata/embedding_dim_image": np.array([8])}, "train.npz"),
        ({"captions/ids": np.array([*range(11), 4])}, "train.npz"),
        ({"captions/ids": np.arange(11)}, "train.npz"),
        ({"images/names": np.array(["a.jpg"] * 2 + list("bcde"))}, "train.npz"),
        ({"images/names": np.array(list("abcde"))}, "train.npz"),
        ({"captions/embeddings": None}, "train.npz"),
        ({"captions/embeddings": np.asfortranarray(np.ones((12, 5)))}, "train.npz"),
        ({"captions/text": np.array(["other"] * 12)}, "captions.txt"),
        ({"lines": ["photos/p0.jpg,caption 0"] * 11}, "captions.txt"),
        (
            {"lines": ["photos/p0.jpg,caption 0", "lost.jpg,caption 1"] * 6},
            "captions.txt",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path, changes, place):
    with refusal(place):
        make_sources(small(tmp_path, **changes), tmp_path / "s")
    assert not (tmp_path / "s" / "embeddings.json").exists()


def test_broken_archives_are_refused(tmp_path):
    (tmp_path / "no.npz").write_bytes(b"no zip")
    with refusal("no.npz"):
        NpzArchive(tmp_path / "no.npz")
    with refusal("absent.npz"):
        NpzArchive(tmp_path / "absent.npz")
    small(tmp_path)
    whole = (tmp_path / "train.npz").read_bytes()
    at = whole.index(b"captions/embeddings.npy") + 200
    (tmp_path / "train.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    with refusal("train.npz"):
        make_sources(source(tmp_path), tmp_path / "s")


def test_vectors_past_memory_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    chosen = small(tmp_path)
    limited = chosen.model_copy(update={"source": chosen.source.model_copy(update={"max_gb": 1e-7})})
    with refusal("config/datasets/challenge.yaml"):
        make_sources(limited, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("M", (), {"available": 10}))
    with refusal("config/datasets/challenge.yaml"):
        make_sources(chosen, tmp_path / "s")


def test_memory_does_not_grow_with_the_number_of_vectors(tmp_path):
    small(tmp_path)
    archive = NpzArchive(tmp_path / "train.npz")
    pieces = list(archive.blocks("captions/embeddings", most=35))  # three rows of five float16
    assert [start for start, _ in pieces] == [0, 3, 6, 9]
    assert np.array_equal(
        np.concatenate([rows for _, rows in pieces]), np.load(tmp_path / "train.npz")["captions/embeddings"]
    )
    rows = np.random.default_rng(1).permutation(12)
    write_embedding_rows(archive, archive.member("captions/embeddings"), rows, tmp_path / "t.npy")
    assert np.array_equal(np.load(tmp_path / "t.npy"), np.load(tmp_path / "train.npz")["captions/embeddings"][rows])


def test_images_without_a_caption_stay_in_the_gallery_and_are_counted(tmp_path):
    chosen = small(tmp_path, lines=[f"photos/p{n // 3}.jpg,caption {n}" for n in range(12)])
    make_sources(chosen, tmp_path / "s")
    found = read(chosen, str(tmp_path / "s"))
    assert len(found.items) == 6
    assert found.notes["images_without_caption"] == 2
    assert len(found.notes["images_without_caption_shown"]) == 2


def splits(folder: Path, rows: list[str]) -> Dataset:
    (folder / "splits.csv").write_text("\n".join(["image,split,path", *rows]) + "\n")
    chosen = small(folder)
    return chosen.model_copy(update={"source": chosen.source.model_copy(update={"splits": str(folder / "splits.csv")})})


GIVEN = [f"photos/p{n}.jpg,{split}," for n, split in enumerate(["train"] * 3 + ["valid", "test"])]


def test_given_splits(tmp_path):
    chosen = splits(tmp_path, [*GIVEN, "photos/p5.jpg,test,../other/p5.png"])
    make_sources(chosen, tmp_path / "s")
    found = read(chosen, str(tmp_path / "s")).items.set_index("source")
    assert found.loc["photos/p3.jpg", "split"] == "valid"
    assert found.loc["photos/p5.jpg", "path"] == "../other/p5.png"


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        (GIVEN, "splits.csv"),
        ([*GIVEN, "photos/p5.jpg,dev,"], "splits.csv: row 7"),
        ([*GIVEN, "photos/p9.jpg,test,"], "splits.csv: row 7"),
        ([*GIVEN, "photos/p5.jpg,test,", GIVEN[0]], "splits.csv: row 8"),
        ([f"photos/p{n}.jpg,train," for n in range(6)], "splits.csv"),
    ],
)
def test_bad_splits_are_refused(tmp_path, rows, place):
    with refusal(place):
        make_sources(splits(tmp_path, rows), tmp_path / "s")


def test_keys_that_do_not_go_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "config" / "datasets"
    folder.mkdir(parents=True)
    made = "made_from: {dataset: base, text: {name: minilm}, image: {name: clip}}"
    for text in (
        "train: a.npz",
        f"train: a.npz\n  {made}",
        "train: a.npz\n  captions: c\n  valid_share: 0.6\n  test_share: 0.4",
    ):
        (folder / "d.yaml").write_text(f"source:\n  format: embeddings\n  {text}\n")
        with refusal("config/datasets/d.yaml: source"):
            load_dataset("d")
    (folder / "d.yaml").write_text("source: {format: embeddings, train: a.npz, captions: c.txt}\nhow_to_get: Ask.\n")
    with refusal("config/datasets/d.yaml"):
        check_sources(load_dataset("d"))
    (folder / "d.yaml").write_text(f"source:\n  format: embeddings\n  {made}\n")
    (folder / "base.yaml").write_text("source: {format: embeddings, train: a.npz, captions: c.txt}\n")
    (tmp_path / "config/studies").mkdir()
    (tmp_path / "config/studies/s.yaml").write_text("dataset: d\nmethods: {chance: {model: chance}}\n")
    with refusal("config/datasets/d.yaml: source.made_from.dataset", "config/studies/s.yaml: evaluation.settings"):
        load_config({"studies": ["s"]})
