"""What probes write of a run: values of the functions that measure, for the right captions and clips."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from rewind.config.evaluation import BY_CHANCE, VALUE_COLUMNS, Evaluation, ProbeName
from rewind.data.captions import SplitTables
from rewind.evaluation.answers import ANSWER_METRICS
from rewind.evaluation.foils import pair_scores
from rewind.evaluation.geometry import measure_geometry
from rewind.evaluation.probes import PROBES, ProbedRun, QuestionFiles, compute_probes
from rewind.evaluation.similarity import similarity_matrix
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import PreparedSplit
from training_runs import retriever

CLIPS, FRAMES = 12, 4


def tables(split: str) -> SplitTables:
    """Clips with their twins, a caption each."""
    names = [f"{split}{n}{'_rev' * back}" for n in range(CLIPS) for back in (0, 1)]
    items = pd.DataFrame({"item_id": names, "cluster_id": [name.removesuffix("_rev") for name in names]})
    items["reversed"] = items["item_id"].str.endswith("_rev").astype(int)
    verbs = {0: "up", 1: "down"}
    text = [f"a red {'ring' if n % 2 else 'star'} {verbs[back]}" for n in range(CLIPS) for back in (0, 1)]
    captions = pd.DataFrame({"video_id": names, "caption": text, "caption_id": [f"{name}#0" for name in names]})
    return SplitTables(items, captions, {})


def frames(items: pd.DataFrame, seed: int) -> CachedFrames:
    rng = np.random.default_rng(seed)
    clips = {name: rng.normal(size=(FRAMES, 96)).astype(np.float32) for name in dict.fromkeys(items["cluster_id"])}
    values = [clips[row.cluster_id][::-1] if row.reversed else clips[row.cluster_id] for row in items.itertuples()]
    return CachedFrames(np.stack(values), np.ones((len(values), FRAMES), np.uint8))


class Data:
    """The part of RunData that probes use."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dataset = folder, "d"
        self.spec = SimpleNamespace(evaluation=Evaluation(batch_size=8), method=SimpleNamespace(precomputed=False))

    def check_tower(self, model) -> None:
        """Features are of this tower."""

    def split(self, name: str, model) -> PreparedSplit:
        items, captions, _ = tables(name)
        return self.prepare(items, captions, model, seed=len(name))

    def prepare(self, items, captions, model, seed: int = 4, cached: bool = True) -> PreparedSplit:
        every = tables("test").items if items["item_id"].isin(tables("test").items["item_id"]).all() else items
        rows = np.flatnonzero(every["item_id"].isin(items["item_id"]))
        batch = frames(every, seed).batch(rows)
        inputs = CachedFrames(batch["frames"].numpy(), batch["mask"].numpy())
        return PreparedSplit(items, captions, inputs, model.backbone.prepare_text(captions["caption"].tolist()))


class Run(ProbedRun):
    """A run that is made up instead of read."""

    def tables(self, split: str) -> SplitTables:
        return tables(split)


def run(head: str, folder: Path, **questions: str) -> Run:
    data = Data(folder)
    made = Run(data, "model", "matrix", QuestionFiles(**questions), ["text_to_item", "item_to_text"])
    model = retriever(head).eval()
    split = data.split("test", model)
    keys = data.spec.evaluation
    scores = similarity_matrix(model, split.text, split.inputs, keys, torch.device("cpu"))
    vars(made)["retriever"], vars(made)["scores"] = model, (scores, split.captions, split.items)
    return made


def values(made: Run, *probes: str) -> pd.DataFrame:
    path = made.data.folder / "values.parquet"
    compute_probes(made, probes, str(path))
    table = pd.read_parquet(path)
    assert list(table) == list(VALUE_COLUMNS) and not table["value"].isna().any()
    return table


def test_every_name_in_the_configuration_has_a_function():
    assert set(PROBES) == set(ProbeName.__args__)


def test_pairs_are_the_scores_of_clips_with_their_twins(tmp_path):
    made = run("seqTransf", tmp_path)
    table = values(made, "pairs")
    scores = made.scores[0]
    own = np.stack([scores[2 * n : 2 * n + 2, 2 * n : 2 * n + 2].T for n in range(CLIPS)])
    for metric, expected in pair_scores(own)._asdict().items():
        found = table[table["metric"] == metric]
        assert found["query_id"].tolist() == [f"test{n}#0" for n in range(CLIPS)]
        assert found["value"].to_numpy() == pytest.approx(100 * expected)


def test_a_head_that_is_blind_to_order_has_no_group_score_and_no_direction(tmp_path):
    table = values(run("meanP", tmp_path), "pairs", "direction")
    mean = table.groupby(["probe", "metric"])["value"].mean()
    assert mean["pairs", "group"] == 0 and mean["pairs", "video"] == 25
    assert (table.loc[table["metric"] == "clip vector", "value"] == 50).all(), "the vectors of both are the same"


def test_a_head_that_scores_pairs_has_no_vectors_to_probe(tmp_path):
    table = values(run("tightTransf", tmp_path), "direction", "geometry")
    assert set(table["metric"]) == {"frames in a row", "frames in a row, by chance"}


def test_direction_is_asked_of_every_clip_with_a_twin(tmp_path):
    table = values(run("seqLSTM", tmp_path), "direction")
    for metric in ("frames in a row", "clip vector"):
        found = table[table["metric"] == metric]
        assert found["query_id"].tolist() == [f"test{n}" for n in range(CLIPS)]
        assert set(found["value"]) <= {0.0, 50.0, 100.0}
        assert abs(table.loc[table["metric"] == metric + BY_CHANCE, "value"].mean() - 50) < 10


