"""A history that cannot be written for a while: full disk, another program's lock, a kill, in any order."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtWidgets import QFileDialog, QMessageBox, QPushButton

from app.chat.session.conversation import Conversation
from app.history import writer
from app.history.records import AnswerStats, Chat, Draft, StoredMessage
from app.history.schema import HistoryUnusableError
from app.history.store import HistoryStore
from app.history.tree import MessageTree
from tests.app.conftest import answer
from tests.kit.examples import examples


class Disk:
    """A folder with a history, which can be full or locked by another program."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "history.db"
        self.full = False
        self.failure: Exception | None = None
        """Of whatever writes."""
        self._other: sqlite3.Connection | None = None

    def lock(self) -> None:
        if self._other is None:
            self._other = sqlite3.connect(self.path, isolation_level=None)
            self._other.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        if self._other is not None:
            self._other.close()
            self._other = None

    @contextlib.contextmanager
    def store(self) -> Iterator[HistoryStore]:
        store = _Store(self)
        try:
            yield store
        finally:
            self.full = False
            self.unlock()
            store.close()

    @contextlib.contextmanager
    def after_a_kill(self) -> Iterator[HistoryStore]:
        """The next start, had the program been killed now."""
        image = self.folder / f"killed-{time.monotonic_ns()}"
        image.mkdir()
        for file in self.folder.glob("history.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, image)
        store = HistoryStore(image / "history.db")
        try:
            yield store
        finally:
            store.close()


class _Store(HistoryStore):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.path)

    def _connect(self, patience_s: float) -> Any:
        return _Connection(super()._connect(patience_s), self._disk)


class _Connection:
    """A statement that writes finds the disk full, as SQLite says it."""

    def __init__(self, connection: sqlite3.Connection, disk: Disk) -> None:
        self._connection, self._disk = connection, disk

    def execute(self, sql: str, values: tuple = ()) -> sqlite3.Cursor:
        if self._disk.failure is not None and sql.startswith("BEGIN"):
            raise self._disk.failure
        if self._disk.full and sql.startswith(("INSERT", "UPDATE", "DELETE", "COMMIT")):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._connection.execute(sql, values)

    def backup(self, target: sqlite3.Connection) -> None:
        self._connection.backup(target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_S", 0.02)
    monkeypatch.setattr(writer, "HELD_PATIENCE_S", 0.05)
    monkeypatch.setattr(writer, "CLOSE_S", 0.1)


@pytest.fixture
def disk(tmp_path: Path, qapp) -> Disk:
    return Disk(tmp_path)


def written(store: HistoryStore) -> None:
    """Wait until everything is in the file."""
    until = time.monotonic() + 60
    while not store.flush():
        assert time.monotonic() < until, store.unsaved()
        time.sleep(0.005)


def contents(messages: list[StoredMessage]) -> dict[str, tuple[str, tuple[bytes, ...]]]:
    return {message.id: (message.content, message.pictures) for message in messages}


STEPS = (
    "ask",
    "picture",
    "answer",
    "grow",
    "edit",
    "rename",
    "draft",
    "chat",
    "full",
    "room",
    "lock",
    "unlock",
    "kill",
)


@examples(25)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=4, max_size=16))
def test_what_was_on_the_screen_is_in_the_file_or_named(
    tmp_path_factory: pytest.TempPathFactory, qapp, steps: list[str]
) -> None:
    disk = Disk(tmp_path_factory.mktemp("faults"))
    with disk.store() as store:
        talk = Conversation(store)
        talks = [talk]
        drafts: dict[str, str] = {}
        for number, step in enumerate(steps):
            if step in ("ask", "picture") or not talk.leaf:
                talk.ask(f"question {number}", pictures=(b"p",) if step == "picture" else ())
                store.set_draft("", Draft())
            elif step in ("answer", "grow"):
                with store.together():
                    message = talk.begin_answer(talk.leaf, AnswerStats(model="tiny"))
                    store.save_message(message)
                if step == "answer":
                    talk.tree.put(message._replace(content=f"answer {number}", state="complete"))
                    store.save_message(talk.tree.get(message.id))
            elif step == "edit":
                talk.ask(f"edited {number}", instead_of=talk.path[0].id)
            elif step == "rename":
                talk.chat = talk.chat._replace(title=f"title {number}")
                store.set_title(talk.chat.id, talk.chat.title)
            elif step == "draft":
                drafts[talk.chat.id] = f"typed {number}"
                store.set_draft(talk.chat.id, Draft(drafts[talk.chat.id]))
            elif step == "chat":
                talk = Conversation(store)
                talks.append(talk)
            elif step in ("full", "room"):
                disk.full = step == "full"
            elif step == "lock":
                disk.lock()
            elif step == "unlock":
                disk.unlock()
            else:
                named = store.unsaved()
                with disk.after_a_kill() as killed:
                    compare(killed, [talk for talk in talks if talk.chat.id not in named], drafts)
            compare(store, talks, drafts)
        disk.full = False
        disk.unlock()
        written(store)
        with disk.after_a_kill() as killed:
            compare(killed, talks, drafts)


