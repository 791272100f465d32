"""Buttons with a menu of what can be chosen, on which what is chosen now stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QWidget

from app.theme.widgets import button_text, menu_text, named, tip

ARROW = " ▾"


class MenuButton(QPushButton):
    """A button with what is chosen now, cut where it has no room, and a menu of what can be."""

    edges = 24
    """Pixels of the button's width that hold no text."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "choice")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._title = ""
        self._menu = QMenu(self)
        self.setMenu(self._menu)

    def clear(self) -> None:
        """Offer nothing any more."""
        self._menu.clear()

    def offer(self, title: str, name: str, act: Callable[[], object], checked: bool | None = None) -> QAction:
        """Add to the menu what calls ``act``; with a mark of choice where ``checked`` is not None."""
        action = self._menu.addAction(menu_text(title))
        named(action, name, tooltip=tip(title), checkable=checked is not None)
        action.setChecked(bool(checked))
        action.triggered.connect(lambda _=False: act())
        return action

    def separate(self) -> None:
        self._menu.addSeparator()

    @property
    def title(self) -> str:
        """Title of the choice, in full."""
        return self._title

    def show_title(self, title: str) -> None:
        self._title = title
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def _fit(self) -> None:
        room = self.width() - self.edges - self.fontMetrics().horizontalAdvance(ARROW)
        shown = self.fontMetrics().elidedText(self._title, Qt.TextElideMode.ElideRight, room)
        self.setText(button_text(shown) + ARROW)


class ChoiceGroup(NamedTuple):
    """Titles by their keys, under a heading."""

    heading: str
    titles: Mapping[str | None, str]


class ChoiceButton(MenuButton):
    """One of ``titles`` by their keys. ``changed`` follows a choice of the person's."""

    changed = Signal()

    def __init__(self, name: str, titles: Mapping[str | None, str]) -> None:
        super().__init__()
        self._name, self._titles = name, titles
        self._groups: Sequence[ChoiceGroup] = ()
        self.key: str | None = None

    def choose(self, key: str | None) -> None:
        """A key without a title was chosen when there was such a thing, and stays until the person chooses again."""
        self.key = key
        self.clear()
        every = [self._titles, *(group.titles for group in self._groups)]
        known = {each: title for titles in every for each, title in titles.items()}
        self._offer_all(self._titles if key in known else {**self._titles, key: str(key)})
        for group in self._groups:
            self.separate()
            self._menu.addAction(menu_text(group.heading)).setEnabled(False)
            self._offer_all(group.titles)
        title = known.get(key, str(key))
        self.setAccessibleName(f"{self._name}: {title}")
        self.show_title(title)

    def retitle(self, titles: Mapping[str | None, str], groups: Sequence[ChoiceGroup] = ()) -> None:
        """Offer these, and ``groups`` behind them; what is chosen stays."""
        self._titles, self._groups = titles, groups
        self.choose(self.key)

    def _offer_all(self, titles: Mapping[str | None, str]) -> None:
        for each, title in titles.items():
            self.offer(title, f"{self.objectName()}.{each}", partial(self._pick, each), each == self.key)

    def _pick(self, key: str | None) -> None:
        self.choose(key)
        self.changed.emit()
