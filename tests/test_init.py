"""``rewind init`` as its user runs it: captioned clips become files that the workflow takes."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from conftest import ROOT
from rewind.cli import main
from rewind.datasets.annotations import read_annotations
from rewind.datasets.groups import grouped, groups_of
from rewind.encoders.tiny import write_open_clip
from rewind.init.brought_models import encoder_for
from rewind.init.sizes import Machine, this_machine
from rewind.jobs.config import load_checked
from rewind.programs import ffmpeg
from rewind.study import load_dataset, load_study

CLIPS = 12
COLOURS = [f"0x{shade:02x}{255 - shade:02x}{shade // 2:02x}" for shade in range(0, 240, 20)]
LAPTOP = Machine(gpus=0, cores=2, memory=8.0, towers=False)
PACKAGED = Machine(gpus=0, cores=2, memory=8.0, towers=True)
SERVER = Machine(gpus=4, cores=32, memory=256.0, towers=True)


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve clips of a second, each of another colour."""
    folder = tmp_path_factory.mktemp("clips")
    for number, colour in enumerate(COLOURS):
        graph = f"color={colour}:size=32x24:rate=6:duration=1"
        command = [ffmpeg(), "-loglevel", "error", "-f", "lavfi", "-i", graph, "-pix_fmt", "yuv420p"]
        subprocess.run([*command, str(folder / f"clip{number}.mp4")], check=True)
    return folder


@pytest.fixture
def here(tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the workflow could run, with the clips in ``mine/videos``."""
    (tmp_path / "Snakefile").touch()
    shutil.copytree(ROOT / "config/models", tmp_path / "config/models")
    shutil.copytree(clips, tmp_path / "mine/videos")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rewind.init.making.this_machine", lambda: LAPTOP)
    return tmp_path


@pytest.fixture
def init(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command, and give what it printed; a refusal where ``ok`` is false. ``look``: clips decoded."""

    def run(*arguments: str, ok: bool = True, look: int | None = 1) -> str:
        code = main(["init", *arguments, *(["--look", str(look)] if look else [])])
        said = capsys.readouterr()
        assert code == (0 if ok else 1), said.out + said.err
        return said.out if ok else said.err

    return run


def table(path: str, header: str, rows: list[tuple]) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w", newline="") as stream:
        csv.writer(stream).writerows([header.split(","), *rows])
    return path


def told(numbers: range | list[int] = range(CLIPS)) -> list[tuple]:
    return [(f"clip{n}", f"colour {n} grows", f"colour {n} shrinks") for n in numbers]


def both_ways(path: str = "mine/clips.csv") -> str:
    return table(path, "item_id,caption,reverse_caption", told())


def sound(name: str = "clips") -> tuple:
    """Study, data set and annotations, after every check that the workflow makes before its first job."""
    load_checked({"studies": [name]})
    study = load_study(name)
    dataset = load_dataset(study.dataset)
    return study, dataset, read_annotations(dataset, "")


def splits(name: str = "clips") -> dict[str, str]:
    items = sound(name)[2].items
    return dict(zip(items["item_id"], items["split"], strict=True))


def files() -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(Path("config").rglob("*.*")) if "models" not in path.parts}


def test_a_table_of_clips_becomes_a_study_of_time(here, init):
    before = Path(both_ways()).read_bytes()
    said = init("mine/clips.csv", look=None)
    study, dataset, annotations = sound()
    assert study.evaluation.settings == ["origin", "hard", "binary"] and dataset.reverse
    assert list(study.methods) == ["meanP", "seqTransf", "chance"] and study.training.batch.twins_together
    assert study.backbone.architecture == "config/models/tiny.json" and study.pretraining, "no GPU: a small model"
    assert annotations.items["split"].value_counts().to_dict().keys() == {"train", "valid", "test"}
    assert (annotations.items["reversed"] == 1).sum() == CLIPS
    assert Path("mine/clips.csv").read_bytes() == before, "the user's file is never changed"
    assert "12 videos, 12 captions in mine/videos" in said and "twins: 12 reversed clips" in said
    assert "length: 1.0 to 1.0 s" in said and "split: there was none, so one is made" in said
    assert "too few for the letters of significance" in said
    assert "rewind rehearse clips" in said and "snakemake --cores all --config 'studies=[clips]'" in said
    assert said.index("wrote config/studies/clips.yaml") < said.index("next:"), "told once the files are sound"


