"""The controls of a switch row: a painted toggle, a segmented choice, a number."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QDoubleSpinBox, QHBoxLayout, QLabel, QSlider, QSpinBox, QWidget

from app.panel.menu_control import MenuControl
from app.theme.theme import Theme
from app.theme.widgets import Segments, Toggle
from engine.protocol import OptionSpec, Value

_SETTLE_MS = 250
_SLIDER_SPAN = 64
_BOX_PX, _BOX_EDGES_PX = 84, 24
"""A box for a number, and what of it is no text."""
_MOST_SEGMENTS = 4
"""Choices side by side that the panel has room for; more of them are in a menu."""


class BoolControl(Toggle):
    """A :class:`Toggle` for a "bool" option."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.set_spec(spec)
        self.clicked.connect(lambda on: self.changed.emit(bool(on)))

    def set_spec(self, spec: OptionSpec) -> None:
        self.setAccessibleName(spec.title)
        self.setChecked(bool(spec.value))
        self.setEnabled(not spec.disabled_reason)


class ChoiceControl(Segments):
    """Segments for a "choice" option; a choice that cannot apply is greyed and says why in its tooltip."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(spec.title, spec.choices, spec.choice_titles or spec.choices, spec.key, parent)
        self.chosen.connect(lambda choice: self.changed.emit(choice))
        self.set_spec(spec)

    def set_spec(self, spec: OptionSpec) -> None:
        self.setAccessibleName(spec.title)
        self.choose(str(spec.value))
        for choice in spec.choices:
            self.refuse(choice, spec.disabled_reason or spec.disabled_choices.get(choice, ""))


class IntControl(QWidget):
    """A slider with its figure for a short range, a box to type in for a long one."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._settle = QTimer(self)
        self._settle.setSingleShot(True)
        self._settle.setInterval(_SETTLE_MS)
        self._settle.timeout.connect(self._emit)
        self._last = int(spec.value)
        self._zero_means = spec.zero_means
        self._live = ""
        low = int(spec.minimum if spec.minimum is not None else 0)
        high = int(spec.maximum if spec.maximum is not None else 2**31 - 1)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        self._figure: QLabel | None = None
        self._input: QSlider | QSpinBox
        if high - low <= _SLIDER_SPAN:
            self._figure = QLabel()
            self._figure.setProperty("role", "caption")
            self._input = QSlider(Qt.Orientation.Horizontal)
            self._input.setFixedWidth(112)
            self._input.setPageStep(max(1, (high - low) // 8))
            row.addWidget(self._figure)
        else:
            self._input = QSpinBox()
            self._input.setStepType(QSpinBox.StepType.AdaptiveDecimalStepType)
            self._input.setGroupSeparatorShown(True)
            self._input.setAlignment(Qt.AlignmentFlag.AlignRight)
            word = self._input.fontMetrics().horizontalAdvance(spec.zero_means) if low == 0 else 0
            self._input.setFixedWidth(max(_BOX_PX, word + _BOX_EDGES_PX))
            if low == 0 and spec.zero_means:
                self._input.setSpecialValueText(spec.zero_means)
        self._input.setRange(low, high)
        self._input.setObjectName(f"{spec.key}.value")
        row.addWidget(self._input)
        self.set_spec(spec)
        self._input.valueChanged.connect(self._turned)

    def set_spec(self, spec: OptionSpec) -> None:
        self._input.setAccessibleName(spec.title)
        self._input.setEnabled(not spec.disabled_reason)
        if self._settle.isActive():
            return  # the person is still moving it: an older value from the engine must not pull it back
        self._last = int(spec.value)
        self._input.blockSignals(True)
        self._input.setValue(self._last)
        self._input.blockSignals(False)
        self._show(self._last)

    def set_live(self, words: str) -> None:
        """What "automatic" amounts to at the moment, such as "now 4"; empty when nothing is known."""
        if words != self._live:
            self._live = words
            self._show(self._input.value())

    def _turned(self, value: int) -> None:
        self._show(value)
        self._settle.start()

    def _emit(self) -> None:
        value = self._input.value()
        if value != self._last:
            self._last = value
            self.changed.emit(value)

    def _show(self, value: int) -> None:
        if self._figure is not None:
            automatic = ", ".join(part for part in (self._zero_means, self._live) if part)
            self._figure.setText(automatic if value == 0 and self._zero_means else str(value))


class FloatControl(QDoubleSpinBox):
    """A number with a fraction, of which no more is shown than there is."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setRange(
            spec.minimum if spec.minimum is not None else -1e9, spec.maximum if spec.maximum is not None else 1e9
        )
        if spec.minimum == 0 and spec.zero_means:
            self.setSpecialValueText(spec.zero_means)
        self.setDecimals(3)
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.setStepType(QDoubleSpinBox.StepType.AdaptiveDecimalStepType)
        self.setFixedWidth(84)
        self.setKeyboardTracking(False)
        self.set_spec(spec)
        self.valueChanged.connect(lambda value: self.changed.emit(float(value)))

    def textFromValue(self, value: float) -> str:
        return self.locale().toString(value, "g", 7)

    def set_spec(self, spec: OptionSpec) -> None:
        self.setAccessibleName(spec.title)
        self.setEnabled(not spec.disabled_reason)
        self.blockSignals(True)
        self.setValue(float(spec.value))
        self.blockSignals(False)


Control = BoolControl | ChoiceControl | MenuControl | IntControl | FloatControl
"""All have ``set_spec(spec)`` and ``changed``, which carries the value the person chose, never one the program set."""


def control_for(spec: OptionSpec, theme: Theme) -> Control:
    """The control for the option's kind."""
    match spec.kind:
        case "bool":
            return BoolControl(spec, theme)
        case "choice":
            return ChoiceControl(spec, theme) if len(spec.choices) <= _MOST_SEGMENTS else MenuControl(spec)
        case "int":
            return IntControl(spec, theme)
        case "float":
            return FloatControl(spec, theme)


def value_title(spec: OptionSpec, value: Value) -> str:
    """What a person calls ``value`` of this option: "on", "n-gram", "automatic", "512"."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        titles = dict(zip(spec.choices, spec.choice_titles or spec.choices, strict=True))
        return titles.get(value, value)
    if value == 0 and spec.zero_means:
        return spec.zero_means
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
