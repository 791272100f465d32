"""Export of chats: the four formats, a zip, a folder, cancelling, and what cannot be written."""

from __future__ import annotations

import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QPushButton

from app.history.records import AnswerStats, Chat, Folder, StoredMessage, TextSpan
from app.history.sidebar import Sidebar
from app.history.store import HistoryStore
from app.history.transfer import chat_file
from app.history.transfer.export_dialog import ExportDialog
from app.history.transfer.export_job import CANCELLED
from engine.protocol import ToolCall, ToolResult
from tests.app.transfers import picture

CODE = 'Look:\n\n```python\nif 1 < 2:\n    print("<b>&</b>")\n```\n'


@pytest.fixture
def sidebar(qtbot, history: HistoryStore, theme) -> Iterator[Sidebar]:
    now = time.time()
    history.save_folder(Folder("f", "Work: <1>"))
    history.save_chat(Chat("c0", "<Pages> & more", now, now, "Be “short”.", leaf="a1"))
    history.save_message(StoredMessage("q", "c0", "", "user", "one\ntwo <script>", pictures=(picture(),), created=now))
    stats = AnswerStats(model="m<x>", thought_s=3.0)
    spans = (TextSpan("accepted", 5, "medusa"),)
    history.save_message(
        StoredMessage("a1", "c0", "q", "assistant", CODE, stats=stats, spans=spans, thinking="Hm <i>", created=now)
    )
    call = (ToolCall("k", "files__read", '{"a":"<"}'),)
    history.save_message(StoredMessage("a2", "c0", "q", "assistant", "Another", parts=call, created=now))
    told = (ToolResult("k", "no <u>", "files__read", [picture()], True),)
    history.save_message(StoredMessage("t", "c0", "a2", "tool", "", parts=told, created=now))
    history.set_folder("c0", "f")
    history.set_tags("c0", ["work"])
    for number in (1, 2):
        history.save_chat(Chat(f"c{number}", "con", now, now - number))
        history.save_message(StoredMessage(f"m{number}", f"c{number}", "", "user", f"text {number}", created=now))
    bar = Sidebar(history, theme)
    qtbot.addWidget(bar)
    bar.resize(232, 600)
    bar.show()
    yield bar
    bar.close_down()


def exported(qtbot, sidebar: Sidebar, path: Path) -> bytes:
    """What the menu's entry writes for the file that a person names."""
    sidebar.export("c0", path)
    qtbot.waitUntil(lambda: str(path) in sidebar._undo_label.text(), timeout=10_000)
    assert "exported" in sidebar._undo_label.text()
    assert not [file for file in path.parent.iterdir() if "unfinished" in file.name]
    return path.read_bytes()


def test_markdown_and_html_hold_the_shown_branch(qtbot, sidebar: Sidebar, tmp_path: Path) -> None:
    markdown = exported(qtbot, sidebar, tmp_path / "a.md").decode()
    assert markdown.startswith("# <Pages> & more\n")
    assert "Another" not in markdown
    html = exported(qtbot, sidebar, tmp_path / "a.html").decode()
    for part in (
        "<title>&lt;Pages&gt; &amp; more</title>",
        "default-src 'none'",
        "<details>\n<summary>Thought for 3 s</summary>\n<p>Hm &lt;i&gt;</p>",
        "print(&quot;&lt;b&gt;&amp;&lt;/b&gt;&quot;)",
        "one<br />\ntwo &lt;script&gt;",
        "m&lt;x&gt;",
        'src="data:image/png;base64,',
    ):
        assert part in html
    assert "<script" not in html
    assert "Another" not in html


def test_a_branch_with_tools_in_html(qtbot, sidebar: Sidebar, history: HistoryStore, tmp_path: Path) -> None:
    history.set_leaf("c0", "t", touch=False)
    html = exported(qtbot, sidebar, tmp_path / "a.html").decode()
    assert "<summary>Call of files__read</summary>\n<pre>{&quot;a&quot;:&quot;&lt;&quot;}</pre>" in html
    assert "<pre>no &lt;u&gt;</pre><p><img" in html


