"""Documents that belong to a folder: how they come into it, what of them its chats are asked with, what is kept."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from app.chat.folder import dialog as words
from app.chat.folder.chip import FolderChip
from app.chat.folder.dialog import FolderDocumentsDialog
from app.chat.folder.files import MOST, FolderFiles, stamp_of
from app.chat.session.settling import answers_with, first_undecided
from app.chat.transcript.documents import DocumentBlock
from app.documents.records import DocumentUse, MessageDocument, of_text
from app.history.chat_list import DropTarget
from app.history.duplicate import duplicate
from app.history.export import to_markdown, unsaved_to_markdown
from app.history.records import Attached, Chat, Draft, Folder, FolderDocument, StoredMessage
from app.history.sidebar import Sidebar
from app.history.store import HistoryStore
from app.history.transfer import chat_file
from app.history.transfer.import_job import ImportJob
from app.program import WindowProgram
from tests.app.chatting import asked, ended, labels, mime
from tests.app.conftest import send
from tests.broken_models import check_sentence

ADA = of_text("ada.txt", "Call Ada on Friday at the harbour, and take the map of the old town along. " * 4)
BOB = of_text("bob.txt", "Bob has the key of the boat.")
ADA_FRAME = f'<document name="ada.txt">\n{ADA.text}\n</document>\n\n'
BOB_FRAME = '<document name="bob.txt">\nBob has the key of the boat.\n</document>\n\n'
LONG = "\n".join(f"{at}. Nothing of note happened on this day, and so we went home." for at in range(300))
"""About 4,800 tokens of the fake engine, whose context has 2,048."""


def with_folder(program: WindowProgram, *documents: FolderDocument) -> None:
    """A folder "Thesis" with these documents."""
    program.history.save_folder(Folder("f", "Thesis"))
    program.history.set_folder_documents("f", documents or (FolderDocument("a", ADA), FolderDocument("b", BOB)))


def ask(qtbot, program: WindowProgram, text: str) -> StoredMessage:
    """Type it, press Enter and wait for the answer; the question."""
    send(program, qtbot, text)
    qtbot.waitUntil(lambda: first_undecided(program.chat.session.talk, program.chat.session.talk.leaf) is None)
    return ended(qtbot, program)


def entries(chip: FolderChip) -> dict[str, bool]:
    """The documents in the chip's menu, and whether they are used."""
    chip._fill_menu()
    return {each.text().split("\t")[0]: each.isChecked() for each in chip.menu.actions() if each.isCheckable()}


def switch(chip: FolderChip, name: str) -> None:
    chip._fill_menu()
    next(each for each in chip.menu.actions() if each.text().split("\t")[0] == name).trigger()


def blocks(program: WindowProgram, question: StoredMessage) -> list[str]:
    """The documents that stand above a question, in its view, too, if it is near enough to have one."""
    shown = next(each for each in program.chat.session.shown if each.id == question.id)
    names, view = [each.document.name for each in shown.documents], program.chat.transcript.view(question.id)
    heads = [block.words()[0] for block in view.findChildren(DocumentBlock)] if view is not None else []
    assert view is None or [head.split(" · ")[0] for head in heads] == names
    assert all(head.endswith("from the folder") for head in heads)
    return names


