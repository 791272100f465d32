"""Tab reaches everything that Shift-Tab reaches, on every page."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QToolButton

from app.program import WindowProgram
from app.window.window import MainWindow
from tests.app.conftest import answer, unfold
from tests.app.tabbing import tab_reaches_all


@pytest.mark.parametrize("page", ["CHAT", "MODELS", "LAB", "HELP", "SETTINGS"])
def test_tab_reaches_all_of_a_page(qtbot, start, page):
    program: WindowProgram = start()
    unfold(program)
    if page == "CHAT":
        answer(program, qtbot, "show me code")
        program.window.findChild(QToolButton, "top.cache").setChecked(True)
    program.window.show_page(getattr(MainWindow, page))
    tab_reaches_all(qtbot, program.window)