def compare(store: HistoryStore, talks: list[Conversation], drafts: dict[str, str]) -> None:
    """That a store shows what is on the screen."""
    for talk in talks:
        if talk.leaf:
            shown = talk.tree.all()
            assert contents(store.messages(talk.chat.id)) == contents(shown)
            chat = store.chat(talk.chat.id)
            assert chat is not None
            assert (chat.title, chat.leaf) == (talk.chat.title, talk.leaf)
            assert store.draft(talk.chat.id).text == drafts.get(talk.chat.id, "")
            words = next(message.content for message in shown if message.state == "complete")
            assert chat.id in {hit.chat.id for hit in store.search(words)}


def test_a_full_disk_loses_nothing_and_the_sentence_goes_with_the_last_of_it(qtbot, disk: Disk) -> None:
    """With SQLite's own error."""
    with disk.store() as store:
        said: list[str] = []
        store.failed.connect(said.append)
        store.recovered.connect(lambda: said.append("recovered"))
        talk = Conversation(store)
        first = talk.ask("What is a page?")
        written(store)
        connection = store._writer._connection
        assert connection is not None
        connection.execute("PRAGMA max_page_count = 1")
        second = talk.ask("x" * 20_000)
        qtbot.waitUntil(lambda: bool(said), timeout=5_000)
        assert "the disk is full" in said[0]
        talk.ask("short")  # would fit, and waits for its parent
        assert store.unsaved() == [talk.chat.id]
        assert [message.content for message in store.messages(talk.chat.id)] == [m.content for m in talk.path]
        with disk.after_a_kill() as killed:
            assert [message.id for message in killed.messages(talk.chat.id)] == [first.id]
        assert said[1:] == []
        connection.execute("PRAGMA max_page_count = 1000000")
        written(store)
        qtbot.waitUntil(lambda: said[1:] == ["recovered"], timeout=5_000)
        with disk.after_a_kill() as killed:
            assert [message.parent for message in killed.messages(talk.chat.id)] == ["", first.id, second.id]


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
@pytest.mark.parametrize("whole_folder", [True, False])
def test_a_history_that_is_removed_while_it_is_open_is_written_again(qtbot, tmp_path: Path, whole_folder: bool) -> None:
    disk = Disk(tmp_path / "data")
    disk.folder.mkdir()
    with disk.store() as store:
        said: list[str] = []
        store.unreadable.connect(said.append)
        store.failed.connect(said.append)
        talk = Conversation(store)
        talk.ask("before", pictures=(b"p",))
        written(store)
        shutil.rmtree(disk.folder) if whole_folder else disk.path.unlink()
        talk.ask("after")
        written(store)
        talk.ask("and later")
        compare(store, [talk], {})
        with disk.after_a_kill() as killed:
            compare(killed, [talk], {})
        qtbot.waitUntil(lambda: len(said) == 1)
        assert "removed while Kvasir ran" in said[0]
        other = disk.folder / "other"
        other.write_bytes(disk.path.read_bytes())
        other.replace(disk.path)
        talk.ask("into which file?")
        assert not store.flush()
        qtbot.waitUntil(lambda: len(said) == 2)
        assert "another file was put at" in said[1]
        assert store.unsaved() == [talk.chat.id]
        compare(store, [talk], {})


