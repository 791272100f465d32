"""The part of OpenAI's HTTP interface that is spoken here, as records."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import msgspec

from engine.protocol import ChatMessage, FinishReason, Overflow, Sampling, Thinking
from engine.sampling.params import MAX_LOGPROBS
from engine.server.openai.fields import BadField

ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class ImageUrl(msgspec.Struct):
    """Where a picture is; a model's tower decides in which detail it is seen."""

    url: str


class ContentPart(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a message. Hints to a cache are ignored; what belongs to other kinds of part is refused by its type."""

    type: str
    text: str = ""
    cache_control: Any = None
    prompt_cache_breakpoint: Any = None
    image_url: ImageUrl | str | None = None
    input_audio: Any = None
    file: Any = None
    refusal: str | None = None


class TurnIn(msgspec.Struct, forbid_unknown_fields=True):
    """A message. Thinking has two names among servers, and clients send back what they were given.

    The name of who speaks is ignored; the last fields are known for when they are empty.
    """

    role: str
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    name: str | None = None
    refusal: str | None = None
    annotations: list[msgspec.Raw] | None = None
    tool_calls: list[msgspec.Raw] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, msgspec.Raw] | None = None
    audio: dict[str, msgspec.Raw] | None = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing is obfuscated here, whether it is asked for or not."""

    include_usage: bool = False
    include_obfuscation: bool = False


class _RequestIn(msgspec.Struct, kw_only=True):
    """What both kinds of request have. The last six are Kvasir's, five of them in the names that other servers use."""

    model: str = ""
    stream: bool | None = None
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
    ignore_eos: bool | None = None
    ttl: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    overflow: Overflow | None = None

    def check(self, vocabulary: int) -> None:
        """Raises BadField with a sentence for what cannot be served by a model with this vocabulary."""
        if self.n is not None and self.n < 1:
            raise BadField("n", f"n is at least 1: {self.n} is not.")
        unknown = [token for token in self.logit_bias or {} if not 0 <= token < vocabulary]
        if unknown:
            text = f"The model knows the tokens 0 to {vocabulary - 1:,}: {unknown[0]} is not one of them."
            raise BadField("logit_bias", text)

    def base_sampling(self, max_tokens: int | None, logprobs: int | None) -> Sampling:
        """The fields that are called as they are here; what is not given keeps its default."""
        given = {name: getattr(self, name, None) for name in Sampling.__struct_fields__}
        given["stop"] = [self.stop] if isinstance(self.stop, str) else self.stop
        given |= {"max_tokens": max_tokens, "logprobs": logprobs}
        return Sampling(**{name: value for name, value in given.items() if value is not None})


class TemplateKwargs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a client may hand to the chat template, in the names that templates use."""

    enable_thinking: bool | None = None
    thinking: bool | None = None
    reasoning_effort: str | None = None


class ChatIn(_RequestIn, kw_only=True):
    messages: list[TurnIn]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateKwargs | None = None

    def check(self, vocabulary: int) -> None:
        super().check(vocabulary)
        if not self.messages:
            raise BadField("messages", "There is no message to answer. Send one at least.")
        if self.top_logprobs and not self.logprobs:
            raise BadField("top_logprobs", "top_logprobs needs logprobs to be true.")
        if self.max_completion_tokens is not None and self.max_completion_tokens < 1:
            raise BadField(
                "max_completion_tokens", f"max_completion_tokens is at least 1: {self.max_completion_tokens} is not."
            )
        if not 0 <= (self.top_logprobs or 0) <= MAX_LOGPROBS:
            raise BadField("top_logprobs", f"top_logprobs is 0 to {MAX_LOGPROBS}: {self.top_logprobs} is not.")

    def sampling(self) -> Sampling:
        limit = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return self.base_sampling(limit, (self.top_logprobs or 0) if self.logprobs else None)

    def prompt(self) -> list[ChatMessage]:
        """Raises BadField with a sentence about a role or a part that is not supported."""
        return [_message(turn, f"messages[{number}]") for number, turn in enumerate(self.messages)]

    def thinking(self) -> Thinking:
        """An effort of "none" is OpenAI's word for no thinking."""
        given = self.chat_template_kwargs or TemplateKwargs()
        on = given.enable_thinking if given.enable_thinking is not None else given.thinking
        effort = given.reasoning_effort or self.reasoning_effort or ""
        return Thinking(on=False if on is None else on) if effort == "none" else Thinking(on=on, effort=effort)


class CompletionIn(_RequestIn, kw_only=True):
    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    best_of: int | None = None

    def check(self, vocabulary: int) -> None:
        super().check(vocabulary)
        if self.best_of not in (None, 1 if self.n is None else self.n):
            raise BadField("best_of", "best_of is supported only where it equals n. Leave it out.")

    def sampling(self) -> Sampling:
        # OpenAI's own default; without it a plain continuation runs to the end of the context.
        return self.base_sampling(self.max_tokens if self.max_tokens is not None else 16, self.logprobs)

    def text_or_ids(self) -> str | list[int]:
        """Raises BadField with a sentence when several prompts are asked for, or none."""
        prompt = self.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
            prompt = prompt[0]  # type: ignore[assignment]
        if not prompt:
            raise BadField("prompt", "The prompt is empty. Write something first.")
        if isinstance(prompt, str):
            return prompt
        ids = [item for item in prompt if isinstance(item, int)]
        if len(ids) != len(prompt):
            raise BadField("prompt", "Several prompts in one request are not supported. Send one request for each.")
        return ids


def _message(turn: TurnIn, where: str) -> ChatMessage:
    if turn.role not in ROLES:
        text = f"The role {turn.role!r} is not supported. Use system, user or assistant."
        raise BadField(f"{where}.role", text)
    for name in ("refusal", "tool_calls", "tool_call_id", "function_call", "audio"):  # the model would have to see them
        if getattr(turn, name):
            raise BadField(f"{where}.{name}", f"The field {name!r} of a message is not supported. Leave it out.")
    if turn.content is None and turn.role != "assistant":
        raise BadField(f"{where}.content", "The message has no content. Send some text.")
    content = turn.content if isinstance(turn.content, list) else [ContentPart("text", turn.content or "")]
    pictures: list[bytes] = []
    for number, part in enumerate(content):
        field = f"{where}.content[{number}]"
        if part.type == "image_url":
            pictures.append(_picture(part, f"{field}.image_url"))
        elif part.type != "text":
            text = f"Content of type {part.type!r} is not supported. Send text or image_url."
            raise BadField(f"{field}.type", text)
    if pictures and turn.role != "user":
        raise BadField(f"{where}.content", f"A message of the role {turn.role!r} cannot have pictures. Use user.")
    text = "".join(part.text for part in content)
    thinking = turn.reasoning_content or turn.reasoning or ""
    return ChatMessage(role=ROLES[turn.role], content=text, thinking=thinking, pictures=pictures)


def _picture(part: ContentPart, where: str) -> bytes:
    """The file in a data URL (RFC 2397); those of the web were fetched before, where that is allowed (remote.py)."""
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url or ""
    head, comma, data = url.partition(",")
    if not head.startswith("data:"):
        text = (
            "Pictures are not fetched from addresses. Send the file itself, data:image/jpeg;base64,…, or start the "
            "server with --fetch-pictures."
        )
        raise BadField(where, text)
    if not comma or not head.endswith(";base64"):
        raise BadField(where, "The data URL of the picture is not in base64. Send data:image/jpeg;base64,…")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise BadField(where, "The base64 of the picture is damaged. Send the whole file again.") from error


def finish_reason(reason: FinishReason) -> str:
    """OpenAI knows two that apply: the model or a stop string ended it, or a limit on its length did."""
    return {"stop": "stop", "length": "length", "context": "length"}[reason]


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
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
    state: Literal["loaded", "not-loaded"] = "loaded"
    """As LM Studio says it: whether a request has to wait for it."""


class ModelList(msgspec.Struct):
    data: list[ModelOut]
    object: str = "list"
