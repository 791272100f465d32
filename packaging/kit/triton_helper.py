"""Compile Triton's helpers for NVIDIA GPUs, so that the installed program needs no C compiler on the user's machine.

    python -m kit.triton_helper FOLDER [TRITON | --fetch PLACE --constraints FILE]

writes FOLDER/triton-VERSION-cpXY-MACHINE with the module that talks to the driver (Triton's own driver.c), a launcher
for kernels of any signature (triton_launcher.c) and the manifest by which engine/packs/helper.py knows whether they
fit. FOLDER is engine/packs/prebuilt of the program. TRITON is the folder of an unpacked Triton, the installed one if
left out; --fetch gets it from the index. Needs gcc and the headers of the running Python, which must be of the version
that the program brings; no GPU.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from engine.packs.helper import SOURCES, machine, source_hash

LAUNCHER = Path(__file__).with_name("triton_launcher.c")
NEEDED = re.compile(
    r"triton/__init__\.py|triton/backends/nvidia/(driver\.(c|py)|include/.*\.(h|hpp))|triton-[^/]*/.*LICENSE.*"
)
FLAGS = ["-O3", "-shared", "-fPIC", "-Wno-psabi", "-Wl,--build-id=none", "-Wl,--no-as-needed", "-s"]


def build(out: Path, triton: Path | None = None, compiler: str = "gcc") -> Path:
    """The folder made. The same input gives the same bytes. Raises OSError, subprocess.CalledProcessError."""
    triton = triton or _installed()
    version = _version(triton)
    backend = triton / "backends" / "nvidia"
    note = {"triton": version, **machine(), **{name: source_hash((backend / name).read_bytes()) for name in SOURCES}}
    tag = f"cp{note['python'].replace('.', '')}"
    folder = out / f"triton-{version}-{tag}-{note['machine'].replace(' ', '-')}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    include = [f"-I{backend / 'include'}", f"-I{sysconfig.get_path('include')}"]
    with tempfile.TemporaryDirectory() as work:
        # Compiled where they lie, by bare names: what __FILE__ says goes into the binary.
        place = Path(work)
        shutil.copyfile(backend / "driver.c", place / "cuda_utils.c")
        shutil.copyfile(LAUNCHER, place / "launcher.c")
        _stub(place, compiler)
        for name, libraries in (("cuda_utils", ["-L.", "-l:libcuda.so.1"]), ("launcher", ["-ldl"])):
            command = [compiler, f"{name}.c", *FLAGS, "-o", f"{name}.so", *libraries, *include]
            subprocess.run(command, cwd=place, check=True)
            # Compressed they are no libraries to whoever looks for what the program's libraries need.
            (folder / f"{name}.so.gz").write_bytes(gzip.compress((place / f"{name}.so").read_bytes(), mtime=0))
    if licence := _licence(triton, version):
        shutil.copyfile(licence, folder / "LICENSE")
    (folder / "manifest.json").write_text(json.dumps(note, indent=1, sort_keys=True) + "\n", "utf-8")
    return folder


def fetch(place: Path, constraints: Path) -> Path:
    """What is needed of the Triton that ``constraints`` name, by pip; its folder below ``place``."""
    with tempfile.TemporaryDirectory() as work:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--constraint", str(constraints), "--dest", work, "triton"], check=True)
        (wheel,) = Path(work).glob("triton-*.whl")
        shutil.rmtree(place, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place, [name for name in archive.namelist() if NEEDED.fullmatch(name)])
    return place / "triton"


def _licence(triton: Path, version: str) -> Path | None:
    return next((triton.parent / f"triton-{version}.dist-info").glob("**/LICENSE*"), None)


def _stub(place: Path, compiler: str) -> None:
    """A driver to link with, for the real one comes with the user's GPU: every function that driver.c names."""
    names = sorted(set(re.findall(r"\bcu[A-Z]\w+(?=\()", (place / "cuda_utils.c").read_text())))
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
    words.add_argument("--fetch", type=Path, help="unpack Triton here by pip, where it is not yet")
    words.add_argument("--constraints", type=Path, help="with --fetch: the file that says which version")
    chosen = words.parse_args()
    triton = chosen.triton
    if chosen.fetch is not None:
        triton = chosen.fetch / hashlib.sha256(chosen.constraints.read_bytes()).hexdigest()[:16] / "triton"
        if not (triton / "__init__.py").is_file():
            fetch(triton.parent, chosen.constraints)
    print(build(chosen.folder, triton))


if __name__ == "__main__":
    main()
