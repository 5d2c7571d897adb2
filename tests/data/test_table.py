"""Any data set as one CSV."""

import numpy as np
import pytest

from messages import refusal
from rewind.config import Dataset
from rewind.data.annotations import read_annotations
from rewind.data.formats import table
from rewind.evaluation.ranking import rank_table

HEAD = "item_id,path,split,caption"


def read(tmp_path, *lines, reverse=True):
    path = tmp_path / "clips.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = {"format": "table", "table": str(path), "videos": "clips"}
    return table.read(Dataset.model_validate({"name": "t", "source": source, "reverse": reverse}), "")


def test_rows_of_an_item_are_its_captions_in_order(tmp_path):
    found = read(tmp_path, HEAD, "007,a/x.mp4,train,NA", '1,b.webm,test,"one, two"', "007,a/x.mp4,train,another  one")
    assert found.items["item_id"].tolist() == ["007", "1"]
    assert found.items["source"].tolist() == ["a/x.mp4", "b.webm"]
    assert found.items["cluster_id"].tolist() == ["007", "1"]
    assert found.captions["caption"].tolist() == ["NA", "another one", "one, two"]
    assert found.captions["caption_id"].tolist() == ["007#0", "007#1", "1#0"]
    assert found.captions["split"].tolist() == ["train", "train", "test"]
    assert found.items["reversed"].sum() == 0
    assert found.notes["splits"]["train"]["captions_per_item"] == {"2": 1}


def test_columns_come_in_any_order(tmp_path):
    found = read(tmp_path, "\ufeffcaption,split,,path,item_id", "x,valid,,two  blanks.mp4,1", "", ",,,,")
    assert found.items["source"].tolist() == ["two  blanks.mp4"] and len(found.captions) == 1


def test_a_clip_is_named_by_its_id_and_is_of_the_test_split_where_no_column_says_else(tmp_path):
    found = read(tmp_path, "item_id,caption,reverse_caption", "k1,up,down", "k2,left,")
    assert found.items["source"].tolist() == ["k1", "k1", "k2"] and set(found.items["split"]) == {"test"}
    with refusal("clips.csv: row 2"):
        read(tmp_path, "item_id,split,caption", "k1,,up")
    with refusal("clips.csv: row 2"):
        read(tmp_path, "item_id,path,caption", "k1,,up")


def test_clusters_and_twins(tmp_path):
    lines = (
        f"{HEAD},cluster_id,reverse_caption",
        "1,a.mp4,test,up,film7,down",
        "1,a.mp4,test,rises,film7,",
        "2,b.mp4,test,left,film7,",
        "3,c.mp4,test,right,,back",
    )
    found = read(tmp_path, *lines)
    assert found.items["item_id"].tolist() == ["1", "1_rev", "2", "3", "3_rev"]
    assert found.items["cluster_id"].tolist() == ["film7"] * 3 + ["3", "3"]
    assert found.items["source"].tolist() == ["a.mp4", "a.mp4", "b.mp4", "c.mp4", "c.mp4"]
    assert found.captions.query("video_id == '1_rev'")["caption"].tolist() == ["down"]
    assert found.notes["splits"]["test"]["twins"] == 2
    assert read(tmp_path, *lines, reverse=False).items["item_id"].tolist() == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (
            [f"{HEAD},reverse_captions", "1,a,test,x,y"],
            "clips.csv: row 1",
        ),
        ([f"{HEAD},clusterid", "1,a,test,x,y"], "clips.csv: row 1"),
        (
            [f"{HEAD},mood", "1,a,test,x,y"],
            "clips.csv: row 1",
        ),
        (["item_id,path,split", "1,a,test"], "clips.csv: row 1"),
        ([f"{HEAD},path", "1,a,test,x,b"], "clips.csv: row 1"),
        ([HEAD], "clips.csv"),
        ([HEAD, "1,a,test,x", "2,b,dev,y"], "clips.csv: row 3"),
        (
            [HEAD, "1,a,test,x", "2,b,test,y", "2,b,test, "],
            "clips.csv: row 4",
        ),
        (
            [HEAD, "1,a,test,x", "2,b,test, ", "2,b,test, "],
            "clips.csv: row 4",
        ),
        ([HEAD, "1,a,test, "], "clips.csv"),
        ([HEAD, "1,a,test,x", "2,b,test"], "clips.csv: row 3"),
        ([HEAD, ",a,test,x"], "clips.csv: row 2"),
        ([HEAD, "1,a,test,x", "1,b,test,y"], "clips.csv: row 3"),
        ([HEAD, "1,a,test,x", "1,a,train,y"], "clips.csv: row 3"),
        ([f"{HEAD},cluster_id", "1,a,test,x,c", "1,a,test,y,d"], "clips.csv: row 3"),
        ([HEAD, "1,a,test,x", "", "a/b,b,test,y"], "clips.csv: row 4"),
        ([HEAD, "1_rev,a,test,x"], "clips.csv: row 2"),
        ([HEAD, "1,../a,test,x"], "clips.csv: row 2"),
        ([HEAD, "1,/etc/a,test,x"], "clips.csv: row 2"),
        ([HEAD, "1,,test,x"], "clips.csv: row 2"),
        ([HEAD, "1,a,test,one, two"], "clips.csv: row 2"),
    ],
)
def test_errors_name_file_and_row(tmp_path, lines, place):
    with refusal(place):
        read(tmp_path, *lines)


