"""Files that users bring: each that is broken is refused in a sentence with its row, by every reader."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkout import ROOT
from messages import refusal
from rewind.config import CiaSource, Dataset
from rewind.config.load import read_yaml
from rewind.data import annotations as annotated
from rewind.data import readers
from rewind.data.annotations import AnnotationBuilder, select_originals
from rewind.data.formats import cia, embeddings, flickr8k, foils, internvid, photos, rtime, table
from rewind.data.formats.embeddings import ImageNames, read_caption_lines
from rewind.errors import RewindError
from rewind.exports.mteb import import_predictions
from rewind.io.schema import TEXT, Schema
from rewind.io.strict import allow_long_cells, csv_records, read_user_csv, read_user_json, read_user_text


def _dataset(path: Path, kind: str, key: str) -> Dataset:
    value = {"test": str(path)} if key == "annotations" else str(path)
    folder = {"table": "videos", "rtime": "videos", "internvid": "videos"}.get(kind, "images")
    return Dataset.model_validate({"name": "d", "source": {"format": kind, key: value, folder: str(path.parent)}})


def _split_file(path: Path) -> None:
    captions = path.with_name("c.tsv")
    captions.write_text("a.jpg\tA dog.\n")
    source = {"format": "flickr8k", "captions": str(captions), "images": str(path.parent), "split_file": str(path)}
    flickr8k.read(Dataset.model_validate({"name": "d", "source": source}), "")


def _cia(path: Path, key: str) -> None:
    row = "k_0.0,é,time,cia-ssv2,text\n7,7,time,cia-ssv2,video"
    files = {"inputs": f"id,value,nuance,source,modality\n{row}\n", "labels": "{}"}
    for name, text in files.items():
        path.with_name(name).write_text(text, encoding="utf-8")
    source = {name: str(path if name == key else path.with_name(name)) for name in files}
    cia.read_answers(CiaSource(format="cia", videos=str(path.parent), **source))


def _foils(path: Path, benchmark: str) -> None:
    source = {"format": "foils", "benchmark": benchmark, "file": str(path), "videos": str(path.parent)}
    foils.read(Dataset.model_validate({"name": "d", "source": source}), "")


def _only(path: Path) -> None:
    select_originals(AnnotationBuilder().annotations({}), str(path))


READERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "table": (lambda p: table.read(_dataset(p, "table", "table"), ""), "item_id,path,split,caption\nk1,a,test,é\n"),
    "internvid": (lambda p: internvid.read(_dataset(p, "internvid", "captions"), ""), "YoutubeID,Caption\nk1,é\n"),
    "flickr8k": (lambda p: flickr8k.read(_dataset(p, "flickr8k", "captions"), ""), "image,caption\na.jpg,é\n"),
    "flickr8k tabs": (lambda p: flickr8k.read(_dataset(p, "flickr8k", "captions"), ""), "a.png\té\nb.jpg\té\n"),
    "split file": (_split_file, '{"images": [\n{"filename": "é.jpg", "split": "val"}]}'),
    "photos": (lambda p: photos.read(_dataset(p, "photos", "captions"), ""), '[\n{"file_name": "a", "caption": "é"}]'),
    "rtime": (lambda p: rtime.read(_dataset(p, "rtime", "annotations"), ""), '{"1":\n{"forward_captions": ["é"]}}'),
    "cia inputs": (lambda p: _cia(p, "inputs"), "id,value,nuance,source,modality\nk,é,time,cia-ssv2,video\n"),
    "cia labels": (lambda p: _cia(p, "labels"), '{"k_0.0":\n["é"]}'),
    "caption lines": (lambda p: read_caption_lines(p, ImageNames(["a.jpg"], "x.npz")), "image,caption\na.jpg,é\n"),
    "splits of vectors": (lambda p: embeddings._read_splits(str(p), {"é"}), "image,split\né,train\n"),
    "foils": (lambda p: _foils(p, "table"), "video,caption,foil\nk1,é,e\n"),
    "foils of ViLMA": (lambda p: _foils(p, "vilma"), '{"1":\n{"caption": "é", "foils": ["e"]}}'),
    "only": (_only, "k1\né\n"),
    "a run in TREC's format": (readers.read_score_file, "q Q0 a 1 0.5 é\nq Q0 é 2 0.4 t\n"),
    "predictions of MTEB": (lambda p: import_predictions(p, p.with_suffix(".npz")), '{"é":\n{"test": {}}}'),
    "a study": (read_yaml, "title: é\nseeds: [0]\n"),
}
BROKEN: dict[str, Callable[[str], bytes]] = {
    "Latin-1": lambda text: text.encode("latin-1"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.replace("é", "e").encode("utf-16-le"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "NUL": lambda text: (text + "\0").encode(),
    "nothing": lambda text: b"",
    "blanks": lambda text: b"\xef\xbb\xbf \n\n",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("fault", BROKEN)
def test_files_that_are_no_text_are_refused_with_their_row(tmp_path: Path, reader: str, fault: str) -> None:
    read, text = READERS[reader]
    path = tmp_path / "brought.txt"
    path.write_bytes(BROKEN[fault](text))
    with refusal("brought.txt"):
        read(path)


@pytest.mark.parametrize("reader", READERS)
def test_folders_and_absent_files_are_refused(tmp_path: Path, reader: str) -> None:
    (tmp_path / "brought.txt").mkdir()
    for name in ("brought.txt", "gone.txt"):
        with refusal(name):
            READERS[reader][0](tmp_path / name)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    """In a process of another account, where this one is the administrator's, who may read everything."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "popen-", "test_")):
            folder.chmod(0o755)
    program = (
        "import os, sys; from pathlib import Path\n"
        "from rewind.data.readers import open_npz; from rewind.io.strict import read_user_text\n"
        "os.geteuid() or os.setuid(65534)\n"
        "for read in (read_user_text, lambda path: open_npz(path).__enter__()):\n"
        "    try: read(Path(sys.argv[1]))\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "a.csv").chmod(0)
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", program, str(tmp_path / "a.csv")]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    said = f"RewindError {tmp_path / 'a.csv'}: this account may not read the file; ask its owner"
    assert done.stdout.count(said) == 2, done.stdout + done.stderr


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path, ends: str, mark: str) -> None:
    text = mark + ends.join(["item_id,split,caption", "k1,test,A dog", "", '"k2",test,"A cat,"', ""])
    (tmp_path / "a.csv").write_bytes(text.encode())
    found = list(read_user_csv(tmp_path / "a.csv", Schema(dict.fromkeys(("item_id", "split", "caption"), TEXT))))
    assert [row.number for row in found] == [2, 4]
    assert [row.cells["caption"] for row in found] == ["A dog", "A cat,"]
    with refusal("a.csv: row 4"):
        (tmp_path / "a.csv").write_bytes(text.replace('"A cat,"', "A cat,").encode())
        list(read_user_csv(tmp_path / "a.csv", Schema(dict.fromkeys(("item_id", "split", "caption"), TEXT))))