def test_another_program_that_holds_the_file_is_named_and_stops_no_window(qtbot, disk: Disk) -> None:
    with disk.store() as store:
        said: list[str] = []
        store.failed.connect(said.append)
        store.recovered.connect(lambda: said.append("recovered"))
        disk.lock()
        talk = Conversation(store)
        talk.ask("Why?")
        assert store.flush(3600) is False  # comes back at once
        assert [chat.title for chat in store.chats()] == ["Why?"]
        qtbot.waitUntil(lambda: len(said) == 1, timeout=5_000)
        assert "another program holds the file" in said[0]
        disk.unlock()
        written(store)
        qtbot.waitUntil(lambda: said[1:] == ["recovered"], timeout=5_000)


def test_a_chat_begins_as_a_whole(disk: Disk) -> None:
    with disk.store() as store:
        jobs = []
        put = store._writer.put
        store._writer.put = lambda job: (jobs.append(job), put(job))  # type: ignore[method-assign]
        Conversation(store).ask("Look", pictures=(b"one", b"two"))
        (job,) = jobs
        tables = [sql.split()[2 if sql.startswith("INSERT INTO") else 1] for sql, _ in job.statements]
        assert tables == ["chats", "messages", "OR", "OR", "chats"]


@pytest.mark.parametrize("failure", [MemoryError(), HistoryUnusableError("A later version of Kvasir wrote it.")])
def test_whatever_the_cause_it_is_told_and_tried_again(qtbot, disk: Disk, failure: Exception) -> None:
    with disk.store() as store:
        said: list[str] = []
        store.failed.connect(said.append)
        disk.failure = failure
        talk = Conversation(store)
        talk.ask("What is a page?")
        qtbot.waitUntil(lambda: bool(said), timeout=5_000)
        assert f"saved: {str(failure).rstrip('.') or 'MemoryError'}. It is tried again" in said[0]
        disk.failure = None
        written(store)
        with disk.after_a_kill() as killed:
            assert len(killed.messages(talk.chat.id)) == 1


def test_what_is_refused_stops_nothing_else_and_is_written_when_it_can_be(qtbot, disk: Disk) -> None:
    with disk.store() as store:
        store.save_message(StoredMessage("m", "late", "", "user", "before its chat", created=1.0))
        store.save_chat(Chat("other", "Other", 1.0, 2.0))
        qtbot.waitUntil(lambda: store.unsaved() == ["late"], timeout=5_000)
        with disk.after_a_kill() as killed:
            assert [chat.id for chat in killed.chats()] == ["other"]
        store.save_chat(Chat("late", "Late", 1.0, 2.0))
        written(store)
        assert [message.content for message in store.messages("late")] == ["before its chat"]


def test_half_a_character_is_replaced_and_stops_nothing(disk: Disk) -> None:
    with disk.store() as store:
        talk = Conversation(store)
        talk.ask("half \ud83d of a bird 🐦")
        written(store)
        assert store.messages(talk.chat.id)[0].content == "half \ufffd of a bird 🐦"


def test_an_answer_that_grows_takes_one_place_of_what_waits(disk: Disk) -> None:
    with disk.store() as store:
        talk = Conversation(store)
        asked = talk.ask("Why?")
        disk.full = True
        for length in range(50):
            store.save_message(StoredMessage("a", talk.chat.id, asked.id, "assistant", "x" * length, created=1.0))
            store.set_draft(talk.chat.id, Draft("y" * length))
        assert len(store._writer.waiting()) == 2
        assert store.messages(talk.chat.id)[-1].content == "x" * 49


