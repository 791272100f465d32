"""The window's language: English as the source has it, or what Qt's translation files say in its place.

A text is looked up when it is made, also one of a module: :func:`choose` comes before such modules are imported, and
another language takes effect at the next start.
"""

from __future__ import annotations

import logging
import os
import string
from typing import TYPE_CHECKING, Any

import msgspec

from app.files import decode_file
from app.paths import SETTINGS_BYTES, assets_dir, settings_file

if TYPE_CHECKING:
    from PySide6.QtCore import QCoreApplication, QLocale, QTranslator

log = logging.getLogger(__name__)

LANGUAGES = {"en": "English", "de": "Deutsch"}  # not shown
"""Code -> the language's name in itself."""
VARIABLE = "KVASIR_LANGUAGE"
"""Of the environment: the code that wins over the setting, and over the computer's language."""
CONTEXT = "kvasir"
"""Of all texts in Qt's translation files, since a text is the same wherever it is shown."""
_SWAPPED = str.maketrans(",.", ".,")


class _Sentences(string.Formatter):
    """Formats as `str.format` does, with decimals, groups and percentages as German writes them."""

    def format_field(self, value: Any, format_spec: str) -> str:
        text = str(super().format_field(value, format_spec))
        if not isinstance(value, int | float):
            return text
        text = text.translate(_SWAPPED)
        return f"{text[:-1]}\u00a0%" if text.endswith("%") else text


class _Language:
    """The one of this process."""

    def __init__(self) -> None:
        self.code = "en"
        self.translator: QTranslator | None = None
        self.sentences = string.Formatter()
        self.english: dict[str, str] = {}
        """Texts that were looked up, without values, and what the source has for them."""


_language = _Language()


def code() -> str:
    """The language in force, a key of :data:`LANGUAGES`."""
    return _language.code


class _Setting(msgspec.Struct):
    """What the settings file says of the language; the store of all settings is opened later."""

    language: str = ""


def setting() -> str:
    """The language that the settings name; "" for none."""
    kept = decode_file(settings_file(), _Setting, SETTINGS_BYTES)
    return "" if kept is None else kept.language


def wanted(setting: str) -> str:
    """The language to speak: what the environment says, else the setting, else the computer's where it is one of ours,
    else English."""
    named = os.environ.get(VARIABLE) or setting
    names = [named] if named else _computers()
    return next((name[:2] for name in names if name[:2] in LANGUAGES), "en")


def _computers() -> list[str]:
    """Languages that the computer is set to, the preferred one first."""
    try:
        from PySide6.QtCore import QLocale  # a process that is told to speak English needs no Qt
    except ImportError as error:  # the check of the system's libraries, which comes later, says what is missing
        log.warning("the computer's language is not known: %s", error)
        return []
    return QLocale.system().uiLanguages()


def choose(language: str) -> None:
    """Speak a language from now on. One whose file cannot be read is logged, and English is spoken."""
    _language.__init__()  # type: ignore[misc]
    if language == "en":
        return
    try:
        from PySide6.QtCore import QTranslator
    except ImportError as error:
        log.warning("the texts in %s could not be read: %s", LANGUAGES.get(language, language), error)
        return
    translator = QTranslator()
    if not translator.load(str(assets_dir() / "languages" / f"{language}.qm")):
        log.warning("the texts in %s could not be read", LANGUAGES.get(language, language))
        return
    _language.code, _language.translator, _language.sentences = language, translator, _Sentences()


def tr(text: str, comment: str = "", /, **values: object) -> str:
    """The text in the language in force, with the values in their places, as `str.format` puts them.

    ``text`` and ``comment`` are written out where this is called. The comment tells equal texts of several meanings
    apart ("Open" of a door and "Open" as a command).
    """
    if _language.translator is not None:
        text = _looked_up(_language.translator, text, comment or None)
    return _language.sentences.vformat(text, (), values) if values else text


def plural(one: str, many: str, n: int, /, **values: object) -> str:
    """The text for ``n`` things, as in ``plural("1 page", "{n:,} pages", 3)``."""
    text = one if n == 1 else many
    if _language.translator is not None:
        text = _language.translator.translate(CONTEXT, many, None, n) or text
    return _language.sentences.vformat(text, (), {"n": n, **values})


def known(text: str) -> str:
    """A text of the engine's (the title of a switch, say) in the language in force, where it has been translated."""
    translator = _language.translator
    return _looked_up(translator, text, None) if translator is not None and text else text


def _looked_up(translator: QTranslator, text: str, comment: str | None) -> str:
    found = translator.translate(CONTEXT, text, comment) or text
    if found is not text:  # what the engine says with figures in it has no end
        _language.english.setdefault(found, text)
    return found


def english(text: str) -> str:
    """What the source has for a text that was looked up; other texts are as they are."""
    return _language.english.get(text, text)


def together(*texts: str) -> str:
    """Sentences one after another, whose English is known as theirs is."""
    joined = " ".join(texts)
    if _language.translator is not None:
        _language.english[joined] = " ".join(map(english, texts))
    return joined


def figure(value: float, spec: str = ",") -> str:
    """A number alone, as the language writes it: "12,480" or "12.480"."""
    return _language.sentences.format_field(value, spec)


def locale() -> QLocale:
    """Names of days and months, and the order of dates."""
    from PySide6.QtCore import QLocale

    return QLocale(_language.code) if _language.translator is not None else QLocale("en")


def install(app: QCoreApplication) -> None:
    """Let Qt's own buttons and fields speak the language, too."""
    from PySide6.QtCore import QLibraryInfo, QLocale, QTranslator

    if _language.translator is None:
        return
    QLocale.setDefault(QLocale(_language.code))
    own = QTranslator(app)  # lives as long as the application
    if not own.load(f"qtbase_{_language.code}", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        log.warning("Qt's own texts in %s are missing", LANGUAGES[_language.code])
        return
    app.installTranslator(own)
