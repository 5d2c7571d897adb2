"""What nobody can decide: a clip that is its own reverse, a caption that is its reverse's, an item that is another."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_clips import call, make
from messages import expect_message, refusal
from rewind.config import Dataset, Study
from rewind.data.captions import load_split
from rewind.data.score_matrix import write_scores
from rewind.evaluation.ranking import compute_metrics, rank_table, setting_selection
from rewind.evaluation.run_metrics import compute_ranks
from rewind.evaluation.twins import SAME_CLIP, SAME_WORDS, caption_words, count_binary_left_out, recall_ceiling
from rewind.io.files import read_csv, read_json
from rewind.report.study import _ceiling_notes
from rewind.video.dataset import join_reports, make_captions, make_inventory, make_shard

BOTH = ["text_to_item", "item_to_text"]


def there_and_back(folder: Path, path: Path) -> Path:
    """A motion that is played forward and then backward."""
    forward = make(folder / "forward.mkv", "-qp", "0", size="64x48", rate="10", seconds=0.6)
    graph = "[0]split[a][b];[b]reverse[r];[a][r]concat"
    return call(path, "-i", str(forward), "-filter_complex", graph, "-c:v", "libx264", "-qp", "0")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dataset]:
    """Six test clips, from files to items.csv: one frame, a still, a motion there and back, and what moves."""
    folder = tmp_path_factory.mktemp("undecidable")
    clips = folder / "clips"
    clips.mkdir()
    make(clips / "one.mp4", rate="25", seconds=0.05)
    still = "color=c=red:s=64x48:r=10:d=1"
    call(clips / "still.mp4", "-f", "lavfi", "-i", still, "-c:v", "libx264")
    there_and_back(folder, clips / "back.mp4")
    make(clips / "moving.mp4", seconds=1.5)
    (clips / "again.mp4").write_bytes((clips / "moving.mp4").read_bytes())
    make(clips / "other.mp4", "-vf", "hflip", seconds=1.5)
    with (folder / "clips.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["item_id", "caption", "reverse_caption", "split"])
        for name in ("one", "still", "back", "moving", "again"):
            rows.writerow([name, f"{name} opens", f"{name} closes", "test"])
        rows.writerow(["other", "A ball rolls.", "a ball  rolls", "test"])
    source = {"format": "table", "table": str(folder / "clips.csv"), "videos": str(clips)}
    dataset = Dataset.model_validate({"name": "mine", "source": source, "video": {"fps": 10, "short_side": 48}})
    results = folder / "results/data/mine"
    inventory, report = str(results / "videos/inventory.csv"), str(results / "videos/report.csv")
    shards = sorted(set(_inventory(dataset, inventory)["shard"]))
    paths = [str(results / f"videos/shards/{n}-of-{len(shards)}.csv") for n in shards]
    for shard, path in zip(shards, paths, strict=True):
        make_shard(inventory, shard, dataset.video, "code", 1, path)
    join_reports(paths, 0.0, "", "videos", report)
    make_captions(dataset, report, str(results / "items.csv"))
    return results, dataset


def _inventory(dataset: Dataset, path: str) -> pd.DataFrame:
    make_inventory(dataset, path)
    return read_csv(path)


def perfect_scores(items: pd.DataFrame, captions: pd.DataFrame) -> np.ndarray:
    """A model that knows everything that words and frames tell: the same of them have the same scores."""
    content = items["same_item_id"].where(items["same_item_id"] != "", items["item_id"]).to_numpy()
    own = pd.Series(content, index=items["item_id"])[captions["video_id"]].to_numpy()
    words = captions["caption"].map(caption_words).to_numpy()
    right = own[:, None] == content
    return np.stack([right[words == text].any(axis=0) for text in words]).astype(np.float32)


def test_what_frames_cannot_decide_is_found_and_left_out_of_binary(prepared, tmp_path, capsys) -> None:
    folder, dataset = prepared
    report = read_csv(folder / "videos/report.csv").set_index("item_id")
    assert report["same_twin_id"].to_dict() == {
        **{"one": "one", "still": "still", "back": "back"},  # they are their own reverse
        **{"again": "", "moving": "again_rev", "other": ""},
    }
    assert report["same_item_id"].to_dict() == dict.fromkeys(report.index, "") | {"moving": "again"}
    counts = read_json(folder / "captions/report.json")["splits"]["test"]
    assert (counts["own_reverse"], counts["same_as_another"]) == (3, 2)
    items, captions, _ = load_split(folder, "mine", "test")
    assert count_binary_left_out(captions, items) == {SAME_CLIP: 3, SAME_WORDS: 1}
    scores = perfect_scores(items, captions)
    ids = captions["caption_id"].to_numpy(str), items["item_id"].to_numpy(str)
    write_scores(tmp_path / "seed0.npz", scores, *ids)
    names = [str(tmp_path / name) for name in ("seed0.npz", "seed0.parquet", "seed0.json")]
    compute_ranks(folder, "mine", ["hard", "binary"], BOTH, *names)
    expect_message("\n".join(line for line in capsys.readouterr().out.splitlines() if line.startswith("binary")))
    by_view = {(row["setting"], row["direction"]): row for row in read_json(names[2])["metrics"]}
    for way in BOTH:
        assert by_view["binary", way]["R@1"] == 100 and by_view["binary", way]["queries"] == 2
        selected = setting_selection("hard", captions, items)
        ceiling = recall_ceiling(captions.iloc[selected.captions], items.iloc[selected.items], way)
        assert by_view["hard", way]["R@1"] == pytest.approx(ceiling) and ceiling < 60
    study = Study(name="s", dataset="mine", methods={"chance": {"model": "chance"}}, sanity=None)
    expect_message("\n".join(_ceiling_notes(study, dataset, load_split(folder, "mine", "test"))))


def test_a_data_set_without_equal_items_has_no_column_of_them(prepared, tmp_path: Path) -> None:
    folder, dataset = prepared
    report = read_csv(folder / "videos/report.csv")
    report.assign(same_item_id="", same_twin_id="").to_csv(tmp_path / "report.csv", index=False)
    make_captions(dataset, str(tmp_path / "report.csv"), str(tmp_path / "items.csv"))
    assert "same_item_id" not in read_csv(tmp_path / "items.csv")
    report.drop(columns=["same_item_id", "same_twin_id"]).to_csv(tmp_path / "report.csv", index=False)
    make_captions(dataset, str(tmp_path / "report.csv"), str(tmp_path / "items.csv"))
    assert "same_item_id" not in read_csv(tmp_path / "items.csv"), "of an earlier version"


def table_of(words: dict[str, list[str]], same: dict[str, str] | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = [(video, text, f"{video}#{n}") for video, texts in words.items() for n, text in enumerate(texts)]
    captions = pd.DataFrame(rows, columns=["video_id", "caption", "caption_id"])
    items = pd.DataFrame({"item_id": list(words)})
    items["reversed"] = items["item_id"].str.endswith("_rev").astype(int)
    items["cluster_id"] = items["item_id"].str.removesuffix("_rev")
    return captions, items.assign(same_item_id=items["item_id"].map(same or {}).fillna(""))


@pytest.mark.parametrize(
    ("forward", "backward", "asked"),
    [
        (["it opens"], ["it closes"], 1),
        (["it opens"], ["It  opens."], 0),
        (["Café"], ["Cafe\N{COMBINING ACUTE ACCENT}"], 0),
        (["it moves →"], ["it moves ←"], 1),
        (["it opens", "a door"], ["it closes", "a door"], 1),
        (["it opens", "a door"], ["a door", "it closes"], 0),  # the first has a rival that is right too
        (["it opens", "a door"], ["it closes"], 2),
    ],
)
def test_captions_of_the_same_words_are_no_queries(forward: list[str], backward: list[str], asked: int) -> None:
    captions, items = table_of({"a": forward, "a_rev": backward, "b": ["x"], "b_rev": ["y"]})
    assert len(setting_selection("binary", captions, items).captions) == asked + 1
    assert sum(count_binary_left_out(captions, items).values()) == len(forward) - asked


def test_binary_of_undecidable_captions_alone_is_refused() -> None:
    captions, items = table_of({"a": ["x"], "a_rev": ["X"], "b": ["y"], "b_rev": ["z"]}, {"b_rev": "b"})
    with refusal("evaluation.settings"):
        setting_selection("binary", captions, items)


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_the_ceiling_is_the_best_of_all_scorers(data: st.DataObject) -> None:
    """By brute force."""
    names = ["a", "b", "c"]
    texts = {name: data.draw(st.lists(st.sampled_from("xy"), min_size=1, max_size=2)) for name in names}
    same = {"b": "a"} if data.draw(st.booleans()) else {}
    captions, items = table_of(texts, same)
    content = items["same_item_id"].where(items["same_item_id"] != "", items["item_id"])
    kinds, words = sorted(set(content)), sorted(set(captions["caption"]))
    best = dict.fromkeys(BOTH, 0.0)
    column, row = content.map(kinds.index).to_numpy(), captions["caption"].map(words.index).to_numpy()
    # What is first decides: a scorer says of each pair whether it is, and may say it of several.
    for values in itertools.product((0, 1), repeat=len(kinds) * len(words)):
        scores = np.array(values, dtype=float).reshape(len(words), len(kinds))[np.ix_(row, column)]
        table = rank_table(scores, captions, items, ["test"], BOTH)
        for way in BOTH:
            found = compute_metrics(table[table["direction"] == way])["R@1"]
            best[way] = max(best[way], found)
    for way in BOTH:
        assert recall_ceiling(captions, items, way) == pytest.approx(best[way])
