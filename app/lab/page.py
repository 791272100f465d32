"""The Lab's page: the experiments on the left, all of them as cards or one of them on the right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QPushButton,
    QSlider,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.lab import words
from app.lab.answer import AnswerCard, OwnAnswer
from app.lab.cards import Overview
from app.lab.experiment import ExperimentView
from app.lab.export import SaveButton
from app.lab.layout import IntoView, label
from app.lab.models import ModelChoice
from app.lab.roofline import RooflineView
from app.lab.runs import LabRuns, Subject
from app.lab.sliders import SettingSlider
from app.lab.tools import COMPARE, ROOFLINE, TOOLS
from app.lab.topics import TopicList
from app.language import tr
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import FocusFirst, PageTitle, fill, named, say, tip
from engine.protocol import Value
from engine.protocol.lab import LabPage, LabPicture, LabResult

if TYPE_CHECKING:
    from app.lab.compare.page import ComparePage

_LIST_WIDTH, _WIDTH, _SENTENCE_WIDTH = 240, 1000, 820
_LIST_SHARE = 0.26
"""Share of the window's width that the list takes at most, with larger text."""
_TURNS = {int(Qt.Key.Key_Left): -1, int(Qt.Key.Key_Right): 1}
"""From side to side."""
_KEYPAD = Qt.KeyboardModifier.KeypadModifier


@dataclass
class _Left:
    """State the person left on the page of an experiment; -1 stands for no prediction."""

    choice: int = -1
    begun_with: int = -1
    """Prediction when its last run was begun."""
    answered: int = -1
    """Prediction before the result on show was known."""
    settings: dict[str, int] = field(default_factory=dict)
    """Positions of the sliders; empty: those of the result."""


