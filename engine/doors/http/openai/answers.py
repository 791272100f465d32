"""Records of OpenAI's HTTP interface that are answered: choices, whole or in parts, and models."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from engine.doors.http.logprobs import TokenLogprob
from engine.doors.http.openai.codex import CodexModel
from engine.doors.http.openai.types import CalledFunction
from engine.doors.http.timings import PromptProgress, TimingsOut
from engine.protocol import FinishReason


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
    token_ids: list[int] | None = None


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: OpenAIAnswer
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET


class PromptLogprob(msgspec.Struct):
    """vLLM's shape; ``rank`` is None beyond the alternatives that were asked for."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""For each token of a prompt but the first, what is known of it and of the likeliest ones, by token id."""


class TextChoice(msgspec.Struct):
    """The last three are vLLM's: null in a whole answer that was not asked for them."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: TextLogprobs | None = None
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType | None = UNSET


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
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType | None = UNSET
    """In a stream of a chat they come once, with its first part."""
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
