"""Icon files of Windows (.ico) and macOS (.icns) out of the one SVG."""

from __future__ import annotations

import struct
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice
from PySide6.QtGui import QImage

from kit.icons import picture

ICO_SIZES = (16, 20, 24, 32, 40, 48, 64, 256)
"""Pixels: what Windows asks for at 100, 125, 150 and 200 %."""
ICNS_KINDS = {
    b"icp4": 16,
    b"icp5": 32,
    b"ic07": 128,
    b"ic08": 256,
    b"ic09": 512,
    b"ic10": 1024,
    b"ic11": 32,
    b"ic12": 64,
    b"ic13": 256,
    b"ic14": 512,
}
"""Apple's names of the sizes, those of Retina screens among them; all hold PNG."""
_AS_PNG = 256
"""From this size on an .ico holds PNG; smaller ones are bitmaps, which every loader of Windows reads."""


def ico(svg: Path) -> bytes:
    """An .ico file with all of :data:`ICO_SIZES`."""
    bodies = [_png(svg, size) if size >= _AS_PNG else _bitmap(picture(svg, size)) for size in ICO_SIZES]
    start = 6 + 16 * len(bodies)
    entries = []
    for size, body in zip(ICO_SIZES, bodies, strict=True):
        entries.append(struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(body), start))
        start += len(body)
    return struct.pack("<HHH", 0, 1, len(bodies)) + b"".join(entries) + b"".join(bodies)


def icns(svg: Path) -> bytes:
    """An .icns file with all of :data:`ICNS_KINDS`."""
    pictures = {size: _png(svg, size) for size in sorted(set(ICNS_KINDS.values()))}
    chunks = [kind + struct.pack(">I", 8 + len(pictures[size])) + pictures[size] for kind, size in ICNS_KINDS.items()]
    body = b"".join(chunks)
    return b"icns" + struct.pack(">I", 8 + len(body)) + body


def _png(svg: Path, size: int) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    picture(svg, size).save(buffer, "PNG")  # type: ignore[call-overload]
    return bytes(buffer.data().data())


def _bitmap(image: QImage) -> bytes:
    """A device-independent bitmap as icons hold it: rows from the bottom, then an empty mask, for alpha decides."""
    size = image.width()
    rows = [bytes(image.constScanLine(row))[: 4 * size] for row in reversed(range(size))]
    mask = bytes((size + 31) // 32 * 4 * size)
    pixels = b"".join(rows)
    header = struct.pack("<IiiHHIIiiII", 40, size, 2 * size, 1, 32, 0, len(pixels) + len(mask), 0, 0, 0, 0)
    return header + pixels + mask
