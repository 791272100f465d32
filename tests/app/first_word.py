"""One start of the program, asked as soon as its window is there: python -m tests.app.first_word BEGAN

Prints a line of JSON: seconds since BEGAN (time.time()) until the window and until the answer's first word. Imports
nothing of the window before the program does, since that is measured, too.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from PySide6.QtCore import QTimer

from app import start
from app.opening import Application

QUESTION = "What is a KV cache?"
LOOK_MS = 5


class Asking(Application):
    """Looks for the window, asks in it, and leaves at the first word."""

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__(list(arguments))
        self._began, self._seen = float(sys.argv[1]), dict[str, float]()
        self._timer = QTimer(self, interval=LOOK_MS)
        self._timer.timeout.connect(self._look)
        self._timer.start()

    def _look(self) -> None:
        window = next((each for each in self.topLevelWidgets() if hasattr(each, "painted")), None)
        if window is None or not window.isVisible():
            return
        if not self._seen:
            self._mark("window")
            window.chat.send(QUESTION)
        views = window.chat.transcript.views
        if views and views[-1].message.role == "assistant" and views[-1].message.content:
            self._mark("first word")
            self._timer.stop()
            print(json.dumps(self._seen), flush=True)
            self.quit()

    def _mark(self, what: str) -> None:
        self._seen[what] = time.time() - self._began


def main() -> int:
    start.Application = Asking  # type: ignore[misc]
    return start.run(["kvasir"], time.perf_counter())


if __name__ == "__main__":
    sys.exit(main())
