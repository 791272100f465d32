"""Compile Triton's helpers for NVIDIA GPUs, so that the installed program needs no C compiler on the user's machine.

    python -m kit.triton_helper FOLDER [TRITON | --lists LISTS --fetch PLACE]

writes FOLDER/triton-VERSION-cpXY-MACHINE with the module that talks to the driver (Triton's own driver.c), for a Triton
that has kernels launched by another module one for any signature (triton_launcher.c), and the manifest by which
engine/packs/helper.py knows whether they fit. FOLDER is engine/packs/prebuilt of the program. TRITON is the folder of
an unpacked Triton, the installed one if left out; --lists makes helpers for every Triton that the lists of GPU packs
name, whose sources are fetched into PLACE unless they are there. Needs gcc and the headers of the running Python, which
must be of the version that the program brings; no GPU.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from engine.packs.helper import SOURCES, machine, source_hash
from engine.packs.lists import PackFailed
from kit import triton_wheels

LAUNCHER = Path(__file__).with_name("triton_launcher.c")
KNOWN = {"3.6.0": True, "3.7.1": False}
"""The Tritons whose way to launch kernels was looked at: whether they compile a module for each signature, which
triton_launcher.c stands for, or driver.c launches by itself."""
LAUNCHES = "__triton_launcher"
"""What driver.py calls the module for a signature."""
NEEDED = re.compile(
    r"triton/__init__\.py|triton/backends/nvidia/(driver\.(c|py)|include/.*\.(h|hpp))|triton-[^/]*/.*LICENSE.*"
)
FLAGS = ["-O3", "-shared", "-fPIC", "-Wno-psabi", "-Wl,--build-id=none", "-Wl,--no-as-needed", "-s"]


class UnknownTriton(ValueError):  # noqa: N818 - the name says what it is
    """Nobody has looked at how this Triton launches kernels; the message says what to do."""


def build(out: Path, triton: Path | None = None, compiler: str = "gcc") -> Path:
    """The folder made. The same input gives the same bytes.

    Raises :class:`UnknownTriton` for a Triton that is not in ``KNOWN``, OSError, subprocess.CalledProcessError.
    """
    triton = triton or _installed()
    version = _version(triton)
    backend = triton / "backends" / "nvidia"
    needs_launcher = _needs_launcher(version, backend)
    note = {"triton": version, "launcher": needs_launcher, **machine()}
    note |= {name: source_hash((backend / name).read_bytes()) for name in SOURCES}
    tag = f"cp{note['python'].replace('.', '')}"
    folder = out / f"triton-{version}-{tag}-{note['machine'].replace(' ', '-')}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    include = [f"-I{backend / 'include'}", f"-I{sysconfig.get_path('include')}"]
    modules = {"cuda_utils": (backend / "driver.c", ["-L.", "-l:libcuda.so.1"])}
    if needs_launcher:
        modules["launcher"] = (LAUNCHER, ["-ldl"])
    with tempfile.TemporaryDirectory() as work:
        # Compiled where they lie, by bare names: what __FILE__ says goes into the binary.
        place = Path(work)
        _stub(place, backend / "driver.c", compiler)
        for name, (source, libraries) in modules.items():
            shutil.copyfile(source, place / f"{name}.c")
            command = [compiler, f"{name}.c", *FLAGS, "-o", f"{name}.so", *libraries, *include]
            subprocess.run(command, cwd=place, check=True)
            # Compressed they are no libraries to whoever looks for what the program's libraries need.
            (folder / f"{name}.so.gz").write_bytes(gzip.compress((place / f"{name}.so").read_bytes(), mtime=0))
    if licence := _licence(triton, version):
        shutil.copyfile(licence, folder / "LICENSE")
    (folder / "manifest.json").write_text(json.dumps(note, indent=1, sort_keys=True) + "\n", "utf-8")
    return folder


def build_listed(out: Path, lists: Path, place: Path) -> list[Path]:
    """A folder for each Triton that the lists name. Raises what :func:`build` and ``triton_wheels`` do."""
    wheels = triton_wheels.listed(lists)
    for wheel in wheels:
        if wheel.version not in KNOWN:
            raise _unknown(wheel.version)  # before any is fetched
    return [build(out, triton_wheels.fetch(wheel, place, NEEDED) / "triton") for wheel in wheels]


def _needs_launcher(version: str, backend: Path) -> bool:
    if version not in KNOWN:
        raise _unknown(version)
    if KNOWN[version] != (LAUNCHES in (backend / "driver.py").read_text("utf-8")):
        raise UnknownTriton(f"{backend / 'driver.py'} does not launch kernels as that of Triton {version} does.")
    return KNOWN[version]


def _unknown(version: str) -> UnknownTriton:
    return UnknownTriton(
        f"Triton {version} is not among those whose helpers can be prebuilt ({', '.join(KNOWN)}). Compare its "
        "backends/nvidia/driver.py and driver.c with theirs, add it to KNOWN in packaging/kit/triton_helper.py and run "
        "`make test-tritons`."
    )


def _licence(triton: Path, version: str) -> Path | None:
    return next((triton.parent / f"triton-{version}.dist-info").glob("**/LICENSE*"), None)


def _stub(place: Path, source: Path, compiler: str) -> None:
    """A driver to link with, for the real one comes with the user's GPU: every function that driver.c names."""
    names = sorted(set(re.findall(r"\bcu[A-Z]\w+(?=\()", source.read_text("utf-8"))))
    (place / "stub.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in names))
    command = [compiler, "stub.c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=place, check=True)


def _installed() -> Path:
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("Triton is not installed beside this Python; name its folder.")
    return Path(next(iter(spec.submodule_search_locations)))


def _version(triton: Path) -> str:
    found = re.search(r"__version__ = ['\"]([\w.+]+)['\"]", (triton / "__init__.py").read_text("utf-8"))
    if found is None:
        raise ValueError(f"{triton} is no Triton: its __init__.py names no version.")
    return found[1]


def main() -> None:
    words = argparse.ArgumentParser(description="Compile Triton's helpers for NVIDIA GPUs.")
    words.add_argument("folder", type=Path)
    words.add_argument("triton", type=Path, nargs="?", help="the folder of an unpacked Triton")
    words.add_argument("--lists", type=Path, help="for every Triton that these lists of GPU packs name")
    words.add_argument(
        "--fetch", type=Path, help="with --lists: where the sources of those lie, once they were fetched"
    )
    chosen = words.parse_args()
    if (chosen.lists is None) != (chosen.fetch is None):
        words.error("--lists and --fetch go together")
    try:
        if chosen.lists is None:
            made = [build(chosen.folder, chosen.triton)]
        else:
            made = build_listed(chosen.folder, chosen.lists, chosen.fetch)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{error.cmd[0]} failed with exit status {error.returncode}.") from None
    except (OSError, ValueError, PackFailed) as error:
        raise SystemExit(str(error)) from None
    print("\n".join(f"  {folder.name}" for folder in made) or "  no GPU pack is made for this platform")


if __name__ == "__main__":
    main()
