"""Settings that a file of scores does not answer have no number, only a reason."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from brought_files import COUNT, caption_ids, item_ids, tables
from messages import expect_message, refusal
from rewind.cli.main import main
from rewind.config.report import Statistics
from rewind.data.readers import MISSING_SCORE, read_score_file
from rewind.data.score_matrix import FileMatrix, fill_missing_scores, open_scores
from rewind.evaluation.ranking import unscored_settings
from rewind.evaluation.run_metrics import compute_ranks, join_metrics
from rewind.evaluation.trec import export_trec
from rewind.io.files import read_csv, write_npz
from rewind.models.precomputed import PrecomputedScores
from rewind.report.tables import summary_text
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import read_not_evaluated
from rewind.statistics.study import compute_statistics
from rewind.tables.results import Results
from rewind.tables.spec import TableInputs

pytest_plugins = ["brought_files"]

SETTINGS, WAYS = ["origin", "hard", "binary"], ["text_to_item", "item_to_text"]
ITEMS, CAPTIONS = item_ids(), caption_ids()


def evaluated(folder: Path, file: Path, method: str, settings: list[str] | None = None) -> dict:
    """What the jobs make of a file of scores: the run's matrix and ranks; its JSON."""
    model = PrecomputedScores(read_score_file(file))
    items, captions = model.covers(*tables(folder))
    inputs, text = model.from_captions(items, captions)
    batch = model.encode_items(inputs.batch(np.arange(len(inputs))))
    scores = model.similarity(model.encode_text({"text": text}), batch).numpy()
    matrix = folder / f"similarity/{method}/seed0.npz"
    write_npz(
        matrix,
        similarity=scores,
        query_ids=captions["caption_id"].to_numpy(str),
        item_ids=items["item_id"].to_numpy(str),
    )
    ranks = folder / f"ranks/{method}/seed0.parquet"
    compute_ranks(folder, "doors", settings or SETTINGS, WAYS, str(matrix), str(ranks), str(ranks.with_suffix(".json")))
    return json.loads(ranks.with_suffix(".json").read_text())


