"""The plot strip: rings, words, charts, and when nothing is painted."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, Qt, QTimer
from PySide6.QtGui import QHelpEvent, QHideEvent
from PySide6.QtWidgets import QApplication, QLabel, QToolButton

from app.charts.axes import TimePlot, corners
from app.charts.scale import nice_ceiling
from app.plots import words
from app.plots.acceptance import AcceptanceChart
from app.plots.chart import MAX_MARKS
from app.plots.charts import GpuChart, MemoryChart, RateChart
from app.plots.pages import PagesChart
from app.plots.ring import Ring
from app.plots.strip import COLLAPSED_HEIGHT, HEIGHT, PlotStrip, still
from app.plots.timeline import TimelineChart
from app.theme.widgets import ElidedLabel
from app.words import kv_cached, size, waste
from engine.protocol import Acceptance, GpuReading, Latencies, PageCounts, PhaseChange, QueueCounts, ServiceFigures
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
    assert words.pages(one.pages) == "459 in use · 153 cached"
    assert waste(one.pages) == pytest.approx(1 - 9700 / (612 * 16))
    assert waste(PageCounts(total=10, used=0, live_tokens=0)) == 0
    assert words.queue(one.queue) == "2 running, 1 queued"
    assert words.queue(QueueCounts(waiting=0, running=0, prefilling=0)) == "idle"
    assert words.accepted(one.acceptance) == "71 %"
    assert words.accepted([]) == "–"
    assert size(812e6) == "812 MB"
    assert [size(value) for value in (0, 479_700, 9.96e6)] == ["0 MB", "0.5 MB", "10 MB"]
    assert kv_cached(one) == one.memory.kv_used // 4
    assert "pages 459 in use · 153 cached of 4,096" in words.one_line(one)
    assert "Bytes read for a token: 4.1 GB" in words.details(frame(0, bytes_per_token=4.1e9))
    said = words.latency(frame(0, latency=Latencies(ttft_ms=61.0, itl_p50_ms=9.5), bandwidth_share=0.05))
    assert said == ("TTFT 61 ms · 9.5 ms/token", "5 % of memory bandwidth (the limit for one chat)")
    assert words.latency(frame(0, prefilled_per_second=1234.0)) == ("prefill: 1,234 tokens/s", "")
    assert [words.count(value) for value in (0, 2.5, 1000)] == ["0", "2.5", "1,000"]


def test_charts_show_the_newest_frame(strip):
    for i in range(700):
        strip.add(frame(i / 10, rate=float(i)))
    strip.tick()
    rate, memory, pages, queue, acceptance, _ = strip.charts
    assert isinstance(rate, RateChart)
    assert rate.figure.text() == "699.0"
    assert len(rate._line.x) == 600
    assert rate._line.y[-1] == 699
    assert isinstance(memory, MemoryChart)
    assert memory.title.text() == "GPU memory"
    assert memory.figure.text() == "9.0 of 24 GB"
    memory.resize(150, 200)
    memory.set_figure("9.0 of 24 GB", "9.0 GB")
    assert memory.figure.text() == "9.0 GB", "the title keeps its room"
    assert [area.y[-1] / 1e9 for area in reversed(memory._curves)] == pytest.approx([3, 7, 7.75, 8, 8.5, 9])
    assert isinstance(pages, PagesChart)
    assert pages.figure.text() == "459 in use · 153 cached"
    assert isinstance(queue, TimelineChart)
    assert queue.figure.text() == "2 running, 1 queued"
    assert "1\xa0decoding" in queue._legend.text()
    assert isinstance(acceptance, AcceptanceChart)
    assert acceptance.figure.text() == "71 %"
    assert acceptance._caption.text() == "71 % accepted · 2.4 tokens per step"
    assert acceptance._plot.bars[0].heights == [0.9, 0.7, 0.5]


def test_titles_are_readable_at_every_width_of_a_window(strip):
    strip.add(frame(0, rate=1234.5))
    for width in range(800 // 5 - 1, 300):
        for chart in strip.charts[:5]:
            chart.resize(width, HEIGHT)
            chart.refresh()
            chart.layout().activate()
            assert chart.title.elided in (chart.title.text(), chart.title.short), f"a word is cut at {width}"
            assert chart.figure.elided == chart.figure.text()


def test_the_memory_of_kept_pictures_is_told(strip):
    """In the process of a CPU engine it is a part of the program's; next to a GPU it is elsewhere."""
    for second, (scope, program) in enumerate((("process", "400 MB"), ("device", "500 MB"))):
        given = frame(float(second), scope=scope)
        with_pictures = msgspec.structs.replace(given.memory, pictures=100_000_000, other_kvasir=500_000_000)
        strip.add(msgspec.structs.replace(given, memory=with_pictures))
        strip.tick()
        told = dict(line.split(": ") for line in strip.charts[1].toolTip().split("\n")[1:])
        assert told["The program itself"] == program
        assert "100 MB" in {value for name, value in told.items() if name.startswith("Pictures kept")}


