"""The functions for notebooks: numbers of the workflow, and refusals that name the argument."""

from __future__ import annotations

import importlib
import itertools
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from brought_files import COUNT, caption_ids, item_ids, write_captions
from checkout import ROOT
from messages import expect_message, refusal
from rewind.api import compare, metrics, ranks, results, table
from rewind.cli.new import make_working_folder
from rewind.config.report import Statistics
from rewind.data.captions import load_split
from rewind.errors import RewindError
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.registry import HEADS, LOSSES, SAMPLERS
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.pairs import RandomFactors

IDS = [f"v{number}" for number in range(40)]
ITEMS = pd.DataFrame({"item_id": IDS, "cluster_id": [f"film{number // 2}" for number in range(40)], "reversed": 0})
CAPTIONS = pd.DataFrame({"caption_id": [f"{name}#{k}" for name in IDS for k in (0, 1)], "video_id": np.repeat(IDS, 2)})
TRUTH = np.repeat(np.arange(40), 2)


def matrix(seed: int, strength: float) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(80, 40)).round(1)  # rounded, so that there are ties
    return strength * np.eye(40)[TRUTH] + noise


def workflow(scores: np.ndarray) -> pd.DataFrame:
    return rank_table(scores, CAPTIONS, ITEMS, ["test"], ["text_to_item"])


def test_numbers_are_the_workflows_to_the_last_bit():
    scores = {"mine": [matrix(0, 2.0), matrix(1, 2.0)], "theirs": [matrix(2, 1.5)], "third": [matrix(3, 1.0)] * 2}
    runs = {name: {seed: workflow(one) for seed, one in enumerate(given)} for name, given in scores.items()}
    pairs = [("mine", "theirs"), ("mine", "third"), ("theirs", "third")]
    random = RandomFactors(fixed=frozenset({"theirs"}), paired=frozenset({"mine", "third"}))
    wanted = compare_methods(runs, pairs, Statistics(resamples=500), random, list(runs))
    ours = {
        name: [ranks(one, TRUTH, ITEMS["cluster_id"].to_numpy(), CAPTIONS["caption_id"]) for one in given]
        for name, given in scores.items()
    }
    assert metrics(ours["mine"][1]) == compute_metrics(runs["mine"][1])
    given = {"mine": ours["mine"], "theirs": ours["theirs"][0], "third": ours["third"]}
    found = compare(given, resamples=500, seeds_are_paired=["mine", "third"])
    for name in ("intervals", "pairs", "ranks"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(wanted, name), check_exact=True)


