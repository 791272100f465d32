"""Links of answers ask before they open: the whole address is shown, and only pages and e-mail are opened."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QTextOption
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.language import tr
from app.theme.room import room_of
from app.theme.theme import Theme
from app.theme.widgets import fill, named, say

OPENED = ("http", "https", "mailto")
"""Schemes of addresses that are handed to the system; others could start programs."""
SIZE = QSize(520, 160)
UNOPENED = tr("The system opened no program for this address. Copy it instead.")


def address_of(url: QUrl) -> str:
    """The address as it is opened and copied; letters that could be taken for others are encoded in the host's name."""
    return url.toEncoded().toStdString()


def refusal(url: QUrl) -> str:
    """Why this address is not opened, as a sentence; "" for one that may be."""
    scheme = url.scheme()
    if scheme not in OPENED:
        if not scheme:
            return tr(
                "Kvasir opens addresses of web pages (http, https) and of e-mail (mailto) only; this one is none."
            )
        return tr(
            "Kvasir opens addresses of web pages (http, https) and of e-mail (mailto) only; this one begins with "
            '"{scheme}:".',
            scheme=scheme[:40],
        )
    if not url.isValid() or (scheme != "mailto" and not url.host()):
        return tr("This address is not complete, so it is not opened.")
    return ""


def question(url: QUrl) -> str:
    """The question before an address that may be opened, with who is behind it."""
    if url.scheme() == "mailto":
        return tr("Write an e-mail to this address, with the system's program for that?")
    host = url.host(QUrl.ComponentFormattingOption.FullyEncoded)
    short = host if len(host) <= 60 else f"{host[:59]}…"
    return tr("Open this page of {host} in the browser?", host=short)


class LinkDialog(QDialog):
    """Open, Copy address, Cancel; the latter two alone for an address that is refused."""

    def __init__(self, url: QUrl, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._url = url
        named(self, "link-dialog", windowTitle=tr("Link"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize((SIZE * max(1.0, theme.scale)).boundedTo(room_of(self)))
        refused = refusal(url)
        self.sentence = named(
            QLabel(refused or question(url), textFormat=Qt.TextFormat.PlainText, wordWrap=True), "link-sentence"
        )
        self.address = named(
            QPlainTextEdit(address_of(url), readOnly=True, tabChangesFocus=True),
            "link-address",
            title=tr("Address of the link"),
            field="true",
        )
        self.address.setWordWrapMode(QTextOption.WrapMode.WrapAnywhere)
        self._failure = named(QLabel(textFormat=Qt.TextFormat.PlainText, wordWrap=True), "link-failure", role="bad")
        self._failure.hide()
        self.open_button = named(QPushButton(tr("Open")), "link-open", clicked=self._on_open)
        self.open_button.setAccessibleName(tr("Open the address"))
        self.open_button.setVisible(not refused)
        copy = named(QPushButton(tr("Copy address")), "link-copy", clicked=self._on_copy)
        cancel = named(QPushButton(tr("Close") if refused else tr("Cancel")), "link-cancel", clicked=self.reject)
        (copy if refused else self.open_button).setDefault(True)
        buttons = fill(QHBoxLayout(), 1, cancel, copy, self.open_button, spacing=8)
        parts = (self.sentence, (self.address, 1), self._failure, buttons)
        fill(QVBoxLayout(self), *parts, margins=(20, 16, 20, 16), spacing=12)
        (copy if refused else self.open_button).setFocus()

    def _on_open(self) -> None:
        if QDesktopServices.openUrl(self._url):
            self.accept()
        else:
            say(self._failure, UNOPENED)

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(address_of(self._url))
        self.accept()


def ask_to_open(url: QUrl, theme: Theme, near: QWidget) -> LinkDialog:
    """Show the dialog over the window of ``near``, which goes on meanwhile."""
    dialog = LinkDialog(url, theme, near.window())
    dialog.open()
    return dialog
