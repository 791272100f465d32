"""The folder's documents that the next question of the chat is asked with: a line above the message, with a menu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QMenu, QToolButton, QWidget

from app.chat.attached import NO_ROOM, ahead_words
from app.documents.ahead import ReadAhead
from app.documents.plan import DocumentCount
from app.documents.records import counted
from app.history.records import Folder, FolderDocument
from app.language import plural, tr
from app.theme.icons import icon
from app.theme.theme import Theme
from app.theme.widgets import button_text, fill, menu_text, named, tip

NAME_LETTERS = 40
ICON_PX, CROSS_PX = 14, 12
TOO_LONG = tr("Too long to send whole: passages that fit each question will be sent.")


class FolderChip(QFrame):
    """Hidden where the chat's folder has no documents, but for a new chat, of which it says in which it begins."""

    left_out = Signal(set)
    """The ids of the documents that the chat is to go without."""
    documents_asked = Signal()
    """The person wants to see and change the folder's documents."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._name, self._new = "", False
        self._documents: tuple[FolderDocument, ...] = ()
        self._out: frozenset[str] = frozenset()
        self._counts: list[DocumentCount | None] = []
        """Of those in use, in their order."""
        self._ahead: dict[str, ReadAhead | None] = {}
        """By the id of a document in use."""
        self._asks = True
        named(self, "folder-chip", frameShape=QFrame.Shape.NoFrame)
        self.button = named(QToolButton(self), "folder-documents", kind="quiet", minimumWidth=1)
        self.button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.button.clicked.connect(self._press)
        self.menu = QMenu(self.button)
        self.menu.aboutToShow.connect(self._fill_menu)
        self.menu.setToolTipsVisible(True)
        help_text = tr("Use none of the folder's documents in this chat")
        self.cross = named(QToolButton(self), "folder-without", title=help_text, tooltip=tip(help_text), kind="quiet")
        self.cross.clicked.connect(self._leave_all_out)
        fill(QHBoxLayout(self), self.button, self.cross, 1, margins=0, spacing=2)
        theme.changed.connect(self._recolour)
        self._recolour()
        self._refresh()

    @property
    def used(self) -> list[FolderDocument]:
        return [each for each in self._documents if each.id not in self._out]

    def show_folder(
        self, folder: Folder | None, documents: Sequence[FolderDocument], out: Sequence[str], new: bool
    ) -> None:
        """``out``: the ids of those that the chat goes without; ``new``: it has no message yet."""
        self._name = folder.name if folder is not None else ""
        self._documents, self._out, self._new = tuple(documents), frozenset(out), new
        self._counts = []
        self._refresh()

    def show_counts(self, counts: Sequence[DocumentCount | None]) -> None:
        """Tokens of those in use, None where they are not known."""
        if list(counts) != self._counts:
            self._counts = list(counts)
            self._refresh()

    def show_ahead(self, known: Mapping[str, ReadAhead | None]) -> None:
        """How far the passages of those in use are read by meaning, by their ids."""
        if known != self._ahead:
            self._ahead = dict(known)
            self._refresh()

    def show_for(self, question: bool) -> None:
        """``question``: whether a question is being written, which the documents go with."""
        self._asks = question
        self._refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _refresh(self) -> None:
        begins = self._new and bool(self._name)
        self.setVisible(self._asks and (bool(self._documents) or begins))
        self.cross.setVisible(bool(self.used))
        self.button.setMenu(self.menu if self._documents else None)  # type: ignore[arg-type]
        words = self._words()
        named(self.button, title=words, tooltip=tip("\n".join((words, *map(self._line, self.used)))))
        self._fit()

    def _words(self) -> str:
        name = self._name if len(self._name) <= NAME_LETTERS else self._name[: NAME_LETTERS - 1].rstrip() + "…"
        used, whole = len(self.used), len(self._documents)
        if not whole:
            return tr("New chat in “{folder}”", folder=name)
        if not used:
            return tr("Without the documents of “{folder}”", folder=name)
        if used < whole:
            words = tr("{used:,} of {whole:,} documents of “{folder}”", used=used, whole=whole, folder=name)
        else:
            words = plural("1 document of “{folder}”", "{n:,} documents of “{folder}”", used, folder=name)
        known = [count for count in self._counts if count is not None]
        if len(known) < used:
            return words
        tokens = sum(count.tokens for count in known if count.whole)
        if any(count.passages and not count.whole for count in known):
            return f"{words} · {tr('{tokens} and passages', tokens=counted(tokens, 'token'))}"
        return f"{words} · {counted(tokens, 'token')}"

    def _line(self, each: FolderDocument) -> str:
        """A document in use, with what is known of it."""
        count, known, parts = self._count(each), self._ahead.get(each.id), [each.document.name]
        if count is not None:
            parts += [counted(count.tokens, "token")]
            parts += [] if count.whole else [TOO_LONG if count.passages else NO_ROOM]
        return " · ".join([*parts, ahead_words(known)] if known is not None else parts)

    def _count(self, each: FolderDocument) -> DocumentCount | None:
        used = self.used
        return self._counts[used.index(each)] if each in used and len(self._counts) == len(used) else None

    def _fill_menu(self) -> None:
        self.menu.clear()
        for each in self._documents:
            count = self._count(each)
            tokens = counted(count.tokens, "token") if count is not None else ""
            action = self.menu.addAction(menu_text(each.document.name, tokens))
            named(action, f"folder-document.{each.id}", checkable=True, checked=each.id not in self._out)
            action.setToolTip(tip(self._line(each)))
            action.triggered.connect(lambda on, key=each.id: self._switch(key, on))
        self.menu.addSeparator()
        self.menu.addAction(tr("Documents of the folder…"), self.documents_asked.emit)

    def _leave_all_out(self) -> None:
        self.left_out.emit({each.id for each in self._documents})

    def _press(self) -> None:
        """Without documents there is nothing to choose from, only a place where they are added."""
        if not self._documents:
            self.documents_asked.emit()

    def _switch(self, key: str, on: bool) -> None:
        self.left_out.emit(self._out - {key} if on else self._out | {key})

    def _fit(self) -> None:
        """Cut the words where they have no room."""
        button, words = self.button, self.button.accessibleName()
        edges = self._theme.px(ICON_PX) + 20
        room = self.width() - edges - (self.cross.sizeHint().width() + 2 if not self.cross.isHidden() else 0)
        shown = button.fontMetrics().elidedText(words, Qt.TextElideMode.ElideRight, max(20, room))
        button.setText(f" {button_text(shown)}")

    def _recolour(self) -> None:
        side, cross = self._theme.px(ICON_PX), self._theme.px(CROSS_PX)
        self.button.setIcon(icon(self._theme, "folder", side))
        self.button.setIconSize(QSize(side, side))
        self.cross.setIcon(icon(self._theme, "close", cross))
        self.cross.setIconSize(QSize(cross, cross))