def test_chats_that_begin_in_a_folder_have_its_documents_in_front(qtbot, start) -> None:
    program = start("--rate", "2000")
    with_folder(program)
    chat, sent, chip = program.chat, asked(program), program.chat.composer.folder
    program.sidebar.refresh()
    menu = program.sidebar.folder_menu(program.history.folder("f"))
    next(each for each in menu.actions() if each.text() == "New chat in this folder").trigger()
    assert not chip.isHidden()
    qtbot.waitUntil(lambda: "tokens" in chip.button.accessibleName())
    assert chip.button.accessibleName().startswith("2 documents of “Thesis” · ")
    first = ask(qtbot, program, "Who?")
    assert sent[0].prompt[0].content == ADA_FRAME + BOB_FRAME + "Who?"
    assert program.history.folder_of(chat.chat_id).id == "f"
    assert [(each.document, each.folder) for each in first.documents] == [(ADA, True), (BOB, True)]
    second = ask(qtbot, program, "When?")
    assert [each.content for each in sent[1].prompt if each.role == "user"] == [sent[0].prompt[0].content, "When?"]
    assert (blocks(program, first), blocks(program, second)) == (["ada.txt", "bob.txt"], [])
    # Another chat finds them in the cache, and says so.
    program.sidebar.new_chat_in.emit("f")
    third = ask(qtbot, program, "Where?")
    answer = chat.session.talk.last("assistant")
    assert answer.stats.usage.cached_tokens >= 60
    assert chat.session.cache_savings(third)[0].startswith("Read once, kept: ")
    said = [
        label for label in labels(chat.transcript.view(third.id), "document-lines") if "came from the cache" in label
    ]
    assert len(said) >= 1
    # The next start shows and asks the same.
    own = chat.chat_id
    prompt = chat.session.talk.prompt(third.id)
    program.close()
    program = start("--rate", "2000")
    program.chat.open_chat(own)
    assert program.chat.session.talk.prompt(third.id) == prompt
    assert program.chat.composer.folder.used == [FolderDocument("a", ADA), FolderDocument("b", BOB)]


def test_what_is_changed_counts_from_the_next_question_on(qtbot, start) -> None:
    program = start("--rate", "2000")
    with_folder(program)
    chat, sent, chip = program.chat, asked(program), program.chat.composer.folder
    questions = [ask(qtbot, program, "One?")]
    own = chat.chat_id
    assert chip.isHidden()
    program.sidebar.place(own, DropTarget("list", "f"))
    qtbot.waitUntil(lambda: not chip.isHidden())
    questions.append(ask(qtbot, program, "Two?"))
    assert entries(chip) == {"ada.txt": True, "bob.txt": True}
    switch(chip, "ada.txt")
    assert chip.button.accessibleName().startswith("1 of 2 documents")
    assert program.history.chat(own).left_out == ("a",)
    questions.append(ask(qtbot, program, "Three?"))
    qtbot.mouseClick(chip.cross, Qt.MouseButton.LeftButton)
    assert chip.button.accessibleName() == "Without the documents of “Thesis”"
    assert chip.cross.isHidden()
    questions.append(ask(qtbot, program, "Four?"))
    assert entries(chip) == {"ada.txt": False, "bob.txt": False}
    switch(chip, "bob.txt")
    program.sidebar.place(own, DropTarget("list"))
    qtbot.waitUntil(chip.isHidden)
    questions.append(ask(qtbot, program, "Five?"))
    begins = [each.prompt[0].content for each in sent]
    assert begins == ["One?", ADA_FRAME + BOB_FRAME + "One?", BOB_FRAME + "One?", "One?", "One?"]
    assert [blocks(program, each) for each in questions] == [[], ["ada.txt", "bob.txt"], ["bob.txt"], [], []]
    # Each question has what it was asked with.
    assert [chat.session.talk.prompt(each.id) for each in questions] == [each.prompt for each in sent]
    exported = to_markdown(chat.session.talk.chat, chat.session.talk.path)
    assert (exported.count("*Document: ada.txt"), exported.count("*Document: bob.txt")) == (1, 2)
    # Another version of a question is asked with what the folder has now.
    program.sidebar.place(own, DropTarget("list", "f"))
    qtbot.waitUntil(lambda: not chip.isHidden())
    chat.message_actions.act(questions[0].id, "edit")
    assert chat.composer.draft.documents == ()
    chat.composer.edit.setPlainText("One, again?")
    chat.composer.edit.submitted.emit()
    qtbot.waitUntil(lambda: len(sent) == 6)
    ended(qtbot, program)
    assert sent[5].prompt[0].content == BOB_FRAME + "One, again?"


