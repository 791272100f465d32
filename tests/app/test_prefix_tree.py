"""The prefix tree: order, path of the current chat, updates that keep the place, and figures."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from app.cache import tree_view, words
from app.cache.figures import Figures
from app.cache.tree_model import TreeModel, TreeRow, rows_of
from app.cache.tree_view import TreeView
from app.charts.hues import ChatHues
from app.theme.theme import Theme
from engine.protocol import CacheStats, RadixTree, TreeNode
from tests.app.specs import frame


def node(number: int, parent: int = -1, chat: str = "a", **fields: object) -> TreeNode:
    return TreeNode(id=number, parent=parent, tokens=16, text=f"run {number}", chat=chat, **fields)


def tree(*nodes: TreeNode) -> RadixTree:
    return RadixTree(nodes=list(nodes), total_nodes=len(nodes), total_tokens=16 * len(nodes))


FOUR = tree(node(1), node(2, 1), node(3, 1, "b"), node(4, 2))


def test_rows_are_depth_first_and_the_current_chats_path_is_marked():
    rows = rows_of(FOUR, "b")
    assert [(row.node.id, row.depth) for row in rows] == [(1, 0), (2, 1), (4, 2), (3, 1)]
    assert [row.node.id for row in rows if row.current] == [1, 3]
    assert not any(row.current for row in rows_of(FOUR, ""))


def test_a_run_without_its_parent_stands_at_the_root_and_circles_are_left_out():
    rows = rows_of(tree(node(5, 99), node(6, 7), node(7, 6), node(8, 8)), "a")
    assert [(row.node.id, row.depth) for row in rows] == [(5, 0), (8, 0)]


@pytest.mark.parametrize(
    "after",
    [
        tree(node(1), node(2, 1), node(3, 1, "b")),
        tree(node(1), node(2, 1), node(4, 2), node(5, 4), node(3, 1, "b")),
        tree(node(9), node(1), node(2, 1)),
        tree(),
        tree(node(1, hits=5), node(2, 1), node(3, 1, "b"), node(4, 2)),
    ],
)
def test_updates_touch_only_what_changed(qtmodeltester, after):
    model = TreeModel()
    qtmodeltester.check(model)
    model.show_rows(rows_of(FOUR, "a"))
    resets = []
    model.modelReset.connect(lambda: resets.append(1))
    wanted = rows_of(after, "a")
    model.show_rows(wanted)
    assert model.rows == wanted
    assert model.rowCount() == len(wanted)
    assert not resets


def test_a_run_in_its_place_keeps_its_index(qapp):
    from PySide6.QtCore import QPersistentModelIndex

    model = TreeModel()
    model.show_rows(rows_of(FOUR, "a"))
    last = QPersistentModelIndex(model.index(3))
    model.show_rows(rows_of(tree(node(1), node(2, 1), node(4, 2), node(5, 4), node(3, 1, "b")), "a"))
    assert last.isValid()
    assert last.row() == 4


@pytest.fixture
def view(qtbot, theme: Theme) -> TreeView:
    view = TreeView(theme, ChatHues())
    qtbot.addWidget(view)
    view.resize(400, 200)
    view.show()
    return view


def chain(count: int, first: int = 1) -> list[TreeNode]:
    return [node(first + i, hits=i) for i in range(count)]


def test_what_is_read_stays_where_it_is(qtbot, view: TreeView):
    view.show_tree(tree(*chain(100)))
    bar = view.verticalScrollBar()
    bar.setValue(700)
    top = view.rows.row(view.indexAt(view.viewport().rect().topLeft())).node.id
    at = view.visualRect(view.indexAt(view.viewport().rect().topLeft())).top()
    for above in (3, 1, 8):
        view.show_tree(tree(*chain(above, first=1000), *chain(100)))
        index = view.indexAt(view.viewport().rect().topLeft())
        assert view.rows.row(index).node.id == top
        assert view.visualRect(index).top() == at


def test_the_selection_stays_and_enter_opens_the_chat(qtbot, view: TreeView):
    chosen = []
    view.chosen.connect(chosen.append)
    view.show_tree(FOUR)
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Home)
    for _ in range(3):
        qtbot.keyClick(view, Qt.Key.Key_Down)
    view.show_tree(tree(node(1), node(2, 1), node(3, 1, "b", locks=2), node(4, 2), node(7, 3, "b")))
    assert view.rows.row(view.currentIndex()).node.id == 3
    qtbot.keyClick(view, Qt.Key.Key_Return)
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=view.visualRect(view.rows.index(0)).center())
    assert chosen == ["b", "a"]


def test_a_screen_reader_gets_the_whole_row(view: TreeView):
    view.show_chat("b")
    view.show_tree(tree(node(1, locks=2, hits=1, place="host"), node(3, 1, "b", idle_seconds=200.0, place="disk")))
    spoken = [view.rows.index(i).data(Qt.ItemDataRole.AccessibleTextRole) for i in range(2)]
    assert spoken[0] == "Level 1: 16 tokens, part of this chat, in RAM, in use ×2, 1 hit: run 1"
    assert spoken[1] == "Level 2: 16 tokens, part of this chat, on disk, idle 3 min: run 3"


def test_the_path_of_the_current_chat_is_in_the_texts_colour(view: TreeView, theme: Theme):
    def colors(row: int) -> set[str]:
        place = view.visualRect(view.rows.index(row)).adjusted(110, 0, -120, 0)
        image = view.viewport().grab(place).toImage()
        return {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())}

    view.show_tree(tree(node(1, chat="a"), node(2, chat="b")))
    for chat, mine, other in (("b", 1, 0), ("a", 0, 1)):
        view.show_chat(chat)
        assert theme.tokens.text in colors(mine)
        assert theme.tokens.text not in colors(other)
        assert theme.tokens.mute in colors(other)


def test_idle_times_go_on_while_no_tree_comes(view: TreeView, monkeypatch):
    view.show_tree(tree(node(1, locks=1), node(2, 1, idle_seconds=3.0)))
    now = time.monotonic()
    monkeypatch.setattr(tree_view.time, "monotonic", lambda: now + 0.9 * tree_view.AGE_S)
    view.grow_older()
    assert view.rows.rows[1].node.idle_seconds == pytest.approx(3.0, abs=0.5)
    monkeypatch.setattr(tree_view.time, "monotonic", lambda: now + 60)
    view.grow_older()
    assert view.rows.rows[1].node.idle_seconds == pytest.approx(63.0, abs=0.5)
    assert view.rows.rows[0].node.idle_seconds == 0, "it is in use"


def test_words_of_the_tree():
    shown = RadixTree(nodes=[node(1)], total_nodes=300, total_tokens=4800)
    assert words.tree(shown) == "300 nodes, 4,800 tokens, 299 not shown"
    assert words.tree(tree(node(1))) == "1 node, 16 tokens"
    assert [words.span(seconds) for seconds in (3, 600, 7200)] == ["3 s", "10 min", "2 h"]


def test_figures():
    cache = CacheStats(
        looked_up=2000,
        hit=1240,
        evicted_pages=7,
        host_pages=3,
        host_bytes=3_000_000,
        disk_bytes=5_000_000_000,
        kind="int4",
        bits_per_element=4.5,
        bits_with_recent=5.25,
    )
    found = {name: value for name, value, _ in words.figures(frame(0, cache=cache))}
    assert found == {
        "Hit rate": "62 %",
        "Prompt tokens not recomputed": "1,240",
        "Unused slots (fragmentation)": "0.9 %",
        "KV, int4, 4.5 bits": "1.0 GB",
        "In RAM": "3.0 MB",
        "On disk": "5.0 GB",
        "Evicted": "7 pages",
    }
    meaning = words.figures(frame(0, cache=cache))[3][2]
    assert (
        "750 MB of answers that are being written, 250 MB cached for reuse; in 16 bits both would be 3.6 GB" in meaning
    )
    assert "3.6 GB; with recent tokens, which are not packed, 5.25 bits" in meaning
    assert words.figures(frame(0))[0][1] == "–"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("<|im_start|>user\nWhat is a page?<|im_end|>\n<|im_start|>assistant\n", "user: What is a page? assistant:"),
        ("<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.", "system: Be brief."),
        ("<bos><start_of_turn>user\nHi<end_of_turn>", "user: Hi"),
        ("<s>[INST] Hi [/INST] Hello</s>", "Hi Hello"),
        ("if a < b | c > d:\n    pass", "if a < b | c > d: pass"),
    ],
)
def test_a_node_is_read_without_the_templates_marks(raw: str, shown: str) -> None:
    assert words.readable(raw) == shown
    assert "<|" not in TreeRow(TreeNode(id=1, parent=-1, tokens=16, text=raw), 0, False).sentence


def test_states_have_a_figure_where_a_model_has_some(qtbot):
    """And none when another model follows."""
    cache = CacheStats(state_bytes=20_000_000, states=7, states_kept=12)
    rows = {name: (value, meaning) for name, value, meaning in words.figures(frame(0, cache=cache))}
    assert rows["States"] == (
        "140 MB",
        "States of recurrent layers, 20 MB each: 12 kept of texts, from which later ones go on",
    )
    shown = Figures()
    qtbot.addWidget(shown)
    shown.show_frame(frame(0, cache=cache))
    assert shown.text("States") == "140 MB"
    shown.show_frame(frame(0))
    assert [label for label in shown.findChildren(QLabel) if label.text() == "States" and not label.isHidden()] == []
    assert shown.text("Evicted") == "0 pages"