HEAD = "item_id,split,caption"
ROWS = {
    "an open quote": (['k1,test,"A dog', "k2,test,A cat"], "row 2"),
    "rows inside of quotes": (['k1,test,"A dog', "k2,test,A cat", 'k3,test,A cow"', "k4,test,A fly"], "row 2"),
    "a quote inside": (['k1,test,"A "big" dog"'], "row 2"),
    "too few": (["k1,test,A dog", "k2,test"], "row 3"),
    "too many": (["k1,test,A dog, brown"], "row 2"),
    "white space": (["k1,test,A dog", "k2 ,test,A cat"], "row 3: column 'item_id'"),
    "no-break space": (["\u00a0k2,test,A cat"], "row 2: column 'item_id'"),
    "a huge cell": (["k1,test," + "x" * 140_000], "row 2"),
    "no id": ([",test,A dog"], "row 2"),
    "no caption": (["k1,test, "], ""),
}


@pytest.mark.parametrize("fault", ROWS)
def test_rows_are_read_strictly(tmp_path: Path, fault: str) -> None:
    lines, place = ROWS[fault]
    (tmp_path / "a.csv").write_text("\n".join([HEAD, *lines]) + "\n")
    keys = {"name": "d", "clips": False, "source": {"format": "table", "table": str(tmp_path / "a.csv")}}
    with refusal(": ".join(filter(None, ("a.csv", place)))):
        table.read(Dataset.model_validate(keys), "")


