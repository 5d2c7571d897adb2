"""InternVid's list of clips: the original's split, videos with several captions, rows that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from messages import refusal
from rewind.config import Dataset, load_dataset
from rewind.data.annotations import read_annotations
from rewind.data.formats.internvid import split_rows
from rewind.video.sources import annotation_files, videos_folder
from rewind.workflow.config import check_sources


def written(folder: Path, text: str, **keys) -> Dataset:
    (folder / "list.csv").write_text(text, encoding="utf-8")
    source = {"format": "internvid", "captions": str(folder / "list.csv"), "videos": str(folder / "clips")}
    return Dataset(name="internvid", source=source | keys, reverse=False)


def read(folder: Path, text: str, **keys):
    return read_annotations(written(folder, text, **keys), "")


@pytest.mark.parametrize("count", [6, 11, 50, 203])
@pytest.mark.parametrize("seed", [42, 7])
def test_the_split_is_scikit_learns(count: int, seed: int) -> None:
    rows = np.arange(count)
    train, rest = train_test_split(rows, test_size=0.2, random_state=seed, shuffle=True)
    valid, test = train_test_split(rest, test_size=0.5, random_state=seed, shuffle=True)
    found = np.array(split_rows(count, seed))
    assert [set(np.flatnonzero(found == s)) for s in ("train", "valid", "test")] == [set(train), set(valid), set(test)]


def test_fifty_rows_give_the_originals_40_5_and_5(tmp_path) -> None:
    lines = [f'id_{n:03},"A caption, with a comma  and blanks {n}"' for n in range(50)]
    found = read(tmp_path, "YoutubeID,Caption\n" + "\n".join(lines))
    assert found.items["split"].value_counts().to_dict() == {"train": 40, "valid": 5, "test": 5}
    assert found.captions["caption"][0] == "A caption, with a comma and blanks 0"
    assert found.items["source"][3] == "id_003.mp4" and (found.items["reversed"] == 0).all()
    assert found.notes["rows_moved_to_their_videos_split"] == 0


def test_a_video_with_several_rows_stands_in_one_split(tmp_path) -> None:
    lines = [f"vid{n % 20:02},caption {n}" for n in range(60)]
    found = read(
        tmp_path,
        "\ufeffAesthetic,Caption,YoutubeID\n"
        + "\n".join(f"5.1,{c},{v}" for v, c in (line.split(",") for line in lines)),
    )
    assert len(found.items) == 20 and len(found.captions) == 60
    assert found.captions.merge(found.items, left_on="video_id", right_on="item_id").eval("split_x == split_y").all()
    first = split_rows(60, 42)[:20]
    assert found.items["split"].tolist() == first, "the split of a video's first row"
    moved = sum(split != first[n % 20] for n, split in enumerate(split_rows(60, 42)))
    assert found.notes["rows_moved_to_their_videos_split"] == moved > 0


def test_ids_of_youtube_become_safe_names(tmp_path) -> None:
    ids = ["-Abc_d-1", "_x", "plain", "another_rev", "a5", "a6", "a7"]
    found = read(tmp_path, "YoutubeID,Caption\n" + "\n".join(f"{name},words" for name in ids))
    assert found.items["source"].tolist() == [f"{name}.mp4" for name in ids]
    assert found.items["item_id"][0].startswith("Abc_d-1-") and found.items["item_id"][2] == "plain"
    assert not found.items["item_id"][3].endswith("_rev") and found.items["item_id"].is_unique


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Video,Caption\na,b\n", "list.csv: row 1"),
        ("", "list.csv"),
        ("YoutubeID,Caption\n", "list.csv"),
        (
            "YoutubeID,Caption\na,b\n,c\nd,\n",
            "list.csv: row 3",
        ),
        ("YoutubeID,Caption\n../a,b\n", "list.csv: row 2"),
        ("YoutubeID,Caption\na,b\nc,d\n", "list.csv"),
        ('YoutubeID,Caption\na,"b\n', "list.csv: row 2"),
    ],
)
def test_lists_that_cannot_be_used_are_told(tmp_path, text: str, place: str) -> None:
    with refusal(place):
        read(tmp_path, text)


def test_the_file_in_config_says_where_to_get_what_is_missing(tmp_path, monkeypatch) -> None:
    dataset = load_dataset("internvid")
    assert annotation_files(dataset) == ["data/internvid/aes.csv"] and dataset.source.seed == 42
    assert videos_folder(dataset) == Path("data/internvid/videos")
    monkeypatch.chdir(tmp_path)
    with refusal("config/datasets/internvid.yaml"):
        check_sources(dataset)
