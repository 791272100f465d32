"""The settings of an experiment that can be chosen: a slider for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QSlider, QWidget

from app.language import figure, known
from app.theme.widgets import fill, named
from engine.protocol.lab import LabSetting


class PageSlider(QSlider):
    """From left to right; it leaves the wheel to the page that it is on."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class SettingSlider(PageSlider):
    """Goes from step to step of a setting."""

    def __init__(self, setting: LabSetting) -> None:
        super().__init__()
        self._setting = setting
        named(self, f"lab.set.{setting.key}", title=known(setting.title))
        steps = (setting.most - setting.least) // setting.step
        self.setRange(setting.least, setting.least + steps * setting.step)
        self.setSingleStep(setting.step)
        self.setPageStep(max(1, steps // 8) * setting.step)
        self.valueChanged.connect(self._snap)

    def _snap(self, value: int) -> None:
        """The mouse may leave it between two steps."""
        least, step = self._setting.least, self._setting.step
        self.setValue(least + round((value - least) / step) * step)


class Sliders(QWidget):
    """``changed`` carries all values."""

    changed = Signal(dict)

    def __init__(self, settings: Sequence[LabSetting]) -> None:
        super().__init__()
        self._settings = list(settings)
        self.each: list[SettingSlider] = []
        grid = fill(QGridLayout(self), margins=0, spacing=(12, -1), wide=1)
        for row, setting in enumerate(self._settings):
            slider, value = SettingSlider(setting), QLabel(figure(setting.least))
            title = QLabel(known(setting.title))
            title.setBuddy(slider)
            named(value, role="small-figure", alignment=Qt.AlignmentFlag.AlignRight)
            value.setMinimumWidth(value.fontMetrics().horizontalAdvance(f"{figure(setting.most)}0"))
            slider.valueChanged.connect(lambda _, of=slider, label=value: label.setText(figure(of.value())))
            slider.valueChanged.connect(lambda: self.changed.emit(self.values))
            for column, widget in enumerate((title, slider, value)):
                grid.addWidget(widget, row, column)
            self.each.append(slider)

    def show_values(self, chosen: Mapping[str, int]) -> None:
        """Put each where it was ``chosen``, or where it usually is."""
        for setting, slider in zip(self._settings, self.each, strict=True):
            slider.setValue(chosen.get(setting.key, setting.usual))

    @property
    def values(self) -> dict[str, int]:
        return {setting.key: slider.value() for setting, slider in zip(self._settings, self.each, strict=True)}