def test_of_one_that_does_not_fit_each_question_brings_its_passages(qtbot, start) -> None:
    program = start("--rate", "2000")
    with_folder(program, FolderDocument("l", of_text("long.txt", LONG)), FolderDocument("b", BOB))
    chat, sent = program.chat, asked(program)
    chat.new_chat("f")
    chip = chat.composer.folder
    qtbot.waitUntil(lambda: "passages that fit each question" in " ".join(chip.button.toolTip().split()))
    assert chip.button.accessibleName().endswith(" tokens and passages")
    first = ask(qtbot, program, "What happened on day 250?")
    second = ask(qtbot, program, "And on day 12?")
    begins = sent[1].prompt[0].content
    assert begins == sent[0].prompt[0].content
    assert begins.startswith(BOB_FRAME + '<passages of="long.txt">\n[1] line ')
    assert '<passages of="long.txt">' in sent[1].prompt[2].content
    uses = [next(each.use for each in question.documents if each.use.passages) for question in (first, second)]
    room = 2048 - 512
    spent = sum(each.end - each.start for each in uses[0].passages) * uses[0].tokens / len(LONG)
    assert spent < room / 3, "later questions have theirs"
    assert (blocks(program, first), blocks(program, second)) == (["long.txt", "bob.txt"], ["long.txt"])


def test_a_question_that_is_taken_back_leaves_the_new_chat_in_its_folder(qtbot, start) -> None:
    program = start("--rate", "2000")
    with_folder(program)
    chat = program.chat
    chat.new_chat("f")
    chat.session.send("Later", ready=False)
    assert [each.name for each in chat.session.take_back().documents] == []
    assert chat.session.folder.folder.name == "Thesis"
    assert chat.composer.folder.used


def test_an_answer_was_given_with_a_document_until_the_question_without_it() -> None:
    use = DocumentUse(tokens=9, before=3)
    front = MessageDocument(ADA, use, True)
    later = MessageDocument(ADA, DocumentUse(tokens=9, before=40), True)
    answers = [StoredMessage(name, "c", "", "assistant", "x") for name in "abc"]
    asked_with = [StoredMessage("q", "c", "", "user", "?", documents=(each,)) for each in (front, later)]
    after = [answers[0], asked_with[0], answers[1], asked_with[1], answers[2]]
    assert answers_with(front, after) == answers[:2]
    assert answers_with(MessageDocument(ADA, use), after) == answers


@pytest.fixture
def files(history: HistoryStore, qapp) -> Iterator[FolderFiles]:
    history.save_folder(Folder("f", "Thesis"))
    made = FolderFiles(history, "f", history)
    yield made
    made.stop()


def kept(history: HistoryStore) -> list[tuple[str, str]]:
    return [(each.document.name, each.document.text) for each in history.folder_documents("f")]


def texts(history: HistoryStore) -> int:
    """Texts of documents in the history, whatever has them."""
    return history._read("SELECT COUNT(*) FROM documents")[0][0]


