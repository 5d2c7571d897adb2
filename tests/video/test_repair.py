"""Interlaced, telecined, HDR and damaged sources are repaired or refused, and the twin mirrors what is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drawn_clips import call, frames_of, run
from rewind.config import Video
from rewind.video import ffmpeg, repair, transcode
from rewind.video.damage import read_source_log
from rewind.video.prepare import ClipResult, read_result
from rewind.video.repair import LAUNDERED_AWAY, SourceFormat, inspect_source, read_source_format, repair_note

FULL = Video(fps=25, short_side=240, qp=4)  # every frame at the size of the source
NEVER = FULL.model_copy(update={"deinterlace": "never"})
DROP = Video(fps=25, short_side=64, qp=4, drop_damaged_end=6)
MOVING = "testsrc2=s=320x240:r={rate}:d=1.2"
FIELDS = MOVING.format(rate=50) + ",interlace=scan={order}:lowpass=0"
FILM = "mandelbrot=s=320x240:r=24000/1001,trim=end=2,telecine=first_field={order}:pattern=23"
AS_INTERLACED = ("-flags", "+ilme+ildct")


def drawn(path: Path, picture: str, *options: str) -> Path:
    coding = ("-c:v", "libx264", "-preset", "fast", "-qp", "12", "-pix_fmt", "yuv420p")
    return call(path, "-f", "lavfi", "-i", picture, *coding, *options)


def expect_exact_twin(folder: Path) -> np.ndarray:
    forward, backward = frames_of(folder / "c.mp4"), frames_of(folder / "c_rev.mp4")
    assert len(forward) > 1 and np.array_equal(forward, backward[::-1])
    return forward.astype(float)


def combing(frames: np.ndarray) -> float:
    """How much lines differ from those next to them, compared with lines two away, whose field is the same."""
    luma = frames.mean(axis=-1)
    return float(
        np.abs(luma[:, 1:-1] - (luma[:, 2:] + luma[:, :-2]) / 2).mean() / np.abs(luma[:, 2:] - luma[:, :-2]).mean()
    )


# ---- Scan ----------------------------------------------------------------------------------------------------------

INTERLACED = {
    "top field first": ("tff", "", AS_INTERLACED),
    "bottom field first": ("bff", "", AS_INTERLACED),
    "flagged with the other field first": ("tff", ",setfield=bff", AS_INTERLACED),
    "flagged as progressive": ("bff", ",setfield=prog", ()),
}


@pytest.mark.parametrize("kind", INTERLACED)
def test_interlaced_sources_are_deinterlaced(kind: str, tmp_path: Path) -> None:
    order, flag, options = INTERLACED[kind]
    source = drawn(tmp_path / "s.mkv", FIELDS.format(order=order) + flag, *options)
    left = run(source, tmp_path, NEVER)
    combed = combing(expect_exact_twin(tmp_path))
    report = run(source, tmp_path, FULL)
    clean = combing(expect_exact_twin(tmp_path))

    assert (left.status, report.status, left.scan, report.scan) == ("ok", "ok", *[f"interlaced {order}"] * 2)
    assert report.frames == left.frames == 30
    assert clean < 0.8 * combed
    first = {"tff": "top", "bff": "bottom"}[order]
    assert report.reason == f"interlaced ({first} field first), deinterlaced"
    assert left.reason == f"interlaced ({first} field first), left as it is (video.deinterlace: never)"
    assert inspect_source(source, FULL).scan == report.scan


@pytest.mark.parametrize("order", ["top", "bottom"])
def test_telecined_film_gets_its_pictures_back(order: str, tmp_path: Path) -> None:
    source = drawn(tmp_path / "s.mkv", FILM.format(order=order), *AS_INTERLACED)
    settings = FULL.model_copy(update={"fps": 24000 / 1001})
    report = run(source, tmp_path, settings)
    found = expect_exact_twin(tmp_path)
    assert (report.status, report.scan) == ("ok", f"telecine {order[0]}ff")
    assert report.reason == f"telecined film (3:2 pulldown, {order} field first), its pictures restored"
    run(drawn(tmp_path / "film.mkv", FILM.partition(",telecine")[0]), tmp_path / "film", settings)
    film = frames_of(tmp_path / "film/c.mp4").astype(float)
    moments = [int(np.abs(film - picture).mean(axis=(1, 2, 3)).argmin()) for picture in found]
    steps = np.diff(moments)
    assert np.abs(film[moments] - found).mean() < 2.5
    assert steps.min() >= 0 and (steps == 1).mean() > 0.9  # coded coarsely, a picture may look like the one before


STRIPES = "nullsrc=s=320x240:r=25:d=1,format=yuv420p,geq=lum='if(lt(mod(Y+{step}*N\\,{wide})\\,{wide}/2)\\,40\\,220)'"
PROGRESSIVE = {
    "test pattern": MOVING.format(rate=25),
    "moving fine stripes": STRIPES.format(step=1, wide=3) + ":cb=128:cr=128",
    "moving stripes": STRIPES.format(step=2, wide=6) + ":cb=128:cr=128",
    "a still": "smptebars=s=320x240:r=25:d=1",
    "a fractal": "mandelbrot=s=320x240:r=25,trim=end=1",
    "noise": "color=gray:s=320x240:r=25:d=1,noise=alls=60:allf=t:all_seed=1",
    "panned noise": "nullsrc=s=400x320:r=25:d=1,format=yuv420p,geq=lum='mod(X*X*7+Y*Y*13+X*Y\\,200)':cb=128:cr=128,"
    "crop=320:240:x=2*n:y=n",
    "growing cells": "life=s=320x240:r=25:mold=10:ratio=0.1:seed=1,trim=end=1",
}


@pytest.mark.parametrize("flagged", [False, True])
@pytest.mark.parametrize("kind", PROGRESSIVE)
def test_progressive_sources_are_left_alone(kind: str, flagged: bool, tmp_path: Path) -> None:
    if flagged and "stripes" in kind:
        pytest.skip("stripes may look like fields; the flag then decides")
    source = drawn(tmp_path / "s.mkv", PROGRESSIVE[kind] + ",setfield=tff" * flagged, *AS_INTERLACED * flagged)
    report = run(source, tmp_path, FULL)
    assert (report.status, report.reason) == ("ok", "")
    assert report.scan in ("", "progressive")
    repaired = expect_exact_twin(tmp_path)
    run(source, tmp_path, NEVER)
    assert np.array_equal(frames_of(tmp_path / "c.mp4"), repaired)


def test_a_progressive_source_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(transcode, "run_ffmpeg", lambda *given: calls.append(given) or ffmpeg.run_ffmpeg(*given))
    assert run(drawn(tmp_path / "s.mkv", MOVING.format(rate=25)), tmp_path, FULL).scan == "progressive"
    assert len(calls) == 1


def test_pixels_that_are_never_interlaced_keep_their_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of the frames is measured in another format; the clip must not be converted with it."""
    source = call(
        tmp_path / "s.mkv", "-f", "lavfi", "-i", FIELDS.format(order="tff"), "-c:v", "ffv1", "-pix_fmt", "bgr0"
    )
    report = run(source, tmp_path, FULL)
    made = [(tmp_path / name).read_bytes() for name in ("c.mp4", "c_rev.mp4")]
    monkeypatch.setattr(transcode, "can_sample_scan", lambda: False)
    run(source, tmp_path, FULL)
    assert made == [(tmp_path / name).read_bytes() for name in ("c.mp4", "c_rev.mp4")]
    assert (report.scan, report.reason) == ("", "")


