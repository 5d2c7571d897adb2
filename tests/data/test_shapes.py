"""The embedded default: what is drawn is what is said, in both directions of time."""

import math
import subprocess

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from messages import refusal
from rewind.config import Dataset
from rewind.data import clip_writer
from rewind.data.formats import shapes
from rewind.data.scenes import (
    BACKGROUNDS,
    COLOUR_RGB,
    COLOURS,
    EVENTS,
    SIZE_MARGINS,
    WORDINGS,
    ClipStyle,
    Scene,
    caption_vocabulary,
    caption_words,
    compose_splits,
    describe_scene,
    random_style,
    render_scene,
)
from rewind.errors import RewindError
from rewind.io.files import read_json
from rewind.video.frames import open_file_frames

DEFAULT = {"train": 380, "valid": 60, "test": 120}
STILL = ClipStyle(48, 48, "8", 17, dx=0.0, dy=0.0, scale=1.0, angle=0.3, corner=(1, -1))


@st.composite
def scenes(draw):
    event = draw(st.sampled_from(sorted(EVENTS)))
    shape = draw(st.sampled_from(EVENTS[event].shapes))
    colour, background = draw(st.sampled_from(COLOURS)), draw(st.sampled_from(BACKGROUNDS))
    return Scene(shape, colour, background, event, draw(st.booleans()))


def dataset(clips, seed=0, paraphrases=3):
    source = {"format": "shapes", "clips": clips, "seed": seed, "paraphrases": paraphrases}
    return Dataset.model_validate({"name": "shapes", "source": source})


def frames_of(event, colour="red", shape="arrow", style=STILL):
    return render_scene(Scene(shape, colour, "black", event), style).astype(float)


def centre(frame):
    """Mean position (x, y) of what is lit on black."""
    weight = frame.sum(-1)
    y, x = np.indices(weight.shape)
    return np.array([(x * weight).sum(), (y * weight).sum()]) / weight.sum()


@given(scenes(), st.sampled_from(WORDINGS), st.integers(0, 999))
@example(Scene("triangle", "red", "white", "right", True), WORDINGS[0], 749)  # most of its points lie on edges
@settings(max_examples=40, deadline=None)
def test_the_reversed_clip_is_the_scene_filmed_the_other_way_and_so_is_its_caption(scene, wording, key):
    style = random_style(str(key), 32)
    mirrored = Scene(scene.shape, scene.colour, scene.background, scene.event, not scene.onward)
    there, back = render_scene(scene, style).astype(int), render_scene(mirrored, style).astype(int)
    # 1 - i/n is rounded: a row of points that lies on an edge may fall on its other side, four of a pixel's sixteen.
    # All else differs by one grey level at most.
    differences = np.abs(there[::-1] - back)
    assert differences.max() <= 255 / 4 and (differences > 1).mean() < 0.001
    assert describe_scene(scene, wording, reverse=True) == describe_scene(mirrored, wording)
    assert describe_scene(scene, wording) != describe_scene(scene, wording, reverse=True)


@given(scenes())
@settings(max_examples=40, deadline=None)
def test_motion_spreads_over_the_whole_clip(scene):
    frames = render_scene(scene, STILL).astype(float)
    for third in np.array_split(frames, 3):
        assert np.abs(third[-1] - third[0]).mean() > 0.5


def test_what_moves_moves_the_way_the_caption_says():
    assert "rises" in describe_scene(Scene("arrow", "red", "black", "rise"), (0, 0))
    rise = np.array([centre(frame) for frame in frames_of("rise")])
    assert (np.diff(rise[:, 1]) < 0).all() and rise[0, 1] - rise[-1, 1] > 20  # y counts downwards
    assert "left to right" in describe_scene(Scene("arrow", "red", "black", "right"), (0, 0))
    right = np.array([centre(frame) for frame in frames_of("right")])
    assert (np.diff(right[:, 0]) > 0).all() and right[-1, 0] - right[0, 0] > 20
    assert "approaches from the corner" in describe_scene(Scene("arrow", "red", "black", "approach"), (0, 0))
    distance = [math.dist(centre(frame), (23.5, 23.5)) for frame in frames_of("approach")]
    assert distance[0] > 15 and distance[-1] < 3


