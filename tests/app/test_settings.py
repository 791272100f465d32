"""The settings file survives what happens to files, and the page writes it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QLabel, QMessageBox, QPushButton, QSpinBox

from app.settings import store as store_module
from app.settings.appearance import Appearance
from app.settings.page import NOTHING, SettingsPage
from app.settings.rows import SettingRow
from app.settings.store import VERSION, Preset, RememberedState, SettingsStore, UserSettings
from engine.protocol import Device, LoadOptions
from tests.app.tabbing import tab_reaches_all


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.json"


def test_changes_are_written_and_read_back(qtbot, path):
    store = SettingsStore(path)
    with qtbot.waitSignal(store.changed) as heard:
        store.update(theme="dark", memory=0.5, context=4096, draft=False)
    assert heard.args == [frozenset({"theme", "memory", "context", "draft"})]
    again = SettingsStore(path).settings
    assert again == UserSettings(theme="dark", memory=0.5, context=4096, draft=False)
    assert again.load_options() == LoadOptions(memory=0.5, context=4096)
    assert not list(path.parent.glob("*.new"))


def test_no_change_no_write(qtbot, path):
    store = SettingsStore(path)
    with qtbot.assertNotEmitted(store.changed):
        store.update(theme="system")
    assert not path.exists()


def test_unknown_keys_are_kept(path):
    path.parent.mkdir()
    path.write_text(json.dumps({"version": VERSION, "from_the_future": [1, 2], "theme": "light"}))
    store = SettingsStore(path)
    store.update(draft=False)
    written = json.loads(path.read_text())
    assert written["from_the_future"] == [1, 2]
    assert written["theme"] == "light"
    assert written["draft"] is False


@pytest.mark.parametrize("content", ["{", "[1, 2]", "\x00\x01", ""])
def test_a_corrupt_file_is_set_aside(path, content):
    path.parent.mkdir()
    path.write_text(content)
    store = SettingsStore(path)
    assert store.settings == UserSettings()
    assert "could not be read" in store.notice
    assert (path.parent / "settings.json.broken").read_text() == content
    store.update(theme="dark")
    assert SettingsStore(path).settings.theme == "dark"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
def test_a_pipe_without_end_is_set_aside(path):
    path.parent.mkdir()
    os.mkfifo(path)
    store = SettingsStore(path)
    assert "could not be read" in store.notice
    store.update(theme="dark")
    assert SettingsStore(path).settings.theme == "dark"


def test_half_a_character_costs_itself_alone(path):
    store = SettingsStore(path)
    store.update(folder="/models/caf\udce9", presets={"half \ud83d": Preset(system="whole 🐦")})
    store.update(theme="dark")
    again = SettingsStore(path)
    assert (again.notice, again.settings.theme, again.settings.folder) == ("", "dark", "/models/caf?")
    assert again.settings.presets == {"half ?": Preset(system="whole 🐦")}


def test_one_bad_value_costs_only_itself(path):
    path.parent.mkdir()
    path.write_text(json.dumps({"theme": "purple", "context": 1024, "draft": "yes"}))
    store = SettingsStore(path)
    assert store.settings == UserSettings(context=1024)
    assert "draft, theme" in store.notice


def test_an_older_file_is_migrated_step_by_step(path, monkeypatch):
    monkeypatch.setattr(store_module, "VERSION", 3)
    monkeypatch.setitem(store_module.MIGRATIONS, 1, lambda raw: {**raw, "theme": raw.pop("colours")})
    monkeypatch.setitem(store_module.MIGRATIONS, 2, lambda raw: {**raw, "theme": raw["theme"].lower()})
    path.parent.mkdir()
    path.write_text(json.dumps({"version": 1, "colours": "DARK"}))
    store = SettingsStore(path)
    assert store.settings.theme == "dark"
    store.update(draft=False)
    assert json.loads(path.read_text())["version"] == 3


def test_a_folder_that_cannot_be_written_gives_a_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = SettingsStore(tmp_path / "file" / "settings.json")
    said: list[str] = []
    store.failed.connect(said.append)
    store.recovered.connect(lambda: said.append("written"))
    store.update(theme="dark")
    assert store.settings.theme == "dark"
    assert "could not be written" in said[0]
    (tmp_path / "file").unlink()
    store.update(tint=True)
    store.update(tint=False)
    assert said[1:] == ["written"]
    assert SettingsStore(store.path).settings.theme == "dark"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("content", ['{"version": 1, "theme": "dark"}', "{", '{"theme": 7}'])
def test_a_file_that_is_a_link_stays_one(tmp_path, path, content):
    real = tmp_path / "dotfiles" / "mine.json"
    real.parent.mkdir()
    path.parent.mkdir()
    real.write_text(content)
    path.symlink_to(real)
    SettingsStore(path).update(text_scale=1.2)
    assert path.is_symlink()
    assert json.loads(real.read_text())["text_scale"] == 1.2
    assert [file.name for file in real.parent.iterdir()] == ["mine.json"]


def test_the_window_says_that_settings_are_not_written_and_when_they_are(start, own_folders):
    program = start(model=False)
    folder = program.store.path.parent
    folder.rename(folder.with_name("away"))
    folder.write_text("in the way")
    program.store.update(text_scale=1.2)
    assert "could not be written" in program.window.notice.text
    folder.unlink()
    program.store.update(text_scale=1.1)
    assert program.window.notice.text == ""


def test_a_chosen_quantisation_goes_with_every_load(path):
    SettingsStore(path).update(quantise="nf4")
    assert SettingsStore(path).settings.load_options() == LoadOptions(quantise="nf4")


@pytest.fixture
def page(qtbot, path, theme) -> SettingsPage:
    store = SettingsStore(path)
    page = SettingsPage(store, theme, path.parent / "kvasir.log", path.parent)
    Appearance(store, theme, page)
    qtbot.addWidget(page)
    page.show()
    return page


def stored(path: Path) -> UserSettings:
    return SettingsStore(path).settings


def test_the_page_changes_theme_and_text_size_at_once(page, path, theme):
    page.findChild(QPushButton, "settings.theme.light").click()
    assert not theme.dark
    sizes = [box for box in page.findChildren(QSpinBox) if box.accessibleName() == "Text size"]
    sizes[0].setValue(120)
    assert theme.scale == pytest.approx(1.2)
    assert (stored(path).theme, stored(path).text_scale) == ("light", 1.2)


def test_memory_as_share_or_bytes(page, path):
    assert stored(path).memory is None
    page.findChild(QPushButton, "settings.memory.share").click()
    assert stored(path).memory == pytest.approx(0.85)
    page.findChild(QPushButton, "settings.memory.fixed").click()
    page.engine._fixed.setValue(6.5)
    assert stored(path).memory == pytest.approx(6.5e9)
    assert page.engine._fixed.isVisible()
    assert not page.engine._share.isVisible()
    page.findChild(QPushButton, "settings.memory.auto").click()
    assert stored(path).memory is None


def test_context_and_device(qtbot, page, path):
    context = next(box for box in page.findChildren(QSpinBox) if "context" in box.accessibleName())
    assert context.text() == "Model maximum"
    context.setValue(4096)
    assert stored(path).context == 4096
    context.setValue(0)
    assert stored(path).context is None
    page.engine.set_devices([Device(kind="cpu", name="a CPU", total_bytes=1, free_bytes=1)])
    cuda = page.findChild(QPushButton, "settings.device.cuda")
    assert not cuda.isEnabled()
    assert "no CUDA device" in cuda.toolTip()
    page.findChild(QPushButton, "settings.device.cpu").click()
    assert stored(path).device == "cpu"
    with qtbot.waitSignal(page.engine.reload_requested):
        page.findChild(QPushButton, "settings.reload").click()


def test_one_of_several_gpus_is_chosen(page, path):
    gpus = [Device(kind="cuda", name=f"Card {i}", total_bytes=1, free_bytes=1, index=i) for i in range(2)]
    cpu = Device(kind="cpu", name="a CPU", total_bytes=1, free_bytes=1)

    def offered() -> list[str]:
        return [
            button.objectName().removeprefix("settings.device.")
            for button in page.engine._device.findChildren(QPushButton)
        ]

    page.engine.set_devices([cpu, *gpus])
    assert offered() == ["auto", "cpu", "cuda:0", "cuda:1"]
    second = page.findChild(QPushButton, "settings.device.cuda:1")
    assert (second.text(), second.toolTip()) == ("GPU 1", "Card 1")
    second.click()
    assert stored(path).device == "cuda:1"
    page.engine.set_devices([cpu, *gpus])
    assert page.findChild(QPushButton, "settings.device.cuda:1").isChecked()
    page.engine.set_devices([cpu, gpus[0]])
    assert offered() == ["auto", "cpu", "cuda", "cuda:1"], "what was chosen is still shown, and why it is not there"
    gone = page.findChild(QPushButton, "settings.device.cuda:1")
    assert not gone.isEnabled()
    assert "no such device" in gone.toolTip()
    page.findChild(QPushButton, "settings.device.cuda").click()
    page.engine.set_devices([cpu, *gpus])
    assert page.findChild(QPushButton, "settings.device.auto").isChecked(), "it takes the same one"


def test_a_mac_has_its_own_gpu(page, path):
    page.engine.set_devices([Device(kind=kind, name=kind, total_bytes=1, free_bytes=1) for kind in ("cpu", "mps")])
    page.findChild(QPushButton, "settings.device.mps").click()
    assert stored(path).device == "mps"


def test_how_models_of_16_bits_are_packed(page, path):
    assert page.findChild(QPushButton, "settings.quantise.none").isChecked()
    for method in ("nf4", "int4", "int8", "none"):
        page.findChild(QPushButton, f"settings.quantise.{method}").click()
        assert stored(path).quantise == method


def row(page: SettingsPage, name: str) -> SettingRow:
    return next(each for each in page.rows if each.name == name)


def visible(page: SettingsPage) -> list[str]:
    return [each.name for each in page.rows if each.isVisible()]


def test_the_search_shows_the_rows_with_all_words_counts_and_marks_them(page, theme):
    everything = visible(page)
    assert len(everything) == len(page.rows)
    page.field.setText("draft")
    assert visible(page) == ["Load the draft model too"]
    assert page.found.text() == "1 setting found."
    name = next(
        label for label in row(page, "Load the draft model too").findChildren(QLabel) if "draft" in label.text()
    )
    assert name.textFormat() is Qt.TextFormat.RichText
    assert f'background-color: {theme.tint("accent", 0.35)}">draft</span>' in name.text()
    assert [section.title for section in page._sections if section.isVisible()] == ["Engine"]
    page.field.setText("appearance")
    found = ["Theme", "Text size", "Reduced motion", "Language", "Simple mode", "Keyboard shortcuts"]
    assert visible(page) == found, "the name of a section counts"
    page.field.setText("cuda")
    assert page.gpu.isVisible()
    page.field.setText("<b>&")
    assert (visible(page), page.found.text()) == ([], NOTHING)
    page.field.clear()
    assert visible(page) == everything
    assert page.found.isHidden()
    assert name.text() == "Load the draft model too"
    assert name.textFormat() is Qt.TextFormat.PlainText


@pytest.mark.usefixtures("german")
def test_the_search_knows_the_english_words_of_another_language(page):
    everything = [each.name for each in page.rows]
    assert "Textgröße" in everything
    for words in ("text size", "textgröße", "schrift" if "schrift" in row(page, "Textgröße").about else "textgr"):
        page.field.setText(words)
        assert "Textgröße" in visible(page)
    page.field.setText("shorter one needs less memory")  # a sentence of several
    assert visible(page) == ["Längster Kontext, Token"]
    page.field.setText("draft model")
    assert len(visible(page)) == 1


def test_a_changed_setting_is_reset_alone_or_all_of_them_after_a_question(page, path, theme):
    draft, size = row(page, "Load the draft model too"), row(page, "Text size")
    assert not page.reset.isEnabled()
    assert all(each.reset.isHidden() for each in page.rows)
    draft.control.click()
    size.control.setValue(130)
    page.findChild(QPushButton, "settings.memory.fixed").click()
    page._store.update(theme="light", keys={"quit": "Ctrl+J"})
    changed = [each.name for each in page.rows if not each.reset.isHidden()]
    assert changed == ["Theme", "Text size", "Keyboard shortcuts", "Memory for the engine", "Load the draft model too"]
    assert page.findChild(QPushButton, "settings.theme.light").isChecked()
    draft.reset.click()
    assert draft.control.isChecked()
    assert stored(path).draft
    assert draft.reset.isHidden()
    page.reset.click()
    box = page.findChild(QMessageBox, "settings.reset.ask")
    assert "Theme, Text size, Keyboard shortcuts, Memory for the engine." in box.text()
    next(button for button in box.buttons() if button.text() == "Cancel").click()
    assert stored(path).text_scale == pytest.approx(1.3)
    page.reset.click()
    box = page.findChildren(QMessageBox, "settings.reset.ask")[-1]
    next(button for button in box.buttons() if button.text() == "Reset all").click()
    assert stored(path) == UserSettings()
    assert theme.scale == 1.0
    assert page.findChild(QPushButton, "settings.memory.auto").isChecked()
    assert size.control.value() == 100


def test_every_setting_of_the_page_has_a_way_back(page):
    own = {field.name for field in msgspec.structs.fields(UserSettings)} - {
        field.name for field in msgspec.structs.fields(RememberedState)
    }
    elsewhere = {"serve", "serve_port", "presets", "models"}
    assert {name for each in page.rows for name in each.fields} == own - elsewhere


def test_sections_stand_side_by_side_where_there_is_room(qtbot, page):
    page.resize(1440, 900)
    qtbot.waitUntil(lambda: page._columns.two)
    left, right = (section.mapTo(page, QPoint()).x() for section in (page._sections[0], page._sections[-1]))
    assert right > left + 400
    tab_reaches_all(qtbot, page)
    page.resize(800, 600)
    qtbot.waitUntil(lambda: len({section.mapTo(page, QPoint()).x() for section in page._sections}) == 1)


def test_a_setting_is_revealed_with_the_keyboard_at_its_control(qtbot, page):
    page.resize(800, 400)
    page.activateWindow()
    page.field.setText("theme")
    target = row(page, "Load the draft model too")
    page.reveal(target)
    qtbot.waitUntil(target.control.hasFocus)
    assert page.field.text() == ""
    assert not target.visibleRegion().isEmpty()
