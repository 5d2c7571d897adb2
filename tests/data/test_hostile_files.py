"""Every reader of a file that a user brings, fed with files that are broken in every way that we know of.

A new reader joins by a line in READERS; :func:`test_whatever_reads_a_file_is_guarded` finds those that did not.
"""

from __future__ import annotations

import ast
import bz2
import errno
import gzip
import io
import json
import lzma
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

import rewind
from board_studies import card, write_results
from field_files import write_field_files
from messages import expect_message, refusal
from patience import patience
from rewind.cli.init.command import _is_exported_run
from rewind.cli.init.command import _read_source as read_for_init
from rewind.config import Dataset
from rewind.config.load import read_yaml
from rewind.data import groups
from rewind.data.annotations import read_annotations
from rewind.data.formats.cifar10 import RECORD_BYTES, TEST_BATCH_FILE, read_cifar10
from rewind.data.readers import NpzArchive, read_embedding_file, read_score_file
from rewind.data.score_matrix import open_scores
from rewind.errors import RewindError
from rewind.exports.mteb import import_predictions
from rewind.exports.share import opened_share, share_study
from rewind.io import strict
from rewind.io.files import read_csv, read_json, reading_user_file, require_regular_file
from rewind.io.strict import read_user_text
from rewind.models import architectures, viclip
from rewind.models.checkpoint import load_model
from rewind.models.miniclip_checkpoint import read_vocabulary_captions
from rewind.models.viclip import read_viclip
from rewind.models.weights import config_family_beside, read_state
from rewind.statistics.rank_files import read_ranks
from rewind.system_errors import user_message
from rewind.training.checkpoint import StateFile
from rewind.video.images import upright_rgb
from rewind.video.transcode import UnusableSource
from rewind.workflow.checksums import structural_fault
from rewind.workflow.config import custom_rules
from rewind.workflow.staleness.accepted import AcceptedEditStore

SECONDS = 5  # until a reader that waits for ever is stopped


@dataclass(frozen=True)
class Reader:
    """One way into the program.

    Attributes:
        name: of the file, whose suffix may choose the format.
        read: what is called with its path.
        whole: writes a file that is accepted.
        wrong: what is broken inside → writes such a file.
        cut: whether a file that ends early is always noticed: a text may be whole at every line.
        refuses: what else a reader may raise; its message need not name the file, which its caller does.
    """

    name: str
    read: Callable[[Path], Any]
    whole: Callable[[Path], None]
    wrong: dict[str, Callable[[Path], None]] = field(default_factory=dict)
    cut: bool = True
    refuses: type[Exception] | None = None


def bytes_of(content: bytes | str) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content) and None


def npy_of(array: Any) -> Callable[[Path], None]:
    """An array, with the ids beside it."""

    def write(path: Path) -> None:
        np.save(path, array)
        path.with_suffix(".txt").write_text("a\nb\n")

    return write


def npz_named_npy(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, ids=IDS, vectors=VECTORS)


