"""A miniature study through a bucket alone: trained on one machine, lost, trained on by a second, tabled by a third.

    python benchmarks/s3_check.py                      # or: make s3-check
    python benchmarks/s3_check.py --short              # or: make s3-check-short
    python benchmarks/s3_check.py --until captions     # only so far, on the first two machines

A "machine" is an empty clone of this checkout's last commit; the machines share a bucket (moto's server on 127.0.0.1, a
process of its own) and nothing else. The first is killed with SIGKILL while a run trains, and deleted. The second goes
on from the training state in the bucket. The third has neither and makes tables. At last every number must have the
bits of a run in a fourth clone that knows no bucket. With --short two machines share a smaller study: the first trains
and is deleted, the second makes all that is left. Needs snakemake-storage-plugin-s3, s3fs and moto[server].
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from failed_jobs import reasons
from s3_server import bucket_server, client, keys, lacking, marks

ROOT = Path(__file__).resolve().parents[1]
BUCKET, PREFIX, STATES = "rewind", "study", "states"
STUDY = """
title: Miniature in a bucket
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 4, size: 32, keep_in_memory: true, store: STORE}
text: {tokenizer: words, max_words: 24}
pretraining:
  training: {epochs: 2, freeze: [], batch: {size: 16}}
training:
  epochs: 12
  lr: 1.0e-3
  backbone_lr_multiplier: 1.0
  freeze: [visual]
  batch: {size: 16, captions: one, twins_together: true}
  save_every_steps: 1
methods:
  seqLSTM: {head: seqLSTM}
  pixels: {head: meanP, training: {freeze: []}}
  chance: {model: chance, seeds: [0]}
seeds: [0, 1]
sanity: {clips: 4, min_r1: 0.2, training: {epochs: 30, batch: {size: 4}, evaluate_every: 10}}
sweep: {max_frames: [3, 4], method: seqLSTM, training: {epochs: 1}}
statistics: {resamples: 200}
figures: {examples: 2, method: seqLSTM}
"""
SHORT_STUDY = """
title: Smaller miniature in a bucket
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 2, size: 32, store: STORE}
text: {tokenizer: words, max_words: 24}
training: {epochs: 1, lr: 1.0e-3, freeze: [], batch: {size: 8}}
methods:
  meanP: {head: meanP}
  chance: {model: chance}
seeds: [0]
sanity: null
statistics: {resamples: 100}
figures: {examples: 1, method: meanP}
"""
CONFIG = "studies: [mini]\noverrides:\n  datasets.shapes.source.clips: {train: 12, valid: 4, test: 6}\n"
NUMBERS = ("*.safetensors", "*.npz", "*.parquet", "metrics.csv", "statistics/*.csv", "tables/*", "best.json")
CLOCKS = ["seconds", "clips_per_second"]


class Machine:
    """An empty clone, and what is run in it."""

    def __init__(self, place: Path, name: str, study: str, environment: dict[str, str] | None = None) -> None:
        self.name, self.folder, self.environment = name, place / name, environment
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(self.folder)], check=True)
        if environment is not None:
            study += f'resources: {{state_folder: "s3://{BUCKET}/{STATES}"}}\n'
        (self.folder / "config/studies/mini.yaml").write_text(study)
        (self.folder / "config/config.yaml").write_text(CONFIG)

    def start(self, *arguments: str) -> subprocess.Popen:
        """Snakemake in the clone, with the bucket if the machine knows it; all that it says goes into a file."""
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
        env = os.environ | {"PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1"}
        if self.environment is not None:
            command += ["--default-storage-provider", "s3", "--default-storage-prefix", f"s3://{BUCKET}/{PREFIX}"]
            address, key = self.environment["AWS_ENDPOINT_URL"], "check"
            env |= self.environment | {
                "SNAKEMAKE_STORAGE_S3_ENDPOINT_URL": address,
                "SNAKEMAKE_STORAGE_S3_ACCESS_KEY": key,
                "SNAKEMAKE_STORAGE_S3_SECRET_KEY": key,
            }
        print(f"\n[{self.name}] $ {' '.join(command[1:])}", flush=True)
        with self.said.open("a") as stream:
            return subprocess.Popen(
                command, cwd=self.folder, env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )

    def run(self, *arguments: str) -> None:
        began = time.monotonic()
        if self.start(*arguments).wait():
            sys.exit(f"[{self.name}] failed:\n{self.why()}")
        print(f"[{self.name}] done in {time.monotonic() - began:.0f} s", flush=True)

    @property
    def said(self) -> Path:
        return self.folder.with_suffix(".txt")

    def why(self) -> str:
        """What the jobs that failed said."""
        return reasons(self.said.read_text(), self.folder) + f"\nWith --keep FOLDER all of it stays: {self.said}"

    def kill_while_training(self) -> None:
        """Until a run's state was in the bucket ten times; then SIGKILL to all of it, and delete the machine."""
        process, seen = self.start("trained"), {}
        while max(map(len, seen.values()), default=0) < 10:
            for key, mark in marks(self.environment, BUCKET, f"{STATES}/mini/runs/").items():
                seen.setdefault(key, set()).add(mark)
            if process.poll() is not None:
                sys.exit(f"[{self.name}] ended before a run was seen at work:\n{self.why()}")
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print(f"[{self.name}] killed while it trained; in the bucket: {', '.join(seen)}")
        self.show()
        self.delete()

    def delete(self) -> None:
        shutil.rmtree(self.folder)
        print(f"[{self.name}] deleted")

    def trained(self) -> int:
        """Training runs that the machine did itself."""
        return self.said.read_text().count("rule train:")

    def show(self) -> None:
        """What the machine has on its disk, beside the checkout."""
        print(f"[{self.name}] on disk:")
        tops = [self.folder / "results", *sorted((self.folder / ".snakemake").glob("storage"))]
        for top in tops:
            files = [path for path in top.rglob("*") if path.is_file() and path != self.folder / "results/README.md"]
            size = sum(path.stat().st_size for path in files)
            print(f"  {top.relative_to(self.folder)}: {len(files)} files, {size / 1e6:.1f} MB")
            for path in sorted(files)[:15] if top.name == "results" else []:
                print(f"    {path.relative_to(self.folder)}")


