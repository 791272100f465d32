"""Starting the program: no display, missing libraries, a second start, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QTimer, Signal

from app import log as log_file
from app import paths, preflight, program, single, start
from app.history.schema import HistoryUnusableError
from app.single import SingleInstance, UnansweredError

ROOT = Path(__file__).parents[2]


def environment(**changes: str | None) -> dict[str, str]:
    full = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    return {name: value for name, value in full.items() if value is not None}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can be without a display")
def test_without_a_display_a_sentence_names_the_other_commands():
    env = environment(DISPLAY=None, WAYLAND_DISPLAY=None, QT_QPA_PLATFORM=None)
    done = subprocess.run(
        [sys.executable, "-m", "app"], env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 2
    assert "`kvasir chat`" in done.stderr
    assert "`kvasir serve`" in done.stderr
    assert "Traceback" not in done.stderr


def test_display_by_environment():
    assert not preflight.has_display({}, "linux")
    assert preflight.has_display({}, "win32")
    assert preflight.platforms({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}) == ["wayland", "xcb"]
    assert preflight.platforms({"QT_QPA_PLATFORM": "offscreen:size=1x1"}) == ["offscreen"]


def test_a_missing_library_is_named_with_its_package():
    gone = {"libEGL.so.1", "libxcb-cursor.so.0"}
    found = preflight.missing(["xcb"], lambda name: name not in gone)
    assert {library.soname for library in found} == gone
    text = preflight.sentence(found)
    assert "libxcb-cursor.so.0" in text
    assert "sudo apt-get install libegl1 libxcb-cursor0" in text
    assert preflight.sentence([]) == ""


@pytest.mark.parametrize("words", [b"", b"no JSON", b'{"path": "\xff"}', b'{"path": ' + b"[" * 60_000])
def test_a_greeting_that_cannot_be_understood_only_wants_the_window(words):
    assert single._understand(words) == single.Greeting()


def test_one_complete_platform_is_enough():
    without_xcb = lambda name: "xcb" not in name and "X11" not in name  # noqa: E731
    assert preflight.missing(["wayland", "xcb"], lambda name: "xcb" not in name) == []
    assert {library.soname for library in preflight.missing(["offscreen"], without_xcb)} == {"libX11.so.6"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF")
def test_preflight_imports_no_qt():
    code = "import sys, app.preflight; assert not [m for m in sys.modules if 'PySide' in m]"
    subprocess.run([sys.executable, "-c", code], env=environment(), cwd=ROOT, check=True, timeout=300)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF")
def test_libraries_that_a_package_brings_count(tmp_path):
    """Its loader finds them by LD_LIBRARY_PATH, which is set before the program starts."""
    import _ctypes

    (tmp_path / "libkvasir-brought.so.1").write_bytes(Path(_ctypes.__file__).read_bytes())
    code = "from app.preflight import _loads; print(_loads('libkvasir-brought.so.1'), _loads('libkvasir-absent.so.1'))"
    env = environment(LD_LIBRARY_PATH=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=ROOT, check=True, timeout=300, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_a_packages_libraries_are_for_nobody_else(monkeypatch):
    packaged = {"LD_LIBRARY_PATH": "/opt/kvasir/_internal", "LD_LIBRARY_PATH_ORIG": "/mine", "PATH": "/bin"}
    untouched = dict(packaged)
    preflight.own_libraries_for_nobody_else(untouched)
    assert untouched == packaged
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    preflight.own_libraries_for_nobody_else(packaged)
    assert packaged == {"LD_LIBRARY_PATH": "/mine", "PATH": "/bin"}
    alone = {"LD_LIBRARY_PATH": "/opt/kvasir/_internal"}
    preflight.own_libraries_for_nobody_else(alone)
    assert alone == {}


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_who_started_it_from_a_menu_is_told_by_a_dialog(tmp_path, monkeypatch, capsys):
    dialog, said = tmp_path / "kdialog", tmp_path / "said"
    dialog.write_text(f'#!/bin/sh\nprintf %s "$2" > "{said}"\n')
    dialog.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    preflight.tell("The window needs libEGL.so.1.")
    assert said.read_text() == "The window needs libEGL.so.1."
    assert capsys.readouterr().err == "The window needs libEGL.so.1.\n"


def test_a_second_start_raises_the_first(qtbot, tmp_path, monkeypatch):
    first = SingleInstance(tmp_path)
    assert first.acquire()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "of another session"))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    second = SingleInstance(tmp_path)
    with qtbot.waitSignal(first.raised):
        assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()
    assert {file.name for file in tmp_path.iterdir()} == {"home"}


def test_each_folder_has_a_window_of_its_own(qapp, tmp_path):
    windows = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        windows.append(SingleInstance(tmp_path / name))
        assert windows[-1].acquire()
    for window in windows:
        window.release()


@pytest.mark.parametrize("listens", [True, False])
def test_a_first_that_does_not_answer_is_named(qapp, tmp_path, monkeypatch, listens):
    monkeypatch.setattr(single, "ANSWER_S", 0.3)
    if not listens:
        monkeypatch.setattr(SingleInstance, "_listen", lambda self: None)
    monkeypatch.setattr(SingleInstance, "_hear", lambda self: None)
    first = SingleInstance(tmp_path)
    assert first.acquire()
    with pytest.raises(UnansweredError, match=f"process {os.getpid()}"):
        SingleInstance(tmp_path).acquire()
    first.release()


def test_a_second_start_without_an_answer_fails(qapp, monkeypatch, capsys):
    def refuse(self, path, quick):
        raise UnansweredError("Kvasir runs already (process 7) and does not answer.")

    monkeypatch.setattr(SingleInstance, "acquire", refuse)
    monkeypatch.setattr(start, "Application", lambda _: qapp)
    assert start.run(["kvasir"], time.perf_counter()) == 1
    assert "(process 7)" in capsys.readouterr().err


def test_the_engine_starts_first_and_ends_where_the_window_does_not_come(qapp, monkeypatch, tmp_path, capsys):
    done = []

    class Link:
        def __init__(self, command):
            done.append(command)

        def start(self):
            done.append("started")

        def shutdown(self):
            done.append("ended")

    def refuse(*_, **__):
        done.append("window")
        raise HistoryUnusableError("A later version wrote the history.")

    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    monkeypatch.setattr(start, "Application", lambda _: qapp)
    monkeypatch.setattr(start, "EngineLink", Link)
    monkeypatch.setattr(program, "WindowProgram", refuse)
    try:
        assert start.run(["kvasir"], time.perf_counter(), ["engine"]) == 1
    finally:
        start.log_file.stop()
    assert done == [["engine"], "started", "window", "ended"]
    assert "A later version wrote the history." in capsys.readouterr().err


def test_of_two_that_start_at_once_one_is_the_first(qtbot, tmp_path, monkeypatch):
    """The second waits until the first, which has the lock, listens."""
    first, second = SingleInstance(tmp_path), SingleInstance(tmp_path)
    listen = first._listen
    monkeypatch.setattr(first, "_listen", lambda: QTimer.singleShot(300, first, listen))
    assert first.acquire()
    with qtbot.waitSignal(first.raised):
        assert not second.acquire()
    first.release()


def test_what_a_crash_left_behind_is_in_nobodys_way(qapp, tmp_path):
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom PySide6.QtCore import QCoreApplication\n"
        "from app.single import SingleInstance\napp = QCoreApplication([])\n"
        "one = SingleInstance(Path(sys.argv[1]))\nassert one.acquire()\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment(), cwd=ROOT, check=True, timeout=300)
    assert {file.name for file in tmp_path.iterdir()} >= {single.LOCK, single.ADDRESS}
    again = SingleInstance(tmp_path)
    assert again.acquire()
    again.release()


def test_the_log_takes_python_and_qt(qapp, tmp_path):
    path = log_file.start(tmp_path)
    try:
        import logging

        logging.getLogger("app.test").info("from python")
        log_file._from_qt(log_file.QtMsgType.QtWarningMsg, None, "from qt")  # type: ignore[arg-type]
        text = path.read_text()
        assert "from python" in text
        assert "WARNING qt: from qt" in text
    finally:
        log_file.stop()


def test_one_folder_for_everything(monkeypatch, tmp_path):
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "all"))
    for folder in (paths.config_dir(), paths.data_dir(), paths.log_dir()):
        assert folder.is_dir()
        assert folder.is_relative_to(tmp_path / "all")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_polite_kill_ends_program_and_engine(tmp_path, fake_command):
    code = (
        "import sys, time; from app import start\n"
        f"sys.exit(start.run(['kvasir'], time.perf_counter(), {fake_command(process=True)!r}))"
    )
    env = environment(QT_QPA_PLATFORM="offscreen", KVASIR_HOME=str(tmp_path / "home"))
    process = subprocess.Popen([sys.executable, "-c", code], env=env, cwd=ROOT, stderr=subprocess.PIPE)
    log = tmp_path / "home" / "log" / "kvasir.log"
    deadline = time.monotonic() + 300
    while not (log.exists() and "window visible" in log.read_text()):
        assert time.monotonic() < deadline, process.poll()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0, process.stderr.read()
    process.stderr.close()
    assert (tmp_path / "home" / "config" / "settings.json").exists()


class Emitter(QObject):
    said = Signal(bool)


def test_signals_do_not_lose_references(qapp):
    """PySide6 6.12.0 on CPython 3.11 loses a reference of True at every emit and aborts soon after."""
    emitter = Emitter()
    heard = []
    emitter.said.connect(lambda value: heard.append(value))
    before = sys.getrefcount(True)
    for _ in range(20_000):
        emitter.said.emit(True)
        heard.clear()
    assert abs(sys.getrefcount(True) - before) < 1_000


def test_the_window_is_assembled_without_torch_and_before_the_plots():
    code = "import sys, app.program; print([m for m in ('torch', 'numpy', 'app.plots.charts') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        cwd=ROOT,
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"
