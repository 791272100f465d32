"""Answers in the two shapes of OpenAI's interface: chat and plain completion, whole or in chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.doors.http.logprobs import PlacedToken, TokenPlaces, token_logprob
from engine.doors.http.openai.answers import (
    CallOut,
    ChatChoice,
    ChatChunkChoice,
    ChatLogprobs,
    Completion,
    OpenAIAnswer,
    PromptLogprob,
    PromptLogprobs,
    TextChoice,
    TextLogprobs,
    UsageOut,
    finish_reason,
)
from engine.doors.http.openai.types import CalledFunction
from engine.doors.http.timings import PromptProgress
from engine.library import paths as config
from engine.protocol import CallCollector, Delta, Finished, TokenInfo, ToolCallDelta
from engine.text.detokenise import detokeniser
from engine.text.tokenizer import Tokenizer


class ReadPrompt(NamedTuple):
    """A prompt that is answered: the text of it that is told before the answers ("": none), its tokens, and what is
    known of all but the first; None where log-probabilities were not asked for."""

    text: str
    ids: Sequence[int]
    told: Sequence[TokenInfo] | None


class Telling(NamedTuple):
    """What is told of tokens besides their text: the ``ids`` of all, and in the place of their text those of tokens
    with log-probabilities (``by_id``: "token_id:42"). ``top`` alternatives to each are told in a completion."""

    ids: bool = False
    by_id: bool = False
    top: int = 0


class Writer:
    """Turns one request's messages into response bodies. Its two kinds make the choices that these hold."""

    whole_name: str
    chunk_name: str

    def __init__(
        self,
        id: str,
        created: int,
        model: str,
        tokenizer: Tokenizer,
        prompts: Sequence[ReadPrompt] = (ReadPrompt("", (), None),),
        answers: int = 1,
        telling: Telling = Telling(),
    ) -> None:
        """``answers``: how many there are to each of the ``prompts``."""
        self._id, self._created, self._model, self._tokenizer = id, created, model, tokenizer
        self._read, self._answers, self._telling = prompts, answers, telling
        self._name = "token_id:{}".format if telling.by_id else tokenizer.piece
        self._ids: defaultdict[int, list[int]] = defaultdict(list)
        self._fingerprint = f"kvasir-{config.version()}"
        self._text: defaultdict[int, list[str]] = defaultdict(list)
        self._thinking: defaultdict[int, list[str]] = defaultdict(list)
        self._calls: defaultdict[int, CallCollector] = defaultdict(CallCollector)
        self._tokens: defaultdict[int, list[PlacedToken]] = defaultdict(list)
        self._places = defaultdict[int, TokenPlaces](lambda: TokenPlaces(tokenizer))
        self._begun: set[int] = set()
        self._prompts: Sequence[Sequence[TokenInfo]] | None = None
        self._alternatives = 0

    def tell_prompts(self, told: Sequence[Sequence[TokenInfo]], alternatives: int) -> None:
        """Whole answers have the log-probabilities of their prompts, which ``told`` holds once these were read."""
        self._prompts, self._alternatives = told, alternatives

    def add(self, delta: Delta) -> None:
        """Log-probabilities are told of the content alone, as in OpenAI's interface."""
        self._ids[delta.answer] += _ids(delta)
        if delta.channel == "thinking":
            self._thinking[delta.answer].append(delta.text)
            return
        self._calls[delta.answer].take(delta)
        if delta.channel == "tool":
            return
        self._text[delta.answer].append(delta.text)
        self._tokens[delta.answer] += self._placed(delta)

    def whole(self, finished: Sequence[Finished], usage: UsageOut) -> Completion:
        done = self._completion(self.whole_name, [self._choice(end) for end in finished], usage)
        done.notices = [end.detail for end in finished if end.detail]
        return done

    def opening_chunk(self, answer: int, usage: UsageOut | None = None) -> Completion | None:
        """First chunk of an answer's stream, before all else of the answer, with its ``usage`` so far where that is
        wanted; None where there is nothing to tell."""
        if answer in self._begun:
            return None
        self._begun.add(answer)
        return self._chunk(self._opening(answer), usage)

    def chunk(self, delta: Delta, usage: UsageOut | None = None) -> Completion | None:
        choice = self._part(delta)
        if choice is None and self._telling.ids and delta.tokens:
            choice = self._empty(delta.answer)
        return self._chunk(choice, usage, _ids(delta))

    def last_chunk(self, finished: Finished, usage: UsageOut | None = None) -> Completion | None:
        last = self._chunk(self._empty(finished.answer, self._reason(finished)), usage)
        if last is not None and finished.detail:
            last.notices = [finished.detail]
        return last

    def progress_chunk(self, progress: PromptProgress) -> Completion:
        chunk = self._completion(self.chunk_name, [])
        chunk.prompt_progress = progress
        return chunk

    def usage_chunk(self, usage: UsageOut) -> Completion:
        return self._completion(self.chunk_name, [], usage)

    def _chunk(self, choice: Any, usage: UsageOut | None, ids: Sequence[int] = ()) -> Completion | None:
        if choice is None:
            return None
        if self._telling.ids:
            choice.token_ids = [*ids]
        return self._completion(self.chunk_name, [choice], usage)

    def _prompt(self, answer: int) -> ReadPrompt:
        return self._read[answer // self._answers]

    def _own_ids(self, ids: Sequence[int]) -> list[int] | None:
        """The ids, where they are told."""
        return [*ids] if self._telling.ids else None

    def _placed(self, delta: Delta) -> list[PlacedToken]:
        """The tokens of a delta of content whose log-probabilities are told."""
        return self._places[delta.answer].take(delta)

    def _prompt_logprobs(self, number: int) -> PromptLogprobs | None:
        if self._prompts is None:
            return None
        found: PromptLogprobs = [None]
        for token in self._prompts[number]:
            known = {token.id: PromptLogprob(token.logprob or 0.0, None, self._tokenizer.piece(token.id))}
            for rank, (id, value) in enumerate(token.top[: self._alternatives], 1):
                known[id] = PromptLogprob(value, rank, self._tokenizer.piece(id))
            found.append(known)
        return found

    def _completion(self, kind: str, choices: list[Any], usage: UsageOut | None = None) -> Completion:
        return Completion(self._id, kind, self._created, self._model, choices, usage, self._fingerprint)

    def _choice(self, end: Finished) -> Any:
        """A whole answer."""
        raise NotImplementedError

    def _opening(self, answer: int) -> Any:
        """Part that precedes the first one of the answer; None if nothing does."""
        raise NotImplementedError

    def _part(self, delta: Delta) -> Any:
        """A part, None where it is not told."""
        raise NotImplementedError

    def _empty(self, answer: int, reason: str | None = None) -> Any:
        """A part without text, which ends the answer for a ``reason``."""
        raise NotImplementedError

    def _reason(self, end: Finished) -> str:
        return finish_reason(end.reason, bool(self._calls[end.answer].calls))


class ChatWriter(Writer):
    whole_name, chunk_name = "chat.completion", "chat.completion.chunk"

    tells_thinking = True

    def whole(self, finished: Sequence[Finished], usage: UsageOut) -> Completion:
        done = super().whole(finished, usage)
        prompt = self._read[0].ids if len(self._read) == 1 else ()  # of several conversations none is the answer's own
        done.prompt_logprobs, done.prompt_token_ids = self._prompt_logprobs(0), self._own_ids(prompt) or None
        return done

    def opening_chunk(self, answer: int, usage: UsageOut | None = None) -> Completion | None:
        first = not self._begun
        opening = super().opening_chunk(answer, usage)
        if opening is not None and first and self._telling.ids:
            opening.prompt_token_ids = self._own_ids(self._read[0].ids)
        return opening

    def _choice(self, end: Finished) -> ChatChoice:
        text, thinking = ("".join(parts[end.answer]) for parts in (self._text, self._thinking))
        text = self._prompt(end.answer).text + text
        logprobs = self._logprobs(self._tokens[end.answer])
        calls = [
            CallOut(id=call.id, type="function", function=CalledFunction(call.name, call.arguments))
            for call in self._calls[end.answer].calls
        ]
        told = (thinking or None) if self.tells_thinking else None
        turn = OpenAIAnswer("assistant", None if calls and not text else text, told, calls or None)
        ids = self._own_ids(self._ids[end.answer])
        return ChatChoice(end.answer, turn, self._reason(end), logprobs, ids)

    def _opening(self, answer: int) -> ChatChunkChoice:
        return ChatChunkChoice(answer, OpenAIAnswer("assistant", self._prompt(answer).text or None))

    def _part(self, delta: Delta) -> ChatChunkChoice | None:
        if delta.channel == "thinking":
            told = ChatChunkChoice(delta.answer, OpenAIAnswer(reasoning_content=delta.text))
            return told if self.tells_thinking else None
        if delta.channel == "tool":
            self._calls[delta.answer].take(delta)
            calls = [_call_part(call) for call in delta.calls]
            return ChatChunkChoice(delta.answer, OpenAIAnswer(tool_calls=calls)) if calls else None
        return ChatChunkChoice(
            delta.answer, OpenAIAnswer(content=delta.text), None, self._logprobs(self._placed(delta))
        )

    def _empty(self, answer: int, reason: str | None = None) -> ChatChunkChoice:
        return ChatChunkChoice(answer, OpenAIAnswer(), reason)

    def _logprobs(self, tokens: Sequence[PlacedToken]) -> ChatLogprobs | None:
        name = self._name if self._telling.by_id else None
        return ChatLogprobs([token_logprob(token, self._tokenizer, name) for token in tokens]) if tokens else None


def _call_part(call: ToolCallDelta) -> CallOut:
    if not call.id:
        return CallOut(index=call.index, function=CalledFunction(arguments=call.arguments))
    function = CalledFunction(call.name, call.arguments)
    return CallOut(index=call.index, id=call.id, type="function", function=function)


def _ids(delta: Delta) -> list[int]:
    return [token.id for token in delta.tokens]


class TextWriter(Writer):
    whole_name = chunk_name = "text_completion"

    def _choice(self, end: Finished) -> TextChoice:
        prompt, text = self._prompt(end.answer), "".join(self._text[end.answer])
        logprobs = _joined(self._echoed(prompt), self._logprobs(end.answer, self._tokens[end.answer]))
        told = self._prompt_logprobs(end.answer // self._answers)
        ids = self._own_ids(prompt.ids), self._own_ids(self._ids[end.answer])
        return TextChoice(end.answer, prompt.text + text, self._reason(end), logprobs, told, *ids)

    def _opening(self, answer: int) -> TextChoice | None:
        prompt = self._prompt(answer)
        if not (prompt.text or self._telling.ids):
            return None
        told = TextChoice(answer, prompt.text, None, self._echoed(prompt))
        if self._telling.ids:
            told.prompt_token_ids = [*prompt.ids]
        return told

    def _echoed(self, prompt: ReadPrompt) -> TextLogprobs | None:
        text, ids, told = prompt
        if told is None or not text:
            return None
        stream, offsets, end = detokeniser(self._tokenizer, ()), [], 0
        for token in ids:
            offsets.append(min(end, len(text)))
            end += len(stream.push(token))
        logprobs: list[float | None] = [None, *(token.logprob for token in told)]
        tops = [None, *(self._top(token) for token in told)]
        return TextLogprobs([self._name(token) for token in ids], logprobs, tops, offsets)

    def _part(self, delta: Delta) -> TextChoice:
        return TextChoice(delta.answer, delta.text, None, self._logprobs(delta.answer, self._placed(delta)))

    def _empty(self, answer: int, reason: str | None = None) -> TextChoice:
        return TextChoice(answer, "", reason)

    def _logprobs(self, answer: int, tokens: Sequence[PlacedToken]) -> TextLogprobs | None:
        if not tokens:
            return None
        begin = len(self._prompt(answer).text)
        return TextLogprobs(
            [self._name(token.info.id) if self._telling.by_id else token.text for token in tokens],
            [token.info.logprob for token in tokens],
            [self._top(token.info) for token in tokens],
            [begin + token.offset for token in tokens],
        )

    def _top(self, token: TokenInfo) -> dict[str, float]:
        """The likeliest tokens by their text, and the token itself, which may be one more. Of several with the same
        text the likeliest counts."""
        found: dict[str, float] = {}
        for id, value in [*token.top[: self._telling.top], (token.id, token.logprob or 0.0)]:
            found.setdefault(self._name(id), value)
        return found


def _joined(first: TextLogprobs | None, then: TextLogprobs | None) -> TextLogprobs | None:
    if first is None or then is None:
        return first or then
    return TextLogprobs(
        first.tokens + then.tokens,
        first.token_logprobs + then.token_logprobs,
        first.top_logprobs + then.top_logprobs,
        first.text_offset + then.text_offset,
    )
