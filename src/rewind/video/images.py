"""Normalise one source image to a small upright RGB image.

``normalise_image`` is the entry point. Colour profiles are not applied: values are taken as sRGB, as vision models are
trained.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL
from PIL import Image, ImageOps

from rewind.config.dataset import Image as ImageKeys
from rewind.data.formats.photos import open_image
from rewind.errors import RewindError
from rewind.io.files import atomic_write, reraise_system_error
from rewind.video.transcode import TRANSPARENCY_NOTE, ClipReport, UnusableSource, system_fault

FORMAT_SUFFIXES = {"png": ".png", "jpeg": ".jpg"}
_SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG", "compress_level": 6},
    "jpeg": {"format": "JPEG", "quality": 95, "subsampling": 0},  # 0: colours at full resolution
}
# Long side over short side. A model enlarges the short side and crops the square in the middle: of a hair-thin picture
# that would be a huge one of which almost nothing is seen.
_MAX_ASPECT_RATIO = 100
# Pillow raises SyntaxError for broken PNGs, for example, and DecompressionBombError for far too many pixels.
_UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)
_SIXTEEN_BIT_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def pillow_version() -> str:
    """What decodes and encodes, for example ``Pillow 13.0.0``."""
    return f"Pillow {PIL.__version__}"


def normalise_image(source: Path, target: Path, settings: ImageKeys) -> ClipReport:
    """Normalise ``source`` to ``target``: upright, RGB, on white, at most ``short_side`` pixels on the short side.

    Grey, palette, CMYK and 16-bit images become 8-bit RGB; of an animation the first picture is taken. The same file
    gives the same bytes under the same Pillow. No metadata is kept.

    Args:
        target: ``<id>.png`` or ``<id>.jpg``; the id names the image in the report.

    Returns:
        The report, with one frame and no seconds. Only with status ``ok`` does the file exist; an older one is removed.

    Raises:
        RewindError: for a fault of the machine, which must not be recorded as the image's.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Image.new("L", (300, 200)).save(folder / "source.png")
    >>> report = normalise_image(folder / "source.png", folder / "img1.png", ImageKeys(short_side=100))
    >>> report.item_id, report.status, report.width, report.height
    ('img1', 'ok', 150, 100)
    """
    try:
        return _produce(source, target, settings)
    except OSError as error:  # while it was written
        raise system_fault(source, f"{error.filename or target}: {error.strerror or error}") from error
    except UnusableSource as error:
        target.unlink(missing_ok=True)
        status: Literal["failed", "missing"] = "failed" if source.is_file() else "missing"
        return ClipReport(item_id=target.stem, status=status, reason=str(error))


def _produce(source: Path, target: Path, settings: ImageKeys) -> ClipReport:
    picture, note = upright_rgb(source)
    source_size = picture.size
    picture = _limit_short_side(picture, settings.short_side)
    with atomic_write(target) as file:
        picture.save(file, **_SAVE_OPTIONS[settings.format])
        file_size = file.stat().st_size
    return ClipReport(
        item_id=target.stem,
        status="ok",
        reason=note,
        source_width=source_size[0],
        source_height=source_size[1],
        frames=1,
        width=picture.width,
        height=picture.height,
        bytes=file_size,
    )


def upright_rgb(source: Path) -> tuple[Image.Image, str]:
    """An image file as RGB, turned as its EXIF says and transparent parts on white, and a note for the report.

    Raises:
        UnusableSource: with the reason, if it is missing, empty, damaged, or of a kind without plain colours.
    """
    if not source.is_file():
        raise UnusableSource("no such file")
    if source.stat().st_size == 0:
        raise UnusableSource("empty file")
    with refuse_decode_errors(source):
        try:
            with open_image(source) as image:
                image.load()  # until here only the header was read
                return _rgb(ImageOps.exif_transpose(image))
        except PIL.UnidentifiedImageError:
            raise UnusableSource("cannot be decoded: no image format that is read here, by its content") from None
        except _UNREADABLE as error:
            # The system's errors have a number. Pillow's own, which are about the file, are OSErrors without one.
            if isinstance(error, OSError) and error.errno:
                raise system_fault(source, error.strerror or str(error)) from error
            raise UnusableSource(f"cannot be decoded: {_short_reason(error)}") from error


@contextlib.contextmanager
def refuse_decode_errors(source: Path) -> Iterator[None]:
    """Around Pillow, whose decoding libraries each have errors of their own: any of them refuses the image.

    Raises:
        UnusableSource: for any error but a RewindError and faults of the machine.
    """
    try:
        yield
    except (UnusableSource, RewindError):
        raise
    except Exception as error:
        reraise_system_error(error, source)
        raise UnusableSource(f"cannot be decoded: {_short_reason(error)}") from error


def _short_reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _rgb(image: Image.Image) -> tuple[Image.Image, str]:
    if image.mode in _SIXTEEN_BIT_MODES:
        image = _eight_bits(image)
    if image.mode == "F":
        raise UnusableSource("32-bit floating-point values, whose white is not known")
    if not image.has_transparency_data:
        return image.convert("RGB"), ""
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    # Noted only if a pixel is transparent: many images have an alpha channel that is opaque throughout.
    lowest: Any = image.getchannel("A").getextrema()[0]  # of one channel a number
    note = TRANSPARENCY_NOTE if lowest < 255 else ""
    return Image.alpha_composite(white, image).convert("RGB"), note


def _eight_bits(image: Image.Image) -> Image.Image:
    """A grey image of 16 bits in 8 bits; Pillow's own conversion cuts values off at 255."""
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise UnusableSource("32-bit integer values, whose white is not known")
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))  # 65535 = 255 · 257, rounded to nearest


def _limit_short_side(image: Image.Image, short_side: int) -> Image.Image:
    shorter, longer = sorted(image.size)
    if longer > _MAX_ASPECT_RATIO * shorter:
        raise UnusableSource(
            f"{image.width} × {image.height} pixels: more than {_MAX_ASPECT_RATIO} times as long as wide"
        )
    if shorter <= short_side:
        return image
    width, height = (round(side * short_side / shorter) for side in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)
