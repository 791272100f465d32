"""The part of OpenAI's HTTP interface that is spoken here, as records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from engine.compute.sampling.params import MAX_LOGPROBS
from engine.doors.http.fields import BadField
from engine.doors.http.logprobs import TokenLogprob
from engine.doors.http.openai.codex import CodexModel
from engine.doors.http.pictures import picture_at
from engine.doors.http.sampling import UNLIMITED
from engine.doors.http.structured import StructuredIn
from engine.doors.http.timings import PromptProgress, TimingsOut
from engine.doors.http.tools import ToolIn, chosen, tool_config, with_names
from engine.protocol import (
    ChatMessage,
    FinishReason,
    Overflow,
    Sampling,
    Thinking,
    ToolCall,
    ToolConfig,
    ToolResult,
)
from engine.services.answers.refused import shortened

MOST_ANSWERS = 512
"""Answers to the prompts of one request, each of which waits in the engine's queue."""
RESERVED = frozenset({"add_generation_prompt", "chat_template", "continue_final_message", "messages", "tokenize"})
"""What a client may not hand to the chat template, because the request itself says it."""
_SWITCHES = {"enabled": True, "disabled": False}
"""How Anthropic's and others' interfaces say whether a model is to think."""
ROLES: dict[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class ImageUrl(msgspec.Struct):
    """Address of a picture; a model's tower decides in which detail it is seen."""

    url: str


class ContentPart(msgspec.Struct):
    """A part of a message. What belongs to other kinds of part is refused by its type; the rest is ignored, as hints to
    a cache are."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None

    @property
    def url(self) -> str:
        """The address of its picture, "" without one."""
        return self.image_url.url if isinstance(self.image_url, ImageUrl) else self.image_url or ""


class CalledFunction(msgspec.Struct, omit_defaults=True, frozen=True):
    name: str | None = None
    arguments: str | None = None


class CallIn(msgspec.Struct):
    """A call of a tool in an earlier message."""

    id: str = ""
    type: str = "function"
    function: CalledFunction | None = None


class OpenAITurn(msgspec.Struct):
    """A message. Thinking has two names among servers, and clients send back what they were given, with fields of their
    own besides, which are ignored.

    ``prefix``: the answer goes on from it, where it is the last one. The last fields are known for when they are empty.
    """

    role: str
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    prefix: bool | None = None
    refusal: str | None = None
    tool_calls: list[CallIn] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    function_call: dict[str, msgspec.Raw] | None = None
    audio: dict[str, msgspec.Raw] | None = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing is obfuscated here, whether it is asked for or not. ``continuous_usage_stats``: where usage is included,
    each part of an answer has it."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class _OpenAIRequest(StructuredIn, kw_only=True):
    """Fields of both kinds of request; the last two are Kvasir's own, the two before them llama.cpp's.

    The five fields about thinking are names of one thing, which plain completions ignore.
    """

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {}
    """Further fields that are served with these values only (:mod:`engine.doors.http.fields`)."""

    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    prompt_logprobs: int | None = None
    think: bool | str | None = None
    thinking: bool | dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning: bool | dict[str, Any] | None = None
    include_reasoning: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    ttl: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    overflow: Overflow | None = None

    @property
    def echoes(self) -> bool:
        """True if the prompts are returned before their answers."""
        return False

    @property
    def alone(self) -> bool:
        """True if one answer to one prompt is asked for."""
        return self.n in (None, 1)

    def check(self, vocabulary: int) -> None:
        """Raises BadField with a sentence for what cannot be served by a model with this vocabulary."""
        if self.n is not None and self.n < 1:
            raise BadField("n", f"n is at least 1: {self.n} is not.")
        if self.stream_options is not None and not self.stream:
            raise BadField("stream_options", "stream_options needs stream to be true.")
        for name in ("return_progress", "timings_per_token"):
            if getattr(self, name) and not self.alone:
                raise BadField(name, f"{name} goes with one answer. Ask for one at a time.")
        if self.prompt_logprobs is not None and self.stream:
            raise BadField("prompt_logprobs", "prompt_logprobs come with whole answers only. Leave stream out.")
        if not 0 <= (self.prompt_logprobs or 0) <= MAX_LOGPROBS:
            raise BadField("prompt_logprobs", f"prompt_logprobs is 0 to {MAX_LOGPROBS}: {self.prompt_logprobs} is not.")
        self.structured()
        super().check(vocabulary)


class OpenAIChat(_OpenAIRequest, kw_only=True):
    neutral: ClassVar[dict[str, tuple[object, ...]]] = {"add_special_tokens": (False,)}

    messages: list[OpenAITurn]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: list[ToolIn] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    def check(self, vocabulary: int) -> None:
        super().check(vocabulary)
        if not self.messages:
            raise BadField("messages", "There is no message to answer. Send one at least.")
        if self.top_logprobs and not self.logprobs:
            raise BadField("top_logprobs", "top_logprobs needs logprobs to be true.")
        for name in ("max_tokens", "max_completion_tokens"):
            limit = getattr(self, name)
            if limit is not None and limit < 1 and limit != UNLIMITED:
                raise BadField(name, f"{name} is at least 1, or {UNLIMITED} for no limit: {limit} is not.")
        if given := RESERVED.intersection(self.chat_template_kwargs or ()):
            name = f"chat_template_kwargs.{min(given)}"
            raise BadField(name, f"The field {name!r} is not supported. Use the fields of the request.")
        self.prefills()
        self.tool_config()
        if not 0 <= (self.top_logprobs or 0) <= MAX_LOGPROBS:
            raise BadField("top_logprobs", f"top_logprobs is 0 to {MAX_LOGPROBS}: {self.top_logprobs} is not.")

    def sampling(self) -> Sampling:
        limit = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return self.base_sampling(limit, (self.top_logprobs or 0) if self.logprobs else None)

    def prompt(self) -> list[ChatMessage]:
        """Raises BadField with a sentence about a role or a part that is not supported."""
        return with_names([_message(turn, f"messages[{number}]") for number, turn in enumerate(self.messages)])

    @property
    def pictured(self) -> Iterator[tuple[str, ContentPart]]:
        """The parts that are pictures, with the fields of their addresses."""
        for number, turn in enumerate(self.messages):
            for place, part in enumerate(turn.content if isinstance(turn.content, list) else ()):
                if part.url:
                    yield f"messages[{number}].content[{place}].image_url", part

    def tool_config(self) -> ToolConfig | None:
        """Tools that the answer may call. Raises BadField."""
        tools = [each.tool(f"tools[{number}]") for number, each in enumerate(self.tools or ())]
        choice, names = chosen(self.tool_choice)
        return tool_config(tools, choice, names, self.parallel_tool_calls is not False)

    def wanted_thinking(self) -> Thinking:
        """Thinking that the request asks for, under whichever of its names.

        An effort of "none" is OpenAI's word for no thinking.
        """
        given = self.chat_template_kwargs or {}
        thinking, reasoning = _object(self.thinking), _object(self.reasoning)
        said = (
            given.get("enable_thinking"), given.get("thinking"), self.enable_thinking, self.think, self.thinking,
            thinking.get("enabled"), _SWITCHES.get(str(thinking.get("type"))), self.reasoning, reasoning.get("enabled"),
        )  # fmt: skip
        on = next((each for each in said if isinstance(each, bool)), None)
        words = (given.get("reasoning_effort"), self.reasoning_effort, self.think, reasoning.get("effort"))
        effort = next((each for each in words if isinstance(each, str)), "")
        return Thinking(on=False if on is None else on) if effort == "none" else Thinking(on=on, effort=effort)

    @property
    def tells_thinking(self) -> bool:
        """True if the answer is to hold what the model thought."""
        return self.include_reasoning is not False and _object(self.reasoning).get("exclude") is not True

    def variables(self) -> dict[str, Any]:
        """Further variables that the chat template is given."""
        own = ("enable_thinking", "thinking", "reasoning_effort")
        given = (self.chat_template_kwargs or {}).items()
        return {name: value for name, value in given if name not in own or not isinstance(value, bool | str | None)}

    def prefills(self) -> bool:
        """Return True if the answer continues the last message. Raises BadField.

        As in llama.cpp it does wherever that is an assistant's, unless the request wants a new turn.
        """
        last = self.messages[-1]
        wanted = self.continue_final_message or last.prefix
        if wanted and self.add_generation_prompt:
            text = "An answer goes on from the last message, or a new turn begins. Leave add_generation_prompt out."
            raise BadField("add_generation_prompt", text)
        if wanted and last.role != "assistant":
            text = "Only a message of the assistant can be continued, and the last one is not."
            raise BadField("continue_final_message" if self.continue_final_message else "messages", text)
        return last.role == "assistant" and not self.add_generation_prompt and self.continue_final_message is not False


class Ids(list[int]):
    """A prompt that came as token ids."""


class CompletionIn(_OpenAIRequest, kw_only=True):
    neutral: ClassVar[dict[str, tuple[object, ...]]] = {"add_special_tokens": (True,)}

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    """Text behind the gap that the answer fills, for models that can."""

    @property
    def echoes(self) -> bool:
        return bool(self.echo)

    @property
    def alone(self) -> bool:
        return super().alone and len(self.prompts()) == 1

    def check(self, vocabulary: int) -> None:
        super().check(vocabulary)
        if self.best_of not in (None, 1 if self.n is None else self.n):
            raise BadField("best_of", "best_of is supported only where it equals n. Leave it out.")
        if self.suffix and (self.echo or self.structured() is not None or not isinstance(self.prompt, str)):
            text = "A suffix goes with a prompt of one text alone, without echo and without a form of the answer."
            raise BadField("suffix", text)

    def sampling(self) -> Sampling:
        # OpenAI's own default; without it a plain continuation runs to the end of the context.
        return self.base_sampling(self.max_tokens if self.max_tokens is not None else 16, self.logprobs)

    def prompts(self) -> list[str | Ids]:
        """Each of them text or token ids. Raises BadField with a sentence where one is empty, or neither."""
        given = self.prompt
        if isinstance(given, str):
            given = [given]
        elif given and all(isinstance(item, int) for item in given):
            given = [cast("list[int]", given)]
        if (answers := len(given) * (self.n or 1)) > MOST_ANSWERS:
            text = f"The prompts have {answers:,} answers together, and {MOST_ANSWERS} are written at most. Send fewer."
            raise BadField("prompt", text)
        prompts: list[str | Ids] = []
        for prompt in given:
            if isinstance(prompt, int):
                text = "The prompt is neither one of token ids nor a list of prompts. Send one of both."
                raise BadField("prompt", text)
            prompts.append(prompt if isinstance(prompt, str) else Ids(prompt))
        if not prompts or not all(prompts):
            raise BadField("prompt", "The prompt is empty. Write something first.")
        return prompts


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _message(turn: OpenAITurn, where: str) -> ChatMessage:
    if turn.role not in ROLES:
        text = f"The role {shortened(turn.role)!r} is not supported. Use system, user, assistant or tool."
        raise BadField(f"{where}.role", text)
    for name in ("refusal", "function_call", "audio"):  # the model would have to see them
        if getattr(turn, name):
            raise BadField(f"{where}.{name}", f"The field {name!r} of a message is not supported. Leave it out.")
    if turn.content is None and turn.role != "assistant":
        raise BadField(f"{where}.content", "The message has no content. Send some text.")
    content = turn.content if isinstance(turn.content, list) else [ContentPart("text", turn.content or "")]
    pictures: list[bytes] = []
    for number, part in enumerate(content):
        field = f"{where}.content[{number}]"
        if part.type == "image_url":
            pictures.append(picture_at(part.url, f"{field}.image_url"))
        elif part.type != "text":
            text = f"Content of type {shortened(part.type)!r} is not supported. Send text or image_url."
            raise BadField(f"{field}.type", text)
        elif part.text is None:
            raise BadField(f"{field}.text", "The part has no text. Send some.")
    if pictures and turn.role not in ("user", "tool"):
        raise BadField(f"{where}.content", f"A message of the role {turn.role!r} cannot have pictures. Use user.")
    text = "".join(part.text or "" for part in content)
    if turn.role == "tool":
        result = ToolResult(turn.tool_call_id or "", text, turn.name or "", pictures)
        return ChatMessage(role="tool", parts=[result])
    thinking = turn.reasoning_content or turn.reasoning or ""
    calls = [_called(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(turn.tool_calls or ())]
    if calls and turn.role != "assistant":
        raise BadField(f"{where}.tool_calls", "Only messages of the assistant can have calls of tools.")
    return ChatMessage.of(ROLES[turn.role], text, thinking, pictures, calls)


def _called(call: CallIn, where: str) -> ToolCall:
    if call.function is None or not call.function.name:
        raise BadField(f"{where}.function", "A call of a tool has no name of one. Send back what was answered.")
    return ToolCall(call.id, call.function.name, call.function.arguments or "{}")


def finish_reason(reason: FinishReason, called: bool = False) -> str:
    """Reason of OpenAI's: the model or a stop string ended it, it ``called`` tools, or a limit on its length ended
    it."""
    return {"stop": "tool_calls" if called else "stop", "length": "length", "context": "length"}[reason]


class ChatLogprobs(msgspec.Struct):
    content: list[TokenLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float | None]
    """Nothing is known of the first token of a prompt, which no other comes before."""
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CallOut(msgspec.Struct, omit_defaults=True):
    """A call of a tool. In a stream its first part has all but the arguments, and further ones these."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: CalledFunction = CalledFunction()


class OpenAIAnswer(msgspec.Struct, omit_defaults=True):
    role: str = ""
    content: str | UnsetType | None = UNSET
    reasoning_content: str | None = None
    """The thinking, under the name that DeepSeek's interface and vLLM's gave it."""
    tool_calls: list[CallOut] | None = None


class ChatChoice(msgspec.Struct):
    index: int
    message: OpenAIAnswer
    finish_reason: str | None
    logprobs: ChatLogprobs | None = None


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: OpenAIAnswer
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None


class PromptLogprob(msgspec.Struct):
    """vLLM's shape; ``rank`` is None beyond the alternatives that were asked for."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""For each token of a prompt but the first, what is known of it and of the likeliest ones, by token id."""


class TextChoice(msgspec.Struct):
    index: int
    text: str
    finish_reason: str | None = None
    logprobs: TextLogprobs | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class UsageDetails(msgspec.Struct):
    cached_tokens: int = 0


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: int = 0


class UsageOut(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: UsageDetails
    completion_tokens_details: CompletionDetails


ChoiceT = TypeVar("ChoiceT", ChatChoice, ChatChunkChoice, TextChoice)


class Completion(msgspec.Struct, Generic[ChoiceT], omit_defaults=True):
    id: str
    object: str
    created: int
    model: str
    choices: list[ChoiceT]
    usage: UsageOut | None = None
    system_fingerprint: str = ""
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    timings: TimingsOut | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET
    notices: list[str] = []
    """What went otherwise than asked for, as sentences."""


class ModelOut(msgspec.Struct):
    """A model, with the fields of OpenAI's interface and those of others that clients read.

    ``state`` is LM Studio's word for whether a request has to wait for it, ``max_model_len`` vLLM's name of the context
    in tokens and ``context_length`` that of others. ``root`` and ``parent`` are an adapter's model (vLLM).
    ``capabilities`` are Ollama's words, the figures of ``meta`` llama.cpp's. None of these while it is not loaded.
    """

    id: str
    created: int = 0
    object: str = "model"
    owned_by: str = "kvasir"
    state: Literal["loaded", "not-loaded"] = "loaded"
    root: str | UnsetType = UNSET
    parent: str | UnsetType | None = UNSET
    max_model_len: int | UnsetType = UNSET
    context_length: int | UnsetType = UNSET
    capabilities: list[str] | UnsetType = UNSET
    meta: dict[str, int] | UnsetType = UNSET


class OpenAIModelList(msgspec.Struct):
    """``models`` are those that are loaded, once more, in the words of Codex's catalogue."""

    data: list[ModelOut]
    object: str = "list"
    models: list[CodexModel] = []
