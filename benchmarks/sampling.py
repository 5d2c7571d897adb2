"""Frames at the middles of equal parts (`uniform`) against frames with both ends (`ends`), on the demo's validation.

    python benchmarks/sampling.py                    # ten minutes on two cores, in this checkout's results/

Writes config/studies/sampling_{uniform,ends}.yaml, which are demo.yaml with one head, its recipe and its pre-training
per seed, trains both, and scores the validation split, which chose nothing but the epochs of both. Intervals are over
seeds and clips, as in tables (docs/statistics.md).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pandas as pd
import yaml

from rewind.evaluation.ranking import rank_table
from rewind.evaluation.similarity import similarity_matrix
from rewind.feeding.folder import DataFolder, device, trained_retriever
from rewind.statistics.comparisons import compare
from rewind.study import load_study

KINDS, SETTINGS, SHOWN = ("uniform", "ends"), ["origin", "hard", "binary"], (("hard", "R@1"), ("binary", "accuracy"))


def train(kind: str, head: str) -> str:
    """Train the head under a sampling; the name of its study."""
    keys = yaml.safe_load(Path("config/studies/demo.yaml").read_text())
    keys["title"], keys["frames"]["sampling"] = f"Frames: {kind}", kind
    keys |= {"methods": {head: keys["methods"][head]}, "sanity": None, "sweep": None}
    name = f"sampling_{kind}"
    Path(f"config/studies/{name}.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
    models = [f"results/{name}/runs/{head}/seed{seed}/model.safetensors" for seed in keys["seeds"]]
    command = [sys.executable, "-m", "snakemake", "--cores", "all", "--quiet", "all"]
    subprocess.run([*command, "--config", f"studies=[{name}]", "--", *models], check=True)
    return name


def ranks(name: str, head: str) -> list[tuple[int, pd.DataFrame]]:
    """Rank tables of the validation split, a row each query, of every seed."""
    study, found = load_study(name), []
    for method, seed in study.runs():
        frames = study.frames.max_frames
        folder = Path(f"results/{name}")
        cache = folder / f"features/seed{seed}/frames{frames}.npz"
        spec = study.run_spec(method, seed=seed)
        data = DataFolder(Path("results/data") / study.dataset, study.dataset, spec, frames, cache)
        retriever = trained_retriever(data, str(folder / f"runs/{head}/seed{seed}/model.safetensors"))
        split = data.split("valid", retriever)
        scores = similarity_matrix(retriever, split.text, split.inputs, spec.evaluation, device())
        found.append((seed, rank_table(scores, split.captions, split.items, SETTINGS, ["text_to_item"], name)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", default="seqTransf")
    head = parser.parse_args().head
    runs = {kind: dict(ranks(train(kind, head), head)) for kind in KINDS}
    study = load_study("sampling_uniform")
    found = compare(runs, [("ends", "uniform")], study.statistics)
    for setting, metric in SHOWN:
        for row in found.intervals.itertuples():
            if (row.setting, row.metric) == (setting, metric):
                print(f"{setting:7} {metric:9} {row.method:8} {row.estimate:5.1f} [{row.low:.1f}, {row.high:.1f}]")
        for row in found.pairs.itertuples():
            if (row.setting, row.metric) == (setting, metric):
                print(f"{'':17} ends - uniform {row.difference:+.1f} [{row.low:+.1f}, {row.high:+.1f}], p {row.p:.2f}")


if __name__ == "__main__":
    main()
