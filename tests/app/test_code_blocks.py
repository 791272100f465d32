"""Code in answers: long lines wrap where the person wants that, and it is saved as a file with a name that fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QLabel, QPushButton

from app.chat.transcript.text.code_block import CodeBlock
from app.chat.transcript.text.code_files import suggested_name
from app.chat.transcript.transcript import Transcript
from app.history.records import StoredMessage
from app.theme.theme import Theme

LONG = "```python\n" + "value = " + "1 + " * 100 + "1\n```\n"
SHORT = "```mermaid\ngraph TD; A-->B\n```\n"


@pytest.fixture
def transcript(qtbot, theme: Theme) -> Transcript:
    view = Transcript(theme)
    qtbot.addWidget(view, before_close_func=lambda view: view.stop())
    view.resize(700, 600)
    view.show()
    return view


def show(transcript: Transcript, text: str, more: int = 0) -> list[CodeBlock]:
    messages = [StoredMessage("a", "c", "", "assistant", text)]
    messages += [StoredMessage(f"m{i}", "c", "", "assistant", "word " * 900) for i in range(more)]
    transcript.show_path(messages, lambda _: (0, 1))
    transcript.verticalScrollBar().setValue(0)
    return [block for block in transcript.view("a").blocks if isinstance(block, CodeBlock)]


def press(qtbot, block: CodeBlock, name: str) -> QPushButton:
    button = block.findChild(QPushButton, name)
    button.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(button, Qt.Key.Key_Space)
    return button


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("python", "code.py"),
        ("R", "code.R"),
        ("mermaid", "code.mmd"),
        ("c++", "code.cpp"),
        ("Dockerfile", "Dockerfile"),
        ("", "code.txt"),
        ("no-such-language", "code.txt"),
        ('python title="src/a_b.py"', "a_b.py"),
        ("ts:..\\..\\web/app.test.ts", "app.test.ts"),
        ("python ../.. {1,2}", "code.py"),
    ],
)
def test_the_name_of_a_file_fits_its_language(info: str, name: str) -> None:
    assert suggested_name(info) == name


def test_long_lines_wrap_and_unwrap_and_stay_so_out_of_sight(qtbot, transcript: Transcript) -> None:
    long, short = show(transcript, LONG + SHORT, more=12)
    view, before = long._view, long.height()
    assert view.horizontalScrollBar().maximum() > 0
    assert short.findChild(QPushButton, "wrap-code").isHidden()
    button = press(qtbot, long, "wrap-code")
    assert (button.isChecked(), button.text()) == (True, "Unwrap")
    assert view.horizontalScrollBar().maximum() == 0
    assert long.height() > before
    assert short.geometry().top() > long.geometry().bottom()
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum())
    transcript.setFocus()
    transcript._sync()
    assert transcript.view("a") is None
    bar.setValue(0)
    long, _ = [block for block in transcript.view("a").blocks if isinstance(block, CodeBlock)]
    assert long.wrapped
    press(qtbot, long, "wrap-code")
    assert long.height() == before


def test_wrapped_code_that_grows_keeps_to_its_width(transcript: Transcript) -> None:
    (block,) = show(transcript, LONG)
    block.wrap(True)
    message = transcript.view("a")
    for end in range(40, len(LONG), 50):
        message.stream(LONG[:end], [])
        message.fit(600)
    assert block.code == LONG[:end].partition("\n")[2]
    assert block._view.document().size().width() <= 600


def test_code_is_saved_under_the_name_that_the_person_chose(qtbot, transcript, monkeypatch, tmp_path: Path) -> None:
    (block,) = show(transcript, "```rust\nlet ü = 1;\n\nend\n```")
    offered, file = [], tmp_path / "main.rs"

    def choose(_parent, _title, start: str) -> tuple[str, str]:
        offered.append(Path(start).name)
        return str(file), ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", choose)
    button = press(qtbot, block, "save-code")
    assert offered == ["code.rs"]
    assert file.read_bytes() == "let ü = 1;\n\nend\n".encode()
    assert button.text() == "Saved"


def test_a_file_that_cannot_be_written_is_said_and_the_code_stays(qtbot, transcript, monkeypatch, tmp_path) -> None:
    (block,) = show(transcript, SHORT)
    before = block.height()
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path), ""))
    press(qtbot, block, "save-code")
    label = block.findChild(QLabel, "code-failure")
    assert label.text() == "The file could not be written (Is a directory). Choose another folder."
    assert block.height() > before
    assert block._view.geometry().top() > label.geometry().bottom()
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "a"), ""))
    press(qtbot, block, "save-code")
    assert (label.isHidden(), block.height()) == (True, before)
