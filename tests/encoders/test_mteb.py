"""Into MTEB and back: exported tasks run there as they stand, and its scores are those of Rewind's own evaluation."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch

from box_runs import COLOURS, make_boxes, spec_of, train_boxes
from checkout import ROOT
from messages import expect_message
from rewind import optional_packages
from rewind.cli.main import main
from rewind.data.captions import load_split
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.evaluation.similarity import compute_similarity
from rewind.exports import encoder
from rewind.io.files import write_text
from rewind.job_values import Job, NamedList, Outputs
from rewind.loading.run_data import RunData
from rewind.workflow.checksums import clear_checksums, write_checksums

needs_mteb = pytest.mark.skipif(
    importlib.util.find_spec("mteb") is None, reason="MTEB is not installed (pip install 'rewind-bench[mteb]')"
)
CONFIG = "title: Boxes\nsource: {format: table, table: data/boxes.csv, videos: data}\n"
EPOCHS = 4
PLACES = [("Origin", "origin"), ("Hard", "hard"), ("Binary", "binary")]
WAYS = [("T2V", "text_to_item"), ("V2T", "item_to_text")]
TASKS = [f"RewindBoxes{place}{way}" for place, _ in PLACES for way, _ in WAYS]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The data and their exported tasks, in the present folder."""
    root = tmp_path_factory.mktemp("boxes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.syspath_prepend(root)
        make_boxes(root)
        write_text(root / "config/datasets/boxes.yaml", CONFIG)
        assert main(["export", "mteb", "boxes", "boxes_mteb"]) == 0
        yield root


@pytest.fixture(scope="module")
def module(study) -> ModuleType:
    pytest.importorskip("mteb")
    yield importlib.import_module("boxes_mteb")
    sys.modules.pop("boxes_mteb", None)


@pytest.fixture(scope="module")
def evaluated(study, module) -> dict[str, dict]:
    """MTEB's scores of a run that ties twins (meanP) and of one that does not (seqLSTM); it keeps their predictions."""
    import mteb

    found = {}
    for head in ("meanP", "seqLSTM"):
        train_boxes(study, head, EPOCHS)
        model = encoder.load_encoder(f"results/boxes/runs/{head}/seed0", say=lambda text: None)
        folder = Path("predictions") / head
        result = mteb.evaluate(model, module.tasks, cache=None, prediction_folder=folder, show_progress_bar=False)
        found[head] = {task.task_name: task.scores["test"][0] for task in result.task_results}
    return found


def test_captions_that_are_others_by_now_are_not_exported(study, tmp_path):
    """With the real command: a score on changed captions would be compared with those on the right ones."""
    table = Path("results/data/boxes/captions/boxes_test.csv")
    job = Job("captions", NamedList([], {}), Outputs([str(table)], {}), NamedList([], {}), {}, 1, {}, "a.log")
    content = table.read_bytes()
    command = [sys.executable, "-m", "rewind", "export", "mteb", "boxes", str(tmp_path / "boxes_again")]
    try:
        write_checksums(job)
        assert subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}).returncode == 0
        table.write_bytes(
            content.replace(b"red", b"blue", 1) if b"red" in content else content.replace(b"a ", b"b ", 1)
        )
        assert table.read_bytes() != content
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
        )
        assert done.returncode == 1 and done.stderr.startswith(f"error: {table}: ")
        expect_message(done.stderr, varying=r"\d{4}-\d\d-\d\d \d\d:\d\d")
    finally:
        table.write_bytes(content)
        clear_checksums(job)


def test_a_clip_outside_of_the_results_is_not_exported(study, tmp_path, capsys):
    table = Path("results/data/boxes/items.csv")
    content = table.read_bytes()
    items = pd.read_csv(table)
    (tmp_path / "secret.mp4").write_bytes(b"somebody else's clip")
    try:
        row = items.index[items["item_id"] == "test_red"][0]
        items.loc[row, "path"] = str(tmp_path / "secret.mp4")
        items.to_csv(table, index=False)
        assert main(["export", "mteb", "boxes", str(tmp_path / "stolen"), "--copy"]) == 1
        message = capsys.readouterr().err
        assert "items.csv: " in message and "secret.mp4'" in message
        expect_message(message)
        assert not list(tmp_path.glob("stolen/**/secret*"))
    finally:
        table.write_bytes(content)


