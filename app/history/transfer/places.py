"""Where exported chats go: one file, a folder or a zip, which has its name only once it is whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
from pathlib import Path
from typing import Protocol

UNFINISHED = ".unfinished"


class ExportPlace(Protocol):
    """Takes files; every method may raise OSError, :meth:`give_up` none."""

    path: Path
    """Where everything will be."""

    def put(self, name: str, data: bytes) -> None:
        """Add a file; ``name`` may be in a folder of its own, as "Work/Plans.md"."""

    def finish(self) -> None:
        """Give it its name."""

    def give_up(self) -> None:
        """Leave nothing behind."""


class FilePlace:
    """A file, in the place of one that may be there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(path.name + UNFINISHED)

    def put(self, name: str, data: bytes) -> None:
        with self._part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> None:
        os.replace(self._part, self.path)

    def give_up(self) -> None:
        with contextlib.suppress(OSError):
            self._part.unlink()


class FolderPlace:
    """A new folder, beside whatever is in ``parent``."""

    def __init__(self, parent: Path, name: str) -> None:
        self.path = _free(parent / name)
        self._part = _free(self.path.with_name(self.path.name + UNFINISHED))

    def put(self, name: str, data: bytes) -> None:
        file = self._part / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def finish(self) -> None:
        self._part.mkdir(parents=True, exist_ok=True)
        self.path = _free(self.path)
        os.rename(self._part, self.path)

    def give_up(self) -> None:
        shutil.rmtree(self._part, ignore_errors=True)


class ZipPlace:
    """A zip, in the place of one that may be there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(path.name + UNFINISHED)
        self._zip: zipfile.ZipFile | None = None

    def put(self, name: str, data: bytes) -> None:
        if self._zip is None:
            self._zip = zipfile.ZipFile(self._part, "w", zipfile.ZIP_DEFLATED)
        self._zip.writestr(name, data)

    def finish(self) -> None:
        if self._zip is not None:
            self._zip.close()
        os.replace(self._part, self.path)

    def give_up(self) -> None:
        if self._zip is not None:
            with contextlib.suppress(OSError, ValueError):
                self._zip.close()
        with contextlib.suppress(OSError):
            self._part.unlink()


def _free(path: Path) -> Path:
    """The path, or one with a number that is free."""
    tried, number = path, 2
    while tried.exists():
        tried, number = path.with_name(f"{path.name} ({number})"), number + 1
    return tried