def test_what_grows_appears_splits_and_fills_covers_more_and_more():
    for event in ("grow", "approach", "appear", "split", "fill"):
        light = frames_of(event).sum((1, 2, 3))
        # Two copies that have parted cover no more than before, so a split may stand still.
        assert (np.diff(light) > -0.03 * light[-1]).all(), event
        assert light[-1] > 1.5 * light[0], event


def test_clockwise_is_clockwise_on_the_screen():
    assert " clockwise" in describe_scene(Scene("arrow", "red", "black", "orbit"), (0, 0))
    arms = np.array([centre(frame) - 23.5 for frame in frames_of("orbit", shape="circle")])
    turn = np.arctan2(np.cross(arms[:-1], arms[1:]), (arms[:-1] * arms[1:]).sum(1))
    assert (turn > 0).all()  # y counts downwards, so a positive angle is clockwise
    assert math.degrees(turn.sum()) == pytest.approx(270, abs=10)

    assert " clockwise" in describe_scene(Scene("arrow", "red", "black", "rotate"), (0, 0))
    first, later = (Image.fromarray(f.astype(np.uint8)) for f in frames_of("rotate")[[0, 4]])
    apart = {
        degrees: np.abs(np.asarray(first.rotate(degrees), float) - np.asarray(later)).mean()
        for degrees in (-60, 60)  # Pillow turns anticlockwise; a quarter of 240 degrees has passed
    }
    assert apart[-60] < 0.3 * apart[60]


def test_turning_ends_in_the_colour_that_is_named():
    scene = Scene("square", "red", "white", "turn")
    assert describe_scene(scene, (0, 0)) == f"A red square turns {scene.partner} on a white background."
    middle = render_scene(scene, STILL)[:, 24, 24]
    assert tuple(middle[0]) == COLOUR_RGB["red"] and tuple(middle[-1]) == COLOUR_RGB[scene.partner]


@pytest.mark.parametrize("counts", [DEFAULT, {"train": 8, "valid": 4, "test": 4}, {"train": 0, "test": 9}])
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_splits_are_disjoint_and_captions_answerable(counts, seed):
    splits = compose_splits(counts, 5, seed)
    assert {split: len(entries) for split, entries in splits.items()} == {"valid": 0, **counts}
    kept = [(e.scene.shape, e.scene.colour, e.scene.background, e.scene.event) for s in splits.values() for e in s]
    assert len(set(kept)) == len(kept)
    for entries in splits.values():
        human = [e.captions(way)[0] for e in entries for way in (False, True)]
        assert len(set(human)) == len(human)
        assert all(len(set(e.captions(way))) == 5 for e in entries for way in (False, True))
    if splits["train"]:
        known = caption_vocabulary(splits["train"])
        unseen = [e.captions(way)[0] for s in ("valid", "test") for e in splits[s] for way in (False, True)]
        assert set().union(*map(caption_words, unseen)) <= known


def test_neither_event_nor_direction_tells_what_was_filmed():
    for entries in compose_splits(DEFAULT, 5, 0).values():
        for event in EVENTS:
            ways = [e.scene.onward for e in entries if e.scene.event == event]
            assert abs(sum(ways) - len(ways) / 2) <= 0.5
            assert abs(len(ways) - len(entries) / len(EVENTS)) <= 1


def test_the_vocabulary_is_small_and_scenes_differ_by_seed():
    assert len(caption_vocabulary(compose_splits(DEFAULT, 10, 0)["train"])) <= 90
    assert compose_splits(DEFAULT, 5, 0) == compose_splits(DEFAULT, 5, 0) != compose_splits(DEFAULT, 5, 1)


@pytest.mark.parametrize(
    ("counts", "place"),
    [
        ({"train": 5000, "test": 10}, "source.clips"),
        ({"train": -1}, "source.clips"),
        ({"train": 1, "test": 4}, "source.clips"),
    ],
)
def test_impossible_counts_are_refused(counts, place):
    with refusal(place):
        compose_splits(counts, 5, 0)


