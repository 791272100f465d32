"""Commands: the palette, the keys that a person chooses, and the list of shortcuts where that is done."""

from __future__ import annotations

import json

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLabel, QMessageBox, QPushButton

from app.commands.dialog import ShortcutsDialog
from app.commands.keymap import Keymap
from app.commands.match import match
from app.commands.palette import NOTHING, Palette
from app.commands.registry import Command
from app.commands.rows import find
from app.language import tr
from app.program import WindowProgram
from app.settings.store import Preset, SettingsStore
from app.shortcuts import TABLE, Shortcut
from app.theme.keys import HOW
from app.window.window import MainWindow
from app.window.wirings.palette import NOW
from tests.app.conftest import answer
from tests.app.naming import nameless

ENTRIES = (
    Shortcut("new", "Ctrl+N", "New chat", "Chat"),
    Shortcut("", "Return", "Send", "Chat"),
    Shortcut("zoom", "Ctrl+=", "Larger", "Window", also=("Ctrl++",)),
    Shortcut("log", "", "Log", "Window"),
)


@pytest.mark.parametrize(
    ("words", "title", "places"),
    [
        ("", "New chat", ()),
        ("chat", "New chat", (4, 5, 6, 7)),
        ("CHAT new", "New chat", (0, 1, 2, 4, 5, 6, 7)),
        ("nc", "New chat", (0, 4)),
        ("hat", "New chat", (5, 6, 7)),
        ("İ", "İstanbul", (0,)),
        ("x", "New chat", None),
        ("tahc", "New chat", None),
        ("(", "Prefix caching (RadixAttention)", (15,)),
    ],
)
def test_a_title_has_words_or_letters_in_their_order(words, title, places):
    found = match(words, title)
    assert (found.places if found is not None else None) == places


def test_the_best_title_comes_first_and_what_was_run_last_before_its_equals():
    titles = ("Reload the model", "Help: Models", "Go to Models", "Many odd lentils", "Quiet model")
    commands = [Command(title, title, print, quiet=title.startswith("Quiet")) for title in titles]
    best = ["Help: Models", "Go to Models", "Reload the model", "Quiet model", "Many odd lentils"]
    assert [found.command.title for found in find(commands, "model", [])] == best
    assert next(iter(find(commands, "model", ["Reload the model"]))).command.title == "Reload the model"
    best = [best[0], *best[2:4], best[1], best[4]]
    commands[2] = commands[2]._replace(refused="It is on show.")
    assert [found.command.title for found in find(commands, "model", [])] == best, "what can be done now"
    assert "Quiet model" not in [found.command.title for found in find(commands, " ", [])]
    assert next(iter(find(commands, "", ["Quiet model"]))).command.title == "Quiet model"


@pytest.mark.usefixtures("german")
def test_a_command_is_found_by_its_words_in_either_language():
    loaded = Command("open", f"{tr('Open it now')}…", print, group=tr("Language"))
    assert (loaded.words, loaded.english) == ("Sprache: Jetzt öffnen…", "Language: Open it now…")
    commands = [loaded, Command("x", "Jetzt", print)]
    assert [found.command.name for found in find(commands, "öffnen", [])] == ["open"]
    assert [(found.command.name, found.places) for found in find(commands, "language now", [])] == [("open", ())]
    assert find(commands, "spr now", []) == [], "not a mixture of both"


@pytest.fixture
def store(tmp_path) -> SettingsStore:
    return SettingsStore(tmp_path / "settings.json")


@pytest.fixture
def keymap(qapp, store) -> Keymap:
    return Keymap(ENTRIES, store)


