"""Digests that files and records of users hold stay as they are: each was computed by the code before this module."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from rewind.cli.new import _hash_file, _hash_text
from rewind.data.captions import clips_digest, embeddings_digest
from rewind.data.formats.embeddings import write_embedding_rows
from rewind.data.readers import NpzArchive
from rewind.encoders.frames import mean_frame_features
from rewind.hashing import crc32_of, sha256_of, stable_hash
from rewind.loading.encode import distinct_rows
from rewind.models.checkpoint import weights_hash
from rewind.models.miniclip import _vocabulary_hash
from rewind.provenance import file_hash
from rewind.video.frame_store import _row_checksums
from rewind.video.prepare import _files_sha256
from rewind.video.shards import write_tar
from rewind.workflow.preflight.models import file_stamp
from rewind.workflow.staleness.accepted import hash_size_and_ends
from rewind.workflow.staleness.code_hash import compute_code_hash
from rewind.workflow.staleness.user_inputs import UserInputs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that is read in several pieces."""
    path = tmp_path / "weights.pt"
    path.write_bytes(bytes(range(256)) * 10_000)
    return path


def test_digests_of_values():
    assert stable_hash({"seed": 0, "lr": 1e-4}, ["é", None, Path("a/b")], True) == "3d5b121880a52e2c"
    assert compute_code_hash("train", {"rewind.metrics:hits": "0123456789abcdef"}) == "a59cca2e5a589be7"
    assert _hash_text("word\n") == "5aacc8534b465aea630b759f2becac7ae3a8c1bfaf271ca0425b8dd44bf99c56"
    assert (
        bytes(_vocabulary_hash(SimpleNamespace(ids={"a": 0, "dog": 1})).tolist()).hex()
        == "de6a5156657462507a2b38c31bdb1a09"
    )
    report = pd.DataFrame({"item_id": ["b", "a"], "status": ["ok", "ok"], "sha256": ["f" * 64, "0" * 64]})
    assert clips_digest(report) == "8525354354db5cb3b07a9c9e35ecadad50e2dd816c42f8a5c542b73f31aa03e3"
    assert (
        embeddings_digest({"text": "12ab", "items": "34cd"})
        == "cb1b1cbbb1c0d785680d23c906ea551696653b36cab34af556d6695199dbec59"
    )
    model = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(model.weight, 0.25)
    torch.nn.init.constant_(model.bias, -1)
    assert weights_hash(model) == "0afeb10a4780f10f"


def test_digests_of_files(file, tmp_path):
    sha256 = "2350b445eb01b3dc3c68b3e42b5b5678349472e2cbf75539fd75172f931ad1ee"
    assert sha256_of(file) == _hash_file(file) == _row_checksums(file, 1_000_000)[1] == sha256
    assert file_hash(file) == sha256[:16]
    assert crc32_of(file) == 677_316_169
    assert hash_size_and_ends(file) == "c1a733971bcea269"
    other = tmp_path / "other"
    other.write_text("twin")
    assert _files_sha256([file, other]) == "5060f11ea8642472396ba988b20de32fa6b7a6239836a29d3b0782d5d6a0699f"
    assert file_stamp("no/such/file") == "de26445dfd463c8e"
    inputs = UserInputs(tmp_path / "seen.csv", writes=True)
    inputs.parts([file])
    file.write_text("another")
    assert list(inputs.parts([file]).values()) == ["ae448ac86c4e8e4d"]


def test_digests_of_vectors_and_shards(tmp_path):
    np.savez(tmp_path / "vectors.npz", item=np.arange(12, dtype=np.float64).reshape(4, 3) + 1)
    archive = NpzArchive(tmp_path / "vectors.npz")
    order = np.array([2, 0, 3, 1])
    assert write_embedding_rows(archive, archive.member("item"), order, tmp_path / "item.npy") == "b56f1bcea104206b"
    packed = write_tar(tmp_path / "0-of-1.tar", [("clip1.mp4", b"abc"), ("clip2.mp4", bytes(1000))])
    assert [*(member.sha256 for member in packed.members), packed.sha256] == [
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "541b3e9daa09b20bf85fa273e5cbd3e80185aa4ec298e765db87742b70138a53",
        "89df08ad08cef94da29e3633076f5ddd4144ecfb6a47b2551d9040202d8c5237",
    ]


def test_equal_contents_have_one_row():
    first, indices = distinct_rows({"text": torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])}, 3)
    assert (list(first), list(indices)) == ([0, 1], [0, 1, 0])
    encoded = []

    def encode(pictures: list[np.ndarray]) -> np.ndarray:
        encoded.extend(pictures)
        return np.stack([picture.reshape(-1).astype(np.float32) for picture in pictures])

    clip = np.stack([np.full((3, 2, 2), value, np.uint8) for value in (1, 2, 1)])
    assert len(mean_frame_features([clip, clip[::-1]], encode, size=2)) == 2 and len(encoded) == 2