class LabView(FocusFirst):
    """Asks for the experiments whenever it is shown and they are not known. ``make_compare`` makes the page Compare,
    which many never open. ``use`` gives the switches their values in the person's chats, and returns what came of it,
    as a sentence."""

    compare_made = Signal(object)
    """The ComparePage, which was made just now."""

    def __init__(
        self, runs: LabRuns, make_compare: Callable[[], ComparePage], theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._runs, self._make_compare, self._theme = runs, make_compare, theme
        self._compare: ComparePage | None = None
        self.use: Callable[[dict[str, Value]], str] = lambda _: ""
        self._blocked = ""
        self._left: defaultdict[str, _Left] = defaultdict(_Left)
        """By experiment."""
        self.open_page = ""
        """The name of the experiment on show, "" for all of them."""
        self._answers: dict[str, OwnAnswer] = {}
        """Answer of the person's own that stands first on the page of an experiment."""
        self._wanted = ""
        """Name of the one to show as soon as it is known which there are."""
        self.view: ExperimentView | None = None
        self.roof: RooflineView | None = None
        self.overview: Overview | None = None
        named(self, surface="bg")
        self._make()

    @property
    def compare(self) -> ComparePage:
        """The page Compare, made when it is first asked for."""
        if self._compare is None:
            page = self._compare = self._make_compare()
            page.changed.connect(self._refresh)
            self._right.addWidget(page)
            self._block_compare()
            self.compare_made.emit(page)
        return self._compare

    @property
    def comparing(self) -> bool:
        """True while columns are compared."""
        return self._compare is not None and self._compare.busy

    def set_blocked(self, reason: str) -> None:
        """Set the reason nothing can be run now; "" when it can."""
        if reason != self._blocked:
            self._blocked = reason
            self._refresh()

    def show_experiment(self, name: str) -> None:
        """Show one, or with "" all of them; before it is known which there are, as soon as it is."""
        self._wanted = "" if name in self._runs.pages or name in TOOLS else name
        self.topics.choose(name)

    def show_answer(self, name: str, answer: OwnAnswer) -> None:
        """Show an experiment with an answer of the person's own, which it explains."""
        self._answers[name] = answer
        again = name == self.open_page
        self.show_experiment(name)
        if again:
            self._show()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._runs.refresh()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._runs.running and self.open_page != COMPARE:
            self._runs.cancel()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            at = self.focusWidget()
            runs = self.view.run if self.view is not None else self.roof.run if self.roof is not None else None
            if self.view is not None and isinstance(at, QSlider):  # that of the moments runs nothing
                runs = self.view.again if isinstance(at, SettingSlider) else None
            if isinstance(at, QPushButton) and at.isEnabled():
                at.click()
            elif runs is not None and runs.isEnabled() and not self._runs.running:
                runs.click()
        elif (by := _turn(event)) and self.view is not None:
            self.lesson.let_go()
            if (side := self.view.turn(by)) is not None:
                self._scroll.ensureWidgetVisible(side)
        else:
            super().keyPressEvent(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The list and the scroll area would keep Left and Right to themselves, buttons go on to a slider with them."""
        if isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress and _turn(event):
            self.keyPressEvent(event)
            return True
        return super().eventFilter(watched, event)

    def _make(self) -> None:
        self.topics = TopicList(self._theme)
        self.topics.chosen.connect(self._on_topic)
        self.first = self.topics
        self.title = named(PageTitle(), wordWrap=True)
        self.models = ModelChoice()
        self.models.changed.connect(self._refresh)
        self.save = SaveButton()
        self.save.said.connect(self._say)
        self.everything = named(QPushButton(), "lab.all", clicked=self._run_all)
        self.said = label("", "caption", "lab.said")
        self.saved = label("", "caption", "lab.saved")
        self._lay_out()
        self._fit()
        runs = self._runs
        runs.index_changed.connect(self._fill)
        runs.results_changed.connect(self._on_result)
        runs.changed.connect(self._refresh)
        runs.told.connect(self._on_told)
        runs.roofline_changed.connect(self._on_roofline)
        self._theme.changed.connect(self._on_theme)
        self._fill()

    def _lay_out(self) -> None:
        self._side = side = QWidget()
        named(side, surface="panel", edge="right")
        fill(QVBoxLayout(side), self.topics, margins=12)
        self._body = body = QWidget()
        column = fill(QVBoxLayout(body), margins=(24, 16, 18, 0), spacing=10)
        head = fill(QHBoxLayout(), (self.title, 1), self.everything, self.save, margins=(0, 0, 6, 0), spacing=12)
        fill(column, head, self.models, self.said, self.saved)
        self._scroll = scrolling(title=tr("Experiment"), sideways=True)
        for each in (self.topics, self._scroll):
            each.installEventFilter(self)
        self.lesson = IntoView(self._scroll)
        """Keeps in view the lesson of a new result."""
        column.addWidget(self._scroll, 1)
        row = fill(QHBoxLayout(self), side, margins=0, spacing=0)
        self._right = QStackedWidget()
        self._experiments = QWidget()
        fill(QHBoxLayout(self._experiments), 1, (body, 100), 1, margins=0)
        self._right.addWidget(self._experiments)
        row.addWidget(self._right, 1)

    def _fit(self) -> None:
        self._fit_side()
        self._body.setMaximumWidth(self._theme.px(_WIDTH))
        for sentence in (self.said, self.saved):
            sentence.setMaximumWidth(self._theme.px(_SENTENCE_WIDTH))
        self.save.setFixedWidth(self._theme.px(96))

    def _fit_side(self) -> None:
        """The list leaves most of a narrow window to the page; its names wrap."""
        self._side.setFixedWidth(min(self._theme.px(_LIST_WIDTH), max(_LIST_WIDTH, round(_LIST_SHARE * self.width()))))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_side()

    def _on_theme(self) -> None:
        """The page is made anew; the keyboard stays where it was."""
        at = QApplication.focusWidget()
        name = at.objectName() if at is not None and self._scroll.isAncestorOf(at) else ""
        self._fit()
        self._fill()
        again = self._scroll.findChild(QWidget, name) if name else None
        if again is not None:
            again.setFocus()

    def _fill(self) -> None:
        """The list of the experiments, and the page that was open."""
        self.topics.fill(self._runs.pages.values())
        wanted = self._wanted or self.open_page
        there = wanted in self._runs.pages or wanted in TOOLS
        self.topics.choose(wanted if there else "")
        self._wanted = "" if there else self._wanted
        self._show()

    def _on_topic(self, name: str) -> None:
        if name != self.open_page:
            self.open_page = name
            self._show()

    def _show(self) -> None:
        """The page that is open, made anew."""
        page = self._runs.pages.get(self.open_page)
        before = self.view.result if self.view is not None and self.view.page is page else None
        self.view = self.roof = self.overview = None
        self.lesson.let_go()
        self._say("")
        self._right.setCurrentWidget(self.compare if self.open_page == COMPARE else self._experiments)
        if self.open_page == ROOFLINE:
            self._show_roofline()
        elif page is not None:
            self._show_one(page, before)
        elif self.open_page != COMPARE:
            self._show_all()
        self._refresh()

    def _show_roofline(self) -> None:
        self.title.setText(tr("Roofline of this computer"))
        self.roof = RooflineView(self._runs.roofline, self._theme)
        self.roof.run_asked.connect(lambda: self._runs.start([(ROOFLINE, self.models.taken)]))
        self.roof.cancel_asked.connect(self._runs.cancel)
        self._put(self.roof)

    def _show_all(self) -> None:
        self.open_page = ""
        self.title.setText(tr("See what each technique buys"))
        self.overview = Overview(self._runs, self._theme)
        self.overview.opened.connect(self.show_experiment)
        self._put(self.overview)

    def _show_one(self, page: LabPage, before: LabResult | None) -> None:
        """``before``: the result that its page had on show, which need not be the one that is kept."""
        runs, left = self._runs, self._left[page.name]
        self.title.setText(words.heading(page))
        self.view = view = ExperimentView(page, left.choice, self._theme)
        view.run_asked.connect(self._run)
        view.cancel_asked.connect(runs.cancel)
        view.use_asked.connect(lambda: view.used.setText(self.use(page.use)))
        view.predicted.connect(lambda at: setattr(left, "choice", at))
        found = before or runs.tried.pop(page.name, None) or runs.results.get(page.name)
        view.sliders.show_values(left.settings or (found.chosen if found is not None else {}))
        view.sliders.changed.connect(left.settings.update)
        for button in (view.run, view.cancel, view.player.button, view.again, view.use):
            button.installEventFilter(self)
        view.show_result(found, left.answered)
        if (answer := self._answers.get(page.name)) is not None:
            view.column.insertWidget(0, AnswerCard(page.name, answer, self._theme))
        if page.name == runs.running and runs.pictures:
            view.show_pictures(runs.sides, runs.pictures)
        self._put(view)

    def _put(self, page: QWidget) -> None:
        """Replace the page, whose widget lives on for one turn of the event loop: a press inside it may have asked
        for the new one."""
        before = self._scroll.takeWidget()
        if before is not None:
            QTimer.singleShot(0, before.deleteLater)
        self._scroll.setWidget(page)

    def _refresh(self) -> None:
        """Refresh everything that depends on what runs, on the model and on whether something can run."""
        runs, comparing = self._runs, self.comparing
        self.topics.show_states(
            {runs.running} | ({COMPARE} if comparing else set()),
            {name: words.clear(result) for name, result in runs.results.items()}
            | ({ROOFLINE: True} if runs.roofline is not None else {}),
        )
        self._block_compare()
        blocked = self._blocked or (words.COMPARING if comparing else "")
        self._refresh_head(blocked)
        if self.roof is not None:
            here = runs.running == ROOFLINE
            elsewhere = words.ELSEWHERE if runs.running and not here else ""
            self.roof.show_state(here, runs.stopping, elsewhere or blocked, runs.notes.get(ROOFLINE, ""))
        elif self.overview is not None:
            self.overview.refresh()
        elif self.view is not None:
            self._refresh_one(self.view, blocked)

    def _block_compare(self) -> None:
        if self._compare is not None:
            self._compare.set_blocked(self._blocked or (words.ELSEWHERE if self._runs.running else ""))

    def _refresh_head(self, blocked: str) -> None:
        """``blocked``: why nothing can be run now."""
        runs, index = self._runs, self._runs.index
        overview = self.view is None and self.roof is None
        running = bool(runs.running)
        total = sum(page.seconds for page in runs.pages.values() if self.models.subject(page) is not None)
        cancel = words.STOPPING if runs.stopping else tr("Cancel")
        self.everything.setVisible(overview and bool(runs.pages))
        self.everything.setText(cancel if running else tr("Run all, {time}", time=words.minutes(total)))
        self.everything.setEnabled(running or not blocked)
        self.everything.setToolTip(tip("" if running else blocked))
        self.save.setVisible(self.view is not None)
        self.save.view = self.view
        self.models.set_bundled(self._bundled())
        about = f"{words.INTRODUCTION} {words.where(index)}" if index is not None and overview else ""
        say(self.said, (runs.trouble or words.LOOKING) if index is None else about)

    def _bundled(self) -> str:
        """The bundled model that the page runs with, "" while that is not known."""
        index, page = self._runs.index, self.view.page if self.view is not None else None
        if page is not None and page.refused and page.brings:
            return page.brings
        return index.model if index is not None and index.pages else ""

    def _refresh_one(self, view: ExperimentView, blocked: str) -> None:
        runs, page, name = self._runs, view.page, view.page.name
        here = runs.running == name
        refused = words.refusal(page) if self.models.subject(page) is None else ""
        elsewhere = words.ELSEWHERE if runs.running and not here else ""
        by_model = bool(page.refused) and not self.models.own_taken
        view.show_model(by_model, page.brings if by_model else "")
        why = elsewhere or blocked or refused
        view.show_state(here, self._status(), runs.progress, why, runs.notes.get(name, ""))
        self.save.setEnabled(view.result is not None and not here)

    def _status(self) -> str:
        """Status of the run."""
        runs = self._runs
        return words.STOPPING if runs.stopping else words.status(runs.sides, runs.progress)

    def _on_told(self, told: object) -> None:
        if self.view is None or self.view.page.name != self._runs.running:
            return
        if isinstance(told, LabPicture):
            self.view.show_pictures(self._runs.sides, {told.side: told.picture})
        else:
            self.view.show_state(True, self._status(), self._runs.progress)

    def _on_roofline(self) -> None:
        if self.roof is not None and self._runs.roofline is not None:
            self.roof.show_result(self._runs.roofline)
            self._refresh()

    def _on_result(self, name: str) -> None:
        runs, left, view = self._runs, self._left[name], self.view
        if name == runs.running and name not in runs.tried:
            left.answered = left.begun_with
        if view is not None and view.page.name == name:
            self.lesson.let_go()
            view.show_result(runs.tried.pop(name, None) or runs.results[name], left.answered)
            if name == runs.running and view.found is not None:  # what it taught comes into view
                self.lesson.begin(view.found.lesson)
        self._refresh()

    def _run(self, chosen: Mapping[str, int]) -> None:
        assert self.view is not None
        page = self.view.page
        if (subject := self.models.subject(page)) is not None:
            self._start([(page.name, subject._replace(chosen=chosen))])

    def _start(self, runs: list[tuple[str, Subject]]) -> None:
        for name, _ in runs:
            self._left[name].begun_with = self._left[name].choice
        self._runs.start(runs)

    def _run_all(self) -> None:
        if self._runs.running:
            self._runs.cancel()
            return
        subjects = [(page.name, self.models.subject(page)) for page in self._runs.pages.values()]
        self._start([(name, subject) for name, subject in subjects if subject is not None])

    def _say(self, sentence: str, role: str = "caption") -> None:
        """Show the outcome of saving, until another page is shown."""
        say(self.saved, sentence, role)


def _turn(event: QKeyEvent) -> int:
    """Direction in which the key goes from side to side, 0 for another key; the keypad's keys count, too."""
    return 0 if event.modifiers() & ~_KEYPAD else _TURNS.get(event.key(), 0)