def test_a_draft_is_given_up_behind_its_message(disk: Disk) -> None:
    with disk.store() as store:
        store.set_draft("", Draft("precious"))
        written(store)
        disk.full = True
        store.set_draft("", Draft("precious!"))
        talk = Conversation(store)
        talk.ask("precious!")
        store.set_draft("", Draft())
        first, last = store._writer.waiting()
        assert (first.statements[1][0].split()[2], last.statements[0][0].split()[2]) == ("messages", "drafts")
        assert store.draft("") == Draft()


def test_a_message_whose_parent_is_missing_hides_nothing() -> None:
    def message(name: str, parent: str) -> StoredMessage:
        return StoredMessage(name, "c", parent, "user", name)

    messages = [message("q1", ""), message("a1", "q1"), message("q3", "lost"), message("a3", "q3")]
    assert [one.id for one in MessageTree(messages, "a3").path()] == ["q1", "a1", "q3", "a3"]
    assert [one.id for one in MessageTree([message("only", "lost")]).path()] == ["only"]
    circle = [message("one", "two"), message("two", "one"), message("three", "two")]
    assert [one.id for one in MessageTree(circle).path()] == ["one", "two", "three"]


def test_versions_keep_the_order_in_which_they_came_whatever_the_clock_says(disk: Disk, monkeypatch) -> None:
    with disk.store() as store:
        talk = Conversation(store)
        asked = talk.ask("Why?")
        for clock in (5e9, 4e9, -86_400.0, 1e12):
            monkeypatch.setattr(time, "time", lambda clock=clock: clock)
            store.save_message(talk.begin_answer(asked.id, AnswerStats(model=str(clock))))
        monkeypatch.undo()
        said: list[str] = []
        store.unreadable.connect(said.append)
        again = Conversation(store, store.chat(talk.chat.id), store.messages(talk.chat.id))
        assert [again.tree.get(one).stats.model for one in again.tree.siblings(talk.leaf)] == [
            "5000000000.0",
            "4000000000.0",
            "-86400.0",
            "1000000000000.0",
        ]
        assert again.branch(talk.leaf) == (3, 4)
        assert said == []


def test_the_window_asks_before_it_closes_over_what_is_not_saved(start, qtbot, tmp_path: Path, monkeypatch) -> None:
    program = start()
    answer(program, qtbot, "a page")
    other = sqlite3.connect(program.history.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        answer(program, qtbot, "while it is held")
        notice = program.chat.notice
        qtbot.waitUntil(lambda: "another program holds the file" in notice.text, timeout=10_000)
        program.chat.news.complain("Something else.")
        assert "another program holds the file" in notice.text
        assert notice.text.endswith("Something else.")
        program.chat.news.dismiss()
        assert notice.text.startswith("The history could not be saved")
        program.window.close()
        assert program.window.isVisible()
        box = program.leaving.box
        assert box is not None
        assert "A chat is not saved" in box.text()
        assert {button.text() for button in box.buttons()} == {"Save elsewhere…", "Close anyway", "Keep open"}
        file = tmp_path / "elsewhere.md"
        program.window.presence.unfinished = lambda: ["An answer is being written."]
        leave = next(button for button in box.findChildren(QPushButton) if "anyway" in button.text())
        leave.click()
        assert program.window.isVisible()
        quit_box = program.window.findChild(QMessageBox, "window.leave")
        assert quit_box is not None
        program.window.close()
        assert program.leaving.box is None, "that was answered"
        quit_box.reject()
        program.window.presence.unfinished = list
        answer(program, qtbot, "more while it is held")
        program.window.close()
        box = program.leaving.box
        assert box is not None, "more would be lost now"
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(file), ""))
        save = next(button for button in box.findChildren(QPushButton) if "Save" in button.text())
        save.click()
        assert not program.window.isVisible()
        assert "while it is held" in file.read_text(encoding="utf-8")
    finally:
        other.close()
    program.window.show()
    qtbot.waitUntil(lambda: notice.text == "", timeout=10_000)