def test_clips_are_real_videos_of_mixed_formats(tmp_path):
    config = dataset({"train": 10, "valid": 3, "test": 3})
    shapes.make_sources(config, tmp_path)
    annotations = shapes.read(config, str(tmp_path))
    assert len(annotations.items) == 32 and annotations.items["reversed"].sum() == 16
    sizes = annotations.captions.groupby("split").size().to_dict()
    assert sizes == {"train": 10 * 2 * 3, "valid": 6, "test": 6}
    rates, formats = set(), set()
    for name in annotations.items.query("reversed == 0")["source"]:
        video = open_file_frames(tmp_path / "videos" / f"{name}.mp4")
        style = random_style(f"0 {name}", 32)
        assert (len(video), *video.read([0])[0].shape) == (style.frames, style.height, style.width, 3)
        assert 2 <= len(video) / video.fps <= 4
        rates.add(round(video.fps, 2))
        formats.add((style.width, style.height))
    assert len(rates) >= 3 and len(formats) >= 3 and any(w % 2 and h % 2 for w, h in formats)


def test_a_clip_shows_what_was_drawn(tmp_path):
    config = dataset({"train": 2})
    shapes.make_sources(config, tmp_path)
    for number, entry in enumerate(compose_splits({"train": 2}, 3, 0)["train"]):
        name = f"train{number:04}"
        drawn = render_scene(entry.scene, random_style(f"0 {name}", 32)).astype(float)
        video = open_file_frames(tmp_path / "videos" / f"{name}.mp4")
        shown = video.read(range(len(video)))
        assert np.abs(drawn - shown).mean() < 4


def test_the_same_seed_gives_the_same_bytes_and_a_broken_run_goes_on(tmp_path, monkeypatch):
    config, whole, broken = dataset({"train": 4, "valid": 2, "test": 2}), tmp_path / "a", tmp_path / "b"
    shapes.make_sources(config, whole)
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())

    monkeypatch.setattr(shapes, "CLIPS_PER_PROCESS", 1)
    make, calls = shapes._draw_and_write, []

    def make_three(videos, clips, source):
        calls.append(videos)
        if len(calls) > 3:
            raise RewindError("power cut")
        return make(videos, clips, source)

    monkeypatch.setattr(shapes, "_draw_and_write", make_three)
    with refusal():
        shapes.make_sources(config, broken)
    assert not list(broken.glob("*.json"))[1:]  # only the hidden mark; annotations come last
    kept = {path: path.stat().st_mtime_ns for path in (broken / "videos").glob("*.mp4")}
    assert len(kept) == 3
    (broken / "videos" / ".train0000.1.part.mp4").write_bytes(b"half a clip")

    monkeypatch.setattr(shapes, "_draw_and_write", make)
    shapes.make_sources(config, broken)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert sorted(str(path.relative_to(broken)) for path in broken.rglob("*") if path.is_file()) == names
    assert all((whole / name).read_bytes() == (broken / name).read_bytes() for name in names)


def test_clips_have_the_same_bytes_whoever_is_written_beside_them(tmp_path, monkeypatch):
    config, alone, together = dataset({"train": 5, "test": 2}), tmp_path / "a", tmp_path / "b"
    shapes.make_sources(config, together)
    monkeypatch.setattr(shapes, "CLIPS_PER_PROCESS", 1)
    shapes.make_sources(config, alone)
    clips = sorted(path.name for path in (together / "videos").iterdir())
    assert len(clips) == 7
    assert all((alone / "videos" / c).read_bytes() == (together / "videos" / c).read_bytes() for c in clips)


def test_other_settings_leave_no_old_clip_behind(tmp_path):
    shapes.make_sources(dataset({"train": 3, "test": 0}), tmp_path)
    before = (tmp_path / "videos" / "train0000.mp4").read_bytes()
    shapes.make_sources(dataset({"train": 2, "test": 0}, seed=5), tmp_path)
    assert sorted(path.name for path in (tmp_path / "videos").glob("*.mp4")) == ["train0000.mp4", "train0001.mp4"]
    assert (tmp_path / "videos" / "train0000.mp4").read_bytes() != before
    assert list(read_json(tmp_path / "train.json")) == ["train0000", "train0001"]
    assert read_json(tmp_path / "test.json") == {}


def test_ffmpeg_failing_is_reported_in_its_words(tmp_path, monkeypatch):
    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, b"", b"Unknown encoder 'libx264'\n")

    monkeypatch.setattr(clip_writer.subprocess, "run", fail)
    with refusal():
        shapes.make_sources(dataset({"train": 2}), tmp_path)


def test_styles_cover_every_margin_and_stay_in_range():
    styles = [random_style(f"{number}", 40) for number in range(200)]
    assert {(s.width - 40, s.height - 40) for s in styles} == set(SIZE_MARGINS)
    assert min(s.frames for s in styles) >= 16
