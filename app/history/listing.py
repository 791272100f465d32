"""What the list of chats shows and changes: titles, folders, tags, pins, the archive, and what a search finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject

from app.history import cells, search
from app.history.cells import Bad
from app.history.file import HistoryFile, Upgrading
from app.history.records import Folder, ListedChat, SearchHit
from app.history.statements import packed

_LISTED = ", ".join(cells.LISTED)


class ListStore(HistoryFile):
    """The history as far as the list of chats knows it."""

    def __init__(self, path: Path, parent: QObject | None = None, upgrading: Upgrading | None = None) -> None:
        super().__init__(path, parent, upgrading)
        self._listed: tuple[tuple[int, int | None], list[ListedChat]] = ((0, None), [])
        """What the list showed last, and the connection and version of the file that it is of."""

    def titles(self) -> list[tuple[str, str]]:
        """Ids and titles of all chats that are not deleted, the last used first."""
        rows = self._read("SELECT id, title FROM chats WHERE NOT deleted ORDER BY updated DESC")
        return [(cells.plain(chat), cells.plain(title)) for chat, title in rows]

    def listed(self) -> list[ListedChat]:
        """All chats that are not deleted as the list shows them, archived ones too, the last used first."""
        if self._closed:
            return []
        reader = self._reading()
        # Another connection writes, so this counts each write; a copy in memory is read again each time.
        version = reader.execute("PRAGMA data_version").fetchone()[0] if reader is self._reader else None
        if version is None or self._listed[0] != (id(reader), version):
            self._listed = ((id(reader), version), self._list())
        return list(self._listed[1])

    def _list(self) -> list[ListedChat]:
        rows = self._read(f"SELECT {_LISTED} FROM chats WHERE NOT deleted ORDER BY updated DESC")
        bad: list[Bad] = []
        chats = [cells.listed(row, bad) for row in rows]
        if bad:
            self._mend(bad, {chat.id: chat.title for chat in chats})
        return chats

    def folders(self) -> list[Folder]:
        """All folders, by name."""
        rows = self._read(
            "SELECT id, name, folded, (SELECT COUNT(*) FROM folder_documents d WHERE d.folder = f.id) FROM folders f"
        )
        folders = [
            Folder(cells.plain(key), cells.plain(name), bool(folded), count) for key, name, folded, count in rows
        ]
        return sorted(folders, key=lambda folder: (folder.name.casefold(), folder.id))

    def search(self, text: str, limit: int = 50) -> list[SearchHit]:
        """Chats whose title has each of the words of ``text``, or one of whose messages has, and that have its tags
        (app/history/search.py)."""
        terms, tags = wanted = search.wanted(text)
        chats = self.listed()
        if tags:
            chats = [chat for chat in chats if wanted.has_tags(chat.tags)]
        if not terms:
            return [SearchHit(chat, "") for chat in chats]
        titled = [chat for chat in chats if all(term.inside(chat.title) for term in terms)]
        found = {chat.id: SearchHit(chat, "") for chat in titled[:limit]}
        known = {chat.id: chat for chat in chats}
        among = packed(list(known)) if tags else ""
        for chat_id, message, content in search.messages(self._read, terms, "c.id", 4 * limit, among):
            hit = found.get(chat_id)
            if chat_id in known and (not hit.message if hit is not None else len(found) < limit):
                excerpt = search.excerpt(cells.plain(content), terms)
                found[chat_id] = SearchHit(known[chat_id], excerpt, message)
        return list(found.values())

    def unread(self) -> frozenset[str]:
        """The chats with an answer that nobody has seen."""
        return frozenset(row[0] for row in self._read("SELECT id FROM chats WHERE unread AND NOT deleted"))

    def set_title(self, chat_id: str, title: str) -> None:
        self._write("UPDATE chats SET title = ? WHERE id = ?", (title, chat_id), chat_id, tell=True)

    def folder_of(self, chat_id: str) -> Folder | None:
        """The folder that a chat is in; None for none."""
        rows = self._read("SELECT folder FROM chats WHERE id = ? AND folder != ''", chat_id)
        return self.folder(cells.plain(rows[0][0])) if rows else None

    def folder(self, folder_id: str) -> Folder | None:
        """The folder with this id; None where there is none."""
        return next((folder for folder in self.folders() if folder.id == folder_id), None)

    def set_folder(self, chat_id: str, folder_id: str) -> None:
        """Move the chat to a folder, "" to none."""
        self._write("UPDATE chats SET folder = ? WHERE id = ?", (folder_id, chat_id), chat_id, tell=True)

    def set_pinned(self, chat_id: str, pinned: bool) -> None:
        self._write("UPDATE chats SET pinned = ? WHERE id = ?", (pinned, chat_id), chat_id, tell=True)

    def set_archived(self, chat_id: str, archived: bool) -> None:
        self._write("UPDATE chats SET archived = ? WHERE id = ?", (archived, chat_id), chat_id, tell=True)

    def set_tags(self, chat_id: str, tags: Sequence[str]) -> None:
        self._write("UPDATE chats SET tags = ? WHERE id = ?", (packed(tags), chat_id), chat_id, tell=True)

    def save_folder(self, folder: Folder) -> None:
        """Insert the folder or replace it."""
        sql = "INSERT INTO folders (id, name, folded) VALUES (?,?,?) ON CONFLICT (id) DO UPDATE SET "
        self._write(f"{sql} name = excluded.name, folded = excluded.folded", tuple(folder[:3]), tell="")

    def remove_folder(self, folder_id: str) -> None:
        """Remove a folder with its documents; its chats are in none then."""
        with self.together():
            self._write("UPDATE chats SET folder = '' WHERE folder = ?", (folder_id,))
            self._write("DELETE FROM folders WHERE id = ?", (folder_id,), tell="")

    def set_unread(self, chat_id: str, unread: bool) -> None:
        """Set whether the chat has an answer that nobody has seen."""
        self._write("UPDATE chats SET unread = ? WHERE id = ?", (unread, chat_id), key=f"unread {chat_id}")

    def delete(self, chat_id: str) -> None:
        """Hide the chat; it is removed for good at the next start."""
        self._write("UPDATE chats SET deleted = 1 WHERE id = ?", (chat_id,), None, tell=chat_id)

    def undelete(self, chat_id: str) -> None:
        self._write("UPDATE chats SET deleted = 0 WHERE id = ?", (chat_id,), chat_id, tell=True)
