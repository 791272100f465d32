"""Unsent text, the chat on screen in the list, background answers, and the way from a search to its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QTextEdit

from app.chat.attached import GONE
from app.chat.session.drafts import DraftTexts
from app.chat.transcript.text import found
from app.history.chat_list import RUNNING, UNREAD
from app.history.records import Attached, Chat, Draft, StoredMessage
from app.history.search import places
from app.history.store import HistoryStore
from app.program import WindowProgram
from tests.app.chatting import labels
from tests.app.conftest import answer, send

# --- unsent text -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_unsent_text_stays_with_its_chat_and_over_a_restart(start, qtbot) -> None:
    program = start()
    page = program.chat
    first = answer(program, qtbot, "hello")
    qtbot.keyClicks(page.composer.edit, "half a thought")
    page.new_chat()
    assert page.composer.text == ""
    qtbot.keyClicks(page.composer.edit, "another beginning")
    page.open_chat(first)
    assert page.composer.text == "half a thought"
    page.new_chat()
    assert page.composer.text == "another beginning"
    program.close()
    again = start()
    assert again.chat.composer.text == "another beginning"
    again.chat.open_chat(first)
    assert again.chat.composer.text == "half a thought"
    again.chat.composer.edit.clear()
    again.chat.new_chat()
    again.chat.open_chat(first)
    assert again.chat.composer.text == ""


def test_unsent_text_is_in_the_file_soon_after_the_last_key(start, qtbot) -> None:
    """So that a kill of the window loses it not."""
    program = start()

    def typed_on() -> bool:
        qtbot.keyClicks(program.chat.composer.edit, "x")
        return program.history.draft("") != Draft()

    qtbot.waitUntil(typed_on)  # without a pause
    program.chat.composer.edit.clear()
    qtbot.keyClicks(program.chat.composer.edit, "nearly sent")
    qtbot.waitUntil(lambda: program.history.draft("") == Draft("nearly sent"), timeout=5_000)
    answer(program, qtbot, ", and now it is")
    assert program.history.draft("") == Draft()
    assert program.history.draft(program.chat.chat_id) == Draft()
    assert program.chat.session.talk.path[0].content == "nearly sent, and now it is"


def test_an_edit_goes_with_its_chat_and_gives_back_what_stood_there(start, qtbot) -> None:
    program = start()
    page = program.chat
    first = answer(program, qtbot, "hello")
    qtbot.keyClicks(page.composer.edit, "unsent")
    page.message_actions.act_on_last("user", "edit")
    assert page.composer.text == "hello"
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert (page.composer.text, page.composer.editing) == ("unsent", False)
    page.message_actions.act_on_last("user", "edit")
    qtbot.keyClicks(page.composer.edit, ", you")
    page.new_chat()
    assert not page.composer.editing
    page.open_chat(first)
    assert (page.composer.text, page.composer.editing) == ("hello, you", True)
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not page.streaming, timeout=20_000)
    question = page.session.talk.path[0]
    assert question.content == "hello, you"
    assert page.session.talk.branch(question.id) == (1, 2)


@pytest.mark.slow
def test_what_an_edit_set_aside_stays_with_its_chat_and_over_a_restart(start, qtbot) -> None:
    program = start()
    page = program.chat
    first = answer(program, qtbot, "hello")
    answer(program, qtbot, "hello again")
    qtbot.keyClicks(page.composer.edit, "unsent")
    page.message_actions.act_on_last("user", "edit")
    page.message_actions.act(page.session.talk.path[0].id, "edit")  # another one, in the middle of that
    page.new_chat()
    answer(program, qtbot, "elsewhere")
    assert page.composer.text == ""
    program.close()
    page = start().chat
    page.open_chat(first)
    assert page.composer.text == "hello"
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert (page.composer.text, page.composer.editing) == ("unsent", False)


def test_unsent_text_is_forgotten_only_once_its_message_is_kept(start, qtbot, monkeypatch) -> None:
    """So that a kill in between loses neither."""
    program = start()
    jobs: list[str] = []
    write = program.history._write
    monkeypatch.setattr(
        program.history, "_write", lambda sql, *rest, **more: (jobs.append(sql), write(sql, *rest, **more))
    )
    qtbot.keyClicks(program.chat.composer.edit, "precious")
    program.chat.findChild(DraftTexts).save()
    answer(program, qtbot, "")
    forgotten = next(number for number, sql in enumerate(jobs) if sql.startswith("DELETE FROM drafts"))
    asked = next(number for number, sql in enumerate(jobs) if sql.startswith("INSERT INTO messages"))
    assert asked < forgotten


def test_a_deleted_chat_takes_its_unsent_text_along(qapp, tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history.db")
    store.save_chat(Chat("c", "Pages", 1.0, 2.0))
    store.set_draft("c", Draft("unsent secret"))
    store.set_draft("", Draft("mine"))
    store.delete("c")
    store.close()
    again = HistoryStore(tmp_path / "history.db")
    assert again.draft("c") == Draft()
    assert again.draft("") == Draft("mine")
    again.close()


def test_unsent_documents_and_pictures_are_there_after_a_kill(start, qtbot, tmp_path: Path) -> None:
    """They are in the file while the program runs; what became of the documents' files meanwhile is said."""
    stays, goes = tmp_path / "stays.txt", tmp_path / "goes.txt"
    stays.write_text("Call Ada.")
    goes.write_text("Call Bob.")
    program = start(model=False, shown=False)
    composer, red = program.chat.composer, QImage(4, 4, QImage.Format.Format_RGB32)
    red.fill(0xFF0000)
    composer.take_pictures([red])
    composer.take_files([stays, goes])
    composer._take_text("pasted")
    qtbot.keyClicks(composer.edit, "See these")
    qtbot.waitUntil(lambda: not composer.documents.reading)
    written = composer.draft

    qtbot.waitUntil(lambda: not program.chat.findChild(DraftTexts)._timer.isActive())
    program.history.flush()
    other = HistoryStore(program.history.path)
    killed = other.draft("")
    other.close()
    assert (killed[:4], len(killed.documents)) == (written[:4], 3)
    program.close()
    goes.unlink()
    again = start(model=False, shown=False)
    draft = again.chat.composer.draft
    assert draft[:4] == written[:4]
    assert [each.document for each in draft.documents] == [each.document for each in written.documents]
    assert labels(again.chat.composer, "document-notes") == [GONE]
    assert [each.pasted for each in draft.documents] == [False, False, True]
    again.chat.composer.clear()
    qtbot.waitUntil(lambda: not again.chat.findChild(DraftTexts)._timer.isActive())
    assert again.history.draft("") == Draft()
    assert again.history._read("SELECT COUNT(*) FROM documents") == [(0,)]


