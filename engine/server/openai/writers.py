"""Answers in the two shapes of OpenAI's interface: chat and plain completion, whole or in chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

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


class Writer:
    """Turns one request's messages into response bodies. Its two kinds make the choices that these hold."""

    whole_name: str
    chunk_name: str

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

    def whole(self, finished: Sequence[Finished], usage: UsageOut) -> Completion:
        return self._completion(self.whole_name, [self._choice(end) for end in finished], usage)

    def chunk(self, delta: Delta) -> Completion:
        return self._completion(self.chunk_name, [self._part(delta)])

    def last_chunk(self, finished: Finished) -> Completion:
        return self._completion(self.chunk_name, [self._end(finished)])

    def usage_chunk(self, usage: UsageOut) -> Completion:
        return self._completion(self.chunk_name, [], usage)

    def _completion(self, kind: str, choices: list[Any], usage: UsageOut | None = None) -> Completion:
        return Completion(self._id, kind, self._created, self._model, choices, usage)

    def _choice(self, end: Finished) -> Any:
        """A whole answer."""
        raise NotImplementedError

    def _part(self, delta: Delta) -> Any:
        raise NotImplementedError

    def _end(self, end: Finished) -> Any:
        """What follows the last part."""
        raise NotImplementedError


class ChatWriter(Writer):
    whole_name, chunk_name = "chat.completion", "chat.completion.chunk"

    def __init__(self, id: str, created: int, model: str, tokenizer: Tokenizer) -> None:
        super().__init__(id, created, model, tokenizer)
        self._begun: set[int] = set()

    def _choice(self, end: Finished) -> ChatChoice:
        text, thinking = ("".join(parts[end.answer]) for parts in (self._text, self._thinking))
        logprobs = self._logprobs(self._tokens[end.answer])
        return ChatChoice(end.answer, TurnOut("assistant", text, thinking or None), finish_reason(end.reason), logprobs)

    def _part(self, delta: Delta) -> ChatChunkChoice:
        role = "" if delta.answer in self._begun else "assistant"
        self._begun.add(delta.answer)
        if delta.channel == "thinking":
            return ChatChunkChoice(delta.answer, TurnOut(role, None, delta.text))
        return ChatChunkChoice(delta.answer, TurnOut(role, delta.text), None, self._logprobs(delta.tokens))

    def _end(self, end: Finished) -> ChatChunkChoice:
        return ChatChunkChoice(end.answer, TurnOut(), finish_reason(end.reason))

    def _logprobs(self, tokens: Sequence[TokenInfo]) -> ChatLogprobs | None:
        content = [self._logprob(token) for token in tokens if token.logprob is not None]
        return ChatLogprobs(content) if content else None

    def _logprob(self, token: TokenInfo) -> TokenLogprob:
        top = [TopLogprob(*self._named(id, value)) for id, value in token.top]
        return TokenLogprob(*self._named(token.id, token.logprob or 0.0), top)

    def _named(self, token_id: int, logprob: float) -> tuple[str, float, list[int]]:
        return self._tokenizer.piece(token_id), logprob, list(self._tokenizer.id_to_bytes(token_id))


class TextWriter(Writer):
    whole_name = chunk_name = "text_completion"

    def __init__(self, id: str, created: int, model: str, tokenizer: Tokenizer) -> None:
        super().__init__(id, created, model, tokenizer)
        self._offset: defaultdict[int, int] = defaultdict(int)

    def _choice(self, end: Finished) -> TextChoice:
        text, logprobs = "".join(self._text[end.answer]), self._logprobs(end.answer, self._tokens[end.answer])
        return TextChoice(end.answer, text, finish_reason(end.reason), logprobs)

    def _part(self, delta: Delta) -> TextChoice:
        return TextChoice(delta.answer, delta.text, None, self._logprobs(delta.answer, delta.tokens))

    def _end(self, end: Finished) -> TextChoice:
        return TextChoice(end.answer, "", finish_reason(end.reason))

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
