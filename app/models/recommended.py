"""The recommended models of the Models page, shown until something is searched for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gpu.words import Button
from app.models import advice
from app.models.rows import Row
from app.theme.theme import Theme
from app.theme.widgets import Segments, Toggle, caption, tip
from engine.protocol import PURPOSES, Download, Recommendation, StoredModel

FIRST = 10
"""Models that are shown before all are asked for."""
LEAD = "Models to begin with, those that suit this machine best first. Or search for any other."


class RecommendedRow(Row):
    """One model. ``acted`` carries "get", or "draft" where only what drafts for it is to be fetched."""

    def __init__(self, each: Recommendation, theme: Theme) -> None:
        model = each.model
        super().__init__(f"models.recommended.{model.repository}", model.repository, advice.about(model))
        self.each = each
        word, tone = advice.VERDICTS[each.verdict]
        self.show_badge(word, tone)
        self.badge.setToolTip(tip(advice.verdict(each)))
        words = advice.with_draft(each)
        self.draft = Toggle(theme)
        self.draft.setObjectName(f"models.recommended.{model.repository}.draft")
        self.draft.setAccessibleName(words)
        self.draft.setChecked(bool(words))
        self.draft.setVisible(bool(words))
        if words:
            line = QHBoxLayout()
            line.setSpacing(8)
            line.addWidget(self.draft)
            about = caption(words)
            about.setToolTip(tip("It drafts tokens that the model then checks several at a time (speculation)."))
            line.addWidget(about, 1)
            self.column.addLayout(line)

    def show_state(self, stored: Sequence[StoredModel], downloads: Iterable[Download]) -> None:
        """Whether it is here, or on its way."""
        model = self.each.model
        draft = model.draft
        downloads = list(downloads)
        here = advice.there(model.repository, model.variant, stored)
        comes = advice.coming(model.repository, model.variant, downloads)
        why = "It is on this machine." if here else "It is on its way." if comes else ""
        if draft is not None and draft.repository:
            known = advice.there(draft.repository, draft.variant, stored) or advice.coming(
                draft.repository, draft.variant, downloads
            )
            self.draft.setEnabled(not known)
            if not known and why:  # what drafts for it can still be fetched
                self.buttons.show_buttons((Button("draft", "Get the draft"),))
                return
        self.buttons.show_buttons((Button("get", "Get", why_not=why),))


class RecommendedView(QWidget):
    """``get_asked`` carries a repository and a variant."""

    get_asked = Signal(str, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.purposes = Segments("What for", ("", *PURPOSES), ("all", *PURPOSES), "models.purpose")
        self.purposes.choose("")
        self.purposes.chosen.connect(self._choose)
        self._purpose = ""
        self._all = False
        self._stored: Sequence[StoredModel] = ()
        self._downloads: list[Download] = []
        self.rows: list[RecommendedRow] = []
        self._shown: Sequence[Recommendation] = ()
        self.lead = caption(LEAD, "models.recommended.lead")
        self.more = QPushButton("Show more")
        self.more.hide()
        self.more.setObjectName("models.recommended.more")
        self.more.setProperty("kind", "quiet")
        self.more.clicked.connect(self._show_all)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 6, 0)
        self._column.setSpacing(8)
        self._column.addWidget(self.lead)
        self._column.addWidget(self.purposes)
        self._column.addWidget(self.more)
        self._column.addStretch(1)

    def show_models(
        self, found: Sequence[Recommendation], stored: Sequence[StoredModel], downloads: Iterable[Download]
    ) -> None:
        """The models, best first."""
        if found is not self._shown:
            self._shown = found
            self._fill()
        self.show_state(stored, downloads)

    def show_state(self, stored: Sequence[StoredModel], downloads: Iterable[Download]) -> None:
        """What of them is here and on its way."""
        self._stored, self._downloads = stored, list(downloads)
        for row in self.rows:
            row.show_state(stored, self._downloads)

    def _choose(self, purpose: str) -> None:
        self._purpose = purpose
        self._fill()
        self.show_state(self._stored, self._downloads)

    def _show_all(self) -> None:
        self._all = True
        self._fill()
        self.show_state(self._stored, self._downloads)

    def _fill(self) -> None:
        for row in self.rows:
            self._column.removeWidget(row)
            row.hide()
            row.setObjectName("")  # it lives until the event loop has its turn, and must not be found
            row.deleteLater()
        self.rows = []
        wanted = [each for each in self._shown if not self._purpose or self._purpose in each.model.purposes]
        suit = [each for each in wanted if each.verdict != "too large"][:FIRST]
        shown = wanted if self._all else suit
        for each in shown:
            row = RecommendedRow(each, self._theme)
            row.acted.connect(lambda key, row=row: self._on_acted(key, row))
            self.rows.append(row)
            self._column.insertWidget(self._column.count() - 2, row)
        left = len(wanted) - len(shown)
        large = sum(each.verdict == "too large" for each in wanted)
        too = f", {large} of them too large for this machine" if large else ""
        self.more.setText(f"Show {left} more{too}")
        self.more.setVisible(left > 0)

    def _on_acted(self, key: str, row: RecommendedRow) -> None:
        model, draft = row.each.model, row.each.model.draft
        if key == "get":
            self.get_asked.emit(model.repository, model.variant)
        if (
            draft is not None
            and draft.repository
            and row.draft.isEnabled()
            and (key == "draft" or row.draft.isChecked())
        ):
            self.get_asked.emit(draft.repository, draft.variant)
