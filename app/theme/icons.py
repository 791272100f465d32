"""Icons: small SVG files whose ``currentColor`` becomes a token of the theme."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QGuiApplication, QIcon, QImage, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app.paths import assets_dir
from app.theme.theme import Theme


@lru_cache(maxsize=64)
def _source(name: str) -> str:
    return (assets_dir() / "icons" / f"{name}.svg").read_text(encoding="utf-8")


def pixmap(name: str, color: str, size: int, ratio: float = 1.0) -> QPixmap:
    """assets/icons/``name``.svg, ``size`` logical pixels square. Raises FileNotFoundError for an unknown name."""
    drawn = QPixmap.fromImage(_image(name, color, round(size * ratio)))
    drawn.setDevicePixelRatio(ratio)
    return drawn


@lru_cache(maxsize=512)
def _image(name: str, color: str, side: int) -> QImage:
    """An image rather than a pixmap, which may not outlive the application."""
    image = QImage(QSize(side, side), QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(QByteArray(_source(name).replace("currentColor", color).encode())).render(
        painter, QRectF(image.rect())
    )
    painter.end()
    return image


def icon(theme: Theme, name: str, size: int = 16, token: str = "mute") -> QIcon:
    """The icon in a token's colour, and brighter while checked or pressed; for the resolution of each screen."""
    result = QIcon()
    t = theme.tokens
    for ratio in _ratios():
        result.addPixmap(pixmap(name, getattr(t, token), size, ratio), QIcon.Mode.Normal, QIcon.State.Off)
        result.addPixmap(pixmap(name, t.text, size, ratio), QIcon.Mode.Active, QIcon.State.Off)
        result.addPixmap(pixmap(name, t.text, size, ratio), QIcon.Mode.Normal, QIcon.State.On)
        result.addPixmap(pixmap(name, t.line, size, ratio), QIcon.Mode.Disabled, QIcon.State.Off)
    return result


def _ratios() -> list[float]:
    """Pixels of the screen to a logical one: usual ones, and those of the screens. Qt enlarges no picture well."""
    return sorted({1.0, 2.0, *(screen.devicePixelRatio() for screen in QGuiApplication.screens())})


def app_icon() -> QIcon:
    """The program's own icon."""
    result = QIcon()
    for size in (16, 24, 32, 48, 64, 128, 256):
        result.addPixmap(pixmap("kvasir", "", size))
    return result
