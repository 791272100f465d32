"""Documents in the window: how they come into a message, what of them reaches the model, what is kept and shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QMimeData, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QToolButton, QWidget

from app import language
from app.chat.attached import NO_ROOM as NO_ROOM_CHIP
from app.chat.attached import TOO_LONG
from app.chat.composer import Composer
from app.chat.message_edit import LONG_CHARS
from app.chat.session.conversation import Conversation
from app.chat.session.settling import FAILED, NO_ROOM, SPREAD, came_from_cache
from app.chat.transcript.documents import MOST_SHOWN, DocumentBlock, PassageBlock
from app.chat.transcript.message import MessageView
from app.documents.records import (
    MOST,
    Document,
    DocumentFacts,
    DocumentPassage,
    DocumentUse,
    MessageDocument,
    document,
    of_text,
)
from app.history.export import to_markdown
from app.history.records import AnswerStats, Draft, StoredMessage
from app.history.store import HistoryStore
from app.history.transfer.html import to_html
from app.theme.theme import Theme
from engine.protocol import RemoteModel, Usage
from tests.app import document_files as files
from tests.app.chatting import asked, ended, labels, mime
from tests.app.conftest import answer
from tests.broken_models import check_sentence

STORY = "\n".join(f"{at}. Nothing of note happened on this day, and so we went home." for at in range(300))
FACT = "The golden key lies below the stairs."
LONG = STORY.replace("250. Nothing", f"250. {FACT} Nothing")
"""About 4,800 tokens of the fake engine, whose context has 2,048."""


@pytest.fixture
def note(tmp_path: Path) -> Path:
    path = tmp_path / "note.txt"
    path.write_text("Call Ada on Friday.")
    return path


@pytest.fixture
def story(tmp_path: Path) -> Path:
    path = tmp_path / "story.txt"
    path.write_text(LONG)
    return path


@pytest.fixture
def composer(qtbot, theme: Theme) -> Iterator[Composer]:
    made = Composer(theme)
    qtbot.addWidget(made)
    made.resize(700, 200)
    made.show()
    yield made
    made.reader.stop()


def read(qtbot, composer: Composer) -> list[Document]:
    """Wait until every file is read."""
    qtbot.waitUntil(lambda: not composer.documents.reading)
    return [each.document for each in composer.documents.attached if each.document is not None]


def test_files_become_chips_and_can_be_taken_out(qtbot, composer: Composer, note: Path, tmp_path: Path) -> None:
    scan = tmp_path / "scan.pdf"
    scan.write_bytes(files.pdf(["Words", None]))
    assert composer.edit.canInsertFromMimeData(mime(note))
    composer.edit.insertFromMimeData(mime(note, scan))
    assert not composer.button.isEnabled(), "not before they are read"
    assert "being read" in composer.button.toolTip()
    assert labels(composer, "document-facts") == ["reading…", "reading…"]
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return)
    one, two = read(qtbot, composer)
    assert composer.button.isEnabled()
    assert (one.text, two.text) == ("Call Ada on Friday.", "[page 1]\nWords")
    assert labels(composer, "document-facts") == ["Text · 1 line", "PDF · 2 pages"]
    assert labels(composer, "document-notes") == ["1 of 2 pages has no text: it is a picture."]
    chips = composer.documents.findChildren(object, "document-chip")
    assert "scan.pdf, PDF · 2 pages. 1 of 2 pages has no text" in chips[1].accessibleName()
    crosses = composer.documents.findChildren(QToolButton, "document-close")
    assert crosses[0].accessibleName() == "Take out note.txt"
    qtbot.mouseClick(crosses[0], Qt.MouseButton.LeftButton)
    assert [each.document for each in composer.draft.documents] == [two]
    composer.clear()
    assert composer.draft == Draft()
    assert composer.documents.isHidden()


def test_a_file_that_cannot_be_read_says_so_and_goes(qtbot, composer: Composer, note: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pdf"
    locked.write_bytes(files.pdf(["secret"], encrypted=True))
    said: list[str] = []
    composer.refused.connect(said.append)
    composer.take_files([locked, tmp_path / "gone.txt", note])
    assert [each.name for each in read(qtbot, composer)] == ["note.txt"]
    qtbot.waitUntil(lambda: len(said) == 2)
    check_sentence(min(said), "gone.txt is not there any more")
    check_sentence(max(said), "locked.pdf is encrypted")
    composer.take_files([note] * MOST)
    check_sentence(said[-1], f"can have {MOST} documents")
    assert len(composer.documents.attached) == 1


def test_a_process_that_dies_or_answers_nonsense_is_one_sentence(qtbot, composer: Composer, note: Path) -> None:
    for script in ("import os; os._exit(9)", "print('nonsense')"):
        composer.reader._command = [sys.executable, "-c", script]
        with qtbot.waitSignal(composer.refused) as refused:
            composer.take_files([note])
        check_sentence(refused.args[0], "note.txt")
        assert composer.documents.isHidden()


@pytest.mark.slow
def test_a_pdf_that_unpacks_to_gigabytes_is_one_sentence(qtbot, composer: Composer, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.pdf"
    bomb.write_bytes(files.pdf_bomb())
    assert bomb.stat().st_size < 1000
    with qtbot.waitSignal(composer.refused) as refused:
        composer.take_files([bomb])
    check_sentence(refused.args[0], "bomb.pdf", "memory")
    assert composer.documents.isHidden()


def test_a_long_paste_is_a_document_and_a_click_makes_it_text(qtbot, composer: Composer) -> None:
    composer.edit.setPlainText("before after")
    cursor = composer.edit.textCursor()
    cursor.setPosition(len("before "))
    composer.edit.setTextCursor(cursor)
    text = "line\n" * (LONG_CHARS // 5 + 1)
    composer.edit.insertFromMimeData(mime(text=text))
    (attached,) = composer.documents.attached
    assert (attached.document, composer.text) == (of_text("Pasted text", text), "before after")
    assert labels(composer, "document-facts") == ["Text · 4,001 lines"]
    qtbot.mouseClick(composer.documents.findChild(QPushButton, "document-text"), Qt.MouseButton.LeftButton)
    assert composer.text == f"before {text}after"
    assert composer.documents.isHidden()


def drop_with_the_mouse(at: QWidget, source: QMimeData, held: Qt.KeyboardModifier) -> Qt.DropAction:
    """Drag to the middle of a widget, move there and drop, as the desktop tells the window; what was done then.

    With Shift ``held`` a desktop proposes to move the file."""
    handle = at.window().windowHandle()
    place = at.mapTo(at.window(), at.rect().center())
    both = Qt.DropAction.CopyAction | Qt.DropAction.MoveAction
    how = (both, source, Qt.MouseButton.LeftButton, held)
    entered, moved, dropped = (
        QDragEnterEvent(place, *how),
        QDragMoveEvent(place, *how),
        QDropEvent(QPointF(place), *how),
    )
    QApplication.sendEvent(handle, entered)
    assert entered.isAccepted(), at
    moved.setDropAction(entered.dropAction())  # Qt hands on what was said last
    moved.accept()
    QApplication.sendEvent(handle, moved)
    assert moved.isAccepted(), at
    QApplication.sendEvent(handle, dropped)
    assert dropped.isAccepted(), at
    return dropped.dropAction()


@pytest.mark.parametrize("held", [Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier])
def test_a_document_lands_in_the_composer_wherever_it_is_dropped(qtbot, start, note: Path, held) -> None:
    program = start(opened=True)
    chat, window = program.chat, program.window
    answer(program, qtbot, "Show me code")
    chat.finding.begin()
    chat.toggle_tint()
    view = chat.transcript.views[-1]
    places = {
        "page": chat, "header": chat.header, "legend": chat.legend, "viewport": chat.transcript.viewport(),
        "text": view.blocks[0].viewport(), "message": view, "field": chat.composer.edit.viewport(),
        "composer": chat.composer, "button": chat.composer.attach, "title row": window.bar, "panel": window.panel,
        "plots": window.plots,
    }  # fmt: skip
    for name, place in places.items():
        done = drop_with_the_mouse(place, mime(note, text=str(note)), held)
        assert done == Qt.DropAction.CopyAction, f"{name}: a file that is read is not moved away"
        read(qtbot, chat.composer)
        assert [each.document.name for each in chat.composer.documents.attached] == ["note.txt"], name
        assert chat.composer.text == "", f"{name}: nor does its path become text"
        chat.composer.clear()


def test_another_page_takes_no_documents(qtbot, start, note: Path) -> None:
    window = start().window
    window.show_page(window.HELP)
    place = window.bar.mapTo(window, window.bar.rect().center())
    how = (Qt.DropAction.CopyAction, mime(note), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    entered = QDragEnterEvent(place, *how)
    QApplication.sendEvent(window.windowHandle(), entered)
    assert not entered.isAccepted(), "the mouse shows it before anything is dropped"


def test_a_document_reaches_the_prompt_before_the_question(qtbot, start, note: Path) -> None:
    program = start()
    chat, sent = program.chat, asked(program)
    dropped = mime(note)
    how = (Qt.DropAction.CopyAction, dropped, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    entering = QDragEnterEvent(chat.rect().center(), *how)
    chat.dragEnterEvent(entering)
    assert entering.isAccepted()
    chat.dropEvent(QDropEvent(QPointF(chat.rect().center()), *how))
    read(qtbot, chat.composer)
    qtbot.waitUntil(lambda: "tokens" in labels(chat.composer, "document-facts")[0])
    qtbot.waitUntil(lambda: chat.header.context.text.startswith("context"))
    qtbot.keyClicks(chat.composer.edit, "Who?")
    qtbot.keyClick(chat.composer.edit, Qt.Key.Key_Return)
    question = ended(qtbot, program)
    frame = '<document name="note.txt">\nCall Ada on Friday.\n</document>\n\nWho?'
    assert sent[0].prompt[-1].content == frame
    assert question.content == "Who?"
    (part,) = question.documents
    assert part.use is not None
    assert part.use.passages is None
    assert part.use.tokens > 4
    assert chat.composer.draft == Draft()
    block = chat.transcript.view(question.id).findChild(DocumentBlock)
    assert block.head.text() == "▸ note.txt · Text, 1 line"
    block.head.click()
    assert block.body.toPlainText() == "Call Ada on Friday."
    assert block.head.accessibleName().endswith("unfolded")
    # The next question, an edit and a second run have it, too.
    chat.message_actions.act_on_last("assistant", "again")
    qtbot.waitUntil(lambda: len(sent) == 2)
    ended(qtbot, program)
    assert sent[1].prompt == sent[0].prompt
    chat.message_actions.act_on_last("user", "edit")
    assert [each.document for each in chat.composer.draft.documents] == [part.document]
    chat.composer.edit.setPlainText("When?")
    chat.composer.edit.submitted.emit()
    qtbot.waitUntil(lambda: len(sent) == 3)
    assert ended(qtbot, program).content == "When?"
    assert sent[2].prompt[-1].content == frame.replace("Who?", "When?")


def test_of_one_that_does_not_fit_the_passages_are_sent_that_fit_the_question(qtbot, start, story: Path) -> None:
    program = start()
    chat, sent = program.chat, asked(program)
    chat.composer.take_files([story])
    (document,) = read(qtbot, chat.composer)
    qtbot.waitUntil(lambda: labels(chat.composer, "document-notes") == [TOO_LONG])
    chat.composer.edit.setPlainText("Where is the golden key?")
    chat.composer.edit.submitted.emit()
    question = ended(qtbot, program)
    use = question.documents[0].use
    assert use is not None
    assert use.passages
    assert use.of > len(use.passages)
    assert [each.number for each in use.passages] == list(range(1, len(use.passages) + 1))
    said = sent[0].prompt[-1].content
    assert FACT in said
    assert f"[1] {document.place(use.passages[0].start)}\n" in said
    assert len(said) < len(LONG) / 2
    assert said.endswith("such as [1].\n\nWhere is the golden key?")
    view = chat.transcript.view(question.id)
    block = view.findChild(DocumentBlock)
    assert f"of {use.of} sent" in labels(block, "document-lines")[0]
    passages = block.findChildren(PassageBlock)
    assert all(passage.isHidden() for passage in passages)
    block.head.click()
    assert not passages[0].isHidden()
    closed = view.height()
    passages[0].head.click()
    text = document.text[use.passages[0].start : use.passages[0].end].strip()
    assert passages[0].body.toPlainText() == text
    assert view.height() > closed
    # Another start shows and sends the same.
    first = sent[0].prompt
    program.close()
    program = start()
    program.chat.open_chat(program.history.chats()[0].id)
    assert program.chat.session.talk.last("user") == question
    assert program.chat.session.talk.prompt(question.id) == first


def test_what_no_word_fits_is_sent_from_all_over_and_said_to_be(qtbot, start, story: Path) -> None:
    program = start()
    chat = program.chat
    chat.composer.take_files([story])
    read(qtbot, chat.composer)
    chat.composer.edit.submitted.emit()  # no question at all
    question = ended(qtbot, program)
    use = question.documents[0].use
    assert use is not None
    assert (use.note, use.passages[0].start) == (SPREAD, 0)
    assert chat.session.talk.chat.title == "story.txt"
    assert SPREAD in labels(chat.transcript.view(question.id), "document-note")[0]


def test_a_search_that_fails_sends_the_beginning_and_says_why(qtbot, start, story: Path, monkeypatch) -> None:
    program = start()
    chat = program.chat
    chat.composer.take_files([story])
    read(qtbot, chat.composer)
    monkeypatch.setattr("app.documents.child.command", lambda: [sys.executable, "-c", "import os; os._exit(9)"])
    chat.composer.edit.setPlainText("Where is the golden key?")
    chat.composer.edit.submitted.emit()
    use = ended(qtbot, program).documents[0].use
    assert use is not None
    assert use.note.startswith(FAILED.split("(")[0])
    assert "exit code 9" in use.note
    assert [each.start for each in use.passages] == [0]


def test_without_room_nothing_of_it_is_sent_and_that_is_said(qtbot, start, story: Path) -> None:
    program = start()
    chat = program.chat
    chat.composer.take_files([story])
    read(qtbot, chat.composer)
    chat.composer.edit.setPlainText("word " * 1500)
    qtbot.waitUntil(lambda: labels(chat.composer, "document-notes") == [NO_ROOM_CHIP])
    chat.composer.edit.submitted.emit()
    use = ended(qtbot, program).documents[0].use
    assert use is not None
    assert (use.passages, use.note) == ([], NO_ROOM)


def test_where_earlier_messages_make_room_a_document_has_it(qtbot, start, note: Path) -> None:
    program = start()
    chat = program.chat
    talk = chat.session.talk
    talk.set_overflow("drop_middle")
    talk.ask("What now?")
    for _ in range(3):
        talk.ask("word " * 1500)
    chat.session.changed.emit()
    chat.composer.take_files([note])
    read(qtbot, chat.composer)
    qtbot.waitUntil(lambda: "tokens" in labels(chat.composer, "document-facts")[0])
    assert labels(chat.composer, "document-notes") == []
    chat.composer.edit.submitted.emit()
    use = ended(qtbot, program).documents[0].use
    assert use is not None
    assert use.passages is None
    assert use.before > 4000, "all that is before it in the prompt"


def test_a_question_that_waits_for_the_model_decides_when_it_is_asked(qtbot, start, note: Path, story: Path) -> None:
    program = start()
    chat, sent = program.chat, asked(program)
    chat.session.talk.ask("Where is the key?", documents=(MessageDocument(of_text("story.txt", LONG)),))
    chat.session._queue[chat.chat_id] = chat.session.talk.leaf
    taken = chat.session.take_back()
    assert [each.name for each in taken.documents] == ["story.txt"]
    chat.composer.show_draft(taken)
    chat.composer.take_files([note])
    read(qtbot, chat.composer)
    chat.session.send(
        "Where?", ready=False, documents=tuple(MessageDocument(each.document) for each in chat.composer.draft.documents)
    )
    question = chat.session.talk.last("user")
    assert [each.use for each in question.documents] == [None, None]
    chat.session.send_queued()
    question = ended(qtbot, program)
    uses = [each.use for each in question.documents]
    assert [use is not None and use.passages is None for use in uses] == [False, True]
    assert '<document name="note.txt">' in sent[0].prompt[-1].content
    assert '<passages of="story.txt">' in sent[0].prompt[-1].content


def test_stop_while_passages_are_searched_ends_it(qtbot, start, story: Path, monkeypatch) -> None:
    program = start()
    chat, sent = program.chat, asked(program)
    chat.composer.take_files([story])
    read(qtbot, chat.composer)
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr("app.documents.child.command", lambda: sleeper)
    chat.composer.edit.setPlainText("Where is the key?")
    with qtbot.waitSignal(chat.answers.preparing) as told:
        chat.composer.edit.submitted.emit()
    assert told.args[1] == "searching story.txt"
    assert chat.transcript.views[-1].waiting_text == "searching story.txt"
    chat.stop()
    assert not chat.session.streaming
    assert sent == []
    question = chat.session.talk.last("user")
    assert question.documents[0].use is None, "it is decided when it is asked again"
    monkeypatch.undo()
    chat.message_actions.act_on_last("assistant", "regenerate")
    assert ended(qtbot, program).documents[0].use is not None


def test_a_chat_that_is_left_and_come_back_to_shows_what_was_decided(qtbot, start, story: Path) -> None:
    program = start()
    chat = program.chat
    chat.composer.take_files([story])
    read(qtbot, chat.composer)
    chat.composer.edit.setPlainText("Where is the key?")
    with qtbot.waitSignal(chat.answers.preparing):
        chat.composer.edit.submitted.emit()
    first = chat.chat_id
    chat.new_chat()
    chat.open_chat(first)
    question = chat.session.talk.last("user")
    assert question.documents[0].use is None
    question = ended(qtbot, program)
    assert question.documents[0].use is not None
    assert question == program.history.messages(first)[0]


def test_two_questions_that_were_never_asked_are_both_decided(qtbot, start, story: Path) -> None:
    program = start()
    session, sent = program.chat.session, asked(program)
    for name in ("one.txt", "two.txt"):
        session.talk.ask(name, documents=(MessageDocument(of_text(name, LONG)),))
    session.answer(session.talk.leaf)
    ended(qtbot, program)
    uses = [message.documents[0].use for message in session.talk.path if message.documents]
    assert [use is not None and use.passages is not None for use in uses] == [True, True]
    assert uses[1].before > uses[0].tokens // 10, "the first question is before it"
    assert [message.content.count("<passages") for message in sent[0].prompt] == [1, 1]


def test_a_question_that_was_refused_decides_again_when_it_is_asked_again(qtbot, start, note: Path) -> None:
    program = start()
    chat = program.chat
    chat.composer.take_files([note])
    read(qtbot, chat.composer)
    chat.composer.edit.setPlainText("refuse")
    with qtbot.waitSignal(chat.session.refused):
        chat.composer.edit.submitted.emit()
    (part,) = chat.session.talk.last("user").documents
    assert part.use is None
    assert program.history.messages(chat.chat_id)[0].documents == (part,)


def test_another_servers_model_gets_what_it_most_likely_reads(qtbot, start, note: Path) -> None:
    program = start()
    chat, sent = program.chat, asked(program)
    chat.session.set_remote(RemoteModel(server="lab", model="m"))
    chat.composer.take_files([note])
    read(qtbot, chat.composer)
    chat.composer.edit.submitted.emit()
    qtbot.waitUntil(lambda: bool(sent))
    assert "Call Ada" in sent[0].prompt[-1].content
    qtbot.waitUntil(lambda: not chat.session.streaming)


def test_nothing_is_sent_without_a_document_that_is_still_read(qtbot, start, note: Path) -> None:
    program = start()
    chat = program.chat
    chat.composer.take_files([note])
    chat.send("Who?")
    check_sentence(chat.notice.text, "being read")
    assert chat.chat_id == ""
    read(qtbot, chat.composer)
    assert chat.notice.text == ""
    chat.send("Who?")
    assert ended(qtbot, program).documents


def test_drafts_keep_documents_also_one_that_is_still_read(qtbot, start, note: Path) -> None:
    program = start()
    chat = program.chat
    first = answer(program, qtbot, "One")
    chat.composer.take_files([note])
    chat.new_chat()
    assert chat.composer.documents.isHidden()
    chat.open_chat(first)
    assert [each.text for each in read(qtbot, chat.composer)] == ["Call Ada on Friday."]


def paged(name: str = "a.pdf") -> Document:
    return document(name, "One.\n\nTwo.", DocumentFacts("PDF", 9, 2, 3, [0, 6], ["1 of 3 pages has no text."]))


def test_the_history_has_each_text_once_and_lets_it_go_with_its_last_message(qtbot, history: HistoryStore) -> None:
    one, two = Conversation(history), Conversation(history)
    parts = (MessageDocument(paged()), MessageDocument(paged("b.pdf")))
    asked_one = one.ask("First", documents=parts)
    asked_two = two.ask("Second", documents=parts[:1])
    one.set_uses(asked_one.id, (parts[0]._replace(use=DocumentUse([DocumentPassage(1, 0, 4)], 2, 7)), parts[1]))
    count = "SELECT count(*) FROM documents"
    assert history._read(count) == [(1,)]
    history.close()
    again = HistoryStore(history.path)
    (message,) = again.messages(one.chat.id)
    assert message.documents == one.tree.get(asked_one.id).documents
    again.delete(one.chat.id)
    again.close()
    again = HistoryStore(history.path)
    assert again._read(count) == [(1,)], "the other chat has it, too"
    again.remove_message(asked_two.id)
    assert again._read(count) == [(0,)]
    again.close()


def test_a_damaged_row_costs_itself_alone(history: HistoryStore) -> None:
    talk = Conversation(history)
    talk.ask("First", documents=(MessageDocument(paged()),))
    history._write("UPDATE documents SET facts = '{'", ())
    history._write("UPDATE message_documents SET sent = 'nonsense'", ())
    (message,) = history.messages(talk.chat.id)
    assert message.content == "First"
    assert message.documents[0].document.text == "One.\n\nTwo."
    assert message.documents[0].document.facts == DocumentFacts()


def test_an_exported_chat_names_its_documents(history: HistoryStore) -> None:
    talk = Conversation(history)
    use = DocumentUse([DocumentPassage(1, 0, 4)], 12)
    talk.ask("Look", documents=(MessageDocument(paged("a_*.pdf")), MessageDocument(paged(), use)))
    exported = to_markdown(talk.chat, talk.path)
    assert "*Document: a\\_\\*.pdf (PDF, 2 pages)*\n" in exported
    assert "*Document: a.pdf (PDF, 2 pages; 1 of 12 passages sent)*\n\nLook" in exported
    assert '<p class="note mute">Document: a_*.pdf (PDF, 2 pages)</p>' in to_html(talk.chat, talk.path)


def answered(tokens: int) -> StoredMessage:
    """An answer for which so many tokens of the prompt came from the cache."""
    usage = Usage(prompt_tokens=900, cached_tokens=tokens, generated_tokens=1, seed=1)
    return StoredMessage("a", "c", "", "assistant", "x", stats=AnswerStats(usage=usage))


@pytest.mark.parametrize(
    ("cached", "words"),
    [
        ([], ""),
        ([0], "500 tokens read by the model"),
        ([100], "500 tokens read by the model"),
        ([592], "Read once, kept: 492 of 500 tokens came from the cache"),
        ([0, 700], "Read once, kept: 500 of 500 tokens came from the cache"),
        ([592, 700, 800], "Read once, kept: 1,492 tokens came from the cache in 3 answers"),
    ],
)
def test_what_the_cache_saved(cached: list[int], words: str) -> None:
    answers = [answered(tokens) for tokens in cached]
    assert came_from_cache(DocumentUse(tokens=500, before=100), answers) == words
    assert came_from_cache(DocumentUse([DocumentPassage(1, 0, 9)], 3, 500, 100), answers) == ""
    assert came_from_cache(None, answers) == ""


@pytest.mark.parametrize("code", ["en", "de"])
def test_only_what_came_from_the_cache_is_good_news(code: str, qtbot, theme: Theme) -> None:
    use = DocumentUse(tokens=500, before=100)
    language.choose(code)
    try:
        asked = StoredMessage("b", "c", "", "user", "Why?", documents=(MessageDocument(paged(), use),))
        view = MessageView(asked, theme, None)  # type: ignore[arg-type]
        qtbot.addWidget(view)
        for tokens, role in ((0, "caption"), (592, "good")):
            assert view.show_saved([came_from_cache(use, [answered(tokens)])])
            assert view.findChild(QLabel, "document-lines").property("role") == role
    finally:
        language.choose("en")


def test_a_card_shows_the_beginning_of_a_long_text_and_what_was_saved(qtbot, theme: Theme) -> None:
    long = MessageDocument(of_text("a very long name of a document " * 9, "word " * 20_000), DocumentUse(tokens=9))
    message = StoredMessage("b", "c", "", "user", "Why?", documents=(long, MessageDocument(paged(), DocumentUse())))
    view = MessageView(message, theme, None)  # type: ignore[arg-type]
    qtbot.addWidget(view)
    view.resize(600, view.fit(600))
    view.show()
    block = view.findChild(DocumentBlock)
    assert "…" in block.head.text()
    assert block.head.width() <= 0.8 * 600
    assert view.show_saved(["Read once, kept: 9 of 9 tokens came from the cache", ""])
    assert not view.show_saved(["Read once, kept: 9 of 9 tokens came from the cache", ""])
    assert labels(view, "document-lines") == ["Read once, kept: 9 of 9 tokens came from the cache"]
    assert labels(view, "document-note") == ["1 of 3 pages has no text."]
    low = view.fit(600)
    block.head.click()
    assert view.fit(600) > low + 1000
    text = block.body.toPlainText()
    assert text.endswith("60,000 more characters, which the model reads too, are not shown here]")
    assert len(text) < MOST_SHOWN + 200
    view.restyle()
    assert view.fit(600) > low + 1000
    view.unfold([0])
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