def npz_of(**arrays: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.savez(stream, **arrays)

    return write


def parquet_of(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pd.DataFrame(columns).to_parquet(path)


def safetensors_of(tensors: dict[str, Any], ids: str = '["a", "b"]') -> Callable[[Path], None]:
    return lambda path: save_file(tensors, path, {"ids": ids})


def torch_of(value: Any) -> Callable[[Path], None]:
    return lambda path: torch.save(value, path)


def member_of(content: bytes, name: str = "vectors.npy", more: dict[str, Any] | None = None) -> Callable[[Path], None]:
    """An npz whose one array is these bytes."""

    def write(path: Path) -> None:
        npz_of(**(more or {"ids": np.array(["a", "b"])}))(path)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, content)

    return write


def header_of(shape: tuple[int, ...]) -> bytes:
    """An array whose header promises what is not there."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(16)


def header_of_version_3(shape: tuple[int, ...]) -> bytes:
    """The same in the version that NumPy writes for structured arrays only."""
    first = header_of(shape)
    length = int.from_bytes(first[8:10], "little")
    return first[:6] + b"\x03\x00" + length.to_bytes(4, "little") + first[10:]


def damaged(write: Callable[[Path], None], at: float) -> Callable[[Path], None]:
    """The same file with 40 other bytes at a place."""

    def spoil(path: Path) -> None:
        write(path)
        content = bytearray(path.read_bytes())
        start = int(at * len(content))
        content[start : start + 40] = bytes(255 - value for value in content[start : start + 40])
        path.write_bytes(content)

    return spoil


def compressed(path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez_compressed(path, ids=np.array(["a", "b"]), vectors=rng.normal(size=(2, 500)).astype(np.float32))


def dataset_of(kind: str, key: str, **source: Any) -> Callable[[Path], Any]:
    """A data set of a format whose annotations are the file."""

    def read(path: Path) -> Any:
        keys = {"format": kind, key: {"test": str(path)} if key == "annotations" else str(path)} | source
        return read_annotations(Dataset(name="d", source=keys), "")

    return read


def chiral(key: str) -> Callable[[Path], Any]:
    """Chiral actions, one of whose two files is the file; the other one is as it should be."""

    def read(path: Path) -> Any:
        files = {name: path.with_name(name) for name in CIA}
        for name, text in CIA.items():
            files[name].write_text(text)
        source = {name: str(file) for name, file in files.items()} | {key: str(path), "format": "cia", "videos": "v"}
        return read_annotations(Dataset(name="d", source=source), "")

    return read


def field(kind: str) -> Callable[[Path], Any]:
    """A data set of the field, one of whose files is the file; the others are as they should be."""

    def read(path: Path) -> Any:
        whole = path.parent / "whole"
        write_field_files(kind, whole)
        for file in whole.iterdir():
            if file.name != path.name:
                file.replace(path.with_name(file.name))
        source = {"format": kind, "folder": str(path.parent), "videos": "v", "counts": "any"}
        if kind in ("activitynet", "youcook2"):
            source["valid_clips"] = 3
        return read_annotations(Dataset(name="d", source=source), "")

    return read


def field_file(kind: str) -> Callable[[Path], None]:
    """The file of this name as it should be."""

    def write(path: Path) -> None:
        write_field_files(kind, path.parent / "whole")
        (path.parent / "whole" / path.name).replace(path)

    return write


def pickle_of(value: Any) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(pickle.dumps(value)) and None


def with_file(key: str) -> Callable[[Path], Any]:
    """A table of two clips, and another file that its data set names."""

    def read(path: Path) -> Any:
        table = path.with_name("clips.csv")
        table.write_text(TABLE)
        found = Dataset(name="d", clips=False, source={"format": "table", "table": str(table)}, **{key: str(path)})
        annotations = read_annotations(found, "")
        return groups.read_groups(found, annotations) if key == "groups" else annotations

    return read


class Form(torch.nn.Linear):
    """A model with one layer."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def check_state(self, state: dict[str, Any], where: str) -> None:
        """Nothing."""


def shared(path: Path) -> None:
    with opened_share(path):
        pass


def shared_study(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_results(Path(folder, "one"), {"a": 80.0}, seeds=1, settings=("test",))
        share_study(Path(folder, "one"), card("one", {"a": "trained"}), path)


def accepted(path: Path) -> None:
    results = path.parent / "results"
    (results / "s").mkdir(parents=True, exist_ok=True)
    link = results / "s" / "accepted.json"
    link.unlink(missing_ok=True)
    link.symlink_to(path)
    try:
        AcceptedEditStore(results).entries(link)
    except RewindError as error:
        raise RewindError(str(error).replace(str(link), str(path))) from error


def embeddings(path: Path) -> None:
    archive = NpzArchive(path)
    archive.strings("images/names")
    for _ in archive.blocks("images/embeddings"):
        pass


def structure(path: Path) -> None:
    """Of results that somebody else made, what is wrong is said and not raised."""
    if said := structural_fault(path, thoroughly=True):
        raise RewindError(f"{path}: {said}")


def many_vectors(path: Path) -> None:
    with mock.patch("rewind.data.readers.MIN_STORED_BYTES", 0):
        read_embedding_file(path, "items")


def similarity(path: Path) -> None:
    open_scores(path)
    open_scores(path, whole=0)


def ranks(path: Path) -> None:
    folder = path.parent / "m"
    folder.mkdir(exist_ok=True)
    link = folder / "seed0.parquet"
    link.unlink(missing_ok=True)
    link.symlink_to(path)
    try:
        read_ranks([("m", 0)], str(path.parent))
    except RewindError as error:
        raise RewindError(str(error).replace(str(link), str(path))) from error


def picture(path: Path, kind: str = "AVIF") -> None:
    from PIL import Image

    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)).save(path, kind)


