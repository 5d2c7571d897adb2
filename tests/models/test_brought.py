"""Vectors and scores that somebody brings: read in every format, refused by name, scored as they should be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from brought_files import COUNT, caption_ids, item_ids, made, tables, write_vectors
from messages import expect_message, refusal
from rewind.config import Method
from rewind.data.readers import EmbeddingTable, StoredRows, read_embedding_file, read_score_file
from rewind.data.score_matrix import open_scores, write_scores
from rewind.evaluation.ranking import near_tie_share, rank_table
from rewind.evaluation.similarity import Pairs
from rewind.loading.run_data import check_precomputed_files
from rewind.models.precomputed import PrecomputedEmbeddings, PrecomputedScores, notes_scores, notes_vectors

pytest_plugins = ["brought_files"]


def scored(model: PrecomputedEmbeddings | PrecomputedScores, data: Path) -> np.ndarray:
    items, captions = model.covers(*tables(data))
    inputs, text = model.from_captions(items, captions)
    batch = inputs.batch(np.arange(len(inputs)))
    return model.similarity(model.encode_text({"text": text}), model.encode_items(batch)).numpy()


def shuffled(folder: Path, data: Path) -> PrecomputedEmbeddings:
    """Vectors whose files have their ids in another order than the data set."""
    text, items = made()
    rng = np.random.default_rng(1)
    for name, ids, values in (("captions", caption_ids(), text), ("items", item_ids(), items)):
        order = rng.permutation(len(ids))
        np.savez(folder / f"{name}.npz", ids=np.array(ids)[order], vectors=values[order])
    return PrecomputedEmbeddings(
        read_embedding_file(folder / "captions.npz", "captions"),
        read_embedding_file(folder / "items.npz", "items"),
        "cosine",
    )


def test_cosines_are_those_of_the_vectors_whatever_the_order_of_ids(tmp_path: Path, data: Path) -> None:
    text, items = made()
    expected = text / np.linalg.norm(text, axis=1)[:, None] @ (items / np.linalg.norm(items, axis=1)[:, None]).T
    found = scored(shuffled(tmp_path, data), data)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_every_format_holds_the_same(tmp_path: Path, kind: type) -> None:
    values = made()[0].astype(kind)
    ids = caption_ids()
    np.savez(tmp_path / "a.npz", ids=np.array(ids), vectors=values)
    pd.DataFrame({"id": ids, "vector": list(values.astype(np.float32))}).to_parquet(tmp_path / "a.parquet")
    save_file({"vectors": torch.from_numpy(values)}, tmp_path / "a.safetensors", metadata={"ids": json.dumps(ids)})
    first = read_embedding_file(tmp_path / "a.npz", "captions")
    assert first.width == 16 and first.values.dtype == kind
    pd.DataFrame(values, ids).to_csv(tmp_path / "a.csv", index_label="id")
    written = read_embedding_file(tmp_path / "a.csv", "captions")  # the shortest digits that give the number again
    assert written.ids.tolist() == ids and (written.values.astype(kind) == values).all()
    for name in ("a.parquet", "a.safetensors"):
        other = read_embedding_file(tmp_path / name, "captions")
        assert other.ids.tolist() == ids
        np.testing.assert_allclose(other.values, first.values, atol=1e-6 if kind is np.float64 else 0)


def test_many_vectors_stay_in_their_file(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scored(shuffled(tmp_path, data), data)
    monkeypatch.setattr("rewind.data.readers.MIN_STORED_BYTES", 0)
    model = shuffled(tmp_path, data)
    assert isinstance(model.all_items.values, StoredRows)
    np.testing.assert_array_equal(scored(model, data), whole)
    content = bytearray((tmp_path / "items.npz").read_bytes())
    content[content.index(b"vectors.npy") + 300] ^= 1
    (tmp_path / "items.npz").write_bytes(content)
    with refusal("items.npz"):
        read_embedding_file(tmp_path / "items.npz", "items")


def test_late_interaction_adds_up_the_best_of_each_vector(tmp_path: Path, data: Path) -> None:
    rng = np.random.default_rng(2)
    sides = {}
    for name, ids, most in (("captions", caption_ids(), 5), ("items", item_ids(), 4)):
        lengths = rng.integers(1, most + 1, len(ids))
        values = rng.normal(size=(len(ids), most, 8)).astype(np.float32)
        sides[name] = (values, lengths)
        np.savez(tmp_path / f"{name}.npz", ids=np.array(ids), vectors=values, lengths=lengths)
        rows = [[row.tolist() for row in one[:n]] for one, n in zip(values, lengths, strict=True)]
        pd.DataFrame({"id": ids, "vector": rows}).to_parquet(tmp_path / f"{name}.parquet")
    (text, n), (items, m) = sides["captions"], sides["items"]
    expected = [
        [(t[:a] @ i[:b].T).max(axis=1).sum() for i, b in zip(items, m, strict=True)]
        for t, a in zip(text, n, strict=True)
    ]
    for suffix in ("npz", "parquet"):
        read = [read_embedding_file(tmp_path / f"{name}.{suffix}", name) for name in sides]
        np.testing.assert_allclose(scored(PrecomputedEmbeddings(*read, "maxsim"), data), expected, rtol=1e-5)
    with refusal("methods.*.options.score"):
        PrecomputedEmbeddings(*read, "cosine")


def test_a_model_that_cannot_see_order_ties_every_clip_with_its_twin(tmp_path: Path, data: Path) -> None:
    write_vectors(tmp_path, order=0)
    files = [read_embedding_file(tmp_path / f"{name}.npz", name) for name in ("captions", "items")]
    items, captions = tables(data)
    for score in ("cosine", "dot", "maxsim"):
        found = rank_table(
            scored(PrecomputedEmbeddings(*files, score), data), captions, items, ["binary"], ["text_to_item"]
        )
        assert (found["higher"] == 0).all() and (found["ties"] == 1).all() and len(found) == COUNT


def test_ties_that_rounding_broke_are_counted(tmp_path: Path, data: Path) -> None:
    items, captions = tables(data)
    scores = np.random.default_rng(5).normal(size=(len(captions), len(items))).astype(np.float32)
    assert near_tie_share(scores, captions, items) == 0
    scores[:, COUNT:] = scores[:, :COUNT]
    assert near_tie_share(scores, captions, items) == 0, "equal scores are ties, which count one half"
    scores[:, COUNT : COUNT + 6] *= np.float32(1 + 1e-6)
    assert near_tie_share(scores, captions, items) == 6 / COUNT


def test_a_matrix_and_a_run_in_trec_s_format_are_looked_up(tmp_path: Path, data: Path) -> None:
    scores = scored(shuffled(tmp_path, data), data)
    order = np.random.default_rng(3).permutation(len(scores))
    ids = {"query_ids": np.array(caption_ids())[order], "item_ids": np.array(item_ids())}
    np.savez(tmp_path / "m.npz", similarity=scores[order].astype(np.float64), **ids)
    np.testing.assert_array_equal(scored(PrecomputedScores(read_score_file(tmp_path / "m.npz")), data), scores)
    with (tmp_path / "m.run").open("w") as stream:
        for caption, row in zip(caption_ids(), scores, strict=True):
            for place, column in enumerate(np.argsort(-row)[:10], start=1):
                stream.write(f"{caption} Q0 {item_ids()[column]} {place} {row[column]:.9g} tag\n")
    model = PrecomputedScores(read_score_file(tmp_path / "m.run"))
    found = scored(model, data)
    best = np.sort(scores, axis=1)[:, -10:]
    np.testing.assert_array_equal(np.sort(found, axis=1)[:, -10:].astype(np.float32), best)
    assert len(np.unique(np.sort(found, axis=1)[:, :-10])) == 1 and found.min() < scores.min(), "all others tie, below"
    whole = len(scores) * len(item_ids())
    (note,) = notes_scores(Method(model="scores"), model)
    assert f"{whole - 10 * len(scores):,} of {whole:,} pairs" in note
    expect_message(note)


@pytest.mark.parametrize("offset", [1.0, -1000.0])
@pytest.mark.parametrize("suffix", ["trec", "npz"])
def test_scores_that_differ_beyond_single_precision_do_not_tie(
    tmp_path: Path, data: Path, suffix: str, offset: float
) -> None:
    """Log-likelihoods near −1000 have steps of 6e-5 in single precision."""
    items, captions = tables(data)
    right = captions["video_id"].to_numpy()[:, None] == items["item_id"].to_numpy()
    scores, path = offset + 1e-9 * right, tmp_path / f"close.{suffix}"
    if suffix == "npz":
        np.savez(path, similarity=scores, query_ids=np.array(caption_ids()), item_ids=np.array(item_ids()))
    else:
        lines = [
            f"{query} Q0 {item} 1 {score!r} run"
            for query, row in zip(caption_ids(), scores.tolist(), strict=True)
            for item, score in zip(item_ids(), row, strict=True)
        ]
        path.write_text("\n".join(lines) + "\n")
    model = PrecomputedScores(read_score_file(path))
    inputs, text = model.from_captions(items, captions)
    pairs = Pairs(model, {"captions": text}, model.encode_items(inputs.batch(np.arange(len(items)))), len(items), 7)
    written = tmp_path / "seed0.npz"
    write_scores(written, pairs.rows(slice(0, len(captions))), np.array(caption_ids()), np.array(item_ids()))
    for whole in (2**26, 1):
        found = rank_table(
            open_scores(written, whole).scores, captions, items, ["hard", "binary"], ["text_to_item", "item_to_text"]
        )
        assert (found[["higher", "ties"]] == 0).all(axis=None)


def test_scores_that_single_precision_holds_are_kept_in_it(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).normal(size=(2, 2)).astype(np.float32).astype(np.float64)
    ids = np.array(["a", "b"])
    np.savez(tmp_path / "a.npz", similarity=scores, query_ids=ids, item_ids=ids)
    assert read_score_file(tmp_path / "a.npz").similarity.dtype == np.float32


@pytest.mark.parametrize("score", ["cosine", "dot", "maxsim"])
def test_ties_that_only_rounding_makes_are_counted_and_said(tmp_path: Path, data: Path, score: str) -> None:
    items, captions = tables(data)
    text, clips = made(order=0)
    clips[COUNT : COUNT + 5] *= 1 + 1e-9 * np.random.default_rng(3).normal(size=(5, clips.shape[1]))
    tables_of = [
        EmbeddingTable(np.array(ids), values, None, name)
        for ids, values, name in ((caption_ids(), text, "captions.npz"), (item_ids(), clips, "items.npz"))
    ]
    model = PrecomputedEmbeddings(*tables_of, score)
    model.from_captions(items, captions)
    assert 3 <= model.rounded_ties() <= 5  # a difference may lie across a step of single precision
    options = {"captions": str(tmp_path / "captions.npz"), "items": str(tmp_path / "items.npz")}
    (note,) = notes_vectors(Method(model="vectors", options=options), model)
    expect_message(note.replace(str(model.rounded_ties()), "N"))
    model.all_items = replace(tables_of[1], values=made(order=0)[1])
    model.from_captions(items, captions)
    assert model.rounded_ties() == 0, "equal vectors tie without rounding"


def test_vectors_without_twins_cover_the_originals_alone(tmp_path: Path, data: Path) -> None:
    text, items = made()
    np.savez(tmp_path / "c.npz", ids=np.array(caption_ids(False)), vectors=text[:COUNT])
    np.savez(tmp_path / "i.npz", ids=np.array(item_ids(False)), vectors=items[:COUNT])
    method = Method(model="vectors", options={"captions": str(tmp_path / "c.npz"), "items": str(tmp_path / "i.npz")})
    check_precomputed_files(method, data, "doors")
    model = PrecomputedEmbeddings(
        read_embedding_file(tmp_path / "c.npz", "captions"), read_embedding_file(tmp_path / "i.npz", "items"), "dot"
    )
    covered = model.covers(*tables(data))
    assert [len(part) for part in covered] == [COUNT, COUNT] and scored(model, data).shape == (COUNT, COUNT)


BROKEN = {
    "missing": lambda ids, v: (ids[1:], v[1:]),
    "extra": lambda ids, v: ([*ids, "stranger"], np.vstack([v, v[:1]])),
    "doubled": lambda ids, v: ([ids[1], *ids[1:]], v),
    "nan": lambda ids, v: (ids, np.where(np.arange(len(v))[:, None] == 2, np.nan, v)),
    "zeros": lambda ids, v: (ids, np.where(np.arange(len(v))[:, None] == 2, 0.0, v)),
    "width": lambda ids, v: (ids, v[:, :-1]),
    "integers": lambda ids, v: (ids, v.astype(int)),
    "too few": lambda ids, v: (ids, v[:-1]),
    "three axes": lambda ids, v: (ids, v[:, None]),
    "some twins": lambda ids, v: (ids[:-1], v[:-1]),
}


@pytest.mark.parametrize("side", ["captions", "items"])
@pytest.mark.parametrize("fault", BROKEN)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, data: Path, side: str, fault: str) -> None:
    write_vectors(tmp_path)
    ids, vectors = BROKEN[fault](*(dict(np.load(tmp_path / f"{side}.npz")).values()))
    np.savez(tmp_path / f"{side}.npz", ids=np.array(list(ids)), vectors=vectors)
    options = {name: str(tmp_path / f"{name}.npz") for name in ("captions", "items")}
    places = {"width": "methods.*.options", "doubled": f"{side}.npz: duplicate"}
    with refusal(places.get(fault, f"{side}.npz")):
        check_precomputed_files(Method(model="vectors", options=options), data, "doors")


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"no archive")
    np.savez(tmp_path / "b.npz", vectors=np.zeros((1, 2)))
    np.savez(tmp_path / "c.npz", ids=np.array(["a", None]), vectors=np.zeros((2, 2)))
    (tmp_path / "d.run").write_text("q Q0 d 1 0.5 tag\nq Q0 d 2 0.4 tag\n")
    (tmp_path / "e.run").write_text("q Q0 d 1 nan tag\n")
    (tmp_path / "f.run").write_text("q Q0 a 1 0.5 tag\nq Q0 %20 2 0.4 tag\n")
    ids = {"query_ids": np.array(["q"]), "item_ids": np.array(["a", "b"])}
    for name, scores in (
        ("large", np.array([[1e39, 1.0]])),
        ("low", np.array([[-1e39, 1.0]])),
        ("half", np.array([[np.inf, 1.0]], np.float16)),
    ):
        np.savez(tmp_path / f"{name}.npz", similarity=scores, **ids)
    np.savez(tmp_path / "none.npz", **ids | {"similarity": np.zeros((0, 2)), "query_ids": np.zeros(0, str)})
    for name in ("a.npz", "b.npz", "c.npz", "a.pt", "no.npz"):
        with refusal(name):
            read_embedding_file(tmp_path / name, "captions")
    runs = ("d.run: line 2", "e.run: line 1", "f.run: line 2")
    for place in (*runs, "large.npz", "low.npz", "half.npz", "none.npz", "b.npz"):
        with refusal(place):
            read_score_file(tmp_path / place.partition(":")[0])
