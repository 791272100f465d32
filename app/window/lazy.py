"""A page of the window that is made when it is first shown, so that it costs a start of the program nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.theme.widgets import FocusFirst, fill

Inner = TypeVar("Inner", bound=QWidget)


class LazyPage(FocusFirst, Generic[Inner]):
    """``inner`` is None until then."""

    def __init__(self, make: Callable[[], Inner]) -> None:
        super().__init__()
        self._make = make
        self.inner: Inner | None = None
        self.setProperty("surface", "bg")

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self.inner is None:
            self.inner = self._make()
            fill(QVBoxLayout(self), self.inner, margins=0)
            self.first = self.inner
