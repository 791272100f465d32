"""The rows of the Models page: a name, what is known of it, and what can be done."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.gpu.card import Buttons, ProgressBar
from app.gpu.words import Button
from app.models import make_words, words
from app.models.drafts import DraftList
from app.models.fit_bar import FitBar, parts_of
from app.theme.sheet import restyle, set_role
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, as_written, caption, tip
from engine.protocol import Download, FitReport, HubModel, HubRepository, MakeProgress, StoredModel


class Row(QFrame):
    """``acted`` carries a button's key."""

    acted = Signal(str)

    def __init__(self, name: str, title: str, about: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setProperty("card", "choice")
        self.title = ElidedLabel(title, "figure")
        self.about = caption()
        self.badge = QLabel()
        self.badge.hide()
        self.buttons = Buttons(name)
        self.buttons.pressed.connect(self.acted)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self.title, 1)
        head.addWidget(self.badge)
        lines = QVBoxLayout()
        lines.setSpacing(2)
        lines.addLayout(head)
        lines.addWidget(self.about)
        top = QHBoxLayout()
        top.setSpacing(16)
        top.addLayout(lines, 1)
        top.addWidget(self.buttons, 0, Qt.AlignmentFlag.AlignVCenter)
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(14, 10, 12, 10)
        self.column.setSpacing(8)
        self.column.addLayout(top)
        self.show_about(about)

    def show_about(self, about: str) -> None:
        """What is known of it now."""
        self.about.setText(about)
        self.setAccessibleName(f"{self.title.text()}. {about}")

    def show_badge(self, text: str, tone: str) -> None:
        """A word next to the name; "" takes it away."""
        self.badge.setText(text)
        if self.badge.property("badge") != tone:
            self.badge.setProperty("badge", tone)
            restyle(self.badge)
        self.badge.setVisible(bool(text))


class StoredRow(Row):
    """A model of this machine: "load", "settings", "drafts", "details", "make" a smaller one of it, "report" of one
    that was made, and "remove" for one that was fetched, imported or made."""

    def __init__(self, model: StoredModel, loaded: bool) -> None:
        super().__init__(f"models.stored.{model.name}", model.name, words.stored(model))
        self.drafts: DraftList | None = None
        """What can draft for the model, where that is shown."""
        self.setToolTip(as_written(model.path))
        self.show_model(model, loaded)

    def show_model(self, model: StoredModel, loaded: bool) -> None:
        """The same model, of which something may have changed."""
        self.model = model
        self.show_about(words.stored(model))
        why = "It is loaded." if loaded else ""
        if model.missing:
            self.buttons.show_buttons(words.removal(model, why))
            self.show_badge("missing", "warn")
            return
        report = (Button("report", "Report"),) if model.made_of else ()
        make = (Button("make", "Make smaller…"),) if make_words.can_be_made_smaller(model) else ()
        more = (Button("details", "Details"), Button("drafts", "Drafts"), Button("settings", "Load settings…"), *make)
        self.buttons.show_buttons((*report, Button("load", "Load", why_not=why)), (*more, *words.removal(model, why)))
        self.show_badge("loaded" if loaded else "", "good")

    def show_drafts(self, drafts: DraftList | None) -> None:
        """Put these in the place of those that are shown; None: show none."""
        if self.drafts is not None:
            self.drafts.hide()
            self.drafts.setParent(None)
            self.drafts.deleteLater()
        self.drafts = drafts
        if drafts is not None:
            self.column.insertWidget(1, drafts)


