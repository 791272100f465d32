"""The roofline's picture: each point is named, no two names overlap, and the mouse finds what was taken how."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRectF
from PySide6.QtGui import QPolygonF, QTransform

from app.charts.legend import LegendLabel
from app.lab.pictures.roof import Label, Name, RoofAxes, RoofView, point_words, spread, stacked
from engine.protocol.lab import RoofPoint
from tests.app.fake_lab import roofline


@pytest.fixture
def view(qtbot, theme) -> RoofView:
    made = RoofView(roofline(), theme)
    qtbot.addWidget(made)
    made.resize(900, 420)
    made.show()
    return made


def area(axes: RoofAxes, label: Label) -> QPolygonF:
    metrics = axes.fontMetrics()
    wide, high = metrics.horizontalAdvance(label.text), metrics.height()
    return QPolygonF(QRectF(label.at.x() - wide * label.left, label.at.y() - high / 2 + 0.5, wide, high - 1))


def named(axes: RoofAxes, name: Name) -> QPolygonF:
    """What the words of a ceiling cover."""
    metrics = axes.fontMetrics()
    words = QRectF(0, -metrics.ascent() + 0.5, metrics.horizontalAdvance(name.text), metrics.height() - 1)
    turned = QTransform().translate(name.at.x(), name.at.y()).rotate(name.turned)
    return turned.map(QPolygonF(words))


@pytest.mark.parametrize("width", [490, 900])
@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_every_point_and_ceiling_is_named_and_no_two_names_overlap(view, theme, scale, width):
    axes = view.axes
    usual = axes.fontMetrics().height()
    theme.set_scale(scale)
    view.resize(width, 420)
    assert (axes.fontMetrics().height() > usual) == (scale > 1)
    assert not view.grab().isNull()
    found = roofline()
    labels = axes.labels_of(axes.room())
    names = axes.names_of(axes.room(), labels)
    assert len(labels) == sum(point.group == "measured" for point in found.points)
    assert {name.text.partition(":")[0] for name in names} == {each.name for each in found.ceilings}
    areas = {label.text: area(axes, label) for label in labels} | {name.text: named(axes, name) for name in names}
    assert len(areas) == len(labels) + len(names)
    for text, one in areas.items():
        assert QRectF(axes.rect()).contains(one.boundingRect()), text
    for (text, one), (other_text, other) in itertools.combinations(areas.items(), 2):
        assert not one.intersects(other), (text, other_text)


@pytest.mark.parametrize("width", [490, 900])
def test_what_was_measured_is_labelled_below_its_roof(view, width):
    """In the steepest ceiling's terms: right of its slope, and under the flat."""
    view.resize(width, 420)
    axes = view.axes
    room = axes.room()
    slope = axes._slope(room, axes._reads[-1])
    labels = axes.labels_of(room)
    assert sorted(label.text for label in labels) == [
        "decode, batch 1: 61 % of its roof, 10 G",
        "prefill: 65 % of its roof, 46 G",
    ]
    for label in labels:
        box = area(axes, label).boundingRect()
        near = box.bottomRight() if label.left else box.topLeft()
        across = min(max((slope.y1() - near.y()) / (slope.y1() - slope.y2()), 0.0), 1.0)
        assert box.left() > slope.x1() + across * (slope.x2() - slope.x1()), label.text
        assert box.top() > slope.y2(), label.text


@pytest.mark.parametrize("roof", [46e9, 47.5e9, 10e9])
def test_no_dot_stands_above_the_roof_that_is_drawn_for_it(qtbot, theme, roof):
    """The ceilings are 46 and 49 G, and 5 or 5.5 GB a second at two operations a byte: a mixed roof lies between."""
    intensity = 700.0 if roof > 40e9 else 2.0
    point = RoofPoint("prefill", "measured", intensity, 0.98 * roof, 0.5 * roof, roof, 900.0, "measured", roof)
    made = RoofView(msgspec.structs.replace(roofline(), points=[point]), theme)
    qtbot.addWidget(made)
    made.resize(900, 420)
    made.grab()
    room = made.axes.room()
    (dot,) = (dot for dot, _ in made.axes._dots)
    line = made.axes.roof_of(room, point)
    assert line.x1() < dot.x() < line.x2()
    over = line.pointAt((dot.x() - line.x1()) / line.dx())
    assert over.y() <= dot.y()
    assert over.y() == pytest.approx(made.axes._place(room, intensity, roof).y())
    assert (line.dy() == 0) == (roof != 10e9), "a slope where bytes are waited for"
    image, end = made.axes.grab().toImage(), line.pointAt(0.97)
    lights = [image.pixelColor(round(end.x()), round(end.y()) + dy).lightness() for dy in (-2, -1, 0, 1, 2)]
    assert max(lights) > 0.7 * theme.color("text").lightness(), "the stroke is there"


def test_the_mouse_and_screen_readers_are_told_how_a_point_was_taken(view):
    view.grab()
    point = roofline().points[0]
    dot = next(dot for dot, shown in view.axes._dots if shown == point)
    assert view.axes.nearest(dot) == point_words(point)
    assert point_words(point).endswith("305 tokens a second (measured: 90 passes)")
    assert view.axes.nearest(view.axes.room().topLeft()) == ""
    assert all(point.name in view.accessibleDescription() for point in roofline().points)


def test_the_legend_has_an_entry_for_each_group_and_no_more(view):
    text = view.findChild(LegendLabel).text()
    assert text.count("●") == 1
    assert text.count("○") == 3


@pytest.mark.parametrize("size", [(1, 1), (120, 80), (2000, 1200)])
def test_any_size_and_a_roofline_without_points_are_painted(qtbot, theme, size):
    for found in (roofline(), msgspec.structs.replace(roofline(), points=[]), nothing()):
        made = RoofView(found, theme)
        qtbot.addWidget(made)
        made.resize(*size)
        assert not made.grab().isNull()
        assert bool(made.axes._dots) == bool(found.points), "every point has its dot, and nothing else has"


def nothing():
    empty = [msgspec.structs.replace(each, value=0.0) for each in roofline().ceilings]
    return msgspec.structs.replace(roofline(), ceilings=empty, points=[])


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_places_keep_their_distance_and_order(wanted):
    found = spread(sorted(wanted), 10.0, -100.0, 200.0)
    assert all(later - earlier >= 10 - 1e-6 for earlier, later in itertools.pairwise(found))
    assert sum(found) == pytest.approx(sum(wanted), abs=1e-6), "none is moved more than others have to give way"


def test_what_has_room_stays_where_it_is_and_the_ends_hold():
    assert spread([0.0, 20.0, 50.0], 10.0, 0.0, 100.0) == [0.0, 20.0, 50.0]
    assert spread([0.0, 0.0], 10.0, 0.0, 100.0) == [0.0, 10.0]
    assert spread([100.0, 100.0], 10.0, 0.0, 100.0) == [90.0, 100.0]


def test_words_of_lines_that_are_near_stand_one_after_another():
    assert stacked([0.0, 30.0, 35.0], 10.0) == [0.0, 35.0, 45.0]
    assert stacked([0.0, 5.0, 20.0], 10.0) == [20.0, 30.0, 40.0]
