"""`rewind search`: any finished run answers queries, from the command line, as its evaluation would rank."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import search_runs
from messages import expect_error, expect_message, refusal
from rewind.data.tokenizers import ClipTokenizer, MiniclipTokenizer
from rewind.evaluation.similarity import compute_similarity
from rewind.io.files import read_csv, write_csv
from rewind.loading.run_data import RunData
from rewind.models.backbone import Backbone
from rewind.search.render import (
    StripReader,
    answer_picture,
    answer_text,
    captions_text,
    printable_caption,
    side_by_side,
)
from rewind.search.run import open_run
from rewind.search.searcher import Answer, Hit, Searcher, check_query, load_searcher
from search_runs import copy_study, make_study, search

FOUND = ["meanP", "tightTransf", "frozen", "ridge"]


def line_of(said: str, word: str) -> str:
    (line,) = (line for line in said.splitlines() if word in line and not line.startswith("“"))
    return line


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return make_study(tmp_path_factory.mktemp("walls"), meanP=30, tightTransf=2, frozen=30, ridge=1)


@pytest.fixture
def runs(study, tmp_path, monkeypatch) -> Path:
    return copy_study(study, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("method", FOUND)
def test_a_query_ranks_as_the_evaluation_does(runs, method):
    run = open_run(runs / method / "seed0")
    searcher = load_searcher(run, say=lambda text: None, trust=True)
    matrix = runs / "similarity.npz"
    folder = RunData(run.data, run.dataset, search_runs.spec_of(method, 30), 2, run.cache)
    compute_similarity(folder, str(run.model), str(matrix))
    with np.load(matrix) as archive:
        scores, items = archive["similarity"], archive["item_ids"].tolist()
    captions = read_csv(run.data / "captions/walls_test.csv")["caption"]
    for row, caption in enumerate(captions[: len(scores)]):
        found = searcher.search(caption, top=len(items))
        assert found.gallery == len(items) == len(found.hits)
        there = [scores[row, items.index(hit.item)] for hit in found.hits]
        np.testing.assert_allclose([hit.score for hit in found.hits], there, rtol=1e-4, atol=1e-4)
        assert all(np.diff([hit.score for hit in found.hits]) <= 0)


@pytest.mark.parametrize("method", ["meanP", "frozen", "ridge"])
def test_a_trained_run_finds_the_colour(runs, capsys, method):
    code, out, err = search(capsys, runs / method / "seed0", "the", "wall", "is", "blue", "--top", 2, "--times")
    lines = out.splitlines()
    assert code == 0 and lines[0] == "“the wall is blue”" and lines[1].split()[:3:2] == ["1", "test_blue"]
    assert "a blue wall · the wall is blue · something blue" in lines[1] and lines[2].startswith("   2 ")
    assert "encode" in lines[3] and "rank 7 items" in lines[3] and f"walls/{method}/seed0: 7 test items, ready" in err


def test_from_another_folder_and_over_all_splits(runs, capsys, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, out, _ = search(capsys, Path("..") / runs / "meanP/seed0", "a lime wall", "--split", "all", "--top", 4)
    assert code == 0 and {line.split()[2] for line in out.splitlines()[1:5]} == {
        "train_lime0",
        "train_lime1",
        "valid_lime",
        "test_lime",
    }


def test_captions_drawn_by_a_seed_say_where_the_truth_came(runs, capsys):
    arguments = (runs / "frozen/seed0", "--random", 5, "--top", 7)
    _, first, _ = search(capsys, *arguments)
    _, again, _ = search(capsys, *arguments)
    _, other, _ = search(capsys, *arguments, "--seed", 1)
    assert first == again != other and first.count("“") == 5
    assert "median of 5 queries: encode " in search(capsys, *arguments, "--times")[1].splitlines()[-1]
    assert first.count("at rank") == 5 and first.count(" ✓ ") == 10, "once in the list, once below it"


def test_a_drawn_caption_of_unknown_words_does_not_end_the_others(runs, capsys, monkeypatch):
    drawn = pd.DataFrame({"caption": ["zebra", "a blue wall"], "video_id": ["test_red", "test_blue"]})
    monkeypatch.setattr(Searcher, "random_captions", lambda self, count, seed: drawn)
    code, out, _ = search(capsys, runs / "meanP/seed0", "--random", 2, "--times")
    assert code == 0 and "'zebra'" in out and "test_blue at rank 1 of 7" in out
    expect_message(line_of(out, "'zebra'"))
    expect_message(line_of(out, "median"), varying=r"\d+\.\d+")


def test_the_twin_of_the_truth_is_marked_and_ties_share_the_rank(runs, capsys):
    searcher = load_searcher(open_run(runs / "meanP/seed0"), say=lambda text: None)
    found = searcher.search("a red wall", 2, truth="test_red")
    assert [hit.item for hit in found.hits] == ["test_red", "test_red_rev"]
    assert found.hits[0].score == found.hits[1].score and found.rank == 1.5
    text = answer_text(found)
    assert "1 ✓" in text and "2 ⇄" in text and "test_red at rank 1.5 of 7" in text


def test_without_a_query_a_prompt_answers_until_an_empty_line(runs, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", StringIO("a blue wall\nzebra\nsomething white\n\nnever asked\n"))
    code, out, _ = search(capsys, runs / "meanP/seed0", "--top", 1)
    assert code == 0 and "test_blue" in out and "test_white" in out and "never" not in out
    expect_message(line_of(out, "'zebra'"))  # a refused query does not end the prompt
    monkeypatch.setattr(sys, "stdin", StringIO("a blue wall"))
    assert search(capsys, runs / "meanP/seed0")[0] == 0, "the end of the input ends it too"


@pytest.mark.parametrize("query", ["", "  ", "zebra crossing", "?!"])
def test_queries_that_are_refused(runs, capsys, query):
    code, out, err = search(capsys, runs / "meanP/seed0", query)
    assert code == 1 and "test_" not in out
    expect_error(err)


def test_unknown_words_and_cut_queries_are_told(runs, capsys):
    _, out, _ = search(capsys, runs / "meanP/seed0", "a striped blue zebra", "--top", 1)
    assert "'striped', 'zebra'" in out and "test_" in out
    expect_message(line_of(out, "'zebra'"))
    _, out, _ = search(capsys, runs / "meanP/seed0", "the wall is a wall the wall is blue", "--top", 1)
    assert " 11 " in line_of(out, "cut") and " 8" in line_of(out, "cut")
    expect_message(line_of(out, "cut"))


def test_words_are_cut_as_the_vocabulary_cuts_them():
    class Mini:
        token_counts = Backbone.token_counts
        tokenizer, max_words = MiniclipTokenizer(["a snow-white chair", "the black cat"]), 3

    assert check_query("Snow-white!", Mini()) == [] and check_query("a chair (white)", Mini())[0].endswith("'white'")
    (cut,) = check_query("the black cat chair", Mini())
    assert " 4 " in cut and " 3" in cut
    expect_message(cut)
    for query in ("snow", "?!"):
        with refusal():
            check_query(query, Mini())


def test_byte_pairs_know_every_word():
    class Byte:
        token_counts = Backbone.token_counts
        tokenizer, max_words = ClipTokenizer(), 10

    assert check_query("zxqv ½ 日本", Byte()) == []
    (cut,) = check_query("one two three four five six seven eight nine", Byte())
    assert " 11 " in cut and " 10" in cut
    expect_message(cut)


def test_a_vocabulary_of_other_captions_is_refused(runs, capsys):
    path = Path("results/data/walls/captions/walls_train.csv")
    captions = read_csv(path)
    # As many words as before, so that every tensor still fits.
    write_csv(path, captions.assign(caption=captions["caption"].str.replace("red", "amber")))
    code, out, err = search(capsys, runs / "meanP/seed0", "a blue wall")
    assert code == 1 and str(path) in err and "test_" not in out
    expect_error(err, "results/walls/runs/meanP/seed0/model.safetensors")
    code, _, err = search(capsys, runs / "frozen/seed0", "a blue wall")
    assert code == 0 and f"{path}: changed since" in err, "these towers take any text"


def test_miniclip_knows_its_own_vocabulary(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = search_runs.make_data(tmp_path)
    folder = search_runs.train(tmp_path, "miniclip", epochs=1)
    code, out, _ = search(capsys, folder, "a blue zebra")
    assert code == 0 and out.count("test_") >= 5
    expect_message(line_of(out, "'zebra'"))
    path = data / "captions/walls_train.csv"
    captions = read_csv(path)
    write_csv(path, captions.assign(caption=captions["caption"].str.upper()))
    assert search(capsys, folder, "a blue wall")[0] == 0, "the same words, in other letters"
    write_csv(path, captions.assign(caption=captions["caption"].str.replace("red", "amber")))
    code, out, err = search(capsys, folder, "a blue wall")
    assert code == 1 and "test_" not in out
    expect_error(err, "results/walls/runs/miniclip/seed0/model.safetensors")


def test_answers_are_saved_as_picture_and_json(runs, capsys, tmp_path):
    arguments = (runs / "meanP/seed0", "--random", 2, "--save", "found", "--top", 3)
    search(capsys, *arguments)
    made = {path.name: path.read_bytes() for path in sorted(Path("found").iterdir())}
    assert len(made) == 4 and {Path(name).suffix for name in made} == {".json", ".png"}
    content = json.loads(made[next(iter(made))])
    assert content["run"] == "walls/meanP/seed0" and content["split"] == "test" and content["gallery"] == 7
    assert [hit["place"] for hit in content["hits"]] == [1, 2, 3] and content["truth"] and content["rank"] >= 1
    for name in made:
        if name.endswith(".png"):
            picture = np.asarray(Image.open(Path("found") / name).convert("RGB"))
            assert picture.shape[1] == 1400 and picture.std() > 5
    search(capsys, *arguments)
    assert {path.name: path.read_bytes() for path in Path("found").iterdir()} == made
    search(capsys, runs / "frozen/seed0", "黒い壁", "--save", "found", "--top", 1)
    assert len(list(Path("found").glob("query.*.png"))) == 1


def test_a_strip_shows_the_clip(runs):
    run = open_run(runs / "meanP/seed0")
    searcher = load_searcher(run, say=lambda text: None)
    frames = StripReader(searcher.items, run.data, 40).read(searcher.place["test_blue"])
    assert frames.shape == (3, 40, 40, 3) and frames[..., 2].min() > 200 and frames[..., :2].max() < 60


def test_images_are_shown_five_in_a_row(tmp_path):
    Image.new("L", (60, 90), 120).save(tmp_path / "grey.png")
    items = pd.DataFrame({"path": ["grey.png"], "reversed": [0]})
    frames = StripReader(items, tmp_path).read(0)
    assert frames.shape == (1, 160, 160, 3) and (frames == 120).all()
    hits = [Hit(place, 0, f"item{place}", 0.5, ["word " * 40]) for place in range(1, 8)]
    figure = answer_picture(Answer("q", hits, 7), [side_by_side(frames)] * 7, "run")
    rows = [round(axes.get_position().y1, 4) for axes in figure.axes]
    assert len(set(rows[:5])) == len(set(rows[5:])) == 1 and rows[5] < rows[0]


def test_captions_cannot_steer_the_terminal():
    assert printable_caption("a\x1b[2Jb\nc‮d") == "a [2Jb c d"
    assert captions_text([f"c{n}" for n in range(1000)]) == "c0 · c1 · c2 · +997"
    text = answer_text(Answer("q" * 300, [Hit(1, 0, "id", 0.5, ["word " * 50])], 1), width=60)
    assert len(text.splitlines()[1]) == 60 and text.splitlines()[1].endswith("…")