@pytest.mark.parametrize("column", ["group", "verb"])
def test_groups_go_with_the_captions_into_the_table_with_the_split(here, init, column):
    rows = [(*row, "grow" if n % 2 else "spin") for n, row in enumerate(told())]
    table("mine/clips.csv", f"item_id,caption,reverse_caption,{column}", rows)
    init("mine/clips.csv")
    _, dataset, annotations = sound()
    found = groups_of(dataset, annotations)
    own = {f"clip{n}": "grow" if n % 2 else "spin" for n in range(CLIPS)}
    assert grouped(dataset) and len(found) == list(splits().values()).count("test")
    assert all(
        own[name.removesuffix("#0").removesuffix("_rev")] == group for name, group in found.itertuples(index=False)
    )


def test_every_value_has_its_comment(here, init):
    init(both_ways())
    for path in ("config/datasets/clips.yaml", "config/studies/clips.yaml"):
        text = Path(path).read_text()
        values = [line for line in text.splitlines() if re.match(r" *\w+: \S", line)]
        bare = [line.split(":")[0].strip() for line in values if "  # " not in line]
        assert len(values) > 12 and not bare
        assert text.startswith("# Written by `"), "and who wrote the file"
        assert not [line for line in text.splitlines()[1:] if len(line) >= 150], "the first quotes what was typed"


def test_the_split_is_the_same_again_and_moves_little_when_clips_are_added(here, init):
    table("mine/clips.csv", "item_id,caption,reverse_caption", told(range(11)))
    init("mine/clips.csv")
    first, written = splits(), files()
    init("mine/clips.csv")
    assert files() == written, "the same again is fine"
    both_ways("more/clips.csv")
    init("more/clips.csv", "--videos", "mine/videos", "--name", "more")
    second = splits("more")
    assert sum(first[name] != second[name] for name in first) <= 4, "two clips and their twins"


def test_copies_stay_in_one_split(here, init):
    for number in range(6):  # of clip 0
        shutil.copy("mine/videos/clip0.mp4", f"mine/videos/copy{number}.mp4")
    rows = told() + [(f"copy{n}", f"a copy, number {n}", "") for n in range(6)]
    table("mine/clips.csv", "item_id,caption,reverse_caption", rows)
    said = init("mine/clips.csv")
    assert "1 groups of files have the same content:" in said and "clip0, copy0, copy1, copy2" in said
    found = splits()
    assert len({found[name] for name in ("clip0", "clip0_rev", *(f"copy{n}" for n in range(6)))}) == 1


def test_copies_in_two_splits_of_the_user_s_are_refused(here, init):
    shutil.copy("mine/videos/clip0.mp4", "mine/videos/copy.mp4")
    rows = [(f"clip{n}", "train" if n < 6 else "valid" if n < 8 else "test", f"colour {n}") for n in range(CLIPS)]
    table("mine/clips.csv", "item_id,split,caption", [*rows, ("copy", "test", "colour again")])
    said = init("mine/clips.csv", ok=False)
    assert "row 14: 'copy' (test) is the same file as 'clip0' (train)" in said
    assert not files(), "nothing is written"


def test_a_split_of_the_user_s_is_used_as_it_is(here, init):
    rows = [(f"clip{n}", "train" if n < 6 else "valid" if n < 8 else "test", f"colour {n}") for n in range(CLIPS)]
    table("mine/clips.csv", "item_id,split,caption", rows)
    init("mine/clips.csv")
    study, dataset, _ = sound()
    assert dataset.source.table == "mine/clips.csv" and not Path("config/datasets/clips.csv").exists()
    assert study.evaluation.settings == ["test"], "without reverse captions there are no twins"


