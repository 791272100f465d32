"""Prompts in the forms that llama.cpp's server reads: text, token ids, both mixed, and text with pictures.

Source: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md, "prompt" of /completion.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from engine.doors.http.fields import BadField
from engine.doors.http.pictures import MOST, ContentPart, picture, picture_at
from engine.protocol import ChatMessage
from engine.services.answers.refused import shortened
from engine.text.tokenizer import Tokenizer

MARK = "<__media__>"
"""Stands for a picture in a text."""


class PromptObject(msgspec.Struct):
    """A text with the base64 of a picture for each mark in it, or the parts of both."""

    prompt_string: str | None = None
    content: list[ContentPart] | None = None
    multimodal_data: list[str] | None = None

    def read(self, where: str) -> str | ChatMessage:
        """The text, or a message of it and the pictures. Raises BadField."""
        text, pictures, field = self.prompt_string or "", self.multimodal_data or (), f"{where}.multimodal_data"
        files = [picture(each, f"{field}[{number}]") for number, each in enumerate(pictures)]
        if self.content is not None:
            text, files, field = *_parts(self.content, f"{where}.content"), f"{where}.content"
        if not files:
            return text
        if text.count(MARK) != len(files):
            said = (
                f"The text has {text.count(MARK)} marks {MARK}, and there are {len(files)} pictures. Send one for each."
            )
            raise BadField(field, said)
        return ChatMessage.of("user", text, pictures=files)


def _parts(content: list[ContentPart], where: str) -> tuple[str, list[bytes]]:
    text, files = "", list[bytes]()
    for number, part in enumerate(content):
        if part.type == "image_url":
            files.append(picture_at(part.url, f"{where}[{number}].image_url"))
        elif part.type != "text":
            said = f"A part of type {shortened(part.type)!r} is not supported here. Send text or image_url."
            raise BadField(f"{where}[{number}].type", said)
        text += MARK if part.type == "image_url" else part.text or ""
    return text, files


Mixed = list[str | int]
"""Token ids with texts between them."""
OnePrompt = str | PromptObject | Mixed
PromptsIn = str | PromptObject | list[str | int | PromptObject | Mixed]
"""One prompt or several: a list with an id in it is one."""

Prompt = str | Mixed | ChatMessage
"""A text, ids with texts between them, or a text with pictures at its marks."""


def prompts_of(given: PromptsIn, where: str) -> list[Prompt]:
    """Raises BadField."""
    found = _each(given, where)
    pictures = sum(len(each.pictures) for each in found if isinstance(each, ChatMessage))
    if pictures > MOST:
        raise BadField(where, f"{MOST} pictures are read with plain text, and there are {pictures}. Send fewer.")
    return found


def _each(given: PromptsIn, where: str) -> list[Prompt]:
    if not isinstance(given, list):
        return [_plain(given, where)]
    if any(isinstance(each, int) for each in given):
        if not all(isinstance(each, str | int) for each in given):
            raise BadField(where, "Token ids go with texts only, or each prompt is a list of its own.")
        return [[each for each in given if isinstance(each, str | int)]]
    several = [each for each in given if not isinstance(each, int)]
    return [_plain(each, f"{where}[{number}]") for number, each in enumerate(several)]


def _plain(given: OnePrompt, where: str) -> Prompt:
    return given.read(where) if isinstance(given, PromptObject) else given


def pictured(given: PromptsIn, where: str) -> Iterator[tuple[str, ContentPart]]:
    """The parts of all prompts that are pictures, with the fields of their addresses."""
    several = given if isinstance(given, list) else [given]
    for number, each in enumerate(several):
        for place, part in enumerate((each.content or ()) if isinstance(each, PromptObject) else ()):
            if part.url:
                yield f"{where}{f'[{number}]' if several is given else ''}.content[{place}].image_url", part


def mixed_ids(tokenizer: Tokenizer, given: Mixed) -> list[int]:
    """The ids of a mixed prompt; only a text at its beginning has what the tokenizer puts around one."""
    found: list[int] = []
    for number, part in enumerate(given):
        found += [part] if isinstance(part, int) else tokenizer.encode(part, special=not number)
    return found


def words_of(given: Prompt) -> str:
    """The text of a prompt."""
    if isinstance(given, ChatMessage):
        return given.content
    return given if isinstance(given, str) else "".join(part for part in given if isinstance(part, str))


def known(given: Mixed, vocabulary: int) -> bool:
    """Return True if all ids of a mixed prompt are the model's."""
    return all(isinstance(part, str) or 0 <= part < vocabulary for part in given)