class HubRow(Row):
    """A repository; opened, it shows the models in it. ``acted`` carries "open", or "get " and a variant's name."""

    def __init__(self, model: HubModel, theme: Theme) -> None:
        super().__init__(f"models.hub.{model.repository}", model.repository, words.found(model))
        self._theme = theme
        self.repository = model.repository
        self._inside = QVBoxLayout()
        self._inside.setSpacing(4)
        self.column.addLayout(self._inside)
        self._rows: list[QWidget] = []
        self._told: object = None
        """What is shown inside."""
        self.show_badge("gated" if model.gated else "", "warn")
        self.close_up()

    def close_up(self) -> None:
        """Only the name."""
        self._clear()
        self.buttons.show_buttons((Button("open", "Show files"),))

    def wait(self) -> None:
        """While the hub is asked."""
        self._clear()
        self._add(caption("Asking the hub what is in it…"))
        self.buttons.show_buttons((Button("close", "Close"),))

    def show_inside(
        self, answer: HubRepository | str, here: set[str], coming: set[str], fits: dict[str, FitReport], fitting: bool
    ) -> None:
        """``here`` and ``coming``: names of variants that are on this machine, and on their way. ``fits``: by such
        names; ``fitting``: they are being planned."""
        told = (answer, here, coming, fits, fitting)
        if told == self._told:
            return
        self._clear()
        self._told = told
        sentence = answer if isinstance(answer, str) else answer.refused
        if sentence:
            label = caption(sentence)
            set_role(label, "bad" if isinstance(answer, str) else "caption")
            self._add(label)
        for variant in () if isinstance(answer, str) else answer.variants:
            title = words.variant(variant)
            line = QWidget()
            row = QHBoxLayout(line)
            row.setContentsMargins(0, 0, 0, 0)
            row.setSpacing(12)
            name = ElidedLabel(title, "mute" if variant.name in here else "")
            name.setToolTip(as_written(variant.name))
            held = _column(words.size(variant.bytes), "999.9 GB")
            buttons = Buttons(f"models.variant.{variant.name}")
            why = (
                "It is on this machine."
                if variant.name in here
                else "It is on its way."
                if variant.name in coming
                else ""
            )
            buttons.show_buttons((Button("get", "Download", why_not=why),))
            buttons.pressed.connect(lambda _, name=variant.name: self.acted.emit(f"get {name}"))
            row.addWidget(name, 1)
            report = fits.get(variant.name)
            if report is not None:
                badge = QLabel(report.verdict)
                badge.setObjectName(f"models.fit.{variant.name}")
                badge.setProperty("badge", words.TONES[report.verdict])
                pace = _column(words.speed(report), "≈ 9999 tokens/s")
                parts = parts_of(report)
                bar = [FitBar(self._theme, parts)] if parts is not None else []
                for shown in (badge, *bar, pace):
                    shown.setToolTip(tip(words.fitting(report)))
                    row.addWidget(shown, 0, Qt.AlignmentFlag.AlignVCenter)
            row.addWidget(held)
            row.addWidget(buttons)
            self._add(line)
            if report is not None and report.verdict == "tight":
                self._add(caption(" ".join(words.advice(report))))
        if fitting:
            self._add(caption("Planning whether they fit…"))

    def _add(self, widget: QWidget) -> None:
        self._rows.append(widget)
        self._inside.addWidget(widget)

    def _clear(self) -> None:
        for widget in self._rows:
            widget.hide()
            widget.setParent(None)
            widget.deleteLater()
        self._rows, self._told = [], None
        self.buttons.show_buttons((Button("close", "Close"),))


def _column(text: str, widest: str) -> QLabel:
    """Figures that stand below each other."""
    label = QLabel(text)
    label.setProperty("role", "caption")
    label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    label.setMinimumWidth(label.fontMetrics().horizontalAdvance(widest))
    return label


class JobRow(Row):
    """A download, or a model that is being made: "pause", "resume", "cancel"."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "", "")
        self.bar = ProgressBar("Progress")
        self.column.addWidget(self.bar)

    def show_job(self, job: Download | MakeProgress, said: words.Said) -> None:
        """How far it is now."""
        self.title.setText(said.title)
        self.show_about(said.about)
        set_role(self.about, "bad" if job.state == "failed" else "caption")
        self.bar.setAccessibleName(f"Progress of {said.title}")
        self.bar.show_share(job.done / job.total if job.total else 0.0)
        again = "Try again" if job.state == "failed" else "Resume"
        rests = job.state in ("paused", "failed")
        go = Button("resume", again) if rests else Button("pause", "Pause", why_not=said.stopping)
        over = job.state == "done"
        self.buttons.show_buttons(() if over else (Button("cancel", said.cancel), go))


def back_button(name: str) -> QPushButton:
    """From the view of one model to the list."""
    button = QPushButton("‹ Back")
    button.setObjectName(name)
    button.setAccessibleName("Back to the models")
    button.setProperty("kind", "quiet")
    return button
