"""Details of a model: figures from its headers, its chat template, its tokenizer to be tried, and its metadata."""

from __future__ import annotations

import html
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPlainTextEdit,
    QTableWidget,
    QTableWidgetItem,
    QTextEdit,
    QVBoxLayout,
    QWidget,
)

from app.language import tr
from app.link.calls import PendingCall
from app.models import words
from app.models.rows import back_button
from app.models.state.library import ModelLibrary
from app.texts.exact import ExactTextEdit
from app.theme.sheet import set_role
from app.theme.theme import CAPTION_PX, Theme
from app.theme.widgets import ElidedLabel, caption, clear, fill, named, say, tip
from engine.protocol import Error, ModelDetails, StoredModel, TextTokens

_TYPED_MS = 150
"""Without a key, after which the text is sent to the tokenizer."""
_EXAMPLE = tr("Kvasir was made of the wisdom of gods, and knew an answer to every question.")


class DetailsView(QWidget):
    """Details of one model at a time, whose tokenizer reads what is typed."""

    closed = Signal()

    def __init__(self, library: ModelLibrary, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._library, self._theme = library, theme
        self._path = ""
        self._shown = False
        self._reading: PendingCall[Any, Any] | None = None
        self._tokens: TextTokens | None = None
        self.back = back_button("models.details.back")
        self.back.clicked.connect(self.closed)
        self.title = ElidedLabel("", "figure")
        self.said = caption(name="models.details.said")
        self._facts = fill(QGridLayout(), spacing=(16, 4), wide=1)
        self.text = _text("models.details.text", tr("A text for the tokenizer"), read_only=False)
        self.text.setPlaceholderText(tr("Type a text to see its tokens."))
        self.text.textChanged.connect(self._on_typed)
        self.count = caption(name="models.details.count")
        self.pieces = named(QTextEdit(readOnly=True), "models.details.pieces", title=tr("Tokens of the text"))
        self.template = _text("models.details.template", tr("Chat template"))
        self.template.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.metadata = named(QTableWidget(0, 2), "models.details.metadata", title=tr("Metadata"))
        self.metadata.verticalHeader().hide()
        self.metadata.horizontalHeader().hide()
        self.metadata.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        self.metadata.horizontalHeader().setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        self.metadata.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        named(self.metadata, showGrid=False, tabKeyNavigation=False)
        self._typed = named(QTimer(self, singleShot=True, interval=_TYPED_MS), "details-typed")
        self._typed.timeout.connect(self._ask)
        self._lay_out()
        library.details.changed.connect(self._on_described)
        theme.changed.connect(self._fit)
        self._fit()

    def _lay_out(self) -> None:
        head = fill(QHBoxLayout(), self.back, (self.title, 1), spacing=8)
        column = fill(QVBoxLayout(self), head, self.said, margins=(0, 0, 6, 0), spacing=8)
        self._inside = QWidget()
        inside = fill(QVBoxLayout(self._inside), self._facts, margins=0, spacing=8)
        for title, widgets in (
            (tr("Tokenizer"), (self.text, self.count, self.pieces)),
            (tr("Chat template"), (self.template,)),
            (tr("Metadata"), (self.metadata,)),
        ):
            label = named(QLabel(title), role="section")
            inside.addSpacing(6)
            inside.addWidget(label)
            for widget in widgets:
                inside.addWidget(widget)
        fill(column, self._inside, 1)

    def _fit(self) -> None:
        px = self._theme.px
        self.text.setFixedHeight(px(64))
        self.metadata.setFixedHeight(px(320))
        self.template.setFont(self._theme.mono_font())
        self.metadata.setFont(self._theme.mono_font(CAPTION_PX))
        self._fit_template()
        if self._tokens is not None:
            self._on_tokens(self._tokens)

    def _fit_template(self) -> None:
        """Make the template as high as its lines, up to a height above which it scrolls."""
        lines = self.template.blockCount() * self.template.fontMetrics().lineSpacing()
        self.template.setFixedHeight(min(lines + self._theme.px(36), self._theme.px(280)))

    def show_model(self, model: StoredModel) -> None:
        """Ask for a model's details, and show them when they are there."""
        self.close_model()
        self._path = model.path
        self.title.setText(model.name)
        self._say(tr("Reading its headers…"))
        self._inside.hide()
        self._library.details.ask(model.path)

    def close_model(self) -> None:
        """Ask nothing more about it."""
        self._typed.stop()
        self._path, self._tokens, self._shown = "", None, False
        self._give_up()

    def _on_described(self, path: str) -> None:
        found = self._library.details.answers.get(path)
        if path != self._path or found is None or self._shown:  # it was asked for twice
            return
        if isinstance(found, str):
            self._say(found, "bad")
            return
        self._say("")
        self._show(found)
        self._shown = True
        self.text.setPlainText(_EXAMPLE)
        self._inside.show()

    def _show(self, found: ModelDetails) -> None:
        clear(self._facts)
        for row, (name, value) in enumerate(words.facts(found)):
            self._facts.addWidget(caption(name), row, 0, Qt.AlignmentFlag.AlignTop)
            shown = caption(value)
            set_role(shown, "")
            self._facts.addWidget(shown, row, 1)
        self.template.setPlainText(found.template or tr("It brings no chat template."))
        self._fit_template()
        self.metadata.setRowCount(len(found.metadata))
        for row, pair in enumerate(found.metadata):
            for column, value in enumerate(pair):
                cell = QTableWidgetItem(value.replace("\n", "↵ "))
                cell.setToolTip(tip(value))
                self.metadata.setItem(row, column, cell)
        self.metadata.resizeRowsToContents()

    def _on_typed(self) -> None:
        if self._path:
            self._typed.start()

    def _ask(self) -> None:
        self._give_up()
        if self._shown:
            text = self.text.toPlainText()
            self._reading = self._library.tokens(self._path, text, self._on_tokens, self._on_unread)

    def _give_up(self) -> None:
        """Nobody wants to know how the last text is read."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _on_tokens(self, found: TextTokens) -> None:
        self._tokens = found
        text = self.text.toPlainText()
        counts = {"tokens": len(found.tokens), "characters": len(text)}
        self.count.setText(tr("{tokens:,} tokens of {characters:,} characters", **counts))
        hues = [self._theme.tint(hue, 0.3, "raised") for hue in ("accent", "good", "warn", "bad")]
        mute, small = self._theme.tokens.mute, self._theme.px(CAPTION_PX - 2)
        body = "".join(
            f'<span style="background:{hues[index % len(hues)]}">{_visible(token.text)}</span>'
            f'<span style="color:{mute};font-size:{small}px">&thinsp;{token.id}&ensp;</span> '
            for index, token in enumerate(found.tokens)
        )
        self.pieces.setHtml(f'<div style="line-height:150%">{body}</div>')
        self.pieces.setFixedHeight(min(round(self.pieces.document().size().height()) + 8, self._theme.px(200)))

    def _on_unread(self, error: Error) -> None:
        self._tokens = None
        self.pieces.clear()
        self.count.setText(error.message)

    def _say(self, sentence: str, role: str = "caption") -> None:
        say(self.said, sentence, role)


def _visible(text: str) -> str:
    """A token's text in HTML, its white space to be seen."""
    return html.escape(text).replace("\n", "↵").replace("\t", "⇥").replace(" ", "&nbsp;") or "&nbsp;"


def _text(name: str, title: str, read_only: bool = True) -> ExactTextEdit:
    return named(ExactTextEdit(), name, title=title, readOnly=read_only, field="true", tabChangesFocus=True)
