"""One experiment: the problem, the prediction, the run, what each side looks like, and what was found."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QApplication, QButtonGroup, QHBoxLayout, QProgressBar, QPushButton, QRadioButton, QWidget

from app.lab import words
from app.lab.layout import ColumnsLayout, PageSection, label
from app.lab.pictures import PictureView
from app.lab.pictures.lanes import on_one_axis
from app.lab.pictures.words import moment
from app.lab.player import Player
from app.lab.result import ResultView
from app.lab.sliders import Sliders
from app.language import known, tr
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import button_text, fill, named, say, switched, take_out, tip
from engine.protocol.lab import LabPage, LabProgress, LabResult, Picture

_PICTURE_PX, _SIDE_PX, _CHOICE_PX = 220, 320, 150
_FITTING_PX = (56, 320)
"""The least and the most height of a result's picture, for one that says how high it wants to be."""


class ExperimentView(PageSection):
    """``choice``: what is predicted, -1 for nothing."""

    run_asked = Signal(dict)
    """Run it with these settings; empty: as it usually is."""
    cancel_asked = Signal()
    use_asked = Signal()
    predicted = Signal(int)

    def __init__(self, page: LabPage, choice: int, theme: Theme) -> None:
        super().__init__()
        self.page, self._choice, self._theme = page, choice, theme
        named(self, f"lab.experiment.{page.name}", surface="bg")
        fill(self.column, margins=(0, 0, 6, 16), spacing=16)
        self._brought = ""
        self.result: LabResult | None = None
        self.found: ResultView | None = None
        self.refused = PageSection(box=True).add(label(words.refusal(page), "warn", "lab.refused"))
        self.add(
            self.refused,
            PageSection(tr("The problem")).add(label(known(page.problem))),
            self._prediction(),
            self._run_row(),
        )
        self.note = label("", "bad", "lab.note")
        self.note.hide()
        self.add(self.note)
        self.pictures: list[PictureView] = []
        """Pictures of each side, in the order of ``sides``."""
        self.boxes: list[PageSection] = []
        """Around them."""
        self.sides: list[str] = []
        self._running = False
        self._live = False
        """True if the pictures are those of a run, not of the result."""
        self.columns = ColumnsLayout([], theme, _SIDE_PX, 2)
        self.player = Player(theme)
        self.player.moved.connect(self._show_moment)
        self.add(self.columns, self.player)
        self.sliders = Sliders(page.adjustable)
        self._try, self._after = self._try_part(), self._use_row()
        for part in (self._try, self._after):
            part.hide()
            self.add(part)
        self.column.addStretch(1)

    @property
    def choice(self) -> int:
        return self._choice

    def show_model(self, refused: bool, brought: str) -> None:
        """Set whether the chosen model cannot show it, and the one that Kvasir brings in its place, "" for none."""
        self.refused.setVisible(refused)
        self._brought = brought
        self.run.setText(words.run(self.page, self.result is not None, brought))

    def show_state(
        self, running: bool, status: str, progress: LabProgress | None, blocked: str = "", note: str = ""
    ) -> None:
        """Show whether it runs, its status and progress; the reason it cannot be run, and how its last run ended."""
        if running and not self._running and not self._live:
            self._make_sides([])
        elif self._running and not running and (self._live or not self.pictures):
            self._show_found()
        self._running = running
        had_focus = self.run.hasFocus() or self.cancel.hasFocus()
        self.run.setVisible(not running)
        self.run.setEnabled(not blocked)
        self.run.setToolTip(tip(blocked or words.ENTER))
        self.again.setEnabled(not blocked and not running)
        self.again.setToolTip(tip(words.RUNNING if running else blocked))
        self.cancel.setVisible(running)
        self.bar.setVisible(running)
        if running:
            self.bar.setRange(0, progress.total if progress is not None else 0)
            self.bar.setValue(progress.done if progress is not None else 0)
        say(self.status, status if running else blocked)
        self.note.setText(note)
        self.note.setVisible(bool(note) and not running)
        set_role(self.note, words.note_role(note))
        if had_focus:
            (self.cancel if running else self.run).setFocus()

    def turn(self, by: int) -> QWidget | None:
        """Give the keyboard to the next side (1) or the one before (-1), from elsewhere to the first or the last; which
        that is, None where there are none."""
        if not self.boxes:
            return None
        last, at = len(self.boxes) - 1, self._with_keyboard
        box = self.boxes[min(max(at + by, 0), last) if at is not None else 0 if by > 0 else last]
        box.setFocus(Qt.FocusReason.TabFocusReason)
        return box

    @property
    def _with_keyboard(self) -> int | None:
        """The place of the side that has it."""
        return next((at for at, box in enumerate(self.boxes) if box.hasFocus()), None)

    def show_pictures(self, sides: list[str], pictures: dict[int, Picture]) -> None:
        """Show the present pictures of sides of a run under way, by their places in ``sides``."""
        if not self._live:  # pictures of a result are not of this run
            self._make_sides(sides)
        self._live = True
        self._paint(sides, pictures)

    def show_result(self, result: LabResult | None, predicted: int) -> None:
        """Show the result, None for nothing yet, and the choice predicted before, -1 for none."""
        self.result = result
        self._show_found()
        if self.found is not None:
            take_out(self.found)
            self.found = None
        self.run.setText(words.run(self.page, result is not None, self._brought))
        self._after.setVisible(result is not None and bool(self.page.use))
        self._try.setVisible(result is not None and bool(self.page.adjustable))
        if result is not None:
            self.found = ResultView(self.page, result, predicted, self._theme)
            self.found.rest.ended.connect(self._order)
            self.column.insertWidget(self.column.indexOf(self._try), self.found)
            self.found.show()  # what is added to a layout has else its room in the next turn of the event loop

    def _paint(self, sides: list[str], pictures: dict[int, Picture]) -> None:
        """Paint pictures of ``sides``: all possible ones while it runs, and then those that ran."""
        if pictures and sides != self.sides:
            self._make_sides(sides)
        shown = {at: view.picture for at, view in enumerate(self.pictures) if view.picture is not None}
        for side, picture in on_one_axis({**shown, **pictures}).items():
            if 0 <= side < len(self.pictures):
                self.pictures[side].show_picture(picture)
                self.boxes[side].setAccessibleDescription(self.pictures[side].accessibleDescription())

    def _show_found(self) -> None:
        """The pictures of the result, none where there is none."""
        self._live = False
        if self.result is None or not self.result.pictures:
            self._make_sides([])
        else:
            first, *others = self.result.pictures
            alike = others and all(other == first for other in others)
            sides, pictures = ([words.EVERY_SIDE], [first]) if alike else (self.result.sides, self.result.pictures)
            self._paint(sides, dict(enumerate(pictures)))
            for view in self.pictures:
                view.fit(*map(self._theme.px, _FITTING_PX))
            ordered = sorted(self.pictures, key=lambda view: -view.moments)
            shown, count = [view.picture for view in ordered if view.picture is not None], ordered[0].moments
            self.player.show_moments(count, lambda at: moment(shown, at))
            self._show_moment(count)

    def _show_moment(self, at: int) -> None:
        for view in self.pictures:
            view.show_moment(at)

    def _make_sides(self, sides: list[str]) -> None:
        """A place for a picture of each; the keyboard does not go with one that is no more."""
        at, focus = self._with_keyboard, QApplication.focusWidget()
        playing = focus in (self.player.button, self.player.slider)
        self.sides, self.pictures = sides, []
        self.player.show_moments(0, lambda _: "")
        self.boxes = [self._side(at, name) for at, name in enumerate(sides)]
        self.columns.show_widgets(self.boxes, min(2, len(sides)))
        self._order()
        if at is not None:
            (self.boxes[at] if at < len(sides) else self.run).setFocus()
        elif playing:
            self.run.setFocus()

    def _order(self) -> None:
        """The keyboard goes down the page, whenever what is on it was made."""
        found = self.found.findChildren(QWidget) if self.found is not None else []
        reached = [each for each in found if each.focusPolicy() & Qt.FocusPolicy.TabFocus]
        player = [self.player.button, self.player.slider]
        widgets = [self.run, self.cancel, *self.boxes, *player, *reached, *self.sliders.each, self.again, self.use]
        for before, after in pairwise(widgets):
            QWidget.setTabOrder(before, after)

    def _prediction(self) -> QWidget:
        question = known(self.page.question)
        part = PageSection(tr("Predict")).add(label(question, name="lab.question"))
        group = QButtonGroup(self)
        radios = []
        for at, choice in enumerate(map(known, self.page.choices)):
            radio = named(QRadioButton(button_text(choice)), f"lab.choice.{at}", title=f"{question} {choice}")
            radio.setChecked(at == self._choice)
            switched(radio, partial(self._choose, at))
            group.addButton(radio, at)
            radios.append(radio)
        return part.add(ColumnsLayout(radios, self._theme, _CHOICE_PX, len(radios)))

    def _choose(self, at: int, on: bool) -> None:
        if on:
            self._choice = at
            self.predicted.emit(at)

    def _run_row(self) -> QWidget:
        self.run = self._button(words.run(self.page, False, ""), "lab.run")
        self.run.setProperty("kind", "primary")
        self.run.clicked.connect(lambda: self.run_asked.emit({}))
        self.cancel = self._button(tr("Cancel"), "lab.cancel")
        self.cancel.setToolTip(words.ESCAPE)
        self.cancel.clicked.connect(self.cancel_asked)
        self.cancel.hide()
        self.bar = named(QProgressBar(textVisible=False), title=tr("Progress of the experiment"))
        self.bar.hide()
        self.status = label("", "caption", "lab.status")
        row = fill(QHBoxLayout(), self.run, self.cancel, (self.status, 1), spacing=12)
        row.addStretch()
        part = PageSection()
        part.column.addLayout(row)
        return part.add(self.bar)

    def _side(self, at: int, name: str) -> PageSection:
        view = named(PictureView(self._theme), minimumHeight=self._theme.px(_PICTURE_PX))
        self.pictures.append(view)
        title = name if name == words.EVERY_SIDE else words.lettered(at, name)
        box = PageSection(box=True).add(label(title, "figure"), view)
        named(box, f"lab.side.{at}", focusPolicy=Qt.FocusPolicy.StrongFocus)
        named(box, title=title, tooltip=words.TURN if len(self.sides) > 1 else "")
        return box

    def _try_part(self) -> QWidget:
        self.again = self._button(tr("Run with these"), "lab.try")
        self.again.clicked.connect(lambda: self.run_asked.emit(self.sliders.values))
        part = PageSection(tr("Try other sizes")).add(label(words.TRY, "caption"), self.sliders)
        part.column.addWidget(self.again, 0, Qt.AlignmentFlag.AlignLeft)
        return part

    def _use_row(self) -> QWidget:
        self.use = self._button(tr("Use in my chats"), "lab.use")
        self.use.clicked.connect(self.use_asked)
        self.used = label("", "caption", "lab.used")
        row = fill(QHBoxLayout(), self.use, (self.used, 1), spacing=12)
        part = PageSection()
        part.column.addLayout(row)
        return part

    @staticmethod
    def _button(text: str, name: str) -> QPushButton:
        return named(QPushButton(button_text(text)), name, title=text)
