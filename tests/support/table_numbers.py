"""Made-up numbers of a study, as the tables read them."""

import dataclasses

import pandas as pd

from rewind.tables.results import Results

METRICS = ("R@1", "R@5", "R@10", "MdR", "MnR", "MRR")
WAYS = ("text_to_item", "item_to_text")
FACTS = {
    "settings": {
        "hard": {"queries": 2000, "items": 2000, "clusters": 1000},
        "binary": {"queries": 1000, "items": 2000, "clusters": 1000},
    },
    "backbone": "CLIP ViT-B/32",
    "max_frames": 12,
    "frames_chosen": "on validation from 12, 16 and 24",
    "decoding": {"fps": 3.0, "short_side": 224, "sampling": "uniform", "decoders": {"ffmpeg": "7.1"}},
    "hardware": {"4 × NVIDIA H100": 12},
    "seeds": {"meanP": [0, 1], "seqLSTM": [0, 1]},
    "procedures": {"t over seeds and queries": ["meanP", "seqLSTM", "seqTransf"]},
    "bootstrap": "percentile bootstrap over queries, these checkpoints",
    "family": 3,
    "coverage": "all 2,000 videos usable",
    "notes": ["first note", "second note"],
}


def metrics(values, setting="hard", queries=2000, gallery=2000):
    """values: method → per-seed R@1; every other metric follows from it."""
    rows = []
    for method, seeds in values.items():
        for seed, r1 in enumerate(seeds):
            for way in WAYS:
                row = {"method": method, "seed": seed, "setting": setting, "direction": way}
                row |= {"queries": queries, "gallery": gallery, "R@1": r1, "R@5": r1 + 10, "R@10": r1 + 20}
                row |= {"MdR": 30 - r1 / 4, "MnR": 120 - r1, "MRR": r1 / 100, "R@1_pessimistic": r1 / 2}
                rows.append(row)
    return pd.DataFrame(rows)


def intervals(table):
    rows = []
    for (method, setting, way), group in table.groupby(["method", "setting", "direction"], sort=False):
        for metric in METRICS:
            mean = group[metric].mean()
            row = {"method": method, "setting": setting, "direction": way, "metric": metric, "estimate": mean}
            rows.append(row | {"low": mean - 3.25, "high": mean + 4.5, "procedure": "t over seeds and queries"})
    return pd.DataFrame(rows)


def pairs(table, p_holm, clusters=1000):
    """p_holm: (first, second) → p, the same for every metric but MdR, which is not tested."""
    means = table.groupby(["method", "direction"])[list(METRICS)].mean()
    rows = [
        {"first": a, "second": b, "setting": table["setting"].iloc[0], "direction": way, "metric": metric}
        | _ends("difference", means.loc[(a, way), metric] - means.loc[(b, way), metric])
        | {"p": p / 3, "p_holm": p, "family": len(p_holm), "effect": 0.125}
        | {"clusters": clusters, "detectable": 4.5}
        for (a, b), p in p_holm.items()
        for way in WAYS
        for metric in METRICS
        if metric != "MdR"
    ]
    return pd.DataFrame(rows)


def chance(table, p_holm):
    """p_holm: method → p of its accuracy against chance; who is absent is not tested."""
    rows = intervals(table)
    rows = rows[rows["metric"] == "R@1"].reset_index(drop=True).assign(chance=50.0, tied=0.0, seeds=2, clusters=1000)
    p = rows["method"].map(p_holm)
    return rows.assign(p=p / 3, p_holm=p, family=p.notna() * len(p_holm))


def gaps(table):
    """Every method loses a tenth of its R@1 to twins, and ranks one place lower."""
    rows = []
    for (method, way), group in table.groupby(["method", "direction"], sort=False):
        for metric, gap in (("R@1", group["R@1"].mean() / 10), ("R@5", 0.0), ("R@10", 1.5), ("MRR", 0.01), ("MnR", -1)):
            rows.append({"method": method, "direction": way, "metric": metric, "queries": 1000} | _ends("gap", gap))
    return pd.DataFrame(rows)


def _ends(name, value):
    ends = {"low": value - 2, "high": value + 3, "procedure": "t over seeds and queries"}
    return {name: value, **ends, "boot_low": value - 1, "boot_high": value + 1}


VALUES = {"chance": [0.05], "meanP": [20.0, 22.0], "seqLSTM": [30.0, 30.5], "seqTransf": [40.0, 41.0]}
TESTS = {("meanP", "seqLSTM"): 0.2, ("meanP", "seqTransf"): 0.001, ("seqTransf", "seqLSTM"): 0.01}


def results(values=VALUES, tests=TESTS, setting="hard", with_gaps=False, **changes):
    table = metrics(values, setting)
    changes |= {"gaps": gaps(table)} if with_gaps else {}
    made = Results(
        table,
        intervals(table),
        pairs(table, tests),
        {m: m for m in values},
        {m: "RTime" for m in values},
        ("chance",),
    )
    return dataclasses.replace(made, **changes)
