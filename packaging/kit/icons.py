"""The icons that desktops look for, drawn from the one SVG."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PySide6.QtGui import QImage

SOURCE = Path(__file__).resolve().parents[2] / "assets" / "icons" / "kvasir.svg"
SIZES = (16, 22, 24, 32, 48, 64, 96, 128, 256, 512)
"""Widths in pixels; panels take 16 to 48, menus 48 to 128, software centres 128 and more."""


def write(hicolor: Path) -> None:
    """Fill the folder share/icons/hicolor: a PNG of each size, and the SVG for whoever can draw it."""
    for size in SIZES:
        place = hicolor / f"{size}x{size}" / "apps" / "kvasir.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        draw(SOURCE, size, place)
    scalable = hicolor / "scalable" / "apps" / "kvasir.svg"
    scalable.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SOURCE, scalable)


def draw(svg: Path, size: int, place: Path) -> None:
    """A square PNG with a transparent ground, without a time or a program's name: the same picture, the same bytes."""
    if not picture(svg, size).save(str(place), "PNG"):
        raise OSError(f"{place} cannot be written.")


def picture(svg: Path, size: int) -> QImage:
    """The picture in ``size`` pixels square. Raises ValueError for what is no SVG."""
    from PySide6.QtCore import Qt
    from PySide6.QtGui import QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    renderer = QSvgRenderer(str(svg))
    if not renderer.isValid():
        raise ValueError(f"{svg} is no picture that Qt can draw.")
    image = QImage(size, size, QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    return image
