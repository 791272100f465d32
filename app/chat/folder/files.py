"""Files that become documents of a folder: read, kept in the history, and watched for what became of them since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.chat.session.reading import DocumentReader
from app.history.records import Attached, FolderDocument, new_id
from app.history.store import HistoryStore
from app.language import tr

MOST = 20
"""Documents of one folder."""
FileState = Literal["", "changed", "gone"]


class FolderFiles(QObject):
    """The documents of the folder ``folder_id``. What was read stays in use whatever becomes of its file, until it is
    read again."""

    changed = Signal()
    """A file is being read, was read, or is no document of the folder any more."""
    refused = Signal(str)
    """Reason, as a sentence, that a file is no document of the folder."""

    def __init__(self, history: HistoryStore, folder_id: str, parent: QObject) -> None:
        super().__init__(parent)
        self._history, self._folder = history, folder_id
        self.documents = history.folder_documents(folder_id)
        self._reading: dict[Attached, tuple[str, str]] = {}
        """Files that are being read, with the ids they will have and their stamps from before that."""
        self.reader = DocumentReader(self)
        self.reader.changed.connect(self._on_read)

    @property
    def reading(self) -> list[str]:
        """Names of the files that are being read."""
        return [attached.name for attached in self._reading]

    def add(self, paths: Sequence[Path]) -> None:
        """Read these files; each that can be read becomes the last document of the folder."""
        many = len(self.documents) + len(self._reading) + len(paths)
        if many > MOST:
            words = tr("A folder can have {most} documents, and this one would have {many}.", most=MOST, many=many)
            self.refused.emit(words)
            return
        for path in paths:
            self._read(path, new_id())

    def renew(self, key: str) -> None:
        """Read the file of a document again, which it then is in the place of what was read before."""
        known = next((each for each in self.documents if each.id == key), None)
        if known is not None and known.path and all(key != other for other, _ in self._reading.values()):
            self._read(Path(known.path), key)

    def remove(self, key: str) -> None:
        """Take a document out of the folder; messages that were sent with it keep it."""
        for attached in [each for each, (other, _) in self._reading.items() if other == key]:
            del self._reading[attached]
            self.reader.drop(attached)
        self._keep([each for each in self.documents if each.id != key])

    def state(self, document: FolderDocument) -> FileState:
        """What became of a document's file since it was read."""
        if not document.path or not document.stamp:
            return ""
        stamp = stamp_of(Path(document.path))
        if not stamp:
            return "gone"
        return "changed" if stamp != document.stamp else ""

    def stop(self) -> None:
        """Read no more."""
        self._reading.clear()
        self.reader.stop()

    def _read(self, path: Path, key: str) -> None:
        stamp = stamp_of(path)  # before it is read: what changes meanwhile is seen then
        self._reading[self.reader.read(path)] = key, stamp
        self.changed.emit()

    def _on_read(self) -> None:
        documents, refused = list(self.documents), []
        for attached, (key, stamp) in list(self._reading.items()):
            if attached.failure:
                refused.append(attached.failure)
            elif attached.document is None:
                continue
            elif any(each.id != key and each.document.digest == attached.document.digest for each in documents):
                refused.append(tr("{name} is in the folder already.", name=attached.name))
            else:
                read = FolderDocument(key, attached.document, attached.path, stamp)
                place = next((at for at, each in enumerate(documents) if each.id == key), len(documents))
                documents[place : place + 1] = [read]
            del self._reading[attached]
        if documents != self.documents:
            self._keep(documents)
        else:
            self.changed.emit()
        if refused:
            self.refused.emit(" ".join(refused))

    def _keep(self, documents: list[FolderDocument]) -> None:
        self.documents = documents
        if self._history.folder(self._folder) is not None:  # else it was deleted meanwhile
            self._history.set_folder_documents(self._folder, documents)
        self.changed.emit()


def stamp_of(path: Path) -> str:
    """Time and size of a file, by which a change of it is seen; "" where it cannot be looked at."""
    try:
        facts = path.stat()
    except OSError:
        return ""
    return f"{facts.st_mtime_ns} {facts.st_size}"