def test_a_file_that_was_not_read_to_its_end_is_read_at_the_next_start(
    start, qtbot, tmp_path: Path, monkeypatch
) -> None:
    late = tmp_path / "late.txt"
    late.write_text("Better late.")
    with monkeypatch.context() as without:
        without.setattr(DraftTexts, "save", lambda self: None)  # as if this run had written nothing of it
        program = start(model=False, shown=False)
        parts = (Attached("late.txt", path=str(late)), Attached("nowhere.txt", path=str(tmp_path / "nowhere.txt")))
        program.history.set_draft_parts("", Draft(documents=parts))
        program.history.save_chat(Chat("c", "Chat", 1.0, 1.0))
        program.history.set_draft_parts("c", Draft(documents=parts, pictures=(b"one",)))
        program.close()
    program = start(model=False, shown=False)
    composer = program.chat.composer
    qtbot.waitUntil(lambda: not composer.documents.reading)
    assert [each.document.text for each in composer.draft.documents] == ["Better late."]
    assert "nowhere.txt is not there any more" in program.chat.notice.text
    program.history.delete("c")
    program.close()
    again = HistoryStore(program.history.path)
    assert again.draft("c") == Draft()
    again.close()


# --- where typing goes -----------------------------------------------------------------------------------------------


def test_a_click_beside_the_text_and_on_a_chat_puts_the_keyboard_into_the_box(start, qtbot) -> None:
    program = start()
    page = program.chat
    first = answer(program, qtbot, "hello")
    page.new_chat()
    program.sidebar.refresh()
    program.sidebar.search.setFocus()
    qtbot.mouseClick(page.composer, Qt.MouseButton.LeftButton, pos=QPoint(4, 4))
    assert page.composer.edit.hasFocus()
    row = program.sidebar.list.visualRect(program.sidebar.model.index_of(first))
    qtbot.mouseClick(program.sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=row.center())
    assert page.chat_id == first
    assert page.composer.edit.hasFocus()
    for widget in (program.sidebar.list, page.transcript.views[0].blocks[0]):
        widget.setFocus()
        qtbot.keyClick(widget, Qt.Key.Key_X)
        assert page.composer.edit.hasFocus()
    assert page.composer.text == "xx"


# --- the list --------------------------------------------------------------------------------------------------------


def raised(program: WindowProgram) -> list[str]:
    """The titles of the rows that are drawn as the chat on screen."""
    sidebar, theme = program.sidebar, program.theme
    shot, titles = sidebar.list.viewport().grab().toImage(), []
    for number in range(sidebar.model.rowCount()):
        index = sidebar.model.index(number)
        rect = sidebar.list.visualRect(index)
        if shot.pixelColor(rect.left() + 6, rect.center().y()) == theme.color("raised"):
            titles.append(index.data())
    return titles


