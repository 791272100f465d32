"""Bad input in the window, with the real engine: a notice in place, and nothing that was there is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QPushButton

from app.chat.composer import Composer
from app.chat.message_edit import MOST_CHARS
from app.link.link import LinkState
from app.program import WindowProgram
from engine import protocol
from engine.protocol import LoadOptions, Sampling
from tests.broken_models import BREAKAGES, SOUND, STILL_THERE, check_sentence, make

PATIENCE_MS = 90_000
ROOT = Path(__file__).resolve().parents[2]
ENDLESS = Sampling(ignore_eos=True, temperature=0.0)


def ready(program: WindowProgram, qtbot) -> None:
    qtbot.waitUntil(lambda: not program.chat.composer.reason, timeout=PATIENCE_MS)


def ask(program: WindowProgram, qtbot, text: str = "What is a page?") -> None:
    program.chat.send(text)
    qtbot.waitUntil(lambda: program.chat.streaming, timeout=PATIENCE_MS)


def ended(program: WindowProgram, qtbot):
    """The last message, once nothing streams."""
    qtbot.waitUntil(lambda: not program.chat.streaming, timeout=PATIENCE_MS)
    program.history.flush()
    return program.history.messages(program.chat.chat_id)[-1]


def says(program: WindowProgram, qtbot, text: str) -> str:
    """The notice above the composer, once it has ``text``."""
    qtbot.waitUntil(lambda: text in program.chat.notice.text, timeout=PATIENCE_MS)
    return program.chat.notice.text


@pytest.mark.slow
def test_broken_models_leave_the_loaded_one_and_what_was_typed(start, qtbot, tmp_path: Path) -> None:
    program = start(engine=None)
    card = program.link.card
    ask(program, qtbot)
    first = ended(program, qtbot)
    qtbot.keyClicks(program.chat.composer.edit, "half a thought")
    for breakage in BREAKAGES:
        if breakage.name in ("cut-weights", "unknown-architecture", "fewer-layers", "no-tokenizer", "no-numbers"):
            program.chat.loads.load(str(make(tmp_path, breakage)), None)
            text = says(program, qtbot, breakage.says[0])
            assert text.endswith(STILL_THERE)
            check_sentence(text.removesuffix(STILL_THERE), *breakage.says)
            ready(program, qtbot)
            assert program.link.card == card
            assert program.chat.composer.text == "half a thought"
    program.chat.loads.load(str(tmp_path / "nowhere"), None)
    check_sentence(says(program, qtbot, "nowhere"), "nowhere")
    qtbot.keyClick(program.chat.composer.edit, Qt.Key.Key_Return)
    assert ended(program, qtbot).stats.reason is not None
    assert program.history.messages(program.chat.chat_id)[1] == first


@pytest.mark.slow
def test_a_refused_model_is_not_asked_for_again_at_the_next_start(start, qtbot) -> None:
    program = start()
    program.chat.loads.load("/models/missing", None)
    says(program, qtbot, "There is no model")
    program.close()
    again = start()
    assert again.link.card.name == "tiny"
    assert again.link.last_load.model != "/models/missing"
    assert again.chat.notice.text == ""


@pytest.mark.slow
def test_a_prompt_longer_than_the_context_stays_and_can_be_shortened(start, qtbot) -> None:
    program = start(engine=None)
    program.chat.send("word " * 9000)
    check_sentence(says(program, qtbot, "8192"), "prompt", "8192", "Shorten")
    ready(program, qtbot)
    messages = program.history.messages(program.chat.chat_id)
    assert [(message.role, message.content) for message in messages] == [("user", "word " * 9000)]
    program.chat.message_actions.act_on_last("user", "edit")
    assert program.chat.composer.text == "word " * 9000
    program.chat.composer.edit.setPlainText("What is a page?")
    qtbot.keyClick(program.chat.composer.edit, Qt.Key.Key_Return)
    assert ended(program, qtbot).stats.reason is not None
    assert program.chat.notice.text == ""


def test_a_message_larger_than_a_frame_is_refused_before_it_is_sent(start, qtbot) -> None:
    program = start()
    failed: list[protocol.Error] = []
    program.link.failed.connect(failed.append)
    program.link.send(protocol.Generate(id="huge", prompt="é" * (protocol.MAX_FRAME // 2)))
    assert [(error.id, error.code) for error in failed] == [("huge", "too_large")]
    check_sentence(failed[0].message, "32 MiB")
    ask(program, qtbot)
    assert ended(program, qtbot).stats.reason is not None


def test_a_message_that_no_model_could_read_stays_in_the_composer(start) -> None:
    program = start()
    program.chat.composer.edit.setPlainText("half a thought")
    program.chat.send("x" * (MOST_CHARS + 1))
    check_sentence(program.chat.notice.text, "2,000,001", "Send a part")
    assert program.chat.composer.text == "half a thought"
    assert program.chat.chat_id == ""
    assert program.history.chats() == []


def test_a_paste_of_50_mb_becomes_a_document_without_being_laid_out(start) -> None:
    program = start(model=False)
    composer, pasted = program.chat.composer, QMimeData()
    composer.edit.setPlainText("half a thought")
    pasted.setText("word " * 10_000_000)
    composer.edit.insertFromMimeData(pasted)
    (attached,) = composer.documents.attached
    assert len(attached.document.text) == MOST_CHARS
    (note,) = attached.document.facts.notes
    check_sentence(note, "2,000,000 of 50,000,000")
    assert composer.text == "half a thought"
    (button,) = composer.documents.findChildren(QPushButton, "document-text")
    assert button.isHidden(), "a part of it would be lost"


def test_what_is_too_long_for_a_message_stays_a_document(start) -> None:
    program = start(model=False)
    composer, pasted = program.chat.composer, QMimeData()
    composer.edit.setPlainText("half a thought")
    pasted.setText("x" * (MOST_CHARS - 4))
    composer.edit.insertFromMimeData(pasted)
    composer.documents.findChild(QPushButton, "document-text").click()
    check_sentence(program.chat.notice.text, "1,999,996", "2,000,000", "Insert a part")
    assert composer.text == "half a thought", "with what stands there it is too long"
    assert len(composer.documents.attached) == 1
    composer.edit.selectAll()
    pasted.setText("a part")
    composer.edit.insertFromMimeData(pasted)
    assert composer.text == "a part"


def test_an_endless_word_is_broken_anywhere(qtbot, theme) -> None:
    """Breaking a million characters at words takes Qt a minute and a half."""
    modes = QTextOption.WrapMode
    composer = Composer(theme)
    qtbot.addWidget(composer)
    edit = composer.edit
    pasted = QMimeData()
    pasted.setText("x" * 100_000)
    edit.insertFromMimeData(pasted)
    composer.documents.findChild(QPushButton, "document-text").click()
    assert composer.documents.isHidden()
    assert edit.wordWrapMode() is modes.WrapAnywhere
    assert edit.toPlainText() == "x" * 100_000
    edit.setPlainText("short words " * 10_000)
    assert edit.wordWrapMode() is modes.WrapAtWordBoundaryOrAnywhere


@pytest.mark.slow
def test_out_of_memory_at_load_and_while_answering(start, qtbot) -> None:
    program = start(engine=None)
    fits: list[protocol.Loaded] = []
    program.link.loaded.connect(fits.append)
    program.chat.loads.choice.load_options = lambda model: LoadOptions(memory=1_000_000)
    program.chat.loads.load(str(SOUND), "")
    text = says(program, qtbot, "does not fit")
    assert text.endswith(STILL_THERE)
    check_sentence(text.removesuffix(STILL_THERE), "1 MB")
    ready(program, qtbot)
    program.chat.loads.choice.load_options = lambda model: LoadOptions()
    program.chat.loads.load(str(SOUND), "")
    qtbot.waitUntil(lambda: bool(fits), timeout=PATIENCE_MS)
    fit = fits.pop().fit
    least = fit.weights + fit.activations + 288 * fit.kv // fit.kv_tokens
    program.chat.loads.choice.load_options = lambda model: LoadOptions(memory=least)
    program.chat.loads.load(str(SOUND), "")
    qtbot.waitUntil(lambda: bool(fits), timeout=PATIENCE_MS)
    ready(program, qtbot)
    program.chat.settings.changed.emit("", ENDLESS)
    ask(program, qtbot)
    answer = ended(program, qtbot)
    assert answer.stats.reason == "memory"
    assert len(answer.content) > 100
    check_sentence(answer.stats.detail, "memory", "full")
    assert says(program, qtbot, "full") == answer.stats.detail


def test_an_engine_that_keeps_dying_is_given_up_with_a_way_back(
    start, qtbot, fake_command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.link.worker.BACK_OFF_S", (0.0,))
    broken = tmp_path / "broken"
    broken.touch()
    code = (
        "import os, sys\n"
        f"if os.path.exists({str(broken)!r}): sys.exit('The library libnothing.so is missing')\n"
        f"os.execv({sys.executable!r}, {fake_command(process=True)!r})"
    )
    program = start(engine=[sys.executable, "-c", code], model=False)
    qtbot.keyClicks(program.chat.composer.edit, "half a thought")
    qtbot.waitUntil(lambda: program.link.state is LinkState.DEAD, timeout=PATIENCE_MS)
    text = program.chat.notice.text
    assert "libnothing.so" in text
    assert "5 times" in text
    button = program.chat.notice.findChild(QPushButton, "notice.action")
    assert button.text() in text
    assert program.chat.composer.reason
    broken.unlink()
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: program.link.state is LinkState.CONNECTED, timeout=PATIENCE_MS)
    assert program.chat.composer.text == "half a thought"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_second_start_raises_the_first(own_folders: Path, fake_command) -> None:
    code = (
        "import sys, time\nfrom app import start\nfrom app.window.presence import Presence\n"
        "to_front = Presence.to_front\n"
        "Presence.to_front = lambda self: (to_front(self), print('raised', flush=True))[0]\n"
        f"sys.exit(start.run(['kvasir'], time.perf_counter(), {fake_command(process=True)!r}))"
    )
    first = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    log = own_folders / "kvasir" / "log" / "kvasir.log"
    deadline = time.monotonic() + 300
    while not (log.exists() and "window visible" in log.read_text()):
        assert time.monotonic() < deadline, first.poll()
        time.sleep(0.05)
    second = subprocess.run([sys.executable, "-m", "app"], cwd=ROOT, timeout=300)
    assert second.returncode == 0
    assert first.stdout is not None
    assert first.stdout.readline() == "raised\n"
    first.terminate()
    assert first.wait(300) == 0
    first.stdout.close()
