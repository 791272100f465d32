"""The one place that holds colours, fonts and the measures of the grid; everything else asks a :class:`Theme`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette

Look = Literal["light", "dark", "contrast"]
Mode = Literal["system", "light", "dark", "contrast"]

MOTION_MS = 120
TEXT_PX = 14
CAPTION_PX = 12
SECTION_PX = 11
TITLE_PX = 15
HEADLINE_PX = 20
CODE_PX = 13


class Tokens(NamedTuple):
    """The palette of one colour scheme, as ``#rrggbb``."""

    bg: str
    panel: str
    raised: str
    line: str
    text: str
    mute: str
    accent: str
    good: str
    warn: str
    bad: str
    violet: str
    teal: str
    primary: str
    """Ground of a primary button and of what is selected: the accent, as dark as ``on_accent`` needs."""
    on_accent: str


DARK = Tokens(
    bg="#14161a",
    panel="#1b1e24",
    raised="#232730",
    line="#2c313b",
    text="#e7e9ee",
    mute="#98a0ae",
    accent="#5b8cff",
    good="#3fb68b",
    warn="#e0a33e",
    bad="#e26b65",
    violet="#a884f3",
    teal="#45b8c8",
    primary="#3b6be5",
    on_accent="#ffffff",
)
LIGHT = Tokens(
    bg="#f7f8fa",
    panel="#ffffff",
    raised="#eef0f4",
    line="#dfe3ea",
    text="#1b1f27",
    mute="#626b7a",
    accent="#2f62e0",
    good="#197956",
    warn="#946000",
    bad="#c23b35",
    violet="#7547d8",
    teal="#127785",
    primary="#2f62e0",
    on_accent="#ffffff",
)
CONTRAST = Tokens(
    bg="#000000",
    panel="#000000",
    raised="#1c1f24",
    line="#8a919e",
    text="#ffffff",
    mute="#d0d5de",
    accent="#8fb4ff",
    good="#5fe0b0",
    warn="#ffcf70",
    bad="#ff9d97",
    violet="#cdb4ff",
    teal="#7fe0ee",
    primary="#8fb4ff",
    on_accent="#000000",
)
"""Dark, with seven times the luminance of the ground in every text and three times in every edge (WCAG AAA)."""

_TOKENS: dict[Look, Tokens] = {"light": LIGHT, "dark": DARK, "contrast": CONTRAST}

DARK_HUES = ("#45b8c8", "#e27fb0", "#b7c356", "#5b8cff", "#d98a5b", "#7fd0a4", "#e3c567", "#8fa3c8")
LIGHT_HUES = ("#127785", "#b8417d", "#6d7a12", "#2f62e0", "#a9541c", "#2f8f62", "#9a7412", "#566a92")
"""Colours of chats in the page map and the prefix tree, in the order in which they are given out."""

_LEAST_SHARE = 0.4


def mix(over: str, under: str, share: float) -> str:
    """``share`` of the colour ``over`` painted on the colour ``under``, as ``#rrggbb``."""
    a, b = QColor(over), QColor(under)
    red, green, blue = (
        round(x * share + y * (1 - share))
        for x, y in zip((a.red(), a.green(), a.blue()), (b.red(), b.green(), b.blue()), strict=True)
    )
    return f"#{red:02x}{green:02x}{blue:02x}"


def _desktop_is_dark() -> bool:
    return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark


