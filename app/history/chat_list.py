"""The list of chats: pinned ones, folders, Today, Yesterday, Earlier and the archive, or what a search found."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from PySide6.QtCore import QAbstractListModel, QMimeData, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal

from app.history.records import Folder, ListedChat, SearchHit
from app.language import plural, tr
from app.theme.widgets import tip

Index = QModelIndex | QPersistentModelIndex
RUNNING, UNREAD = tr("an answer is being written"), tr("answered, not read yet")
ARCHIVED = tr("archived")
MIME = "application/x-kvasir-chat"
"""What a dragged chat is: its id."""
PINNED, FOLDERS = tr("Pinned"), tr("Folders")


class ChatListRow(NamedTuple):
    """A heading, a chat, a folder, or the row that opens the archive."""

    text: str
    chat: ListedChat | None = None
    excerpt: str = ""
    """Place that a search found in a chat."""
    message: str = ""
    """The id of the message with that place."""
    folder: Folder | None = None
    archive: bool = False
    """True for the row that opens the archive."""
    chats: int = 0
    """Chats in the folder or in the archive."""
    opened: bool = False
    """True if these are shown below it."""
    inside: bool = False
    """True for a chat below its folder or in the archive."""

    @property
    def folds(self) -> bool:
        """True if it opens and closes."""
        return self.folder is not None or self.archive


class DropTarget(NamedTuple):
    """A place in the list where a chat can be dropped; ``folder`` is the id of one, "" for no folder."""

    kind: Literal["list", "pinned", "archive"]
    folder: str = ""


def grouped(chats: Sequence[ListedChat], today: datetime.date) -> list[ChatListRow]:
    """``chats`` newest first, under headings by the day of their last use."""
    begins = datetime.datetime.combine(today, datetime.time()).timestamp()
    before = datetime.datetime.combine(today - datetime.timedelta(days=1), datetime.time()).timestamp()
    rows: list[ChatListRow] = []
    last = ""
    headings = tr("Today"), tr("Yesterday"), tr("Earlier")
    for chat in chats:
        heading = headings[(chat.updated < begins) + (chat.updated < before)]
        if heading != last:
            rows.append(ChatListRow(heading))
            last = heading
        rows.append(ChatListRow(chat.title, chat))
    return rows


def arranged(
    chats: Sequence[ListedChat], folders: Sequence[Folder], today: datetime.date, archive_open: bool
) -> list[ChatListRow]:
    """The whole list: pinned chats, folders with theirs, the others by day, and the archive as one row."""
    pinned, archived, others = list[ListedChat](), list[ListedChat](), list[ListedChat]()
    filed: dict[str, list[ListedChat]] = {folder.id: [] for folder in folders}
    for chat in chats:
        if chat.archived:
            archived.append(chat)
        elif chat.pinned:
            pinned.append(chat)
        else:
            filed.get(chat.folder, others).append(chat)
    rows = [ChatListRow(PINNED)] if pinned else []
    rows += [ChatListRow(chat.title, chat) for chat in pinned]
    rows += [ChatListRow(FOLDERS)] if folders else []
    for folder in folders:
        inside = filed[folder.id]
        rows.append(ChatListRow(folder.name, folder=folder, chats=len(inside), opened=not folder.folded))
        rows += _inside(inside) if not folder.folded else []
    rows += grouped(others, today)
    if archived:
        rows.append(ChatListRow(tr("Archived"), archive=True, chats=len(archived), opened=archive_open))
        rows += _inside(archived) if archive_open else []
    return rows


class ChatListModel(QAbstractListModel):
    """Rows for a list view; editing a row renames the chat or the folder."""

    renamed = Signal(str, str)
    """(chat id, new title)."""
    folder_renamed = Signal(object, str)
    """(the Folder, new name)."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[ChatListRow] = []
        self.open = ""
        """The id of the chat on screen."""
        self.archive_open = False
        self._marks: dict[str, str] = {}

    def set_marks(self, running: Iterable[str], unread: Iterable[str]) -> None:
        """The chats that are being answered, and those whose answer nobody has seen."""
        self._marks = dict.fromkeys(unread, UNREAD) | dict.fromkeys(running, RUNNING)
        if self._rows:
            self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

    def mark(self, index: Index) -> str:
        """Activity in the chat of that row: RUNNING, UNREAD or ""."""
        chat = self.row(index).chat
        return self._marks.get(chat.id, "") if chat is not None else ""

    def show_chats(self, chats: Sequence[ListedChat], folders: Sequence[Folder] = ()) -> None:
        self._replace(arranged(chats, folders, datetime.date.today(), self.archive_open))

    def show_found(self, found: Sequence[SearchHit]) -> None:
        heading = tr("Found") if found else tr("Nothing found")
        self._replace(
            [
                ChatListRow(heading),
                *(ChatListRow(item.chat.title, item.chat, item.excerpt, item.message) for item in found),
            ]
        )

    @property
    def uniform(self) -> bool:
        """True if all rows are of one height."""
        return not any(row.excerpt for row in self._rows[:60])

    def row(self, index: Index) -> ChatListRow:
        return self._rows[index.row()]

    def index_of(self, chat_id: str) -> QModelIndex:
        """An invalid index when the chat is not listed."""
        for number, row in enumerate(self._rows):
            if row.chat is not None and row.chat.id == chat_id:
                return self.index(number)
        return QModelIndex()

    def index_of_folder(self, folder_id: str) -> QModelIndex:
        """An invalid index when the folder is not listed."""
        for number, row in enumerate(self._rows):
            if row.folder is not None and row.folder.id == folder_id:
                return self.index(number)
        return QModelIndex()

    def target(self, index: Index) -> DropTarget | None:
        """Where a chat goes that is dropped on this row; None where it cannot be dropped."""
        if not index.isValid():
            return DropTarget("list")
        row = self.row(index)
        if row.folder is not None:
            return DropTarget("list", row.folder.id)
        if row.archive or (row.chat is not None and row.chat.archived):
            return DropTarget("archive")
        if row.text == PINNED or (row.chat is not None and row.chat.pinned):
            return DropTarget("pinned")
        if row.chat is not None:
            return DropTarget("list", row.chat.folder if row.inside else "")
        return DropTarget("list") if row.text != FOLDERS else None

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self._rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return row.text
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole):
            words = self._words(row, index)
            return tip(words) if role == Qt.ItemDataRole.ToolTipRole and words else words
        return None

    def _words(self, row: ChatListRow, index: Index) -> str | None:
        """All that is to say of a row."""
        if row.folds:
            kind = tr("archive") if row.archive else tr("folder")
            said = [kind, plural("1 chat", "{n:,} chats", row.chats)]
            if row.folder is not None and row.folder.documents:
                said.append(plural("1 document", "{n:,} documents", row.folder.documents))
            said.append(tr("open", "a folder") if row.opened else tr("folded"))
            return f"{row.text}: {', '.join(said)}"
        if row.chat is None:
            return None
        tags = tr("tagged {tags}", tags=", ".join(row.chat.tags)) if row.chat.tags else ""
        parts = (row.text, self.mark(index), ARCHIVED if row.chat.archived else "", tags)
        return ": ".join(part for part in parts if part)

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row, title = self._rows[index.row()], str(value).strip()
        if role != Qt.ItemDataRole.EditRole or not title or (row.chat is None and row.folder is None):
            return False
        self._rows[index.row()] = row._replace(text=title)
        self.dataChanged.emit(index, index)
        if row.chat is not None:
            self.renamed.emit(row.chat.id, title)
        else:
            self.folder_renamed.emit(row.folder, title)
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        flag = Qt.ItemFlag
        if not index.isValid():
            return flag.NoItemFlags
        row = self._rows[index.row()]
        if row.chat is not None:
            return flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsEditable | flag.ItemIsDragEnabled
        if row.folder is not None:
            return flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsEditable
        return flag.ItemIsEnabled | flag.ItemIsSelectable if row.archive else flag.NoItemFlags

    def mimeTypes(self) -> list[str]:
        return [MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        data = QMimeData()
        chat = self.row(indexes[0]).chat if indexes else None
        if chat is not None:
            data.setData(MIME, chat.id.encode())
        return data

    def supportedDragActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    def _replace(self, rows: list[ChatListRow]) -> None:
        if rows != self._rows:
            self.beginResetModel()
            self._rows = rows
            self.endResetModel()


def _inside(chats: Iterable[ListedChat]) -> list[ChatListRow]:
    return [ChatListRow(chat.title, chat, inside=True) for chat in chats]
