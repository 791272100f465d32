"""GPU packs in the assembled window: the offer, its one click, and the engine that starts again from the pack."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QFileDialog, QMessageBox, QPushButton

from app.link.link import LinkState
from app.program import WindowProgram
from app.window.window import MainWindow
from app.window.wirings import gpu as wiring_module

HERE = Path(__file__).parent
PATIENCE_MS = 20_000


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.json"
    facts = {"total": 100, "done": 0, "gpu": "Fake GPU", "kind": "cuda13", "folder": "/data/gpu/1", "free_bytes": 900}
    path.write_text(json.dumps({**facts, "disk_bytes": 300}))
    return path


def change(path: Path, **facts: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


@pytest.fixture
def start(start, state: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WindowProgram]:
    """``start(*engine arguments)``: the engine computes on "a GPU" when the pack is installed, as redirect() does."""
    monkeypatch.setattr(wiring_module, "CHECK_MS", 10)
    gpu = [sys.executable, str(HERE / "fake_gpu.py"), str(state)]
    return lambda *arguments: start("--rate", "2000", "--gpu-pack", str(state), *arguments, gpu=gpu)


def press(program: WindowProgram, key: str, where: str = "card") -> None:
    part = program.window.gpu_card if where == "card" else program.window.settings_page.gpu
    button = part.findChild(QPushButton, f"gpu.{where}.{key}")
    assert button is not None, [child.objectName() for child in part.findChildren(QPushButton)]
    button.click()


def wait_title(qtbot, program: WindowProgram, words: str) -> None:
    card = program.window.gpu_card
    qtbot.waitUntil(lambda: not card.isHidden() and words in card.title.text(), timeout=PATIENCE_MS)


def wait_status(qtbot, program: WindowProgram) -> None:
    section = program.window.settings_page.gpu
    qtbot.waitUntil(lambda: section.title.text() != "Looking for a GPU", timeout=PATIENCE_MS)


def device(program: WindowProgram) -> str:
    return program.link.welcome.device.kind


def test_one_click_makes_it_fast(qtbot, start):
    program = start()
    wait_title(qtbot, program, "Kvasir can be much faster on your Fake GPU")
    pid = program.link.engine_pid
    press(program, "install")
    assert program.window.gpu_card.bar.isVisible()
    wait_title(qtbot, program, "now computes on Fake GPU")
    qtbot.waitUntil(lambda: program.link.card is not None and device(program) == "cuda", timeout=PATIENCE_MS)
    assert program.link.engine_pid != pid
    assert program.link.card.name == "tiny"
    assert program.chat.notice.text == ""
    press(program, "close")
    assert program.window.gpu_card.isHidden()
    qtbot.waitUntil(lambda: program.window.settings_page.gpu.title.text() == "In use", timeout=PATIENCE_MS)


def test_the_keyboards_place_stays_in_the_card(qtbot, qapp, start, state):
    change(state, script="slow")
    program = start()
    wait_title(qtbot, program, "Fake GPU")
    program.window.activateWindow()
    card = program.window.gpu_card
    card.findChild(QPushButton, "gpu.card.install").setFocus()
    press(program, "install")
    assert qapp.focusWidget().objectName() == "gpu.card.pause"
    qtbot.waitUntil(lambda: program.packs.progress is not None and program.packs.progress.done >= 50)
    press(program, "pause")
    wait_title(qtbot, program, "not installed yet")
    assert qapp.focusWidget().objectName() == "gpu.card.again"


@pytest.mark.slow
def test_not_now_is_remembered(qtbot, start, state):
    program = start()
    wait_title(qtbot, program, "Fake GPU")
    press(program, "details")
    assert "/data/gpu/1" in program.window.gpu_card.details.text()
    assert program.window.gpu_card.details.isVisible()
    press(program, "dismiss")
    assert program.window.gpu_card.isHidden()
    program.close()
    again = start()
    wait_status(qtbot, again)
    assert again.window.gpu_card.isHidden()
    assert again.window.settings_page.gpu.title.text() == "Not installed"
    again.close()
    change(state, gpu="Better GPU")
    wait_title(qtbot, start(), "Better GPU")


def test_no_gpu_no_word_but_in_settings(qtbot, start, state):
    change(state, gpu="", kind="", refused="No NVIDIA or AMD GPU was found.")
    program = start()
    wait_status(qtbot, program)
    assert program.window.gpu_card.isHidden()
    program.window.show_page(MainWindow.SETTINGS)
    assert program.window.settings_page.gpu.caption.text() == "No NVIDIA or AMD GPU was found."


def test_a_running_answer_is_waited_for(qtbot, start):
    program = start("--rate", "60")
    wait_title(qtbot, program, "Fake GPU")
    program.chat.send("a long answer")
    qtbot.waitUntil(lambda: program.chat.streaming, timeout=PATIENCE_MS)
    pid = program.link.engine_pid
    press(program, "install")
    wait_title(qtbot, program, "starts again when the answer is finished")
    assert (program.link.engine_pid, device(program)) == (pid, "cpu")
    assert program.chat.streaming
    program.chat.stop()
    qtbot.waitUntil(lambda: device(program) == "cuda", timeout=PATIENCE_MS)
    assert program.history.messages(program.chat.chat_id)[-1].stats.reason == "cancelled"


def test_who_does_not_want_to_wait_gets_what_is_written(qtbot, start):
    program = start("--rate", "60")
    wait_title(qtbot, program, "Fake GPU")
    program.chat.send("a long answer")
    qtbot.waitUntil(lambda: program.chat.streaming, timeout=PATIENCE_MS)
    press(program, "install")
    wait_title(qtbot, program, "starts again when")
    press(program, "now")
    qtbot.waitUntil(lambda: device(program) == "cuda", timeout=PATIENCE_MS)
    message = program.history.messages(program.chat.chat_id)[-1]
    assert message.state == "interrupted"
    assert program.chat.notice.text == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_pause_and_go_on_and_cancel(qtbot, start, state):
    change(state, script="slow")
    program = start()
    wait_title(qtbot, program, "Fake GPU")
    press(program, "install")
    wait_title(qtbot, program, "downloading (2 of 4)")
    qtbot.waitUntil(lambda: program.packs.progress.done == 50, timeout=PATIENCE_MS)
    press(program, "pause")
    wait_title(qtbot, program, "not installed yet")
    qtbot.waitUntil(lambda: program.packs.status.state == "partial", timeout=PATIENCE_MS)
    change(state, script="slow", total=200)
    press(program, "again")
    qtbot.waitUntil(lambda: program.packs.progress is not None and program.packs.progress.done >= 100)
    press(program, "cancel")
    qtbot.waitUntil(program.window.gpu_card.isHidden, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: program.window.settings_page.gpu.title.text() == "Not complete", timeout=PATIENCE_MS)
    assert device(program) == "cpu"


def test_a_failure_can_be_tried_again(qtbot, start, state):
    change(state, script="fail")
    program = start()
    wait_title(qtbot, program, "Fake GPU")
    press(program, "install")
    wait_title(qtbot, program, "could not be installed")
    assert "The connection was cut." in program.window.gpu_card.caption.text()
    assert program.window.gpu_card.property("card") == "bad"
    press(program, "again")
    wait_title(qtbot, program, "now computes on Fake GPU")


def test_a_pack_that_is_not_used_says_why_and_is_repaired(qtbot, start, state):
    change(state, state="broken", reason="Its self-test failed: no kernel ran.", active=False)
    program = start()
    wait_title(qtbot, program, "does not work")
    assert program.window.gpu_card.caption.text() == "Its self-test failed: no kernel ran."
    press(program, "settings")
    assert program.window.page == MainWindow.SETTINGS
    press(program, "repair")
    qtbot.waitUntil(lambda: device(program) == "cuda", timeout=PATIENCE_MS)
    assert [asked[0] for asked in json.loads(state.read_text())["asked"]] == ["repair"]


def test_the_engine_itself_says_why_it_left_the_pack(qtbot, start, state):
    change(state, state="installed", active=False, notice="The driver is gone, so the processor computes.")
    program = start()
    wait_title(qtbot, program, "The GPU pack is not in use")
    assert program.window.gpu_card.caption.text() == "The driver is gone, so the processor computes."
    press(program, "test")
    qtbot.waitUntil(lambda: device(program) == "cuda", timeout=PATIENCE_MS)
    assert json.loads(state.read_text())["asked"] == [["check", "--json"]]


def test_removing_asks_and_leaves_the_pack_first(qtbot, start, state):
    change(state, state="installed", active=True, done=100)
    program = start()
    assert device(program) == "cuda"
    program.window.show_page(MainWindow.SETTINGS)
    qtbot.waitUntil(lambda: program.window.settings_page.gpu.title.text() == "In use", timeout=PATIENCE_MS)
    press(program, "remove", "section")
    box = program.window.findChild(QMessageBox, "gpu.remove")
    assert "Chats, models and settings stay" in box.text()
    kinds = []
    program.packs.changed.connect(lambda: kinds.append((program.packs.action, device(program))))
    next(button for button in box.buttons() if button.text() == "Remove").click()
    qtbot.waitUntil(lambda: program.window.settings_page.gpu.title.text() == "Not installed", timeout=PATIENCE_MS)
    assert {kind for action, kind in kinds if action == "remove"} == {"cpu"}
    qtbot.waitUntil(lambda: program.link.card is not None, timeout=PATIENCE_MS)
    assert program.window.gpu_card.isHidden()


def test_asked_and_kept(qtbot, start, state):
    change(state, state="installed", active=True, done=100)
    program = start()
    program.window.show_page(MainWindow.SETTINGS)
    qtbot.waitUntil(lambda: program.window.settings_page.gpu.title.text() == "In use", timeout=PATIENCE_MS)
    press(program, "remove", "section")
    box = program.window.findChild(QMessageBox, "gpu.remove")
    box.button(QMessageBox.StandardButton.Cancel).click()
    assert device(program) == "cuda"
    assert "asked" not in json.loads(state.read_text())


def test_from_a_file(qtbot, start, state, monkeypatch):
    program = start()
    program.window.show_page(MainWindow.SETTINGS)
    wait_status(qtbot, program)
    qtbot.waitUntil(lambda: program.window.settings_page.gpu.title.text() == "Not installed", timeout=PATIENCE_MS)
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: ("/media/stick/pack", ""))
    press(program, "file", "section")
    qtbot.waitUntil(lambda: device(program) == "cuda", timeout=PATIENCE_MS)
    assert json.loads(state.read_text())["asked"] == [["install", "--from", "/media/stick/pack", "--json"]]


def test_old_packs_are_listed_and_removed(qtbot, start, state):
    change(state, others=["/data/gpu/old"])
    program = start()
    program.window.show_page(MainWindow.SETTINGS)
    section = program.window.settings_page.gpu
    qtbot.waitUntil(lambda: section.old.isVisible() and section.old.text() == "/data/gpu/old", timeout=PATIENCE_MS)
    section.findChild(QPushButton, "gpu.section.remove_old").click()
    qtbot.waitUntil(lambda: not section.old.isVisible(), timeout=PATIENCE_MS)
    assert json.loads(state.read_text())["asked"] == [["remove", "/data/gpu/old", "--json"]]


def test_an_engine_that_always_dies_in_the_pack_goes_on_without_it(qtbot, start, state):
    program = start()
    wait_status(qtbot, program)
    change(state, state="installed", active=True, done=100, dies=True)
    states = []
    program.link.state_changed.connect(lambda state, _: states.append(state))
    program.link.restart()
    qtbot.waitUntil(lambda: LinkState.DEAD in states, timeout=60_000)
    wait_title(qtbot, program, "The GPU pack is not in use")
    assert "stopped again and again" in program.window.gpu_card.caption.text()
    qtbot.waitUntil(lambda: program.link.state is LinkState.CONNECTED and program.link.card is not None)


def test_a_new_pack_in_which_the_engine_dies_is_not_called_fast(qtbot, start, state):
    change(state, dies=True)
    program = start()
    wait_title(qtbot, program, "can be much faster")
    titles = set()
    program.packs.changed.connect(lambda: titles.add(program.window.gpu_card.title.text()))
    program.link.state_changed.connect(lambda *_: titles.add(program.window.gpu_card.title.text()))
    press(program, "install")
    wait_title(qtbot, program, "starting again")
    card = program.window.gpu_card
    qtbot.waitUntil(lambda: "stopped again and again" in card.caption.text(), timeout=60_000)
    assert not [title for title in titles if "now computes" in title]
    qtbot.waitUntil(lambda: program.link.card is not None, timeout=PATIENCE_MS)
    assert device(program) == "cpu"


def test_closing_in_the_middle_leaves_nothing_running(qtbot, start, state):
    change(state, script="slow")
    program = start()
    wait_title(qtbot, program, "Fake GPU")
    press(program, "install")
    qtbot.waitUntil(lambda: program.packs.progress is not None and program.packs.progress.done == 50)
    program.close()
    assert json.loads(state.read_text())["state"] == "partial"
