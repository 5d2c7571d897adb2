"""Run a miniature study through ``profiles/slurm`` on a real Slurm, disturb it, and compare it with a local run.

    python benchmarks/slurm_check.py --install --transcript slurm.txt

``make slurm-check`` does this. A Slurm of two nodes with two GPUs each (in name only, nothing computes on them) is set
up on this machine from Debian's packages, and taken down at the end, after a failure and after Ctrl-C. On it

- a training run hits its wall time, and its next attempt resumes;
- another one is put back into the queue (``scontrol requeue``) while it trains, and resumes;
- a job that asks for two GPUs is submitted while each node has one to spare, and must wait for two on one node;
- an override has quotes and a dollar sign;
- and without accounting the run is refused in words, and goes on with ``--slurm-status-command squeue``.

Models, similarities and metrics must be those of a local run, bit for bit. The exit code is 0 if all of this held.
"""

from __future__ import annotations

import argparse
import html
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import yaml

from failed_jobs import reasons
from rewind.errors import RewindError
from slurm_cluster import Cluster, install, lacking
from slurm_watch import Watch, differing, resumed

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("workflow", "config", "profiles", "src", "Snakefile")
TITLE = 'It\'s "$5" an hour'
STUDY = """\
dataset: shapes
backbone: {{architecture: config/models/tiny.json}}
frames: {{max_frames: 4, size: 32, keep_in_memory: true}}
text: {{tokenizer: words, max_words: 24}}
pretraining:
  training: {{epochs: 2, freeze: [], batch: {{size: 16}}}}
training:
  epochs: 2
  lr: 1.0e-3
  backbone_lr_multiplier: 1.0
  freeze: [visual]
  batch: {{size: 16, captions: one, twins_together: true}}
methods:
  meanP: {{head: meanP}}
  seqLSTM: {{head: seqLSTM, training: {{epochs: {epochs}, evaluate_every: {epochs}}}}}
  chance: {{model: chance, seeds: [0]}}
seeds: [0, 1]
sanity: {{clips: 4, min_r1: 0.2, training: {{epochs: 30, batch: {{size: 4}}, evaluate_every: 10}}}}
statistics: {{resamples: 200}}
figures: {{examples: 2, method: seqLSTM}}
resources: {{gpus: 1, threads: 1, mem_mb: 1500}}
"""
CONFIG = "studies: [miniature]\noverrides:\n  datasets.shapes.source.clips: {train: 12, valid: 4, test: 6}\n"
LONG = "results/miniature/.state/runs/seqLSTM.seed0.pt"  # of the run that is put back into the queue
# The first attempt of a training run has two minutes, which is too little for seqLSTM.
# Short jobs of one rule share a submission, beside what shares one in any case (docs/cluster.md).
TOGETHER = ["--groups", "similarity=scoring", "features=features", "pretrain=pretraining"]
TOGETHER += ["--group-components", "scoring=5", "features=2", "pretraining=2"]
LIMITS = ["train:runtime=2 if attempt == 1 else 30", "sanity:gpu=2"]


