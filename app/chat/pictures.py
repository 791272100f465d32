"""Pictures of a message: taken from files, the clipboard and drops, made small enough to travel, and shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QBuffer, QMimeData, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QImage, QImageReader, QPainter, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QToolButton, QWidget

from app.documents.reading import KINDS
from app.language import tr
from app.theme.icons import icon
from app.theme.theme import Theme
from app.theme.widgets import fill, named, tip

MOST = 8
"""Pictures of one message."""
MOST_BYTES = 1_000_000
"""A larger file is encoded again: a conversation's pictures travel with each question, in a frame of 32 MB."""
LONGEST_PX = 2048
"""Sides of more are scaled down, and no model sees more of them."""
MOST_PIXELS = 100_000_000
THUMBNAIL_PX, _CROSS_PX = 44, 14
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")
FILTER = tr("Pictures ({patterns})", patterns=" ".join("*" + suffix for suffix in SUFFIXES))
_QUALITY = 90


class NoPictureError(Exception):
    """Raised for data that is not a picture, or for one that is too large; the text is a sentence."""


def read(path: Path) -> bytes:
    """A file's picture as it is sent: the file itself where that is small enough. Raises NoPictureError."""
    reader = QImageReader(str(path))
    reader.setAutoTransform(True)
    size = reader.size()
    if size.width() * size.height() > MOST_PIXELS:
        raise NoPictureError(
            tr(
                "{name} has {width:,} x {height:,} pixels, and a picture can have {most:,}. Make it smaller first.",
                name=path.name,
                width=size.width(),
                height=size.height(),
                most=MOST_PIXELS,
            )
        )
    image = reader.read()
    if image.isNull():
        raise NoPictureError(
            tr("{name} cannot be read as a picture ({why}).", name=path.name, why=reader.errorString())
        )
    small = max(size.width(), size.height()) <= LONGEST_PX and path.stat().st_size <= MOST_BYTES
    return path.read_bytes() if small else encoded(image)


def encoded(image: QImage) -> bytes:
    """An image as the file that is sent: PNG, or JPEG where that would be too large."""
    if max(image.width(), image.height()) > LONGEST_PX:
        image = image.scaled(
            LONGEST_PX, LONGEST_PX, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
        )
    png = _saved(image, "PNG", -1)
    return png if len(png) <= MOST_BYTES else _saved(_on_white(image), "JPEG", _QUALITY)


def in_mime(source: QMimeData) -> list[QImage]:
    """The picture of a drop or of the clipboard; empty where it is something else, text above all."""
    image = source.imageData() if source.hasImage() and not source.hasText() else None
    return [image] if isinstance(image, QImage) and not image.isNull() else []


def is_picture(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES


def taken(found: Sequence[QImage | Path], have: int) -> list[bytes]:
    """The files to send of what was found, in a message that has some. Raises NoPictureError."""
    if have + len(found) > MOST:
        many = have + len(found)
        raise NoPictureError(
            tr("A message can have {most} pictures, and this one would have {many}.", most=MOST, many=many)
        )
    return [read(each) if isinstance(each, Path) else encoded(each) for each in found]


def pixmap_of(data: bytes, bound: QSize, ratio: float) -> QPixmap:
    """The picture within ``bound``, for a screen with so many pixels a point; null where it cannot be read."""
    image = QImage.fromData(data)
    if image.isNull():
        return QPixmap()
    size = image.size().scaled(bound, Qt.AspectRatioMode.KeepAspectRatio).boundedTo(image.size()) * ratio
    pixmap = QPixmap.fromImage(
        image.scaled(size, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation)
    )
    pixmap.setDevicePixelRatio(ratio)
    return pixmap


def _saved(image: QImage, kind: str, quality: int) -> bytes:
    buffer = QBuffer()
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    image.save(buffer, kind, quality)  # type: ignore[call-overload]
    return bytes(buffer.data().data())


def _on_white(image: QImage) -> QImage:
    """JPEG has no transparency, and what shines through would become black."""
    if not image.hasAlphaChannel():
        return image
    below = QImage(image.size(), QImage.Format.Format_RGB32)
    below.fill(Qt.GlobalColor.white)
    painter = QPainter(below)
    painter.drawImage(0, 0, image)
    painter.end()
    return below


class _Thumbnail(QToolButton):
    """A picture with a cross in its corner: a click takes it out."""

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        corner = QRectF(self.width() - _CROSS_PX - 1, 1, _CROSS_PX, _CROSS_PX)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.palette().window())
        painter.drawEllipse(corner)
        painter.setPen(QPen(self.palette().windowText().color(), 1.5))
        cross = corner.adjusted(*(4 * sign for sign in (1, 1, -1, -1)))
        painter.drawLine(cross.topLeft(), cross.bottomRight())
        painter.drawLine(cross.topRight(), cross.bottomLeft())


