"""Answers as a message of Anthropic's interface, whole or as its events."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from engine.doors.http.anthropic.types import MessageOut, UsageOut
from engine.doors.http.errors import refusal_of
from engine.doors.http.service import KEEP_ALIVE_SECONDS
from engine.doors.security import HttpRefusal
from engine.protocol import Channel, Delta, Finished, Prefill
from engine.services.answers.refused import Refused
from engine.services.answers.stream import Stream
from engine.text.tokenizer import Tokenizer

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Ending(NamedTuple):
    """What tells why an answer ended: the texts that stop it, and the tokens that end one."""

    stops: Sequence[str]
    end_ids: Collection[int]
    tokenizer: Tokenizer

    def reason(self, finished: Finished, ids: Sequence[int]) -> tuple[str, str | None]:
        """Reason why the answer with these tokens ended, and the text that stopped it."""
        if finished.reason != "stop":
            return "max_tokens", None
        if not self.stops or (ids and ids[-1] in self.end_ids):
            return "end_turn", None
        end = self.tokenizer.decode(ids[-64:])
        return "stop_sequence", max(self.stops, key=end.rfind)


class MessageWriter:
    """Gathers one answer in blocks of one channel each."""

    def __init__(self, model: str, ending: Ending) -> None:
        self._ending = ending
        self.message = MessageOut(f"msg_{secrets.token_hex(12)}", model, [], UsageOut(0, 0))
        self._ids: list[int] = []
        self._channel: Channel | None = None

    def add(self, delta: Delta) -> list[dict[str, Any]]:
        """Take a part of the answer; returns the events that tell of it."""
        self._ids += (token.id for token in delta.tokens)
        if not delta.text:
            return []
        told, blocks = [], self.message.content
        name = "thinking" if delta.channel == "thinking" else "text"
        if delta.channel != self._channel:
            told += self.close()
            self._channel = delta.channel
            blocks.append({"type": name, name: ""} | ({"signature": ""} if name == "thinking" else {}))
            told.append({"type": "content_block_start", "index": len(blocks) - 1, "content_block": dict(blocks[-1])})
        blocks[-1][name] += delta.text
        part = {"type": f"{name}_delta", name: delta.text}
        return [*told, {"type": "content_block_delta", "index": len(blocks) - 1, "delta": part}]

    def close(self) -> list[dict[str, Any]]:
        """End the block that is open, if one is."""
        open_block, self._channel = self._channel, None
        return [] if open_block is None else [{"type": "content_block_stop", "index": len(self.message.content) - 1}]

    def end(self, finished: Finished) -> None:
        self.message.stop_reason, self.message.stop_sequence = self._ending.reason(finished, self._ids)
        usage = finished.usage
        cached = usage.cached_tokens
        self.message.usage = UsageOut(usage.prompt_tokens - cached, usage.generated_tokens, cached)


async def events(stream: Stream, writer: MessageWriter) -> AsyncIterator[bytes]:
    """The events of an answer while it is written; an error is the last one."""
    message = writer.message
    message.usage.input_tokens, begun = stream.prompt_tokens, False
    try:
        async for each in stream.messages(KEEP_ALIVE_SECONDS):
            told: list[dict[str, Any]] = []
            match each:
                case Prefill(cached=cached) if not begun:
                    message.usage = UsageOut(stream.prompt_tokens - cached, 0, cached)
                case Delta():
                    told = writer.add(each)
                case Finished():
                    writer.end(each)
                    delta = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
                    told = [
                        *writer.close(),
                        {"type": "message_delta", "delta": delta, "usage": message.usage},
                        {"type": "message_stop"},
                    ]
                case None:
                    told = [{"type": "ping"}]
            if told and not begun:
                begun = True
                opening = msgspec.structs.replace(message, content=[], stop_reason=None, stop_sequence=None)
                yield _event({"type": "message_start", "message": opening})
            for event in told:
                yield _event(event)
    except Refused as refused:
        yield _event(error_of(refusal_of(refused)))


async def whole(stream: Stream, writer: MessageWriter) -> MessageOut:
    """The whole answer. Raises :class:`Refused`."""
    async for message in stream.messages():
        match message:
            case Delta():
                writer.add(message)
            case Finished():
                writer.end(message)
    return writer.message


def error_of(refusal: HttpRefusal) -> dict[str, Any]:
    kind = _TYPES.get(refusal.status, "api_error" if refusal.status >= 500 else "invalid_request_error")
    message = f"{refusal.param}: {refusal.message}" if refusal.param else refusal.message
    return {"type": "error", "error": {"type": kind, "message": message}}


def _event(body: dict[str, Any]) -> bytes:
    return b"event: " + body["type"].encode() + b"\ndata: " + msgspec.json.encode(body) + b"\n\n"
