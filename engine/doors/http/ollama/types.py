"""The part of Ollama's HTTP interface that is spoken here, as records.

Source: https://docs.ollama.com/api. Durations are in nanoseconds, times as RFC 3339 writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from engine.doors.http.fields import BadField
from engine.doors.http.pictures import picture
from engine.doors.http.sampling import SamplingIn
from engine.doors.http.structured import nothing, schema_of
from engine.doors.http.tools import ToolIn, tool_config, with_names
from engine.protocol import (
    ChatMessage,
    Overflow,
    Sampling,
    StructuredOutput,
    Thinking,
    ToolCall,
    ToolConfig,
    ToolResult,
)
from engine.services.answers.refused import shortened

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)")
SOONEST = 0.05
"""Seconds until a model is unloaded that is not to stay."""


class OllamaFunction(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | str = {}
    index: int | None = None


class OllamaCall(msgspec.Struct, omit_defaults=True):
    function: OllamaFunction
    id: str = ""


class OllamaTurn(msgspec.Struct):
    """``tool_name`` is that of the tool whose result this is."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str = ""
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str = ""
    tool_call_id: str = ""


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
    tools: list[ToolIn] | None = None

    @property
    def empty(self) -> bool:
        """True if nothing is asked, but that the model be there (or go)."""
        return not self.messages

    def conversation(self) -> list[ChatMessage]:
        """Raises BadField with a sentence about what is not supported."""
        return with_names(list(_messages(self.messages)))

    def tool_config(self) -> ToolConfig | None:
        """Tools that the answer may call. Raises BadField."""
        tools = [each.tool(f"tools[{number}]") for number, each in enumerate(self.tools or ())]
        return tool_config(tools, "auto")

    @property
    def prefills(self) -> bool:
        """True if the answer goes on from the last message."""
        return bool(self.messages) and self.messages[-1].role == "assistant"


class GenerateIn(_OllamaRequest, kw_only=True):
    neutral: ClassVar[dict[str, tuple[object, ...]]] = {**_OllamaRequest.neutral, "context": ([],), "template": ("",)}

    prompt: str = ""
    suffix: str = ""
    """Text behind the gap that the answer fills, for models that can."""
    system: str = ""
    raw: bool = False
    images: list[str] | None = None
    prefills: ClassVar[bool] = False

    def check(self, vocabulary: int) -> None:
        super().check(vocabulary)
        if self.suffix and (self.images or self.raw or self.system or self.structured is not None):
            raise BadField("suffix", "A suffix goes with a prompt alone: no pictures, format, system prompt or raw.")

    @property
    def empty(self) -> bool:
        return not self.prompt and not self.images

    def tool_config(self) -> ToolConfig | None:
        return None

    def conversation(self) -> list[ChatMessage] | str:
        """The plain text where it is ``raw``, else a conversation of one question. Raises BadField."""
        pictures = _pictures(self.images, "images")
        if self.raw:
            if pictures or self.system:
                raise BadField("raw", "A raw prompt has neither a system prompt nor pictures. Leave raw out.")
            return self.prompt
        system = [ChatMessage.of("system", self.system)] if self.system else []
        return [*system, ChatMessage.of("user", self.prompt, pictures=pictures)]


class EmbedIn(_OllamaRequest, kw_only=True):
    """Without an input nothing is asked, but that the model be there."""

    input: str | list[str] = ""
    dimensions: int | None = None

    @property
    def inputs(self) -> list[str]:
        return self.input if isinstance(self.input, list) else [self.input] if self.input else []

    def written(self, vectors: list[list[float]], figures: dict[str, int]) -> EmbedOut:
        return EmbedOut(self.model, vectors, **figures)


class EmbeddingsIn(_OllamaRequest, kw_only=True):
    """As older clients ask for one embedding."""

    dimensions: ClassVar[None] = None

    prompt: str = ""

    @property
    def inputs(self) -> list[str]:
        return [self.prompt] if self.prompt else []

    def written(self, vectors: list[list[float]], figures: dict[str, int]) -> EmbeddingsOut:
        return EmbeddingsOut(vectors[0] if vectors else [])


class EmbedOut(msgspec.Struct):
    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class EmbeddingsOut(msgspec.Struct):
    embedding: list[float]


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
    tool_calls: list[OllamaCall] | None = None


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


def _messages(turns: Sequence[OllamaTurn]) -> Iterator[ChatMessage]:
    """Calls have no names in this interface, or need none: results belong to them by their tool's name, in their order.
    Raises BadField."""
    waiting: list[ToolCall] = []
    for number, turn in enumerate(turns):
        where = f"messages[{number}]"
        pictures = _pictures(turn.images, f"{where}.images")
        if pictures and turn.role not in ("user", "tool"):
            raise BadField(where, f"A message of the role {turn.role!r} cannot have pictures. Use user.")
        if turn.role == "tool":
            mine = (call for call in waiting if turn.tool_call_id == call.id or turn.tool_name in ("", call.name))
            call = next(mine, ToolCall(turn.tool_call_id, turn.tool_name, ""))
            waiting = [each for each in waiting if each is not call]
            yield ChatMessage(role="tool", parts=[ToolResult(call.id, turn.content, call.name, pictures)])
            continue
        calls = [_called(call, f"call_{number}_{place}") for place, call in enumerate(turn.tool_calls or ())]
        waiting = calls or waiting
        yield ChatMessage.of(turn.role, turn.content, turn.thinking, pictures, calls)


def _called(call: OllamaCall, id: str) -> ToolCall:
    given = call.function.arguments
    arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    return ToolCall(call.id or id, call.function.name, arguments)


def _pictures(images: list[str] | None, where: str) -> list[bytes]:
    return [picture(image, where) for image in images or ()]


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
