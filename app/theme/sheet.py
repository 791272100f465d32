"""The style sheet, built from the tokens.

Widgets ask for a look with dynamic properties, so that no widget names a colour:

- ``surface``: "bg", "panel", "raised" (a QWidget or QFrame that paints its background); ``edge``: "top", "bottom",
  "left", "right" draws one hairline there, "all" a box with radius 8.
- ``role`` on a QLabel: "caption", "section" (upper-case head), "title", "headline" (a result), "figure" (semibold),
  "tiny", "mute", "right" (a prediction that was), "good", "warn", "bad".
- ``kind`` on a QPushButton or QToolButton: "primary", "quiet" (no background until hovered), "tab" (top bar), "link",
  "heading" (the name of a card, which opens it), "round" and "round-news" (over a page, with something new),
  "choice" (opens a menu of values; on a spin box: as small as that);
  without one it is a plain raised button.
- ``card`` on a QFrame: "user" (a message of the person), "composer", "code", "notice", "bad" (an error notice),
  "choice" (one of several things to do), "tip" (over the window, next to the mouse), "palette" (over the window).

After changing a property at run time call :func:`restyle`; :func:`set_role` does both.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRect, Qt
from PySide6.QtGui import QColor, QPainter, QPalette
from PySide6.QtWidgets import QApplication, QLabel, QProxyStyle, QWidget

from app.theme.direction import flags as flags_of
from app.theme.direction import mirrored
from app.theme.theme import CAPTION_PX, HEADLINE_PX, SECTION_PX, TITLE_PX, Theme, mix
from engine.base.collector import no_collection

STYLED = {"badge", "card", "edge", "field", "kind", "ring", "role", "segmented", "surface", "wrong"}
"""Properties by which the style sheet tells widgets apart."""


def restyle(widget: QWidget) -> None:
    """Make the widget notice a dynamic property that changed."""
    widget.style().unpolish(widget)
    widget.style().polish(widget)
    QApplication.sendEvent(widget, QEvent(QEvent.Type.StyleChange))  # else a label keeps the width without its frame
    widget.update()


def set_role(widget: QWidget, role: str) -> None:
    """Give a label another role."""
    if widget.property("role") != role:
        widget.setProperty("role", role)
        restyle(widget)


class PlainLabels(QProxyStyle):
    """Fusion, in which a label shows its words as they are written unless it was told that they are marked up.

    Qt would guess, and take a name such as "<b>x</b>" for bold.
    """

    def polish(self, what: object) -> object:  # type: ignore[override]
        guesses = isinstance(what, QLabel) and what.textFormat() is Qt.TextFormat.AutoText
        if guesses and what.metaObject().className() != "QTipLabel":  # type: ignore[attr-defined]
            what.setTextFormat(Qt.TextFormat.PlainText)  # type: ignore[attr-defined]
        return super().polish(what)  # type: ignore[call-overload]


class MirroredLabels(PlainLabels):
    """The same for a mirrored window, in which Qt would draw "100 %" and a name in Latin letters leftwards."""

    def drawItemText(
        self,
        painter: QPainter,
        rect: QRect,
        flags: int,
        pal: QPalette | Qt.GlobalColor | QColor,
        enabled: bool,
        text: str,
        role: QPalette.ColorRole = QPalette.ColorRole.NoRole,
    ) -> None:
        own = flags_of(text, int(flags), painter.layoutDirection())
        super().drawItemText(painter, rect, own, pal, enabled, text, role)


def apply(theme: Theme, app: QApplication) -> None:
    """Give the application this theme, now and after every change: before whoever hears of a change later than this."""
    prepare(theme, app)
    dress(theme, app)


def prepare(theme: Theme, app: QApplication) -> None:
    """``apply`` without the present sheet, under which each widget is styled anew whenever it gets a parent."""
    with no_collection():  # Qt walks through a list of all widgets and calls Python for each: none may go meanwhile
        app.setStyleSheet("")
        app.setStyle((MirroredLabels if mirrored() else PlainLabels)("Fusion"))
        _paint(theme, app)
    theme.changed.connect(lambda: dress(theme, app))


def dress(theme: Theme, app: QApplication) -> None:
    """Font, palette and sheet. The present sheet goes first: put in its place, each widget would be styled once for
    every widget that it is in, which takes five times as long."""
    with no_collection():
        app.setStyleSheet("")
        _paint(theme, app)
        app.setStyleSheet(build(theme))


def _paint(theme: Theme, app: QApplication) -> None:
    app.setFont(theme.ui_font())
    app.setPalette(theme.palette())


def build(theme: Theme) -> str:
    """The application's style sheet for the theme's present tokens and text scale."""
    parts = _text(theme), _surfaces(theme), _buttons(theme), _inputs(theme), _containers(theme)
    return "\n".join((*parts, _edges(theme) if theme.edged else ""))


def _text(theme: Theme) -> str:
    t = theme.tokens
    caption, section, title = theme.px(CAPTION_PX), theme.px(SECTION_PX), theme.px(TITLE_PX)
    return f"""
    QWidget {{ color: {t.text}; }}
    QWidget:disabled {{ color: {t.mute}; }}
    QLabel {{ background: transparent; }}
    QLabel[role="caption"] {{ color: {t.mute}; font-size: {caption}px; }}
    QLabel[role="section"] {{ color: {t.mute}; font-size: {section}px; letter-spacing: 1px;
        text-transform: uppercase; }}
    QLabel[role="title"] {{ font-size: {title}px; font-weight: 600; }}
    QLabel[role="headline"] {{ font-size: {theme.px(HEADLINE_PX)}px; font-weight: 700; }}
    QLabel[role="right"] {{ color: {t.good}; }}
    QLabel[role="tiny"] {{ color: {t.mute}; font-size: {section}px; }}
    QLabel[role="figure"] {{ font-weight: 600; }}
    QLabel[role="small-figure"] {{ font-size: {caption}px; font-weight: 600; }}
    QLabel[role="mute"] {{ color: {t.mute}; }}
    QLabel[role="good"] {{ color: {t.good}; font-size: {caption}px; }}
    QLabel[role="warn"] {{ color: {t.warn}; font-size: {caption}px; }}
    QLabel[role="bad"] {{ color: {t.bad}; font-size: {caption}px; }}
    QLabel[name="true"] {{ border: 1px solid transparent; border-radius: 4px; }}
    QLabel[name="true"]:focus {{ border-color: {t.accent}; }}
    QLabel[badge] {{ font-size: {section}px; padding: 1px 5px; border: 1px solid {t.line}; border-radius: 3px; }}
    QLabel[badge="good"] {{ color: {t.good}; border-color: {theme.tint("good", 0.6, "panel")}; }}
    QLabel[badge="warn"] {{ color: {t.warn}; border-color: {theme.tint("warn", 0.6, "panel")}; }}
    QLabel[badge="bad"] {{ color: {t.bad}; border-color: {theme.tint("bad", 0.6, "panel")}; }}
    QLabel[badge="mute"] {{ color: {t.mute}; border-color: {t.line}; }}
    QToolTip {{ color: {t.text}; background: {t.raised}; border: 1px solid {t.line}; padding: 4px 8px;
        font-size: {caption}px; }}
    """


def _surfaces(theme: Theme) -> str:
    t = theme.tokens
    edges = "\n".join(
        f'*[edge="{side}"] {{ border: none; border-{side}: 1px solid {t.line}; }}'
        for side in ("top", "bottom", "left", "right")
    )
    return f"""
    QMainWindow, QDialog {{ background: {t.panel}; }}
    *[surface="bg"] {{ background: {t.bg}; }}
    *[surface="panel"] {{ background: {t.panel}; }}
    *[surface="raised"] {{ background: {t.raised}; }}
    {edges}
    *[edge="all"] {{ border: 1px solid {t.line}; border-radius: 8px; }}
    QFrame[card="user"] {{ background: {t.raised}; border-radius: 10px; }}
    QFrame[card="composer"] {{ background: {t.panel}; border: 1px solid {t.line}; border-radius: 12px; }}
    QFrame[card="choice"] {{ background: {t.panel}; border: 1px solid {t.line}; border-radius: 10px; }}
    QFrame[card="choice"]:focus {{ border-color: {t.accent}; }}
    QFrame[card="code"] {{ background: {theme.code_background}; border: 1px solid {t.line}; border-radius: 8px; }}
    QFrame[card="notice"] {{ background: {theme.tint("accent", 0.12, "panel")}; border: none; }}
    QFrame[card="palette"] {{ background: {t.panel}; border: 1px solid {t.line}; border-radius: 12px; }}
    QFrame[card="window"] {{ background: {t.panel}; border: 1px solid {t.line}; }}
    QFrame[card="tip"] {{ background: {t.raised}; border: 1px solid {t.line}; border-radius: 8px; }}
    QFrame[card="bad"] {{ background: {theme.tint("bad", 0.14, "panel")}; border: none; }}
    """


def _buttons(theme: Theme) -> str:
    t = theme.tokens
    hover = theme.tint("text", 0.08, "raised")
    bright = mix(t.bg if theme.dark else t.text, t.primary, 0.10)  # darker, so that its words stay readable
    return f"""
    QPushButton, QToolButton {{ background: {t.raised}; border: 1px solid {t.raised}; border-radius: 6px;
        padding: 5px 11px; }}
    QToolButton {{ padding: 3px; }}
    QPushButton:hover, QToolButton:hover {{ background: {hover}; border-color: {hover}; }}
    QPushButton:focus, QToolButton:focus {{ border-color: {t.accent}; }}
    QPushButton:disabled, QToolButton:disabled {{ color: {t.mute}; }}
    QPushButton[kind="primary"] {{ background: {t.primary}; border-color: {t.primary}; color: {t.on_accent}; }}
    QPushButton[kind="primary"]:hover {{ background: {bright}; border-color: {bright}; }}
    QPushButton[kind="primary"]:focus {{ border-color: {t.text}; }}
    QPushButton[kind="primary"]:disabled {{ background: {t.raised}; border-color: {t.raised}; color: {t.mute}; }}
    QToolButton[kind^="round"] {{ background: {t.panel}; border: 1px solid {t.line};
        border-radius: {max(16, theme.px(16))}px; }}
    QToolButton[kind^="round"]:hover {{ background: {t.raised}; border-color: {t.line}; }}
    QToolButton[kind="round-news"] {{ border-color: {t.accent}; }}
    *[kind="quiet"] {{ background: transparent; border-color: transparent; color: {t.mute}; }}
    *[kind="quiet"]:hover {{ background: {t.raised}; border-color: {t.raised}; color: {t.text}; }}
    *[kind="quiet"]:focus {{ border-color: {t.accent}; }}
    *[kind="quiet"]:checked {{ color: {t.text}; }}
    *[kind="link"] {{ background: transparent; border: 1px solid transparent; color: {t.mute}; padding: 0 2px;
        border-radius: 4px; font-size: {theme.px(CAPTION_PX)}px; }}
    *[kind="link"][role="tiny"] {{ font-size: {theme.px(SECTION_PX)}px; padding: 0; }}
    *[kind="link"]:hover, *[kind="link"]:focus {{ color: {t.accent}; background: transparent; }}
    *[kind="link"]:hover {{ border-color: transparent; }}
    *[kind="link"]:focus {{ border-color: {t.accent}; outline: none; }}
    *[kind="link"]:disabled, *[kind="quiet"]:disabled {{ color: {theme.tint("mute", 0.5, "panel")}; }}
    *[kind="heading"] {{ background: transparent; border: 1px solid transparent; padding: 0 2px; font-weight: 600;
        text-align: left; }}
    *[kind="heading"]:hover {{ background: transparent; border-color: transparent; color: {t.accent}; }}
    *[kind="heading"]:focus {{ border-color: {t.accent}; }}
    *[kind="tab"] {{ background: transparent; border: none; border-radius: 0; color: {t.mute};
        padding: 11px 1px 10px 1px; border-bottom: 2px solid transparent; }}
    *[kind="tab"]:hover {{ color: {t.text}; background: transparent; }}
    *[kind="tab"]:focus {{ color: {t.text}; background: transparent; border: none;
        border-bottom: 2px solid {t.line}; }}
    *[kind="tab"]:checked {{ color: {t.text}; border-bottom: 2px solid {t.accent}; }}
    QFrame[segmented="true"] {{ background: {t.raised}; border: none; border-radius: 6px; }}
    *[kind="segment"] {{ background: transparent; border: 1px solid transparent; border-radius: 5px; color: {t.mute};
        padding: 3px 8px; font-size: {theme.px(CAPTION_PX)}px; }}
    *[kind="segment"]:hover {{ background: transparent; border-color: transparent; color: {t.text}; }}
    *[kind="segment"]:focus {{ border-color: {t.accent}; }}
    *[kind="segment"]:checked {{ background: {theme.segment_background}; color: {t.text}; }}
    *[kind="segment"]:disabled {{ color: {theme.tint("mute", 0.5, "raised")}; }}
    QPushButton[kind="choice"] {{ padding: 4px 6px; font-size: {theme.px(CAPTION_PX)}px; }}
    QPushButton::menu-indicator, QToolButton::menu-indicator {{ width: 0; image: none; }}
    """


def _edges(theme: Theme) -> str:
    """Edges of controls whose grounds alone are too faint, and grounds for what is chosen or has the focus. They come
    after the rules that they change."""
    t = theme.tokens
    ground = theme.tint("accent", 0.2, "raised")
    fields = ("QLineEdit", "QSpinBox", "QDoubleSpinBox", "QComboBox", 'QPlainTextEdit[field="true"]')
    controls = ", ".join(("QPushButton", "QToolButton", *fields))
    focused = ", ".join(f"{each}:focus" for each in ("QPushButton", "QToolButton", '*[kind="quiet"]', *fields))
    return f"""
    {controls} {{ border-color: {t.line}; }}
    QPushButton:hover, QToolButton:hover, *[kind="quiet"]:hover {{ border-color: {t.text}; }}
    {focused} {{ border-color: {t.accent}; background: {ground}; }}
    QAbstractSpinBox > QLineEdit, QAbstractSpinBox > QLineEdit:focus {{ background: transparent; border: none; }}
    QPushButton[kind="primary"]:focus {{ border-color: {t.text}; background: {t.primary}; }}
    QPushButton[kind="primary"]:disabled {{ border-color: {t.line}; }}
    QFrame[segmented="true"], QFrame[card="user"] {{ border: 1px solid {t.line}; }}
    QFrame[card="notice"], QFrame[card="bad"] {{ border: none; border-top: 1px solid {t.line};
        border-bottom: 1px solid {t.line}; }}
    *[kind="segment"] {{ border-color: transparent; }}
    *[kind="segment"]:focus {{ border-color: {t.text}; background: {ground}; }}
    *[kind="segment"]:checked {{ background: {t.primary}; color: {t.on_accent}; }}
    *[kind="link"]:focus {{ background: transparent; }}
    *[kind="tab"]:hover {{ border: none; border-bottom: 2px solid {t.line}; }}
    *[kind="tab"]:focus {{ border: none; border-bottom: 2px solid {t.text}; background: {ground}; }}
    *[kind="tab"]:checked {{ border-bottom: 2px solid {t.accent}; }}
    QListView::item:selected {{ border: 1px solid {t.line}; padding: 5px 9px; }}
    QScrollBar::handle {{ background: {t.line}; }}
    """


def _inputs(theme: Theme) -> str:
    t = theme.tokens
    return f"""
    QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox {{ background: {t.raised}; border: 1px solid {t.raised};
        border-radius: 6px; padding: 5px 9px; selection-background-color: {t.primary};
        selection-color: {t.on_accent}; }}
    QLineEdit, QPlainTextEdit {{ placeholder-text-color: {t.mute}; }}
    QSpinBox, QDoubleSpinBox {{ padding: 3px 2px; }}
    QAbstractSpinBox[kind="choice"] {{ padding: 2px; font-size: {theme.px(CAPTION_PX)}px; }}
    QAbstractSpinBox > QLineEdit {{ background: transparent; border: none; padding: 0 6px; }}
    QSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::up-button, QDoubleSpinBox::down-button {{
        width: 0; border: none; }}
    QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus {{ border-color: {t.accent}; }}
    QLineEdit[wrong="true"] {{ border-color: {t.bad}; }}
    QComboBox::drop-down {{ border: none; width: 16px; }}
    QComboBox QAbstractItemView {{ background: {t.raised}; border: 1px solid {t.line};
        selection-background-color: {t.primary}; selection-color: {t.on_accent}; }}
    QPlainTextEdit, QTextEdit, QTextBrowser {{ background: transparent; border: none;
        selection-background-color: {t.primary}; selection-color: {t.on_accent}; }}
    QPlainTextEdit[field="true"] {{ background: {t.raised}; border: 1px solid {t.raised}; border-radius: 6px;
        padding: 4px 6px; }}
    QPlainTextEdit[field="true"]:focus {{ border-color: {t.accent}; }}
    QCheckBox, QRadioButton {{ spacing: 8px; background: transparent; }}
    QRadioButton {{ border: 1px solid transparent; border-radius: 4px; padding: 2px 4px 2px 0; }}
    QRadioButton:focus {{ border-color: {t.accent}; }}
    QRadioButton::indicator {{ width: 6px; height: 6px; border: 4px solid {t.raised}; border-radius: 7px;
        background: {t.raised}; }}
    QRadioButton::indicator:unchecked {{ width: 12px; height: 12px; border: 1px solid {t.mute}; }}
    QRadioButton::indicator:checked {{ border-color: {t.accent}; background: {t.on_accent}; }}
    QSlider::groove:horizontal {{ height: 4px; background: {t.line}; border-radius: 2px; }}
    QSlider::sub-page:horizontal {{ background: {t.accent}; border-radius: 2px; }}
    QSlider::handle:horizontal {{ width: 14px; margin: -5px 0; border-radius: 7px; background: {t.text}; }}
    QSlider::handle:horizontal:focus {{ background: {t.accent}; }}
    QSlider::sub-page:horizontal:disabled, QSlider::handle:horizontal:disabled {{ background: {t.mute}; }}
    QProgressBar {{ background: {t.raised}; border: none; border-radius: 3px; max-height: 6px; min-height: 6px; }}
    QProgressBar::chunk {{ background: {t.accent}; border-radius: 3px; }}
    """


def _containers(theme: Theme) -> str:
    t = theme.tokens
    handle = theme.tint("mute", 0.4, "panel")
    return f"""
    QScrollArea, QListView, QTreeView, QTableView {{ background: transparent; border: none; outline: none; }}
    QScrollArea#transcript, QScrollArea[ring="true"] {{ border: 1px solid transparent; }}
    QScrollArea#transcript[ring="true"]:focus, QScrollArea[ring="true"]:focus {{ border-color: {t.accent}; }}
    QScrollArea > QWidget > QWidget {{ background: transparent; }}
    QTableView {{ font-size: {theme.px(CAPTION_PX)}px; }}
    QHeaderView::section {{ background: transparent; border: none; border-bottom: 1px solid {t.line}; color: {t.mute};
        padding: 4px 4px; font-size: {theme.px(CAPTION_PX)}px; }}
    QListView::item {{ padding: 6px 10px; border-radius: 6px; color: {t.text}; }}
    QListView::item:hover {{ background: {theme.tint("raised", 0.5, "panel")}; }}
    QListView::item:selected {{ background: {t.raised}; color: {t.text}; }}
    QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
    QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
    QScrollBar::handle {{ background: {handle}; border-radius: 3px; margin: 2px; }}
    QScrollBar::handle:vertical {{ min-height: 28px; }}
    QScrollBar::handle:horizontal {{ min-width: 28px; }}
    QScrollBar::handle:hover {{ background: {t.mute}; }}
    QScrollBar::handle:disabled {{ background: transparent; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
    QAbstractScrollArea::corner {{ background: transparent; border: none; }}
    QSplitter::handle {{ background: {t.line}; }}
    QMenu {{ background: {t.raised}; border: 1px solid {t.line}; border-radius: 6px; padding: 4px; }}
    QMenu {{ menu-scrollable: 1; }}
    QMenu::item {{ padding: 5px 20px 5px 12px; border-radius: 4px; }}
    QMenu::item:selected {{ background: {t.primary}; color: {t.on_accent}; }}
    QMenu::item:disabled {{ color: {t.mute}; background: transparent; }}
    QMenu::separator {{ height: 1px; background: {t.line}; margin: 4px 8px; }}
    """
