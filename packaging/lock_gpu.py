"""Make the lists of GPU packs: ``python packaging/lock_gpu.py [cuda13] [cuda12] [rocm]``.

Each list names every wheel of one pack by its address, sha256 and size, for one minor version of Python on Linux
x86_64. uv resolves against the public index alone; sizes and hashes are the index's own. Needs ``uv`` and the package
``packaging`` (both in the development environment) and a network that reaches the indexes.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "engine" / "services" / "packs" / "lists"
PYPI = "https://pypi.org/simple"
WINDOW_ONLY = {
    *("pyside6-essentials", "markdown-it-py", "pygments", "ziamath"),
    *("beautifulsoup4", "markdownify", "mammoth", "pypdfium2", "charset-normalizer"),
}
"""What the window needs and the engine does not."""
C_COMPILER = "ziglang==0.17.1"
"""In every pack: Triton compiles its helpers with it (native/triton_compiler.py). For each of its versions the
tests of that module have to pass with each Triton that a pack has (`make test-tritons`)."""
PYTHON = (3, 11)
NEWEST_GLIBC = 28
"""Minor version: torch's own wheels ask for it, and every system that Kvasir runs on has it."""


class Wheel(NamedTuple):
    """One file. ``bytes`` of the download; ``unpacked`` 0: its address was not reached."""

    name: str
    version: str
    url: str
    sha256: str
    bytes: int
    unpacked: int = 0


@dataclass(frozen=True)
class Recipe:
    """One pack. ``requires``: beside what the engine needs. ``wheels``: taken as they are, without asking an index."""

    device: str
    header: dict[str, str]
    requires: tuple[str, ...]
    index: str = ""
    wheels: tuple[Wheel, ...] = ()


RECIPES = {
    # Driver: https://docs.nvidia.com/deploy/cuda-compatibility (minor version compatibility). Capabilities: what
    # PyTorch's builds hold machine code for, https://github.com/pytorch/pytorch/issues/172352; the CUDA 13 one has PTX
    # for what comes after 12.0.
    "cuda13": Recipe(
        "NVIDIA GPUs from Turing (GeForce 16 and 20) on, with a driver from 580 on",
        {"driver": "580", "capability": "7.5"},
        ("torch==2.13.0",),
    ),
    # No index of PyTorch's was reached when this was made. The hash and the size of its wheel stand, alike, in lock
    # files of two projects that know nothing of each other; what it requires was read from logs of its installation.
    "cuda12": Recipe(
        "NVIDIA GPUs from Turing (GeForce 16 and 20) to Blackwell, with a driver from 525 on",
        {"driver": "525", "capability": "7.5", "capability-below": "13.0"},
        (
            "cuda-toolkit[cublas,cudart,cufft,cufile,cupti,curand,cusolver,cusparse,nvjitlink,nvrtc,nvtx]==12.8.1",
            "cuda-bindings>=12.9.4,<13",
            "nvidia-cudnn-cu12==9.19.0.56",
            "nvidia-cusparselt-cu12==0.7.1",
            "nvidia-nccl-cu12==2.28.9",
            "nvidia-nvshmem-cu12==3.4.5",
            "triton==3.6.0",
            "filelock",
            "fsspec>=0.8.5",
            "networkx>=2.5.1",
            "setuptools<82",
            "sympy>=1.13.3",
            "typing-extensions>=4.10.0",
        ),
        wheels=(
            Wheel(
                "torch",
                "2.11.0+cu128",
                "https://download.pytorch.org/whl/cu128/torch-2.11.0%2Bcu128-cp311-cp311-manylinux_2_28_x86_64.whl",
                "c9a7ca4c74fae10a58e6175b4b2cea953f9322bb6562bbf339ad6a05f52190ad",
                820214272,
            ),
        ),
    ),
    "rocm": Recipe(
        # The list is not there: no index of PyTorch's was reached, and its hash stood in no two lock files. Where the
        # index is reached this makes it; compare the targets with torch.cuda.get_arch_list() of what it names.
        "AMD GPUs that ROCm 7.2 serves",
        {
            "targets": "gfx908 gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1102 gfx1150 gfx1151 gfx1200 gfx1201",
        },
        ("torch==2.13.0+rocm7.2",),
        index="https://download.pytorch.org/whl/rocm7.2",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*RECIPES, []], help="all of them if left out")
    for kind in parser.parse_args().kinds or RECIPES:
        wheels = measured([*resolved(RECIPES[kind]), *RECIPES[kind].wheels])
        text = written(kind, RECIPES[kind], sorted(wheels))
        (LISTS / f"{kind}.txt").write_text(text, encoding="utf-8")
        print(f"{kind}: {len(wheels)} wheels, {sum(wheel.bytes for wheel in wheels) / 1e9:.2f} GB to fetch")


