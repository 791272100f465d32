"""The log in a window of its own: the last lines and those that come, by level, by source and by words."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSize, QTimer, QUrl
from PySide6.QtGui import (
    QDesktopServices,
    QGuiApplication,
    QHideEvent,
    QShowEvent,
    QSyntaxHighlighter,
    QTextCharFormat,
)
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.help.log_lines import LogLine, LogTail
from app.language import tr
from app.theme.room import room_of
from app.theme.theme import Theme
from app.theme.widgets import Segments, caption, fill, named, say

SIZE = QSize(960, 600)
EVERY_MS = 500
MOST = 5000
"""Number of lines that are kept, the last ones."""
_SEVERITY = {"0": tr("every level"), "2": tr("warnings"), "3": tr("errors")}
"""Least severity of a line, an index into :data:`app.help.log_lines.LEVELS`, and its name."""
_SOURCES = {"": tr("everything"), "window": tr("window"), "engine": tr("engine")}
_TONES = {2: "warn", 3: "bad", 4: "bad"}
NOTHING = tr("No line of the log has that level, source and words.")
EMPTY = tr("The log is empty.")


class _Colours(QSyntaxHighlighter):
    """Colours warnings and errors; ``levels`` are those of the lines on show."""

    def __init__(self, text: QPlainTextEdit, theme: Theme) -> None:
        super().__init__(text.document())
        self._theme = theme
        self.shown: list[LogLine] = []

    def highlightBlock(self, text: str) -> None:
        number = self.currentBlock().blockNumber()
        if number < len(self.shown) and (tone := _TONES.get(self.shown[number].severity)):
            colour = QTextCharFormat()
            colour.setForeground(self._theme.color(tone))
            self.setFormat(0, len(text), colour)


class LogDialog(QDialog):
    """Reads on while it is on show."""

    def __init__(self, path: Path, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tail, self._theme = LogTail(path), theme
        self._lines: list[LogLine] = []
        named(self, "log", windowTitle=tr("Log"))
        self.resize((SIZE * max(1.0, theme.scale)).boundedTo(room_of(self)))
        self.words = named(
            QLineEdit(placeholderText=tr("Search the log"), clearButtonEnabled=True),
            "log.words",
            title=tr("Search the log"),
        )
        self.words.textChanged.connect(self._show)
        self._least, self._from = 0, ""
        level = Segments(tr("Level"), list(_SEVERITY), list(_SEVERITY.values()), "log.level")
        level.choose("0")
        level.chosen.connect(self._on_level)
        source = Segments(tr("Written by"), list(_SOURCES), list(_SOURCES.values()), "log.source")
        source.choose("")
        source.chosen.connect(self._on_source)
        self.text = named(QPlainTextEdit(readOnly=True), "log.text", title=tr("Lines of the log"))
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._colours = _Colours(self.text, theme)
        self.said = caption(name="log.said")
        self.where = caption(f"{path}. {tr('Keys and passwords are hidden.')}", "log.where")
        copy = named(QPushButton(tr("Copy")), "log.copy", title=tr("Copy the lines on show"), clicked=self._copy)
        folder = named(QPushButton(tr("Show in folder")), "log.folder", clicked=self._open_folder)
        filters = fill(QHBoxLayout(), level, source, 1, spacing=8)
        foot = fill(QHBoxLayout(), (self.where, 1), copy, folder, spacing=8)
        fill(
            QVBoxLayout(self), self.words, filters, self.said, (self.text, 1), foot, margins=(16, 12, 16, 12), spacing=8
        )
        self._timer = named(QTimer(self, interval=EVERY_MS), "log-tail")
        self._timer.timeout.connect(self.read)
        self._recolour()
        theme.changed.connect(self._recolour)

    def read(self) -> None:
        """Show the lines that came."""
        try:
            came = self._tail.read()
        except FileNotFoundError:
            say(self.said, tr("There is no log at {path} yet.", path=self._tail.path))
            return
        except OSError as error:
            say(self.said, tr("{path} cannot be read ({why}).", path=self._tail.path, why=error.strerror))
            return
        if came:
            self._lines = [*self._lines, *came][-MOST:]
            self._show(came if len(self._lines) < MOST else None)
        elif not self._lines:
            say(self.said, EMPTY)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.read()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()

    def _wanted(self, line: LogLine) -> bool:
        words = self.words.text().lower().split()
        source = not self._from or line.engine == (self._from == "engine")
        return source and line.severity >= self._least and all(word in line.text.lower() for word in words)

    def _show(self, came: list[LogLine] | str | None = None) -> None:
        """Show the wanted lines, of which only those that ``came`` are new. Whoever reads above stays there."""
        bar, colours = self.text.verticalScrollBar(), self._colours
        at, end = bar.value(), bar.value() >= bar.maximum()
        if isinstance(came, list):
            added = [line for line in came if self._wanted(line)]
            colours.shown += added
            if added:
                self.text.appendPlainText("\n".join(line.text for line in added))
        else:
            colours.shown = [line for line in self._lines if self._wanted(line)]
            self.text.setPlainText("\n".join(line.text for line in colours.shown))
        bar.setValue(bar.maximum() if end else at)
        say(self.said, "" if colours.shown else NOTHING if self._lines else EMPTY)

    def _on_level(self, least: str) -> None:
        self._least = int(least)
        self._show()

    def _on_source(self, source: str) -> None:
        self._from = source
        self._show()

    def _copy(self) -> None:
        cursor = self.text.textCursor()
        chosen = cursor.selectedText().replace("\u2029", "\n") if cursor.hasSelection() else self.text.toPlainText()
        QGuiApplication.clipboard().setText(chosen)

    def _open_folder(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._tail.path.parent)))

    def _recolour(self) -> None:
        self.text.setFont(self._theme.mono_font(12))
        self._colours.rehighlight()
