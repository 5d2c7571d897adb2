"""Benchmarks of caption matching: their own files, ids of captions and foils, and what cannot be used."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from messages import invalid, refusal
from rewind.config import Dataset, load_dataset
from rewind.data.annotations import read_annotations
from rewind.data.dummy import SplitSizes, find_dummy_data
from rewind.data.formats.foils import read_foils, read_pairs, read_proficiency
from rewind.evaluation.foils import combined_accuracy, foil_values, pair_values
from rewind.video.sources import annotation_files, build_inventory, videos_folder
from rewind.workflow.config import check_sources

BENCHMARKS = ("negbench", "velociti", "vinoground", "vilma", "table")


def dataset(path: Path, benchmark: str, **keys) -> Dataset:
    source = {"format": "foils", "benchmark": benchmark, "file": str(path), "videos": str(path.parent / "clips")}
    return Dataset(name="d", source=source, **keys)


def written(folder: Path, benchmark: str, *rows, **keys) -> Dataset:
    with (folder / "list.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return dataset(folder / "list.csv", benchmark, **keys)


def vilma(folder: Path, **entries) -> Dataset:
    (folder / "list.json").write_text(json.dumps(entries))
    return dataset(folder / "list.json", "vilma")


def foils_of(data: Dataset) -> list[tuple[str, ...]]:
    return list(
        read_foils(data.source)[["foil_id", "caption_id", "caption", "kind"]].itertuples(index=False, name=None)
    )


def captions_of(data: Dataset) -> dict[str, str]:
    captions = read_annotations(data, "").captions
    assert set(captions["split"]) == {"test"} and set(read_foils(data.source)["caption_id"]) == set(
        captions["caption_id"]
    )
    return captions.set_index("caption_id")["caption"].to_dict()


# ---- Each benchmark's structure ------------------------------------------------------------------------------------

NEGBENCH = [
    "correct_answer",
    "caption_0",
    "caption_1",
    "caption_2",
    "caption_3",
    "correct_answer_template",
    "image_path",
]


def test_negbenchs_questions_have_three_foils_and_the_template_as_kind(tmp_path):
    data = written(
        *(tmp_path, "negbench", NEGBENCH),
        [0, "A dog,  not a cat", "A cat", "No dog", "A cat, not a dog", "hybrid", "/data/msrvtt/video9.mp4"],
        [2, "No dog", "A cat", "A dog", "No dog, but a cat", "positive", "/data/msrvtt/video9.mp4"],
    )
    assert captions_of(data) == {"video9#0": "A dog, not a cat", "video9#1": "A dog"}
    assert foils_of(data)[:3] == [
        ("video9#0~0", "video9#0", "A cat", "hybrid"),
        ("video9#0~1", "video9#0", "No dog", "hybrid"),
        ("video9#0~2", "video9#0", "A cat, not a dog", "hybrid"),
    ]
    assert [text for _, caption, text, _ in foils_of(data)[3:]] == ["No dog", "A cat", "No dog, but a cat"]
    items = read_annotations(data, "").items
    assert items[["item_id", "source", "cluster_id", "reversed"]].to_numpy().tolist() == [
        ["video9", "video9.mp4", "video9", 0]
    ]
    assert read_pairs(data.source).empty and read_proficiency(data.source).empty


@pytest.mark.parametrize("column", ["image_path", "video_path", "filepath"])
def test_negbenchs_clips_are_found_by_their_file_name(tmp_path, column):
    data = written(tmp_path, "negbench", [*NEGBENCH[:-1], column], [1, "a", "b", "c", "d", "x", r"C:\clips\v1.webm"])
    assert read_annotations(data, "").items["source"].tolist() == ["v1.webm"] and captions_of(data) == {"v1#0": "b"}


VELOCITI = ["test_name", "video_id", "event", "pos", "neg"]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_velocitis_events_of_one_video_are_captions_of_one_clip(tmp_path, kind):
    rows = [
        ("agent_bind", "v_1.mp4", "Ev1", "A man runs.", "A woman runs."),
        ("chrono", "v_1.mp4", "Ev1", "A man runs.", "He sits, then runs."),
        ("agent_bind", "v_2", "Ev1", "A man runs.", "A boy runs."),
        ("agent_bind", "v_1.mp4", "Ev2", "A man runs.", "A girl runs."),
        ("chrono", "v_1.mp4", "Ev3", "He sits.", "He stands."),
    ]
    table = pd.DataFrame(rows, columns=VELOCITI)
    path = tmp_path / f"rows.{kind}"
    {"csv": table.to_csv, "parquet": table.to_parquet}.get(kind, lambda path, index: None)(path, index=False)
    if kind == "json":
        path.write_text(table.to_json(orient="records"))
    data = dataset(path, "velociti")
    # One caption has foils of two kinds; the second event with the same text and kind is a question of its own, and
    # would make a choice of three out of two choices of two otherwise.
    assert captions_of(data) == {
        "v_1#0": "A man runs.",
        "v_1#1": "A man runs.",
        "v_1#2": "He sits.",
        "v_2#0": "A man runs.",
    }
    assert foils_of(data) == [
        ("v_1#0~0", "v_1#0", "A woman runs.", "agent_bind"),
        ("v_1#0~1", "v_1#0", "He sits, then runs.", "chrono"),
        ("v_2#0~0", "v_2#0", "A boy runs.", "agent_bind"),
        ("v_1#1~0", "v_1#1", "A girl runs.", "agent_bind"),
        ("v_1#2~0", "v_1#2", "He stands.", "chrono"),
    ]
    assert (read_foils(data.source).groupby(["caption_id", "kind"]).size() == 1).all()


def test_vinogrounds_rows_are_pairs_of_clips_with_each_others_caption_as_foil(tmp_path):
    head = ["index", "major", "minor", "pos_cap", "neg_cap"]
    rows = ["7", "action", "cyclical;", "He sits, then stands.", "He stands, then sits."], ["2", "", "", "a b", "b a"]
    data = written(tmp_path, "vinoground", head, *rows)
    assert captions_of(data) == {
        **{"7_pos#0": "He sits, then stands.", "7_neg#0": "He stands, then sits."},
        **{"2_pos#0": "a b", "2_neg#0": "b a"},
    }
    assert foils_of(data)[:2] == [
        ("7_pos#0~0", "7_pos#0", "He stands, then sits.", "action"),
        ("7_neg#0~0", "7_neg#0", "He sits, then stands.", "action"),
    ]
    assert read_pairs(data.source).to_numpy().tolist() == [
        ["7", "7_pos#0", "7_neg#0", "action"],
        ["2", "2_pos#0", "2_neg#0", "foil"],
    ]
    found = read_annotations(data, "")
    assert found.items["cluster_id"].tolist() == ["7", "7", "2", "2"]
    similarity = (found.captions["video_id"].to_numpy()[:, None] == found.items["item_id"].to_numpy()).astype(float)
    values = pair_values(similarity, found.captions, found.items, read_pairs(data.source))
    assert (values["value"] == 100).all() and values["cluster_id"].tolist() == ["7", "2"] * 3


def test_vinogrounds_clips_are_counted_from_zero_where_no_index_is(tmp_path):
    data = written(tmp_path, "vinoground", ["pos_cap", "neg_cap"], ["a b", "b a"], ["same", "same"])
    assert read_annotations(data, "").items["source"].tolist() == ["0_pos", "0_neg", "1_pos", "1_neg"]
    assert read_pairs(data.source)["pair_id"].tolist() == ["0", "1"]
    assert read_annotations(data, "").notes["foils_equal_to_their_caption"] == 2


def entry(caption, foils, proficiency=None, votes=3, valid=1, **keys):
    found = {"caption": caption, "foils": foils, "mturk": {"caption": votes, "foil": 0}} | keys
    return found | {"proficiency": proficiency and {**proficiency, "human": {"caption": valid, "other": 1 - valid}}}


def test_vilmas_entries_are_clips_with_a_question_and_one_on_proficiency(tmp_path):
    same, other = ({"caption": text, "foils": ["It flies."]} for text in ("It walks.", "There is a cat."))
    data = vilma(
        tmp_path,
        **{
            "act-01": entry(
                "It walks.", ["It sits.", "It runs."], same, dataset="coin", youtube_id="k", dataset_idx="k1"
            )
        },
        **{"act-02": entry("It walks.", ["It sits."], other, dataset="coin", youtube_id="k")},
        **{"act-03": entry("It walks.", ["It sits."], other, votes=1)},
        **{"act-04": entry("It walks.", ["It sits."], other, valid=0)},
        **{"act-05": {"caption": "It naps.", "foils": ["It sits."], "dataset": "star", "dataset_idx": 11}},
    )
    found = read_annotations(data, "")
    assert found.items["item_id"].tolist() == found.items["source"].tolist() == ["act-01", "act-02", "act-05"]
    assert found.items["cluster_id"].tolist() == ["coin/k", "coin/k", "star/11"]
    assert found.notes["entries_left_out_shown"] == ["act-03", "act-04"] and found.notes["questions"] == 5
    assert captions_of(data) == {
        **{"act-01#0": "It walks.", "act-02#0": "It walks.", "act-02#1": "There is a cat.", "act-05#0": "It naps."}
    }
    assert foils_of(data)[:4] == [
        ("act-01#0~0", "act-01#0", "It sits.", "main"),
        ("act-01#0~1", "act-01#0", "It runs.", "main"),
        ("act-01#0~2", "act-01#0", "It flies.", "proficiency"),
        ("act-02#0~0", "act-02#0", "It sits.", "main"),
    ]
    assert read_proficiency(data.source).to_numpy().tolist() == [["act-01#0", "act-01#0"], ["act-02#0", "act-02#1"]]


def test_vilmas_combined_accuracy_is_computed_from_what_is_read(tmp_path):
    words = np.random.default_rng(0).permutation(400).astype(str).reshape(100, 4)
    data = vilma(
        tmp_path,
        **{
            f"e{n}": entry(a, [b], {"caption": a if n % 2 else c, "foils": [d]})
            for n, (a, b, c, d) in enumerate(words.tolist())
        },
    )
    score = pd.Series(np.random.default_rng(1).normal(size=400), index=np.arange(400).astype(str))  # of each text
    truth = pd.Series(captions_of(data)).map(score)
    foils = read_foils(data.source)
    scores = foils.assign(truth=truth[foils["caption_id"]].to_numpy(), foil=foils["caption"].map(score), cluster_id="c")
    a, b, c, d = score[words.ravel()].to_numpy().reshape(100, 4).T
    c = np.where(np.arange(100) % 2, a, c)
    values = foil_values(scores).query("metric == 'accuracy'").groupby("kind")["value"].mean()
    assert values.to_dict() == pytest.approx({"main": 100 * (a > b).mean(), "proficiency": 100 * (c > d).mean()})
    combined = combined_accuracy(scores, read_proficiency(data.source))
    assert combined["value"].tolist() == (100.0 * ((a > b) & (c > d))).tolist()
    assert combined["chance"].round(1).tolist() == [25.0, 33.3] * 50


def test_rows_of_a_table_with_one_caption_and_kind_are_one_question(tmp_path):
    data = written(
        *(tmp_path, "table", ["video", "caption", "foil", "kind", "cluster_id"]),
        ["a/k1.mp4", "A door  opens.", "A door closes.", "verb", "film"],
        ["k2.mp4", "A door opens.", "A lid opens.", "", ""],
        ["a/k1.mp4", "A door opens.", "A door falls.", "verb", "film"],
        ["a/k1.mp4", "A door opens.", "A window opens.", "noun", "film"],
    )
    found = read_annotations(data, "")
    first = found.items["item_id"][0]
    assert found.items["source"].tolist() == ["a/k1.mp4", "k2.mp4"] and found.items["cluster_id"].tolist() == [
        "film",
        "k2",
    ]
    assert captions_of(data) == {f"{first}#0": "A door opens.", "k2#0": "A door opens."}
    assert [(name, text, kind) for name, _, text, kind in foils_of(data)] == [
        (f"{first}#0~0", "A door closes.", "verb"),
        (f"{first}#0~1", "A door falls.", "verb"),
        ("k2#0~0", "A lid opens.", "foil"),
        (f"{first}#0~2", "A window opens.", "noun"),
    ]


def test_a_table_without_kinds_has_one(tmp_path):
    rows = (["k1", "up", "down"], ["k1", "down", "up"], ["k2", "left", "down"])
    data = written(tmp_path, "table", ["video", "caption", "foil"], *rows)
    notes = read_annotations(data, "").notes
    assert set(read_foils(data.source)["kind"]) == {"foil"} and notes["questions"] == 3 and notes["foils"] == 3
    assert notes["foils_true_in_another_question"] == 2


def test_odd_foils_of_a_benchmark_are_counted(tmp_path):
    content = {"e1": {"caption": "up", "foils": ["up", "down", "down"]}, "e2": {"caption": "left", "foils": ["down"]}}
    (tmp_path / "list.json").write_text(json.dumps(content))
    notes = read_annotations(dataset(tmp_path / "list.json", "vilma"), "").notes
    assert notes["foils_equal_to_their_caption"] == 1 and notes["foils_given_twice"] == 1


# ---- Ids -----------------------------------------------------------------------------------------------------------


def test_ids_of_clips_captions_and_foils_are_one_set_of_names_and_stay_as_rows_are_added(tmp_path):
    rng = np.random.default_rng(0)
    rows = [[f"k{rng.integers(2)}", f"v{rng.integers(4)}.mp4", "e", *rng.choice(list("abc"), 2)] for _ in range(60)]
    few, more = (foils_of(written(tmp_path, "velociti", VELOCITI, *rows[:count])) for count in (30, 60))
    assert more[:30] == few and len(more) == 60
    found = read_annotations(dataset(tmp_path / "list.csv", "velociti"), "")
    names = [*found.items["item_id"], *found.captions["caption_id"], *(name for name, *_ in more)]
    assert len(set(names)) == len(names)
    text = found.captions.set_index("caption_id")["caption"]
    for (kind, video, _, caption, foil), (_, caption_id, foil_text, foil_kind) in zip(rows, more, strict=True):
        assert (text[caption_id], foil_text, foil_kind) == (caption, foil, kind)
        assert caption_id.startswith(video.removesuffix(".mp4"))


def test_names_that_are_no_ids_get_a_part_of_their_hash(tmp_path):
    names = ["-Ab", "a b.mp4", "clip_rev.mp4", "clip.2", "clip.3"]
    data = written(tmp_path, "table", ["video", "caption", "foil"], *([name, "up", "down"] for name in names))
    items = read_annotations(data, "").items
    assert items["source"].tolist() == names and items["item_id"].is_unique
    assert items["item_id"].tolist()[3:] == ["clip.2", "clip.3"] and not items["item_id"].str.endswith("_rev").any()


# ---- Keys, dummy data and clips ------------------------------------------------------------------------------------


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_stand_ins_are_read_as_the_benchmarks_files_are(benchmark, tmp_path):
    keys = find_dummy_data("foils")(dataset(tmp_path / "no.csv", benchmark), tmp_path, SplitSizes(8, 2, 3))
    data = Dataset(name="few", source={"format": "foils", "benchmark": benchmark} | keys)
    found = read_annotations(data, "")
    assert len(found.items) == 4 and set(found.items["split"]) == {"test"}
    assert (build_inventory(data, found, videos_folder(data))["source"] != "").all(), "every item has its file"
    assert len(read_pairs(data.source)) == 2 * (benchmark == "vinoground")
    assert len(read_proficiency(data.source)) == 4 * (benchmark == "vilma")
    assert annotation_files(data) == [keys["file"]] and data.why_no_twins


def test_the_folder_is_needed_where_clips_are():
    source = {"format": "foils", "benchmark": "vilma", "file": "a.json"}
    assert Dataset(name="d", source=source, clips=False).source.videos == ""
    with invalid("source.videos"):
        Dataset(name="d", source=source)


def test_the_file_in_config_says_where_to_get_what_is_missing(tmp_path, monkeypatch):
    data = load_dataset("vinoground")
    assert annotation_files(data) == ["data/vinoground/vinoground.csv"]
    monkeypatch.chdir(tmp_path)
    with refusal("config/datasets/vinoground.yaml"):
        check_sources(data)


# ---- What cannot be used -------------------------------------------------------------------------------------------

TABLE = ["video", "caption", "foil", "kind"]


@pytest.mark.parametrize(
    ("benchmark", "rows", "place"),
    [
        ("negbench", [NEGBENCH[:-1], [0, "a", "b", "c", "d", "x"]], "list.csv: row 1"),
        ("negbench", [["filepath", "captions"], ["a.mp4", "['a']"]], "list.csv: row 1"),
        ("negbench", [NEGBENCH, [4, "a", "b", "c", "d", "x", "v.mp4"]], "list.csv: row 2"),
        ("negbench", [NEGBENCH, ["caption_0", "a", "b", "c", "d", "x", "v.mp4"]], "list.csv: row 2"),
        ("negbench", [NEGBENCH, [0, "a", "b", "", "d", "x", "v.mp4"]], "list.csv: row 2"),
        ("negbench", [NEGBENCH, [0, "", "b", "c", "d", "x", "v.mp4"]], "list.csv: row 2"),
        ("negbench", [NEGBENCH, [0, "a", "b", "c", "d", "x", ""]], "list.csv: row 2"),
        ("negbench", [NEGBENCH, *([0, "a", "b", "c", "d", "x", f"{n}/v.mp4"] for n in "ab")], "list.csv: row 3"),
        ("velociti", [["test_name", "video", "pos", "neg"], ["a", "b", "c", "d"]], "list.csv: row 1"),
        ("velociti", [VELOCITI, ["chrono", "v", "e", "up", " "]], "list.csv: row 2"),
        ("velociti", [VELOCITI, ["chrono", "../v", "e", "up", "down"]], "list.csv: row 2"),
        ("vinoground", [["index", "pos_cap"], ["0", "a"]], "list.csv: row 1"),
        ("vinoground", [["index", "pos_cap", "neg_cap"], ["a", "x", "y"]], "list.csv: row 2"),
        ("vinoground", [["index", "pos_cap", "neg_cap"], ["0", "x", "y"], ["0", "z", "y"]], "list.csv: row 3"),
        ("vinoground", [["index", "pos_cap", "neg_cap"], ["0", "x", "y"], ["00", "z", "y"]], "list.csv: row 3"),
        ("vinoground", [["index", "pos_cap", "neg_cap"], ["0", "x", ""]], "list.csv: row 2"),
        ("table", [["video", "caption", "foil"], ["a", "up", "Up"]], "list.csv: row 2"),
        ("table", [["video", "caption", "foil"], ["a", "up", "down"], ["a", "up", "down"]], "list.csv: row 3"),
        ("table", [[*TABLE, "split"], ["a", "b", "c", "d", "e"]], "list.csv: row 1"),
        ("table", [TABLE], "list.csv"),
        ("table", [TABLE, ["a.mp4", "up", "", "x"]], "list.csv: row 2"),
        ("table", [TABLE, ["a.mp4", "", "down", "x"]], "list.csv: row 2"),
        ("table", [TABLE, ["/a.mp4", "up", "down", "x"]], "list.csv: row 2"),
        ("table", [TABLE, ["a.mp4", "up", "down", "x"], ["a.webm", "up", "down", "x"]], "list.csv: row 3"),
        (
            "table",
            [[*TABLE, "cluster_id"], ["a.mp4", "up", "down", "x", "1"], ["a.mp4", "left", "right", "x", "2"]],
            "list.csv: row 3",
        ),
    ],
)
def test_files_of_another_structure_are_refused_with_their_row(tmp_path, benchmark, rows, place):
    data = written(tmp_path, benchmark, *rows)
    with refusal(place):
        read_annotations(data, "")


@pytest.mark.parametrize(
    ("benchmark", "content", "place"),
    [
        ("velociti", {"rows": []}, "list.json"),
        ("velociti", [], "list.json"),
        ("velociti", ["a"], "list.json[0]"),
        ("velociti", [{"test_name": "chrono", "video_id": 3, "pos": "a", "neg": "b"}], "list.json[0]"),
        ("vilma", [], "list.json"),
        ("vilma", {}, "list.json"),
        ("vilma", {"e1": ["a"]}, "list.json: entry 'e1'"),
        ("vilma", {"e1": {"foils": ["a"]}}, "list.json: entry 'e1'"),
        ("vilma", {"e1": {"caption": "a", "foils": "b"}}, "list.json: entry 'e1'"),
        ("vilma", {"e1": {"caption": "a", "foils": []}}, "list.json: entry 'e1'"),
        ("vilma", {"e1": {"caption": "a", "foils": ["b"], "mturk": 3}}, "list.json: entry 'e1'"),
        ("vilma", {"e1": {"caption": "a", "foils": ["b"], "proficiency": "c"}}, "list.json: entry 'e1'"),
        (
            "vilma",
            {"e1": {"caption": "a", "foils": ["b"], "proficiency": {"caption": "a"}}},
            "list.json: entry 'e1': proficiency",
        ),
        ("vilma", {"e1": {"caption": "a", "foils": ["b"], "mturk": {"caption": 1}}}, "list.json"),
    ],
)
def test_json_of_another_structure_is_refused_with_its_entry(tmp_path, benchmark, content, place):
    (tmp_path / "list.json").write_text(json.dumps(content))
    data = dataset(tmp_path / "list.json", benchmark)
    for reads in (lambda: read_annotations(data, ""), lambda: read_foils(data.source)):
        with refusal(place):
            reads()


@pytest.mark.parametrize("name", ["no.csv", "no.json", "no.parquet"])
def test_a_missing_file_is_named(tmp_path, name):
    with refusal(name):
        read_annotations(dataset(tmp_path / name, "vilma" if name == "no.json" else "velociti"), "")


def test_a_broken_parquet_file_is_named(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and no more")
    with refusal("rows.parquet", varying=r"\(.*\)"):
        read_annotations(dataset(tmp_path / "rows.parquet", "velociti"), "")
