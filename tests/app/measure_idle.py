"""Processor time and memory of the real program while nothing happens: python -m tests.app.measure_idle [--seconds N]

Starts the window and its engine with the bundled model, and prints for each state of the window what both took of one
core over so many seconds (from /proc, Linux only), after the last change has left the plots. ``--loads`` adds what
they hold after so many loads of the model.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication, QToolButton

from app.program import WindowProgram
from engine import protocol

SETTLE_S = 75.0
"""After an answer: until it has left the axis of the plots, and the percentiles of the engine."""
QUESTION = "What is the KV cache, and why does it save time?"


def pause(seconds: float) -> None:
    """Run the event loop, which sleeps between events."""
    loop = QEventLoop()
    QTimer.singleShot(round(1000 * seconds), loop.quit)
    loop.exec()


def until(done: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    for _ in range(round(seconds / 0.05)):
        if done():
            return
        pause(0.05)
    sys.exit(f"{what} took longer than {seconds:.0f} seconds.")


class Meter:
    """Window and engine, by their processes."""

    def __init__(self, program: WindowProgram) -> None:
        pid = program.link._worker.pid if program.link._worker is not None else None
        self.window, self.engine = psutil.Process(), psutil.Process(pid)

    def spent(self) -> list[float]:
        return [sum(process.cpu_times()[:2]) for process in (self.window, self.engine)]

    def over(self, seconds: float) -> list[float]:
        """Percent of a core, each."""
        before = self.spent()
        pause(seconds)
        return [100 * (now - then) / seconds for now, then in zip(self.spent(), before, strict=True)]

    def held(self) -> str:
        return ", ".join(
            f"{name} {process.memory_full_info().rss / 1e6:.0f} MB RSS ({process.memory_full_info().uss / 1e6:.0f} USS)"
            for name, process in (("window", self.window), ("engine", self.engine))
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=SETTLE_S)
    parser.add_argument("--loads", type=int, default=0)
    arguments = parser.parse_args()
    app = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as home:
        os.environ["KVASIR_HOME"] = home
        program = WindowProgram(app, Path(home) / "kvasir.log")
        try:
            program.window.resize(1440, 900)
            program.window.show()
            fold(program, "plots", False)
            until(lambda: program.link.card is not None, "loading the bundled model")
            measure(program, arguments)
        finally:
            program.close()


def fold(program: WindowProgram, part: str, folded: bool) -> None:
    button = program.window.findChild(QToolButton, f"top.{part}")
    assert button is not None
    button.setChecked(not folded)


def measure(program: WindowProgram, arguments: argparse.Namespace) -> None:
    meter, link = Meter(program), program.link
    print(f"after the start: {meter.held()}", flush=True)
    program.chat.send(QUESTION)
    until(lambda: not program.chat.streaming, "the answer")
    print(f"after an answer: {meter.held()}", flush=True)
    pause(arguments.settle)
    for name in ("plots open", "plots folded", "cache open", "minimised") if arguments.seconds else ():
        fold(program, "plots", name == "plots folded")
        fold(program, "cache", name != "cache open")
        if name == "minimised":
            program.window.showMinimized()
        pause(5.0)
        window, engine = meter.over(arguments.seconds)
        print(f"{name}: window {window:.2f} %, engine {engine:.2f} % of a core", flush=True)
    program.window.showNormal()
    for load in range(1, arguments.loads + 1):
        loaded: list[object] = []
        link.loaded.connect(loaded.append)
        assert link.card is not None
        link.send(protocol.Load(model=link.card.path, draft=None, options=program.store.settings.load_options()))
        until(lambda: loaded, "a load")  # noqa: B023
        link.loaded.disconnect(loaded.append)
        pause(1.0)
        if load in (1, 5, 10):
            print(f"after {load} loads: {meter.held()}", flush=True)


if __name__ == "__main__":
    main()
