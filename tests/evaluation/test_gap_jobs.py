"""From clips to tables of cosine gaps: a tiny ViCLIP trained with both losses on walls in six colours."""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from checkout import ROOT
from messages import expect_message, refusal
from rewind.analyses.cosine_gap import draw, layout
from rewind.config import Study, load_study
from rewind.config.study import RunSpec
from rewind.evaluation.cosine_gap import compute_cosines
from rewind.figures.gaps import cosine_densities
from rewind.io.files import read_csv
from rewind.job_values import Job, NamedList, Outputs
from rewind.models.retriever import Retriever
from rewind.models.viclip import TextSize, ViclipArchitecture, VisionSize
from rewind.report.study import _repeated_frames_note, read_result
from rewind.report.tables import build_tables, summary_text
from rewind.statistics.cosine_gaps import compute_cosine_gap
from rewind.statistics.pairs import RandomFactors
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import write_table
from rewind.tables.results import Results
from rewind.tables.spec import TableInputs
from rewind.training.run import TrainingJob, train_run
from search_runs import make_data
from table_numbers import results

SIZE = ViclipArchitecture(
    embed_dim=16,
    vision=VisionSize(width=16, heads=2, layers=1, patch=8, image=16, frames=2, drop_path=0.0),
    text=TextSize(width=16, heads=2, layers=1, context=8),
)
SEEDS = [0, 1]
METHODS = {
    "infonce": {"model": "dual_encoder", "label": "InfoNCE"},
    "hnac_cross": {"model": "dual_encoder", "options": {"cross_attention": True}, "label": "HNAC + cross-attention"},
    "noise": {"model": "dual_encoder", "noise": True, "label": "InfoNCE, noise"},
    "zero_shot": {"model": "zero_shot", "label": "Before training", "seeds": [0], "options": {"untrained": True}},
    "chance": {"model": "chance", "label": "Chance", "seeds": [0]},
}


def study_of(folder: Path) -> Study:
    training = {
        "epochs": 25,
        "lr": 3e-3,
        "backbone_lr_multiplier": 1.0,
        "batch": {"size": 6, "captions": "one"},
        "evaluate_every": 25,
        "objective": "infonce",
        "objective_options": {"temperature": 0.07},
    }
    methods = {
        name: keys | ({"training": training} if keys["model"] == "dual_encoder" else {})
        for name, keys in METHODS.items()
    }
    methods["hnac_cross"]["training"] = training | {"objective": "hnac"}
    return Study(
        name="walls",
        dataset="walls",
        backbone={"kind": "viclip", "architecture": str(folder / "tiny.json"), "token_mask": 0.5},
        frames={"size": 16, "max_frames": 2, "sampling": "stride", "fit": "stretch", "keep_in_memory": True},
        text={"tokenizer": "words", "max_words": 8},
        methods=methods,
        seeds=SEEDS,
        evaluation={"settings": ["test"], "cosine_gap": True, "batch_size": 5},
        statistics={"pairs": [("hnac_cross", "infonce")]},
    )


def numbers(study: Study, files: SimpleNamespace) -> Results:
    """What the report reads of them."""
    tables = {"cosine_gap_runs": files.runs, "cosine_gap": files.intervals, "cosine_gap_pairs": files.pairs}
    untrained = [name for name, method in study.methods.items() if method.baseline]
    return results(
        labels=study.labels(),
        baselines=untrained,
        analyses={name: read_csv(path) for name, path in tables.items()},
    )


@pytest.fixture(scope="module")
def walls(tmp_path_factory) -> tuple[Path, Study, SimpleNamespace]:
    """Cosines of every run, and what the rule `cosine_gap` makes of them."""
    folder = tmp_path_factory.mktemp("walls")
    (folder / "tiny.json").write_text(SIZE.model_dump_json())
    study, cosines = study_of(folder), {}
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        data = make_data(folder)
        for method, seed in study.runs():
            place = folder / "runs" / method / f"seed{seed}"
            job = job_of(study, method, seed, data, folder)
            train_run(job, place / "model.safetensors", place / "history.csv", place / "run.json")
            cosines[method, seed] = str(folder / f"cosines/{method}/seed{seed}.npz")
            compute_cosines(job.folder(), str(place / "model.safetensors"), cosines[method, seed])
    names = {"runs": "cosine_gap", "intervals": "intervals", "pairs": "pairs", "counts": "counts"}
    files = SimpleNamespace(**{name: str(folder / f"{file}.csv") for name, file in names.items()})
    compute_cosine_gap(
        *(data, "walls", cosines, study.pairs(), study.statistics, RandomFactors.of(study.random_factors())),
        *(files.runs, files.intervals, files.pairs, files.counts),
    )
    return folder, study, files


