"""Compile the native code next to its source: ``python -m engine.native.build``.

It needs a C compiler that understands GNU C and OpenMP (gcc, or clang with libomp) and nothing else. On x86-64 it is
compiled twice: with that processor's instructions, and as the plain C that runs elsewhere.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCES = sorted(FOLDER.glob("*.c"))
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
LIBRARY = FOLDER / f"kvasir_native{SUFFIX}"
PLAIN = FOLDER / f"kvasir_plain{SUFFIX}" if platform.machine() in ("x86_64", "AMD64") else LIBRARY
"""The same as plain C (instructions.PORTABLE). It is no part of packages."""
FLAGS = ("-std=gnu11", "-O3", "-fopenmp", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")


def source_hash() -> str:
    """What a library says that was built from the source as it is now."""
    texts = [path.read_bytes() for path in (*SOURCES, *sorted(FOLDER.glob("*.h")))]
    return hashlib.sha256(b"".join([*texts, " ".join(FLAGS).encode()])).hexdigest()[:16]


def built_from(handle: ctypes.CDLL) -> str:
    """The hash of the source that a loaded library was built from. Raises AttributeError for some other library."""
    handle.source_hash.restype = ctypes.c_char_p
    return str(handle.source_hash().decode())


def is_current(library: Path = LIBRARY) -> bool:
    """Whether the library lies there and was built from the source as it is now."""
    try:
        return library.is_file() and built_from(ctypes.CDLL(str(library))) == source_hash()
    except (OSError, AttributeError):
        return False


def compile_library(library: Path = LIBRARY) -> str | None:
    """Compile to ``library``, whole or not at all. None when it worked, else one sentence that says why not."""
    named = os.environ.get("CC")
    # gcc first: its OpenMP is the one that torch brings along.
    compilers = [named] if named else [path for path in map(shutil.which, ("gcc", "cc", "clang")) if path]
    if not compilers:
        return "there is no C compiler (install the package gcc)"
    reasons = []
    for compiler in compilers:
        reason = _compile(compiler, library)
        if reason is None:
            return None
        reasons.append(reason)
    return reasons[0]


def _compile(compiler: str, library: Path) -> str | None:
    temporary = library.with_suffix(f".{os.getpid()}.part")
    command = [*compiler.split(), *FLAGS, *["-DPORTABLE"] * (library == PLAIN)]
    command += [f'-DSOURCE_HASH="{source_hash()}"', "-o", str(temporary), *map(str, SOURCES), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            return f"{compiler} failed: {lines[0] if lines else f'exit status {done.returncode}'}"
        temporary.replace(library)
    except OSError as error:
        return f"{compiler} could not run: {error}"
    finally:
        temporary.unlink(missing_ok=True)
    return None


def main() -> int:
    """Build what is not current; with ``--plain`` the library without vector instructions too, which tests look at.

    Nobody depends on it, so that a failure is told and is not an error.
    """
    for library in dict.fromkeys((LIBRARY, PLAIN) if "--plain" in sys.argv[1:] else (LIBRARY,)):
        if is_current(library):
            continue
        reason = compile_library(library)
        if reason:
            sys.stdout.write(f"Kvasir's native kernels were not built: {reason}. It runs without them, slower.\n")
            break
        sys.stdout.write(f"built {library}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