class Theme(QObject):
    """Colours and fonts in force. ``changed`` follows every change of scheme, text size or motion.

    ``mode`` "system" follows the desktop's own light or dark setting while the program runs.
    """

    changed = Signal()

    def __init__(self, mode: Mode = "system", scale: float = 1.0, reduced_motion: bool = False) -> None:
        super().__init__()
        self._mode: Mode = mode
        self._scale = scale
        self._reduced_motion = reduced_motion
        self._look = self._wanted_look()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._follow)

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def dark(self) -> bool:
        """True if text is brighter than its ground."""
        return self._look != "light"

    @property
    def edged(self) -> bool:
        """True if each control has an edge: in high contrast its ground alone does not tell where it is."""
        return self._look == "contrast"

    @property
    def tokens(self) -> Tokens:
        return _TOKENS[self._look]

    @property
    def chat_hues(self) -> tuple[str, ...]:
        """Colours that tell chats apart where several show at once, as ``#rrggbb``."""
        return DARK_HUES if self.dark else LIGHT_HUES

    @property
    def code_background(self) -> str:
        """Code stands a little below the transcript: darker in the dark, greyer in the light."""
        return {"dark": "#0f1115", "light": "#eff1f5", "contrast": CONTRAST.bg}[self._look]

    @property
    def segment_background(self) -> str:
        """The chosen segment of a segmented control."""
        return {"dark": DARK.bg, "light": LIGHT.panel, "contrast": CONTRAST.bg}[self._look]

    @property
    def scale(self) -> float:
        """Factor on every text size, 1.0 being LOOK's 14 px."""
        return self._scale

    @property
    def motion_ms(self) -> int:
        """Length of a transition in milliseconds; 0 with reduced motion."""
        return 0 if self._reduced_motion else MOTION_MS

    def color(self, name: str, alpha: float = 1.0) -> QColor:
        """The token ``name`` as a QColor. Raises AttributeError for a name that is no token."""
        color = QColor(getattr(self.tokens, name))
        color.setAlphaF(alpha)
        return color

    def tint(self, name: str, share: float = 0.22, under: str = "bg") -> str:
        """The token ``name`` mixed into another token: the background of a drafted word, a notice, a badge."""
        return mix(getattr(self.tokens, name), getattr(self.tokens, under), share)

    def shade(self, name: str, share: float, under: str = "panel") -> str:
        """The token ``name`` mixed into another token: a part of a picture that stands back. In high contrast it has
        three times the luminance of the ground (WCAG for graphics) from a ``share`` of 0.2 on."""
        return self.tint(name, _LEAST_SHARE + (1 - _LEAST_SHARE) * share if self.edged else share, under)

    def set_mode(self, mode: Mode) -> None:
        self._mode = mode
        self._refresh(force=False)

    def set_scale(self, scale: float) -> None:
        """``scale`` is clamped to 0.8 .. 2.0."""
        before, self._scale = self._scale, min(2.0, max(0.8, scale))
        self._refresh(force=self._scale != before)

    def set_reduced_motion(self, reduced: bool) -> None:
        self._reduced_motion = reduced
        self.changed.emit()

    def px(self, size: int) -> int:
        """A text size in pixels at the chosen scale."""
        return max(8, round(size * self._scale))

    def ui_font(self, size: int = TEXT_PX, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
        """The system's UI font with tabular figures. ``size`` in pixels before the scale."""
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
        font.setPixelSize(self.px(size))
        font.setWeight(weight)
        font.setFeature(QFont.Tag("tnum"), 1)
        return font

    def mono_font(self, size: int = CODE_PX) -> QFont:
        """The system's fixed-pitch font."""
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setPixelSize(self.px(size))
        font.setStyleHint(QFont.StyleHint.Monospace)
        return font

    def _wanted_look(self) -> Look:
        if self._mode == "system":
            return "dark" if _desktop_is_dark() else "light"
        return self._mode

    def _follow(self) -> None:
        self._refresh(force=False)

    def _refresh(self, force: bool) -> None:
        look = self._wanted_look()
        if look == self._look and not force:
            return
        self._look = look
        self.changed.emit()

    def palette(self) -> QPalette:
        """The colours of what draws itself without a style sheet."""
        t = self.tokens
        roles = {
            QPalette.ColorRole.Window: t.panel,
            QPalette.ColorRole.WindowText: t.text,
            QPalette.ColorRole.Base: t.bg,
            QPalette.ColorRole.AlternateBase: t.raised,
            QPalette.ColorRole.Text: t.text,
            QPalette.ColorRole.PlaceholderText: t.mute,
            QPalette.ColorRole.Button: t.raised,
            QPalette.ColorRole.ButtonText: t.text,
            QPalette.ColorRole.BrightText: t.on_accent,
            QPalette.ColorRole.Highlight: t.primary,
            QPalette.ColorRole.HighlightedText: t.on_accent,
            QPalette.ColorRole.ToolTipBase: t.raised,
            QPalette.ColorRole.ToolTipText: t.text,
            QPalette.ColorRole.Link: t.accent,
            QPalette.ColorRole.LinkVisited: t.violet,
            QPalette.ColorRole.Mid: t.line,
            QPalette.ColorRole.Dark: t.line,
            QPalette.ColorRole.Light: t.raised,
        }
        palette = QPalette()
        for role, value in roles.items():
            palette.setColor(role, QColor(value))
        for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
            palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(t.mute))
        return palette
