"""The window mirrored, for languages written right to left, and texts of such languages in a window that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import QApplication, QWidget

from app.chat.transcript.text.blocks import TextBlock
from app.program import WindowProgram
from app.texts.exact import ExactTextEdit
from app.texts.markdown import MarkdownBlock
from app.theme.direction import direction, flags, mirror
from app.theme.sheet import PlainLabels
from app.theme.theme import Theme
from app.theme.widgets import Toggle

LEFTWARDS, RIGHTWARDS = Qt.LayoutDirection.RightToLeft, Qt.LayoutDirection.LeftToRight
ARABIC = "مرحبا kvasir 16"
LEFT, RIGHT, ABSOLUTE = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight, Qt.AlignmentFlag.AlignAbsolute


@pytest.fixture
def leftwards(qapp: QApplication) -> Iterator[None]:
    qapp.setLayoutDirection(LEFTWARDS)
    yield
    qapp.setLayoutDirection(RIGHTWARDS)
    qapp.setStyle(PlainLabels("Fusion"))


def outside(window: QWidget) -> list[str]:
    """Names of visible widgets that reach over the left or the right side of what holds them."""
    found = []
    for widget in window.findChildren(QWidget):
        parent = widget.parentWidget()
        if widget.isVisible() and not widget.isWindow() and parent is not None:
            place = widget.geometry()
            if place.left() < 0 or place.right() >= parent.width():
                found.append(f"{widget.objectName() or type(widget).__name__}: {place} in {parent.width()}")
    return found


@pytest.mark.qt_log_ignore("does not support", extend=True)
@pytest.mark.usefixtures("leftwards")
def test_the_window_is_mirrored_and_charts_are_not(
    qtbot, start: Callable[..., WindowProgram], qapp: QApplication
) -> None:
    program = start(opened=True)
    window = program.window
    sides = window.sides
    assert window.sidebar.mapTo(window, QPoint()).x() > window.chat.mapTo(window, QPoint()).x()
    assert window.panel.mapTo(window, QPoint()).x() < window.chat.mapTo(window, QPoint()).x()
    assert sides.left.property("edge") == "left", "the hairline is at the side of the chat"
    tabs = [tab.geometry().left() for tab in window.bar.tabs]
    assert tabs == sorted(tabs, reverse=True)
    assert {chart.layoutDirection() for chart in window.plots.charts} == {RIGHTWARDS}
    for size, page in (
        ((1000, 700), window.CHAT),
        ((800, 600), window.CHAT),
        ((800, 600), window.MODELS),
        ((800, 600), window.SETTINGS),
    ):
        window.resize(*size)
        window.show_page(page)
        qapp.processEvents()
        assert not outside(window), (size, page)
    window.show_page(window.CHAT)
    assert sides.over
    sides.show_left(True)
    assert sides.left.geometry().right() == sides.width() - 1
    sides.show_right(True)
    assert sides.right.geometry().left() == 0
    assert sides.left.isHidden()


@pytest.mark.usefixtures("leftwards")
def test_a_toggle_that_is_on_has_its_knob_at_the_left(qtbot, theme: Theme) -> None:
    toggle = Toggle(theme)
    qtbot.addWidget(toggle)
    toggle.resize(32, 18)
    toggle.setChecked(True)
    picture = toggle.grab().toImage()
    assert picture.pixelColor(9, 9) == theme.color("on_accent")
    assert picture.pixelColor(23, 9) == theme.color("accent")
    assert mirror(QRect(0, 0, 10, 5), 32) == QRect(22, 0, 10, 5)
    assert mirror(QRect(12, 0, 10, 5), QRect(10, 0, 32, 5)) == QRect(30, 0, 10, 5)


def test_a_text_runs_as_its_letters_do() -> None:
    assert [direction(text) for text in ("Kvasir", "100 %", "16 מילים", "… ‹")] == [
        RIGHTWARDS,
        RIGHTWARDS,
        LEFTWARDS,
        None,
    ]
    force = Qt.TextFlag.TextForceLeftToRight
    assert flags("100 %", LEFT.value, LEFTWARDS) == RIGHT.value | ABSOLUTE.value | force.value
    assert flags("…", LEFT.value, LEFTWARDS) == LEFT.value
    assert mirror(QRect(0, 0, 10, 5), 32) == QRect(0, 0, 10, 5), "this window is not mirrored"


def test_what_is_typed_begins_at_the_side_of_its_language(qtbot) -> None:
    edit = ExactTextEdit()
    qtbot.addWidget(edit)
    edit.resize(400, 60)
    edit.show()
    begins = []
    for text in ("hello", ARABIC, f"\n{ARABIC}", "hello"):
        edit.setPlainText(text)
        begins.append(edit.cursorRect().left())
    assert begins[0] == begins[3] < 20
    assert begins[1] == begins[2] > 350


def test_a_quote_is_indented_at_the_side_of_its_language(qtbot, theme: Theme) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    margins = []
    for text in (f"> {ARABIC}", "> hello"):
        block = TextBlock(theme, parent)
        block.show_block(MarkdownBlock("text", 0, len(text), text, 0), False)
        look = block.document().lastBlock().blockFormat()
        margins.append((look.leftMargin(), look.rightMargin()))
    assert margins == [(0, margins[1][0]), (margins[1][0], 0)]
    assert margins[1][0] > 0
