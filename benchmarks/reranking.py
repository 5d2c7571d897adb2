"""What re-ranking costs and finds beside scoring all pairs: `python benchmarks/reranking.py --clips 1000`.

Runs a study in a copy of the workflow's files: moving shapes with so many test clips and as many twins, meanP, and
tightTransf on all pairs and on the first results of meanP, one seed. Then the jobs that score are done once more in
processes of their own, whose CPU seconds the kernel tells. With `--named`, X-CLIP with random weights takes the place
of tightTransf: a model by name that scores pairs, whose ranks are at chance and only whose time counts.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from brought import usage_of
from rewind.encoders.tiny import write_transformers
from rewind.platform import processor_name
from rewind.provenance import environment

ROOT = Path(__file__).resolve().parents[1]
STUDY = "two_stages_on_many"


def write_study(folder: Path, clips: int, tops: list[int], epochs: int, named: bool) -> None:
    """The study ``two_stages`` with one seed, on more test clips."""
    for name in ("config", "workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    shutil.copy(ROOT / "Snakefile", folder)
    dataset = yaml.safe_load((ROOT / "config/datasets/shapes.yaml").read_text())
    dataset["source"]["clips"]["test"] = clips
    (folder / "config/datasets/many_shapes.yaml").write_text(yaml.safe_dump(dataset))
    study = yaml.safe_load((ROOT / "config/studies/two_stages.yaml").read_text())
    second = study["methods"].pop("tightTransf")
    if named:
        write_transformers(folder / "data/xclip", "xclip")
        second = {"model": "vectors", "options": {"encoder": "transformers", "name": "data/xclip"}}
    study["methods"] = {"meanP": study["methods"]["meanP"], "second": second}
    for top in tops:
        rerank = {"label": f"second of {top}", "rerank": {"first": "meanP", "top": top}}
        study["methods"][f"top{top}"] = second | rerank
    study["training"]["epochs"] = epochs
    study |= {"dataset": "many_shapes", "seeds": [0]}
    (folder / f"config/studies/{STUDY}.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=1000, help="test clips; their twins come on top")
    parser.add_argument("--top", type=int, nargs="+", default=[100, 20])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--named", action="store_true", help="X-CLIP by name in the place of tightTransf")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_study(folder, options.clips, options.top, options.epochs, options.named)
        command = ["snakemake", "--cores", str(options.cores), "--quiet", "--config", f"studies=[{STUDY}]"]
        subprocess.run([sys.executable, "-m", *command], cwd=folder, check=True, stdout=sys.stderr)
        results = folder / "results" / STUDY
        with (results / "metrics.csv").open(newline="", encoding="utf-8") as stream:
            metrics = {row["method"]: row for row in csv.DictReader(stream) if _is_shown(row)}
        git = environment()["git"] or {}
        print(f"commit {git.get('commit')}; {processor_name()}, {os.cpu_count()} cores; {options.epochs} epochs")
        print("| method | scores | pairs | R@1 in Hard, T2V | R@10 | mean rank | CPU seconds |")
        print("|---" * 7 + "|")
        for method, row in metrics.items():
            reranked = json.loads((results / f"ranks/{method}/seed0.json").read_text()).get("reranked")
            file = f"{STUDY}/ranks/{method}/seed0.parquet" if reranked else f"{STUDY}/similarity/{method}/seed0.npz"
            if options.named and method == "second":
                file = _file_of_all_scores(folder)
            job = [sys.executable, "-m", "rewind", "job", f"results/{file}", "--out", str(folder / "again")]
            seconds, _ = usage_of(job, folder)
            scored = f"the first {reranked['top']} of meanP" if reranked else "all"
            share = f"{reranked['share']:.1f}%" if reranked else "100%"
            values = " | ".join(f"{float(row[name]):.1f}" for name in ("R@1", "R@10", "MnR"))
            name = "meanP" if method == "meanP" else "X-CLIP, random" if options.named else "tightTransf"
            print(f"| {name} | {scored} | {share} | {values} | {seconds:g} |")


def _file_of_all_scores(folder: Path) -> str:
    """The file in which the model by name has scored all pairs, below ``results``."""
    records = folder.glob("results/data/many_shapes/vectors/*/record.json")
    (record,) = [path for path in records if json.loads(path.read_text())["scored_pairs"] == "all"]
    return str((record.parent / "captions.npz").relative_to(folder / "results"))


def _is_shown(row: dict[str, str]) -> bool:
    return row["setting"] == "hard" and row["direction"] == "text_to_item"


if __name__ == "__main__":
    main()
