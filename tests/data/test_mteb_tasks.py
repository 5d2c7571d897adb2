"""Tasks of MTEB as data sets: what its own loaders read from a copy, right answers, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from messages import refusal
from rewind import optional_packages
from rewind.config.dataset import Dataset
from rewind.data.annotations import read_annotations
from rewind.data.dummy import SplitSizes, find_dummy_data
from rewind.data.formats.mteb import make_sources, read_answers, write_task_folder
from rewind.evaluation.answers import answer_values
from rewind.io.files import read_json, write_text
from rewind.video.sources import build_inventory

WHERE = "config/datasets/tiny.yaml: source"
FLAT = """---
configs:
- {config_name: default, data_files: [{split: test, path: data/*.parquet}]}
---
"""

pytestmark = pytest.mark.skipif(not optional_packages.is_installed("mteb"), reason="mteb is not installed")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def tiny(folder: Path | None, **source) -> Dataset:
    given = {"format": "mteb", "folder": str(folder) if folder else None} | source
    return Dataset(name="tiny", source=given, how_to_get="")


def picture(shade: int, kind: str = "PNG") -> dict[str, object]:
    stream = io.BytesIO()
    Image.fromarray(np.full((20, 30, 3), shade, np.uint8)).save(stream, kind)
    return {"bytes": stream.getvalue(), "path": f"{shade}.{kind.lower()}"}


def flat_folder(folder: Path, rows: list[dict[str, object]]) -> Path:
    """A repository as MTEB's MSR-VTT has it: one table, in which a caption's video is in its own row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "data").mkdir(parents=True)
    write_text(folder / "README.md", FLAT)
    types = {"caption": {"dtype": "string", "_type": "Value"}, "video": {"_type": "Video"}}
    video = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.Table.from_pylist(rows, pa.schema([("caption", pa.string()), ("video", video)]))
    info = json.dumps({"info": {"features": types}})
    pq.write_table(table.replace_schema_metadata({"huggingface": info}), folder / "data/test-00000-of-00001.parquet")
    return folder


def image_folder(folder: Path, qrels: list[tuple[str, str, int]], **change: list) -> Path:
    corpus = [{"id": name, "image": picture(40 * n, kind)} for n, (name, kind) in enumerate(IMAGES)]
    queries = [{"id": f"q{n}", "text": text} for n, text in enumerate(("one  dog", "a cat", "", "nobody's"))]
    rows = [dict(zip(("query-id", "corpus-id", "score"), row, strict=True)) for row in qrels]
    write_task_folder(folder, **({"corpus": corpus, "queries": queries, "qrels": rows} | change))
    return folder


IMAGES = (("i/0", "PNG"), ("i1", "JPEG"), ("i2", "PNG"), ("i3", "PNG"))
SEVERAL = [("q1", "i2", 1), ("q0", "i3", 1), ("q0", "i/0", 2), ("q2", "i1", 1), ("q1", "i1", 0), ("q0", "i9", 1)]


@pytest.mark.parametrize("task", ["MSRVTTT2V", "MSRVTTV2T"])
def test_a_task_with_a_loader_of_its_own_is_read_in_both_directions(tmp_path: Path, task: str) -> None:
    clips = [b"first", b"second clip", b"third"]
    rows = [
        {"caption": f"number  {n}", "video": {"bytes": clip, "path": name}}
        for n, (clip, name) in enumerate(zip(clips, ("a.mp4", "b.WEBM", "no suffix"), strict=True))
    ]
    dataset, made = tiny(flat_folder(tmp_path / "copy", rows), task=task), tmp_path / "made"
    make_sources(dataset, made)
    found = read_annotations(dataset, str(made))
    assert found.items["item_id"].tolist() == ["0", "0_rev", "1", "1_rev", "2", "2_rev"]  # twins: it has clips
    assert found.captions[["video_id", "caption"]].to_numpy().tolist() == [[str(n), f"number {n}"] for n in range(3)]
    files = {path.name: path.read_bytes() for path in (made / "videos").iterdir()}
    assert files == dict(zip(("0.mp4", "1.webm", "2.mp4"), clips, strict=True))
    notes = found.notes["splits"]["test"]
    assert (
        notes["task"] == task and notes["dataset"]["path"] == "mteb/MSR-VTT" and notes["texts_with_several_items"] == 0
    )
    assert sorted(path.name for path in made.iterdir()) == ["task.json", "videos"], "the cache is removed"
    rows = build_inventory(dataset, found, made / "videos")
    assert (rows["source"] != "").all()

    times = {path.name: path.stat().st_mtime_ns for path in (made / "videos").iterdir()}
    (made / "videos/of_another_task.mp4").write_bytes(b"x")
    (made / "videos/1.webm").write_bytes(b"broken")
    make_sources(dataset, made)
    again = {path.name: path.stat().st_mtime_ns for path in (made / "videos").iterdir()}
    assert {name for name in times if times[name] != again[name]} == {"1.webm"} and again.keys() == times.keys()


def test_a_folder_in_mtebs_layout_keeps_every_right_answer(tmp_path: Path) -> None:
    dataset, made = tiny(image_folder(tmp_path / "copy", SEVERAL), items="images"), tmp_path / "made"
    make_sources(dataset, made)
    found = read_annotations(dataset, str(made))
    assert found.items["reversed"].sum() == 0 and len(found.items) == 4
    slashed, *others = found.items["item_id"]
    assert slashed.startswith("i_0-") and others == ["i1", "i2", "i3"]
    captions = found.captions[["caption_id", "video_id", "caption"]].to_numpy().tolist()
    assert captions == [[f"{slashed}#0", slashed, "one dog"], ["i2#0", "i2", "a cat"]]  # the more relevant one first
    notes = found.notes["splits"]["test"]
    assert (notes["empty_texts"], notes["texts_without_item"], notes["texts_with_several_items"]) == (1, 0, 1)
    assert {path.suffix for path in (made / "images").iterdir()} == {".png", ".jpeg"}
    answers = read_answers(dataset.source, str(made))
    assert answers[["caption_id", "item_id"]].to_numpy().tolist() == [
        [f"{slashed}#0", slashed],
        [f"{slashed}#0", "i3"],
        ["i2#0", "i2"],
    ]
    scores = np.array([[0.1, 0.2, 0.9, 0.8], [0.0, 0.3, 0.2, 0.1]], np.float32)
    values = answer_values(scores, found.captions, found.items, answers, ["text_to_item"])
    first = values[(values["metric"] == "R@1")].set_index("query_id")["value"]
    assert set(first) == {0.0}, "i2 is not right for q0, i1 not for q1"


def test_items_that_a_row_names_are_of_the_data_set_alone(tmp_path: Path) -> None:
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(b"not yours")
    copy = tmp_path / "copy"
    for path in (str(secret), "../secret.mp4"):
        rows = [{"caption": "a", "video": {"bytes": None, "path": path}}]
        if not copy.exists():
            flat_folder(copy, rows)
        write_rows(copy, rows)
        with refusal(f"{WHERE}.task: item '0'"):
            make_sources(tiny(copy, task="MSRVTTT2V"), tmp_path / "made")
    (copy / "clips").mkdir()
    (copy / "clips/a.mp4").write_bytes(b"mine")
    write_rows(copy, [{"caption": "a", "video": {"bytes": None, "path": "clips/a.mp4"}}])
    make_sources(tiny(copy, task="MSRVTTT2V"), tmp_path / "made")
    assert (tmp_path / "made/videos/0.mp4").read_bytes() == b"mine"
    write_rows(copy, [{"caption": "a", "video": {"bytes": None, "path": "clips/b.mp4"}}])
    with refusal(f"{WHERE}.task: item '0': copy/clips/b.mp4"):
        make_sources(tiny(copy, task="MSRVTTT2V"), tmp_path / "made")
    write_rows(copy, [{"caption": "a", "video": {"bytes": b"", "path": None}}])
    with refusal(f"{WHERE}.task"):
        make_sources(tiny(copy, task="MSRVTTT2V"), tmp_path / "made")


def write_rows(folder: Path, rows: list[dict[str, object]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = folder / "data/test-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(file)), file)


TEXTS = [{"id": "q0", "text": "a"}]


@pytest.mark.parametrize(
    ("source", "change", "place"),
    [
        ({"task": "MSRVTTT2W"}, {}, f"{WHERE}.task"),
        ({"task": "DiDeMoT2VRetrieval.v3"}, {}, f"{WHERE}.task"),
        ({"task": "Banking77Classification"}, {}, f"{WHERE}.task"),
        ({"task": "no_such_task_at_all_here"}, {}, f"{WHERE}.task"),
        ({"task": "rewind.data.nothing"}, {}, f"{WHERE}.task"),
        ({"task": "MSRVTTT2V", "split": "dev"}, {}, f"{WHERE}.task"),
        ({"items": "videos"}, {}, f"{WHERE}.task"),
        ({"items": "images", "split": "dev"}, {}, f"{WHERE}.split"),
        ({"items": "images", "subset": "fr"}, {}, f"{WHERE}.task"),
        ({"items": "images"}, {"corpus": TEXTS}, f"{WHERE}.task"),
        ({"items": "images"}, {"qrels": []}, f"{WHERE}.task"),
        ({"items": "images"}, {"qrels": [("q0", "i3", 1), ("q0", "i3", 0)]}, f"{WHERE}.task: qrels: row 2"),
        ({"items": "images"}, {"queries": [*TEXTS, {"id": "q0", "text": "b"}]}, f"{WHERE}.task: queries"),
    ],
)
def test_what_is_no_such_task_is_refused(tmp_path: Path, source: dict, change: dict, place: str) -> None:
    qrels = change.pop("qrels", SEVERAL) if "qrels" in change else SEVERAL
    copy = image_folder(tmp_path / "copy", qrels or [("q9", "i9", 1)], **change)
    with refusal(place, varying=r"/\S+/(?=copy)|(?<=\().*(?=\);)"):
        make_sources(tiny(copy, **source), tmp_path / "made")
    assert not (tmp_path / "made/task.json").exists()


def test_a_file_that_names_neither_task_nor_folder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"source\.task"):
        tiny(None)


def test_dummy_data_are_read_by_mteb(tmp_path: Path) -> None:
    for items in ("videos", "images"):
        real = tiny(None, task="MSRVTTT2V", items=items)
        keys = find_dummy_data("mteb")(real, tmp_path / items, SplitSizes(8, 2, 4))
        dataset = Dataset(name="tiny", source=real.source.model_dump(mode="json") | keys)
        make_sources(dataset, tmp_path / f"made {items}")
        found = read_annotations(dataset, str(tmp_path / f"made {items}"))
        originals = found.items[found.items["reversed"] == 0]
        assert len(originals) == len(found.captions) == 4 and set(found.items["split"]) == {"test"}
        assert len(found.items) == (8 if items == "videos" else 4)


OWN = """
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.tasks.retrieval.eng.flickr30k_t2i_retrieval import Flickr30kT2IRetrieval

class Mine(Flickr30kT2IRetrieval):
    pass
"""


def test_a_task_of_ones_own_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mylab").mkdir()
    (tmp_path / "mylab/tasks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    copy = image_folder(tmp_path / "copy", SEVERAL)
    dataset = tiny(copy, task="mylab.tasks.Mine", items="images")
    make_sources(dataset, tmp_path / "made")
    assert len(read_annotations(dataset, str(tmp_path / "made")).items) == 4
    assert read_json(tmp_path / "made/task.json")["notes"]["category"] == "t2i"


def test_metrics_over_all_right_answers_are_mtebs(tmp_path: Path) -> None:
    dataset, made = tiny(image_folder(tmp_path / "copy", SEVERAL[:3]), items="images"), tmp_path / "made"
    make_sources(dataset, made)
    found, answers = read_annotations(dataset, str(made)), read_answers(dataset.source, str(made))
    captions, items = found.captions["caption_id"].tolist(), found.items["item_id"].tolist()
    scores = np.random.default_rng(3).normal(size=(len(captions), len(items)))
    results = {c: dict(zip(items, row.tolist(), strict=True)) for c, row in zip(captions, scores, strict=True)}
    qrels: dict[str, dict[str, int]] = {}
    for row in answers.itertuples():
        qrels.setdefault(row.caption_id, {})[row.item_id] = 1
    metrics = optional_packages.mteb("_evaluators.retrieval_metrics")
    theirs = metrics.calculate_retrieval_scores(results, qrels, [1, 2, 10])
    ours = answer_values(scores, found.captions, found.items, answers, ["text_to_item"])
    mean = ours.groupby("metric")["value"].mean()
    assert mean["nDCG@10"] == pytest.approx(100 * theirs.ndcg["NDCG@10"], abs=1e-3)
    assert mean["AP"] == pytest.approx(100 * theirs.map["MAP@10"], abs=1e-3)
