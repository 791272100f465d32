"""What the real window may take, and what it takes: python -m tests.app.bounds [NAME...]

Drives the program as a person would and prints each figure beside its bound: by the clock, and of processor time, which
leaves the machine's other work out and is what is held against the bound. Names: stream, long, history, text, pages,
memory, idle, start, word; all, if none is given. Each runs in a process of its own with an empty home. The first three
talk to the fake engine, which writes as fast as is asked; the others start the real one with the bundled model. Linux
only (/proc).
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from app.link.link import LinkState
from app.program import WindowProgram
from app.window.window import MainWindow
from tests.app.measure_frames import fill, frames
from tests.app.measure_idle import QUESTION, SETTLE_S, Meter, fold, pause, until
from tests.kit.engine_thread import PROCESS

SIZE = (1440, 900)
FRAME_MS, WORST_MS = 16.0, 50.0
RATE = 1000
SCROLL_MS = 1000 / 60
PAGES = {
    "Models": MainWindow.MODELS,
    "Lab": MainWindow.LAB,
    "Server": MainWindow.SERVER,
    "Help": MainWindow.HELP,
    "Settings": MainWindow.SETTINGS,
}
SIZES = (1.25, 1.5, 1.0)
STARTS = 5
REST_S = 4.0
"""Seconds in which a page that was shown gets all that it asks the engine for."""
SEEN = "window visible after "


class Figure(NamedTuple):
    """``clock`` and ``own`` (processor time) are in ``unit``; None where there is no such figure."""

    what: str
    clock: float | None
    own: float | None
    bound: float
    unit: str = "ms"

    def __str__(self) -> str:
        least = self.own if self.own is not None else self.clock
        assert least is not None
        clock, own = ("-" if figure is None else f"{figure:.1f}" for figure in (self.clock, self.own))
        state = "ok" if least <= self.bound else "OVER"
        return f"{self.what:<58} {clock:>9} {own:>9} {self.bound:>8g} {self.unit:<4} {state}"


class Spent:
    """Milliseconds of a block, by the clock and of this thread's processor time."""

    def __enter__(self) -> Spent:
        self._clock, self._own = time.perf_counter(), time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.clock, self.own = 1000 * (time.perf_counter() - self._clock), 1000 * (time.thread_time() - self._own)

    def figure(self, what: str, bound: float) -> Figure:
        return Figure(what, self.clock, self.own, bound)


def shown(app: QApplication, fake: bool) -> WindowProgram:
    """The program with its window on the screen and a model loaded."""
    engine = [*PROCESS, "--rate", str(RATE), "--loaded"] if fake else None
    program = WindowProgram(app, Path(os.environ["KVASIR_HOME"]) / "kvasir.log", engine)
    program.window.resize(*SIZE)
    program.window.show()
    ready = lambda: program.link.card is not None and program.link.state is LinkState.CONNECTED  # noqa: E731
    until(ready, "loading the model")
    pause(REST_S)
    return program


def answer(app: QApplication, tokens: int) -> Iterable[Figure]:
    """Frames while an answer of so many tokens comes in at ``RATE`` a second, below ten messages of a chat."""
    program = shown(app, fake=True)
    program.chat.open_chat(fill(program.history, 10))
    pause(0.5)
    program.chat.send(f"{tokens} tokens, please")
    clock, own = zip(*frames(app, program.window, lambda: program.chat.streaming), strict=True)
    usage = program.chat.transcript.views[-1].message.stats.usage
    if usage is None:
        sys.exit(f"the answer was interrupted: {program.chat.notice.text}")
    name = f"frame while {usage.generated_tokens:,} tokens come"
    yield Figure(f"{name}: mean of {len(clock)}", statistics.mean(clock), statistics.mean(own), FRAME_MS)
    yield Figure(f"{name}: worst", max(clock), max(own), WORST_MS)
    program.close()


def stream(app: QApplication) -> Iterable[Figure]:
    return answer(app, 60 * RATE)


def long(app: QApplication) -> Iterable[Figure]:
    return answer(app, 20_000)