def test_process_memory_leaves_other_programs_out_of_the_stack(strip):
    strip.add(frame(0, scope="process"))
    strip.tick()
    memory = strip.charts[1]
    assert memory.title.text() == "Process memory"
    assert memory._curves[0].y[-1] == pytest.approx(6e9)
    assert "other programs" not in memory._legend.text()


def test_an_auto_off_reason_is_shown(strip):
    off = Acceptance(
        proposer="ngram",
        proposed=10,
        accepted=1,
        by_depth=[],
        draft_length=0,
        off_reason="drafts cost more than they save",
    )
    strip.add(frame(0, acceptance=[off]))
    strip.tick()
    assert strip.charts[4]._caption.text() == "Off: drafts cost more than they save"
    assert "n-gram (off)" in strip.charts[4]._legend.text().replace("\xa0", " ")


def test_marks_move_with_time_and_leave(strip):
    strip.mark("too early")
    strip.add(frame(0))
    strip.mark("draft on")
    strip.add(frame(30))
    strip.tick()
    marks = strip.charts[0]._marks
    assert len(marks) == 1
    assert strip.charts[0]._plot.marks == [(-30, "draft on")]
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


def frames_a_minute(strip: PlotStrip, begin: int, **changes: object) -> tuple[int, int]:
    """(how many frames of a minute at rest had something painted, timers that run after the last one)."""
    painted = 0
    for second in range(begin, begin + 60):
        memory = frame(0, scope="process").memory
        wobble = msgspec.structs.replace(
            memory, other_kvasir=memory.other_kvasir + second * 4096, other_programs=second
        )
        strip.add(frame(second, rate=0.0, scope="process", **{"memory": wobble, **changes}))
        painted += strip._dirty
        strip.tick()
        strip._soon.stop()
    return painted, sum(timer.isActive() for timer in strip.findChildren(QTimer))


def test_charts_scroll_while_something_leaves_them_and_rest_when_all_is_flat(strip):
    strip.add(frame(0, rate=30.0))
    strip.tick()
    assert frames_a_minute(strip, 1)[0] == 60
    assert frames_a_minute(strip, 61)[0] == 2
    assert frames_a_minute(strip, 121) == (0, 0)
    strip.mark("draft on")
    assert strip._dirty
    strip.tick()
    assert frames_a_minute(strip, 181)[0] == 60
    assert frames_a_minute(strip, 241)[0] == 1
    assert frames_a_minute(strip, 301) == (0, 0)
    strip.add(frame(361, rate=12.0))
    assert strip._dirty
    strip.tick()
    assert strip.charts[0].figure.text() == "12.0"


def test_no_timer_runs_between_frames_or_where_nobody_looks(strip, qtbot):
    strip.add(frame(0))
    qtbot.waitUntil(lambda: not strip._dirty)
    assert not any(timer.isActive() for timer in strip.findChildren(QTimer))
    strip.window().hide()
    strip.add(frame(1))
    assert not any(timer.isActive() for timer in strip.findChildren(QTimer))
    strip.window().show()
    strip.tick()
    QApplication.sendEvent(strip, QHideEvent())  # as when the window is minimised, which stays "visible"
    assert strip.isVisible()
    strip.add(frame(2))
    assert not any(timer.isActive() for timer in strip.findChildren(QTimer))


def test_an_engine_that_is_gone_runs_nothing_and_holds_nothing(strip):
    strip.end()  # before anything was known of one
    strip.add(frame(0, queue=QueueCounts(waiting=2, running=1, prefilling=0)))
    strip.tick()
    strip.end()
    strip.tick()
    rate, memory, pages, queue, *_ = (chart.figure.text() for chart in strip.charts)
    assert (rate, queue) == ("0.0", "idle")
    assert pages == "0 in use · 0 cached"
    assert memory == "3.0 of 24 GB", "what other programs have of the device"
    strip.set_collapsed(True)
    strip.tick()
    assert "0.0 tok/s" in strip.findChild(QLabel, "plots.line").text()


def test_ticks_leave_out_what_would_lie_on_another(qtbot, theme):
    plot = TimePlot(theme, [])
    qtbot.addWidget(plot)
    for scale in (1.0, 1.5):
        theme.set_scale(scale)
        plot.recolour()
        for width in range(40, 300, 13):
            plot.resize(width, 100)
            places, metrics = plot.tick_places(plot.room()), plot.fontMetrics()
            ends = [start + metrics.horizontalAdvance(text) for start, text in places]
            assert all(end < start for end, (start, _) in zip(ends, places[1:], strict=False)), width
    assert [text for _, text in places] == ["-60 s", "-30 s", "now"]


