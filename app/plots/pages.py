"""The chart of the page pool: the page map in small."""

from __future__ import annotations

from app.cache.page_map import SmallMap
from app.charts.hues import ChatHues
from app.charts.page_states import PageStates, from_counts
from app.language import tr
from app.plots import words
from app.plots.chart import Chart
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, fill, tip
from app.words import PAGE_TOKENS, waste
from engine.protocol import Telemetry


class PagesChart(Chart):
    """Until the engine sends a map, the squares show only how many pages are in use."""

    def __init__(self, theme: Theme, hues: ChatHues) -> None:
        super().__init__(tr("Pages"), theme)
        self._frame: Telemetry | None = None
        self._pages: PageStates | None = None
        self._mapped = False
        self._new = False
        self.map = SmallMap(theme, hues)
        self._caption = ElidedLabel("", "tiny")
        fill(self.column, (self.map, 1), self._caption)

    def add(self, frame: Telemetry) -> None:
        if not self._mapped and (self._frame is None or frame.pages != self._frame.pages):
            self._pages, self._new = from_counts(frame.pages), True
        self._frame = frame

    def show_map(self, pages: PageStates) -> None:
        """Take in a map. Cheap: it is painted with the next refresh."""
        self._pages, self._new, self._mapped = pages, True, True

    def forget_map(self) -> None:
        """The engine or its model is another one: its pages are not those of the last map."""
        self._mapped, self._frame = False, None

    def refresh(self) -> None:
        if self._new and self._pages is not None:
            self.map.show_pages(self._pages)
            self._new = False
        if self._frame is None:
            return
        pages = self._frame.pages
        used, free = pages.used - pages.cached, pages.total - pages.used
        self.set_figure(words.pages(pages), tr("{used:,} in use", used=used))
        empty = pages.used * PAGE_TOKENS - pages.live_tokens
        of = tr("of {n:,} pages", n=pages.total)
        unused = self._caption.short = tr("{percent:.1f} % unused slots", percent=100 * waste(pages))
        self._caption.setText(f"{of} · {unused}")
        together = self.map.together
        if together == 1:
            each = tr("Each square is a page of 16 tokens.")
        else:
            each = tr("Each square is {n} pages.", n=together)
        meaning = tr(
            "{used:,} are in use by answers that are being written. {cached:,} are cached for prompts that begin "
            "alike, and evicted when room is needed. {free:,} are free. Of the slots of both, {live:,} hold a token "
            "and {empty:,} hold none.",
            used=used,
            cached=pages.cached,
            free=free,
            live=pages.live_tokens,
            empty=empty,
        )
        self.setToolTip(tip(f"{each} {meaning}"))

    def recolour(self) -> None:
        self.map.recolour()
