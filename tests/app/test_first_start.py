"""A new window is calm, and a small one lays its side panels over the chat."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QWidget

from app.chat.notes import NotesButton
from app.link.link import LinkState
from app.program import WindowProgram
from app.settings.columns import GAP_PX
from app.theme.widgets import Toggle
from app.window.sides import LEAST_CHAT
from app.window.window import MINIMUM, MainWindow
from engine.protocol import Unloaded
from tests.app.conftest import fold


@pytest.fixture
def make_program(start: Callable[..., WindowProgram]) -> Callable[..., WindowProgram]:
    def make(width: int = 1440, height: int = 900) -> WindowProgram:
        return start(model=False, size=(width, height))

    return make


@pytest.mark.slow
def test_a_first_start_shows_a_chat_and_one_line_of_figures(make_program) -> None:
    first = make_program()
    window = first.window
    assert window.sidebar.isVisible()
    assert window.plots.collapsed
    assert not window.panel.isVisible()
    window.plots.panel_requested.emit()
    window.plots.plots_requested.emit()
    assert window.panel.isVisible()
    assert not window.plots.collapsed
    first.close()
    second = make_program()
    assert second.window.panel.isVisible()
    assert not second.window.plots.collapsed


def test_it_can_be_as_small_as_800_by_600() -> None:
    assert MINIMUM.toTuple() == (800, 600)


def test_in_a_small_window_the_panels_lie_over_the_chat(qtbot, make_program) -> None:
    program = make_program(800, 600)
    window, sides = program.window, program.window.sides
    QApplication.processEvents()
    assert window.size().toTuple() == (800, 600)
    assert window.chat.width() == 800
    assert not window.sidebar.isVisible()
    fold(program, "panel").click()
    assert window.panel.isVisible()
    assert sides.right.geometry().right() == sides.rect().right()
    assert sides.right.x() >= LEAST_CHAT
    fold(program, "sidebar").click()
    assert window.sidebar.isVisible()
    assert not window.panel.isVisible(), "one at a time"
    assert not fold(program, "panel").isChecked()
    qtbot.mouseClick(sides._rest, Qt.MouseButton.LeftButton)
    assert not window.sidebar.isVisible()
    assert not fold(program, "sidebar").isChecked()
    fold(program, "panel").click()
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert not window.panel.isVisible()
    fold(program, "panel").click()
    qtbot.keyClick(program.chat.composer.edit, Qt.Key.Key_Escape)
    assert not window.panel.isVisible()
    for leaves in (
        program.sidebar.new_chat.emit,
        lambda: program.sidebar.hit_selected.emit("chat", "message", "words"),
    ):
        fold(program, "sidebar").click()
        assert window.sidebar.isVisible()
        leaves()
        assert not window.sidebar.isVisible()


def test_what_a_wide_window_shows_comes_back_with_its_width(make_program) -> None:
    program = make_program()
    window = program.window
    fold(program, "panel").click()
    window.resize(900, 700)
    assert (window.sidebar.isVisible(), window.panel.isVisible()) == (False, False)
    fold(program, "sidebar").click()
    window.resize(1440, 900)
    assert (window.sidebar.isVisible(), window.panel.isVisible()) == (True, True)
    settings = program.store.settings
    assert (settings.sidebar_open, settings.panel_open) == (True, True)
    assert window.chat.width() < 1440 - 500


def test_what_folds_is_offered_where_it_is(make_program) -> None:
    program = make_program()
    window = program.window
    assert fold(program, "panel").isVisible()
    for page in (MainWindow.HELP, MainWindow.SETTINGS):
        window.show_page(page)
        assert not [name for name in ("sidebar", "plots", "cache", "panel") if fold(program, name).isVisible()]
    shortcut = next(one for one in window.commands.shortcuts if one.key().toString() == "Ctrl+Shift+O")
    shortcut.activated.emit()
    assert window.page == MainWindow.CHAT
    assert window.panel.isVisible()


def test_f6_goes_through_the_regions_and_back(qtbot, make_program) -> None:
    program = make_program()
    window = program.window
    window.show_why_fast()
    window.activateWindow()
    qtbot.waitUntil(lambda: program.chat.composer.edit.hasFocus(), timeout=5_000)
    keys = {one.key().toString(): one.activated.emit for one in window.commands.shortcuts}
    regions = [window.bar, window.sidebar, *program.chat.regions(), window.panel, window.plots]

    def region() -> int:
        focus = QApplication.focusWidget()
        return next(i for i, part in enumerate(regions) if part is focus or part.isAncestorOf(focus))

    seen = [region()]
    for _ in range(5):
        keys["F6"]()
        seen.append(region())
    assert seen[0] == regions.index(program.chat.composer)
    assert set(seen) >= {0, 1, 2, 3, 4}
    before = QApplication.focusWidget()
    keys["F6"]()
    keys["Shift+F6"]()
    assert QApplication.focusWidget() is before


def test_no_tooltip_is_a_line_across_the_window(qtbot, make_program) -> None:
    program = make_program()
    program.window.show_why_fast()
    qtbot.waitUntil(lambda: program.link.card is not None, timeout=20_000)
    tips = [widget.toolTip() for widget in program.window.findChildren(QWidget) if widget.toolTip()]
    assert len(tips) > 20
    assert [tip for tip in tips if max(map(len, tip.split("\n"))) > 90] == []


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_marks_and_switches_grow_with_the_text(make_program, scale) -> None:
    program = make_program()
    program.window.show_why_fast()
    try:
        program.theme.set_scale(scale)
        assert fold(program, "panel").iconSize().width() == round(18 * scale)
        assert program.window.panel.findChild(Toggle, "panel.tint").sizeHint().height() == round(18 * scale)
        assert program.window.settings_page._body.maximumWidth() == 2 * round(640 * scale) + GAP_PX
    finally:
        program.theme.set_scale(1.0)


def test_how_the_model_computes_is_said_in_the_settings(qtbot, make_program) -> None:
    program = make_program()
    page = program.window.settings_page
    words = page.findChild(QLabel, "settings.computing")
    assert words.isHidden()
    page.engine.set_computing("Computing in float32, because of the processor.")
    assert words.text() == "Computing in float32, because of the processor."
    assert not words.isHidden()
    program.link.unloaded.emit(Unloaded())
    assert words.isHidden()
    page.engine.set_computing("Computing in float32.")
    program.link.state_changed.emit(LinkState.RESTARTING, "It stopped.")
    assert words.isHidden()


def test_notes_wrap_and_stay_in_a_small_window(qtbot, theme) -> None:
    button = NotesButton(theme)
    qtbot.addWidget(button)
    button.say([])
    assert button.isHidden()
    notes = ["The int4 kernel declined, because its group size is 96; a slower one is in use. " * 4, "A short one."]
    button.say(notes)
    assert button.text() == "▲ 2 notes"
    assert [action.text() for action in button.menu().actions()] == notes
    assert button.menu().sizeHint().width() < MINIMUM.width() // 2
    assert button.menu().sizeHint().height() < MINIMUM.height() // 2
