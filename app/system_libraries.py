"""System libraries that the window needs: what the shared objects of PySide6-Essentials 6.11 name as NEEDED and do not
bring themselves. It imports nothing of Kvasir's, since the trial of packages reads it with no more than Python.
"""

from __future__ import annotations

from typing import NamedTuple


class SystemLibrary(NamedTuple):
    soname: str
    package: str
    """The Debian and Ubuntu package that brings it."""


CORE = (
    SystemLibrary("libEGL.so.1", "libegl1"),
    SystemLibrary("libGL.so.1", "libgl1"),
    SystemLibrary("libX11.so.6", "libx11-6"),
    SystemLibrary("libxkbcommon.so.0", "libxkbcommon0"),
    SystemLibrary("libfontconfig.so.1", "libfontconfig1"),
    SystemLibrary("libfreetype.so.6", "libfreetype6"),
    SystemLibrary("libglib-2.0.so.0", "libglib2.0-0"),
    SystemLibrary("libgthread-2.0.so.0", "libglib2.0-0"),
    SystemLibrary("libdbus-1.so.3", "libdbus-1-3"),
    SystemLibrary("libzstd.so.1", "libzstd1"),
    SystemLibrary("libz.so.1", "zlib1g"),
    SystemLibrary("libgssapi_krb5.so.2", "libgssapi-krb5-2"),
    SystemLibrary("libbrotlidec.so.1", "libbrotli1"),
)
"""Needed by QtCore, QtGui, QtWidgets and QtNetwork, whatever the platform plugin."""

XCB = (
    SystemLibrary("libX11-xcb.so.1", "libx11-xcb1"),
    SystemLibrary("libxcb.so.1", "libxcb1"),
    SystemLibrary("libxcb-cursor.so.0", "libxcb-cursor0"),
    SystemLibrary("libxcb-icccm.so.4", "libxcb-icccm4"),
    SystemLibrary("libxcb-image.so.0", "libxcb-image0"),
    SystemLibrary("libxcb-keysyms.so.1", "libxcb-keysyms1"),
    SystemLibrary("libxcb-randr.so.0", "libxcb-randr0"),
    SystemLibrary("libxcb-render.so.0", "libxcb-render0"),
    SystemLibrary("libxcb-render-util.so.0", "libxcb-render-util0"),
    SystemLibrary("libxcb-shape.so.0", "libxcb-shape0"),
    SystemLibrary("libxcb-shm.so.0", "libxcb-shm0"),
    SystemLibrary("libxcb-sync.so.1", "libxcb-sync1"),
    SystemLibrary("libxcb-util.so.1", "libxcb-util1"),
    SystemLibrary("libxcb-xfixes.so.0", "libxcb-xfixes0"),
    SystemLibrary("libxcb-xkb.so.1", "libxcb-xkb1"),
    SystemLibrary("libxkbcommon-x11.so.0", "libxkbcommon-x11-0"),
)

WAYLAND = (
    SystemLibrary("libwayland-client.so.0", "libwayland-client0"),
    SystemLibrary("libwayland-cursor.so.0", "libwayland-cursor0"),
)