IDS, VECTORS = np.array(["a", "b"]), np.eye(2, dtype=np.float32)
SCORES = {"similarity": VECTORS, "query_ids": IDS, "item_ids": IDS}
BOTH = {"query_ids": IDS, "text": VECTORS, "item_ids": IDS, "items": VECTORS, "space": np.array("joint")}
TABLE = "item_id,caption\na,A door opens.\nb,A cat sleeps.\n"
RTIME = json.dumps({"a": {"forward_captions": ["A door opens."], "reverse_captions": ["A door closes."]}})
PHOTOS = json.dumps([{"file_name": f"{n}.jpg", "caption": f"Picture {n}."} for n in range(20)])
INTERNVID = "YoutubeID,Caption\n" + "".join(f"v{n},Clip {n}.\n" for n in range(20))
CIA = {
    "inputs": "id,value,nuance,source,modality\nt_0.0,Opening,time,cia-ssv2,text\n1,1,time,cia-ssv2,video\n",
    "labels": json.dumps({"t_0.0": [1], "1": ["t_0.0"]}),
}
FOILS = "video,caption,foil\nv0,A door opens.,A door closes.\n"
VILMA = json.dumps({"a": {"caption": "A door opens.", "foils": ["A door closes."], "mturk": {"caption": 2}}})
VELOCITI = json.dumps([{"test_name": "chrono", "video_id": "a", "pos": "A door opens.", "neg": "A door closes."}])
FLICKR = "".join(f"{n}.jpg\tPicture {n}.\n" for n in range(20))
RUN = "a Q0 b 1 0.5 tag\nb Q0 a 1 0.25 tag\n"
PREDICTIONS = json.dumps({"default": {"test": {"a": {"b": 0.5}, "b": {"b": 0.25}}}})
CONFIG = json.dumps({"embed_dim": 4, "vision_cfg": {}, "text_cfg": {}})
VICLIP = {
    "embed_dim": 8,
    "vision": {"width": 8, "layers": 1, "heads": 2, "patch": 4, "image": 8},
    "text": {"width": 8, "layers": 1, "heads": 2, "context": 8, "vocabulary": 10},
}
LISTS = {"a list": bytes_of("[1, 2]"), "a number": bytes_of("1"), "deep": bytes_of("[" * 100_000)}
NUMBER = {"a number of 5,000 digits": bytes_of(f'{{"a": {"9" * 5000}}}')}
PICKLES = {
    "a list": pickle_of([1, 2]),
    "a number": pickle_of(7),
    "a function": pickle_of(print),
    "an array": pickle_of(np.zeros(2)),
    "deep": bytes_of(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "what is not on the stack": bytes_of(b"\x80\x02a."),
    "a length that lies": bytes_of(b"\x80\x04\x8d" + (2**40).to_bytes(8, "little") + b"a."),
}
NAMES = {
    "Python objects": npy_of(np.array([{}, None], dtype=object)),
    "numbers": npy_of(VECTORS),
    "one text": npy_of(np.array("a")),
    "a header that lies": bytes_of(header_of((10**6, 10**6))),
    "a header of version 3 that lies": bytes_of(header_of_version_3((10**6, 10**6))),
    "bytes in Latin-1": npy_of(np.array(["café".encode("latin-1")])),
}
WEIGHTS = {"a list": torch_of([1, 2]), "a number": torch_of(7), "half": torch_of({"a": 1, "b": torch.ones(1)})}
NPZ_WRONG = {
    "Python objects": npz_of(ids=IDS, vectors=np.array([{}, None], dtype=object)),
    "text as vectors": npz_of(ids=IDS, vectors=IDS),
    "one number": npz_of(ids=IDS, vectors=np.float32(1)),
    "lengths of text": npz_of(ids=IDS, vectors=VECTORS, lengths=IDS),
    "lengths that are negative": npz_of(ids=IDS, vectors=VECTORS, lengths=np.array([-1, 3])),
    "ids of two axes": npz_of(ids=VECTORS, vectors=VECTORS),
    "a header that lies": member_of(header_of((10**6, 10**6))),
    "a header of version 3 that lies": member_of(header_of_version_3((10**6, 10**6))),
    "a header without end": member_of(b"\x93NUMPY\x01\x00\xff\xff{'descr':"),
    "no array at all": member_of(b"text"),
    "a member that is no array": member_of(b"text", "vectors"),
    "long doubles": npz_of(ids=IDS, vectors=VECTORS.astype(np.longdouble)),
    "a bit flipped in deflated data": damaged(compressed, 0.6),
    "a directory that lies": damaged(compressed, 0.97),
}

READERS: dict[str, Reader] = {
    "vectors npz": Reader(
        "v.npz", lambda path: read_embedding_file(path, "items"), npz_of(ids=IDS, vectors=VECTORS), NPZ_WRONG
    ),
    "many vectors npz": Reader("v.npz", many_vectors, npz_of(ids=IDS, vectors=VECTORS), NPZ_WRONG),
    "vectors of a run": Reader("v.npz", lambda path: read_embedding_file(path, "items"), npz_of(**BOTH)),
    "vectors npy": Reader(
        "v.npy",
        lambda path: read_embedding_file(path, "items"),
        npy_of(VECTORS),
        {
            "an npz": npz_named_npy,
            "Python objects": npy_of(np.array([{}, None], dtype=object)),
            "text": npy_of(IDS),
            "long doubles": npy_of(VECTORS.astype(np.longdouble)),
            "one number": npy_of(np.float32(1)),
            "a header that lies": bytes_of(header_of((10**6, 10**6))),
        },
    ),
    "vectors parquet": Reader(
        "v.parquet",
        lambda path: read_embedding_file(path, "items"),
        parquet_of(id=["a", "b"], vector=[[1.0, 2.0], [3.0, 4.0]]),
        {
            "null": parquet_of(id=["a", "b"], vector=[[1.0, 2.0], None]),
            "null ids": parquet_of(id=["a", None], vector=[[1.0], [2.0]]),
            "text": parquet_of(id=["a", "b"], vector=["1 2", "3 4"]),
            "lists of text": parquet_of(id=["a", "b"], vector=[["1"], ["2"]]),
            "numbers": parquet_of(id=["a", "b"], vector=[1.0, 2.0]),
            "ragged": parquet_of(id=["a", "b"], vector=[[1.0], [3.0, 4.0]]),
            "ragged lists of lists": parquet_of(id=["a", "b"], vector=[[[1.0], [2.0, 3.0]], [[1.0]]]),
            "null in lists of lists": parquet_of(id=["a", "b"], vector=[[[1.0], None], [[1.0]]]),
            "empty lists": parquet_of(id=["a", "b"], vector=[[], []]),
            "objects": parquet_of(id=["a", "b"], vector=[{"x": 1}, {"x": 2}]),
            "dates": parquet_of(id=["a", "b"], vector=[[pd.Timestamp(0)], [pd.Timestamp(1)]]),
            "no such column": parquet_of(ids=["a"], vector=[[1.0]]),
        },
    ),
    "vectors csv": Reader(
        "v.csv",
        lambda path: read_embedding_file(path, "items"),
        bytes_of("id,0,1\na,1.0,2.0\nb,3.0,4.0\n"),
        {
            "no header": bytes_of("a,1.0,2.0\nb,3.0,4.0\n"),
            "ids alone": bytes_of("id\na\nb\n"),
            "semicolons": bytes_of("id;0;1\na;1,0;2,0\n"),
            "too few numbers": bytes_of("id,0,1\na,1.0\n"),
            "too many numbers": bytes_of("id,0,1\na,1.0,2.0,3.0\n"),
            "an empty cell": bytes_of("id,0,1\na,1.0,\n"),
            "text": bytes_of("id,0,1\na,1.0,1_0\n"),
            "infinity": bytes_of("id,0,1\na,1.0,inf\n"),
            "an id twice": bytes_of("id,0\na,1\na,2\n"),
            "no rows": bytes_of("id,0,1\n"),
            "no id": bytes_of("id,0\n,1\n"),
        },
        cut=False,
    ),
    "vectors safetensors": Reader(
        "v.safetensors",
        lambda path: read_embedding_file(path, "items"),
        safetensors_of({"vectors": torch.eye(2)}),
        {
            "float8": safetensors_of({"vectors": torch.eye(2).to(torch.float8_e4m3fn)}),
            "whole numbers": safetensors_of({"vectors": torch.ones(2, 2, dtype=torch.int32)}),
            "bfloat16 lengths": safetensors_of(
                {"vectors": torch.ones(2, 2, 2), "lengths": torch.ones(2, dtype=torch.bfloat16)}
            ),
            "ids that are deep": safetensors_of({"vectors": torch.eye(2)}, "[" * 100_000),
            "ids that are a number": safetensors_of({"vectors": torch.eye(2)}, "9" * 5000),
        },
    ),
    "scores npz": Reader(
        "s.npz",
        read_score_file,
        npz_of(**SCORES),
        {
            "too large": npz_of(**(SCORES | {"similarity": np.array([[1e39, 1], [0, 1]])})),
            "too low": npz_of(**(SCORES | {"similarity": np.array([[-3.4028e38, 1], [0, 1]])})),
            "infinite halves": npz_of(**(SCORES | {"similarity": np.full((2, 2), np.inf, np.float16)})),
            "complex": npz_of(**(SCORES | {"similarity": np.ones((2, 2), complex)})),
            "text": npz_of(**(SCORES | {"similarity": np.array([["a", "b"], ["c", "d"]])})),
        },
    ),
    "scores TREC": Reader(
        "s.run",
        read_score_file,
        bytes_of(RUN),
        {"too large": bytes_of("a Q0 b 1 1e39 tag\n"), "digits": bytes_of(f"a Q0 b 1 {'9' * 5000} tag\n")},
        cut=False,
    ),
    **{
        f"scores TREC {suffix}": Reader(f"s.run{suffix}", read_score_file, bytes_of(pack(RUN.encode())))
        for suffix, pack in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress))
    },
    "init --embeddings": Reader("v.npz", lambda path: _is_exported_run(str(path)), npz_of(**BOTH)),
    "import mteb": Reader(
        "t_predictions.json",
        lambda path: import_predictions(path, path.with_name("out.run")),
        bytes_of(PREDICTIONS),
        LISTS
        | {
            "250 digits": bytes_of(PREDICTIONS.replace("0.25", "9" * 250)),
            "1e39": bytes_of(PREDICTIONS.replace("0.25", "1e39")),
            "null": bytes_of(PREDICTIONS.replace("0.25", "null")),
        },
    ),
    "embeddings": Reader(
        "train.npz",
        embeddings,
        npz_of(**{"images/names": np.array(["a.jpg", "b.jpg"]), "images/embeddings": VECTORS}),
        {
            "numbers as names": npz_of(
                **{"images/names": np.array([1, None], dtype=object), "images/embeddings": VECTORS}
            ),
            "a header that lies": member_of(
                header_of((10**6, 10**6)), "images/embeddings.npy", {"images/names": np.array(["a.jpg"])}
            ),
        },
    ),
    "weights safetensors": Reader("w.safetensors", read_state, safetensors_of({"a": torch.ones(50)})),
    "weights pt": Reader("w.pt", read_state, torch_of({"a": torch.ones(50)}), WEIGHTS),
    "weights TorchScript": Reader(
        "w.pt",
        lambda path: read_state(path, allow_torchscript=True),
        lambda path: torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path),
    ),
    "weights ViCLIP": Reader("w.pth", read_viclip, torch_of({"model": {"a": torch.ones(50)}})),
    "weights ViCLIP safetensors": Reader("w.safetensors", read_viclip, safetensors_of({"a": torch.ones(50)})),
    "model of a run": Reader(
        "model.safetensors",
        lambda path: load_model(path, Form()),
        safetensors_of({"weight": torch.ones(2, 2), "bias": torch.ones(2)}),
        {"other tensors": safetensors_of({"other": torch.ones(2)})},
    ),
    "architecture": Reader("a.json", lambda path: architectures.read_architecture(str(path)), bytes_of(CONFIG), LISTS),
    "architecture ViCLIP": Reader(
        "a.json", lambda path: viclip.load_viclip_architecture(str(path)), bytes_of(json.dumps(VICLIP)), LISTS
    ),
    "config.json beside weights": Reader(
        "config.json",
        lambda path: config_family_beside(path.with_name("w.safetensors")),
        bytes_of("{}"),
        {"deep": LISTS["deep"], "another activation": bytes_of('{"text_config": {"hidden_act": "relu"}}')},
    ),
    "text.vocabulary": Reader(
        "v.json", lambda path: read_vocabulary_captions(path), bytes_of('[{"caption": "a"}]'), LISTS
    ),
    "text.vocabulary txt": Reader("v.txt", lambda path: read_vocabulary_captions(path), bytes_of("a\nb\n"), cut=False),
    "CIFAR-10": Reader(TEST_BATCH_FILE, lambda path: read_cifar10(path.parent), bytes_of(bytes(2 * RECORD_BYTES))),
    "rtime": Reader("test.json", dataset_of("rtime", "annotations", videos="v"), bytes_of(RTIME), LISTS | NUMBER),
    "table": Reader("t.csv", dataset_of("table", "table", videos="v"), bytes_of(TABLE), cut=False),
    "photos": Reader("p.json", dataset_of("photos", "captions", images="i"), bytes_of(PHOTOS), LISTS | NUMBER),
    "internvid": Reader("i.csv", dataset_of("internvid", "captions", videos="v"), bytes_of(INTERNVID), cut=False),
    "cia inputs": Reader("i.csv", chiral("inputs"), bytes_of(CIA["inputs"]), cut=False),
    "cia labels": Reader("l.json", chiral("labels"), bytes_of(CIA["labels"]), LISTS | NUMBER),
    "flickr8k": Reader("f.tsv", dataset_of("flickr8k", "captions", images="i"), bytes_of(FLICKR), cut=False),
    **{
        f"{kind} {name}": Reader(name, field(kind), field_file(kind), wrong, cut)
        for kind, name, wrong, cut in (
            ("msrvtt", "MSRVTT_data.json", LISTS | NUMBER, True),
            ("msrvtt", "MSRVTT_train.9k.csv", {}, False),
            ("msrvtt", "MSRVTT_JSFUSION_test.csv", {}, False),
            ("msvd", "raw-captions.pkl", PICKLES, True),
            ("msvd", "val_list.txt", {}, False),
            ("didemo", "val_data.json", LISTS | NUMBER, True),
            ("didemo", "val_list.txt", {}, False),
            ("activitynet", "val_1.json", LISTS | NUMBER, True),
            ("activitynet", "val_ids.json", LISTS | NUMBER, True),
            ("lsmdc", "LSMDC16_annos_val.csv", {}, False),
            ("vatex", "ref_captions.json", LISTS | NUMBER, True),
            ("vatex", "val_names.npy", NAMES, True),
            ("youcook2", "youcookii_annotations_trainval.json", LISTS | NUMBER, True),
            ("youcook2", "validation_youcook.csv", {}, False),
        )
    },
    "foils": Reader("f.csv", dataset_of("foils", "file", benchmark="table", videos="v"), bytes_of(FOILS), cut=False),
    "foils of ViLMA": Reader(
        "f.json", dataset_of("foils", "file", benchmark="vilma", videos="v"), bytes_of(VILMA), LISTS | NUMBER
    ),
    "foils of VELOCITI": Reader(
        "f.json",
        dataset_of("foils", "file", benchmark="velociti", videos="v"),
        bytes_of(VELOCITI),
        {"an object": bytes_of("{}"), "deep": LISTS["deep"]},
    ),
    "foils of VELOCITI in Parquet": Reader(
        "f.parquet",
        dataset_of("foils", "file", benchmark="velociti", videos="v"),
        parquet_of(test_name=["chrono"], video_id=["a"], pos=["A door opens."], neg=["A door closes."]),
        {"other columns": parquet_of(a=[1]), "numbers": parquet_of(test_name=[1], video_id=[2], pos=[3], neg=[4])},
    ),
    "only": Reader("only.txt", with_file("only"), bytes_of("a\n"), cut=False),
    "groups": Reader("groups.csv", with_file("groups"), bytes_of("item_id,group\na,doors\n"), cut=False),
    "init CSV": Reader("c.csv", lambda path: read_for_init(path, True), bytes_of(TABLE), cut=False),
    "init JSON": Reader("c.json", lambda path: read_for_init(path, True), bytes_of(PHOTOS), LISTS),
    "init JSON lines": Reader(
        "c.jsonl", lambda path: read_for_init(path, True), bytes_of('{"file_name": "a.mp4", "caption": "A."}\n'), LISTS
    ),
    "YAML": Reader(
        "s.yaml", read_yaml, bytes_of("a: 1\n"), {"deep": bytes_of("[" * 5000), "a number": bytes_of("1")}, cut=False
    ),
    "JSON of a user": Reader("o.json", strict.read_user_json, bytes_of('{"a": 1}'), {"deep": LISTS["deep"]} | NUMBER),
    "text of a user": Reader("t.txt", strict.read_user_text, bytes_of("a\n"), cut=False),
    "header of a CSV": Reader("h.csv", strict.csv_header, bytes_of("a,b\n"), cut=False),
    "table of results": Reader(
        "r.csv", read_csv, bytes_of("a,b\n1,2\n"), {"quotes": bytes_of('a,b\n"1,2\n')}, cut=False
    ),
    "JSON of results": Reader("r.json", read_json, bytes_of('{"a": 1}'), {"deep": LISTS["deep"]} | NUMBER),
    "shared study": Reader("s.rewind.zip", shared, shared_study),
    "accepted.json": Reader("accepted.json", accepted, bytes_of("[]"), LISTS),
    "similarity": Reader("seed0.npz", similarity, npz_of(**SCORES), {"a bit flipped": damaged(npz_of(**SCORES), 0.1)}),
    "ranks": Reader("seed0.parquet", ranks, parquet_of(query_id=["a"]), cut=True),
    "structure of npz": Reader("s.npz", structure, npz_of(**SCORES)),
    "structure of npy": Reader("s.npy", structure, lambda path: np.save(path, VECTORS)),
    "structure of Parquet": Reader("s.parquet", structure, parquet_of(a=[1])),
    "structure of safetensors": Reader("s.safetensors", structure, safetensors_of({"a": torch.ones(2)})),
    "structure of JSON": Reader("s.json", structure, bytes_of('{"a": 1}'), {"deep": LISTS["deep"]}),
    "image": Reader("i.avif", upright_rgb, picture, refuses=UnusableSource),
}
NOT_EMPTY = {"ranks"}
"""Readers that refuse the whole file of this test for what is in it, and not for how it is written."""
LENIENT = {"header of a CSV", "text.vocabulary txt", "structure of JSON"}
"""Readers that take any bytes, or none: what is in them is looked at elsewhere."""


