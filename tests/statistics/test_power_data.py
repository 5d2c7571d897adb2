"""What is known before a run: the real queries and clusters of every setting, and what ranks say of methods."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from checkout import CHALLENGE, ROOT
from messages import expect_message
from rewind.cli.main import main
from rewind.cli.power import PowerFolders, PowerOptions, collect_known_values
from rewind.config import load_study
from rewind.data.annotations import Annotations
from rewind.data.captions import write_captions
from rewind.evaluation.ranking import rank_table
from rewind.io.files import write_csv, write_parquet, write_text
from rewind.statistics.blocks import rank_blocks
from rewind.statistics.power import (
    between_method_correlation,
    design_detectable_effect,
    query_limited_effect,
    with_seed_spread,
)
from rewind.statistics.simulation import Design, draw_ranks
from rewind.workflow.queries import cluster_sizes, query_clusters

ITEMS = pd.DataFrame(
    [
        ("a", 0, "family"), ("a_rev", 1, "family"), ("b", 0, "family"), ("b_rev", 1, "family"),
        ("c", 0, "c"), ("c_rev", 1, "c"), ("d", 0, "d"), ("e", 0, "e"), ("e_rev", 1, "e"),
    ],
    columns=["item_id", "reversed", "cluster_id"],
).assign(split="test", source="x")  # fmt: skip
ASKED = {"a": 3, "a_rev": 2, "b": 1, "b_rev": 1, "c": 2, "d": 1, "e": 1, "e_rev": 1}  # c_rev has no caption
CAPTIONS = pd.DataFrame(
    [(item, f"{item} {n}", f"{item}#{n}", "test") for item, count in ASKED.items() for n in range(count)],
    columns=["video_id", "caption", "caption_id", "split"],
)


@pytest.mark.parametrize("setting", ["origin", "hard", "binary", "test"])
@pytest.mark.parametrize("direction", ["text_to_item", "item_to_text"])
def test_queries_and_clusters_are_those_that_are_ranked(setting, direction):
    scores = np.zeros((len(CAPTIONS), len(ITEMS)))
    ranked = rank_table(scores, CAPTIONS, ITEMS, [setting], [direction])
    sizes = cluster_sizes(ITEMS, CAPTIONS, setting, direction)
    assert Counter(sizes.tolist()) == Counter(ranked["cluster_id"].value_counts().tolist())
    assert sizes.sum() == len(ranked) and max(sizes) > 1


def sizes_of(dataset, setting, folder, direction="text_to_item"):
    return query_clusters(dataset, setting, direction, folder / "config/datasets", Path("results"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, keys in {
        "csv": {"source": {"format": "table", "table": "t.csv", "videos": "clips"}},
        "shapes": {"source": {"format": "shapes", "clips": {"train": 4, "valid": 2, "test": 7}}},
        "emoji": {"source": {"format": "emoji", "seed": 1}, "reverse": False},
        "own": {"source": {"format": "nowhere.to_be_found"}},
        "challenge": {
            "source": {
                **{"format": "embeddings", "train": str(CHALLENGE / "train.npz")},
                **{"captions": str(CHALLENGE / "captions.txt"), "valid_share": 0.25, "test_share": 0.25},
            }
        },
    }.items():
        write_text(tmp_path / f"config/datasets/{name}.yaml", json.dumps(keys))  # JSON is YAML
    return tmp_path


@pytest.mark.slow
def test_a_fresh_process_counts_the_demo_without_a_clip(tmp_path):
    """120 queries of clips that do not exist yet; Hard asks the twins' captions too, in the same clusters."""
    for setting, queries, size in (("binary", 120, "1 "), ("hard", 240, "2 ")):
        command = [
            sys.executable,
            "-m",
            "rewind",
            "power",
            str(ROOT / "config/studies/demo.yaml"),
            "--setting",
            setting,
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"demo, {setting}, 5 seeds, {queries} queries: " in done.stdout
        assert f"cluster size  {size}          120 clusters" in done.stdout
        expect_message(
            "\n".join(line for line in done.stdout.splitlines() if line.startswith(("  queries ", "  cluster ")))
        )
    assert not list(tmp_path.iterdir()), "nothing is made"


def test_annotations_are_enough(folder):
    absent = query_clusters("csv", "test", "text_to_item", folder / "config/datasets", Path("results"))
    assert absent.sizes is None
    expect_message(absent.source)
    lines = ["a,a.mp4,test,one,k", "a,a.mp4,test,two,k", "b,b.mp4,test,three,k", "c,c.mp4,test,four,m"]
    lines += ["d,d.mp4,train,five,n", "e,e.mp4,valid,six,o"]
    write_text(folder / "t.csv", "\n".join(["item_id,path,split,caption,cluster_id", *lines]) + "\n")
    assert sorted(sizes_of("csv", "test", folder).sizes) == [1, 3], "no folder of clips is needed"
    assert sorted(sizes_of("csv", "test", folder, "item_to_text").sizes) == [1, 2]
    assert sizes_of("shapes", "binary", folder).sizes.tolist() == [1] * 7
    assert sizes_of("shapes", "hard", folder).sizes.tolist() == [2] * 7
    vectors = sizes_of("challenge", "test", folder).sizes
    targets = np.repeat(np.arange(12), [4, 2, 5, 4, 3, 3, 5, 6, 1, 3, 2, 2])
    assert len(vectors) == 3 and set(vectors) <= set(np.bincount(targets)), "an image with all its captions"


def test_what_cannot_be_counted_is_assumed_aloud(folder):
    for name in ("emoji", "own", "none"):
        found = sizes_of(name, "test", folder)
        assert found.sizes is None
        expect_message(found.source)
    write_text(folder / "config/studies/mini.yaml", "{dataset: emoji, methods: {a: {head: meanP}}}")
    known = collect_known_values(load_study("mini", folder / "config/studies"), "test", PowerOptions(), PowerFolders())
    assert known["queries"].value == 1000 and known["queries"].source.startswith("ASSUMED: ")


def test_made_sources_are_read_where_they_are(folder):
    made = folder / "results/data/emoji/source"
    names = [f"1f{n:03}" for n in range(40)]
    table = pd.DataFrame(
        {"item_id": names, "label": names, "tags": "", "subject": [n[:-1] + "ab"[int(n[-1]) % 2] for n in names]}
    )
    write_csv(made / "emoji.csv", table.assign(package="p", frames=3, seconds=1.0))
    write_csv(made / "skipped.csv", pd.DataFrame(columns=["package", "file", "reason"]))
    assert sizes_of("emoji", "test", folder).sizes is None, "it may be broken off"
    write_text(made / "ready.json", "{}")
    assert sizes_of("emoji", "test", folder).sizes.tolist() == [5] * 4, "half of the eight subjects, each a cluster"


def test_a_prepared_data_set_goes_before_its_annotations(folder):
    items = ITEMS.assign(source=ITEMS["item_id"])
    report = pd.DataFrame({"item_id": ["a", "b", "c", "d", "e"], "status": "ok", "reason": ""})
    report.loc[report["item_id"] == "e", "status"] = "missing"
    write_captions(Annotations(items, CAPTIONS), report, folder / "results/data/shapes", "shapes")
    found = sizes_of("shapes", "hard", folder)
    assert sorted(found.sizes) == [1, 2, 7]
    expect_message(found.source)


def simulated(design, draw=3):
    """Rank tables of one study of the design, by method and seed."""
    ranks = draw_ranks(design, 1, np.random.default_rng(draw))[0]
    common = {"query_id": [f"q{at:06}" for at in range(design.queries)], "setting": "test", "ties": 0}
    common |= {"cluster_id": np.repeat(np.arange(design.clusters), design.cluster).astype(str), "gallery": 1000}
    common["direction"] = "text_to_item"
    return {
        f"m{method}": {seed: pd.DataFrame(common | {"rank": one, "higher": one - 1}) for seed, one in enumerate(runs)}
        for method, runs in enumerate(ranks)
    }


@pytest.mark.parametrize(("alike", "disagreement", "cluster"), [(0.9, 10, 1), (0.6, 10, 2), (0.75, 20, 4)])
def test_ranks_tell_how_alike_methods_and_seeds_are(alike, disagreement, cluster):
    design = Design(seeds=4, queries=24_000, cluster=cluster, alike=alike, disagreement=disagreement, seed_sd=0.3)
    found = between_method_correlation(next(rank_blocks(simulated(design))), cluster)
    assert found.disagreement == pytest.approx(disagreement, rel=0.05)
    assert len(found.alike) == 3 and list(found.alike) == sorted(found.alike)
    assert found.alike == pytest.approx([alike] * 3, abs=0.04)


def test_one_seed_tells_of_no_likeness():
    assert between_method_correlation(next(rank_blocks(simulated(Design(seeds=1, seed_sd=0)))), 2) is None


def study_with_ranks(folder, design, draw=3):
    """Results of one simulated study, where commands look for them."""
    methods = ", ".join(f"m{n}: {{head: meanP}}" for n in range(design.methods))
    keys = f"{{dataset: shapes, methods: {{{methods}}}, evaluation: {{settings: [test]}}}}"
    write_text(folder / "config/studies/mini.yaml", keys)
    metrics = []
    for method, runs in simulated(design, draw).items():
        for seed, table in runs.items():
            write_parquet(folder / f"results/mini/ranks/{method}/seed{seed}.parquet", table)
            place = {"method": method, "seed": seed, "setting": "test", "direction": "text_to_item"}
            metrics.append(place | {"queries": design.queries, "R@1": 100 * (table["rank"] <= 1).mean()})
    write_csv(folder / "results/mini/metrics.csv", pd.DataFrame(metrics))
    return load_study("mini", folder / "config/studies")


def test_the_command_reads_the_ranks(folder):
    study = study_with_ranks(folder, Design(seeds=3, queries=3000, cluster=3, methods=2, alike=0.85))
    known = collect_known_values(study, "test", PowerOptions(), PowerFolders())
    assert known["cluster size"].value == 3 and known["cluster size"].source.startswith("1,000 clusters in")
    assert known["disagreement"].value == pytest.approx(10, abs=1)
    assert known["alike"].value == pytest.approx(0.85, abs=0.08) and known["alike"].source.startswith("1 pair of")
    assert known["alike"].low == known["alike"].high, "measured, so no range is assumed"


def range_of(text):
    """``8.4–11.6``, ``8.4`` or ``8.4 or more`` → both ends."""
    ends = [float(end) for end in text.replace(" or more", "–inf").split("–")]
    return ends[0], ends[-1]


# Methods that hardly differ: of some pairs the queries' part of the difference is estimated as 0.
SIMILAR = Design(seeds=3, queries=120, cluster=1, methods=4, alike=0.98, r1=60)


def test_the_command_does_not_contradict_itself(folder, capsys):
    """“It stays above” is over the pairs that "detected" is over, and is never above what some seeds detect."""
    study_with_ranks(folder, SIMILAR, draw=7)
    assert main(["power", "mini"]) == 0
    text = capsys.readouterr().out
    assert range_of(text.split("  alike ")[1].split()[0])[1] == 1.0, "the case in question"
    limit = range_of(text.split("it stays above ")[1].split(" points")[0])
    rows = [
        re.split(r"\s{2,}", line.strip())
        for line in text.split("seeds     ±")[1].splitlines()[1:]
        if line[:7].strip().isdigit()
    ]
    detected = [range_of(row[2]) for row in rows if row[0] != "1"]
    assert len(detected) == 3
    for _, high in detected:
        assert limit[1] <= high
    assert limit[1] > 0.0 and "nan" not in text
    assert "no limit is known" in text, "of the pairs that are most alike"


@pytest.mark.slow
@pytest.mark.parametrize("queries", [4, 30, 120])
def test_the_limit_of_the_queries_is_never_above_what_seeds_detect(queries):
    """For every pair of simulated studies, as the command would read it from their ranks."""
    unbounded, pairs = 0, 0
    for draw in range(6):
        found = between_method_correlation(next(rank_blocks(simulated(replace(SIMILAR, queries=queries), draw))), 1)
        for alike in found.alike:
            for spread in (0.5, 4.0):
                case = Design(queries=queries, cluster=1, r1=60, alike=alike).disagreeing_by(found.disagreement)
                case = with_seed_spread(case, spread)
                limit = query_limited_effect(case)
                detected = [design_detectable_effect(replace(case, seeds=seeds)) for seeds in (2, 3, 5, 10, 50)]
                assert all(limit <= points * (1 + 1e-3) for points in detected), (limit, detected)
                pairs, unbounded = pairs + 1, unbounded + (limit == 0)
    assert 0 < unbounded < pairs, "both kinds were there"
