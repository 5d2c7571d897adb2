"""Vectors that a user brings, with the ids of what they are vectors of: npz, npy, Parquet or safetensors.

One vector each, or several (late interaction). Which file holds what is said in docs/bring-your-model.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from rewind.datasets.id_lists import text_ids
from rewind.datasets.npz_files import need, npy, npz
from rewind.errors import RewindError
from rewind.files import naming_file, reading_user_file, require_regular_file
from rewind.reading.objects import read_json
from rewind.reading.text import read_text
from rewind.study.brought import ids_beside

EXPORTED = {"query_ids", "text", "item_ids", "items", "space"}
SHOWN = 3  # ids in a message
# Of torch, which is not imported for them.
_FLOATS = {f"torch.{name}" for name in ("float16", "bfloat16", "float32", "float64")}
_WHOLE = {f"torch.{name}" for name in ("uint8", "int8", "int16", "int32", "int64")}


@dataclass(frozen=True)
class Vectors:
    """Vectors by id.

    Attributes:
        ids: (n,) text, each once.
        values: (n, D), or (N, D) where ids have several: those of one stand together, in the order of ``ids``.
        counts: (n,) how many vectors each id has; None: one.
        where: the file, for messages.
    """

    ids: np.ndarray
    values: np.ndarray
    counts: np.ndarray | None
    where: str

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def of(self, wanted: np.ndarray | pd.Series) -> Vectors:
        """The vectors of some ids, in their order.

        Raises:
            RewindError: naming ids that have none.
        """
        place = {name: row for row, name in enumerate(self.ids.tolist())}
        wanted = np.asarray(wanted, dtype=str)
        if missing := [name for name in wanted.tolist() if name not in place]:
            raise RewindError(f"{self.where}: no vector for {some(missing)}: add what is missing.")
        rows = np.array([place[name] for name in wanted.tolist()], dtype=np.int64)
        if self.counts is None:
            return Vectors(wanted, self.values[rows], None, self.where)
        starts = np.concatenate([[0], np.cumsum(self.counts)])
        taken = [np.arange(starts[row], starts[row + 1]) for row in rows]
        return Vectors(wanted, self.values[np.concatenate(taken)], self.counts[rows], self.where)


def some(names: list[str]) -> str:
    """``3 ids: 'a', 'b', 'c'``: the first few of them."""
    shown = ", ".join(map(repr, names[:SHOWN]))
    return f"{len(names):,} {'id' if len(names) == 1 else 'ids'}: {shown}{', …' if len(names) > SHOWN else ''}"


def read_vectors(path: str | Path, side: Literal["captions", "items"]) -> Vectors:
    """Read and check a file of vectors.

    - ``.npz``: ``ids`` (n,) of text, ``vectors`` (n, D); or (n, L, D) with ``lengths`` (n,), the real ones of L first.
      A file of ``results/<study>/embedding`` has both sides: ``query_ids`` and ``text``, ``item_ids`` and ``items``.
    - ``.npy``: vectors (n, D); the ids beside it in a file of the same name, one a line in ``.txt`` or as a list in
      ``.json``.
    - ``.parquet``: columns ``id`` and ``vector``, a list of numbers each; or a list of such lists.
    - ``.safetensors``: ``vectors``, ``lengths`` as in npz; the ids as a JSON list in the metadata ``ids``.

    Numbers are float16, bfloat16 (safetensors), float32 or float64; they are kept as they are, float16 as float32.

    Raises:
        RewindError: naming the file, and the id or key that is wrong.
    """
    path = Path(path)
    readers = {".npy": _npy, ".parquet": _parquet, ".safetensors": _safetensors}
    if path.suffix != ".npz" and path.suffix not in readers:
        raise RewindError(
            f"{path}: vectors are read from .npz, .npy, .parquet or .safetensors; save them as one of these."
        )
    if not path.exists():
        raise RewindError(f"{path}: no such file; write the vectors there, or correct the path.")
    require_regular_file(path)
    with naming_file(path):
        ids, values, lengths = _npz(path, side) if path.suffix == ".npz" else readers[path.suffix](path)
        return _checked(ids, values, lengths, str(path))


def _npz(path: Path, side: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    with npz(path) as archive:
        if set(archive.files) >= EXPORTED:
            if str(archive["space"]) != "joint":
                raise RewindError(
                    f"{path}: this run scores pairs, so its vectors of captions and items share no space; take its "
                    "similarity file with model: scores."
                )
            ids, vectors = ("query_ids", "text") if side == "captions" else ("item_ids", "items")
            return archive[ids], archive[vectors], None
        need(path, archive, ("ids", "vectors"))
        return archive["ids"], archive["vectors"], archive["lengths"] if "lengths" in archive.files else None


def _npy(path: Path) -> tuple[np.ndarray, np.ndarray, None]:
    listed = ids_beside(path)
    missing = "beside the vectors: write their ids there, one a line in the order of the vectors, or save an .npz"
    ids = read_json(listed) if listed.suffix == ".json" else read_text(listed, missing).splitlines()
    if not isinstance(ids, list):
        raise RewindError(f"{listed}: a list of the ids of {path.name} is needed.")
    return text_ids(ids, "ids", str(listed)), npy(path), None


def _parquet(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    with reading_user_file(path, "Parquet file"):
        table = pd.read_parquet(path)
    for name in ("id", "vector"):
        if name not in table:
            raise RewindError(f"{path}: there is no column {name!r} ({', '.join(map(str, table.columns))}).")
    ids = table["id"].to_numpy()
    rows = [_cell(value, f"{path}: row {n}, id {ids[n - 1]!r}") for n, value in enumerate(table["vector"], start=1)]
    if not rows:
        return ids, np.zeros((0, 0)), None
    for name, row in zip(ids, rows, strict=True):
        if row.ndim != rows[0].ndim:
            raise RewindError(f"{path}: {name!r} and {ids[0]!r}: one has a vector and the other a list of them.")
        if row.shape[-1] != rows[0].shape[-1]:
            raise RewindError(
                f"{path}: the vector of {name!r} has {row.shape[-1]} numbers and that of {ids[0]!r} "
                f"{rows[0].shape[-1]}: all need the same."
            )
    if rows[0].ndim == 1:
        return ids, np.stack(rows), None
    return ids, np.concatenate(rows), np.array([len(row) for row in rows])


def _cell(value: object, where: str) -> np.ndarray:
    """The vector (D,) in a cell of a table, or its several ones (k, D)."""
    if not isinstance(value, np.ndarray | list | tuple):
        kinds = {type(None): "empty", str: "text", bytes: "bytes", dict: "an object"}
        what = "empty" if value is pd.NA else kinds.get(type(value), "a single value")
        raise RewindError(f"{where}: `vector` is {what}, not a list of numbers.")
    if not len(value):
        raise RewindError(f"{where}: `vector` is an empty list.")
    if np.ndim(value[0]) == 0:
        found = np.asarray(value)
    else:
        several = [np.asarray(one) for one in value]
        if any(one.ndim != 1 for one in several) or len({len(one) for one in several}) > 1:
            raise RewindError(f"{where}: `vector` is a list of lists that are not of one length.")
        found = np.stack(several)
    if found.dtype.kind not in "biuf":
        raise RewindError(f"{where}: `vector` holds something else than numbers ({found.dtype}).")
    return found


def _safetensors(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    from safetensors import safe_open

    with reading_user_file(path, "safetensors file"), safe_open(path, "pt") as file:  # NumPy has no bfloat16
        names = json.loads((file.metadata() or {}).get("ids", "null"))
        if not isinstance(names, list) or "vectors" not in file.keys():  # noqa: SIM118 - no mapping
            raise RewindError(
                f'{path}: it needs a tensor `vectors` and the ids as metadata: {{"ids": json.dumps(list_of_ids)}}.'
            )
        tensors = {name: file.get_tensor(name) for name in ("vectors", "lengths") if name in file.keys()}  # noqa: SIM118
    values, lengths = tensors["vectors"], tensors.get("lengths")
    if str(values.dtype) not in _FLOATS:
        raise RewindError(f"{path}: vectors are {values.dtype}, not float16, bfloat16, float32 or float64.")
    if lengths is not None and str(lengths.dtype) not in _WHOLE:
        raise RewindError(f"{path}: lengths are {lengths.dtype}, not whole numbers.")
    values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    return names, values, None if lengths is None else lengths.numpy()


def _checked(ids: np.ndarray, values: np.ndarray, lengths: np.ndarray | None, where: str) -> Vectors:
    ids = text_ids(ids, "ids", where)
    names, times = np.unique(ids, return_counts=True)
    if (times > 1).any():
        raise RewindError(f"{where}: doubled: {some(names[times > 1].tolist())}; give each id one vector.")
    if values.dtype.kind != "f" or values.dtype.itemsize > 8:  # a long double is of this machine alone
        raise RewindError(f"{where}: vectors are {values.dtype}, not float16, float32 or float64.")
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    if lengths is not None and (lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any()):
        shown = f"{lengths.dtype} of shape {lengths.shape}"
        raise RewindError(f"{where}: lengths are {shown}, not a list of whole numbers from 1.")
    if values.ndim == 3:
        values, lengths = _unpadded(ids, values, lengths, where)
    elif values.ndim != 2 or (lengths is not None and lengths.sum() != len(values)):
        raise RewindError(f"{where}: vectors have shape {values.shape}; (ids, numbers) is expected.")
    if len(ids) != (len(values) if lengths is None else len(lengths)):
        raise RewindError(f"{where}: {len(ids):,} ids and {len(values):,} vectors: each id needs one.")
    if not len(ids) or not values.shape[1]:
        raise RewindError(f"{where}: there are no vectors.")
    good = np.isfinite(values).all(axis=1)
    if not good.all():
        owners = ids if lengths is None else np.repeat(ids, lengths)
        raise RewindError(f"{where}: NaN or infinity in {some(list(dict.fromkeys(owners[~good].tolist())))}.")
    return Vectors(ids, values, lengths, where)


def _unpadded(
    ids: np.ndarray, values: np.ndarray, lengths: np.ndarray | None, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """(n, L, D) and (n,) → the real vectors alone, (N, D), and (n,)."""
    if lengths is None:
        raise RewindError(f"{where}: vectors have three axes {values.shape}, so `lengths` must say how many are real.")
    lengths = np.asarray(lengths)
    if lengths.shape != (len(values),) or lengths.dtype.kind not in "iu" or len(ids) != len(values):
        raise RewindError(f"{where}: {len(ids):,} ids, {len(values):,} vectors, lengths {lengths.shape}: one each.")
    wrong = (lengths < 1) | (lengths > values.shape[1])
    if wrong.any():
        raise RewindError(
            f"{where}: the length of {ids[wrong][0]!r} is {lengths[wrong][0]}; it goes from 1 to {values.shape[1]}."
        )
    return values[np.arange(values.shape[1]) < lengths[:, None]], lengths.astype(np.int64)
