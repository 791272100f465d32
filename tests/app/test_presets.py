"""Presets of a system prompt and sampling: made, applied to any chat, renamed and deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction

from app.chat.settings.chat_settings import ChatSettings
from app.program import WindowProgram
from app.settings.store import ModelSettings, Preset
from engine.protocol import Load, Sampling

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
"""Grabbing the keyboard, which a popover does: the offscreen display has none."""

TERSE = Preset("Be terse.", Sampling(temperature=0.1))


def opened(program: WindowProgram) -> ChatSettings:
    program.chat.header.settings.click()
    return program.chat.settings


def offered(settings: ChatSettings) -> dict[str, QAction]:
    actions = settings.preset.button.menu().actions()
    return {action.objectName().removeprefix("preset."): action for action in actions if not action.isSeparator()}


def name_it(qtbot, settings: ChatSettings, name: str) -> None:
    settings.preset.field.setText(name)
    qtbot.keyClick(settings.preset.field, Qt.Key.Key_Return)


def in_chat(program: WindowProgram) -> Preset:
    chat = program.chat.session.talk.chat
    return Preset(chat.system_prompt, chat.sampling)


@pytest.mark.slow
def test_a_preset_is_made_and_used_in_another_chat(start: Callable[..., WindowProgram], qtbot) -> None:
    program = start()
    settings = opened(program)
    assert settings.preset.button.text() == "None ▾"
    assert list(offered(settings)) == ["save"]
    settings.system.setPlainText("Be terse.")
    settings.inputs["temperature"].setText("0.1")
    offered(settings)["save"].trigger()
    name_it(qtbot, settings, " ")
    assert settings.preset.problem == "A preset needs a name."
    name_it(qtbot, settings, "terse")
    assert settings.preset.button.text() == "terse ▾"
    assert not settings.preset.problem
    settings.hide()
    assert in_chat(program) == TERSE
    program.chat.send("Hello")
    qtbot.waitUntil(lambda: not program.chat.streaming)

    program.chat.new_chat()
    assert in_chat(program) == Preset()
    settings = opened(program)
    offered(settings)["terse"].trigger()
    settings.hide()
    assert in_chat(program) == TERSE
    program.close()

    again = start()
    settings = opened(again)
    assert settings.preset.button.text() == "None ▾"
    assert "terse" in offered(settings)
    settings.hide()
    again.chat.open_chat(again.history.chats()[0].id)
    assert opened(again).preset.button.text() == "terse ▾", "it is known again by its values"
    again.chat.settings.hide()


def test_it_is_changed_renamed_and_deleted(start: Callable[..., WindowProgram], qtbot) -> None:
    program = start()
    program.store.update(
        presets={"terse": TERSE, "other": Preset("Be kind.")}, models={"/models/odd": ModelSettings(preset="terse")}
    )
    settings = opened(program)
    offered(settings)["terse"].trigger()
    assert settings.preset.button.text() == "terse ▾"
    settings.inputs["top_k"].setText("5")
    settings.inputs["top_k"].textEdited.emit("5")
    assert settings.preset.button.text() == "terse (changed) ▾"
    offered(settings)["update"].trigger()
    assert settings.preset.button.text() == "terse ▾"
    assert program.store.settings.presets["terse"].sampling.top_k == 5
    offered(settings)["rename"].trigger()
    assert settings.preset.field.text() == "terse"
    name_it(qtbot, settings, "other")
    assert "There is a preset called “other” already." in settings.preset.problem
    qtbot.keyClick(settings.preset.field, Qt.Key.Key_Escape)
    assert settings.isVisible(), "Escape gives up the name alone"
    assert not settings.preset.problem
    offered(settings)["rename"].trigger()
    name_it(qtbot, settings, "Brief & terse")
    assert settings.preset.button.text() == "Brief && terse ▾"
    assert list(offered(settings))[:2] == ["Brief & terse", "other"]
    assert program.store.settings.of("/models/odd").preset == "Brief & terse"
    offered(settings)["delete"].trigger()
    assert settings.preset.button.text() == "None ▾"
    assert settings.system.toPlainText() == "Be terse.", "what stands in the fields stays"
    assert list(program.store.settings.presets) == ["other"]
    assert program.store.settings.of("/models/odd").preset == ""
    settings.hide()


def test_a_new_chat_begins_with_the_preset_of_its_model(start: Callable[..., WindowProgram], qtbot) -> None:
    program = start()
    program.store.update(presets={"terse": TERSE}, models={"/models/odd": ModelSettings(preset="terse")})
    assert in_chat(program) == Preset()
    program.link.send(Load(model="/models/odd"))
    qtbot.waitUntil(lambda: in_chat(program) == TERSE)
    program.chat.send("Hello")
    qtbot.waitUntil(lambda: not program.chat.streaming)
    program.chat.new_chat()
    assert in_chat(program) == TERSE
    program.link.send(Load(model="/models/tiny"))
    qtbot.waitUntil(lambda: in_chat(program) == Preset())
    program.chat.session.set_settings("My own.", Sampling())
    program.link.send(Load(model="/models/odd"))
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.name == "odd")
    assert in_chat(program).system == "My own.", "what the person chose stays"
    program.chat.open_chat(program.history.chats()[0].id)
    assert in_chat(program) == TERSE
