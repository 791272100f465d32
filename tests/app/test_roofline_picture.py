"""The roofline's picture: each point is named, no two names overlap, and the mouse finds what was taken how."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRectF

from app.lab.pictures.roof import Label, RoofAxes, RoofView, point_words, spread
from app.plots.chart import LegendLabel
from tests.app.fake_lab import roofline


@pytest.fixture
def view(qtbot, theme) -> RoofView:
    made = RoofView(roofline(), theme)
    qtbot.addWidget(made)
    made.resize(900, 420)
    made.show()
    return made


def area(axes: RoofAxes, label: Label) -> QRectF:
    metrics = axes.fontMetrics()
    wide, high = metrics.horizontalAdvance(label.text), metrics.height()
    return QRectF(label.at.x() - wide * label.left, label.at.y() - high / 2, wide, high - 1)


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_every_point_is_named_and_no_two_names_overlap(view, theme, scale):
    axes = view.axes
    usual = axes.fontMetrics().height()
    theme.set_scale(scale)
    assert (axes.fontMetrics().height() > usual) == (scale > 1)
    assert not view.grab().isNull()
    labels = axes.labels_of(axes.room())
    assert sorted(label.text.partition(":")[0] for label in labels) == sorted(p.name for p in roofline().points)
    areas = [area(axes, label) for label in labels]
    for at, one in enumerate(areas):
        assert one.left() >= 0
        assert one.right() <= axes.width()
        assert not any(one.intersects(other) for other in areas[at + 1 :]), labels[at].text


def test_names_stand_above_the_roof_and_those_of_what_was_measured_below(view):
    for label in view.axes.labels_of(view.axes.room()):
        if "of its roof" not in label.text:
            assert label.left
            assert label.at.x() < label.dot.x()


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
        made.grab()


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
