"""Groups of captions: where they come from, and what is said of each."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from checkout import ROOT
from messages import expect_message, refusal
from rewind.analyses.groups import group_of_queries, results_by_group
from rewind.cli.rehearse import shrink
from rewind.cli.rehearse.weights import RehearsedTowers
from rewind.config import Dataset, load_dataset
from rewind.data.annotations import read_annotations
from rewind.data.dummy import SplitSizes
from rewind.data.formats import rtime, shapes, table
from rewind.data.groups import dataset_has_groups, read_groups
from rewind.errors import ConfigErrors
from rewind.figures.groups import MAX_GROUPS, group_intervals
from rewind.io.cache import JsonCache
from rewind.io.files import read_json, read_spreadsheet, write_json
from rewind.report.tables import build_tables
from rewind.statistics.bounds import wilson_interval, wilson_statistic
from rewind.statistics.chance import MIN_TESTED_CLUSTERS
from rewind.statistics.pairs import RandomFactors
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import write_table
from rewind.tables.results import BELOW_CHANCE
from rewind.tables.spec import TableInputs
from rewind.workflow.config import load_checked_config
from rewind.workflow.preflight import annotations
from table_numbers import FACTS, VALUES, results

ROWS = [
    "item_id,path,split,caption,reverse_caption,group",
    "a,a.mp4,test,A door opens,A door closes,door",
    "b,b.mp4,test,A ball rises,A ball falls,ball",
    "c,c.mp4,train,A cup fills,,cup",
    "d,d.mp4,test,A cat,,",
]


def data(folder: Path, rows: list[str] = ROWS, **keys: str) -> Dataset:
    (folder / "a.csv").write_text("\n".join(rows) + "\n")
    source = {"format": "table", "table": str(folder / "a.csv"), "videos": str(folder)}
    return Dataset.model_validate({"name": "d", "source": source} | keys)


def test_a_column_of_the_table_gives_groups_to_both_directions_of_test_captions(tmp_path: Path) -> None:
    dataset = data(tmp_path)
    found = read_groups(dataset, read_annotations(dataset, ""))
    assert found.to_dict("list") == {
        "caption_id": ["a#0", "a_rev#0", "b#0", "b_rev#0"],
        "group": ["door", "door", "ball", "ball"],
    }
    assert dataset_has_groups(dataset) and not dataset_has_groups(data(tmp_path, groups="none"))
    for column in (["", "", "cup", ""], ["", " ", "", ""]):
        rows = [f"{row.rpartition(',')[0]},{group}" for row, group in zip(ROWS[1:], column, strict=True)]
        assert not dataset_has_groups(data(tmp_path, [ROWS[0], *rows])), "of the test split none"
    without = [row.rpartition(",")[0] for row in ROWS]
    assert not dataset_has_groups(data(tmp_path, without))


def test_groups_change_nothing_of_what_training_reads(tmp_path: Path) -> None:
    """A column that is added to a table must not make runs stale."""
    both = [read_annotations(data(tmp_path, rows), "") for rows in (ROWS, [row.rpartition(",")[0] for row in ROWS])]
    assert both[0].items.equals(both[1].items) and both[0].notes == both[1].notes
    assert both[0].captions.drop(columns="group").equals(both[1].captions)


def test_files_that_are_named_are_told_before_the_first_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those beside a data set that the workflow makes; and a file of groups is read with the annotations."""
    monkeypatch.chdir(ROOT)
    absent = {"datasets.shapes.groups": "nowhere.csv", "datasets.shapes.only": "nowhere.txt"}
    with pytest.raises(ConfigErrors) as refused:
        load_checked_config({"studies": ["demo"], "overrides": absent})
    assert "- nowhere.csv" in str(refused.value) and "- nowhere.txt" in str(refused.value)
    (tmp_path / "g.csv").write_text("item_id,group\nnobody,x\n")
    told, faulty = annotations.annotation_faults({}, {"d": data(tmp_path, groups=str(tmp_path / "g.csv"))}, JsonCache())
    assert not told and "g.csv: row 2: " in faulty["d"][0]
    expect_message(faulty["d"][0])


