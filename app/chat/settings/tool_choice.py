"""Choice of the MCP servers whose tools a chat has: a button with those chosen, and a menu of all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.theme.menus import MenuButton
from app.theme.widgets import named, tip

OFF = tr("Off")
SERVERS = tr("MCP servers…")
HELP = tr(
    "MCP servers whose tools the model can use in this chat. Each call is shown, and asked for unless you allow it."
)


class ToolChoice(MenuButton):
    """``chosen`` carries the names of the servers; ``servers_asked`` wants to see and change which there are."""

    chosen = Signal(list)
    servers_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "tool-choice", tooltip=tip(HELP))
        self.show_for([], ())

    def show_for(self, servers: Sequence[str], chosen: Sequence[str]) -> None:
        """Offer these servers, and those ``chosen`` that are not there any more."""
        self.clear()
        self.offer(OFF, "tools.off", lambda: self.chosen.emit([]), not chosen)
        gone = [name for name in chosen if name not in servers]
        for name in [*servers, *gone]:
            title = tr("{name} (not there)", name=name) if name in gone else name
            others = [each for each in chosen if each != name]
            wanted = others if name in chosen else [*others, name]
            self.offer(title, f"tools.{name}", partial(self.chosen.emit, wanted), name in chosen)
        self.separate()
        self.offer(SERVERS, "tools.servers", self.servers_asked.emit)
        title = ", ".join(chosen) or OFF
        self.setAccessibleName(tr("Tools: {names}", names=title))
        self.show_title(title)