def job_of(study: Study, method: str, seed: int, data: Path, folder: Path) -> TrainingJob:
    spec = RunSpec.model_validate(study.run_spec(method).model_dump())
    return TrainingJob(f"{method}/seed{seed}", spec, seed, data, "walls", 2, folder / f"{method}{seed}.pt", "code")


@pytest.mark.slow
def test_evaluating_twice_gives_identical_numbers(walls, monkeypatch) -> None:
    folder, study, _ = walls
    monkeypatch.chdir(folder)
    for method in ("infonce", "hnac_cross", "zero_shot"):
        again = folder / "again.npz"
        job = job_of(study, method, 0, folder / "results/data/walls", folder)
        compute_cosines(job.folder(), str(folder / f"runs/{method}/seed0/model.safetensors"), str(again))
        first, second = np.load(folder / f"cosines/{method}/seed0.npz"), np.load(again)
        assert set(first.files) == set(second.files) and "test_independent" in first.files
        assert all((first[name] == second[name]).all() for name in first.files)


def test_every_run_has_its_gap_on_validation_and_test(walls) -> None:
    _, _, files = walls
    rows = read_csv(files.runs).set_index(["method", "seed", "split", "scoring"])
    trained = product(("infonce", "hnac_cross", "noise"), SEEDS, ("valid", "test"), ("independent",))
    wanted = {*trained, *product(["hnac_cross"], SEEDS, ("valid", "test"), ("pair_conditioned",))}
    wanted |= {("zero_shot", 0, split, "independent") for split in ("valid", "test")}
    assert set(rows.index) == wanted, "chance compares no vectors"
    assert (rows["gap"] - (rows["positive"] - rows["negative"])).abs().max() < 1e-9
    test = rows.xs("test", level="split").xs("independent", level="scoring")["gap"].groupby("method").mean()
    assert test["infonce"] > 0.3 and test["hnac_cross"] > test["zero_shot"], "colours are learnt"
    assert abs(test["noise"]) < 0.3
    sizes = rows.xs("test", level="split")[["captions", "items"]].drop_duplicates().to_numpy().tolist()
    assert sizes == [[19, 7]], "the red wall and its twin are one cluster of two items; what is gone takes no part"


def test_statistics_agree_with_the_runs(walls) -> None:
    _, _, files = walls
    runs, intervals, pairs = read_csv(files.runs), read_csv(files.intervals), read_csv(files.pairs)
    means = runs.groupby(["method", "split", "scoring"])["gap"].mean()
    for row in intervals[intervals["quantity"] == "gap"].itertuples():
        assert row.estimate == pytest.approx(means[row.method, row.split, row.scoring])
        assert row.low < row.estimate < row.high and row.clusters == 6
    one = pairs[pairs["split"] == "test"].iloc[0]
    assert one["difference"] == pytest.approx(
        means["hnac_cross", "test", "independent"] - means["infonce", "test", "independent"]
    )
    assert set(pairs["scoring"]) == {"independent"}, "InfoNCE has no pair-conditioned vectors"
    counts = read_csv(files.counts)
    chosen = counts[(counts["method"] == "infonce") & (counts["seed"] == 1) & (counts["split"] == "test")]
    assert chosen["positives"].sum() == 19 and chosen["negatives"].sum() == 19 * 7 - 4 * 2 - 15


def test_tables_and_the_picture(walls, tmp_path) -> None:
    _, study, files = walls
    inputs = TableInputs(numbers(study, files), dataset="Walls", facts=Footnotes(noise=["InfoNCE, noise"]))
    for table in build_tables(inputs):
        write_table(tmp_path, table)
    text = summary_text(inputs)
    assert "Before training" in text and "Sees the answer Cosine gap" in text and "R@5" not in text
    said = (tmp_path / "table_cosine_gap.md").read_text()
    for words in (
        "Test split",
        "Validation split",
        "InfoNCE, noise: every clip was replaced",
        "compare vectors: Chance",
        "2 seeds",
        "R@1",
    ):
        assert words in said, words
    rows = pd.read_csv(tmp_path / "table_cosine_gap.csv").set_index(["method", "split", "scoring", "quantity"])
    gap = rows.loc["infonce", "test", "independent", "gap"]
    assert f"{gap['estimate']:.3f}" in said and f"[{gap['low']:.3f}, {gap['high']:.3f}]" in said.replace("\\", "")
    pairs = (tmp_path / "table_cosine_gap_pairs.md").read_text()
    assert "HNAC + cross-attention − InfoNCE" in pairs and "Holm" in pairs
    assert {path.suffix for path in tmp_path.glob("table_cosine_gap.*")} == {".md", ".tex", ".html", ".csv"}
    picture = Outputs([str(tmp_path / "cosine_gap.png")], {})
    given = NamedList([], {"counts": files.counts}), picture, NamedList([], {"study": study.fingerprint()})
    draw(Job("cosine_gap_figure", *given, {}, 1, {}, "log"))
    sizes = [(tmp_path / f"cosine_gap.{kind}").stat().st_size for kind in ("png", "pdf")]
    assert min(sizes) > 5_000


