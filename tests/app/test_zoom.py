"""The text size by keys and by the wheel."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QShortcut, QWheelEvent
from PySide6.QtWidgets import QApplication, QSpinBox

from app.program import WindowProgram
from app.settings.appearance import SIZES


@pytest.fixture
def program(make_program) -> WindowProgram:
    return make_program(model=False, opened=False)


def size(program: WindowProgram) -> int:
    return round(100 * program.theme.scale)


@pytest.mark.slow
def test_keys_change_the_text_size_in_steps_to_the_ends(program):
    keys = {
        each.toString(): one.activated.emit for one in program.window.commands.shortcuts for each in QShortcut.keys(one)
    }
    keys["Ctrl+="]()
    keys["Ctrl++"]()
    assert size(program) == 120
    assert program.store.settings.text_scale == pytest.approx(1.2)
    field = next(
        one for one in program.window.settings_page.findChildren(QSpinBox) if one.accessibleName() == "Text size"
    )
    assert field.value() == 120
    keys["Ctrl+0"]()
    keys["Ctrl+-"]()
    assert size(program) == 90
    appearance = program.window._appearance
    appearance.zoom(99)
    assert (size(program), appearance.refusal(1), appearance.refusal(-1)) == (200, "200 % is the largest.", "")
    appearance.zoom(1)
    appearance.zoom(-99)
    assert (size(program), appearance.refusal(-1)) == (SIZES[0], "80 % is the smallest.")
    program.store.update(text_scale=1.25)
    appearance.zoom(1)
    assert size(program) == 130


def turn(program: WindowProgram, angle: int, held: Qt.KeyboardModifier) -> None:
    """As the desktop tells the window of it."""
    at = QPointF(program.chat.transcript.mapTo(program.window, QPoint(40, 40)))
    none = Qt.MouseButton.NoButton
    phase = Qt.ScrollPhase.NoScrollPhase
    event = QWheelEvent(at, at, QPoint(), QPoint(0, angle), none, held, phase, False)
    QApplication.sendEvent(program.window.windowHandle(), event)


def test_ctrl_and_the_wheel_change_it_and_pieces_of_a_turn_add_up(program):
    control, none = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.NoModifier
    turn(program, 120, control)
    assert size(program) == 110
    turn(program, -240, control)
    assert size(program) == 90
    for _ in range(3):
        turn(program, 40, control)
    assert size(program) == 100
    turn(program, 80, control)
    turn(program, 120, none)
    turn(program, 80, control)
    assert size(program) == 100
