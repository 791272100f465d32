"""Answers as a message of Anthropic's interface, whole or as its events."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from engine.doors.http.anthropic.types import MessageOut, UsageOut
from engine.doors.http.errors import refusal_of
from engine.doors.http.service import told
from engine.doors.security import HttpRefusal
from engine.protocol import Delta, Finished, Message, Prefill, ToolCallDelta
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

    def reason(self, finished: Finished, ids: Sequence[int], called: bool = False) -> tuple[str, str | None]:
        """Reason why the answer with these tokens ended, which ``called`` tools or did not, and the text that stopped
        it."""
        if finished.reason != "stop":
            return "max_tokens", None
        if called:
            return "tool_use", None
        if not self.stops or (ids and ids[-1] in self.end_ids):
            return "end_turn", None
        end = self.tokenizer.decode(ids[-64:])
        return "stop_sequence", max(self.stops, key=end.rfind)


class MessageWriter:
    """Gathers one answer in blocks: of one channel each, and one for each call of a tool."""

    def __init__(self, model: str, ending: Ending) -> None:
        self._ending = ending
        self.message = MessageOut(f"msg_{secrets.token_hex(12)}", model, [], UsageOut(0, 0))
        self._ids: list[int] = []
        self._kind = ""
        """Of the block that is open; "": none is."""
        self._arguments: dict[int, str] = {}
        """Of calls, by the places of their blocks."""

    def add(self, delta: Delta) -> list[dict[str, Any]]:
        """Take a part of the answer; returns the events that tell of it."""
        self._ids += (token.id for token in delta.tokens)
        told = [event for call in delta.calls for event in self._called(call)]
        if not delta.text:
            return told
        name = "thinking" if delta.channel == "thinking" else "text"
        if name != self._kind:
            told += self._open(name, {name: ""} | ({"signature": ""} if name == "thinking" else {}))
        self.message.content[-1][name] += delta.text
        return [*told, self._part({"type": f"{name}_delta", name: delta.text})]

    def _called(self, call: ToolCallDelta) -> list[dict[str, Any]]:
        told = self._open("tool_use", {"id": call.id, "name": call.name, "input": {}}) if call.id else []
        place = len(self.message.content) - 1
        self._arguments[place] = self._arguments.get(place, "") + call.arguments
        if call.arguments:
            told.append(self._part({"type": "input_json_delta", "partial_json": call.arguments}))
        return told

    def _open(self, kind: str, block: dict[str, Any]) -> list[dict[str, Any]]:
        told, self._kind = self.close(), kind
        self.message.content.append({"type": kind, **block})
        place = len(self.message.content) - 1
        return [*told, {"type": "content_block_start", "index": place, "content_block": {"type": kind, **block}}]

    def _part(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": len(self.message.content) - 1, "delta": delta}

    def close(self) -> list[dict[str, Any]]:
        """End the block that is open, if one is."""
        kind, self._kind = self._kind, ""
        return [{"type": "content_block_stop", "index": len(self.message.content) - 1}] if kind else []

    def end(self, finished: Finished) -> None:
        called = bool(self._arguments)
        self.message.stop_reason, self.message.stop_sequence = self._ending.reason(finished, self._ids, called)
        for place, arguments in self._arguments.items():
            self.message.content[place] = _with_input(self.message.content[place], arguments)
        usage = finished.usage
        cached = usage.cached_tokens
        self.message.usage = UsageOut(usage.prompt_tokens - cached, usage.generated_tokens, cached)


def _with_input(block: dict[str, Any], arguments: str) -> dict[str, Any]:
    """The block of a call with its input; as text where that is no object, so that nothing of it is lost."""
    try:
        return {**block, "input": msgspec.json.decode(arguments, type=dict[str, Any])}
    except msgspec.DecodeError:
        return {"type": "text", "text": f"{block['name']}({arguments})"}


async def events(stream: Stream, writer: MessageWriter) -> AsyncIterator[bytes]:
    """The events of an answer while it is written; an error is the last one."""
    message = writer.message
    message.usage.input_tokens, begun = stream.prompt_tokens, False

    def write(each: Message) -> list[bytes]:
        match each:
            case Prefill(cached=cached) if not begun:
                message.usage = UsageOut(stream.prompt_tokens - cached, 0, cached)
            case Delta():
                return encoded(writer.add(each))
            case Finished():
                writer.end(each)
                delta = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
                end = {"type": "message_delta", "delta": delta, "usage": message.usage}
                return encoded([*writer.close(), end, {"type": "message_stop"}])
        return []

    def encoded(events: list[dict[str, Any]]) -> list[bytes]:
        nonlocal begun
        if events and not begun:
            begun = True
            opening = msgspec.structs.replace(message, content=[], stop_reason=None, stop_sequence=None)
            events = [{"type": "message_start", "message": opening}, *events]
        return [_event(event) for event in events]

    try:
        async for event in told(stream, write, lambda: encoded([{"type": "ping"}])):
            yield event
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