def test_files_are_read_kept_watched_and_read_again(qtbot, files: FolderFiles, history: HistoryStore, tmp_path) -> None:
    one, same, two = (tmp_path / name for name in ("one.txt", "same.txt", "two.txt"))
    one.write_text("First.")
    same.write_text("First.")
    two.write_text("Second.")
    said: list[str] = []
    files.refused.connect(said.append)
    files.add([one, two, tmp_path / "gone.txt"])
    assert files.reading == ["one.txt", "two.txt", "gone.txt"]
    qtbot.waitUntil(lambda: not files.reading)
    check_sentence(" ".join(said), "gone.txt is not there any more")
    assert sorted(kept(history)) == [("one.txt", "First."), ("two.txt", "Second.")]
    files.add([one])
    qtbot.waitUntil(lambda: not files.reading)
    check_sentence(said[-1], "one.txt is in the folder already")
    first = next(each for each in files.documents if each.document.name == "one.txt")
    assert (files.state(first), first.stamp) == ("", stamp_of(one))
    one.write_text("First, anew.")
    assert files.state(first) == "changed"
    assert ("one.txt", "First.") in kept(history), "until it is read again"
    files.renew(first.id)
    files.renew(first.id)
    qtbot.waitUntil(lambda: not files.reading)
    assert ("one.txt", "First, anew.") in kept(history)
    assert first.id in {each.id for each in history.folder_documents("f")}
    assert texts(history) == 2, "the text from before is in no other place"
    one.unlink()
    assert files.state(next(each for each in files.documents if each.id == first.id)) == "gone"
    files.renew(first.id)
    qtbot.waitUntil(lambda: not files.reading)
    check_sentence(said[-1], "one.txt is not there any more")
    assert ("one.txt", "First, anew.") in kept(history)
    files.add([two] * MOST)
    check_sentence(said[-1], f"can have {MOST} documents")
    files.remove(first.id)
    assert kept(history) == [("two.txt", "Second.")]
    # The folder goes while a file is read.
    files.add([same])
    history.remove_folder("f")
    qtbot.waitUntil(lambda: not files.reading)
    assert (kept(history), texts(history)) == ([], 0)
    assert history.flush()


def notes(dialog: FolderDocumentsDialog) -> list[str]:
    """What is said of its documents in amber."""
    return [label.text() for label in dialog.findChildren(QLabel, "folder-notes") if label.isVisibleTo(dialog)]


