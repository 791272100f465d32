"""The charts over time: token rate, memory by owner, queue."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg

from app.plots import words
from app.plots.chart import POINTS, Chart, ElidedLabel, Legend, Marks, Plot, nice_ceiling
from app.plots.ring import Ring
from app.theme.theme import Theme
from engine.protocol import Telemetry


class RateChart(Chart):
    """Generated tokens per second as a line; prompt tokens read as a faint area on a scale of its own."""

    def __init__(self, theme: Theme) -> None:
        super().__init__("Tokens per second", theme)
        self._ring = Ring(POINTS, 2)
        self._frame: Telemetry | None = None
        self._plot = Plot(theme)
        self._marks = Marks(self._plot, theme)
        self._prefill = pg.PlotCurveItem(fillLevel=0)
        self._line = pg.PlotCurveItem()
        self._plot.box.addItem(self._prefill)
        self._plot.box.addItem(self._line)
        self._caption = ElidedLabel("", "tiny")
        self.column.addWidget(self._plot, 1)
        self.column.addWidget(self._caption)
        self.recolour()

    def add(self, frame: Telemetry) -> None:
        self._ring.append(frame.time, (frame.generated_per_second, frame.prefilled_per_second))
        self._frame = frame

    def mark(self, label: str) -> None:
        if len(self._ring):
            self._marks.add(self._ring.last, label)

    def refresh(self) -> None:
        frame = self._frame
        if frame is None:
            return
        ages, (generated, prefilled) = self._ring.ages, self._ring.values
        top = nice_ceiling(max(1.0, float(generated.max()) * 1.15))
        self._plot.set_top(top)
        self._line.setData(ages, generated)
        # Reading a prompt is tens of times faster than writing: on one scale the line would lie on the floor.
        highest = float(prefilled.max())
        self._prefill.setVisible(highest > 0)
        if highest > 0:
            self._prefill.setData(ages, prefilled * (0.5 * top / highest))
        self._marks.place(self._ring.last)
        reading = frame.prefilled_per_second
        self.set_figure(words.rate(frame))
        self._caption.setText(f"reading prompt, {reading:,.0f} tokens/s" if reading else words.latency(frame))
        self.setToolTip(words.details(frame))

    def recolour(self) -> None:
        self._plot.recolour()
        self._marks.recolour()
        self._line.setPen(pg.mkPen(self.theme.tokens.accent, width=2))
        self._prefill.setPen(None)
        self._prefill.setBrush(self.theme.tint("violet", 0.35, "panel"))


class MemoryChart(Chart):
    """Memory stacked by owner. Of a process the scale is Kvasir's own share, as other programs would dwarf it."""

    def __init__(self, theme: Theme) -> None:
        super().__init__("Memory", theme)
        self._ring = Ring(POINTS, 6)
        self._frame: Telemetry | None = None
        self._plot = Plot(theme)
        self._marks = Marks(self._plot, theme)
        # Areas from the floor up to each cumulated sum, the highest first, so that the lower ones cover it.
        self._areas = [pg.PlotCurveItem(fillLevel=0) for _ in range(6)]
        for depth, area in enumerate(self._areas):
            area.setZValue(-depth)
            self._plot.box.addItem(area)
        self._legend = self.small_label()
        self._legend.setWordWrap(True)
        self.column.addWidget(self._plot, 1)
        self.column.addWidget(self._legend)
        self._scope = ""
        self.recolour()

    def add(self, frame: Telemetry) -> None:
        m = frame.memory
        others = m.other_programs if m.scope == "device" else 0
        kept = words.kv_kept(frame)
        self._ring.append(frame.time, (others, m.weights, m.kv_used - kept, kept, m.kv_reserved, m.other_kvasir))
        self._frame = frame

    def mark(self, label: str) -> None:
        if len(self._ring):
            self._marks.add(self._ring.last, label)

    def refresh(self) -> None:
        frame = self._frame
        if frame is None:
            return
        memory = frame.memory
        ages, sums = self._ring.ages, np.cumsum(self._ring.values, axis=0)
        device = memory.scope == "device"
        self._plot.set_top(float(memory.total) if device else nice_ceiling(float(sums[-1].max()) * 1.1))
        for area, heights in zip(self._areas, sums, strict=True):
            area.setData(ages, heights)
        self._marks.place(self._ring.last)
        if memory.scope != self._scope:
            self._scope = memory.scope
            self.title.setText(words.memory_title(memory))
            self.recolour()
        self.set_figure(words.memory(memory))
        self.setToolTip(self._details())

    def recolour(self) -> None:
        self._plot.recolour()
        self._marks.recolour()
        for area, (color, _) in zip(self._areas, self._owners(), strict=True):
            area.setPen(None)
            area.setBrush(color)
        entries = [Legend(color, name) for color, name in self._owners()]
        self._legend.setText(self.legend_text(entries[1:] + (entries[:1] if self._scope != "process" else [])))

    def _owners(self) -> list[tuple[str, str]]:
        """(colour, name) from the bottom of the stack to its top."""
        theme = self.theme
        return [
            (theme.tint("mute", 0.5, "panel"), "other programs"),
            (theme.tokens.accent, "weights"),
            (theme.tokens.teal, "KV in use"),
            (theme.tint("teal", 0.65, "panel"), "KV kept"),
            (theme.tint("teal", 0.35, "panel"), "KV reserved"),
            (theme.tint("violet", 0.75, "panel"), "other Kvasir"),
        ]

    def _details(self) -> str:
        assert self._frame is not None
        m, kept = self._frame.memory, words.kv_kept(self._frame)
        of = "the graphics card" if m.scope == "device" else "the engine's process and this machine"
        owners = (
            ("Weights", m.weights),
            ("KV of answers that are being written", m.kv_used - kept),
            ("KV kept for reuse", kept),
            ("KV reserved", m.kv_reserved),
            ("Other parts of Kvasir", m.other_kvasir),
            ("Other programs", m.other_programs),
        )
        return f"Memory of {of}\n" + "\n".join(f"{name}: {words.size(value)}" for name, value in owners)


