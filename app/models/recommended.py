"""The recommended models of the Models page, shown until something is searched for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gpu.words import Button
from app.language import tr
from app.models import advice
from app.models.rows import Row
from app.models.state import getting
from app.theme.theme import Theme
from app.theme.widgets import Segments, Toggle, caption, clear, fill, named, say, tip
from engine.protocol import PURPOSES, Download, Purpose, Recommendation, StoredModel

FIRST = 10
"""Models that are shown before all are asked for."""
LEAD = tr("Models to begin with, those that suit this computer best first. Or search for any other.")
_PURPOSES: dict[Purpose, str] = {
    "chat": tr("chat", "a purpose of models"),
    "code": tr("code", "a purpose of models"),
    "reasoning": tr("reasoning", "a purpose of models"),
    "vision": tr("vision", "a purpose of models"),
    "small": tr("small", "a purpose of models"),
}


class RecommendedRow(Row):
    """One model. ``acted`` carries "get" or "load", or "draft" where only what drafts for it is to be downloaded."""

    def __init__(self, each: Recommendation, theme: Theme) -> None:
        model = each.model
        super().__init__(f"models.recommended.{model.repository}", model.repository, advice.about(model))
        self.at: StoredModel | None = None
        """The model, where it is on this machine."""
        self.show_verdict(each)
        self.trouble = named(caption(), f"models.recommended.{model.repository}.trouble", role="bad")
        self.trouble.hide()
        self.column.addWidget(self.trouble)
        words = advice.with_draft(each)
        self.draft = named(Toggle(theme, self), f"models.recommended.{model.repository}.draft", title=words)
        self.draft.setChecked(bool(words))
        self.draft.setVisible(bool(words))
        if words:
            line = fill(QHBoxLayout(), self.draft, spacing=8)
            about = caption(words)
            about.setToolTip(tip(tr("It drafts tokens that the model then checks several at a time (speculation).")))
            line.addWidget(about, 1)
            self.column.addLayout(line)

    def show_verdict(self, each: Recommendation) -> None:
        """The same model, judged again."""
        self.each = each
        word, tone = advice.VERDICTS[each.verdict]
        self.show_badge(word, tone)
        self.badge.setToolTip(tip(advice.verdict(each)))

    def show_state(
        self, stored: Sequence[StoredModel], downloads: Sequence[Download], loaded: str, refused: getting.Refused
    ) -> None:
        """Show whether the model is here, on its way, or loaded from the path ``loaded``, and why it is not coming."""
        model, draft = self.each.model, self.each.model.draft
        at = getting.place(model.repository, model.variant, stored, downloads)
        self.at = at.here
        why = refused.get((model.repository, model.variant))
        button = getting.button(at, loaded, tr("Get"), why)
        trouble = getting.trouble(at, why)
        if draft is None or not draft.repository:
            say(self.trouble, trouble)
            self.buttons.show_buttons((button,))
            return
        half = getting.place(draft.repository, draft.variant, stored, downloads)
        known = any(half)
        say(self.trouble, trouble or getting.trouble(half, refused.get((draft.repository, draft.variant))))
        self.draft.setEnabled(not known)
        more = not known and any(at)  # what drafts for it can still be downloaded
        self.buttons.show_buttons((*((Button("draft", tr("Get the draft")),) if more else ()), button))


class RecommendedView(QWidget):
    """``get_asked`` carries a repository, a variant and whether that drafts for another; ``load_asked`` a path."""

    get_asked = Signal(str, str, bool)
    load_asked = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        titles = (tr("all"), *(_PURPOSES[each] for each in PURPOSES))
        self.purposes = Segments(tr("What for"), ("", *PURPOSES), titles, "models.purpose")
        self.purposes.choose("")
        self.purposes.chosen.connect(self._choose)
        self._purpose = ""
        self._all = False
        self._state: tuple[Sequence[StoredModel], Sequence[Download], str, getting.Refused] = ((), (), "", {})
        """Models that are here, downloads on their way, the path of the loaded model, and downloads that did not begin.
        """
        self.rows: list[RecommendedRow] = []
        self._shown: Sequence[Recommendation] = ()
        self.lead = caption(LEAD, "models.recommended.lead")
        self.more = QPushButton(tr("Show more"))
        self.more.hide()
        named(self.more, "models.recommended.more", kind="quiet")
        self.more.clicked.connect(self._show_all)
        self._column = fill(QVBoxLayout(self), self.lead, self.purposes, self.more, 1, margins=0, spacing=8)

    def show_models(
        self,
        found: Sequence[Recommendation],
        stored: Sequence[StoredModel],
        downloads: Iterable[Download],
        loaded: str = "",
        refused: getting.Refused | None = None,
    ) -> None:
        """The models, best first. Rows stay where only figures changed, so that none is lost under the mouse."""
        same = _judged(found) == _judged(self._shown)
        self._shown = found
        if not same:
            self._fill()
        judged = {(each.model.repository, each.model.variant): each for each in found}
        for row in self.rows:
            row.show_verdict(judged[row.each.model.repository, row.each.model.variant])
        self._state = stored, list(downloads), loaded, refused or {}
        self._show_states()

    def _show_states(self) -> None:
        for row in self.rows:
            row.show_state(*self._state)

    def _choose(self, purpose: str) -> None:
        self._purpose = purpose
        self._fill()
        self._show_states()

    def _show_all(self) -> None:
        self._all = True
        self._fill()
        self._show_states()

    def _fill(self) -> None:
        clear(self._column, self.rows)
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
        too = tr("Show {left} more, {large} of them too large for this machine", left=left, large=large)
        self.more.setText(too if large else tr("Show {left} more", left=left))
        self.more.setVisible(left > 0)

    def _on_acted(self, key: str, row: RecommendedRow) -> None:
        model, draft = row.each.model, row.each.model.draft
        if key == "load" and row.at is not None:
            self.load_asked.emit(row.at.path)
            return
        if key == "get":
            self.get_asked.emit(model.repository, model.variant, False)
        if (
            draft is not None
            and draft.repository
            and row.draft.isEnabled()
            and (key == "draft" or row.draft.isChecked())
        ):
            self.get_asked.emit(draft.repository, draft.variant, True)


def _judged(found: Sequence[Recommendation]) -> list[tuple[str, str, str]]:
    return [(each.model.repository, each.model.variant, each.verdict) for each in found]
