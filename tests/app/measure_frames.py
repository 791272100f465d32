"""How long the window is held up per frame while an answer streams in at 1,000 tokens/s (budget: mean 16 ms, worst 50).

    python -m tests.app.measure_frames [--tint] [--history MESSAGES] [--ask TEXT] [--cache PAGES]

A frame is one turn of the event loop in which the window painted, or that took more than a millisecond; its time
is all that the turn did, received tokens included. Wall time counts the machine's other work too, so the
thread's own CPU time stands beside it.
"""

# ruff: noqa: T201, N802

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEvent, QEventLoop, QObject
from PySide6.QtWidgets import QApplication, QToolButton, QWidget

from app.chat.page import ChatPage
from app.history.records import Chat, StoredMessage
from app.history.store import HistoryStore
from app.link.link import LinkState
from app.program import WindowProgram
from engine import protocol
from tests.kit.engine_thread import PROCESS
from tests.kit.fake_engine import CODE, long_answer


class PaintCounter(QObject):
    painted = False

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.painted |= event.type() == QEvent.Type.UpdateRequest
        return False


def fill(history: HistoryStore, count: int) -> str:
    """A chat of ``count`` messages."""
    history.save_chat(Chat("old", "An old chat", 1.0, 2.0))
    parent = ""
    for index in range(count):
        role, text = ("assistant", CODE if index % 4 == 1 else long_answer(150)) if index % 2 else ("user", "And then?")
        history.save_message(StoredMessage(f"m{index}", "old", parent, role, text, created=1.0 + index))
        parent = f"m{index}"
    history.set_leaf("old", parent)
    history.flush()
    return "old"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tint", action="store_true")
    parser.add_argument("--history", type=int, default=300)
    worst = '"one list", "one formulas", "one paragraph" and "one code" are the worst cases, "maths" has many formulas'
    parser.add_argument("--ask", default="An essay, please", help=worst)
    parser.add_argument("--cache", type=int, default=0, help="with the view of a cache of so many pages open")
    arguments = parser.parse_args()
    app = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KVASIR_HOME"] = folder
        engine = [*PROCESS, "--rate", "1000", "--loaded", "--pages", str(arguments.cache or 4096)]
        program = WindowProgram(app, Path(folder) / "kvasir.log", engine)
        program.window.resize(1440, 900)
        program.window.show()
        program.window.findChild(QToolButton, "top.cache").setChecked(bool(arguments.cache))
        while program.link.card is None or program.link.state is not LinkState.CONNECTED:
            app.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 50)
        chat = fill(program.history, arguments.history)
        began = time.perf_counter()
        program.chat.open_chat(chat)
        app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)
        opened = 1000 * (time.perf_counter() - began)
        views = len(program.chat.transcript.views)
        print(f"{arguments.history} messages opened and painted in {opened:.0f} ms, {views} with widgets")
        if arguments.tint:
            program.link.send(protocol.Set(key="speculation", value="draft"))
            program.chat.set_tint(True)
        report(app, program.chat, arguments.ask)
        program.close()


def frames(app: QApplication, window: QWidget, going: Callable[[], bool]) -> Iterator[tuple[float, float]]:
    """Of each frame while ``going()`` the milliseconds that it took by the clock, and of this thread's CPU time."""
    counter = PaintCounter()
    window.installEventFilter(counter)
    while going():
        counter.painted = False
        wall, cpu = time.perf_counter(), time.thread_time()
        app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)
        if counter.painted or time.perf_counter() - wall > 0.001:
            yield 1000 * (time.perf_counter() - wall), 1000 * (time.thread_time() - cpu)
        time.sleep(0.0005)
    window.removeEventFilter(counter)


def report(app: QApplication, page: ChatPage, ask: str) -> None:
    page.send(ask)
    began = time.perf_counter()
    walls, own = zip(*frames(app, page.window(), lambda: page.streaming), strict=True)
    answer = page.transcript.views[-1].message
    if answer.stats.usage is None:
        sys.exit(f"the answer was interrupted: {page.notice.text}")
    tokens = answer.stats.usage.generated_tokens
    print(f"{tokens} tokens in {time.perf_counter() - began:.2f} s, {len(walls)} frames")
    for name, times in (("wall", walls), ("own CPU", own)):
        high = sorted(times)[int(0.95 * len(times))]
        print(f"  {name}: mean {statistics.mean(times):.1f} ms, 95 % under {high:.1f}, worst {max(times):.1f}")


if __name__ == "__main__":
    main()
