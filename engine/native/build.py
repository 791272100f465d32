"""Compile the native code beside its source: ``python -m engine.native.build``.

It needs a C compiler that understands GNU C and OpenMP (gcc, or clang with libomp) and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCES = sorted(FOLDER.glob("*.c"))
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
LIBRARY = FOLDER / f"kvasir_native{SUFFIX}"
FLAGS = ("-std=gnu11", "-O3", "-fopenmp", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")


def source_hash() -> str:
    """What a library says that was built from the source as it is now."""
    texts = (path.read_bytes() for path in (*SOURCES, *sorted(FOLDER.glob("*.h"))))
    return hashlib.sha256(b"".join(texts)).hexdigest()[:16]


def compile_library(library: Path = LIBRARY) -> str | None:
    """Compile to ``library``, whole or not at all. None when it worked, else one sentence that says why not."""
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return "there is no C compiler (install the package gcc)"
    temporary = library.with_suffix(f".{os.getpid()}.part")
    command = [*compiler.split(), *FLAGS]
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
    """Build it. Nobody depends on it, so that a failure is told and is not an error."""
    reason = compile_library()
    if reason:
        sys.stdout.write(f"Kvasir's native kernels were not built: {reason}. It runs without them, slower.\n")
    else:
        sys.stdout.write(f"built {LIBRARY}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
