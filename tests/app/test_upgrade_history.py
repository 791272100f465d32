"""Histories of every released schema, brought up to date: nothing is lost, whatever ends it early."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QTimer

from app import version
from app.history import backups, schema, upgrade, upgrading
from app.history.schema import MIGRATIONS, VERSION, MigrationError, TooNewError
from app.history.store import HistoryStore
from app.history.upgrading import UpgradeWindow
from engine.protocol import Tool, ToolConfig
from tests.app import released_histories as released
from tests.kit.examples import examples

ROOT = Path(__file__).parents[2]
EARLIER = [number for number in released.RELEASED if number < VERSION]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.db"


def made(path: Path, number: int, **how: bool) -> Path:
    path.parent.mkdir(exist_ok=True)
    released.make(path, number, **how)
    return path


def dump(path: Path) -> list[str]:
    """Everything in a database, as SQL, and its schema."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [f"-- schema {schema_of(path)}", *connection.iterdump()]


def schema_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return schema.version_of(connection)


def test_released_migrations_are_as_they_were() -> None:
    def of(scripts: tuple[str, ...]) -> list[str]:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            for script in scripts:
                connection.executescript(script)
            return list(connection.iterdump())

    for number in released.RELEASED:
        assert of(MIGRATIONS[:number]) == of(released.SQL[:number])
    assert released.RELEASED[-1] <= VERSION


@pytest.mark.parametrize("number", released.RELEASED)
def test_every_chat_and_message_of_a_released_history_is_there(qapp, path: Path, number: int) -> None:
    store = HistoryStore(made(path, number))
    assert store.notice == ""
    assert store.removed == ["gone"]
    assert store.chats() == released.chats(number)
    expected = released.messages(number)
    for chat in released.chats(number):
        assert store.messages(chat.id) == [message for message in expected if message.chat == chat.id]
    if number >= 10:
        assert store.tools("kit", "d1") == ToolConfig(tools=[Tool(name="files__read")])
    if number >= 11:
        assert [folder for folder in store.folders() if folder.id == "f1"] == released.FOLDERS
        assert store.listed()[:2] == released.LISTED
        assert [found.chat.id for found in store.search('tag:"two words" 龘')] == ["trip"]
    if number >= 13:
        folder, documents = released.PAPERS
        assert store.folder("f2") == store.folder_of("paper") == folder
        assert store.folder_documents("f2") == documents
        draft = store.draft("paper")
        parts = [(each.name, each.path, each.document) for each in draft.documents]
        assert parts == [("d.txt", "/d.txt", released.THREE._replace(name="d.txt")), ("e.pdf", "/e.pdf", None)]
        assert draft.pictures == (b"one",)
    for words, chats in released.SEARCHES.items():
        assert {found.chat.id for found in store.search(words)} == chats, words
    # What it was brought to can be written, too.
    last = expected[-1]
    store.save_message(last._replace(content="Written anew: xylophone", thinking="hm"))
    assert [found.chat.id for found in store.search("xylophone")] == [last.chat]
    store.close()
    assert schema_of(path) == VERSION
    assert dump_of_new_schema(path) == dump_of_new_schema(made(path.with_name("new.db"), VERSION, rows=False))


def dump_of_new_schema(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {row[0] for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL")}


@pytest.mark.parametrize("number", EARLIER)
def test_a_copy_from_before_lies_beside_it(qapp, path: Path, number: int) -> None:
    before = dump(made(path, number))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        upgrade.upgrade(connection, path)
    copy = path.with_name(f"history.db.before-{VERSION}")
    (only,) = backups.found(path)
    assert only.samefile(copy)
    assert dump(copy) == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["history.db", copy.name]
    if os.name == "posix":
        assert copy.stat().st_mode & 0o777 == 0o600


def test_chats_that_were_deleted_leave_the_copy_too(qapp, path: Path) -> None:
    HistoryStore(made(path, 1)).close()
    copy = path.with_name(f"history.db.before-{VERSION}")
    text = "\n".join(dump(copy))
    assert "sixteen tokens" in text
    assert "Forgotten secret" not in text
    store = HistoryStore(path)
    store.delete("pages")
    store.close()
    HistoryStore(path).close()
    assert "sixteen tokens" not in "\n".join(dump(copy))
    assert b"sixteen tokens" not in copy.read_bytes()


def test_an_upgrade_by_another_process_meanwhile_makes_no_copy_of_its_result(path: Path) -> None:
    before = dump(made(path, 1))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        upgrade.upgrade(connection, path)
        assert backups.make(connection, path, 1, VERSION) is None
    (copy,) = backups.found(path)
    assert dump(copy) == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["history.db", copy.name]


def test_no_copy_without_an_upgrade(qapp, path: Path) -> None:
    HistoryStore(path).close()
    HistoryStore(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["history.db"]


def test_two_copies_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path, 1)
    for number in (2, 3, 4, 10):
        monkeypatch.setattr(schema, "VERSION", number)
        monkeypatch.setattr(upgrade, "VERSION", number)
        monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS[:4], *[""] * 6))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            upgrade.upgrade(connection, path)
    assert [copy.name for copy in backups.found(path)] == ["history.db.before-10", "history.db.before-4"]
    assert backups.readable(path, 4) == path.with_name("history.db.before-10")  # its schema is 4
    assert backups.readable(path, 3) == path.with_name("history.db.before-4")
    assert backups.readable(path, 2) is None