def test_test_alone_is_split_and_validation_is_taken_out_of_training(here, init):
    table("mine/clips.csv", "item_id,split,caption", [(f"clip{n}", "test", f"colour {n}") for n in range(CLIPS)])
    assert "split: all was of the test split, so one is made" in init("mine/clips.csv")
    assert set(splits().values()) == {"train", "valid", "test"}
    rows = [(f"clip{n}", "training" if n < 8 else "test", f"colour {n}") for n in range(CLIPS)]
    table("mine/two.csv", "item_id,split,caption", rows)
    assert "none was for validation, so 1 of training are" in init("mine/two.csv")
    found = splits("two")
    assert {found[f"clip{n}"] for n in range(8, CLIPS)} == {"test"} and "valid" in found.values()


def test_columns_of_other_names_are_found_and_said(here, init):
    rows = [(f"clip{n}.mp4", f"colour {n}", 3.5) for n in range(CLIPS)]
    table("mine/clips.csv", "file_name,Text,seconds", rows)
    said = init("mine/clips.csv")
    assert "columns are read as: 'file_name' as path, 'Text' as caption" in said
    assert "columns that are not used: 'seconds'" in said
    assert set(sound()[2].items["item_id"]) == {f"clip{n}" for n in range(CLIPS)}


@pytest.mark.parametrize(
    "header, said",
    [
        ("item_id,words", "the column 'caption' is missing (it may also be called text, sentence"),
        ("caption,colour", "the column 'item_id' is missing (it may also be called video_id"),
        ("item_id,caption,reverse_captoin", "the column 'reverse_captoin' is unknown; did you mean 'reverse_caption'?"),
        ("item_id;caption", "cells are separated by ';'"),
    ],
)
def test_columns_that_mean_nothing_are_refused(here, init, header, said):
    table("mine/clips.csv", header, [["clip0"] * len(header.split(","))] * 3)
    assert said in init("mine/clips.csv", ok=False) and not files()


def test_everything_that_is_wrong_is_told_at_once(here, init):
    lost = [(name, "words", "") for name in ("far", "gone", "lost", "off")]
    rows = [*told(), ("clip1", "", ""), ("../up", "away", ""), *lost]
    table("mine/clips.csv", "item_id,caption,reverse_caption", rows)
    said = init("mine/clips.csv", ok=False)
    assert "row 14: the caption of 'clip1' is empty" in said and "row 15: the path '../up'" in said
    assert "4 of 16 clips are missing or cannot be decoded" in said and "off: no file 'off'" in said and not files()


