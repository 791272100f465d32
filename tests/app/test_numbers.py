"""Fields for numbers take what a person types in any language's way, and never another number."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QLocale, Qt
from PySide6.QtWidgets import QAbstractSpinBox

from app.theme.numbers import Fraction, WholeNumber, with_point, without_groups


@pytest.fixture(params=["de_DE", "en_US", "fr_FR", "de_CH", "ar_EG"])
def language(request) -> None:
    before = QLocale()
    QLocale.setDefault(QLocale(request.param))
    yield
    QLocale.setDefault(before)


def typed(qtbot, field: QAbstractSpinBox, keys: str) -> float:
    field.setFocus()
    field.lineEdit().selectAll()
    qtbot.keyClicks(field.lineEdit(), keys)
    qtbot.keyClick(field.lineEdit(), Qt.Key.Key_Return)
    return field.value()


FRACTIONS = {"8.5": 8.5, "8,5": 8.5, "0.25": 0.25, "1.234,5": 1234.5, "1,234.5": 1234.5, "12": 12.0}
NUMBERS = {"1024": 1024, "1,024": 1024, "1.024": 1024, "131.072": 131_072, "8.5": 7, "8,5": 7, "1.02": 7}
"""What is no whole number leaves the one that is there."""


@pytest.mark.parametrize(("kind", "expected"), [(Fraction, FRACTIONS), (WholeNumber, NUMBERS)])
def test_point_and_comma_are_taken_in_every_language(qtbot, language, kind, expected):
    field = kind()
    qtbot.addWidget(field)
    field.setRange(0, 1_000_000)
    field.setSuffix(" GB")
    field.show()
    found = {}
    for keys in expected:
        field.setValue(7)
        found[keys] = typed(qtbot, field, keys)
    assert found == expected


def test_a_digit_is_taken_out_of_a_grouped_number(qtbot, language):
    field = WholeNumber(grouped=True)
    qtbot.addWidget(field)
    field.setRange(0, 1_000_000)
    field.setValue(1024)
    field.show()
    field.setFocus()
    qtbot.waitUntil(field.hasFocus)
    qtbot.keyClick(field.lineEdit(), Qt.Key.Key_End)
    qtbot.keyClick(field.lineEdit(), Qt.Key.Key_Backspace)
    qtbot.keyClick(field.lineEdit(), Qt.Key.Key_Return)
    assert field.value() == 102


@pytest.mark.parametrize(
    ("text", "number"),
    [("8,5", "8.5"), ("8.5", "8.5"), ("1.234,5", "1234.5"), ("1.234.567", "1234567"), ("5", "5"), (",5", ".5")],
)
def test_the_last_mark_is_before_the_decimals(text, number):
    assert with_point(text, ".") == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("1,024", "1024"), ("1.024.000", "1024000"), ("1 024", "1024"), ("1’024", "1024"), ("12", "12"), ("", "")],
)
def test_groups_are_of_three(text, number):
    assert without_groups(text) == number


@pytest.mark.parametrize("text", ["8.5", "8,50", "1,024.5", "1.02", "1,024.000", "1024,000", ",5"])
def test_what_has_decimals_is_no_whole_number(text):
    assert without_groups(text) is None


def test_every_field_of_the_window_is_one_of_these(make_program):
    program = make_program()
    program.window.show_page(program.window.LAB)
    fields = program.window.findChildren(QAbstractSpinBox)
    assert len(fields) > 5
    assert [field for field in fields if not isinstance(field, WholeNumber | Fraction)] == []
