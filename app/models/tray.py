"""Tray of jobs for this machine's models: downloads, and models that are being made of others."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import PurePath

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QLabel, QScrollArea, QVBoxLayout, QWidget

from app.language import tr
from app.models import make_words, words
from app.models.rows import JobRow
from app.models.state.jobs import Job, Jobs
from app.models.state.library import ModelLibrary
from app.theme.question import ask
from app.theme.widgets import clear, fill, named
from engine.protocol import Download, MakeProgress

_STOPPING = tr("It stops at a point that it can continue from.")


class Tray(QWidget):
    """Hidden while nothing is."""

    def __init__(self, library: ModelLibrary, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("models.downloads")
        self._library = library
        self.downloads: dict[Hashable, JobRow] = {}
        self.makes: dict[Hashable, JobRow] = {}
        head = named(QLabel(tr("In progress")), role="section")
        self._scroll = _TrayRows()
        fill(QVBoxLayout(self), head, self._scroll, margins=0, spacing=6)
        self.hide()
        library.downloads.changed.connect(self._show_downloads)
        library.maker.changed.connect(self._show_makes)
        library.stored_changed.connect(self._show_makes)  # which has their names

    def _show_downloads(self) -> None:
        self._show(self._library.downloads, self.downloads, self._said_of_download)

    def _show_makes(self) -> None:
        self._show(self._library.maker, self.makes, self._said_of_make)

    def _show(
        self, jobs: Jobs[Job], rows: dict[Hashable, JobRow], say: Callable[[Job, bool], tuple[str, words.Said]]
    ) -> None:
        for key in set(rows) - set(jobs.jobs):
            clear(self._scroll.column, [rows.pop(key)])
        for key, job in jobs.jobs.items():
            name, said = say(job, jobs.stopping(key))
            if key not in rows:
                rows[key] = row = JobRow(name)
                row.acted.connect(lambda act, key=key: self._act(jobs, act, key))
                self._scroll.column.addWidget(row)
            rows[key].show_job(job, said)
        self.setVisible(bool(self.downloads or self.makes))

    def _act(self, jobs: Jobs[Job], act: str, key: Hashable) -> None:
        job = jobs.jobs[key]
        if act == "cancel" and isinstance(job, MakeProgress) and job.id:
            self._ask_discard(job, lambda: jobs.cancel(key))
        else:
            {"pause": jobs.pause, "resume": jobs.resume, "cancel": jobs.cancel}[act](key)

    def _ask_discard(self, job: MakeProgress, discard: Callable[[], object]) -> None:
        question = tr("Discard {title}? What was done of it is deleted.", title=self._title_of(job))
        title = tr("Discard what is being made")
        ask(self.window(), "models.discard", title, question, tr("Discard"), discard)

    def _said_of_download(self, job: Download, stopping: bool) -> tuple[str, words.Said]:
        variant = "" if job.variant == "safetensors" else f"  {job.variant}"
        said = words.Said(f"{job.repository}{variant}", words.download(job), _STOPPING if stopping else "")
        return f"models.download.{job.repository}", said

    def _said_of_make(self, job: MakeProgress, stopping: bool) -> tuple[str, words.Said]:
        said = words.Said(
            self._title_of(job), make_words.progress(job, stopping), _STOPPING if stopping else "", tr("Discard")
        )
        return f"models.make.{self._name_of(job)}.{job.to}", said

    def _title_of(self, job: MakeProgress) -> str:
        return make_words.made_of(job.to, self._name_of(job))

    def _name_of(self, job: MakeProgress) -> str:
        return next((each.name for each in self._library.stored if each.path == job.model), PurePath(job.model).name)


class _TrayRows(QScrollArea):
    """Rows as high as what is in their ``column``, up to two rows and a half: more are scrolled to."""

    def __init__(self) -> None:
        super().__init__()
        inside = QWidget()
        self.column = fill(QVBoxLayout(inside), margins=(0, 0, 6, 0), spacing=6)
        self.setWidget(inside)
        self.setWidgetResizable(True)
        named(self, focusPolicy=Qt.FocusPolicy.NoFocus, horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        policy = self.sizePolicy()
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.LayoutRequest:  # a row came, went or says more: no layout tells that
            self.updateGeometry()
        return super().event(event)

    def heightForWidth(self, width: int) -> int:
        first = self.column.itemAt(0)
        if first is None:
            return 0
        return min(self.column.totalHeightForWidth(width), round(2.5 * first.heightForWidth(width)))