def test_a_missing_or_foreign_file_is_named(tmp_path):
    source = {"format": "table", "table": str(tmp_path / "no.csv"), "videos": "clips"}
    config = Dataset.model_validate({"name": "t", "source": source, "how_to_get": "Ask the museum."})
    with refusal("no.csv"):
        table.read(config, "")
    (tmp_path / "no.csv").write_bytes("item_id,path,split,caption\n1,a,test,é\n".encode("latin-1"))
    with refusal("no.csv"):
        table.read(config, "")


def read_without_clips(tmp_path, *lines, **keys):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = {"format": "table", "table": str(path)}
    return read_annotations(Dataset.model_validate({"name": "t", "source": source, "clips": False} | keys), "")


def test_an_item_without_a_caption_is_searched_and_asks_nothing(tmp_path):
    found = read_without_clips(tmp_path, "item_id,caption,reverse_caption", "a,up,down", "b,,", "c,,back")
    assert found.items["item_id"].tolist() == ["a", "a_rev", "b", "c", "c_rev"]
    assert found.captions["caption_id"].tolist() == ["a#0", "a_rev#0", "c_rev#0"]
    assert found.notes["splits"]["test"]["captions_per_item"] == {"1": 3}
    scores = np.eye(5)[[0, 1, 4]]
    ranks = rank_table(scores, found.captions, found.items, ["hard"], ["text_to_item", "item_to_text"])
    assert ranks.groupby("direction")["gallery"].max().to_dict() == {"text_to_item": 5, "item_to_text": 3}
    assert ranks["query_id"].tolist() == ["a#0", "a_rev#0", "c_rev#0", "a", "a_rev", "c_rev"]


def test_without_clips_an_id_is_any_text(tmp_path):
    names = ["front door", "cup/2", "stairs (é)", "-x", "a..b"]
    rows = ["item_id,caption", *(f"{name},up" for name in names)]
    assert read_without_clips(tmp_path, *rows).items["item_id"].tolist() == names
    with refusal("clips.csv: row 2"):
        read(tmp_path, "item_id,path,split,caption", "front door,a.mp4,test,up")
    (tmp_path / "only.txt").write_text("front door\ncup/2 -x\n")
    part = read_without_clips(tmp_path, *rows, only=str(tmp_path / "only.txt"))
    assert part.items["item_id"].tolist() == ["front door", "cup/2", "-x"]
    for odd in ("a\x1bb", "x" * 201):
        with refusal("rows.csv: row 2"):
            read_without_clips(tmp_path, "item_id,caption", f"{odd},up")
    with refusal("rows.csv: row 3"):
        read_without_clips(tmp_path, "item_id,caption", "a,up", "a#0,down")