def test_rtimes_entries_may_name_a_group(tmp_path: Path) -> None:
    entry = {"temporal": True, "reverse": True, "forward_captions": ["A door opens"]}
    entry |= {"reverse_captions": ["A door closes"]}
    keys = {"format": "rtime", "annotations": {}, "videos": str(tmp_path)}
    for split, extra in (("train", {}), ("valid", {}), ("test", {"category": " moving  parts ", "verb": "open"})):
        write_json(tmp_path / f"{split}.json", {f"{split}1": entry | extra})
        keys["annotations"][split] = str(tmp_path / f"{split}.json")
    dataset = Dataset.model_validate({"name": "r", "source": keys})
    assert rtime.has_groups(dataset) and dataset_has_groups(dataset)
    found = read_groups(dataset, read_annotations(dataset, ""))
    assert found["group"].tolist() == ["moving parts"] * 2
    write_json(tmp_path / "test.json", {"test1": entry | {"category": 3}})
    assert not dataset_has_groups(dataset)


def test_a_file_of_groups_names_items_or_captions(tmp_path: Path) -> None:
    file = tmp_path / "g.csv"
    dataset = data(tmp_path, groups=str(file))
    annotations = read_annotations(dataset, "")
    file.write_text("item_id,group\na,x\nb,y\nb_rev,z\nc,x\n")
    assert read_groups(dataset, annotations)["group"].tolist() == ["x", "x", "y", "z"]
    file.write_text("group,caption_id\nx,d#0\n")
    assert read_groups(dataset, annotations).to_dict("list") == {"caption_id": ["d#0"], "group": ["x"]}


def test_a_part_of_the_data_may_lack_what_has_a_group(tmp_path: Path) -> None:
    (tmp_path / "only.txt").write_text("d\n")
    (tmp_path / "g.csv").write_text("item_id,group\na,x\nb,y\n")
    for groups in ("auto", str(tmp_path / "g.csv")):
        dataset = data(tmp_path, groups=groups, only=str(tmp_path / "only.txt"))
        assert read_groups(dataset, read_annotations(dataset, "")).empty


