"""Under a message: what the answer cost, which version is shown, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QWidget

from app.chat.elsewhere import reason
from app.chat.transcript.offered import about
from app.chat.transcript.stats import SHARES, date_of, describe, explain, time_of, writer
from app.history.records import StoredMessage
from app.language import tr
from app.theme.sheet import set_role
from app.theme.widgets import button_text, fill, named, tip

_ACTIONS = {
    "tool": (("retry", tr("Go on")),),
    "user": (("retry", tr("Try again")), ("edit", tr("Edit")), ("begin", tr("Begin answer")), ("copy", tr("Copy"))),
    "assistant": (
        ("continue", tr("Continue")),
        ("learn", tr("See why")),
        ("copy", tr("Copy")),
        ("edit", tr("Edit")),
        ("regenerate", tr("Regenerate")),
        ("again", tr("Run again exactly")),
        ("compare", tr("Compare")),
        ("overflow", tr("When it is full…")),
    ),
}
_HELP = {
    "learn": tr("See in the Lab what made the difference"),
    "regenerate": tr("Another answer, drawn with a new seed"),
    "again": tr("The same prompt, settings and seed: the text should be the same"),
    "compare": tr("Show this answer and the one that it repeats side by side"),
    "overflow": tr("Choose what happens when this conversation outgrows the context"),
    "edit": tr("Change this message and send it again; the present branch is kept"),
    "begin": tr("Write the first words of an answer, and let the model go on from them"),
    "continue": tr("Let the model go on where the text ends"),
    "retry": tr("Ask for an answer to this message"),
    "copy": tr("Copy the whole message as Markdown"),
}
_ANSWER_HELP = {
    "edit": tr("Change this answer, or let the model go on from its first words; it is kept as another version"),
}

LEAST_PX = 80
"""Pixels of the line that a verdict leaves for the figures."""
FIGURE_PX = 40
"""Pixels without which figures are not shown next to a verdict."""
WHO_LEAVES_PX = 160
"""Pixels for the figures without which model and time are not shown."""


class Footer(QWidget):
    """Statistics, the branch switcher, and actions that show on hover, on focus or under the last message."""

    acted = Signal(str)

    def __init__(self, message: StoredMessage, parent: QWidget) -> None:
        super().__init__(parent)
        self._message = message
        self._role = message.role
        row = fill(QHBoxLayout(self), margins=0, spacing=14)
        self.who = named(QLabel(self, textFormat=Qt.TextFormat.PlainText), "message-who", role="caption")
        self.who.setVisible(False)
        self._texts = [""]
        """The figures, from all of them to the fewest."""
        self._names = False
        """True if the model is another one than that of the answer before."""
        self.stats = named(QLabel(self, textFormat=Qt.TextFormat.PlainText), "answer-stats", role="caption")
        self.verdict = named(QLabel(self), "answer-repeat")
        self.verdict.setVisible(False)
        self._switcher = QWidget(self)
        self._actions = QWidget(self, visible=False)
        self._buttons: dict[str, QPushButton] = {}
        if message.role == "user":
            row.addStretch(1)
        fill(row, self.verdict, self.who, self.stats, self._switcher, self._actions)
        if message.role == "assistant":
            row.addStretch(1)
        self._fill_switcher()
        self._switcher.setVisible(False)

    def show_stats(self, message: StoredMessage) -> None:
        self._message = message
        self._show_who()
        self._texts = [describe(message, share) for share in SHARES] if message.role == "assistant" else [""]
        self.stats.setText(self._texts[0])
        self.stats.setToolTip(tip(explain(message) if message.role == "assistant" else ""))
        self.stats.setVisible(bool(self.stats.text()))
        set_role(self.stats, "warn" if message.stats.reason == "context" else "caption")
        repeat = message.stats.repeat
        self.verdict.setVisible(repeat is not None)
        if repeat is not None:
            self.verdict.setToolTip(tip(repeat.verdict))
            set_role(self.verdict, "good" if repeat.same else "warn")

    def show_model(self, named: bool) -> None:
        """Show the name of the model, or leave it to the tooltip."""
        if named != self._names:
            self._names = named
            self._show_who()
            self.choose(self.width())

    @property
    def branches_corner(self) -> QPoint:
        """The place on the screen for a list of the versions."""
        return self._position.mapToGlobal(QPoint(0, self._position.height()))

    def _show_who(self) -> None:
        """Show the time, and the model where that is another one; both with the date in the tooltip."""
        message = self._message
        model, time = writer(message), time_of(message)
        self.who.setText(" · ".join(filter(None, (model if self._names else "", time))))
        self.who.setToolTip(tip("\n".join(filter(None, (model, date_of(message))))))
        streams = message.state == "streaming"
        self.who.setVisible(message.role == "assistant" and bool(self.who.text()) and not streams)

    def show_branch(self, index: int, count: int) -> None:
        """``index`` from 0; nothing is shown for an only version."""
        self._position.setText(f"{index + 1} / {count}")
        spoken = tr("Version {number} of {count}: all versions in this chat", number=index + 1, count=count)
        self._position.setAccessibleName(spoken)
        self._switcher.setVisible(count > 1)
        self._previous.setEnabled(index > 0)
        self._next.setEnabled(index < count - 1)

    def show_actions(self, visible: bool, names: Sequence[str]) -> None:
        if visible and not self._buttons:
            self._fill_actions()
        for name, button in self._buttons.items():
            button.setVisible(name in names)
        if "learn" in names and (learn := self._buttons.get("learn")) is not None:
            learn.setToolTip(tip(tr("See in the Lab why: {figure}", figure=about(self._message))))
        self._actions.setVisible(visible)
        if self._role == "user":
            self.who.setVisible(visible and bool(self.who.text()))
        self.choose(self.width())

    def choose(self, width: int) -> None:
        """Leave some of the line's facts to the tooltip if ``width`` pixels do not hold all of it."""
        if self._role == "user" or not self.stats.text():
            return
        others = [widget for widget in (self._switcher, self._actions) if not widget.isHidden()]
        room = width - sum(widget.sizeHint().width() + 14 for widget in others)
        metrics = self.stats.fontMetrics()
        if (repeat := self._message.stats.repeat) is not None:
            verdict = metrics.elidedText(repeat.verdict, Qt.TextElideMode.ElideRight, max(120, room - LEAST_PX))
            self.verdict.setText(verdict)
            room -= metrics.horizontalAdvance(verdict) + 14
            self.stats.setVisible(room >= FIGURE_PX)
        texts = self._texts

        def fits(room: int) -> str:
            return next((text for text in texts if metrics.horizontalAdvance(text) <= room), texts[-1])

        if self.who.text() and self._message.state != "streaming":
            rest = room - self.who.sizeHint().width() - 14
            # A name stays as long as there is room for figures; the time costs none of them.
            free = fits(rest) == fits(room) and metrics.horizontalAdvance(fits(rest)) <= rest
            self.who.setVisible(rest >= WHO_LEAVES_PX and (self._names or free))
            room = room if self.who.isHidden() else rest
        self.stats.setText(metrics.elidedText(fits(room), Qt.TextElideMode.ElideRight, max(FIGURE_PX, room)))

    def _fill_switcher(self) -> None:
        row = fill(QHBoxLayout(self._switcher), margins=0, spacing=6)
        help_text = tr("All versions in this chat, as a list")
        self._position = self._button("", "branches", help_text, self._switcher)
        self._previous = self._button("‹", "previous", tr("Previous version"), self._switcher)
        self._next = self._button("›", "next", tr("Next version"), self._switcher)
        for widget in (self._previous, self._position, self._next):
            row.addWidget(widget)

    def _fill_actions(self) -> None:
        row = fill(QHBoxLayout(self._actions), margins=0, spacing=14)
        helps = _HELP | (_ANSWER_HELP if self._role == "assistant" else {})
        for name, title in _ACTIONS[self._role]:
            self._buttons[name] = self._button(title, name, helps[name], self._actions)
            row.addWidget(self._buttons[name])
        if self._message.stats.remote is not None and "again" in self._buttons:
            self._buttons["again"].setEnabled(False)
            self._buttons["again"].setToolTip(tip(reason(self._message.stats.remote)))

    def _button(self, title: str, name: str, help_text: str, parent: QWidget) -> QPushButton:
        button = QPushButton(button_text(title), parent)
        named(
            button, f"message-{name}", title=help_text if len(title) < 2 else title, tooltip=tip(help_text), kind="link"
        )
        button.clicked.connect(lambda: self.acted.emit(name))
        return button
