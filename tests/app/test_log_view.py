"""The log: what is written without keys, and the window that shows its lines."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QPushButton

from app import log as log_file
from app.help.log_lines import LAST_BYTES, LogTail
from app.help.log_view import EMPTY, NOTHING, LogDialog
from app.log import HIDDEN, without_secrets
from app.window.window import MainWindow
from tests.app.naming import nameless

LINES = (
    "2026-11-29 19:44:17,313 INFO app.program: window visible after 0.41 s",
    "2026-11-29 19:44:18,001 WARNING qt: an odd font",
    "2026-11-29 19:44:18,500 INFO engine: INFO engine.loop: ready",
    "2026-11-29 19:44:19,000 INFO engine: WARNING engine.loading: no bfloat16",
    "2026-11-29 19:44:20,000 ERROR app: uncaught exception",
    "Traceback (most recent call last):",
    "ValueError: odd",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "kvasir.log"
    file.write_text("".join(f"{line}\n" for line in LINES))
    return file


@pytest.mark.parametrize(
    "said",
    [
        "the token hf_SECRETsecretSECRET was refused",
        "key sk-proj-SECRETsecret_SECRET",
        "key kv-SECRETsecretSECRET",
        "GET / Authorization: Bearer SECRETsecret.SECRET-x",
        "{'api_key': 'SECRETsecret', 'model': 'm'}",
        "password=SECRETsecret, user=a",
        "https://me:SECRETsecret@hub.example/models",
    ],
)
def test_keys_are_hidden_and_the_rest_is_not(said):
    hidden = without_secrets(said)
    assert HIDDEN in hidden
    assert "SECRET" not in hidden
    assert without_secrets(hidden) == hidden
    assert hidden.split()[0][:4] in said


@pytest.mark.parametrize(
    "said", ["1,234 tokens: 12 cached", "token 7 of 9", "a key of 3 heads", "https://hub.example/a"]
)
def test_what_is_no_key_stays(said):
    assert without_secrets(said) == said


def test_no_key_reaches_the_file(tmp_path):
    file = log_file.start(tmp_path)
    try:
        try:
            raise ValueError("hf_SECRETsecretSECRET")
        except ValueError:
            logging.getLogger("engine").exception("refused, api_key=%s", "SECRETsecret")
    finally:
        log_file.stop()
    assert "SECRET" not in file.read_text()
    assert f"refused, api_key={HIDDEN}" in file.read_text()


def test_a_line_has_the_level_of_its_record_and_the_engines_their_own(path):
    lines = LogTail(path).read()
    assert [line.text for line in lines] == list(LINES)
    assert [line.level for line in lines] == ["INFO", "WARNING", "INFO", "WARNING", "ERROR", "ERROR", "ERROR"]
    assert [line.engine for line in lines] == [False, False, True, True, False, False, False]


def test_it_reads_on_through_half_lines_and_a_file_begun_again(path):
    tail = LogTail(path)
    tail.read()
    assert tail.read() == []
    with path.open("a") as file:
        file.write("half a")
    assert tail.read() == []
    with path.open("a") as file:
        file.write(" line\nnext\n")
    assert [line.text for line in tail.read()] == ["half a line", "next"]
    os.replace(path, path.with_name("kvasir.log.1"))
    path.write_text("first of another file\n" * 40)
    assert len(tail.read()) == 40
    path.write_text("short\n")
    assert [line.text for line in tail.read()] == ["short"]


def test_of_a_long_file_the_last_whole_lines_are_read(path):
    path.write_bytes(b"x" * LAST_BYTES + b"\nthe last\n\xff\xfe odd\n")
    assert [line.text for line in LogTail(path).read()] == ["the last", "\ufffd\ufffd odd"]


@pytest.fixture
def dialog(qtbot, theme, path) -> LogDialog:
    made = LogDialog(path, theme)
    qtbot.addWidget(made)
    made.show()
    return made


def said(dialog: LogDialog) -> list[str]:
    return dialog.text.toPlainText().split("\n")


def test_lines_are_filtered_coloured_copied_and_come_by_themselves(qtbot, dialog, path, theme, monkeypatch):
    assert said(dialog) == list(LINES)
    assert nameless(dialog) == []
    block = dialog.text.document().findBlockByNumber(1)
    assert block.layout().formats()[0].format.foreground().color() == theme.color("warn")
    with path.open("a") as file:
        file.write("2026-11-29 19:45:00,000 WARNING app.link: it came\n")
    qtbot.waitUntil(lambda: len(said(dialog)) == len(LINES) + 1)
    dialog.findChild(QPushButton, "log.level.2").click()
    assert len(said(dialog)) == 6
    dialog.findChild(QPushButton, "log.source.window").click()
    assert len(said(dialog)) == 5
    dialog.words.setText("CAME link")
    assert said(dialog) == ["2026-11-29 19:45:00,000 WARNING app.link: it came"]
    dialog.findChild(QPushButton, "log.copy").click()
    assert QGuiApplication.clipboard().text() == said(dialog)[0]
    dialog.words.setText("nowhere")
    assert dialog.said.text() == NOTHING
    opened = []
    monkeypatch.setattr("app.help.log_view.QDesktopServices.openUrl", lambda url: opened.append(url.toLocalFile()))
    dialog.findChild(QPushButton, "log.folder").click()
    assert opened == [str(path.parent)]


def test_an_empty_log_and_one_that_is_gone_say_so(dialog, path, theme, qtbot):
    path.unlink()
    dialog.read()
    assert dialog.said.text() == f"There is no log at {path} yet."
    path.mkdir()
    dialog.read()
    assert dialog.said.text().startswith(f"{path} cannot be read")
    path.rmdir()
    path.write_text("")
    other = LogDialog(path, theme)
    qtbot.addWidget(other)
    other.show()
    assert other.said.text() == EMPTY


def test_help_and_settings_lead_to_it(start, own_folders):
    program = start(model=False)
    (own_folders / "kvasir.log").write_text("one line\n")
    window = program.window
    window.show_page(MainWindow.HELP)
    window.findChild(QPushButton, "help.log").click()
    dialog = window.findChild(LogDialog)
    assert said(dialog) == ["one line"]
    assert str(own_folders / "kvasir.log") in dialog.findChild(QLabel, "log.where").text()
    dialog.close()
    window.settings_page.findChild(QPushButton, "settings.log").click()
    assert [each.isVisible() for each in window.findChildren(LogDialog)][-1]
