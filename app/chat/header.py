"""Above the transcript: which model answers, with which draft, how full its context is, and the chat's settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction, QIcon, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QMenu, QPushButton, QWidget

from app import model_dialog
from app.chat.context.bar import ContextBar
from app.chat.notes import NotesButton
from app.link.link import EngineLink, LinkState
from app.models import words
from app.models.state.choice import LoadChoice
from app.proposers import proposer, trained
from app.theme.icons import icon
from app.theme.theme import Theme
from app.theme.widgets import as_written, button_text, fill, menu_text, named, tip
from engine import protocol

GAP = 12
MINIMUM = 240
MARGINS = 40 + 48
"""Pixels of the row's own margins, and of the selector's padding and arrow."""
HEADS_HELP = "{} heads, or an assistant of Gemma 4, made for the model serve as well as a draft model."
TINT = "Speculation"
ICON_PX = 16
DRAFT_PX = 120
"""The draft's name is not shown with less room than this: its beginning alone says nothing."""
ICON_GAP = 6
"""Pixels that a button's icon takes from its text."""
TINT_HELP = "Highlight drafted tokens: accepted ones, and the model's where a draft was rejected"
OPEN_HELP = "A GGUF file, or the folder of a model in safetensors, GPTQ, AWQ or NF4."
IDLE = "Unloaded, because nothing was asked of it for a while. The next message loads it again."
NARROW = 700
"""Below this width of the page, pixels, the header leaves out what the selector's tooltip says too."""


