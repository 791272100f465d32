"""Which of the build machine's own libraries go into a package. No others do, whatever the machine happens to have.

PyInstaller collects all that a library may load, also for the plugins that are left out afterwards. What belongs to the
system that draws the window comes from that system: an older copy of ours would be loaded in place of the one that its
drivers were built with. Packages depend on it (sonames.py), and app/preflight.py names what is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

TAKEN = (
    # Of CPython's extension modules: another system has other versions of these, or none.
    "libpython3", "libssl.", "libcrypto.", "libffi.", "libbz2.", "liblzma.", "libsqlite3.", "libgdbm.", "libcrypt.",
    "libmpdec.", "libncursesw.", "libpanelw.", "libtinfo.", "libuuid.",
    # Of Qt's plugin for X11: small, without a state of their own, and on no desktop from the start.
    "libxcb-cursor.", "libxcb-icccm.", "libxcb-image.", "libxcb-keysyms.", "libxcb-render-util.", "libxcb-util.",
    "libxkbcommon.", "libxkbcommon-x11.",
)  # fmt: skip
"""How their names begin."""


def own_folders(*build: Path) -> tuple[Path, ...]:
    """Where the program's own files come from: its sources, its environment, and its Python's modules."""
    modules = Path(sys.base_prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return (*build, Path(sys.prefix), modules)


def left_to_the_system(source: str, own: Collection[Path]) -> bool:
    """Whether a file that was collected from ``source`` is the machine's and not to be taken. Only Linux has such."""
    path = Path(source)
    if not sys.platform.startswith("linux") or not path.is_absolute():  # a link within the package
        return False
    return not any(path.is_relative_to(folder) for folder in own) and not path.name.startswith(TAKEN)
