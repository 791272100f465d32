"""How long the Lab's page holds the window up while a real experiment runs and when its result comes (budget: 16.7 ms).

    python -m tests.app.measure_lab_frames [NAME...] [--compare]

A frame is what tests/app/measure_frames.py calls one. For each phase: how many there were, the median, what 99 of 100
stay below, the longest, and the share above the budget, by the clock and by the thread's own CPU time, which leaves
the machine's other work out: the experiment itself computes meanwhile.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app.lab.compare.page import ComparePage
from app.lab.page import COMPARE, LabView
from app.lab.runs import LabRuns
from app.link.link import EngineLink
from app.theme.sheet import apply
from app.theme.theme import Theme
from tests.app.measure_frames import frames
from tests.app.pressing import press

BUDGET_MS = 1000 / 60
SETTLED = 1.5
"""Seconds after a result in which its page still grows."""


class Phases:
    """Frames by what the page did in them."""

    def __init__(self, app: QApplication, view: LabView) -> None:
        self._app, self._view = app, view
        self._times: dict[str, list[tuple[float, float]]] = {}

    def watch(self, phase: Callable[[], str], going: Callable[[], bool]) -> None:
        """Turn the event loop while ``going()``; a frame belongs to the ``phase()`` at its end."""
        for frame in frames(self._app, self._view.window(), going):
            self._times.setdefault(phase(), []).append(frame)

    def show(self) -> None:
        for phase, times in self._times.items():
            print(f"{phase}: {len(times)} frames")
            for name, each in zip(("clock", "own CPU"), zip(*times, strict=True), strict=True):
                high = sorted(each)[int(0.99 * (len(each) - 1))]
                late = sum(ms > BUDGET_MS for ms in each) / len(each)
                print(
                    f"  {name}: median {statistics.median(each):.1f} ms, 99 % under {high:.1f}, "
                    f"longest {max(each):.1f}, {late:.1%} above {BUDGET_MS:.1f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=["kv_cache", "paging"])
    parser.add_argument("--compare", action="store_true", help="a comparison of the bundled model with itself, too")
    arguments = parser.parse_args()
    app = QApplication(sys.argv[:1])
    theme = Theme(mode="dark")
    apply(theme, app)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KVASIR_HOME"] = folder
        link = EngineLink()
        link.start()
        runs = LabRuns(link, pairs=1)
        compare = ComparePage(link, theme)
        view = LabView(runs, lambda: compare, theme)
        view.resize(1440, 900)
        view.show()
        phases = Phases(app, view)
        phases.watch(lambda: "asking for the experiments", lambda: runs.index is None)
        for name in arguments.names:
            experiment(phases, view, runs, name)
        if arguments.compare:
            comparison(phases, view, compare)
        runs.close_down()
        compare.close_down()
        link.shutdown()
        phases.show()


def for_a_while(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() < end


def experiment(phases: Phases, view: LabView, runs: LabRuns, name: str) -> None:
    view.show_experiment("")
    phases.watch(lambda: "all experiments", for_a_while(0.5))
    view.show_experiment(name)
    phases.watch(lambda: "opening a page", for_a_while(0.5))
    press(view, "lab.run")
    phases.watch(lambda: f"{'result' if name in runs.results else 'running'}: {name}", lambda: bool(runs.running))
    phases.watch(lambda: f"result: {name}", for_a_while(SETTLED))
    assert view.view is not None
    if view.view.player.isVisible():
        press(view, "lab.play")
        phases.watch(lambda: f"playing: {name}", for_a_while(2.0))
    view.show_experiment("")
    phases.watch(lambda: "all experiments", for_a_while(0.5))
    view.show_experiment(name)
    phases.watch(lambda: "opening a page with a result", for_a_while(0.5))


def comparison(phases: Phases, view: LabView, compare: ComparePage) -> None:
    view.show_experiment(COMPARE)
    phases.watch(lambda: "opening Compare", for_a_while(0.5))
    compare.rounds.setValue(1)
    compare.run()
    phases.watch(lambda: "comparison's result" if compare.result else "comparing", lambda: compare.busy)
    phases.watch(lambda: "comparison's result", for_a_while(SETTLED))
    if compare.note.text():
        sys.exit(compare.note.text())


if __name__ == "__main__":
    main()
