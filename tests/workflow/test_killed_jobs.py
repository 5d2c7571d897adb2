"""A job that is killed just before or just after an output gets its name: the same bytes at last, and no draft."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from checkout import ROOT
from rewind.job_values import Job, NamedList
from rewind.workflow.temporary_files import remove_old_temporary_files, remove_temporary_files
from sigkill_compare import DRAFT, compare_all, left_over
from sigkill_moments import KINDS, Moment, by_kind, plan, targets

# What Snakemake does: it runs the rule's script with what it gives it.
JOB = "import json, sys; from rewind.workflow.job import *; run_script(Job.read(json.load(open(sys.argv[1]))))"
DATA = "results/data/shapes"
SHARD = f"{DATA}/videos/shards/0-of-1"
SOURCE = {"format": "shapes", "seed": 0, "clips": {"train": 2, "valid": 1, "test": 1}, "size": 32, "paraphrases": 1}
VIDEO = {"fps": 6, "short_side": 32, "qp": 20, "max_seconds": 60}
DATASET = {"name": "shapes", "source": SOURCE, "reverse": True}
JOBS = {
    "sources": (
        {},
        {"ready": f"{DATA}/source/ready.json", "files": f"{DATA}/source.tar"},
        {"dataset": DATASET, "workers": 2, "code": "c"},
    ),
    "inventory": (
        {"ready": f"{DATA}/source/ready.json", "packed": f"{DATA}/source.tar"},
        {"table": f"{DATA}/videos/inventory.csv"},
        {"dataset": DATASET},
    ),
    "video_shard": (
        {"inventory": f"{DATA}/videos/inventory.csv", "sources": [f"{DATA}/source.tar"]},
        {"report": f"{SHARD}.csv", "index": f"{SHARD}.index.csv", "clips": f"{SHARD}.tar"},
        {"kind": "videos", "media": VIDEO, "clip_code": "c"},
    ),
}


def given(rule: str) -> Job:
    files, output, params = JOBS[rule]
    return Job(
        rule,
        NamedList([path for one in files.values() for path in ([one] if isinstance(one, str) else one)], files),
        NamedList(output.values(), output),
        NamedList(params.values(), params),
        {"dataset": "shapes", "shard": "0", "shards": "1"},
        2,
        {},
        f"{DATA}/logs/{rule}.log",
    )


def start(folder: Path, rule: str, moments: Path | None = None) -> subprocess.Popen:
    file = folder / f"{rule}.json"
    file.write_text(json.dumps(given(rule).content()))
    library = str(ROOT / "src")
    watched = {"PYTHONPATH": f"{ROOT / 'benchmarks/moments'}{os.pathsep}{library}", "MOMENTS": str(moments)}
    env = os.environ | (watched if moments else {"PYTHONPATH": library})
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(
        [sys.executable, "-c", JOB, str(file)], cwd=folder, env=env, start_new_session=True, **quiet
    )


def done(process: subprocess.Popen) -> str:
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def killed_at(folder: Path, rule: str, moment: str) -> None:
    """Do a job up to this moment, and kill it there."""
    moments = folder / "moments"
    moments.mkdir()
    name = given(rule).output[0]
    (moments / "plan.json").write_text(json.dumps({name: [moment]}))
    process = start(folder, rule, moments)
    while not (moments / "reached.json").exists() and process.poll() is None:
        time.sleep(0.02)
    reached = (moments / "reached.json").exists()
    os.killpg(process.pid, signal.SIGKILL)
    said, _ = process.communicate()
    assert reached, said
    assert json.loads((moments / "reached.json").read_text()) == [rule, name, moment]
    assert process.returncode == -signal.SIGKILL
    shutil.rmtree(moments)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> dict[str, Path]:
    """Folders as they are when each job is done that nobody killed."""
    folder, found = tmp_path_factory.mktemp("unbroken"), {}
    for rule in JOBS:
        done(start(folder, rule))
        found[rule] = folder.with_name(f"{folder.name}-{rule}")
        shutil.copytree(folder, found[rule], symlinks=True)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "moment", "there"),
    [
        ("sources", "before output 2", {"source.tar"}),
        ("sources", "after output 2", {"source.tar", "ready.json"}),
        ("video_shard", "before output 1", set()),
        ("video_shard", "after output 3", {"0-of-1.csv", "0-of-1.index.csv", "0-of-1.tar"}),
    ],
)
def test_a_killed_job_ends_with_the_same_bytes_and_leaves_no_draft(unbroken, tmp_path, rule, moment, there):
    folder = tmp_path / "killed"
    if rule == "sources":
        folder.mkdir()
    else:
        shutil.copytree(unbroken["inventory"], folder, symlinks=True)
    killed_at(folder, rule, moment)
    outputs = [folder / name for name in given(rule).output]
    assert {path.name for path in outputs if path.exists()} == there
    drafts = [path for path in folder.rglob("*") if ".part" in path.name]
    assert bool(drafts) == moment.startswith("before"), "a draft lies about, or the output has got its name"
    for path in outputs:
        path.unlink(missing_ok=True)  # as Snakemake does with what is incomplete
    said = done(start(folder, rule))
    assert compare_all(unbroken[rule] / "results", folder / "results") == []
    assert [path for path in folder.rglob("*") if DRAFT.search(path.name)] == []
    assert "Traceback" not in said
    log = (folder / given(rule).log).read_text()
    assert "this attempt did not come to its end" in log and log.rstrip().splitlines()[-1].startswith("finished in")


def test_drafts_of_a_jobs_own_files_go_and_those_of_others_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Path("results/demo/runs/a/seed1")
    output = {"model": str(run / "model.safetensors"), "record": str(run / "run.json")}
    params = {"state": "results/demo/.state/runs/a.seed1.pt"}
    job = Job(
        "train",
        NamedList([], {}),
        NamedList(output.values(), output),
        NamedList(params.values(), params),
        {},
        1,
        {},
        "log",
    )
    mine = [
        run / ".model.12.part.safetensors",
        run / ".run.9.part.json",
        "results/demo/.state/runs/.a.seed1.77.part.pt",
    ]
    others = [
        "results/demo/.state/runs/.a.seed10.77.part.pt",
        "results/demo/.state/runs/a.seed1.pt",
        run / ".model.x.part.safetensors",
        run / "model.12.part.safetensors",
        run / ".models.12.part.safetensors",
    ]
    for path in (*mine, *others):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("half")
    remove_temporary_files(job)
    assert [Path(path).exists() for path in (*mine, *others)] == [False] * len(mine) + [True] * len(others)
    elsewhere = Path("states/demo/runs/.a.seed1.5.part.pt")
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("half")
    for place in ("s3://bucket/states", "states"):
        execution = {"execution": {"state_folder": place}}
        remove_temporary_files(replace(job, params=NamedList(list(job.params), job.params.items() | execution)))
        assert elsewhere.exists() == (place != "states"), "in a bucket there are no drafts"


def test_drafts_of_records_go_once_nobody_can_be_at_work_on_them(tmp_path):
    old, new, whole = (tmp_path / "jobs" / name for name in (".a.3.part.json", ".b.4.part.json", "a.json"))
    old.parent.mkdir()
    for path in (old, new, whole):
        path.write_text("{")
    for path in (old, whole):
        os.utime(path, (time.time() - 300,) * 2)
    remove_old_temporary_files(tmp_path)
    remove_old_temporary_files(tmp_path / "nothing")
    assert [path.exists() for path in (old, new, whole)] == [False, True, True]


def test_every_difference_is_found_and_clocks_are_none(tmp_path):
    files = {
        "s/runs/a/history.csv": "epoch,loss,seconds\n1,0.5,3.1\n",
        "s/runs/chance/history.csv": "\n",
        "s/runs/a/run.json": json.dumps({"seconds": 1, "best": {"loss": 0.5, "seconds": 2}}),
        "s/metrics.csv": "a\n1\n",
        "s/logs/a.log": "1 s",
    }
    for side in ("one", "two"):
        for name, text in files.items():
            path = tmp_path / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    two = tmp_path / "two/s"
    (two / "runs/a/history.csv").write_text("epoch,loss,seconds\n1,0.5,9.9\n")
    (two / "runs/a/run.json").write_text(json.dumps({"seconds": 7, "best": {"loss": 0.5, "seconds": 8}}))
    (two / "logs/a.log").write_text("2 s")
    assert compare_all(tmp_path / "one", tmp_path / "two") == []
    (two / "runs/a/history.csv").write_text("epoch,loss,seconds\n1,0.6,9.9\n")
    (two / "runs/a/run.json").write_text(json.dumps({"seconds": 7, "best": {"loss": 0.6, "seconds": 8}}))
    (two / "metrics.csv").unlink()
    (two / ".metrics.7.part.csv").write_text("")
    found = [str(difference) for difference in compare_all(tmp_path / "one", tmp_path / "two")]
    assert found == [
        "s/.metrics.7.part.csv is not in the unbroken run",
        "s/metrics.csv is missing",
        "s/runs/a/history.csv differs",
        "s/runs/a/run.json differs",
    ]
    (tmp_path / "c/results/data").mkdir(parents=True)
    (tmp_path / "c/.snakemake/locks").mkdir(parents=True)
    (tmp_path / "c/tmp").mkdir()
    assert left_over(tmp_path / "c", tmp_path / "c/tmp") == []
    lying = ["results/data/.x.8.part.csv", ".snakemake/locks/0.input.lock", "tmp/rewind-state-x"]
    for name in lying:
        (tmp_path / "c" / name).write_text("")
    assert left_over(tmp_path / "c", tmp_path / "c/tmp") == sorted(str(tmp_path / "c" / name) for name in lying)


def passing(stage: str, job: str, outputs: int, others: int) -> list[Moment]:
    names = ["beginning", *(f"other {n + 1}" for n in range(others))]
    names += [f"{when} output {n + 1}" for n in range(outputs) for when in ("before", "after")]
    return [Moment(stage, job, name) for name in [*names, "end"]]


def test_kills_go_round_the_stages_their_jobs_and_kinds_of_moments():
    jobs = [*passing("train", "a", 3, 5), *passing("train", "b", 3, 0), *passing("sweep", "c", 1, 0)]
    assert by_kind(passing("train", "a", 3, 5)) == {
        kind: Moment("train", "a", name)
        for kind, name in {
            "unnamed": "before output 1",
            "named": "after output 3",
            "between": "before output 2",
            "writing": "other 3",
            "beginning": "beginning",
            "end": "end",
        }.items()
    }
    assert by_kind(passing("sweep", "c", 1, 0)).keys() == KINDS.keys() - {"between", "writing"}
    chosen = targets(jobs, 4)
    assert [target.moment.stage for target in chosen] == ["train", "sweep", "train", "sweep"]
    assert len({target.kind for target in chosen if target.moment.stage == "train"}) == 2
    assert {target.moment.job for target in chosen} == {"a", "b", "c"}
    stages = [moment for n in range(9) for moment in passing(f"stage{n}", f"job{n}", 1, 0)]
    assert [target.moment.stage for target in targets(stages, 3)] == ["stage0", "stage4", "stage8"]
    assert len(targets(stages, 1)) == 1 and targets(stages, 0) == []
    every = targets(jobs, 100)
    assert len(every) == len(set(every)) == 6 + 4, "of every kind that a stage has, one"
    assert sum(map(len, plan(every).values())) == 10 and plan(every)["c"][0] in {"before output 1", "after output 1"}
