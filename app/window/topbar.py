"""The title row, at the top of the window."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from PySide6.QtCore import QSize, Signal
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

from app.language import tr
from app.models.selector import ModelSelector
from app.theme.direction import mirrored
from app.theme.icons import icon
from app.theme.menus import MenuButton
from app.theme.theme import Theme
from app.theme.widgets import button_text, fill, named, show_checked, switched, tip

_HEIGHT = 43
_GAP, _AFTER_NAME = 18, 24
_SMALL_GAP, _LEAST_GAP = 10, 4
_PAGES_PX = 92
"""Width of the menu of the pages."""


_OTHER_SIDE = {"sidebar": "panel", "panel": "sidebar"}
"""Icons that show a side of the window, and those of the other side."""


class TopBar(QFrame):
    """The program's name, the pages as tabs, which model answers, what it runs on, and the folding buttons."""

    page_chosen = Signal(int)

    def __init__(self, pages: list[str], selector: ModelSelector, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self.selector = theme, selector
        self._pages = pages
        self._device = ("", "")
        self._on_chat = True
        """True if the page of the chat is on show."""
        self._hidden: frozenset[str] = frozenset()
        """Names of the folds that are not offered."""
        self._hidden_pages: frozenset[int] = frozenset()
        """Pages that are not offered."""
        named(self, surface="panel", edge="bottom")
        self._row = fill(QHBoxLayout(self), margins=(16, 0, 12, 0), spacing=_GAP)
        name = self._name = QLabel("Kvasir")
        name.setProperty("role", "title")
        self._row.addWidget(name)
        self._after_name = QSpacerItem(_AFTER_NAME, 0)
        self._row.addItem(self._after_name)
        self._tabs = QButtonGroup(self)
        self.menu = named(MenuButton(self), "top.pages", kind="quiet")
        """The pages where there is no room for tabs."""
        self._row.addWidget(self.menu)
        for index, page in enumerate(pages):
            self._add_tab(index, page)
        self.device = named(QLabel(), "top.device", role="mute")
        fill(self._row, (selector, 1), self.device)
        self._folds: list[tuple[QToolButton, str]] = []
        self._fold_row = fill(QHBoxLayout(), spacing=2)
        self._row.addLayout(self._fold_row)
        self.choose(0, True)
        theme.changed.connect(self._recolour)

    @property
    def tabs(self) -> list[QAbstractButton]:
        """The pages' tabs, in their order; hidden where the menu takes their place."""
        return self._tabs.buttons()

    def hide_parts(self, pages: Collection[int], folds: Collection[str]) -> None:
        """Offer all pages and parts of the window but these."""
        self._hidden_pages, self._hidden = frozenset(pages), frozenset(folds)
        self._show_folds()
        self._fill_menu(self._tabs.checkedId())
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
        """Leave out, as the bar gets narrower, the device's name, the device, the program's name, wide gaps and the end
        of the model's name; the last resort is a menu in the place of the tabs.

        Each form is measured as it would be, whatever is shown now: one width has one form.
        """
        long, short = self._device
        for tabs, device, name, gap, whole in (
            (True, long, True, _GAP, True),
            (True, short, True, _GAP, True),
            (True, short, False, _GAP, True),
            (True, short, False, _SMALL_GAP, True),
            (True, short, False, _SMALL_GAP, False),
            (True, "", False, _SMALL_GAP, False),
            (True, "", False, _LEAST_GAP, False),
            (False, short, False, _SMALL_GAP, False),
            (False, "", False, _LEAST_GAP, False),
        ):
            self._show(tabs, device, name, gap)
            least = self.selector.sizeHint() if whole else self.selector.minimumSizeHint()
            others = self._row.minimumSize().width() - self.selector.minimumSizeHint().width()
            if others + least.width() <= self.width():
                return

    def _show(self, tabs: bool, device: str, name: bool, gap: int) -> None:
        self.device.setText(device)
        self.device.setVisible(bool(device))
        self.device.setToolTip(tip(self._device[0]) if device != self._device[0] else "")
        self._name.setVisible(name)
        self._after_name.changeSize(_AFTER_NAME if name else 0, 0)
        self.menu.setVisible(not tabs)
        for index, tab in enumerate(self.tabs):
            tab.setVisible(tabs and index not in self._hidden_pages)
        fill(self._row, margins=(min(16, gap), 0, min(12, gap), 0), spacing=gap)
        self._row.invalidate()

    def choose(self, index: int, chat: bool) -> None:
        """The page on show, and whether it is that of the chat: others have no parts to fold."""
        show_checked(self._tabs.button(index), True)
        self._on_chat = chat
        self._show_folds()
        self._fill_menu(index)
        self._fit()

    def _fill_menu(self, index: int) -> None:
        """The pages that are offered, of which ``index`` is on show."""
        self.menu.clear()
        for at, page in enumerate(self._pages):
            if at not in self._hidden_pages:
                self.menu.offer(page, f"top.page.{at}", partial(self.page_chosen.emit, at), at == index)
        self.menu.show_title(self._pages[index])
        self.menu.setAccessibleName(tr("Page: {name}", name=self._pages[index]))

    def show_device(self, name: str, kind: str) -> None:
        """``kind``: "CPU", say, for where there is no room for its name."""
        self._device = f"{name} · {kind}", kind
        self._fit()

    def _add_tab(self, index: int, page: str) -> None:
        tab = named(QPushButton(button_text(page)), kind="tab", checkable=True)
        switched(tab, lambda on: self.page_chosen.emit(index) if on else None)
        tab.setAccessibleName(tr("Page: {name}", name=page))
        tab.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self._tabs.addButton(tab, index)
        self._row.addWidget(tab)

    def _recolour(self) -> None:
        self.setFixedHeight(max(_HEIGHT, self._theme.px(_HEIGHT)))
        self.menu.setFixedWidth(self._theme.px(_PAGES_PX))
        side = self._theme.px(18)
        for button, image in self._folds:
            button.setIcon(icon(self._theme, _OTHER_SIDE.get(image, image) if mirrored() else image, side))
            button.setIconSize(QSize(side, side))
        self._fit()
