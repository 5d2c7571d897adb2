"""What it costs to train a model by name frozen, with adapters, or whole: `python benchmarks/tuning.py`.

Writes a SigLIP and a VideoPrism with random weights, and runs a study for each in a copy of the workflow's files:
moving shapes, one head, each of the three ways, one seed. Trained parameters, memory and speed are those that the runs
recorded. Retrieval is not looked at: nothing was learnt before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from rewind.encoders.tiny import Size, write_transformers
from rewind.platform import processor_name
from rewind.provenance import environment

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("siglip", "videoprism")
WAYS = {"frozen": {"freeze": ["text", "visual"]}, "adapters": {"lora": {"rank": 8}}, "whole": {}}
MEGABYTE = 10**6


def write_study(folder: Path, kind: str, size: Size, epochs: int, batch: int) -> None:
    """A study with one model, in which only what is trained differs between methods."""
    write_transformers(folder / "models" / kind, kind, size=size)
    head = {"head": "seqTransf", "head_start": "random", "head_layers": 2}
    study = {
        "dataset": "shapes",
        "backbone": {"kind": "encoder", "encoder": "transformers", "name": f"models/{kind}"},
        "frames": {"max_frames": size.frames, "size": size.image, "fit": "stretch", "store": True},
        "training": {"epochs": epochs, "batch": {"size": batch, "captions": "one"}, "evaluate_every": epochs},
        "methods": {way: head | {"training": keys} for way, keys in WAYS.items()},
        "seeds": [0],
        "sanity": None,
    }
    (folder / f"config/studies/tuning_{kind}.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--image", type=int, default=64, help="side of a frame in pixels")
    parser.add_argument("--patch", type=int, default=16)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    size = Size(options.width, options.layers, options.image, options.patch, options.frames)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("config", "workflow", "profiles"):
            shutil.copytree(ROOT / part, folder / part)
        shutil.copy(ROOT / "Snakefile", folder)
        git = environment()["git"] or {}
        print(f"commit {git.get('commit')}; {processor_name()}, {os.cpu_count()} cores; {options}")
        print("| model | trained | parameters | of them trained | pairs a second | peak memory, MB | run's file, MB |")
        print("|---" * 7 + "|")
        for kind in KINDS:
            write_study(folder, kind, size, options.epochs, options.batch)
            threads = {"studies": {f"tuning_{kind}": {"resources": {"threads": options.threads}}}}
            command = ["snakemake", "--cores", str(options.threads), "--quiet"]
            command += ["--config", f"studies=[tuning_{kind}]", f"overrides={json.dumps(threads)}"]
            wanted = [f"results/tuning_{kind}/similarity/{way}/seed0.npz" for way in WAYS]
            started = [sys.executable, "-m", *command, "--", *wanted]
            subprocess.run(started, cwd=folder, check=True, stdout=sys.stderr)
            for way in WAYS:
                run = folder / f"results/tuning_{kind}/runs/{way}/seed0"
                record = json.loads((run / "run.json").read_text())
                cells = [kind, way, f"{record['parameters']:,}", f"{record['trained_parameters']:,}"]
                cells += [f"{record['examples_per_second']:.1f}", f"{record['peak_memory_mb']:,}"]
                cells.append(f"{(run / 'model.safetensors').stat().st_size / MEGABYTE:.1f}")
                print(f"| {' | '.join(cells)} |", flush=True)
            own = folder / "models" / kind / "model.safetensors"
            print(f"| {kind} | its own file | | | | | {own.stat().st_size / MEGABYTE:.1f} |", flush=True)


if __name__ == "__main__":
    main()
