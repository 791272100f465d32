"""How a model is loaded is kept for each model: what it is asked for with, and what comes back after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtWidgets import QPushButton, QSpinBox

from app.link.link import EngineLink
from app.models.load_settings import LoadSettingsDialog, Offers
from app.program import WindowProgram
from app.settings.store import ModelSettings, Preset, SettingsStore, UserSettings
from app.theme.menus import ChoiceButton
from app.theme.theme import Theme
from engine.protocol import Load, LoadOptions, Message, Set, StoredModel
from tests.app import pressing

OWN = ModelSettings(context=512, quantise="nf4", device="cpu", draft="", kv_kind="int8", preset="terse")


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    """The folders of two models."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    return [str(folder) for folder in folders]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The loads and switches that the window asks for."""
    messages: list[Message] = []
    send = EngineLink.send

    def record(link: EngineLink, message: Message) -> None:
        send(link, message)
        if isinstance(message, Load | Set):
            messages.append(message)

    monkeypatch.setattr(EngineLink, "send", record)
    return messages


def dialogue(program: WindowProgram) -> LoadSettingsDialog:
    """Opened from the model's menu."""
    selector = program.selector
    selector.fill_menu()
    next(action for action in selector.model.menu().actions() if action.text() == "Load settings…").trigger()
    found = program.window.findChild(LoadSettingsDialog)
    assert found is not None
    return found


def press(dialog: LoadSettingsDialog, name: str) -> None:
    button = dialog.findChild(QPushButton, f"load.{name}")
    assert button is not None
    button.click()


def loaded(program: WindowProgram, qtbot, path: str) -> None:
    loads, link = program.chat.loads, program.link
    qtbot.waitUntil(lambda: loads.loading is None and link.card is not None and link.card.path == path)


def load(program: WindowProgram, qtbot, path: str) -> None:
    program.opener.open(path)
    loaded(program, qtbot, path)


def test_what_is_not_set_is_as_for_all_models() -> None:
    settings = UserSettings(memory=0.5, context=4096, quantise="int8", models={"/m": ModelSettings(context=512)})
    assert settings.load_options("/m") == LoadOptions(memory=0.5, context=512, quantise="int8")
    assert settings.load_options("/other") == LoadOptions(memory=0.5, context=4096, quantise="int8")
    assert (settings.draft_of("/m"), UserSettings(draft=False).draft_of("/m")) == (None, "")
    assert UserSettings(draft=False, models={"/m": ModelSettings(draft="/d")}).draft_of("/m") == "/d"


@pytest.mark.slow
def test_a_model_is_loaded_as_was_said_once(
    start: Callable[..., WindowProgram], qtbot, sent: list[Message], models: list[str]
) -> None:
    program = start()
    program.store.update(presets={"terse": Preset("Be terse.")})
    one, other = models
    load(program, qtbot, one)
    dialog = dialogue(program)
    dialog.findChild(QSpinBox, "load.context").setValue(512)
    for name in ("kv_kind", "quantise", "device", "draft", "preset"):
        choice = dialog.findChild(ChoiceButton, f"load.{name}")
        assert choice.key is None
        offered = {action.objectName(): action for action in choice.menu().actions()}
        offered[f"load.{name}.{getattr(OWN, name)}"].trigger()
    sent.clear()
    press(dialog, "save_and_load")
    loaded(program, qtbot, one)
    asked = Load(model=one, draft="", options=LoadOptions(context=512, quantise="nf4", device="cpu"))
    assert sent == [Set(key="kv_kind", value="int8"), asked]
    assert program.store.settings.of(one) == OWN
    assert program.chat.session.talk.chat.system_prompt == "Be terse."

    sent.clear()
    load(program, qtbot, other)
    assert sent == [Set(key="kv_kind", value="16-bit"), Load(model=other)]
    assert program.chat.session.talk.chat.system_prompt == ""
    load(program, qtbot, one)
    program.close()

    sent.clear()
    again = start()
    loaded(again, qtbot, one)
    asked_again = [message for message in sent if isinstance(message, Load)]
    assert asked_again == [asked] * len(asked_again) != []
    dialog = dialogue(again)
    assert dialog.values() == OWN
    press(dialog, "reset")
    assert dialog.values() == ModelSettings()
    press(dialog, "save")
    assert again.store.settings.models == {}
    sent.clear()
    load(again, qtbot, one)
    assert sent == [Set(key="kv_kind", value="16-bit"), Load(model=one)]


def test_settings_follow_models_that_are_moved(tmp_path: Path) -> None:
    store = SettingsStore(tmp_path / "settings.json")
    old, new, other = (str(tmp_path / name) for name in ("old", "new", "older"))
    models = {f"{old}/a/x.gguf": ModelSettings(context=512, draft=f"{old}/d"), other: ModelSettings(draft="")}
    store.update(models=models, recent=[f"{old}/a/x.gguf", other], model="kvasir-guide")
    store.move_models(old, new)
    now = SettingsStore(tmp_path / "settings.json").settings
    moved = str(Path(new, "a", "x.gguf"))
    assert now.models == {
        moved: ModelSettings(context=512, draft=str(Path(new, "d"))),
        other: ModelSettings(draft=""),
    }
    assert (now.recent, now.model) == ([moved, other], "kvasir-guide")


def test_a_long_name_makes_no_wide_dialogue(qtbot, qapp) -> None:
    theme = Theme("dark", 1.6, True)
    name = "sha256-" + "ab" * 80
    dialog = LoadSettingsDialog(
        name, ModelSettings(), UserSettings(), Offers(["cpu"], {"/x": name}, None, []), False, theme
    )
    qtbot.addWidget(dialog)
    dialog.show()
    assert dialog.width() <= dialog.screen().availableSize().width()


def test_cancel_keeps_nothing(start: Callable[..., WindowProgram], qtbot) -> None:
    """Opened from the page Models."""
    program = start()
    program.library.stored = [StoredModel(name="mine", path="/models/mine", format="gguf", bytes=1)]
    program.library.stored_changed.emit()
    pressing.press(program.window, "models.stored.mine.settings")
    dialog = program.window.findChild(LoadSettingsDialog)
    assert dialog.windowTitle() == "Load settings of mine"
    dialog.show_own(OWN)
    dialog.reject()
    assert program.store.settings.models == {}


def test_a_draft_chosen_by_hand_is_kept_while_it_is_there(
    start: Callable[..., WindowProgram], qtbot, sent: list[Message], models: list[str], tmp_path: Path
) -> None:
    program = start()
    one, other = models
    heads = tmp_path / "heads"
    heads.mkdir()
    load(program, qtbot, one)
    program.chat.loads.help_with(str(heads))
    loaded(program, qtbot, one)
    assert program.store.settings.of(one) == ModelSettings(draft=str(heads))
    load(program, qtbot, other)
    sent.clear()
    load(program, qtbot, one)
    assert [message.draft for message in sent if isinstance(message, Load)] == [str(heads)]
    heads.rmdir()
    load(program, qtbot, other)
    sent.clear()
    load(program, qtbot, one)
    assert [message.draft for message in sent if isinstance(message, Load)] == [None], "else it would not load at all"
