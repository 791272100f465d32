"""Conversations of clients that send all of it each time and name nothing: found again by what was said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from engine.loop.events import RequestEvent
from engine.protocol import Delta, Finished
from engine.services.answers.answering import Prepared, prepared
from engine.services.answers.request import AnswerRequest
from engine.services.answers.turns import AnswerCollector, Turn, Turns, named
from engine.services.hub import EngineHub
from engine.text.tokenizer import Tokenizer


class Conversations:
    """The last answers given over HTTP, whoever asked: all who may ask have the same token."""

    def __init__(self) -> None:
        self._turns = Turns()

    async def prepared(self, hub: EngineHub, asked: AnswerRequest) -> tuple[Prepared, Callable[[RequestEvent], None]]:
        """Same as `answering.prepared`, but beginning with the ids of the answer that it continues; and the listener
        that hears of its answers, so that they are known next time."""
        parent = ""

        def line(tokenizer: Tokenizer) -> Sequence[Turn]:
            nonlocal parent
            parent = self._turns.match(asked.prompt, tokenizer)
            return self._turns.line(parent, tokenizer)

        prompt = await prepared(hub, asked, line)
        return prompt, self._listener(asked, prompt, parent)

    def _listener(self, asked: AnswerRequest, prompt: Prepared, parent: str) -> Callable[[RequestEvent], None]:
        answers: defaultdict[int, AnswerCollector] = defaultdict(
            lambda: AnswerCollector(prompt.text, prompt.continued.ids, asked.prompt, parent)
        )

        def hear(event: RequestEvent) -> None:
            match event:
                case Delta():
                    answers[event.answer].take(event)
                case Finished():
                    turn = answers[event.answer].finished()
                    del answers[event.answer]
                    self._turns.remember(_named(asked, turn), turn, prompt.tokenizer)

        return hear


def _named(asked: AnswerRequest, turn: Turn) -> str:
    """Same as :func:`named`, but with a continued message as one: a client sends it back so."""
    if asked.form.prefills and not isinstance(asked.prompt, str):
        return named(asked.prompt[:-1], asked.prompt[-1].content + turn.text, turn.calls)
    return named(asked.prompt, turn.text, turn.calls)