def test_without_names_query_i_belongs_to_item_i_and_clusters_are_items():
    found = ranks(np.eye(3))
    assert found["query_id"].tolist() == ["0", "1", "2"] and found["cluster_id"].tolist() == [0, 1, 2]
    assert metrics(found)["R@1"] == 100.0


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"scores": np.zeros(3)}, "scores"),
        ({"scores": np.zeros((2, 2)), "truth": [0]}, "truth"),
        ({"scores": np.zeros((2, 2)), "truth": [0, 2]}, "truth"),
        ({"scores": np.zeros((2, 2)), "clusters": ["a"]}, "clusters"),
        ({"scores": np.zeros((2, 2)), "queries": ["a", "a"]}, "scores"),
        ({"scores": np.full((2, 2), np.nan)}, "scores"),
        ({"scores": np.zeros((3, 2))}, "truth"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(given, place):
    with refusal(place):
        ranks(**given)


SCORES = np.eye(3)
RANKED = ranks(np.eye(3))
ODD_INDEX = pd.Series([0, 1, 2], index=[7, 7, -1])
HOSTILE_RANKS: dict[str, dict] = {
    "ragged": {"scores": [[1, 2], [3]]},
    "text": {"scores": [["0.5", "1"], ["1", "0"]]},
    "dates": {"scores": np.array([["2024-01-01"]], "M8[D]")},
    "complex": {"scores": np.eye(2) * 1j},
    "bools": {"scores": np.eye(2, dtype=bool)},
    "objects": {"scores": np.array([[1, None], [0, 1]], dtype=object)},
    "nothing": {"scores": None},
    "no queries": {"scores": np.zeros((0, 3))},
    "no items": {"scores": np.zeros((3, 0))},
    "a number": {"scores": np.float64(0.5)},
    "infinity": {"scores": [[1, 2], [3, -np.inf]]},
    "masked": {"scores": np.ma.masked_greater(np.eye(2), 0.5)},
    "negative truth": {"truth": [0, -1, 2]},
    "truth of floats": {"truth": [0.0, 1.0, 2.0]},
    "truth of bools": {"truth": [True, False, True]},
    "truth of rows": {"truth": [[0], [1], [2]]},
    "truth of none": {"truth": []},
    "truth of text": {"truth": "012"},
    "truth with NaN": {"truth": [0, np.nan, 2]},
    "truth masked": {"truth": np.ma.masked_equal([0, 1, 2], 1)},
    "clusters with NaN": {"clusters": [np.nan, np.nan, 1.0]},
    "clusters with None": {"clusters": ["a", None, None]},
    "clusters with NA": {"clusters": pd.array([1, None, 2], dtype="Int64")},
    "clusters without a name": {"clusters": ["a", "", " "]},
    "clusters of types": {"clusters": ["1", 1, "a"]},
    "clusters of rows": {"clusters": [[0, 1], [0, 1], [2, 3]]},
    "clusters as one text": {"clusters": "aab"},
    "clusters of bools": {"clusters": [True, True, False]},
    "a cluster": {"clusters": 7},
    "queries as one text": {"queries": "abc"},
    "queries missing": {"queries": ["a", None, "c"]},
    "queries of another number": {"queries": ["a"]},
    "twins of rows": {"twins": [[-1], [0], [-1]]},
    "twins of floats": {"twins": [-1.0, 0.0, -1.0]},
    "twins of themselves": {"twins": [0, -1, -1]},
    "direction as text": {"directions": "text_to_item"},
    "direction twice": {"directions": ["text_to_item", "text_to_item"]},
    "direction unknown": {"directions": ["up"]},
    "no direction": {"directions": []},
    "direction of no type": {"directions": None},
}


@pytest.mark.parametrize("case", HOSTILE_RANKS)
def test_ranks_refuses_what_cannot_be_meant(case):
    with refusal(next(iter(HOSTILE_RANKS[case]))):
        ranks(**({"scores": SCORES} | HOSTILE_RANKS[case]))


def test_a_tensor_with_a_gradient_is_refused_and_one_without_is_an_array():
    torch = pytest.importorskip("torch")
    with refusal("scores"):
        ranks(torch.eye(3, requires_grad=True))
    pd.testing.assert_frame_equal(ranks(torch.eye(3)), RANKED)


def test_what_numpy_and_pandas_give_is_read_by_position():
    for truth in (ODD_INDEX, np.array([0, 1, 2], np.uint8), (0, 1, 2), range(3)):
        pd.testing.assert_frame_equal(ranks(pd.DataFrame(SCORES), truth), RANKED)
    for clusters in (ODD_INDEX.astype(str), ["b", "b", "a"], [2.5, 2.5, 1], pd.Categorical(["y", "y", "x"])):
        assert ranks(SCORES, clusters=clusters)["cluster_id"].nunique() == len({*map(str, clusters)})
    same, other = ranks(SCORES, clusters=["a", "a\0", "b"]), ranks(SCORES, clusters=["1", "01", "b"])
    assert same["cluster_id"].nunique() == other["cluster_id"].nunique() == 3, "no label is cut or read as a number"


HOSTILE_METRICS = {
    "a matrix": SCORES,
    "no rows": RANKED.iloc[:0],
    "no column": RANKED.drop(columns="ties"),
    "a column twice": pd.concat([RANKED, RANKED[["rank"]]], axis=1),
    "half a rival": RANKED.assign(higher=[0.5, 0, 0]),
    "negative": RANKED.assign(ties=[0, -1, 0]),
    "text": RANKED.assign(higher=["0", "x", "0"]),
    "NaN": RANKED.assign(rank=[1, np.nan, 1]),
    "no gallery": RANKED.assign(gallery=0),
    "no setting": RANKED.assign(setting=["test", None, "test"]),
    "no cluster": RANKED.assign(cluster_id=[0, np.nan, 1]),
    "a query twice": RANKED.assign(query_id=["0", "0", "1"]),
}


@pytest.mark.parametrize("case", HOSTILE_METRICS)
def test_metrics_and_compare_refuse_what_are_no_ranks(case):
    for call in (metrics, lambda ranked: compare({"a": RANKED, "b": [ranked]})):
        with pytest.raises(RewindError) as caught:
            call(HOSTILE_METRICS[case])
        expect_message(str(caught.value))


TWO = {"a": [ranks(np.eye(3)), ranks(np.eye(3))], "b": [ranks(np.eye(3)), ranks(np.eye(3))], "c": ranks(np.eye(3))}
ODD_NAMES = ("", " ", "a\x1b[2J", "a\nb", "=1+1", "x" * 300)
HOSTILE_COMPARE: dict[str, dict] = {
    "a pair as text": {"pairs": ["ab"]},
    "pairs as text": {"pairs": "ab"},
    "one pair": {"pairs": ("a", "b")},
    "a pair of three": {"pairs": [("a", "b", "c")]},
    "a pair with itself": {"pairs": [("a", "a")]},
    "a pair twice": {"pairs": [("a", "b"), ("a", "b")]},
    "a pair the other way": {"pairs": [("a", "b"), ("b", "a")]},
    "a pair of nothing": {"pairs": [("a", None)]},
    "paired as text": {"seeds_are_paired": "ab"},
    "paired as a word": {"seeds_are_paired": "a"},
    "paired misspelt": {"seeds_are_paired": ["a", "B"]},
    "paired without seeds": {"seeds_are_paired": ["a", "c"]},
    "paired true": {"seeds_are_paired": True},
    "confidence NaN": {"confidence": float("nan")},
    "confidence in percent": {"confidence": 95},
    "confidence of one": {"confidence": True},
    "no resamples": {"resamples": 0},
    "a seed between": {"seed": 0.5},
    "a seed below": {"seed": -1},
    "primary": {"primary": ["R@1"]},
    "items": {"items": "clips"},
    "no methods": {"methods": {}},
    "methods in a list": {"methods": [RANKED, RANKED]},
    "a method that is none": {"methods": {"a": None}},
    "a file of ranks": {"methods": {"a": "ranks.parquet"}},
    "one run as two seeds": {"methods": {"a": [RANKED, RANKED]}},
    "a name of no type": {"methods": {1: RANKED}},
    **{f"name {name[:9]!r}": {"methods": {name: RANKED}} for name in ODD_NAMES},
    "names that look the same": {"methods": {"a": RANKED, "a ": RANKED}},
}


@pytest.mark.parametrize("case", HOSTILE_COMPARE)
def test_compare_refuses_what_cannot_be_meant(case):
    with pytest.raises(RewindError) as caught:
        compare(**({"methods": TWO, "resamples": 100} | HOSTILE_COMPARE[case]))
    assert next(iter(HOSTILE_COMPARE[case])) in caught.value.place
    expect_message(str(caught.value))


HOSTILE_TABLE: dict[str, dict] = {
    **{f"label {str(text)[:9]!r}": {"labels": {"a": text}} for text in (*ODD_NAMES, "b", None, 3)},
    "labels in a list": {"labels": ["A", "B"]},
    "train": {"train": {"a": "MSR\nVTT"}},
    "title": {"title": "=cmd()"},
    "columns as text": {"columns": "R@1"},
    "no columns": {"columns": []},
    "format of no type": {"format": ["text"]},
    "no results": {"results": RANKED},
}


@pytest.mark.parametrize("case", HOSTILE_TABLE)
def test_table_refuses_what_cannot_be_meant(case):
    with pytest.raises(RewindError) as caught:
        table(**({"results": compare(TWO, resamples=100)} | HOSTILE_TABLE[case]))
    assert next(iter(HOSTILE_TABLE[case])) in caught.value.place
    expect_message(str(caught.value))


def test_methods_of_other_queries_and_without_runs_are_refused():
    with refusal():
        compare({"a": ranks(np.eye(3)), "b": ranks(np.eye(4))})
    with refusal("methods"):
        compare({"a": []})
    with refusal("statistics.pairs"):
        compare({"a": ranks(np.eye(3)), "b": ranks(np.eye(3))}, pairs=[("a", "c")])


TWINS = [-1] * 20 + list(range(20))


def test_with_twins_origin_hard_and_binary_are_the_workflows():
    items = [f"v{number}" for number in range(20)] + [f"v{number}_rev" for number in range(20)]
    gallery = pd.DataFrame({"item_id": items, "cluster_id": [*range(20), *range(20)], "reversed": [0] * 20 + [1] * 20})
    captions = pd.DataFrame({"caption_id": list(map(str, range(40))), "video_id": items})
    scores = 2.0 * np.eye(40) + np.random.default_rng(5).normal(size=(40, 40)).round(1)
    settings, directions = ["origin", "hard", "binary"], ["text_to_item", "item_to_text"]
    wanted = rank_table(scores, captions, gallery, settings, directions)
    found = ranks(scores, twins=TWINS, directions=directions)
    # From item to text a query is an item, which has no name of its user's here.
    by_text = wanted["direction"] == "text_to_item"
    pd.testing.assert_frame_equal(found[by_text], wanted[by_text])
    pd.testing.assert_frame_equal(found.drop(columns="query_id"), wanted.drop(columns="query_id"))
    part = wanted[(wanted["setting"] == "hard") & (wanted["direction"] == "item_to_text")]
    assert metrics(found, "hard", "item_to_text") == compute_metrics(part)


def comparison():
    generator = np.random.default_rng(1)

    def run(strength):
        return ranks(strength * np.eye(40) + generator.normal(size=(40, 40)), twins=TWINS)

    return compare({"mine": [run(3) for _ in range(3)], "theirs": [run(1) for _ in range(3)]}, resamples=200)


def test_a_table_has_its_numbers_in_every_format():
    results = comparison()
    mine = results.intervals.set_index(["method", "setting", "metric"]).loc[("mine", "hard", "R@1"), "estimate"]
    for name in ("text", "markdown", "latex", "html", "csv", "json"):
        made = table(results, name, setting="hard", labels={"theirs": "Their model"})
        plain = made.replace("</strong>", "").replace("}", "").replace("& \\textbf{.", ".").replace(" ", "")
        assert f"{mine:.1f}" in plain or (name in ("csv", "json") and str(mine) in made), name
        assert made.index("Their model") < made.index("mine") and "Train" not in made, name
    shown = table(results, setting="hard", train={"mine": "MSR-VTT"}, columns=["MdR", "Rank"])
    assert "MSR-VTT" in shown and "Rank" in shown and "R@1 ↑" not in shown
    for kind in ("pairs", "gap", "seeds"):
        assert "mine" in table(results, kind=kind, setting="" if kind == "gap" else "origin")
    assert all(title in repr(results) for title in ("Origin", "Hard", "Binary"))
    assert results._repr_html_().count("<table") == 3


def test_letters_follow_holms_p():
    results = comparison()
    row = results.pairs.set_index(["setting", "metric"]).loc[("hard", "R@1")]
    cell = table(results, "latex", setting="hard").partition("mine\\textsuperscript{a}")[2].partition("\\\\")[0]
    assert row["p_holm"] < 0.05 and "\\textsuperscript{b}" in cell and "\\textbf" in cell


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"format": "word"}, "format"),
        ({"kind": "verdict"}, "kind"),
        ({}, "setting"),
        ({"setting": "test"}, "setting"),
        ({"setting": "hard", "labels": {"ours": "Ours"}}, "labels"),
        ({"setting": "hard", "columns": ["R@2"]}, "table.columns: column 'R@2'"),
    ],
)
def test_a_table_that_cannot_be_is_refused(given, place):
    with refusal(place):
        table(comparison(), **given)


