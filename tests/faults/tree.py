"""A copy of a checkout, into which faults are injected: the checkout itself is never changed."""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.fault import Fault

SUITE = ("tests", "pyproject.toml")
"""What belongs to the tests: the files, and how pytest is to run them."""
_NATIVE = "engine/compute/native/kvasir_native_*"


class Tree:
    """The files of ``checkout`` in ``folder``: those that git tracks or would, and what was compiled."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.folder = folder
        _copy(checkout, folder, _listed(checkout))
        _copy(checkout, folder, [path.relative_to(checkout).as_posix() for path in checkout.glob(_NATIVE)])

    def use_suite_of(self, checkout: Path) -> None:
        """Take the tests of another checkout in place of its own."""
        self._drop_suite()
        _copy(checkout, self.folder, _listed(checkout, *SUITE))

    def use_suite_at(self, checkout: Path, commit: str) -> None:
        """Take the tests of a commit in place of its own. Raises CalledProcessError for one that is unknown."""
        archive = _git(checkout, "archive", "--format=tar", commit, *SUITE)
        self._drop_suite()
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(self.folder, filter="data")

    def _drop_suite(self) -> None:
        shutil.rmtree(self.folder / "tests")
        (self.folder / "pyproject.toml").unlink()

    @contextmanager
    def injected(self, fault: Fault) -> Iterator[None]:
        """The tree with the fault in it, and as it was afterwards. Raises `Stale`, or RuntimeError where native code
        with the fault does not compile."""
        file = self.folder / fault.file
        sound = file.read_bytes()
        built = {path: path.read_bytes() for path in self.folder.glob(_NATIVE)} if fault.compiled else {}
        wrong = fault.applied(sound.decode("utf-8"))
        try:
            _put(file, wrong.encode("utf-8"))
            if fault.compiled:
                self._build(fault)
            yield
        finally:
            _put(file, sound)
            for path, content in built.items():
                path.write_bytes(content)

    def _build(self, fault: Fault) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "engine.compute.native.build"],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if "built" not in done.stdout:
            raise RuntimeError(f"{fault.name}: the native code was not built: {done.stdout}{done.stderr}")


def _put(file: Path, content: bytes) -> None:
    """Write a source file and forget its bytecode, which is known by the second of the change alone."""
    file.write_bytes(content)
    if file.suffix == ".py":
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def _listed(checkout: Path, *within: str) -> list[str]:
    """Files that git tracks and those that it would, if they are there."""
    names = _git(checkout, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *within)
    return [name for name in names.decode("utf-8").split("\0") if name and (checkout / name).is_file()]


def _copy(checkout: Path, folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / name, folder / name)


def _git(checkout: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(checkout), *arguments], check=True, capture_output=True).stdout
