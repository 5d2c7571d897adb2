"""``rewind init`` on folders, moving pictures, images, RTime's JSON, vectors and models by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from init_room import CLIPS, PACKAGED, about, both_ways, files, sound, table, told
from messages import expect_message
from rewind.cli.init.command import guess_encoder
from rewind.encoders.tiny import write_open_clip
from video_llms import qwen3_vl

pytest_plugins = ["init_room"]


def test_a_folder_with_subtitles(here, init):
    for number in range(CLIPS):
        cues = (f"a <i>colour</i>,\nnumber {number}", "{\\an8}is shown")
        lines = [f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{text}\n" for n, text in enumerate(cues)]
        Path(f"mine/videos/clip{number}.srt").write_text("\n".join(lines))
    init("mine/videos")
    _, _, annotations = sound("videos")
    assert annotations.captions["caption"].tolist()[-1].startswith("a colour, number ")
    assert annotations.captions["caption"].str.endswith(" is shown").all() and len(annotations.captions) == CLIPS
    Path("mine/videos/clip3.srt").write_text("not a subtitle")
    init("mine/videos", places=["mine/videos/clip3.srt"])


def test_a_folder_with_text_files(here, init):
    for number in range(CLIPS - 1):
        Path(f"mine/videos/clip{number}.txt").write_text(f"colour {number}\n\nthe same, {number}\n")
        Path(f"mine/videos/clip{number}_rev.txt").write_text(f"colour {number} back\n")
    Path("mine/videos/readme.txt").write_text("words\n")
    said = init("mine/videos")
    assert "\n  clip11.mp4\n" in said and "\n  readme.txt\n" in said
    expect_message(about(said, "without"))
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


def test_a_study_of_captions_elsewhere_has_the_name_of_their_folder(here, init, monkeypatch):
    lines = ["path,caption", *(f"clip{n}.mp4,colour {n}" for n in range(CLIPS))]
    Path("mine/captions.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir("mine/videos")
    Path("Snakefile").touch()
    Path("config").symlink_to(here / "config")
    init("../captions.csv", "--videos", ".")
    assert Path("config/studies/mine.yaml").is_file()


def test_folders_without_clips_or_captions(here, init):
    Path("empty").mkdir()
    init("empty", places=["empty"])
    init("mine/videos", places=["mine/videos"])


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
    said = init("moving", look=None)
    assert "\n  m3: " in said
    expect_message(about(said, "cannot be used"))
    assert sound("moving")[1].max_missing >= 1 / CLIPS


def test_pictures_that_stand_still_are_images_whatever_they_might_be(here, init):
    Path("still").mkdir()
    for number in range(CLIPS):
        moving(f"still/m{number}.webp", number, 1)
    table("still/captions.csv", "item_id,caption", [(f"m{n}", f"it {n}") for n in range(CLIPS)])
    init("still")
    assert sound("still")[1].items == "images"


def test_images_search_without_time(here, init, monkeypatch):
    monkeypatch.setattr("rewind.cli.init.command.this_machine", lambda: PACKAGED)
    Path("photos").mkdir()
    for number in range(CLIPS):
        Image.new("RGB", (20, 10), (20 * number, 99, 0)).save(f"photos/p {number}.png")
    rows = [(f"p {n}.png", f"colour {n}", "back") for n in range(CLIPS)]
    table("photos/captions.csv", "path,caption,reverse_caption", rows)
    expect_message(about(init("photos"), "12 images"))
    study, dataset, annotations = sound("photos")
    assert dataset.items == "images" and not dataset.reverse and study.frames.max_frames == 1
    assert study.evaluation.settings == ["test"] and (annotations.items["reversed"] == 0).all()
    assert list(study.methods) == ["meanP", "ridge", "chance"] and study.backbone.kind == "towers"


def test_clips_beside_images_are_refused(here, init):
    Image.new("RGB", (20, 10)).save("mine/videos/clip99.png")
    table("mine/clips.csv", "item_id,caption", [*((name, text) for name, text, _ in told()), ("clip99", "black")])
    said = init("mine/clips.csv", places=["mine/videos"])
    assert "clip99.png" in said and "clip0.mp4" in said


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
    assert " config/datasets/all.train.json\n" in said
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
    "text, place",
    [
        ("{", "mine/a.json"),
        ("[]", "mine/a.json"),
        ('{"a": 1}', "mine/a.json"),
        ("3", "mine/a.json"),
        ('[{"file_name": "clip0.mp4"}]', "mine/a.json"),
        ("[3]", "mine/a.json: entry 1"),
    ],
)
def test_json_that_is_none(here, init, text, place):
    Path("mine/a.json").write_text(text)
    init("mine/a.json", places=[place], varying="Expecting .*")  # Python's words
    assert not files()


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
    assert "rehearse" not in said
    expect_message(about(said, "12 items"))
    first = files()
    init("mine/clips.csv", "--embeddings", "of_clips.npz", "of_texts.npz")
    assert files() == first, "in whichever order"
    np.savez("strange.npz", ids=np.array(["x", "y"]), vectors=np.ones((2, 8)))
    said = init("mine/clips.csv", "--embeddings", "strange.npz", "of_clips.npz", places=["strange.npz"])
    assert "'x', 'y'" in said
    init("mine/clips.csv", "--embeddings", "of_clips.npz", places=["--embeddings"])


def test_vectors_that_lack_a_clip_are_refused_and_leave_no_file(here, init):
    both_ways()
    np.savez("of_clips.npz", ids=np.array(["clip0", "clip1"]), vectors=np.ones((2, 8)))
    np.savez("of_texts.npz", ids=np.array(["clip0#0", "clip1#0"]), vectors=np.ones((2, 8)))
    init("mine/clips.csv", "--embeddings", "of_texts.npz", "of_clips.npz", places=["of_clips.npz"])
    assert not files()


def test_a_model_by_name(here, init):
    both_ways()
    write_open_clip(here / "tiny")
    init("mine/clips.csv", "--model", "tiny")
    study, dataset, _ = sound()
    assert study.methods["tiny"].options["encoder"] == "open_clip" and dataset.clips
    assert study.evaluation.settings == ["origin", "hard", "binary"] and list(study.methods) == ["tiny", "chance"]
    place = "config/studies/other.yaml: methods.ViT-B-32.options.encoder_options.pretrained"
    tags = r"its tags: [^)]*"  # of the version of open_clip
    init("mine/clips.csv", "--model", "ViT-B-32", "--name", "other", places=[place], varying=tags)
    assert "config/studies/other.yaml" not in files()


def test_a_language_model_judges_binary_beside_what_it_answers_without_eyes(here, init):
    both_ways()
    qwen3_vl(here / "asked")
    init("mine/clips.csv", "--model", "asked")
    study, _, _ = sound()
    assert study.evaluation.settings == ["binary"]
    sees = {name: keys.encoder_options.get("sees", "clip") for name, keys in study.encodings().items()}
    assert sees == {"asked": "clip", "asked_frame": "frame", "asked_nothing": "nothing"}
    assert all(method.rerank.binary_only for name, method in study.methods.items() if name != "chance")


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
    assert guess_encoder(name) == encoder