def test_a_rehearsal_has_groups_for_what_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's file names the user's own clips, of which none is here."""
    monkeypatch.chdir(tmp_path)
    dataset = data(tmp_path, groups="g.csv")
    (tmp_path / "g.csv").write_text("item_id,group\na,x\n")
    absent = dataset.source.model_copy(update={"videos": "nowhere"})
    keys, _ = small(dataset.model_copy(update={"source": absent}), tmp_path)
    few = Dataset.model_validate({"name": "d"} | keys)
    assert set(read_groups(few, read_annotations(few, ""))["group"]) == {"group 1", "group 2"}
    monkeypatch.chdir(ROOT)
    drawn = load_dataset("shapes").model_copy(update={"groups": str(tmp_path / "g.csv")})
    assert small(drawn, tmp_path)[0]["groups"] == "auto"


def small(dataset: Dataset, folder: Path) -> tuple[dict[str, Any], str]:
    return shrink.shrink_dataset(dataset, Path.cwd(), folder, SplitSizes(6, 4, 4), RehearsedTowers(folder, False))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("item_id,group\ne,x\n", "g.csv: row 2"),
        ("item_id,group\na,x\na,y\n", "g.csv: row 3"),
        ("item_id,group\na, \n", "g.csv: row 2"),
        ("name,group\na,x\n", "g.csv: row 1"),
        ("item_id,caption_id,group\na,a#0,x\n", "g.csv: row 1"),
        ("item_id,group\nc,x\n", "g.csv"),
        ("item_id,groups\na,x\n", "g.csv: row 1"),
    ],
)
def test_a_file_of_groups_is_read_strictly(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "g.csv"
    file.write_text(text)
    dataset = data(tmp_path, groups=str(file))
    with refusal(place):
        read_groups(dataset, read_annotations(dataset, ""))


def test_an_item_is_in_a_group_where_all_its_captions_are() -> None:
    captions = pd.DataFrame({"caption_id": ["a#0", "a#1", "b#0", "b#1", "c#0"], "video_id": list("aabbc")})
    groups = pd.DataFrame({"caption_id": ["a#0", "a#1", "b#0", "b#1"], "group": ["x", "x", "x", "y"]})
    assert group_of_queries(groups, captions) == {"a#0": "x", "a#1": "x", "b#0": "x", "b#1": "y", "a": "x"}


def ranks(hits: dict[str, list[bool]], setting: str = "binary") -> pd.DataFrame:
    """Of one run, group → whether each query is right."""
    rows = [(f"{name}{n}", int(not hit)) for name, of in hits.items() for n, hit in enumerate(of)]
    table = pd.DataFrame(rows, columns=["query_id", "higher"]).assign(ties=0, setting=setting, gallery=2)
    return table.assign(direction="text_to_item", cluster_id=table["query_id"], rank=table["higher"] + 1.0)


def test_each_group_is_tested_against_chance_with_holms_correction() -> None:
    right = {"good": [True] * 12, "half": [True, False] * 6, "few": [True] * (MIN_TESTED_CLUSTERS - 1)}
    runs = {"m": {seed: ranks(right) for seed in range(3)}, "chance": {0: ranks(right).assign(ties=1, higher=0)}}
    named = {row: row.rstrip("0123456789") for row in ranks(right)["query_id"]}
    random = RandomFactors(exact=frozenset({"chance"}))
    found = results_by_group(runs, named, {"binary": "R@1"}, 0.95, random, ["m"]).set_index(["group", "method"])
    good, half, few = (found.loc[(name, "m")] for name in ("good", "half", "few"))
    assert good["p"] == pytest.approx(2 * 0.5**12) and good["p_holm"] == pytest.approx(4 * 0.5**12)
    assert good["p"] == pytest.approx(binomtest(12, 12).pvalue) and half["p_holm"] == 1
    assert np.isnan(few["p_holm"]) and few["family"] == 0 and good["family"] == half["family"] == 2
    chance = found.loc[("good", "chance")]
    assert chance["low"] == chance["high"] == chance["estimate"] == 50 and np.isnan(chance["p"])
    ranked = {"m": {seed: ranks(right, "hard") for seed in range(2)}}
    assert results_by_group(ranked, named, {"hard": "R@1"}, 0.95, random, ["m"])["p"].isna().all()


def test_one_training_seed_has_no_test() -> None:
    runs = {"m": {0: ranks({"good": [True] * 12})}}
    named = {f"good{n}": "good" for n in range(12)}
    assert results_by_group(runs, named, {"binary": "R@1"}, 0.95, RandomFactors(), ["m"])["p"].isna().all()
    fixed = results_by_group(runs, named, {"binary": "R@1"}, 0.95, RandomFactors(fixed=frozenset({"m"})), ["m"])
    assert fixed["p"].item() == pytest.approx(2 * 0.5**12)


@pytest.mark.parametrize("share", [0.02, 0.4, 0.9, 0.97])
def test_p_is_where_the_interval_begins_to_leave_chance_out(share: float) -> None:
    from scipy.special import stdtr, stdtrit

    variance, df = np.array(share * (1 - share) / 30), np.array(7.0)
    p = float(2 * stdtr(df, -wilson_statistic(np.array(share), variance, 0.5)))
    low, high = wilson_interval(np.array(share), variance, stdtrit(df, 1 - p / 2))
    assert min(abs(low - 0.5), abs(high - 0.5)) < 1e-9


def of_groups(names: list[str]) -> pd.DataFrame:
    rows = [
        {"setting": "binary", "direction": "text_to_item", "group": name, "method": method, "metric": "R@1"}
        | {"seeds": 2, "queries": 12, "clusters": 12, "estimate": 50 + at, "low": 40.0, "high": 90.0}
        | {"p": 0.01, "p_holm": 0.01 if at else 1.0, "family": 8, "procedure": "t"}
        for name in names
        for at, method in enumerate(("meanP", "seqLSTM"))
    ]
    return pd.DataFrame(rows)


def test_the_table_marks_what_was_shown_and_names_what_was_not_tested() -> None:
    given = of_groups(["Orbit", "fill"])
    given.loc[given["group"] == "fill", ["clusters", "p_holm", "family"]] = [9, np.nan, 0]
    given.loc[(given["group"] == "Orbit") & (given["method"] == "seqLSTM"), "estimate"] = 12.0
    made = results(setting="binary", analyses={"groups": given})
    inputs = TableInputs(made, ["binary"], Footnotes.from_json(FACTS), "RTime")
    table = next(table for table in build_tables(inputs) if table.kind == "groups")
    rows = {row[0].text: row for group in table.groups for row in group.rows}
    assert list(rows) == ["fill", "Orbit"]
    assert [head.title for head in table.columns] == ["Group", "Queries", "meanP", "seqLSTM"]
    assert [cell.marks for cell in rows["Orbit"][2:]] == ["", BELOW_CHANCE]
    said = " ".join(table.notes)
    assert ": fill." in said and "8 tests" in said and "0.1 intervals" in said and "976 of 1,000" in said
    expect_message("\n".join(table.notes))


def test_the_name_of_a_group_is_no_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    """Names of groups and labels of methods come from files that somebody else made."""
    name = "+1+cmd|' /C calc'!A0"
    labels = {method: method for method in VALUES} | {"meanP": "=HYPERLINK(A1)"}
    made = results(setting="binary", analyses={"groups": of_groups([name, "fill"])}, labels=labels)
    inputs = TableInputs(made, ["binary"], Footnotes.from_json(FACTS))
    paths = [write_table(tmp_path, one)[-1] for one in build_tables(inputs)]
    cells = [cell for path in paths for row in csv.reader(path.open(newline="")) for cell in row]
    assert f"'{name}" in cells and "'=HYPERLINK(A1)" in cells
    assert not [cell for cell in cells if re.match(r"[=+\-@\t\r](?![\d.]+$)", cell)], "numbers alone begin so"
    table = read_spreadsheet(tmp_path / "table_groups_binary.csv", text=("group",))
    assert set(table["group"]) == {name, "fill"}


def test_a_picture_of_many_groups_shows_the_largest() -> None:
    table = of_groups([f"g{n:02}" for n in range(MAX_GROUPS + 5)])
    table.loc[table["group"] == "g44", "queries"] = 99
    figure = group_intervals(table, {"meanP": "meanP", "seqLSTM": "$x"}, (), "binary")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == MAX_GROUPS and "g44 (99)" in labels
    assert group_intervals(table, {"meanP": "meanP"}, (), "hard").axes[0].texts, "says that there is nothing"


def test_the_formats_column_is_known() -> None:
    assert "group" in table.TABLE_COLUMNS.known


def test_annotations_of_shapes_that_an_earlier_version_made_have_the_same_groups(tmp_path: Path) -> None:
    """After an upgrade clips are kept, and with them the annotations beside them."""
    source = {"format": "shapes", "clips": {"train": 12, "valid": 4, "test": 20}}
    dataset = Dataset.model_validate({"name": "s", "source": source})
    shapes.write_annotations(dataset.source, tmp_path)
    now = read_groups(dataset, read_annotations(dataset, str(tmp_path)))
    for file in tmp_path.glob("*.json"):
        entries = read_json(file)
        write_json(file, {name: {k: v for k, v in entry.items() if k != "group"} for name, entry in entries.items()})
    annotations = read_annotations(dataset, str(tmp_path))
    assert "group" not in annotations.captions and read_groups(dataset, annotations).equals(now)
    assert now["group"].nunique() == 10
