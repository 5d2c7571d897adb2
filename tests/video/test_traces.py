"""Traces tell a clip from its twin where a camera or an encoder worked forward, and not one that is its own twin."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from drawn_clips import run
from rewind.config.dataset import Video
from rewind.io.files import read_csv, write_csv
from rewind.video import ffmpeg, traces
from rewind.video.repair import LAUNDERED_AWAY, level_means

SETTINGS = Video(fps=12, short_side=96)
KEYED = ("-c:v", "libx264", "-preset", "veryfast", "-crf", "26", "-g", "12", "-pix_fmt", "yuv420p")
PLAIN = ("-c:v", "libx264", "-qp", "8", "-g", "1", "-x264-params", "ipratio=1", "-aq-mode", "0", "-pix_fmt", "yuv420p")


def swaying(seed: int, moments: int = 72) -> np.ndarray:
    """A noisy texture that sways: in its law it is the same in both directions."""
    rng = np.random.default_rng(seed)
    texture = np.kron(rng.uniform(60, 200, (24, 40)), np.ones((8, 8)))
    where = 24 + 20 * np.sin(2 * np.pi * (np.arange(moments) / moments * rng.uniform(2, 4) + rng.uniform()))
    frames = np.stack([np.roll(texture, int(x), axis=1)[:96, :128] for x in where])
    return (frames + rng.normal(scale=4, size=frames.shape)).clip(0, 255).astype(np.uint8)


def store(frames: np.ndarray, path: Path, *options: str) -> Path:
    height, width = frames.shape[1:]
    shape = ("-f", "rawvideo", "-pix_fmt", "gray", "-s", f"{width}x{height}", "-r", "24", "-i", "-")
    command = [ffmpeg.executable(), "-y", "-loglevel", "error", *shape, *options, str(path)]
    subprocess.run(command, input=frames.tobytes(), check=True)
    return path


def features(frames: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
    series = traces.measure_series(frames)
    return traces.trace_features(series), traces.trace_features(traces.reverse_series(series))


def test_features_of_a_twin_are_the_negatives_and_those_of_a_palindrome_are_zero() -> None:
    frames = swaying(0)
    forward, backward = features(frames)
    assert np.allclose([*forward.values()], [-value for value in backward.values()], atol=1e-5)
    again = traces.trace_features(traces.measure_series(frames[::-1]))
    assert again == backward  # measured on the twin's own frames, bit for bit
    there_and_back = np.concatenate([frames, frames[::-1]])
    forward, backward = features(there_and_back)
    assert forward == backward
    assert np.allclose([*forward.values()], 0, atol=1e-5)


def test_lines_of_fields_tell_which_came_first() -> None:
    moments = swaying(1, 60)
    top_first, bottom_first = moments[0::2].copy(), moments[0::2].copy()
    top_first[:, 1::2] = moments[1::2][:, 1::2]
    bottom_first[:, 0::2] = moments[1::2][:, 0::2]
    parity = [features(frames)[0]["interlacing.parity"] for frames in (top_first, bottom_first, moments)]
    assert parity[0] > 0.05 > abs(parity[2]) and parity[1] < -0.05


def test_key_frames_tell_the_direction_of_a_coded_clip_and_not_of_a_plain_one(tmp_path: Path) -> None:
    found = {"keyed": [], "plain": []}
    for seed in range(10):
        for kind, options in (("keyed", KEYED), ("plain", PLAIN)):
            path = store(swaying(seed), tmp_path / "s.mkv", *options)
            frames, keys = traces.read_source(path, "", SETTINGS)
            assert len(frames) == len(keys) == 72
            assert sum(keys) == (6 if kind == "keyed" else 72)
            found[kind].append(traces.trace_features(traces.measure_series(frames))["coding.energy_jump"])
    # Which sign depends on the encoder and its options; with these all clips have the same.
    assert abs(np.mean(np.sign(found["keyed"]))) >= 0.8
    assert abs(np.mean(np.sign(found["plain"]))) < 0.8


def test_the_cut_out_of_a_source_keeps_blocks_in_their_places(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (3, 200, 300), dtype=np.uint8)
    path = store(frames, tmp_path / "s.mkv", "-c:v", "ffv1", "-pix_fmt", "gray")
    seen, _ = traces.read_source(path, "", SETTINGS)
    assert np.array_equal(seen, frames[:, 16:176, 32:256])
    assert np.array_equal(traces.cut_out(frames), seen)


@pytest.mark.parametrize("size", [(16, 16), (18, 34), (32, 250)])
def test_small_sources_have_traces_too(size: tuple[int, int], tmp_path: Path) -> None:
    path = store(np.zeros((1, *size), np.uint8), tmp_path / "s.mkv", *PLAIN)
    frames, _ = traces.read_source(path, "", SETTINGS)
    assert frames.shape[0] == 1
    assert not any(features(frames)[0].values())


def test_facts_count_cuts_borders_and_fades() -> None:
    frames = swaying(2)
    assert traces.clip_facts(frames) == {"cuts": 0, "borders": 0.0, "fades": 0}
    framed = np.repeat(np.stack([frames[0], 255 - frames[0]]), 30, axis=0)
    framed[:, :12] = framed[:, -12:] = 16
    assert traces.clip_facts(framed) == {"cuts": 1, "borders": 25.0, "fades": 0}
    dimmed = (frames * np.linspace(0, 1, len(frames)).clip(0, 0.3)[:, None, None] / 0.3).astype(np.uint8)
    assert traces.clip_facts(dimmed)["fades"] == 1


def stage(folder: Path, count: int = 3) -> tuple[str, str]:
    """The inventory and the report of a few clips, which are made."""
    rows, reports = [], []
    for seed in range(count):
        source = store(swaying(seed), folder / f"source{seed}.mp4", *KEYED)
        report = run(source, folder, SETTINGS)
        for suffix in ("", "_rev"):
            (folder / f"c{suffix}.mp4").rename(folder / f"clip{seed}{suffix}.mp4")
        rows.append({"item_id": f"clip{seed}", "source": str(source), "reversed_source": ""})
        reports.append(
            {"item_id": f"clip{seed}", "status": "ok", "scan": report.scan, "twin": "made", "sha256": f"{seed}"}
        )
    reports.append({"item_id": "gone", "status": "missing", "scan": "", "twin": "none", "sha256": ""})
    inventory, report_path = str(folder / "inventory.csv"), str(folder / "report.csv")
    write_csv(inventory, pd.DataFrame([*rows, {"item_id": "gone", "source": "", "reversed_source": ""}]))
    write_csv(report_path, pd.DataFrame(reports))
    return inventory, report_path


def test_a_killed_stage_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory, report = stage(tmp_path)
    whole, resumed = tmp_path / "whole.csv", tmp_path / "resumed.csv"
    traces.make_traces(inventory, report, tmp_path, SETTINGS, "code", 1, str(whole))
    assert not (tmp_path / ".state" / "traces.jsonl").exists()
    measure, measured = traces.measure_clip, []

    def until_the_last(row, *args):
        measured.append(row["item_id"])
        if row["item_id"] == "clip2" and len(measured) == 3:
            raise KeyboardInterrupt
        return measure(row, *args)

    monkeypatch.setattr(traces, "measure_clip", until_the_last)
    with pytest.raises(KeyboardInterrupt):
        traces.make_traces(inventory, report, tmp_path, SETTINGS, "code", 1, str(resumed))
    state = tmp_path / ".state" / "traces.jsonl"
    state.write_text(state.read_text() + '{"version": "half a li')
    traces.make_traces(inventory, report, tmp_path, SETTINGS, "code", 1, str(resumed))
    assert measured == ["clip0", "clip1", "clip2", "clip2"]
    assert resumed.read_bytes() == whole.read_bytes()
    table = read_csv(whole)
    assert table["item_id"].tolist() == [f"clip{n}{suffix}" for n in range(3) for suffix in ("", "_rev")]
    assert (table["key_interval"] == 12).all()
    for view in traces.VIEWS:
        ids, values, names = traces.read_traces(whole, view)
        assert values.shape == (6, len(names)) and np.allclose(values[0::2], -values[1::2], atol=1e-5)
    assert json.loads(json.dumps(ids)) == table["item_id"].tolist()


def test_of_a_large_data_set_some_sources_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory, report = stage(tmp_path)
    whole, part = tmp_path / "whole.csv", tmp_path / "part.csv"
    traces.make_traces(inventory, report, tmp_path, SETTINGS, "code", 1, str(whole))
    monkeypatch.setattr(traces, "MAX_SOURCES", 1)
    traces.make_traces(inventory, report, tmp_path, SETTINGS, "code", 1, str(part))
    known, found = read_csv(whole), read_csv(part)
    assert list(found) == list(known)
    measured = found["key_interval"].notna()
    assert measured.sum() == 2
    pd.testing.assert_frame_equal(found[measured], known[measured], check_dtype=False)
    assert [len(traces.read_traces(part, view)[0]) for view in traces.VIEWS] == [6, 2]


def test_a_laundered_clip_mirrors_its_twin_and_has_ends_like_its_middle(tmp_path: Path) -> None:
    from drawn_clips import frames_of

    source = store(swaying(3, moments=96), tmp_path / "s.mp4", *KEYED)
    report = run(source, tmp_path, SETTINGS.model_copy(update={"launder": True}))
    forward, backward = frames_of(tmp_path / "c.mp4"), frames_of(tmp_path / "c_rev.mp4")
    assert report.status == "ok" and not report.reason and report.seconds == 4
    assert 48 - LAUNDERED_AWAY <= len(forward) < 48
    assert np.array_equal(forward, backward[::-1])
    # A mean over fewer frames than elsewhere would be noisier, and only at one of the ends.
    changes = np.abs(np.diff(forward.astype(float), axis=0)).mean(axis=(1, 2, 3))
    assert changes[[0, -1]].max() < 1.5 * np.median(changes)


def test_small_drifts_of_brightness_are_levelled_and_flashes_are_not() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(loc=120, scale=4, size=(24, 64, 80))
    drift = np.linspace(-0.6, 0.6, 24)
    drift[7] += 30
    levelled = level_means((noise + drift[:, None, None]).clip(0, 255).astype(np.uint8)).mean(axis=(1, 2))
    assert abs(levelled[7] - np.median(levelled) - 28) < 1  # two steps less
    assert np.ptp(np.delete(levelled, 7)) < 0.1
