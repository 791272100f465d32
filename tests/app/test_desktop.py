"""What the desktop shows beside the window: notifications of what ended, and the icon in the tray."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from PySide6.QtGui import QAction, QShortcut
from PySide6.QtWidgets import QApplication, QMessageBox, QSpinBox, QSystemTrayIcon

from app.history.records import AnswerStats, StoredMessage
from app.program import WindowProgram
from app.theme.widgets import Toggle
from app.window.window import MainWindow
from engine.protocol import Download, MakeProgress, Timings
from tests.app.conftest import ask

# The tests' platform has neither a tray nor windows above each other.
pytestmark = pytest.mark.qt_log_ignore(
    "systemTrayWindowChanged", "does not support raise", "This plugin does not support", extend=True
)


@pytest.fixture
def told() -> list[tuple[str, str]]:
    """Title and words of each notification."""
    return []


@pytest.fixture
def program(start: Callable[..., WindowProgram], told) -> Iterator[WindowProgram]:
    """With a tray, which the tests' platform lacks, and behind another window."""
    program = start("--rate", "4000")
    desktop = program.desktop
    desktop.available, desktop.in_front = lambda: True, lambda: False
    desktop.show_message = lambda _icon, title, words, *_: told.append((title, words))
    yield program
    QApplication.setQuitOnLastWindowClosed(True)


def tray(program: WindowProgram) -> QSystemTrayIcon:
    icon = program.desktop._icon
    assert icon is not None
    return icon


def answer(program: WindowProgram, seconds: float, reason: str = "stop") -> StoredMessage:
    timings = Timings(0, 10, 1000 * seconds, 9.0, 1.0, 10)
    stats = AnswerStats(timings=timings, reason=reason)
    return StoredMessage("a", program.chat.chat_id, "q", "assistant", "x", stats=stats)


def test_a_long_answer_is_told_while_the_window_is_not_in_front(qtbot, program, told) -> None:
    ask(qtbot, program, "What is a page?")
    chat = program.chat.chat_id
    program.chat.new_chat()
    program.window.show_page(MainWindow.LAB)
    ended = program.chat.answers.ended
    long = answer(program, 21)._replace(chat=chat)
    program.desktop.in_front = lambda: True
    ended.emit(long)
    program.desktop.in_front = lambda: False
    ended.emit(long._replace(stats=answer(program, 19).stats))
    ended.emit(long._replace(stats=answer(program, 60, "cancelled").stats))
    ended.emit(long._replace(stats=AnswerStats()))
    assert program.desktop._icon is None, "nothing is made for nothing"
    ended.emit(long)
    assert told == [("An answer is finished", "What is a page?")]
    tray(program).messageClicked.emit()
    assert (program.window.page, program.chat.chat_id) == (MainWindow.CHAT, chat)
    assert not tray(program).isVisible(), "nobody wants the icon otherwise"


def test_it_can_be_set_when_and_whether(program, told) -> None:
    page = program.window.settings_page
    page.findChild(QSpinBox, "settings.notify_after").setValue(5)
    program.chat.answers.ended.emit(answer(program, 6))
    assert len(told) == 1
    page.findChild(Toggle, "settings.notify").click()
    assert not page.findChild(QSpinBox, "settings.notify_after").isEnabled()
    program.chat.answers.ended.emit(answer(program, 60))
    program.library.arrived.emit("qwen", "/models/qwen")
    assert len(told) == 1


def test_where_there_is_no_tray_the_window_is_marked(program) -> None:
    marked: list[object] = []
    program.desktop.available, program.desktop.alert = lambda: False, marked.append
    program.library.arrived.emit("qwen", "/models/qwen")
    assert marked == [program.window]


def test_models_that_came_or_failed_are_told(program, told) -> None:
    program.library.arrived.emit("qwen", "/models/qwen")
    downloads, maker = program.library.downloads, program.library.maker
    old = Download(id="old", repository="org/old", variant="", state="failed", sentence="From another day.")
    coming = Download(id="d", repository="org/model", variant="Q4_K_M", state="running")
    downloads.jobs.update({"old": old, "d": coming})
    downloads.running["d"] = object()  # type: ignore[assignment]
    downloads.changed.emit()
    del downloads.running["d"]
    downloads.jobs["d"] = msgspec.structs.replace(coming, state="failed", sentence="The disk is full.")
    downloads.changed.emit()
    downloads.changed.emit()
    maker.running["m"] = object()  # type: ignore[assignment]
    maker.jobs["m"] = MakeProgress(id="m", model="/models/big", to="gptq", state="reading")
    maker.changed.emit()
    del maker.running["m"]
    maker.jobs["m"] = msgspec.structs.replace(maker.jobs["m"], state="failed", sentence="It was stopped.")
    maker.changed.emit()
    assert told == [
        ("A model is here", "qwen"),
        ("Downloading org/model failed", "The disk is full."),
        ("Quantising big failed", "It was stopped."),
    ]
    tray(program).messageClicked.emit()
    assert program.window.page == MainWindow.MODELS
    downloads.jobs.clear()
    maker.jobs.clear()


def test_the_icon_shows_and_hides_the_window_begins_a_chat_and_quits(qtbot, program) -> None:
    window = program.window
    window.settings_page.findChild(Toggle, "settings.tray").click()
    icon = tray(program)
    assert icon.isVisible()
    program.desktop.in_front = lambda: True
    icon.activated.emit(QSystemTrayIcon.ActivationReason.Trigger)
    assert not window.isVisible()
    icon.activated.emit(QSystemTrayIcon.ActivationReason.Context)
    assert not window.isVisible(), "the menu opens, and nothing else"
    window.findChild(QAction, "tray.show").trigger()
    assert window.isVisible()
    window.show_page(MainWindow.LAB)
    window.hide()
    window.findChild(QAction, "tray.new").trigger()
    assert (window.isVisible(), window.page, program.chat.chat_id) == (True, MainWindow.CHAT, "")
    with qtbot.waitSignal(window.left):
        window.findChild(QAction, "tray.quit").trigger()
    window.settings_page.findChild(Toggle, "settings.tray").click()
    assert not icon.isVisible()


def test_closing_leaves_it_in_the_tray_only_if_the_person_chose_that_and_there_is_one(qtbot, program) -> None:
    window, page = program.window, program.window.settings_page
    close = page.findChild(Toggle, "settings.close_to_tray")
    assert not close.isEnabled(), "without the icon nothing would bring it back"
    page.findChild(Toggle, "settings.tray").click()
    close.click()
    with qtbot.assertNotEmitted(window.left):
        window.close()
    assert not window.isVisible()
    window.presence.to_front()
    program.desktop.available = lambda: False
    with qtbot.waitSignal(window.left):
        window.close()
    program.desktop.available = lambda: True
    window.presence.to_front()
    window.close()
    assert not window.isVisible()
    window.presence.unfinished = lambda: ["An answer is being written."]
    window.presence.quit()
    assert window.isVisible(), "what would be lost is asked about where it can be seen"
    window.findChild(QMessageBox, "window.leave").close()
    window.presence.unfinished = list
    quits = next(each for each in window.findChildren(QShortcut) if each.key().toString() == "Ctrl+Q")
    with qtbot.waitSignal(window.left):
        quits.activated.emit()
