"""One cell or one setting that nobody can read costs itself alone: window and chat open, and it is said."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from app import paths
from app.history import backups, schema
from app.history.records import AnswerStats, Chat, StoredMessage, TextSpan
from app.history.store import HistoryStore
from app.settings.store import SettingsStore, UserSettings

CHAT = (
    "title",
    "created",
    "updated",
    "system_prompt",
    "sampling",
    "leaf",
    "thinking",
    "overflow",
    "servers",
    "folder",
    "tags",
)
MESSAGE = ("parent", "role", "content", "state", "stats", "spans", "created", "thinking", "parts")
COLUMNS = [*(("chats", column) for column in CHAT), *(("messages", column) for column in MESSAGE)]
ODD = ("'x'", "CAST(X'C328FF' AS TEXT)", "X'00FF'", "9e999", "-1", """'[["",-5]]'""", """'{"temperature":"hot"}'""")
"""As SQL."""


def filled(path: Path) -> None:
    store = HistoryStore(path)
    store.save_chat(Chat("c", "Pages", 1.0, 2.0, leaf="a"))
    store.save_message(StoredMessage("q", "c", "", "user", "Why pages?", created=1.0))
    store.save_message(
        StoredMessage(
            "a", "c", "q", "assistant", "Because.", "complete", AnswerStats(model="tiny"), (TextSpan("", 8),), 2.0
        )
    )
    store.close()


def spoil(path: Path, table: str, column: str, value: str) -> None:
    row = "c" if table == "chats" else "a"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = {value} WHERE id = '{row}'")


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_any_odd_cell_costs_itself_alone(qapp, tmp_path: Path, table: str, column: str) -> None:
    for number, value in enumerate(ODD):
        path = tmp_path / str(number) / "history.db"
        filled(path)
        spoil(path, table, column, value)
        opens_and_says(path)


def opens_and_says(path: Path) -> None:
    store = HistoryStore(path)
    said: list[str] = []
    store.unreadable.connect(said.append)
    (chat,) = store.chats()
    assert {message.id for message in store.messages("c")} == {"q", "a"}
    assert store.search("why")
    store.flush()
    copies = backups.found(path, backups.UNREAD)
    assert len(copies) == bool(said)
    for sentence in said:
        assert chat.title in sentence
        assert sentence.endswith(f"is kept as {copies[0]}.")
    store.close()
    again = HistoryStore(path)  # it is mended, and said once
    again.unreadable.connect(lambda sentence: pytest.fail(sentence))
    again.messages(again.chats()[0].id)
    again.close()


def test_what_was_not_understood_is_named_and_kept(qapp, tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    filled(path)
    spoil(path, "messages", "stats", "'x'")
    store = HistoryStore(path)
    said: list[str] = []
    store.unreadable.connect(said.append)
    question, answer = store.messages("c")
    assert (question.content, answer.content, answer.stats) == ("Why pages?", "Because.", AnswerStats())
    (sentence,) = said
    assert "the statistics of an answer of “Pages”" in sentence
    (copy,) = backups.found(path, backups.UNREAD)
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT stats FROM messages WHERE id = 'a'").fetchone() == ("x",)
        assert schema.version_of(connection) == schema.VERSION
    store.delete("c")
    store.close()
    HistoryStore(path).close()
    assert b"Because." not in copy.read_bytes()


def test_one_copy_serves_a_run_and_those_of_others_stay(qapp, tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    filled(path)
    for _ in range(4):
        spoil(path, "chats", "sampling", "'x'")
        spoil(path, "messages", "stats", "'y'")
        store = HistoryStore(path)
        store.chats()
        store.messages("c")
        store.close()
    copies = backups.found(path, backups.UNREAD)
    assert len(copies) == 4
    for copy in copies:
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            cells = "SELECT chats.sampling, messages.stats FROM chats JOIN messages ON messages.id = 'a'"
            assert connection.execute(cells).fetchone() == ("x", "y")


def test_without_room_for_a_copy_nothing_is_replaced(qapp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.db"
    filled(path)
    spoil(path, "chats", "sampling", "'x'")

    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backups, "keep", full)
    store = HistoryStore(path)
    said: list[str] = []
    store.unreadable.connect(said.append)
    assert [store.chats() for _ in range(3)]
    store.close()
    assert len(said) == 1
    assert "was left as it is" in said[0]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT sampling FROM chats").fetchone() == ("x",)


def test_a_message_that_is_its_own_ancestor_ends_nothing(qapp, tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    filled(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE messages SET parent = 'a' WHERE id = 'q'")
    store = HistoryStore(path)
    from app.chat.session.conversation import Conversation

    talk = Conversation(store, store.chat("c"), store.messages("c"))
    assert [message.id for message in talk.path] == ["q", "a"]
    assert talk.tree.newest_leaf("q")
    store.close()


VALUES = ("NaN", "Infinity", "1e308", "-1e308", "9223372036854775807", "9223372036854775808", "1e999", "-1", "0",
          "null", "true", "[]", "{}", '"x"', '"\\ud800"', f'"{"y" * 5000}"')  # fmt: skip


@pytest.mark.parametrize("name", UserSettings.__struct_fields__)
def test_an_odd_value_costs_its_setting_alone(qapp, tmp_path: Path, name: str) -> None:
    path = tmp_path / "settings.json"
    other = "plots_open" if name != "plots_open" else "panel_open"
    for value in VALUES:
        text = f'{{"version": 1, "{other}": false, "{name}": {value}}}'
        path.write_text(text)
        store = SettingsStore(path)
        assert getattr(store.settings, other) is False, value
        if store.notice:
            assert name in store.notice
            assert path.with_name("settings.json.broken").read_text() == text
        store.update(tint=not store.settings.tint)
        json.loads(path.read_text())


@pytest.mark.parametrize("value", ["NaN", "1e308", "9223372036854775807", "[]"])
def test_the_window_starts_whatever_is_in_its_settings(start, value: str) -> None:
    path = paths.settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{" + ", ".join(f'"{name}": {value}' for name in UserSettings.__struct_fields__) + "}")
    program = start(model=False)
    assert program.window.isVisible()
    assert not program.window.settings_page.grab().isNull()


def test_the_window_starts_over_a_bad_cell_and_says_so(start) -> None:
    path = paths.data_dir() / "history.db"
    filled(path)
    spoil(path, "chats", "tags", "'x'")
    spoil(path, "chats", "sampling", '\'{"temperature":"hot"}\'')
    program = start(model=False)
    assert "the tags of “Pages”" in program.chat.notice.text
    program.chat.open_chat("c")
    assert "the sampling settings of “Pages”" in program.chat.notice.text
    assert len(program.chat.transcript.views) == 2
