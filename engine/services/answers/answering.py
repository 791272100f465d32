"""Prompts and events between the wire's words and the engine's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import structs

from engine.loop.admission import NO_MODEL
from engine.loop.events import Embedded, RequestEvent
from engine.protocol import ChatMessage, ContextCut, Finished, Message, Prefill, Thinking, Timings, Usage
from engine.services.answers.continuing import Continued, continued, going_on
from engine.services.answers.overflow import (
    SINKS,
    DroppedMessages,
    check_length,
    chosen_cut,
    reserve,
    too_long,
    window_of,
)
from engine.services.answers.pictures import PromptImages
from engine.services.answers.refused import Refused, shortened
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.answers.structured import held_in_thread
from engine.services.answers.turns import Turn
from engine.services.hub import EngineHub
from engine.text.prompt import PromptForm, PromptText, rendered
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel
    from engine.text.formats.style import ToolStyle
    from engine.text.template import ChatTemplate

_T = TypeVar("_T")
LONG = 1 << 16
"""Characters of a long prompt: some hundredths of a second to tokenise."""


class Prepared(NamedTuple):
    """A prompt for the engine, and the tokenizer that made its ids; ``continued`` are those of its text alone.

    ``tokens_cut`` are left out with the messages of ``cut``, or out of sight of the newest token with a ``window``.
    """

    text: PromptText
    continued: Continued
    tokenizer: Tokenizer
    tokens: PromptTokens
    cut: DroppedMessages | None = None
    tokens_cut: int = 0
    window: int | None = None

    @property
    def ids(self) -> list[int]:
        return self.tokens.ids

    def context_cut(self, id: str) -> ContextCut | None:
        """Message that tells the client what the model does not see; None if it sees everything."""
        if self.cut is not None:
            first, last = self.cut
            return ContextCut(id=id, policy="drop_middle", first=first, last=last, tokens=self.tokens_cut)
        if self.window is not None and self.tokens_cut:
            return ContextCut(id=id, policy="window", tokens=self.tokens_cut, sinks=SINKS, window=self.window)
        return None


async def tokenised(
    hub: EngineHub,
    prompt: Sequence[ChatMessage] | str,
    thinking: Thinking = Thinking(),
    form: PromptForm = PromptForm(),
) -> PromptTokens:
    """The tokens of a prompt, made in a thread. Raises :class:`Refused` without a model, for a text that is too long or
    for an effort that the model does not know, and :class:`engine.text.template.PromptError`."""
    loaded, *_ = _text_parts(hub, thinking)
    return await in_thread(hub, prompt, lambda: prompt_tokens(loaded, prompt, thinking, form))


def prompt_tokens(
    loaded: LoadedModel, prompt: Sequence[ChatMessage] | str, thinking: Thinking, form: PromptForm
) -> PromptTokens:
    """The tokens of a prompt. Raises :class:`Refused` for a text that is too long or pictures that cannot be shown, and
    :class:`engine.text.template.PromptError`."""
    assert loaded.files is not None
    shown, tokenizer = PromptImages(loaded, prompt), loaded.files.tokenizer
    text = shown.around(rendered(loaded.files.template, prompt, thinking, form, loaded.files.tools))
    check_length(text.text, tokenizer)
    return shown.within(tokenizer.encode(text.text, special=text.special))


async def rendered_text(hub: EngineHub, prompt: Sequence[ChatMessage], thinking: Thinking, form: PromptForm) -> str:
    """The text of a conversation, as :func:`tokenised` reads it."""
    _, _, template, style = _text_parts(hub, thinking)
    return await in_thread(hub, prompt, lambda: rendered(template, prompt, thinking, form, style).text)


async def prepared(hub: EngineHub, asked: AnswerRequest, line: Callable[[Tokenizer], Sequence[Turn]]) -> Prepared:
    """The same, beginning with the exact ids of the turns in ``line`` that the prompt goes on from, and cut to fit the
    context as ``asked.overflow`` says. Raises :class:`Refused` besides where nothing makes it fit, or for a form of the
    answer that cannot be served."""
    loaded, tokenizer, template, style = _text_parts(hub, asked.thinking)
    grammar, begins = await held_in_thread(hub, loaded, asked.structured, asked.tools)
    form = asked.form._replace(begins=begins)
    before = line(tokenizer)
    context = loaded.card.context

    def read(cut: DroppedMessages | None = None) -> Prepared:
        prompt = asked.prompt if cut is None or isinstance(asked.prompt, str) else cut.without(asked.prompt)
        shown = PromptImages(loaded, prompt)
        text = shown.around(rendered(template, prompt, asked.thinking, form, style))
        check_length(text.text, tokenizer, context if asked.overflow == "stop" else None)
        told = continued(tokenizer, text, before, asked.prompt, cut is not None)
        if form.prefills and not (begins or cut or isinstance(prompt, str)) and before:
            *asked_before, said = prompt
            anew = rendered(template, asked_before, asked.thinking, form._replace(prefills=False), style)
            told = going_on(tokenizer, shown.around(anew), said.content, before[0]) or told
        if not shown.fits(told.ids):  # the model drew a mark of a picture itself, which stands for none
            told = continued(tokenizer, text, ())
        tokens = shown.within(told.ids)._replace(grammar=grammar, written=told.written)
        told = told._replace(diverged=shown.place(told.ids, told.diverged))
        return Prepared(text, told, tokenizer, tokens, cut)

    def count(message: ChatMessage) -> int:
        pictures = PromptImages(loaded, [message]).tokens(message)
        called = [*(call.arguments for call in message.calls), *(result.content for result in message.results)]
        return sum(len(tokenizer.encode(text, special=False)) for text in (message.content, *called)) + pictures

    return await in_thread(hub, asked.prompt, partial(_fitted, read, asked, context, count))


async def in_thread(hub: EngineHub, prompt: Sequence[ChatMessage] | str, read: Callable[[], _T]) -> _T:
    """Long prompts are read one at a time, so that they take one thread and the memory of one, and others none."""
    size = len(prompt) if isinstance(prompt, str) else sum(map(_size, prompt))
    executor = hub.long_prompts if size >= LONG else None
    return await asyncio.get_running_loop().run_in_executor(executor, read)


def _size(turn: ChatMessage) -> int:
    called = sum(len(call.arguments) for call in turn.calls) + sum(len(result.content) for result in turn.results)
    return len(turn.content) + len(turn.thinking) + called + sum(map(len, turn.pictures))


def _fitted(
    read: Callable[[DroppedMessages | None], Prepared],
    asked: AnswerRequest,
    context: int,
    count: Callable[[ChatMessage], int],
) -> Prepared:
    """The prompt, cut where that is wanted and needed."""
    whole = read(None)
    if asked.overflow == "window":
        window = window_of(context)
        return whole._replace(window=window, tokens_cut=max(0, len(whole.ids) - window - SINKS))
    limit = context - reserve(context, asked.sampling.max_tokens)
    if asked.overflow == "stop" or isinstance(asked.prompt, str) or len(whole.ids) <= limit:
        return whole
    made: dict[DroppedMessages, Prepared] = {}

    def fits(cut: DroppedMessages) -> bool:
        made[cut] = read(cut)
        return len(made[cut].ids) <= limit

    cut = chosen_cut(asked.prompt, count, fits, context)
    best = made[cut] if cut is not None else whole
    if len(best.ids) >= context:
        raise too_long(len(best.ids), context, cut is not None)
    return best._replace(tokens_cut=len(whole.ids) - len(best.ids))


def _text_parts(hub: EngineHub, thinking: Thinking) -> tuple[LoadedModel, Tokenizer, ChatTemplate, ToolStyle]:
    loaded = hub.loaded
    if loaded is None or loaded.files is None:
        raise Refused("no_model", NO_MODEL)
    # Templates write any word into the prompt. One that knows no efforts leaves the word out.
    name, effort, known = loaded.card.name, thinking.effort, loaded.card.thinking.efforts
    if effort and known and effort not in known:
        text = f"{name} knows no reasoning effort {shortened(effort)!r}. Use {', '.join(known[:-1])} or {known[-1]}."
        raise Refused("bad_effort", text)
    return loaded, loaded.files.tokenizer, loaded.files.template, loaded.files.tools


def request_message(event: RequestEvent, id: str, told: Continued = Continued([])) -> Message:
    """Message that tells a client of its request, under its own name of it; ``told`` is where its prompt diverged."""
    assert not isinstance(event, Embedded), "who asks for embeddings hears of them directly"
    if isinstance(event, Prefill):
        return structs.replace(event, id=id, diverged=told.diverged, divergence=told.divergence)
    return structs.replace(event, id=id)


def cancelled_before_start(id: str, answer: int) -> Finished:
    """The end of an answer that was cancelled before the engine heard of it."""
    usage = Usage(prompt_tokens=0, cached_tokens=0, generated_tokens=0, seed=0)
    timings = Timings(queued_ms=0, ttft_ms=0, total_ms=0, tokens_per_second=0, tokens_per_step=0, steps=0)
    return Finished(id=id, answer=answer, reason="cancelled", usage=usage, timings=timings)
