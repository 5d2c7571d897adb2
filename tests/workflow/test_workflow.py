"""The workflow as its user runs it: a miniature study from clips to tables, and what each change makes stale."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from html import unescape
from pathlib import Path

import pandas as pd
import pytest

from broken_results import broken, records
from checkout import ROOT
from mini_study import DATA, Workflow
from rewind.video.sources import pack_sources
from rewind.workflow.checksums import structural_fault
from rule_files import rules_text
from tabs import opened
from undeclared import jobs, undeclared, unread, without_job

REPORT = {"tables", "figures", "order_figure", "examples", "twin_figure", "export_vectors", "page"}
RESULTS = {"similarity", "ranks", "metrics", "statistics", "order_controls", "order_table", "probes", "probe_table"}
RESULTS |= {"blind_run", "blind_table", *REPORT}
TRAINING = {"sanity", "pretrain", "features", "sweep_trial", "sweep", "train"}


def test_names_of_rules_that_tests_compare_with_are_rules():
    """A name that is none would be missing from every answer, and no comparison would say so."""
    rules = set(re.findall(r"^(?:rule|checkpoint) (\w+):|^use rule \w+ as (\w+) with:", rules_text(), re.M))
    assert (DATA | RESULTS | TRAINING).issubset(one or other for one, other in rules)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    workflow.output = workflow.run()
    return workflow


@pytest.fixture
def workflow(finished, tmp_path) -> Workflow:
    """A finished checkout that a test may edit."""
    twin = finished.copy(tmp_path / "copy")
    assert twin.stale() == {}, "a copied checkout is up to date"
    return twin


@pytest.mark.workflow
def test_from_clips_to_tables(finished):
    results = finished.folder / "results/mini"
    metrics = pd.read_csv(results / "metrics.csv")
    assert set(metrics["setting"]) == {"origin", "hard", "binary"} and len(metrics) == 5 * 3 * 2 + 2 * 2
    hard = metrics[(metrics["setting"] == "hard") & (metrics["direction"] == "text_to_item")]
    assert (hard["queries"] == 12).all() and (hard["gallery"] == 12).all()
    for name in ("table_A_origin", "table_B_hard", "table_binary"):
        assert all((results / "tables" / f"{name}.{kind}").stat().st_size > 200 for kind in ("md", "tex", "csv"))
    assert (results / "report.html").stat().st_size > 20_000
    for name in ("intervals", "training_curves", "rank_curve", "examples", "twin_examples"):
        assert all((results / "figures" / f"{name}.{kind}").stat().st_size > 2000 for kind in ("png", "pdf"))
    assert "Moving" not in finished.output and "meanP" in finished.output, "the tables are shown at the end"
    record = json.loads((results / "runs/seqLSTM/seed1/run.json").read_text())
    assert record["seed"] == 1 and record["code"] and record["packages"]["torch"] and record["hardware"]["devices"]
    assert record["command"] == "snakemake --cores 2", "what was typed, not what Snakemake started"
    assert len(record["data_digest"]) == 64 and record["packages"]["torchvision"]
    content = f"Data: content hash {record['data_digest'][:12]}."
    notes = (results / "tables/notes.md").read_text()
    assert content in notes
    page = (results / "report.html").read_text()
    assert "2 compared methods" in page and "image/svg+xml" in page, "the answer comes first, with its picture"
    assert record["data_digest"] in page and "Commands: snakemake --cores 2 (7 runs)." in page
    assert not (results / ".state").exists() or not list((results / ".state").rglob("*.pt")), "finished runs clean up"
    towers = {seed: f"results/mini/pretrained/seed{seed}/model.safetensors" for seed in (0, 1)}
    assert (
        towers[1] in record["data"]
        and f"results/mini/features/seed1/frames{record['max_frames']}.npz" in record["data"]
    )
    begun = {
        seed: json.loads((finished.folder / path).with_name("run.json").read_text()) for seed, path in towers.items()
    }
    assert {seed: found["seed"] for seed, found in begun.items()} == {0: 0, 1: 1}
    assert len({(finished.folder / path).read_bytes() for path in towers.values()}) == 2, "each seed has its own towers"
    said = "once for each seed (" + "; ".join(f"seed {s}: best epoch {r['best']['epoch']}" for s, r in begun.items())
    assert said in notes and "given one pre-training" not in notes
    logs = sorted(path.name for path in (results / "logs/train").iterdir())
    assert logs == ["meanP.seed0.log", "meanP.seed1.log", "seqLSTM.seed0.log", "seqLSTM.seed1.log"]
    alone = [path.name for path in (results / "logs/untrained_run").iterdir()]
    assert alone == ["chance.seed0.log"], "what learns nothing is one job"
    assert "steps" in (results / "logs/train/meanP.seed0.log").read_text()


@pytest.mark.workflow
def test_every_stage_of_it_was_watched(finished):
    """`Workflow.run` fails where a job looks at what its rule does not declare; here, that it sees them all."""
    done = jobs(finished.opened)
    assert undeclared(done) == {} and len(done) >= 40
    on_request = {"trec", "submission", "efficiency"}
    others = {
        "frames",
        "traces",
        "artefacts_table",
        "answers",
        "foils",
        "encode_foil_texts",
        "encode_vectors",
        "encode_dataset",
        "vectors",
        "vector_report",
        "examples_of_method",
        "batches",
    }
    others |= {"cosines", "cosine_gap", "cosine_gap_figure", "zero_shot", "zero_shot_table", "step_time", "control"}
    others |= {"rerank", "transductive", "trial", "paraphrases"}
    assert set(without_job(done)) == on_request | others, "`make rehearse-studies` watches these"
    # Libraries that open files without Python are seen too.
    missed = unread(done)
    readers = {"statistics": ".parquet", "group_results": ".parquet", "similarity": ".safetensors", "features": ".tar"}
    for rule, suffix in readers.items():
        assert not any(path.endswith(suffix) for path in missed.get(rule, ())), rule


@pytest.mark.workflow
def test_a_file_that_a_rule_does_not_declare_is_named(workflow):
    workflow.edit("workflow/rules/report.smk", "        described=job(StudyPlan.described),\n", "")
    with pytest.raises(AssertionError, match=r"tables.*read results/data/shapes/captions/report\.json"):
        workflow.run("results/mini/tables")


@pytest.mark.workflow
def test_another_architecture_in_the_same_file_makes_its_models_stale(workflow):
    model = workflow.folder / "config/models/tiny.json"
    keys = json.loads(model.read_text())
    model.write_text(json.dumps(keys))
    assert workflow.stale()["train"] == 4, "its bytes count"
    keys["vision_cfg"]["layers"] -= 1
    model.write_text(json.dumps(keys))
    stale = workflow.stale()
    # Features of the sweep's trials; runs ask for theirs once the sweep has chosen anew.
    wanted = {"sanity": 1, "pretrain": 2, "features": 2, "sweep_trial": 2, "train": 4, "similarity": 4}
    wanted["untrained_run"] = 1  # it too waits for the over-fitting check
    assert wanted.items() <= stale.items()
    assert not DATA & set(stale)


@pytest.mark.workflow
@pytest.mark.parametrize("width", [1440, 400])
def test_the_report_of_a_real_study_fits_the_window(finished, browser, width):
    """It has what made-up pages lack: sums, paths and packages of real runs."""
    with opened(browser, (finished.folder / "results/mini/report.html").as_uri(), width) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.workflow
def test_a_finished_study_is_published(workflow):
    readme = workflow.folder / "README.md"
    blocks = ["<!-- published: mini table hard --><!-- end -->", "<!-- published: mini wall -->?<!-- end -->"]
    blocks += ["<!-- published: mini answer --><!-- end -->"]
    readme.write_text("\n\n".join(blocks))
    (workflow.folder / "docs").mkdir()
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/publish"), "mini", "--name", "here"],
        **{"cwd": workflow.folder, "env": workflow.env, "capture_output": True, "text": True},
    )
    assert done.returncode == 0, done.stderr
    shown = [line.removeprefix("    ") for line in readme.read_text().splitlines() if line.startswith("    ")]
    assert shown[0].startswith("Table B. Shapes, Hard") and len(shown) > 6
    summary = (workflow.folder / "results/mini/tables/summary.txt").read_text()
    assert "\n".join(shown) in summary, "the documents print what the terminal does"
    answer = re.search(r"mini answer -->(.+?)<!--", readme.read_text())
    assert answer and answer[1] in " ".join(summary.split()) and summary.startswith("Which way time runs (Binary, ")
    page = unescape((workflow.folder / "results/mini/report.html").read_text())
    findings = " ".join(summary.partition("\nTable ")[0].split())
    said = re.sub("<[^>]+>", " ", re.sub("<summary>.*?</summary>", "", page))  # what unfolds a sentence is no sentence
    assert findings in " ".join(said.split()), "all of it, word for word, on the page too"
    stored = json.loads((workflow.folder / "docs/published/mini/here/record.json").read_text())
    assert stored["wall_seconds"] > 5 and re.search(r"mini wall -->\d+:\d\d<!--", readme.read_text())
    run = json.loads((workflow.folder / "results/mini/runs/seqLSTM/seed1/run.json").read_text())
    assert stored["machine"]["instructions"] == [run["hardware"]["instructions"]] and stored["date"] == run["date"]


@pytest.mark.workflow
def test_a_sweep_that_chooses_what_was_there_trains_nothing(workflow):
    """Values are taken out of the sweep and put back; only where the choice is another one is the run stale."""
    results = workflow.folder / "results/mini"
    target = "results/mini/similarity/seqLSTM/seed0.npz"

    def sweep(*values: int) -> set[str]:
        study = workflow.folder / "config/studies/mini.yaml"
        study.write_text(
            re.sub(r"sweep: {max_frames: [^]]*]", f"sweep: {{max_frames: {list(values)}", study.read_text())
        )
        said = workflow.run(target)
        assert workflow.stale(target) == {}
        return set(re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", said, re.M))

    def trained() -> tuple[int, bytes]:
        record = json.loads((results / "runs/seqLSTM/seed0/run.json").read_text())
        return record["max_frames"], (results / "runs/seqLSTM/seed0/model.safetensors").read_bytes()

    chosen, model = trained()
    other = 7 - chosen
    assert json.loads((results / "sweep/best.json").read_text())["tried"] == [3, 4] and chosen in (3, 4)
    assert sweep(chosen) == {"sweep"}
    assert sweep(chosen, other) == {"sweep"}, "a value was added, and the same one is chosen"
    assert trained() == (chosen, model)
    assert sweep(other) == {"sweep", "train", "similarity"}, "in one go"
    assert trained()[0] == other and trained()[1] != model


@pytest.mark.workflow
def test_snakemakes_own_report_is_written(finished, tmp_path):
    finished.run("--report", str(tmp_path / "out.html"))
    text = (tmp_path / "out.html").read_text()
    for part in ("table_A_origin.md", "report.html", "intervals.png", "Tables", "Figures", "Results", "Data"):
        assert part in text, part
    assert len(text) > 1_000_000, "it holds the pictures themselves"


@pytest.mark.workflow
def test_chance_is_exact(finished):
    metrics = pd.read_csv(finished.folder / "results/mini/metrics.csv").set_index(["method", "setting", "direction"])
    row = metrics.loc[("chance", "hard", "text_to_item")]
    assert row["R@1"].item() == pytest.approx(100 / 12) and row["MnR"].item() == 6.5
    assert metrics.loc[("chance", "binary", "text_to_item"), "R@1"].item() == 50


@pytest.mark.workflow
def test_mean_pooling_ties_every_clip_with_its_twin(finished):
    ranks = pd.read_parquet(finished.folder / "results/mini/ranks/meanP/seed0.parquet")
    binary = ranks[(ranks["setting"] == "binary") & (ranks["direction"] == "text_to_item")]
    assert (binary["ties"] == 1).all(), "twins are exact mirrors, so their means are equal"


@pytest.mark.workflow
def test_nothing_to_do_and_touching_changes_nothing(workflow):
    later = time.time() + 60
    for part in ("src", "workflow", "config", "Snakefile", "profiles"):
        path = workflow.folder / part
        for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
            os.utime(file, (later, later))
    assert workflow.stale() == {}


@pytest.mark.workflow
def test_comments_make_nothing_stale_and_editing_tables_renders_tables_again(workflow):
    for place in ("src/rewind", "workflow/scripts"):
        for path in (workflow.folder / place).rglob("*.py"):
            workflow.edit(str(path.relative_to(workflow.folder)))
    assert workflow.stale() == {}
    workflow.edit("src/rewind/analyses/gap.py", '"table_gap"', '"table_of_gaps"')
    assert workflow.stale() == {"tables": 1, "page": 1}


@pytest.mark.workflow
def test_editing_how_a_job_reads_its_parameters_reruns_it_and_editing_what_runs_jobs_nothing(workflow):
    workflow.edit(
        "src/rewind/workflow/job.py", "checksums.clear_checksums(job)\n", "checksums.clear_checksums(job), 1\n"
    )
    assert workflow.stale() == {}
    workflow.edit("workflow/scripts/examples.py", "params.setting, keys,", "str(params.setting), keys,")
    assert workflow.stale() == {"examples": 1, "page": 1}


@pytest.mark.workflow
def test_editing_a_head_retrains_it_and_leaves_the_rest_alone(workflow):
    workflow.edit("src/rewind/models/heads/clip4clip.py", "hidden + frames, 2 * frames", "hidden, frames")
    stale = workflow.stale()
    assert {"sweep_trial", "sweep", "train"} <= set(stale), "the sweep tries that head"
    assert not {*DATA, "sanity", "pretrain", "features"} & set(stale)


@pytest.mark.workflow
def test_one_methods_learning_rate_retrains_that_method(workflow):
    stale = workflow.stale("--config", "overrides={studies.mini.methods.meanP.training.lr: 0.002}")
    assert stale == {
        "train": 2,
        "similarity": 2,
        "order_controls": 2,
        "probes": 2,
        "probe_table": 1,
        "blind_table": 1,
        "order_table": 1,
        "ranks": 2,
        "metrics": 1,
        "statistics": 1,
        "group_results": 1,
        "group_figure": 3,
        "order_figure": 1,
        "tables": 1,
        "figures": 1,
        "twin_figure": 1,
        "page": 1,
    }


@pytest.mark.workflow
def test_how_frames_are_read_makes_nothing_stale(workflow):
    over = "overrides={studies.mini.frames.workers: 1, studies.mini.frames.keep_in_memory: false}"
    assert workflow.stale("--config", over) == {}


@pytest.mark.workflow
def test_editing_frames_per_second_remakes_videos(workflow):
    stale = workflow.stale("--config", "overrides={datasets.shapes.video.fps: 5}")
    assert "sources" not in stale and {"video_shard", "captions", "train"} <= set(stale)


@pytest.mark.workflow
def test_a_fault_in_the_configuration_is_one_clear_message(workflow):
    text = workflow.run("-n", "--config", "overrides={studies.mini.training.lrr: 1}", ok=False)
    assert "config/studies/mini.yaml:" in text and "training.lrr: unknown key; did you mean 'lr'?" in text
    assert "Traceback" not in text


@pytest.mark.workflow
def test_missing_clips_stop_the_stage_above_max_missing(workflow):
    folder = workflow.folder / "results/data/shapes"
    (folder / "source/videos/test0003.mp4").unlink()
    (folder / "source/videos/test0004.mp4").write_bytes(b"no video")
    pack_sources(folder / "source")  # or they would come back from there
    (folder / ".seals/source.tar.json").unlink()  # on purpose
    shutil.rmtree(folder / "videos/shards")
    for path in (folder / "videos/inventory.csv", folder / "videos/report.csv", folder / "items.csv"):
        path.unlink()  # what is made from them too: Snakemake makes nothing anew that no target lacks
    text = workflow.run("results/data/shapes/items.csv", ok=False)
    assert "test0003" in text and "test0004" in text and "2 of 22" in text and "max_missing" in text
    workflow.run("results/data/shapes/items.csv", "--config", "overrides={datasets.shapes.max_missing: 0.2}")
    items = pd.read_csv(folder / "items.csv").set_index("item_id")
    assert items.loc["test0003", "status"] == "missing" and items.loc["test0004_rev", "status"] == "failed"


@pytest.mark.workflow
def test_a_lost_shard_is_named_and_comes_back_alone(workflow):
    name = "results/data/shapes/videos/shards/0-of-1.tar"
    shard = workflow.folder / name
    whole = shard.read_bytes()
    shard.unlink()
    assert f"note: {name}: missing" in workflow.run("-n")
    refused = workflow.run("results/mini/figures/examples.png", "--forcerun", "examples", ok=False)
    assert f"`snakemake --cores all --force {name}`" in refused and "Traceback" not in refused
    workflow.run("--force", name)
    assert shard.read_bytes() == whole and workflow.stale() == {}


@pytest.mark.workflow
def test_another_run_s_model_is_refused_by_name_and_comes_back(workflow):
    names = [f"results/mini/runs/seqLSTM/seed{seed}/model.safetensors" for seed in (0, 1)]
    first, second = (workflow.folder / name for name in names)
    whole = first.read_bytes()
    shutil.copy(second, first)
    refused = workflow.run("results/mini/similarity/seqLSTM/seed0.npz", ok=False)
    assert f"{names[0]}: not the file that the job train (study=mini, method=seqLSTM, seed=0) wrote on" in refused
    assert f"it is a copy of {names[1]}" in refused and "Traceback" not in refused
    workflow.run(*re.search(r"`snakemake --cores all (--force .*?)`", refused)[1].split())
    assert first.read_bytes() == whole, "the same bits again"


@pytest.mark.workflow
@pytest.mark.parametrize("sealed", [True, False])
def test_no_broken_file_of_results_passes_or_ends_in_a_traceback(workflow, sealed):
    options = ["--sample", "0.1"] if sealed else ["--sample", "0.03", "--unsealed"]
    command = [sys.executable, str(ROOT / "tests/support/broken_results.py"), *options, str(workflow.folder)]
    done = subprocess.run(command, env=workflow.env, capture_output=True, text=True)
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    bad = [case for case in cases if case["verdict"] in ("traceback", *("silent", "unnamed") * sealed)]
    assert done.returncode == 0 and len(cases) > 20 and not bad, done.stderr[-2000:] + json.dumps(bad[:3], indent=1)


@pytest.mark.workflow
def test_a_table_between_stages_without_its_first_column_is_refused_by_its_name(workflow, monkeypatch):
    monkeypatch.chdir(workflow.folder)
    tables = {Path(name) for job in records() for name in job.input if re.fullmatch(r"results/.*\.csv", name)}
    accepted = []
    for path in sorted(tables):
        assert structural_fault(path) == ""
        with broken(path, "another column") as possible:
            if possible and not structural_fault(path):
                accepted.append(path)
    assert len(tables) > 25 and not accepted


@pytest.mark.workflow
@pytest.mark.parametrize("stage", ["videos", "train"])
def test_a_killed_workflow_goes_on(workflow, stage):
    folder = workflow.folder / "results"
    model = folder / "mini/runs/seqLSTM/seed0/model.safetensors"
    whole = model.read_bytes()
    if stage == "videos":
        for gone in ("data/shapes/videos", "data/shapes/captions", "mini"):
            shutil.rmtree(folder / gone)
        (folder / "data/shapes/items.csv").unlink()
        mark = folder / "data/shapes/videos/.state"
    else:
        for gone in ("runs", "similarity", "ranks", "statistics", "tables", "figures"):
            shutil.rmtree(folder / "mini" / gone)
        (folder / "mini/metrics.csv").unlink()
        mark = folder / "mini/.state/runs"
    log = (workflow.folder / "killed.log").open("w")
    process = subprocess.Popen(
        workflow.command(), cwd=workflow.folder, env=workflow.env, stdout=log, stderr=log, start_new_session=True
    )
    while not (mark.exists() and any(mark.iterdir())) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert mark.exists(), "it was killed at work"
    unlock = [sys.executable, str(ROOT / "workflow" / "unlock.py")]
    subprocess.run(unlock, cwd=workflow.folder, env=workflow.env, check=True)
    # Whoever loses a clip also goes through all stages up to a model; the second case, to the last one.
    target = ["results/mini/runs/seqLSTM/seed0/model.safetensors"] if stage == "videos" else []
    workflow.run(*target)
    assert workflow.stale(*target) == {}
    assert model.read_bytes() == whole, "the same bits as the unbroken run"


@pytest.mark.workflow
def test_an_analysis_is_one_module(workflow):
    """docs/add-an-analysis.md: the study names the module, and nothing else does."""
    module = re.search(r"```python\n(.*?)```", (ROOT / "docs/add-an-analysis.md").read_text(), re.S)[1]
    (workflow.folder / "src/first_found.py").write_text(module)  # among what Python finds, as jobs declare no code
    workflow.edit("config/studies/mini.yaml", "figures:", "analyses: [first_found]\nfigures:")
    stale = workflow.stale()
    assert stale.pop("first_found") == stale.pop("first_found_figure") == 1
    assert stale.keys() <= REPORT | {"group_figure"}
    workflow.run()
    results = workflow.folder / "results/mini"
    assert pd.read_csv(results / "statistics/first_found.csv")["first"].sum() > 0
    assert (results / "tables/table_first_found.tex").is_file() and (results / "figures/first_found.svg").is_file()
    summary, page = (results / "tables/summary.txt").read_text(), (results / "report.html").read_text()
    assert "All captions were counted." in summary and "captions whose item came first" in summary
    assert "Captions whose item came first, over all seeds." in page and "not tested." in page
    assert workflow.stale() == {}
    workflow.edit("src/first_found.py", '(t["higher"] == 0)', '(t["higher"] <= 0)')
    assert workflow.stale()["first_found"] == 1
    changed = "overrides={studies.mini.evaluation.directions: [item_to_text]}"
    assert "first_found counts captions that search" in workflow.run("-n", "--config", changed, ok=False)
    workflow.edit("config/studies/mini.yaml", "analyses: [first_found]\n", "")
    assert not {"first_found", "first_found_figure"} & workflow.stale().keys()