def test_an_existing_reversed_file_is_repaired_by_its_own_scan(tmp_path: Path) -> None:
    """Frames are reversed, fields are not, so that the other field comes first."""
    source = drawn(tmp_path / "s.mkv", FIELDS.format(order="tff"), *AS_INTERLACED)
    reversed_source = call(tmp_path / "r.mkv", "-i", str(source), "-vf", "reverse", "-c:v", "libx264", "-qp", "8")
    report = run(source, tmp_path, FULL, reversed_source=reversed_source)
    assert report.status == "ok" and report.twin == "mapped"
    assert report.reason == (
        "interlaced (top field first), deinterlaced; "
        "existing reversed clip: interlaced (bottom field first), deinterlaced"
    )


# ---- Colours -------------------------------------------------------------------------------------------------------


def pq_code(nits: float) -> int:
    """Luma of 10 bits in tv range of a grey of this brightness, by SMPTE ST 2084."""
    m1, m2, c1, c2, c3 = 2610 / 16384, 2523 / 4096 * 128, 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
    power = (nits / 10_000) ** m1
    return round(64 + 876 * ((c1 + c2 * power) / (1 + c3 * power)) ** m2)


def grey(path: Path, code: int, transfer: str, primaries: str = "bt2020", matrix: str = "bt2020nc") -> Path:
    """Two halves: a grey of this luma of 10 bits, and black that moves into it."""
    luma = f"if(lt(X\\,20+N)\\,64\\,{code})"
    picture = f"nullsrc=s=96x64:r=25:d=0.4,format=yuv420p10le,geq=lum='{luma}':cb=512:cr=512"
    tags = f"setparams=color_primaries={primaries}:color_trc={transfer}:colorspace={matrix}:range=tv"
    return call(
        path, "-f", "lavfi", "-i", f"{picture},{tags}", "-c:v", "libx264", "-qp", "0", "-pix_fmt", "yuv420p10le"
    )