class AttachedPictures(QWidget):
    """Pictures of the message that is being written; a click takes one out again. Hidden where there are none."""

    changed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._files: tuple[bytes, ...] = ()
        self._buttons: list[QToolButton] = []
        self._row = fill(QHBoxLayout(self), 1, margins=0, spacing=6)
        self.setObjectName("attached-pictures")
        self.hide()

    @property
    def files(self) -> tuple[bytes, ...]:
        return self._files

    def show_files(self, files: Sequence[bytes]) -> None:
        if tuple(files) == self._files:
            return
        self._files = tuple(files)
        for button in self._buttons:
            self._row.removeWidget(button)
            button.hide()
            button.deleteLater()
        self._buttons = [self._button(place, file) for place, file in enumerate(self._files)]
        for place, button in enumerate(self._buttons):
            self._row.insertWidget(place, button)
        self.setVisible(bool(self._files))
        self.changed.emit()

    def _button(self, place: int, file: bytes) -> QToolButton:
        button, side = _Thumbnail(self), QSize(THUMBNAIL_PX, THUMBNAIL_PX)
        button.setIcon(QIcon(pixmap_of(file, side, self.devicePixelRatioF())))
        button.setIconSize(side)
        button.setAutoRaise(True)
        named(button, "attached-picture", title=tr("Take out picture {number}", number=place + 1))
        button.setToolTip(tip(tr("Take this picture out")))
        button.clicked.connect(lambda: self.show_files(self._files[:place] + self._files[place + 1 :]))
        return button


class AttachButton(QToolButton):
    """Chooses documents, and pictures where the model sees them."""

    chosen = Signal(list)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setAutoRaise(True)
        self._pictures = True
        named(self, "attach")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.clicked.connect(self._choose)
        theme.changed.connect(self._recolour)
        self._recolour()
        self.offer(True)

    def offer(self, pictures: bool) -> None:
        """``pictures``: whether they are offered, too."""
        self._pictures = pictures
        if pictures:
            title, help_text = (
                tr("Add documents or pictures"),
                tr("Add documents or pictures: choose files, drop them here, or paste"),
            )
        else:
            title, help_text = tr("Add documents"), tr("Add documents: choose files, drop them here, or paste")
        named(self, title=title, tooltip=tip(help_text))

    def _recolour(self) -> None:
        side = max(18, self._theme.px(18))
        self.setIcon(icon(self._theme, "plus", side))
        self.setIconSize(QSize(side, side))

    def _choose(self) -> None:
        patterns = " ".join("*" + suffix for suffix in (*KINDS, *(SUFFIXES if self._pictures else ())))
        offered = [tr("Files that can be read ({patterns})", patterns=patterns), tr("All files (*)")]
        offered[1:1] = [FILTER] if self._pictures else []
        files, _ = QFileDialog.getOpenFileNames(self.window(), self.accessibleName(), "", ";;".join(offered))
        if files:
            self.chosen.emit([Path(file) for file in files])


class ShownPictures(QWidget):
    """The pictures of a message that was sent, one next to the other; placed by the message."""

    GAP_PX, BOUND_PX = 6, 200

    def __init__(self, files: Sequence[bytes], parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("shown-pictures")
        self._labels = [self._label(file) for file in files]

    def fit(self, width: int) -> QSize:
        """Break the row at ``width`` pixels; returns what it takes."""
        x = y = high = wide = 0
        for label in self._labels:
            size = label.sizeHint()
            if x and x + size.width() > width:
                x, y, high = 0, y + high + self.GAP_PX, 0
            label.setGeometry(x, y, size.width(), size.height())
            x, high = x + size.width() + self.GAP_PX, max(high, size.height())
            wide = max(wide, x - self.GAP_PX)
        return QSize(wide, y + high)

    def _label(self, file: bytes) -> QLabel:
        label = QLabel(self)
        pixmap = pixmap_of(file, QSize(self.BOUND_PX, self.BOUND_PX), self.devicePixelRatioF())
        if pixmap.isNull():
            label.setText(tr("A picture that cannot be shown"))
        else:
            label.setPixmap(pixmap)
        label.setAccessibleName(tr("Picture"))
        return label
