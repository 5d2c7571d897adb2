"""Numbers made by running other people's code: reading them, comparing with them, and a table of what was compared.

``load`` reads a file of ``tests/golden``; ``agree`` compares as ``numpy.testing.assert_allclose`` does and notes how
many numbers there were and how far the furthest was. ``pytest --golden-table FILE`` writes the notes (``make golden``).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from checkout import GOLDEN

GRID = 2048  # values kept as whole numbers are multiples of 1/2048
PIXELS = {  # how the originals normalise: precision, mean and standard deviation of the channels (CLIP's, ImageNet's)
    "clip4clip": (np.float32, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "viclip": (np.float64, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class Selected(NamedTuple):
    """Every ``step``-th value of a flattened array, and the largest magnitude of all."""

    values: np.ndarray
    step: int
    largest: float

    def of(self, array: np.ndarray) -> np.ndarray:
        """The same places of another array."""
        return np.asarray(array).reshape(-1)[:: self.step]


class Numbers(Mapping[str, np.ndarray]):
    """The arrays of a file by name, as the original gave them; it remembers which were read."""

    def __init__(self, name: str, arrays: dict[str, np.ndarray], selections: dict[str, Selected]) -> None:
        self.arrays, self.selections = arrays, selections
        self.read = READ.setdefault(name, dict.fromkeys([*arrays, *selections], False))

    @property
    def files(self) -> list[str]:
        """The names, as an npz file calls them."""
        return list(self.arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        self.read[name] = True
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def selected(self, name: str) -> Selected:
        """The part of an array that is kept, be it all of it."""
        self.read[name] = True
        if name in self.selections:
            return self.selections[name]
        return Selected(self.arrays[name].reshape(-1), 1, float(np.abs(self.arrays[name]).max()))


READ: dict[str, dict[str, bool]] = {}  # file -> array -> whether a test has read it

# Whose code made the numbers that a subject is compared with; tests/golden/README.md says how.
ORIGINALS = {
    "CLIP4Clip": "ArrowLuo/CLIP4Clip @ 508ffa3",
    "X-Pool": "layer6ai-labs/xpool @ bc88718",
    "WTI": "foolwood/DRL @ 475f96c",
    "ViCLIP": "OpenGVLab/InternVideo @ 3965eef",
    "HNAC": "the method's own document",
    "SANW": "skcpda/CLIPSE @ b62f3e3",
    "TACT": "bpiyush/TestOfTime @ 5dce55d",
    "CE-CLIP": "lezhang7/Enhance-FineGrained @ 2d07821",
    "MiniCLIP": "SoroushRaeisian/miniclip @ 85ae038",
    "Translator": "emanueleiacca/AML_Hackaton @ 3675388",
    "GradCache": "luyug/GradCache @ 906f038",
    "Ranking": "ranx 0.3.21, ir_measures 0.4.3",
    "MiniLM": "transformers 5.23.0",
}


@dataclass
class Compared:
    """What was compared under one name in one precision."""

    count: int = 0
    largest: float = 0.0  # absolute difference
    allowed: float = 0.0  # the largest absolute difference that any of the comparisons would have let pass


RECORDS: dict[tuple[str, str, str], Compared] = {}  # (subject, quantity, precision)


def agree(subject: str, quantity: str, found: Any, wanted: Any, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Assert that all numbers are within ``atol + rtol * |wanted|``, of one shape, and note it.

    Args:
        subject: the model or loss, a name of ``ORIGINALS`` and perhaps what follows a comma (``CLIP4Clip, meanP``).
        quantity: what of it is compared (``similarity``).
        found: ours. Its type says the precision: single, double, or exact for whole numbers.
        wanted: the original's.
    """
    assert subject.split(",")[0] in ORIGINALS, subject
    found, wanted = (np.asarray(x.detach() if isinstance(x, torch.Tensor) else x) for x in (found, wanted))
    assert found.size and found.shape == wanted.shape, f"{subject}, {quantity}: {found.shape} beside {wanted.shape}"
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=f"{subject}, {quantity}")
    precision = {4: "single", 8: "double"}[found.dtype.itemsize] if found.dtype.kind == "f" else "exact"
    assert precision != "exact" or rtol == atol == 0, f"{subject}, {quantity}: whole numbers must be equal"
    known = RECORDS.setdefault((subject, quantity, precision), Compared())
    known.count += found.size
    if precision != "exact":
        wanted = wanted.astype(np.float64)
        difference = np.abs(found.astype(np.float64) - wanted)
        real = np.isfinite(wanted)  # where it is not, both are the same
        known.largest = max(known.largest, float(difference[real].max(initial=0)))
        known.allowed = max(known.allowed, float((atol + rtol * np.abs(wanted[real])).max(initial=0)))


def write_records(path: Path) -> None:
    """Everything noted so far, as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["compared", "quantity", "original", "precision", "numbers", "largest_difference", "allowed"])
        order = list(ORIGINALS)
        for key in sorted(RECORDS, key=lambda key: (order.index(key[0].split(",")[0]), key[0])):
            (subject, quantity, precision), known = key, RECORDS[key]
            # How far two processors are apart is no more than a digit; more would claim what another run contradicts.
            ends = [f"{known.largest:.1e}", f"{known.allowed:.1e}"] if precision != "exact" else ["0", "0"]
            rows.writerow([subject, quantity, ORIGINALS[subject.split(",")[0]], precision, known.count, *ends])


def unread() -> dict[str, list[str]]:
    """File -> its arrays that no test has read, of the files that a test has loaded."""
    found = {file: [name for name, was_read in names.items() if not was_read] for file, names in READ.items()}
    return {file: names for file, names in found.items() if names}


def load(name: str) -> Numbers:
    """A file of ``tests/golden``, e.g. ``clip4clip/open_meanP.npz``, with what ``golden/make.py`` took out put back."""
    kept = _file(name)
    if name.startswith("clip4clip/open"):
        kept = _file(f"{name.split('_')[0]}_towers.npz") | kept
    selections = {
        key.removeprefix("every/"): Selected(value, int(kept[f"{key}/step"]), float(kept[f"{key}/largest"]))
        for key, value in kept.items()
        if key.startswith("every/") and f"{key}/step" in kept
    }
    arrays = {key: value for key, value in kept.items() if not key.startswith(("every/", "grid/"))}
    for key in (key for key in kept if key.startswith("grid/")):
        low, high = kept[key].astype(np.int16)
        arrays[key.removeprefix("grid/")] = (low | high << 8).astype(np.float32) / np.float32(GRID)
    for key in [key for key in arrays if key.startswith("rows/") and f"{key}/numbers" in arrays]:
        numbers, shape = arrays.pop(f"{key}/numbers"), arrays.pop(f"{key}/shape")
        values = arrays.pop(key)
        table = np.zeros(shape, values.dtype)
        table[numbers] = values
        arrays[key.removeprefix("rows/")] = table
    if "in/shown" in arrays:
        shown = arrays.pop("in/shown")
        original = name.split(".")[0].split("/")[0]
        dtype, mean, deviation = PIXELS[original]
        mean, deviation = (np.array(values, dtype)[:, None, None] for values in (mean, deviation))
        video = ((arrays["in/frames_u8"].astype(dtype) / dtype(255) - mean) / deviation).astype(np.float32)
        video = np.where(shown[:, :, None, None, None], video, np.float32(0))
        arrays["in/video"] = video[:, None, :, None] if original == "clip4clip" else video
    return Numbers(name, arrays, selections)


def load_json(name: str) -> Any:
    """A JSON file of ``tests/golden``."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def _file(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}
