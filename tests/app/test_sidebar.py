"""The sidebar: groups, search, rename, delete and undo, export."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt

from app.history.records import Chat, StoredMessage
from app.history.sidebar import Sidebar
from app.history.store import HistoryStore

DAY = 86_400


@pytest.fixture
def sidebar(qtbot, history: HistoryStore, theme) -> Sidebar:
    now = time.time()
    for index, (title, age) in enumerate((("Pages", 0), ("Trondheim", DAY), ("Regex", 9 * DAY))):
        history.save_chat(Chat(f"c{index}", title, now, now - age))
        history.save_message(
            StoredMessage(f"m{index}", f"c{index}", "", "user", f"about {title} and more", created=now)
        )
    bar = Sidebar(history, theme)
    qtbot.addWidget(bar)
    bar.resize(232, 600)
    bar.show()
    qtbot.waitUntil(lambda: not bar._refresh_timer.isActive(), timeout=5_000)
    return bar


def titles(sidebar: Sidebar) -> list[str]:
    return [sidebar.model.index(row).data() for row in range(sidebar.model.rowCount())]


def test_chats_stand_under_their_days(sidebar: Sidebar) -> None:
    assert titles(sidebar) == ["Today", "Pages", "Yesterday", "Trondheim", "Earlier", "Regex"]


def test_a_click_opens_and_a_heading_does_not(qtbot, sidebar: Sidebar) -> None:
    opened: list[str] = []
    sidebar.chat_selected.connect(opened.append)
    for row in (0, 3):
        rect = sidebar.list.visualRect(sidebar.model.index(row))
        qtbot.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
    assert opened == ["c1"]


def test_search_shows_what_it_found(qtbot, sidebar: Sidebar) -> None:
    qtbot.keyClicks(sidebar.search, "tron")
    qtbot.waitUntil(lambda: titles(sidebar) == ["Found", "Trondheim"], timeout=5_000)
    sidebar.search.setText("nowhere")
    qtbot.waitUntil(lambda: titles(sidebar) == ["Nothing found"], timeout=5_000)
    sidebar.search.clear()
    qtbot.waitUntil(lambda: len(titles(sidebar)) == 6, timeout=5_000)


def test_the_search_is_led_by_keys(qtbot, sidebar: Sidebar) -> None:
    opened: list[str] = []
    sidebar.hit_selected.connect(lambda chat, *_: opened.append(chat))
    sidebar.chat_selected.connect(opened.append)
    sidebar.search.setFocus()
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Return)
    assert opened == []
    qtbot.keyClicks(sidebar.search, "more")
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Return)  # before the list was refreshed
    first, second = (sidebar.model.row(sidebar.model.index(row)).chat.id for row in (1, 2))
    assert opened == [first]
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Down)
    assert sidebar.list.hasFocus()
    assert sidebar.list.currentIndex().row() == 1
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Down)
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Return)
    assert opened == [first, second]
    sidebar.search.setText("nowhere")
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Return)
    qtbot.keyClick(sidebar.search, Qt.Key.Key_Down)
    assert opened == [first, second]


def test_rename_in_place(qtbot, sidebar: Sidebar, history: HistoryStore) -> None:
    assert sidebar.model.setData(sidebar.model.index_of("c0"), "  Pages, again ")
    assert not sidebar.model.setData(sidebar.model.index_of("c0"), "  ")
    assert history.chat("c0").title == "Pages, again"
    qtbot.waitUntil(lambda: "Pages, again" in titles(sidebar), timeout=5_000)


def test_delete_and_undo(qtbot, sidebar: Sidebar, history: HistoryStore) -> None:
    sidebar.select("c1")
    with qtbot.waitSignal(sidebar.deleted, timeout=1_000):
        qtbot.keyClick(sidebar.list, Qt.Key.Key_Delete)
    assert "Trondheim" not in titles(sidebar)
    assert not sidebar._undo_bar.isHidden()
    with qtbot.waitSignal(sidebar.chat_selected, timeout=1_000) as selected:
        sidebar.undo()
    assert selected.args == ["c1"]
    assert "Trondheim" in titles(sidebar)
    assert len(history.messages("c1")) == 1


def test_new_chats_appear_and_the_open_one_stays_marked(qtbot, sidebar: Sidebar, history: HistoryStore) -> None:
    sidebar.select("c0")
    history.save_chat(Chat("c9", "Newest", time.time(), time.time() + 5))
    qtbot.waitUntil(lambda: "Newest" in titles(sidebar), timeout=5_000)
    assert sidebar.list.currentIndex().data() == "Pages"


def test_export(sidebar: Sidebar, tmp_path: Path) -> None:
    sidebar.export("c0", tmp_path / "out.md")
    assert (tmp_path / "out.md").read_text(encoding="utf-8").startswith("# Pages\n")
