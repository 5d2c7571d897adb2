"""A matrix that is read from its file a part at a time: the values of NumPy, and the same ranks and lists."""

from __future__ import annotations

import zipfile

import numpy as np
import pandas as pd
import pytest

from rewind.data import score_matrix as matrices
from rewind.data.score_matrix import FileMatrix, open_scores, write_score_rows, write_scores
from rewind.errors import RewindError
from rewind.evaluation.ranking import near_tie_share, rank_table
from rewind.report import explorer


@pytest.fixture(params=["stored", "compressed"])
def scored(request, tmp_path, monkeypatch):
    """A matrix of 40 clips with twins, of few different scores so that many tie; as an array and from its file."""
    monkeypatch.setattr(matrices, "_READ_BYTES", 7 * 80 * 4)
    whole = np.random.default_rng(0).integers(0, 30, (80, 80)).astype(np.float32)
    ids = [name for i in range(40) for name in (f"v{i}", f"v{i}_rev")]
    items = pd.DataFrame({"item_id": ids, "path": "", "cluster_id": [i.removesuffix("_rev") for i in ids]})
    items["reversed"] = [int("_rev" in i) for i in ids]
    captions = pd.DataFrame({"video_id": ids[::-1], "caption": ids[::-1], "caption_id": [f"{i}#0" for i in ids[::-1]]})
    limit = 0 if request.param == "stored" else whole.size
    write_scores(tmp_path / "seed0.npz", whole, captions["caption_id"].to_numpy(str), np.array(ids), limit)
    found = open_scores(tmp_path / "seed0.npz", whole=0)
    assert isinstance(found.scores, FileMatrix) and found.queries.tolist() == captions["caption_id"].tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["seed0.npz"], "what it is unpacked into has no name"
    assert isinstance(open_scores(tmp_path / "seed0.npz").scores, np.ndarray)
    return whole, found.scores, captions, items


def test_parts_of_the_file_are_those_of_the_array(scored):
    whole, read, _, _ = scored
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, 80, 33), rng.integers(0, 80, 21)
    far = np.array([79, 0, 40, 3])
    for key in (
        slice(5, 60),
        np.s_[:, 3:9],
        np.s_[10:20, 3:9],
        np.ix_(rng.permutation(80)[:40], columns[:5]),  # half of the rows, of which a few columns
        [4, 70, 4],
        np.ix_(rows, columns),
        np.ix_(far, columns),
        (rows[:21], columns),
        (far[:, None], rng.integers(0, 80, (4, 2))),
        (rng.integers(0, 80, (4, 2)), far[:, None]),
        (7, 9),
    ):
        np.testing.assert_array_equal(read[key], whole[key])
    assert read.shape == whole.shape and read.dtype == whole.dtype


@pytest.mark.parametrize("item_to_text", ["all_captions", "best_caption"])
def test_ranks_of_the_file_in_blocks_are_those_of_the_array_at_once(scored, monkeypatch, item_to_text):
    whole, read, captions, items = scored
    asked = captions, items, ["origin", "hard", "binary"], ["text_to_item", "item_to_text"], "similarity", item_to_text
    at_once = rank_table(whole, *asked)
    monkeypatch.setattr("rewind.evaluation.ranking.SCORES_PER_BLOCK", 500)
    pd.testing.assert_frame_equal(rank_table(read, *asked), at_once)
    assert near_tie_share(read, captions, items) == near_tie_share(whole, captions, items)


