"""Prompts in the forms that llama.cpp's server reads: text, token ids, both mixed, and objects with a text.

Source: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md, "prompt" of /completion.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from engine.doors.http.fields import BadField
from engine.doors.http.structured import nothing
from engine.services.answers.refused import shortened
from engine.text.tokenizer import Tokenizer

_NONE = (b"null", b"[]", b'""')
"""What a field is that holds nothing."""


class TextPart(msgspec.Struct):
    type: str
    text: str = ""


class PromptObject(msgspec.Struct):
    """A text, or the parts of one. Pictures and sounds go with messages only."""

    prompt_string: str | None = None
    content: list[TextPart] | None = None
    multimodal_data: Raw = msgspec.field(default_factory=nothing)

    def text(self, where: str) -> str:
        """Raises BadField for what is no text."""
        if bytes(self.multimodal_data) not in _NONE:
            text = "Pictures and sounds are read in messages only. Send them to /v1/chat/completions."
            raise BadField(f"{where}.multimodal_data", text)
        if self.content is None:
            return self.prompt_string or ""
        for number, part in enumerate(self.content):
            if part.type != "text":
                text = f"A part of type {shortened(part.type)!r} is not supported here. Send text."
                raise BadField(f"{where}.content[{number}].type", text)
        return "".join(part.text for part in self.content)


Mixed = list[str | int]
"""Token ids with texts between them."""
OnePrompt = str | PromptObject | Mixed
PromptsIn = str | PromptObject | list[str | int | PromptObject | Mixed]
"""One prompt or several: a list with an id in it is one."""


def prompts_of(given: PromptsIn, where: str) -> list[str | Mixed]:
    """Each a text, or ids with texts between them. Raises BadField."""
    if not isinstance(given, list):
        return [_plain(given, where)]
    if any(isinstance(each, int) for each in given):
        if not all(isinstance(each, str | int) for each in given):
            raise BadField(where, "Token ids go with texts only, or each prompt is a list of its own.")
        return [[each for each in given if isinstance(each, str | int)]]
    several = [each for each in given if not isinstance(each, int)]
    return [_plain(each, f"{where}[{number}]") for number, each in enumerate(several)]


def _plain(given: OnePrompt, where: str) -> str | Mixed:
    return given.text(where) if isinstance(given, PromptObject) else given


def mixed_ids(tokenizer: Tokenizer, given: Mixed) -> list[int]:
    """The ids of a mixed prompt; only a text at its beginning has what the tokenizer puts around one."""
    found: list[int] = []
    for number, part in enumerate(given):
        found += [part] if isinstance(part, int) else tokenizer.encode(part, special=not number)
    return found


def known(given: Mixed, vocabulary: int) -> bool:
    """Return True if all ids of a mixed prompt are the model's."""
    return all(isinstance(part, str) or 0 <= part < vocabulary for part in given)
