"""The window's texts in other languages than English: complete, of one mind, and with the values in their places."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from app import language
from app.documents import child
from app.documents.prompt import quoted
from app.documents.records import DocumentPassage, of_text
from app.language import figure, plural, tr
from app.opening import trouble
from app.paths import assets_dir, settings_file
from app.settings.store import SettingsStore
from app.words import size

_SCRIPT = assets_dir() / "languages" / "update.py"
_spec = importlib.util.spec_from_file_location("update_languages", _SCRIPT)
assert _spec is not None
assert _spec.loader is not None
update = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(update)


def test_a_sentence_is_english_until_a_language_is_chosen(tmp_path: Path) -> None:
    assert trouble(str(tmp_path / "none")).startswith("There is no ")
    assert tr("{n:,} things", n=12_480) == "12,480 things"
    assert (figure(0.25, ".2f"), language.code()) == ("0.25", "en")


@pytest.mark.usefixtures("german")
def test_a_sentence_and_its_figures_are_german(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    assert trouble(path).startswith(f"{path} gibt es nicht.")
    assert tr("{n:,} of {share:.1%} in {name}", n=12_480, share=0.125, name="a,b.c") == "12.480 of 12,5\u00a0% in a,b.c"
    assert figure(1_234.5, ",.1f") == "1.234,5"
    assert (size(1_300_000), size(8.9e9)) == ("1,3 MB", "8,9 GB")
    assert plural("{n} such thing", "{n:,} such things", 1) == "1 such thing", "a text that nobody has translated"


@pytest.mark.parametrize(
    ("variable", "setting", "spoken"),
    [("de_AT.UTF-8", "en", "de"), ("", "de", "de"), ("", "xx", "en"), ("fr", "de", "en")],
)
def test_the_environment_wins_over_the_setting(
    variable: str, setting: str, spoken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(language.VARIABLE, variable)
    assert language.wanted(setting) == spoken


def test_without_qts_libraries_the_language_is_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the system's libraries, which says what is missing, comes later."""
    monkeypatch.delenv(language.VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "PySide6.QtCore", None)
    assert language.wanted("") == "en"
    language.choose("de")
    assert language.code() == "en"


def test_the_setting_is_read_before_the_settings_are(qapp: QApplication) -> None:
    store = SettingsStore(settings_file())
    store.update(language="de")
    try:
        assert language.setting() == "de"
    finally:
        store.update(language="")


def test_a_language_without_its_file_is_english(caplog: pytest.LogCaptureFixture) -> None:
    language.choose("xx")
    assert language.code() == "en"
    assert "xx" in caplog.text


@pytest.mark.parametrize("code", update.TRANSLATED)
def test_every_text_is_translated_with_its_values(code: str, tmp_path: Path) -> None:
    """`python assets/languages/update.py` brings the files up to date; --missing and --fill help to translate."""
    said: dict[tuple[str, str], list[str]] = {}
    for room, texts in update.texts().items():
        messages = update.messages(update.FOLDER / code / f"{room}.ts")
        assert {update.text_of(message) for message in messages} == texts, room
        for message in messages:
            text, forms = update.text_of(message), update.forms(message)
            assert all(forms), f"{room}: {text.source!r} has no translation"
            wanted = update.fields(text.source)
            for form in forms:
                assert update.fields(form) | ({"n"} if text.plural else set()) == wanted | update.fields(form) & {
                    "n"
                }, form
            assert said.setdefault((text.source, text.comment), forms) == forms, (
                f"{text.source!r} differs between rooms"
            )
    update.release(code, tmp_path / "made.qm")
    assert (tmp_path / "made.qm").read_bytes() == (update.FOLDER / f"{code}.qm").read_bytes()


def test_a_document_is_read_in_the_language_of_the_window_and_sent_in_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "languages").mkdir()
    update.release("de", tmp_path / "languages" / "de.qm")
    monkeypatch.setattr(language, "assets_dir", lambda: tmp_path)
    language.choose("de")
    try:
        found = of_text("a", "One.\nTwo.\n")
        said, sent, command = found.place(5), quoted(found, DocumentPassage(1, 5, 10)), child.command()
    finally:
        language.choose("en")
    assert (said, sent) == ("Zeile 2", "[1] line 2\nTwo.")
    script = (
        f"import pathlib, sys; from app import language; language.assets_dir = lambda: pathlib.Path({str(tmp_path)!r});"
        "from app.documents import child; sys.exit(child.main(sys.argv[1:]))"
    )
    arguments = [*command[command.index("app.documents.child") + 1 :], "read", str(tmp_path / "gone.txt")]
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=update.ROOT, timeout=120
    )
    assert ended.stderr == "kvasir: gone.txt ist nicht mehr da.\n"


OF_NO_LANGUAGE = {
    "documents/prompt.py",  # a model reads them
    "help/page.py", "history/listing.py", "history/schema.py", "history/search.py", "history/transfer/html.py",
    "server/configurations.py", "theme/sheet.py",
}  # fmt: skip
"""Files whose long texts are code of other languages."""


def test_no_sentence_is_forgotten() -> None:
    """`python assets/languages/update.py --left` lists shorter texts, too."""
    folder = update.ROOT / "app"
    found = {
        (place, text)
        for path in folder.rglob("*.py")
        if (place := str(path.relative_to(folder))) not in OF_NO_LANGUAGE
        for _, text in update.left(path)
        if len(re.findall(r" [a-z]", text)) >= 4
    }
    assert found == set()


def test_a_forgotten_sentence_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "room.py"
    path.write_text('tr("This is looked up in the language.")\nlabel.setText(f"{n} files could not be read again.")\n')
    assert [text for _, text in update.left(path)] == ["{} files could not be read again."]
