"""The sidebar: groups, search, rename, delete and undo, export."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QLineEdit, QMenu, QPushButton

from app.history.chat_list import DropTarget
from app.history.records import AnswerStats, Chat, Folder, Repeat, StoredMessage
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


def choose(menu: QMenu, *words: str) -> None:
    """Trigger an entry of a menu, through its submenus."""
    for word in words:
        action = next(action for action in menu.actions() if action.text().split("\t")[0] == word)
        inner = action.menu()
        if isinstance(inner, QMenu):
            menu = inner
        else:
            action.trigger()


def chat_menu(sidebar: Sidebar, chat_id: str) -> QMenu:
    return sidebar.chat_menu(next(chat for chat in sidebar._history.listed() if chat.id == chat_id))


def type_over(qtbot, sidebar: Sidebar, text: str) -> None:
    """Into the field that is open in the list."""
    edits = sidebar.list.viewport().findChildren(QLineEdit)
    edit = next(each for each in edits if not each.isHidden())  # one that was closed may still be there
    edit.setText(text)
    qtbot.keyClick(edit, Qt.Key.Key_Return)


def drop(sidebar: Sidebar, chat_id: str, row: int) -> None:
    """Drag a chat to a row, and let it go there."""
    data = sidebar.model.mimeData([sidebar.model.index_of(chat_id)])
    at = sidebar.list.visualRect(sidebar.model.index(row)).center()
    how = (Qt.DropAction.MoveAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    moved = QDragMoveEvent(at, *how)
    sidebar.list.dragMoveEvent(moved)
    assert moved.isAccepted()
    sidebar.list.dropEvent(QDropEvent(QPointF(at), *how))


def test_a_folder_is_made_named_filled_folded_and_deleted(qtbot, sidebar: Sidebar, history: HistoryStore) -> None:
    choose(chat_menu(sidebar, "c1"), "Move to folder", "New folder…")
    type_over(qtbot, sidebar, "Trips")
    qtbot.waitUntil(lambda: titles(sidebar) == ["Folders", "Trips", "Trondheim", "Today", "Pages", "Earlier", "Regex"])
    drop(sidebar, "c2", 1)
    assert titles(sidebar) == ["Folders", "Trips", "Trondheim", "Regex", "Today", "Pages"]
    folder = sidebar.list.visualRect(sidebar.model.index(1)).center()
    qtbot.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=folder)
    assert titles(sidebar) == ["Folders", "Trips", "Today", "Pages"]
    assert history.folders()[0].folded  # at the next start, too
    assert "2 chats, folded" in sidebar.model.index(1).data(Qt.ItemDataRole.AccessibleTextRole)
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Right)
    qtbot.keyClick(sidebar.list, Qt.Key.Key_F2)
    type_over(qtbot, sidebar, "Ways")
    qtbot.waitUntil(lambda: titles(sidebar)[1:3] == ["Ways", "Trondheim"])
    drop(sidebar, "c2", 4)  # on "Today": out of the folder
    assert history.listed()[2].folder == ""
    sidebar.list.setCurrentIndex(sidebar.model.index(1))
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Delete)
    assert titles(sidebar) == ["Today", "Pages", "Yesterday", "Trondheim", "Earlier", "Regex"]
    sidebar.undo()
    assert titles(sidebar)[:3] == ["Folders", "Ways", "Trondheim"]


def test_pinned_chats_stand_on_top(sidebar: Sidebar) -> None:
    choose(chat_menu(sidebar, "c2"), "Pin")
    assert titles(sidebar) == ["Pinned", "Regex", "Today", "Pages", "Yesterday", "Trondheim"]
    drop(sidebar, "c1", 0)
    assert titles(sidebar) == ["Pinned", "Trondheim", "Regex", "Today", "Pages"]
    choose(chat_menu(sidebar, "c2"), "Unpin")
    assert titles(sidebar)[-2:] == ["Earlier", "Regex"]


def test_archived_chats_leave_the_list_and_are_found(qtbot, sidebar: Sidebar) -> None:
    choose(chat_menu(sidebar, "c1"), "Archive")
    assert titles(sidebar) == ["Today", "Pages", "Earlier", "Regex", "Archived"]
    sidebar.list.setCurrentIndex(sidebar.model.index(4))
    qtbot.keyClick(sidebar.list, Qt.Key.Key_Return)
    assert titles(sidebar)[-2:] == ["Archived", "Trondheim"]
    sidebar.search.setText("trond")
    qtbot.waitUntil(lambda: titles(sidebar) == ["Found", "Trondheim"], timeout=5_000)
    assert "archived" in sidebar.model.index(1).data(Qt.ItemDataRole.AccessibleTextRole)
    sidebar.search.clear()
    choose(chat_menu(sidebar, "c1"), "Unarchive")
    assert titles(sidebar) == ["Today", "Pages", "Yesterday", "Trondheim", "Earlier", "Regex"]
    sidebar.place("c1", DropTarget("archive"))
    sidebar.undo()
    assert "Archived" not in titles(sidebar)


def test_tags_are_given_shown_and_searched_for(qtbot, sidebar: Sidebar, history: HistoryStore) -> None:
    history.set_tags("c2", ["two words", "work"])
    sidebar.ask_tags("c0")
    dialog = sidebar.findChild(QLineEdit, "tags.edit").window()
    dialog.findChild(QPushButton, "tags.work").click()
    qtbot.keyClicks(dialog.edit, ', "new", WORK')
    dialog.accept()
    assert history.listed()[0].tags == ("WORK", "new")
    said = Qt.ItemDataRole.AccessibleTextRole
    qtbot.waitUntil(lambda: "tagged WORK, new" in sidebar.model.index_of("c0").data(said), timeout=5_000)
    opened: list[str] = []
    sidebar.chat_selected.connect(opened.append)
    view, index = sidebar.list, sidebar.model.index_of("c0")
    rect = view.visualRect(index)
    spots = [QPoint(x, rect.center().y()) for x in range(rect.right(), rect.left(), -4)]
    spot = next(at for at in spots if view._tag_at(at) == "WORK")
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    assert sidebar.search.text() == "tag:WORK"
    assert titles(sidebar) == ["Found", "Pages", "Regex"]
    assert opened == []
    choose(sidebar.list_menu(), "Show chats tagged", "two words")
    assert titles(sidebar) == ["Found", "Regex"]
    sidebar.search.setText("tag:work trondheim")
    qtbot.waitUntil(lambda: titles(sidebar) == ["Nothing found"], timeout=5_000)


def test_a_duplicate_has_the_whole_tree(qtbot, sidebar: Sidebar, history: HistoryStore) -> None:
    history.save_folder(Folder("f", "Trips"))
    history.set_folder("c0", "f")
    history.set_tags("c0", ["work"])
    told = Repeat("a1", True, "same text")
    for answer, stats in (("a1", AnswerStats(model="m")), ("a2", AnswerStats(repeat=told))):
        history.save_message(StoredMessage(answer, "c0", "m0", "assistant", answer, stats=stats, pictures=(b"1",)))
    history.set_leaf("c0", "a1", touch=False)
    with qtbot.waitSignal(sidebar.chat_selected, timeout=1_000) as selected:
        choose(chat_menu(sidebar, "c0"), "Duplicate")
    copy = history.chat(selected.args[0])
    assert copy.title == "Pages (copy)"
    first, one, two = history.messages(copy.id)
    assert (one.parent, two.parent, copy.leaf) == (first.id, first.id, one.id)
    assert (one.content, one.pictures, one.stats.model) == ("a1", (b"1",), "m")
    assert two.stats.repeat.of == one.id
    assert {first.id, one.id, two.id}.isdisjoint({"m0", "a1", "a2"})
    listed = next(chat for chat in history.listed() if chat.id == copy.id)
    assert (listed.folder, listed.tags) == ("f", ("work",))
    assert [message.id for message in history.messages("c0")] == ["m0", "a1", "a2"]


def test_f2_renames_the_open_chat_wherever_it_is(qtbot, sidebar: Sidebar, history: HistoryStore) -> None:
    history.save_folder(Folder("f", "Trips", folded=True))
    history.set_folder("c1", "f")
    sidebar.select("c1")
    sidebar.refresh()
    assert not sidebar.model.index_of("c1").isValid()
    sidebar.rename_chosen()
    type_over(qtbot, sidebar, "Bergen")
    qtbot.waitUntil(lambda: history.chat("c1").title == "Bergen", timeout=5_000)
