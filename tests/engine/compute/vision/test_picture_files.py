"""Opening pictures: what is read, how it is turned and coloured, and what is said of those that are not read."""

from __future__ import annotations

import io
import struct
import zlib
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from engine.compute.vision import pictures
from engine.compute.vision.interface import Picture, PictureError, Tower
from engine.compute.vision.pictures import MOST_BYTES, open_picture
from engine.compute.vision.processor import ImageProcessor
from tests.kit.examples import examples


def written(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chequered(width: int = 40, height: int = 24, mode: str = "RGB") -> Image.Image:
    """Its left upper quarter is red, the rest blue."""
    image = Image.new("RGB", (width, height), "blue")
    image.paste("red", (0, 0, width // 2, height // 2))
    return image.convert(mode)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of(width: int, height: int, rows: int = 0, interlaced: bool = False) -> bytes:
    """A file of which the first grey rows are there, or only the beginning of one."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced))
    content = (b"\0" + b"\x80" * (3 * width)) * rows or b"\0" * 100
    end = chunk(b"IEND", b"") if rows else b""
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(content)) + end


@pytest.mark.parametrize("kind", pictures.FORMATS)
def test_the_formats_that_are_read(kind: str) -> None:
    image = open_picture(written(chequered(), kind))
    assert (image.mode, image.size) == ("RGB", (40, 24))
    red, blue = image.getpixel((4, 4)), image.getpixel((30, 20))
    assert red[0] > 200 > 60 > red[2]
    assert blue[2] > 200 > 60 > blue[0]


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "1", "I;16", "YCbCr"])
def test_other_colours_become_three(mode: str) -> None:
    image = plain = chequered(mode=mode.replace("I;16", "L"))
    if mode == "I;16":
        image = Image.fromarray((np.asarray(plain).astype(np.uint16) << 8) + 255)
    found = open_picture(written(image, "JPEG" if mode in ("CMYK", "YCbCr") else "PNG", quality=95))
    theirs, ours = (np.asarray(shown)[2:9, 2:17].astype(int) for shown in (plain.convert("RGB"), found))
    assert np.abs(theirs - ours).max() <= 8


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF"])
def test_what_is_transparent_lies_on_white(kind: str) -> None:
    image = Image.new("RGBA", (16, 16), (0, 0, 0, 0))
    image.paste((255, 0, 0, 255), (0, 0, 8, 16))
    found = open_picture(written(image, kind, **({"lossless": True} if kind == "WEBP" else {})))
    assert found.getpixel((12, 8)) == (255, 255, 255)
    assert found.getpixel((2, 8)) == (255, 0, 0)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_is_taken(kind: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    found = open_picture(written(frames[0], kind, save_all=True, append_images=frames[1:], duration=50))
    assert found.getpixel((8, 8))[0] > 240


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_their_exif_says(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = open_picture(written(chequered(), "JPEG", exif=exif, quality=95))
    assert found.size == ((40, 24) if orientation < 5 else (24, 40))
    right, lower = orientation in (2, 3, 6, 7), orientation in (3, 4, 7, 8)  # where the red quarter comes to lie
    corner = (found.width - 4 if right else 3, found.height - 4 if lower else 3)
    assert found.getpixel(corner)[0] > 200
    assert found.getexif().get(0x0112, 1) == 1


def test_damaged_exif_is_no_reason_to_refuse_a_picture() -> None:
    data = written(chequered(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert open_picture(data).size == (40, 24)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a picture"),
        (b"%PDF-1.7 and so on", "not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (written(chequered(), "TIFF"), "not a picture"),
        (written(chequered(), "PNG")[:60], "damaged|not all"),
        (written(chequered(400, 400), "JPEG")[:900], "not all of it is there"),
        (written(chequered(400, 400), "WEBP")[:300], "not a picture|not all of it"),
        (png_of(40, 24), "not all of it is there"),
        (png_of(40, 24, rows=23), "not all of it is there"),
        (png_of(41, 25, rows=1, interlaced=True), "not all of it is there"),
        (png_of(20_000, 7_000), "20,000 x 7,000 pixels, which would take 560 MB of memory, and at most 537"),
        (png_of(1 << 20, 1 << 20), "at most 537 MB"),
        (png_of(1, 100_000_000), "at most 537 MB"),
        (b"\xff" * (MOST_BYTES + 1), "takes 67 MB"),
    ],
)
def test_what_is_no_picture_is_refused_with_a_sentence(data: bytes, said: str) -> None:
    with pytest.raises(PictureError, match=said):
        open_picture(data)


def test_a_large_picture_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a hundred million white pixels is small, and a row takes memory besides its pixels."""
    monkeypatch.setattr(pictures, "_decoded", lambda image, data: pytest.fail("decoded"))
    for size in ((12_000, 12_000), (1, 1 << 23)):
        with pytest.raises(PictureError, match="Send a smaller version"):
            open_picture(png_of(*size))
    with pytest.raises(PictureError, match="a side more than 200 times the other"):
        open_picture(png_of(10, 2_001), 200)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_very_large_picture_becomes_smaller_and_looks_the_same(
    kind: str, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = written(chequered(400, 240), kind, exif=exif)
    whole = open_picture(data)
    monkeypatch.setattr(pictures, "ENOUGH_PIXELS", 4_000)
    found = open_picture(data)
    assert 4_000 <= found.width * found.height <= 8_000
    assert abs(found.width / found.height - whole.width / whole.height) < 0.05
    alike = np.asarray(whole.resize(found.size, Image.Resampling.BOX)).astype(int) - np.asarray(found).astype(int)
    assert np.abs(alike).mean() < 4


@pytest.mark.parametrize("mode", ["1", "L", "P", "I;16", "RGBA"])
def test_a_very_large_picture_of_other_colours_becomes_smaller(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "ENOUGH_PIXELS", 4_000)
    image = chequered(400, 240, mode.replace("I;16", "L"))
    if mode == "I;16":
        image = Image.fromarray((np.asarray(image).astype(np.uint16) << 8) + 255)
    found = open_picture(written(image, "PNG"))
    assert (found.mode, found.size) == ("RGB", (82, 49))
    left, right = (found.getpixel((column, 10))[0] for column in (5, 70))
    assert left != right


def test_rows_that_are_missing_are_no_black_ones() -> None:
    """Whole pictures whose last rows are black, or transparent, are whole."""
    for colour in ("black", "#0000"):
        for size in ((1, 1), (33, 2), (640, 480)):
            image = Image.new("RGBA" if colour == "#0000" else "RGB", size, colour)
            assert open_picture(written(image, "PNG")).size == size


@examples(150)
@given(kind=st.sampled_from(pictures.FORMATS), data=st.data())
def test_damaged_files_end_in_a_picture_or_a_sentence(kind: str, data: st.DataObject) -> None:
    good = bytearray(written(chequered(), kind))
    for _ in range(data.draw(st.integers(1, 6))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        image = open_picture(bytes(good[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else good))
    except PictureError:
        return
    assert image.mode == "RGB"


def test_an_album_tells_what_its_pictures_take() -> None:
    """Prepared pictures are kept for the next messages, up to a number of bytes."""
    pixels = torch.zeros(30_000)  # 120,000 bytes
    tower = SimpleNamespace(most_ratio=200.0, prepare=lambda image, most: Picture(pixels, (1, 1), 1, b""))
    album = ImageProcessor(cast("Tower", tower), 0, budget=300_000)
    assert album.kept_bytes() == 0
    for colour, bytes_kept in (("red", 120_000), ("red", 120_000), ("blue", 240_000), ("green", 240_000)):
        album.prepared([written(Image.new("RGB", (4, 4), colour), "PNG")])
        assert album.kept_bytes() == bytes_kept
