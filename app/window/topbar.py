"""The bar at the top of the window."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QButtonGroup,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QSpacerItem,
    QToolButton,
    QWidget,
)

from app.theme.icons import icon
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, button_text, fill, named, show_checked, switched, tip

_HEIGHT = 43
_GAP, _AFTER_NAME = 18, 24


class TopBar(QFrame):
    """The program's name, the pages as tabs, what the engine runs on, what it is doing, and the folding buttons."""

    page_chosen = Signal(int)

    def __init__(self, pages: list[str], theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._engine_words = self._chat_words = ""
        self._on_chat = True
        """True if the page of the chat is on show."""
        self._hidden: frozenset[str] = frozenset()
        """Names of the folds that are not offered."""
        named(self, surface="panel", edge="bottom")
        self._row = fill(QHBoxLayout(self), margins=(16, 0, 12, 0), spacing=_GAP)
        name = self._name = QLabel("Kvasir")
        name.setProperty("role", "title")
        self._row.addWidget(name)
        self._after_name = QSpacerItem(_AFTER_NAME, 0)
        self._row.addItem(self._after_name)
        self._tabs = QButtonGroup(self)
        for index, page in enumerate(pages):
            self._add_tab(index, page)
        self.status = named(ElidedLabel("", "caption"), "top.status", title="Engine status")
        self.status.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.status.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.device = named(QLabel(), "top.device", role="mute")
        fill(self._row, (self.status, 1), self.device)
        self._folds: list[tuple[QToolButton, str]] = []
        self._fold_row = fill(QHBoxLayout(), spacing=2)
        self._row.addLayout(self._fold_row)
        theme.changed.connect(self._recolour)

    @property
    def tabs(self) -> list[QAbstractButton]:
        """The pages' buttons, in their order."""
        return self._tabs.buttons()

    def hide_parts(self, pages: Collection[int], folds: Collection[str]) -> None:
        """Offer all pages and parts of the window but these."""
        for index, tab in enumerate(self.tabs):
            tab.setVisible(index not in pages)
        self._hidden = frozenset(folds)
        self._show_folds()
        self._fit()

    def _show_folds(self) -> None:
        for button, image in self._folds:
            button.setVisible(self._on_chat and image not in self._hidden)

    def add_fold(self, name: str, image: str, on: bool) -> QToolButton:
        """A checkable button that shows or hides a part of the window."""
        button = named(QToolButton(), kind="quiet", checkable=True)
        button.setChecked(on)
        named(button, f"top.{image}", title=name, tooltip=tip(name))
        self._fold_row.addWidget(button)
        self._folds.append((button, image))
        self._recolour()
        return button

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def _fit(self) -> None:
        """Fit the bar to its width: if it is too narrow, leave out the device, then the name, then wide gaps."""
        for device, name, gap in ((True, True, _GAP), (False, True, _GAP), (False, False, _GAP), (False, False, 4)):
            self.device.setVisible(device)
            self._name.setVisible(name)
            self._after_name.changeSize(_AFTER_NAME if name else 0, 0)
            fill(self._row, margins=(min(16, gap), 0, min(12, gap), 0), spacing=gap)
            self._row.invalidate()
            if self._row.minimumSize().width() <= self.width():
                return

    def choose(self, index: int, chat: bool) -> None:
        """The page on show, and whether it is that of the chat: others have no parts to fold."""
        show_checked(self._tabs.button(index), True)
        self._on_chat = chat
        self._show_folds()
        self._fit()
        self._show_status()

    def show_device(self, words: str) -> None:
        self.device.setText(words)
        self._fit()

    def show_engine(self, words: str) -> None:
        """Show what the engine is doing before it answers; "" once it does."""
        self._engine_words = words
        self._show_status()

    def show_chat(self, words: str) -> None:
        """Show what the chat is busy with, which its own page says for itself."""
        self._chat_words = words
        self._show_status()

    def _show_status(self) -> None:
        self.status.setText(self._engine_words or ("" if self._on_chat else self._chat_words))

    def _add_tab(self, index: int, page: str) -> None:
        tab = named(QPushButton(button_text(page)), kind="tab", checkable=True)
        tab.setChecked(index == 0)
        switched(tab, lambda on: self.page_chosen.emit(index) if on else None)
        tab.setAccessibleName(f"Page: {page}")
        tab.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self._tabs.addButton(tab, index)
        self._row.addWidget(tab)

    def _recolour(self) -> None:
        self.setFixedHeight(max(_HEIGHT, self._theme.px(_HEIGHT)))
        side = self._theme.px(18)
        for button, image in self._folds:
            button.setIcon(icon(self._theme, image, side))
            button.setIconSize(QSize(side, side))
        self._fit()
