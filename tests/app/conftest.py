"""Every test of the window runs offscreen, in folders of its own, and may leave no timer or thread running."""

from __future__ import annotations

import os

os.environ["QT_QPA_PLATFORM"] = "offscreen"

import gc
import json
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent, Qt, QThread, QTimer
from PySide6.QtWidgets import QApplication, QToolButton
from pytestqt.qtbot import QtBot

from app import language, proposers
from app.history.store import HistoryStore
from app.link.link import EngineLink, LinkState
from app.program import WindowProgram
from app.theme.sheet import apply
from app.theme.theme import Theme
from engine.base.collector import no_collection
from engine.decoding.speculation.technique import drafting
from tests.kit import engine_thread

PATIENCE_MS = 120_000
proposers.learn(each.style for each in drafting())


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings, history, caches and logs of the program under test go into the test's own folder."""
    home = tmp_path / "home"
    for name in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    runtime = home / "runtime"
    runtime.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KVASIR_HOME", str(home / "kvasir"))
    return home


@pytest.fixture(autouse=True)
def nothing_left_running(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that leaves a running QTimer, QThread or thread of Kvasir's behind."""
    started: list[weakref.ref[QTimer] | weakref.ref[QThread]] = []
    _record_starts(QTimer, started, monkeypatch)
    _record_starts(QThread, started, monkeypatch)
    yield
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    gc.collect()
    left = [alive for ref in started if (alive := ref()) is not None and shiboken6.isValid(alive) and _runs(alive)]
    assert not left, f"still running: {[(item, item.objectName()) for item in left]}"
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("kvasir-")]
    assert not threads, f"threads left: {threads}"