def test_a_few_clips_that_are_cut_or_missing_are_named_and_counted(here, init):
    whole = Path("mine/videos/clip3.mp4").read_bytes()
    Path("mine/videos/clip3.mp4").write_bytes(whole[: len(whole) // 2])
    table("mine/clips.csv", "item_id,caption,reverse_caption", [*told(), ("gone", "nothing", "")])
    said = init("mine/clips.csv", look=None)
    assert "2 cannot be used; tables will count them" in said
    assert "gone: no file 'gone'" in said and "clip3: no video stream" in said
    _, dataset, annotations = sound()
    assert 2 / 13 <= dataset.max_missing < 0.17
    found = annotations.items.set_index("item_id")["split"]
    assert found["clip3"] == found["gone"] == "train", "the test split is whole"


def test_many_that_are_missing_or_broken_are_refused(here, init):
    for number in range(3):
        Path(f"mine/videos/clip{number}.mp4").write_text("no clip")
    said = init(both_ways(), ok=False, look=None)
    assert "3 of 12 clips are missing or cannot be decoded" in said and "clip2: " in said and not files()


def test_only_so_many_files_are_decoded(here, init):
    said = init(both_ways(), look=4)
    assert "decoded 4 of 12 files" in said
    assert load_dataset("clips").max_missing == 0.02, "the others may turn out to be broken"


def test_a_folder_with_text_files(here, init):
    for number in range(CLIPS - 1):
        Path(f"mine/videos/clip{number}.txt").write_text(f"colour {number}\n\nthe same, {number}\n")
        Path(f"mine/videos/clip{number}_rev.txt").write_text(f"colour {number} back\n")
    Path("mine/videos/readme.txt").write_text("words\n")
    said = init("mine/videos")
    assert "1 without a caption are left out:\n  clip11.mp4" in said
    assert "1 text files without a clip of their name:\n  readme.txt" in said
    _, _, annotations = sound("videos")
    assert len(annotations.captions) == 3 * (CLIPS - 1) and (annotations.items["reversed"] == 1).sum() == CLIPS - 1


@pytest.mark.parametrize("name", ["captions.csv", "captions.txt", "metadata.csv", "metadata.jsonl"])
def test_a_folder_with_one_file_of_captions(here, init, name):
    lines = {
        "captions.csv": ["path,caption", *(f"clip{n}.mp4,colour {n}" for n in range(CLIPS))],
        "captions.txt": [f"clip{n}.mp4,colour {n}" for n in range(CLIPS)],
        "metadata.csv": ["file_name,text", *(f"clip{n}.mp4,colour {n}" for n in range(CLIPS))],
        "metadata.jsonl": [json.dumps({"file_name": f"clip{n}.mp4", "text": f"colour {n}"}) for n in range(CLIPS)],
    }[name]
    Path("mine/videos", name).write_text("\n".join(lines) + "\n")
    init("mine/videos", "--name", "own")
    _, _, annotations = sound("own")
    assert annotations.captions["caption"].tolist() == [f"colour {n}" for n in range(CLIPS)]
    assert set(annotations.items["source"]) == {f"clip{n}.mp4" for n in range(CLIPS)}


def test_folders_without_clips_or_captions(here, init):
    Path("empty").mkdir()
    assert "empty: no clips and no images in this folder" in init("empty", ok=False)
    said = init("mine/videos", ok=False)
    assert "12 files, but no captions; put the captions there as captions.csv" in said and "a.mp4 and a.txt" in said


def moving(path: str, number: int, pictures: int) -> None:
    first, *rest = (Image.new("RGB", (20, 10), (20 * number, 9 * at, 0)) for at in range(pictures))
    first.save(path, save_all=True, append_images=rest, duration=100)


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_pictures_that_move_are_clips(here, init, suffix):
    Path("moving").mkdir()
    for number in range(CLIPS):
        moving(f"moving/m{number}.{suffix}", number, 1 if number == 3 and suffix == "gif" else 8)
    table(
        "moving/captions.csv", "item_id,caption,reverse_caption", [(f"m{n}", f"it {n}", "back") for n in range(CLIPS)]
    )
    said = init("moving", look=None)
    _, dataset, annotations = sound("moving")
    assert "12 videos" in said and dataset.items == "videos" and dataset.reverse
    assert (annotations.items["reversed"] == 1).any()


def test_one_that_does_not_move_beside_others_is_told_as_what_it_is(here, init):
    Path("moving").mkdir()
    for number in range(CLIPS):
        moving(f"moving/m{number}.webp", number, 1 if number == 3 else 8)
    table("moving/captions.csv", "item_id,caption", [(f"m{n}", f"it {n}") for n in range(CLIPS)])
    assert "m3: a picture that does not move, beside others that do" in init("moving", look=None)
    assert sound("moving")[1].max_missing >= 1 / CLIPS


def test_pictures_that_stand_still_are_images_whatever_they_might_be(here, init):
    Path("still").mkdir()
    for number in range(CLIPS):
        moving(f"still/m{number}.webp", number, 1)
    table("still/captions.csv", "item_id,caption", [(f"m{n}", f"it {n}") for n in range(CLIPS)])
    init("still")
    assert sound("still")[1].items == "images"


def test_images_search_without_time(here, init, monkeypatch):
    monkeypatch.setattr("rewind.init.making.this_machine", lambda: PACKAGED)
    Path("photos").mkdir()
    for number in range(CLIPS):
        Image.new("RGB", (20, 10), (20 * number, 99, 0)).save(f"photos/p {number}.png")
    rows = [(f"p {n}.png", f"colour {n}", "back") for n in range(CLIPS)]
    table("photos/captions.csv", "path,caption,reverse_caption", rows)
    said = init("photos")
    assert "12 images have reverse captions, which are not used" in said
    study, dataset, annotations = sound("photos")
    assert dataset.items == "images" and not dataset.reverse and study.frames.max_frames == 1
    assert study.evaluation.settings == ["test"] and (annotations.items["reversed"] == 0).all()
    assert list(study.methods) == ["meanP", "ridge", "chance"] and study.backbone.kind == "towers"


def test_clips_beside_images_are_refused(here, init):
    Image.new("RGB", (20, 10)).save("mine/videos/clip99.png")
    table("mine/clips.csv", "item_id,caption", [*((name, text) for name, text, _ in told()), ("clip99", "black")])
    assert "holds images (clip99.png) and videos (clip0.mp4); a data set has one kind" in init(
        "mine/clips.csv", ok=False
    )


def entry(number: int) -> dict:
    return {
        "temporal": True,
        "reverse": True,
        "forward_captions": [f"colour {number} grows"],
        "reverse_captions": [f"colour {number} shrinks"],
        "forward_rewrites": [f"growth {number}"],
        "reverse_rewrites": [f"shrinkage {number}"],
        "url": "",
    }


def test_rtime_s_json_in_three_files(here, init):
    for split, numbers in {"train": range(6), "valid": range(6, 8), "test": range(8, 12)}.items():
        Path(f"mine/{split}.json").write_text(json.dumps({f"clip{n}": entry(n) for n in numbers}))
    init("mine/train.json", "--videos", "mine/videos")
    study, dataset, annotations = sound("mine")
    assert dataset.source.annotations["valid"] == "mine/valid.json" and study.evaluation.settings[0] == "origin"
    assert (annotations.captions["split"] == "train").sum() == 24 and (
        annotations.captions["split"] == "test"
    ).sum() == 8


def test_rtime_s_json_in_one_file_is_split(here, init):
    Path("mine/all.json").write_text(json.dumps({f"clip{n}": entry(n) for n in range(CLIPS)}))
    said = init("mine/all.json", "--videos", "mine/videos")
    assert "wrote config/datasets/all.train.json" in said
    _, dataset, annotations = sound("all")
    assert dataset.source.format == "rtime"
    per_clip = annotations.captions.groupby("video_id").size()
    of_test = annotations.items.loc[annotations.items["split"] == "test", "item_id"]
    assert (per_clip[of_test] == 1).all() and per_clip.max() == 2, "rewrites are for training alone"
    assert f"test   {len(of_test) // 2} with {len(of_test) // 2} captions" in said


def test_finished_models_are_evaluated_on_all_of_one_json_file(here, init):
    Path("mine/all.json").write_text(json.dumps({f"clip{n}": entry(n) for n in range(CLIPS)}))
    write_open_clip(here / "tiny")
    init("mine/all.json", "--videos", "mine/videos", "--model", "tiny")
    _, dataset, annotations = sound("all")
    assert dataset.source.annotations == {"test": "mine/all.json"}
    assert len(annotations.captions) == 2 * CLIPS, "one caption each way; rewrites are for training"


def test_a_list_of_ids_and_captions(here, init):
    rows = [{"id": f"clip{n}", "captions": [f"colour {n}", f"shade {n}"]} for n in range(CLIPS)]
    Path("mine/list.json").write_text(json.dumps(rows))
    init("mine/list.json", "--videos", "mine/videos")
    assert len(sound("list")[2].captions) == 2 * CLIPS


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "not valid JSON"),
        ("[]", "no captions in it"),
        ('{"a": 1}', "neither RTime's annotations"),
        ("3", "neither RTime's annotations"),
        ('[{"file_name": "clip0.mp4"}]', "the column 'caption' is missing"),
        ("[3]", "entry 1: an object such as"),
    ],
)
def test_json_that_is_none(here, init, text, said):
    Path("mine/a.json").write_text(text)
    assert said in init("mine/a.json", ok=False) and not files()


