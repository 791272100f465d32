"""Answers as a response of OpenAI's interface, whole or as its events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from engine.doors.http.errors import refusal_of
from engine.doors.http.logprobs import TokenLogprob, TokenPlaces, token_logprob
from engine.doors.http.responses.items import hidden, new_id
from engine.doors.http.responses.tools import ClientTool, InputText
from engine.doors.http.responses.types import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    RawMessage,
    ResponseError,
    ResponseOut,
    ResponseUsage,
)
from engine.doors.http.service import told
from engine.doors.http.timings import AnswerPace
from engine.doors.security import HttpRefusal
from engine.protocol import Delta, Finished, Message, Prefill, ToolCallDelta
from engine.services.answers.refused import Refused
from engine.services.answers.stream import Stream
from engine.text.tokenizer import Tokenizer

NO_INPUT = "A call of {name} was not written with the one argument that it takes, and is told as it stands."
Event = dict[str, Any]


class ResponseWriter:
    """Gathers one answer in items: what is thought, what is said, and each call of a tool.

    ``tools`` are those that it may call, and ``hides`` says that thinking is told once more in a form that clients
    keep and send back.
    """

    def __init__(self, response: ResponseOut, tokenizer: Tokenizer, tools: Sequence[ClientTool], hides: bool) -> None:
        self.response = response
        self._tokenizer, self._hides = tokenizer, hides
        self._tools = {tool.name: tool for tool in tools}
        self._number = -1
        self._kind = ""
        """Of the item that is open; "": none is."""
        self._parts: list[str] = []
        """Its text, or its arguments."""
        self._logprobs: list[TokenLogprob] = []
        self._input = InputText()
        self._places = TokenPlaces(tokenizer)
        self._ids: list[int] = []

    def event(self, kind: str, /, **fields: Any) -> Event:
        """The next event of the stream."""
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}

    def begin(self) -> list[Event]:
        return [self.event(f"response.{name}", response=self.response) for name in ("created", "in_progress")]

    def waiting(self) -> list[Event]:
        """What is told while there is nothing to tell."""
        return [self.event("response.in_progress", response=self.response)]

    def add(self, delta: Delta) -> list[Event]:
        """Take a part of the answer; returns the events that tell of it."""
        self._ids += [token.id for token in delta.tokens]
        told = [event for call in delta.calls for event in self._called(call)]
        placed = self._places.take(delta) if delta.channel == "content" else []
        if not delta.text:
            return told
        if delta.channel == "thinking":
            return [*told, *self._thought(delta.text)]
        return [*told, *self._said(delta.text, [token_logprob(token, self._tokenizer) for token in placed])]

    def _thought(self, text: str) -> list[Event]:
        told = self._opened("reasoning", {"summary": [], "content": []}, {"type": "reasoning_text", "text": ""})
        self._parts.append(text)
        return [*told, self._part("response.reasoning_text.delta", content_index=0, delta=text)]

    def _said(self, text: str, logprobs: list[TokenLogprob]) -> list[Event]:
        told = self._opened("message", {"role": "assistant", "content": []}, _text_part("", []))
        self._parts.append(text)
        self._logprobs += logprobs
        delta = self._part("response.output_text.delta", content_index=0, delta=text, logprobs=logprobs)
        return [*told, delta]

    def _called(self, call: ToolCallDelta) -> list[Event]:
        told: list[Event] = []
        if call.id:
            tool = self._tools.get(call.name)
            custom = tool is not None and tool.custom
            fields = {"call_id": call.id, "name": call.name, **({"input": ""} if custom else {"arguments": ""})}
            if tool is not None and tool.namespace:
                fields |= {"name": tool.tool.name, "namespace": tool.namespace}
            told = self.close() + self._opened("custom_tool_call" if custom else "function_call", fields)
            self._input = InputText()
        self._parts.append(call.arguments)
        if self._kind == "custom_tool_call":
            text, name = self._input.push(call.arguments), "response.custom_tool_call_input.delta"
        else:
            text, name = call.arguments, "response.function_call_arguments.delta"
        return [*told, self._part(name, delta=text)] if text else told

    def _opened(self, kind: str, fields: dict[str, Any], part: dict[str, Any] | None = None) -> list[Event]:
        """The events that begin an item of this kind, unless one is open."""
        if kind == self._kind:
            return []
        told, self._kind = self.close(), kind
        item = {"type": kind, "id": new_id(kind), "status": "in_progress", **fields}
        self.response.output.append(item)
        told.append(self.event("response.output_item.added", output_index=self._place, item=item))
        return told if part is None else [*told, self._part("response.content_part.added", content_index=0, part=part)]

    @property
    def _place(self) -> int:
        return len(self.response.output) - 1

    def _part(self, kind: str, /, **fields: Any) -> Event:
        """An event about the item that is open."""
        item = self.response.output[-1]
        return self.event(kind, item_id=item["id"], output_index=self._place, **fields)

    def close(self, status: str = "completed") -> list[Event]:
        """End the item that is open, if one is."""
        if not self._kind:
            return []
        fields, told = {
            "message": self._end_message,
            "reasoning": self._end_reasoning,
            "function_call": self._end_function,
            "custom_tool_call": self._end_custom,
        }[self._kind]()
        item = {**self.response.output[-1], **fields, "status": status}
        self.response.output[-1] = item
        self._kind, self._parts, self._logprobs = "", [], []
        return [*told, self.event("response.output_item.done", output_index=self._place, item=item)]

    def _end_message(self) -> tuple[dict[str, Any], list[Event]]:
        text, logprobs = "".join(self._parts), self._logprobs
        part = _text_part(text, logprobs)
        told = [
            self._part("response.output_text.done", content_index=0, text=text, logprobs=logprobs),
            self._part("response.content_part.done", content_index=0, part=part),
        ]
        return {"content": [part]}, told

    def _end_reasoning(self) -> tuple[dict[str, Any], list[Event]]:
        text = "".join(self._parts)
        part = {"type": "reasoning_text", "text": text}
        told = [
            self._part("response.reasoning_text.done", content_index=0, text=text),
            self._part("response.content_part.done", content_index=0, part=part),
        ]
        return {"content": [part], **({"encrypted_content": hidden(text)} if self._hides else {})}, told

    def _end_function(self) -> tuple[dict[str, Any], list[Event]]:
        arguments, name = "".join(self._parts), self.response.output[-1]["name"]
        told = [self._part("response.function_call_arguments.done", name=name, arguments=arguments)]
        return {"arguments": arguments}, told

    def _end_custom(self) -> tuple[dict[str, Any], list[Event]]:
        text, well = self._input.whole()
        told: list[Event] = []
        if not well:
            self._notice(NO_INPUT.format(name=self.response.output[-1]["name"]))
        if rest := text.removeprefix(self._input.told):
            told.append(self._part("response.custom_tool_call_input.delta", delta=rest))
        return {"input": text}, [*told, self._part("response.custom_tool_call_input.done", input=text)]

    def end(self, finished: Finished) -> list[Event]:
        """The events that end the answer."""
        response, usage = self.response, finished.usage
        whole = finished.reason == "stop" or response.max_output_tokens == 0  # only the prompt was to be read
        told = self.close("completed" if whole else "incomplete")
        response.status, response.completed_at = "completed" if whole else "incomplete", int(time.time())
        response.incomplete_details = None if whole else IncompleteDetails("max_output_tokens")
        response.usage = ResponseUsage(
            usage.prompt_tokens,
            InputTokensDetails(usage.cached_tokens),
            usage.generated_tokens,
            OutputTokensDetails(usage.thinking_tokens),
            usage.prompt_tokens + usage.generated_tokens,
        )
        if response.input_messages is not UNSET:
            response.output_messages = [self.raw(self._ids)]
        if finished.detail:
            self._notice(finished.detail)
        return [*told, self.event(f"response.{response.status}", response=response)]

    def fail(self, refusal: HttpRefusal) -> list[Event]:
        """The events that end an answer that is not whole."""
        code = "server_error" if refusal.status >= 500 else refusal.code
        told = [*self.close("incomplete"), self.event("error", code=code, message=refusal.message, param=refusal.param)]
        self.response.status, self.response.error = "failed", ResponseError(code, refusal.message)
        return [*told, self.event("response.failed", response=self.response)]

    def raw(self, ids: Sequence[int]) -> RawMessage:
        return RawMessage(self._tokenizer.decode(ids, skip_special=False), [*ids])

    def cancel(self) -> None:
        """End an answer that is not wanted any more."""
        self.close("incomplete")
        self.response.status = "cancelled"

    def _notice(self, text: str) -> None:
        notices = self.response.notices
        self.response.notices = [text] if notices is UNSET else [*notices, text]


def _text_part(text: str, logprobs: list[TokenLogprob]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


async def events(
    stream: Stream, writer: ResponseWriter, done: Callable[[ResponseOut], None], pace: AnswerPace
) -> AsyncIterator[bytes]:
    """The events of an answer while it is written; ``done`` hears of it before its last ones."""
    for event in writer.begin():
        yield _event(event)

    def timed(events: Iterable[Event]) -> Iterator[bytes]:
        timings = pace.timings()
        for event in events:
            yield _event(event if timings is UNSET else {**event, "timings": timings})

    def write(message: Message) -> Iterator[bytes]:
        match message:
            case Prefill():
                for progress in pace.progress(message):
                    yield from timed({**event, "prompt_progress": progress} for event in writer.waiting())
            case Delta():
                pace.take(message)
                yield from timed(writer.add(message))
            case Finished():
                pace.take(message)
                events = writer.end(message)
                done(writer.response)
                yield from timed(events)

    try:
        async for part in told(stream, write, lambda: map(_event, writer.waiting())):
            yield part
    except Refused as refused:
        last = writer.fail(refusal_of(refused))
        done(writer.response)
        for event in last:
            yield _event(event)


async def whole(stream: Stream, writer: ResponseWriter, done: Callable[[ResponseOut], None]) -> ResponseOut:
    """The whole answer. Raises :class:`Refused`."""
    async for message in stream.messages():
        match message:
            case Delta():
                writer.add(message)
            case Finished():
                writer.end(message)
    done(writer.response)
    return writer.response


def _event(body: Event) -> bytes:
    return b"event: " + body["type"].encode() + b"\ndata: " + msgspec.json.encode(body) + b"\n\n"
