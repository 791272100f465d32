"""Messages from the window to the engine."""

from __future__ import annotations

from typing import Annotated

import msgspec

from engine.protocol.access import ServiceName
from engine.protocol.adapters import ListAdapters, LoadAdapter, UnloadAdapter
from engine.protocol.base import Message, Overflow, Value
from engine.protocol.cache import DescribePage, ForgetChat, MeasureCost
from engine.protocol.calls import Call
from engine.protocol.parts import ChatMessage, ToolConfig
from engine.protocol.records import LoadOptions, Sampling, StructuredOutput, Thinking
from engine.protocol.remotes import RemoteModel
from engine.protocol.why import Why


class Hello(Message, tag="hello", frozen=True):
    token: str
    protocol: int


class Load(Message, tag="load", frozen=True):
    """Load a model by path or by a name of Welcome.models. ``draft``: "" is none, None the model's own if bundled."""

    model: str
    draft: str | None = None
    options: LoadOptions = LoadOptions()


class Unload(Message, tag="unload", frozen=True):
    """``reason`` and ``idle`` are those of :class:`Unloaded`. ``path``: only if that model is loaded; "": any."""

    reason: str = ""
    idle: bool = False
    path: str = ""


class UnloadAfter(Message, tag="unload_after", frozen=True):
    """Unload the model when nothing has been asked of it for so many minutes; 0: never."""

    minutes: Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class CancelLoad(Message, tag="cancel_load", frozen=True):
    pass


class Generate(Message, tag="generate", frozen=True):
    """Ask for an answer. ``prompt`` is a conversation (the chat template is applied) or plain text to continue."""

    id: str
    prompt: list[ChatMessage] | str
    parent: str = ""
    n: int = 1
    sampling: Sampling = Sampling()
    optimisations: dict[str, Value] = {}
    thinking: Thinking = Thinking()
    chat: str = ""
    """The conversation that the prompt belongs to, as the client calls it."""
    overflow: Overflow = "stop"
    adapter: str = ""
    """The name of the LoRA adapter that answers; "": the model alone."""
    structured: StructuredOutput | None = None
    """None: the answer may be anything."""
    tools: ToolConfig | None = None
    """None: it can call no tool."""
    remote: RemoteModel | None = None
    """The model of another server that answers; None: the one that is loaded here."""
    continues: bool = False
    """The answer goes on from the text of the last message, which is the assistant's; its deltas are what is new."""
    service: ServiceName = ""
    """Service class of the request; "": that of a person who waits for it."""


class Cancel(Message, tag="cancel", frozen=True):
    id: str


class Set(Message, tag="set", frozen=True):
    key: str
    value: Value


class Compare(Message, tag="compare", frozen=True):
    """Replay a prompt with one switch both ways, same seed, in pairs of random order -> :class:`Compared`.

    ``rounds`` pairs; 0: until the difference is clear, or will not be.
    """

    id: str
    key: str
    prompt: list[ChatMessage] | str
    sampling: Sampling = Sampling()
    rounds: int = 0
    values: list[Value] = []
    thinking: Thinking = Thinking()
    adapter: str = ""
    tools: ToolConfig | None = None
    """None: it can call no tool. Calls are compared like text, and never run."""


class Estimate(Message, tag="estimate", frozen=True):
    id: str
    model: str
    draft: str | None = None
    options: LoadOptions = LoadOptions()


class CountTokens(Message, tag="count_tokens", frozen=True):
    """Request for the number of tokens that a conversation takes once rendered (for the context bar).

    With a ``chat``, and the ``adapter`` that is to answer, also for how many of them are kept.
    """

    id: str
    prompt: list[ChatMessage] | str
    thinking: Thinking = Thinking()
    tools: ToolConfig | None = None
    chat: str = ""
    adapter: str = ""


class Subscribe(Message, tag="subscribe", frozen=True):
    """Topics: "telemetry", "pages", "tree". A map is sent when it changed.

    ``rate`` is at most 10 frames a second; an engine at rest sends one a second.
    """

    topics: list[str]
    rate: float = 10.0


ToEngine = (
    Hello
    | Load
    | Unload
    | UnloadAfter
    | CancelLoad
    | Generate
    | Cancel
    | Set
    | Compare
    | Estimate
    | CountTokens
    | Subscribe
    | DescribePage
    | MeasureCost
    | ForgetChat
    | LoadAdapter
    | UnloadAdapter
    | ListAdapters
    | Why
    | Call
)
