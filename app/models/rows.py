"""The rows of the Models page: a name, what is known of it, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.gpu.card import Buttons, ProgressBar
from app.gpu.words import Button
from app.language import tr
from app.models import advice, make_words, words
from app.models.drafts import DraftList
from app.models.fit_bar import FitBar, parts_of
from app.models.state import getting
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, as_written, caption, fill, named, show_badge, take_out, tip
from engine.protocol import Download, FitReport, HubModel, HubRepository, HubVariant, MakeProgress, SizeFit, StoredModel


class Row(QFrame):
    """``acted`` carries a button's key."""

    acted = Signal(str)

    def __init__(self, name: str, title: str, about: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, name, card="choice")
        self.title = ElidedLabel(title, "figure")
        self.about = caption()
        self.badge = QLabel()
        self.badge.hide()
        self.buttons = Buttons(name)
        self.buttons.pressed.connect(self.acted)
        head = fill(QHBoxLayout(), (self.title, 1), self.badge, spacing=8)
        lines = fill(QVBoxLayout(), head, self.about, spacing=2)
        top = fill(QHBoxLayout(), (lines, 1), (self.buttons, 0, Qt.AlignmentFlag.AlignVCenter), spacing=16)
        self.column = fill(QVBoxLayout(self), top, margins=(14, 10, 12, 10), spacing=8)
        self.show_about(about)

    def show_about(self, about: str) -> None:
        """Show the present description."""
        self.about.setText(about)
        self.setAccessibleName(f"{self.title.text()}. {about}")

    def show_badge(self, text: str, tone: str) -> None:
        """A word next to the name; "" takes it away."""
        show_badge(self.badge, text, tone)


class StoredRow(Row):
    """A model of this machine: "load", "settings", "drafts", "details", "make" a smaller one of it, "report" of one
    that was made, and "remove" for one that was fetched, imported or made."""

    def __init__(self, model: StoredModel, loaded: bool, fit: SizeFit | None = None) -> None:
        super().__init__(f"models.stored.{model.name}", model.name, words.stored(model))
        self.drafts: DraftList | None = None
        """Drafts for the model, while they are shown."""
        self.setToolTip(as_written(model.path))
        self.show_model(model, loaded, fit)

    def show_model(self, model: StoredModel, loaded: bool, fit: SizeFit | None = None) -> None:
        """The same model, of which something may have changed. ``fit``: whether it runs here, where that is known."""
        self.model = model
        self.show_about(words.stored(model))
        why = getting.LOADED if loaded else ""
        if model.missing:
            self.buttons.show_buttons(words.removal(model, why))
            self.show_badge(tr("missing"), "warn")
            return
        report = (Button("report", tr("Report")),) if model.report is not None else ()
        make = (Button("make", tr("Make smaller…")),) if make_words.can_be_made_smaller(model) else ()
        more = (
            Button("details", tr("Details")),
            Button("drafts", tr("Drafts")),
            Button("settings", tr("Load settings…")),
            *make,
        )
        self.buttons.show_buttons(
            (*report, Button("load", tr("Load"), why_not=why)), (*more, *words.removal(model, why))
        )
        word, tone = (tr("loaded"), "good") if loaded else advice.VERDICTS[fit.verdict if fit is not None else ""]
        self.show_badge(word, tone)
        self.badge.setToolTip(tip(fit.sentence) if fit is not None and not loaded else "")

    def show_drafts(self, drafts: DraftList | None) -> None:
        """Put these in the place of those that are shown; None: show none."""
        if self.drafts is not None:
            take_out(self.drafts)
        self.drafts = drafts
        if drafts is not None:
            self.column.insertWidget(1, drafts)


