"""Above the transcript: what drafts for the model, its notes, how full its context is, and the chat's settings."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QIcon, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from app.chat.context.bar import ContextBar
from app.chat.notes import NotesButton
from app.language import tr
from app.link.link import EngineLink
from app.models import cards
from app.models.state.loads import ModelLoads
from app.theme.icons import icon
from app.theme.theme import Theme
from app.theme.widgets import fill, named, tip
from engine import protocol

GAP = 12
MINIMUM = 240
MARGINS = (24, 8, 16, 8)
TINT, SETTINGS = tr("Speculation"), tr("Chat settings")
ICON_PX = 16
DRAFT_PX = 120
"""The draft's name is not shown with less room than this: its beginning alone says nothing."""
DRAFT_HELP = tr("Drafts the next tokens, which the model then checks all at once: speculative decoding")
TINT_HELP = tr("Highlight drafted tokens: accepted ones, and the model's where a draft was rejected")
FORMS = (
    (True, True, True, True),
    (False, True, True, True),
    (False, False, True, True),
    (False, False, False, True),
    (False, False, False, False),
)
"""What is written out as room gets less: the tokens that are kept, the word of the tints, the bar of the context, the
word of the settings."""


class Header(QFrame):
    """Follows the link and the loads by itself."""

    settings_asked = Signal()

    def __init__(self, link: EngineLink, loads: ModelLoads, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link, self._loads = link, loads
        self._remote: protocol.RemoteModel | None = None
        named(self, "chat-header", surface="bg", edge="bottom", minimumWidth=MINIMUM)
        self.draft = named(QLabel(self), "draft-label", role="mute", tooltip=tip(DRAFT_HELP))
        self.warning = NotesButton(theme, self)
        self._theme = theme
        self.context = ContextBar(theme, self)
        self.tint = QPushButton(self)
        """Checked if words are tinted; its owner says what a click does."""
        named(self.tint, "tint-button", kind="quiet", checkable=True)
        named(self.tint, title=tr("Highlight drafted tokens"), tooltip=tip(TINT_HELP))
        self.settings = named(QPushButton(SETTINGS, self), "chat-settings-button")
        named(self.settings, title=SETTINGS, tooltip=tr("System prompt and sampling of this chat"), kind="quiet")
        self.settings.clicked.connect(self.settings_asked)
        self._row = row = QHBoxLayout(self)
        row.setContentsMargins(*MARGINS)
        fill(row, self.draft, self.warning, 1, self.context, self.tint, self.settings, spacing=GAP)
        self.context.changed.connect(lambda: self._fit(self.width()))
        loads.changed.connect(self.refresh)
        theme.changed.connect(self._recolour)
        self._recolour()
        self.refresh()

    def set_remote(self, remote: protocol.RemoteModel | None) -> None:
        """The model of another server that answers in the chat on screen."""
        if remote != self._remote:
            self._remote = remote
            self.refresh()

    def refresh(self) -> None:
        card = self._link.card if self._remote is None else None
        notices = [*card.notices, *([card.draft_refused] if card.draft_refused else [])] if card is not None else []
        self.warning.say(notices)
        self._fit(self.width())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():  # a fit can change the height, which must not fit again
            self._fit(event.size().width())

    def _fit(self, width: int) -> None:
        """Write out the most that ``width`` pixels hold; the draft's name takes what is left.

        Each form is measured as it would be, whatever is shown now: one width has one form. Nothing is laid out
        meanwhile, which showing a part would do at once.
        """
        self._row.setEnabled(False)
        self._choose(width)
        self._row.setEnabled(True)
        self._row.invalidate()
        self._row.activate()

    def _choose(self, width: int) -> None:
        room = width - MARGINS[0] - MARGINS[2] - self._taken(self.warning)
        for form in FORMS:
            self._write(*form)
            left = room - self._taken(self.context, self.tint, self.settings)
            if left >= 0:
                break
        metrics, forms = self.draft.fontMetrics(), self._drafters()
        said = next((each for each in forms if metrics.horizontalAdvance(each) <= left), forms[-1])
        self.draft.setText(metrics.elidedText(said, Qt.TextElideMode.ElideRight, max(0, left)))
        self.draft.setVisible(bool(said) and left >= min(DRAFT_PX, metrics.horizontalAdvance(said)))

    def _write(self, kept: bool, tint: bool, bar: bool, settings: bool) -> None:
        self.context.kept.setVisible(kept and bool(self.context.kept.text()))
        self.tint.setText(TINT if tint else "")
        self.context.bar.setVisible(bar)
        self.settings.setText(SETTINGS if settings else "")
        side = self._theme.px(ICON_PX)
        self.settings.setIcon(QIcon() if settings else icon(self._theme, "settings", side))

    def _drafters(self) -> tuple[str, ...]:
        """Descriptions of what drafts for the loaded model, from long to short; "" without any."""
        card = self._link.card if self._remote is None else None
        return ("",) if card is None or self._loads.loading is not None else cards.drafters(card)

    def _taken(self, *widgets: QWidget) -> int:
        """The width of those widgets that show, pixels, with the gaps next to them."""
        return sum(widget.sizeHint().width() + GAP for widget in widgets if not widget.isHidden())

    def _recolour(self) -> None:
        self.warning.recolour()
        side = self._theme.px(ICON_PX)
        self.tint.setIcon(icon(self._theme, "tint", side))
        for button in (self.tint, self.settings):
            button.setIconSize(QSize(side, side))
        self._fit(self.width())
