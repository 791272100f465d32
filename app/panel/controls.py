"""The controls of a switch row: a painted toggle, a segmented choice, a number."""

from __future__ import annotations

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QWidget

from app.language import figure, known, tr
from app.panel.menu_control import MenuControl
from app.panel.titles import in_two
from app.theme.numbers import Fraction, WholeNumber
from app.theme.theme import Theme
from app.theme.widgets import Segments, Toggle, show_checked, switched
from engine.protocol import OptionSpec, Value

_SETTLE_MS = 250
_MOST_LETTERS = 4
"""The most letters of all choices together that the column has room for side by side; more are in a menu."""


class BoolControl(Toggle):
    """A :class:`Toggle` for a "bool" option."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.set_spec(spec)
        switched(self, self.changed.emit)

    def set_spec(self, spec: OptionSpec) -> None:
        self.setAccessibleName(known(spec.title))
        show_checked(self, bool(spec.value))
        self.setEnabled(not spec.disabled_reason)


class ChoiceControl(Segments):
    """Segments for a "choice" option; a choice that cannot apply is greyed and says why in its tooltip."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, parent: QWidget | None = None) -> None:
        super().__init__(known(spec.title), list(spec.titles), choice_titles(spec), spec.key, parent)
        self.chosen.connect(lambda choice: self.changed.emit(choice))
        self.set_spec(spec)

    def set_spec(self, spec: OptionSpec) -> None:
        self.setAccessibleName(known(spec.title))
        self.choose(str(spec.value))
        for choice in spec.titles:
            self.refuse(choice, known(spec.disabled_reason or spec.disabled_choices.get(choice, "")))


class IntControl(WholeNumber):
    """A box to type in. What is not yet settled is not sent, nor overwritten by an older value from the engine."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, parent: QWidget | None = None) -> None:
        super().__init__(True, parent)
        self.setProperty("kind", "choice")
        self._settle = QTimer(self)
        self._settle.setSingleShot(True)
        self._settle.setInterval(_SETTLE_MS)
        self._settle.timeout.connect(self._emit)
        self._last = int(spec.value)
        bounds = spec.range
        self._zero_means = known(bounds.zero_means) if bounds.minimum == 0 else ""
        self.setSpecialValueText(self._zero_means)
        self.setStepType(WholeNumber.StepType.AdaptiveDecimalStepType)
        low = int(bounds.minimum if bounds.minimum is not None else 0)
        self.setRange(low, int(bounds.maximum if bounds.maximum is not None else 2**31 - 1))
        self.setObjectName(f"{spec.key}.value")
        self.set_spec(spec)
        self.valueChanged.connect(lambda _: self._settle.start())

    def set_spec(self, spec: OptionSpec) -> None:
        self.setAccessibleName(known(spec.title))
        self.setEnabled(not spec.disabled_reason)
        if self._settle.isActive():
            return  # the person is still moving it
        self._last = int(spec.value)
        self.blockSignals(True)
        self.setValue(self._last)
        self.blockSignals(False)

    def set_live(self, words: str) -> None:
        """Show the present amount of the automatic value, such as "4"; empty when nothing is known."""
        if self._zero_means:
            self.setSpecialValueText(f"{self._zero_means} ({words})" if words else self._zero_means)

    def _emit(self) -> None:
        value = self.value()
        if value != self._last:
            self._last = value
            self.changed.emit(value)


class FloatControl(Fraction):
    """A number with a fraction, of which no more is shown than there is."""

    changed = Signal(object)

    def __init__(self, spec: OptionSpec, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "choice")
        low, high = spec.range.minimum, spec.range.maximum
        self.setRange(low if low is not None else -1e9, high if high is not None else 1e9)
        if low == 0 and spec.range.zero_means:
            self.setSpecialValueText(known(spec.range.zero_means))
        self.setDecimals(3)
        unit = in_two(known(spec.title))[1]
        self.setSuffix(f" {unit}" if unit else "")
        self.setStepType(Fraction.StepType.AdaptiveDecimalStepType)
        self.set_spec(spec)
        self.valueChanged.connect(lambda value: self.changed.emit(float(value)))

    def textFromValue(self, value: float) -> str:
        return self.locale().toString(value, "g", 7)

    def set_spec(self, spec: OptionSpec) -> None:
        self.setAccessibleName(known(spec.title))
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
            short = len("".join(choice_titles(spec))) <= _MOST_LETTERS
            return ChoiceControl(spec) if short else MenuControl(spec)
        case "int":
            return IntControl(spec)
        case "float":
            return FloatControl(spec)


def choice_titles(spec: OptionSpec) -> list[str]:
    """What a person calls the choices, in their order."""
    return list(map(known, spec.titles.values()))


def value_title(spec: OptionSpec, value: Value) -> str:
    """Title of ``value`` of this option, as a person calls it: "on", "n-gram", "auto", "512"."""
    if isinstance(value, bool):
        return tr("on", "a switch") if value else tr("off", "a switch")
    if isinstance(value, str):
        return known(spec.titles.get(value, value))
    if value == 0 and spec.range.zero_means:
        return known(spec.range.zero_means)
    return figure(value, "," if isinstance(value, int) else "g")