def resolved(recipe: Recipe) -> list[Wheel]:
    """What uv chooses, one wheel for each distribution."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, limits, lock = (Path(folder) / name for name in ("in.txt", "constraints.txt", "pylock.toml"))
        wanted.write_text("\n".join([*engine_requires(), C_COMPILER, *recipe.requires]) + "\n")
        limits.write_text("\n".join(tested_versions()) + "\n")
        command = ["uv", "pip", "compile", "--no-config", "--no-cache", "--quiet", "--format", "pylock.toml"]
        command += ["--python-version", ".".join(map(str, PYTHON)), "--python-platform", "x86_64-manylinux_2_28"]
        command += ["--only-binary", ":all:", "--generate-hashes", "--default-index", PYPI]
        command += ["--index", recipe.index, "--index-strategy", "unsafe-best-match"] if recipe.index else []
        command += ["--constraint", str(limits), "--output-file", str(lock), str(wanted)]
        # Settings of this machine's must not choose the wheels.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
        subprocess.run(command, check=True, env=environment)
        packages = tomllib.loads(lock.read_text("utf-8"))["packages"]
    return [best(package["name"], package["version"], package["wheels"]) for package in packages]


def engine_requires() -> list[str]:
    """The dependencies of pyproject.toml that the engine has a use for."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        all_of_them = tomllib.load(file)["project"]["dependencies"]
    return [line for line in all_of_them if name_of(line) not in WINDOW_ONLY and name_of(line) != "torch"]


def tested_versions() -> list[str]:
    """The versions that the tests run with, but for torch and what belongs to it."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in lines if "==" in line and "#" not in line and name_of(line) not in ("torch", "triton")]


def name_of(requirement: str) -> str:
    end = next((at for at, letter in enumerate(requirement) if letter in "<>=!~;[ "), len(requirement))
    return canonicalize_name(requirement[:end])


def best(name: str, version: str, wheels: Iterable[dict]) -> Wheel:
    """The wheel that an installer takes. Raises SystemExit where none fits."""
    ranks = {tag: rank for rank, tag in enumerate(tags())}
    fitting = []
    for wheel in wheels:
        filename = unquote(urlsplit(wheel["url"]).path.rsplit("/", 1)[-1])
        rank = min((ranks[tag] for tag in parse_wheel_filename(filename)[3] if tag in ranks), default=None)
        if rank is not None:
            fitting.append((rank, filename, wheel))
    if not fitting:
        raise SystemExit(f"{name} {version} has no wheel for CPython {PYTHON[0]}.{PYTHON[1]} on Linux x86_64.")
    chosen = min(fitting, key=lambda entry: entry[:2])[2]
    size = chosen.get("size") or int(request(chosen["url"], "HEAD").headers["Content-Length"])
    return Wheel(name, version, chosen["url"], chosen["hashes"]["sha256"], size)


def tags() -> list[Tag]:
    platforms = []
    for minor in range(NEWEST_GLIBC, 4, -1):
        platforms.append(f"manylinux_2_{minor}_x86_64")
        platforms += {17: ["manylinux2014_x86_64"], 12: ["manylinux2010_x86_64"], 5: ["manylinux1_x86_64"]}.get(
            minor, []
        )
    platforms.append("linux_x86_64")
    short = f"cp{PYTHON[0]}{PYTHON[1]}"
    return [*cpython_tags(PYTHON, [short], platforms), *compatible_tags(PYTHON, short, platforms)]


def measured(wheels: list[Wheel]) -> list[Wheel]:
    """With what each takes unpacked, read from the directory at its end."""
    return [wheel._replace(unpacked=unpacked(wheel)) for wheel in wheels]


def unpacked(wheel: Wheel) -> int:
    try:
        with zipfile.ZipFile(io.BufferedReader(Remote(wheel), 1 << 16)) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:  # zipfile says so too where nothing could be read
        print(f"{wheel.name}: {error}; what it takes on the disk is estimated", file=sys.stderr)
        return 0


class Remote(io.RawIOBase):
    """A file at an address, read in ranges."""

    def __init__(self, wheel: Wheel) -> None:
        self.wheel, self.at = wheel, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + (0, self.at, self.wheel.bytes)[whence]
        return self.at

    def readinto(self, buffer: memoryview) -> int:
        last = min(self.at + len(buffer), self.wheel.bytes) - 1
        if last < self.at:
            return 0
        data = request(self.wheel.url, "GET", {"Range": f"bytes={self.at}-{last}"}).read()
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


def request(url: str, method: str, headers: dict[str, str] | None = None):
    asked = urllib.request.Request(url, method=method, headers=headers or {})
    return urllib.request.urlopen(asked, timeout=60)


def written(kind: str, recipe: Recipe, wheels: list[Wheel]) -> str:
    known = [wheel for wheel in wheels if wheel.unpacked]
    # Of a wheel whose directory was not read: unpacked as the large ones that were.
    ratio = max((wheel.unpacked / wheel.bytes for wheel in known if wheel.bytes > 1e8), default=3.0)
    estimated = [wheel for wheel in wheels if not wheel.unpacked]
    disk = sum(wheel.unpacked for wheel in known) + int(ratio * sum(wheel.bytes for wheel in estimated))
    header = {
        "kind": kind,
        "device": recipe.device,
        "python": ".".join(map(str, PYTHON)),
        "platform": "linux x86_64",
        "download": f"{sum(wheel.bytes for wheel in wheels)} bytes",
        "installed": f"{disk} bytes" + (f" ({', '.join(w.name for w in estimated)} estimated)" if estimated else ""),
        **recipe.header,
    }
    lines = [f"# {name}: {value}" for name, value in header.items()]
    lines.append("# Made by packaging/lock_gpu.py; not edited by hand.")
    lines += [f"{wheel.name} @ {wheel.url} --hash=sha256:{wheel.sha256}  # {wheel.bytes} bytes" for wheel in wheels]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
