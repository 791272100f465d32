"""How far an answer is and how long it took, in the words of llama.cpp's server: ``timings`` and ``prompt_progress``.

Source: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec
from msgspec import UNSET, UnsetType

from engine.protocol import Delta, Finished, Prefill


class PromptProgress(msgspec.Struct):
    """``processed`` of the ``total`` tokens of a prompt are read, ``cache`` of them found in the prefix cache."""

    total: int
    cache: int
    processed: int
    time_ms: float


class TimingsOut(msgspec.Struct):
    """``prompt_n`` tokens were read, those of the cache not among them, and ``predicted_n`` written. The prompt's time
    is that to the first token, so that rates of writing leave that one out."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int | UnsetType = UNSET
    draft_n_accepted: int | UnsetType = UNSET


def timings_of(end: Finished) -> TimingsOut:
    """The timings of a whole answer, by the engine's clock."""
    usage, times = end.usage, end.timings
    read, first = usage.prompt_tokens - usage.cached_tokens, times.ttft_ms or times.total_ms
    took = first - times.queued_ms, times.total_ms - first
    told = _timings(usage.cached_tokens, read, took[0], usage.generated_tokens, took[1])
    if times.proposed:
        told.draft_n, told.draft_n_accepted = times.proposed, times.accepted
    return told


class AnswerPace:
    """How far one answer is, by its messages as they come: by this process's clock, and by the engine's at its end.

    ``reads``: how far its prompt is read is told; ``timed``: timings are.
    """

    def __init__(self, reads: bool = False, timed: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._reads, self._timed, self._now = reads, timed, now
        self._began = now()
        self._progress = PromptProgress(0, 0, 0, 0.0)
        self._written, self._written_ms = 0, 0.0
        self._end: Finished | None = None

    def progress(self, message: Prefill) -> Iterator[PromptProgress]:
        """How far the prompt is read; before the first part also what of it was found in the cache."""
        if not self._progress.total:
            self._progress = PromptProgress(message.total, message.cached, message.cached, 0.0)
            if self._reads:
                yield self._progress
        self._progress = PromptProgress(message.total, message.cached, message.done, 1e3 * (self._now() - self._began))
        if self._reads:
            yield self._progress

    def take(self, message: Delta | Finished) -> None:
        if isinstance(message, Finished):
            self._end = message
            return
        self._written += len(message.tokens)
        self._written_ms = 1e3 * (self._now() - self._began) - self._progress.time_ms

    def timings(self) -> TimingsOut | UnsetType:
        if not self._timed:
            return UNSET
        if self._end is not None:
            return timings_of(self._end)
        read = self._progress
        return _timings(read.cache, read.processed - read.cache, read.time_ms, self._written, self._written_ms)


def _timings(cached: int, read: int, prompt_ms: float, written: int, written_ms: float) -> TimingsOut:
    steps = max(written - 1, 0)
    return TimingsOut(
        cached,
        read,
        prompt_ms,
        _share(prompt_ms, read),
        _share(1e3 * read, prompt_ms),
        written,
        written_ms,
        _share(written_ms, steps),
        _share(1e3 * steps, written_ms),
    )


def _share(amount: float, parts: float) -> float:
    return amount / parts if parts > 0 else 0.0
