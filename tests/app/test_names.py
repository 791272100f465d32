"""Names from elsewhere are shown as they are written: no & goes, nothing turns bold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path

import PySide6.QtGui
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QApplication, QLabel, QMenu, QMessageBox, QWidget

import app
from app.theme.widgets import Segments, button_text, menu_text, tip
from app.window.window import MainWindow
from engine import protocol
from tests.app.conftest import answer, unfold

NAME = "Q&A <b>bold <i>odd"
HTML = "A&B <b>x</b>"


def wrongs(root: QWidget, name: str) -> Iterator[str]:
    """What would not be drawn as it is written."""
    for widget in [root, *root.findChildren(QWidget)]:
        if isinstance(widget, QLabel) and not widget.objectName().startswith("qt_"):
            marked = widget.textFormat() is Qt.TextFormat.RichText
            if widget.textFormat() is Qt.TextFormat.AutoText or (marked and name in widget.text()):
                yield f"label {widget.objectName()} guesses: {widget.text()}"
            elif not marked and re.search("&nbsp;|<span|<a href|</p>", widget.text()):
                yield f"label {widget.objectName()} shows its markup: {widget.text()}"
        if isinstance(widget, QAbstractButton) and "&" in widget.text().replace("&&", ""):
            yield f"button {widget.objectName()}: {widget.text()}"
        if isinstance(widget, QMenu):
            for action in widget.actions():
                if "&" in action.text().replace("&&", ""):
                    yield f"menu entry {action.text()}"
                if marked_up(action.toolTip()):
                    yield f"tooltip of the menu entry {action.text()}: {action.toolTip()}"
        if marked_up(widget.toolTip()):
            yield f"tooltip of {widget.objectName()}: {widget.toolTip()}"
        if isinstance(widget, QAbstractItemView) and (model := widget.model()) is not None:
            for row in range(model.rowCount()):
                if marked_up(str(model.index(row, 0).data(Qt.ItemDataRole.ToolTipRole) or "")):
                    yield f"tooltip of an entry: {model.index(row, 0).data(Qt.ItemDataRole.ToolTipRole)}"


def marked_up(text: str) -> bool:
    """Whether Qt would take a tooltip for HTML; :func:`tip` makes it HTML that shows all as it is written."""
    return PySide6.QtGui.Qt.mightBeRichText(text) and not text.startswith("<p style='white-space: pre'>")


def test_a_name_with_markup_is_shown_as_it_is_written_everywhere(qtbot, start):
    program = start("--named", NAME)
    window, chat, link = program.window, program.chat, program.link
    unfold(program)
    with qtbot.waitSignal(link.loaded):
        link.send(protocol.Load(model=NAME, draft=f"/models/{NAME}"))
    link.send(protocol.LoadAdapter(name=HTML, path=f"/adapters/{HTML}"))
    answer(program, qtbot, HTML)
    program.selector.fill_menu()
    window.notice.say(NAME, action=NAME)
    chat.news.complain(HTML)
    window.findChild(QWidget, "top.cache").setChecked(True)
    for page in range(5):
        window.show_page(page)
        QApplication.processEvents()
    window.show_page(MainWindow.CHAT)
    assert list(wrongs(window, NAME)) == []
    assert NAME in program.selector.model.accessibleName()
    assert NAME.replace("&", "&&") in [action.text() for action in program.selector.model.menu().actions()]
    assert [
        text for text in (action.text() for action in program.selector.model.menu().actions()) if "&&&" in text
    ] == []
    assert NAME in unescape(program.selector.model.toolTip())
    assert {NAME, HTML} <= {label.text() for label in window.findChildren(QLabel)}
    assert escape(HTML) in str(program.sidebar.findChild(QAbstractItemView).model().index(1, 0).data(Qt.ToolTipRole))


def test_the_search_finds_what_is_drawn_otherwise(qtbot):
    holder = QWidget()
    qtbot.addWidget(holder)
    label, button = QLabel(HTML, holder), Segments("Names", ["a"], [HTML], "names", holder).findChild(QAbstractButton)
    label.setToolTip(HTML)
    menu = QMenu(holder)
    menu.addAction(HTML)
    label.setTextFormat(Qt.TextFormat.AutoText)
    assert len(list(wrongs(holder, HTML))) == 4
    assert button.text() == "A&&B <b>x</b>"


def test_a_question_shows_a_name_as_it_is_written(qtbot, theme):
    box = QMessageBox(QMessageBox.Icon.Question, "Delete", f"Delete {HTML}?")
    qtbot.addWidget(box)
    box.show()
    shown = [label for label in box.findChildren(QLabel) if HTML in label.text()]
    assert [label.textFormat() for label in shown] == [Qt.TextFormat.PlainText]


@pytest.mark.parametrize("text", [HTML, "plain", "a\nb", "<p>x", "1 < 2 & 3"])
def test_a_tooltip_is_not_marked_up(text):
    assert not marked_up(tip(text))


SINKS = {"setToolTip": ("tip", "as_written"), "addAction": ("menu_text",), "addMenu": ("menu_text",)}
SINKS |= dict.fromkeys(("QPushButton", "QRadioButton", "QCheckBox"), ("button_text",))


def unguarded(source: str) -> list[str]:
    """Calls that show words which may come from elsewhere, without the helper of their kind."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        shown = [(name, node.args[0])] if node.args else []
        shown += [("setToolTip", keyword.value) for keyword in node.keywords if keyword.arg == "tooltip"]
        if any(name in SINKS and not own(words, SINKS[name]) for name, words in shown):
            found.append(ast.unparse(node))
    return found


def own(words: ast.expr, helpers: tuple[str, ...]) -> bool:
    """Whether the words are the program's own, or went through one of the helpers."""
    match words:
        case ast.Constant() | ast.Name(id="self" | "parent" | "action"):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.JoinedStr(values=parts):
            return all(own(part.value if isinstance(part, ast.FormattedValue) else part, helpers) for part in parts)
        case ast.IfExp(body=body, orelse=other):
            return own(body, helpers) and own(other, helpers)
        case ast.Call(func=ast.Name(id="tr" | "plural"), keywords=values):
            return all(own(value.value, helpers) for value in values)
        case ast.Call(func=ast.Name(id=name)):
            return name in helpers
    return False


def test_every_place_that_shows_words_goes_through_its_helper():
    found = {path.name: unguarded(path.read_text()) for path in Path(app.__file__).parent.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls} == {}
    assert unguarded("x.setToolTip(name); QPushButton(title); menu.addAction(f'Open {name}')")
    assert unguarded("named(x, tooltip=name)") == ["named(x, tooltip=name)"]
    assert button_text("A&B") == "A&&B"


def test_an_entry_of_a_menu_has_the_columns_that_it_is_given():
    assert menu_text("A&B\tC\nD") == "A&&B C D"
    assert menu_text("A\tB", "2 & 3") == "A B\t2 && 3"
