"""Arrays of an npz whose headers lie."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from messages import refusal
from rewind.data.readers import NpzArchive


def lying(path: Path, shape: tuple[int, int]) -> None:
    """An npz whose header promises more than the member holds."""
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(path, "w") as file, file.open("captions/embeddings.npy", "w") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        stream.write(b"\0" * 16)


def test_a_header_that_lies_is_refused(tmp_path):
    lying(tmp_path / "a.npz", (10**9, 1024))
    with refusal("a.npz"):
        NpzArchive(tmp_path / "a.npz").member("captions/embeddings")
