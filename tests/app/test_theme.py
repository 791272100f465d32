"""Tokens, style sheet, and the rule that colours live in app/theme/ alone."""

from __future__ import annotations

import gc
import inspect
import re
from pathlib import Path

import pytest
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QIcon, QImage, QPainter, QScreen, QTextDocument
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget

import app
from app.charts import tiles
from app.chat.transcript.text.tint import TOKENS, background
from app.theme import sheet
from app.theme.icons import app_icon, icon, pixmap
from app.theme.lists import draw_chosen
from app.theme.sheet import apply, build
from app.theme.theme import CONTRAST, DARK, DARK_HUES, LIGHT, LIGHT_HUES, Theme, mix
from app.theme.widgets import as_written, caption, named, tip

APP = Path(app.__file__).parent
LITERAL = re.compile(r"""["'(\s]#[0-9a-fA-F]{3,8}\b|(?<!\.)\brgba?\(|QColor\(\s*\d""")


def test_icons_have_a_picture_for_the_pixels_of_each_screen(qapp, theme, monkeypatch):
    for ratio in (1.0, 1.5, 2.0, 3.0):
        monkeypatch.setattr(QScreen, "devicePixelRatio", lambda _, ratio=ratio: ratio)
        shown = icon(theme, "sidebar", 18).pixmap(QSize(18, 18), ratio)
        assert (shown.width(), shown.devicePixelRatio()) == (round(18 * ratio), ratio)
        state = QIcon.Mode.Normal, QIcon.State.Off
        sharp = pixmap("sidebar", theme.tokens.mute, 18, ratio)
        assert icon(theme, "sidebar", 18).pixmap(QSize(18, 18), ratio, *state).toImage() == sharp.toImage()


def test_no_colour_literal_outside_the_theme():
    found = []
    for path in APP.rglob("*.py"):
        if "theme" in path.relative_to(APP).parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if LITERAL.search(line):
                found.append(f"{path.relative_to(APP)}:{number}: {line.strip()}")
    assert not found


def test_the_search_for_literals_finds_them():
    assert LITERAL.search('pen = "#ff00aa"')
    assert LITERAL.search("QColor(12, 3, 4)")
    assert not LITERAL.search("see issue#12 and '# Title'")


GROUNDS = ("bg", "panel", "raised")
TEXTS = ("text", "mute", "accent", "good", "warn", "bad", "violet", "teal")


@pytest.mark.parametrize("tokens", [DARK, LIGHT, CONTRAST])
def test_tokens_are_colours_and_every_text_is_readable_on_every_ground(tokens):
    """WCAG AA; AAA in high contrast, where edges are as clear as pictures have to be."""
    text, edge = (7, 3) if tokens is CONTRAST else (4.5, 1.1)
    assert all(QColor(value).isValid() for value in tokens)
    for ground in GROUNDS:
        under = getattr(tokens, ground)
        least = {**dict.fromkeys(TEXTS, text), "line": edge}
        found = {name: round(_contrast(getattr(tokens, name), under), 2) for name in least}
        assert {name: ratio for name, ratio in found.items() if ratio < least[name]} == {}, ground
    assert _contrast(tokens.on_accent, tokens.primary) >= text
    for hue in DARK_HUES if tokens is not LIGHT else LIGHT_HUES:
        assert _contrast(hue, tokens.panel) >= 3, "as of a picture's parts"


@pytest.mark.parametrize(("mode", "ground", "apart"), [("dark", 1.2, 1.4), ("light", 1.2, 1.3), ("contrast", 3, 1.3)])
def test_pages_of_the_map_are_seen_and_told_apart(qapp, mode, ground, apart):
    """In high contrast each as clear as WCAG asks of a picture's parts; a page in use stands out in every theme."""
    theme = Theme(mode)
    under, free, empty, shared, used, cached, *hues = (f"#{value & 0xFFFFFF:06x}" for value in tiles.palette(theme))
    assert under == theme.tokens.panel
    assert _contrast(free, under) >= ground
    assert min(_contrast(each, under) for each in (empty, cached, *hues[1::2])) >= max(ground, 1.6)
    assert min(_contrast(each, free) for each in (empty, cached, *hues[1::2])) >= apart
    assert min(_contrast(each, free) for each in (shared, used)) >= 3


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_part_of_a_picture_that_stands_back_is_clear_in_high_contrast(qapp, share):
    calm, clear = Theme("dark"), Theme("contrast")
    for name in TEXTS:
        assert calm.shade(name, share) == calm.tint(name, share, "panel")
        assert _contrast(clear.shade(name, share), CONTRAST.panel) >= 3
        assert _contrast(getattr(CONTRAST, name), clear.shade(name, share)) >= 1.5, "less than the part itself"


@pytest.mark.parametrize(("mode", "ground", "text"), [("dark", 1.3, 4.5), ("light", 1.3, 4.5), ("contrast", 2, 7)])
def test_a_tinted_word_is_seen_and_read(qapp, mode, ground, text):
    theme = Theme(mode)
    for token in TOKENS.values():
        under = background(theme, token)
        assert _contrast(under, theme.tokens.bg) >= ground
        assert _contrast(theme.tokens.text, under) >= text
        assert _contrast(theme.tokens.mute, under) >= (4.5 if mode == "contrast" else 3), "a comment in code"


@pytest.mark.parametrize(("mode", "edged"), [("dark", False), ("contrast", True)])
def test_a_chosen_row_has_an_edge_in_high_contrast(qapp, mode, edged):
    theme, image = Theme(mode), QImage(40, 20, QImage.Format.Format_RGB32)
    image.fill(QColor(theme.tokens.panel))
    painter = QPainter(image)
    draw_chosen(painter, image.rect(), theme)
    painter.end()
    assert image.pixelColor(20, 10).name() == theme.tokens.raised
    assert (_contrast(image.pixelColor(20, 0).name(), theme.tokens.panel) >= 3) is edged


