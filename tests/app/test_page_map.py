"""The page map: what a message means, how cells look, where they are, and that it keeps to ten updates a second."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor

from app.cache import words
from app.cache.legend import StateLegend
from app.cache.page_map import PageMapView
from app.charts import tiles
from app.charts.canvas import Canvas
from app.charts.hues import HUES, NO_OWNER, ChatHues
from app.charts.page_states import SWAPPED, PageStates, decode, from_counts
from app.plots.pages import PagesChart
from app.theme.theme import Theme
from engine import protocol as p
from engine.protocol import PAGE_STATES
from tests.app.specs import frame


def page_map(of: list[str], owned: list[int] | None = None, **changes: object) -> p.PageMap:
    numbers = bytes(p.PAGE_STATES.index(state) for state in of)
    indices = np.array(owned if owned is not None else [0] * len(of), dtype="<u2").tobytes()
    fields: dict = {
        "total": len(of),
        "states": zlib.compress(numbers),
        "owners": zlib.compress(indices),
        "legend": [p.PageOwner(chat="a", id="1"), p.PageOwner(chat="", id="http")],
    }
    return p.PageMap(**{**fields, **changes})


def over_the_wire(message: p.PageMap) -> p.PageMap:
    return p.decode_from_engine(p.encode(message))


def test_a_map_says_what_each_page_is():
    states = ["shared", "private", "free", "cached", "evicted"]
    pages = decode(over_the_wire(page_map(states, [1, 2, 0, 1, 1], swapped=3, saved=4)))
    assert [p.PAGE_STATES[state] for state in pages.states] == states
    assert pages.owner(0) == p.PageOwner(chat="a", id="1")
    assert pages.owner(2) is None
    hues = ChatHues()
    assert pages.hues(hues).tolist() == [1, 2, NO_OWNER, 1, NO_OWNER]
    assert pages.owned() == {"a": 2, "http": 1}
    assert words.pages_by_state(pages) == "5 pages: 1 evicted, 1 cached, 1 shared, 1 private, 1 free"
    assert words.elsewhere(pages) == "3 more in RAM, 4 saved on disk"


@pytest.mark.parametrize(
    "broken",
    [
        page_map(["free"], total=2),
        page_map(["free"], [3]),
        page_map(["free"], states=zlib.compress(b"\x09")),
        page_map(["free"], states=b"no zlib"),
        page_map(["free"], owners=zlib.compress(b"\0\0\0\0")),
    ],
)
def test_a_map_that_contradicts_itself_is_refused(broken):
    with pytest.raises(ValueError, match="page map"):
        decode(broken)


def test_hues_are_kept_and_go_round():
    hues = ChatHues()
    given = [hues.of(f"chat {i}") for i in range(HUES + 1)]
    assert given == [*range(1, HUES + 1), 1]
    assert hues.of("chat 3") == 4
    assert hues.of("") == NO_OWNER


@pytest.mark.parametrize("size", [3, 4, 7, 14])
def test_states_and_owners_look_different(size, theme):
    drawn = tiles.tiles(size)
    looks = {}
    for state in range(SWAPPED + 1):
        looks[state] = drawn[int(tiles.code(state, 1))].tobytes()
    assert len(set(looks.values())) == len(looks) if size >= 4 else len(set(looks.values())) >= 5
    for state in ("private", "cached", "locked", "quantised"):
        index = p.PAGE_STATES.index(state)
        assert len({drawn[int(tiles.code(index, hue))].tobytes() for hue in range(HUES + 1)}) == HUES + 1
    assert not drawn[tiles.BLANK].any()
    assert drawn.max() < len(tiles.palette(theme))


def color_at(canvas: Canvas, page: int) -> QColor:
    place = canvas.place(page)
    return QColor(canvas.image.pixel(place.topLeft()))


def test_the_image_shows_states_and_owners_and_changes_where_they_do(theme):
    canvas = Canvas(theme, ChatHues())
    states = ["private"] * 10 + ["shared"] * 10 + ["free"] * 80
    pages = decode(page_map(states, [1] * 20 + [0] * 80))
    assert canvas.show(pages, 140, 200, grows=True)
    assert (canvas.cell, canvas.columns, canvas.rows) == (14, 10, 10)
    assert color_at(canvas, 3).name() == theme.chat_hues[0]
    assert color_at(canvas, 12).name() == theme.tokens.violet
    assert color_at(canvas, 50).name() == tiles.free_color(theme)
    states[50] = "shared"
    assert not canvas.show(decode(page_map(states, [1] * 20 + [0] * 80)), 140, 200, grows=True)
    assert color_at(canvas, 50).name() == theme.tokens.violet
    assert color_at(canvas, 51).name() == tiles.free_color(theme)
    theme.set_mode("light")
    canvas.recolour()
    assert color_at(canvas, 12).name() == theme.tokens.violet


def test_drawing_a_few_cells_gives_the_same_image_as_drawing_all(theme):
    rng = np.random.default_rng(3)
    hues = ChatHues()
    legend = [p.PageOwner(chat=str(i), id="") for i in range(3)]
    states, owners = rng.integers(0, 7, 999).astype(np.uint8), rng.integers(0, 4, 999).astype(np.uint16)
    step = Canvas(theme, hues)
    step.show(PageStates(states, owners, legend, swapped=7), 300, 200, grows=True)
    for _ in range(5):
        states = states.copy()
        states[rng.integers(0, 999, 20)] = rng.integers(0, 7, 20)
        pages = PageStates(states, owners, legend, swapped=7)
        step.show(pages, 300, 200, grows=True)
        whole = Canvas(theme, hues)
        whole.show(pages, 300, 200, grows=True)
        assert step.image == whole.image


def test_swapped_pages_follow_on_a_row_of_their_own(theme):
    canvas = Canvas(theme, ChatHues())
    canvas.show(decode(page_map(["free"] * 15, swapped=3)), 140, 200, grows=True)
    assert canvas.rows == 3
    assert canvas.page_at(5, 2 * 14 + 5) is None
    assert canvas.page_at(5, 14 + 5) == 10
    assert canvas.page_at(6 * 14, 14 + 5) is None
    frame_of_first = QColor(canvas.image.pixel(0, 2 * 14))
    assert frame_of_first.name() not in (theme.tokens.panel, tiles.free_color(theme))


def test_in_little_room_pages_share_squares_and_the_busiest_shows(theme):
    canvas = Canvas(theme, ChatHues())
    states = ["free"] * 65536
    states[1001] = "shared"
    canvas.show(decode(page_map(states)), 250, 110, grows=False)
    assert canvas.together > 1
    assert canvas.rows * canvas.cell <= 110
    assert color_at(canvas, 1001).name() == theme.tokens.violet
    assert color_at(canvas, 9000).name() == tiles.free_color(theme)


def test_an_empty_pool_is_an_empty_image(theme):
    canvas = Canvas(theme, ChatHues())
    canvas.show(from_counts(p.PageCounts(total=0, used=0, live_tokens=0)), 100, 100, grows=True)
    assert canvas.image.isNull()
    assert canvas.page_at(0, 0) is None


@pytest.fixture
def view(qtbot, theme: Theme) -> Iterator[PageMapView]:
    view = PageMapView(theme, ChatHues())
    qtbot.addWidget(view)
    view.resize(300, 120)
    view.show()
    yield view
    view.stop()


def test_the_mouse_and_the_keyboard_point_at_pages(qtbot, view: PageMapView):
    view.show_pages(decode(page_map(["private"] * 200, [1] * 200)))
    pointed, chosen = [], []
    view.body.pointed.connect(pointed.append)
    view.body.chosen.connect(chosen.append)
    qtbot.mouseMove(view.body, view.place(7).center() - view.body.pos())
    qtbot.mouseClick(view.body, Qt.MouseButton.LeftButton, pos=view.place(7).center() - view.body.pos())
    assert pointed[-1] == 7
    assert chosen == [7]
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_End, Qt.Key.Key_Right):
        qtbot.keyClick(view.body, key)
    columns = view._canvas.columns
    assert pointed[-3:] == [8, 8 + columns, 199]
    assert chosen == [7, 8 + columns]
    assert "200 pages: 200 private" in view.body.accessibleDescription()


def test_a_large_pool_scrolls_and_stays_where_it_is(qtbot, view: PageMapView):
    states = np.zeros(65536, dtype=np.uint8)
    view.show_pages(PageStates(states, np.zeros(65536, dtype=np.uint16), []))
    bar = view.verticalScrollBar()
    assert bar.maximum() > 0
    bar.setValue(500)
    view._painted = 0.0
    view.show_pages(PageStates(states + np.uint8(1), np.zeros(65536, dtype=np.uint16), []))
    assert bar.value() == 500
    assert view.pages.counts()["private"] == 65536


def test_no_more_than_ten_updates_a_second(qtbot, view: PageMapView, monkeypatch):
    drawn = []
    monkeypatch.setattr(view, "_draw", lambda pages: drawn.append(pages.swapped))
    until, sent = time.monotonic() + 0.55, 0
    while time.monotonic() < until:
        sent += 1
        view.show_pages(decode(page_map(["free"], swapped=sent)))
        qtbot.wait(5)
    qtbot.waitUntil(lambda: drawn[-1] == sent)
    assert 2 <= len(drawn) <= 7 < sent


def test_the_chart_shows_counts_until_a_map_comes_and_the_map_after(qtbot, theme):
    chart = PagesChart(theme, ChatHues())
    qtbot.addWidget(chart)
    chart.resize(280, 188)
    chart.show()
    chart.add(frame(0))
    chart.refresh()
    assert chart.figure.text() == "459 in use · 153 cached"
    assert chart.map.accessibleDescription() == "4,096 pages: 153 cached, 459 private, 3,484 free"
    chart.show_map(decode(page_map(["shared"] * 100, [1] * 100)))
    chart.add(frame(1))
    chart.refresh()
    assert chart.map.accessibleDescription() == "100 pages: 100 shared"
    assert "Each square is a page" in chart.toolTip()
    chart.forget_map()
    chart.add(frame(2))
    chart.refresh()
    assert "459 private" in chart.map.accessibleDescription()
    assert chart._caption.text() == "of 4,096 pages · 0.9 % unused slots"
    assert chart.map.grab().toImage().pixelColor(QPoint(1, 1)).name() == theme.tokens.mute


def test_the_legend_shows_states_in_no_chats_colour(qtbot, theme) -> None:
    """A pattern tells the state, a colour the chat: the two must not be mixed up."""
    legend = StateLegend(theme)
    qtbot.addWidget(legend)
    legend.resize(600, 60)
    image = legend.grab().toImage()
    seen = {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())}
    assert not seen & set(theme.chat_hues)
    for state in PAGE_STATES:
        assert f"{words.STATE_TITLES[state]}: " in legend.toolTip()
