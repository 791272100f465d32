"""The charts over time: token rate, memory by owner, the GPU."""

from __future__ import annotations

import numpy as np
from PySide6.QtGui import QResizeEvent

from app.charts.axes import Curve
from app.charts.legend import Legend
from app.charts.scale import nice_ceiling
from app.language import tr
from app.plots import words
from app.plots.chart import TimeChart
from app.plots.why import TITLE, WhyButton
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, tip
from app.words import kv_cached, size
from engine.protocol import Telemetry

_WIDEST = "9,999.9"
"""A token rate as wide as they come."""


class RateChart(TimeChart):
    """Generated tokens per second as a line; prompt tokens as a faint area on a scale of its own."""

    def __init__(self, theme: Theme) -> None:
        self._prefill, self._line = Curve(), Curve(area=False)
        super().__init__(tr("Tokens per second"), theme, [self._prefill, self._line])
        self._plot.scale = words.count
        self._captions = [ElidedLabel("", "tiny") for _ in range(2)]
        self.why = WhyButton("plots.why.chart")
        self.title.short = tr("Tokens/s")
        self.head.insertWidget(1, self.why)
        for caption in self._captions:
            self.column.addWidget(caption)
        self.recolour()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._share_head()

    def recolour(self) -> None:
        super().recolour()
        self._share_head()

    def room_for(self, figure: str) -> int:
        return super().room_for(figure) - self.why.sizeHint().width()

    def _share_head(self) -> None:
        """Shorten the question where the title would else be cut, whatever the figure is: no word jumps with it."""
        wide = self.why.fontMetrics().horizontalAdvance
        self.why.shorten(self.room_for(_WIDEST) < wide(TITLE) - wide(self.why.text()))

    def values(self, frame: Telemetry) -> tuple[float, ...]:
        return frame.prefilled_per_second, frame.generated_per_second

    def draw(self, frame: Telemetry) -> None:
        ages, (prefilled, generated) = self._ring.ages, self._ring.values
        top = self._plot.top = nice_ceiling(max(1.0, float(generated.max()) * 1.1))
        self._line.set(ages, generated)
        # Prefill is tens of times faster than decoding: on one scale the line would lie on the floor.
        highest = float(prefilled.max())
        self._prefill.set(ages, prefilled * (0.5 * top / highest if highest else 0.0))
        self.set_figure(words.rate(frame), words.count(round(frame.generated_per_second)))
        for caption, text in zip(self._captions, words.latency(frame), strict=True):
            caption.short = text.removesuffix(words.LIMIT)
            caption.setText(text)
        self.setToolTip(tip(words.details(frame)))

    def colors(self) -> list[str]:
        return [self.theme.shade("violet", 0.35), self.theme.tokens.accent]


