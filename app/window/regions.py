"""F6: the keyboard goes from one region of the window to the next, to where it last was in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget


class Regions:
    """``parts`` gives the regions of the page on show, in the order in which they are gone through."""

    def __init__(self, parts: Callable[[], Sequence[QWidget]]) -> None:
        self._parts = parts
        self._last: dict[QWidget, QWidget] = {}
        """Widget that had the focus when a region was left, by region."""

    def step(self, forward: bool) -> None:
        """Move the focus to the next region that can take it, or to the one before."""
        parts, at = [part for part in self._parts() if part.isVisible()], QApplication.focusWidget()
        here = next((i for i, part in enumerate(parts) if at is part or (at is not None and part.isAncestorOf(at))), -1)
        if here >= 0 and at is not None:
            self._last[parts[here]] = at
        count = len(parts)
        begin = here if forward or here >= 0 else 0
        for distance in range(1, count + 1):
            target = self._stop_of(parts[(begin + (distance if forward else -distance)) % count])
            if target is not None:
                target.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
                return

    def _stop_of(self, part: QWidget) -> QWidget | None:
        last = self._last.get(part)
        stops = [part, *part.findChildren(QWidget)]
        if last in stops and _takes_focus(last):
            return last
        return next((stop for stop in stops if _takes_focus(stop)), None)


def _takes_focus(widget: QWidget) -> bool:
    return bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus) and widget.isVisible() and widget.isEnabled()
