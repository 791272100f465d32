"""The quick chat: a small window over all others for a question, and for its answer."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QCloseEvent, QCursor, QGuiApplication, QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout

from app.chat.composer import PLACEHOLDER
from app.chat.message_edit import MessageEdit
from app.chat.page import ChatPage
from app.chat.send_button import SendButton
from app.chat.transcript.shown import ShownBranch
from app.chat.transcript.transcript import Transcript
from app.language import tr
from app.theme.keys import native
from app.theme.room import room_of
from app.theme.theme import Theme
from app.theme.widgets import caption, fill, named, say, tip

WIDTH_PX, HEIGHT_PX = 640, 520
"""At the usual text size; the height with an answer."""
MOST_LINES = 6
_IN_MAIN = ("edit", "begin", "branches", "overflow", "compare", "learn")
"""Actions on a message that need the main window."""


class QuickChat(QFrame):
    """Asks in the session of ``page``, whose chat on screen it shows while that is one of its own.

    Each opening begins a chat, but while the last one's answer is being written.
    """

    main_asked = Signal()
    """The page is to be shown in front, where a chat is continued with everything that this window lacks."""

    def __init__(self, page: ChatPage, theme: Theme) -> None:
        super().__init__()
        self._page, self._theme = page, theme
        self._chat = ""
        """The id of the chat that was begun here last."""
        self._up = False
        """True while it is on the screen."""
        flags = Qt.WindowType.FramelessWindowHint | Qt.WindowType.WindowStaysOnTopHint
        self.setWindowFlags(Qt.WindowType.Window | flags)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAttribute(Qt.WidgetAttribute.WA_QuitOnClose, False)
        named(self, "quick", card="window", windowTitle=tr("Quick chat"))
        self.edit = named(MessageEdit(self), "quick.text", placeholderText=PLACEHOLDER, title=tr("Message"))
        self.button = SendButton("quick.send", self)
        self.transcript = Transcript(theme, self)
        self._shown = ShownBranch(page.session, page.loads, self.transcript)
        self._shown.watch(False)
        self.transcript.hide()
        self._rule = named(QFrame(self), edge="top")
        self._rule.setFixedHeight(1)
        self.words = caption(name="quick.words")
        self.to_main = named(QPushButton(tr("Open in Kvasir"), self), "quick.open", kind="link")
        words = tr("Go on in the main window ({keys})", keys=native("Ctrl+Return"))
        named(self.to_main, tooltip=tip(words), clicked=self.open_in_main)
        self.new = named(QPushButton(tr("New chat"), self), "quick.new", kind="link", clicked=self._begin)
        row = fill(QHBoxLayout(), (self.edit, 1), (self.button, 0, Qt.AlignmentFlag.AlignBottom), spacing=12)
        foot = fill(QHBoxLayout(), (self.words, 1000), 1, self.new, self.to_main, spacing=12)
        self._column = fill(
            QVBoxLayout(self), row, self._rule, (self.transcript, 1), foot, margins=(16, 14, 16, 12), spacing=8
        )
        self.button.sent.connect(self._submit)
        self.button.stopped.connect(page.stop)
        self.edit.submitted.connect(self._submit)
        self.edit.continued.connect(self.open_in_main)
        self.edit.refused.connect(lambda sentence: say(self.words, sentence))
        for name in ("pictured", "filed", "long_pasted"):
            getattr(self.edit, name).connect(partial(self._hand_over, name))
        self.edit.grown.connect(self._fit)
        self.edit.textChanged.connect(self._refresh)
        self.transcript.acted.connect(self._act)
        session = page.session
        for signal in (session.opened, session.changed, page.sending.changed, page.notice.changed):
            signal.connect(self._refresh)
        theme.changed.connect(self._fit)

    @property
    def own(self) -> bool:
        """True while the chat that was begun here is on screen."""
        return bool(self._chat) and self._page.chat_id == self._chat

    @property
    def in_front(self) -> bool:
        """True if the person sees in it what is said in its chat."""
        return self._up and self.own and self.isActiveWindow()

    def toggle(self) -> None:
        """Open it in front, or put it away where it is there already."""
        if self.isVisible() and self.isActiveWindow():
            self.put_away()
        else:
            self.open()

    def open(self) -> None:
        """Show it on the screen where the mouse is."""
        if not self._up:
            self._up = True
            if not (self.own and self._page.streaming):
                self._chat = ""
            self.resize(self._theme.px(WIDTH_PX), 1)
            self._refresh()
            screen = QGuiApplication.screenAt(QCursor.pos()) or self.screen()
            room = screen.availableGeometry()
            self.move(room.topLeft() + QPoint((room.width() - self.width()) // 2, room.height() // 5))
        self.show()
        self.raise_()
        self.activateWindow()
        self.edit.setFocus()

    def put_away(self) -> None:
        """Hide it; an answer that is being written goes on."""
        self._up = False
        self.hide()
        self._refresh()

    def close_down(self) -> None:
        """Before the program ends."""
        self.put_away()
        self.transcript.stop()
        self.deleteLater()

    def open_in_main(self) -> None:
        """Go on in the main window, with the chat and what was typed."""
        text, own = self.edit.toPlainText(), self.own
        self.edit.clear()
        self.put_away()
        self.main_asked.emit()
        if not own:
            self._page.new_chat()
        if text:
            self._page.type(f"\n{text}" if self._page.composer.text else text)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.put_away()
        else:
            super().keyPressEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        """The desktop's way to close a window puts it away; refused, it would keep the session from ending."""
        self.put_away()
        event.accept()

    def _hand_over(self, name: str, given: object) -> None:
        """Pictures and documents are for the main window's composer."""
        self.open_in_main()
        getattr(self._page.composer.edit, name).emit(given)

    def _begin(self) -> None:
        self._chat = ""
        self._refresh()
        self.edit.setFocus()

    def _submit(self) -> None:
        text = self.edit.toPlainText().strip("\n")
        if not text.strip() or (self.own and self._page.streaming):
            return
        if self._page.sending.send_apart(text, not self.own):
            self._chat = self._page.chat_id
            self.edit.clear()
        self._refresh()

    def _act(self, message_id: str, action: str) -> None:
        if action in _IN_MAIN:
            self.open_in_main()
        self._page.message_actions.act(message_id, action)

    def _refresh(self) -> None:
        """Show the chat if it is on screen, and what can be asked now."""
        own, (reason, queues) = self.own, self._page.sending.apart(not self.own)
        if self._shown.watched != (own and self._up):
            self._shown.watch(not self._shown.watched)
        if not self._up:
            return
        takes = (not reason or queues) and bool(self.edit.toPlainText().strip())
        self.button.show_state(own and self._page.streaming, takes)
        for part in (self.new, self._rule, self.transcript):
            part.setVisible(own)
        waits = tr("{reason}. What you send now waits for it.", reason=reason)
        self.edit.setPlaceholderText(waits if queues else reason or PLACEHOLDER)
        waiting = self._page.sending.waits.text if own and self._page.session.queued else ""
        say(self.words, self._page.notice.text or waiting)
        self._fit()

    def _fit(self) -> None:
        """As high as what is typed, and a few lines of an answer where there is one."""
        room = room_of(self)
        self.edit.limit(MOST_LINES * self.edit.fontMetrics().lineSpacing())
        self._column.activate()
        least = self.minimumSizeHint().height()
        height = max(least, self._theme.px(HEIGHT_PX)) if self.own else least
        self.resize(min(self._theme.px(WIDTH_PX), room.width()), min(height, room.height()))