@pytest.mark.parametrize("most", [500, 1])
def test_lists_of_the_file_in_blocks_are_those_of_the_array_at_once(scored, monkeypatch, most):
    whole, read, captions, items = scored
    split = explorer.ScoredSplit.of(captions, items)
    views = [
        explorer.make_query_view(split, setting, way)
        for setting in ("origin", "hard", "binary")
        for way in ("text_to_item", "item_to_text")
    ]
    at_once = explorer.search_results(views, whole, split, 10)
    for view, found in zip(views, at_once, strict=True):  # as a stable sort of all candidates has them
        shown = whole[np.ix_(view.queries, view.candidates)] if view.to_items and not view.binary else None
        if shown is not None:
            wanted = view.candidates[np.argsort(-shown, axis=1, kind="stable")[:, :10]]
            np.testing.assert_array_equal(found.top, wanted)
        elif not view.binary:
            columns = whole[np.ix_(view.candidates, view.queries)].T
            wanted = view.candidates[np.argsort(-columns, axis=1, kind="stable")[:, :10]]
            np.testing.assert_array_equal(found.top, wanted)
    monkeypatch.setattr("rewind.evaluation.ranking.SCORES_PER_BLOCK", most)
    for found, wanted in zip(explorer.search_results(views, read, split, 10), at_once, strict=True):
        np.testing.assert_array_equal(found.top, wanted.top)
        # Deviations of columns are summed in double precision where a matrix is read in blocks.
        np.testing.assert_allclose(found.margin, wanted.margin, rtol=1e-5)
        np.testing.assert_array_equal(np.sign(found.margin), np.sign(wanted.margin))


def test_a_stored_matrix_is_read_from_the_archive_itself(tmp_path, monkeypatch):
    scores, ids = np.arange(12, dtype=np.float32).reshape(4, 3), np.array(["a", "b", "c", "d"])
    write_scores(tmp_path / "seed0.npz", scores, ids, ids[:3], whole=0)
    monkeypatch.setattr(matrices.shutil, "copyfileobj", lambda *_: pytest.fail("it was copied"))
    found = open_scores(tmp_path / "seed0.npz", whole=0)
    np.testing.assert_array_equal(found.scores[:], scores)
    assert found.queries.tolist() == ids.tolist() and found.gallery.tolist() == ids[:3].tolist()
    with np.load(tmp_path / "seed0.npz") as archive:  # as anyone else would read it
        np.testing.assert_array_equal(archive["similarity"], scores)


def test_equal_columns_are_written_once(tmp_path):
    ids, column = np.array([f"v{i}" for i in range(500)]), np.arange(500, dtype=np.float32)[:, None]
    write_score_rows(tmp_path / "seed0.npz", [column[:300], column[300:]], ids, ids)
    assert (tmp_path / "seed0.npz").stat().st_size < 50_000
    np.testing.assert_array_equal(open_scores(tmp_path / "seed0.npz", whole=0).scores, np.repeat(column, 500, axis=1))


def test_a_matrix_is_written_in_parts(tmp_path):
    scores, ids = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32), np.array(list("abcdefg"))
    write_score_rows(tmp_path / "seed0.npz", np.split(scores, [2, 3]), ids, ids[:3])
    np.testing.assert_array_equal(open_scores(tmp_path / "seed0.npz", whole=0).scores[:], scores)
    with np.load(tmp_path / "seed0.npz") as archive:  # as anyone else would read it
        np.testing.assert_array_equal(archive["similarity"], scores)
        assert archive["query_ids"].tolist() == ids.tolist() and archive["item_ids"].tolist() == ids[:3].tolist()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_header_that_names_more_scores_than_there_are_is_refused(tmp_path, compression):
    path, ids = tmp_path / "seed0.npz", np.array(["a", "b", "c"])
    write_scores(path, np.ones((3, 3), np.float32), ids, ids)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["similarity.npy"] = members["similarity.npy"].replace(b"(3, 3)", b"(3, 9)")
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(RewindError, match=r"seed0\.npz.*3 x 9 scores do not fit"):
        open_scores(path, whole=0)


def test_a_file_that_ends_early_is_refused(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"\0" * 100)
    with pytest.raises(EOFError, match="end in row 3"):
        FileMatrix(path.open("rb"), (10, 8), np.dtype(np.float32), tmp_path)[:]


@pytest.mark.parametrize("levels", [3, 12, 10_000])
def test_the_first_ones_are_those_of_a_stable_sort(levels):
    scores = np.random.default_rng(2).integers(0, levels, (50, 31)).astype(np.float32)
    for k in (1, 10, 31):
        wanted = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(explorer._top_columns(scores, k), wanted)
