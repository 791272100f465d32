"""A model from outside: the command line, a second start, the desktop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket
from PySide6.QtWidgets import QPushButton

from app.opening import path_of, trouble
from app.program import WindowProgram
from app.single import ADDRESS, SingleInstance
from app.window.window import MainWindow

ROOT = Path(__file__).parents[2]
PATIENCE_MS = 20_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my model é.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_paths_of_command_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert path_of([]) == ""
    assert path_of(["--help", "-x"]) == ""
    assert path_of(["a.gguf"]) == str(tmp_path / "a.gguf")
    assert path_of(["-x", "sub/../a.gguf", "b"]) == str(tmp_path / "sub/../a.gguf")
    assert path_of(["~nobody of this name.gguf"]) == str(tmp_path / "~nobody of this name.gguf")
    assert path_of(["file://[x.gguf"]).startswith(str(tmp_path))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths")
@pytest.mark.parametrize(
    "url", ["file:///models/my%20model%20%C3%A9.gguf", "file://localhost/models/my%20model%20é.gguf"]
)
def test_urls_of_files(url):
    assert path_of([url]) == "/models/my model é.gguf"


def test_wrong_paths_are_sentences(tmp_path, file):
    assert trouble(str(file)) == ""
    assert "There is no" in trouble(str(tmp_path / "gone.gguf"))
    (tmp_path / "empty").mkdir()
    assert "holds no model" in trouble(str(tmp_path / "empty"))
    (tmp_path / "empty" / "config.json").write_text("{}")
    assert trouble(str(tmp_path / "empty")) == ""
    (tmp_path / "notes.txt").write_text("words")
    assert "is not a GGUF file" in trouble(str(tmp_path / "notes.txt"))
    (tmp_path / "blob").write_bytes(b"GGUF\x03")  # as in a hub's cache
    assert trouble(str(tmp_path / "blob")) == ""
    (tmp_path / "shouted").mkdir()
    (tmp_path / "shouted" / "MODEL.GGUF").write_bytes(b"GGUF")
    assert trouble(str(tmp_path / "shouted")) == ""
    assert "cannot be read (File name too long)" in trouble("/" + "x" * 5000)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "is not a file" in trouble(str(tmp_path / "pipe.gguf"))


@pytest.fixture
def start(start) -> Callable[..., WindowProgram]:
    return lambda *arguments: start(*arguments, model=False, shown=False)


def wait_model(qtbot, program: WindowProgram, name: str) -> None:
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.name == name, timeout=PATIENCE_MS)


def test_a_file_is_loaded_instead_of_the_last_model(qtbot, start, file):
    program = start()
    program.store.update(model="odd")
    loads = []
    program.link.loading.connect(lambda message: loads.append(message.model))
    program.opener.open(str(file))
    program.window.show()
    wait_model(qtbot, program, file.name)
    assert program.store.settings.model == str(file)
    assert set(loads) == {str(file)}


@pytest.mark.qt_log_ignore("does not support raise", extend=True)
def test_a_file_is_loaded_into_a_running_window(qtbot, start, file):
    program = start()
    program.window.show()
    wait_model(qtbot, program, "tiny")
    program.window.show_page(MainWindow.HELP)
    program.raise_for(str(file))
    wait_model(qtbot, program, file.name)
    assert program.window.page == MainWindow.CHAT


def test_an_answer_is_not_ended_unasked(qtbot, start, file):
    program = start("--rate", "60")
    program.window.show()
    wait_model(qtbot, program, "tiny")
    program.chat.send("a long answer")
    qtbot.waitUntil(lambda: program.chat.streaming, timeout=PATIENCE_MS)
    program.opener.open(str(file))
    assert "ends it" in program.window.notice.text
    assert program.link.card.name == "tiny"
    program.window.notice.findChild(QPushButton, "window.notice.action").click()
    wait_model(qtbot, program, file.name)
    assert program.window.notice.text == ""


def test_a_wrong_path_leaves_the_model_of_last_time(qtbot, start, tmp_path):
    program = start()
    program.opener.open(str(tmp_path / "gone.gguf"))
    program.window.show()
    wait_model(qtbot, program, "tiny")
    assert "There is no" in program.window.notice.text
    assert program.window.notice.property("card") == "bad"


def test_a_second_start_hands_its_path_over(qtbot, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_ACTIVATION_TOKEN", "token-of-the-desktop")
    first, second = SingleInstance(tmp_path), SingleInstance(tmp_path)
    assert first.acquire()
    with qtbot.waitSignal(first.raised) as raised:
        assert not second.acquire("/models/my model é.gguf")
    assert raised.args == ["/models/my model é.gguf"]
    assert os.environ["XDG_ACTIVATION_TOKEN"] == "token-of-the-desktop"
    first.release()


@pytest.mark.parametrize("words", [b"", b"{", b'{"path": 7}'])
def test_what_is_not_understood_raises_the_window_all_the_same(qtbot, tmp_path, words):
    first = SingleInstance(tmp_path)
    assert first.acquire()
    with qtbot.waitSignal(first.raised) as raised:
        socket = QLocalSocket()
        socket.connectToServer((tmp_path / ADDRESS).read_text())
        assert socket.waitForConnected(5000)
        socket.write(words)
        socket.waitForBytesWritten(1000)
        socket.disconnectFromServer()
    assert raised.args == [""]
    first.release()


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen", "KVASIR_HOME": str(home)}


def test_the_desktops_event_names_a_file(tmp_path, file):
    code = (
        "import sys\n"
        "from PySide6.QtGui import QFileOpenEvent\n"
        "from app.opening import Application\n"
        "app, heard = Application(['kvasir']), []\n"
        "app.file_opened.connect(heard.append)\n"
        "app.sendEvent(app, QFileOpenEvent(sys.argv[1]))\n"
        "assert heard == [sys.argv[1]], heard"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(file)], env=environment(tmp_path), cwd=ROOT, check=True, timeout=300
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_two_real_starts(tmp_path, fake_command, file):
    """The second process ends at once, and the first one loads what it was given."""
    code = (
        "import sys, time; from app import start\n"
        f"sys.exit(start.run(['kvasir', *sys.argv[1:]], time.perf_counter(), {fake_command(process=True)!r}))"
    )
    home = tmp_path / "home"
    settings = home / "config" / "settings.json"
    first = subprocess.Popen([sys.executable, "-c", code], env=environment(home), cwd=ROOT)
    try:
        _wait(lambda: settings.exists() and '"model": "tiny"' in settings.read_text())
        second = subprocess.run(
            [sys.executable, "-c", code, file.name], env=environment(home), cwd=ROOT, timeout=300, check=False
        )
        assert second.returncode == 0
        missing = str(ROOT / file.name)
        subprocess.run(
            [sys.executable, "-c", code, str(file)], env=environment(home), cwd=ROOT, timeout=300, check=True
        )
        _wait(lambda: file.name.split(" ")[0] in settings.read_text())
        assert not Path(missing).exists()
        assert first.poll() is None
    finally:
        first.terminate()
        assert first.wait(300) == 0


def _wait(done: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)
