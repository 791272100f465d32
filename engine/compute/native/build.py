"""Compile the native code next to its source: ``python -m engine.compute.native.build``.

It needs a C compiler that understands GNU C and has POSIX threads: gcc, or clang, which the package ziglang has.
Each set of instructions has a library of its own from the same sources: here those that this processor loads, the plain
one and its best; with ``--all`` every one that the compiler knows, as packages bring them and tests force them.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.compute.native.instructions import PORTABLE, SETS, InstructionSet
from engine.compute.native.triton_compiler import GLIBC, zig

FOLDER = Path(__file__).resolve().parent
SOURCES = sorted(FOLDER.glob("*.c"))
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
FLAGS = ("-std=gnu11", "-O3", "-pthread", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")
NO_COMPILER = "there is no C compiler (install the package gcc)"
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}


def library_file(instructions: InstructionSet) -> Path:
    """Path of the library of a set, once it is built."""
    return FOLDER / f"kvasir_native_{instructions.name}{SUFFIX}"


def source_hash(instructions: InstructionSet) -> str:
    """Hash that a library states if it was built for these instructions from the source as it is now."""
    texts = [path.read_bytes() for path in (*SOURCES, *sorted(FOLDER.glob("*.h")))]
    return hashlib.sha256(b"".join([*texts, " ".join((*FLAGS, *instructions.flags)).encode()])).hexdigest()[:16]


def opened(file: Path) -> ctypes.CDLL:
    """The library, loaded. Raises OSError, with the reason, for one that is cut short or for another processor."""
    with file.open("rb") as stream:
        head, size = stream.read(64), os.fstat(stream.fileno()).st_size
    if head.startswith(b"\x7fELF\x02\x01") and len(head) == 64:
        # The table of sections is what a library ends with. To load a part of one may kill the process (SIGBUS).
        (machine,), (table,), (width, count) = (
            struct.unpack_from(form, head, at) for form, at in (("<H", 18), ("<Q", 40), ("<HH", 58))
        )
        if table + width * count > size:
            raise OSError(f"{file.name} is cut short")
        if machine != _ELF_MACHINES.get(platform.machine(), machine):
            raise OSError(f"{file.name} is for another processor than {platform.machine()}")
    return ctypes.CDLL(str(file))


def built_from(handle: ctypes.CDLL) -> str:
    """The hash of the source that a loaded library was built from. Raises AttributeError for some other library."""
    handle.source_hash.restype = ctypes.c_char_p
    return str(handle.source_hash().decode())


def is_current(instructions: InstructionSet) -> bool:
    """Return True if the library of a set exists and was built from the source as it is now.

    It is not loaded, as this processor may not be able to run it: what it says is text among its bytes.
    """
    file = library_file(instructions)
    return file.is_file() and source_hash(instructions).encode() in file.read_bytes()


def runs_here(instructions: InstructionSet) -> bool:
    """Return True if this processor has the instructions, as the plain library tells; False if that does not load."""
    try:
        return bool(opened(library_file(SETS[PORTABLE])).can_run(instructions.name.encode()))
    except (OSError, AttributeError):
        return False


def why_not_built() -> str:
    """Reason there is no library, as a phrase, and what to do about it."""
    if not SOURCES:
        return "Kvasir's native code did not come with this installation: Kvasir's packages and its source bring it"
    if not compilers():
        return "Kvasir's native code is not built, as there is no C compiler: install gcc, then `make native`"
    return "Kvasir's native code is not built (python -m engine.compute.native.build does it)"


def compilers() -> list[list[str]]:
    """The commands to compile with: what CC names, or those that are here, the best first."""
    if named := os.environ.get("CC"):
        return [named.split()]
    found = [[path] for path in map(shutil.which, ("gcc", "cc", "clang")) if path]
    # With a named target, or it would be compiled for this very processor and C library.
    return [*found, [str(zig()), "cc", "-target", f"{platform.machine()}-linux-gnu.{GLIBC}"]] if zig() else found


def compile_library(instructions: InstructionSet, library: Path | None = None) -> str | None:
    """Compile into ``library`` (None: its own place), whole or not at all. None when it worked, else one sentence that
    says why not."""
    found = compilers()
    if not found:
        return NO_COMPILER
    reasons = []
    for compiler in found:
        reason = _compile(compiler, instructions, library or library_file(instructions))
        if reason is None:
            return None
        reasons.append(reason)
    return reasons[0]


def _compile(compiler: Sequence[str], instructions: InstructionSet, library: Path) -> str | None:
    temporary, name = library.with_suffix(f".{os.getpid()}.part"), compiler[0]
    command = [*compiler, *FLAGS, *instructions.flags, f'-DSOURCE_HASH="{source_hash(instructions)}"', f"-I{FOLDER}"]
    command += ["-o", str(temporary), *map(str, SOURCES), "-lm"]
    try:
        with tempfile.TemporaryDirectory() as cache:  # zig would keep 50 MB for good
            caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False, env=os.environ | caches
            )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            return f"{name} failed: {lines[0] if lines else f'exit status {done.returncode}'}"
        temporary.replace(library)
    except OSError as error:
        return f"{name} could not run: {error}"
    finally:
        temporary.unlink(missing_ok=True)
    return None


def build(sets: Sequence[InstructionSet]) -> dict[str, str]:
    """Compile what is not current, side by side; why not, by the names of those that failed."""
    stale = [each for each in sets if not is_current(each)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = dict(zip(stale, pool.map(compile_library, stale), strict=True))
    for instructions, reason in reasons.items():
        if reason is None:
            sys.stdout.write(f"built {library_file(instructions)}\n")
    return {instructions.name: reason for instructions, reason in reasons.items() if reason}


def main() -> int:
    """Build what is not current. Nobody depends on it, so that a failure is told and is not an error."""
    failed = build([SETS[PORTABLE]])
    if not failed:
        rest = [each for each in SETS.values() if each.name != PORTABLE]
        failed = build(rest if "--all" in sys.argv[1:] else [each for each in rest if runs_here(each)][:1])
    for name, reason in failed.items():
        slower = "It runs without them, slower" if name == PORTABLE else "Others do their work, slower"
        sys.stdout.write(f"Kvasir's native kernels ({SETS[name].title}) were not built: {reason}. {slower}.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
