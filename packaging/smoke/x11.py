"""The two things that xdotool cannot do: ask a window to close itself, and take a picture. libX11 through ctypes."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
import zlib
from pathlib import Path

_CLIENT_MESSAGE = 33
_Z_PIXMAP = 2
_ALL_PLANES = ctypes.c_ulong(-1).value


class _ClientMessage(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("serial", ctypes.c_ulong),
        ("send_event", ctypes.c_int),
        ("display", ctypes.c_void_p),
        ("window", ctypes.c_ulong),
        ("message_type", ctypes.c_ulong),
        ("format", ctypes.c_int),
        ("data", ctypes.c_long * 5),
        ("padding", ctypes.c_long * 24),
    ]


class _Image(ctypes.Structure):
    _fields_ = [
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("xoffset", ctypes.c_int),
        ("format", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("byte_order", ctypes.c_int),
        ("bitmap_unit", ctypes.c_int),
        ("bitmap_bit_order", ctypes.c_int),
        ("bitmap_pad", ctypes.c_int),
        ("depth", ctypes.c_int),
        ("bytes_per_line", ctypes.c_int),
        ("bits_per_pixel", ctypes.c_int),
    ]


class _Display:
    def __init__(self, number: int) -> None:
        self.lib = ctypes.CDLL(ctypes.util.find_library("X11") or "libX11.so.6")
        self.lib.XOpenDisplay.restype = ctypes.c_void_p
        self.lib.XDefaultRootWindow.restype = self.lib.XInternAtom.restype = ctypes.c_ulong
        self.lib.XGetImage.restype = ctypes.POINTER(_Image)
        handle = self.lib.XOpenDisplay(f":{number}".encode())
        if not handle:
            raise RuntimeError(f"display :{number} cannot be opened")
        self.handle = ctypes.c_void_p(handle)

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.XCloseDisplay(self.handle)

    def atom(self, name: str) -> int:
        return self.lib.XInternAtom(self.handle, name.encode(), 0)


def ask_to_close(number: int, window: int) -> None:
    """Send WM_DELETE_WINDOW to ``window`` on display ``number`` (ICCCM 4.2.8.1)."""
    with _Display(number) as display:
        message = _ClientMessage(type=_CLIENT_MESSAGE, window=window, format=32)
        message.message_type = display.atom("WM_PROTOCOLS")
        message.data[0] = display.atom("WM_DELETE_WINDOW")
        display.lib.XSendEvent(display.handle, ctypes.c_ulong(window), 0, ctypes.c_long(0), ctypes.byref(message))
        display.lib.XSync(display.handle, 0)


def grab(number: int, width: int = 0, height: int = 0) -> list[bytes]:
    """Rows of pixels (blue, green, red, unused) from the upper left corner of display ``number``; 0 is all of it.

    Raises RuntimeError unless the display has 24-bit colours.
    """
    with _Display(number) as display:
        root = ctypes.c_ulong(display.lib.XDefaultRootWindow(display.handle))
        width = width or display.lib.XDisplayWidth(display.handle, 0)
        height = height or display.lib.XDisplayHeight(display.handle, 0)
        image = display.lib.XGetImage(
            display.handle, root, 0, 0, width, height, ctypes.c_ulong(_ALL_PLANES), ctypes.c_int(_Z_PIXMAP)
        )
        if not image or image.contents.bits_per_pixel != 32:
            raise RuntimeError(f"display :{number} gives no 32-bit picture")
        stride = image.contents.bytes_per_line
        raw = ctypes.string_at(image.contents.data, stride * height)
        display.lib.XDestroyImage(image)
    return [raw[y * stride : y * stride + width * 4] for y in range(height)]


def colours(number: int, width: int, height: int) -> int:
    """How many there are in that much of the upper left corner."""
    return len({row[x : x + 3] for row in grab(number, width, height) for x in range(0, len(row), 4)})


def screenshot(number: int, path: Path) -> None:
    """Write display ``number`` to ``path`` as a PNG."""
    rows = grab(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(len(rows[0]) // 4, len(rows), [rgb(row) for row in rows]))


def rgb(bgrx: bytes) -> bytes:
    """A row of pixels as PNG wants it."""
    row = bytearray(len(bgrx) // 4 * 3)
    row[0::3], row[1::3], row[2::3] = bgrx[2::4], bgrx[1::4], bgrx[0::4]
    return bytes(row)


def png(width: int, height: int, rows: list[bytes]) -> bytes:
    """8-bit RGB (PNG specification, 5.3 and 11.2)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