def test_the_dialog_shows_what_was_read_and_what_became_of_it(qtbot, start, tmp_path: Path) -> None:
    program = start("--rate", "2000")
    note, scan = tmp_path / "note.txt", tmp_path / "scan.txt"
    note.write_text("Call Ada.")
    scan.write_text(LONG)
    with_folder(program, FolderDocument("n", of_text("note.txt", "Call Bob."), str(note), "1 1"))
    sidebar, window = program.sidebar, program.window
    sidebar.refresh()
    at = sidebar.list.visualRect(sidebar.model.index_of_folder("f")).center()
    beside = sidebar.list.visualRect(sidebar.model.index(0)).center()
    how = (Qt.DropAction.CopyAction, mime(scan), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    for place, taken in ((beside, False), (at, True)):
        entering, moving = QDragEnterEvent(place, *how), QDragMoveEvent(place, *how)
        sidebar.list.dragEnterEvent(entering)
        sidebar.list.dragMoveEvent(moving)
        assert (entering.isAccepted(), moving.isAccepted()) == (True, taken)
    sidebar.list.dropEvent(QDropEvent(QPointF(at), *how))
    dialog = window.findChild(FolderDocumentsDialog)
    qtbot.waitUntil(lambda: not dialog.files.reading)
    qtbot.waitUntil(lambda: "tokens" in dialog.whole.text())
    assert dialog.whole.text().startswith("2 documents, ")
    assert "The context has 2,048." in dialog.whole.text()
    qtbot.waitUntil(lambda: notes(dialog) == [words.CHANGED, words.TOO_LONG])
    dialog.findChild(QPushButton, "folder-renew.note.txt").click()
    qtbot.waitUntil(lambda: not dialog.files.reading)
    assert kept(program.history)[0] == ("note.txt", "Call Ada.")
    qtbot.waitUntil(lambda: notes(dialog) == [words.TOO_LONG])
    note.unlink()
    dialog.files.changed.emit()
    qtbot.waitUntil(lambda: notes(dialog)[:1] == [words.GONE])
    assert dialog.findChild(QPushButton, "folder-renew.note.txt") is None
    dialog.findChild(QPushButton, "folder-remove.scan.txt").click()
    assert kept(program.history) == [("note.txt", "Call Ada.")]
    entering = QDragEnterEvent(at, *how)
    dialog.dragEnterEvent(entering)
    assert entering.isAccepted()
    dialog.dropEvent(QDropEvent(QPointF(at), *how))
    dialog.findChild(QPushButton, "folder-close").click()  # it is read all the same
    qtbot.waitUntil(lambda: len(kept(program.history)) == 2)
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    program.chat.dialogs.show_folder_documents("f")
    other = window.findChildren(FolderDocumentsDialog)[-1]
    other.add([tmp_path / "nowhere.txt"])
    other.reject()
    qtbot.waitUntil(lambda: "nowhere.txt is not there any more" in program.chat.notice.text)
    program.chat.dialogs.show_folder_documents("gone")


def test_a_new_chat_in_a_folder_without_documents_says_where_it_begins(qtbot, start) -> None:
    program = start("--rate", "2000")
    program.history.save_folder(Folder("f", "A name that is " + "long " * 20))
    chat = program.chat
    chat.new_chat("f")
    chip = chat.composer.folder
    assert chip.button.accessibleName().startswith("New chat in “A name that is long")
    assert chip.cross.isHidden()
    chip.resize(150, chip.height())
    assert chip.button.text().endswith("…")
    ask(qtbot, program, "Hello")
    assert chip.isHidden()
    assert program.history.folder_of(chat.chat_id).id == "f"


def test_deleting_the_folder_takes_its_documents_and_undo_brings_them_back(qtbot, history: HistoryStore, theme) -> None:
    history.save_chat(Chat("c", "Chat", 1.0, 1.0))
    history.save_folder(Folder("f", "Thesis"))
    history.set_folder("c", "f")
    documents = [FolderDocument("a", ADA, "/ada.txt", "1 2"), FolderDocument("b", BOB)]
    history.set_folder_documents("f", documents)
    sidebar = Sidebar(history, theme)
    qtbot.addWidget(sidebar)
    spoken = sidebar.model.index_of_folder("f").data(Qt.ItemDataRole.AccessibleTextRole)
    assert spoken == "Thesis: folder, 1 chat, 2 documents, open"
    sidebar.delete_folder(history.folder("f"))
    assert sidebar._undo_label.text().endswith("Its chat is still in the list. Its 2 documents are not used any more.")
    assert (history.folder_documents("f"), texts(history)) == ([], 0)
    sidebar.undo()
    assert history.folder_documents("f") == documents
    assert history.folder_of("c").documents == 2


def test_a_text_goes_with_the_last_that_has_it(history: HistoryStore) -> None:
    history.save_folder(Folder("f", "Thesis"))
    history.save_chat(Chat("c", "Chat", 1.0, 1.0, left_out=("b",)))
    history.set_folder("c", "f")
    history.set_folder_documents("f", [FolderDocument("a", ADA)])
    history.save_message(StoredMessage("m", "c", "", "user", "?", documents=(MessageDocument(ADA, None, True),)))
    copy = duplicate(history, "c")
    assert history.messages(copy)[0].documents == (MessageDocument(ADA, None, True),)
    assert (history.folder_of(copy).id, history.chat(copy).left_out) == ("f", ("b",))
    history.set_folder_documents("f", [])
    assert texts(history) == 1
    for chat in ("c", copy):
        history._write("DELETE FROM chats WHERE id = ?", (chat,))
    assert texts(history) == 0


def test_own_files_have_the_folders_documents(history: HistoryStore) -> None:
    history.save_folder(Folder("f", "Thesis"))
    history.save_chat(Chat("c", "Chat", 1.0, 1.0))
    history.set_folder("c", "f")
    history.set_folder_documents("f", [FolderDocument("a", ADA, "/ada.txt", "1 2")])
    asked_with = (MessageDocument(BOB, DocumentUse(tokens=7)), MessageDocument(ADA, DocumentUse(tokens=9), True))
    history.save_message(StoredMessage("m", "c", "", "user", "?", documents=asked_with))
    record = chat_file.read(history, history.listed()[0], "Thesis")
    back = chat_file.from_json(json.loads(chat_file.to_json(record)))
    assert back == record
    assert back.stored()[0].documents == asked_with
    assert [each.document for each in back.folder_documents] == [ADA]
    assert "/ada.txt" not in chat_file.to_json(record).decode()


def test_what_a_chat_leaves_out_goes_with_its_file(qtbot, tmp_path: Path) -> None:
    theirs, ours = HistoryStore(tmp_path / "theirs"), HistoryStore(tmp_path / "ours")
    theirs.save_folder(Folder("f", "Thesis"))
    theirs.set_folder_documents("f", [FolderDocument("a", ADA), FolderDocument("b", BOB)])
    for number, out in enumerate((("b",), ("a", "b"), ("gone",))):
        theirs.save_chat(Chat(f"c{number}", f"{number}", 1.0, 1.0, left_out=out))
        theirs.set_folder(f"c{number}", "f")
        theirs.save_message(StoredMessage(f"m{number}", f"c{number}", "", "user", "?"))
    paths = [tmp_path / f"{each.title}.json" for each in theirs.listed()]
    for path, each in zip(paths, theirs.listed(), strict=True):
        record = chat_file.read(theirs, each, "Thesis")
        assert record is not None
        path.write_bytes(chat_file.to_json(record))
    job = ImportJob(ours, sorted(paths))  # the first makes the folder, the others find it
    with qtbot.waitSignal(job.ended):
        job.start()
    job.close_down()
    names = {each.id: each.document.name for each in ours.folder_documents(ours.folders()[0].id)}
    out = [[names[key] for key in ours.chat(chat).left_out] for chat in job.report.ids]
    assert out == [[BOB.name], [ADA.name, BOB.name], []]
    for store in (theirs, ours):
        store.close()


@pytest.mark.parametrize("known", [False, True])
def test_an_import_that_makes_the_folder_gives_it_its_documents(
    qtbot, history: HistoryStore, tmp_path: Path, known: bool
) -> None:
    if known:
        history.save_folder(Folder("here", "Thesis"))
        history.set_folder_documents("here", [FolderDocument("b", BOB)])
    papers = [chat_file.DocumentRecord(each.name, each.text, each.facts) for each in (ADA, BOB, ADA)]
    for number in (1, 2):  # two chats of one folder
        record = chat_file.ChatRecord(
            version=1,
            id=f"c{number}",
            title="Own",
            created=5.0,
            updated=6.0,
            messages=[chat_file.MessageRecord("q", "user", "?")],
            folder="Thesis",
            folder_documents=papers,
        )
        (tmp_path / f"{number}.json").write_bytes(chat_file.to_json(record))
    job = ImportJob(history, [tmp_path / "1.json", tmp_path / "2.json"])
    with qtbot.waitSignal(job.ended):
        job.start()
    job.close_down()
    (folder,) = history.folders()
    found = [each.document for each in history.folder_documents(folder.id)]
    assert (folder.name, found) == ("Thesis", [BOB] if known else [ADA, BOB])
    assert {history.folder_of(chat).id for chat in job.report.ids} == {folder.id}


def test_with_a_full_disk_the_documents_are_used_and_kept_once_there_is_room(qtbot, history: HistoryStore) -> None:
    history.save_folder(Folder("f", "Thesis"))
    assert history.flush()
    connect, full = history._writer._connect, True

    def refused() -> sqlite3.Connection:
        if full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return connect()

    history._writer._connect, history._writer._connection = refused, None
    with qtbot.waitSignal(history.failed) as failed:
        history.set_folder_documents("f", [FolderDocument("a", ADA)])
        history.set_draft_parts("", Draft(pictures=(b"one",), documents=(Attached("Pasted", BOB, pasted=True),)))
    check_sentence(failed.args[0].partition(": it is then")[0] + ".", "the disk is full")
    assert kept(history) == [("ada.txt", ADA.text)]
    assert history.unsaved() == [""]
    assert BOB.text in unsaved_to_markdown(history)
    assert "data:image/" in unsaved_to_markdown(history)
    with qtbot.waitSignal(history.recovered):
        full = False
    assert (texts(history), history.draft("").pictures) == (2, (b"one",))
