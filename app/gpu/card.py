"""The card above the pages and the part of Settings: they show what :mod:`app.gpu.words` says and know nothing else."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QMenu,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.gpu.words import Button, CardContent
from app.language import tr
from app.theme.menus import ARROW
from app.theme.sheet import restyle
from app.theme.widgets import button_text, caption, clear, fill, menu_text, named, say, tip

_STEPS = 1000


class Buttons(QWidget):
    """A row of buttons that is made again only when its buttons change, so that none is lost under the mouse.

    The keyboard's place stays in the row, at what goes on.
    """

    pressed = Signal(str)

    def __init__(self, prefix: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._prefix = prefix
        self._shown: tuple[tuple[Button, ...], ...] = ()
        self._row = fill(QHBoxLayout(self), margins=0, spacing=8)

    def show_buttons(self, buttons: tuple[Button, ...], more: tuple[Button, ...] = ()) -> None:
        """``more``: those in a menu behind the first of them."""
        if self._shown == (buttons, more):
            return
        self._shown = (buttons, more)
        focus = QApplication.focusWidget()
        focused = focus is not None and (focus is self or self.isAncestorOf(focus))
        clear(self._row)
        made = [*([self._menu(more)] if more else []), *(self._make(button) for button in buttons)]
        for one in made:
            self._row.addWidget(one)
        self.setVisible(bool(made))
        if focused and made:
            last = made[-1]
            last.show()  # nothing that is hidden takes the focus
            # One that cannot be pressed now does not either: another row's would be pressed instead.
            (last if last.isEnabled() else self).setFocus()

    def _menu(self, buttons: tuple[Button, ...]) -> QPushButton:
        made = QPushButton(f"{tr('More')}{ARROW}", self)
        named(made, f"{self._prefix}.more", title=tr("More"), kind="quiet")
        menu = QMenu(made, toolTipsVisible=True)
        for button in buttons:
            action = menu.addAction(menu_text(button.title))
            action.setObjectName(f"{self._prefix}.{button.key}")
            action.setEnabled(not button.why_not)
            action.setToolTip(tip(button.why_not))
            action.triggered.connect(lambda _=False, key=button.key: self.pressed.emit(key))
        made.setMenu(menu)
        return made

    def _make(self, button: Button) -> QPushButton:
        made = named(QPushButton(button_text(button.title), self), f"{self._prefix}.{button.key}", title=button.title)
        if button.primary:
            made.setProperty("kind", "primary")
        elif button.key in ("details", "dismiss", "close", "cancel", "settings"):
            made.setProperty("kind", "quiet")
        made.setEnabled(not button.why_not)
        made.setToolTip(tip(button.why_not))
        made.clicked.connect(lambda _=False, key=button.key: self.pressed.emit(key))
        return made


class ProgressBar(QProgressBar):
    """A thin bar without figures; hidden for None."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setRange(0, _STEPS)
        self.setTextVisible(False)
        self.setAccessibleName(name)
        self.setFixedHeight(6)

    def show_share(self, share: float | None) -> None:
        self.setVisible(share is not None)
        self.setValue(round(_STEPS * (share or 0.0)))


class PackCard(QFrame):
    """Hidden until it has something to say. ``acted`` carries the key of the button that was pressed."""

    acted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "gpu.card", card="notice")
        self._about = ""
        self.title = named(QLabel(wordWrap=True), "gpu.card.title", role="figure")
        self.caption = _words("gpu.card.caption")
        self.details = _words("gpu.card.details")
        self.bar = ProgressBar(tr("Progress of the GPU pack"))
        self.buttons = Buttons("gpu.card")
        self.buttons.pressed.connect(self._on_pressed)
        words = fill(QVBoxLayout(), self.title, self.caption, self.details, spacing=2)
        words.addSpacing(2)
        words.addWidget(self.bar)
        row = QHBoxLayout(self)
        fill(row, (words, 1), (self.buttons, 0, Qt.AlignmentFlag.AlignVCenter), margins=(16, 8, 12, 8), spacing=16)
        self.details.hide()
        self.hide()

    def show_content(self, content: CardContent | None) -> None:
        """None hides the card."""
        if content is None:
            self.hide()
            return
        if content.key != self._about:
            self._about = content.key
            self.details.hide()
        self.title.setText(content.title)
        say(self.caption, content.caption)
        self.details.setText(content.details)
        self.bar.show_share(content.fraction)
        self.buttons.show_buttons(content.buttons)
        if self.property("card") != content.tone:
            self.setProperty("card", content.tone)
            restyle(self)
        self.setAccessibleName(f"{content.title}. {content.caption}")
        self.show()

    def _on_pressed(self, key: str) -> None:
        if key == "details":
            self.details.setVisible(self.details.isHidden())
        else:
            self.acted.emit(key)


def _words(name: str) -> QLabel:
    label = caption(name=name)
    label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
    return label
