"""Colours, text size and motion: the theme follows the settings, and the text size goes in steps."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.language import tr
from app.settings.store import SettingsStore
from app.theme.theme import Theme

SIZES = range(80, 201, 10)
"""Percentages of the text size that can be chosen."""
USUAL = 100


class Appearance(QObject):
    """Lives as long as the window."""

    def __init__(self, store: SettingsStore, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.store, self._theme = store, theme
        store.changed.connect(self._follow)

    @property
    def size(self) -> int:
        """The text size in percent."""
        return round(100 * self.store.settings.text_scale)

    def set_size(self, percent: int) -> None:
        self.store.update(text_scale=min(SIZES[-1], max(SIZES[0], percent)) / 100)

    def zoom(self, steps: int) -> None:
        """Make the text larger by so many steps, or smaller by a negative number of them."""
        larger = [size for size in SIZES if size > self.size]
        smaller = [size for size in SIZES if size < self.size]
        towards = larger if steps > 0 else smaller[::-1]
        if towards:
            self.set_size(towards[min(abs(steps), len(towards)) - 1])

    def refusal(self, steps: int) -> str:
        """Reason, as a sentence, that the text cannot get larger, or smaller for a negative number; "" if it can."""
        if steps > 0:
            return tr("{percent} % is the largest.", percent=SIZES[-1]) if self.size >= SIZES[-1] else ""
        return tr("{percent} % is the smallest.", percent=SIZES[0]) if self.size <= SIZES[0] else ""

    def _follow(self, names: frozenset[str]) -> None:
        settings = self.store.settings
        if "theme" in names:
            self._theme.set_mode(settings.theme)
        if "text_scale" in names:
            self._theme.set_scale(settings.text_scale)
        if "reduced_motion" in names:
            self._theme.set_reduced_motion(settings.reduced_motion)