def _contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio."""
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(value: str) -> float:
    color = QColor(value)
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color.getRgbF()[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_mode_changes_tokens_and_tells(qtbot, qapp):
    theme = Theme("light")
    assert theme.tokens == LIGHT
    with qtbot.waitSignal(theme.changed):
        theme.set_mode("dark")
    assert theme.dark
    assert theme.tokens == DARK
    with qtbot.assertNotEmitted(theme.changed):
        theme.set_mode("dark")


def test_high_contrast_is_a_dark_theme_of_its_own(qtbot, qapp):
    theme = Theme("dark")
    with qtbot.waitSignal(theme.changed):
        theme.set_mode("contrast")
    assert theme.tokens == CONTRAST
    assert theme.dark
    edge = (
        f'QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox, QPlainTextEdit[field="true"] {{ border-color: {CONTRAST.line}'
    )
    assert edge in build(theme)
    assert edge.replace(CONTRAST.line, DARK.line) not in build(Theme("dark"))
    assert _contrast(CONTRAST.mute, theme.tint("accent", 0.2, "raised")) >= 7, "words on what has the focus"
    assert theme.palette().text().color() == QColor(CONTRAST.text)


def test_system_mode_follows_the_desktop_while_running(qtbot, qapp, monkeypatch):
    desktop = {"dark": True}
    monkeypatch.setattr("app.theme.theme._desktop_is_dark", lambda: desktop["dark"])
    theme, fixed = Theme("system"), Theme("dark")
    apply(theme, qapp)
    assert theme.dark
    desktop["dark"] = False
    with qtbot.waitSignal(theme.changed), qtbot.assertNotEmitted(fixed.changed):
        QGuiApplication.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Light)
    assert theme.tokens == LIGHT
    assert LIGHT.accent in qapp.styleSheet()
    assert fixed.dark


def test_scale_changes_every_text_size_and_is_clamped(theme):
    before = build(theme)
    theme.set_scale(1.5)
    assert theme.px(12) == 18
    assert build(theme) != before
    theme.set_scale(9)
    assert theme.scale == 2.0
    assert theme.ui_font().pixelSize() == theme.px(14)


def test_reduced_motion_stops_transitions(theme):
    assert theme.motion_ms == 120
    theme.set_reduced_motion(True)
    assert theme.motion_ms == 0


def test_mix():
    assert mix("#ffffff", "#000000", 1.0) == "#ffffff"
    assert mix("#ffffff", "#000000", 0.5) == "#808080"


def test_every_icon_renders_something(qapp, theme):
    names = [path.stem for path in (APP.parent / "assets" / "icons").glob("*.svg")]
    assert "kvasir" in names
    for name in names:
        image = pixmap(name, theme.tokens.text, 16).toImage()
        assert any(image.pixelColor(x, y).alpha() for x in range(16) for y in range(16)), name
    assert not icon(theme, "measure").isNull()
    assert not app_icon().isNull()


def test_markup_from_elsewhere_is_shown_as_it_is_written(qtbot):
    assert tip("A sentence.") == "A sentence."
    assert "&lt;b&gt;" in tip("A model <b>name</b>.")
    shown = QTextDocument()
    shown.setHtml(as_written("models/<b>one</b>\ntwo"))
    assert shown.toPlainText() == "models/<b>one</b>\ntwo"
    label = caption("<b>name</b>")
    qtbot.addWidget(label)
    assert label.textFormat() is Qt.TextFormat.PlainText


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("kind", ["", "quiet", "link", "primary"])
def test_a_button_shows_that_it_is_disabled(qtbot, qapp, mode, kind):
    apply(Theme(mode), qapp)
    button = named(QPushButton("Copy"), "x", **({"kind": kind} if kind else {}))
    qtbot.addWidget(button)
    button.resize(100, 30)
    enabled = button.grab().toImage()
    button.setEnabled(False)
    assert button.grab().toImage() != enabled


def test_a_widget_is_given_properties_of_qt_or_of_the_style_sheet(qapp):
    assert set(re.findall(r'\[(\w+)="', inspect.getsource(sheet))) - {"name"} == sheet.STYLED
    label = named(QLabel(), "x", role="caption", wordWrap=True, tooltip="y")
    assert (label.objectName(), label.property("role"), label.wordWrap(), label.toolTip()) == (
        "x",
        "caption",
        True,
        "y",
    )
    with pytest.raises(AssertionError, match="QLabel has no worldWrap"):
        named(label, worldWrap=True)


@pytest.fixture
def styled(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each widget that is styled, whether garbage could be collected just then."""
    found: list[bool] = []

    class Counting(sheet.PlainLabels):
        def polish(self, what: object) -> object:
            found.append(gc.isenabled())
            return super().polish(what)

    monkeypatch.setattr(sheet, "PlainLabels", Counting)
    return found


def test_a_change_styles_each_widget_once_and_collects_none(qtbot, styled):
    """Not once for each widget that it is in; and Qt would go on with one that is no more."""
    theme, inner = Theme("dark"), QWidget()
    apply(theme, QApplication.instance())
    outer = inner
    qtbot.addWidget(outer)
    for _ in range(20):
        inner = QWidget(inner)
    outer.show()
    styled.clear()
    theme.set_scale(1.5)
    assert 20 < len(styled) < 100
    assert not any(styled)
    assert gc.isenabled()
