"""A user's text files to passages of tokens: plain text in pieces, conversations through the chat template."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from engine.base.lines import split_lines
from engine.protocol import ChatMessage
from engine.services.training.errors import RecipeError
from engine.text import held_out
from engine.text.held_out import HeldOutText
from engine.text.prompt import prompt_ids, rendered
from engine.text.template import ChatTemplate, PromptError
from engine.text.tokenizer import Tokenizer

SUFFIXES = (".txt", ".md", ".jsonl")
Role = Literal["system", "user", "assistant"]
_SHORTEST = 8
"""Tokens of a passage that something can be learned from."""
_AT_ONCE = 1 << 18
"""Characters of a text that are turned into tokens in one piece."""
_ROLES: dict[str, Role] = {role: role for role in get_args(Role)} | {"human": "user", "gpt": "assistant"}


class Passage(NamedTuple):
    """Tokens of a text. A model that writes it itself begins at index ``start``, with all before it as its prompt."""

    tokens: list[int]
    start: int


class TextEncoder(NamedTuple):
    """Encoder of text into the model's tokens. ``begin`` is what the tokenizer puts before plain text."""

    tokenizer: Tokenizer
    template: ChatTemplate
    begin: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, template: ChatTemplate, bos_id: int | None) -> TextEncoder:
        begins = bos_id is not None and tokenizer.encode("")[:1] == [bos_id]
        return cls(tokenizer, template, (bos_id,) if begins and bos_id is not None else ())


def text_files(paths: Iterable[Path]) -> list[Path]:
    """The files, and those within folders, of the kinds that are read. Raises :class:`RecipeError`."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
            if not inside:
                raise RecipeError(f"{path} holds no text: no file ends in {', '.join(SUFFIXES)}. Name another folder.")
            found += inside
        elif not path.is_file():
            raise RecipeError(f"There is no text at {path}. Check the path.")
        else:
            found.append(path)
    if not found:
        raise RecipeError("There is no text to learn from. Name files or folders with --text.")
    return found


def held_out_text(folder: Path) -> HeldOutText:
    """:func:`engine.text.held_out.held_out_text`. Raises :class:`RecipeError` where it is not there."""
    try:
        return held_out.held_out_text(folder)
    except OSError as error:
        raise RecipeError(
            f"The text to measure on is missing ({folder}). Name another one, or install again."
        ) from error


def passages(files: Sequence[Path], words: TextEncoder, length: int) -> list[Passage]:
    """All passages of the files, of at most ``length`` tokens each. Raises :class:`RecipeError`."""
    found: list[Passage] = []
    for file in files:
        text = _read(file)
        if file.suffix.lower() == ".jsonl":
            for item in _lines(file, text):
                found += (
                    plain_passages(item, words, length) if isinstance(item, str) else _chat(file, item, words, length)
                )
        else:
            found += plain_passages(text, words, length)
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise RecipeError(f"{file} is not UTF-8 text. Convert it, or leave it out.") from None
    except OSError as error:
        raise RecipeError(f"{file} cannot be read ({error.strerror}). Check the file.") from error


def plain_passages(text: str, words: TextEncoder, length: int) -> Iterator[Passage]:
    """Pieces of a text; the model goes on from a quarter of each."""
    ids = [
        token
        for at in range(0, len(text), _AT_ONCE)
        for token in words.tokenizer.encode(text[at : at + _AT_ONCE], special=False)
    ]
    room = length - len(words.begin)
    for at in range(0, len(ids), room):
        tokens = [*words.begin, *ids[at : at + room]]
        if len(tokens) >= _SHORTEST:
            yield Passage(tokens, max(1, len(tokens) // 4))


def _chat(file: Path, messages: list[ChatMessage], words: TextEncoder, length: int) -> Iterator[Passage]:
    """A conversation up to its last answer for whose prompt there is room, which is what the model writes itself."""
    answers = [i for i, message in enumerate(messages) if message.role == "assistant" and i]
    try:
        for last in reversed(answers):
            prompt = prompt_ids(words.tokenizer, words.template, messages[:last])
            if len(prompt) > length // 2 and last != answers[0]:
                continue
            if len(prompt) <= length - _SHORTEST:
                whole = rendered(words.template, messages[:last])
                text = f"{whole.text}{messages[last].content}"
                yield Passage(words.tokenizer.encode(text, special=whole.special)[:length], len(prompt))
            return
    except PromptError as error:
        raise RecipeError(f"A conversation of {file.name} cannot be written down. {error}") from error


def _lines(file: Path, text: str) -> Iterator[str | list[ChatMessage]]:
    for number, line in enumerate(split_lines(text), 1):
        if line.strip():
            try:
                yield _item(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                raise RecipeError(
                    f"Line {number} of {file.name} is neither a text nor a conversation. Each line is to be JSON such "
                    'as {"text": "…"} or {"messages": [{"role": "user", "content": "…"}, …]}.'
                ) from None


def _item(value: Any) -> str | list[ChatMessage]:
    """Raises what a wrong shape raises."""
    if isinstance(value, dict):
        value = value.get("messages") or value.get("conversations") or value["text"]
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise TypeError
    return [_message(message) for message in value]


def _message(message: dict[str, Any]) -> ChatMessage:
    content = message["content"] if "content" in message else message["value"]
    if not isinstance(content, str):
        raise TypeError
    return ChatMessage.of(role=_ROLES[message.get("role") or message["from"]], content=content)