def test_what_a_process_allows_for_its_own_tables_changes_nothing(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    with allow_long_cells():
        assert csv.field_size_limit() > before
        test_rows_are_read_strictly(tmp_path, "a huge cell")
    assert csv.field_size_limit() == before


def test_a_caption_of_several_lines_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'{HEAD}\nk1,test,"A dog,\nbrown, and\na cat"\nk2,test,A fly\n')
    found = list(read_user_csv(tmp_path / "a.csv", table.TABLE_COLUMNS))
    assert [(row.number, row.cells["item_id"]) for row in found] == [(2, "k1"), (5, "k2")]


HEADERS = ["item_id,split,Captions", "item_id,caption,splits", "item_id,caption,item_id", "item_id;caption"]


@pytest.mark.parametrize("header", HEADERS)
def test_headers_are_read_strictly(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\nk1,test,A dog\n")
    with refusal("a.csv: row 1"):
        list(read_user_csv(tmp_path / "a.csv", table.TABLE_COLUMNS))


def test_other_tables_know_their_columns_too(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("image,splits\na,train\n")
    with refusal("a.csv: row 1"):
        embeddings._read_splits(str(path), {"a"})
    path.write_text("image,split,paths\na,train,x\n")
    with refusal("a.csv: row 1"):
        embeddings._read_splits(str(path), {"a"})
    path.write_text("image,split\na,train\nb,valid\n\na,test\n")
    with refusal("a.csv: row 5"):
        embeddings._read_splits(str(path), {"a", "b"})
    path.write_text("YouTubeID,Caption,Score\na,b,1\n")
    with refusal("a.csv: row 1"):
        internvid.read(_dataset(path, "internvid", "captions"), "")


_CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1).map(str.strip).filter(bool)


@given(st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]))
def test_what_is_quoted_as_it_should_be_is_read_as_it_is(rows: list[tuple[str, str]], ends: str) -> None:
    text = "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + ends for row in rows)
    assert [(n, tuple(cells)) for n, cells in csv_records(text, "a.csv")] == list(enumerate(rows, start=1))


JSON = {
    "nested": "[" * 200_000 + "]" * 200_000,
    "infinite": '{"a":\n1e999}',
    "long": '{"a":\n\n ' + "9" * 5000 + "}",
    "NaN": '{"NaN": "NaN",\n"a": NaN}',
    "half a pair": '{"a": "\\ud83d\\ude00",\n"b": "\\\\ud800 \\ud800"}',
    "NUL": '["\\u0000"]',
    "twice": '{"a": {"b": 1, "a": 2},\n"b": {"a": 1,\n "a": 2}}',
    "cut": '{"a": ',
    "words behind": "{} x",
}
TOP = ("photos", "rtime", "split file", "predictions of MTEB")


@pytest.mark.parametrize("reader", TOP)
@pytest.mark.parametrize("fault", JSON)
def test_json_is_read_strictly(tmp_path: Path, reader: str, fault: str) -> None:
    text = JSON[fault]
    if reader == "rtime" and fault == "nested":
        text = '{"a": ' + text + "}"
    if reader == "predictions of MTEB" and fault == "NaN":
        pytest.skip("MTEB writes NaN, and the pair that has it is named")
    (tmp_path / "a.json").write_text(text)
    with refusal("a.json"):
        READERS[reader][0](tmp_path / "a.json")


@pytest.mark.parametrize("reader", TOP)
@pytest.mark.parametrize("text", ["3", '"x"', "null", "true", "[[]]", '{"a": 3}'])
def test_json_of_another_form_is_refused(tmp_path: Path, reader: str, text: str) -> None:
    if reader == "rtime" and text.startswith("{"):
        pytest.skip("an entry that is no object is left out and counted")
    (tmp_path / "a_predictions.json").write_text(text)
    with refusal("a_predictions.json"):
        READERS[reader][0](tmp_path / "a_predictions.json")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**99), 10**99) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\\\"u", max_size=4), inner, max_size=4),
)  # fmt: skip