def own(head: str) -> tuple[dict, dict]:
    """Rewind's own ranks by task, and its matrix."""
    run, data = f"results/boxes/runs/{head}/seed0", Path("results/data/boxes")
    compute_similarity(RunData(data, "boxes", spec_of(head, EPOCHS), 4), f"{run}/model.safetensors", f"{run}.npz")
    items, captions, _ = load_split(data, "boxes", "test")
    with np.load(f"{run}.npz") as archive:
        found = dict(archive)
    settings, directions = [s for _, s in PLACES], [d for _, d in WAYS]
    ranks = rank_table(found["similarity"], captions, items, settings, directions)
    by_task = {
        f"RewindBoxes{place}{way}": ranks[(ranks["setting"] == setting) & (ranks["direction"] == direction)]
        for place, setting in PLACES
        for way, direction in WAYS
    }
    return by_task, found


def lists(task: str) -> dict:
    return json.loads(Path(f"boxes_mteb/{task}.json").read_text(encoding="utf-8"))


def test_the_lists_are_those_of_the_settings(study):
    origin, hard, binary = (lists(f"RewindBoxes{place}T2V") for place, _ in PLACES)
    assert len(origin["queries"]["id"]) == 2 * len(COLOURS) and len(origin["documents"]["id"]) == len(COLOURS)
    assert len(hard["queries"]["id"]) == 4 * len(COLOURS) and len(hard["documents"]["id"]) == 2 * len(COLOURS)
    assert hard["relevant"]["test_red_rev#1"] == ["test_red_rev"] and hard["candidates"] is None
    assert binary["candidates"]["test_red#0"] == ["test_red", "test_red_rev"] and binary["gallery"] == 2
    assert binary["relevant"]["test_red#0"] == ["test_red"]
    back = lists("RewindBoxesHardV2T")
    assert back["relevant"]["test_red"] == ["test_red#0", "test_red#1"]
    assert back["documents"]["text"][back["documents"]["id"].index("test_red_rev#0")] == "a red box moves left"
    asked = lists("RewindBoxesBinaryV2T")
    assert asked["queries"]["item"][0] == "test_red"
    assert asked["candidates"]["test_red/test_red#1"] == ["test_red#1", "test_red_rev#1"]
    clips = json.loads(Path("boxes_mteb/clips.json").read_text(encoding="utf-8"))
    assert "test_gone" not in clips and clips["test_red_rev"]["reversed"] and Path(clips["test_red"]["path"]).is_file()


def test_copied_clips_are_in_the_folder(study, capsys):
    assert main(["export", "mteb", "config/datasets/boxes.yaml", "with_clips", "--copy"]) == 0
    clips = json.loads(Path("with_clips/clips.json").read_text(encoding="utf-8"))
    there = Path("with_clips") / clips["test_red"]["path"]
    assert there.read_bytes() == Path("results/data/boxes/videos/test_red.mp4").read_bytes()
    assert (
        not Path(clips["test_red"]["path"]).is_absolute() and "6 tasks: RewindBoxesOriginT2V" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("name", "out", "message"),
    [
        ("nothing", "out", "nothing: neither a study in config/studies nor a data set in config/datasets"),
        ("boxes", "a-b", "a-b: Python cannot import a folder of this name"),
        ("boxes", "results", "results: holds something else"),
    ],
)
def test_what_cannot_be_exported_is_refused(study, capsys, name, out, message):
    assert main(["export", "mteb", name, out]) == 1
    assert message in capsys.readouterr().err


