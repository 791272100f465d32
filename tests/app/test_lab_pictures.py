"""The Lab's pictures and plots: what is painted, what is said of it, and that odd ones are shown too."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF
from PySide6.QtGui import QHelpEvent, QImage, QPainter, QPixmap
from PySide6.QtWidgets import QApplication, QToolTip, QWidget

from app.charts.legend import LegendLabel
from app.charts.raster import draw_cells
from app.charts.scale import Scale, fitting
from app.charts.tiles import empty_color, free_color
from app.lab.pictures import Miniature, PictureView, PlotView, words
from app.lab.pictures.drafts import lines_of
from app.lab.pictures.examples import EXAMPLES
from app.lab.pictures.lanes import on_one_axis
from app.lab.pictures.pages import PagesPainter
from app.lab.pictures.plot import LabAxes
from app.lab.pictures.plot import colors as colors_of_sides
from app.lab.pictures.view import PAINTERS, Face
from engine.protocol.lab import (
    Amounts,
    Axis,
    Cells,
    Doing,
    Drafts,
    DraftToken,
    Heat,
    LabTreeNode,
    Lane,
    Lanes,
    Pages,
    Picture,
    Plot,
    Series,
    Span,
    Strip,
    Tree,
)
from engine.services.experiments.lab import BY_NAME
from tests.kit.examples import examples

SHARED = Tree(
    nodes=[
        LabTreeNode(parent=-1, tokens=1000, readers=[0, 1, 2]),
        *(LabTreeNode(parent=0, tokens=200, readers=[user]) for user in range(3)),
    ]
)
LANES = Lanes(
    lanes=[
        Lane(name="first", spans=[Span(start=0, end=1, doing="reading"), Span(start=1, end=8, doing="writing")]),
        Lane(name="second", spans=[Span(start=0, end=4, doing="idle"), Span(start=4, end=8, doing="waiting")]),
    ],
    seconds=8.0,
)
DRAFTED = Drafts(
    steps=[
        [
            DraftToken(text=" a", fate="accepted"),
            DraftToken(text=" b", fate="refused", parent=0),
            DraftToken(text=" c", fate="own", parent=0),
        ]
    ]
)
PICTURES: list[Picture] = [
    Cells(computed=[1, 2, 3, 4], present=[1, 2, 3, 4]),
    Pages(owners=[0, 0, 1, 1, -1, -1], filled=[1.0, 0.5, 1.0, 0.0, 0.0, 0.0], names=["Ada"]),
    SHARED,
    LANES,
    DRAFTED,
    Heat(columns=3, values=[0.0, 0.5, 1.0, 0.2, 0.1, 0.0], across="channel", down="token"),
    Strip(read=[1.0, 0.0, 0.5, 0.0], marked=[2]),
    Amounts(names=["16-bit", "4-bit"], amounts=[15e9, 4e9], limit=12e9),
]
EMPTY: list[Picture] = [
    Cells(computed=[], present=[]),
    Cells(computed=[0], present=[0]),
    Pages(owners=[], filled=[]),
    Tree(nodes=[]),
    Lanes(lanes=[], seconds=0.0),
    Drafts(steps=[]),
    Drafts(steps=[[]]),
    Heat(columns=0, values=[], across="", down=""),
    Strip(read=[]),
    Amounts(names=[], amounts=[]),
]


@pytest.fixture
def view(qtbot, theme) -> PictureView:
    view = PictureView(theme)
    qtbot.addWidget(view)
    view.resize(400, 260)
    view.show()
    return view


@pytest.fixture
def plot_view(qtbot, theme) -> PlotView:
    view = PlotView(theme)
    qtbot.addWidget(view)
    view.resize(400, 260)
    view.show()
    return view


def face(view: PictureView) -> Face:
    return view.findChild(Face)


def pixels(widget: QWidget) -> np.ndarray:
    """[height, width], as 0xrrggbb."""
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), dtype=np.uint32).reshape(image.height(), -1).copy() & 0xFFFFFF


def colors(view: PictureView) -> Counter[str]:
    """How many pixels of the picture have each colour; it has no ground of its own."""
    values, counts = np.unique(pixels(face(view)), return_counts=True)
    return Counter({f"#{value:06x}": int(count) for value, count in zip(values, counts, strict=True)})


def show(view: PictureView, picture: Picture) -> Counter[str]:
    view.show_picture(picture)
    return colors(view)


def all_under(view: PictureView) -> set[str]:
    """What a pointer that visits every second pixel is told."""
    pixels(view)
    painter, size = face(view)._painter, face(view).size()
    assert painter is not None
    return {painter.under(QPointF(x, y)) for x in range(0, size.width(), 2) for y in range(0, size.height(), 2)}


def test_there_is_a_painter_for_every_kind():
    assert list(PAINTERS) == list(Picture.__args__) == [type(picture) for picture in PICTURES]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: type(picture).__name__)
def test_every_kind_is_painted_named_and_cleared(view, picture):
    nothing = pixels(view)
    view.show_picture(picture)
    painted = pixels(view)
    assert (painted != nothing).any()
    assert view.accessibleName() == words.name(picture)
    assert view.accessibleDescription() == words.sentence(picture)
    assert all_under(view) - {""}
    view.clear()
    assert (pixels(view) == nothing).all()
    assert view.accessibleDescription() == ""
    view.show_picture(picture)
    assert (pixels(view) == painted).all()


def test_a_picture_is_shown_as_it_came_about(view):
    """From nothing to the whole, which it stays past its last moment."""
    moving = {Cells: 4, Tree: 3, Lanes: 800, Drafts: 2}
    for picture in PICTURES:
        view.show_picture(picture)
        whole, count = pixels(face(view)), view.moments
        assert count == moving.get(type(picture), 0)
        if not count:
            continue
        ground = Counter(whole.ravel().tolist()).most_common(1)[0][0]
        inked = []
        for moment in (*range(0, count, max(1, count // 20)), count):
            view.show_moment(moment)
            inked.append(int((pixels(face(view)) != ground).sum()))
        assert inked == sorted(inked) or type(picture) is Lanes, "a line stands where the requests are"
        assert inked[0] < inked[len(inked) // 2] < inked[-1]
        for moment in (count, count + 5):
            view.show_moment(moment - 1)
            view.show_moment(moment)
            assert (pixels(face(view)) == whole).all()


def test_what_is_drafted_is_grey_until_it_is_checked(view, theme):
    view.show_picture(Drafts(steps=DRAFTED.steps * 2))
    fates = [theme.tint(token, 0.3, "panel") for token in ("good", "warn", "accent")]
    seen = []
    for moment in range(5):
        view.show_moment(moment)
        drawn = colors(view)
        told = {said.partition(",")[2].strip() for said in all_under(view)} - {""}
        seen.append((drawn[theme.tint("mute", 0.3, "panel")] > 0, [drawn[fate] > 0 for fate in fates], told))
    fated = {"draft token accepted", "draft token rejected", "generated by the model"}
    unchecked = "drafted and not checked yet"
    assert seen == [
        (False, [False] * 3, set()),
        (True, [False] * 3, {unchecked}),
        (False, [True] * 3, fated),
        (True, [True] * 3, fated | {unchecked}),
        (False, [True] * 3, fated),
    ]


def test_a_picture_has_the_height_that_it_wants(view, theme):
    heights = []
    for steps in (1, 4, 100):
        view.show_picture(Drafts(steps=DRAFTED.steps * steps))
        view.fit(40, 300)
        heights.append(face(view).minimumHeight())
    row = theme.px(20) + 4
    assert heights == [2 * row + 6, 4 * (2 * row + 6), 300]


def test_moments_in_words():
    plain = Drafts(steps=[[DraftToken(text="x", fate="own")]] * 3)
    said = [words.moment([plain, DRAFTED], at) for at in range(5)]
    assert said == ["Step 0 of 3", "Step 1 of 3: drafted", "Step 1 of 3: checked", "Step 2 of 3", "Step 2 of 3"]
    assert words.moment([SHARED], 2) == "2 of 3 chats"
    assert words.moment([LANES], 250) == "2.50 of 8.00 s"
    short = Lanes(lanes=LANES.lanes, seconds=7.121)
    assert words.moment([short], 713) == "7.12 of 7.12 s"
    assert words.moment([PICTURES[0]], 3) == "Step 3 of 4"
    assert words.moment([PICTURES[-1]], 3) == ""


def test_an_empty_picture_says_so(view):
    for picture in EMPTY:
        view.show_picture(PICTURES[0])
        drawn = show(view, picture)
        assert view.accessibleDescription() == words.nothing(picture)
        assert len(drawn) > 1, "the words"
        assert view._legend.text() == ""


@pytest.mark.parametrize("size", [(1, 1), (30, 20), (1200, 900)])
def test_every_size_is_painted(view, size):
    view.resize(*size)
    for picture in PICTURES:
        view.show_picture(picture)
        face(view).resize(*size)  # smaller than a layout would make it
        assert pixels(face(view)).shape == size[::-1]


def test_a_painter_that_fails_does_not_take_the_window_with_it(view, theme, monkeypatch):
    view.show_picture(SHARED)
    pixels(view)
    monkeypatch.setattr(view._painter, "paint", lambda *_: 1 / 0)
    face(view)._repaint()
    with pytest.raises(ZeroDivisionError):
        pixels(view)
    assert show(view, LANES)[theme.tokens.teal]


def test_a_picture_is_painted_once(view, theme):
    view.show_picture(SHARED)
    pixels(view)
    image = face(view)._image
    assert image is not None
    view.show_picture(Tree(nodes=list(SHARED.nodes)))
    pixels(view)
    assert face(view)._image is image, "an equal picture is not painted again"
    theme.set_mode("light")
    assert face(view)._image is None


def test_the_theme_and_the_text_scale_are_followed(view, theme):
    for picture in PICTURES:
        theme.set_mode("dark")
        theme.set_scale(1.0)
        view.show_picture(picture)
        dark, legend = pixels(face(view)), view._legend.text()
        theme.set_mode("light")
        light = pixels(face(view))
        assert (light != dark).any()
        assert view._legend.text() != legend or not legend
        theme.set_scale(1.5)
        larger = pixels(face(view))
        assert larger.shape != light.shape or (larger != light).any()


def test_computing_all_again_fills_a_triangle(view, theme):
    steps = list(range(1, 11))
    accent = theme.tokens.accent
    again = show(view, Cells(computed=steps, present=steps))
    assert view.accessibleDescription() == "10 steps: 55 tokens computed, 45 of them again."
    once = show(view, Cells(computed=[1] * 10, present=steps))
    assert view.accessibleDescription() == "10 steps: 10 tokens computed, none of them again."
    assert again[accent] / once[accent] == pytest.approx(5.5, rel=0.02), "55 cells against 10"
    assert "Step 10: 1 of 10 tokens computed" in all_under(view)


def test_cells_beyond_the_pixels_stay_visible(view, theme):
    assert show(view, Cells(computed=[1] * 3000, present=list(range(9001, 12001))))[theme.tokens.accent]


def test_pages_have_their_owners_colours_and_empty_ones_are_grey(view, theme):
    drawn = show(view, Pages(owners=[0] * 10 + [1] * 10 + [-1] * 20, filled=[1.0] * 10 + [0.0] * 10 + [0.0] * 20))
    first, empty, free = theme.chat_hues[0], empty_color(theme), free_color(theme)
    assert drawn[first] == drawn[empty] == drawn[free] / 2
    assert theme.chat_hues[1] not in drawn
    assert view.accessibleDescription() == (
        "40 pages: 10 hold tokens of 1 request, 10 are reserved and empty, 20 free."
    )
    half = show(view, Pages(owners=[0] * 40, filled=[0.5] * 40))
    assert half[first] / half[empty] == pytest.approx(1, rel=0.2)
    told = all_under(view)
    assert {"Page 0: request 1, 50 % of its slots used", "Page 39: request 1, 50 % of its slots used"} <= told


def test_five_thousand_pages_are_shown_a_cell_each(view):
    view.show_picture(Pages(owners=[page % 9 - 1 for page in range(5000)], filled=[1.0] * 5000, names=["Ada"]))
    painted = {said.partition(":")[0] for said in all_under(view)} - {""}
    assert len(painted) == 5000
    assert view.accessibleDescription().startswith("5,000 pages: 4,444 hold tokens of 8 requests")
    assert "Ada" in view._legend.text()


def test_filled_lists_that_are_too_short_are_empty_pages(view, theme):
    assert show(view, Pages(owners=[0, 10**9], filled=[]))[empty_color(theme)]
    assert "2 are reserved and empty" in view.accessibleDescription()


def test_a_tree_draws_shared_text_once_and_a_leaf_a_reader(view, theme):
    shared = show(view, SHARED)
    assert view.accessibleDescription() == ("4 nodes with 1,600 tokens for 3 chats, whose texts have 3,600 together.")
    apart = show(view, Tree(nodes=[LabTreeNode(parent=-1, tokens=1200, readers=[user]) for user in range(3)]))
    assert shared[theme.tokens.violet]
    assert not apart[theme.tokens.violet]
    for hue in theme.chat_hues[:3]:
        assert 0 < shared[hue] < apart[hue]
    assert "1,200 tokens, read by 1 chat" in all_under(view)


def test_a_tree_of_odd_parents_and_many_readers_is_painted(view):
    nodes = [LabTreeNode(parent=parent, tokens=0, readers=[]) for parent in (5, 0, 1, -7, 3)]
    show(view, Tree(nodes=nodes))
    show(view, Tree(nodes=[LabTreeNode(parent=-1, tokens=10, readers=list(range(500)))]))
    show(view, Tree(nodes=[LabTreeNode(parent=place - 1, tokens=3, readers=[0]) for place in range(2000)]))
    assert view.accessibleDescription()


def test_lanes_show_what_requests_did(view, theme):
    drawn = show(view, LANES)
    tokens = theme.tokens
    grey = theme.tint("mute", 0.4, "panel")
    reading = theme.tint("teal", 0.5, "panel")
    assert drawn[tokens.teal] / drawn[reading] == pytest.approx(7, rel=0.15), "seven seconds against one"
    assert drawn[grey] > drawn[reading]
    assert not {*drawn} & {*colors_of_sides(theme)[1:3]}, "no colour of a side"
    assert view.accessibleDescription() == "2 requests in 8 s; 1 queued."
    assert {"second: queued from 4 s to 8 s", "first: prefilling from 0 s to 1 s"} <= all_under(view)
    idle = Lanes(lanes=[Lane(name="", spans=[Span(start=0, end=8, doing="idle")])], seconds=8.0)
    waiting = Lanes(lanes=[Lane(name="", spans=[Span(start=0, end=8, doing="waiting")])], seconds=8.0)
    assert 0 < show(view, idle)[grey] < 0.7 * show(view, waiting)[grey], "an idle one is hatched"


def test_a_paused_request_is_hatched_and_one_without_its_pages_stands_out(view, theme):
    tokens = theme.tokens

    def drawn(doing: Doing) -> Counter[str]:
        return show(view, Lanes(lanes=[Lane(name="a", spans=[Span(start=0, end=8, doing=doing)])], seconds=8.0))

    assert 0 < drawn("paused")[tokens.teal] < 0.7 * drawn("writing")[tokens.teal]
    assert view.accessibleDescription() == "1 request in 8 s."
    whole = drawn("writing")[tokens.teal]
    assert drawn("preempted")[tokens.warn] == drawn("swapped")[theme.tint("warn", 0.5, "panel")] == whole
    assert drawn("paused")[tokens.warn] == 0
    assert "a: paused, pages kept from 0 s to 8 s" in all_under(view)


def test_lanes_of_all_sides_have_one_axis(view):
    short = msgspec.structs.replace(LANES, seconds=2.0)
    found = on_one_axis({0: LANES, 1: short, 2: SHARED})
    assert found[0] == found[1] == LANES
    assert found[2] == SHARED


def test_lanes_without_time_are_painted(view):
    for seconds in (0.0, -1.0, 1e-9):
        show(view, Lanes(lanes=[Lane(name="a", spans=[])], seconds=seconds))
        show(view, Lanes(lanes=[Lane(name="b", spans=[Span(start=0, end=0, doing="idle")])] * 300, seconds=seconds))
        assert view.accessibleDescription().startswith("300 requests")


def test_fates_of_drafts_differ_in_colour_and_in_sign(view, theme):
    signs = {}
    for fate, token in (("accepted", "good"), ("refused", "warn"), ("own", "accent")):
        drawn = show(view, Drafts(steps=[[DraftToken(text="x", fate=fate)]]))
        assert drawn[theme.tint(token, 0.3, "panel")] > 50
        assert all(not drawn[theme.tint(other, 0.3, "panel")] for other in {"good", "warn", "accent"} - {token})
        chip = face(view)._painter.areas[0][0].toRect()
        area = pixels(face(view))[chip.top() : chip.bottom(), chip.left() : chip.left() + 16]
        signs[fate] = area != int(theme.tint(token, 0.3, "panel")[1:], 16)
    assert all(sign.any() for sign in signs.values())
    assert not (signs["accepted"] == signs["refused"]).all()
    assert not (signs["accepted"] == signs["own"]).all()


def test_drafts_branch_and_what_became_text_goes_straight_on(view):
    assert [(spot.line, spot.column) for spot in lines_of(DRAFTED.steps[0])] == [(0, 0), (1, 1), (0, 1)]
    view.show_picture(DRAFTED)
    assert view.accessibleDescription() == "1 step: 2 tokens drafted, 1 accepted, 1 rejected; 2.0 tokens a step."
    assert {'Step 1: "a", draft token accepted', 'Step 1: "b", draft token rejected'} <= all_under(view)


def test_of_many_steps_the_last_are_shown(view):
    view.show_picture(Drafts(steps=DRAFTED.steps * 200))
    told = all_under(view)
    assert any(said.startswith("Step 200:") for said in told)
    assert not any(said.startswith("Step 1:") for said in told)
    assert view.accessibleDescription().startswith("200 steps: 400 tokens drafted")


def test_a_long_draft_keeps_inside_the_picture(view):
    chain = [DraftToken(text="a long token", fate="refused", parent=place - 1) for place in range(16)]
    view.show_picture(Drafts(steps=[chain]))
    pixels(view)
    chips = [area for area, _ in face(view)._painter.areas]
    assert len(chips) == 16
    assert max(area.right() for area in chips) <= face(view).width()


def test_a_lone_outlier_stays_visible_in_a_heat_map(view, theme):
    values = np.full((64, 4096), 0.05)
    values[:, 1234] = 1.0
    heat = Heat(columns=4096, values=values.ravel().tolist(), across="channel", down="token")
    assert show(view, heat)[theme.tokens.accent] > 50
    assert view.accessibleDescription() == ("64 by 4,096 values, the largest at token 0, channel 1,234: 1.00.")


def test_values_that_do_not_fill_their_last_row_are_shown(view):
    show(view, Heat(columns=4, values=[0.5, 2.0, -1.0, 0.1, 0.3], across="x", down="y"))
    assert "y 1, x 3: nothing" in all_under(view)


def test_a_strip_is_bright_where_it_was_read_and_frames_what_is_looked_for(view, theme):
    drawn = show(view, Strip(read=[1.0] * 10 + [0.0] * 30))
    bright, dull = theme.tokens.teal, theme.tint("mute", 0.22, "panel")
    assert drawn[dull] / drawn[bright] == pytest.approx(3, rel=0.1)
    assert not drawn[theme.tokens.warn]
    assert show(view, Strip(read=[1.0] * 10 + [0.0] * 30, marked=[3, 35, 99]))[theme.tokens.warn]
    assert view.accessibleDescription() == (
        "40 pages, 10 of them read, 25 % of the text; of 2 pages that hold what is looked for, 1 was read."
    )
    assert "Page 35: 0 % read, holds what is looked for" in all_under(view)
    assert show(view, Strip(read=[0.5] * 5000, marked=[4999]))[theme.tokens.warn]


def test_amounts_beyond_the_limit_have_another_colour(view, theme):
    drawn = show(view, Amounts(names=["a", "b"], amounts=[15e9, 4e9], limit=12e9))
    assert drawn[theme.tokens.accent] / drawn[theme.tokens.warn] == pytest.approx(16 / 3, rel=0.1)
    assert view.accessibleDescription() == "a: 15.0 GB, 3.0 GB beyond the limit; b: 4.0 GB; limit 12.0 GB."
    assert not show(view, Amounts(names=["a", "b"], amounts=[15e9, 4e9]))[theme.tokens.warn]
    show(view, Amounts(names=["a", "b", "c"], amounts=[0.0, -5.0]))


def test_a_limit_far_away_leaves_the_bars_their_length(view, theme):
    names, amounts = ["16-bit", "4-bit"], [1e6, 5e5]
    bars = [
        show(view, Amounts(names=names, amounts=amounts, limit=limit))[theme.tokens.accent]
        for limit in (0.0, 2e6, 25e9)
    ]
    assert bars[2] == bars[0] > 1.5 * bars[1]


def test_sizes_have_the_unit_that_fits():
    sizes = [0, 512, 3500, 48_000, 999_400, 999_600, 2.5e6, 1.2e9]
    assert [words.in_bytes(value) for value in sizes] == (
        ["0 MB", "512 B", "3.5 kB", "48 kB", "999 kB", "1.0 MB", "2.5 MB", "1.2 GB"]
    )
    assert words.value(Axis(title="", unit="bytes"), 48_000) == "48 kB"
    told = [words.value(Axis(title=""), value) for value in (0, 0.25, 2048, 1e6, 1.25e9, -3e12)]
    assert told == ["0", "0.25", "2,048", "1 M", "1.25 G", "-3 T"]


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0])
def test_pages_lie_where_the_mouse_finds_them_at_every_resolution(theme, ratio):
    owners = [page % 9 - 1 for page in range(700)]
    painter = PagesPainter(theme, Pages(owners=owners, filled=[1.0] * 700))
    image = QPixmap(round(301 * ratio), round(203 * ratio))
    image.setDevicePixelRatio(ratio)
    image.fill("black")
    brush = QPainter(image)
    painter.draw(brush, QRectF(0, 0, 301, 203))
    brush.end()
    drawn = image.toImage()
    found = Counter()
    for x in range(1, drawn.width(), 3):
        for y in range(1, drawn.height(), 3):
            said = painter.under(QPointF(x, y) / ratio)
            color = drawn.pixelColor(x, y).name()
            if said and color != "#000000":
                owner = owners[int(said.removeprefix("Page ").partition(":")[0])]
                assert color == (free_color(theme) if owner < 0 else theme.chat_hues[owner])
                found[owner] += 1
    assert len(found) == 9


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0])
def test_cells_fill_their_room_with_gaps_of_one_pixel_of_the_screen(qapp, ratio):
    image = QPixmap(round(100 * ratio), round(40 * ratio))
    image.setDevicePixelRatio(ratio)
    image.fill("black")
    brush = QPainter(image)
    draw_cells(brush, QRectF(0, 0, 100, 40), np.ones((2, 10), dtype=np.uint8), ["#ff0000"])
    brush.end()
    shown = image.toImage()
    row = [shown.pixelColor(x, 0).name() for x in range(shown.width())]
    assert Counter(row) == {"#ff0000": shown.width() - 10, "#000000": 10}
    assert Counter(shown.pixelColor(0, y).name() for y in range(shown.height()))["#000000"] == 2


def test_the_mouse_is_told_the_number_under_it(view, plot_view, monkeypatch):
    told = []
    monkeypatch.setattr(QToolTip, "showText", lambda at, text, *_: told.append(text))

    def point(widget: QWidget, x: int, y: int) -> None:
        QApplication.sendEvent(widget, QHelpEvent(QEvent.Type.ToolTip, QPoint(x, y), QPoint(x, y)))

    point(face(view), 3, 3)
    assert told == []
    view.show_picture(PICTURES[1])
    pixels(view)
    point(face(view), 3, 3)
    assert told == ["Page 0: Ada, 100 % of its slots used"]
    plot_view.show_plot(LINES)
    pixels(plot_view)
    axes = plot_view.findChild(LabAxes)
    end = QPointF(axes.place_x(axes.room(), 100), axes.place_y(axes.room(), 200)).toPoint()
    point(axes, end.x() - 9, end.y() + 9)
    assert told[-1] == "off, 100 tokens: 200 ms (150 to 250)"
    point(axes, axes.width() // 2, int(axes.room().bottom()))
    assert told[-1] == ""


LINES = Plot(
    title="First token",
    x=Axis(title="prompt", unit="tokens"),
    y=Axis(title="time", unit="ms"),
    series=[
        Series(name="off", points=[(0, 0), (100, 200)], low=[0, 150], high=[0, 250]),
        Series(name="on", points=[(0, 0), (100, 40)]),
    ],
    note="One machine.",
)


def with_axes(plot: Plot, *, x: bool, y: bool) -> Plot:
    return Plot(
        title=plot.title,
        x=Axis(title="x", log=x),
        y=Axis(title="y", unit="bytes", log=y),
        series=plot.series,
        bars=plot.bars,
        categories=plot.categories,
    )


def test_a_plot_has_lines_bands_words_and_axes(plot_view, theme):
    nothing = pixels(plot_view)
    plot_view.show_plot(LINES)
    painted = pixels(plot_view)
    assert (painted != nothing).any()
    tokens = theme.tokens
    for color in (tokens.mute, tokens.accent):
        assert (painted == int(color[1:], 16)).any()
    assert plot_view.accessibleName() == "First token"
    assert plot_view.accessibleDescription() == (
        "time (ms) over prompt (tokens). off: 0 to 200 ms; on: 0 to 40 ms. One machine."
    )
    assert "off" in plot_view.findChild(LegendLabel).text()
    axes = plot_view.findChild(LabAxes)
    assert axes.labels == ["0", "100", "200", "300"], "the interval is inside the axis"
    without = Series(name="off", points=LINES.series[0].points)
    plot_view.show_plot(Plot(title="", x=LINES.x, y=LINES.y, series=[without, LINES.series[1]]))
    assert axes.labels[-1] == "200"


def test_points_are_marked_where_all_lines_have_few(plot_view, theme):
    few = Series(name="few", points=[(float(x), 1.0) for x in range(5)])
    axis = Axis(title="x")

    def drawn(points: int) -> int:
        other = Series(name="other", points=[(x * 4 / points, 2.0) for x in range(points + 1)])
        plot_view.show_plot(Plot(title="", x=axis, y=axis, series=[few, other]))
        return int((pixels(plot_view) == int(theme.tokens.mute[1:], 16)).sum())

    assert drawn(4) > drawn(100), "no line has dots beside one that has none"


def test_a_low_plot_names_fewer_values(plot_view):
    plot_view.show_plot(LINES)
    axes = plot_view.findChild(LabAxes)
    whole = axes.labels
    axes.resize(300, 60)
    assert 0 < len(axes.labels) < len(whole)
    axes.resize(1, 1)
    pixels(axes)


def test_bars_stand_in_groups_from_zero(plot_view, theme):
    series = [
        Series(name="used", points=[(0, 20), (1, 96)], low=[18, 95], high=[22, 97]),
        Series(name="wasted", points=[(0, 80), (1, 4)]),
    ]
    plot_view.show_plot(
        Plot(
            title="KV memory",
            x=Axis(title=""),
            y=Axis(title="share", unit="%"),
            series=series,
            bars=True,
            categories=["contiguous", "paged"],
        )
    )
    pixels(plot_view)
    axes = plot_view.findChild(LabAxes)
    bars = {axes.nearest(spot.area.center()): spot.area for spot in axes._spots}
    assert list(bars) == [
        "used, contiguous: 20 % (18 to 22)",
        "used, paged: 96 % (95 to 97)",
        "wasted, contiguous: 80 %",
        "wasted, paged: 4 %",
    ]
    used, paged, wasted, _ = bars.values()
    assert wasted.height() / used.height() == pytest.approx(4)
    assert used.bottom() == wasted.bottom() == pytest.approx(axes.room().bottom())
    assert used.right() < wasted.left() < wasted.right() < paged.left()


@pytest.mark.parametrize("bars", [False, True])
def test_what_has_no_logarithm_is_left_out(plot_view, bars):
    points = [(0.0, 0.0), (1.0, 10.0), (10.0, 0.0), (100.0, 1000.0), (-5.0, -5.0)]
    plot = Plot(title="", x=Axis(title=""), y=Axis(title=""), series=[Series(name="a", points=points)], bars=bars)
    plot_view.show_plot(with_axes(plot, x=True, y=True))
    pixels(plot_view)
    assert len(plot_view.findChild(LabAxes)._spots) == 2
    nowhere = Plot(title="", x=plot.x, y=plot.y, series=[Series(name="a", points=[(0, 0), (0, -1)])], bars=bars)
    plot_view.show_plot(with_axes(nowhere, x=True, y=True))
    pixels(plot_view)
    assert plot_view.findChild(LabAxes)._spots == []


def test_a_plot_follows_the_theme_and_the_text_scale(plot_view, theme):
    plot_view.show_plot(LINES)
    dark = pixels(plot_view)
    theme.set_mode("light")
    light = pixels(plot_view)
    assert (light != dark).any()
    assert (light == int(theme.tokens.accent[1:], 16)).any()
    theme.set_scale(1.5)
    assert (pixels(plot_view) != light).any()


@pytest.mark.parametrize(
    ("values", "options", "scale", "ticks"),
    [
        ([0, 1], {}, (0, 1), [0, 0.5, 1]),
        ([3, 97], {}, (0, 100), [0, 50, 100]),
        ([12.41, 12.59], {}, (12.4, 12.6), [12.4, 12.45, 12.5, 12.55, 12.6]),
        ([95, 97], {"floor": True}, (0, 100), [0, 50, 100]),
        ([-3, 8], {"floor": True}, (-5, 10), [-5, 0, 5, 10]),
        ([7, 7], {}, (0, 8), [0, 2, 4, 6, 8]),
        ([], {}, (0, 1), [0, 0.5, 1]),
        ([0, 0], {}, (0, 1), [0, 0.5, 1]),
        ([256, 8192], {"tight": True}, (256, 8192), [2000, 4000, 6000, 8000]),
    ],
)
def test_linear_scales(values, options, scale, ticks):
    found = fitting(values, False, **options)
    assert found.ticks() == pytest.approx(ticks)
    assert (found.low, found.high) == pytest.approx(scale)


@pytest.mark.parametrize(
    ("values", "tight", "scale", "ticks"),
    [
        ([0, 3, 700], False, (1, 1000), [1, 10, 100, 1000]),
        ([20, 70], False, (10, 100), [10, 20, 50, 100]),
        ([256, 8192], True, (256, 8192), [500, 1000, 2000, 5000]),
        ([10, 10], False, (10, 100), [10, 20, 50, 100]),
        ([0, -1], False, (1, 10), [1, 2, 5, 10]),
        ([1e-12, 1], False, (1e-12, 1), [1e-12, 1e-9, 1e-6, 1e-3, 1]),
    ],
)
def test_logarithmic_scales(values, tight, scale, ticks):
    found = fitting(values, True, tight=tight)
    assert found.ticks() == pytest.approx(ticks)
    assert (found.low, found.high) == pytest.approx(scale)
    assert not found.has(0.0)
    assert [found.place(found.low), found.place(found.high)] == pytest.approx([0, 1])


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True)), st.booleans(), st.booleans(), st.booleans())
def test_every_scale_holds_its_values(values, log, tight, floor):
    scale = fitting(values, log, tight=tight, floor=floor)
    assert isinstance(scale, Scale)
    assert scale.low < scale.high
    for value in values:
        if scale.has(value):
            assert -1e-6 <= scale.place(value) <= 1 + 1e-6
    assert len(scale.ticks()) < 20
    assert all(math.isfinite(tick) for tick in scale.ticks())


ANY = st.floats(allow_nan=True, allow_infinity=True)
SERIES = st.builds(
    Series,
    name=st.text(max_size=5),
    points=st.lists(st.tuples(ANY, ANY), max_size=8),
    low=st.lists(ANY, max_size=8),
    high=st.lists(ANY, max_size=8),
)
AXIS = st.builds(Axis, title=st.text(max_size=5), unit=st.sampled_from(["", "ms", "bytes"]), log=st.booleans())
PLOT = st.builds(
    Plot,
    title=st.text(max_size=5),
    x=AXIS,
    y=AXIS,
    series=st.lists(SERIES, max_size=8),
    bars=st.booleans(),
    categories=st.lists(st.text(max_size=5), max_size=5),
)


@pytest.mark.slow
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLOT)
def test_any_plot_is_painted_with_every_point_inside(plot_view, plot):
    plot_view.show_plot(plot)
    pixels(plot_view)
    axes = plot_view.findChild(LabAxes)
    for area, _, _ in axes._spots:
        assert axes.nearest(area.center())
        assert all(map(math.isfinite, (area.left(), area.top(), area.right(), area.bottom())))
        assert -1 <= area.top() <= area.bottom() <= axes.height() + 1
        assert -1 <= area.left() <= area.right() <= axes.width() + 1
    assert "nan" not in " ".join(axes.labels)


SHARE = st.floats(-1, 2)
ANY_PICTURE = st.one_of(
    st.builds(Cells, computed=st.lists(st.integers(0, 5000)), present=st.lists(st.integers(0, 5000))),
    st.builds(Pages, owners=st.lists(st.integers(-1, 20)), filled=st.lists(SHARE), names=st.lists(st.text())),
    st.builds(
        Tree,
        nodes=st.lists(
            st.builds(
                LabTreeNode,
                parent=st.integers(-1, 9),
                tokens=st.integers(0, 4000),
                readers=st.lists(st.integers(0, 9), max_size=4),
            )
        ),
    ),
    st.builds(
        Drafts,
        steps=st.lists(
            st.lists(
                st.builds(
                    DraftToken,
                    text=st.text(max_size=8),
                    fate=st.sampled_from(["own", "accepted", "refused"]),
                    parent=st.integers(-1, 9),
                )
            )
        ),
    ),
    st.builds(Heat, columns=st.integers(0, 9), values=st.lists(SHARE), across=st.text(), down=st.text()),
    st.builds(Strip, read=st.lists(SHARE), marked=st.lists(st.integers(-2, 9))),
    st.builds(
        Amounts,
        names=st.lists(st.text(max_size=9)),
        amounts=st.lists(st.floats(0, 1e15)),
        limit=st.floats(0, 1e15),
    ),
)


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY_PICTURE, st.integers(0, 30))
def test_any_picture_is_painted_and_said(view, picture, moment):
    view.show_picture(picture)
    pixels(view)
    assert view.accessibleDescription()
    view.show_moment(moment)
    pixels(view)
    assert not view.moments or words.moment([picture], moment)


def small(theme, picture: Picture, drawing: bool = False) -> Miniature:
    holder = QWidget()
    view = Miniature(theme, holder)
    view.holder = holder  # else it goes at once
    view.show_picture(picture, drawing)
    return view


def contrast(view: Miniature) -> int:
    """How far its pixels are from the ground, a channel of one of them at most."""
    shown = pixels(view).view(np.uint8).astype(int)
    view.show_painter(None, "")
    return int(np.abs(shown - pixels(view).view(np.uint8)).max())


def test_every_experiment_has_a_drawing_that_says_it_is_none_of_a_run(qtbot, theme):
    assert set(EXAMPLES) == set(BY_NAME)
    for picture in EXAMPLES.values():
        drawn, found = small(theme, picture, drawing=True), small(theme, picture)
        assert 0 < contrast(drawn) < 0.6 * contrast(found), picture
        assert drawn.accessibleName().endswith("a drawing: this was not run yet")
        assert drawn.accessibleDescription() == "", "it has no numbers to tell"
        assert found.accessibleDescription() == words.sentence(picture)


def test_a_small_picture_has_no_words_and_keeps_no_room_for_them(qtbot, theme):
    named = Amounts(names=["sixteen bits", "four"], amounts=[16.0, 4.0], limit=1e6)
    bare = Amounts(names=["", ""], amounts=[16.0, 4.0])
    assert (pixels(small(theme, named)) == pixels(small(theme, bare))).all()


@pytest.mark.parametrize("picture", [*PICTURES, *EMPTY])
def test_every_kind_is_painted_small(qtbot, theme, picture):
    assert (contrast(small(theme, picture)) > 0) == words.shows(picture)


def test_bars_of_sides_have_the_colours_and_where_there_is_no_room_the_letters_of_sides(qtbot, theme):
    sides = ["a first side with a long name", "a second one", "and a third"]
    bars = Plot(
        title="Medians of all runs", x=Axis(title=""), y=Axis(title="speed"), bars=True, categories=sides,
        series=[Series(name="", points=[(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)])],
    )  # fmt: skip
    view, plain = PlotView(theme, sides=sides), PlotView(theme)
    for each in (view, plain):
        qtbot.addWidget(each)
        each.resize(300, 260)
        each.show()
        each.show_plot(bars)
    drawn = {f"#{value:06x}" for value in np.unique(pixels(view)).tolist()}
    assert set(colors_of_sides(theme)[:3]) <= drawn
    axes, others = view.findChild(LabAxes), plain.findChild(LabAxes)
    assert [text for _, text in axes._ticks(axes.room())] == ["A", "B", "C"]
    assert all(text.endswith("…") for _, text in others._ticks(others.room())[:1])
    assert axes.nearest(axes._spots[1].area.center()) == "a second one: 7"
    theirs = {f"#{value:06x}" for value in np.unique(pixels(plain)).tolist()}
    assert theme.tokens.violet not in theirs, "they are no sides"