def test_chosen_keys_are_kept_and_reset(qtbot, store, keymap):
    assert [keymap.keys(name) for name in ("new", "zoom", "log")] == [("Ctrl+N",), ("Ctrl+=", "Ctrl++"), ()]
    with qtbot.waitSignal(keymap.changed):
        keymap.choose("new", "Ctrl+J")
    keymap.choose("zoom", "")
    keymap.choose("log", "Ctrl+N")
    assert store.settings.keys == {"new": "Ctrl+J", "zoom": "", "log": "Ctrl+N"}
    again = Keymap(ENTRIES, SettingsStore(store.path))
    assert [again.keys(name) for name in ("new", "zoom", "log")] == [("Ctrl+J",), (), ("Ctrl+N",)]
    assert again.explained("new", "New chat") == "New chat (Ctrl+J)"
    again.choose("zoom", "Ctrl+=")
    assert not again.is_changed("zoom")
    assert again.keys("zoom") == ("Ctrl+=", "Ctrl++")
    again.reset_all()
    assert not again.any_changed
    assert [again.keys(name) for name in ("new", "log")] == [("Ctrl+N",), ()]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("Return", "“Send” and cannot be changed"),
        ("A", "alone is needed for typing. Hold Ctrl or Alt as well"),
        ("Shift+A", "alone is needed for typing"),
        ("Ctrl+C", "copies text in every field"),
        ("Ctrl+K, Ctrl+L", "single combination"),
        ("no keys", "single combination"),
        ("F9", ""),
        ("Ctrl+N", ""),
        ("", ""),
    ],
)
def test_keys_that_no_command_can_have_are_refused_with_the_reason(keymap, keys, says):
    ruling = keymap.ruling("new", keys)
    assert says in ruling.sentence
    assert bool(ruling.sentence) == bool(says)


def test_keys_of_another_command_are_swapped(keymap):
    sentence, holder = keymap.ruling("log", "Ctrl++")
    assert (sentence, holder.action) == ("Ctrl++ is “Larger”.", "zoom")
    keymap.swap("new", "Ctrl+=", "zoom")
    assert [keymap.keys(name) for name in ("new", "zoom")] == [("Ctrl+=",), ("Ctrl+N",)]
    assert keymap.ruling("new", keymap.default("new")).holder.action == "zoom"


def test_a_file_with_nonsense_for_keys_gives_no_command_two_meanings(tmp_path):
    path = tmp_path / "settings.json"
    keys = {"new": "Ctrl+=", "zoom": "Ctrl+=", "log": "Return", "later version": "Ctrl+9"}
    path.write_text(json.dumps({"version": 1, "keys": keys}))
    keymap = Keymap(ENTRIES, SettingsStore(path))
    assert [keymap.keys(name) for name in ("new", "zoom", "log")] == [("Ctrl+=",), (), ()]
    keymap.reset_all()
    assert SettingsStore(path).settings.keys == {"later version": "Ctrl+9"}


@pytest.fixture
def program(make_program) -> WindowProgram:
    made = make_program(opened=False)
    made.window.activateWindow()
    return made


def palette(program: WindowProgram, words: str = "") -> Palette:
    """The palette as Ctrl+K opens it, with words typed."""
    window = program.window
    if window.dialogs.palette is None or window.dialogs.palette.isHidden():
        window.commands.shortcuts[[*_bound(window)].index("Ctrl+K")].activated.emit()
    window.dialogs.palette.field.setText(words)
    return window.dialogs.palette


def _bound(window: MainWindow) -> list[str]:
    return [shortcut.key().toString() for shortcut in window.commands.shortcuts]


def shown(opened: Palette) -> list[str]:
    return [str(opened.rows.index(row).data()) for row in range(opened.rows.rowCount())]


