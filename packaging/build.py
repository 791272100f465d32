"""Make what people download, from a checkout: ``make package``. See README.md."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kit import checks, freeze, layout, python_tree
from kit.layout import DIST, PROGRAM

sys.path.append(str(layout.ROOT))  # the kernels' part reads the engine's lists of GPU packs

FIXED = {"PYTHONHASHSEED": "1"}
"""Sets of constants are written into bytecode in the order of their hashes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="pack with little effort and no compiled kernels: for trials"
    )
    parser.add_argument("--without-kernels", action="store_true", help="compile no kernels for GPUs: a first load does")
    parser.add_argument("--folder-only", action="store_true", help="make the program's folder and no packages")
    parser.add_argument("--compare", type=Path, metavar="OTHER", help="only say what differs from another such folder")
    arguments = parser.parse_args()
    if arguments.compare:
        return compare(arguments.compare)
    if not inside_environment():
        step("environment", freeze.make_environment)
        # Drawing icons and listing licences need what the program is made of.
        command = [str(layout.venv_program("python")), *sys.argv]
        return subprocess.run(command, env={**os.environ, **FIXED}, check=False).returncode
    epoch, version = layout.epoch(), layout.version()
    make_folder(epoch, kernels=not (arguments.quick or arguments.without_kernels))
    if not arguments.folder_only and sys.platform.startswith("linux"):
        make_packages(version, epoch, quick=arguments.quick)
    return 0


def compare(other: Path) -> int:
    """Print what differs between the finished folder and another one; 1 when anything does."""
    from kit.compare import differences

    lines = differences(PROGRAM, other)
    print("\n".join(lines) or f"{PROGRAM} and {other} are the same.")
    return int(bool(lines))


def inside_environment() -> bool:
    """Whether this is the build environment's interpreter, started as builds that are alike need it."""
    return Path(sys.prefix) == layout.VENV and os.environ.items() >= FIXED.items()


def make_folder(epoch: int, kernels: bool = True) -> None:
    """The folder that every package holds: ``layout.PROGRAM``; with compiled ``kernels`` for GPUs, or without."""
    from kit import gpu_kernels, licences, share

    step("sources", freeze.stage_sources)
    step("programs", lambda: freeze.freeze(epoch, program_icon()))
    step("libraries", freeze.forget_prefix)
    step("bytecode", freeze.compile_sources)
    if sys.platform != "darwin":  # they make GPU packs, which no Mac has
        step("interpreter", python_tree.make_python)
        step("uv", python_tree.add_uv)
    if kernels and sys.platform.startswith("linux"):  # the lists of GPU packs are for Linux
        step("kernels", gpu_kernels.add)
    step("menu entry, icons, manual", lambda: share.write(PROGRAM))
    step("licences", lambda: licences.collect(PROGRAM, layout.venv_program("python")))
    step("checks", check)


def program_icon() -> Path | None:
    """The icon that Windows and macOS look for in a program's own file; on Linux menus have it."""
    if sys.platform.startswith("linux"):
        return None
    from kit import ico, icons

    kind, data = (".ico", ico.ico(icons.SOURCE)) if layout.WINDOWS else (".icns", ico.icns(icons.SOURCE))
    place = layout.BUILD / f"kvasir{kind}"
    place.write_bytes(data)
    return place


def make_packages(version: str, epoch: int, quick: bool) -> None:
    """The .deb and the portable archive in ``layout.DIST``, with their checksums."""
    from kit import archive, deb, publisher

    DIST.mkdir(exist_ok=True)
    made: list[Path] = []
    step("Debian package", lambda: made.append(deb.build(PROGRAM, DIST, version, epoch, *([1] if quick else []))))
    step("archive", lambda: made.append(archive.build(PROGRAM, DIST, version, epoch, *([3] if quick else []))))
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in made]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    for file in made:
        print(f"  {file.stat().st_size / 1e6:8.1f} MB  {file} (target {checks.COMPRESSED_LIMIT / 1e6:.0f})")
    for sentence in publisher.unset():
        print(f"  {sentence}")


def check() -> None:
    """Raises SystemExit with what is wrong."""
    scrubbed = checks.scrub()
    names = [str(file.relative_to(PROGRAM)) for file in scrubbed]
    print(f"  the build machine's folders were overwritten in {', '.join(names) or 'no file'}")
    if sys.platform == "darwin":
        checks.sign_again(scrubbed)
    wrong = [f"{file} holds {path.decode()}" for file, path in checks.traces()]
    wrong += [f"{file} has no place in a program: leave it out in kvasir.spec" for file in checks.litter()]
    if not checks.native_code():
        wrong.append("there is no library of the native code in it: see kvasir.spec, and what compiling it said")
    if sys.platform.startswith("linux"):
        wrong += [f"{file} wants glibc {version}" for file, version in checks.newer_glibc()]
    if wrong:
        raise SystemExit("\n".join(wrong))
    parts = checks.sizes()
    total = sum(size for _, size in parts)
    for name, size in parts[:20]:
        print(f"  {size / 1e6:8.1f} MB  {name}")
    print(f"  {total / 1e6:8.1f} MB in all (target {checks.INSTALLED_LIMIT / 1e6:.0f})")


def step(name: str, work: Callable[[], object]) -> None:
    began = time.monotonic()
    print(f"{name} …", flush=True)
    work()
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