def test_vectors_are_told_apart_by_their_ids(here, init):
    both_ways()
    ids = [f"clip{n}{twin}" for n in range(CLIPS) for twin in ("", "_rev")]
    rng = np.random.default_rng(0)
    np.savez("of_clips.npz", ids=np.array(ids), vectors=rng.normal(size=(24, 8)))
    np.savez("of_texts.npz", ids=np.array([f"{name}#0" for name in ids]), vectors=rng.normal(size=(24, 8)))
    said = init("mine/clips.csv", "--embeddings", "of_texts.npz", "of_clips.npz")
    study, dataset, annotations = sound()
    assert study.methods["of_clips"].options == {"captions": "of_texts.npz", "items": "of_clips.npz"}
    assert not dataset.clips and not study.trained() and set(annotations.items["split"]) == {"test"}
    assert "rehearse" not in said and "no clips here" in said
    first = files()
    init("mine/clips.csv", "--embeddings", "of_clips.npz", "of_texts.npz")
    assert files() == first, "in whichever order"
    np.savez("strange.npz", ids=np.array(["x", "y"]), vectors=np.ones((2, 8)))
    assert "its ids ('x', 'y', …) are ids neither of items nor" in init(
        "mine/clips.csv", "--embeddings", "strange.npz", "of_clips.npz", ok=False
    )
    assert "name the file of captions too" in init("mine/clips.csv", "--embeddings", "of_clips.npz", ok=False)