class Check:
    """What is said goes to the console and, at the end, to the transcript; what fails is counted."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failed: list[str] = []

    def say(self, text: str = "") -> None:
        print(text, flush=True)
        self.lines.append(text)

    def must(self, held: bool, what: str) -> None:
        self.say(f"{'ok    ' if held else 'FAILED'} {what}")
        if not held:
            self.failed.append(what)


def checkout(folder: Path, epochs: int) -> Path:
    """A copy of this one with the miniature in it."""
    folder.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    (folder / "config/studies/miniature.yaml").write_text(STUDY.format(epochs=epochs))
    (folder / "config/config.yaml").write_text(CONFIG)
    return folder


def command(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "snakemake",
        *arguments,
        "--config",
        f"overrides={{studies.miniature.title: {quoted()}}}",
    ]


def quoted() -> str:
    return "'" + TITLE.replace("'", "''") + "'"  # as YAML quotes


def environment(folder: Path, base: dict[str, str]) -> dict[str, str]:
    return base | {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}


def locally(check: Check, folder: Path) -> None:
    """The run that the other is compared with."""
    began = time.monotonic()
    with (folder / "run.log").open("w") as log:
        words = command("--cores", "2")
        done = subprocess.run(words, cwd=folder, env=environment(folder, dict(os.environ)), stdout=log, stderr=log)
    check.must(done.returncode == 0, f"local run, in {time.monotonic() - began:.0f} s")
    if done.returncode:
        raise RewindError(f"the local run failed:\n{reasons((folder / 'run.log').read_text(), folder)}")


def half_busy(check: Check, cluster: Cluster) -> dict[str, str]:
    """One GPU of each node taken; and what becomes of a job of two GPUs that does not ask for one node."""
    taken = {
        node: cluster.ask(
            "sbatch", "--parsable", "--gpus=1", "--nodes=1", f"--nodelist={node}", "--mem=100", "--output=/dev/null",
            "--job-name=other", "--wrap=sleep 100000",
        )
        for node in ("n1", "n2")
    }  # fmt: skip
    inner = "srun -n1 --nodes=1 --gpus=2 --cpus-per-task=1 true"  # as the plugin starts a job
    job = cluster.ask(
        "sbatch", "--parsable", "--wait-all-nodes=1", "--gpus=2", "--mem=100", "--output=/dev/null",
        "--job-name=spread", f"--wrap={inner}",
    )  # fmt: skip
    end = time.monotonic() + 60
    while time.monotonic() < end and cluster.ask("squeue", "-h", "-j", job, "-t", "PD,R,CG", "-o", "%T"):
        time.sleep(1)
    time.sleep(3)  # until the accounting has it
    row = cluster.ask("sacct", "-X", "-n", "-P", "-j", job, "-o", "State,NNodes,NodeList")
    check.say(f"       two GPUs without nodes=1, one free on each node: {row}")
    return taken


def limits(folder: Path) -> list[str]:
    """The profile's own limits with ours: an option of the command line takes the place of the profile's list."""
    profile = yaml.safe_load((folder / "profiles/slurm/config.yaml").read_text(encoding="utf-8"))
    its = [
        f"{rule}:{name}={value}" for rule, asked in profile["set-resources"].items() for name, value in asked.items()
    ]
    return its + LIMITS


def on_slurm(check: Check, cluster: Cluster, folder: Path) -> None:
    """The same through the profile, disturbed."""
    taken = half_busy(check, cluster)
    watch = Watch(cluster, folder, taken, folder / LONG, check.say)
    began = time.monotonic()
    words = command("--workflow-profile", "profiles/slurm", "--set-resources", *limits(folder), *TOGETHER)
    words[3:3] = ["--slurm-init-seconds-before-status-checks", "5"]
    with (folder / "run.log").open("w") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=environment(folder, cluster.env), stdout=log, stderr=log, start_new_session=True
        )
        try:
            while process.poll() is None:
                watch.look()
                time.sleep(1)
        finally:
            _end(process)
    time.sleep(3)
    check.must(process.returncode == 0, f"run through profiles/slurm, in {time.monotonic() - began:.0f} s")
    if process.returncode:
        check.say(reasons((folder / "run.log").read_text(), folder))
    check.say()
    check.say(watch.table())
    check.say()
    for passed, what in watch.verdicts():
        check.must(passed, what)


def _end(process: subprocess.Popen) -> None:
    """Snakemake cancels its jobs at SIGINT; at SIGTERM it would wait for them."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def compare(check: Check, here: Path, there: Path) -> None:
    """Bits of both runs, and what the logs say of attempts."""
    for name, seed in (("seqLSTM", 0), ("seqLSTM", 1)):
        found = resumed(there / f"results/miniature/logs/train/{name}.seed{seed}.log")
        check.must(bool(found), f"{name} seed{seed}: {'; '.join(found) or 'its log says nothing of a resumption'}")
    for pattern in ("runs/*/seed*/model.safetensors", "similarity/*/seed*.npz", "ranks/*/seed*.parquet", "metrics.csv"):
        count, other = differing(here / "results/miniature", there / "results/miniature", pattern)
        check.must(count > 0 and not other, f"{pattern}: {count} files, {len(other)} differ {' '.join(other)}".rstrip())
    page = there / "results/miniature/report.html"
    check.must(
        page.is_file() and TITLE in html.unescape(page.read_text()),
        f"the override reached the jobs as it was typed: {TITLE}",
    )


def unaccounted(check: Check, cluster: Cluster, folder: Path) -> None:
    """A cluster that keeps no accounts: refused in words, and possible with another option."""
    shutil.rmtree(folder / "results/miniature/tables")
    words = command("--workflow-profile", "profiles/slurm")
    words[3:3] = ["--slurm-init-seconds-before-status-checks", "5"]
    env = environment(folder, cluster.env)
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "squeue" in line]
    check.must(done.returncode != 0 and bool(said), f"without accounting: {said[-1] if said else 'nothing was said'}")
    words[3:3] = ["--slurm-status-command", "squeue"]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=400)
    if done.returncode:
        check.say(reasons(done.stdout + done.stderr, folder))
    made = (folder / "results/miniature/tables/summary.txt").is_file()
    check.must(done.returncode == 0 and made, "with --slurm-status-command squeue it runs to its end")


def versions(cluster: Cluster) -> str:
    plugin = metadata.version("snakemake-executor-plugin-slurm")
    slurm = cluster.ask("sinfo", "--version")
    return f"{slurm}, Snakemake {metadata.version('snakemake')}, snakemake-executor-plugin-slurm {plugin}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install Debian's packages where they are not there")
    parser.add_argument("--epochs", type=int, default=900, help="of the run that is to hit a wall time of two minutes")
    parser.add_argument("--local", type=Path, help="checkout of a local run that is there already (see --keep)")
    parser.add_argument("--transcript", type=Path, help="file for what is printed")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the runs and of the cluster")
    options = parser.parse_args()
    check = Check()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # also where a shell in the background ignores them
        signal.signal(number, _interrupted)
    try:
        if options.install:
            install()
        if reason := lacking():
            raise RewindError(f"no Slurm can be set up here: {reason}.")
        metadata.version("snakemake-executor-plugin-slurm")
        run(check, options)
    except metadata.PackageNotFoundError:
        sys.exit("error: pip install -c envs/constraints.txt snakemake-executor-plugin-slurm==2.8.0")
    except RewindError as error:
        sys.exit(f"error: {error}")
    if options.transcript:
        options.transcript.write_text("\n".join(check.lines) + "\n")
    sys.exit(f"{len(check.failed)} of the checks failed" if check.failed else 0)


def _interrupted(number: int, _: object) -> None:
    sys.exit(128 + number)  # through every `finally`


def run(check: Check, options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rewind-slurm-"))
    folder.chmod(0o755)
    try:
        here = options.local or checkout(folder / "local", options.epochs)
        there = checkout(folder / "slurm", options.epochs)
        check.say(f"slurm-check, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        if options.local is None:
            locally(check, here)
        with Cluster(folder / "cluster") as cluster:
            check.say(f"       {versions(cluster)}")
            on_slurm(check, cluster, there)
        compare(check, here, there)
        with Cluster(folder / "unaccounted", accounting=False) as cluster:
            unaccounted(check, cluster, there)
        check.must(not cluster.left(), "nothing of the cluster is left")
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
