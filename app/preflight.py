"""Which system libraries the window needs and which of them are missing; run as ``python -m app.preflight``.

Pure Python without Qt: it must work exactly when importing Qt does not. The lists are what the shared objects of
PySide6-Essentials 6.11 name as NEEDED and do not bring themselves.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import NamedTuple


class Library(NamedTuple):
    soname: str
    package: str
    """The Debian and Ubuntu package that brings it."""


CORE = (
    Library("libEGL.so.1", "libegl1"),
    Library("libGL.so.1", "libgl1"),
    Library("libX11.so.6", "libx11-6"),
    Library("libxkbcommon.so.0", "libxkbcommon0"),
    Library("libfontconfig.so.1", "libfontconfig1"),
    Library("libfreetype.so.6", "libfreetype6"),
    Library("libglib-2.0.so.0", "libglib2.0-0"),
    Library("libgthread-2.0.so.0", "libglib2.0-0"),
    Library("libdbus-1.so.3", "libdbus-1-3"),
    Library("libzstd.so.1", "libzstd1"),
    Library("libz.so.1", "zlib1g"),
    Library("libgssapi_krb5.so.2", "libgssapi-krb5-2"),
    Library("libbrotlidec.so.1", "libbrotli1"),
)
"""Needed by QtCore, QtGui, QtWidgets and QtNetwork, whatever the platform plugin."""

XCB = (
    Library("libX11-xcb.so.1", "libx11-xcb1"),
    Library("libxcb.so.1", "libxcb1"),
    Library("libxcb-cursor.so.0", "libxcb-cursor0"),
    Library("libxcb-icccm.so.4", "libxcb-icccm4"),
    Library("libxcb-image.so.0", "libxcb-image0"),
    Library("libxcb-keysyms.so.1", "libxcb-keysyms1"),
    Library("libxcb-randr.so.0", "libxcb-randr0"),
    Library("libxcb-render.so.0", "libxcb-render0"),
    Library("libxcb-render-util.so.0", "libxcb-render-util0"),
    Library("libxcb-shape.so.0", "libxcb-shape0"),
    Library("libxcb-shm.so.0", "libxcb-shm0"),
    Library("libxcb-sync.so.1", "libxcb-sync1"),
    Library("libxcb-util.so.1", "libxcb-util1"),
    Library("libxcb-xfixes.so.0", "libxcb-xfixes0"),
    Library("libxcb-xkb.so.1", "libxcb-xkb1"),
    Library("libxkbcommon-x11.so.0", "libxkbcommon-x11-0"),
)

WAYLAND = (
    Library("libwayland-client.so.0", "libwayland-client0"),
    Library("libwayland-cursor.so.0", "libwayland-cursor0"),
)


def platforms(environ: Mapping[str, str]) -> list[str]:
    """The Qt platform plugins that will be tried, such as "xcb", by the environment; empty without a display."""
    wanted = environ.get("QT_QPA_PLATFORM", "")
    if wanted:
        return [name.split(":")[0] for name in wanted.split(";")]
    found = []
    if environ.get("WAYLAND_DISPLAY"):
        found.append("wayland")
    if environ.get("DISPLAY"):
        found.append("xcb")
    return found


def has_display(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a window can be shown at all. Only Linux can be without a display."""
    return not platform.startswith("linux") or bool(platforms(environ))


def _loads(soname: str) -> bool:
    """In a packaged program its own libraries count too: the loader was given their folder when it started."""
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def missing(plugins: list[str], loads: Callable[[str], bool] = _loads) -> list[Library]:
    """The libraries that cannot be loaded, of those that Qt and every one of ``plugins`` need.

    With both Wayland and X11 at hand one of the two is enough, so the shorter list of gaps counts.
    """
    core = [library for library in CORE if not loads(library.soname)]
    gaps = [
        [library for library in needed if not loads(library.soname)]
        for name, needed in (("xcb", XCB), ("wayland", WAYLAND))
        if any(plugin.startswith(name) for plugin in plugins)
    ]
    return core + (min(gaps, key=len) if gaps else [])


def sentence(libraries: list[Library]) -> str:
    """What is missing and the command that brings it; empty when nothing is missing."""
    if not libraries:
        return ""
    names = ", ".join(library.soname for library in libraries)
    packages = " ".join(dict.fromkeys(library.package for library in libraries))
    return (
        f"The window needs system libraries that are not installed: {names}.\n"
        f"On Debian or Ubuntu run: sudo apt-get install {packages}\n"
        "On another system install the packages that bring these files. "
        "`kvasir chat` and `kvasir serve` work without them."
    )


def tell(text: str) -> None:
    """On standard error; and, as who starts a program from a menu sees nothing of that, by what shows messages here."""
    sys.stderr.write(text + "\n")
    if sys.stderr.isatty():
        return
    for command in (
        ["zenity", "--error", "--no-markup", "--text", text],
        ["kdialog", "--error", text],
        ["xmessage", "-center", text],
        ["notify-send", "Kvasir", text],
    ):
        if shutil.which(command[0]):
            subprocess.run(command, check=False)
            return


def own_libraries_for_nobody_else(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let programs that this one starts find the system's libraries again, where a packaged program put its own first.

    This process is not changed by it: its loader read the variable when it started. A file manager would break on
    libraries of another version, and a GPU pack's engine has its own.
    """
    if not getattr(sys, "frozen", False):
        return
    for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
        original = environ.pop(name + "_ORIG", None)
        environ.pop(name, None)
        if original:
            environ[name] = original


def main() -> int:
    """Print what is missing; the exit status is 1 then."""
    if not sys.platform.startswith("linux"):
        return 0
    text = sentence(missing(platforms(os.environ)))
    if text:
        sys.stderr.write(text + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
