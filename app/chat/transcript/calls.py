"""Calls of tools and their results in the transcript, folded; a call that waits to be allowed shows all of it."""

from __future__ import annotations

from PySide6.QtCore import QRect, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from app.chat.pictures import ShownPictures
from app.chat.session.tools import ShownCall
from app.chat.transcript.folded import GAP_PX, INDENT_PX, Folded
from app.language import plural, tr
from app.theme.direction import mirror
from app.theme.theme import Theme
from app.theme.widgets import fill, named, tip
from engine.protocol import ToolResult
from engine.protocol.rounds import pretty, readable

BUTTONS_PX = 30
_BUTTONS = (
    ("once", tr("Allow once"), tr("Run this call, and ask again for the next one")),
    ("always", tr("Always allow"), tr("Run it, and from now on every call of this tool, in all chats")),
    ("deny", tr("Deny"), tr("Do not run it; the model is told so")),
)


class CallBlock(Folded):
    """``decided`` carries "once", "always" or "deny"."""

    decided = Signal(str)

    def __init__(self, shown: ShownCall, theme: Theme, parent: QWidget) -> None:
        super().__init__("call", tr("Show or hide the arguments of this call"), tr("Arguments"), theme, parent)
        self._call = shown
        self.buttons = QWidget(self)
        row = fill(QHBoxLayout(self.buttons), margins=0, spacing=8)
        for name, title, help_text in _BUTTONS:
            button = named(QPushButton(title, self.buttons), f"call-{name}", tooltip=tip(help_text))
            button.setAccessibleName(f"{title}: {readable(shown.call.name)}")
            if name == "once":
                named(button, kind="primary")
            button.clicked.connect(lambda _=False, name=name: self.decided.emit(name))
            row.addWidget(button)
        row.addStretch(1)
        self._refresh_all()

    def show_call(self, shown: ShownCall) -> bool:
        """Show how it stands now; True if it stood otherwise before."""
        changed, self._call = shown != self._call, shown
        if changed:
            self._refresh_all()
        return changed

    def _refresh_all(self) -> None:
        self.buttons.setVisible(self._call.state == "asked")
        self.refresh()

    def words(self) -> tuple[str, str]:
        name = readable(self._call.call.name)
        if self._call.state == "asked":
            title = name = tr("{name} · may it run?", name=name)
        elif self._call.state == "running":
            title = f"{tr('{name} · running…', name=name)} {self._call.note}".rstrip()
        else:
            title = name
        return title, tr("Call of {name}", name=name)

    def wanted(self) -> str:
        asked = self._call.state == "asked"
        arguments = pretty(self._call.call.arguments) if self._open or asked else ""
        return f"{self._call.note}\n\n{arguments}" if asked and self._call.note else arguments

    def fit(self, width: int) -> int:
        height = super().fit(width)
        if self.buttons.isHidden():
            return height
        room = max(self._theme.px(BUTTONS_PX), self.buttons.sizeHint().height())
        self.buttons.setGeometry(mirror(QRect(INDENT_PX, height + 2 * GAP_PX, width - INDENT_PX, room), width))
        return height + 2 * GAP_PX + room


class ResultBlock(Folded):
    """What a tool returned."""

    def __init__(self, result: ToolResult, theme: Theme, parent: QWidget) -> None:
        super().__init__("result", tr("Show or hide what the tool returned"), tr("Result"), theme, parent)
        self._result = result
        self._pictures = ShownPictures(result.pictures, self) if result.pictures else None
        self.refresh()

    def words(self) -> tuple[str, str]:
        title = _title_of(self._result)
        if not self._result.name:
            return title, title
        return title, tr("{result} of {tool}", result=title, tool=readable(self._result.name))

    def wanted(self) -> str:
        return (self._result.content or tr("(no text)")) if self._open else ""

    def fit(self, width: int) -> int:
        height = super().fit(width)
        if self._pictures is None:
            return height
        self._pictures.setVisible(self._open)
        if not self._open:
            return height
        size = self._pictures.fit(width - INDENT_PX)
        self._pictures.setGeometry(mirror(QRect(INDENT_PX, height + GAP_PX, size.width(), size.height()), width))
        return height + GAP_PX + size.height()


def _title_of(result: ToolResult) -> str:
    """A result in a line: its size, or how it failed."""
    if result.failed:
        return tr("Failed: {why}", why=result.content.strip().partition("\n")[0][:80])
    size = plural("1 character", "{n:,} characters", len(result.content))
    if result.pictures:
        size = f"{size}, {plural('1 picture', '{n:,} pictures', len(result.pictures))}"
    return tr("Result: {size}", size=size)