def test_a_migration_that_fails_leaves_the_file_and_says_so(qapp, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dump(made(path, 2))
    monkeypatch.setattr(
        schema, "MIGRATIONS", (*MIGRATIONS[:3], "UPDATE messages SET content = 'x'; \nINSERT INTO nowhere VALUES (1);")
    )
    with pytest.raises(MigrationError) as refused:
        HistoryStore(path)
    copy = path.with_name(f"history.db.before-{VERSION}")
    assert str(copy) in str(refused.value)
    assert "left as it was" in str(refused.value)
    assert [dump(path), dump(copy)] == [before, before]
    monkeypatch.undo()
    HistoryStore(path).close()
    assert schema_of(path) == VERSION


def test_a_full_file_leaves_it_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dump(made(path, 1))
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS[:3], "CREATE TABLE large AS SELECT zeroblob(99999);"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(MigrationError, match="full"):
            upgrade.upgrade(connection, path)
    assert dump(path) == before


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_without_room_for_the_copy_nothing_is_touched(path: Path) -> None:
    before = dump(made(path, 1))
    code = (
        "import resource, signal, sqlite3, sys\nfrom pathlib import Path\nfrom app.history import upgrade\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('SELECT id FROM chats').fetchall()\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "try:\n    upgrade.upgrade(connection, Path(sys.argv[1]))\n"
        "except upgrade.MigrationError as error:\n    print(error)\n"
    )
    done = run(code, path)
    assert "could not be copied" in done.stdout, done.stderr
    assert "Free 1 MB" in done.stdout
    assert dump(path) == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["history.db"]


KILLED_AT = """
import os, signal, sqlite3, sys
from pathlib import Path
from app.history import backups, schema, upgrade

path, left = Path(sys.argv[1]), int(sys.argv[2])

def step(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0

def trace(frame, event, argument):
    if "history" not in frame.f_code.co_filename:
        return None
    step()
    return trace

connection = sqlite3.connect(path, isolation_level=None)
connection.set_progress_handler(step, 200)
sys.settrace(trace)
upgrade.upgrade(connection, path)
sys.settrace(None)
print(-left)
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_killed_anywhere_it_is_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    before = dump(made(tmp_path / "old" / "history.db", 1))
    done = run(KILLED_AT, made(tmp_path / "new" / "history.db", 1), 0)
    assert done.returncode == 0, done.stderr
    after = dump(tmp_path / "new" / "history.db")
    points = int(done.stdout)
    seen: set[str] = set()
    early, late = range(1, points // 20, points // 160), range(points // 8, points - 5, points // 8)
    for at in (*early, *late, *range(points - 5, points + 1)):  # copying is early, and takes little of the time
        path = made(tmp_path / str(at) / "history.db", 1)
        done = run(KILLED_AT, path, at)
        assert done.returncode == -signal.SIGKILL, done.stderr
        found = dump(path)
        assert found in (before, after), at
        seen.add("old" if found == before else "new")
        seen |= {"copying" for _ in path.parent.glob(f"*{backups.UNFINISHED}*")}
        copies = backups.found(path)
        assert [dump(copy) for copy in copies] == [before] * len(copies)
        assert copies or found == before
        # The next start finishes it, and leaves nothing of the first attempt.
        assert run(KILLED_AT, path, 0).returncode == 0
        assert dump(path) == after
        assert sorted(file.name for file in path.parent.iterdir()) == ["history.db", f"history.db.before-{VERSION}"]
    assert seen == {"old", "new", "copying"}


def test_it_is_told_how_far_the_upgrade_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_AT_ONCE", 2)
    told: list[float] = []
    with contextlib.closing(sqlite3.connect(made(path, 1), isolation_level=None)) as connection:
        upgrade.upgrade(connection, path, told.append)
        assert connection.execute("INSERT INTO letters (letters) VALUES ('integrity-check')").fetchall() == []
        assert connection.execute("INSERT INTO words (words) VALUES ('integrity-check')").fetchall() == []
    assert told == sorted(told)
    assert len(told) > 4
    assert told[-1] == pytest.approx(1.0)


def test_a_long_upgrade_is_in_sight_and_the_window_goes_with_it(
    qapp, theme, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrading, "PATIENCE_MS", 0)
    seen = threading.Event()

    def windows() -> list[UpgradeWindow]:
        return [each for each in qapp.topLevelWidgets() if isinstance(each, UpgradeWindow) and each.isVisible()]

    def look() -> None:
        if windows() and windows()[0].bar.fraction == 0.5:
            windows()[0].close()  # which ends nothing
            assert windows()
            seen.set()

    def work(tell: schema.Tell) -> None:
        tell(0.5)
        assert seen.wait(60)

    timer = QTimer(interval=5)
    timer.timeout.connect(look)
    timer.start()
    HistoryStore(
        made(path, 1), upgrading=lambda whole: upgrading.in_sight(lambda tell: (work(tell), whole(tell)), theme, qapp)
    ).close()
    timer.stop()
    assert seen.is_set()
    assert windows() == []
    assert schema_of(path) == VERSION


def test_what_ends_an_upgrade_is_raised_where_it_was_asked_for(qapp, theme, path: Path) -> None:
    def work(_: schema.Tell) -> None:
        raise MigrationError("no room")

    with pytest.raises(MigrationError, match="no room"):
        HistoryStore(made(path, 1), upgrading=lambda _: upgrading.in_sight(work, theme, qapp))


KILLED_IN_SIGHT = """
import os, signal, sys
from pathlib import Path
from PySide6.QtWidgets import QApplication
from app.history import schema, upgrading
from app.history.store import HistoryStore
from app.theme.theme import Theme

app, theme, left = QApplication([]), Theme("dark"), int(sys.argv[2])
schema._AT_ONCE = 2

def killing(work):
    def tell(share):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    upgrading.in_sight(lambda _: work(tell), theme, app)

HistoryStore(Path(sys.argv[1]), upgrading=killing).close()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_killed_while_it_is_in_sight_the_file_is_as_it_was(tmp_path: Path) -> None:
    path = made(tmp_path / "history.db", 1)
    before = dump(path)
    done = run(KILLED_IN_SIGHT, path, 3)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert dump(path) == before
    assert run(KILLED_IN_SIGHT, path, 0).returncode == 0
    assert schema_of(path) == VERSION


def later(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        connection.execute("PRAGMA journal_mode = DELETE")


def test_a_later_history_is_refused_untouched_with_the_way_back(qapp, path: Path) -> None:
    HistoryStore(made(path, 1)).close()
    later(path)
    (path.parent / version.FILE).write_text('{"kvasir": "99.1.0"}')
    content = path.read_bytes()
    with pytest.raises(TooNewError) as refused:
        HistoryStore(path)
    sentence = str(refused.value)
    assert "Kvasir 99.1.0" in sentence
    assert f"Kvasir {version.installed()}" in sentence
    assert f"schema {VERSION + 1}" in sentence
    assert str(path.with_name(f"history.db.before-{VERSION}")) in sentence
    assert path.read_bytes() == content
    # The way back that the sentence names.
    path.rename(path.with_name("elsewhere"))
    path.with_name(f"history.db.before-{VERSION}").rename(path)
    store = HistoryStore(path)
    assert store.chats() == released.chats(1)
    store.close()


def test_without_a_copy_the_sentence_names_none(qapp, path: Path) -> None:
    HistoryStore(path).close()
    later(path)
    with pytest.raises(TooNewError, match="begin a new history") as refused:
        HistoryStore(path)
    assert "before" not in str(refused.value)


@st.composite
def chats_of(draw: st.DrawFn) -> list[tuple[str, list[tuple[str, str]]]]:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    answers = st.lists(st.tuples(text, st.sampled_from(["complete", "interrupted", "streaming"])), max_size=5)
    return draw(st.lists(st.tuples(text, answers), min_size=1, max_size=4))


@examples(25)
@given(number=st.sampled_from(released.RELEASED), chats=chats_of())
def test_any_text_of_any_schema_comes_through(
    tmp_path_factory: pytest.TempPathFactory, number: int, chats: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    path = made(tmp_path_factory.mktemp("any") / "history.db", number, rows=False)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number, (title, answers) in enumerate(chats):
            row = (f"c{number}", title, 1.0, -float(number), "", "{}", "", 0)
            connection.execute(f"INSERT INTO chats ({released.CHAT}) VALUES (?,?,?,?,?,?,?,?)", row)
            for index, (content, state) in enumerate(answers):
                parent = f"c{number}m{index // 2}" if index else ""
                words = f"{content} findme{number}x{index}"
                row = (f"c{number}m{index}", f"c{number}", parent, "assistant", words, state, "{}", "[]", float(index))
                connection.execute(f"INSERT INTO messages ({released.MESSAGE}) VALUES (?,?,?,?,?,?,?,?,?)", row)
    store = HistoryStore(path)
    try:
        assert [chat.title for chat in store.chats()] == [title for title, _ in chats]
        for number, (_, answers) in enumerate(chats):
            kept = store.messages(f"c{number}")
            assert [(one.content, one.parent) for one in kept] == [
                (f"{content} findme{number}x{index}", f"c{number}m{index // 2}" if index else "")
                for index, (content, _) in enumerate(answers)
            ]
            for index in range(len(answers)):
                assert [found.chat.id for found in store.search(f"findme{number}x{index}")] == [f"c{number}"]
    finally:
        store.close()
