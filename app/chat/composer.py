"""Composer of messages: the field, what is attached to it, and its buttons; Enter sends, Send becomes Stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat import pictures
from app.chat.attached import AttachedDocuments
from app.chat.folder.chip import FolderChip
from app.chat.message_edit import MOST_CHARS, MessageEdit
from app.chat.pictures import AttachButton, AttachedPictures, NoPictureError, is_picture
from app.chat.send_button import SEND, SendButton
from app.chat.session.reading import DocumentReader
from app.chat.side_by_side.send_menu import SendMenu
from app.chat.thinking_switch import ThinkingSwitch
from app.chat.transcript.text.wrapping import wrap_mode
from app.chat.transcript.transcript import column_px
from app.documents.records import MOST, of_text
from app.dropped import files_in
from app.history.records import Attached, Draft
from app.language import tr
from app.theme.keys import native
from app.theme.theme import Theme
from app.theme.widgets import fill, named, tip
from engine.protocol import ModelCard

PLACEHOLDER = tr("Message Kvasir")
EDITS = tr("Editing: the new text starts a branch, the old one is kept. Esc leaves it as it was.")
EDITS_ANSWER = tr("Editing the answer: your text is kept as another version of it. Esc leaves it as it was.")
BEGINS = tr("Write how the answer begins: the model continues from there. Esc leaves it.")
PASTED = tr("Pasted text")
SAVE = tr("Save"), tr("Save the answer")
CONTINUE = tr("Continue"), tr("Continue the answer")
"""As :data:`SEND`."""
READING = tr("A document is being read. Then the message can be sent.")


class Composer(QFrame):
    """``sent`` carries the text; the field is emptied by :meth:`clear` once it was taken."""

    sent = Signal(str)
    stopped = Signal()
    refused = Signal(str)
    """Same as that of :class:`MessageEdit`."""
    text_changed = Signal()
    written = Signal(object, bool)
    """(the Draft, which is the text of an answer; whether the model is to go on from it)."""
    recalled = Signal()
    """The person wants to change the last message that was sent."""
    end_asked = Signal()
    """The person wants to see the end of the conversation."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._reason = ""
        self._queues = False
        """True if what is sent now waits until the reason is gone."""
        self._streaming = False
        self._card: ModelCard | None = None
        self._edited = self._before = self._begins = ""
        """Same as in :class:`Draft`."""
        self.is_answer: Callable[[Draft], bool] = lambda _: False
        """Returns True if what is edited is an answer."""
        self._answer = False
        """True if the text is that of an answer, and no message to be answered."""
        named(self, "composer", card="composer")
        self._banner = named(QLabel(self, wordWrap=True), "composer-banner", role="caption")
        self._banner.setVisible(False)
        self.edit = named(MessageEdit(self), placeholderText=PLACEHOLDER)
        self.button = SendButton("send", self)
        self.more = QPushButton(tr("Save and continue"), self)
        named(self.more, "save-and-continue", title=tr("Save and continue"))
        continued = tr("Keep the text and let the model go on from it ({keys})", keys=native("Ctrl+Return"))
        self.more.setToolTip(tip(continued))
        self.more.setVisible(False)
        self.ways = SendMenu(self)
        self.thinking = ThinkingSwitch(theme, self)
        self.attach = AttachButton(theme, self)
        self.attached = AttachedPictures(self)
        self.documents = AttachedDocuments(theme, self)
        self.folder = FolderChip(theme, self)
        self.reader = DocumentReader(self)
        row = fill(QHBoxLayout(), (self.attach, 0, Qt.AlignmentFlag.AlignBottom), spacing=12)
        fill(row, (self.edit, 1, Qt.AlignmentFlag.AlignVCenter))
        fill(row, *((button, 0, Qt.AlignmentFlag.AlignBottom) for button in (self.more, self.button, self.ways)))
        column = fill(QVBoxLayout(self), self._banner, self.folder, self.documents, self.attached, row, self.thinking)
        fill(column, margins=(14, 12, 14, 12), spacing=6)
        self.edit.submitted.connect(self._submit)
        self.edit.refused.connect(self.refused)
        self.edit.continued.connect(lambda: self._submit(True))
        self.edit.recalled.connect(self._recall)
        self.edit.end_asked.connect(self.end_asked)
        self.more.clicked.connect(lambda: self._submit(True))
        self.edit.textChanged.connect(self._on_text)
        self.edit.pictured.connect(self.take_pictures)
        self.edit.filed.connect(self.take_files)
        self.edit.long_pasted.connect(self._take_text)
        self.attach.chosen.connect(self.take_files)
        self.attached.changed.connect(self._on_text)
        self.documents.changed.connect(self._on_text)
        self.documents.dropped.connect(self.reader.drop)
        self.documents.text_asked.connect(self._put_back)
        self.reader.changed.connect(self._on_read)
        self.setFocusProxy(self.edit)
        self.button.sent.connect(self._submit)
        self.button.stopped.connect(self.stopped)
        theme.changed.connect(self._fit)
        self._fit()
        self._refresh()

    @property
    def text(self) -> str:
        return self.edit.toPlainText()

    @property
    def reason(self) -> str:
        """Reason nothing can be sent now; "" when something can."""
        return self._reason

    @property
    def draft(self) -> Draft:
        files, documents = self.attached.files, self.documents.attached
        return Draft(self.text, self._edited, self._before, files, documents, self._begins)

    @property
    def something(self) -> bool:
        """True if there is something to send."""
        return self._something

    @property
    def editing(self) -> bool:
        return bool(self._edited or self._begins)

    def set_reason(self, reason: str, queues: bool = False) -> None:
        """A reason stands where the placeholder stood and disables sending, unless it ``queues``; the text stays."""
        self._reason, self._queues = reason, queues
        self._refresh()

    def set_streaming(self, streaming: bool) -> None:
        self._streaming = streaming
        self._refresh()

    def see(self, card: ModelCard | None) -> None:
        """The model that will read what is sent."""
        self._card = card
        self.attach.offer(card is None or card.pictures)
        self.attach.setVisible(not self._answer)

    def take_files(self, files: Sequence[Path]) -> None:
        """Attach files: pictures as such, all others as documents."""
        shown = [file for file in files if is_picture(file)]
        if shown:
            self.take_pictures(shown)
        others = [file for file in files if not is_picture(file)]
        have = len(self.documents.attached)
        if have + len(others) > MOST:
            many = have + len(others)
            words = tr("A message can have {most} documents, and this one would have {many}.", most=MOST, many=many)
            self.refused.emit(words)
            return
        if others:
            self.documents.show_attached((*self.documents.attached, *map(self.reader.read, others)))
            self.edit.setFocus()

    def take_mime(self, source: QMimeData) -> bool:
        """Attach what was dropped next to the message; False for what is neither a file nor a picture."""
        if files := files_in(source):
            self.take_files(files)
        elif found := pictures.in_mime(source):
            self.take_pictures(found)
        else:
            return False
        return True

    def take_pictures(self, found: list) -> None:
        """Attach images and files of pictures, or say why not."""
        try:
            if self._answer:
                raise NoPictureError(tr("An answer is text alone: it can have no pictures."))
            if self._card is not None and not self._card.pictures:
                name = self._card.name
                raise NoPictureError(tr("{name} reads text only, so a message to it can have no pictures.", name=name))
            more = pictures.taken(found, len(self.attached.files))
        except (NoPictureError, OSError) as error:
            self.refused.emit(str(error))
            return
        self.attached.show_files((*self.attached.files, *more))
        self.edit.setFocus()

    def begin_edit(
        self, text: str, message_id: str, files: tuple[bytes, ...] = (), documents: tuple[Attached, ...] = ()
    ) -> None:
        """Put an earlier message into the field; the next ``sent`` replaces it."""
        self.show_draft(Draft(text, message_id, self._before if self.editing else self.text, files, documents))
        self.edit.setFocus()

    def begin_answer(self, message_id: str) -> None:
        """Have the person write the beginning of an answer to that message."""
        self.show_draft(Draft("", before=self._before if self.editing else self.text, begins=message_id))
        self.edit.setFocus()

    def show_draft(self, draft: Draft) -> None:
        text, self._edited, self._before, files, documents, self._begins = draft
        self._answer = self.is_answer(draft)
        self.folder.show_for(not self._answer)
        self._banner.setText(BEGINS if self._begins else EDITS_ANSWER if self._answer else EDITS)
        self._banner.setVisible(self.editing)
        self.see(self._card)
        self.edit.setPlainText(text)
        self.attached.show_files(files)
        self.documents.show_attached(documents)
        self._on_read()
        self.edit.moveCursor(self.edit.textCursor().MoveOperation.End)
        self._refresh()

    def clear(self) -> None:
        """The text was taken, or an edit given up: back to what stood here before."""
        self.show_draft(Draft(self._before))

    def type(self, text: str) -> None:
        """Keys that came to another part of the window."""
        self.edit.setFocus()
        self.edit.insertPlainText(text)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A click on the padding round the field."""
        self.edit.setFocus()
        super().mousePressEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc leaves an edit, or stops the answer; with neither it belongs to the window."""
        if event.key() != Qt.Key.Key_Escape or not (self.editing or self._streaming):
            super().keyPressEvent(event)
        elif self.editing:
            self.clear()
        else:
            self.stopped.emit()

    def _fit(self) -> None:
        self.setMaximumWidth(column_px(self._theme))

    def _submit(self, go_on: bool = False) -> None:
        """``go_on``: the model is to go on from the text of an answer."""
        if not (self._takes and self._something):
            return
        if self._answer:
            self.written.emit(self.draft, go_on or bool(self._begins))
            self.edit.setFocus()  # the button that was pressed goes
        else:
            self.sent.emit(self.text.strip("\n"))

    def _recall(self) -> None:
        if not (self.editing or self.attached.files or self.documents.attached):
            self.recalled.emit()

    @property
    def _something(self) -> bool:
        return bool(self.text.strip() or self.attached.files or self.documents.attached)

    @property
    def _takes(self) -> bool:
        saves = self._answer and not self._begins
        takes = not self._streaming and (not self._reason or self._queues or saves)
        return takes and not self.documents.reading

    def _on_read(self) -> None:
        """Files that could not be read go, with a sentence each."""
        failed = [each.failure for each in self.documents.attached if each.failure]
        self.documents.show_attached([each for each in self.documents.attached if not each.failure])
        if failed:
            self.refused.emit(" ".join(failed))

    def _take_text(self, text: str) -> None:
        """A long text that was pasted, as a document."""
        if len(self.documents.attached) >= MOST:
            self.refused.emit(tr("A message can have {most} documents, and this one has them.", most=MOST))
            return
        document = of_text(PASTED, text)
        self.documents.show_attached((*self.documents.attached, Attached(PASTED, document, pasted=True)))

    def _put_back(self, attached: Attached) -> None:
        """A document that was pasted becomes text of the message again."""
        assert attached.document is not None
        text = attached.document.text
        if len(self.text) + len(text) > MOST_CHARS:
            self.edit.refuse(len(text))
            return
        self.documents.show_attached([each for each in self.documents.attached if each is not attached])
        self.edit.setWordWrapMode(wrap_mode(text))
        self.edit.insertPlainText(text)
        self.edit.setFocus()

    def _on_text(self) -> None:
        self._refresh()
        self.text_changed.emit()

    def _refresh(self) -> None:
        words, what = SEND, tr("Send (Enter; Shift+Enter breaks the line)")
        if self._begins:
            words, what = CONTINUE, tr("Continue (Enter; Shift+Enter breaks the line)")
        elif self._answer:
            words, what = SAVE, tr("Save (Enter; Shift+Enter breaks the line)")
        self.button.show_state(self._streaming, self._takes and self._something, words)
        self.more.setVisible(self._answer and not self._begins and not self._streaming)
        self.ways.setVisible(not self._answer)
        self.ways.setEnabled(not self._streaming)
        self.more.setEnabled(self._takes and self._something and not self._reason)
        reason = self._reason or (READING if self.documents.reading else "")
        saves = self._answer and not self._begins
        self.button.setToolTip(tip(tr("Stop (Esc)") if self._streaming else what if saves else reason or what))
        waits = tr("{reason}. What you send now waits for it.", reason=self._reason) if self._queues else self._reason
        self.edit.setPlaceholderText(waits or PLACEHOLDER)
        self.edit.viewport().update()  # Qt repaints a placeholder that comes or goes, not one that changes
