"""Clean Debian systems in folders: made once by debootstrap, kept as archives, unpacked anew for every trial."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from smoke.sandbox import UID, Bind, Done, Sandbox

MIRROR = os.environ.get("KVASIR_SMOKE_MIRROR", "http://deb.debian.org/debian")
KEEP_DAYS = 14
USER = "u"
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "DEBCONF_NONINTERACTIVE_SEEN": "true"}


def proxy_settings() -> str:
    """This machine's proxies for apt, for the inside; empty without any."""
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True).stdout
    return "".join(line + "\n" for line in dump.splitlines() if re.match(r"Acquire::https?::Proxy", line))


def age_days(archive: Path) -> int:
    """By the date in its name, such as bookworm-20261122.tar."""
    made = datetime.datetime.strptime(archive.stem.rpartition("-")[2], "%Y%m%d").date()
    return (datetime.datetime.now(tz=datetime.UTC).date() - made).days


class Roots:
    """``folder`` holds the archives of clean systems, what apt downloaded for them, and the systems in use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def base(self, suite: str) -> Path:
        """The archive of a clean system of ``suite``, made if there is none of the last KEEP_DAYS days."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for archive in sorted(self._folder.glob(f"{suite}-*.tar"), reverse=True):
            if age_days(archive) <= KEEP_DAYS:
                return archive
            archive.unlink()
        today = datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%d")
        tree = self._folder / f"{suite}.new"
        remove(tree)
        run(["debootstrap", "--variant=minbase", suite, str(tree), MIRROR])
        self._prepare(tree, suite)
        archive = self._folder / f"{suite}-{today}.tar"
        part = archive.with_suffix(".part")
        run(["tar", "-C", str(tree), "--numeric-owner", "-cf", str(part), "."])
        part.rename(archive)
        remove(tree)
        return archive

    def _prepare(self, tree: Path, suite: str) -> None:
        """A user, no service that starts, apt as this machine's, quick writes."""
        (tree / "etc/apt/apt.conf.d/90proxy").write_text(proxy_settings())
        (tree / "etc/apt/sources.list").write_text(
            f"deb {MIRROR} {suite} main\ndeb {MIRROR} {suite}-updates main\n"
            f"deb {MIRROR.rstrip('/')}-security {suite}-security main\n"
        )
        (tree / "etc/dpkg/dpkg.cfg.d/quick").write_text("force-unsafe-io\n")
        policy = tree / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        sandbox = self.sandbox(tree)
        self.apt(sandbox, suite, ["update"])
        sandbox.run(["useradd", "--create-home", "--uid", str(UID), "--shell", "/bin/bash", USER], as_root=True)

    @contextlib.contextmanager
    def fresh(self, suite: str, name: str, keep: bool = False) -> Iterator[Sandbox]:
        """A clean system of its own, removed afterwards unless it shall be kept to be looked at."""
        tree = self._folder / f"{suite}-{name}"
        archive = self.base(suite)
        remove(tree)
        tree.mkdir(parents=True)
        run(["tar", "-C", str(tree), "--numeric-owner", "-xpf", str(archive)])
        for folder in ("tmp/.X11-unix", f"run/user/{UID}"):  # what is mounted upon when a program runs
            (tree / folder).mkdir(parents=True, exist_ok=True)
        try:
            yield self.sandbox(tree)
        finally:
            if not keep:
                remove(tree)

    def sandbox(self, tree: Path) -> Sandbox:
        return Sandbox(tree, USER, f"/home/{USER}")

    def apt(self, sandbox: Sandbox, suite: str, arguments: Sequence[str], timeout: float = 900.0) -> Done:
        """apt-get as root, with a network. What it downloads is kept for the next time. Raises RuntimeError."""
        shutil.copyfile("/etc/resolv.conf", sandbox.root / "etc/resolv.conf")
        cache = self._folder / f"archives-{suite}"
        (cache / "partial").mkdir(parents=True, exist_ok=True)
        done = sandbox.with_env(**QUIET).run(
            ["apt-get", "-y", "-o", "APT::Keep-Downloaded-Packages=true", "-o", "APT::Sandbox::User=root", *arguments],
            as_root=True,
            network=True,
            timeout=timeout,
            binds=[Bind(cache, "/var/cache/apt/archives", writable=True)],
        )
        if done.code:
            raise RuntimeError(f"apt-get {' '.join(arguments)}: exit code {done.code}\n{done.text[-3000:]}")
        return done


def run(command: Sequence[str]) -> None:
    """Raises RuntimeError with the last lines it printed."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if done.returncode:
        raise RuntimeError(f"{command[0]}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")


def remove(tree: Path) -> None:
    """Also where folders cannot be written. Nothing is mounted below it: mounts end with the process inside."""
    if tree.is_dir() and not tree.is_symlink():
        mounted = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {tree}/" in line]
        if mounted:
            raise RuntimeError(f"{tree} is not removed: something is mounted below it: {mounted}")
        shutil.rmtree(tree)
    else:
        tree.unlink(missing_ok=True)
