"""RTime's annotation format: its rules, its oddities, and invented files of its extent."""

import json

import pytest

from messages import refusal
from rewind.config import Dataset
from rewind.data.formats import rtime
from rewind.data.tokenizers import count_truncated
from rewind.optional_packages import open_clip


def entry(there="A door opens.", back="A door closes.", **changes):
    base = {
        "temporal": True,
        "reverse": True,
        "forward_captions": [there],
        "reverse_captions": [back],
        "forward_rewrites": [f"{there} (again {n})" for n in range(9)],
        "reverse_rewrites": [f"{back} (again {n})" for n in range(9)],
        "url": "",
    }
    return {name: value for name, value in {**base, **changes}.items() if value != "absent"}


def read(tmp_path, reverse=True, **splits):
    paths = {}
    for split, entries in splits.items():
        path = tmp_path / f"{split}.json"
        path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
        paths[split] = str(path)
    return rtime.read_rtime_files(paths, reverse)


def captions_of(annotations, video_id):
    return annotations.captions.query("video_id == @video_id")["caption"].tolist()


def test_train_has_rewrites_and_evaluation_only_human_captions(tmp_path):
    found = read(tmp_path, train={"0012": entry()}, valid={"7": entry("a", "b")}, test={"9": entry("c", "d")})
    assert found.items["item_id"].tolist() == ["0012", "0012_rev", "7", "7_rev", "9", "9_rev"]
    assert found.items["source"].tolist() == ["0012", "0012", "7", "7", "9", "9"]
    assert found.items["cluster_id"].tolist() == ["0012", "0012", "7", "7", "9", "9"]
    assert found.items["reversed"].tolist() == [0, 1] * 3
    assert found.items["split"].tolist() == ["train"] * 2 + ["valid"] * 2 + ["test"] * 2
    assert captions_of(found, "0012") == ["A door opens."] + [f"A door opens. (again {n})" for n in range(9)]
    assert captions_of(found, "9") == ["c"] and captions_of(found, "9_rev") == ["d"]
    ids = found.captions["caption_id"]
    assert ids.is_unique and ids.iloc[0] == "0012#0" and ids.iloc[10] == "0012_rev#0"
    assert found.notes["splits"]["train"]["captions_per_item"] == {"10": 2}


def test_the_order_of_the_file_is_kept(tmp_path):
    names = ["9", "10", "a", "1"]
    found = read(tmp_path, test={name: entry(name, f"not {name}") for name in names})
    assert found.items.query("reversed == 0")["item_id"].tolist() == names


@pytest.mark.parametrize(
    ("split", "changes", "forward", "reverse", "odd"),
    [
        ("train", {"reverse": False}, 10, 0, {"reverse_false": 1}),
        ("train", {"reverse": "absent"}, 10, 10, {"reverse_missing": 1}),
        ("train", {"temporal": False}, 10, 10, {"temporal_false": 1}),
        ("train", {"temporal": "absent"}, 10, 10, {"temporal_missing": 1}),
        ("train", {"forward_rewrites": ["x"]}, 2, 10, {}),
        ("train", {"forward_rewrites": "absent"}, 1, 10, {"forward_rewrites_missing": 1}),
        ("train", {"forward_rewrites": None}, 1, 10, {"forward_rewrites_missing": 1}),
        ("train", {"forward_captions": []}, 9, 10, {"forward_human_captions_not_one": 1}),
        ("test", {"forward_captions": ["x", "y"]}, 2, 1, {"forward_human_captions_not_one": 1}),
        ("test", {"forward_captions": "x"}, 1, 1, {"forward_captions_bare_string": 1}),
        (
            "test",
            {"forward_captions": []},
            0,
            0,
            {"forward_human_captions_not_one": 1, "left_out_no_forward_caption": 1},
        ),
        (
            "test",
            {"reverse_captions": []},
            1,
            0,
            {"no_twin_without_reverse_caption": 1, "reverse_human_captions_not_one": 1},
        ),
        (
            "test",
            {"reverse_captions": "absent"},
            1,
            0,
            {
                "no_twin_without_reverse_caption": 1,
                "reverse_captions_missing": 1,
                "reverse_human_captions_not_one": 1,
            },
        ),
        ("train", {"forward_rewrites": ["", " \n", "x"]}, 2, 10, {"forward_rewrites_empty_text": 2}),
        ("train", {"forward_rewrites": [3, None, "x"]}, 2, 10, {"forward_rewrites_not_text": 2}),
        ("test", {"reverse_captions": ["A door opens."]}, 1, 1, {"same_caption_both_ways": 1}),
    ],
)
def test_every_oddity_follows_its_rule_and_is_counted(tmp_path, split, changes, forward, reverse, odd):
    found = read(tmp_path, **{split: {"5": entry(**changes)}})
    assert len(captions_of(found, "5")) == forward and len(captions_of(found, "5_rev")) == reverse
    assert found.items["item_id"].tolist() == ["5"] * bool(forward) + ["5_rev"] * bool(reverse)
    assert found.notes["splits"][split]["odd"] == odd
    assert found.notes["splits"][split]["odd_ids"] == {kind: ["5"] for kind in odd}