def test_pdf_is_laid_out(qtbot, sidebar: Sidebar, tmp_path: Path) -> None:
    data = exported(qtbot, sidebar, tmp_path / "a.pdf")
    assert data.startswith(b"%PDF-")
    assert b"/Subtype /Image" in data or b"/Subtype/Image" in data
    assert b"/Type /Page\n" in data or b"/Type/Page" in data


def test_json_loses_nothing(qtbot, sidebar: Sidebar, history: HistoryStore, tmp_path: Path) -> None:
    value = json.loads(exported(qtbot, sidebar, tmp_path / "a.json"))
    assert (value["format"], value["version"], value["folder"], value["tags"]) == (
        "kvasir.chat",
        1,
        "Work: <1>",
        ["work"],
    )
    record = chat_file.from_json(value)
    assert record.chat == history.chat("c0")
    assert record.stored() == history.messages("c0")


def dialog_of(sidebar: Sidebar, form: str, place: str) -> ExportDialog:
    sidebar.export_many(sidebar._history.listed(), "Export all chats")
    dialog = sidebar.findChild(ExportDialog)
    dialog.findChild(QPushButton, f"export.format.{form}").click()
    dialog.findChild(QPushButton, f"export.place.{place}").click()
    return dialog


def said(dialog: ExportDialog) -> str:
    return dialog._said.text()


def test_all_chats_go_into_a_zip_and_a_folder(qtbot, sidebar: Sidebar, tmp_path: Path, monkeypatch) -> None:
    target = tmp_path / "all.zip"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(target), ""))
    dialog = dialog_of(sidebar, "json", "zip")
    dialog.findChild(QPushButton, "export.go").click()
    qtbot.waitUntil(lambda: "3 chats exported" in said(dialog), timeout=10_000)
    with zipfile.ZipFile(target) as file:
        assert sorted(file.namelist()) == ["Work 1/Pages & more.json", "con_ (2).json", "con_.json"]
        assert file.testzip() is None
        ids = {json.loads(file.read(name))["id"] for name in file.namelist()}
    assert ids == {"c0", "c1", "c2"}
    dialog.findChild(QPushButton, "export.place.folder").click()
    for times in (1, 2):  # a second export stands beside the first
        dialog.start(tmp_path)
        qtbot.waitUntil(lambda: not dialog.job.running, timeout=10_000)
        assert len([path for path in tmp_path.iterdir() if path.is_dir() and "Kvasir chats" in path.name]) == times
    dialog.reject()


def test_a_cancelled_export_leaves_nothing(qtbot, sidebar: Sidebar, tmp_path: Path) -> None:
    dialog = dialog_of(sidebar, "markdown", "zip")
    dialog.start(tmp_path / "all.zip")
    dialog.findChild(QPushButton, "export.close").click()
    qtbot.waitUntil(lambda: said(dialog) == CANCELLED, timeout=10_000)
    dialog.findChild(QPushButton, "export.place.folder").click()
    dialog.start(tmp_path)
    dialog.reject()  # closing the window cancels too
    assert not [path for path in tmp_path.iterdir() if "chats" in path.name or "all" in path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX device")
def test_a_place_that_cannot_be_written_is_said(qtbot, sidebar: Sidebar, tmp_path: Path) -> None:
    old = tmp_path / "a.md"
    old.write_text("before")
    os.symlink("/dev/full", tmp_path / "a.md.unfinished")  # where every write finds the disk full
    sidebar.export("c1", old)
    qtbot.waitUntil(lambda: "No space left" in sidebar._undo_label.text(), timeout=10_000)
    assert old.read_text() == "before"
    assert not (tmp_path / "a.md.unfinished").exists()
    dialog = dialog_of(sidebar, "markdown", "folder")
    dialog.start(tmp_path / "a.md")  # no folder
    qtbot.waitUntil(lambda: "could not be written" in said(dialog), timeout=10_000)
    dialog.reject()
