"""Answers in the shape of llama.cpp's server: a token after the other, or whole."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from engine.doors.http.errors import refusal_of
from engine.doors.http.llamacpp.types import AnswerOut, LlamaIn, PartOut, StopType, settings_of
from engine.doors.http.service import told
from engine.doors.http.timings import AnswerPace, timings_of
from engine.doors.security import HttpRefusal, error_body
from engine.protocol import Delta, Finished, Message, Prefill, Sampling, TokenInfo
from engine.services.answers.refused import Refused
from engine.services.answers.stream import Stream
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

_KINDS = {404: "not_found_error", 503: "unavailable_error"}
"""Their kinds of errors by their status, where they are not OpenAI's."""


class AnswerWriter:
    """Gathers the answer to one prompt of a request."""

    def __init__(
        self, index: int, wanted: LlamaIn, sampling: Sampling, loaded: LoadedModel, model: str, ids: Sequence[int]
    ) -> None:
        assert loaded.files is not None
        self._index, self._wanted, self._sampling, self._ids, self._model = index, wanted, sampling, ids, model
        self._tokenizer: Tokenizer = loaded.files.tokenizer
        self._default = loaded.card.sampling
        self._parts: list[str] = []
        self._tokens: list[TokenInfo] = []
        self._pace = AnswerPace(wanted.return_progress, wanted.timings_per_token)

    def reads(self, message: Prefill) -> list[PartOut]:
        """How far the prompt is read, where that is wanted."""
        found = []
        for progress in self._pace.progress(message):
            part = self._part("", [])
            part.prompt_progress = progress
            found.append(part)
        return found

    def add(self, delta: Delta) -> list[PartOut]:
        """Take a part of the answer; returns one for each of its tokens."""
        self._pace.take(delta)
        begin, found = 0, []
        for number, token in enumerate(delta.tokens, 1):
            end = begin + token.chars if number < len(delta.tokens) else len(delta.text)
            self._tokens.append(token)
            found.append(self._part(delta.text[begin:end], [token]))
            begin = end
        if not delta.tokens and delta.text:
            found.append(self._part(delta.text, []))
        self._parts.append(delta.text)
        return found

    def _part(self, text: str, tokens: Sequence[TokenInfo]) -> PartOut:
        part = PartOut(
            index=self._index,
            content=text,
            tokens=[token.id for token in tokens],
            tokens_predicted=len(self._tokens),
            tokens_evaluated=len(self._ids),
        )
        if self._wanted.n_probs and tokens:
            part.completion_probabilities = self._probabilities(tokens)
        part.timings = self._pace.timings()
        return part

    def _probabilities(self, tokens: Sequence[TokenInfo]) -> list[dict[str, Any]]:
        return [
            {**self._told(token.id, token.logprob), self._tops: [self._told(*each) for each in token.top]}
            for token in tokens
            if token.logprob is not None
        ]

    @property
    def _tops(self) -> str:
        return "top_probs" if self._wanted.post_sampling_probs else "top_logprobs"

    def _told(self, id: int, logprob: float) -> dict[str, Any]:
        value = {"prob": math.exp(logprob)} if self._wanted.post_sampling_probs else {"logprob": logprob}
        return {"id": id, "token": self._tokenizer.piece(id), "bytes": list(self._tokenizer.id_to_bytes(id)), **value}

    def end(self, finished: Finished) -> AnswerOut:
        """The end of the answer, and all of it where it was not told in parts."""
        text, streams, usage = "".join(self._parts), self._wanted.stream, finished.usage
        word = "".join(self._tokenizer.piece(token.id)[-token.cut :] for token in self._tokens if token.cut)
        settings = settings_of(self._sampling, self._default, usage.seed)
        settings.stream, settings.timings_per_token = streams, self._wanted.timings_per_token
        out = AnswerOut(
            index=self._index,
            content="" if streams else text,
            tokens=[token.id for token in self._tokens] if self._wanted.return_tokens and not streams else [],
            stop=True,
            tokens_predicted=usage.generated_tokens,
            tokens_evaluated=usage.prompt_tokens,
            timings=timings_of(finished),
            model=self._model,
            generation_settings=settings,
            prompt=self._tokenizer.decode(self._ids, skip_special=False),
            has_new_line="\n" in text,
            truncated=finished.reason == "context",
            stop_type=_stop_type(finished, bool(word)),
            stopping_word=next((stop for stop in self._sampling.stop if stop and word.startswith(stop)), ""),
            tokens_cached=usage.cached_tokens,
        )
        if self._wanted.n_probs and not streams:
            out.completion_probabilities = self._probabilities(self._tokens)
        return out


def _stop_type(finished: Finished, word: bool) -> StopType:
    if finished.reason != "stop":
        return "limit"
    return "word" if word else "eos"


def selected(out: AnswerOut, fields: Sequence[str]) -> object:
    """The fields of an answer that are wanted, under their paths ("timings/prompt_n"); all where none are named."""
    if not fields:
        return out
    found: dict[str, Any] = {}
    for path in fields:
        value: Any = msgspec.to_builtins(out)
        for name in path.split("/"):
            value = value.get(name, msgspec.UNSET) if isinstance(value, dict) else msgspec.UNSET
        if value is not msgspec.UNSET:
            found[path] = value
    return found


async def whole(stream: Stream, writers: Sequence[AnswerWriter], fields: Sequence[str]) -> object:
    """The answer, or a list of those to several prompts. Raises :class:`Refused`."""
    ends: dict[int, object] = {}
    async for message in stream.messages():
        match message:
            case Delta():
                writers[message.answer].add(message)
            case Finished():
                ends[message.answer] = selected(writers[message.answer].end(message), fields)
    found = [end for _, end in sorted(ends.items())]
    return found if len(writers) > 1 else found[0]


async def events(stream: Stream, writers: Sequence[AnswerWriter], fields: Sequence[str]) -> AsyncIterator[bytes]:
    def write(message: Message) -> list[bytes]:
        match message:
            case Prefill() if len(writers) == 1:
                return [_event(part) for part in writers[0].reads(message)]
            case Delta():
                return [_event(part) for part in writers[message.answer].add(message)]
            case Finished():
                return [_event(selected(writers[message.answer].end(message), fields))]
        return []

    try:
        async for event in told(stream, write, lambda: [b": keep-alive\n\n"]):
            yield event
    except Refused as refused:
        yield _event(error_of(refusal_of(refused)))


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def error_of(refusal: HttpRefusal) -> dict[str, Any]:
    """The shape of llama.cpp's errors, with the field that it is about."""
    told: dict[str, Any] = error_body(refusal)["error"]
    told |= {"code": refusal.status, "type": _KINDS.get(refusal.status, told["type"])}
    if refusal.code == "context_length_exceeded":
        text = f"The request exceeds the available context size. {told['message']}"
        told |= {"type": "exceed_context_size_error", "message": text}
    return {"error": told}
