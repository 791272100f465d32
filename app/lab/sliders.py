"""The settings of an experiment that can be chosen: a slider for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QSlider, QWidget

from engine.protocol.lab import LabSetting


class Sliders(QWidget):
    def __init__(self, settings: Sequence[LabSetting]) -> None:
        super().__init__()
        self._settings = list(settings)
        self._sliders: list[QSlider] = []
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(12)
        grid.setColumnStretch(1, 1)
        for row, setting in enumerate(self._settings):
            slider, value = QSlider(Qt.Orientation.Horizontal), QLabel()
            slider.setObjectName(f"lab.set.{setting.key}")
            slider.setAccessibleName(setting.title)
            slider.setRange(0, (setting.most - setting.least) // setting.step)
            slider.setPageStep(max(1, slider.maximum() // 8))
            title = QLabel(setting.title)
            title.setBuddy(slider)
            value.setProperty("role", "small-figure")
            value.setAlignment(Qt.AlignmentFlag.AlignRight)
            value.setMinimumWidth(value.fontMetrics().horizontalAdvance(f"{setting.most:,}0"))
            slider.valueChanged.connect(
                lambda at, to=setting, label=value: label.setText(f"{to.least + at * to.step:,}")
            )
            for column, widget in enumerate((title, slider, value)):
                grid.addWidget(widget, row, column)
            self._sliders.append(slider)

    def show_values(self, chosen: Mapping[str, int]) -> None:
        """Put each where it was ``chosen``, or where it usually is."""
        for setting, slider in zip(self._settings, self._sliders, strict=True):
            slider.setValue((chosen.get(setting.key, setting.usual) - setting.least) // setting.step)
            slider.valueChanged.emit(slider.value())

    @property
    def values(self) -> dict[str, int]:
        return {
            setting.key: setting.least + slider.value() * setting.step
            for setting, slider in zip(self._settings, self._sliders, strict=True)
        }
