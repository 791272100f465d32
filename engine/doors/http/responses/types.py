"""The part of OpenAI's Responses that is spoken here, as records.

Source: https://platform.openai.com/docs/api-reference/responses and the Open Responses specification of 2026-04-24.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from engine.doors.http import template
from engine.doors.http.fields import BadField
from engine.doors.http.logprobs import check_top
from engine.doors.http.responses.items import ItemIn, Placed, new_id
from engine.doors.http.responses.tools import OURS, ClientTool, ResponsesTool, client_tools, notices_of
from engine.doors.http.sampling import TIERS, SamplingIn
from engine.doors.http.structured import nothing, schema_of
from engine.doors.http.tools import chosen, tool_config
from engine.protocol import Overflow, Sampling, StructuredOutput, Thinking, Tool, ToolConfig
from engine.services.answers.refused import shortened

ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
INCLUDABLE = frozenset(
    {
        ENCRYPTED,
        LOGPROBS,
        # what comes of tools and files that are not here, or is told anyway
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
"""What a request may ask to be told besides."""


class TextFormat(msgspec.Struct):
    """A schema always holds to the letter, so that ``strict`` changes nothing."""

    type: str
    name: str = ""
    schema: Raw = msgspec.field(default_factory=nothing)
    strict: bool | None = None
    description: str | None = None


class TextConfig(msgspec.Struct):
    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningIn(msgspec.Struct):
    """What is thought is told as it is, never as a ``summary``."""

    effort: str | None = None
    summary: str | None = None


class ResponsesStreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing is obfuscated here, whether it is asked for or not."""

    include_obfuscation: bool = False


class ResponsesIn(SamplingIn, kw_only=True):
    """A request; the two before ``metadata`` are vLLM's, ``ttl`` and ``overflow`` are Kvasir's own, the two before them
    llama.cpp's, of streams."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {
        "context_management": ([],),
        "conversation": (),
        "prompt": (),
        "moderation": (),
    }
    """Further fields that are served with these values only (:mod:`engine.doors.http.fields`)."""

    model: str = ""
    input: str | list[ItemIn] = ""
    instructions: str | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    text: TextConfig | None = None
    tools: list[ResponsesTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningIn | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_response_messages: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    ttl: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    overflow: Overflow | None = None

    def check(self, vocabulary: int) -> None:
        """Raises BadField with a sentence for what cannot be served by a model with this vocabulary."""
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            text = f"max_output_tokens is at least 1: {self.max_output_tokens} is not."
            raise BadField("max_output_tokens", text)
        check_top("top_logprobs", self.top_logprobs)
        for number, name in enumerate(self.include or ()):
            if name not in INCLUDABLE:
                raise BadField(f"include[{number}]", f"{shortened(name)!r} cannot be included. Leave it out.")
        if self.text is not None and self.text.verbosity not in (None, "medium"):
            text = "A verbosity other than medium is not supported. Leave it out, and ask for it in the instructions."
            raise BadField("text.verbosity", text)
        if self.background and self.store is False:
            text = "background can only be used when `store` is true: the response is asked for later. Leave store out."
            raise BadField("background", text)
        if self.background and self.stream:
            raise BadField("stream", "A response in the background is not streamed. Leave one of both out.")
        template.check_variables(self.chat_template_kwargs)
        super().check(vocabulary)

    @property
    def items(self) -> list[ItemIn]:
        """The input as items."""
        given = [ItemIn(role="user", content=self.input)] if isinstance(self.input, str) and self.input else self.input
        return [item.named for item in given if isinstance(item, ItemIn)]

    def placed(self, before: Sequence[ItemIn], given: Sequence[ItemIn]) -> list[Placed]:
        """The items that the model reads, with their fields: those ``before``, and those of the input."""
        told = [("instructions", ItemIn(role="system", content=self.instructions))] if self.instructions else []
        earlier = [("previous_response_id", item) for item in before]
        return [*told, *earlier, *((f"input[{number}]", item) for number, item in enumerate(given))]

    def includes(self, name: str) -> bool:
        return name in (self.include or ())

    def sampling(self) -> Sampling:
        limit = self.max_tokens if self.max_output_tokens is None else self.max_output_tokens
        tells = self.top_logprobs is not None or self.includes(LOGPROBS)
        return self.base_sampling(limit, (self.top_logprobs or 0) if tells else None)

    @property
    def wanted_thinking(self) -> Thinking:
        """Thinking that the request asks for."""
        given = self.chat_template_kwargs or {}
        effort = None if self.reasoning is None else self.reasoning.effort
        return template.thinking(
            (given.get("enable_thinking"), given.get("thinking")), (given.get("reasoning_effort"), effort)
        )

    @property
    def wanted_overflow(self) -> Overflow:
        """What becomes of a conversation that outgrows the context: "auto" leaves out its middle."""
        return self.overflow or ("drop_middle" if self.truncation == "auto" else "stop")

    def structured(self) -> StructuredOutput | None:
        """What the answer has to be. Raises BadField."""
        given = None if self.text is None else self.text.format
        if given is None or given.type == "text":
            return None
        if given.type == "json_object":
            return StructuredOutput("json_object")
        if given.type != "json_schema":
            text = f"A format of type {shortened(given.type)!r} is not supported. Use text, json_object or json_schema."
            raise BadField("text.format.type", text)
        if (found := schema_of(given.schema)) is None:
            raise BadField("text.format.schema", "The format has no schema. Send one, or json_object.")
        return found

    @property
    def _format(self) -> TextFormat | dict[str, str]:
        """The form of the answer's text, as a response tells it."""
        given = None if self.text is None else self.text.format
        if given is not None and given.type == "json_schema":
            return given
        return {"type": "text" if given is None else given.type}

    def tool_config(self) -> ToolConfig | None:
        """Tools that the answer may call. Raises BadField."""
        tools = [each.checked() for each in self.client_tools]
        choice, names = chosen(self.tool_choice)
        return tool_config(tools, choice, names, self.parallel_tool_calls is not False)

    @property
    def client_tools(self) -> list[ClientTool]:
        """The tools that the client runs, which an answer may call."""
        return client_tools(self.tools or ())

    def notices(self, config: ToolConfig | None, holds: Callable[[Tool], bool]) -> list[str]:
        """What is done otherwise than asked for, as sentences; ``holds``: of the model's :class:`ToolStyle`."""
        return notices_of(self.tools or (), config is not None and config.choice == "required", holds)

    def begun(self, model: str, defaults: Sampling, notices: Sequence[str]) -> ResponseOut:
        """The response to this request before anything is answered, by a model with these settings of its own."""
        given = self.sampling()
        temperature, top_p = (
            next((each for each in both if each is not None), 1.0)
            for both in ((given.temperature, defaults.temperature), (given.top_p, defaults.top_p))
        )
        return ResponseOut(
            id=new_id("resp"),
            created_at=int(time.time()),
            model=model,
            instructions=self.instructions,
            max_output_tokens=given.max_tokens,
            max_tool_calls=self.max_tool_calls,
            metadata=self.metadata or {},
            parallel_tool_calls=self.parallel_tool_calls is not False,
            previous_response_id=self.previous_response_id,
            reasoning=self.reasoning or ReasoningIn(),
            store=self.store is not False,
            background=bool(self.background),
            status="queued" if self.background else "in_progress",
            temperature=temperature,
            text={"format": self._format},
            tool_choice="auto" if self.tool_choice is None else self.tool_choice,
            tools=[tool.told for tool in self.tools or () if tool.type in (*OURS, "namespace")],
            top_logprobs=self.top_logprobs or 0,
            top_p=top_p,
            truncation=self.truncation or "disabled",
            presence_penalty=given.presence_penalty,
            frequency_penalty=given.frequency_penalty,
            user=self.user,
            safety_identifier=self.safety_identifier,
            prompt_cache_key=self.prompt_cache_key,
            service_tier=next((tier for tier in ("priority", "flex") if TIERS[tier] == self.service), "default"),
            notices=list(notices) or UNSET,
        )


