"""The list of what Kvasir is made of: from a package's index, from an environment, and on screen."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from PySide6.QtWidgets import QPushButton

from app import paths
from app.help.about import AboutDialog
from app.help.licences import Bundled, installed, load, search, text
from app.version import installed as installed_version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "licences"
    (folder / "qt").mkdir(parents=True)
    (folder / "qt" / "LGPL-3.0.txt").write_text("GNU Lesser General Public License é", encoding="utf-8")
    (folder / "qt" / "GPL-3.0.txt").write_text("GNU General Public License")
    (folder / "kvasir.txt").write_text("Apache License 2.0")
    (tmp_path / "secret.txt").write_text("not for the page")
    entries = [
        {"name": "Qt", "version": "6.11.3", "licence": "LGPL-3.0", "home": "https://www.qt.io",
         "files": ["qt/LGPL-3.0.txt", "qt/GPL-3.0.txt"]},
        {"name": "zlib", "version": "1.3", "licence": "Zlib", "home": "https://zlib.net", "files": ["../secret.txt"]},
        {"name": "kvasir", "version": "1.2", "licence": "Apache-2.0", "files": ["kvasir.txt"], "more": 1},
        {"name": "lost", "licence": "MIT", "files": ["gone.txt"]},
    ]  # fmt: skip
    (folder / "index.json").write_text(json.dumps(entries))
    return folder


def test_the_index_of_a_package(folder):
    entries = load(folder)
    assert [entry.name for entry in entries] == ["kvasir", "lost", "Qt", "zlib"]
    qt = entries[2]
    assert (qt.version, qt.licence, qt.home) == ("6.11.3", "LGPL-3.0", "https://www.qt.io")
    assert text(entries[0]) == "Apache License 2.0"
    assert text(qt).startswith("LGPL-3.0.txt\n\nGNU Lesser General Public License é")
    assert "GPL-3.0.txt\n\nGNU General Public License" in text(qt)
    assert "could not be read" in text(entries[1])


def test_no_text_from_outside_the_folder(folder):
    assert text(load(folder)[3]) == "Its licence's text did not come with it. It is at https://zlib.net."


@pytest.mark.slow
def test_a_checkout_lists_its_environment(tmp_path):
    entries = {entry.name.lower(): entry for entry in load(tmp_path / "none")}
    qt, msg = entries["pyside6_essentials"], entries["msgspec"]
    assert "LGPL" in qt.licence
    assert msg.version
    assert "Redistribution" in text(msg)
    assert len(entries) == len(installed())


def test_a_reader_of_metadata_that_another_package_brings(tmp_path):
    """Once it is imported it finds the distributions, and raises KeyError for what they do not say."""
    pytest.importorskip("importlib_metadata", reason="Python's own is new enough for keyring")
    assert {"msgspec", "pyside6_essentials"} <= {entry.name.lower() for entry in load(tmp_path / "none")}


def test_search_by_name_and_licence(folder):
    entries = load(folder)
    assert [entry.name for entry in search(entries, "lgpl")] == ["Qt"]
    assert [entry.name for entry in search(entries, "QT lgpl")] == ["Qt"]
    assert search(entries, "qt mit") == []
    assert search(entries, " ") == entries


@pytest.mark.parametrize("content", ["{", '{"name": "x"}', '[{"version": "1"}]'])
def test_an_index_that_is_none(tmp_path, content):
    (tmp_path / "index.json").write_text(content)
    with pytest.raises(msgspec.MsgspecError):
        load(tmp_path)


@pytest.fixture
def dialog(qtbot, theme, folder) -> AboutDialog:
    dialog = AboutDialog(folder, theme)
    qtbot.addWidget(dialog)
    return dialog


def test_the_dialog_reads_when_it_is_shown(dialog):
    assert dialog.list.count() == 0
    dialog.show()
    assert dialog.title.text() == "Kvasir 1.2"
    assert "4 parts" in dialog.summary.text()
    assert dialog.text.toPlainText() == "Apache License 2.0"
    dialog.search_field.setText("lgpl")
    assert dialog.list.count() == 1
    assert (dialog.name.text(), dialog.about.text()) == ("Qt", "Version 6.11.3 · LGPL-3.0 · https://www.qt.io")
    dialog.search_field.setText("nonsense")
    assert dialog.text.toPlainText() == ""
    assert "No part has these words" in dialog.about.text()


def test_a_broken_list_is_a_sentence(qtbot, theme, tmp_path):
    (tmp_path / "index.json").write_text("{")
    dialog = AboutDialog(tmp_path, theme)
    qtbot.addWidget(dialog)
    dialog.show()
    assert "cannot be read" in dialog.summary.text()
    assert dialog.title.text() == f"Kvasir {installed_version()}"
    assert dialog.list.count() == 0


def test_names_without_version_or_licence(qtbot, theme, tmp_path):
    (tmp_path / "index.json").write_text('[{"name": "bare"}]')
    dialog = AboutDialog(tmp_path, theme)
    qtbot.addWidget(dialog)
    dialog.show()
    assert dialog.list.item(0).text() == "bare"
    assert dialog.about.text() == "Licence not named"
    assert text(Bundled("bare", "", "", "", ())) == "Its licence's text did not come with it."


def test_help_opens_it(qtbot, theme, monkeypatch, folder):
    from app.help.page import HelpPage

    assert paths.licences_dir() == paths.assets_dir().parent / "licences"
    page = HelpPage(paths.docs_dir(), theme)
    qtbot.addWidget(page)
    with qtbot.waitSignal(page.about_requested):
        page.findChild(QPushButton, "help.about").click()