def history(app: QApplication) -> Iterable[Figure]:
    """A chat of 2,000 messages, opened and scrolled from its end to its beginning, half a page a step."""
    program = shown(app, fake=True)
    chat = fill(program.history, 2000)
    with Spent() as opened:
        program.chat.open_chat(chat)
        settle(app)
    yield opened.figure("a chat of 2,000 messages opens", 300)
    bar, left = program.chat.transcript.verticalScrollBar(), [400]

    def scroll() -> None:
        bar.setValue(bar.value() - bar.pageStep() // 2)
        left[0] -= 1

    steps = QTimer(program.window, interval=16)
    steps.timeout.connect(scroll)
    steps.start()
    clock, own = zip(*frames(app, program.window, lambda: left[0] > 0), strict=True)
    steps.stop()
    name = "a frame while it is scrolled"
    yield Figure(f"{name}: mean of {len(clock)}", statistics.mean(clock), statistics.mean(own), SCROLL_MS)
    yield Figure(f"{name}: 95 % under", percentile(clock), percentile(own), SCROLL_MS)
    yield Figure(f"{name}: worst", max(clock), max(own), WORST_MS)
    program.close()


def text(app: QApplication) -> Iterable[Figure]:
    """Another text size, with all switches in sight."""
    program = shown(app, fake=False)
    fold(program, "panel", False)
    pause(0.5)
    for scale in SIZES:
        with Spent() as changed:
            program.store.update(text_scale=scale)
            settle(app)
        yield changed.figure(f"text of {scale:.0%}", 300)
    program.close()


def pages(app: QApplication) -> Iterable[Figure]:
    """Each page, shown for the first time with the real engine, until it is painted; and what all processes together
    take of the cores until nothing more comes."""
    program = shown(app, fake=False)
    meter = Meter(program)
    for again in ("", ", again"):
        for name, page in PAGES.items():
            before = sum(meter.spent())
            with Spent() as spent:
                program.window.show_page(page)
                settle(app)
            yield spent.figure(f"page {name} shows{again}", 200)
            pause(REST_S)
            yield Figure(
                f"page {name} is complete{again}, window and engine", None, 1000 * (sum(meter.spent()) - before), 200
            )
    program.close()


def memory(app: QApplication) -> Iterable[Figure]:
    """The window's process after ten chats were opened, all pages seen."""
    program = shown(app, fake=False)
    for _ in range(10):
        program.chat.new_chat()
        program.chat.send(QUESTION)
        until(lambda: not program.chat.streaming, "the answer")
    for page in (*PAGES.values(), MainWindow.CHAT):
        program.window.show_page(page)
        pause(1.0)
    yield Figure("the window's process with ten chats", None, psutil.Process().memory_info().rss / 1e6, 250, "MB")
    program.close()


def idle(app: QApplication) -> Iterable[Figure]:
    program = shown(app, fake=False)
    program.chat.send(QUESTION)
    until(lambda: not program.chat.streaming, "the answer")
    pause(SETTLE_S)
    for who, share in zip(("window", "engine"), Meter(program).over(40.0), strict=True):
        yield Figure(f"the {who} at rest, of a core", None, share, 1.0, "%")
    program.close()


def start(_: QApplication) -> Iterable[Figure]:
    """Start to typing: the window has been painted, and its box has the focus. Files are in the page cache."""
    seconds, own = [], []
    for each in range(STARTS):
        home = Path(os.environ["KVASIR_HOME"]) / str(each)
        began = time.perf_counter()
        program = psutil.Popen([sys.executable, "-m", "app"], env={**os.environ, "KVASIR_HOME": str(home)})
        lines = home / "log" / "kvasir.log"
        while not (lines.exists() and SEEN in lines.read_text()):
            time.sleep(0.005)
        seconds.append(1000 * (time.perf_counter() - began))
        own.append(1000 * sum(program.cpu_times()[:2]))
        program.terminate()
        program.wait()
    yield Figure(f"start to typing, median of {STARTS}", statistics.median(seconds), statistics.median(own), 1000)


def word(_: QApplication) -> Iterable[Figure]:
    """Start to the first word of an answer, its question asked at once. Files are in the page cache."""
    seconds = []
    for each in range(STARTS):
        home = Path(os.environ["KVASIR_HOME"]) / str(each)
        command = [sys.executable, "-m", "tests.app.first_word", str(time.time())]
        done = subprocess.run(
            command, env={**os.environ, "KVASIR_HOME": str(home)}, check=True, capture_output=True, text=True
        )
        seconds.append(1000 * json.loads(done.stdout)["first word"])
    yield Figure(f"start to the first word, median of {STARTS}", statistics.median(seconds), None, 3000)


def percentile(times: Sequence[float]) -> float:
    return sorted(times)[int(0.95 * len(times))]


def settle(app: QApplication) -> None:
    """Everything that was asked for is laid out and painted."""
    for _ in range(3):
        app.sendPostedEvents()
        app.processEvents()


PARTS: dict[str, Callable[[QApplication], Iterable[Figure]]] = {
    part.__name__: part for part in (stream, long, history, text, pages, memory, idle, start, word)
}


def main() -> None:
    names = sys.argv[1:] or list(PARTS)
    if unknown := set(names) - set(PARTS):
        sys.exit(f"No part is called {', '.join(sorted(unknown))}. There are: {', '.join(PARTS)}.")
    if len(names) > 1:
        print(f"{'':<58} {'clock':>9} {'own CPU':>9} {'bound':>8}", flush=True)
        for name in names:
            subprocess.run([sys.executable, "-m", "tests.app.bounds", name], check=False)
        return
    app = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as home:
        os.environ["KVASIR_HOME"] = home
        for figure in PARTS[names[0]](app):
            print(figure, flush=True)


if __name__ == "__main__":
    main()
