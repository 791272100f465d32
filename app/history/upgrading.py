"""A history of an earlier version is brought up to date before there is a window: what a person sees meanwhile."""

from __future__ import annotations

import signal
import threading

from PySide6.QtCore import QEventLoop, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QApplication, QLabel, QVBoxLayout, QWidget

from app.history.file import Work
from app.language import tr
from app.theme.sheet import dress
from app.theme.theme import Theme
from app.theme.widgets import FillBar, caption, fill, named

PATIENCE_MS = 400
"""What takes no longer needs no window."""
_WIDE_PX = 420
TITLE = tr("Your chats are being brought up to date")
ABOUT = tr(
    "This version of Kvasir keeps them in another way. It happens once, a copy of the chats as they were is kept, and "
    "nothing is lost if it is interrupted. Then the window opens."
)


class UpgradeWindow(QWidget):
    """Small, and closed by the program alone: to close it would end nothing."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        named(self, "upgrade", surface="panel", windowTitle="Kvasir")
        self.setAttribute(Qt.WidgetAttribute.WA_QuitOnClose, False)
        self.setWindowFlag(Qt.WindowType.WindowCloseButtonHint, False)
        self.bar = FillBar(theme)
        title, about = named(QLabel(TITLE, wordWrap=True), role="title"), caption(ABOUT)
        column = fill(QVBoxLayout(self), title, about, self.bar, margins=24, spacing=12)
        for words in (title, about):
            words.ensurePolished()  # how high they are depends on their style
        width = theme.px(_WIDE_PX)
        self.setFixedSize(width, column.totalHeightForWidth(width))
        self.setAccessibleName(f"{TITLE}. {ABOUT}")

    def show_share(self, share: float) -> None:
        self.bar.fraction = share
        self.bar.update()

    def closeEvent(self, event: QCloseEvent) -> None:
        event.ignore()


class _Sight(QObject):
    """The work on a thread of its own, and the window, if it takes so long. SQLite computes without Python's lock."""

    told = Signal(float)
    ended = Signal()

    def __init__(self, work: Work, theme: Theme, app: QApplication) -> None:
        super().__init__()
        self._work, self._theme, self._app = work, theme, app
        self._share = 0.0
        self._window: UpgradeWindow | None = None
        self._loop = QEventLoop()
        self._patience = QTimer(self, singleShot=True, interval=PATIENCE_MS)
        self._patience.timeout.connect(self._show)
        self.error: BaseException | None = None
        self.told.connect(self._on_told)
        self.ended.connect(self._loop.quit)

    def run(self) -> None:
        """Return when the work is done."""
        thread = threading.Thread(target=self._do, name="kvasir-upgrade", daemon=True)
        self._patience.start()
        thread.start()
        try:
            self._loop.exec()
        finally:
            self._patience.stop()
            thread.join()
            if self._window is not None:
                self._window.hide()
                self._window.deleteLater()

    def _do(self) -> None:
        """On the thread of the work."""
        try:
            self._work(self.told.emit)
        except BaseException as error:  # raised again where it was asked for
            self.error = error
        self.ended.emit()

    def _on_told(self, share: float) -> None:
        self._share = share
        if self._window is not None:
            self._window.show_share(share)

    def _show(self) -> None:
        dress(self._theme, self._app)
        self._window = UpgradeWindow(self._theme)
        self._window.show_share(self._share)
        self._window.show()


def in_sight(work: Work, theme: Theme, app: QApplication) -> None:
    """Do the work; if that takes a while, show a window with how far it is. Raises what the work raises.

    Ctrl-C ends the program meanwhile, as it does where Python runs no handlers: the file is then as it was.
    """
    sight = _Sight(work, theme, app)
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_DFL) if main else None
    try:
        sight.run()
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if sight.error is not None:
        raise sight.error