def test_the_palette_finds_runs_and_remembers(qtbot, program):
    window, edit = program.window, program.chat.composer.edit
    qtbot.waitUntil(edit.hasFocus)
    opened = palette(program)
    assert opened.field.hasFocus()
    assert shown(opened)[:2] == ["New chat", "Search all chats"]
    assert opened.rows.index(0).data(Qt.ItemDataRole.AccessibleTextRole) == "New chat, Ctrl+N"
    qtbot.keyClicks(opened.field, "go set")
    assert shown(opened)[0] == "Go to Settings"
    qtbot.keyClick(opened.field, Qt.Key.Key_Return)
    assert opened.isHidden()
    assert window.page == MainWindow.SETTINGS
    assert program.store.settings.commands == ["show_settings"]
    window.show_page(MainWindow.CHAT)
    opened = palette(program)
    assert shown(opened)[:2] == ["Go to Settings", "New chat"]
    qtbot.keyClick(opened.field, Qt.Key.Key_Down)
    assert opened.list.currentIndex().row() == 1
    assert "New chat" in opened.field.accessibleDescription()
    assert nameless(opened) == []
    opened.field.setText("qqqqq")
    assert opened.said.text() == NOTHING
    qtbot.keyClick(opened.field, Qt.Key.Key_Return)
    qtbot.keyClick(opened.field, Qt.Key.Key_Tab)
    assert opened.field.hasFocus()
    qtbot.keyClick(opened.field, Qt.Key.Key_Escape)
    assert opened.isHidden()
    assert edit.hasFocus()
    assert window.page == MainWindow.CHAT


def test_the_palette_closes_at_a_click_beside_it_and_fits_a_small_window(qtbot, program):
    program.window.resize(800, 600)
    program.theme.set_scale(2.0)
    try:
        opened = palette(program, "te")
        assert program.window.rect().contains(opened.card.geometry())
        qtbot.mouseClick(opened, Qt.MouseButton.LeftButton, pos=QPoint(3, 500))
        assert opened.isHidden()
    finally:
        program.theme.set_scale(1.0)


def test_the_palette_opens_chats_models_switches_presets_themes_settings_and_help(qtbot, program):
    chat = answer(program, qtbot, "hello there")
    program.chat.new_chat()
    program.store.update(presets={"Terse": Preset(system="Be brief.")}, recent=["/gone/model.gguf"])

    def run(words: str) -> None:
        opened = palette(program, words)
        assert words in shown(opened)[0], shown(opened)
        qtbot.keyClick(opened.field, Qt.Key.Key_Return)

    run("Chat: hello there")
    assert program.chat.chat_id == chat
    run("Preset for this chat: Terse")
    assert program.chat.session.talk.chat.system_prompt == "Be brief."
    with qtbot.waitSignal(program.link.options):
        run("Optimisation: Speculation: n-gram")
    run("Optimisation: Chunked prefill…")
    assert program.window.panel.row("chunked_prefill").isVisible(), "unfolded, where it stands behind the line"
    assert next(spec for spec in program.link.catalogue if spec.key == "speculation").value == "ngram"
    run("Text size: 120 %")
    assert program.theme.scale == pytest.approx(1.2)
    run("Theme: light")
    assert not program.theme.dark
    run("Settings: Device")
    assert program.window.page == MainWindow.SETTINGS
    assert QApplication.focusWidget().objectName().startswith("settings.device")
    run("Help: KV cache")
    assert program.window.page == MainWindow.HELP
    run("Lab: Roofline")
    assert program.lab_page.inner.open_page == "roofline"


def test_what_cannot_be_done_now_says_why(qtbot, program):
    program.store.update(recent=["/gone/model.gguf"])
    for words, why in (
        ("Open model: model.gguf", "/gone/model.gguf is not there any more."),
        ("Theme: system", NOW),
        ("Answer again", "This chat has no answer yet."),
    ):
        opened = palette(program, words)
        assert shown(opened)[0] == words
        assert why in opened.rows.index(0).data(Qt.ItemDataRole.AccessibleTextRole)
        qtbot.keyClick(opened.field, Qt.Key.Key_Return)
        assert opened.isVisible()
        assert opened.said.text() == why
    assert program.store.settings.commands == []


