"""Check of the system libraries that the window needs and that are missing; run as ``python -m app.preflight``.

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

from app.language import tr


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
    """True if a window can be shown at all. Only Linux can be without a display."""
    return not platform.startswith("linux") or bool(platforms(environ))


def _loads(soname: str) -> bool:
    """True if a library can be loaded. A packaged program's own count too: the loader knows their folder."""
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def missing(plugins: list[str], loads: Callable[[str], bool] = _loads) -> list[SystemLibrary]:
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


def sentence(libraries: list[SystemLibrary]) -> str:
    """Sentence on the missing libraries and the command that installs them; empty when nothing is missing."""
    if not libraries:
        return ""
    names = ", ".join(library.soname for library in libraries)
    packages = " ".join(dict.fromkeys(library.package for library in libraries))
    return tr(
        "The window needs system libraries that are not installed: {names}.\n"
        "On Debian or Ubuntu run: sudo apt-get install {packages}\n"
        "On another system install the packages that bring these files. "
        "`kvasir chat` and `kvasir serve` work without them.",
        names=names,
        packages=packages,
    )


def tell(text: str) -> None:
    """Write it to standard error and, where that is no terminal, show it with a program for messages."""
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
