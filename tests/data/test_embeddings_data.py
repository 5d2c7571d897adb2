"""Data sets of vectors: read, split, laid out, and everything that is refused."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from checkout import GOLDEN
from golden_numbers import load_json
from rewind.config import load_dataset
from rewind.config.dataset import Dataset, EmbeddingsSource
from rewind.data.captions import embeddings_digest
from rewind.data.formats.embeddings import make_sources, read, split_embedded_images, write_embedding_rows
from rewind.data.readers import NpzArchive
from rewind.errors import RewindError
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
    with pytest.raises(RewindError, match="no vectors of 1 captions, first 'stranger#0'"):
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
    opened, plain = [], zipfile.ZipFile.open

    def watched(self, name, *rest, **more):
        opened.append(str(name))
        return plain(self, name, *rest, **more)

    monkeypatch.setattr(zipfile.ZipFile, "open", watched)
    make_sources(source(tmp_path), tmp_path / "s")
    assert "captions/embeddings.npy" in opened
    assert not any("label" in name for name in opened)


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
    with pytest.raises(RewindError, match=r"captions/text.* is a pickle that cannot be read safely .*open"):
        make_sources(small(tmp_path, **{"captions/text": texts}), tmp_path / "s")
    with pytest.raises(RewindError, match="row 1: 7 is not text"):
        make_sources(small(tmp_path, **{"captions/text": np.array(["x", 7, *"abcdefghij"], object)}), tmp_path / "s")
    assert not Path("/tmp/never").exists()
    assert pickle.dumps(Evil())  # it is one


def broken(shape: tuple[int, int], row: int, value: float) -> np.ndarray:
    found = np.ones(shape, np.float32)
    found[row] = value
    return found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"captions/embeddings": np.ones((12, 5, 2))}, "one row of floating-point numbers per vector"),
        ({"images/embeddings": np.ones((6, 7), dtype=int)}, "images/embeddings' is int64"),
        ({"images/embeddings": broken((6, 7), 3, np.nan)}, "images/embeddings', row 3 .* holds NaN or infinity"),
        ({"captions/embeddings": broken((12, 5), 11, np.inf)}, "captions/embeddings', row 11 .* holds NaN"),
        ({"captions/embeddings": broken((12, 5), 2, 0)}, "captions/embeddings', row 2 .* is zero throughout"),
        ({"metadata/num_captions": np.array([13])}, r"num_captions says \[13\], but there are 12"),
        ({"metadata/embedding_dim_image": np.array([8])}, r"embedding_dim_image says \[8\], but there are 7"),
        ({"captions/ids": np.array([*range(11), 4])}, "caption id '4' is in rows 4 and 11"),
        ({"captions/ids": np.arange(11)}, "11 values in 'captions/ids', but 12 rows"),
        ({"images/names": np.array(["a.jpg"] * 2 + list("bcde"))}, "image 'a.jpg' is in rows 0 and 1"),
        ({"images/names": np.array(list("abcde"))}, "5 values in 'images/names', but 6 rows"),
        ({"captions/embeddings": None}, "has no 'captions/embeddings'"),
        ({"captions/embeddings": np.asfortranarray(np.ones((12, 5)))}, "stored in column-major order"),
        ({"captions/text": np.array(["other"] * 12)}, "12 captions differ from those of .* line 2: 'caption 0'"),
        ({"lines": ["photos/p0.jpg,caption 0"] * 11}, "11 captions, but .* has 12 caption vectors"),
        (
            {"lines": ["photos/p0.jpg,caption 0", "lost.jpg,caption 1"] * 6},
            "6 captions name images .*\n  line 3: 'lost",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path, changes, said):
    with pytest.raises(RewindError, match=said):
        make_sources(small(tmp_path, **changes), tmp_path / "s")
    assert not (tmp_path / "s" / "embeddings.json").exists()


def test_broken_archives_are_refused(tmp_path):
    (tmp_path / "no.npz").write_bytes(b"no zip")
    with pytest.raises(RewindError, match="not an npz file"):
        NpzArchive(tmp_path / "no.npz")
    with pytest.raises(RewindError, match="no such file"):
        NpzArchive(tmp_path / "absent.npz")
    small(tmp_path)
    whole = (tmp_path / "train.npz").read_bytes()
    at = whole.index(b"captions/embeddings.npy") + 200
    (tmp_path / "train.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    with pytest.raises(RewindError, match="cannot be unpacked"):
        make_sources(source(tmp_path), tmp_path / "s")


def test_vectors_past_memory_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    chosen = small(tmp_path)
    limited = chosen.model_copy(update={"source": chosen.source.model_copy(update={"max_gb": 1e-7})})
    with pytest.raises(RewindError, match=r"would unpack to 0\.0 GB of vectors and texts, and source\.max_gb is 1e-07"):
        make_sources(limited, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("M", (), {"available": 10}))
    with pytest.raises(RewindError, match=r"of memory are free\. Store the vectors as float16"):
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
    ("rows", "said"),
    [
        (GIVEN, "'photos/p5.jpg' has no split"),
        ([*GIVEN, "photos/p5.jpg,dev,"], "row 7: split 'dev' is not one of"),
        ([*GIVEN, "photos/p9.jpg,test,"], "row 7: image 'photos/p9.jpg' has no vector"),
        ([*GIVEN, "photos/p5.jpg,test,", GIVEN[0]], "row 8: image 'photos/p0.jpg' .* is there already, in row 2"),
        ([f"photos/p{n}.jpg,train," for n in range(6)], "no image is in split 'valid'"),
    ],
)
def test_bad_splits_are_refused(tmp_path, rows, said):
    with pytest.raises(RewindError, match=said):
        make_sources(splits(tmp_path, rows), tmp_path / "s")


def test_keys_that_do_not_go_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "config" / "datasets"
    folder.mkdir(parents=True)
    made = "made_from: {dataset: base, text: {name: minilm}, image: {name: clip}}"
    for text, said in (
        ("train: a.npz", "source.train and source.captions are both needed"),
        (f"train: a.npz\n  {made}", "source.made_from makes train, captions and splits"),
        ("train: a.npz\n  captions: c\n  valid_share: 0.6\n  test_share: 0.4", "leave something to train on"),
    ):
        (folder / "d.yaml").write_text(f"source:\n  format: embeddings\n  {text}\n")
        with pytest.raises(RewindError, match=said):
            load_dataset("d")
    (folder / "d.yaml").write_text("source: {format: embeddings, train: a.npz, captions: c.txt}\nhow_to_get: Ask.\n")
    with pytest.raises(RewindError, match=r"these files are missing:\n    - a.npz\n    - c.txt\n    Ask\."):
        check_sources(load_dataset("d"))
    (folder / "d.yaml").write_text(f"source:\n  format: embeddings\n  {made}\n")
    (folder / "base.yaml").write_text("source: {format: embeddings, train: a.npz, captions: c.txt}\n")
    (tmp_path / "config/studies").mkdir()
    (tmp_path / "config/studies/s.yaml").write_text("dataset: d\nmethods: {chance: {model: chance}}\n")
    with pytest.raises(RewindError, match=r"made_from\.dataset: base consists of vectors itself"):
        load_config({"studies": ["s"]})