def test_the_line_of_figures_opens_plots_and_panel(strip, qtbot):
    strip.set_collapsed(True)
    with qtbot.waitSignal(strip.plots_requested):
        qtbot.mouseClick(strip.findChild(QLabel, "plots.line"), Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(strip.plots_requested):
        strip.findChild(QToolButton, "plots.open.plots").click()
    with qtbot.waitSignal(strip.panel_requested):
        strip.findChild(QToolButton, "plots.open.optimisations").click()


def test_axes_have_a_scale_and_labels_of_marks_stand_above_the_data(strip):
    strip.add(frame(0, rate=87.0, scope="process"))
    strip.tick()
    rate, memory, _, queue, *_ = strip.charts
    assert rate._plot.labels == ["0", "50", "100"]
    assert memory._plot.labels == ["0 MB", "5.0 GB", "10.0 GB"]
    assert queue.plot.ticks[-1] == (0.0, "now")
    assert [text for _, text in rate._plot.ticks] == ["-60 s", "-30 s", "now"]
    room = rate._plot.room()
    assert room.top() >= rate._plot.fontMetrics().height()
    assert room.bottom() <= rate._plot.height() - rate._plot.fontMetrics().height() + 1
    assert "2 decoding" not in queue._legend.text()
    assert "1\xa0decoding" in queue._legend.text()
    assert "KV\xa0free\xa0(reserved)" in memory._legend.text()


def test_a_caption_without_room_is_shortened_and_told_under_the_mouse(qtbot, monkeypatch):
    told = []
    monkeypatch.setattr("app.theme.widgets.QToolTip.showText", lambda at, text, widget: told.append(text))
    label = ElidedLabel("5 % of memory bandwidth (the limit for one chat)", "tiny")
    qtbot.addWidget(label)
    label.short = "5 %"
    label.resize(1000, 20)
    assert label.elided == label.text()
    label.resize(60, 20)
    assert label.elided == "5 %"
    label.short = ""
    assert label.elided.endswith("…")
    label.show()
    QApplication.sendEvent(label, QHelpEvent(QEvent.Type.ToolTip, QPoint(1, 1), label.mapToGlobal(QPoint(1, 1))))
    assert told == [label.text()]


def test_a_curve_is_drawn_by_its_corners():
    x, y = corners(np.arange(7.0), np.array([0.0, 0, 0, 5, 5, 5, 0]))
    assert (x.tolist(), y.tolist()) == ([0, 2, 3, 5, 6], [0, 0, 5, 5, 0])


def test_collapsed_is_one_line_of_figures(strip):
    strip.add(frame(1, rate=87.4))
    strip.set_collapsed(True)
    assert strip.height() == COLLAPSED_HEIGHT
    line = strip.findChild(QLabel, "plots.line")
    for figure in ("87.4 tok/s", "9.0 of 24 GB", "459 in use · 153 cached", "2 running", "71 %", "2.4 tokens per step"):
        assert figure in line.text()


def test_each_figure_of_the_collapsed_strip_is_whole_or_away(strip):
    strip.add(frame(1, rate=87.4))
    strip.set_collapsed(True)
    line, seen = strip.findChild(QLabel, "plots.line"), set()
    every = line.text().split(words.BETWEEN)
    needed = line.fontMetrics().horizontalAdvance
    for width in range(needed(every[0]) + 1, needed(line.text()) + 9, 7):
        line.resize(width, line.height())
        shown = line.elided.split(words.BETWEEN)
        assert shown == [each for each in every if each in shown], f"a figure is cut at {width}"
        seen.add(len(shown))
    assert {1, len(every)} <= seen


def test_frames_before_the_charts_exist_are_not_lost(qtbot, theme):
    strip = PlotStrip(theme)
    qtbot.addWidget(strip)
    for i in range(5):
        strip.add(frame(i / 10, rate=float(i)))
    strip.show()
    qtbot.waitUntil(lambda: bool(strip.charts))
    strip.tick()
    assert strip.charts[0]._line.y.tolist() == [0, 1, 2, 3, 4]


def test_a_change_of_theme_recolours_the_lines(strip, theme):
    strip.add(frame(1))
    strip.tick()
    before = strip.charts[0]._line.color
    theme.set_mode("light")
    assert strip.charts[0]._line.color == theme.tokens.accent != before


READING = GpuReading(watts=312.4, limit_watts=450.0, celsius=61.0, core_mhz=2520.0, memory_mhz=10501.0, joules=900.0)


def test_the_gpu_has_a_chart_only_where_its_driver_says_something(strip):
    chart = next(each for each in strip.charts if isinstance(each, GpuChart))
    strip.add(frame(0.0))
    assert not chart.isVisible()
    assert sum(each.isVisible() for each in strip.charts) == 5
    strip.add(frame(0.2, gpu=READING, joules_per_token=2.44))
    assert chart.isVisible()
    chart.refresh()
    assert chart.figure.text() == "2.4 J/token"
    legend = chart._legend.text()
    assert all(text in legend for text in ("312\xa0W", "61\xa0°C", "2,520\xa0MHz"))
    assert chart._plot.labels == ["0 W", "225 W", "450 W"]
    assert "Power of 450 W: 312 W" in chart.toolTip()
    assert "Clock of the memory: 10,501 MHz" in chart.toolTip()
    strip.add(frame(0.4))
    assert not chart.isVisible(), "the model computes on the processor now"


def test_a_gpu_that_says_little_has_no_made_up_figures(strip):
    chart = next(each for each in strip.charts if isinstance(each, GpuChart))
    strip.add(frame(0.0, gpu=GpuReading(celsius=40.0)))
    chart.refresh()
    assert chart.figure.text() == "–"
    assert "W" not in chart._legend.text()
    assert chart.toolTip() == "Temperature: 40 °C"
    strip.add(frame(0.2, gpu=GpuReading(watts=80.0)))
    chart.refresh()
    assert chart.figure.text() == "80 W", "nothing is written, so a token has no cost"
    assert words.energy(0.0421) == "42 mJ/token"
    assert words.energy(212.3) == "212 J/token"
    assert "80 W" in words.one_line(frame(0, gpu=GpuReading(watts=80.0)))


def test_a_resting_gpu_does_not_wake_the_strip():
    before = frame(0.0, gpu=READING)
    assert still(frame(1.0, gpu=msgspec.structs.replace(READING, watts=316.0, celsius=62.0, joules=999.0)), before)
    for change in ({"watts": 330.0}, {"celsius": 70.0}, {"core_mhz": 300.0}, {"watts": None}):
        assert not still(frame(1.0, gpu=msgspec.structs.replace(READING, **change)), before)
    assert not still(frame(1.0), before)


def changes(*told: tuple[float, str, str]) -> list[PhaseChange]:
    return [PhaseChange(id=id, answer=0, phase=phase, at=at, chat=f"chat {id}") for at, id, phase in told]


def test_the_timeline_has_a_bar_for_each_answer_with_its_phases(strip, qtbot):
    told = changes((1, "a", "waiting"), (2, "a", "prefill"), (3, "a", "decode"), (3, "b", "waiting"), (6, "a", "ended"))
    strip.add(msgspec.structs.replace(frame(10.0), phases=told))
    strip.add(msgspec.structs.replace(frame(11.0), phases=changes((10.5, "c", "paused"), (10.8, "b", "swapped"))))
    timeline = strip.charts[3]
    bars = {key[0]: bar for key, bar in timeline.answers.bars.items()}
    assert bars["a"].seconds(11.0) == {"waiting": 1, "prefill": 1, "decode": 3}
    assert bars["b"].seconds(11.0) == pytest.approx({"waiting": 7.8, "swapped": 0.2})
    assert [bars[name].row for name in "abc"] == [0, 1, 0], "a has ended before c comes"
    strip.tick()
    assert all(word in timeline._legend.text() for word in ("paused", "swapped"))
    timeline.plot.resize(300, 120)
    timeline.plot.grab()
    area, bar = next((area, bar) for area, bar in timeline.plot.areas if bar is bars["b"])
    with qtbot.waitSignal(strip.chat_requested) as asked:
        qtbot.mouseClick(timeline.plot, Qt.MouseButton.LeftButton, pos=area.center().toPoint())
    assert asked.args == ["chat b"]
    assert "waited 7.80 s" in words.answer(bar.newest, bar.seconds(11.0))
    idle = QueueCounts(waiting=0, running=0, prefilling=0)
    strip.add(msgspec.structs.replace(frame(12.0), queue=idle))
    assert all(bar.ended for bar in bars.values()), "whatever was not told"
    strip.add(msgspec.structs.replace(frame(80.0), queue=idle))
    assert not timeline.answers.bars, "older than the axis"
    strip.add(msgspec.structs.replace(frame(1.0), phases=changes((0.5, "d", "decode"))))
    assert [key[0] for key in timeline.answers.bars] == ["d"], "of an engine with another clock"


def test_answers_in_time_are_told_with_their_targets(strip):
    late = ServiceFigures(service="interactive", first_token=1, between_tokens=0.05, most=5, ended=4, in_time=3)
    batch = ServiceFigures(service="batch", first_token=60, between_tokens=5, ended=2, in_time=2)
    strip.add(msgspec.structs.replace(frame(10.0), services=[late, batch]))
    strip.tick()
    figure = strip.charts[3].figure
    assert figure.text() == "5 of 6 in time"
    assert "up to 5 at once" in figure.toolTip()
    assert "50 ms between tokens" in figure.toolTip()
