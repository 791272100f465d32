"""The dialogs of the window that few ever open: they are imported then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QWidget

from app.commands.registry import Commands
from app.paths import licences_dir
from app.theme.theme import Theme

if TYPE_CHECKING:
    from app.commands.palette import Palette


class Dialogs:
    """Dialogs of ``window``, which stays usable while one is open."""

    def __init__(self, commands: Commands, log_file: Path, theme: Theme, window: QWidget) -> None:
        self._commands, self.log_file, self._theme, self._window = commands, log_file, theme, window
        self.palette: Palette | None = None

    def show_shortcuts(self) -> None:
        """Show the list of shortcuts."""
        from app.commands.dialog import ShortcutsDialog

        _show(ShortcutsDialog(self._commands.keymap, self._window))

    def show_palette(self) -> None:
        """Show all commands; while they are on show, close them."""
        if self.palette is None:
            from app.commands.palette import Palette

            self.palette = Palette(self._commands, self._theme, self._window)
        if self.palette.isVisible():
            self.palette.close_down()
        else:
            self.palette.open()

    def show_log(self) -> None:
        from app.help.log_view import LogDialog

        _show(LogDialog(self.log_file, self._theme, self._window))

    def show_about(self) -> None:
        """Show version and licences."""
        from app.help.about import AboutDialog

        _show(AboutDialog(licences_dir(), self._theme, self._window))


def _show(dialog: QDialog) -> None:
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.show()