def test_the_highlight_is_the_chat_on_screen_whatever_the_mouse_does(start, qtbot, monkeypatch) -> None:
    program = start()
    sidebar = program.sidebar
    answer(program, qtbot, "hello")
    program.chat.new_chat()
    second = answer(program, qtbot, "goodbye")
    qtbot.waitUntil(lambda: raised(program) == ["goodbye"], timeout=5_000)
    other = sidebar.model.index(2)
    assert other.data() == "hello"
    monkeypatch.setattr("app.history.sidebar.QMenu.exec", lambda *_: None)
    spot = sidebar.list.visualRect(other).center()
    qtbot.mouseClick(sidebar.list.viewport(), Qt.MouseButton.RightButton, pos=spot)
    sidebar.list.setCurrentIndex(other)
    assert raised(program) == ["goodbye"]
    answer(program, qtbot, "once more")
    sidebar.refresh()
    assert raised(program) == ["goodbye"]
    program.chat.new_chat()
    assert raised(program) == []
    program.chat.open_chat(second)
    assert raised(program) == ["goodbye"]


@pytest.mark.slow
def test_background_answers_are_marked_until_they_are_read(start, qtbot) -> None:
    program = start("--rate", "800")
    model = program.sidebar.model

    def mark(chat: str) -> str:
        return model.mark(model.index_of(chat))

    send(program, qtbot, "a long one")
    first = program.chat.chat_id
    program.chat.new_chat()
    qtbot.waitUntil(lambda: model.index_of(first).isValid(), timeout=5_000)
    assert mark(first) == RUNNING
    assert RUNNING in model.index_of(first).data(Qt.ItemDataRole.AccessibleTextRole)
    qtbot.waitUntil(lambda: mark(first) == UNREAD, timeout=20_000)
    program.close()
    program = start(model=False)
    model = program.sidebar.model
    assert mark(first) == UNREAD
    program.chat.open_chat(first)
    assert mark(first) == ""
    assert program.history.unread() == frozenset()


# --- from a search to its place --------------------------------------------------------------------------------------


def branched(history: HistoryStore) -> None:
    """A chat of two branches; the words stand far up in the one that is not shown."""
    history.save_chat(Chat("c", "Pages", 1.0, 2.0, leaf="shown"))
    history.save_message(StoredMessage("q", "c", "", "user", "Why pages?", created=1.0))
    filler = "Pages are handed out sixteen tokens at a time. " * 60
    parent = "q"
    for number in range(12):
        text = f"{filler}\n\nHere is a **Xylophöne**, in number {number}.\n\n{filler}" if number == 3 else filler
        role = "user" if number % 2 else "assistant"
        history.save_message(StoredMessage(f"m{number}", "c", parent, role, text, created=2.0 + number))
        parent = f"m{number}"
    history.save_message(StoredMessage("shown", "c", "q", "assistant", "Because.", created=50.0))


def test_a_search_leads_to_the_words_in_their_branch(start, qtbot) -> None:
    program = start(model=False)
    branched(program.history)
    program.history.flush()
    program.window.resize(1200, 800)
    page, sidebar = program.chat, program.sidebar
    page.open_chat("c")
    assert [view.message.id for view in page.transcript.views] == ["q", "shown"]
    sidebar.search.setText("xyloph")
    qtbot.waitUntil(lambda: sidebar.model.rowCount() == 2 and sidebar.model.index(0).data() == "Found", timeout=5_000)
    spot = sidebar.list.visualRect(sidebar.model.index(1)).center()
    qtbot.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    assert page.session.talk.path[-1].id == "m11"
    view = page.transcript.view("m3")
    assert view is not None
    marks = [(text, mark) for text in view.findChildren(QTextEdit) for mark in text.extraSelections()]
    assert [mark.cursor.selectedText() for _, mark in marks] == ["Xylophöne"]
    text, mark = marks[0]
    place = text.viewport().mapTo(page.transcript.viewport(), text.cursorRect(mark.cursor).center())
    assert page.transcript.viewport().rect().contains(place)

    def marked() -> set[str]:
        views = page.transcript.findChildren(QTextEdit)
        return {mark.format.background().color().name() for view in views for mark in view.extraSelections()}

    program.theme.set_mode("dark")
    assert marked() == {program.theme.tint("accent", found.SHARE)}
    sidebar.search.clear()
    assert marked() == set()
    page.open_hit("c", "m3", "xyloph")
    assert marked()
    page.send("and now?")
    assert marked() == set()
    page.open_chat("c")
    page.new_chat()
    page.open_chat("c")
    assert not any(text.extraSelections() for text in page.transcript.findChildren(QTextEdit))


def test_found_words_are_beginnings_without_case_and_accents() -> None:
    def marked(text: str, words: str) -> list[str]:
        return [text[start:end] for start, end in places(text, words)]

    assert marked("ÄPFEL und Apfelmus, Kapfel", "apfel ka") == ["ÄPFEL", "Apfelmus", "Kapfel"]
    assert marked("İstanbul 🐦 straße", "STRASSE straße") == ["straße"]
    assert marked("a (b) c", "( )") == ["(", ")"]
