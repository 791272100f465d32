"""The history store: writes, tree, search, undo, crash marks, migration, damage, export."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.history.export import file_name, to_markdown
from app.history.records import AnswerStats, Chat, OmittedContext, StoredMessage, TextSpan, new_id
from app.history.schema import MIGRATIONS, VERSION, HistoryUnusableError, TooNewError
from app.history.search import places
from app.history.store import HistoryStore
from app.history.tree import MessageTree
from engine.protocol import Sampling, Thinking


def chat(title: str = "A chat", **fields: object) -> Chat:
    return Chat(id=new_id(), title=title, created=1.0, updated=time.time(), **fields)


def message(chat_id: str, content: str, parent: str = "", role: str = "user", **fields: object) -> StoredMessage:
    return StoredMessage(
        id=new_id(), chat=chat_id, parent=parent, role=role, content=content, created=time.time(), **fields
    )


def test_what_is_written_is_read_back(history: HistoryStore) -> None:
    thinking = Thinking(on=False, effort="low")
    one = chat(
        system_prompt="Be short.", sampling=Sampling(temperature=0.3, stop=["\n"]), thinking=thinking, overflow="window"
    )
    asked = message(one.id, "Why pages?")
    cut = OmittedContext("drop_middle", 2, 6, 4210)
    stats = AnswerStats(
        sampling=Sampling(seed=5),
        model="tiny",
        reason="stop",
        thinking=thinking,
        thought_s=2.5,
        overflow="drop_middle",
        cut=cut,
        diverged=12,
        divergence="why",
    )
    spans = (TextSpan("", 3), TextSpan("accepted", 5))
    answer = message(one.id, "Because.", asked.id, "assistant", stats=stats, spans=spans, thinking="Well, why?")
    history.save_chat(one)
    history.save_message(asked)
    history.save_message(answer)
    history.set_leaf(one.id, answer.id, touch=False)
    assert history.messages(one.id) == [asked, answer]
    assert history.chat(one.id) == one._replace(leaf=answer.id)


def test_search_finds_words_accents_and_titles_but_nothing_deleted(history: HistoryStore) -> None:
    pages, trip = chat("Paged attention"), chat("Trip to Trondheim")
    for one, text in ((pages, 'A page is "sixteen" tokens'), (trip, "The café in Trondheim")):
        history.save_chat(one)
        history.save_message(message(one.id, text))
    assert [found.chat.id for found in history.search("sixt tok")] == [pages.id]
    assert "sixteen" in history.search("sixteen")[0].excerpt
    assert [found.chat.id for found in history.search("cafe")] == [trip.id]
    assert [found.chat.id for found in history.search("paged att")] == [pages.id]
    assert history.search('"AND NOT *') == []
    both = history.search("trondheim")[0]
    assert (both.chat.id, both.message) == (trip.id, history.messages(trip.id)[0].id)
    history.delete(trip.id)
    assert history.search("cafe") == []
    history.undelete(trip.id)
    assert len(history.search("cafe")) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("本文是关于教务系统使用的一篇小教程", ["教务", "一篇", "本文", "教务系统", "教务 一篇", "程"]),
        ("明日の東京の天気を教えてください", ["天気", "東京", "ください"]),
        ("내일서울날씨알려줘", ["날씨", "서울"]),
        ("สวัสดีชาวโลกทั้งหลาย", ["ชาวโลก", "โลก"]),
        ("un cafe\u0301 cre\u0300me", ["café", "cafe", "CRÈME"]),
        ("I like 🐍 snakes, C++ and F#", ["🐍", "C++", "c++ snakes", "F#", "like,"]),
        (
            "call my_function_name(x) in foo.bar.baz: 100 %",
            ["my_function", "function_name", "bar.baz", "name(x", "_", "%"],
        ),
        ("the spaceship is unidentifiable", ["ship", "SPACESH", "s"]),
    ],
)
def test_search_finds_every_script_and_sign_in_texts_and_titles(
    history: HistoryStore, text: str, words: list[str]
) -> None:
    one, titled, other = chat("One"), chat(text), chat("Other")
    for each, content in ((one, f"before {text} after"), (titled, "nothing"), (other, "雨の日, C and F, a cage, ip")):
        history.save_chat(each)
        history.save_message(message(each.id, content))
    for word in words:
        hits = history.search(word)
        assert {hit.chat.id for hit in hits} - {other.id if word == "s" else ""} == {one.id, titled.id}, word
        excerpt = next(hit.excerpt for hit in hits if hit.chat.id == one.id)
        assert places(excerpt, word), word
    for nothing in ("教系", "ipship", "C--", "%_", "'", '"'):
        assert history.search(nothing) == [], nothing


def test_a_quotation_mark_within_a_word_is_a_sign_like_others(history: HistoryStore) -> None:
    one = chat()
    history.save_chat(one)
    history.save_message(message(one.id, 'a print, 6"x4"'))
    assert [len(history.search(words)) for words in ('6"x4', '"6"x4"', '6"x5')] == [1, 1, 0]


def test_edited_and_removed_messages_leave_the_index(history: HistoryStore) -> None:
    one = chat()
    history.save_chat(one)
    streaming = message(one.id, "alpha", role="assistant", state="streaming")
    history.save_message(streaming)
    assert history.search("alpha") == []
    history.save_message(streaming._replace(content="alpha beta", state="complete"))
    assert len(history.search("beta")) == 1
    history.remove_message(streaming.id)
    assert history.search("beta") == []


def test_deleted_chats_go_at_the_next_start(tmp_path: Path, history: HistoryStore) -> None:
    one = chat()
    history.save_chat(one)
    history.save_message(message(one.id, "gone"))
    history.delete(one.id)
    assert history.chats() == []
    history.close()
    again = HistoryStore(history.path)
    assert again.messages(one.id) == []
    assert again.removed == [one.id]
    again.close()


def test_a_killed_program_leaves_its_half_answer_marked(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom app.history.store import HistoryStore\n"
        "from app.history.records import Chat, StoredMessage\nstore = HistoryStore(Path(sys.argv[1]))\n"
        "store.save_chat(Chat('c', 'T', 1.0, 2.0))\n"
        "store.save_message(StoredMessage('m', 'c', '', 'assistant', 'half an ans', 'streaming', created=1.0))\n"
        "store.flush(); print('saved', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"saved\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    store = HistoryStore(path)
    assert [(m.content, m.state) for m in store.messages("c")] == [("half an ans", "interrupted")]
    assert len(store.search("half")) == 1
    store.close()


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"this is no database" * 100)
    store = HistoryStore(path)
    assert store.chats() == []
    assert "is kept as" in store.notice
    assert len(list(tmp_path.glob("history.damaged-*.db"))) == 1
    store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_damaged_file_behind_a_link_leaves_the_link(tmp_path: Path, qapp) -> None:
    real, path = tmp_path / "elsewhere" / "chats.db", tmp_path / "history.db"
    real.parent.mkdir()
    real.write_bytes(b"this is no database" * 100)
    path.symlink_to(real)
    store = HistoryStore(path)
    store.save_chat(chat("Kept"))
    store.close()
    assert path.is_symlink()
    again = HistoryStore(real)
    assert [one.title for one in again.chats()] == ["Kept"]
    again.close()


def test_a_later_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    HistoryStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(TooNewError, match="later version"):
        HistoryStore(path)


def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(f"{MIGRATIONS[0]}\nPRAGMA user_version = 1;")
        connection.execute("INSERT INTO chats (id, title, created, updated) VALUES ('c', 'Old', 1.0, 2.0)")
        connection.execute(
            "INSERT INTO messages (id, chat, parent, role, content, state, created) "
            "VALUES ('m', 'c', '', 'assistant', 'old words', 'complete', 1.0)"
        )
    connection.close()
    store = HistoryStore(path)
    assert store.chats() == [Chat("c", "Old", 1.0, 2.0)]
    [old] = store.messages("c")
    assert (old.content, old.thinking) == ("old words", "")
    store.save_message(old._replace(thinking="hm"))
    store.set_thinking("c", Thinking(on=True))
    assert store.messages("c")[0].thinking == "hm"
    assert len(store.search("words")) == 1
    assert store.search("hm") == []
    store.close()
    again = HistoryStore(path)
    found = again.chat("c")
    assert found is not None
    assert found.thinking == Thinking(on=True)
    again.close()


def test_spans_of_a_file_of_the_third_version_name_no_drafter(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(f"{MIGRATIONS[0]}\n{MIGRATIONS[1]}\n{MIGRATIONS[2]}\nPRAGMA user_version = 3;")
        connection.execute("INSERT INTO chats (id, title, created, updated) VALUES ('c', 'Old', 1.0, 2.0)")
        connection.execute(
            "INSERT INTO messages (id, chat, parent, role, content, state, spans, created)"
            """ VALUES ('m', 'c', '', 'assistant', 'Because.', 'complete', '[["",3],["accepted",5]]', 1.0)"""
        )
    connection.close()
    store = HistoryStore(path)
    old = store.messages("c")[0]
    assert old.spans == (TextSpan("", 3), TextSpan("accepted", 5, ""))
    store.save_message(old._replace(spans=(TextSpan("", 3), TextSpan("accepted", 5, "eagle"))))
    store.close()
    again = HistoryStore(path)
    assert again.messages("c")[0].spans == (TextSpan("", 3), TextSpan("accepted", 5, "eagle"))
    again.close()


def test_a_file_of_the_second_version_gets_the_policy_of_full_contexts(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(f"{MIGRATIONS[0]}\n{MIGRATIONS[1]}\nPRAGMA user_version = 2;")
        connection.execute("INSERT INTO chats (id, title, created, updated) VALUES ('c', 'Old', 1.0, 2.0)")
    connection.close()
    store = HistoryStore(path)
    assert store.chats() == [Chat("c", "Old", 1.0, 2.0, overflow="stop")]
    store.set_overflow("c", "window")
    store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        connection.execute("INSERT INTO chats (id, title, created, updated, overflow) VALUES ('d', 'X', 1, 1, 'later')")
    connection.close()
    again = HistoryStore(path)
    assert [chat.overflow for chat in again.chats()] == ["window", "stop"]
    again.close()


def test_a_folder_that_cannot_be_opened_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "history.db").mkdir()
    with pytest.raises(HistoryUnusableError, match="cannot be opened"):
        HistoryStore(tmp_path / "history.db")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_the_file_is_for_its_user_alone(tmp_path: Path, qapp) -> None:
    def modes() -> dict[str, int]:
        return {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("history*")}

    before = os.umask(0o022)
    try:
        store = HistoryStore(tmp_path / "history.db")
        store.save_chat(chat())
        store.flush()
        assert modes() == dict.fromkeys(("history.db", "history.db-wal", "history.db-shm"), 0o600)
        store.close()
        (tmp_path / "history.db").chmod(0o644)  # as versions before this left it
        HistoryStore(tmp_path / "history.db").close()
        assert modes() == {"history.db": 0o600}
    finally:
        os.umask(before)


def test_writes_announce_the_chat(qtbot, history: HistoryStore) -> None:
    one = chat()
    with qtbot.waitSignal(history.changed, timeout=5_000) as changed:
        history.save_chat(one)
    assert changed.args == [one.id]


def test_a_failed_write_is_a_sentence(qtbot, history: HistoryStore) -> None:
    with qtbot.waitSignal(history.failed, timeout=5_000) as failed:
        history.save_message(message("no such chat", "text"))
    assert "could not be saved" in failed.args[0]


def test_the_tree_keeps_branches() -> None:
    a = message("c", "one")
    b = message("c", "answer", a.id, "assistant")
    a2 = message("c", "one, edited")
    b2 = message("c", "other answer", a2.id, "assistant")
    tree = MessageTree([a, b, a2, b2])
    assert tree.leaf == b2.id
    assert tree.siblings(a.id) == [a.id, a2.id]
    assert [m.id for m in tree.path(tree.newest_leaf(a.id))] == [a.id, b.id]
    tree.remove(b2.id)
    assert tree.leaf == a2.id
    assert [m.id for m in tree.path()] == [a2.id]


def test_export() -> None:
    one = chat('What is a "page"?', system_prompt="Be short.")
    asked = message(one.id, "Why?")
    answer = message(one.id, "Because\n", asked.id, "assistant", state="interrupted", stats=AnswerStats(model="tiny"))
    text = to_markdown(one, [asked, answer])
    assert text.startswith('# What is a "page"?\n')
    assert "## System\n\nBe short.\n" in text
    assert "## You\n\nWhy?\n\n## tiny\n\nBecause\n\n*(interrupted)*" in text
    assert "<details>" not in text
    thought = answer._replace(thinking="Hm.\n\n```\nopen\n", stats=AnswerStats(model="tiny", thought_s=75.2))
    folded = "<details>\n<summary>Thought for 1 min 15 s</summary>\n\n> Hm.\n>\n> ```\n> open\n\n</details>\n\nBecause"
    assert f"## tiny\n\n{folded}" in to_markdown(one, [asked, thought])
    assert file_name(one) == "What is a page.md"
    cut = answer._replace(content="Look:\n\n```py\nprint(1)\n``` not the end")
    assert "``` not the end\n```\n\n*(interrupted)*" in to_markdown(one, [asked, cut])
    whole = answer._replace(content="~~~\n```\n~~~~\n\n``` one `line` ```\nend")
    assert "end\n\n*(interrupted)*" in to_markdown(one, [asked, whole])
