"""The C compiler of Triton, which compiles a module that talks to the driver on the user's machine, and before
version 3.7 a launcher for each signature of a kernel.

GPU packs bring zig (the package ziglang), a whole C compiler with the C library's headers, for few machines have one.
Where it is installed it is taken, unless the variable CC names another; elsewhere Triton looks for one itself.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

GLIBC = "2.28"
"""The C library that modules are made for: PyTorch asks for no older one."""


@functools.cache
def zig() -> Path | None:
    """The compiler of the package ziglang, where it is installed with this Python."""
    spec = importlib.util.find_spec("ziglang") if sys.platform == "linux" else None
    for folder in (spec and spec.submodule_search_locations) or ():
        if (program := Path(folder) / "zig").is_file():
            return program
    return None


def c_compiler() -> str | None:
    """The C compiler that Triton's helpers are compiled with, where one is found."""
    return os.environ.get("CC") or (str(zig()) if zig() else None) or system_compiler()


def system_compiler() -> str | None:
    """The first of the compilers that systems have."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "cl"))), None)


def unavailable() -> str | None:
    """Reason Triton's helpers cannot be had; None where they can."""
    if c_compiler() is not None or sys.platform == "win32":
        return None
    return "Triton finds no C compiler (install the package gcc or build-essential)"


def install() -> None:
    """Let Triton compile with zig, where that is what is taken. Before the first kernel."""
    from triton import knobs

    if knobs.build.impl is None and zig() and not os.environ.get("CC"):
        knobs.build.impl = build


def build(
    name: str, src: str, srcdir: str, library_dirs: list[str], include_dirs: list[str], libraries: list[str]
) -> str:
    """Triton's ``knobs.build.impl``: the path of the module ``name`` made of the file ``src``, as Triton makes it.

    Raises OSError, subprocess.CalledProcessError.
    """
    from triton import knobs

    module = str(Path(srcdir) / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
    # A named target, so that neither headers and libraries of this system nor its processor make a difference.
    command = [str(zig()), "cc", "-target", f"{platform.machine()}-linux-gnu.{GLIBC}", "-w", "-O3", "-shared", "-fPIC"]
    command += [src, "-o", module]
    command += [f"-l:{each}" if re.search(r"\.so(\.\d+)*$|\.a$", each) else f"-l{each}" for each in libraries]
    command += [f"-L{folder}" for folder in library_dirs]
    command += [f"-I{folder}" for folder in (*include_dirs, srcdir, sysconfig.get_path("include"))]
    # What zig makes of the C library for every module lies with what else Triton compiles, and goes with it.
    cache = str(Path(knobs.cache.dir) / "zig")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return module
