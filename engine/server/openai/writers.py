"""Answers in the two shapes of OpenAI's interface: chat and plain completion, whole or in chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from engine.protocol import Delta, Finished, TokenInfo
from engine.server.openai.types import (
    ChatChoice,
    ChatChunkChoice,
    ChatLogprobs,
    Completion,
    TextChoice,
    TextLogprobs,
    TokenLogprob,
    TopLogprob,
    TurnOut,
    UsageOut,
    finish_reason,
)
from engine.text.tokenizer import Tokenizer


class Writer(Protocol):
    """Turns one request's messages into response bodies."""

    def add(self, delta: Delta) -> None: ...
    def whole(self, finished: Sequence[Finished], usage: UsageOut) -> Completion: ...
    def chunk(self, delta: Delta) -> Completion: ...
    def last_chunk(self, finished: Finished) -> Completion: ...
    def usage_chunk(self, usage: UsageOut) -> Completion: ...


class _Base:
    def __init__(self, id: str, created: int, model: str, tokenizer: Tokenizer) -> None:
        self._id, self._created, self._model, self._tokenizer = id, created, model, tokenizer
        self._text: defaultdict[int, list[str]] = defaultdict(list)
        self._thinking: defaultdict[int, list[str]] = defaultdict(list)
        self._tokens: defaultdict[int, list[TokenInfo]] = defaultdict(list)

    def add(self, delta: Delta) -> None:
        """Log-probabilities are told of the content alone, as in OpenAI's interface."""
        if delta.channel == "thinking":
            self._thinking[delta.answer].append(delta.text)
            return
        self._text[delta.answer].append(delta.text)
        self._tokens[delta.answer] += delta.tokens

    def _completion(self, kind: str, choices: Any, usage: UsageOut | None = None) -> Completion:
        return Completion(self._id, kind, self._created, self._model, choices, usage)


class ChatWriter(_Base):
    def __init__(self, id: str, created: int, model: str, tokenizer: Tokenizer) -> None:
        super().__init__(id, created, model, tokenizer)
        self._begun: set[int] = set()

    def whole(self, finished: Sequence[Finished], usage: UsageOut) -> Completion:
        choices = [
            ChatChoice(
                end.answer,
                TurnOut("assistant", "".join(self._text[end.answer]), "".join(self._thinking[end.answer]) or None),
                finish_reason(end.reason),
                self._logprobs(self._tokens[end.answer]),
            )
            for end in finished
        ]
        return self._completion("chat.completion", choices, usage)

    def chunk(self, delta: Delta) -> Completion:
        role = "" if delta.answer in self._begun else "assistant"
        self._begun.add(delta.answer)
        if delta.channel == "thinking":
            choice = ChatChunkChoice(delta.answer, TurnOut(role, None, delta.text))
        else:
            choice = ChatChunkChoice(delta.answer, TurnOut(role, delta.text), None, self._logprobs(delta.tokens))
        return self._completion("chat.completion.chunk", [choice])

    def last_chunk(self, finished: Finished) -> Completion:
        choice = ChatChunkChoice(finished.answer, TurnOut(), finish_reason(finished.reason))
        return self._completion("chat.completion.chunk", [choice])

    def usage_chunk(self, usage: UsageOut) -> Completion:
        return self._completion("chat.completion.chunk", [], usage)

    def _logprobs(self, tokens: Sequence[TokenInfo]) -> ChatLogprobs | None:
        content = [self._logprob(token) for token in tokens if token.logprob is not None]
        return ChatLogprobs(content) if content else None

    def _logprob(self, token: TokenInfo) -> TokenLogprob:
        piece, data = self._named(token.id)
        top = [TopLogprob(*self._named_with(id, value)) for id, value in token.top]
        return TokenLogprob(piece, token.logprob or 0.0, data, top)

    def _named(self, token_id: int) -> tuple[str, list[int]]:
        return self._tokenizer.piece(token_id), list(self._tokenizer.id_to_bytes(token_id))

    def _named_with(self, token_id: int, value: float) -> tuple[str, float, list[int]]:
        piece, data = self._named(token_id)
        return piece, value, data


class TextWriter(_Base):
    def __init__(self, id: str, created: int, model: str, tokenizer: Tokenizer) -> None:
        super().__init__(id, created, model, tokenizer)
        self._offset: defaultdict[int, int] = defaultdict(int)

    def whole(self, finished: Sequence[Finished], usage: UsageOut) -> Completion:
        choices = [
            TextChoice(
                end.answer,
                "".join(self._text[end.answer]),
                finish_reason(end.reason),
                self._logprobs(end.answer, self._tokens[end.answer]),
            )
            for end in finished
        ]
        return self._completion("text_completion", choices, usage)

    def chunk(self, delta: Delta) -> Completion:
        choice = TextChoice(delta.answer, delta.text, None, self._logprobs(delta.answer, delta.tokens))
        return self._completion("text_completion", [choice])

    def last_chunk(self, finished: Finished) -> Completion:
        return self._completion("text_completion", [TextChoice(finished.answer, "", finish_reason(finished.reason))])

    def usage_chunk(self, usage: UsageOut) -> Completion:
        return self._completion("text_completion", [], usage)

    def _logprobs(self, answer: int, tokens: Sequence[TokenInfo]) -> TextLogprobs | None:
        known = [token for token in tokens if token.logprob is not None]
        if not known:
            return None
        offsets = []
        for token in known:
            offsets.append(self._offset[answer])
            self._offset[answer] += token.chars
        return TextLogprobs(
            [self._tokenizer.piece(token.id) for token in known],
            [token.logprob or 0.0 for token in known],
            [{self._tokenizer.piece(id): value for id, value in token.top} for token in known],
            offsets,
        )