class MemoryChart(TimeChart):
    """Memory stacked by owner. Of a process the scale is Kvasir's own share, as other programs would dwarf it."""

    def __init__(self, theme: Theme) -> None:
        # Areas from the floor up to each cumulated sum, the highest first, so that the lower ones cover it.
        super().__init__(tr("Memory"), theme, [Curve() for _ in range(6)])
        self._plot.scale = size
        self._legend = self.small_label()
        self.column.addWidget(self._legend)
        self._scope = ""
        self.title.short = tr("Memory")
        self.recolour()

    def values(self, frame: Telemetry) -> tuple[float, ...]:
        m = frame.memory
        others = m.other_programs if m.scope == "device" else 0
        cached = kv_cached(frame)
        return others, m.weights, m.kv_used - cached, cached, m.kv_reserved, m.other_kvasir

    def draw(self, frame: Telemetry) -> None:
        memory = frame.memory
        ages, sums = self._ring.ages, np.cumsum(self._ring.values, axis=0)
        device = memory.scope == "device"
        self._plot.top = float(memory.total) if device else nice_ceiling(float(sums[-1].max()) * 1.1)
        for curve, heights in zip(self._curves, sums[::-1], strict=True):
            curve.set(ages, heights)
        if memory.scope != self._scope:
            self._scope = memory.scope
            self.title.setText(words.memory_title(memory))
            self.recolour()
        self.set_figure(words.memory(memory), words.memory_used(memory))
        self.setToolTip(tip(self._details(frame)))

    def colors(self) -> list[str]:
        return [color for color, _ in reversed(self._owners())]

    def recolour(self) -> None:
        super().recolour()
        entries = [Legend(color, name) for color, name in self._owners()]
        self._legend.show_entries(entries[1:] + (entries[:1] if self._scope != "process" else []))

    def _owners(self) -> list[tuple[str, str]]:
        """(colour, name) from the bottom of the stack to its top."""
        theme = self.theme
        return [
            (theme.shade("mute", 0.2), tr("other programs")),
            (theme.tokens.accent, tr("weights")),
            (theme.tokens.teal, tr("KV in use")),
            (theme.shade("teal", 0.6), tr("KV cached")),
            (theme.shade("teal", 0.28), tr("KV free (reserved)")),
            (theme.shade("mute", 0.5), tr("program")),
        ]

    def _details(self, frame: Telemetry) -> str:
        m, cached = frame.memory, kv_cached(frame)
        if m.scope == "device":
            title = tr("Memory of the graphics card")
            on_host = tr("Pictures kept for the next messages, in main memory")
            embedder = tr("Embedding model, in main memory")
        else:
            title = tr("Memory of the engine's process and this machine")
            on_host = tr("Pictures kept for the next messages")
            embedder = tr("Embedding model")
        beside = [(name, held) for name, held in ((on_host, m.pictures), (embedder, m.embedder)) if held]
        own = m.pictures + m.embedder if m.scope == "process" else 0
        owners = (
            (tr("Weights"), m.weights),
            (tr("KV in use by answers that are being written"), m.kv_used - cached),
            (tr("KV cached for reuse"), cached),
            (tr("KV free (reserved)"), m.kv_reserved),
            *beside,
            (tr("The program itself"), m.other_kvasir - own),
            (tr("Other programs"), m.other_programs),
        )
        return "\n".join([title, *(f"{name}: {size(value)}" for name, value in owners)])


class GpuChart(TimeChart):
    """Power of the GPU against its limit; temperature of 100 °C and clock, each on a scale of its own, as lines."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(tr("GPU power"), theme, [Curve(), Curve(area=False), Curve(area=False)])
        self._plot.scale = "{:.0f} W".format
        self._legend = self.small_label()
        self.column.addWidget(self._legend)
        self.recolour()

    def values(self, frame: Telemetry) -> tuple[float, ...]:
        """Return power, temperature and core clock; one that the driver does not tell is 0."""
        gpu = frame.gpu
        return (0.0, 0.0, 0.0) if gpu is None else (gpu.watts or 0.0, gpu.celsius or 0.0, gpu.core_mhz or 0.0)

    def draw(self, frame: Telemetry) -> None:
        reading = frame.gpu
        if reading is None:
            return
        ages, (watts, celsius, clock) = self._ring.ages, self._ring.values
        highest = float(watts.max())
        top = self._plot.top = max(reading.limit_watts or nice_ceiling(1.1 * highest), highest, 1.0)
        self._curves[0].set(ages, watts)
        for curve, values, full in zip(self._curves[1:], (celsius, clock), (100.0, 1.1 * clock.max()), strict=True):
            known = values > 0
            curve.set(ages[known], values[known] * (top / full if full else 0.0))
        self.set_figure(words.gpu(frame))
        self._number(frame)
        about = [f"{name}: {value}" for _, value, name in words.gpu_values(reading)]
        if frame.joules_per_token is not None:
            energy = words.energy(frame.joules_per_token)
            about.append(tr("Energy for each token of the last seconds: {energy}", energy=energy))
        self.setToolTip(tip("\n".join(about)))

    def colors(self) -> list[str]:
        return [self.theme.shade("accent", 0.45), self.theme.tokens.warn, self.theme.tokens.violet]

    def recolour(self) -> None:
        super().recolour()
        self._number(self._frame)

    def _number(self, frame: Telemetry | None) -> None:
        """The legend, with the values of now."""
        if frame is None or frame.gpu is None:
            return
        found = {field: value for field, value, _ in words.gpu_values(frame.gpu)}
        fields = zip(self.colors(), ("watts", "celsius", "core_mhz"), strict=True)
        self._legend.show_entries([Legend(color, found[field]) for color, field in fields if field in found])
