"""The roofline of this computer: what limits the model, where it stands, what each switch would move."""

from __future__ import annotations

import itertools

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QPushButton, QWidget

from app.lab import words
from app.lab.layout import PageSection, label
from app.lab.pictures.roof import RoofView
from app.lab.pictures.words import percent
from app.language import figure, known, tr
from app.settings.engine import device_title
from app.theme.theme import Theme
from app.theme.widgets import fill, named, say, take_out
from app.words import hardware
from engine.protocol.lab import Ceiling, LabRoofline, PointGroup, RoofPoint

PURPOSE = tr(
    "To write a token, the processor or GPU reads the weights and the cache, and computes with them. Whichever takes "
    "longer is the limit, the roof, and nothing passes it. This measures the ceilings and shows where the model "
    "stands. A pass that multiplies packed weights and others has a roof between those two ceilings: the solid stroke "
    "over each measured point. A pass is one run through the model: prefill reads a prompt, decode writes a token for "
    "each answer of a batch, and verify checks draft tokens."
)
MEASURING = tr("Measuring the ceilings, then one answer, eight together, and a prompt…")
GROUPS: dict[PointGroup, str] = {
    "measured": tr("Where it stands"),
    "batch": tr("What more answers at once would move"),
    "drafts": tr("What draft tokens would move"),
    "switch": tr("What each switch would move"),
}
SECONDS = 30
"""How long it takes, about."""
GAP_PX = 8
"""Above a group."""
COLUMNS = (tr("tokens a second"), tr("operations a byte"))


class RooflineView(QWidget):
    """``run_asked`` and ``cancel_asked`` are its button."""

    run_asked = Signal()
    cancel_asked = Signal()

    def __init__(self, found: LabRoofline | None, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._running = self._again = False
        self._shown: QWidget | None = None
        self._inside = inside = PageSection()
        fill(inside.column, margins=(0, 0, 6, 16), spacing=12)
        self.run = QPushButton()
        self.run.setObjectName("lab.roofline.run")
        self.run.clicked.connect(lambda: (self.cancel_asked if self._running else self.run_asked).emit())
        self.state = label("", "caption", "lab.roofline.state")
        inside.add(label(PURPOSE))
        inside.column.addWidget(self.run, 0, Qt.AlignmentFlag.AlignLeft)
        inside.add(self.state)
        inside.column.addStretch(1)
        fill(QHBoxLayout(self), inside, margins=0)
        if found is not None:
            self.show_result(found)

    def show_result(self, found: LabRoofline) -> None:
        """Show the result in the place of the one before; the button keeps the keyboard focus."""
        if self._shown is not None:
            take_out(self._shown)
        self._shown = shown = PageSection().add(
            RoofView(found, self._theme),
            PageSection(tr("What it says")).add(*(label(known(sentence)) for sentence in found.sentences)),
            PageSection(tr("All points")).add(points_table(found)),
            PageSection(tr("How it was taken")).add(*(label(line, "caption") for line in taken(found))),
        )
        shown.column.setSpacing(self._inside.column.spacing())
        self._inside.column.insertWidget(self._inside.column.count() - 1, shown)  # above what stretches
        self._again = True

    def show_state(self, running: bool, stopping: bool, blocked: str, note: str) -> None:
        """``stopping``: it was told to stop; ``blocked``: why it cannot run now; ``note``: how it ended last."""
        self._running = running
        time = words.minutes(SECONDS)
        measure = (
            tr("Measure again, {time}", time=time) if self._again else tr("Measure this computer, {time}", time=time)
        )
        self.run.setText(tr("Cancel") if running else measure)
        self.run.setEnabled(running or not blocked)
        doing = words.STOPPING if stopping else MEASURING
        say(self.state, doing if running else blocked or note)


def points_table(found: LabRoofline) -> QWidget:
    """A row for each point under the heading of its group, with how it was taken: of all of a group, or of each."""
    card = named(QFrame(), card="choice")
    grid = fill(QGridLayout(card), margins=(14, 12, 14, 12), spacing=(16, -1))
    for column, stretch in enumerate((4, 2, 2, 6)):
        grid.setColumnStretch(column, stretch)
    rows = itertools.count()
    for group, heading in GROUPS.items():
        points = [point for point in found.points if point.group == group]
        settings = {known(point.setting) for point in points}
        common = settings.pop() if len(settings) == 1 else ""
        if points:
            first = grid.count() == 0
            titles = [label(title, "caption") for title in (*(COLUMNS if first else ("", "")), common)]
            for title in (head := label(heading, "section"), *titles):
                title.setContentsMargins(0, 0 if first else GAP_PX, 0, 0)
            _add(grid, next(rows), head, *titles)
        for point in points:
            about = held_against(point, found) + ("" if common else f"; {known(point.setting)}")
            rate = figure(point.tokens, ",.0f" if point.tokens >= 9.95 else ".1f")
            figures = (rate, figure(point.intensity, ",.1f"))
            _add(grid, next(rows), label(known(point.name)), *map(label, figures), label(about, "caption"))
    return card


def _add(grid: QGridLayout, row: int, *cells: QWidget) -> None:
    for column, cell in enumerate(cells):
        grid.addWidget(cell, row, column, Qt.AlignmentFlag.AlignTop)


def held_against(point: RoofPoint, found: LabRoofline) -> str:
    if point.group == "measured":
        median, fastest = (percent(rate / point.roof) for rate in (point.operations, point.high))
        return tr("{median} of its roof, the fastest pass {fastest}", median=median, fastest=fastest)
    if point.tokens == found.limit:
        return tr("the limit that one answer cannot pass")
    return tr("{factor:.2f}× the limit of one answer", factor=point.tokens / found.limit)


def taken(found: LabRoofline) -> list[str]:
    """Lines on the machine of the measurement, and on the way each ceiling was measured."""
    where = tr(
        "{model} on {device}, {machine}, {date}",
        model=found.model,
        device=device_title(found.device),
        machine=hardware(found.machine),
        date=found.date,
    )
    return [where, *map(_ceiling, found.ceilings)]


def _ceiling(each: Ceiling) -> str:
    name, value = known(each.name), each.value / 1e9
    if each.unit == "bytes":
        said = tr("{ceiling}: {value:,.1f} billion bytes a second.", ceiling=name, value=value)
    else:
        said = tr("{ceiling}: {value:,.1f} billion operations a second.", ceiling=name, value=value)
    raised = tr("But {raised}", raised=known(each.raised)) if each.raised else ""
    return " ".join(filter(None, [said, known(each.taken), raised]))
