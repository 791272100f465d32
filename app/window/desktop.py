"""What the desktop shows of the program beside its window: an icon in the tray, and notifications."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication, QMenu, QSystemTrayIcon, QWidget

from app.language import tr
from app.theme.widgets import menu_text, named

LONGEST_MS = 10_000
"""The time that a notification is shown, and an icon with it where none is wanted otherwise."""


class Desktop(QObject):
    """``window`` is the program's. Nothing is made before it is needed."""

    show_asked = Signal()
    """The person wants the window, or to hide it."""
    new_chat_asked = Signal()
    quick_asked = Signal()
    """The person wants the quick chat."""
    quit_asked = Signal()

    def __init__(self, window: QWidget, picture: QIcon, parent: QObject) -> None:
        super().__init__(parent)
        self._window, self._picture = window, picture
        self._icon: QSystemTrayIcon | None = None
        self._wanted = False
        self._act: Callable[[], object] = lambda: None
        """What the notification on show leads to."""
        self.in_front: Callable[[], bool] = lambda: window.isActiveWindow() and not window.isMinimized()
        self.seen: Callable[[], bool] = bool
        """Returns True if the person sees what there is to tell elsewhere."""
        self.available: Callable[[], bool] = QSystemTrayIcon.isSystemTrayAvailable
        """Whether this desktop shows icons in a tray."""
        self.show_message: Callable[..., object] = QSystemTrayIcon.showMessage
        self.alert: Callable[[QWidget], object] = QApplication.alert
        """Marks the window in the list of windows, where there is no tray."""
        self._over = named(QTimer(self, singleShot=True, interval=LONGEST_MS), "desktop.message")
        self._over.timeout.connect(self._settle)

    @property
    def shown(self) -> bool:
        """True if the icon is in the tray, from where the window can be brought back."""
        return self._wanted and self._icon is not None and self._icon.isVisible() and self.available()

    def show_icon(self, on: bool) -> None:
        """Show the icon in the tray, where there is one, or take it away."""
        self._wanted = on
        if on and self.available():
            self._made().show()
        elif not on and self._icon is not None and not self._over.isActive():
            self._icon.hide()

    def tell(self, title: str, words: str, act: Callable[[], object]) -> None:
        """Tell of something unless the person sees it; a click on it does ``act``."""
        if self.in_front() or self.seen():
            return
        if not self.available():
            self.alert(self._window)
            return
        self._act = act
        icon = self._made()
        icon.show()  # a hidden one tells nothing
        self.show_message(icon, title, words, self._picture, LONGEST_MS)
        self._over.start()

    def close_down(self) -> None:
        """Before the program ends."""
        self._over.stop()
        if self._icon is not None:
            self._icon.hide()

    def _made(self) -> QSystemTrayIcon:
        if self._icon is None:
            icon = self._icon = QSystemTrayIcon(self._picture, self)
            icon.setToolTip("Kvasir")
            icon.setContextMenu(self._menu())
            icon.activated.connect(self._on_activated)
            icon.messageClicked.connect(self._on_clicked)
        return self._icon

    def _menu(self) -> QMenu:
        menu = named(QMenu(self._window), "tray.menu")
        entries = (
            ("show", tr("Show or hide Kvasir"), self.show_asked),
            ("new", tr("New chat"), self.new_chat_asked),
            ("quick", tr("Quick chat"), self.quick_asked),
            ("quit", tr("Quit"), self.quit_asked),
        )
        for name, title, asked in entries:
            named(menu.addAction(menu_text(title)), f"tray.{name}").triggered.connect(asked)
        return menu

    def _on_activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason is QSystemTrayIcon.ActivationReason.Trigger:  # the menu opens by itself
            self.show_asked.emit()

    def _on_clicked(self) -> None:
        act, self._act = self._act, lambda: None
        self._over.stop()
        self._settle()
        act()

    def _settle(self) -> None:
        """The notification is over: an icon that nobody wants goes with it."""
        if not self._wanted and self._icon is not None:
            self._icon.hide()
