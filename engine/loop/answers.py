"""Appends drawn tokens to an answer: decides where it ends and which text is released to the listener."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec import structs

from engine.decoding.request import HeldToken, Request
from engine.protocol import Channel, Delta, FinishReason, TokenInfo, ToolCallDelta
from engine.text.stream import Piece


class AppendResult(NamedTuple):
    """The result of appending a run of drawn tokens to an answer; ``kept`` counts those that became part of it."""

    events: list[Delta]
    kept: int
    reason: FinishReason | None


def extend(request: Request, run: Sequence[TokenInfo], eos_ids: Collection[int]) -> AppendResult:
    """Append the drawn tokens one by one until the answer ends; what follows the end is dropped.

    An end-of-text token counts as generated and has no text. A token that completes a stop string counts, and text from
    the stop string on is not released. Reasons are tried in the order stop, length, context. Each token is in one of
    the events, together with the last of its text.
    """
    tokens, stream, ignore_eos = request.tokens, request.stream, request.params.ignore_eos
    reach = request.reach
    most = min(reach - len(tokens), len(run))
    runs = _Runs(request)
    kept = 0
    reason: FinishReason | None = None
    for drawn in run[:most]:
        token = drawn.id
        tokens.append(token)
        kept += 1
        if token in eos_ids and not ignore_eos:
            runs.add(Piece(), drawn)
            reason = "stop"
            break
        may_stop = request.generated >= request.params.min_tokens
        runs.add(stream.push(token) if may_stop else stream.push(token, stops=False), drawn)
        if stream.stopped:
            reason = "stop"
            break
    if reason is None and len(tokens) >= reach:
        reason = "length" if request.generated == request.params.max_tokens else "context"
    if reason is not None and not stream.stopped:
        runs.add(stream.flush())
    return AppendResult(runs.events, kept, reason)


def flushed(request: Request) -> list[Delta]:
    """The text that was held back, for an answer that ends without another token."""
    runs = _Runs(request)
    runs.add(request.stream.flush())
    return runs.events


class _Runs:
    """Events of one answer, a new one wherever the channel changes."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.events: list[Delta] = []

    def add(self, piece: Piece, drawn: TokenInfo | None = None) -> None:
        """Append the text that a token released, or without a token the text that was held back."""
        request, apart = self._request, []
        if drawn is not None and piece.channel != "content":
            apart = [structs.replace(drawn, chars=piece.chars)]
            request.progress.thinking_tokens += piece.channel == "thinking"
        elif drawn is not None:
            request.held.append(HeldToken(drawn, piece.own))
        # Tokens are told in the order in which they were drawn: none is held back beyond one of another channel.
        content = self._told(len(piece.text), all=drawn is None or bool(apart))
        if apart and content:
            self._append("", content, "content")
            content = []
        thoughts, called = (apart if piece.channel == channel else [] for channel in ("thinking", "tool"))
        if piece.thinking or thoughts:
            self._append(piece.thinking, thoughts, "thinking")
        if piece.text or content:
            self._append(piece.text, content, "content")
        if piece.calls or called:
            self._append("", called, "tool", piece.calls)

    def _told(self, released: int, all: bool) -> list[TokenInfo]:
        """The held tokens whose text is decided, now that ``released`` more characters of content are told."""
        request, stream = self._request, self._request.stream
        before, now = request.content_chars, request.content_chars + released
        start = now + stream.held - sum(token.chars for token in request.held)
        infos: list[TokenInfo] = []
        for info, chars in request.held:
            end = start + chars
            if end > now and not (all or stream.stopped):
                break
            told = max(0, min(end, now) - max(start, before))
            cut = min(chars, end - now) if stream.stopped and end > now else 0
            infos.append(structs.replace(info, chars=told, cut=cut))
            start = end
        # What has not completed a character yet belongs to the next token: a stop string may cut the character off.
        while infos and not (all or stream.stopped or request.held[len(infos) - 1].chars):
            infos.pop()
        del request.held[: len(infos)]
        request.content_chars = now
        return infos

    def _append(self, text: str, infos: list[TokenInfo], channel: Channel, calls: Sequence[ToolCallDelta] = ()) -> None:
        request = self._request
        event = Delta(id=request.id, answer=request.answer, text=text, tokens=infos, channel=channel, calls=list(calls))
        if self.events and self.events[-1].channel == channel:
            self.events[-1] = Delta.joined([self.events[-1], event])
        else:
            self.events.append(event)
