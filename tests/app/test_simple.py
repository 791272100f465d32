"""Simple mode: what it hides, what it says, and the ways back."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QToolButton

from app.program import WindowProgram
from app.theme.widgets import Toggle
from app.window.simple import HIDDEN, ON
from app.window.window import MainWindow
from tests.app.conftest import unfold


@pytest.fixture
def program(make_program) -> WindowProgram:
    return make_program(opened=True)


def pages(window: MainWindow) -> list[str]:
    return [tab.text() for tab in window.bar.tabs if tab.isVisible()]


def folds(window: MainWindow) -> list[str]:
    found = ("sidebar", "plots", "cache", "panel")
    return [name for name in found if window.findChild(QToolButton, f"top.{name}").isVisible()]


def press(window: MainWindow, keys: str) -> None:
    next(each for each in window.commands.shortcuts if each.key().toString() == keys).activated.emit()


def test_a_switch_hides_what_measures_and_every_way_to_it_leads_back(program):
    window = program.window
    everything = pages(window)
    window.show_page(MainWindow.SETTINGS)
    row = next(each for each in window.settings_page.rows if each.name == "Simple mode")
    assert isinstance(row.control, Toggle)
    row.control.click()
    assert window.notice.text == ON
    assert pages(window) == ["Chat", "Models", "Help", "Settings"]
    window.show_page(MainWindow.CHAT)
    assert folds(window) == ["sidebar"]
    assert not program.chat.welcome.why.isVisible()
    assert program.chat.welcome.more.isVisible()
    assert not any(part.isVisible() for part in (window.panel, window.plots, window.cache))
    for keys in ("Ctrl+Shift+O", "Ctrl+Shift+P", "Ctrl+Shift+K", "Ctrl+3", "Ctrl+4"):
        window.notice.clear()
        press(window, keys)
        assert window.notice.text == HIDDEN, keys
        assert window.page == MainWindow.CHAT
        assert not any(part.isVisible() for part in (window.panel, window.plots, window.cache))
    window.resize(1000, 700)
    press(window, "Ctrl+B")
    window.resize(1440, 900)
    assert not window.panel.isVisible()
    window.findChild(QPushButton, "window.notice.action").click()
    assert not program.store.settings.simple
    assert pages(window) == everything
    assert folds(window) == ["sidebar", "plots", "cache", "panel"]
    assert window.panel.isVisible()
    assert window.plots.isVisible()
    assert not window.plots.collapsed
    assert program.store.settings.panel_open, "simple mode forgets nothing"


def test_it_holds_over_a_restart_and_goes_from_a_page_that_it_hides(program, start, qtbot):
    window = program.window
    window.show_page(MainWindow.LAB)
    program.store.update(simple=True)
    assert window.page == MainWindow.CHAT
    window.dialogs.show_palette()
    window.dialogs.palette.field.setText("optimisation")
    rows = window.dialogs.palette.rows
    groups = {rows.found(rows.index(row)).command.group for row in range(3)}
    assert not groups & {"Optimisation", "Lab"}
    program.close()
    again = start(model=False)
    assert pages(again.window) == ["Chat", "Models", "Help", "Settings"]
    assert not again.window.plots.isVisible()
    again.window.dialogs.show_palette()
    again.window.dialogs.palette.field.setText("simple mode show")
    qtbot.keyClick(again.window.dialogs.palette.field, Qt.Key.Key_Return)
    assert "Lab" in pages(again.window)
    unfold(again)
    assert again.window.panel.isVisible()