class Header(QFrame):
    """Follows the link by itself; loads go to the link, everything else comes out as signals."""

    settings_asked = Signal()
    helper_chosen = Signal()
    """The person chose a draft model or heads for the loaded model, which is being loaded with it."""
    draft_chosen = Signal(str, object)
    """The path of the loaded model, and what the person chose to draft for it: a path, "" for nothing, None for its
    own."""
    load_settings_asked = Signal(str)
    """The person wants to see how the model at that path is loaded."""
    loading_changed = Signal()
    """:attr:`loading` says something else."""
    local_asked = Signal()
    """The chat on screen is to be answered by the model of this machine again."""
    get_asked = Signal()
    """The person wants a model that is not here."""
    menu_shown = Signal()
    """The menu of the models opens."""

    def __init__(self, link: EngineLink, choice: LoadChoice, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link, self.choice = link, choice
        self._loading: protocol.Loading | None = None
        self._draft: str | None = None
        """The draft of the last Load; None takes whatever comes with the model to draft tokens."""
        self._remote: protocol.RemoteModel | None = None
        self._by_hand = False
        """True if that draft is another than the settings want."""
        self.guard: Callable[[str, str, Callable[[], None]], None] = lambda what, title, act: act()
        """Does ``act`` unless answers are being written, which ``what`` would end: then it asks, with ``title``."""
        named(self, "chat-header", surface="bg", edge="bottom", minimumWidth=MINIMUM)
        self.model = named(QPushButton(self), "model-selector")
        self._menu = QMenu(self.model, toolTipsVisible=True)
        self._menu.aboutToShow.connect(self.fill_menu)
        self._menu.aboutToShow.connect(self.menu_shown)
        self.model.setMenu(self._menu)
        self.draft = named(QLabel(self), "draft-label", role="mute")
        self.warning = NotesButton(theme, self)
        self._theme = theme
        self.context = ContextBar(theme, self)
        self.tint = QPushButton(self)
        """Checked if words are tinted; its owner says what a click does."""
        named(self.tint, "tint-button", kind="quiet", checkable=True)
        named(self.tint, title="Highlight drafted tokens", tooltip=tip(TINT_HELP))
        self.settings = named(QPushButton("Chat settings", self), "chat-settings-button")
        named(self.settings, title="Chat settings", tooltip="System prompt and sampling of this chat", kind="quiet")
        self.settings.clicked.connect(self.settings_asked)
        self._row = row = QHBoxLayout(self)
        row.setContentsMargins(24, 8, 16, 8)
        fill(row, self.model, self.draft, self.warning, 1, self.context, self.tint, self.settings, spacing=GAP)
        self.context.changed.connect(lambda: self._fit(self.width()))
        link.load_asked.connect(self._on_asked)
        link.loading.connect(self._on_loading)
        link.loaded.connect(self._on_settled)
        link.unloaded.connect(lambda _: self._on_loading(self._loading))  # to make room, or for good
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

    def set_remote(self, remote: protocol.RemoteModel | None) -> None:
        """The model of another server that answers in the chat on screen."""
        if remote != self._remote:
            self._remote = remote
            self.refresh()

    def refresh(self) -> None:
        card = self._link.card if self._remote is None else None
        self.model.setAccessibleName(f"Model: {self._title()}")
        self.model.setToolTip(
            as_written("\n".join([_about(card), *([IDLE] if self._link.idle else [])])) if card is not None else ""
        )
        self.model.setEnabled(self._link.state is LinkState.CONNECTED)
        notices = [*card.notices, *([card.draft_refused] if card.draft_refused else [])] if card is not None else []
        self.warning.say(notices)
        self._fit(self.width())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit(event.size().width())

    def _fit(self, width: int) -> None:
        """On a narrow page the draft's name is in the selector's tooltip alone, and the buttons are icons.

        The selector takes what is left, with the model's name alone where that is too little.
        """
        narrow = width < NARROW
        self._row.setSpacing(GAP // 2 if narrow else GAP)
        self.context.bar.setVisible(not narrow)
        self.settings.setText("" if narrow else "Chat settings")
        self.settings.setIcon(icon(self._theme, "settings", self._theme.px(ICON_PX)) if narrow else QIcon())
        title, metrics = self._title(), self.model.fontMetrics()
        word = self.tint.fontMetrics().horizontalAdvance(TINT) + ICON_GAP
        room = width - MARGINS - self._taken(self.warning, self.context, self.tint, self.settings)
        room += word if self.tint.text() else 0
        spare = room - metrics.horizontalAdvance(title)
        draft = self._helper(max(0, spare - 2 * GAP))
        self.draft.setText(metrics.elidedText(draft, Qt.TextElideMode.ElideRight, max(0, spare - 2 * GAP)))
        self.draft.setVisible(
            not narrow and bool(draft) and spare > min(DRAFT_PX, metrics.horizontalAdvance(draft) + 2 * GAP)
        )
        room -= self._taken(self.draft)
        spare -= self._taken(self.draft)
        self.tint.setText(TINT if not narrow and word < spare else "")
        room -= word if self.tint.text() else 0
        if metrics.horizontalAdvance(title) > room and self._loading is None:
            title = (
                self._remote.model if self._remote is not None else self._link.card.name if self._link.card else title
            )
        self.model.setText(button_text(metrics.elidedText(title, Qt.TextElideMode.ElideRight, max(80, room))) + "  ▾")

    def _helper(self, room: int) -> str:
        """Describe the proposers of the loaded model, by name if that fits into ``room`` pixels; "" without one."""
        card = self._link.card if self._remote is None else None
        if card is None or self._loading is not None:
            return ""
        metrics, forms = self.draft.fontMetrics(), _drafters(card)
        return next((said for said in forms if metrics.horizontalAdvance(said) <= room), forms[-1])

    def _taken(self, *widgets: QWidget) -> int:
        """The width of those widgets that show, pixels, with the gaps next to them."""
        return sum(widget.sizeHint().width() + GAP for widget in widgets if not widget.isHidden())

    def fill_menu(self) -> None:
        """Build the menu from what the engine knows now."""
        menu, card = self._menu, self._link.card
        menu.clear()
        if self._loading is not None:
            menu.addAction("Cancel loading", self.cancel)
            return
        if self._remote is not None:
            menu.addAction("Answer on this machine again", self.local_asked.emit)
            menu.addSeparator()
        stored = {model.path: model for model in self.choice.library.stored}
        for name, path in self._models():
            there = not os.path.isabs(path) or os.path.exists(path) or path in self._known()
            said = words.in_menu(stored[path]) if path in stored and not stored[path].missing else ""
            here = self._remote is None and card is not None and Path(path) == Path(card.path)
            action = self._checkable(menu, name, here, said)
            action.setEnabled(there)
            action.setToolTip(as_written(path if there else f"{path} is not there any more."))
            action.triggered.connect(lambda _=False, path=path: self._choose(path))
        menu.addSeparator()
        menu.addAction("Get a model…", self.get_asked.emit)
        menu.addAction("Open a file…", self.open_file).setToolTip(OPEN_HELP)
        self._fill_helpers(menu.addMenu("Speculation helper"))
        if card is not None:
            menu.addSeparator()
            path = card.path
            menu.addAction("Load settings…", lambda: self.load_settings_asked.emit(path))
        if card is not None and not self._link.idle:
            menu.addAction("Unload the model", self.unload)

    def _choose(self, path: str) -> None:
        """Have a model of this machine answer, which may be loaded already while another server's answers."""
        there = self._remote is not None and self._link.card is not None and self._link.card.path == path
        self.local_asked.emit()
        if not there:
            self.load(path, self.choice.default_draft(path))

    def _known(self) -> dict[str, str]:
        """Path -> name of the models of this machine: as listed last, before that as the engine found them."""
        welcome = self._link.welcome
        started = welcome.models if welcome is not None else []
        listed = [model for model in self.choice.library.stored if not model.missing]
        return {model.path: model.name for model in listed or started}

    def _models(self) -> list[tuple[str, str]]:
        """(name, path) for the menu: those used last, then the others of this machine."""
        known = self._known()
        paths = dict.fromkeys([*self.choice.store.settings.recent, *known])
        return [(known.get(path) or Path(path).name, path) for path in paths]

    def _fill_helpers(self, menu: QMenu) -> None:
        card = self._link.card
        menu.setToolTipsVisible(True)
        menu.setEnabled(card is not None)
        none = card is not None and not card.draft and not card.heads
        built_in = card is not None and self._draft is None and not none
        self._checkable(menu, "Built-in", built_in).triggered.connect(lambda: self._help_with(None))
        self._checkable(menu, "No draft", none).triggered.connect(lambda: self._help_with(""))
        offered = self.choice.drafts(card.path) if card is not None else None
        helpers = self._known() if offered is None else {each.path: each.name for each in offered if each.path}
        for path, name in helpers.items():
            action = self._checkable(menu, name, card is not None and card.draft == name and not built_in)
            action.triggered.connect(lambda _=False, path=path: self._help_with(path))
        kinds = trained()
        choose = f"Choose a draft model or {'/'.join(sorted(kinds))} heads…"
        menu.addAction(menu_text(choose), self._choose_helper).setToolTip(tip(HEADS_HELP.format(" or ".join(kinds))))

    def load(self, model: str, draft: str | None, chosen: bool = False) -> None:
        """``draft`` None takes the model's own, "" none. Asks first where that ends an answer. ``chosen``: the draft
        was chosen by hand."""

        def send() -> None:
            if chosen:
                self.draft_chosen.emit(model, draft)
            if chosen and draft != "":
                self.helper_chosen.emit()
            self._send_load(model, draft)

        again = self._link.card is not None and self._link.card.path == model
        doing, do = ("Reloading", "Reload") if again else ("Opening", "Open")
        self.guard(f"{doing} {Path(model).name}", f"{do} it now", send)

    def load_now(self, model: str) -> None:
        """Load as the settings want it, and ask nothing."""
        self._send_load(model, self.choice.default_draft(model))

    def reload(self) -> None:
        """Load the present model once more, with the draft that was chosen by hand, else what the settings want."""
        if self._link.card is not None:
            path = self._link.card.path
            self.load(path, self._draft if self._by_hand else self.choice.default_draft(path))

    def cancel(self) -> None:
        """Stop the load that is under way."""
        self._link.send(protocol.CancelLoad())

    def _send_load(self, model: str, draft: str | None) -> None:
        self._link.send(protocol.Load(model=model, draft=draft, options=self.choice.load_options(model)))

    @property
    def refusal(self) -> str:
        """Reason, as a sentence, that no model can be loaded again or unloaded; "" if there is one."""
        return "" if self._link.card is not None and not self._link.idle else "No model is loaded."

    def unload(self) -> None:
        """Free the memory of the loaded model. Asks first where that ends an answer."""
        if self._link.card is not None:
            name = self._link.card.name
            self.guard(f"Unloading {name}", "Unload it now", lambda: self._link.send(protocol.Unload()))

    def _help_with(self, draft: str | None) -> None:
        if self._link.card is not None:
            self.load(self._link.card.path, draft, chosen=True)

    def open_file(self) -> None:
        """Ask for a model's file or folder, and load it."""
        if path := self._ask("Open a model", model_dialog.MODELS, model_dialog.is_model):
            self.load(path, self.choice.default_draft(path))

    def _choose_helper(self) -> None:
        title = f"Choose a draft model, or {' or '.join(sorted(trained()))} heads"
        if path := self._ask(title, model_dialog.HELPERS, model_dialog.is_helper):
            self._help_with(path)

    def _ask(self, title: str, files: str, suits: Callable[[str], bool]) -> str:
        store = self.choice.store
        if path := model_dialog.ask(self, title, store.settings.folder, files, suits):
            store.update(folder=str(Path(path).parent))
        return path

    def _checkable(self, menu: QMenu, title: str, checked: bool, said: str = "") -> QAction:
        """``said`` stands in a column of its own."""
        action = menu.addAction(menu_text(title, said))
        action.setToolTip(tip(title))  # Qt would show the title as it is in the menu, marked up
        action.setCheckable(True)
        action.setChecked(checked)
        return action

    def _recolour(self) -> None:
        self.warning.recolour()
        side = self._theme.px(ICON_PX)
        self.tint.setIcon(icon(self._theme, "tint", side))
        for button in (self.tint, self.settings):
            button.setIconSize(QSize(side, side))
        self._fit(self.width())

    def _title(self) -> str:
        card, state = self._link.card, self._link.state
        if self._remote is not None:
            return f"{self._remote.model} · {self._remote.server}"
        if self._loading is not None:
            return f"{Path(self._loading.model).name} · loading"
        if card is not None:
            return f"{card.name} · {'unloaded' if self._link.idle else _short(card.quantisation)}"
        if state is LinkState.CONNECTED:
            return "Choose a model"
        return "The engine is not running" if state is LinkState.DEAD else "The engine is starting"

    def _on_asked(self, order: protocol.Load) -> None:
        """It takes a while until the engine says something."""
        self._draft, self._by_hand = order.draft, order.draft != self.choice.default_draft(order.model)
        connected = self._link.state is LinkState.CONNECTED
        self._on_loading(
            protocol.Loading(model=order.model, stage="looking at its files", fraction=0.0) if connected else None
        )

    def _on_loading(self, message: protocol.Loading | None) -> None:
        self._loading = message
        self.refresh()
        self.loading_changed.emit()

    def _on_settled(self, *_: object) -> None:
        self._on_loading(None)

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id:
            self._on_settled()


def _heads(card: protocol.ModelCard) -> str:
    """Name the heads, such as "one and other heads, assistant"; "" if there are none."""
    found = [proposer(kind) for kind in card.heads]
    names = " and ".join(each.name for each in found if each.heads)
    return ", ".join([*([f"{names} heads"] if names else []), *(each.name for each in found if not each.heads)])


def _drafters(card: protocol.ModelCard) -> tuple[str, ...]:
    """Describe the model's proposers, from long to short: "+ draft tiny, one and other heads", "+ draft, one, other",
    "+ 3 drafters". A folder that is called just draft is no name."""
    named = card.draft.lower().strip("._- ") not in ("draft", "draft-model", "draft_model", "drafter", "assistant")
    draft = f"draft {card.draft}" if card.draft and named else "draft model" if card.draft else ""
    parts = [part for part in (draft, _heads(card)) if part]
    kinds = [*(["draft"] if card.draft else []), *(proposer(kind).name for kind in card.heads)]
    if not kinds:
        return ("",)
    short = (f"+ {', '.join(kinds)}", f"+ {len(kinds)} drafters") if len(kinds) > 1 else ()
    return f"+ {', '.join(parts)}", *short


def _about(card: protocol.ModelCard) -> str:
    """The selector's tooltip."""
    lines = [card.quantisation, card.path]
    if card.draft:
        lines.append(f"Draft: {card.draft}")
    if card.heads:
        lines.append(f"Speculates with {_heads(card)}")
    return "\n".join(lines)


def _short(quantisation: str) -> str:
    """``GPTQ 4-bit`` of ``GPTQ 4-bit, groups of 64``: the tooltip has room for the rest, the button has not."""
    return quantisation.split(",")[0]