class Hung(KeyboardInterrupt):
    """A reader did not come back; no ``Exception``, which a reader might take for a fault of the file."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise Hung(f"no answer after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(reader: Reader, path: Path, said: str = "") -> str:
    """What a reader makes of a file: nothing where all is as it should be."""
    try:
        with at_most(patience(SECONDS)):
            reader.read(path)
    except RewindError as error:
        named = str(path) in str(error) or "config/datasets/d.yaml" in str(error)  # whose key names the file
        if not named:
            return f"names no file: {error}"
        return "" if said in str(error) else f"does not say {said!r}: {error}"
    except Hung as error:
        return str(error)
    except Exception as error:
        if reader.refuses and isinstance(error, reader.refuses):
            return ""
        return f"{type(error).__name__}: {error}"
    return "accepted"


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


def test_a_whole_file_is_read(reader: Reader, tmp_path: Path) -> None:
    reader.whole(tmp_path / reader.name)
    said = outcome(reader, tmp_path / reader.name)
    assert said == "accepted" or reader is READERS["ranks"]  # which wants more columns than are needed here


def test_a_broken_file_is_refused_by_name(reader: Reader, tmp_path: Path) -> None:
    """Empty, ended early, other bytes, or something else inside: whichever library meets it."""
    path = tmp_path / reader.name
    reader.whole(path)
    whole, found = path.read_bytes(), {}
    noise = np.random.default_rng(0).integers(0, 256, 3000, np.uint8).tobytes()
    lenient = reader in [READERS[name] for name in LENIENT]
    contents = {"empty": b"", "noise": noise, "noise behind the whole": whole[: len(whole) // 2] + noise}
    for label, content in contents.items():
        path.write_bytes(content)
        said = outcome(reader, path)
        if said and not (said == "accepted" and (lenient or label.startswith("noise behind"))):
            found[label] = said
    for share in (0.02, 0.2, 0.4, 0.6, 0.8, 0.95):
        path.write_bytes(whole[: int(share * len(whole))])
        said = outcome(reader, path)
        if said and not (said == "accepted" and (not reader.cut or lenient)):
            found[f"cut at {share:.0%}"] = said
    for label, write in reader.wrong.items():
        path.unlink()
        write(path)
        if said := outcome(reader, path):
            found[label] = said
    assert not found


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
def test_what_is_no_file_is_refused_as_such_before_it_is_opened(
    reader: Reader, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    path = tmp_path / reader.name
    said = {"pipe": "named pipe", "socket": "socket", "device": "device", "folder": "folder"}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(reader.name)
    elif kind == "device":
        path.symlink_to("/dev/zero")  # which never ends
    else:
        path.mkdir()
    assert outcome(reader, path, said) == ""


def test_standard_input_is_no_file_and_may_be_read() -> None:
    code = "from rewind.io.strict import read_user_text; print(read_user_text('/dev/stdin').strip())"
    environment = os.environ | {"PYTHONPATH": str(Path(rewind.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], input="a word", env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a word\n")


FAULTS = {
    "memory": (MemoryError("Unable to allocate 7.2 TiB"), "Cannot allocate memory"),
    "torch's memory": (
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        "memory",
    ),
    "disk": (OSError(errno.EIO, os.strerror(errno.EIO)), "Input/output error"),
    "open files": (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "Too many open files"),
    "space": (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_machine_is_none_of_the_file_but_names_it(name: str, tmp_path: Path) -> None:
    """Also where a reader took it for one: such a file is whole."""
    path = tmp_path / "a.npz"
    path.write_bytes(b"a")
    error, said = FAULTS[name]
    for blamed in (False, True):
        with pytest.raises(type(error)) as caught, reading_user_file(path, "npz"):
            try:
                raise error
            except Exception as cause:
                if blamed:
                    raise RewindError(f"{path}: damaged") from cause
                raise
        assert str(user_message(caught.value)).startswith(f"{path}: ") and said in str(user_message(caught.value))


def test_a_panic_of_a_library_is_a_refusal_and_an_interrupt_is_none(tmp_path: Path) -> None:
    class PanicException(BaseException):  # as libraries in Rust raise it
        pass

    path = tmp_path / "a.npz"
    path.write_bytes(b"a")
    with refusal("a.npz"), reading_user_file(path, "npz"):
        raise PanicException("index out of range")
    for stop in (KeyboardInterrupt, SystemExit):
        with pytest.raises(stop), reading_user_file(path, "npz"):
            raise stop
    with refusal("absent"):
        require_regular_file(tmp_path / "absent")


def test_a_state_that_is_a_list_is_set_aside_and_a_failing_disk_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in ([1, 2], {"state": {}}):
        torch.save(content, tmp_path / "s.pt")
        assert StateFile(tmp_path / "s.pt", "f").load() is None
        expect_message(capsys.readouterr().out)
        assert (tmp_path / "s.other.pt").is_file() and not (tmp_path / "s.pt").exists()
    torch.save({"fingerprint": "f", "state": {"epoch": 3}}, tmp_path / "s.pt")

    def fails(*given: Any, **more: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(torch, "load", fails)
        with pytest.raises(OSError, match="Input/output error"):
            StateFile(tmp_path / "s.pt", "f").load()
    assert StateFile(tmp_path / "s.pt", "f").load() == {"epoch": 3}


@pytest.mark.slow
def test_a_folder_near_the_root_is_no_run(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(rewind.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "rewind", "search", "/etc", "x"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: /etc: " in done.stderr
    expect_message(done.stderr)


GUARDS = {"reading_user_file", "open_npz", "refuse_decode_errors"}
LIBRARIES = {
    *("np.load", "pd.read_parquet", "pd.read_csv", "safe_open", "load_file", "torch.load", "torch.jit.load"),
    *("zipfile.ZipFile", "tarfile.open", "gzip.open", "csv.DictReader", "Image.open", "open_image"),
    *("json.load", "pickle.load", "pickle.loads"),
}
INSIDE = {
    # Called inside of a guard.
    "models/weights.py:_read_safetensors": "read_state",
    "models/weights.py:_is_torchscript": "read_state",
    "models/weights.py:_read_torchscript": "read_state",
    "models/weights.py:_read_pickle": "read_state",
    "data/formats/photos.py:open_image": "hands the image on",
    "cli/init/look.py:_is_animated": "catches whatever Pillow raises",
    "data/formats/mteb.py:_suffix": "catches whatever Pillow raises",
    "training/checkpoint.py:StateFile.load": "catches whatever torch raises",
    "workflow/checksums.py": "catches whatever libraries raise",
    "io/files.py:require_intact_archive": "is a guard itself",
    "io/files.py:_refuse_structured_arrays": "is a guard itself",
    "io/files.py:write_stored_npz": "writes",
    "exports/share.py:share_study": "writes",
    "data/readers.py:find_stored_rows": "called inside of a guard: read_embedding_file",
    # Of installed packages, and of what this process or an earlier one wrote for itself.
    "models/towers.py": "packages",
    "data/formats/emoji.py:_make_clip": "packages",
    "encoders/shards.py:read_shard": "own state",
    "cli/rehearse/measured.py:_read_job": "own state",
    "video/sources.py": "own state",
    # Of stages of the workflow, whose inputs are looked at by workflow/checksums.py before the job.
    "statistics/cosine_gaps.py:_read_matrices": "a stage's output",
    "video/frames.py:_PackedImage.__init__": "a stage's output",
    "video/shards.py": "a stage's output",
    "report/page/document.py:_embedded_picture": "a stage's output",
}
"""Readers outside of a guard, and why."""


def _unguarded(node: ast.AST, guarded: bool, name: str) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        name = f"{name}.{node.name}".lstrip(".")
    if isinstance(node, ast.With):
        calls = [item.context_expr.func for item in node.items if isinstance(item.context_expr, ast.Call)]
        guarded |= any(ast.unparse(call) in GUARDS for call in calls)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in LIBRARIES and not guarded:
        yield name
    for part in ast.iter_child_nodes(node):
        yield from _unguarded(part, guarded, name)


def test_whatever_reads_a_file_is_guarded() -> None:
    """A new reader goes through ``reading_user_file``, or says in INSIDE why it need not."""
    root = Path(rewind.__file__).parent
    found = [
        f"{path.relative_to(root).as_posix()}:{name}"
        for path in sorted(root.rglob("*.py"))
        for name in _unguarded(ast.parse(path.read_text(encoding="utf-8")), False, "")
    ]
    assert [one for one in found if not one.startswith(tuple(INSIDE))] == []
    assert [name for name in INSIDE if not any(one.startswith(name) for one in found)] == []  # none is out of date


def test_a_link_that_leads_to_itself_is_not_called_a_missing_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    readers = {
        "loop.npz": lambda path: read_embedding_file(path, "items"),
        "loop.trec": read_score_file,
        "loop.pt": read_state,
        "loop.smk": lambda path: custom_rules({"custom_rules": [path]}),
        "loop.txt": read_user_text,
    }
    files = {"loop.smk": "config/config.yaml: custom_rules: loop.smk"}
    absent = files | {"loop.pt": "backbone.weights: loop.pt"}
    for name, read in readers.items():
        Path(name).symlink_to(name)
        with refusal(files.get(name, name)):
            read(name)
        with refusal(absent.get(name, name).replace("loop", "no-loop")):
            read(f"no-{name}")