def level(frames: np.ndarray) -> np.ndarray:
    return frames[:, 20:40, 60:90].mean(axis=(0, 1, 2))


@pytest.mark.parametrize(
    ("nits", "lowest", "highest"),
    [(100, 250, 255), (400, 250, 255), (80, 230, 236), (50, 188, 193), (10, 95, 100), (0.01, 0, 6)],
)
def test_pq_is_tone_mapped(nits: float, lowest: float, highest: float, tmp_path: Path) -> None:
    report = run(grey(tmp_path / "s.mkv", pq_code(nits), "smpte2084"), tmp_path, DROP)
    shown = level(expect_exact_twin(tmp_path))
    assert (report.status, report.reason) == ("ok", "PQ (HDR), tone-mapped to BT.709")
    assert (report.transfer, report.bit_depth, report.pixel_format) == ("smpte2084", 10, "yuv420p10le")
    assert np.ptp(shown) < 3 and lowest <= shown.mean() <= highest


def test_hlg_is_tone_mapped(tmp_path: Path) -> None:
    """Reference white is 75% of the signal (ITU-R BT.2408)."""
    report = run(grey(tmp_path / "s.mkv", round(64 + 0.75 * 876), "arib-std-b67"), tmp_path, DROP)
    shown = level(expect_exact_twin(tmp_path))
    assert (report.status, report.reason) == ("ok", "HLG (HDR), tone-mapped to BT.709")
    assert shown.min() >= 250


def test_wide_colours_are_converted_and_ten_bits_just_work(tmp_path: Path) -> None:
    wide = run(grey(tmp_path / "wide.mkv", 64 + 438, "bt2020-10"), tmp_path, DROP)
    shown = level(expect_exact_twin(tmp_path))
    assert wide.reason == "BT.2020 colours, converted to BT.709"
    plain = run(grey(tmp_path / "plain.mkv", 64 + 438, "bt709", "bt709", "bt709"), tmp_path, DROP)
    np.testing.assert_allclose(level(expect_exact_twin(tmp_path)), 127.5, atol=3)
    np.testing.assert_allclose(shown, 127.5, atol=3)
    assert (plain.status, plain.reason, plain.bit_depth) == ("ok", "", 10)


def test_without_the_filters_a_source_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ffmpeg.available_filters() - {"zscale"}
    monkeypatch.setattr(repair, "available_filters", lambda: few)
    report = run(grey(tmp_path / "s.mkv", pq_code(100), "smpte2084"), tmp_path, DROP)
    assert report.status == "failed"
    assert "PQ (HDR): this ffmpeg has no filter zscale" in report.reason and "imageio-ffmpeg" in report.reason
    assert not (tmp_path / "c.mp4").exists() and not (tmp_path / "c_rev.mp4").exists()


# ---- With laundering -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PQ", "HLG", "BT.2020", "interlaced", "telecine", "GIF", "one frame"])
def test_every_source_can_be_laundered(kind: str, tmp_path: Path) -> None:
    deep = {"PQ": "smpte2084", "HLG": "arib-std-b67", "BT.2020": "bt2020-10"}
    if kind in deep:
        source = grey(tmp_path / "s.mkv", 512, deep[kind])
    elif kind == "GIF":
        source = call(tmp_path / "s.gif", "-f", "lavfi", "-i", MOVING.format(rate=10))
    else:
        picture = {"interlaced": FIELDS, "telecine": FILM}.get(kind, MOVING + ",trim=end_frame=1")
        source = drawn(tmp_path / "s.mkv", picture.format(order="tff" if kind == "interlaced" else "top", rate=25))
    as_it_is = run(source, tmp_path, DROP)
    laundered = run(source, tmp_path, DROP.model_copy(update={"launder": True}))
    assert laundered.status == "ok" and laundered.reason == as_it_is.reason
    if kind == "one frame":
        assert laundered.frames == 1
    else:
        assert as_it_is.frames - LAUNDERED_AWAY <= laundered.frames < as_it_is.frames
    assert laundered.seconds == as_it_is.seconds
    forward, backward = frames_of(tmp_path / "c.mp4"), frames_of(tmp_path / "c_rev.mp4")
    assert np.array_equal(forward, backward[::-1])


