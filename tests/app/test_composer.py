"""The message box: what is put in comes out, and all of it can be seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtWidgets import QApplication

from app.chat.composer import Composer
from app.chat.message_edit import LINES
from app.history.records import Draft
from app.texts.exact import ExactTextEdit
from tests.kit.examples import examples

ODD = "a\u00a0b\u202fc\u2028d\u2029e\ufdd0f\ufdd1g\ufffeh\u200bi\x0bj\x0ck\x00l\x1bm\ufffcn\u0085o\tp  \n\n 𝒳e\u0301"


@pytest.fixture
def composer(qtbot, theme) -> Composer:
    made = Composer(theme)
    qtbot.addWidget(made)
    made.resize(600, 200)
    made.show()
    return made


def paste(composer: Composer, text: str) -> None:
    mime = QMimeData()
    mime.setText(text)
    composer.edit.insertFromMimeData(mime)


def test_every_letter_is_kept_wherever_it_goes(qtbot, composer: Composer) -> None:
    sent: list[str] = []
    composer.sent.connect(sent.append)
    paste(composer, ODD)
    assert composer.text == ODD
    draft = composer.draft
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return)
    assert sent == [ODD]
    composer.show_draft(draft)
    assert composer.text == ODD
    composer.begin_edit(ODD, "m")
    assert composer.draft == Draft(ODD, "m", ODD)
    composer.edit.selectAll()
    composer.edit.cut()
    assert QApplication.clipboard().text() == ODD
    composer.edit.paste()
    composer.type("\ufdd0")
    assert composer.text == ODD + "\ufdd0"


@examples(60)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")))
def test_any_text_comes_out_as_it_went_in(qapp, text: str) -> None:
    field = ExactTextEdit()
    field.setPlainText(text)
    assert field.toPlainText() == text


def test_what_was_copied_as_nothing_but_html_is_pasted_as_text(composer: Composer) -> None:
    copied = QMimeData()
    copied.setHtml("<p>one <b>bold</b></p><p>a &lt; b</p>")
    composer.edit.insertFromMimeData(copied)
    assert composer.edit.toPlainText() == "one bold\na < b"


def test_ends_of_lines_are_one(composer: Composer) -> None:
    paste(composer, "a\r\nb\rc\nd")
    assert composer.text == "a\nb\nc\nd"


def test_a_long_paragraph_is_seen_and_scrolled_at_once(qtbot, composer: Composer) -> None:
    edit = composer.edit
    low = edit.height()
    paste(composer, "word " * 60)
    lines = edit.document().begin().layout().lineCount()
    assert 2 < lines < LINES
    assert edit.height() - low == (lines - 1) * edit.document().begin().layout().lineAt(0).height()
    paste(composer, "word " * 2000)
    assert edit.verticalScrollBarPolicy() == Qt.ScrollBarPolicy.ScrollBarAsNeeded
    qtbot.waitUntil(lambda: edit.verticalScrollBar().maximum() > 100)
    edit.selectAll()
    qtbot.keyClick(edit, Qt.Key.Key_Delete)
    assert (edit.height(), edit.verticalScrollBarPolicy()) == (low, Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
