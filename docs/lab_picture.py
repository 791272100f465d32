"""Take the animated picture of the Lab in the README: the real experiment on prefix caching, with the bundled model.

    python docs/lab_picture.py [FILE]

Writes FILE, by default docs/lab.gif. What the experiment prints is painted as the window paints it: the first run of
each side at the pace at which it came, without the warm-up, then the result of all runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["QT_SCALE_FACTOR"] = "2"

import msgspec
from PIL import Image
from PySide6.QtCore import QSize
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QGridLayout, QLabel, QWidget

from app.lab.pictures import PictureView
from app.theme.sheet import apply
from app.theme.theme import Theme
from engine.protocol.lab import LabLine, LabPage, LabPicture, LabProgress, LabResult
from engine.services.experiments.lab import BY_NAME

NAME = "prefixes"
FILE = Path(__file__).with_name("lab.gif")
SIZE = QSize(760, 400)
RESULT_PX = 40
"""Room for two lines of the result, which are empty until it is there."""
FRAME_S, END_S = 0.2, 6.0
"""How long a frame stands, and the last one."""


class Came(NamedTuple):
    """``at``: seconds since the first line."""

    at: float
    line: LabLine


def run() -> list[Came]:
    """All lines of the experiment, each with the time at which it came. Results of such runs are kept, as any."""
    command = [sys.executable, "-m", "engine.doors.cli.main", "lab", NAME, "--json"]
    came: list[Came] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        start = 0.0
        for line in process.stdout:
            start = start or time.monotonic()
            came.append(Came(time.monotonic() - start, msgspec.json.decode(line, type=LabLine)))
    if process.returncode:
        raise SystemExit(f"No picture: the experiment ended with status {process.returncode}.")
    return came


class Stage(QWidget):
    """Both sides next to each other, each with its clock."""

    def __init__(self, theme: Theme, page: LabPage) -> None:
        super().__init__()
        self.setProperty("surface", "panel")
        grid = QGridLayout(self)
        grid.setContentsMargins(20, 14, 20, 14)
        grid.setHorizontalSpacing(28)
        grid.setVerticalSpacing(8)
        grid.addWidget(_label(page.question, "title"), 0, 0, 1, 2)
        self._clocks = [_label("", "caption") for _ in page.sides]
        self._pictures = [PictureView(theme) for _ in page.sides]
        self._result = _label("", "figure")
        self._result.setMinimumHeight(RESULT_PX)
        self._taken = _label(" ", "caption")
        for side, name in enumerate(page.sides):
            grid.addWidget(_label(name, "figure"), 1, side)
            grid.addWidget(self._clocks[side], 2, side)
            grid.addWidget(self._pictures[side], 3, side)
            grid.setColumnStretch(side, 1)
        grid.setRowStretch(3, 1)
        grid.addWidget(self._result, 4, 0, 1, 2)
        grid.addWidget(self._taken, 5, 0, 1, 2)
        self.sides = len(page.sides)
        self.resize(SIZE)

    def show_clock(self, side: int, text: str) -> None:
        self._clocks[side].setText(text)

    def show_picture(self, line: LabPicture) -> None:
        self._pictures[line.side].show_picture(line.picture)

    def show_result(self, result: LabResult) -> None:
        self._result.setText(f"{result.headline} {result.text.sentence if result.text else ''}")
        self._taken.setText(f"{result.model} on {result.machine}")
        counted = next(figure for figure in result.figures if figure.effects[0].metric.counted)
        for side, runs in enumerate(counted.runs):
            self.show_clock(side, f"{runs[-1]:,.0f} {counted.effects[0].metric.title}")


def _label(text: str, role: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", role)
    label.setWordWrap(True)
    return label


def frames(stage: Stage, came: list[Came]) -> list[Image.Image]:
    """A picture every :data:`FRAME_S` while each side runs for the first time, and the one with the result.

    A side's picture is shown when its run is over.
    """
    progress = [(at, line) for at, line in came if isinstance(line, LabProgress) and not line.sentence]
    pictures = [(at, line) for at, line in came if isinstance(line, LabPicture)]
    found: list[Image.Image] = []
    now, over = progress[0][0], progress[stage.sides][0]
    while now < over + FRAME_S:
        for (start, line), (end, _) in pairwise(progress[: stage.sides + 1]):
            if end <= now:
                stage.show_clock(line.side, f"took {end - start:.1f} s")
                stage.show_picture([one for at, one in pictures if at <= end and one.side == line.side][-1])
            elif start <= now:
                stage.show_clock(line.side, f"running: {now - start:.1f} s")
        found.append(_grab(stage))
        now += FRAME_S
    stage.show_result(next(line for _, line in came if isinstance(line, LabResult)))
    return [*found, _grab(stage)]


def _grab(stage: Stage) -> Image.Image:
    image = stage.grab().toImage().convertToFormat(QImage.Format.Format_RGB888)
    raw = bytes(image.constBits())
    return Image.frombytes("RGB", (image.width(), image.height()), raw, "raw", "RGB", image.bytesPerLine())


def write(images: list[Image.Image], file: Path) -> None:
    """All frames in the colours of the last, which has the most."""
    palette = images[-1].quantize(255, dither=Image.Dither.NONE)
    first, *others = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    durations = [round(1000 * FRAME_S)] * len(others) + [round(1000 * END_S)]
    first.save(file, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)
    print(f"{file}: {len(images)} frames, {file.stat().st_size / 1000:.0f} kB")


def main() -> None:
    came = run()
    app = QApplication([])
    theme = Theme("dark")
    apply(theme, app)
    stage = Stage(theme, BY_NAME[NAME].page)
    write(frames(stage, came), Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)


if __name__ == "__main__":
    main()