class ResponseCreate(ResponsesIn, kw_only=True):
    """A request as a frame of a websocket. ``generate`` false: the prompt is read, and nothing is answered."""

    type: Literal["response.create"]
    generate: bool = True

    def __post_init__(self) -> None:
        self.stream = True

    def sampling(self) -> Sampling:
        given = super().sampling()
        return given if self.generate else structs.replace(given, max_tokens=0, min_tokens=0)


class InputTokensDetails(msgspec.Struct):
    cached_tokens: int = 0


class OutputTokensDetails(msgspec.Struct):
    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(msgspec.Struct):
    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    reason: str


class RawMessage(msgspec.Struct):
    """Tokens, and their text with all marks."""

    message: str
    tokens: list[int]
    type: str = "raw_message_tokens"


class ResponseOut(msgspec.Struct, kw_only=True):
    """A response, with the settings that it was made with. ``notices``: what went otherwise than asked for. Last come
    the tokens that the model read and wrote, where they were asked for."""

    id: str
    object: str = "response"
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"] = "in_progress"
    background: bool = False
    completed_at: int | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: list[dict[str, Any]] = []
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningIn
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    presence_penalty: float
    frequency_penalty: float
    usage: ResponseUsage | None = None
    user: str | None
    metadata: dict[str, str]
    safety_identifier: str | None
    prompt_cache_key: str | None
    notices: list[str] | UnsetType = UNSET
    input_messages: list[RawMessage] | UnsetType = UNSET
    output_messages: list[RawMessage] | UnsetType = UNSET


class DeletedResponse(msgspec.Struct):
    id: str
    object: str = "response"
    deleted: bool = True


class InputItems(msgspec.Struct):
    """A page of the items that a response's model read."""

    data: list[ItemIn]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: str = "list"
