"""Player of a result's pictures, moment by moment."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QWidget

from app.lab.sliders import PageSlider
from app.language import tr
from app.theme.theme import Theme
from app.theme.widgets import fill, named, tip

_FRAME_MS, _SLOWEST_MS, _SECONDS = 40, 400, 12
"""A moment takes from one to the other, and all of them about so many seconds, however many there are."""
MEASURED = 50
"""Moments that tell how wide what is said may become."""


class Player(QWidget):
    """``moved`` carries the moment that is to be shown, 0 to the last: at the last all is there."""

    moved = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._said: Callable[[int], str] = lambda _: ""
        self.button = QPushButton()
        self.button.setObjectName("lab.play")
        self.button.setToolTip(tip(tr("Show again how these pictures came about, all sides at the same pace.")))
        self.button.clicked.connect(self._toggle)
        self.slider = named(PageSlider(), "lab.moment", title=tr("Moment of the run"))
        self.slider.valueChanged.connect(self._on_moved)
        self.slider.sliderPressed.connect(self.stop)
        self._where = named(QLabel(), "lab.moment.said", role="caption")
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._step)
        fill(QHBoxLayout(self), self.button, (self.slider, 1), self._where, margins=0, spacing=12)
        theme.changed.connect(self._fit)
        self.show_moments(0, self._said)

    @property
    def playing(self) -> bool:
        return self._timer.isActive()

    def show_moments(self, count: int, said: Callable[[int], str]) -> None:
        """Set the number of moments and the words ``said`` of each; it stands at the last one."""
        self.stop()
        self._said = said
        self.slider.blockSignals(True)
        self.slider.setRange(0, count)
        self.slider.setPageStep(max(1, count // 10))
        self.slider.setValue(count)
        self.slider.blockSignals(False)
        self._fit()
        self._tell()
        self.setVisible(count > 0)

    def stop(self) -> None:
        """Stay where it is."""
        self._timer.stop()
        self._name(tr("Play"), tr("Play: how these pictures came about"))

    def finish(self) -> None:
        """Stop, with all there."""
        self.stop()
        self.slider.setValue(self.slider.maximum())

    def _toggle(self) -> None:
        if self.playing:
            self.stop()
            return
        count = self.slider.maximum()
        if self.slider.value() == count:
            self.slider.setValue(0)
        self._timer.start(min(_SLOWEST_MS, max(_FRAME_MS, 1000 * _SECONDS // max(1, count))))
        self._name(tr("Pause"), tr("Pause: how these pictures came about"))

    def _step(self) -> None:
        by = max(1, round(self.slider.maximum() * _FRAME_MS / (1000 * _SECONDS)))
        self.slider.setValue(self.slider.value() + by)
        if self.slider.value() == self.slider.maximum():
            self.stop()

    def _on_moved(self, moment: int) -> None:
        self._tell()
        self.moved.emit(moment)

    def _tell(self) -> None:
        self._where.setText(said := self._said(self.slider.value()))
        self.slider.setAccessibleDescription(said)

    def _fit(self) -> None:
        """Give the words the room of the longest ones, so that the slider keeps its length."""
        metrics = self._where.fontMetrics()
        last = self.slider.maximum()
        shown = {*range(0, last + 1, max(1, last // MEASURED)), 1, last}
        most = max(metrics.horizontalAdvance(self._said(min(at, last))) for at in shown)
        self._where.setMinimumWidth(most + metrics.averageCharWidth())

    def _name(self, text: str, title: str) -> None:
        self.button.setText(text)
        self.button.setAccessibleName(title)