@given(_VALUES, st.booleans())
def test_sound_json_is_read_as_it_is(tmp_path_factory: pytest.TempPathFactory, value: object, plain: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "sound.json"
    path.write_text(json.dumps(value, ensure_ascii=plain), encoding="utf-8")
    assert read_user_json(path) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(raw)
    for read in (
        read_user_text,
        read_user_json,
        lambda p: list(read_user_csv(p, table.TABLE_COLUMNS)),
        readers.read_score_file,
        read_yaml,
    ):
        try:
            read(path)
        except RewindError as error:
            assert str(error).startswith(f"{path}: ")


IDS = {
    "blank": ["a", " b"],
    "empty": ["a", ""],
    "numbers": [1.0, 2.0],
    "bytes": [b"a", b"\xe9"],
    "a table": [["a", "b"]],
}


@pytest.mark.parametrize("fault", IDS)
def test_ids_of_vectors_and_scores_are_read_strictly(tmp_path: Path, fault: str) -> None:
    path, names = tmp_path / "a.npz", np.array(IDS[fault])
    np.savez(path, ids=names, vectors=np.ones((2, 3)))
    with refusal("a.npz") as caught:
        readers.read_embedding_file(path, "items")
    assert "a.npz: ids" in str(caught.value)
    np.savez(path, query_ids=names, item_ids=np.array(["x"]), similarity=np.ones((2, 1)))
    with refusal("a.npz") as caught:
        readers.read_score_file(path)
    assert "a.npz: query_ids" in str(caught.value)


def test_ids_of_parquet_and_safetensors_are_read_strictly(tmp_path: Path) -> None:
    import pandas as pd
    import torch
    from safetensors.torch import save_file

    pd.DataFrame({"id": ["a", None], "vector": [[1.0], [2.0]]}).to_parquet(tmp_path / "a.parquet")
    with refusal("a.parquet"):
        readers.read_embedding_file(tmp_path / "a.parquet", "items")
    for ids in ('["a", ["b"]]', '["a", "\\ud800"]', "[" * 100_000):
        save_file({"vectors": torch.ones(2, 1)}, tmp_path / "a.safetensors", {"ids": ids})
        with refusal("a.safetensors", varying=r"\(.*recursion.*\)"):
            readers.read_embedding_file(tmp_path / "a.safetensors", "items")


RUN = {
    "seven fields": ("q Q0 d 1 0.5 tag\nq Q0 a b 2 0.4 tag\n", "line 2"),
    "five fields": ("q Q0 d 1 0.5 tag\n\nq Q0 d 2 tag\n", "line 3"),
    "an infinite score": ("q Q0 d 1 1e999 tag\n", "line 1"),
    "words": ("q Q0 d 1 high tag\n", "line 1"),
    "twice": ("q Q0 d 1 1 t\n\nq Q0 d 2 0 t\n", "line 3"),
}


@pytest.mark.parametrize("fault", RUN)
def test_runs_are_read_strictly(tmp_path: Path, fault: str) -> None:
    text, place = RUN[fault]
    (tmp_path / "a.run").write_text(text)
    with refusal(f"a.run: {place}"):
        readers.read_score_file(tmp_path / "a.run")
    (tmp_path / "a.run.gz").write_bytes(b"\x1f\x8b torn")
    with refusal("a.run.gz"):
        readers.read_score_file(tmp_path / "a.run.gz")


def test_a_quote_in_a_run_is_a_letter(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text('q"1 Q0 "d 1 0.5 t\nq2 Q0 NA 1 -1e-3 t\n')
    found = readers.read_score_file(tmp_path / "a.run")
    assert found.queries.tolist() == ['q"1', "q2"] and found.items.tolist() == ['"d', "NA"]
    assert found.similarity[1, 1] == -1e-3 and annotated.SPLITS[0] == "train"
