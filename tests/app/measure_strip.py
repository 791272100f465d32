"""What the plot strip costs at ten telemetry frames a second: python tests/app/measure_strip.py

Prints the milliseconds that one frame takes in this thread (processor time, so that neighbours on the machine do not
count) and by the clock, mean and worst of a minute of frames with full rings.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ["QT_QPA_PLATFORM"] = "offscreen"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from PySide6.QtWidgets import QApplication

from app.plots.strip import HEIGHT, PlotStrip
from app.theme.sheet import apply
from app.theme.theme import Theme
from tests.app.specs import frame

FRAMES = 600


def main() -> None:
    app = QApplication([])
    theme = Theme("dark")
    apply(theme, app)
    strip = PlotStrip(theme)
    strip.resize(1440, HEIGHT)
    strip.show()
    strip.build()
    for i in range(FRAMES):
        strip.add(frame(i / 10, rate=30 + i % 7))
    strip.mark("draft on")
    spent, passed = [], []
    for i in range(FRAMES, 2 * FRAMES):
        strip.add(frame(i / 10, rate=30 + i % 7))
        cpu, clock = time.thread_time(), time.perf_counter()
        strip.tick()
        app.processEvents()
        spent.append(1e3 * (time.thread_time() - cpu))
        passed.append(1e3 * (time.perf_counter() - clock))
    for name, values in (("processor", spent), ("clock", passed)):
        sys.stdout.write(f"{name}: mean {sum(values) / len(values):.1f} ms, worst {max(values):.1f} ms a frame\n")
    strip.close()


if __name__ == "__main__":
    main()
