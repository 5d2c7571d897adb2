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

from rewind.config import load_study
from rewind.evaluation.ranking import rank_table
from rewind.evaluation.similarity import similarity_matrix
from rewind.io.files import write_csv
from rewind.loading.run_data import RunData, job_device, load_trained_model
from rewind.ranking_metrics import ACCURACY_METRIC
from rewind.statistics.comparisons import compare_methods

KINDS, SETTINGS = ("uniform", "ends"), ["origin", "hard", "binary"]
SHOWN = (("origin", "R@1"), ("hard", "R@1"), ("binary", ACCURACY_METRIC))


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
        data = RunData(Path("results/data") / study.dataset, study.dataset, spec, frames, cache)
        retriever = load_trained_model(data, str(folder / f"runs/{head}/seed{seed}/model.safetensors"))
        split = data.split("valid", retriever)
        scores = similarity_matrix(retriever, split.text, split.inputs, spec.evaluation, job_device())
        found.append((seed, rank_table(scores, split.captions, split.items, SETTINGS, ["text_to_item"], name)))
    return found


def figures(head: str) -> pd.DataFrame:
    """A row per setting and sampling, and one for the difference."""
    runs = {kind: dict(ranks(train(kind, head), head)) for kind in KINDS}
    found = compare_methods(runs, [("ends", "uniform")], load_study("sampling_uniform").statistics)
    rows = []
    for setting, metric in SHOWN:
        place = {"head": head, "setting": setting, "metric": metric}
        for row in found.intervals.itertuples():
            if (row.setting, row.metric) == (setting, metric):
                rows.append(place | {"frames": row.method, "value": row.estimate, "low": row.low, "high": row.high})
        for row in found.pairs.itertuples():
            if (row.setting, row.metric) == (setting, metric):
                ends = {"value": row.difference, "low": row.low, "high": row.high, "p": row.p}
                rows.append(place | {"frames": "ends - uniform"} | ends)
    return pd.DataFrame(rows)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print of the figures (``python tools/publish sampling``): a table in Markdown."""
    lines = ["| validation | " + " | ".join(KINDS) + " | ends − uniform | p |", "|---|---|---|---|---|"]
    for (setting, metric), rows in table.groupby(["setting", "metric"], sort=False):
        rows = rows.set_index("frames")
        change = rows.loc["ends - uniform"]
        cells = [f"{rows.loc[k, 'value']:.1f} [{rows.loc[k, 'low']:.1f}, {rows.loc[k, 'high']:.1f}]" for k in KINDS]
        cells += [_signed(change), f"{change['p']:.2f}"]
        name = "accuracy" if setting == "binary" else metric
        lines.append(f"| {setting.capitalize()}, {name} | " + " | ".join(cells) + " |")
    return {"table": "\n".join(lines)}


def _signed(row: pd.Series) -> str:
    return f"{row['value']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", default="seqTransf")
    parser.add_argument("--out", type=Path, default=Path("results/sampling.csv"), help="figures")
    keys = parser.parse_args()
    found = figures(keys.head)
    write_csv(keys.out, found)
    print(published(found)["table"], f"all figures: {keys.out}", sep="\n\n")


if __name__ == "__main__":
    main()
