"""Source images → upright RGB images; images in the stage that also makes clips."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from messages import expect_message, refusal
from rewind.config import Dataset
from rewind.config import Image as Keys
from rewind.data.annotations import Annotations
from rewind.io.files import read_csv
from rewind.video.dataset import join_reports, make_shard
from rewind.video.frames import open_file_frames, sample_clip
from rewind.video.images import normalise_image
from rewind.video.prepare import check_coverage, prepare_report
from rewind.video.sources import build_inventory

RED, BLUE = (220, 20, 30), (10, 40, 200)


def picture(mode: str = "RGB", size: tuple[int, int] = (40, 20)) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, BLUE)
    image.paste(RED, (0, 0, size[0] // 2, size[1]))
    return image.convert(mode)


def normalised(path: Path, **keys) -> tuple[np.ndarray, object]:
    target = path.parent / "out" / f"{path.stem}.png"
    report = normalise_image(path, target, Keys(short_side=16, **keys))
    assert report.status == "ok", report.reason
    return np.asarray(Image.open(target)).astype(int), report


def colours(pixels: np.ndarray) -> tuple[list[int], list[int]]:
    """Of the left and the right edge, in the middle of the height."""
    row = pixels[len(pixels) // 2]
    return row[1].tolist(), row[-2].tolist()


def test_large_images_shrink_and_small_ones_stay(tmp_path: Path) -> None:
    picture().save(tmp_path / "large.png")
    picture(size=(21, 9)).save(tmp_path / "small.png")
    large, report = normalised(tmp_path / "large.png")
    assert large.shape == (16, 32, 3) and colours(large) == (list(RED), list(BLUE))
    assert (report.source_width, report.source_height, report.width, report.height) == (40, 20, 32, 16)
    assert report.frames == 1 and report.bytes == (tmp_path / "out/large.png").stat().st_size and report.twin == "none"
    assert normalised(tmp_path / "small.png")[0].shape == (9, 21, 3)


@pytest.mark.parametrize(
    ("orientation", "corner"), [(1, (0, 0)), (3, (-1, -1)), (6, (0, -1)), (8, (-1, 0)), (2, (0, -1)), (5, (0, 0))]
)
def test_exif_turns_the_image_upright(tmp_path: Path, orientation: int, corner: tuple[int, int]) -> None:
    """``corner`` is where the stored picture's first corner is to be seen."""
    image = Image.new("RGB", (48, 24), BLUE)
    image.paste(RED, (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    pixels, report = normalised(tmp_path / "turned.jpg")
    upright = orientation in (1, 2, 3)
    assert pixels.shape[:2] == ((16, 32) if upright else (32, 16))
    assert (report.source_width, report.source_height) == ((48, 24) if upright else (24, 48))
    reds = [c for c in ((0, 0), (0, -1), (-1, 0), (-1, -1)) if pixels[c][0] > 150]
    assert reds == [corner]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "GIF"])
def test_transparent_parts_become_white(tmp_path: Path, mode: str) -> None:
    image = picture("RGBA", (32, 16))
    image.paste((0, 0, 0, 0), (0, 0, 16, 16))
    image.putpixel((20, 8), (*BLUE, 128))
    path = tmp_path / ("alpha.gif" if mode == "GIF" else "alpha.png")
    {"P": image.quantize(8), "GIF": image}.get(mode, image.convert("LA") if mode == "LA" else image).save(path)
    pixels, _ = normalised(path)
    left, right = colours(pixels)
    assert left == [255, 255, 255] and right[0] < 60
    if mode == "RGBA":
        assert np.abs(pixels[8, 20] - (np.array(BLUE) + 255) / 2).max() <= 2  # half of it shows