def predictions(folder: Path, name: str) -> Path:
    """Those of the first half of the clips are right, as MTEB keeps them of Binary; imported as a user does."""
    names = ITEMS[:COUNT]
    right = {item: float(at < COUNT // 2) for at, item in enumerate(names)}
    if name == "T2V":
        rows = {f"{item}#0": {item: 2 * right[item], f"{item}_rev": 1.0} for item in names}
    else:
        rows = {f"{item}/{item}#0": {f"{item}#0": 2 * right[item], f"{item}_rev#0": 1.0} for item in names}
    file = folder / f"RewindDoorsBinary{name}_predictions.json"
    file.write_text(json.dumps({"default": {"test": rows}}))
    assert main(["import", "mteb", str(file), str(folder / f"{name}.trec")]) == 0
    return folder / f"{name}.trec"


def run_of(folder: Path, scores: np.ndarray, depth: int) -> Path:
    """A retrieval run: each caption's best items."""
    file = folder / f"best{depth}.run"
    lines = [
        f"{caption} Q0 {ITEMS[column]} {place} {row[column]:.9g} tag"
        for caption, row in zip(CAPTIONS, scores, strict=True)
        for place, column in enumerate(np.argsort(-row)[:depth], 1)
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_binary_s_candidates_give_numbers_of_binary_alone(data: Path, tmp_path: Path) -> None:
    said = evaluated(data, predictions(tmp_path, "T2V"), "t2v")
    assert list(said["not_evaluated"]) == ["origin", "hard", "binary item_to_text"]
    expect_message("\n".join(said["not_evaluated"].values()))
    assert [(row["setting"], row["direction"], row["R@1"]) for row in said["metrics"]] == [
        ("binary", "text_to_item", 50.0)
    ]
    said = evaluated(data, predictions(tmp_path, "V2T"), "v2t")
    assert list(said["not_evaluated"]) == ["origin", "hard", "binary text_to_item"]
    expect_message("\n".join(said["not_evaluated"].values()))
    assert [(row["setting"], row["direction"], row["R@1"]) for row in said["metrics"]] == [
        ("binary", "item_to_text", 50.0)
    ]
    with refusal("results/data/doors/similarity/alone/seed0.npz"):
        evaluated(data, tmp_path / "T2V.trec", "alone", ["origin"])


def test_dashes_stand_in_every_table_with_their_reason(data: Path, tmp_path: Path) -> None:
    scores = np.random.default_rng(1).normal(size=(2 * COUNT, 2 * COUNT))
    evaluated(data, predictions(tmp_path, "T2V"), "t2v")
    evaluated(data, predictions(tmp_path, "V2T"), "v2t")
    evaluated(data, run_of(tmp_path, scores, 2 * COUNT), "full")
    runs, ranks = [("t2v", 0), ("v2t", 0), ("full", 0)], str(data / "ranks")
    join_metrics({run: f"{ranks}/{run[0]}/seed0.json" for run in runs}, SETTINGS, str(data / "metrics.csv"))
    files = [str(data / f"{name}.csv") for name in ("intervals", "pairs", "gaps", "places", "chance")]
    names = {name: name for name, _ in runs}
    pairs, keys = [("t2v", "full"), ("v2t", "full"), ("t2v", "v2t")], Statistics(resamples=100)
    compute_statistics(
        runs, ranks, pairs, keys, RandomFactors(frozenset({"t2v", "v2t", "full"})), *files, ["t2v", "v2t", "full"]
    )
    intervals, compared, gaps, places, chance = map(read_csv, files)
    assert set(gaps["method"]) == {"full"}
    assert set(compared[["first", "second", "setting", "direction"]].itertuples(index=False, name=None)) == {
        ("t2v", "full", "binary", "text_to_item"),
        ("v2t", "full", "binary", "item_to_text"),
    }
    results = Results(
        read_csv(data / "metrics.csv"), intervals, compared, names, dict.fromkeys(names, "-"), fixed=names, gaps=gaps,
        places=places, chance=chance, not_evaluated=read_not_evaluated(runs, ranks), order="primary",
    )  # fmt: skip
    text = summary_text(TableInputs(results, SETTINGS, dataset="Doors"))
    origin, binary = (next(part for part in text.split("Table ") if name in part) for name in ("Origin", "Binary"))
    dashed = [line.split()[0] for line in origin.splitlines() if " – " in line.replace("-", "")]
    assert {"t2v", "v2t"} <= set(dashed) and "full" not in dashed
    cells = {line.split()[1]: line.split()[3:] for line in binary.splitlines() if line[1:3] == "  "}
    assert cells["t2v"][0] == "50.0" and cells["t2v"][-2:] == ["–", "–"], binary
    assert cells["v2t"][:2] == ["–", "–"] and cells["v2t"][2] == "50.0", binary
    flat = " ".join(binary.split())
    for name, way, other in (("t2v", "item_to_text", "V2T"), ("v2t", "text_to_item", "T2V")):
        assert f"{name} in {other} ({results.not_evaluated[name][f'binary {way}']})" in flat


@pytest.mark.parametrize("depth", [5, 20])
def test_a_retrieval_run_has_numbers_wherever_it_had(data: Path, tmp_path: Path, depth: int) -> None:
    scores = np.random.default_rng(0).normal(size=(2 * COUNT, 2 * COUNT))
    scores[np.arange(2 * COUNT), np.arange(2 * COUNT)] += 2
    said = evaluated(data, run_of(tmp_path, scores, depth), "best")
    assert "not_evaluated" not in said and len(said["metrics"]) == 6
    whole = evaluated(data, run_of(tmp_path, scores, 2 * COUNT), "whole")
    cut, full = ({(row["setting"], row["direction"]): row["R@1"] for row in one["metrics"]} for one in (said, whole))
    assert cut["hard", "text_to_item"] == full["hard", "text_to_item"]


def test_what_a_run_without_a_score_writes_comes_back_the_same(data: Path, tmp_path: Path) -> None:
    scores = np.random.default_rng(0).normal(size=(2 * COUNT, 2 * COUNT)).astype(np.float32)
    before = evaluated(data, run_of(tmp_path, scores, 5), "best")
    matrix = data / "similarity/best/seed0.npz"
    again = read_score_file(matrix)
    assert np.isneginf(again.similarity).sum() == 2 * COUNT * (2 * COUNT - 5)
    assert evaluated(data, matrix, "again") == before
    files = export_trec(data, "doors", ["hard"], ["text_to_item"], {("best", 0): str(matrix)}, tmp_path / "trec")
    written = next(path for path in files if path.name.startswith("run_"))
    assert len(written.read_text().splitlines()) == 2 * COUNT * 5
    assert evaluated(data, written, "exported", ["hard"])["metrics"][0] == next(
        row for row in before["metrics"] if row["setting"] == "hard"
    )
    # Pictures show such pairs as just below the others, in memory and in a file.
    shown, found = fill_missing_scores(open_scores(matrix).scores), again.similarity
    assert (
        shown.min() == found[np.isfinite(found)].min() - 1
        and (shown[np.isfinite(found)] == found[np.isfinite(found)]).all()
    )
    large = fill_missing_scores(open_scores(matrix, whole=1).scores)
    assert isinstance(large, FileMatrix) and (large[:] == shown).all()


KINDS = {
    "forward with originals": (slice(0, COUNT), slice(0, COUNT)),
    "forward with twins": (slice(0, COUNT), slice(COUNT, None)),
    "reverse with originals": (slice(COUNT, None), slice(0, COUNT)),
    "reverse with twins": (slice(COUNT, None), slice(COUNT, None)),
}


@pytest.mark.parametrize(
    ("gone", "lacking"),
    [
        (["forward with originals"], {"origin", "hard", "binary"}),
        (["forward with twins"], {"hard", "binary text_to_item"}),
        (["reverse with originals"], {"hard", "binary item_to_text"}),
        (["reverse with twins"], {"hard"}),
        ([], set()),
    ],
)
def test_each_kind_of_pair_is_needed_where_it_is_asked(data: Path, gone: list[str], lacking: set[str]) -> None:
    items, captions = tables(data)
    scores = np.random.default_rng(0).normal(size=(2 * COUNT, 2 * COUNT)).astype(np.float32)
    for kind in gone:
        scores[KINDS[kind]] = MISSING_SCORE
    assert set(unscored_settings(scores, captions, items, SETTINGS, WAYS)) == lacking
    assert set(unscored_settings(scores, captions, items, ["test"], WAYS)) == {"test"} & (
        {"test"} if "hard" in lacking else set()
    )
    if gone:  # one score of the kind is enough, but for that of a caption and its own clip
        place = tuple(part.start for part in KINDS[gone[0]])
        scores[place[0], place[1] + 1] = 0
        assert not set(unscored_settings(scores, captions, items, ["origin", "hard"], WAYS))
