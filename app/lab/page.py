"""The Lab's page: the experiments on the left, all of them as cards or one of them on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSlider,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.lab import words
from app.lab.cards import Overview
from app.lab.compare.page import ComparePage
from app.lab.experiment import ExperimentView
from app.lab.export import save_html, save_png
from app.lab.layout import label
from app.lab.roofline import NAME as ROOFLINE
from app.lab.roofline import RooflineView
from app.lab.runs import LabRuns, Subject
from app.lab.topics import COMPARE, TOOLS, Topics
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import MenuButton, Segments
from engine.protocol import Value
from engine.protocol.lab import LabPage, LabPicture

_LIST_WIDTH, _WIDTH = 240, 1000
_SETTLE_MS = 1000
"""How long a page with a new result may grow."""
_BUNDLED, _OWN = "bundled", "own"
_TURNS = {int(Qt.Key.Key_Left): -1, int(Qt.Key.Key_Right): 1}
"""From side to side."""
_KEYPAD = Qt.KeyboardModifier.KeypadModifier


class LabView(QWidget):
    """Asks for the experiments whenever it is shown and they are not known. ``use`` gives the switches their values in
    the person's chats, and returns what came of it, as a sentence."""

    def __init__(self, runs: LabRuns, compare: ComparePage, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._runs, self.compare, self._theme = runs, compare, theme
        self.use: Callable[[dict[str, Value]], str] = lambda _: ""
        self._own: Subject | None = None
        self._with_own = False
        self._teaching = False
        """Whether a new result's lesson is being brought into view."""
        self._offered: tuple[str, str] | None = None
        self._blocked = ""
        self._choices: dict[str, int] = {}
        """What is predicted, by experiment."""
        self._settings: dict[str, dict[str, int]] = {}
        """Where the sliders are, by experiment."""
        self._run_with: dict[str, int] = {}
        """What was when what runs now was begun."""
        self._predicted: dict[str, int] = {}
        """What was before the result on show was known."""
        self.open_page = ""
        """The name of the experiment on show, "" for all of them."""
        self.view: ExperimentView | None = None
        self.roof: RooflineView | None = None
        self.overview: Overview | None = None
        self.setProperty("surface", "bg")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._make()

    def set_own(self, own: Subject | None) -> None:
        """The person's own model that is loaded, None for none."""
        self._own = own
        self._with_own = self._with_own and own is not None
        self._refresh()

    def set_blocked(self, reason: str) -> None:
        """Why nothing can be run now; "" when it can."""
        if reason != self._blocked:
            self._blocked = reason
            self._refresh()

    def show_experiment(self, name: str) -> None:
        """Show one, or with "" all of them."""
        self.topics.choose(name)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._runs.refresh()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._runs.running and self.open_page != COMPARE:
            self._runs.cancel()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            at = self.focusWidget()
            runs = self.view.run if self.view is not None else self.roof.run if self.roof is not None else None
            if self.view is not None and isinstance(at, QSlider):
                runs = self.view.again
            if isinstance(at, QPushButton) and at.isEnabled():
                at.click()
            elif runs is not None and runs.isEnabled() and not self._runs.running:
                runs.click()
        elif (by := _turn(event)) and self.view is not None:
            self._teaching = False
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
        self.topics = Topics(self._theme)
        self.topics.chosen.connect(self._on_topic)
        self.setFocusProxy(self.topics)
        self.title = QLabel()
        self.title.setProperty("role", "title")
        self.title.setWordWrap(True)
        self.models = Segments("Model of the experiments", (), (), "lab.model")
        self.models.chosen.connect(self._on_model)
        self.save = MenuButton()
        self.save.setObjectName("lab.save")
        self.save.setAccessibleName("Save the result as a file")
        self.save.offer("HTML, with its pictures…", "lab.save.html", self._save_html)
        self.save.offer("Picture of this page (PNG)…", "lab.save.png", self._save_png)
        self.save.show_title("Save as")
        self.everything = QPushButton()
        self.everything.setObjectName("lab.all")
        self.everything.clicked.connect(self._run_all)
        self.memory = label("", "caption", "lab.memory")
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
        self.compare.changed.connect(self._refresh)
        self._theme.changed.connect(self._on_theme)
        self._fill()

    def _lay_out(self) -> None:
        self._side = side = QWidget()
        side.setProperty("surface", "panel")
        side.setProperty("edge", "right")
        side.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        left = QVBoxLayout(side)
        left.setContentsMargins(12, 12, 12, 12)
        left.addWidget(self.topics)
        self._body = body = QWidget()
        column = QVBoxLayout(body)
        column.setContentsMargins(24, 16, 18, 0)
        column.setSpacing(10)
        head = QHBoxLayout()
        head.setContentsMargins(0, 0, 6, 0)
        head.setSpacing(12)
        head.addWidget(self.title, 1)
        head.addWidget(self.everything)
        head.addWidget(self.save)
        column.addLayout(head)
        column.addWidget(self.models)
        column.addWidget(self.memory)
        column.addWidget(self.said)
        column.addWidget(self.saved)
        self._scroll = QScrollArea()
        self._scroll.setWidgetResizable(True)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._scroll.setProperty("ring", "true")
        self._scroll.setAccessibleName("Experiment")
        for each in (self.topics, self._scroll):
            each.installEventFilter(self)
        self._scroll.verticalScrollBar().rangeChanged.connect(self._to_lesson)
        column.addWidget(self._scroll, 1)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(side)
        self._right = QStackedWidget()
        experiments = QWidget()
        middle = QHBoxLayout(experiments)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.addStretch(1)
        middle.addWidget(body, 100)
        middle.addStretch(1)
        self._right.addWidget(experiments)
        self._right.addWidget(self.compare)
        row.addWidget(self._right, 1)

    def _fit(self) -> None:
        self._side.setFixedWidth(self._theme.px(_LIST_WIDTH))
        self._body.setMaximumWidth(self._theme.px(_WIDTH))
        self.save.setFixedWidth(self._theme.px(96))

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
        known = self.open_page in self._runs.pages or self.open_page in TOOLS
        self.show_experiment(self.open_page if known else "")
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
        self._teaching = False
        self._say("")
        self._right.setCurrentIndex(int(self.open_page == COMPARE))
        if self.open_page == ROOFLINE:
            self.title.setText("Roofline of this computer")
            self.roof = RooflineView(self._runs.roofline, self._theme)
            self.roof.run_asked.connect(lambda: self._runs.start([(ROOFLINE, self._loaded_subject())]))
            self.roof.cancel_asked.connect(self._runs.cancel)
            self._put(self.roof)
        elif self.open_page == COMPARE:
            pass
        elif page is None:
            self.open_page = ""
            self.title.setText("See what each technique buys")
            self.overview = Overview(self._runs, self._theme)
            self.overview.opened.connect(self.show_experiment)
            self._put(self.overview)
        else:
            self.title.setText(words.heading(page))
            self.view = view = ExperimentView(page, self._choices.get(page.name, -1), self._theme)
            view.run_asked.connect(self._run)
            view.cancel_asked.connect(self._runs.cancel)
            view.use_asked.connect(lambda: view.show_used(self.use(page.use)))
            view.predicted.connect(lambda at: self._choices.update({page.name: at}))
            runs, name = self._runs, page.name
            found = before or runs.tried.pop(name, None) or runs.results.get(name)
            view.sliders.show_values(self._settings.get(name, found.chosen if found is not None else {}))
            view.sliders.changed.connect(lambda values: self._settings.update({page.name: values}))
            for button in (view.run, view.cancel, view.again, view.use):
                button.installEventFilter(self)
            view.show_result(found, self._predicted.get(name, -1))
            if name == runs.running and runs.pictures:
                view.show_pictures(runs.sides, runs.pictures)
            self._put(view)
        self._refresh()

    def _put(self, page: QWidget) -> None:
        """In the place of the page before, which lives on for one turn of the event loop: a press inside it may have
        asked for this one."""
        before = self._scroll.takeWidget()
        if before is not None:
            QTimer.singleShot(0, before.deleteLater)
        self._scroll.setWidget(page)

    def _refresh(self) -> None:
        """What depends on what runs, on the model and on whether something can run."""
        runs, own, pages = self._runs, self._own, list(self._runs.pages.values())
        comparing = {COMPARE} if self.compare.busy else set()
        measured = {ROOFLINE} if runs.roofline is not None else set()
        self.topics.show_states({runs.running} | comparing, {*runs.results} | measured)
        overview = self.view is None and self.roof is None
        blocked = self._blocked or (words.COMPARING if self.compare.busy else "")
        self.compare.set_blocked(self._blocked or (words.ELSEWHERE if runs.running else ""))
        self.save.setVisible(self.view is not None)
        self.everything.setVisible(overview and bool(pages))
        running = bool(runs.running)
        total = words.minutes(sum(page.seconds for page in pages if self._subject(page) is not None))
        cancel = words.STOPPING if runs.stopping else "Cancel"
        self.everything.setText(cancel if running else f"Run all, {total}")
        self.everything.setEnabled(running or not blocked)
        self.everything.setToolTip("" if running else blocked)
        self.models.setVisible(own is not None and bool(pages))
        if own is not None and runs.index is not None:
            if self._offered != (names := (runs.index.model, own.name)):  # else the keyboard would lose its place
                self._offered = names
                self.models.offer((_BUNDLED, _OWN), names)
            self.models.choose(_OWN if self._with_own else _BUNDLED)
        self.memory.setText(words.memory(own.name) if own is not None and self._with_own else "")
        self.memory.setVisible(bool(self.memory.text()))
        trouble = runs.trouble if runs.index is None else ""
        about = f"{words.INTRODUCTION} {words.where(runs.index)}" if runs.index is not None and overview else ""
        self.said.setText(trouble or (words.LOOKING if runs.index is None else about))
        self.said.setVisible(bool(self.said.text()))
        if self.roof is not None:
            here = runs.running == ROOFLINE
            elsewhere = words.ELSEWHERE if running and not here else ""
            self.roof.show_state(here, runs.stopping, elsewhere or blocked, runs.notes.get(ROOFLINE, ""))
            return
        if self.view is None:
            if self.overview is not None:
                self.overview.refresh()
            return
        page, name = self.view.page, self.view.page.name
        subject = self._subject(page)
        refused = words.refusal(page) if subject is None else ""
        elsewhere = words.ELSEWHERE if running and runs.running != name else ""
        by_model = bool(page.refused) and not self._with_own
        self.view.show_model(by_model, page.brings if by_model else "")
        self.view.show_state(
            runs.running == name, self._status(), runs.progress, elsewhere or blocked or refused,
            runs.notes.get(name, ""),
        )  # fmt: skip
        self.save.setEnabled(self.view.result is not None and runs.running != name)

    def _status(self) -> str:
        """What the run does."""
        runs = self._runs
        return words.STOPPING if runs.stopping else words.status(runs.sides, runs.progress, runs.preparing)

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

    def _loaded_subject(self) -> Subject:
        """The model that is chosen above."""
        return self._own if self._with_own and self._own is not None else Subject()

    def _on_result(self, name: str) -> None:
        runs = self._runs
        if name == runs.running and name not in runs.tried:
            self._predicted[name] = self._run_with.get(name, -1)
        if self.view is not None and self.view.page.name == name:
            self.view.show_result(runs.tried.pop(name, None) or runs.results[name], self._predicted.get(name, -1))
            if name == runs.running:  # what it taught comes into view
                self._teaching = True
                QTimer.singleShot(_SETTLE_MS, self.view, self._end_teaching)
        self._refresh()

    def _to_lesson(self) -> None:
        """The page has another height."""
        if self._teaching and self.view is not None and self.view.found is not None:
            self._scroll.ensureWidgetVisible(self.view.found.lesson)

    def _end_teaching(self) -> None:
        self._to_lesson()
        self._teaching = False

    def _on_model(self, key: str) -> None:
        self._with_own = key == _OWN
        self._refresh()

    def _subject(self, page: LabPage) -> Subject | None:
        """The model that an experiment runs with; None where the one that is chosen cannot show it."""
        if self._with_own and self._own is not None:
            return self._own
        if not page.refused:
            return Subject()
        return Subject(name=page.brings, path=page.brings) if page.brings else None

    def _run(self, chosen: Mapping[str, int]) -> None:
        assert self.view is not None
        page = self.view.page
        if (subject := self._subject(page)) is not None:
            self._start([(page.name, subject._replace(chosen=chosen))])

    def _start(self, runs: list[tuple[str, Subject]]) -> None:
        self._run_with = {name: self._choices.get(name, -1) for name, _ in runs}
        self._runs.start(runs)

    def _run_all(self) -> None:
        if self._runs.running:
            self._runs.cancel()
            return
        subjects = [(page.name, self._subject(page)) for page in self._runs.pages.values()]
        self._start([(name, subject) for name, subject in subjects if subject is not None])

    def _save_html(self) -> None:
        self._save(".html", "HTML (*.html)", save_html)

    def _save_png(self) -> None:
        self._save(".png", "PNG (*.png)", save_png)

    def _save(self, ending: str, kinds: str, write: Callable[[ExperimentView, Path], None]) -> None:
        view = self.view
        if view is None or view.result is None:
            return
        start = str(Path.home() / (words.file_name(view.result) + ending))
        path, _ = QFileDialog.getSaveFileName(self, "Save the result", start, kinds)
        if not path:
            return
        try:
            write(view, Path(path))
        except OSError as error:
            self._say(words.unwritten(error), "bad")
        else:
            self._say(words.saved(path), "caption")

    def _say(self, sentence: str, role: str = "caption") -> None:
        """What became of saving, until another page is shown."""
        self.saved.setText(sentence)
        self.saved.setVisible(bool(sentence))
        set_role(self.saved, role)


def _turn(event: QKeyEvent) -> int:
    """Which way it goes from side to side, 0 for another key; the keypad is no other key."""
    return 0 if event.modifiers() & ~_KEYPAD else _TURNS.get(event.key(), 0)
