"""Fields for numbers, which take point and comma for the decimals whatever the computer's language writes."""

from __future__ import annotations

import re

from PySide6.QtCore import QLocale, Qt
from PySide6.QtGui import QFocusEvent, QValidator
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox, QWidget

from app.theme.widgets import named

_GROUPED = re.compile(r"[+-]?\d{1,3}(?:(?P<mark>[.,'’\s])\d{3})(?:(?P=mark)\d{3})*")
_GROUPING = re.compile(r"[+-]?\d{1,3}(?:[.,'’\s]\d{0,3})+")
_END_PX = 6
"""Between the last letter and the frame: the style sheet's padding does not hold where text is flush right."""
_MARKS = re.compile(r"[.,'’\s]")
_INTERMEDIATE, _INVALID = QValidator.State.Intermediate, QValidator.State.Invalid


def with_point(text: str, point: str) -> str:
    """A number as it was typed, with ``point`` before its decimals: the last of points and commas, which separate
    groups of digits where there are several of the same."""
    marks = [mark for mark in text if mark in ".,"]
    if not marks:
        return text
    last = text.rindex(marks[-1])
    decimals = point + text[last + 1 :] if marks.count(marks[-1]) == 1 else text[last + 1 :]
    return text[:last].replace(".", "").replace(",", "") + decimals


def without_groups(text: str) -> str | None:
    """A whole number as it was typed, without what separates its groups of three; None where these are none, as in
    8.5."""
    if _GROUPED.fullmatch(text):
        return _MARKS.sub("", text)
    return None if _MARKS.search(text) else text


class WholeNumber(QSpinBox):
    """``grouped``: 131,072 rather than 131072, but for where one types."""

    def __init__(self, grouped: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._grouped = grouped
        named(self, showGroupSeparator=grouped, alignment=Qt.AlignmentFlag.AlignRight)
        self.lineEdit().setTextMargins(0, 0, _END_PX, 0)
        self.setKeyboardTracking(False)

    def validate(self, text: str, pos: int) -> tuple[QValidator.State, str, int]:
        if text == self.specialValueText():
            return super().validate(text, pos)
        plain = without_groups(typed := _body(self, text))
        if plain is not None:
            state = super().validate(f"{self.prefix()}{plain}{self.suffix()}", pos)[0]
        else:
            state = _INTERMEDIATE if _GROUPING.fullmatch(typed) else _INVALID
        return state, text, pos

    def fixup(self, text: str) -> str:
        """Nothing is made a number that is none: the value stays what it was."""
        return text

    def valueFromText(self, text: str) -> int:
        return super().valueFromText(without_groups(_body(self, text)) or "")

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Taking a digit out of 1,024 would leave 1,02, which is not a number."""
        self.setGroupSeparatorShown(False)
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.setGroupSeparatorShown(self._grouped)


class Fraction(QDoubleSpinBox):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        locale = QLocale()
        locale.setNumberOptions(QLocale.NumberOption.OmitGroupSeparator | QLocale.NumberOption.RejectGroupSeparator)
        self.setLocale(locale)
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.lineEdit().setTextMargins(0, 0, _END_PX, 0)
        self.setKeyboardTracking(False)

    def validate(self, text: str, pos: int) -> tuple[QValidator.State, str, int]:
        if text == self.specialValueText():
            return super().validate(text, pos)
        said = f"{self.prefix()}{with_point(_body(self, text), self.locale().decimalPoint())}{self.suffix()}"
        state = super().validate(said, min(pos, len(said)))[0]
        if state is _INVALID and _GROUPING.fullmatch(_body(self, text)):  # on the way to 1,234.5
            state = _INTERMEDIATE
        return state, text, pos

    def fixup(self, text: str) -> str:
        """Return the text unchanged, same as :class:`WholeNumber`."""
        return text

    def valueFromText(self, text: str) -> float:
        return super().valueFromText(with_point(_body(self, text), self.locale().decimalPoint()))


def _body(field: QSpinBox | QDoubleSpinBox, text: str) -> str:
    """Text that a person typed between the field's prefix and suffix."""
    return text.removeprefix(field.prefix()).removesuffix(field.suffix()).strip()
