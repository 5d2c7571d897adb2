"""Zero-shot accuracy as jobs write it: a column after every epoch, a final row per run, an interval per method."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from scipy import stats

from labelled_images import write_cifar10
from messages import expect_message, refusal
from rewind.analyses.zero_shot import join_zero_shot
from rewind.config import Backbone, Study, Text
from rewind.config.evaluation import ZeroShot
from rewind.evaluation.zero_shot import compute_zero_shot
from rewind.io.files import write_npz
from rewind.loading.run_data import RunData
from rewind.statistics.pairs import ACCURACY_PAIR_COLUMNS, RandomFactors, accuracy_interval, accuracy_pairs
from rewind.training.run import TrainingJob, train_run
from rewind.workflow.config import zero_shot_file
from search_runs import make_data, spec_of

DATA = Path("results/data/walls")


def with_zero_shot(**keys):
    """A run's keys; captions are cut by CLIP's tokenizer, which knows the names of classes."""
    spec = spec_of("meanP", 2)
    training = spec.method.training.model_copy(update={"evaluate_every": 1, **keys.pop("training", {})})
    evaluation = spec.evaluation.model_copy(update={"zero_shot": ZeroShot(folder="cifar", **keys)})
    method = spec.method.model_copy(update={"training": training})
    text, backbone = Text(tokenizer="clip", max_words=16), Backbone(architecture="config/models/words.json")
    return spec.model_copy(update={"evaluation": evaluation, "method": method, "text": text, "backbone": backbone})


def trained(root: Path, spec, name: str) -> pd.DataFrame:
    job = TrainingJob(name, spec, 0, DATA, "walls", 2, root / f"{name}.pt", "code")
    train_run(job, root / f"{name}.safetensors", root / f"{name}.csv", root / f"{name}.json")
    return pd.read_csv(root / f"{name}.csv")


@pytest.fixture(scope="module")
def walls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("walls")
    make_data(root)
    tiny = json.loads((root / "config/models/tiny.json").read_text())
    tiny["text_cfg"]["vocab_size"] = 49408
    (root / "config/models/words.json").write_text(json.dumps(tiny))
    labels = np.random.default_rng(0).integers(0, 10, 60).tolist()
    write_cifar10(root / "cifar", labels, labels)
    return root


@pytest.mark.slow
def test_the_column_is_the_accuracy_that_the_kept_checkpoint_has(walls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(walls)
    spec = with_zero_shot()
    history = trained(walls, spec, "open")
    assert history["zs_cifar10"].between(0, 100).all() and len(history) == 2
    compute_zero_shot(RunData(DATA, "walls", spec, 2), "open.safetensors", "open.npz")
    with np.load("open.npz") as found:
        best = history["best_epoch"].iloc[-1]
        expected = history.set_index("epoch").loc[best, "zs_cifar10"]
        assert len(found["credits"]) == 60 and 100 * found["credits"].mean() == pytest.approx(expected)
    frozen = trained(walls, with_zero_shot(training={"freeze": ["visual"]}, validation_images=20), "frozen")
    assert frozen["zs_cifar10"].notna().all(), "a frozen tower reads the pictures too"
    silent = trained(walls, with_zero_shot(validation_images=0), "silent")
    assert "zs_cifar10" not in silent and silent["loss"].tolist() == history["loss"].tolist(), "it changes no training"


def test_other_images_are_another_run(walls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(walls)

    def mark() -> str:
        return TrainingJob("x", with_zero_shot(), 0, DATA, "walls", 2, walls / "x.pt", "code").state_file().fingerprint

    before = mark()
    assert mark() == before
    content = Path("cifar/test_batch.bin").read_bytes()
    Path("cifar/test_batch.bin").write_bytes(content[:3073])
    assert mark() != before
    Path("cifar/test_batch.bin").write_bytes(content)


def credits(path: Path, values: list[float], sha256: str = "abc") -> str:
    write_npz(
        path, credits=np.array(values), labels=np.zeros(len(values), int), alike=np.array(2), sha256=np.array(sha256)
    )
    return str(path)


def test_a_row_per_run_and_an_interval_per_method(tmp_path: Path) -> None:
    runs = {("a", 0): [1, 0, 1, 1], ("a", 1): [1, 1, 1, 1], ("b", 0): [0, 0.5, 0, 1]}
    files = {run: credits(tmp_path / f"{n}.npz", values) for n, (run, values) in enumerate(runs.items())}
    rows, ends = tmp_path / "zero_shot.csv", tmp_path / "statistics.csv"
    join_zero_shot(files, ZeroShot(folder="x"), 0.95, [], str(rows), str(ends))
    table = pd.read_csv(rows)
    assert table["accuracy"].tolist() == [75, 100, 37.5] and table["seed"].tolist() == [0, 1, 0]
    assert (table["templates"] == "a photo of a {class}").all() and (table["images"] == 4).all()
    found = pd.read_csv(ends).set_index("method")
    assert found.loc["a", "estimate"] == 87.5 and found.loc["a", "std"] == pytest.approx(np.std([75, 100], ddof=1))
    assert found.loc["a", "low"] < 87.5 <= found.loc["a", "high"] <= 100
    expect_message("\n".join(found["procedure"]))
    odd = files | {("b", 0): credits(tmp_path / "odd.npz", [1, 0, 0, 0], "def")}
    with refusal():
        join_zero_shot(odd, ZeroShot(folder="x"), 0.95, [], str(rows), str(ends))


def test_a_difference_is_paired_over_the_images() -> None:
    rng = np.random.default_rng(1)
    one, two = (rng.random((1, 300)) < share for share in (0.6, 0.5))
    (row,) = accuracy_pairs(
        {"a": one, "b": two}, [("a", "b"), ("a", "gone")], 0.95, RandomFactors(frozenset("ab"))
    ).itertuples()
    known = stats.ttest_rel(100.0 * one[0], 100.0 * two[0])
    ends = known.confidence_interval(0.95)
    assert (row.difference, row.p) == pytest.approx((100 * (one.mean() - two.mean()), known.pvalue))
    assert (row.low, row.high) == pytest.approx((ends.low, ends.high)) and row.p_holm == row.p and row.family == 1
    expect_message(row.procedure)
    again = accuracy_pairs({"a": one}, [("a", "gone")], 0.95, RandomFactors())
    assert again.empty and list(again) == list(ACCURACY_PAIR_COLUMNS)


def test_one_checkpoints_interval_is_wilsons(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((1, 400)) < 0.3
    found, percent = accuracy_interval(values, 0.9), 100.0 * values[0]
    count = percent.mean() / 100 * (1 - percent.mean() / 100) / (percent.std(ddof=1) / 2000) ** 2
    t, share = stats.t.ppf(0.95, 399), percent.mean() / 100
    middle, half = share + t**2 / 2 / count, t * (share * (1 - share) / count + (t / 2 / count) ** 2) ** 0.5
    assert found["estimate"] == pytest.approx(percent.mean()) and found["df"] == pytest.approx(399)
    ends = tuple(100 * (middle + sign * half) / (1 + t**2 / count) for sign in (-1, 1))
    assert (found["low"], found["high"]) == pytest.approx(ends)
    expect_message(accuracy_interval(values, 0.9, fixed=True)["procedure"])


def study(**zero_shot) -> Study:
    methods = {"a": {}, "c": {"model": "chance"}, "z": {"model": "clip_zero_shot"}}
    keys = {"name": "s", "dataset": "d", "methods": methods, "evaluation": {"settings": ["test"]}}
    return Study.model_validate(keys | {"evaluation": {"settings": ["test"], "zero_shot": zero_shot or None}})


def test_keys_are_checked(tmp_path: Path) -> None:
    for bad in ([], ["a photo"], ["{class} and {class}"], "open_ai"):
        with pytest.raises(ValidationError) as caught:
            study(folder="x", templates=bad)
        assert {fault["loc"][:3] for fault in caught.value.errors()} == {("evaluation", "zero_shot", "templates")}
    chosen = study(folder=str(tmp_path), templates="openai")
    assert chosen.with_towers() == ["a", "z"] and study().evaluation.zero_shot is None
    assert chosen.run_spec("a").evaluation.zero_shot is not None
    trial = chosen.run_spec("a", chosen.methods["a"].training)
    assert trial.evaluation.zero_shot is None, "trials classify nothing"
    with refusal("config/studies/s.yaml: evaluation.zero_shot.folder: "):
        zero_shot_file(chosen)
    assert zero_shot_file(study()) == []