def test_grey_palette_cmyk_and_sixteen_bits_become_rgb(tmp_path: Path) -> None:
    picture("L").save(tmp_path / "grey.png")
    picture("P").save(tmp_path / "palette.png")
    picture("CMYK").save(tmp_path / "cmyk.jpg", quality=95)
    picture("1").save(tmp_path / "bits.png")
    deep = np.repeat(np.linspace(0, 65535, 40)[None], 20, 0).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    grey = normalised(tmp_path / "grey.png")[0]
    assert grey.shape == (16, 32, 3) and (grey == grey[..., :1]).all()
    for name, most in (("palette.png", 60), ("cmyk.jpg", 12)):  # a web palette is coarse
        left, right = colours(normalised(tmp_path / name)[0])
        assert np.abs(np.subtract(left, RED)).max() <= most and np.abs(np.subtract(right, BLUE)).max() <= most
    assert set(normalised(tmp_path / "bits.png")[0].ravel()) <= set(range(256))
    ramp = normalised(tmp_path / "deep.png")[0][8, :, 0]
    assert ramp[0] < 8 and ramp[-1] > 247 and (np.diff(ramp) >= 0).all() and abs(ramp[16] - 131) < 6


def test_an_animation_gives_its_first_picture(tmp_path: Path) -> None:
    first, second = picture(), Image.new("RGB", (40, 20), (0, 255, 0))
    first.save(tmp_path / "moving.webp", save_all=True, append_images=[second], lossless=True)
    assert colours(normalised(tmp_path / "moving.webp")[0]) == (list(RED), list(BLUE))


def broken(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.png"
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("no image at all")
    elif kind == "cut":
        Image.effect_noise((64, 64), 50).save(path)
        path.write_bytes(path.read_bytes()[:600])
    elif kind == "float":
        path = folder / "float.tif"
        Image.fromarray(np.ones((8, 8), np.float32)).save(path)
    elif kind == "narrow":
        Image.new("RGB", (3, 301)).save(path)
    elif kind == "folder":
        path.mkdir()
    return path


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("empty", "empty file"),
        ("text", "no image format"),
        ("cut", "cannot be decoded: .*truncated"),
        ("float", "floating-point"),
        ("narrow", "more than 100 times as long as wide"),
        ("folder", "no such file"),
        ("absent", "no such file"),
    ],
)
def test_unreadable_images_are_rows_with_a_reason(tmp_path: Path, kind: str, reason: str) -> None:
    target = tmp_path / "out" / "x.png"
    target.parent.mkdir()
    target.write_bytes(b"of an earlier run")
    report = normalise_image(broken(tmp_path, kind), target, Keys())
    assert report.status == ("missing" if kind in ("absent", "folder") else "failed") and report.item_id == "x"
    assert pd.Series([report.reason]).str.contains(reason).all(), report.reason
    assert list(target.parent.iterdir()) == []


def rows(*paths: Path) -> pd.DataFrame:
    table = pd.DataFrame({"item_id": [path.stem for path in paths], "split": "train", "source": list(map(str, paths))})
    return table.assign(reversed_source="", twin=0)


