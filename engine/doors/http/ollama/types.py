"""The part of Ollama's HTTP interface that is spoken here, as records.

Source: https://docs.ollama.com/api. Durations are in nanoseconds, times as RFC 3339 writes them.
"""

from __future__ import annotations

import base64
import re
from typing import ClassVar, Literal

import msgspec

from engine.doors.http.fields import BadField
from engine.doors.http.sampling import SamplingIn
from engine.doors.http.structured import nothing, schema_of
from engine.protocol import ChatMessage, Overflow, Sampling, StructuredOutput, Thinking
from engine.services.answers.refused import shortened

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)")
SOONEST = 0.05
"""Seconds until a model is unloaded that is not to stay."""


class OllamaTurn(msgspec.Struct):
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str = ""
    images: list[str] | None = None
    tool_calls: list[msgspec.Raw] | None = None
    tool_name: str = ""


class _OllamaRequest(SamplingIn, kw_only=True):
    """Fields of both kinds of request. Those in ``options`` come out of there (:mod:`engine.doors.http.fields`)."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {
        "logprobs": (False,),
        "top_logprobs": (0,),
        "penalize_newline": (False,),
        "shift": (True, False),  # a context that is full ends the answer either way
    }

    model: str
    stream: bool = True
    think: bool | str | None = None
    keep_alive: str | float | None = None
    truncate: bool = True
    format: msgspec.Raw = msgspec.field(default_factory=nothing)

    @property
    def structured(self) -> StructuredOutput | None:
        """Form of the answer: "json", or a JSON schema. Raises BadField."""
        if bytes(self.format) in (b'""', b'"json"'):
            return StructuredOutput("json_object") if len(self.format) > 2 else None
        if bytes(self.format).lstrip().startswith(b'"'):
            raise BadField("format", 'The format is "json" or a JSON schema, and no other text.')
        return schema_of(self.format)

    @property
    def thinking(self) -> Thinking:
        return Thinking(effort=self.think) if isinstance(self.think, str) else Thinking(on=self.think)

    @property
    def overflow(self) -> Overflow:
        """Ollama leaves out what is oldest of a conversation that does not fit."""
        return "drop_middle" if self.truncate else "stop"

    def sampling(self) -> Sampling:
        limit = self.max_tokens
        return self.base_sampling(None if limit is not None and limit < 0 else limit, None)

    @property
    def ttl(self) -> float | None:
        """Seconds without a request after which the model is unloaded; 0: never. Raises BadField."""
        given = self.keep_alive
        if given is None:
            return None
        seconds = float(given) if not isinstance(given, str) else _seconds(given)
        return 0.0 if seconds < 0 else max(SOONEST, seconds)


class OllamaChat(_OllamaRequest, kw_only=True):
    messages: list[OllamaTurn] = []

    @property
    def empty(self) -> bool:
        """True if nothing is asked, but that the model be there (or go)."""
        return not self.messages

    def conversation(self) -> list[ChatMessage]:
        """Raises BadField with a sentence about what is not supported."""
        return [_message(turn, f"messages[{number}]") for number, turn in enumerate(self.messages)]

    @property
    def prefills(self) -> bool:
        """True if the answer goes on from the last message."""
        return bool(self.messages) and self.messages[-1].role == "assistant"


class GenerateIn(_OllamaRequest, kw_only=True):
    neutral: ClassVar[dict[str, tuple[object, ...]]] = {**_OllamaRequest.neutral, "context": ([],), "template": ("",)}

    prompt: str = ""
    system: str = ""
    raw: bool = False
    images: list[str] | None = None
    prefills: ClassVar[bool] = False

    @property
    def empty(self) -> bool:
        return not self.prompt and not self.images

    def conversation(self) -> list[ChatMessage] | str:
        """The plain text where it is ``raw``, else a conversation of one question. Raises BadField."""
        pictures = _pictures(self.images, "images")
        if self.raw:
            if pictures or self.system:
                raise BadField("raw", "A raw prompt has neither a system prompt nor pictures. Leave raw out.")
            return self.prompt
        system = [ChatMessage(role="system", content=self.system)] if self.system else []
        return [*system, ChatMessage(role="user", content=self.prompt, pictures=pictures)]


class ShowIn(msgspec.Struct):
    model: str = ""
    name: str = ""
    """As older clients call the model."""
    verbose: bool | None = None


class Details(msgspec.Struct, omit_defaults=True, frozen=True):
    format: str = ""
    family: str = ""
    families: list[str] = []
    parameter_size: str = ""
    quantization_level: str = ""


class ListedModel(msgspec.Struct, omit_defaults=True):
    """An entry of /api/tags and /api/ps; the last two are of a loaded model."""

    name: str
    model: str
    modified_at: str = ""
    size: int = 0
    details: Details = Details()
    size_vram: int | None = None
    context_length: int = 0


class OllamaModelList(msgspec.Struct):
    models: list[ListedModel]


class ShownModel(msgspec.Struct):
    """``model_info`` has the keys of GGUF that clients look for."""

    modified_at: str
    details: Details
    capabilities: list[str]
    model_info: dict[str, str | int]
    template: str = ""
    parameters: str = ""
    modelfile: str = ""
    license: str = ""


class OllamaAnswer(msgspec.Struct, omit_defaults=True):
    role: str
    content: str
    thinking: str = ""


class AnswerFigures(msgspec.Struct, omit_defaults=True):
    """The figures with the end of an answer."""

    done_reason: Literal["stop", "length", "load", "unload", ""] = ""
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0


class ChatOut(msgspec.Struct):
    model: str
    created_at: str
    message: OllamaAnswer
    done: bool


class GenerateOut(msgspec.Struct):
    model: str
    created_at: str
    response: str
    thinking: str
    done: bool


def _message(turn: OllamaTurn, where: str) -> ChatMessage:
    if turn.role == "tool" or turn.tool_calls or turn.tool_name:
        raise BadField(where, "Tools are not supported. Leave the calls of tools and their results out.")
    pictures = _pictures(turn.images, f"{where}.images")
    if pictures and turn.role != "user":
        raise BadField(where, f"A message of the role {turn.role!r} cannot have pictures. Use user.")
    return ChatMessage(role=turn.role, content=turn.content, thinking=turn.thinking, pictures=pictures)


def _pictures(images: list[str] | None, where: str) -> list[bytes]:
    try:
        return [base64.b64decode(image, validate=True) for image in images or ()]
    except ValueError as error:
        raise BadField(where, "The base64 of a picture is damaged. Send the whole file again.") from error


def _seconds(text: str) -> float:
    """Seconds of a number or of a duration as Go writes it, "1h30m". Raises BadField."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text)
    try:
        return sign * float(rest)
    except ValueError:
        parts = _DURATION.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise BadField("keep_alive", f'{shortened(text)!r} is not a duration. Write seconds, or such as "5m".')
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