@pytest.mark.parametrize("twins", [[0], [-1, 0, 3], [-1, 0, 1], [-1, 0, 0]])
def test_twins_that_are_none_are_refused(twins):
    with refusal("twins"):
        ranks(np.eye(3), twins=twins)


def test_refusals_of_compare_name_the_argument():
    with refusal("compare.primary"):
        compare({"a": ranks(np.eye(3))}, primary="R@2")
    with refusal("setting"):
        metrics(ranks(np.eye(2), twins=[-1, 0]))


@pytest.mark.parametrize("registry", [LOSSES, HEADS, SAMPLERS], ids=lambda registry: registry.kind)
def test_components_are_importable_by_plain_names(registry):
    package = importlib.import_module(registry.package)
    classes = {registry.find(name).__name__ for name in registry.names()}
    # A further one goes into __all__ of its package, and among the imports for type checkers there.
    assert {name for name in package.__all__ if name[0].isupper()} == classes
    imported = Path(package.__file__).read_text().partition("if TYPE_CHECKING:")[2].partition("__all__")[0]
    for name in classes:
        assert isinstance(getattr(package, name), type) and re.search(rf"import .*\b{name}\b", imported)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = package.Nothing


@pytest.mark.slow
def test_the_package_imports_nothing_by_itself_and_its_functions_are_no_modules():
    code = (
        "import sys, rewind\n"
        "assert not {'pandas', 'jinja2', 'rewind.api'} & sys.modules.keys()\n"
        "import rewind.cli.power, rewind.report.study\n"
        "assert all(callable(getattr(rewind, name)) for name in rewind.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.workflow
def test_evaluate_returns_the_workflows_numbers_and_they_are_those_of_the_other_functions(tmp_path):
    make_working_folder(tmp_path)
    write_captions(tmp_path / "doors.csv")
    scores = np.random.default_rng(3).normal(size=(2 * COUNT, 2 * COUNT)).round(1) + np.eye(2 * COUNT)
    np.savez(tmp_path / "mine.npz", similarity=scores, query_ids=caption_ids(), item_ids=item_ids())
    code = (
        "import pickle, rewind\n"
        "results = rewind.evaluate('doors.csv', scores='mine.npz', labels=['Mine'], cores=2)\n"
        "print('TABLE', rewind.table(results, 'markdown', setting='hard', title='doors'))\n"
        "pickle.dump((results.metrics, results.intervals), open('numbers.pickle', 'wb'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.partition("TABLE ")[2]
    written = (tmp_path / "results/doors/tables/table_B_hard.md").read_text()
    (shown,), (wanted_row,) = (re.findall(r"^\| Mine.*", text, re.MULTILINE) for text in (printed, written))
    # The workflow's table has a column of training data too.
    assert [cell.strip() for cell in shown.split("|")[2:]] == [cell.strip() for cell in wanted_row.split("|")[3:]]
    found_metrics, found_intervals = pickle.loads((tmp_path / "numbers.pickle").read_bytes())
    # In the order of the prepared data: sums in another order differ in their last bit.
    queries = load_split(tmp_path / "results/data/doors", "doors", "test").captions["caption_id"].tolist()
    items = [query.removesuffix("#0") for query in queries]
    twins = [items.index(item.removesuffix("_rev")) if item.endswith("_rev") else -1 for item in items]
    order, directions = [caption_ids().index(query) for query in queries], ["text_to_item", "item_to_text"]
    clusters = [item.removesuffix("_rev") for item in items]
    ours = ranks(scores[np.ix_(order, order)], None, clusters, queries, twins, directions)
    compared = compare({"Mine": ours})
    of_mine = found_metrics[found_metrics["method"] == "Mine"].set_index(["setting", "direction"])
    for setting, direction in itertools.product(["origin", "hard", "binary"], directions):
        found = metrics(ours, setting, direction)
        assert of_mine.loc[(setting, direction), list(found)].to_dict() == found
    wanted = found_intervals[found_intervals["method"] == "Mine"].reset_index(drop=True)
    pd.testing.assert_frame_equal(compared.intervals[list(wanted.columns)], wanted, check_exact=True)


@pytest.mark.slow
def test_the_page_runs_as_it_stands_and_imports_no_torch(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python-api.md").read_text(), re.DOTALL)
    notebook, twins, components, ours, _ = blocks  # the last one is ranx, which is not installed here
    for name in ("mine0", "mine1", "mine2", "theirs"):
        np.save(tmp_path / f"{name}.npy", np.eye(30))
    code = f"{notebook}\n{twins}\n{ours}\nimport sys\nassert 'torch' not in sys.modules\n{components}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"[+−-]\d+\.\d \[.*\], Holm's p \d\.\d{3}", done.stdout)
    assert done.stdout.count(r"\begin{tabular}") == 2 and "Table Binary" in done.stdout


def test_scores_are_compared_in_the_precision_that_they_have():
    close = np.full((20, 20), 0.5) + 1e-9 * np.eye(20)
    assert metrics(ranks(close))["R@1"] == 100
    assert metrics(ranks(close.astype(np.float32)))["R@1"] == pytest.approx(5)
    assert metrics(ranks(np.eye(20, dtype=int)))["R@1"] == 100


def test_a_warning_says_where_rounding_may_decide_between_a_clip_and_its_twin():
    scores = np.tile(np.random.default_rng(0).normal(size=(20, 10)), (1, 2))
    twins = [-1] * 10 + list(range(10))
    ranks(scores, twins=twins)
    with pytest.warns(UserWarning, match="binary: for 100% of queries"):
        ranks(scores * (1 + 1e-15 * np.arange(20)), twins=twins)


def test_results_of_a_study_that_is_not_there_are_refused_by_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refusal("config/studies/nowhere.yaml"):
        results("nowhere")