def test_densities_hold_the_counts_and_their_means_are_a_gap_apart(walls) -> None:
    _, _, files = walls
    counts, runs = read_csv(files.counts), read_csv(files.runs)
    figure = cosine_densities(counts, {"infonce": "InfoNCE", "hnac_cross": "HNAC"})
    assert len(figure.axes) == 4
    panel, chosen = figure.axes[0], counts.query("method == 'infonce' and split == 'test'")
    for patch, column, way in zip(panel.patches[::2], ("positives", "negatives"), (1, -1), strict=True):
        values, edges, _ = patch.get_data()
        summed = chosen.groupby("low")[column].sum()
        assert np.abs(values).max() == 1 and (way * values >= 0).all(), "pairs upwards, others downwards"
        assert np.abs(values).sum() == pytest.approx(summed.sum() / summed.max())
        assert edges[0] == pytest.approx(chosen["low"].min()) and edges[-1] == pytest.approx(chosen["high"].max())
    means = [line.get_xdata()[0] for line in panel.lines[:2]]
    gaps = runs.query("method == 'infonce' and split == 'test'")["gap"]
    assert means[0] - means[1] == pytest.approx(gaps.mean(), abs=0.03), "bins and unequal clusters aside"
    assert not figure.axes[1].axison, "InfoNCE has no pair-conditioned vectors"
    assert len(cosine_densities(counts.iloc[:0], {"infonce": "InfoNCE"}).axes) == 1


def test_numbers_of_a_method_that_the_study_lacks_are_refused(walls) -> None:
    _, study, files = walls
    made = numbers(study, files)
    with refusal("cosine_gap.csv"):
        read_result(files.runs, {"infonce"})
    alone = {name: table[table["method"] == "infonce"] for name, table in made.analyses.items() if "method" in table}
    few = TableInputs(dataclasses.replace(made, labels={"infonce": "InfoNCE"}, analyses=alone))
    assert len(layout(few).columns) == 7, "no column for what nobody has"


def test_noise_and_cached_features_do_not_go_together(walls, monkeypatch) -> None:

    folder, study, _ = walls
    monkeypatch.chdir(folder)
    np.savez(folder / "features.npz", item_ids=np.array(["train_red0"]))
    job = job_of(study, "noise", 0, folder / "results/data/walls", folder)
    job.cache = folder / "features.npz"
    with refusal("noise"):
        job.folder().split("train", Retriever())


def test_short_clips_are_counted(walls) -> None:
    _, study, _ = walls
    report = pd.DataFrame({"status": ["ok", "ok", "ok", "missing"], "frames": [1, 2, 9, 0]})
    assert "1 of 3" in _repeated_frames_note(study, report)
    expect_message(_repeated_frames_note(study, report))
    expect_message(_repeated_frames_note(study, report[1:]))


@pytest.mark.parametrize("name", ["cosine_gap", "cosine_gap_demo"])
def test_the_studies_in_config_are_valid(name: str, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    study = load_study(name)
    assert study.evaluation.cosine_gap and {"hnac", "infonce", "hnac_cross", "infonce_cross", "zero_shot"} <= set(
        study.methods
    )
    assert study.run_spec("hnac").method.training.objective_options["temperature"] == 0.07
    if name == "cosine_gap":
        keys = study.methods["hnac"].training
        assert (keys.epochs, keys.batch.size, keys.lr, keys.weight_decay, study.frames.max_frames) == (
            20,
            4,
            2e-5,
            0.02,
            8,
        )
    else:
        assert study.run_spec("hnac_noise").frames.noise and not study.run_spec("hnac").frames.noise
