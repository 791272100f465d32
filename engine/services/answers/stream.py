"""Requests to the engine as an iterator of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from engine.loop.commands import AddRequest
from engine.loop.events import Embedded, RequestEvent
from engine.protocol import WHOLE, Delta, Error, Finished, Message, Prefill, TokenInfo
from engine.services.answers.answering import request_message
from engine.services.answers.outbox import Outbox
from engine.services.answers.refused import Refused
from engine.services.hub import EngineHub


def cut_off(end: Finished) -> Refused | None:
    """Reason an answer is not whole; None where the model, a stop string or a limit on its length ended it."""
    if end.reason in WHOLE:
        return None
    return Refused(end.reason, end.detail or "The answer was stopped before its end. Ask again.")


class PromptRequest(NamedTuple):
    """One prompt of a request: what the engine is asked, and who besides hears of its answers. Its name is given to it
    when it begins."""

    command: AddRequest
    heard: Callable[[RequestEvent], None] | None = None


class Stream:
    """A request to the engine as an iterator of its messages; whoever leaves it cancels what is still to come.

    The answers to several prompts are numbered one after the other: those to prompt number i begin with i * n. ``told``
    are the tokens of each prompt with their log-probabilities, where these were asked for, and ``embeddings`` those of
    prompts that are read for them, by number.

    Raises :class:`Refused` where the engine refuses the request, or an answer ends without being whole.
    """

    def __init__(self, hub: EngineHub, prompts: Sequence[PromptRequest]) -> None:
        self._hub = hub
        self.answers = prompts[0].command.n
        """To each prompt."""
        self.model = prompts[0].command.adapter or (hub.loaded.card.name if hub.loaded is not None else "")
        """Name of the model or the adapter that answers."""
        self.service = prompts[0].command.service
        """Class of its requests, "" for none in particular."""
        self.prompt_tokens = sum(len(prompt.command.prompt_ids) for prompt in prompts)
        self.generated = 0
        """Tokens so far."""
        self.told: list[list[TokenInfo]] = [[] for _ in prompts]
        self.embeddings: dict[int, np.ndarray] = {}
        self._left = self.answers * len(prompts)
        self._outbox = Outbox()
        self._first: Message | None = None
        self._names: list[str] = []
        for number, (command, heard) in enumerate(prompts):
            self._names.append(hub.add(command, partial(self._on_event, number, heard)))

    async def begin(self, seconds: float | None = None) -> None:
        """Wait for the first message, which is the engine's refusal if it refuses; no longer than ``seconds``."""
        self._first = await self._next(seconds)

    def leave(self) -> None:
        if self._left > 0:
            self._left = 0
            for name in self._names:
                self._hub.cancel(name)

    def fail(self, code: str, message: str) -> None:
        """End it for a reason of the server."""
        if self._left > 0:
            self._outbox.put(Error(code=code, message=message))

    def _on_event(self, number: int, heard: Callable[[RequestEvent], None] | None, event: RequestEvent) -> None:
        if heard is not None:
            heard(event)
        if isinstance(event, Embedded):
            self.embeddings[number] = event.vector
            return
        if isinstance(event, Prefill):
            self.told[number] += event.tokens
        if isinstance(event, Delta):
            self.generated += len(event.tokens)
        message = request_message(event, "")
        if isinstance(message, Delta | Finished):
            message = msgspec.structs.replace(message, answer=number * self.answers + message.answer)
        self._outbox.put(message)
        self._left -= isinstance(event, Finished)
        if isinstance(event, Error):
            self._left -= self.answers

    async def messages(self, silence: float | None = None) -> AsyncIterator[Message | None]:
        """The messages; None whenever none came for ``silence`` seconds."""
        while self._first is not None or self._left > 0 or len(self._outbox):
            message, self._first = self._first or await self._next(silence), None
            yield message

    async def _next(self, seconds: float | None) -> Message | None:
        try:
            async with asyncio.timeout(seconds):
                message = await self._outbox.take()
        except TimeoutError:
            return None
        if isinstance(message, Error):
            raise Refused(message.code, message.message)
        if isinstance(message, Finished) and (refused := cut_off(message)) is not None:
            raise refused
        return message