def test_the_module_needs_no_rewind(study):
    tree = ast.parse(Path("boxes_mteb/__init__.py").read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    allowed = {"mteb", "datasets", "torch", "decord", *sys.stdlib_module_names}
    assert "mteb.abstasks.retrieval" in names and not {name.split(".")[0] for name in names} - allowed


def test_a_data_set_without_twins_has_the_plain_setting(study, capsys, monkeypatch, tmp_path):
    shutil.copytree("config", tmp_path / "config")
    shutil.copytree("results/data", tmp_path / "results/data")
    monkeypatch.chdir(tmp_path)
    for name in ("items", "captions/boxes_test"):
        path = Path(f"results/data/boxes/{name}.csv")
        write_text(
            path, "".join(line for line in path.read_text(encoding="utf-8").splitlines(True) if "_rev" not in line)
        )
    assert main(["export", "mteb", "boxes", "plain"]) == 0
    expect_message(capsys.readouterr().out)
    assert json.loads(Path("plain/RewindBoxesTestT2V.json").read_text(encoding="utf-8"))["gallery"] == len(COLOURS)


@needs_mteb
def test_ids_are_read_without_opening_a_clip(module, monkeypatch):
    opened = []
    monkeypatch.setattr(module.Clip, "_video", property(lambda clip: opened.append(clip.path)))
    for task in module.tasks:
        task.load_data()
        for table in (task.dataset["default"]["test"]["corpus"], task.dataset["default"]["test"]["queries"]):
            assert list(table["id"]) == list(table.select(range(len(table)))["id"]) and len(table)
    assert not opened


@needs_mteb
def test_a_twin_mirrors_its_original_for_any_choice_of_frames(module):
    from mteb.models.modality_collators import FramesCollator

    data = Path("results/data/boxes/videos")
    plain, twin = module.Clip(str(data / "test_red.mp4"), False), module.Clip(str(data / "test_red_rev.mp4"), True)
    assert plain.metadata.num_frames == len(twin) == 10 and abs(plain.metadata.end_stream_seconds - 2) < 1e-6
    for count in (1, 3, 4, 7, 10, 12):
        frames = [FramesCollator.resample_video(clip, num_frames=count) for clip in (plain, twin)]
        assert frames[0].shape == (count, 3, 32, 48) and frames[0].dtype == torch.uint8
        if count > 1:
            assert torch.equal(frames[0], frames[1].flip(0))
    # Without that, MTEB's choices are no mirrors for an odd number of these 10 frames, or for more than there are.
    unaware = module.Clip(str(data / "test_red_rev.mp4"), False)
    for count, same in ((3, False), (4, True), (10, True), (12, False)):
        frames = [FramesCollator.resample_video(clip, num_frames=count) for clip in (plain, unaware)]
        assert torch.equal(frames[0], frames[1].flip(0)) is same


@needs_mteb
def test_the_random_baseline_runs_to_the_end(module, monkeypatch):
    mteb = optional_packages.mteb()  # torchvision's operators first, whatever was imported before
    random_baseline = optional_packages.mteb("models.model_implementations.random_baseline")

    # It asks for torchaudio because a clip could have sound; these have none.
    monkeypatch.setattr(random_baseline, "requires_audio_dependencies", lambda: None)
    model = mteb.get_model("mteb/baseline-random-encoder")
    result = mteb.evaluate(model, module.tasks, cache=None, show_progress_bar=False)
    scores = {task.task_name: task.scores["test"][0] for task in result.task_results}
    assert list(scores) == TASKS
    assert all(0 <= found["main_score"] == found["expected_recall_at_1"] <= 1 for found in scores.values())
    assert scores["RewindBoxesHardT2V"]["tied_queries"] == 0
    assert scores["RewindBoxesHardT2V"]["expected_recall_at_10"] == 1  # of ten


@needs_mteb
@pytest.mark.parametrize("head", ["meanP", "seqLSTM"])
def test_mteb_gives_a_run_the_scores_of_our_evaluation(evaluated, head):
    for task, ranks in own(head)[0].items():
        ours, theirs = compute_metrics(ranks), evaluated[head][task]
        for cut in (1, 5, 10):
            assert theirs[f"expected_recall_at_{cut}"] == pytest.approx(ours[f"R@{cut}"] / 100, abs=1e-6), (task, cut)
        assert theirs["expected_mean_rank"] == pytest.approx(ours["MnR"], abs=1e-6)
        assert theirs["tied_queries"] == (ranks["ties"] > 0).mean()
        if not (ranks["ties"] > 0).any():
            for cut in (1, 5, 10):  # of several captions of a clip, one is enough for us; MTEB rounds to five digits
                assert theirs[f"hit_rate_at_{cut}"] == pytest.approx(ours[f"R@{cut}"] / 100, abs=5.1e-6), (task, cut)


@needs_mteb
def test_processes_that_read_clips_change_nothing(evaluated, module):
    import mteb

    model = encoder.load_encoder("results/boxes/runs/seqLSTM/seed0", say=lambda text: None)
    task = next(task for task in module.tasks if task.metadata.name == "RewindBoxesHardT2V")
    result = mteb.evaluate(model, task, cache=None, num_proc=2, show_progress_bar=False)
    again, before = result.task_results[0].scores["test"][0], evaluated["seqLSTM"]["RewindBoxesHardT2V"]
    assert {name: again[name] for name in before} == before


@needs_mteb
def test_mteb_breaks_ties_for_the_twin(evaluated):
    blind, seeing = evaluated["meanP"], evaluated["seqLSTM"]
    assert blind["RewindBoxesBinaryT2V"]["tied_queries"] == 1 and seeing["RewindBoxesBinaryT2V"]["tied_queries"] == 0
    # The id of a twin is the larger one, so a model that cannot tell twins apart never finds an original.
    assert blind["RewindBoxesBinaryT2V"]["accuracy"] == 0
    assert blind["RewindBoxesBinaryT2V"]["expected_recall_at_1"] == 0.5


@needs_mteb
@pytest.mark.parametrize("task", ["RewindBoxesHardT2V", "RewindBoxesHardV2T"])
def test_predictions_come_back_as_a_matrix(evaluated, tmp_path, capsys, task):
    assert main(["import", "mteb", f"predictions/seqLSTM/{task}_predictions.json", str(tmp_path / "back.npz")]) == 0
    expect_message(capsys.readouterr().out)
    matrix = own("seqLSTM")[1]
    with np.load(tmp_path / "back.npz") as archive:
        scores, queries, items = archive["similarity"], archive["query_ids"].tolist(), archive["item_ids"].tolist()
    assert scores.dtype == np.float64 and sorted(queries) == sorted(matrix["query_ids"].tolist())
    rows = [queries.index(query) for query in matrix["query_ids"]]
    columns = [items.index(item) for item in matrix["item_ids"]]
    scale = matrix["similarity"].max() / scores.max()  # ours are cosines times the learnt scale
    np.testing.assert_allclose(scale * scores[np.ix_(rows, columns)], matrix["similarity"], rtol=1e-4, atol=1e-4)


@needs_mteb
def test_predictions_of_candidates_come_back_as_a_run(evaluated, tmp_path, capsys):
    path = "predictions/seqLSTM/RewindBoxesBinaryT2V_predictions.json"
    assert main(["import", "mteb", path, str(tmp_path / "back.npz")]) == 1
    said = capsys.readouterr().err
    assert "20 of 100 pairs" in said
    expect_message(said)
    assert main(["import", "mteb", path, str(tmp_path / "back.trec")]) == 0
    lines = [line.split() for line in (tmp_path / "back.trec").read_text(encoding="utf-8").splitlines()]
    found = json.loads(Path(path).read_text(encoding="utf-8"))["default"]["test"]
    assert len(lines) == 20 and all(found[query][item] == float(score) for query, _, item, _, score, _ in lines)
    assert [line[3] for line in lines] == ["1", "2"] * 10 and all(
        float(one[4]) >= float(two[4]) for one, two in zip(lines[::2], lines[1::2], strict=True)
    )


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"default": [1, 2]}', ""),
        ('{"default": {"test": {"q": {"d": 1}}, "dev": {"q": {"d": 1}}}}', "2 subsets"),
        ('{"default": {"test": {"q": {"d": NaN}}}}', "'q' and 'd'"),
        ('{"default": {"test": {"q": {"d": 1e39}}}}', "'q' and 'd'"),
        ('{"default": {"test": {"q": {"d": -1e39}}}}', "'q' and 'd'"),
        (f'{{"default": {{"test": {{"q": {{"d": 1{250 * "0"}}}}}}}}}', "'q' and 'd'"),
        ('{"default": {"test": {"q": {"d": true}}}}', "'q' and 'd'"),
        ('{"default": {"test": {"": {"d": 1}}}}', ""),
        ('{"default": {"test": {"q": {"": 1}}}}', ""),
        ('{"default": {"test": {"q": {"d": 1}, "r": {}}}}', "'r'"),
        ('{"default": {"test": {}}}', ""),
    ],
)
def test_other_files_are_refused(tmp_path, capsys, content, named):
    write_text(tmp_path / "x_predictions.json", content)
    for end in ("npz", "trec"):
        assert main(["import", "mteb", str(tmp_path / "x_predictions.json"), str(tmp_path / f"x.{end}")]) == 1
        said = capsys.readouterr().err
        assert "x_predictions.json: " in said and named in said and not (tmp_path / f"x.{end}").exists()
        expect_message(said)
    assert main(["import", "mteb", str(tmp_path / "x_predictions.json"), str(tmp_path / "x.csv")]) == 1
    expect_message(capsys.readouterr().err)
