"""The .deb: installed, removed, replaced by a later version."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from smoke.roots import Roots, run
from smoke.sandbox import Sandbox

PACKAGE = "kvasir"


def field(deb: Path, name: str) -> str:
    """Of the package's control file, such as Version."""
    return subprocess.run(["dpkg-deb", "-f", str(deb), name], capture_output=True, text=True, check=True).stdout.strip()


def installed(root: Path) -> dict[str, str]:
    """Packages of the system in ``root`` and their versions."""
    status = (root / "var/lib/dpkg/status").read_text()
    found = {}
    for paragraph in status.split("\n\n"):
        values = dict(re.findall(r"^(Package|Version|Status): (.*)$", paragraph, re.MULTILINE))
        if values.get("Status", "").endswith(" installed"):
            found[values["Package"]] = values["Version"]
    return found


def to_be_installed(simulation: str) -> list[str]:
    """Packages that ``apt-get install --simulate`` would bring."""
    return sorted(set(re.findall(r"^Inst (\S+)", simulation, re.MULTILINE)))


@contextlib.contextmanager
def brought_in(sandbox: Sandbox, deb: Path) -> Iterator[str]:
    """The package in the system's /tmp; its path there."""
    inside = sandbox.root / "tmp" / deb.name
    shutil.copyfile(deb, inside)
    try:
        yield f"/tmp/{deb.name}"
    finally:
        inside.unlink()


def install_dependencies(roots: Roots, sandbox: Sandbox, suite: str, deb: Path) -> list[str]:
    """What apt says that the package needs, without the package: the system is compared with this after a removal.

    Raises RuntimeError with what apt said.
    """
    with brought_in(sandbox, deb) as path:
        done = roots.apt(sandbox, suite, ["install", "--simulate", "--no-install-recommends", path])
    names = [name for name in to_be_installed(done.out) if name != PACKAGE]
    roots.apt(sandbox, suite, ["install", "--no-install-recommends", *names])
    return names


def install(roots: Roots, sandbox: Sandbox, suite: str, deb: Path) -> list[str]:
    """With apt and no recommendations; which packages came. Raises RuntimeError with what apt said."""
    before = installed(sandbox.root)
    with brought_in(sandbox, deb) as path:
        roots.apt(sandbox, suite, ["install", "--no-install-recommends", path])
    return sorted(installed(sandbox.root).keys() - before.keys())


def shipped(root: Path) -> set[str]:
    """Every file and folder that the installed package has."""
    return set((root / f"var/lib/dpkg/info/{PACKAGE}.list").read_text().splitlines())


def uninstall(roots: Roots, sandbox: Sandbox, suite: str) -> None:
    """Removed and purged, as two steps. Raises RuntimeError."""
    roots.apt(sandbox, suite, ["remove", PACKAGE])
    done = sandbox.run(["dpkg", "--purge", PACKAGE], as_root=True, timeout=300.0)
    if done.code:
        raise RuntimeError(f"dpkg --purge: exit code {done.code}\n{done.text}")


@contextlib.contextmanager
def later_version(deb: Path, folder: Path) -> Iterator[Path]:
    """The same package with a higher version number, packed quickly."""
    version = field(deb, "Version")
    later = folder / f"{PACKAGE}_later_amd64.deb"
    tree = folder / "later"
    shutil.rmtree(tree, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    run(["dpkg-deb", "-R", str(deb), str(tree)])
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {version}\n", f"Version: {version}+later1\n"))
    run(["dpkg-deb", "-Zgzip", "-z1", "-b", str(tree), str(later)])
    shutil.rmtree(tree)
    try:
        yield later
    finally:
        later.unlink()
