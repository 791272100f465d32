"""Opening a picture that somebody sent: looked at before it is decoded, upright, and in three colours."""

from __future__ import annotations

import contextlib
import math
import struct
import threading
import warnings
import zlib
from io import BytesIO

from PIL import Image, ImageOps

from engine.base.host_memory import trim_heap
from engine.compute.vision.interface import PictureError

MOST_BYTES = 64 << 20
MOST_MEMORY = 512 << 20
"""Bytes that a picture may take while it is decoded, counted before. A photograph of 200 megapixels takes half."""
ENOUGH_PIXELS = 16_000_000
"""No tower is shown as many: of a picture more than twice as large fewer pixels are decoded, or kept."""
_ROW_BYTES = 64
"""Bytes that Pillow takes for a row besides its pixels, generously."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""Pillow's names of those that are read; its decoders of others are never asked."""
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Passes of an interlaced PNG: the first column and row, and the steps to the next ones."""
CUT = "The picture is damaged, or not all of it is there. Send it again."
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Pillow's modes of one channel with more than 8 bits."""

_ONE_AT_A_TIME = threading.Lock()
"""Lock that bounds memory to that of the largest; needed also because what is done to warnings is global."""

# Pillow warns from half of its own bound on, and raises above it; memory is bounded here, before pixels are read.
Image.MAX_IMAGE_PIXELS = None


def open_picture(data: bytes, most_ratio: float = math.inf) -> Image.Image:
    """The picture in a file of one of the :data:`FORMATS`: RGB, turned as its EXIF orientation says (CIPA DC-008).

    Of an animation the first frame is taken, and what is transparent is laid on white. Of a picture much larger than
    :data:`ENOUGH_PIXELS` a smaller version comes. Raises :class:`PictureError`; before it is decoded for one that would
    take too much memory, and for one with a side more than ``most_ratio`` times the other.
    """
    if len(data) > MOST_BYTES:
        raise PictureError(
            f"The picture takes {len(data) / 1e6:,.0f} MB, and at most {MOST_BYTES / 1e6:,.0f} MB are read. "
            "Send a smaller version of it."
        )
    try:
        with _ONE_AT_A_TIME, warnings.catch_warnings(action="ignore"), contextlib.closing(_opened(data)) as image:
            return _bounded(image, data, most_ratio)
    finally:
        trim_heap()


def _bounded(image: Image.Image, data: bytes, most_ratio: float) -> Image.Image:
    check_sides(*image.size, most_ratio)
    width, height = image.size
    image.draft(None, _enough(width, height))  # of a JPEG, an eighth of each side is as easily decoded as the whole
    needed = memory_of(image, width * height)
    if needed > MOST_MEMORY:
        raise PictureError(
            f"The picture has {width:,} x {height:,} pixels, which would take {needed / 1e6:,.0f} MB of memory, "
            f"and at most {MOST_MEMORY / 1e6:,.0f} MB are given to one. Send a smaller version of it."
        )
    return _decoded(image, data)


def check_sides(width: int, height: int, most_ratio: float) -> None:
    """Raises :class:`PictureError` where a side is more than ``most_ratio`` times the other."""
    if max(height, width) > most_ratio * min(height, width):
        raise PictureError(
            f"The picture is {width:,} x {height:,} pixels, and this model takes none with a side more than "
            f"{most_ratio:.0f} times the other. Cut it."
        )


def memory_of(image: Image.Image, pixels: int) -> int:
    """The most bytes that a picture takes while it is decoded, of a file that has so many ``pixels``."""
    width, height = image.size
    each = 1 if image.mode in ("1", "L") else 10 if image.mode in _DEEP else 5 if image.mode == "P" else 4
    coefficients = (
        6 * pixels if image.info.get("progressive") else 0
    )  # of a JPEG, which keeps all of them until its end
    return width * height * each + height * _ROW_BYTES + coefficients


def _enough(width: int, height: int) -> tuple[int, int]:
    """The size with the same sides' ratio that has :data:`ENOUGH_PIXELS`, or the picture's own if that is smaller."""
    factor = min(1.0, math.sqrt(ENOUGH_PIXELS / (width * height)))
    return math.ceil(width * factor), math.ceil(height * factor)


def _reduced(image: Image.Image) -> Image.Image:
    """Image reduced to means of neighbouring pixels, where there are many more than enough."""
    if image.width * image.height <= 2 * ENOUGH_PIXELS:
        return image
    if image.mode in ("1", "P"):
        image = image.convert("L" if image.mode == "1" else "RGBA" if image.has_transparency_data else "RGB")
    return image.resize(_enough(*image.size), Image.Resampling.BOX)


def _opened(data: bytes) -> Image.Image:
    try:
        return Image.open(BytesIO(data), formats=FORMATS)
    except Exception as error:  # a damaged header ends in errors of many types
        raise PictureError(
            "The file is not a picture that Kvasir reads, or it is damaged. Send a JPEG, PNG, WebP, GIF or BMP."
        ) from error


def _decoded(image: Image.Image, data: bytes) -> Image.Image:
    try:
        image.load()
        if image.format == "PNG" and not _last_rows(image) and not png_is_whole(data):
            raise PictureError(CUT)
        return _in_three_colours(_upright(_reduced(_in_eight_bits(image))))
    except PictureError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # likewise
        raise PictureError(CUT) from error


def _last_rows(image: Image.Image) -> bool:
    """Return True if each of the last two rows has a byte that is not zero in memory; rows never read have none."""
    left, upper, right, lower = 0, max(0, image.height - 2), image.width, image.height
    return all(image.crop((left, row, right, row + 1)).tobytes().strip(b"\0") != b"" for row in range(upper, lower))


def png_is_whole(data: bytes) -> bool:
    """Return True if the compressed stream of a PNG has all rows (PNG, third edition, sections 7.2, 8.1 and 10.1).

    Pillow takes a stream that ends early for a picture whose last rows are black. The stream is counted in pieces.
    """
    header, place, stream, count = data[16:29], 8, zlib.decompressobj(), 0
    width, height, depth, colour, interlaced = *struct.unpack(">IIBB", header[:10]), header[12]
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(width - x) // across), -(-(height - y) // down)) for x, y, across, down in passes]
    expected = sum(rows * (1 + -(-columns * bits // 8)) for columns, rows in sizes if columns > 0 and rows > 0)
    while count < expected and place + 8 <= len(data):
        length, kind = struct.unpack(">I4s", data[place : place + 8])
        part = data[place + 8 : place + 8 + length] if kind == b"IDAT" else b""
        while part and not stream.eof:
            count += len(stream.decompress(part, 1 << 20))
            part = stream.unconsumed_tail
        place += 12 + length
    return count + len(stream.flush()) >= expected


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # what stands around the pixels is damaged, and they are not
        return image


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Pillow would cut values above 255 off."""
    return image.convert("I").point(lambda value: value * (1 / 256)).convert("L") if image.mode in _DEEP else image


def _in_three_colours(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    image = image.convert("RGBA")
    paper = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(paper, image).convert("RGB")
