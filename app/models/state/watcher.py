"""Notices that files come and go in some folders, and says so once they are quiet."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QFileSystemWatcher, QObject, QTimer, Signal

QUIET_MS = 500
"""Without a change, after which it is told: a copy writes for a while."""


class FolderWatcher(QObject):
    """A system that watches no more than some paths leaves the others out; whoever shows a list looks then, too."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._watcher = QFileSystemWatcher(self)
        self._quiet = QTimer(self, singleShot=True, interval=QUIET_MS)
        self._quiet.setObjectName("folder-watcher")
        self._quiet.timeout.connect(self.changed)
        self._watcher.directoryChanged.connect(lambda _: self._quiet.start())
        self._watcher.fileChanged.connect(lambda _: self._quiet.start())

    def watch(self, paths: Sequence[str]) -> None:
        """These in place of those before; none of them stops it."""
        now, wanted = {*self._watcher.directories(), *self._watcher.files()}, set(paths)
        if gone := now - wanted:
            self._watcher.removePaths(sorted(gone))
        if new := wanted - now:
            self._watcher.addPaths(sorted(new))
        if not wanted:
            self._quiet.stop()
