"""The quick chat: a small window for a question, its keys of the whole desktop, and what else opens it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton

from app.chat.session.queued import WAITS_FOR_LAB
from app.chat.welcome import CHOOSE
from app.program import WindowProgram
from app.quick.shortcut import BIND, GlobalShortcut
from app.quick.window import MOST_LINES, QuickChat
from app.single import SingleInstance
from app.theme.keys import HOW
from app.window.window import MainWindow
from engine.protocol import RemoteModel
from tests.app.conftest import ask

pytestmark = pytest.mark.qt_log_ignore(
    "systemTrayWindowChanged", "does not support raise", "This plugin does not support", extend=True
)


@pytest.fixture
def program(start: Callable[..., WindowProgram]) -> WindowProgram:
    return start("--rate", "4000")


def opened(program: WindowProgram) -> QuickChat:
    program.quick.open()
    quick = program.quick.chat
    assert quick is not None
    assert quick.isVisible()
    return quick


def say(qtbot, quick: QuickChat, text: str) -> None:
    qtbot.keyClicks(quick.edit, text)
    qtbot.keyClick(quick.edit, Qt.Key.Key_Return)


def roles(program: WindowProgram) -> list[str]:
    return [message.role for message in program.chat.session.talk.path]


def test_a_question_is_asked_in_a_chat_of_its_own_and_answered_here(qtbot, program) -> None:
    ask(qtbot, program, "An earlier question")
    earlier = program.chat.chat_id
    quick = opened(program)
    assert not quick.transcript.isVisible()
    low = quick.height()
    say(qtbot, quick, "What is a page?")
    assert quick.edit.toPlainText() == ""
    qtbot.waitUntil(lambda: not program.chat.streaming and len(quick.transcript.views) == 2)
    assert program.chat.chat_id not in ("", earlier)
    assert quick.height() > low
    say(qtbot, quick, "And a block?")
    qtbot.waitUntil(lambda: not program.chat.streaming and roles(program) == ["user", "assistant"] * 2)
    assert [view._message.content for view in quick.transcript.views[::2]] == ["What is a page?", "And a block?"]


def test_what_was_written_and_not_sent_stays_with_the_new_chat(qtbot, program) -> None:
    composer, session = program.chat.composer, program.chat.session
    session.set_settings("Be brief.", session.talk.chat.sampling)
    qtbot.keyClicks(composer.edit, "half a thought")
    quick = opened(program)
    say(qtbot, quick, "Something else")
    qtbot.waitUntil(lambda: not program.chat.streaming and len(roles(program)) == 2)
    assert (composer.text, session.talk.chat.system_prompt) == ("", "")
    program.chat.new_chat()
    assert (composer.text, session.talk.chat.system_prompt) == ("half a thought", "Be brief.")
    quick.open_in_main()
    program.chat.new_chat()
    assert session.talk.chat.system_prompt == ""


@pytest.mark.parametrize("lines", [1, 5, 6, 7, 8, 9, 20])
def test_it_grows_with_what_is_typed_and_then_scrolls(qtbot, program, lines) -> None:
    quick = opened(program)
    low, line = quick.edit.height(), quick.edit.fontMetrics().lineSpacing()
    quick.edit.setPlainText("\n".join(["word"] * lines))
    qtbot.waitUntil(lambda: quick.edit.height() >= min(lines, MOST_LINES) * line)
    assert quick.edit.height() <= low + (MOST_LINES - 1) * line
    assert quick.edit.verticalScrollBar().isVisible() is (lines >= MOST_LINES)


def test_a_question_waits_for_the_end_of_a_measurement(qtbot, program) -> None:
    sending = program.chat.sending
    sending.measures = lambda: True
    quick = opened(program)
    say(qtbot, quick, "First")
    assert quick.edit.toPlainText() == ""
    assert quick.words.text() == WAITS_FOR_LAB
    assert program.chat.session.queued
    sending.release()
    qtbot.waitUntil(lambda: not program.chat.streaming and len(roles(program)) == 2)


def test_it_asks_this_computers_model_whatever_the_chat_on_screen_asks(qtbot, program) -> None:
    remote = RemoteModel(server="office", model="large")
    program.chat.session.set_remote(remote)
    quick = opened(program)
    say(qtbot, quick, "What is a page?")
    qtbot.waitUntil(lambda: not program.chat.streaming and len(roles(program)) == 2)
    assert program.chat.session.talk.chat.remote is None
    program.chat.new_chat()
    assert program.chat.session.talk.chat.remote == remote


def test_what_the_person_reads_here_is_not_told_by_the_desktop(qtbot, program) -> None:
    told: list[str] = []
    desktop = program.desktop
    desktop.available, desktop.in_front = lambda: True, lambda: False
    desktop.show_message = lambda _icon, title, *_: told.append(title)
    quick = opened(program)
    say(qtbot, quick, "What is a page?")
    qtbot.waitUntil(lambda: not program.chat.streaming and len(roles(program)) == 2)
    quick.isActiveWindow = lambda: True
    desktop.tell("An answer is finished", "", list)
    quick.put_away()
    desktop.tell("Another", "", list)
    assert told == ["Another"]
    desktop.close_down()


def test_each_opening_begins_a_chat_but_while_it_is_being_answered(qtbot, start) -> None:
    program = start("--rate", "20")
    quick = opened(program)
    say(qtbot, quick, "A long story")
    qtbot.waitUntil(lambda: program.chat.streaming)
    assert quick.button.text() == "Stop"
    qtbot.keyClick(quick, Qt.Key.Key_Escape)
    assert not quick.isVisible()
    assert program.chat.streaming
    assert quick.transcript.views == []
    quick.toggle()
    assert quick.transcript.isVisible()
    assert len(quick.transcript.views) == 2
    quick.button.click()
    qtbot.waitUntil(lambda: not program.chat.streaming)
    quick.put_away()
    quick.open()
    assert not quick.transcript.isVisible()
    program.chat.new_chat()
    assert not quick.own


def test_it_goes_on_in_the_main_window(qtbot, program) -> None:
    quick = opened(program)
    say(qtbot, quick, "What is a page?")
    qtbot.waitUntil(lambda: not program.chat.streaming and len(roles(program)) == 2)
    chat = program.chat.chat_id
    program.window.show_page(MainWindow.HELP)
    qtbot.keyClicks(quick.edit, "further")
    qtbot.keyClick(quick.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert not quick.isVisible()
    assert program.window.page == MainWindow.CHAT
    assert (program.chat.chat_id, program.chat.composer.text) == (chat, "further")
    program.chat.composer.clear()
    quick.open()
    program.chat.message_actions.act(program.chat.session.talk.path[0].id, "edit")
    assert program.chat.composer.text == "What is a page?"


def test_a_pasted_document_is_handed_to_the_main_window(program) -> None:
    quick = opened(program)
    quick.edit.long_pasted.emit("word " * 5000)
    assert not quick.isVisible()
    assert [each.name for each in program.chat.composer.documents.attached] == ["Pasted text"]


def test_without_a_model_the_text_stays_and_the_reason_is_said(qtbot, program) -> None:
    program.chat.loads.unload()
    qtbot.waitUntil(lambda: program.chat.sending.reason == CHOOSE)
    quick = opened(program)
    say(qtbot, quick, "Anybody?")
    assert quick.edit.toPlainText() == "Anybody?"
    assert not quick.button.isEnabled()
    assert quick.words.text() == f"{CHOOSE}."
    assert quick.own is False
    assert program.chat.chat_id == ""


class Keys(GlobalShortcut):
    """Holds whatever it is given, but F9."""

    held: str = ""

    def hold(self, keys: str) -> None:
        self.held = keys
        self._say("Another program has F9." if keys == "F9" else "")


def test_the_keys_are_chosen_in_the_settings(qtbot, start, monkeypatch) -> None:
    monkeypatch.setattr("app.window.wirings.quick.shortcut_here", Keys)
    program = start()
    keys, page = program.quick.shortcut, program.window.settings_page
    program.window.show_page(MainWindow.SETTINGS)
    button, said = page.findChild(QPushButton, "keys.quick"), page.findChild(QLabel, "settings.quick")

    def press(key: Qt.Key, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        button.click()
        assert (said.text(), keys.held) == (HOW, "")
        qtbot.keyClick(button.parent().currentWidget(), key, modifiers)

    both = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier
    press(Qt.Key.Key_Space, both)
    qtbot.waitUntil(lambda: keys.held == "Ctrl+Alt+Space")
    assert (button.text(), said.text()) == ("Ctrl+Alt+Space", "")
    press(Qt.Key.Key_K)
    qtbot.waitUntil(lambda: "alone is needed for typing" in said.text())
    assert keys.held == "Ctrl+Alt+Space"
    press(Qt.Key.Key_F9)
    qtbot.waitUntil(lambda: said.text() == "Another program has F9.")
    press(Qt.Key.Key_Backspace)
    assert (keys.held, program.store.settings.quick_keys, said.isVisible()) == ("", "", False)
    program.store.update(quick_keys="no keys at all")  # as a hand may write it into the file
    assert keys.held == ""
    assert said.text()
    keys.pressed.emit()
    assert program.quick.chat is not None
    assert program.quick.chat.isVisible()


def test_a_desktop_without_such_keys_says_how_else(qtbot, start) -> None:
    program = start()
    program.store.update(quick_keys="Ctrl+Alt+Space")
    assert program.window.settings_page.findChild(QLabel, "settings.quick").text().endswith(BIND)


def test_the_tray_the_palette_and_a_second_start_open_it(qtbot, program, tmp_path) -> None:
    program.desktop.quick_asked.emit()
    quick = program.quick.chat
    assert quick is not None
    assert quick.isVisible()
    quick.put_away()
    commands = program.window.commands
    commands.run(next(each for each in commands.all() if each.name == "quick_chat"))
    assert quick.isVisible()
    first, second = SingleInstance(tmp_path), SingleInstance(tmp_path)
    assert first.acquire()
    raised: list[str] = []
    first.raised.connect(raised.append)
    try:
        with qtbot.waitSignal(first.quick_asked):
            assert not second.acquire(quick=True)
        assert raised == []
    finally:
        first.release()
