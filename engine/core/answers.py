"""Appending drawn tokens to an answer: where it ends, and what of it the listener gets to see."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from engine.core.events import TokensEvent
from engine.core.request import Request
from engine.protocol import FinishReason, Source, TokenInfo
from engine.sampling.sampler import LogProbs


class Drawn(NamedTuple):
    """One token that the target drew, with its source and, if asked for, its log-probabilities."""

    token: int
    source: Source
    logprobs: LogProbs | None = None


class Outcome(NamedTuple):
    """What a run of drawn tokens did to an answer; ``kept`` counts those that became part of it."""

    event: TokensEvent
    kept: int
    reason: FinishReason | None


def extend(request: Request, run: Sequence[Drawn], eos_ids: Collection[int]) -> Outcome:
    """Append the tokens one by one until the answer ends; what follows the end is dropped.

    An end-of-text token counts as generated and has no text. A token that completes a stop string counts, and text from
    the stop string on is not released. Reasons are tried in the order stop, length, context.
    """
    tokens, stream, ignore_eos = request.tokens, request.stream, request.params.ignore_eos
    most = min(request.reach - len(tokens), len(run))
    texts: list[str] = []
    infos: list[TokenInfo] = []
    reason: FinishReason | None = None
    for drawn in run[:most]:
        token = drawn.token
        tokens.append(token)
        if token in eos_ids and not ignore_eos:
            infos.append(_info(drawn, 0))
            reason = "stop"
            break
        text = stream.push(token).text
        texts.append(text)
        infos.append(_info(drawn, len(text)))
        if stream.stopped:
            reason = "stop"
            break
    if reason is None and len(tokens) >= request.reach:
        reason = "length" if request.generated == request.params.max_tokens else "context"
    if reason is not None and not stream.stopped:
        texts.append(stream.flush())
    return Outcome(TokensEvent(request.id, request.answer, "".join(texts), infos), len(infos), reason)


def _info(drawn: Drawn, chars: int) -> TokenInfo:
    logprobs = drawn.logprobs
    if logprobs is None:
        return TokenInfo(id=drawn.token, source=drawn.source, chars=chars)
    return TokenInfo(id=drawn.token, source=drawn.source, chars=chars, logprob=logprobs.chosen, top=logprobs.top)