def test_vectors_that_lack_a_clip_are_refused_and_leave_no_file(here, init):
    both_ways()
    np.savez("of_clips.npz", ids=np.array(["clip0", "clip1"]), vectors=np.ones((2, 8)))
    np.savez("of_texts.npz", ids=np.array(["clip0#0", "clip1#0"]), vectors=np.ones((2, 8)))
    said = init("mine/clips.csv", "--embeddings", "of_texts.npz", "of_clips.npz", ok=False)
    assert "no vector for" in said and not files()


def test_a_model_by_name(here, init):
    both_ways()
    write_open_clip(here / "tiny")
    init("mine/clips.csv", "--model", "tiny")
    study, dataset, _ = sound()
    assert study.methods["tiny"].options["encoder"] == "open_clip" and dataset.clips
    assert study.evaluation.settings == ["origin", "hard", "binary"] and list(study.methods) == ["tiny", "chance"]
    said = init("mine/clips.csv", "--model", "ViT-B-32", "--name", "other", ok=False)
    assert "name the weights of ViT-B-32 (its tags: openai" in said and "config/studies/other.yaml" not in files()


@pytest.mark.parametrize(
    "name, encoder",
    [
        ("ViT-B-32", "open_clip"),
        ("hf-hub:timm/ViT-B-16-SigLIP", "open_clip"),
        ("sentence-transformers/clip-ViT-B-32", "sentence_transformers"),
        ("microsoft/xclip-base-patch32", "transformers"),
    ],
)
def test_what_loads_a_model_is_seen_by_its_name(name, encoder):
    assert encoder_for(name) == encoder


@pytest.mark.parametrize("machine, network", [(LAPTOP, "clip"), (PACKAGED, "towers"), (SERVER, "clip")])
def test_sizes_suit_the_machine(here, init, monkeypatch, machine, network):
    monkeypatch.setattr("rewind.init.making.this_machine", lambda: machine)
    said = init(both_ways())
    study, dataset, _ = sound()
    assert study.backbone.kind == network and f"machine: {machine}" in said
    assert study.resources.require_gpu == (machine is SERVER) and dataset.video.workers == min(machine.cores, 8)
    if machine is SERVER:
        assert study.backbone.pretrained == "openai" and study.frames.max_frames == 12 and "before" in study.methods
        assert dataset.video.fps == 12, "clips of a second, of which twelve frames are read"
    else:
        assert study.frames.max_frames == 8 and study.frames.size == (224 if machine is PACKAGED else 32)


def test_weights_that_are_here_are_taken(here):
    weights = here / "data/weights/ViT-B-32.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    assert this_machine().weights == "data/weights/ViT-B-32.safetensors"


