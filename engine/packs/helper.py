"""Triton's helpers without a C compiler: the module that talks to the driver, and the launcher of kernels.

Triton compiles them on the user's machine, the launcher once for each signature; since 3.7 the first module launches
kernels itself and there is no other. The packaged program brings them prebuilt (packaging/kit/triton_helper.py): one
folder below engine/packs/prebuilt for each Triton that a GPU pack brings, with a manifest. They serve only the Triton
whose sources have the very hashes that they were made from.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PREBUILT = Path(__file__).with_name("prebuilt")
SOURCES = ("driver.c", "driver.py")
"""Of triton/backends/nvidia: what the prebuilt files stand for is in there."""
MARK = b"KVASIR-TRITON-SIGNATURE:"
MOST_ARGUMENTS = 256
_INTEGERS = {"int8_t": "b", "int16_t": "h", "int32_t": "i", "int64_t": "l"}
_FLOATS = {"fp16": "e", "bf16": "g", "fp32": "f", "fp64": "d"}
_TYPES = {"p": "*i8", "c": "constexpr", "b": "i8", "h": "i16", "i": "i32", "l": "i64"}
_TYPES |= {letter: kind for kind, letter in _FLOATS.items()}


class Prebuilt(NamedTuple):
    """The files that fit the Triton of this process, compressed. ``launcher`` None: this Triton compiles none."""

    triton: str
    utils: Path
    launcher: Path | None


def c_compiler() -> str | None:
    """The C compiler that Triton builds its helpers with, where one is found."""
    return os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "cl"))), None)


def unavailable(amd: bool = False) -> str | None:
    """Why Triton's helpers cannot be had; None where they can. For AMD's GPUs none are prebuilt."""
    if c_compiler() is not None or sys.platform == "win32":
        return None
    found = "the prebuilt helper is for NVIDIA GPUs" if amd else prebuilt()
    if isinstance(found, Prebuilt):
        return None
    return f"Triton finds no C compiler (install the package gcc or build-essential), and {found}"


def state(amd: bool = False) -> str:
    """Where Triton's helpers come from, or why there are none: for people."""
    found = "" if amd else prebuilt()
    if (compiler := c_compiler()) is not None:
        spare = f"; Triton {found.triton}'s are prebuilt where it fails" if isinstance(found, Prebuilt) else ""
        return f"compiled by {compiler}{spare}"
    return f"prebuilt for Triton {found.triton}" if isinstance(found, Prebuilt) else f"none: {unavailable(amd)}"


def install() -> None:
    """Let Triton take the prebuilt files where its compiler is missing or fails. Once, before the first kernel."""
    from triton import knobs

    if knobs.build.impl is None and isinstance(prebuilt(), Prebuilt):
        knobs.build.impl = build


@functools.cache
def prebuilt(folder: Path = PREBUILT) -> Prebuilt | str:
    """The files that fit this Triton, or why there are none, as the end of a sentence."""
    backend = _nvidia_backend()
    if backend is None:
        return "Triton is not installed"
    try:
        ours = {name: source_hash((backend / name).read_bytes()) for name in SOURCES} | machine()
    except OSError:
        return "this Triton has no files for NVIDIA GPUs"
    made_for = []
    for manifest in sorted(folder.glob("*/manifest.json")):
        note = json.loads(manifest.read_text("utf-8"))
        if all(note.get(name) == value for name, value in ours.items()):
            launcher = manifest.with_name("launcher.so.gz") if note["launcher"] else None
            return Prebuilt(note["triton"], manifest.with_name("cuda_utils.so.gz"), launcher)
        made_for.append(f"Triton {note.get('triton')} on Python {note.get('python')}, {note.get('machine')}")
    if not made_for:
        return "no prebuilt helper came with this installation"
    return f"the prebuilt helper is for {' and '.join(made_for)}"


def machine() -> dict[str, str]:
    """What compiled modules must have been made for."""
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "machine": f"{sys.platform} {platform.machine()}",
    }


def source_hash(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def build(
    name: str, src: str, srcdir: str, library_dirs: list[str], include_dirs: list[str], libraries: list[str]
) -> str:
    """Triton's ``knobs.build.impl``: the path of the module ``name`` made of the file ``src``. Raises RuntimeError."""
    why = "there is no C compiler"
    if c_compiler() is not None:
        try:
            return _compile(name, src, srcdir, library_dirs, include_dirs, libraries)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            why = f"the C compiler fails ({error})"
    found = prebuilt()
    if isinstance(found, str):
        raise RuntimeError(f"{why}, and {found}")
    module = None
    if name == "cuda_utils":
        module = gzip.decompress(found.utils.read_bytes())
    elif name == "__triton_launcher" and found.launcher is not None:
        letters = signature_of(Path(src).read_text())
        module = None if letters is None else signed(gzip.decompress(found.launcher.read_bytes()), letters)
    if module is None:
        raise RuntimeError(f"{why}, and no prebuilt helper serves {name} with these arguments")
    copy = Path(srcdir) / "prebuilt.so"
    copy.write_bytes(module)
    return str(copy)


def signature_of(source: str) -> str | None:
    """A letter for each argument of the kernel that a launcher's source is for; None where one is of no known type.

    The launcher that Triton would write for what was found is compared with the source, so that nothing is guessed.
    Only for a Triton that writes launchers.
    """
    from triton.backends.nvidia.driver import make_launcher

    declared = re.findall(r"(?:^|\s)(PyObject\*|double|u?int\d+_t) _arg(\d+);", source)
    if [int(place) for _, place in declared] != list(range(len(declared))) or len(declared) > MOST_ARGUMENTS:
        return None
    letters, types = "", []
    for kind, place in declared:
        letter, type = _argument(kind, place, source)
        letters += letter
        types.append(type)
    return letters if make_launcher({}, dict(enumerate(types)), None) == source else None


def signed(launcher: bytes, letters: str) -> bytes:
    """The prebuilt launcher for one signature. Raises RuntimeError where it has no single place for it."""
    place = MARK + bytes(MOST_ARGUMENTS)
    if launcher.count(place) != 1:
        raise RuntimeError("the prebuilt launcher is damaged; install Kvasir again")
    return launcher.replace(place, MARK + letters.encode("ascii").ljust(MOST_ARGUMENTS, b"\0"))


def _argument(kind: str, place: str, source: str) -> tuple[str, str]:
    """Its letter, and a type for which Triton writes the same."""
    if kind == "PyObject*":
        letter = "p" if f"getPointer(_arg{place}," in source else "c"
    elif kind == "double":
        packed = re.search(rf"\b_arg{place}_storage = pack_(\w+)\(", source)
        letter = _FLOATS[packed[1]] if packed and packed[1] in _FLOATS else "c"
    elif kind.startswith("u"):
        return "u", f"u{kind.removeprefix('uint').removesuffix('_t')}"
    else:
        letter = _INTEGERS[kind]
    return letter, _TYPES[letter]


def _compile(
    name: str, src: str, srcdir: str, library_dirs: list[str], include_dirs: list[str], libraries: list[str]
) -> str:
    """What Triton does without the hook."""
    from triton import knobs
    from triton.runtime.build import _build

    with knobs.build.scope():
        knobs.build.impl = None
        return str(_build(name, src, srcdir, library_dirs, include_dirs, libraries, []))


def _nvidia_backend() -> Path | None:
    """Found without importing Triton, which takes longer than a look at its files."""
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "backends" / "nvidia"
