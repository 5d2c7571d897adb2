"""Our metrics beside those that ranx and ir_measures compute from the exported TREC files.

    pip install --constraint envs/constraints.txt ranx
    python benchmarks/ranking_tools.py results/demo          # a finished study, after `snakemake results/demo/trec`
    python benchmarks/ranking_tools.py --answers 300         # 300 random queries with several right answers each

Every run is read by both tools. Without ties all three agree to the last digits. Tools put ties in an order of their
own, so a tied run must lie between our optimistic and our pessimistic value. The table shows the largest difference
over the runs of a setting, and by how much a tool leaves those bounds. A tool that is not installed is left out.

``--answers`` compares the metrics of rewind.evaluation.answers query by query, on scores without ties. With ties a tool
shows one order of them, so that it is asked many times, with the names of documents drawn anew: the mean of its values
must approach ours, and their distance is shown in standard errors.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from rewind.evaluation.answers import ANSWER_METRICS, answer_values
from rewind.io.files import read_csv

CUTOFFS = (1, 5, 10)
NAMES = (*(f"R@{k}" for k in CUTOFFS), "MRR")
RANX_NAMES = {f"R@{k}": f"hit_rate@{k}" for k in CUTOFFS} | {
    "MRR": "mrr",
    "AP": "map",
    "nDCG": "ndcg",
    "nDCG@10": "ndcg@10",
}
IR_MEASURES_NAMES = {f"R@{k}": f"Success@{k}" for k in CUTOFFS} | {name: name for name in ("AP", "nDCG", "nDCG@10")}
IR_MEASURES_NAMES["MRR"] = "RR"
Tool = Callable[[Path, Path, tuple[str, ...]], pd.DataFrame]


def with_ranx(qrels: Path, run: Path, names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    """Metrics by ranx, 0 to 1: query × name."""
    from ranx import Qrels, Run, evaluate

    judged, found = Qrels.from_file(str(qrels), kind="trec"), Run.from_file(str(run), kind="trec")
    evaluate(judged, found, [RANX_NAMES[name] for name in names], make_comparable=False)
    return pd.DataFrame({name: found.scores[RANX_NAMES[name]] for name in names})


def with_ir_measures(qrels: Path, run: Path, names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    """Metrics by ir_measures, which asks trec_eval, 0 to 1: query × name."""
    import ir_measures

    measures = {str(ir_measures.parse_measure(IR_MEASURES_NAMES[name])): name for name in names}
    judged, found = ir_measures.read_trec_qrels(str(qrels)), ir_measures.read_trec_run(str(run))
    values = ir_measures.iter_calc([ir_measures.parse_measure(name) for name in measures], judged, found)
    rows = pd.DataFrame([(value.query_id, measures[str(value.measure)], value.value) for value in values])
    return rows.pivot(index=0, columns=1, values=2)[list(names)]


TOOLS: Mapping[str, Tool] = {"ranx": with_ranx, "ir_measures": with_ir_measures}


# ---- The runs of a finished study ------------------------------------------------------------------------------------


def compare(study: Path, tools: list[str]) -> pd.DataFrame:
    """One row per run, tool and metric: ours, theirs, and our bounds under ties (MRR has none)."""
    metrics = read_csv(study / "metrics.csv")
    rows = []
    for row in metrics.to_dict("records"):
        place = f"{row['setting']}_{row['direction']}"
        run = study / "trec" / f"run_{row['method']}_seed{row['seed']}_{place}.txt"
        for tool in tools:
            theirs = TOOLS[tool](study / "trec" / f"qrels_{place}.txt", run, NAMES).mean()
            for name, value in theirs.items():
                scale = 1 if name == "MRR" else 100
                bounds = [row.get(f"{name}_{end}", float("nan")) for end in ("pessimistic", "optimistic")]
                key = {k: row[k] for k in ("method", "seed", "setting", "direction")} | {"tool": tool, "metric": name}
                rows.append(key | {"ours": row[name], "theirs": scale * value, "low": bounds[0], "high": bounds[1]})
    return pd.DataFrame(rows)


def print_study(study: Path, tools: list[str]) -> None:
    """The largest differences over the runs of a study."""
    table = compare(study, tools)
    table["tied"] = table["high"] > table["low"]
    table["difference"] = (table["ours"] - table["theirs"]).abs()
    outside = pd.concat([table["low"] - table["theirs"], table["theirs"] - table["high"]], axis=1).max(axis=1)
    table["outside"] = outside.clip(lower=0).where(outside > 1e-9, 0)
    ties = table.groupby(["method", "seed", "setting", "direction"])["tied"].transform("any")
    table["runs"] = ties.map({True: "with ties", False: "without ties"})
    shown = table.groupby(["tool", "runs", "metric"], sort=False)[["difference", "outside"]].max()
    print(shown.assign(runs_compared=table.groupby(["tool", "runs", "metric"], sort=False).size()).to_string())


# ---- Several right answers -------------------------------------------------------------------------------------------

CANDIDATES, MOST_RIGHT = 500, 40  # of every query
TIED_QUERIES, TIED_CANDIDATES, TIED_LEVELS, DRAWS = 20, 30, 4, 400


def our_values(scores: np.ndarray, right: np.ndarray) -> pd.DataFrame:
    """Query × metric in percent, of scores (n, m) and right answers, bool (n, m)."""
    captions = pd.DataFrame({"caption_id": [f"q{row}" for row in range(len(scores))], "video_id": "d0"})
    items = pd.DataFrame({"item_id": [f"d{column}" for column in range(scores.shape[1])], "cluster_id": ""})
    query, document = np.nonzero(right)
    answers = pd.DataFrame(
        {"caption_id": [f"q{row}" for row in query], "item_id": [f"d{column}" for column in document]}
    )
    values = answer_values(
        scores, captions, items, answers.assign(setting="all", right=1, gallery="all"), ["text_to_item"]
    )
    return values.pivot(index="query_id", columns="metric", values="value")


def their_values(tool: str, scores: np.ndarray, right: np.ndarray, names: np.ndarray, folder: Path) -> pd.DataFrame:
    """The same by a tool that reads files, in which documents have the given names."""
    qrels, run = folder / "qrels.txt", folder / "run.txt"
    qrels.write_text("".join(f"q{row} 0 {names[column]} 1\n" for row, column in zip(*np.nonzero(right), strict=True)))
    lines = []
    for row, values in enumerate(scores):
        order = np.argsort(-values, kind="stable")  # ranx takes the lines as they come
        lines += [f"q{row} Q0 {names[d]} {rank} {values[d]:.9g} t\n" for rank, d in enumerate(order, start=1)]
    run.write_text("".join(lines))
    return 100 * TOOLS[tool](qrels, run, tuple(ANSWER_METRICS))


def print_answers(queries: int, tools: list[str]) -> None:
    """The largest difference of any query by tool and metric: without ties, and of means over orders of ties."""
    generator = np.random.default_rng(0)
    scores = np.stack([generator.permutation(CANDIDATES) for _ in range(queries)]).astype(np.float32)
    right = np.zeros(scores.shape, dtype=bool)
    for row in right:
        row[generator.choice(CANDIDATES, generator.integers(1, MOST_RIGHT + 1), replace=False)] = True
    tied = generator.integers(0, TIED_LEVELS, (TIED_QUERIES, TIED_CANDIDATES)).astype(np.float32)
    tied_right = generator.random(tied.shape) < 0.15
    tied_right[:, 0] = True
    ours, ours_tied = our_values(scores, right), our_values(tied, tied_right)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for tool in tools:
            theirs = their_values(tool, scores, right, np.array([f"d{n}" for n in range(CANDIDATES)]), folder)
            draws = []
            for _ in range(DRAWS):
                # Documents move to other columns with their names: neither the order of lines nor that of names stays.
                order = generator.permutation(TIED_CANDIDATES)
                names = np.array([f"d{n:02}" for n in generator.permutation(TIED_CANDIDATES)])
                draws.append(their_values(tool, tied[:, order], tied_right[:, order], names, folder))
            stacked = np.stack([draw.loc[ours_tied.index, ours_tied.columns].to_numpy() for draw in draws])
            error = stacked.std(axis=0, ddof=1) / np.sqrt(DRAWS)
            distance = pd.DataFrame(stacked.mean(axis=0) - ours_tied.to_numpy(), columns=ours_tied.columns).abs()
            for name in ANSWER_METRICS:
                at = ours_tied.columns.get_loc(name)
                varies = error[:, at] > 1e-9
                rows.append(
                    {
                        "tool": tool,
                        "metric": name,
                        "difference": (theirs.loc[ours.index, name] - ours[name]).abs().max(),
                        "tied_mean_difference": abs(stacked[:, :, at].mean() - ours_tied[name].mean()),
                        "tied_standard_errors": (distance[name][varies] / error[varies, at]).max(),
                    }
                )
    print(f"{queries} queries of {CANDIDATES} candidates without ties; {TIED_QUERIES} of {TIED_CANDIDATES} on ", end="")
    print(f"{TIED_LEVELS} levels of score, {DRAWS} orders of ties each; values in percent")
    print(pd.DataFrame(rows).set_index(["tool", "metric"]).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__)[0])
    parser.add_argument("study", type=Path, nargs="?", help="folder of a finished study")
    parser.add_argument("--answers", type=int, metavar="N", help="instead: N random queries with several right answers")
    options = parser.parse_args()
    tools = [name for name in TOOLS if importlib.util.find_spec(name)]
    if not tools:
        raise SystemExit("needs ranx or ir-measures installed")
    if (options.study is None) == (options.answers is None):
        parser.error("give the folder of a study, or --answers")
    if options.study and not (options.study / "trec").is_dir():
        raise SystemExit(f"needs {options.study}/trec (snakemake {options.study}/trec)")
    began = time.perf_counter()
    if options.answers:
        print_answers(options.answers, tools)
    else:
        print_study(options.study, tools)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
