"""The lists of wheels that GPU packs are made of: which files, from where, and what each must hash to.

Written by ``packaging/lock_gpu.py`` in pip's requirements format: a header of comments, then for each wheel
``NAME @ ADDRESS --hash=sha256:HEX  # N bytes``. ``KVASIR_GPU_LISTS`` names another folder of lists, for a mirror.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.base.fetching.download import RemoteFile
from engine.base.fetching.errors import FetchFailed
from engine.base.files import UnreadableFileError, read_text

KINDS = ("cuda13", "cuda12", "rocm")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADER = re.compile(r"# ([a-z-]+): (.*)")
_WHEEL = re.compile(r"\S+ @ (?P<url>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})  # (?P<bytes>\d+) bytes")
_FILENAME = re.compile(r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[A-Za-z0-9_.!+]+)(-[^-/\\]+){3,4}\.whl")


class PackFailed(FetchFailed):
    """Something about a GPU pack cannot be done; the message is a sentence for a person."""


class Wheel(RemoteFile):
    """One file of a pack."""

    @property
    def name(self) -> str:
        return self.filename.split("-")[0]

    @property
    def version(self) -> str:
        return self.filename.split("-")[1]


@dataclass(frozen=True)
class PackList:
    """A pack as it is to be. ``header``: what the list says of itself; ``python``: "3.11"."""

    kind: str
    python: str
    header: dict[str, str]
    wheels: tuple[Wheel, ...]
    text: str

    @cached_property
    def hash(self) -> str:
        """The name of the pack's folder: the same files for the same Python have the same, wherever they come from."""
        lines = [self.kind, self.python, *sorted(f"{wheel.filename} {wheel.sha256}" for wheel in self.wheels)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    @property
    def download_bytes(self) -> int:
        return sum(wheel.bytes for wheel in self.wheels)

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk of the installed pack; some of it estimated."""
        return int(self.header["installed"].split()[0])

    @property
    def for_processor(self) -> bool:
        """True for a pack that needs no GPU: a trial of packs, where there is none. Kvasir comes with none such."""
        return self.header.get("device") == "cpu"

    @property
    def driver(self) -> int:
        """The oldest major version of NVIDIA's driver that it runs with."""
        return int(self.header.get("driver", "0"))

    @property
    def capabilities(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The compute capabilities it holds kernels for: from the first to below the second."""
        return _pair(self.header.get("capability", "0.0")), _pair(self.header.get("capability-below", "999.0"))

    @property
    def targets(self) -> frozenset[str]:
        """The AMD GPUs it holds kernels for, such as "gfx1100"."""
        return frozenset(self.header.get("targets", "").split())


def available() -> dict[str, PackList]:
    """The lists that are there, by kind. Raises :class:`PackFailed` for one that cannot be understood."""
    folder = Path(os.environ.get("KVASIR_GPU_LISTS") or Path(__file__).resolve().parent / "lists")
    files = {kind: folder / f"{kind}.txt" for kind in KINDS}
    try:
        texts = {kind: read_text(file) for kind, file in files.items()}
    except UnreadableFileError as error:
        raise PackFailed(f"{error.reason} Install Kvasir again.") from error
    return {kind: parse(text, str(files[kind])) for kind, text in texts.items() if text is not None}


def parse(text: str, origin: str) -> PackList:
    """A list from its text. ``origin`` names it in what :class:`PackFailed` says."""
    header, wheels = {}, []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("#"):
            if found := _HEADER.fullmatch(line):
                header[found[1]] = found[2]
        else:
            wheels.append(_wheel(line, origin))
    names = [wheel.filename for wheel in wheels]
    if header.get("kind") not in KINDS or not wheels or len(set(names)) < len(names):
        raise PackFailed(f"{origin} is not a list of a GPU pack. Install Kvasir again.")
    try:
        parsed = PackList(header["kind"], header["python"], header, tuple(wheels), text)
        _ = parsed.disk_bytes, parsed.driver, parsed.capabilities
    except (KeyError, ValueError, IndexError):
        raise PackFailed(f"{origin} does not say what a list of a GPU pack has to. Install Kvasir again.") from None
    return parsed


def running_python() -> str:
    """The version of Python that packs are made for: that of the program, whose ``installation.python()`` is alike."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _wheel(line: str, origin: str) -> Wheel:
    found = _WHEEL.fullmatch(line)
    address = urlsplit(found["url"]) if found else None
    filename = unquote(address.path.rsplit("/", 1)[-1]) if address else ""
    trusted = address and (address.scheme == "https" or (address.scheme == "http" and address.hostname in LOOPBACK))
    if not found or not trusted or not _FILENAME.fullmatch(filename):
        raise PackFailed(f"{origin} has a line that is not a wheel with its hash: {line[:120]}. Install Kvasir again.")
    return Wheel(filename, found["url"], found["sha256"], int(found["bytes"]))


def _pair(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)
