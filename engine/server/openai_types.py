"""The part of OpenAI's HTTP interface that is spoken here, as records. Unknown fields of a request are ignored."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.protocol import ChatMessage, FinishReason, Overflow, Sampling, Thinking

ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class ContentPart(msgspec.Struct):
    type: str
    text: str = ""


class TurnIn(msgspec.Struct):
    role: str
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _RequestIn(msgspec.Struct, kw_only=True):
    """What both kinds of request have. The last five are Kvasir's, four of them in the names that other servers use."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool = False
    overflow: Overflow = "stop"

    def base_sampling(self, max_tokens: int | None, logprobs: int | None) -> Sampling:
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias=self.logit_bias or {},
            seed=self.seed,
            max_tokens=max_tokens,
            stop=stop,
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
        )


class TemplateKwargs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a client may hand to the chat template, in the names that templates use."""

    enable_thinking: bool | None = None
    thinking: bool | None = None
    reasoning_effort: str | None = None


class ChatIn(_RequestIn, kw_only=True):
    messages: list[TurnIn]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateKwargs | None = None

    def sampling(self) -> Sampling:
        limit = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return self.base_sampling(limit, (self.top_logprobs or 0) if self.logprobs else None)

    def prompt(self) -> list[ChatMessage]:
        """Raises ValueError with a sentence about a role or a part that is not supported."""
        return [
            ChatMessage(role=_role(turn.role), content=_text(turn.content), thinking=turn.reasoning_content or "")
            for turn in self.messages
        ]

    def thinking(self) -> Thinking:
        """An effort of "none" is OpenAI's word for no thinking."""
        given = self.chat_template_kwargs or TemplateKwargs()
        on = given.enable_thinking if given.enable_thinking is not None else given.thinking
        effort = given.reasoning_effort or self.reasoning_effort or ""
        return Thinking(on=False if on is None else on) if effort == "none" else Thinking(on=on, effort=effort)


class CompletionIn(_RequestIn, kw_only=True):
    prompt: str | list[str | int] = ""
    logprobs: int | None = None

    def sampling(self) -> Sampling:
        # OpenAI's own default; without it a plain continuation runs to the end of the context.
        return self.base_sampling(self.max_tokens if self.max_tokens is not None else 16, self.logprobs)

    def text_or_ids(self) -> str | list[int]:
        """Raises ValueError with a sentence when several prompts are asked for."""
        if isinstance(self.prompt, str):
            return self.prompt
        if len(self.prompt) == 1 and isinstance(first := self.prompt[0], str):
            return first
        ids = [item for item in self.prompt if isinstance(item, int)]
        if len(ids) != len(self.prompt):
            raise ValueError("Several prompts in one request are not supported. Send one request for each.")
        return ids


def _role(role: str) -> Literal["system", "user", "assistant"]:
    if role not in ROLES:
        raise ValueError(f"The role {role!r} is not supported. Use system, user or assistant.")
    return ROLES[role]


def _text(content: str | list[ContentPart] | None) -> str:
    if not isinstance(content, list):
        return content or ""
    for part in content:
        if part.type != "text":
            raise ValueError(f"Content of type {part.type!r} is not supported. Send text only.")
    return "".join(part.text for part in content)


def finish_reason(reason: FinishReason) -> str:
    """OpenAI knows two that apply: the model or a stop string ended it, or a limit did."""
    return "length" if reason in ("length", "context", "memory") else "stop"


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob] = []


class ChatLogprobs(msgspec.Struct):
    content: list[TokenLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TurnOut(msgspec.Struct, omit_defaults=True):
    role: str = ""
    content: str | None = None
    reasoning_content: str | None = None
    """The thinking, under the name that DeepSeek's interface and vLLM's gave it."""


class ChatChoice(msgspec.Struct):
    index: int
    message: TurnOut
    finish_reason: str | None
    logprobs: ChatLogprobs | None = None


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: TurnOut
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None


class TextChoice(msgspec.Struct):
    index: int
    text: str
    finish_reason: str | None = None
    logprobs: TextLogprobs | None = None


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


class Completion(msgspec.Struct, omit_defaults=True):
    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice] | list[ChatChunkChoice] | list[TextChoice]
    usage: UsageOut | None = None


class ModelOut(msgspec.Struct):
    id: str
    created: int = 0
    object: str = "model"
    owned_by: str = "kvasir"


class ModelList(msgspec.Struct):
    data: list[ModelOut]
    object: str = "list"
