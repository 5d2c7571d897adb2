"""One source image → a small upright RGB image.

Colour profiles are not applied: values are taken as sRGB, as vision models are trained.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps

from rewind.datasets.photos import open_picture
from rewind.errors import RewindError
from rewind.files import atomic, raise_machine_fault
from rewind.study.dataset import Image as ImageKeys
from rewind.video.transcode import ClipReport, Refused, machines_fault
from rewind.video.transparency import NOTE

SUFFIXES = {"png": ".png", "jpeg": ".jpg"}
_SAVING = {
    "png": {"format": "PNG", "compress_level": 6},
    "jpeg": {"format": "JPEG", "quality": 95, "subsampling": 0},
}
_NARROWEST = 100  # sides; a model crops the square in the middle, after enlarging the short side
_UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)
_SIXTEEN_BITS = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def version() -> str:
    """What decodes and encodes, for example ``Pillow 13.0.0``."""
    return f"Pillow {PIL.__version__}"


def normalise_image(source: Path, target: Path, settings: ImageKeys) -> ClipReport:
    """Normalise ``source`` to ``target``: upright, RGB, on white, at most ``short_side`` pixels on the short side.

    Grey, palette, CMYK and 16-bit images become RGB of 8 bits; of an animation the first picture is taken. The same
    file gives the same bytes under the same Pillow. No metadata is kept.

    Args:
        source: any file that Pillow reads.
        target: ``<id>.png`` or ``<id>.jpg``; the id names the image in the report.
        settings: ``short_side`` and ``format``.

    Returns:
        The report, with one frame and no seconds. Only with status ``ok`` does the file exist; an older one is removed.

    Raises:
        RewindError: for a fault of the machine, of which nothing may be recorded against the image.
    """
    try:
        return _produce(source, target, settings)
    except OSError as error:  # while it was written
        raise machines_fault(source, f"{error.filename or target}: {error.strerror or error}") from error
    except Refused as error:
        target.unlink(missing_ok=True)
        status = "failed" if source.is_file() else "missing"
        return ClipReport(item_id=target.stem, status=status, reason=str(error))


def _produce(source: Path, target: Path, settings: ImageKeys) -> ClipReport:
    picture, note = upright_rgb(source)
    whole = picture.size
    picture = _limited(picture, settings.short_side)
    with atomic(target) as draft:
        picture.save(draft, **_SAVING[settings.format])
        size = draft.stat().st_size
    return ClipReport(
        item_id=target.stem,
        status="ok",
        reason=note,
        source_width=whole[0],
        source_height=whole[1],
        frames=1,
        width=picture.width,
        height=picture.height,
        bytes=size,
    )


def upright_rgb(source: Path) -> tuple[Image.Image, str]:
    """An image file as RGB: turned as its EXIF says, transparent parts on white; and what is to be said of it.

    Raises:
        Refused: with the reason, if it is missing, empty, damaged, or of a kind without plain colours.
    """
    if not source.is_file():
        raise Refused("no such file")
    if source.stat().st_size == 0:
        raise Refused("empty file")
    with decoding(source):
        try:
            with open_picture(source) as image:
                image.load()
                return _rgb(ImageOps.exif_transpose(image))
        except PIL.UnidentifiedImageError:
            raise Refused("cannot be decoded: no image format that is read here, by its content") from None
        except _UNREADABLE as error:
            if isinstance(error, OSError) and error.errno:  # Pillow's own have none
                raise machines_fault(source, error.strerror or str(error)) from error
            raise Refused(f"cannot be decoded: {' '.join(str(error).split())[:200] or type(error).__name__}") from error


@contextlib.contextmanager
def decoding(source: Path) -> Iterator[None]:
    """Around Pillow: every library that it decodes with has errors of its own, and each is a refusal of the image.

    Raises:
        Refused: for all but what is one already, and faults of the machine.
    """
    try:
        yield
    except (Refused, RewindError):
        raise
    except Exception as error:
        raise_machine_fault(error, source)
        raise Refused(f"cannot be decoded: {' '.join(str(error).split())[:200] or type(error).__name__}") from error


def _rgb(image: Image.Image) -> tuple[Image.Image, str]:
    if image.mode in _SIXTEEN_BITS:
        image = _eight_bits(image)
    if image.mode == "F":
        raise Refused("32-bit floating-point values, whose white is not known")
    if not image.has_transparency_data:
        return image.convert("RGB"), ""
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    note = NOTE if image.getchannel("A").getextrema()[0] < 255 else ""
    return Image.alpha_composite(white, image).convert("RGB"), note


def _eight_bits(image: Image.Image) -> Image.Image:
    """A grey image of 16 bits, which Pillow would cut off at 255, in 8 bits; in ``I`` mode it may hold only 8."""
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise Refused("32-bit integer values, whose white is not known")
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def _limited(image: Image.Image, short_side: int) -> Image.Image:
    short, long = sorted(image.size)
    if long > _NARROWEST * short:
        raise Refused(f"{image.width} × {image.height} pixels: more than {_NARROWEST} times as long as wide")
    if short <= short_side:
        return image
    size = tuple(round(side * short_side / short) for side in image.size)
    return image.resize(size, Image.Resampling.BICUBIC)
