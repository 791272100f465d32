"""Tables in answers: cells are aligned, wide ones scroll within the column, and each is copied as CSV."""

from __future__ import annotations

import csv
import io

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QPushButton

from app.chat.transcript.message import MessageView
from app.chat.transcript.text.table_block import TableBlock
from app.chat.transcript.transcript import Transcript
from app.history.records import StoredMessage, TextSpan
from app.theme.theme import Theme

TABLE = """| Left | *Mid* | Right |
|:-----|:---:|------:|
| a, "b" | $x^2$ | 1 \\| 2 |
| [link](http://x.org) | `c` |"""
WIDE = "|" + " incomprehensibilities |" * 9 + "\n|" + "---|" * 9 + "\n|" + " 1 |" * 9


@pytest.fixture
def answer(qtbot, theme: Theme):
    view = Transcript(theme)
    qtbot.addWidget(view, before_close_func=lambda view: view.stop())
    view.resize(700, 600)
    view.show()

    def make(text: str) -> MessageView:
        view.show_path([StoredMessage("a", "c", "", "assistant", text)], lambda _: (0, 1))
        return view.views[0]

    return make


def test_cells_are_aligned_as_the_table_says(answer) -> None:
    (block,) = answer(TABLE).blocks
    assert isinstance(block, TableBlock)
    at, found = block.text.document().begin(), {}
    while at.isValid():
        if at.text():
            found[at.text()] = at.blockFormat().alignment() & Qt.AlignmentFlag.AlignHorizontal_Mask
        at = at.next()
    flags = Qt.AlignmentFlag
    assert (found["Left"], found["Mid"], found["Right"]) == (flags.AlignLeft, flags.AlignHCenter, flags.AlignRight)
    assert (found["link"], found["c"], found["1 | 2"]) == (flags.AlignLeft, flags.AlignHCenter, flags.AlignRight)


def test_a_table_is_copied_as_csv_by_the_keyboard(qtbot, answer) -> None:
    message = answer(f"Before\n\n{TABLE}\n\nbehind")
    assert [type(block) for block in message.blocks][1] is TableBlock
    button = message.findChild(QPushButton, "copy-table")
    message.window().setFocus()
    QApplication.sendEvent(message, QEvent(QEvent.Type.Leave))
    assert not button.isVisible()
    height = message.height()
    message.setFocus()
    qtbot.waitUntil(lambda: button.isVisible())
    assert message.height() == height
    button.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(button, Qt.Key.Key_Space)
    assert list(csv.reader(io.StringIO(QGuiApplication.clipboard().text()))) == [
        ["Left", "Mid", "Right"],
        ['a, "b"', "$x^2$", "1 | 2"],
        ["link", "c", ""],
    ]
    assert button.text() == "Copied"


def test_a_wide_table_scrolls_within_the_column(qtbot, answer) -> None:
    message = answer(WIDE)
    (block,) = message.blocks
    bar = block.text.horizontalScrollBar()
    assert bar.maximum() > 100
    assert block.text.width() == block.width() == message.width()
    assert block.text.verticalScrollBar().maximum() == 0
    block.text.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(block.text, Qt.Key.Key_Right)
    assert bar.value() > 0
    assert block.text.focusPolicy() & Qt.FocusPolicy.TabFocus


def test_a_narrow_table_is_no_stop_of_the_keyboard(answer) -> None:
    (block,) = answer(TABLE.replace("[link](http://x.org)", "link")).blocks
    assert block.text.horizontalScrollBar().maximum() == 0
    assert not block.text.focusPolicy() & Qt.FocusPolicy.TabFocus


def test_words_become_a_table_while_they_are_written(answer) -> None:
    message = answer("Before")
    for end in range(1, len(TABLE) + 1):
        message.stream(TABLE[:end], [TextSpan("accepted", end)])
    assert [type(block) for block in message.blocks] == [TableBlock]
    message.set_tint(True)
    assert message.blocks[0].tint_runs
