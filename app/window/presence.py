"""The window in front, hidden, or closed: its end asks first where something would be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QMessageBox, QWidget

from app.language import tr
from app.theme.widgets import named

GOES_ON = tr("Downloads and quantising go on next time.")


class Presence:
    """``window`` asks :meth:`allows` when it is to be closed."""

    def __init__(self, window: QWidget) -> None:
        self._window = window
        self.unfinished: Callable[[], Sequence[str]] = list
        """Returns what the program's end would lose, each as a sentence."""
        self.hides: Callable[[], bool] = bool
        """Returns True if closing the window hides it, and the program goes on."""
        self._leaves = False
        """True if the window closes without a question."""
        self._quits = False
        """True if closing it ends the program, wherever it could be hidden."""

    def allows(self) -> bool:
        """Return True if the window may close now; it was hidden, or the person is being asked, where it may not."""
        if not (self._leaves or self._quits) and self.hides():
            self.put_away()
            return False
        if self._leaves or not (lost := self.unfinished()):
            return True
        if not self._window.isVisible():  # the tray asked for it
            self.to_front()
        self._ask(lost)
        return False

    def quit(self) -> None:
        """Close, and do not hide instead; asks first where something is under way."""
        self._quits = True
        self._window.close()
        self._quits = False

    def leave(self) -> None:
        """Close, and ask nothing."""
        self._leaves = True
        self._window.close()

    def to_front(self) -> None:
        """Show the window before all others, as the one whose end is the program's."""
        self._window.setWindowState(self._window.windowState() & ~Qt.WindowState.WindowMinimized)
        self._window.show()
        QApplication.setQuitOnLastWindowClosed(True)
        self._window.raise_()
        self._window.activateWindow()

    def put_away(self) -> None:
        """Hide the window; the program goes on, whatever other window is closed meanwhile."""
        QApplication.setQuitOnLastWindowClosed(False)
        self._window.hide()

    def _ask(self, lost: Sequence[str]) -> None:
        """Window-modal: what is under way goes on meanwhile."""
        if self._window.findChild(QMessageBox, "window.leave") is not None:
            return
        ends = tr("Quitting ends that.") if len(lost) == 1 else tr("Quitting ends all of that.")
        question = " ".join([*lost, ends, GOES_ON])
        icon, stay = QMessageBox.Icon.Question, QMessageBox.StandardButton.Cancel
        box = named(QMessageBox(icon, tr("Quit Kvasir"), question, stay, self._window), "window.leave")
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.addButton(tr("Quit now"), QMessageBox.ButtonRole.DestructiveRole).clicked.connect(self.leave)
        box.setDefaultButton(stay)
        box.open()