class HubRow(Row):
    """A repository; opened, it shows the models in it. ``acted`` carries "open" or "close", or "get " or "load " and a
    variant's name."""

    def __init__(self, model: HubModel, theme: Theme) -> None:
        super().__init__(f"models.hub.{model.repository}", model.repository, words.found(model))
        self._theme = theme
        self.repository = model.repository
        self._inside = fill(QVBoxLayout(), spacing=4)
        self.column.addLayout(self._inside)
        self._rows: list[QWidget] = []
        self._told: object = None
        """Content that is shown inside."""
        self.show_badge(tr("gated") if model.gated else "", "warn")
        self.close_up()

    def close_up(self) -> None:
        """Only the name."""
        self._clear()
        self.buttons.show_buttons((Button("open", tr("Show files")),))

    def wait(self) -> None:
        """While the hub is asked."""
        self._clear()
        self._add(caption(tr("Asking the hub what is in it…")))
        self.buttons.show_buttons((Button("close", tr("Close")),))

    def show_inside(
        self,
        answer: HubRepository | str,
        buttons: Mapping[str, Button],
        fits: dict[str, FitReport],
        fitting: bool,
        troubles: Mapping[str, str],
    ) -> None:
        """``buttons``: what can be done with the variants, by their names. ``fits``: by such names; ``fitting``: they
        are being planned. ``troubles``: by such names, the reason that it is not coming, "" for none."""
        told = (answer, buttons, fits, fitting, troubles)
        if told == self._told:
            return
        self._clear()
        self._told = told
        sentence = answer if isinstance(answer, str) else answer.refused
        if sentence:
            label = caption(sentence)
            set_role(label, "bad" if isinstance(answer, str) else "caption")
            self._add(label)
        if isinstance(answer, HubRepository):
            large = [name for name, report in fits.items() if report.verdict == "too large"]
            best, reason = getting.recommended(answer.variants, answer.model.parameters, large) or ("", "")
            for variant in answer.variants:
                self._add_variant(
                    variant, buttons[variant.name], fits.get(variant.name), reason if variant.name == best else ""
                )
                if troubles[variant.name]:
                    self._add(named(caption(troubles[variant.name]), f"models.trouble.{variant.name}", role="bad"))
        if fitting:
            self._add(caption(tr("Checking whether they fit…")))

    def _add_variant(self, variant: HubVariant, button: Button, report: FitReport | None, reason: str) -> None:
        """``reason``: why it is the one to take, "" for the others."""
        line = QWidget()
        row = fill(QHBoxLayout(line), margins=0, spacing=12)
        name = ElidedLabel(words.variant(variant), "mute" if button.key == "load" else "")
        name.setToolTip(as_written(variant.name))
        buttons = Buttons(f"models.variant.{variant.name}")
        buttons.show_buttons((button,))
        buttons.pressed.connect(lambda key: self.acted.emit(f"{key} {variant.name}"))
        row.addWidget(name, 1)
        if reason:
            badge = _badge(tr("recommended"), f"models.best.{variant.name}", "good", reason)
            row.addWidget(badge, 0, Qt.AlignmentFlag.AlignVCenter)
        if report is not None:
            said = words.fitting(report)
            parts = parts_of(report)
            for shown in (
                _badge(words.VERDICTS[report.verdict], f"models.fit.{variant.name}", words.TONES[report.verdict], said),
                *([FitBar(self._theme, parts)] if parts is not None else []),
                _column(words.speed(report), words.rate("9999")),
            ):
                shown.setToolTip(tip(said))
                row.addWidget(shown, 0, Qt.AlignmentFlag.AlignVCenter)
        fill(row, _column(words.size(variant.bytes), "999.9 GB"), buttons)
        self._add(line)
        if reason:
            self._add(caption(reason))
        if report is not None and report.verdict == "tight":
            self._add(caption(" ".join(words.advice(report))))

    def _add(self, widget: QWidget) -> None:
        self._rows.append(widget)
        self._inside.addWidget(widget)

    def _clear(self) -> None:
        for widget in self._rows:
            take_out(widget)
        self._rows, self._told = [], None
        self.buttons.show_buttons((Button("close", tr("Close")),))


def _badge(text: str, name: str, tone: str, why: str) -> QLabel:
    badge = named(QLabel(), name)
    show_badge(badge, text, tone)
    badge.setToolTip(tip(why))
    return badge


def _column(text: str, widest: str) -> QLabel:
    """Figures that stand below each other."""
    label = named(QLabel(text, alignment=Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), role="caption")
    label.setMinimumWidth(label.fontMetrics().horizontalAdvance(widest))
    return label


class JobRow(Row):
    """A download, or a model that is being made: "pause", "resume", "cancel"."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "", "")
        self.bar = ProgressBar(tr("Progress"))
        self.column.addWidget(self.bar)

    def show_job(self, job: Download | MakeProgress, said: words.Said) -> None:
        """Show the present progress of the job."""
        self.title.setText(said.title)
        self.show_about(said.about)
        set_role(self.about, "bad" if job.state == "failed" else "caption")
        self.bar.setAccessibleName(tr("Progress of {title}", title=said.title))
        self.bar.show_share(job.done / job.total if job.total else 0.0)
        again = tr("Try again") if job.state == "failed" else tr("Resume")
        rests = job.state in ("paused", "failed")
        go = Button("resume", again) if rests else Button("pause", tr("Pause"), why_not=said.stopping)
        over = job.state == "done"
        self.buttons.show_buttons(() if over else (Button("cancel", said.cancel), go))


def back_button(name: str) -> QPushButton:
    """From the view of one model to the list."""
    return named(QPushButton(tr("‹ Back")), name, title=tr("Back to the models"), kind="quiet")