def test_every_command_of_the_table_can_be_run(program):
    names = {command.name for command in program.window.commands.all()}
    assert {entry.action for entry in TABLE if entry.action and entry.offered} <= names
    assert len(names) == len(program.window.commands.all())


@pytest.fixture
def dialog(program) -> ShortcutsDialog:
    program.window.dialogs.show_shortcuts()
    return program.window.findChild(ShortcutsDialog)


def press_keys(qtbot, dialog: ShortcutsDialog, action: str, key: Qt.Key, *modifiers: Qt.KeyboardModifier) -> None:
    cell = dialog._cells[action][0]
    cell.button.click()
    assert dialog.said.text() == HOW
    held = Qt.KeyboardModifier.NoModifier
    for modifier in modifiers:
        held |= modifier
    qtbot.keyClick(cell._field, key, held)


def test_keys_stand_in_one_column_over_all_groups(dialog):
    for _ in range(3):
        QApplication.processEvents()
    places = [cell.mapTo(dialog, QPoint()) for cell, _ in dialog._cells.values()]
    assert (
        len({(place.x(), cell.width()) for place, (cell, _) in zip(places, dialog._cells.values(), strict=True)}) == 1
    )


def test_new_keys_are_pressed_in_the_list_and_hold_at_once(qtbot, program, dialog):
    control = Qt.KeyboardModifier.ControlModifier
    window, cells = program.window, dialog._cells
    assert nameless(dialog) == []
    assert cells["new_chat"][1].isHidden()
    press_keys(qtbot, dialog, "new_chat", Qt.Key.Key_J, control)
    assert cells["new_chat"][0].button.text() == "Ctrl+J"
    assert {"Ctrl+J"} <= set(_bound(window))
    assert "Ctrl+N" not in _bound(window)
    assert program.sidebar.new_button.toolTip() == "New chat (Ctrl+J)"
    assert palette(program).rows.index(0).data(Qt.ItemDataRole.AccessibleTextRole) == "New chat, Ctrl+J"
    press_keys(qtbot, dialog, "quit", Qt.Key.Key_J, control)
    assert dialog.said.text() == "Ctrl+J is “New chat”. Swap: “Quit” gets Ctrl+J, and that one gets Ctrl+Q."
    assert cells["quit"][0].button.text() == "Ctrl+Q"
    dialog.findChild(QPushButton, "keys.swap").click()
    assert [cells[name][0].button.text() for name in ("new_chat", "quit")] == ["Ctrl+Q", "Ctrl+J"]
    press_keys(qtbot, dialog, "quit", Qt.Key.Key_C, control)
    assert dialog.said.text() == "Ctrl+C copies text in every field."
    press_keys(qtbot, dialog, "show_help", Qt.Key.Key_Escape)
    assert cells["show_help"][0].button.text() == "F1"
    press_keys(qtbot, dialog, "show_help", Qt.Key.Key_Backspace)
    assert cells["show_help"][0].button.text() == "None"
    cells["show_help"][1].click()
    assert cells["show_help"][0].button.text() == "F1"
    dialog.findChild(QPushButton, "keys.reset").click()
    box = dialog.findChild(QMessageBox, "keys.reset.ask")
    next(button for button in box.buttons() if button.text() == "Reset all").click()
    assert program.store.settings.keys == {}
    assert "Ctrl+N" in _bound(window)
    assert not dialog.reset.isEnabled()


def test_the_list_of_keys_fits_into_a_narrow_window(qtbot, program, dialog):
    qtbot.wait(1)
    dialog.resize(600, 500)
    qtbot.wait(1)
    assert dialog.width() == 600
    assert not dialog._area.horizontalScrollBar().isVisible()


def test_keys_that_widgets_handle_are_listed_and_fixed(dialog):
    words = {label.text() for label in dialog.findChildren(QLabel)}
    assert {entry.words for entry in TABLE} <= words
    assert set(dialog._cells) == {entry.action for entry in TABLE if entry.action}
