"""Above the transcript: which model answers, with which draft, how full its context is, and the chat's settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QIcon, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QLabel, QMenu, QPushButton, QWidget

from app.chat.context_bar import ContextBar
from app.link.link import EngineLink, LinkState
from app.proposers import proposer
from app.theme.icons import icon
from app.theme.theme import Theme
from engine import protocol

GAP = 12
MINIMUM = 400
MARGINS = 40 + 48
"""Pixels of the row's own margins, and of the selector's padding and arrow."""
GGUF_FILTER = "GGUF models (*.gguf)"
DRAFT_FILTER = "GGUF draft models and heads (*.gguf *.safetensors *.pt *.bin)"
HEADS_HELP = "A folder of Medusa or EAGLE heads made for the model serves as well as a draft model."
TINT = "Guesses"
DRAFT_PX = 120
"""Less than this of the draft's name says nothing."""
ICON_GAP = 6
"""Pixels between a button's icon and its text."""
TINT_HELP = "Tint the words of the answers by who wrote them: guessed ahead, corrected, the model's own (Ctrl+Shift+T)"
NARROW = 700
"""Below this width of the page, pixels, the header leaves out what the selector's tooltip says too."""


class Header(QFrame):
    """Follows the link by itself; loads go to the link, everything else comes out as signals."""

    settings_asked = Signal()

    def __init__(self, link: EngineLink, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._loading: protocol.Loading | None = None
        self.load_options: Callable[[], protocol.LoadOptions] = protocol.LoadOptions
        self.default_draft: Callable[[], str | None] = lambda: None
        self.setProperty("surface", "bg")
        self.setProperty("edge", "bottom")
        self.setObjectName("chat-header")
        self.setMinimumWidth(MINIMUM)
        self.model = QPushButton(self)
        self.model.setObjectName("model-selector")
        self._menu = QMenu(self.model)
        self._menu.aboutToShow.connect(self.fill_menu)
        self.model.setMenu(self._menu)
        self.draft = QLabel(self)
        self.draft.setProperty("role", "mute")
        self.draft.setObjectName("draft-label")
        self.warning = QPushButton("▲", self)
        self.warning.setProperty("kind", "link")
        self.warning.setObjectName("model-notices")
        self.warning.setAccessibleName("What this model does without, and why")
        self._theme = theme
        self._notices_menu = QMenu(self.warning)
        self.warning.setMenu(self._notices_menu)
        self.context = ContextBar(theme, self)
        self.tint = QPushButton(self)
        """Whether words are tinted; its owner says what a click does."""
        self.tint.setObjectName("tint-button")
        self.tint.setProperty("kind", "quiet")
        self.tint.setCheckable(True)
        self.tint.setAccessibleName("Tint guessed words")
        self.tint.setToolTip(TINT_HELP)
        self.settings = QPushButton("Chat settings", self)
        self.settings.setObjectName("chat-settings-button")
        self.settings.setProperty("kind", "quiet")
        self.settings.setAccessibleName("Chat settings")
        self.settings.setToolTip("System prompt and sampling of this chat")
        self.settings.clicked.connect(self.settings_asked)
        row = QHBoxLayout(self)
        row.setContentsMargins(24, 8, 16, 8)
        row.setSpacing(GAP)
        for widget in (self.model, self.draft, self.warning):
            row.addWidget(widget)
        row.addStretch(1)
        for widget in (self.context, self.tint, self.settings):
            row.addWidget(widget)
        self.context.changed.connect(lambda: self._fit(self.width()))
        link.loading.connect(self._on_loading)
        link.loaded.connect(self._on_settled)
        link.unloaded.connect(self._on_settled)
        link.welcomed.connect(self._on_settled)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_settled)
        theme.changed.connect(self._recolour)
        self._recolour()
        self.refresh()

    @property
    def loading(self) -> protocol.Loading | None:
        """The last report of a load that is under way."""
        return self._loading

    def refresh(self) -> None:
        card = self._link.card
        self.model.setAccessibleName(f"Model: {self._title()}")
        self.model.setToolTip(_about(card) if card is not None else "")
        self.model.setEnabled(self._link.state is LinkState.CONNECTED)
        notices = [*card.notices, *([card.draft_refused] if card.draft_refused else [])] if card is not None else []
        self.warning.setVisible(bool(notices))
        self.warning.setText("▲ " + ("1 note" if len(notices) == 1 else f"{len(notices)} notes"))
        self.warning.setToolTip("\n".join(notices))
        self._notices_menu.clear()
        for notice in notices:
            self._notices_menu.addAction(notice)
        self._fit(self.width())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit(event.size().width())

    def _fit(self, width: int) -> None:
        """On a narrow page the draft's name is in the selector's tooltip alone, and the buttons are icons.

        The selector takes what is left, with the model's name alone where that is too little.
        """
        narrow = width < NARROW
        self.context.show_bar(not narrow)
        self.settings.setText("" if narrow else "Chat settings")
        self.settings.setIcon(icon(self._theme, "settings") if narrow else QIcon())
        title, metrics = self._title(), self.model.fontMetrics()
        word = self.tint.fontMetrics().horizontalAdvance(TINT) + ICON_GAP
        room = width - MARGINS - self._taken(self.warning, self.context, self.tint, self.settings)
        room += word if self.tint.text() else 0
        spare = room - metrics.horizontalAdvance(title)
        draft = _guessers(self._link.card) if self._link.card is not None and self._loading is None else ""
        self.draft.setText(metrics.elidedText(draft, Qt.TextElideMode.ElideRight, max(0, spare - 2 * GAP)))
        self.draft.setVisible(not narrow and bool(draft) and spare > DRAFT_PX)
        room -= self._taken(self.draft)
        spare -= self._taken(self.draft)
        self.tint.setText(TINT if not narrow and word < spare else "")
        room -= word if self.tint.text() else 0
        if metrics.horizontalAdvance(title) > room and self._link.card is not None and self._loading is None:
            title = self._link.card.name
        self.model.setText(metrics.elidedText(title, Qt.TextElideMode.ElideRight, max(80, room)) + "  ▾")

    def _taken(self, *widgets: QWidget) -> int:
        """The width of those widgets that show, pixels, with the gaps beside them."""
        return sum(widget.sizeHint().width() + GAP for widget in widgets if not widget.isHidden())

    def fill_menu(self) -> None:
        """Build the menu from what the engine knows now."""
        menu, card = self._menu, self._link.card
        menu.clear()
        if self._loading is not None:
            menu.addAction("Stop loading", lambda: self._link.send(protocol.CancelLoad()))
            return
        known = self._link.welcome.models if self._link.welcome is not None else []
        for model in known:
            action = self._checkable(menu, model.name, card is not None and Path(model.path) == Path(card.path))
            action.triggered.connect(lambda _=False, path=model.path: self.load(path, self.default_draft()))
        menu.addSeparator()
        menu.addAction("Open a model folder…", self._open_folder)
        menu.addAction("Open a GGUF file…", self._open_file)
        drafts = menu.addMenu("Draft model or heads")
        drafts.setToolTipsVisible(True)
        drafts.setEnabled(card is not None)
        self._checkable(drafts, "The model's own", False).triggered.connect(lambda: self._reload(None))
        self._checkable(drafts, "No draft", card is not None and not card.draft and not card.heads).triggered.connect(
            lambda: self._reload("")
        )
        for model in known:
            action = self._checkable(drafts, model.name, card is not None and card.draft == model.name)
            action.triggered.connect(lambda _=False, path=model.path: self._reload(path))
        drafts.addAction("Open a folder of a draft or heads…", self._open_draft_folder).setToolTip(HEADS_HELP)
        drafts.addAction("Open a file of a draft or heads…", self._open_draft_file).setToolTip(HEADS_HELP)
        if card is not None:
            menu.addSeparator()
            menu.addAction("Unload the model", lambda: self._link.send(protocol.Unload()))

    def load(self, model: str, draft: str | None) -> None:
        """``draft`` None takes the model's own, "" none."""
        self._link.send(protocol.Load(model=model, draft=draft, options=self.load_options()))

    def _reload(self, draft: str | None) -> None:
        if self._link.card is not None:
            self.load(self._link.card.path, draft)

    def _open_folder(self) -> None:
        if folder := QFileDialog.getExistingDirectory(self, "Open a model folder"):
            self.load(folder, self.default_draft())

    def _open_file(self) -> None:
        if file := QFileDialog.getOpenFileName(self, "Open a GGUF file", filter=GGUF_FILTER)[0]:
            self.load(file, self.default_draft())

    def _open_draft_folder(self) -> None:
        if folder := QFileDialog.getExistingDirectory(self, "Open a draft model, or Medusa or EAGLE heads"):
            self._reload(folder)

    def _open_draft_file(self) -> None:
        if file := QFileDialog.getOpenFileName(self, "Open a draft model or heads", filter=DRAFT_FILTER)[0]:
            self._reload(file)

    def _checkable(self, menu: QMenu, title: str, checked: bool) -> QAction:
        action = menu.addAction(title)
        action.setCheckable(True)
        action.setChecked(checked)
        return action

    def _recolour(self) -> None:
        self.warning.setStyleSheet(f"color: {self._theme.tokens.warn};")
        self.tint.setIcon(icon(self._theme, "tint"))
        self._fit(self.width())

    def _title(self) -> str:
        card, state = self._link.card, self._link.state
        if self._loading is not None:
            name = Path(self._loading.model).name
            return f"{name} · {self._loading.stage} {self._loading.fraction:.0%}"
        if card is not None:
            return f"{card.name} · {_short(card.quantisation)}"
        if state is LinkState.CONNECTED:
            return "Choose a model"
        return "The engine is not running" if state is LinkState.DEAD else "The engine is starting"

    def _on_loading(self, message: protocol.Loading) -> None:
        self._loading = message
        self.refresh()

    def _on_settled(self, *_: object) -> None:
        self._loading = None
        self.refresh()

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id:
            self._on_settled()


def _heads(card: protocol.ModelCard) -> str:
    """For example "Medusa and EAGLE heads"; empty where there are none."""
    names = [proposer(kind).name for kind in card.heads]
    return f"{' and '.join(names)} heads" if names else ""


def _guessers(card: protocol.ModelCard) -> str:
    """What is loaded beside the model to guess ahead: "draft tiny, Medusa heads"."""
    return ", ".join(part for part in (f"draft {card.draft}" if card.draft else "", _heads(card)) if part)


def _about(card: protocol.ModelCard) -> str:
    """The selector's tooltip."""
    lines = [card.quantisation, card.path]
    if card.draft:
        lines.append(f"Draft: {card.draft}")
    if card.heads:
        lines.append(f"Guesses with {_heads(card)}")
    return "\n".join(lines)


def _short(quantisation: str) -> str:
    """``GPTQ 4-bit`` of ``GPTQ 4-bit, groups of 64``: the tooltip has room for the rest, the button has not."""
    return quantisation.split(",")[0]
