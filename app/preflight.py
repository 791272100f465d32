"""Check of the system libraries that the window needs and that are missing; run as ``python -m app.preflight``.

Pure Python without Qt: it must work exactly when importing Qt does not.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, MutableMapping

from app.language import tr
from app.system_libraries import CORE, WAYLAND, XCB, SystemLibrary


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