# ---- A damaged end -------------------------------------------------------------------------------------------------


def broken(path: Path, whole: Path, last: int, count: int = 1) -> Path:
    """An AVI of MJPEG or MPEG-4 in which ``count`` pictures, the first of them the ``last`` but one, are damaged."""
    data, places, at = bytearray(whole.read_bytes()), [], 0
    data_end = data.rindex(b"idx1")
    while 0 <= (at := data.find(b"00dc", at)) < data_end:
        places.append(at)
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    for place in places[len(places) - last :][:count]:
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        data[place + 8 + size // 3 : place + 8 + size] = b"\xff" * (size - size // 3)
    path.write_bytes(data)
    return path


def avi(path: Path, *options: str) -> Path:
    coding = options or ("-c:v", "mpeg4", "-q:v", "3")
    return call(path, "-f", "lavfi", "-i", "testsrc2=s=96x64:r=25:d=2", *coding)


@pytest.mark.parametrize(
    "options", [(), ("-c:v", "mpeg2video", "-q:v", "3"), ("-c:v", "mpeg4", "-bf", "2", "-q:v", "3")]
)
def test_a_damaged_end_is_dropped_if_that_is_allowed(options: tuple[str, ...], tmp_path: Path) -> None:
    whole = avi(tmp_path / "w.avi", *options)
    source = broken(tmp_path / "s.avi", whole, last=3)
    assert run(source, tmp_path, DROP.model_copy(update={"drop_damaged_end": 0})).status == "failed"
    few = run(source, tmp_path, DROP.model_copy(update={"drop_damaged_end": 2}))
    assert few.status == "failed" and "(video.drop_damaged_end)" in few.reason
    assert not (tmp_path / "c.mp4").exists()

    report = run(source, tmp_path, DROP)
    kept = expect_exact_twin(tmp_path)
    assert report.status == "ok", report.reason
    assert 3 <= report.dropped_frames <= 6
    assert f"its last {report.dropped_frames} frames do not decode and were dropped" in report.reason
    assert report.frames == len(kept) == 50 - report.dropped_frames
    run(whole, tmp_path / "whole", DROP)  # no picture is invented
    assert np.array_equal(kept, frames_of(tmp_path / "whole/c.mp4")[: len(kept)])


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    source = broken(tmp_path / "s.avi", avi(tmp_path / "w.avi"), last=25)
    report = run(source, tmp_path, DROP)
    assert report.status == "failed" and report.dropped_frames == 0
    assert "from there to its end are 25 frames, more than the 6" in report.reason


def test_an_intact_source_loses_nothing(tmp_path: Path) -> None:
    report = run(avi(tmp_path / "w.avi"), tmp_path, DROP)
    assert (report.status, report.reason, report.dropped_frames, report.frames) == ("ok", "", 0, 50)


def test_a_damaged_interlaced_source_is_repaired_in_both_ways(tmp_path: Path) -> None:
    interlaced = FIELDS.format(order="bff")
    coding = ("-c:v", "mpeg2video", "-q:v", "3", "-bf", "0", *AS_INTERLACED)
    whole = call(tmp_path / "w.avi", "-f", "lavfi", "-i", interlaced, *coding)
    report = run(broken(tmp_path / "s.avi", whole, last=1), tmp_path, DROP)
    expect_exact_twin(tmp_path)
    assert report.status == "ok", report.reason
    assert report.reason.startswith("interlaced (bottom field first), deinterlaced; its last ")


# ---- What is read and reported -------------------------------------------------------------------------------------

LINES = {
    "h264 (High) (avc1 / 0x31637661), yuv420p(tv, bt709, top coded first (swapped)), 1920x1080, 25 fps": SourceFormat(
        "h264", "yuv420p", "bt709", "bt709", "bt709", 8, "top coded first (swapped)"
    ),
    "hevc (Main 10) (hvc1 / 0x31637668), yuv420p10le(tv, bt2020nc/bt2020/arib-std-b67), 3840x2160": SourceFormat(
        "hevc", "yuv420p10le", "arib-std-b67", "bt2020", "bt2020nc", 10
    ),
    "mpeg2video (Main), yuv420p(tv, unknown/bt470bg/unknown, progressive), 64x48": SourceFormat(
        "mpeg2video", "yuv420p", "", "bt470bg", "", 8, "progressive"
    ),
    "rawvideo (BGR[24] / 0x18524742), bgr24, 96x64": SourceFormat("rawvideo", "bgr24", bit_depth=8),
    "ffv1, gbrp12le(pc, gbr/unknown/unknown), 96x64": SourceFormat("ffv1", "gbrp12le", matrix="gbr", bit_depth=12),
    "hevc, p010le, 96x64": SourceFormat("hevc", "p010le", bit_depth=10),
    "png, rgb48be(pc), 96x64": SourceFormat("png", "rgb48be", bit_depth=16),
    "dvvideo, yuv411p, 720x480": SourceFormat("dvvideo", "yuv411p", bit_depth=8),
}


@pytest.mark.parametrize("line", LINES)
def test_the_format_is_read_from_the_log(line: str) -> None:
    log = [
        "[info]   Stream #0:0: Video: mjpeg, yuvj444p(pc), 600x600 (attached pic)",
        f"[info]   Stream #0:1[0x1](und): Video: {line}",
        "[info] Stream mapping:",
        "[info]   Stream #0:0: Video: h264, yuv420p, 398x224, 3 fps",
    ]
    assert read_source_format(log) == LINES[line]
    assert read_source_format([*log[:2], "[info]   Stream #0:2: Audio: aac", *log[2:]]).has_sound


def test_lines_that_come_within_another_line_are_read() -> None:
    """ffmpeg writes a stream's line in pieces while other threads log."""
    frame = "decoder -> pts:200 pts_time:0.2 pkt_dts:200 pkt_dts_time:0.2 duration:40 duration_time:0.04"
    packet = "demuxer+ffmpeg -> ist_index:0:0 type:video pkt_pts:240 pkt_pts_time:0.24 duration:40 duration_time:0.04"
    head = "[info]   Stream #0:0: Video: h264, yuv420p, 96x64, q=2-31, "
    title = f"[info]     title           : {frame}"
    log = read_source_log([title, "[info] Stream mapping:", head + frame, head + packet])
    assert (log.frames, [part.shown for part in log.packets]) == ([0.2], [0.24])


def test_the_report_says_what_the_source_was(tmp_path: Path) -> None:
    sound = ("-f", "lavfi", "-i", "sine=d=1.2", "-c:a", "aac")
    picture = MOVING.format(rate=25) + ",select='lt(n,10)+not(mod(n,3))'"
    source = call(
        tmp_path / "s.mkv",
        "-f",
        "lavfi",
        "-i",
        picture,
        *sound,
        "-c:v",
        "libx264",
        "-pix_fmt",
        "yuv420p",
        "-fps_mode",
        "vfr",
    )
    report = run(source, tmp_path)
    assert (report.codec, report.pixel_format, report.bit_depth, report.sound) == ("h264", "yuv420p", 8, "yes")
    assert (report.field_order, report.variable_rate) == ("progressive", "yes")
    steady = run(drawn(tmp_path / "t.mkv", MOVING.format(rate="30000/1001")), tmp_path)
    assert (steady.sound, steady.variable_rate, steady.reason) == ("no", "no", "")


def test_states_of_earlier_versions_are_read() -> None:
    notes = ClipResult(transcode.ClipReport("a", "ok", frames=3)).notes()
    for name in ("codec", "pixel_format", "bit_depth", "transfer", "field_order", "scan", "sound", "variable_rate"):
        del notes["report"][name]
    del notes["report"]["dropped_frames"]
    assert read_result(notes).report.frames == 3


def test_the_note_says_what_was_found_and_done() -> None:
    notes = {
        SourceFormat(scan="progressive"): "",
        SourceFormat(scan="interlaced bff"): "interlaced (bottom field first), deinterlaced",
        SourceFormat(scan="telecine tff"): "telecined film (3:2 pulldown, top field first), its pictures restored",
        SourceFormat(transfer="smpte2084", primaries="bt2020"): "PQ (HDR), tone-mapped to BT.709",
        SourceFormat(primaries="bt2020"): "BT.2020 colours, converted to BT.709",
    }
    assert {source: repair_note(source, FULL) for source in notes} == notes
