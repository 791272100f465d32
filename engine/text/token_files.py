"""Tokens in the small files next to tokenizer.json: tokenizer_config.json, special_tokens_map.json and
added_tokens.json name the texts that are one token each, and templates know some of them by name.

They are read as transformers reads them, except where they contradict each other: it lets one file win, and here a
notice says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.base.errors import is_text
from engine.base.files import UnreadableFileError, read_json

log = logging.getLogger(__name__)

CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
MAX_CONFIG = 16 << 20
"""Bytes of each file; some list all of their special tokens, which takes a million."""
LEFT_OUT = "The file {file} cannot be read, and the tokens that it names are left out. Download that file again."
DIFFER = "{first} gives {one!r} as the {name}, and {second} gives {other!r}. Chat templates use the former."
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_TABLES = ("model_specific_special_tokens", "extra_special_tokens")
"""The latter is a list of tokens in some files and names them in others."""
FLAGS = ("lstrip", "rstrip", "normalized", "single_word")
"""Flags of the library's AddedToken."""
_MAX_NUMBER = 10**9
"""Above each token's number."""


class Mark(NamedTuple):
    """A text that is one token. ``id`` and ``flags`` (of the library's AddedToken) are what the ``file`` says of it."""

    content: str
    special: bool
    file: str
    id: int | None = None
    flags: Mapping[str, bool] = {}


class TokenFiles(NamedTuple):
    """``names`` are the texts that templates know as ``bos_token`` and so on, ``ends`` those that a file calls the
    ``eos_token``. ``notices`` are sentences about files that cannot be read, or that contradict each other."""

    config: dict[str, Any] | None
    """tokenizer_config.json; None where it cannot be read."""
    names: dict[str, str]
    marks: tuple[Mark, ...]
    ends: tuple[str, ...]
    notices: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path) -> TokenFiles:
        """Reads all three; none of them need be there."""
        found = {name: _read(folder / name) for name in (CONFIG, MAP, ADDED)}
        notices = [LEFT_OUT.format(file=name) for name in (MAP, ADDED) if found[name] is None]
        config, others, added = (found[name] or {} for name in found)
        names = {file: dict(_named(values)) for file, values in ((CONFIG, config), (MAP, others))}
        # What stands for no text differs in many sound models, since trainers choose it anew.
        twice = (name for name in names[CONFIG] if name in names[MAP] and name != "pad_token")
        for name in twice:
            one, other = names[CONFIG][name], names[MAP][name]
            if one != other:
                notices.append(DIFFER.format(first=CONFIG, one=one[:60], name=name, second=MAP, other=other[:60]))
        marks = (*_numbered(config), *_added(added), *_special(CONFIG, config), *_special(MAP, others))
        ends = dict.fromkeys(table["eos_token"] for table in names.values() if "eos_token" in table)
        return cls(found[CONFIG], names[MAP] | names[CONFIG], marks, tuple(ends), tuple(notices))


def _read(path: Path) -> dict[str, Any] | None:
    """The file's values, none where there is no file; None for one that is there and cannot be read."""
    try:
        return read_json(path, MAX_CONFIG) or {}
    except UnreadableFileError as error:
        log.warning("it counts as missing: %s", error.reason)
        return None


def text_of(value: Any) -> str | None:
    """The text of a token, which files write as it is or as {"content": text, …}."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text and is_text(text) else None


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names that templates know, and their texts."""
    tables = (values.get(key) for key in _TABLES)
    named = {key: value for key, value in values.items() if key.endswith("_token")}
    for table in (named, *tables):
        for name, value in table.items() if isinstance(table, dict) else ():
            text = text_of(value)
            if text is not None:
                yield name, text


def _special(file: str, values: Mapping[str, Any]) -> Iterator[Mark]:
    """The tokens that a file names or lists as special."""
    named = [value for key, value in values.items() if key.endswith("_token")]
    for key in dict.fromkeys((*_LISTS, *_TABLES)):
        listed = values.get(key)
        named += listed if isinstance(listed, list) else listed.values() if isinstance(listed, dict) else ()
    for value in named:
        text = text_of(value)
        if text is not None:
            yield Mark(text, True, file, flags=_flags(value))


def _numbered(config: Mapping[str, Any]) -> Iterator[Mark]:
    """tokenizer_config.json's ``added_tokens_decoder``: tokens by their numbers."""
    listed = config.get("added_tokens_decoder")
    for number, value in listed.items() if isinstance(listed, dict) else ():
        text = text_of(value)
        if text is not None and number.isascii() and number.isdigit() and len(number) < len(str(_MAX_NUMBER)):
            special = isinstance(value, dict) and value.get("special") is True
            yield Mark(text, special, CONFIG, int(number), _flags(value))


def _added(values: Mapping[str, Any]) -> Iterator[Mark]:
    """added_tokens.json: numbers by tokens, special where another file says so."""
    for text, number in values.items():
        if text_of(text) is not None and type(number) is int and 0 <= number < _MAX_NUMBER:
            yield Mark(text, False, ADDED, number)


def _flags(value: Any) -> dict[str, bool]:
    return {name: value[name] for name in FLAGS if type(value.get(name)) is bool} if isinstance(value, dict) else {}
