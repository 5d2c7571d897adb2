"""A seed is the whole pipeline: every run starts from the pre-training of its own seed, unless one is shared."""

from __future__ import annotations

import dataclasses
import re

import pytest

from checkout import ROOT
from figure_texts import assert_legible
from messages import refusal
from mini_study import Workflow
from rehearsal_rates import rates
from rewind.cli.rehearse.cost import MeasuredFolder
from rewind.cli.rehearse.measured import FinishedJob
from rewind.config import Study, load_study
from rewind.config.study import SHARED_PRETRAINING_NOTE
from rewind.figures import curves, style
from rewind.report.page.document import figure_captions
from rewind.report.tables import build_tables, summary_text
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import write_table
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, results

PLAIN = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 3, size: 32}
text: {tokenizer: words, max_words: 24}
pretraining: {shared: true, seed: 4, training: {epochs: 1, lr: 1.0e-3, batch: {size: 8}}}
methods:
  plain: {model: zero_shot, label: Plain}
"""
HEADS = {"dataset": "shapes", "name": "s", "methods": {"a": {}, "b": {"seeds": [7, 1]}, "c": {"model": "chance"}}}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    (workflow.folder / "config/studies/plain.yaml").write_text(PLAIN)
    return workflow


def planned(workflow: Workflow, over: str = "", study: str = "mini") -> dict[str, set[str]]:
    """Output → inputs of every job that a dry run lists, one output a job."""
    text = workflow.run("-n", "--config", f"studies=[{study}]", f"overrides={{studies.{study}: {{{over}}}}}")
    jobs = re.findall(r"^ +input: (.*)\n +output: (.*)$", text, re.M)
    return {made.split(", ")[0]: set(given.split(", ")) for given, made in jobs}


def models(plan: dict[str, set[str]]) -> list[str]:
    return sorted(path.split("/", 2)[2] for path in plan if "/pretrained" in path)


@pytest.mark.workflow
def test_every_run_starts_from_the_pre_training_of_its_seed(checkout):
    plan = planned(checkout)
    assert models(plan) == [f"pretrained/seed{seed}/model.safetensors" for seed in (0, 1)]
    for method in ("meanP", "seqLSTM"):
        for seed in (0, 1):
            given = plan[f"results/mini/runs/{method}/seed{seed}/model.safetensors"]
            own = {f"results/mini/features/seed{seed}/frames{n}.npz" for n in (3, 4)}
            own.add(f"results/mini/pretrained/seed{seed}/model.safetensors")
            assert {path for path in given if "features" in path or "pretrained" in path} == own
            scored = plan[f"results/mini/similarity/{method}/seed{seed}.npz"]
            assert {path for path in scored if "features" in path} == {path for path in own if "features" in path}
    assert "results/mini/features/seed0/frames3.npz" in plan["results/mini/sweep/frames3.safetensors"]
    assert not any("pretrained" in p for p in plan["results/mini/runs/chance/seed0/model.safetensors"])
    assert {p for p in plan["results/mini/tables"] if "pretrained" in p} == {
        f"results/mini/pretrained/seed{seed}/run.json" for seed in (0, 1)
    }


@pytest.mark.workflow
def test_a_method_with_seeds_of_its_own_brings_their_pre_trainings(checkout):
    plan = planned(checkout, "methods.seqLSTM.seeds: [5, 1], methods.plain: {model: zero_shot}")
    assert models(plan) == [f"pretrained/seed{seed}/model.safetensors" for seed in (0, 1, 5)]
    five = plan["results/mini/runs/seqLSTM/seed5/model.safetensors"]
    assert {"results/mini/pretrained/seed5/model.safetensors", "results/mini/features/seed5/frames4.npz"} <= five
    assert "results/mini/pretrained/seed0/model.safetensors" in plan["results/mini/sweep/frames4.safetensors"]
    plain = [path for path in plan if "/runs/plain/" in path]
    assert len(plain) == 2, "what learns nothing itself still has a row for each seed of the towers"
    assert "results/mini/pretrained/seed1/model.safetensors" in plan["results/mini/runs/plain/seed1/model.safetensors"]


@pytest.mark.workflow
def test_a_shared_pre_training_is_one(checkout):
    plan = planned(checkout, "pretraining.shared: true, pretraining.seed: 3")
    assert models(plan) == ["pretrained/model.safetensors"]
    assert {p for p in plan if "/features/" in p} == {f"results/mini/features/frames{n}.npz" for n in (3, 4)}
    for seed in (0, 1):
        given = plan[f"results/mini/runs/meanP/seed{seed}/model.safetensors"]
        assert {"results/mini/pretrained/model.safetensors", "results/mini/features/frames4.npz"} <= given


@pytest.mark.workflow
def test_what_cannot_be_meant_is_refused_with_its_remedy(checkout):
    text = checkout.run("-n", "--config", "overrides={studies.mini.pretraining.seed: 3}", ok=False)
    assert "pretraining.seed: 3, but each run starts from a pre-training with its own seed" in text
    assert "pretraining.shared: true" in text and "Traceback" not in text
    text = checkout.run("-n", "results/mini/pretrained/model.safetensors", ok=False)
    assert "mini has towers of each seed: request the file with seed<k>/ in its path" in text


@pytest.mark.workflow
def test_a_shared_pre_training_stands_in_every_caption_of_a_run(checkout):
    small = "overrides={datasets.shapes.source.clips: {train: 8, valid: 2, test: 3}}"
    made = [f"results/plain/{name}" for name in ("tables", "figures/intervals.png")]
    output = checkout.run(*made, "--config", "studies=[plain]", small)
    folder = checkout.folder / "results/plain"
    assert f"Table A. Shapes, Origin: text→video retrieval, {SHARED_PRETRAINING_NOTE}" in output
    for stem in ("table_A_origin", "table_B_hard", "table_binary", "table_gap", "table_seeds_hard"):
        text = {kind: (folder / f"tables/{stem}.{kind}").read_text() for kind in ("md", "tex", "html")}
        assert text["md"].splitlines()[0].endswith(f"{SHARED_PRETRAINING_NOTE}**"), stem
        assert re.search(rf"^\\caption{{.*{SHARED_PRETRAINING_NOTE}\.}}$", text["tex"], re.M), stem
        assert re.search(rf"<caption>.*{SHARED_PRETRAINING_NOTE}</caption>", text["html"]), stem
    notes = (folder / "tables/notes.md").read_text()
    assert "once for all runs (seed 4: best epoch 1): everything is given one pre-training" in notes
    assert "Only the backbone is trained by gradient descent: there are no training seeds" in notes


def test_seeds_and_paths():
    each = Study.model_validate(HEADS | {"seeds": [2, 0], "pretraining": {}})
    assert each.pretraining_seeds() == [2, 0, 1, 7], "the study's own first; chance needs none"
    assert (
        each.pretraining_suffix("b", 7) == "/seed7"
        and each.pretraining_suffix() == each.pretraining_suffix("c", 5) == "/seed2"
    )
    once = Study.model_validate(HEADS | {"pretraining": {"shared": True}})
    assert once.pretraining_seeds() == [0] and once.pretraining_suffix("b", 7) == ""
    assert (
        not Study.model_validate(HEADS).pretraining_seeds()
        and Study.model_validate(HEADS).pretraining_suffix("a", 1) == ""
    )


@pytest.mark.parametrize(("keys", "count"), [("{}", 3), ("{shared: true}", 1)])
def test_rows_of_towers_that_nothing_trains_further(tmp_path, keys, count):
    (tmp_path / "s.yaml").write_text(f"dataset: d\nmethods: {{a: {{model: zero_shot}}}}\npretraining: {keys}\n")
    assert len(load_study("s", tmp_path).runs()) == count


def test_without_pre_training_nothing_names_a_seed(tmp_path):
    (tmp_path / "s.yaml").write_text("dataset: d\nmethods: {a: {model: zero_shot}}\n")
    found = load_study("s", tmp_path)
    assert found.runs() == [("a", 0)] and found.fingerprint()["pretraining"] is None
    with refusal("config/studies/demo.yaml: pretraining.seed"):
        load_study("demo", ROOT / "config/studies", {"pretraining.seed": 1})


def test_every_table_and_its_text_say_it(tmp_path):
    tables = list(
        build_tables(TableInputs(results(given=SHARED_PRETRAINING_NOTE), ["hard"], Footnotes.from_json(FACTS)))
    )
    assert len(tables) >= 3
    for table in tables:
        for path in write_table(tmp_path, table)[:-1]:
            assert path.read_text().count(SHARED_PRETRAINING_NOTE) >= 1, path
    assert (
        summary_text(TableInputs(results(given=SHARED_PRETRAINING_NOTE), ["hard"]))
        .splitlines()[0]
        .endswith(SHARED_PRETRAINING_NOTE)
    )
    assert SHARED_PRETRAINING_NOTE not in summary_text(TableInputs(results(), ["hard"]))


def test_pictures_say_it_at_their_top_and_under_them():
    history = curves.pd.DataFrame(
        {"epoch": [1, 2] * 2, "seed": [0, 0, 1, 1], "method": "a", "valid_sum": [1.0, 2, 3, 4], "loss": [4.0, 3, 2, 1]}
    )
    drawn = curves.training_curves(history, {"a": "A"})
    said = style.with_condition(drawn, SHARED_PRETRAINING_NOTE).get_suptitle()
    assert said.startswith("line: mean over seeds") and said.endswith(SHARED_PRETRAINING_NOTE)
    assert_legible(drawn)
    alone = style.with_condition(style.message_figure("Nothing to draw."), SHARED_PRETRAINING_NOTE)
    assert (
        alone.get_suptitle() == SHARED_PRETRAINING_NOTE
        and not style.with_condition(style.message_figure("x"), "").get_suptitle()
    )
    once = Study.model_validate(HEADS | {"pretraining": {"shared": True}})
    assert all(text.endswith("Given one pre-training.") for text in figure_captions(once, {"a": "A"}).values())


def test_a_rehearsals_two_pre_trainings_price_the_whole_studys(tmp_path):
    keys = HEADS | {"methods": {"a": {"training": {"freeze": ["visual"]}}}, "pretraining": {}, "seeds": [0, 1, 2, 3]}
    each = Study.model_validate(keys)
    jobs = [FinishedJob("pretrain", f"seed{seed}", 9.0, 5.0, None) for seed in (0, 1)]
    jobs += [FinishedJob("features", f"seed{seed}/frames8", 9.0, 5.0, None) for seed in (0, 1)]
    same = {"frames": 10.0}
    measured = MeasuredFolder(tmp_path, None, jobs, same, same)
    rows = {row.rule: row for row in rates(each).whole_study([measured], 40.0, 2).rows}
    assert rows["pretrain"].whole_jobs == rows["features"].whole_jobs == 4
    assert rows["features"].whole_seconds == pytest.approx(4 * 9.0)
    once = each.model_copy(update={"pretraining": each.pretraining.model_copy(update={"shared": True})})
    one = dataclasses.replace(measured, jobs=[job for job in jobs if "seed0" in job.name])
    rows = {row.rule: row for row in rates(once).whole_study([one], 40.0, 2).rows}
    assert rows["pretrain"].whole_jobs == rows["features"].whole_jobs == 1
