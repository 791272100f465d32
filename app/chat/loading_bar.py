"""While a model is being loaded: which one, how far it is, for how long already, and a way to stop."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from app.theme.theme import Theme
from app.theme.widgets import FillBar, fill, named
from engine.protocol import Loading


class LoadingBar(QFrame):
    """Hidden while nothing is loaded. Its clock runs only while it shows."""

    cancelled = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "loading-bar", edge="bottom")
        self._began = 0.0
        self._loading: Loading | None = None
        self._label = named(QLabel(self), "loading-words")
        self._label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._bar = FillBar(theme, self)
        self._bar.setFixedWidth(120)
        self._figures = named(QLabel(self), role="mute")
        self._cancel = named(
            QPushButton("Cancel", self), "cancel-load", title="Cancel loading the model", clicked=self.cancelled
        )
        row = QHBoxLayout(self)
        fill(row, (self._label, 1), self._bar, self._figures, self._cancel, margins=(24, 6, 16, 6), spacing=12)
        self._clock = named(QTimer(self, interval=1000), "loading-clock")
        self._clock.timeout.connect(self._tell)
        self.setVisible(False)

    @property
    def text(self) -> str:
        return "" if self.isHidden() else f"{self._label.text()} {self._figures.text()}"

    def show_loading(self, loading: Loading | None) -> None:
        """Show how far the load is; None when it ended."""
        self._loading = loading
        if loading is None:
            self.stop()
            self.setVisible(False)
            return
        if self.isHidden():
            self._began = time.monotonic()
            self._clock.start()
        self._tell()
        self.setVisible(True)

    def stop(self) -> None:
        """The program closes."""
        self._clock.stop()

    def _tell(self) -> None:
        if self._loading is None:
            return
        self._label.setText(f"Loading {Path(self._loading.model).name}: {self._loading.stage}")
        self._figures.setText(f"{self._loading.fraction:.0%} · {time.monotonic() - self._began:.0f} s")
        self._bar.fraction = self._loading.fraction
        self._bar.update()
        self.setAccessibleName(f"{self._label.text()}, {self._loading.fraction:.0%}")