def test_geometry_is_that_of_the_runs_vectors_and_the_threshold_comes_from_validation(tmp_path):
    made = run("seqTransf", tmp_path)
    table = values(made, "geometry").set_index("metric")
    row = np.arange(2 * CLIPS)
    expected = measure_geometry(made.vectors.text, made.vectors.items, row)
    assert {name: table.loc[name, "value"] for name in expected} == pytest.approx(expected)
    assert len(table.loc["missed"]) == len(table.loc["false"]) == 2 * CLIPS
    assert 0 <= table.loc["auroc", "value"] <= 100 and table.loc["auroc", "query_id"] == ""


def test_without_a_validation_split_there_is_no_threshold(tmp_path, capsys):
    made = run("seqTransf", tmp_path)
    whole = made.tables
    made.tables = lambda split: whole(split) if split == "test" else SplitTables(*(t[:0] for t in whole(split)[:2]), {})
    assert set(values(made, "geometry")["query_id"]) == {""} and "chosen on validation" in capsys.readouterr().out


def test_answers_are_asked_by_setting_as_far_as_clips_are_there(tmp_path):
    rows = [("all", f"test{n}#0", f"test{m}", 1) for n in range(2) for m in (n, n + 2)]
    rows += [("all", "test0#0", "gone", 1), ("all", "gone#0", "test0", 1)]
    rows += [("near", "test0#0", "gone", 1), ("near", "test0#0", "test1", 0), ("near", "test1#0", "test1", 1)]
    rows += [("near", "test1#0", "test0", 0)]
    path = tmp_path / "answers.csv"
    asked = pd.DataFrame(rows, columns=["setting", "caption_id", "item_id", "right"])
    asked.assign(gallery=asked["setting"].map({"all": "all", "near": "judged"})).to_csv(path, index=False)
    table = values(run("meanP", tmp_path, answers=str(path)), "answers")
    queries = table[table["direction"] == "text_to_item"].groupby("part")["query_id"].unique()
    assert sorted(queries["all"]) == ["test0#0", "test1#0"]
    assert list(queries["near"]) == ["test1#0"], "a caption whose right clips are all missing is no query"
    assert set(table["metric"]) == set(ANSWER_METRICS)


def test_pairs_that_nobody_judged_are_wrong_and_left_out_both_ways_are_shown(tmp_path):
    rows = [("test0#0", "test0", 1), ("test0#0", "test1", 0), ("test1#0", "test1", 2)]
    path = tmp_path / "answers.csv"
    asked = pd.DataFrame(rows, columns=["caption_id", "item_id", "right"])
    asked.assign(setting="all", gallery="all").to_csv(path, index=False)
    table = values(run("meanP", tmp_path, answers=str(path)), "answers")
    found = table[table["direction"] == "text_to_item"].set_index(["part", "metric", "query_id"])["value"]
    alone = "all, judged pairs alone"
    assert set(found[alone].index.get_level_values("query_id")) == {"test0#0"}, "no pair of test1#0 is judged wrong"
    assert found[alone, "AP", "test0#0"] >= found["all", "AP", "test0#0"]
    judged = found.xs("judged@10", level="metric")
    assert judged.index.tolist() == [("all", "test0#0"), ("all", "test1#0")] and judged.max() <= 20


def test_foils_are_scored_with_the_clip_of_their_caption_alone(tmp_path):
    made = run("seqTransf", tmp_path)
    items, captions, _ = tables("test")
    foils = captions.assign(
        foil_id=captions["caption_id"] + "~0", kind=np.where(np.arange(2 * CLIPS) % 4 < 2, "one", "two")
    )
    foils["caption"] = foils["caption"].str.replace("red", "blue")
    path = tmp_path / "foils.csv"
    foils[["foil_id", "caption_id", "caption", "kind"]].to_csv(path, index=False)
    made.questions = QuestionFiles(foils=str(path))
    table = values(made, "foils")
    assert set(zip(table["part"], table["metric"], strict=True)) == {
        (kind, metric) for kind in ("one", "two") for metric in ("accuracy", "pairwise")
    }
    model, data = made.retriever, made.data
    every = data.prepare(items, pd.concat([captions, foils])[["caption_id", "video_id", "caption"]], model)
    scores = similarity_matrix(model, every.text, every.inputs, data.spec.evaluation, torch.device("cpu"))
    own = np.arange(2 * CLIPS)
    expected = pd.Series(100.0 * (scores[own, own] > scores[own + 2 * CLIPS, own]), index=captions["caption_id"])
    found = table[table["metric"] == "accuracy"].set_index("query_id")["value"]
    assert found.to_dict() == expected.to_dict()


def test_a_run_that_reads_pixels_is_probed_block_by_block(tmp_path):
    made = run("meanP", tmp_path)
    data = made.data
    whole = data.split("test", made.retriever)
    rng = np.random.default_rng(0)
    clips = rng.integers(0, 256, (CLIPS, FRAMES, 3, 32, 32), dtype=np.uint8)
    pixels = torch.from_numpy(np.stack([clip[::way] for clip in clips for way in (1, -1)]).copy())

    class Pixels:
        copies = True

        def __len__(self) -> int:
            return len(pixels)

        def batch(self, rows):
            return {"pixels": pixels[rows], "mask": torch.ones(len(rows), FRAMES, dtype=torch.uint8)}

    data.split = lambda name, model: PreparedSplit(whole.items, whole.captions, Pixels(), whole.text)
    vars(made).pop("vectors", None)
    table = values(made, "direction")
    blocks = len(made.retriever.backbone.clip.visual.transformer.resblocks)
    found = table[table["metric"] == "frames in a row"].groupby("part")["query_id"].count()
    assert found.to_dict() == {"": CLIPS, **{f"block{n}": CLIPS for n in range(1, blocks + 1)}}