class QueueChart(Chart):
    """How many answers were running, reading their prompt, or waiting, over the last minute."""

    def __init__(self, theme: Theme) -> None:
        super().__init__("Queue, last minute", theme)
        self._ring = Ring(POINTS, 3)
        self._frame: Telemetry | None = None
        self._plot = Plot(theme)
        self._areas = [pg.PlotCurveItem(fillLevel=0) for _ in range(3)]
        for depth, area in enumerate(self._areas):
            area.setZValue(-depth)
            self._plot.box.addItem(area)
        self._legend = self.small_label()
        self.column.addWidget(self._plot, 1)
        self.column.addWidget(self._legend)
        self.recolour()

    def add(self, frame: Telemetry) -> None:
        q = frame.queue
        writing = max(0, q.running - q.prefilling)
        self._ring.append(frame.time, (writing, min(q.prefilling, q.running), q.waiting))
        self._frame = frame

    def refresh(self) -> None:
        if self._frame is None:
            return
        ages, sums = self._ring.ages, np.cumsum(self._ring.values, axis=0)
        self._plot.set_top(max(4.0, float(sums[-1].max())))
        for area, heights in zip(self._areas, sums, strict=True):
            area.setData(ages, heights)
        self.set_figure(words.queue(self._frame.queue))

    def recolour(self) -> None:
        self._plot.recolour()
        colors = (self.theme.tokens.accent, self.theme.tokens.violet, self.theme.tint("mute", 0.4, "panel"))
        for area, color in zip(self._areas, colors, strict=True):
            area.setPen(None)
            area.setBrush(color)
        names = ("writing", "reading", "waiting")
        self._legend.setText(self.legend_text([Legend(c, n) for c, n in zip(colors, names, strict=True)]))
