"""The plot strip: rings, words, charts, and when nothing is painted."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtWidgets import QLabel

from app.plots import words
from app.plots.acceptance import AcceptanceChart
from app.plots.chart import MAX_MARKS, nice_ceiling
from app.plots.charts import MemoryChart, QueueChart, RateChart
from app.plots.pages import PagesChart
from app.plots.ring import Ring
from app.plots.strip import COLLAPSED_HEIGHT, HEIGHT, PlotStrip
from engine.protocol import Acceptance, PageCounts, QueueCounts
from tests.app.specs import frame


@pytest.fixture
def strip(qtbot, theme) -> PlotStrip:
    strip = PlotStrip(theme)
    qtbot.addWidget(strip)
    strip.resize(1440, HEIGHT)
    strip.show()
    strip.build()
    return strip


def test_the_ring_keeps_the_newest_in_order():
    ring = Ring(4, 1)
    for i in range(7):
        ring.append(float(i), (i * 10.0,))
        assert len(ring) == min(i + 1, 4)
        assert ring.values[0].tolist() == [j * 10.0 for j in range(max(0, i - 3), i + 1)]
        assert ring.ages.tolist() == [float(j - i) for j in range(max(0, i - 3), i + 1)]
    assert np.shares_memory(ring.values, ring.values)


def test_a_clock_that_runs_backwards_starts_the_ring_anew():
    ring = Ring(4, 1)
    ring.append(100.0, (1.0,))
    ring.append(0.5, (2.0,))
    assert ring.values.tolist() == [[2.0]]


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.7, 1), (1, 1), (1.2, 2), (4.9, 5), (51, 100), (1000, 1000)])
def test_nice_ceiling(value, top):
    assert nice_ceiling(value) == pytest.approx(top)


def test_words_of_a_frame():
    one = frame(0)
    assert words.memory(one.memory) == "9.0 of 24 GB"
    assert words.memory(frame(0, scope="process").memory) == "6.0 of 24 GB"
    assert words.memory_title(frame(0, scope="process").memory) == "Process memory"
    assert words.pages(one.pages) == "459 used, 153 kept"
    assert words.waste(one.pages) == pytest.approx(1 - 9700 / (612 * 16))
    assert words.waste(PageCounts(total=10, used=0, live_tokens=0)) == 0
    assert words.queue(one.queue) == "2 running, 1 waiting"
    assert words.queue(QueueCounts(waiting=0, running=0, prefilling=0)) == "idle"
    assert words.accepted(one.acceptance) == "71 %"
    assert words.accepted([]) == "–"
    assert words.size(812e6) == "812 MB"
    assert [words.size(value) for value in (0, 479_700, 9.96e6)] == ["0 MB", "0.5 MB", "10 MB"]
    assert words.kv_kept(one) == one.memory.kv_used // 4
    assert "pages 459 used, 153 kept of 4,096" in words.one_line(one)
    assert "Bytes read for a token: 4.1 GB" in words.details(frame(0, bytes_per_token=4.1e9))
    assert words.latency(frame(0, ttft_ms=61.0, bandwidth_share=0.71)) == "first 61 ms · 71 % of bandwidth"


def test_charts_show_the_newest_frame(strip):
    for i in range(700):
        strip.add(frame(i / 10, rate=float(i)))
    strip.tick()
    rate, memory, pages, queue, acceptance = strip.charts
    assert isinstance(rate, RateChart)
    assert rate.figure.text() == "699.0"
    assert len(rate._line.xData) == 600
    assert rate._line.yData[-1] == 699
    assert isinstance(memory, MemoryChart)
    assert memory.title.text() == "GPU memory"
    assert memory.figure.text() == "9.0 of 24 GB"
    assert [area.yData[-1] / 1e9 for area in memory._areas] == pytest.approx([3, 7, 7.75, 8, 8.5, 9])
    assert isinstance(pages, PagesChart)
    assert pages.figure.text() == "459 used, 153 kept"
    assert isinstance(queue, QueueChart)
    assert queue.figure.text() == "2 running, 1 waiting"
    assert [area.yData[-1] for area in queue._areas] == [1, 2, 3]
    assert isinstance(acceptance, AcceptanceChart)
    assert acceptance.figure.text() == "2.4 tok/step"
    assert acceptance._bars[0].opts["height"].tolist() == [0.9, 0.7, 0.5]


def test_process_memory_leaves_other_programs_out_of_the_stack(strip):
    strip.add(frame(0, scope="process"))
    strip.tick()
    memory = strip.charts[1]
    assert memory.title.text() == "Process memory"
    assert memory._areas[-1].yData[-1] == pytest.approx(6e9)
    assert "other programs" not in memory._legend.text()


def test_an_auto_off_reason_is_shown(strip):
    off = Acceptance(
        proposer="ngram",
        proposed=10,
        accepted=1,
        by_depth=[],
        draft_length=0,
        off_reason="guesses cost more than they save",
    )
    strip.add(frame(0, acceptance=[off]))
    strip.tick()
    assert strip.charts[4]._caption.text() == "Off: guesses cost more than they save"
    assert "n-gram (off)" in strip.charts[4]._legend.text().replace("\xa0", " ")


def test_marks_move_with_time_and_leave(strip):
    strip.mark("too early")
    strip.add(frame(0))
    strip.mark("draft on")
    strip.add(frame(30))
    strip.tick()
    marks = strip.charts[0]._marks
    assert len(marks) == 1
    assert marks._live[0][1].value() == -30
    strip.add(frame(90))
    strip.tick()
    assert len(marks) == 0
    for i in range(MAX_MARKS + 3):
        strip.mark(f"mark {i}")
    assert len(marks) == MAX_MARKS


def test_nothing_is_painted_while_hidden(strip, monkeypatch):
    strip.hide()
    assert strip.paused
    painted = []
    monkeypatch.setattr(strip.charts[0], "refresh", lambda: painted.append(1))
    strip.add(frame(1))
    strip.tick()
    assert not painted
    strip.show()
    assert not strip.paused
    strip.tick()
    assert painted


def test_no_frame_no_paint(strip, monkeypatch):
    strip.add(frame(1))
    strip.tick()
    painted = []
    monkeypatch.setattr(strip.charts[0], "refresh", lambda: painted.append(1))
    strip.tick()
    assert not painted


def test_collapsed_is_one_line_of_figures(strip):
    strip.add(frame(1, rate=87.4))
    strip.set_collapsed(True)
    assert strip.height() == COLLAPSED_HEIGHT
    line = strip.findChild(QLabel, "plots.line")
    for figure in ("87.4 tok/s", "9.0 of 24 GB", "459 used, 153 kept", "2 running", "71 %", "2.4 tokens a step"):
        assert figure in line.text()


def test_frames_before_the_charts_exist_are_not_lost(qtbot, theme):
    strip = PlotStrip(theme)
    qtbot.addWidget(strip)
    for i in range(5):
        strip.add(frame(i / 10, rate=float(i)))
    strip.show()
    qtbot.waitUntil(lambda: bool(strip.charts))
    strip.tick()
    assert strip.charts[0]._line.yData.tolist() == [0, 1, 2, 3, 4]


def test_a_change_of_theme_recolours_the_lines(strip, theme):
    strip.add(frame(1))
    strip.tick()
    before = strip.charts[0]._line.opts["pen"].color().name()
    theme.set_mode("light")
    assert strip.charts[0]._line.opts["pen"].color().name() == theme.tokens.accent != before
