"""Opening a picture that somebody sent: looked at before it is decoded, upright, and in three colours."""

from __future__ import annotations

import threading
import warnings
from io import BytesIO

from PIL import Image, ImageOps

from engine.vision.interface import PictureError

MOST_BYTES = 64 << 20
MOST_PIXELS = 100_000_000
"""Of the decoded picture, which takes three bytes a pixel."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""Pillow's names of those that are read; its decoders of others are never asked."""
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Pillow's modes of one channel with more than 8 bits."""

_ONE_AT_A_TIME = threading.Lock()
"""So that no more memory is asked for than that of the largest; and because what is done to warnings is global."""

# Pillow warns from half of its own bound on, and raises above it; the bound here is checked at the same place.
Image.MAX_IMAGE_PIXELS = None


def open_picture(data: bytes) -> Image.Image:
    """The picture in a file of one of the :data:`FORMATS`: RGB, turned as its EXIF orientation says (CIPA DC-008).

    Of an animation the first frame is taken, and what is transparent is laid on white. Raises :class:`PictureError`,
    for too large a picture before it is decoded.
    """
    if len(data) > MOST_BYTES:
        raise PictureError(
            f"The picture takes {len(data) / 1e6:,.0f} MB, and at most {MOST_BYTES / 1e6:,.0f} MB are read. "
            "Send a smaller version of it."
        )
    with _ONE_AT_A_TIME, warnings.catch_warnings(action="ignore"), _opened(data) as image:
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise PictureError(
                f"The picture has {width:,} x {height:,} pixels, and at most {MOST_PIXELS // 1_000_000} million are "
                "read. Send a smaller version of it."
            )
        return _decoded(image)


def _opened(data: bytes) -> Image.Image:
    try:
        return Image.open(BytesIO(data), formats=FORMATS)
    except Exception as error:  # a damaged header ends in errors of many types
        raise PictureError(
            "The file is no picture of a kind that Kvasir reads, or it is damaged. Send a JPEG, PNG, WebP, GIF or BMP."
        ) from error


def _decoded(image: Image.Image) -> Image.Image:
    try:
        image.load()
        return _in_three_colours(_upright(image))
    except MemoryError:
        raise
    except Exception as error:  # likewise
        raise PictureError("The picture is damaged, or not all of it is there. Send it again.") from error


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # what stands around the pixels is damaged, and they are not
        return image


def _in_three_colours(image: Image.Image) -> Image.Image:
    if image.mode in _DEEP:
        # Pillow would cut values above 255 off.
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    paper = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(paper, image).convert("RGB")