def test_an_entry_that_is_no_object_is_left_out_and_counted(tmp_path):
    found = read(tmp_path, test={"1": None, "2": entry()})
    assert found.items["item_id"].tolist() == ["2", "2_rev"]
    assert found.notes["splits"]["test"]["odd_ids"] == {"left_out_not_an_object": ["1"]}
    assert found.notes["splits"]["test"]["entries"] == 2


def test_white_space_inside_a_caption_becomes_a_blank(tmp_path):
    found = read(tmp_path, test={"1": entry(there=" A door\n  opens. ")})
    assert captions_of(found, "1") == ["A door opens."]


def test_without_reverse_there_are_no_twins(tmp_path):
    found = read(tmp_path, reverse=False, test={"1": entry()})
    assert found.items["item_id"].tolist() == ["1"] and len(found.captions) == 1


def test_duplicates_are_reported_and_kept(tmp_path):
    found = read(tmp_path, test={"1": entry("x", "y"), "2": entry("x", "z"), "3": entry("w", "w")})
    duplicates = found.notes["splits"]["test"]["duplicates"]
    assert duplicates["between_items"] == 2 and len(found.captions) == 6
    assert {"caption": "x", "items": ["1", "2"]} in duplicates["shared"]
    assert {"caption": "w", "items": ["3", "3_rev"]} in duplicates["shared"]
    again = read(tmp_path, train={"1": entry(forward_rewrites=["A door opens.", "other"])})
    assert again.notes["splits"]["train"]["duplicates"]["within_items"] == 1


@pytest.mark.parametrize(
    ("splits", "place"),
    [
        ({"train": {"1": entry()}, "test": {"1": entry()}}, "test.json"),
        ({"test": {"1_rev": entry()}}, "test.json"),
        ({"test": {"../1": entry()}}, "test.json"),
        ({"test": {"1": entry(forward_captions=4)}}, "test.json"),
        (
            {"test": {"1": entry(temporal="yes")}},
            "test.json",
        ),
        ({"test": "[]"}, "test.json"),
        ({"test": '{"1": '}, "test.json"),
        ({"test": '{"1": {}, "1": {}}'}, "test.json"),
    ],
)
def test_structure_errors_name_file_and_id(tmp_path, splits, place):
    with refusal(place):
        read(tmp_path, **splits)


def test_a_dataset_file_leads_to_its_annotation_files(tmp_path):
    path = tmp_path / "test.json"
    path.write_text(json.dumps({"1": entry()}))
    source = {"format": "rtime", "annotations": {"test": str(path)}, "videos": "clips"}
    found = rtime.read(Dataset.model_validate({"name": "d", "source": source, "reverse": False}), "")
    assert found.items["item_id"].tolist() == ["1"]
    missing = {**source, "annotations": {"test": str(tmp_path / "none.json")}}
    with refusal("none.json"):
        rtime.read(Dataset.model_validate({"name": "d", "source": missing}), "")


def test_captions_longer_than_a_context_are_counted():
    assert count_truncated([3, 4, 5, 6], 4) == 2
    assert count_truncated([], 4) == 0


@pytest.fixture
def invented(tmp_path):
    """Files with the extent and the oddities of RTime's own: 500 and 1,000 clips, a few captions given twice."""
    valid = {f"{number:010d}": entry(f"Thing {number} falls.", f"Thing {number} rises.") for number in range(500)}
    test = {f"{number:010d}": entry(f"Thing {number} opens.", f"Thing {number} shuts.") for number in range(500, 1500)}
    for number in (600, 601):  # played backwards it looks the same
        test[f"{number:010d}"] = entry(f"Thing {number} turns.", f"Thing {number} turns.")
    for number in (700, 701):  # another clip of the same thing
        test[f"{number:010d}"] = entry(f"Thing {number + 100} opens.", f"Thing {number} shuts.")
    # Lengths in CLIP's tokens: each word is one, beside the start and the end.
    for number, words in ((902, 29), (903, 30), (904, 31), (905, 62), (906, 63), (907, 75), (908, 76)):
        test[f"{number:010d}"] = entry(" ".join(["red"] * words), f"Thing {number} shuts.")
    return read(tmp_path, valid=valid, test=test)


def test_files_of_the_real_extent_are_counted(invented):
    valid, test = invented.notes["splits"]["valid"], invented.notes["splits"]["test"]
    assert [valid[k] for k in ("entries", "originals", "twins", "captions")] == [500, 500, 500, 1000]
    assert [test[k] for k in ("entries", "originals", "twins", "captions")] == [1000, 1000, 1000, 2000]
    assert valid["odd"] == {} and valid["duplicates"]["between_items"] == 0
    assert test["odd_ids"] == {"same_caption_both_ways": ["0000000600", "0000000601"]}
    assert test["duplicates"]["between_items"] == 4 and len(test["duplicates"]["shared"]) == 4


def test_captions_that_clips_tokenizer_would_cut_are_counted(invented):
    tokenizer = open_clip("tokenizer").SimpleTokenizer()
    captions = invented.captions.query("split == 'test'")["caption"]
    counts = [len(tokenizer.encode(text)) + 2 for text in captions]
    assert len(counts) == 2000 and [count_truncated(counts, context) for context in (32, 64, 77)] == [5, 3, 1]
