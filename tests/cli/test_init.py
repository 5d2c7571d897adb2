"""``rewind init`` as its user runs it: a table of captioned clips becomes files that the workflow takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from checkout import ROOT
from drawn_clips import call
from init_room import CLIPS, LAPTOP, PACKAGED, SERVER, about, both_ways, files, sound, splits, table, told
from messages import expect_message
from rewind.cli.init.sizes import this_machine
from rewind.config import load_dataset
from rewind.data.groups import dataset_has_groups, read_groups

pytest_plugins = ["init_room"]


@pytest.mark.slow
def test_a_table_of_clips_becomes_a_study_of_time(here, init):
    before = Path(both_ways()).read_bytes()
    said = init("mine/clips.csv", look=None)
    study, dataset, annotations = sound()
    assert study.evaluation.settings == ["origin", "hard", "binary"] and dataset.reverse
    assert list(study.methods) == ["meanP", "seqTransf", "caption_only", "clip_only", "artefacts_only", "chance"]
    assert study.training.batch.twins_together
    assert study.backbone.architecture == "config/models/tiny.json" and study.pretraining, "no GPU: a small model"
    assert annotations.items["split"].value_counts().to_dict().keys() == {"train", "valid", "test"}
    assert (annotations.items["reversed"] == 1).sum() == CLIPS
    assert Path("mine/clips.csv").read_bytes() == before, "the user's file is never changed"
    assert "\n  rewind rehearse clips " in said and "\n  snakemake --cores all --config 'studies=[clips]'\n" in said
    assert said.index("config/studies/clips.yaml") < said.index("next:"), "told once the files are sound"
    expect_message(said)


@pytest.mark.parametrize("column", ["group", "verb"])
def test_groups_go_with_the_captions_into_the_table_with_the_split(here, init, column):
    rows = [(*row, "grow" if n % 2 else "spin") for n, row in enumerate(told())]
    table("mine/clips.csv", f"item_id,caption,reverse_caption,{column}", rows)
    init("mine/clips.csv")
    _, dataset, annotations = sound()
    found = read_groups(dataset, annotations)
    own = {f"clip{n}": "grow" if n % 2 else "spin" for n in range(CLIPS)}
    assert dataset_has_groups(dataset) and len(found) == list(splits().values()).count("test")
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
    assert "\n  clip0, copy0, copy1, copy2, …\n" in said
    expect_message(about(said, "same content"))
    found = splits()
    assert len({found[name] for name in ("clip0", "clip0_rev", *(f"copy{n}" for n in range(6)))}) == 1


def test_copies_in_two_splits_of_the_user_s_are_refused(here, init):
    shutil.copy("mine/videos/clip0.mp4", "mine/videos/copy.mp4")
    rows = [(f"clip{n}", "train" if n < 6 else "valid" if n < 8 else "test", f"colour {n}") for n in range(CLIPS)]
    table("mine/clips.csv", "item_id,split,caption", [*rows, ("copy", "test", "colour again")])
    init("mine/clips.csv", places=["mine/clips.csv: row 14"])
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
    expect_message(about(init("mine/clips.csv"), "split"))
    assert set(splits().values()) == {"train", "valid", "test"}
    rows = [(f"clip{n}", "training" if n < 8 else "test", f"colour {n}") for n in range(CLIPS)]
    table("mine/two.csv", "item_id,split,caption", rows)
    expect_message(about(init("mine/two.csv"), "split"))
    found = splits("two")
    assert {found[f"clip{n}"] for n in range(8, CLIPS)} == {"test"} and "valid" in found.values()


def test_columns_of_other_names_are_found_and_said(here, init):
    rows = [(f"clip{n}.mp4", f"colour {n}", 3.5) for n in range(CLIPS)]
    table("mine/clips.csv", "file_name,Text,seconds", rows)
    said = about(init("mine/clips.csv"), "columns")
    assert all(f"'{name}'" in said for name in ("file_name", "Text", "seconds"))
    expect_message(said)
    assert set(sound()[2].items["item_id"]) == {f"clip{n}" for n in range(CLIPS)}


@pytest.mark.parametrize(
    "header, column, place",
    [
        ("item_id,words", "caption", "mine/clips.csv"),
        ("caption,colour", "item_id", "mine/clips.csv"),
        ("item_id,caption,reverse_captoin", "reverse_captoin", "mine/clips.csv"),
        ("item_id;caption", ";", "mine/clips.csv: row 1"),
    ],
)
def test_columns_that_mean_nothing_are_refused(here, init, header, column, place):
    table("mine/clips.csv", header, [["clip0"] * len(header.split(","))] * 3)
    assert f"'{column}'" in init("mine/clips.csv", places=[place]) and not files()


def test_everything_that_is_wrong_is_told_at_once(here, init):
    lost = [(name, "words", "") for name in ("far", "gone", "lost", "off")]
    rows = [*told(), ("clip1", "", ""), ("../up", "away", ""), *lost]
    table("mine/clips.csv", "item_id,caption,reverse_caption", rows)
    said = init("mine/clips.csv", places=["mine/clips.csv: row 14", "mine/clips.csv: row 15", "mine/videos"])
    assert all(f"row {row}: {name}: " in said for row, name in enumerate(("far", "gone", "lost", "off"), 16))
    assert not files()


def test_a_few_clips_that_are_cut_or_missing_are_named_and_counted(here, init):
    whole = Path("mine/videos/clip3.mp4").read_bytes()
    Path("mine/videos/clip3.mp4").write_bytes(whole[: len(whole) // 2])
    table("mine/clips.csv", "item_id,caption,reverse_caption", [*told(), ("gone", "nothing", "")])
    said = init("mine/clips.csv", look=None)
    assert "\n  gone: " in said and "\n  clip3: " in said
    expect_message(about(said, "cannot be used"))
    _, dataset, annotations = sound()
    assert 2 / 13 <= dataset.max_missing < 0.17
    found = annotations.items.set_index("item_id")["split"]
    assert found["clip3"] == found["gone"] == "train", "the test split is whole"


def test_many_that_are_missing_or_broken_are_refused(here, init):
    for number in range(3):
        Path(f"mine/videos/clip{number}.mp4").write_text("no clip")
    said = init(both_ways(), places=["mine/videos"], varying="moov .*", look=None)  # ffmpeg's words
    assert all(f"clip{number}: " in said for number in range(3)) and not files()


def test_only_so_many_files_are_decoded(here, init):
    expect_message(about(init(both_ways(), look=4), "decoded"))
    assert load_dataset("clips").max_missing == 0.02, "the others may turn out to be broken"


@pytest.mark.parametrize("machine, network", [(LAPTOP, "clip"), (PACKAGED, "towers"), (SERVER, "clip")])
def test_sizes_suit_the_machine(here, init, monkeypatch, machine, network):
    monkeypatch.setattr("rewind.cli.init.command.this_machine", lambda: machine)
    said = init(both_ways())
    study, dataset, _ = sound()
    assert study.backbone.kind == network and f"machine: {machine}" in said
    assert study.resources.require_gpu == (machine is SERVER) and dataset.video.workers == min(machine.cores, 8)
    if machine is SERVER:
        assert study.backbone.pretrained == "openai" and study.frames.max_frames == 12 and "before" in study.methods
        assert dataset.video.fps == 12, "clips of a second, of which twelve frames are read"
    else:
        assert study.frames.max_frames == 8 and study.frames.size == (224 if machine is PACKAGED else 32)


@pytest.mark.parametrize("network", ["clip", "towers", "tiny"])
def test_a_network_is_chosen(here, init, monkeypatch, network):
    monkeypatch.setattr("rewind.cli.init.command.this_machine", lambda: PACKAGED)
    said = init(both_ways(), "--network", network)
    study, _, _ = sound()
    assert study.backbone.kind == ("towers" if network == "towers" else "clip")
    assert (study.resources.require_gpu, study.resources.gpus) == (network == "clip", int(network == "clip"))
    expect_message(about(said, "network"))


def test_a_network_that_cannot_be_is_refused(here, init):
    init(both_ways(), "--network", "towers", places=[])
    init(both_ways(), "--network", "tiny", "--model", "ViT-B-32", places=[])


def test_a_share_of_the_clips_is_tested(here, init):
    init(both_ways(), "--test-share", "0.25")
    _, _, annotations = sound()
    assert (annotations.items["split"][annotations.items["reversed"] == 0] == "test").sum() == CLIPS // 4
    for share in ("0", "0.9", "-0.2"):
        init(both_ways(), "--test-share", share, places=[])
    written = Path("config/datasets/clips.csv")
    init(str(written), "--videos", "mine/videos", "--test-share", "0.25", places=[str(written)])


def test_a_title_is_kept_as_it_was_typed(here, init):
    init(both_ways(), "--name", "Türen & Fenster (2024)")
    study, dataset, _ = sound("T_ren_Fenster_2024")
    assert study.title == dataset.title == "Türen & Fenster (2024)"


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
    init("mine/clips.csv", places=["config/datasets/clips.yaml", "config/studies/clips.yaml"])
    assert files() == before
    init("mine/clips.csv", "--name", "second")
    sound("second")


def test_names_of_the_workflow_s_own_are_refused(here, init):
    init(both_ways(), "--name", "data", places=["config/config.yaml: studies"])
    assert not files()


def test_places_and_options_that_lead_nowhere(here, init):
    both_ways()
    assert "--videos nowhere" in init("mine/clips.csv", "--videos", "nowhere", places=[])
    init("mine/clips.csv", "--videos", "config", places=["mine/clips.csv"])
    assert "--encoder" in init("mine/clips.csv", "--encoder", "mteb", places=[])
    init("mine/clips.xlsx", places=["mine/clips.xlsx"])
    init("mine/none.csv", places=["mine/none.csv"])
    Path("Snakefile").unlink()
    assert "Snakefile" in init("mine/clips.csv", places=[])
    assert not files()


def test_too_few_clips_to_split(here, init):
    table("mine/clips.csv", "item_id,caption", [(f"clip{n}", f"colour {n}") for n in range(5)])
    init("mine/clips.csv", places=["mine/clips.csv"])


def test_captions_that_cannot_be_told_apart_are_counted(here, init):
    rows = [(f"clip{n}", "a colour", "a colour") for n in range(CLIPS)]
    said = init(table("mine/clips.csv", "item_id,caption,reverse_caption", rows))
    assert "\n  24 × 'a colour'\n" in said
    expect_message(about(said, "describe", "both directions"))
    assert sound()[0].evaluation.settings == ["origin", "hard"]
    assert sound()[0].sanity.min_r1 < 0.5, "what nothing can learn is not asked for"


def test_clips_that_are_their_own_reverse_are_counted(here, init):
    moving = "testsrc2=size=32x24:rate=6:duration=2"  # of all others each is one colour throughout
    call(here / "mine/videos/clip0.mp4", "-f", "lavfi", "-i", moving, "-pix_fmt", "yuv420p")
    expect_message(about(init(both_ways(), look=3), "played backwards"))
    table("mine/clips.csv", "item_id,caption", [row[:2] for row in told()])
    said = init("mine/clips.csv", "--name", "forward", look=3)
    assert "the same played backwards" not in said, "no direction is asked for"


def test_odd_names_stay_values(here, init):
    shutil.copytree("mine/videos", "mine: #1 'x'")
    rows = [(f"clip{n}.mp4", f'colour: "{n}" # {{x}}') for n in range(CLIPS)]
    table("mine: #1 'x'/captions.csv", "path,caption", rows)
    init("mine: #1 'x'")
    name = next(Path("config/studies").iterdir()).stem
    _, dataset, annotations = sound(name)
    assert dataset.source.videos == "mine: #1 'x'" and yaml.safe_load(files()[f"config/datasets/{name}.yaml"])
    assert annotations.captions["caption"][3] == 'colour: "3" # {x}'


@pytest.mark.workflow
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
    # Another encoder leaves other traces in the drawn clips.
    ours, theirs = (
        [re.sub(r"\d+% \[\d+, \d+\] of", "… of", line) for line in lines if not line.startswith("machine: ")]
        for lines in (done.stdout.splitlines(), printed)
    )
    assert ours == theirs
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "1", "--config", "studies=[squares]"]
    planned = subprocess.run(command, capture_output=True, text=True)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert re.search(r"^train +10$", planned.stdout, re.M), "two methods with five seeds"
    assert re.search(r"^untrained_run +1$", planned.stdout, re.M), "chance"