def compare(local: Path, environment: dict[str, str]) -> int:
    """Compare what numbers are in with the objects of the bucket; returns how many files differ."""
    store, objects = client(environment), keys(environment, BUCKET)
    results = local / "results"
    paths = sorted(
        {path for p in NUMBERS for path in results.rglob(p) if path.is_file() and ".state" not in path.parts}
    )
    wrong = []
    for path in paths:
        key = f"{PREFIX}/{path.relative_to(local)}"
        if key not in objects:
            wrong.append(f"{key}: not in the bucket")
        elif digest(store.get_object(Bucket=BUCKET, Key=key)["Body"].read()) != digest(path.read_bytes()):
            wrong.append(f"{key}: other bits")
    histories = sorted((results / "mini/runs").rglob("history.csv"))
    for path in histories:
        there = store.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{path.relative_to(local)}")["Body"].read()
        if not untimed(path.read_bytes()).equals(untimed(there)):
            wrong.append(f"{path}: another history")
    print(f"\n{len(paths)} files with numbers and {len(histories)} histories compared with the local run's")
    print("\n".join(wrong) or "all have the same bits (of histories all but the clock)")
    return len(wrong)


def untimed(history: bytes) -> pd.DataFrame:
    """A history without its clock; what was never trained has an empty one."""
    return pd.read_csv(io.BytesIO(history)).drop(columns=CLOCKS) if history.strip() else pd.DataFrame()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="two machines, a few jobs, no comparison; CI runs it")
    parser.add_argument("--until", help="a rule: the first two machines run only so far, and nothing is compared")
    parser.add_argument("--store", action="store_true", help="the study has a frame store")
    parser.add_argument("--keep", type=Path, help="work in this empty folder and leave it")
    given = parser.parse_args()
    if missing := lacking("s3fs", "snakemake_storage_plugin_s3"):
        sys.exit(
            f"Not installed: {', '.join(missing)}. `make s3-check` puts them into an environment of their own, since "
            "they want an older python-dateutil than envs/constraints.txt names: envs/s3.txt has the versions."
        )
    with tempfile.TemporaryDirectory(prefix="rewind-s3-") as made:
        place = given.keep or Path(made)
        place.mkdir(parents=True, exist_ok=True)
        with bucket_server(BUCKET, place / "server.txt") as environment:
            sys.exit(check(place, given, environment))


def check(place: Path, given: argparse.Namespace, environment: dict[str, str]) -> int:
    study = (SHORT_STUDY if given.short else STUDY).replace("STORE", str(given.store).lower())
    if given.until:
        for name in ("first", "second"):
            machine = Machine(place, name, study, environment)
            machine.run("--until", given.until)
            machine.show()
        print("\n".join(f"{size:>10,}  {key}" for key, size in sorted(keys(environment, BUCKET).items())))
        return 0
    return (short if given.short else whole)(place, study, environment)


def short(place: Path, study: str, environment: dict[str, str]) -> int:
    """Train on a machine, and make all that is left on another; returns the exit code."""
    first = Machine(place, "first", study, environment)
    first.run("trained")
    first.delete()
    second = Machine(place, "second", study, environment)
    second.run()
    second.show()
    again, objects = second.trained(), keys(environment, BUCKET)
    lacking = [name for name in ("tables", "report.html") if not any(f"/mini/{name}" in key for key in objects)]
    print(f"[second] trained {again} runs itself; not in the bucket: {', '.join(lacking) or 'nothing'}")
    return int(bool(again or lacking))


def whole(place: Path, study: str, environment: dict[str, str]) -> int:
    """Kill a machine, go on with a second, end with a third, and compare with a fourth; returns the exit code."""
    Machine(place, "first", study, environment).kill_while_training()
    second = Machine(place, "second", study, environment)
    second.run("trained")
    second.show()
    resumed = [line.strip() for line in second.said.read_text().splitlines() if "resumed after epoch" in line]
    print("\n".join(f"[second] {line}" for line in resumed))
    third = Machine(place, "third", study, environment)
    third.run()
    third.show()
    again = third.trained()
    print(f"[third] trained {again} runs itself")
    left = [key for key in keys(environment, BUCKET) if key.startswith(STATES)]
    print(f"states left in the bucket: {', '.join(left) or 'none'}")
    local = Machine(place, "local", study)
    local.run()
    wrong = compare(local.folder, environment)
    return int(bool(wrong or left or again or not resumed))


if __name__ == "__main__":
    main()
