"""The fields of a chat's settings say what they do not take, and forget nothing without a word."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QLabel

from app import language
from app.chat.settings.chat_settings import FIELDS, ChatSettings
from engine.protocol import Sampling

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
"""Grabbing the keyboard, which a popover does: the offscreen display has none."""


@pytest.fixture
def settings(qtbot, theme) -> ChatSettings:
    settings = ChatSettings(theme)
    qtbot.addWidget(settings)
    settings.show_for("", Sampling(top_p=0.9), None, QPoint(500, 0), chat="c")
    return settings


def type_into(settings: ChatSettings, **texts: str) -> None:
    for name, text in texts.items():
        settings.inputs[name].setText(text)
        settings.inputs[name].textEdited.emit(text)


def shown(settings: ChatSettings) -> list[str]:
    return [label.text() for label in settings.findChildren(QLabel) if label.property("role") == "bad" and label.text()]


def test_nonsense_is_red_with_its_sentence_below_it(settings, theme) -> None:
    wrong = {"temperature": "abc", "top_p": "7", "top_k": "nan", "seed": "9" * 60}
    type_into(settings, **wrong)
    assert len(shown(settings)) == 4
    assert "Temperature takes a number from 0 to 5." in shown(settings)
    assert "Top-k takes a whole number from 0 to 1,000,000." in shown(settings)
    for name, edit in settings.inputs.items():
        red = edit.grab().toImage().pixelColor(edit.width() // 2, 0) == theme.color("bad")
        assert red == (name in wrong), name
    field, label = settings.inputs["top_p"], settings._problems["top_p"]
    assert 0 < label.y() - field.geometry().bottom() < 20
    type_into(settings, temperature="0,5", top_p="", top_k="1,024", max_tokens="1.024", seed="")
    assert shown(settings) == []
    settings.hide()
    assert settings._value(FIELDS[0]) == 0.5
    assert [settings._value(field) for field in FIELDS if field.name in ("top_k", "max_tokens")] == [1024, 1024]


def test_what_was_not_taken_is_said_and_stands_there_again(settings, qtbot) -> None:
    type_into(settings, temperature="abc", top_p="7", top_k="3")
    said: list[str] = []
    settings.refused.connect(said.append)
    with qtbot.waitSignal(settings.changed) as changed:
        settings.hide()
    assert changed.args[1] == Sampling(top_p=0.9, top_k=3)
    assert "“abc” is not in force; it stays at its default." in said[0]
    assert "“7” is not in force; it stays at 0.9." in said[0]
    settings.show_for("", changed.args[1], None, QPoint(500, 0), chat="c")
    assert settings.inputs["temperature"].text() == "abc"
    assert len(shown(settings)) == 2
    settings.hide()
    settings.show_for("", Sampling(), None, QPoint(500, 0), chat="another")
    assert shown(settings) == []


def test_stop_strings_stand_on_lines(settings) -> None:
    settings.stop.setPlainText("END\n\\n\n###|")
    assert settings.values()[1].stop == ["END", "\n", "###|"]
    settings.fill("", settings.values()[1], None)
    assert settings.stop.toPlainText() == "END\n\\n\n###|"


def test_values_stand_there_as_german_writes_them_and_stay_what_they_are(settings) -> None:
    asked = Sampling(temperature=0.75, top_k=20_000, seed=1_234_567)
    language.choose("de")
    try:
        settings.fill("", asked, None)
        assert [settings.inputs[name].text() for name in ("temperature", "top_k", "seed")] == [
            "0,75",
            "20.000",
            "1.234.567",
        ]
        assert settings.values() == ("", asked)
        assert shown(settings) == []
    finally:
        language.choose("en")
