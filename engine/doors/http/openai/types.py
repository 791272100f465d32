"""Requests of OpenAI's HTTP interface, as far as it is spoken here, as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, cast

import msgspec

from engine.compute.sampling.params import MAX_LOGPROBS
from engine.doors.http import template
from engine.doors.http.fields import BadField, decoded, named
from engine.doors.http.logprobs import check_top
from engine.doors.http.pictures import ContentPart, picture_at
from engine.doors.http.sampling import UNLIMITED
from engine.doors.http.structured import StructuredIn
from engine.doors.http.tools import ToolIn, chosen, tool_config, with_names
from engine.protocol import (
    ChatMessage,
    Overflow,
    Sampling,
    Thinking,
    ToolCall,
    ToolConfig,
    ToolResult,
)
from engine.services.answers.refused import shortened
from engine.text.prompt import PromptForm

MOST_ANSWERS = 512
"""Answers to the prompts of one request, each of which waits in the engine's queue."""
_SWITCHES = {"enabled": True, "disabled": False}
"""How Anthropic's and others' interfaces say whether a model is to think."""
ROLES: dict[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


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


class Ids(list[int]):
    """A prompt that came as token ids."""


Prompt = list[ChatMessage] | str | Ids


class OpenAIRequest(StructuredIn, kw_only=True):
    """Fields of both kinds of request; the last two are Kvasir's own, the two before them llama.cpp's.

    From ``prompt_logprobs`` to ``thinking_token_budget`` they are vLLM's. The five fields about thinking are names of
    one thing, which plain completions ignore.
    """

    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    echo: bool | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    truncate_prompt_tokens: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    """The most tokens of a prompt that are read, -1 for as many as the context has room for."""
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    thinking_token_budget: Annotated[int, msgspec.Meta(ge=0)] | None = None
    think: bool | str | None = None
    thinking: bool | dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning: bool | dict[str, Any] | None = None
    include_reasoning: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    ttl: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    overflow: Overflow | None = None

    def prompts(self) -> Sequence[Prompt]:
        """The prompts, each with answers of its own. Raises BadField."""
        raise NotImplementedError

    def sampling(self) -> Sampling:
        raise NotImplementedError

    def wanted_thinking(self) -> Thinking:
        """Thinking that the request asks for."""
        return Thinking()

    @property
    def form(self) -> PromptForm:
        """Form in which a prompt is written. Raises BadField."""
        return PromptForm(special=self.add_special_tokens)

    def read(self, ids: list[int], context: int) -> list[int]:
        """The part of a prompt that is read, as ``truncate_prompt_tokens`` says."""
        most = self.truncate_prompt_tokens
        if most is None:
            return ids
        if most == 0 or most > context:
            text = f"truncate_prompt_tokens is 1 to {context}, or -1 for as many as there is room for: {most} is not."
            raise BadField("truncate_prompt_tokens", text)
        most = context - 1 if most < 0 else most
        return ids[:most] if self.truncation_side == "right" else ids[max(len(ids) - most, 0) :]

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


class Transferred(msgspec.Struct, forbid_unknown_fields=True):
    """The conversation as the tokens that another server made of it (vLLM's ``kv_transfer_params``)."""

    prompt_token_ids: list[int] | None = None


class OpenAIChat(OpenAIRequest, kw_only=True):
    messages: list[OpenAITurn]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    kv_transfer_params: Transferred | None = None
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
        template.check_variables(self.chat_template_kwargs)
        self.prefills()
        self.tool_config()
        check_top("top_logprobs", self.top_logprobs)

    def sampling(self) -> Sampling:
        limit = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return self.base_sampling(limit, (self.top_logprobs or 0) if self.logprobs else None)

    def prompts(self) -> list[list[ChatMessage] | Ids]:
        given = self.kv_transfer_params
        return [Ids(given.prompt_token_ids) if given is not None and given.prompt_token_ids else self.prompt()]

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
        """Thinking that the request asks for, under whichever of its names."""
        given = self.chat_template_kwargs or {}
        thinking, reasoning = _object(self.thinking), _object(self.reasoning)
        said = (
            given.get("enable_thinking"), given.get("thinking"), self.enable_thinking, self.think, self.thinking,
            thinking.get("enabled"), _SWITCHES.get(str(thinking.get("type"))), self.reasoning, reasoning.get("enabled"),
        )  # fmt: skip
        words = (given.get("reasoning_effort"), self.reasoning_effort, self.think, reasoning.get("effort"))
        return template.thinking(said, words)

    @property
    def tells_thinking(self) -> bool:
        """True if the answer is to hold what the model thought."""
        return self.include_reasoning is not False and _object(self.reasoning).get("exclude") is not True

    @property
    def form(self) -> PromptForm:
        opens = self.add_generation_prompt is not False
        return PromptForm(
            self.prefills(),
            opens,
            template.variables(self.chat_template_kwargs),
            self.tool_config(),
            special=self.add_special_tokens,
        )

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


class CompletionIn(OpenAIRequest, kw_only=True):
    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    best_of: int | None = None
    suffix: str | None = None
    """Text behind the gap that the answer fills, for models that can."""

    @property
    def alone(self) -> bool:
        return super().alone and len(self.prompts()) == 1

    def check(self, vocabulary: int) -> None:
        super().check(vocabulary)
        check_top("logprobs", self.logprobs)
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
        _check_number(len(given) * (self.n or 1), "prompt")
        prompts: list[str | Ids] = []
        for prompt in given:
            if isinstance(prompt, int):
                text = "The prompt is neither one of token ids nor a list of prompts. Send one of both."
                raise BadField("prompt", text)
            prompts.append(prompt if isinstance(prompt, str) else Ids(prompt))
        if not prompts or not all(prompts):
            raise BadField("prompt", "The prompt is empty. Write something first.")
        return prompts


def _check_number(answers: int, field: str) -> None:
    """Raises BadField for more answers than are written."""
    if answers > MOST_ANSWERS:
        text = f"The prompts have {answers:,} answers together, and {MOST_ANSWERS} are written at most. Send fewer."
        raise BadField(field, text)


class ConversationsIn(msgspec.Struct):
    """Several conversations, each with answers of its own, and besides them the fields of one (vLLM's batch)."""

    messages: list[msgspec.Raw]


def conversations(body: bytes) -> list[OpenAIChat]:
    """A request of several conversations as one for each. Raises BadField."""
    fields = named(body)
    given = msgspec.json.encode({"messages": fields.get("messages")})
    several = decoded(given, ConversationsIn).messages
    if not several:
        raise BadField("messages", "There is no conversation to answer. Send one at least.")
    found = [decoded(msgspec.json.encode({**fields, "messages": each}), OpenAIChat) for each in several]
    for name in ("stream", "prompt_logprobs"):
        if getattr(found[0], name):
            raise BadField(name, f"{name} does not go with several conversations. Leave it out.")
    _check_number(len(found) * (found[0].n or 1), "messages")
    return found


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
