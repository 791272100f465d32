"""Prompts and events between the wire's words and the engine's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.core.events import (
    ErrorEvent,
    Event,
    FinishedEvent,
    LoadedEvent,
    LoadingEvent,
    OptionsEvent,
    PrefillEvent,
    TokensEvent,
    UnloadedEvent,
)
from engine.protocol import (
    ChatMessage,
    Delta,
    Error,
    Finished,
    Loaded,
    Loading,
    Message,
    ModelCard,
    Options,
    Prefill,
    Thinking,
    Timings,
    Unloaded,
    Usage,
)
from engine.server.hub import EngineHub, RequestEvent
from engine.server.continuing import continued_ids
from engine.server.turns import Turns
from engine.text.prompt import PromptText, prompt_ids, rendered
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.text.template import ChatTemplate

NO_MODEL = "No model is loaded. Load one first."
NO_TIMINGS = Timings(queued_ms=0, ttft_ms=0, total_ms=0, tokens_per_second=0, tokens_per_step=0, steps=0)


class Refused(Exception):  # noqa: N818 - an outcome that a person is told about
    """A message of a client cannot be served. ``code`` is for programs, the text for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Prepared(NamedTuple):
    """A prompt for the engine, and the tokenizer that made its ids."""

    text: PromptText
    ids: list[int]
    tokenizer: Tokenizer


async def tokenised(hub: EngineHub, prompt: Sequence[ChatMessage] | str, thinking: Thinking = Thinking()) -> list[int]:
    """Token ids of a prompt, made in a thread. Raises :class:`Refused` without a model or for an effort that it does
    not know, and :class:`engine.text.template.PromptError`."""
    return await asyncio.to_thread(prompt_ids, *_text_parts(hub, thinking), prompt, thinking)


async def prepared(
    hub: EngineHub,
    prompt: Sequence[ChatMessage] | str,
    turns: Turns,
    parent: str,
    thinking: Thinking = Thinking(),
) -> Prepared:
    """The same, with the exact ids of the answer called ``parent`` where the prompt goes on from it."""
    tokenizer, template = _text_parts(hub, thinking)
    before = turns.find(parent, tokenizer)

    def prepare() -> Prepared:
        text = rendered(template, prompt, thinking)
        return Prepared(text, continued_ids(tokenizer, text, before), tokenizer)

    return await asyncio.to_thread(prepare)


def _text_parts(hub: EngineHub, thinking: Thinking) -> tuple[Tokenizer, ChatTemplate]:
    loaded = hub.loaded
    if loaded is None or loaded.tokenizer is None or loaded.chat_template is None:
        raise Refused("no_model", NO_MODEL)
    _check_effort(loaded.card, thinking.effort)
    return loaded.tokenizer, loaded.chat_template


def _check_effort(card: ModelCard, effort: str) -> None:
    """Templates write any word into the prompt. One that knows no efforts leaves the word out."""
    known = card.thinking.efforts
    if effort and known and effort not in known:
        text = f"{card.name} knows no reasoning effort {effort!r}. Use {', '.join(known[:-1])} or {known[-1]}."
        raise Refused("bad_effort", text)


def request_message(event: RequestEvent, id: str) -> Message:
    """What a client hears of its request, under its own name of it."""
    match event:
        case TokensEvent():
            return Delta(id=id, answer=event.answer, channel=event.channel, text=event.text, tokens=event.tokens)
        case PrefillEvent():
            return Prefill(id=id, done=event.done, cached=event.cached, total=event.total)
        case FinishedEvent():
            return Finished(
                id=id,
                answer=event.answer,
                reason=event.reason,
                usage=event.usage,
                timings=event.timings,
                detail=event.detail,
            )
        case ErrorEvent():
            return Error(code=event.code, message=event.message, id=id)


def broadcast_message(event: Event) -> Message | None:
    """What every client hears."""
    match event:
        case LoadingEvent():
            return Loading(model=event.model, stage=event.stage, fraction=event.fraction)
        case LoadedEvent():
            return Loaded(card=event.card, fit=event.fit)
        case UnloadedEvent():
            return Unloaded(reason=event.reason)
        case OptionsEvent():
            return Options(catalogue=event.catalogue)
        case ErrorEvent():
            return Error(code=event.code, message=event.message)
    return None


def cancelled_before_start(id: str, answer: int) -> Finished:
    """The end of an answer that was cancelled before the engine heard of it."""
    usage = Usage(prompt_tokens=0, cached_tokens=0, generated_tokens=0, seed=0)
    return Finished(id=id, answer=answer, reason="cancelled", usage=usage, timings=NO_TIMINGS)
