"""Kernels that travel with the package, compiled: Triton looks there before it looks into the user's cache or compiles.

``packaging/kernels.py`` makes the folder, for each Triton that GPU packs bring and each generation of GPUs::

    3.6.0/sm_90/index.json            which Triton has made them, and size and sha256 of every file, by Triton's own key
    3.6.0/sm_90/KEY/multiply.cubin    what Triton keeps of a kernel: its machine code
    3.6.0/sm_90/KEY/multiply.json     and what a launch has to know of it

Triton's key is a hash of all that decides about the code: the kernel's source and constants, Triton itself, ptxas,
the GPU's generation. So a kernel that has changed is not found, rather than found wrongly. Nothing is written there.
What is not found is compiled as it would be without the folder, and :func:`sentence` tells why. Where there is no
folder, as in a checkout, Triton is left as it is.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

from engine.compute.native import triton_launch

FOLDER = Path(os.environ.get("KVASIR_KERNELS") or Path(__file__).with_name("kernels"))
INDEX = "index.json"


class Tally(NamedTuple):
    """Where kernels came from: the package, the user's cache, a compiler."""

    package: int = 0
    cache: int = 0
    compiled: int = 0

    def since(self, before: Tally) -> Tally:
        """What has come since then."""
        return Tally(*(now - then for now, then in zip(self, before, strict=True)))


class Kernels:
    """The package's kernels for a generation of GPUs and the Triton that is here, or the ``reason`` there are none."""

    def __init__(self, folder: Path, version: str, arch: int | str) -> None:
        """``arch`` as Triton has it: 90 for compute capability 9.0; AMD's have names."""
        self.place, self.reason, self.damaged = folder / version / f"sm_{arch}", "", 0
        self.files: dict[str, dict[str, Any]] = {}
        if not self.place.parent.is_dir():
            self.reason = f"the package has none for Triton {version}"
        elif not self.place.is_dir():
            name = f"compute capability {arch // 10}.{arch % 10}" if isinstance(arch, int) else arch
            self.reason = f"the package has none for GPUs of {name}"
        else:
            self._read(version)

    def _read(self, version: str) -> None:
        try:
            index = json.loads((self.place / INDEX).read_text("utf-8"))
            files, made_by = dict(index["kernels"]), str(index["triton"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.reason = f"the list of the package's kernels cannot be read ({type(error).__name__})"
            return
        if made_by != triton_hash():
            self.reason = f"the package's were compiled by another build of Triton {version}"
        elif refused := self._refused(files):
            self.reason = f"the driver refuses the package's ({refused})"
        else:
            self.files = files

    def _refused(self, files: dict[str, dict[str, Any]]) -> str:
        """What the driver says to one of them, the smallest: ptxas has made all alike. "" where it takes it."""
        sizes = {(each[name][0], key, name) for key, each in files.items() for name in each if name.endswith(".cubin")}
        if not sizes:
            return ""
        from triton.runtime import driver

        _, key, name = min(sizes)
        code = self.place / key / name
        try:
            about = json.loads(code.with_suffix(".json").read_text("utf-8"))
            load = about["name"], code.read_bytes(), about["shared"], driver.active.get_current_device()
        except (OSError, ValueError, KeyError):
            return ""  # a damaged file, which is found where it is asked for
        try:
            driver.active.utils.load_binary(*load)
        except Exception as error:  # the driver's module raises as it pleases
            return _first_line(error)
        return ""

    def find(self, key: str) -> dict[str, str] | None:
        """The files of a kernel by their names, whole; None where it is not here."""
        wanted = self.files.get(key)
        if wanted is None:
            return None
        found = {name: self.place / key / name for name in wanted}
        try:
            whole = all(digest(path.read_bytes()) == tuple(wanted[name]) for name, path in found.items())
        except OSError:
            whole = False
        if not whole:
            self.damaged += 1
            return None
        return {name: str(path) for name, path in found.items()}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def digest(data: bytes) -> tuple[int, str]:
    """Size and sha256, as the index has them."""
    return len(data), hashlib.sha256(data).hexdigest()


@functools.cache
def triton_hash() -> str:
    """Hash of Triton's own sources and library, which is part of the key of every kernel."""
    from triton.runtime.cache import triton_key

    return hashlib.sha256(triton_key().encode()).hexdigest()


@functools.cache
def _kernels(folder: Path, version: str, arch: int | str) -> Kernels:
    return Kernels(folder, version, arch)


_lock = threading.Lock()
_tally = Tally()


def tally() -> Tally:
    """Where the kernels of this process came from."""
    return _tally


def _count(**one: int) -> None:
    global _tally
    with _lock:
        _tally = Tally(*(getattr(_tally, name) + one.get(name, 0) for name in Tally._fields))


class Manager:
    """Triton's ``knobs.cache.manager_class``: of the kernel with a key, or of a module that it compiles for itself.

    The user's folder is only made for what is not in the package.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self._arguments = key, override, dump
        self._usual = not (override or dump)

    @functools.cached_property
    def _files(self) -> Any:
        from triton.runtime.cache import FileCacheManager

        return FileCacheManager(*self._arguments)

    def get_file(self, filename: str) -> str | None:
        """Implements Triton's ``CacheManager``, as do the following."""
        found: str | None = self._files.get_file(filename)
        return found

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        return str(self._files.put(data, filename, binary))

    def get_group(self, filename: str) -> dict[str, str] | None:
        if self._usual:
            with _lock:
                found = here().find(self._arguments[0])
            if found is not None:
                _count(package=1)
                return found
        cached: dict[str, str] | None = self._files.get_group(filename)
        if self._usual:
            _count(**{"cache" if cached else "compiled": 1})
        return cached

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        return str(self._files.put_group(filename, group))


def here() -> Kernels:
    """The package's kernels for the current GPU."""
    from triton import __version__
    from triton.runtime import driver

    return _kernels(FOLDER, __version__, driver.active.get_current_target().arch)


def install() -> None:
    """Let Triton look into the package first, where it has kernels and nobody has given Triton another cache."""
    triton_launch.steady_keys()
    if not FOLDER.is_dir():
        return
    from triton import knobs

    if knobs.cache.manager_class is None:
        knobs.cache.manager_class = Manager


def sentence(before: Tally) -> str:
    """What a person is told of the kernels that were compiled here since then; "" where the package had them all, or
    has none for anyone."""
    now = tally().since(before)
    if not now.compiled or not FOLDER.is_dir():
        return ""
    kernels = here()
    reason = kernels.reason or "they are not among the package's"
    if kernels.damaged and not kernels.reason:
        reason = f"{kernels.damaged} of the package's are damaged"
    return (
        f"{now.compiled} of {sum(now)} kernels were compiled on this machine ({reason}), which takes longer the first "
        "time."
    )


def described(used: bool) -> str:
    """What the package brings for this machine, for people. ``used``: kernels run on its GPU, and Triton knows it."""
    if not FOLDER.is_dir():
        return "none in this package; they are compiled at the first load"
    if not used:
        return "in the package, for GPUs"
    try:
        found = here()
    except Exception as error:  # Triton's driver is a module that is compiled here, where a compiler is found
        return f"not used: Triton finds no driver ({_first_line(error)})"
    return f"{len(found.files)} in the package for this GPU" if not found.reason else f"not used: {found.reason}"
