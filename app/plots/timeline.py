"""The chart of requests: a bar for each answer of the last minute, with what it did when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter

from app.charts.axes import SPAN, TimePlot
from app.charts.legend import Legend
from app.language import tr
from app.plots import words
from app.plots.chart import Chart, Marks
from app.theme.theme import Theme
from app.theme.widgets import tip
from engine.protocol import Phase, PhaseChange, Telemetry

ROW_PX = 10
LEAST_ROW_PX = 3
_GONE = SPAN + 1.0


@dataclass
class Bar:
    """An answer: where it is drawn, the phases that it entered and when, and what the newest change told of it."""

    row: int
    newest: PhaseChange
    entered: list[tuple[float, Phase]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.entered[-1][1] == "ended"

    def spans(self, now: float) -> Iterator[tuple[float, float, Phase]]:
        """Begin and end of each phase, in order; the last one goes on until ``now``."""
        ends = [at for at, _ in self.entered[1:]] + [now]
        for (start, phase), end in zip(self.entered, ends, strict=True):
            if phase != "ended":
                yield start, end, phase

    def seconds(self, now: float) -> dict[Phase, float]:
        """How long it was in each phase so far."""
        found: dict[Phase, float] = {}
        for start, end, phase in self.spans(now):
            found[phase] = found.get(phase, 0.0) + end - start
        return found


class Answers:
    """The answers of the last minute, each in a row that was free when it came."""

    def __init__(self) -> None:
        self.bars: dict[tuple[str, int], Bar] = {}
        self.now = 0.0

    @property
    def rows(self) -> int:
        return max((bar.row for bar in self.bars.values()), default=-1) + 1

    def add(self, frame: Telemetry) -> None:
        if frame.time < self.now:
            self.bars.clear()  # another engine, with another clock
        self.now = frame.time
        for change in frame.phases:
            self._change(change)
        if not (frame.queue.running or frame.queue.waiting):
            self.end()
        old = [key for key, bar in self.bars.items() if bar.ended and bar.entered[-1][0] < self.now - _GONE]
        for key in old:
            del self.bars[key]

    def end(self) -> None:
        """Nothing runs any more, whatever was not told."""
        for bar in self.bars.values():
            if not bar.ended:
                bar.entered.append((self.now, "ended"))

    def _change(self, change: PhaseChange) -> None:
        bar = self.bars.get((change.id, change.answer))
        if bar is None:
            if change.phase == "ended":
                return
            taken = {each.row for each in self.bars.values() if not each.ended or each.entered[-1][0] > change.at - 1}
            row = next(row for row in range(len(taken) + 1) if row not in taken)
            bar = self.bars[change.id, change.answer] = Bar(row, change)
        bar.newest = change
        bar.entered.append((change.at, change.phase))


class TimelinePlot(TimePlot):
    """Bars over the last minute. A click on one asks for its chat."""

    chat_requested = Signal(str)

    def __init__(self, theme: Theme, answers: Answers) -> None:
        super().__init__(theme, [])
        self.answers = answers
        self.areas: list[tuple[QRectF, Bar]] = []
        self.hidden_rows = 0
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents, False)
        self.setMouseTracking(True)

    @property
    def rules(self) -> list[float]:
        return []

    def room(self) -> QRectF:
        high = self.fontMetrics().height()
        return QRectF(0, high + 2, max(1, self.width() - 1), max(1, self.height() - 2 * high - 2))

    def draw(self, painter: QPainter, room: QRectF) -> None:
        rows, now = self.answers.rows, self.answers.now
        high = min(float(self.theme.px(ROW_PX)), max(float(LEAST_ROW_PX), room.height() / max(1, rows)))
        shown = int(room.height() / high)
        self.hidden_rows = max(0, rows - shown)
        self.areas = []
        painter.setPen(Qt.PenStyle.NoPen)
        for bar in self.answers.bars.values():
            if bar.row >= shown:
                continue
            whole = QRectF()
            for start, end, phase in bar.spans(now):
                left = self.place_x(room, max(-SPAN, start - now))
                right = self.place_x(room, max(-SPAN, end - now))
                area = QRectF(left, room.top() + bar.row * high, max(1.0, right - left), high - min(2.0, high / 3))
                if end > now - SPAN:
                    painter.setBrush(QColor(color_of(self.theme, phase)))
                    painter.drawRect(area)
                    whole = whole.united(area)
            if not whole.isEmpty():
                self.areas.append((whole, bar))
        self._draw_marks(painter, room)

    def bar_at(self, point: QPointF) -> Bar | None:
        return next((bar for area, bar in reversed(self.areas) if area.contains(point)), None)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        bar = self.bar_at(event.position())
        self.setToolTip(tip(words.answer(bar.newest, bar.seconds(self.answers.now))) if bar is not None else "")
        chat = bar is not None and bar.newest.chat
        self.setCursor(Qt.CursorShape.PointingHandCursor if chat else Qt.CursorShape.ArrowCursor)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        bar = self.bar_at(event.position())
        if bar is not None and bar.newest.chat:
            self.chat_requested.emit(bar.newest.chat)


def color_of(theme: Theme, phase: Phase) -> str:
    tokens = theme.tokens
    return {
        "waiting": theme.shade("mute", 0.4),
        "prefill": tokens.violet,
        "decode": tokens.accent,
        "paused": theme.shade("accent", 0.35),
        "preempted": tokens.warn,
        "swapped": theme.shade("warn", 0.5),
    }.get(phase, tokens.mute)


class TimelineChart(Chart):
    """The answers of the last minute, and how many wait, are read and are written now."""

    RARE: dict[Phase, str] = {"paused": tr("paused"), "preempted": tr("preempted"), "swapped": tr("swapped")}
    """Titles of phases that are named only while there are such answers."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(tr("Requests"), theme)
        self.answers = Answers()
        self.plot = TimelinePlot(theme, self.answers)
        self.chat_requested = self.plot.chat_requested
        self._marks = Marks()
        self._frame: Telemetry | None = None
        self._legend = self.small_label()
        self.column.addWidget(self.plot, 1)
        self.column.addWidget(self._legend)
        self.recolour()

    def add(self, frame: Telemetry) -> None:
        self.answers.add(frame)
        self._frame = frame

    def mark(self, label: str) -> None:
        if self._frame is not None:
            self._marks.add(self._frame.time, label)

    def refresh(self) -> None:
        if self._frame is None:
            return
        queue = self._frame.queue
        short = tr("{n} running", n=queue.running) if queue.running else ""
        self.set_figure(words.in_time(self._frame.services) or words.queue(queue), short)
        self.figure.setToolTip(tip(words.targets(self._frame.services)))
        self._number()
        self.plot.marks = self._marks.ages(self._frame.time)
        self.plot.update()

    def recolour(self) -> None:
        self.plot.recolour()
        self._number()

    def _number(self) -> None:
        """The legend, with how many there are now."""
        counts = words.requests(self._frame.queue) if self._frame is not None else (0, 0, 0)
        decoding, prefilling, queued = counts
        now: dict[Phase, str] = {
            "decode": tr("{n} decoding", n=decoding),
            "prefill": tr("{n} prefilling", n=prefilling),
            "waiting": tr("{n} queued", n=queued),
        }
        entries = [Legend(color_of(self.theme, phase), text) for phase, text in now.items()]
        there = {phase for bar in self.answers.bars.values() for _, phase in bar.entered}
        entries += [Legend(color_of(self.theme, phase), text) for phase, text in self.RARE.items() if phase in there]
        if self.plot.hidden_rows:
            entries.append(Legend("mute", tr("{n} more rows", n=self.plot.hidden_rows), "+"))
        self._legend.show_entries(entries)
