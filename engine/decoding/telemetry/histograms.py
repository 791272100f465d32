"""Histograms of finished answers as Prometheus text: vLLM's names and buckets, after Kvasir's prefix.

Source: https://docs.vllm.ai/en/latest/usage/metrics. Buckets are cumulative, each with its upper bound ``le``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from engine.protocol import Finished

_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))


class Histogram:
    """Counts of values by the first bound that they do not exceed, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        counts = list(accumulate(self._counts))
        for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}\n'
        yield f"{name}_sum {self._sum:.9g}\n{name}_count {counts[-1]}\n"


def _seconds_per_token(end: Finished) -> float | None:
    """After the first; None where there is no other."""
    count = end.usage.generated_tokens - 1
    return (end.timings.total_ms - end.timings.ttft_ms) / 1e3 / count if count > 0 else None


def _seconds_to_first(end: Finished) -> float | None:
    return end.timings.ttft_ms / 1e3 if end.usage.generated_tokens else None


_MEASURED: dict[str, tuple[str, Sequence[float], Callable[[Finished], float | None]]] = {
    "time_to_first_token_seconds": ("Time to the first token, from the request.", _FIRST, _seconds_to_first),
    "time_per_output_token_seconds": ("Time per token after the first.", _TOKEN, _seconds_per_token),
    "e2e_request_latency_seconds": ("Time of whole answers.", _WHOLE, lambda end: end.timings.total_ms / 1e3),
    "request_queue_time_seconds": ("Time in the queue.", _WHOLE, lambda end: end.timings.queued_ms / 1e3),
    "request_prompt_tokens": ("Tokens of prompts.", _TOKENS, lambda end: end.usage.prompt_tokens),
    "request_generation_tokens": ("Tokens of answers.", _TOKENS, lambda end: end.usage.generated_tokens),
}


class AnswerHistograms:
    """What the answers since the start of the engine were like."""

    def __init__(self) -> None:
        self._histograms = {name: Histogram(bounds) for name, (_, bounds, _) in _MEASURED.items()}
        self.prompt_seconds = self.answer_seconds = 0.0
        """Spent on reading prompts, and on writing what follows the first tokens."""
        self.read = self.cached = self.longest = 0
        """Tokens of prompts that were computed, and those found in the cache; of the longest answer with its prompt."""

    def add(self, end: Finished) -> None:
        usage, times = end.usage, end.timings
        first = times.ttft_ms or times.total_ms
        self.prompt_seconds += (first - times.queued_ms) / 1e3
        self.answer_seconds += (times.total_ms - first) / 1e3
        self.read += usage.prompt_tokens - usage.cached_tokens
        self.cached += usage.cached_tokens
        self.longest = max(self.longest, usage.prompt_tokens + usage.generated_tokens)
        for name, (_, _, measure) in _MEASURED.items():
            if (value := measure(end)) is not None:
                self._histograms[name].add(value)

    def text(self) -> str:
        return "".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for name, histogram in self._histograms.items():
            full = f"kvasir_{name}"
            yield f"# HELP {full} {_MEASURED[name][0]}\n# TYPE {full} histogram\n"
            yield from histogram.lines(full)