def test_other_files_are_not_overwritten(here, init):
    both_ways()
    for folder in ("datasets", "studies"):
        Path("config", folder).mkdir()
        Path("config", folder, "clips.yaml").write_text("title: mine\n")
    before = files()
    said = init("mine/clips.csv", ok=False)
    assert "config/datasets/clips.yaml: there is another file" in said and "--name NAME" in said
    assert "config/studies/clips.yaml: there is another file" in said, "both are told"
    assert files() == before
    init("mine/clips.csv", "--name", "second")
    sound("second")


def test_names_of_the_workflow_s_own_are_refused(here, init):
    assert "a study cannot be called 'data'" in init(both_ways(), "--name", "data", ok=False)
    assert not files()


def test_places_and_options_that_lead_nowhere(here, init):
    both_ways()
    assert "--videos nowhere: no such folder" in init("mine/clips.csv", "--videos", "nowhere", ok=False)
    assert "none of its 12 clips is in config" in init("mine/clips.csv", "--videos", "config", ok=False)
    assert "--encoder is about a finished model" in init("mine/clips.csv", "--encoder", "mteb", ok=False)
    assert "name a .csv, .json or .jsonl file, or a folder" in init("mine/clips.xlsx", ok=False)
    assert "no such file" in init("mine/none.csv", ok=False)
    Path("Snakefile").unlink()
    assert "no Snakefile here; go to the folder in which you run snakemake" in init("mine/clips.csv", ok=False)
    assert not files()


def test_too_few_clips_to_split(here, init):
    table("mine/clips.csv", "item_id,caption", [(f"clip{n}", f"colour {n}") for n in range(5)])
    assert "5 usable clips that are not copies of one another are too few" in init("mine/clips.csv", ok=False)


def test_captions_that_cannot_be_told_apart_are_counted(here, init):
    rows = [(f"clip{n}", "a colour", "a colour") for n in range(CLIPS)]
    said = init(table("mine/clips.csv", "item_id,caption,reverse_caption", rows))
    assert "1 captions describe several clips or twins" in said and "24 × 'a colour'" in said
    assert "12 have the same caption in both directions" in said
    assert sound()[0].sanity.min_r1 < 0.5, "what nothing can learn is not asked for"


def test_odd_names_stay_values(here, init):
    shutil.copytree("mine/videos", "mine: #1 'x'")
    rows = [(f"clip{n}.mp4", f'colour: "{n}" # {{x}}') for n in range(CLIPS)]
    table("mine: #1 'x'/captions.csv", "path,caption", rows)
    init("mine: #1 'x'")
    name = next(Path("config/studies").iterdir()).stem
    _, dataset, annotations = sound(name)
    assert dataset.source.videos == "mine: #1 'x'" and yaml.safe_load(files()[f"config/datasets/{name}.yaml"])
    assert annotations.captions["caption"][3] == 'colour: "3" # {x}'


@pytest.mark.slow
def test_the_page_is_followed_to_a_dry_run(here):
    """The script, the command and what it prints, in a checkout; and what the workflow would then run."""
    page = (ROOT / "docs/your-own-clips.md").read_text(encoding="utf-8")
    for name in ("workflow", "config", "profiles"):
        shutil.copytree(ROOT / name, here / name, dirs_exist_ok=True)
    shutil.copy2(ROOT / "Snakefile", here / "Snakefile")
    script, shown = (
        re.search(r"```python\n(.*?)```", page, re.S)[1],
        re.search(r"```\n\$ rewind (.*?)```", page, re.S)[1],
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    command, *printed = shown.splitlines()
    done = subprocess.run([sys.executable, "-m", "rewind", *command.split()], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours = [line for line in done.stdout.splitlines() if not line.startswith("machine: ")]
    assert ours == [line for line in printed if not line.startswith("machine: ")]
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "1", "--config", "studies=[squares]"]
    planned = subprocess.run(command, capture_output=True, text=True)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert re.search(r"^train +7$", planned.stdout, re.M), "two methods with three seeds, and chance"
