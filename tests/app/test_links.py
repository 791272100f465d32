"""Links of answers: the whole address is shown first, and nothing but pages and e-mail is opened."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QLabel, QPushButton

from app.chat.transcript.links import UNOPENED, LinkDialog, address_of, ask_to_open, question, refusal
from app.chat.transcript.transcript import Transcript
from app.history.records import StoredMessage
from app.theme.theme import Theme


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    asked: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: asked.append(address_of(url)) or True)
    return asked


@pytest.fixture
def transcript(qtbot, theme: Theme) -> Transcript:
    view = Transcript(theme)
    qtbot.addWidget(view, before_close_func=lambda view: view.stop())
    view.resize(700, 500)
    view.show()
    return view


def test_a_link_is_reached_and_opened_by_the_keyboard_after_a_question(qtbot, transcript, opened) -> None:
    text = "See [the *paper*](https://arxiv.org/abs/2402.02750?x=1&y=%20#top) there."
    transcript.show_path([StoredMessage("a", "c", "", "assistant", text)], lambda _: (0, 1))
    (block,) = transcript.views[0].blocks
    assert block.focusPolicy() & Qt.FocusPolicy.TabFocus
    block.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(block, Qt.Key.Key_Tab)
    qtbot.keyClick(block, Qt.Key.Key_Return)
    dialog = transcript.findChild(LinkDialog)
    assert opened == []
    assert dialog.sentence.text() == "Open this page of arxiv.org in the browser?"
    assert dialog.address.toPlainText() == "https://arxiv.org/abs/2402.02750?x=1&y=%20#top"
    qtbot.keyClick(dialog, Qt.Key.Key_Return)
    assert opened == ["https://arxiv.org/abs/2402.02750?x=1&y=%20#top"]


def test_text_without_links_is_no_stop_of_the_keyboard(transcript) -> None:
    transcript.show_path([StoredMessage("a", "c", "", "assistant", "No *links* here.")], lambda _: (0, 1))
    assert not transcript.views[0].blocks[0].focusPolicy() & Qt.FocusPolicy.TabFocus


def test_an_address_is_copied_and_escape_opens_nothing(qtbot, transcript, theme: Theme, opened) -> None:
    dialog = ask_to_open(QUrl("mailto:a@b.org?subject=x"), theme, transcript)
    assert dialog.sentence.text().startswith("Write an e-mail")
    dialog.findChild(QPushButton, "link-copy").click()
    assert QGuiApplication.clipboard().text() == "mailto:a@b.org?subject=x"
    dialog = ask_to_open(QUrl("https://example.org"), theme, transcript)
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert dialog.isHidden()
    assert opened == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("vscode://file/etc", 'this one begins with "vscode:".'),
        ("file:///etc/passwd", 'this one begins with "file:".'),
        ("javascript:alert(1)", 'this one begins with "javascript:".'),
        ("x" * 500 + ":y", f'this one begins with "{"x" * 40}:".'),
        ("notes.md", "this one is none."),
        ("#part", "this one is none."),
        ("", "this one is none."),
        ("http:///nowhere", "not complete"),
    ],
)
def test_other_addresses_are_refused_with_a_sentence(
    transcript, theme: Theme, opened, address: str, words: str
) -> None:
    dialog = ask_to_open(QUrl(address), theme, transcript)
    assert words in dialog.sentence.text()
    assert dialog.open_button.isHidden()
    assert dialog.findChild(QPushButton, "link-copy").isVisible()
    dialog.reject()
    assert opened == []


def test_whoever_is_behind_an_address_is_named_without_tricks() -> None:
    assert question(QUrl("https://bank.example@evil.example/bank.example")) == (
        "Open this page of evil.example in the browser?"
    )
    lookalike = QUrl("https://аpple.com/ä")  # the first letter is Cyrillic
    assert "xn--pple-43d.com" in question(lookalike)
    assert address_of(lookalike) == "https://xn--pple-43d.com/%C3%A4"
    assert refusal(lookalike) == ""


def test_a_program_that_cannot_be_opened_is_said(transcript, theme: Theme, monkeypatch) -> None:
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: False)
    dialog = ask_to_open(QUrl("https://example.org/" + "x" * 100_000), theme, transcript)
    dialog.open_button.click()
    assert dialog.isVisible()
    assert dialog.findChild(QLabel, "link-failure").text() == UNOPENED
    dialog.reject()