def _record_starts(kind: type, started: list, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable = kind.start  # type: ignore[attr-defined]

    def start(self: QTimer, *args: object) -> None:
        started.append(weakref.ref(self))
        original(self, *(value for value in args if isinstance(value, int)))  # a signal's own arguments are dropped

    monkeypatch.setattr(kind, "start", start)


def _runs(item: QTimer | QThread) -> bool:
    return item.isRunning() if isinstance(item, QThread) else item.isActive()


@pytest.fixture
def german() -> Iterator[None]:
    """What is made meanwhile is in German; texts of modules stay English."""
    language.choose("de")
    yield
    language.choose("en")


@pytest.fixture
def qtbot(qtbot: QtBot) -> QtBot:
    """Waits as long as a busy machine may take; the times that tests give are those of a quiet one."""
    for name in ("waitUntil", "waitSignal", "waitSignals", "waitExposed", "waitActive"):
        setattr(qtbot, name, _patient(getattr(qtbot, name)))
    return qtbot


def _patient(wait: Callable) -> Callable:
    """A wait that raises nothing at its end, as for a signal that must not come, takes its own time."""

    def waits(*args: Any, timeout: int = 0, **options: Any) -> Any:
        return wait(*args, timeout=max(timeout, PATIENCE_MS if options.get("raising", True) else 0), **options)

    return waits


@pytest.fixture
def fake_command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The command of the fake engine with extra arguments: as a thread of this process, or as one of its own."""
    stand_in = SimpleNamespace(**{**vars(subprocess), "Popen": engine_thread.popen})
    monkeypatch.setattr("app.link.child.subprocess", stand_in)

    def command(*arguments: str, process: bool = False) -> list[str]:
        return [*(engine_thread.PROCESS if process else engine_thread.THREAD), *arguments]

    return command


@pytest.fixture
def make_link(qtbot, fake_command) -> Iterator[Callable[..., EngineLink]]:
    """``make_link(*arguments, load=True)``: a link to a fake engine, connected, with the model "tiny" loaded."""
    links: list[EngineLink] = []

    def make(*arguments: str, load: bool = True, process: bool = False) -> EngineLink:
        link = EngineLink(fake_command(*arguments, process=process))
        links.append(link)
        link.start()
        qtbot.waitUntil(lambda: link.state is LinkState.CONNECTED, timeout=20_000)
        if load:
            from engine.protocol import Load

            with qtbot.waitSignal(link.options, timeout=10_000):  # the last message of a load
                link.send(Load(model="tiny"))
        return link

    yield make
    for link in links:
        link.shutdown()


@pytest.fixture
def programs(qapp) -> Iterator[list[WindowProgram]]:
    """Whole programs that a test put in here; they are closed and taken apart at its end."""
    made: list[WindowProgram] = []
    yield made
    for program in made:
        program.close()
    _take_apart(qapp, made)


def _take_apart(qapp: QApplication, programs: Sequence[WindowProgram]) -> None:
    for program in programs:
        if shiboken6.isValid(program.window):
            program.window.deleteLater()
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    with no_collection():
        qapp.setStyleSheet("")  # else each widget of the next program is styled twice


def unfold(program: WindowProgram) -> None:
    """A window wide enough for the list of chats, the panel and the plots, with all of them open."""
    program.window.resize(1440, 900)
    program.window.show_why_fast()


@pytest.fixture
def start(qapp, qtbot, own_folders: Path, fake_command, programs: list[WindowProgram]) -> Callable[..., WindowProgram]:
    """``start()``: a program beside a fake engine; called again it is the next start with the same folders.

    ``engine`` is another command for the engine, None Kvasir's own; ``commands`` are those of `kvasir lab` and others.
    """

    def run(
        *arguments: str,
        model: bool = True,
        opened: bool = False,
        shown: bool = True,
        size: tuple[int, int] | None = None,
        process: bool = False,
        engine: Sequence[str] | None = (),
        **commands: Sequence[str],
    ) -> WindowProgram:
        command = fake_command(*arguments, process=process) if engine == () else engine
        _take_apart(qapp, [earlier for earlier in programs if earlier.closed])
        program = WindowProgram(qapp, own_folders / "kvasir.log", command, **commands)
        programs.append(program)
        if size is not None:
            program.window.resize(*size)
        if opened:
            unfold(program)
        program.window.setVisible(shown)
        if model:
            qtbot.waitUntil(lambda: program.link.card is not None and not program.chat.composer.reason)
        return program

    return run


@pytest.fixture
def make_program(start: Callable[..., WindowProgram]) -> Callable[..., WindowProgram]:
    """``start`` at 2,000 tokens a second, with all that folds away open."""

    def make(*arguments: str, opened: bool = True, **options: Any) -> WindowProgram:
        return start("--rate", "2000", *arguments, opened=opened, **options)

    return make


@pytest.fixture
def program(make_program: Callable[..., WindowProgram]) -> WindowProgram:
    return make_program()


def fold(program: WindowProgram, name: str) -> QToolButton:
    """The button that folds a part of the window away."""
    return program.window.findChild(QToolButton, f"top.{name}")


def send(program: WindowProgram, qtbot, text: str) -> None:
    """Type it and press Enter."""
    qtbot.keyClicks(program.chat.composer.edit, text)
    qtbot.keyClick(program.chat.composer.edit, Qt.Key.Key_Return)


def answer(program: WindowProgram, qtbot, text: str) -> str:
    """Ask, wait for the end; the chat's id."""
    send(program, qtbot, text)
    qtbot.waitUntil(lambda: program.chat.session.talk.leaf and not program.chat.streaming, timeout=20_000)
    return program.chat.chat_id


def ask(qtbot, program: WindowProgram, text: str = "hello") -> None:
    with qtbot.waitSignal(program.link.finished, timeout=20_000):
        program.chat.send(text)


@pytest.fixture
def theme(qapp) -> Theme:
    theme = Theme(mode="dark")
    apply(theme, qapp)
    return theme


@pytest.fixture
def history(tmp_path: Path, qapp) -> Iterator[HistoryStore]:
    store = HistoryStore(tmp_path / "history.db")
    yield store
    store.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A file that says what the fake `kvasir lab` does, and keeps what it was asked."""
    path = tmp_path / "state.json"
    facts = {
        "steps": 0.0,
        "fails": "",
        "dies": False,
        "full": False,
        "kept": ["cache"],
        "index_fails": "",
        "same": True,
    }
    path.write_text(json.dumps({**facts, "asked": []}))
    return path