def test_a_program_under_an_images_name_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands PostScript to Ghostscript, whatever the suffix is."""
    ran = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *given, **keys: ran.append(given))
    (tmp_path / "a.jpg").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    )
    report = normalise_image(tmp_path / "a.jpg", tmp_path / "out/a.png", Keys(short_side=16))
    assert report.status == "failed" and not ran
    expect_message(report.reason)


def test_a_full_disk_is_no_fault_of_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given, **keys):
        raise OSError(28, "No space left on device")

    picture().save(tmp_path / "a.png")
    monkeypatch.setattr(Image.Image, "save", full)
    with refusal("a.png: out/a.png"):
        normalise_image(tmp_path / "a.png", tmp_path / "out/a.png", Keys(short_side=16))


def test_a_shard_resumes_and_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "abc":
        Image.effect_noise((80, 60), ord(name)).save(tmp_path / f"{name}.png")
    table, out = rows(*(tmp_path / f"{n}.png" for n in "abc"), broken(tmp_path, "text")), tmp_path / "videos"
    first = prepare_report(table, out, Keys(short_side=32), "code", 2)
    assert first["status"].tolist() == ["ok"] * 3 + ["failed"] and set(first["width"]) == {43, 0}
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.glob("*.png")}
    (out / "b.png").unlink()
    assert prepare_report(table, out, Keys(short_side=32, workers=1), "code", 1).equals(first)
    for path in out.glob("*.png"):
        assert path.read_bytes() == before[path.name][1]
        assert (path.stat().st_mtime_ns == before[path.name][0]) == (path.stem != "b")
    prepare_report(table, out, Keys(short_side=32, format="jpeg"), "code", 2)
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == ["a.jpg", "b.jpg", "c.jpg"]


def test_an_image_is_a_clip_of_one_frame(tmp_path: Path) -> None:
    picture(size=(48, 32)).save(tmp_path / "a.png")
    reader = open_file_frames(tmp_path / "a.png")
    assert len(reader) == 1 and reader.read([0]).shape == (1, 32, 48, 3)
    pixels, mask = sample_clip(tmp_path / "a.png", 3, 16, rate=2.0)
    assert mask.tolist() == [1, 0, 0] and pixels.shape == (3, 3, 16, 16) and not pixels[1:].any()
    assert pixels[0, :, 8, 1].tolist() == list(RED) and pixels[0, :, 8, -2].tolist() == list(BLUE)
    assert sample_clip(tmp_path / "a.png", 1, 16)[1].tolist() == [1]
    (tmp_path / "a.png").write_bytes(b"\x89PNG broken")
    with refusal("a.png"):
        sample_clip(tmp_path / "a.png", 1, 16)


def dataset(**keys) -> Dataset:
    source = {"format": "table", "table": "t.csv", "videos": "pictures", "items": "images"}
    return Dataset.model_validate({"name": "mine", "source": source} | keys)


def listed(*names: str, twins: bool = False) -> Annotations:
    items = pd.DataFrame({"item_id": [Path(n).stem for n in names], "source": names, "split": "test"})
    items = items.assign(cluster_id=items["item_id"], reversed=0)
    twin = items.assign(item_id=items["item_id"] + "_rev", reversed=1)
    return Annotations(pd.concat([items, twin]) if twins else items, pd.DataFrame())


def test_images_are_found_by_name_and_have_no_twins(tmp_path: Path) -> None:
    for name in ("a.JPG", "b.png", "b.mp4", "c.mp4"):
        (tmp_path / name).write_bytes(b"x")
    found = build_inventory(dataset(image={"shards": 3}), listed("a", "b", "c", "b.png"), tmp_path)
    assert [Path(source).name for source in found["source"]] == ["a.JPG", "b.png", "", "b.png"]
    assert found["shard"].between(0, 2).all() and found["shard"].nunique() > 1
    with refusal("config/datasets/mine.yaml"):
        build_inventory(dataset(), listed("a", twins=True), tmp_path)
    with refusal("config/datasets/mine.yaml"):
        build_inventory(dataset(), listed("z"), tmp_path)


def test_too_many_missing_images_are_an_error_and_few_are_not(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    missing = rows(tmp_path / "a.png", tmp_path / "gone.png")
    missing.assign(shard=0).to_csv(tmp_path / "inventory.csv", index=False)
    shard, result = tmp_path / "mine/videos/shards/0-of-1.csv", tmp_path / "mine/videos/report.csv"
    make_shard(str(tmp_path / "inventory.csv"), 0, Keys(), "code", 1, str(shard))
    check_coverage(read_csv(shard), 0.5, "mine", "", "images")
    with refusal():
        join_reports([str(shard)], 0.4, "Ask Bob", "images", str(result))
    assert not result.exists()
    join_reports([str(shard)], 0.5, "", "images", str(result))
    assert read_csv(result)["status"].tolist() == ["ok", "missing"]
