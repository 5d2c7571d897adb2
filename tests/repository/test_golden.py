"""The numbers of tests/golden: what is kept, how it is put together again, and that no comparison is left out."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import golden_numbers
from checkout import GOLDEN, TESTS
from golden_numbers import agree, load

FULL = 6_000_000  # bytes: what all files may take together
FILES = sorted(path for path in GOLDEN.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def maker():
    spec = importlib.util.spec_from_file_location("make_golden", GOLDEN / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def records(monkeypatch):
    monkeypatch.setattr(golden_numbers, "RECORDS", {})
    monkeypatch.setattr(golden_numbers, "READ", {})
    return golden_numbers.RECORDS


def test_files_are_small_described_and_hold_plain_arrays():
    assert sum(path.stat().st_size for path in FILES) < FULL
    described = (GOLDEN / "README.md").read_text(encoding="utf-8")
    for path in FILES:
        assert path.name == "README.md" or f"`{path.relative_to(GOLDEN).as_posix()}`" in described, path
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                assert all(arrays[name].dtype.kind in "iufbU" for name in arrays.files), path


def test_what_is_made_smaller_comes_back(tmp_path, monkeypatch, records):
    """Every way of keeping an array, on arrays of known content."""
    make, draw = maker(), np.random.default_rng(0)
    monkeypatch.setattr(golden_numbers, "GOLDEN", tmp_path)
    full = {
        "state/weight": (draw.integers(-9000, 9000, (7, 5)) / 2048).astype(np.float32),
        "state/table": (draw.integers(-99, 99, (50, 4)) / 2048).astype(np.float32),
        "state/fine": draw.normal(size=(3, 2)).astype(np.float32),
        "in/ids": np.array([[49, 3, 0], [3, 7, 0]]),
        "grad/large": draw.normal(size=(90, 60)).astype(np.float32),
        "grad/small": draw.normal(size=(9, 6)).astype(np.float32),
        "out/double": draw.normal(size=4),
    }
    make.write_smaller(tmp_path / "x.npz", make.used_rows(full, "state/table", "in/ids"))
    found = load("x.npz")
    for name in ("state/weight", "state/fine", "in/ids", "grad/small", "out/double"):
        assert np.array_equal(found[name], full[name]) and found[name].dtype == full[name].dtype, name
    kept = found.selected("grad/large")
    assert kept.step == make.STEP and len(kept.values) == -(-5400 // make.STEP)
    assert np.array_equal(kept.values, kept.of(full["grad/large"])) and kept.largest == np.abs(full["grad/large"]).max()
    rows = [0, 3, 7, 49]
    assert np.array_equal(found["state/table"][rows], full["state/table"][rows])
    assert found["state/table"].shape == (50, 4) and not np.delete(found["state/table"], rows, axis=0).any()
    first = (tmp_path / "x.npz").read_bytes()
    make.write_smaller(tmp_path / "x.npz", make.used_rows(full, "state/table", "in/ids"))
    assert (tmp_path / "x.npz").read_bytes() == first, "the same bytes whenever it is made"


def test_frames_are_normalised_as_the_originals_were():
    """Against the few lines of both originals, in whole numbers: (byte / 255 - mean) / deviation."""
    for name in ("clip4clip/open_meanP.npz", "viclip.npz"):
        numbers = load(name)
        video = numbers["in/video"][:, 0, :, 0] if "clip4clip" in name else numbers["in/video"]
        _, mean, deviation = golden_numbers.PIXELS[name.split("/")[0].removesuffix(".npz")]
        shown = video.any(axis=(2, 3, 4))
        for channel in range(3):
            expected = (numbers["in/frames_u8"][:, :, channel] / 255 - mean[channel]) / deviation[channel]
            assert np.abs(video[:, :, channel] - expected)[shown].max() < 1e-6
    assert np.array_equal(load("viclip.npz")["in/image"], load("viclip.npz")["in/video"][:, 1])


def test_a_comparison_counts_and_can_fail(records):
    agree("WTI", "loss", torch.tensor([1.0, 2.0]), np.array([1.0, 2.5]), atol=0.6)
    agree("WTI", "loss", torch.tensor([3.0]), np.array([3.0]), rtol=0.1)
    agree("WTI", "ranks", [1, 2], np.array([1, 2]))
    single = records["WTI", "loss", "single"]
    assert (single.count, single.largest, single.allowed) == (3, 0.5, 0.6)
    assert records["WTI", "ranks", "exact"].count == 2
    for found, wanted, limit in (
        (torch.tensor([1.0]), [1.1], 0.05),
        (torch.tensor([1.0]), [1.0, 1.0], 1.0),
        ([1], [2], 0.0),
        ([1], [1], 0.5),  # whole numbers agree or do not
        ([], [], 0.0),
        (torch.tensor([float("nan")]), [1.0], 1.0),
    ):
        with pytest.raises(AssertionError):
            agree("WTI", "loss", found, np.array(wanted), atol=limit)
    with pytest.raises(AssertionError):
        agree("Somebody", "loss", [1], [1])


def test_every_test_that_compares_is_in_the_table():
    """``make golden`` runs what is marked: a comparison without the mark would be missing."""
    for file in sorted(TESTS.rglob("test_*.py")):
        if file == Path(__file__):
            continue
        for function in ast.parse(file.read_text(encoding="utf-8")).body:
            calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            compares = any(isinstance(call, ast.Name) and call.id == "agree" for call in calls)
            if compares and isinstance(function, ast.FunctionDef):
                assert "pytest.mark.golden" in {ast.unparse(mark) for mark in function.decorator_list}, (
                    f"{file.name}: {function.name} calls agree; mark it with pytest.mark.golden"
                )
