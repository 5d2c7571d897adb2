"""Rows that cannot be meant: an equal mistake gets an equal sentence, and what is left out is counted and said."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from field_files import write_field_files
from messages import expect_message, refusal
from rewind.cli.init.read import read_caption_csv, read_caption_json, read_caption_jsonl
from rewind.config import Dataset, Study
from rewind.data.annotations import read_annotations, reading_sentences
from rewind.data.opposites import read_opposites
from rewind.data.readers import NpzArchive, open_npz, read_embedding_file, read_score_file
from rewind.errors import RewindError
from rewind.io.cache import JsonCache
from rewind.io.schema import similar_name
from rewind.io.strict import read_user_json, read_user_text
from rewind.video.shards import find_clip
from rewind.video.sources import build_inventory
from rewind.workflow.preflight.annotations import annotation_faults

# ---- Data sets of the field ------------------------------------------------------------------------------------------


def read(name: str, folder: Path, **keys: object):
    source = {"format": name, "folder": str(folder), "videos": str(folder), "counts": "any"}
    source |= {"valid_clips": 2} if name in ("activitynet", "youcook2") else {}
    return read_annotations(Dataset(name=name, reverse=False, clips=False, source=source | keys), "")


def changed_rows(path: Path, change: Callable[[list[list[str]]], None]) -> None:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    change(rows)
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)


def test_a_test_clip_of_msrvtt_that_is_unknown_or_given_twice_is_refused(tmp_path: Path) -> None:
    write_field_files("msrvtt", tmp_path)
    test = tmp_path / "MSRVTT_JSFUSION_test.csv"
    before = test.read_text()
    changed_rows(test, lambda rows: rows.append(rows[1]))
    with refusal("MSRVTT_JSFUSION_test.csv: row 11"):
        read("msrvtt", tmp_path)
    test.write_text(before)
    column = before.partition("\n")[0].split(",").index("video_id")
    changed_rows(test, lambda rows: rows[2].__setitem__(column, rows[2][column].upper()))
    with refusal("MSRVTT_JSFUSION_test.csv: row 3"):
        read("msrvtt", tmp_path)


@pytest.mark.parametrize("header", ["clip\tstart\tend\tstart\tend\tsentence", "clip\tstart_1\tend_1\tx\ty\ttext"])
def test_a_header_of_lsmdc_is_no_clip(tmp_path: Path, header: str) -> None:
    write_field_files("lsmdc", tmp_path)
    path = tmp_path / "LSMDC16_annos_training.csv"
    path.write_text(f"{header}\n{path.read_text()}")
    with refusal("LSMDC16_annos_training.csv: row 1"):
        read("lsmdc", tmp_path)


@pytest.mark.parametrize(
    ("start", "end"), [("nan", "9"), ("0", "inf"), ("-1", "9"), ("9", "9"), ("9", "1"), ("1_0", "90"), ("", "9")]
)
def test_times_of_youcook2_that_are_none_are_refused(tmp_path: Path, start: str, end: str) -> None:
    write_field_files("youcook2", tmp_path)
    test = tmp_path / "validation_youcook.csv"
    changed_rows(test, lambda rows: rows[1].__setitem__(slice(0, 2), [end, start]))
    with refusal("validation_youcook.csv: row 2"):
        read("youcook2", tmp_path)


def test_a_segment_of_youcook2_that_is_given_more_often_than_annotated_is_refused(tmp_path: Path) -> None:
    write_field_files("youcook2", tmp_path)
    test = tmp_path / "validation_youcook.csv"
    changed_rows(test, lambda rows: rows.append([*rows[1][:3], "reworded", rows[1][4]]))
    rows = test.read_text().count("\n")
    with refusal(f"validation_youcook.csv: row {rows}"):
        read("youcook2", tmp_path)
    # Of one that is not annotated too, however its times are written.
    changed_rows(
        test, lambda rows: rows.__setitem__(slice(1, None), [["8", "7", "1", "a", "x"], ["8.0", "7", "1", "b", "x"]])
    )
    with refusal("validation_youcook.csv: row 3"):
        read("youcook2", tmp_path)


@pytest.mark.parametrize("times", ["[-1, 4]", "[4, 4]", '["a", 4]', "[true, 4]"])
def test_a_segment_that_is_no_time_is_refused(tmp_path: Path, times: str) -> None:
    write_field_files("youcook2", tmp_path)
    path = tmp_path / "youcookii_annotations_trainval.json"
    content = json.loads(path.read_text())
    video = next(iter(content["database"]))
    content["database"][video]["annotations"][0]["segment"] = json.loads(times)
    path.write_text(json.dumps(content))
    with refusal(f"{path.name}: {video!r}: annotations[0]: 'segment'"):
        read("youcook2", tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "change"),
    [
        ("didemo", "train_data.json", lambda content: content[0].update(description=["one", "two"])),
        ("didemo", "train_data.json", lambda content: content[0].update(description="['one', 'two']")),
        ("activitynet", "train.json", lambda content: next(iter(content.values())).update(sentences="one")),
        ("vatex", "ref_captions.json", lambda content: content.update({next(iter(content)): "one"})),
        ("vatex", "ref_captions.json", lambda content: content.update({next(iter(content)): ["a", None]})),
    ],
)
def test_one_text_for_a_list_and_a_list_for_a_text_are_refused(tmp_path: Path, name: str, file: str, change) -> None:
    write_field_files(name, tmp_path)
    content = json.loads((tmp_path / file).read_text())
    change(content)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(RewindError) as error:
        read(name, tmp_path)
    assert error.value.place.startswith(str(tmp_path / file))
    expect_message(str(error.value).replace(f"{tmp_path}/", ""))


def test_a_list_that_names_none_of_the_clips_is_refused(tmp_path: Path) -> None:
    write_field_files("didemo", tmp_path)
    (tmp_path / "train_list.txt").write_text('["a.mp4", "b.mp4"]\n')
    with refusal("train_list.txt"):
        read("didemo", tmp_path)


def test_what_a_reader_leaves_out_and_doubts_is_said_in_one_form(tmp_path: Path) -> None:
    write_field_files("didemo", tmp_path)
    path = tmp_path / "test_data.json"
    content = json.loads(path.read_text())
    names = list(dict.fromkeys(entry["video"] for entry in content))
    for entry in content:
        entry["description"] = {names[0]: "", names[1]: "N/A"}.get(entry["video"], entry["description"])
    content = [entry for n, entry in enumerate(content) if n == 0 or content[n - 1]["video"] != entry["video"]]
    path.write_text(json.dumps([*content, content[-1] | {"video": "not listed.mp4"}]))
    with (tmp_path / "test_list.txt").open("a") as stream:
        stream.write(f"{names[0]}\nundescribed.mp4\n")
    expect_message("\n".join(reading_sentences(read("didemo", tmp_path).notes)))


# ---- Captions of users -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["['a dog', 'a cat']", '["a dog"]', "('a dog', 'a cat')", '{"en": "a dog"}'])
def test_a_list_that_is_written_as_text_is_no_caption(tmp_path: Path, text: str) -> None:
    path = tmp_path / "clips.csv"
    pd.DataFrame({"item_id": ["v1"], "caption": [text]}).to_csv(path, index=False)
    assert "list written as text" in read_caption_csv(path).faults[0]
    source = {"format": "table", "table": str(path), "videos": str(tmp_path)}
    with refusal("clips.csv: row 2"):
        read_annotations(Dataset(name="mine", source=source), "")
    (tmp_path / "clips.jsonl").write_text(json.dumps({"file_name": "a.mp4", "caption": text}) + "\n")
    assert "list written as text" in read_caption_jsonl(tmp_path / "clips.jsonl").faults[0]


@pytest.mark.parametrize("value", [7, 1.5, True, False, ["a", 7], ["a", None], {"en": "a"}])
def test_captions_that_are_no_texts_are_refused(tmp_path: Path, value: object) -> None:
    row = {"file_name": "a.mp4", "caption": value}
    (tmp_path / "clips.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "clips.json").write_text(json.dumps([row]))
    with refusal("clips.jsonl: line 1"):
        read_caption_jsonl(tmp_path / "clips.jsonl")
    with refusal("clips.json: entry 1"):
        read_caption_json(tmp_path / "clips.json", trained=True)


def test_hard_negatives_of_unknown_captions_are_refused_before_the_first_job(tmp_path: Path) -> None:
    (tmp_path / "clips.csv").write_text("item_id,caption,split\nv1,a dog,train\nv2,a cat,test\n")
    (tmp_path / "opposites.csv").write_text("caption_id,opposite\nv1#0,no dog\nv2#0,no cat\nV1#0,a cow\n")
    source = {"format": "table", "table": str(tmp_path / "clips.csv"), "videos": str(tmp_path)}
    dataset = Dataset(name="mine", source=source, reverse=False)
    training = {"objective": "negclip", "hard_negatives": str(tmp_path / "opposites.csv")}
    study = Study(name="s", dataset="mine", methods={"a": {"head": "meanP"}}, training=training)
    told, _ = annotation_faults({"s": study}, {"mine": dataset}, JsonCache())
    expect_message("\n".join(told["s"]).replace(f"{tmp_path}/", ""))


def test_of_hard_negatives_what_is_not_used_is_counted(tmp_path: Path, capsys) -> None:
    path = tmp_path / "opposites.csv"
    path.write_text("caption_id,opposite\nv1#0,no dog\nv2#0,no cat\nv1#0,A  dog\n")
    assert read_opposites(path, {"v1#0": "a dog"}) == {"v1#0": ["no dog"]}
    expect_message(capsys.readouterr().err.replace(f"{tmp_path}/", ""))


# ---- Files of another kind -------------------------------------------------------------------------------------------

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
KINDS = {
    "gzip": gzip.compress(b"item_id,caption\nv1,a dog\n"),
    "HTML": b"\n<!DOCTYPE html>\n<html><body>Sign in</body></html>\n",
    "Git LFS": POINTER,
    "xlsx": b"PK\x03\x04\x14\x00\x06\x00" + bytes(18) + b"\x13\x00\x00\x00[Content_Types].xml",
    "zip": b"PK\x03\x04" + bytes(40),
    "UTF-16": "item_id,caption\n".encode("utf-16"),
    "Parquet": b"PAR1" + bytes(20),
    "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
}
READERS: dict[str, Callable[[Path], object]] = {
    "clips.csv": read_caption_csv,
    "clips.jsonl": read_caption_jsonl,
    "clips.json": read_user_json,
    "names.txt": read_user_text,
    "run.trec": read_score_file,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_called_what_it_is(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(KINDS[kind])
    with refusal(name):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("kind", ["HTML", "Git LFS", "xlsx", "Parquet"])
def test_arrays_and_tables_of_another_kind_are_called_what_they_are(tmp_path: Path, kind: str) -> None:
    readers: dict[str, Callable[[Path], object]] = {
        "scores.npz": read_score_file,
        "items.npz": lambda path: read_embedding_file(path, "items"),
        "train.npz": NpzArchive,
        "items.safetensors": lambda path: read_embedding_file(path, "items"),
    }
    readers |= {"items.parquet": lambda path: read_embedding_file(path, "items")} if kind != "Parquet" else {}
    for name, reader in readers.items():
        (tmp_path / name).write_bytes(KINDS[kind])
        with refusal(name):
            reader(tmp_path / name)
    np.save(tmp_path / "array.npy", np.zeros(3))
    shutil.copy(tmp_path / "array.npy", tmp_path / "array.npz")
    with refusal("array.npz"), open_npz(tmp_path / "array.npz"):
        pass


@pytest.mark.parametrize("first", ["sep=,", '"sep=;"', "SEP=;"])
def test_a_line_for_excel_is_called_what_it_is(tmp_path: Path, first: str) -> None:
    (tmp_path / "clips.csv").write_text(f"{first}\nitem_id,caption\nv1,a dog\n")
    with refusal("clips.csv: row 1"):
        read_caption_csv(tmp_path / "clips.csv")


# ---- Names that are nearly the same ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "other", "said"),
    [
        ("café#0", "cafe\u0301#0", "Unicode form"),
        ("Clip1#0", "clip1#0", "upper and lower case"),
        ("clip 1", "clip1", "white space"),
        ("clip\u00a01", "clip1", "white space"),
        ("clip1.mp4#0", "clip1#0", "the ending of a file"),
        ("clip1", "clip1.webm", "the ending of a file"),
        ("train/clip1", "clip1", "the folder before it"),
        ("clip01", "clip1", "leading zeros"),
        ("clip-1", "clip_1", "signs"),
        ("clip\u200b1", "clip1", "signs"),
    ],
)
def test_what_differs_in_writing_alone_is_told(name: str, other: str, said: str) -> None:
    assert said in similar_name(name, ["else", other]) and not similar_name(name, ["clip2", "else", name])


# ---- Runs whose ranks contradict their scores ------------------------------------------------------------------------


def run_of(folder: Path, *rows: tuple[str, str, float, float]) -> Path:
    path = folder / "run.trec"
    path.write_text("".join(f"{query} Q0 {item} {rank:g} {score:g} x\n" for query, item, rank, score in rows))
    return path


def test_ranks_of_distances_are_refused_and_a_key_turns_them_round(tmp_path: Path) -> None:
    path = run_of(tmp_path, ("q", "a", 1, 0.1), ("q", "b", 2, 0.7), ("q", "c", 3, 0.9))
    with refusal("run.trec: line 2"):
        read_score_file(path)
    scores = read_score_file(path, higher_is_better=False)
    assert scores.items[scores.similarity[0].argmax()] == "a"
    path = run_of(tmp_path, ("q", "a", 1, 0.9), ("q", "b", 2, 0.7))
    with refusal("run.trec: line 2"):
        read_score_file(path, higher_is_better=False)


def test_equal_scores_with_ranks_say_nothing(tmp_path: Path) -> None:
    path = run_of(tmp_path, ("q", "b", 1, 0), ("q", "a", 2, 0), ("q", "c", 3, 0), ("p", "a", 1, 0), ("p", "c", 2, 0))
    with refusal("run.trec: line 4"):
        read_score_file(path)


@pytest.mark.parametrize(
    "rows",
    [
        [("q", "a", 0, 0.9), ("q", "b", 1, 0.5), ("q", "c", 2, 0.5), ("p", "b", 0, 0.1)],
        [("q", "b", 1, 0.1), ("q", "a", 1, 0.9)],  # equal ranks say nothing
        [("q", "c", 3, 0.1), ("q", "a", 1, 0.9), ("q", "b", 2, 0.5)],  # in any order of lines
        [("q", "c", 1, 0), ("q", "b", 2, 0), ("q", "a", 3, 0)],  # as trec_eval orders ties
        [("q", "a", 1, 0.9)],
    ],
)
def test_ranks_that_agree_are_read(tmp_path: Path, rows: list) -> None:
    assert read_score_file(run_of(tmp_path, *rows)).similarity.size


def test_a_matrix_of_distances_is_turned_round_and_pairs_without_one_stay_so(tmp_path: Path) -> None:
    distances = np.array([[0.1, 0.9, -np.inf]], np.float32)
    np.savez(tmp_path / "d.npz", similarity=distances, query_ids=["q"], item_ids=["a", "b", "c"])
    scores = read_score_file(tmp_path / "d.npz", higher_is_better=False).similarity
    assert np.isneginf(scores[0, 2]) and scores[0].argmax() == 0


# ---- Files on disk, and the index of packed clips --------------------------------------------------------------------


def test_a_clip_whose_file_is_written_otherwise_is_told(tmp_path: Path, capsys) -> None:
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips/cafe\u0301.mp4").touch()
    (tmp_path / "clips.csv").write_text("item_id,path,caption\nv1,café.mp4,a dog\nv2,b.mp4,a cat\n")
    source = {"format": "table", "table": str(tmp_path / "clips.csv"), "videos": str(tmp_path / "clips")}
    dataset = Dataset(name="mine", source=source)
    annotations = read_annotations(dataset, "")
    with pytest.raises(RewindError, match="differs only in Unicode form"):
        build_inventory(dataset, annotations, tmp_path / "clips")
    (tmp_path / "clips/b.mp4").touch()
    build_inventory(dataset, annotations, tmp_path / "clips")
    assert "1 files are missing" in (said := capsys.readouterr().out) and "Unicode form" in said


GOOD = "a.mp4,shards/0-of-1.tar,512,10,ab\n"


@pytest.mark.parametrize(
    "row",
    [
        "b.mp4,shards/0-of-1.tar,\x00,10,ab\n",
        "b\x00.mp4,shards/0-of-1.tar,512,10,ab\n",
        "b.mp4,shards/0-of-1.tar,x,10,ab\n",
        "b.mp4,shards/0-of-1.tar,1.5,10,ab\n",
        "b.mp4,shards/0-of-1.tar,512\n",
        "b.mp4,,512,10,ab\n",
        GOOD,
    ],
)
def test_a_broken_index_of_clips_is_named_with_its_row(tmp_path: Path, row: str) -> None:
    (tmp_path / "clips.csv").write_text(f"name,shard,offset,bytes,sha256\n{GOOD}{row}")
    with pytest.raises(RewindError) as error:
        find_clip(tmp_path / "a.mp4")
    expect_message(str(error.value).replace(f"{tmp_path}/", ""))
