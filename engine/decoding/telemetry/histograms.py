"""Histograms of requests, answers and steps as Prometheus text: vLLM's names and buckets.

Source: https://docs.vllm.ai/en/latest/usage/metrics. Buckets are cumulative, each with its upper bound ``le``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from engine.protocol import WHOLE, Finished

_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
PER_STEP = tuple(2**power for power in range(15))
_FEW = (0, 1, 2, 5, 10, 20)
_REASONS = {"context": "length", "cancelled": "abort", "memory": "error"}
"""Why an answer ended, in vLLM's words where these differ."""


class Histogram:
    """Counts of values by the first bound that they do not exceed, and their sum."""

    def __init__(self, bounds: Sequence[float], explains: str = "") -> None:
        self._bounds, self.explains = bounds, explains
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def lines(self, name: str, label: str = "") -> Iterator[str]:
        """Samples, each with a ``label`` (name="value") besides where there is one."""
        counts = list(accumulate(self._counts))
        before, alone = (f"{label},", f"{{{label}}}") if label else ("", "")
        for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
            yield f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
        yield f"{name}_sum{alone} {self._sum:.9g}\n{name}_count{alone} {counts[-1]}\n"


def text(histograms: Mapping[str, Histogram], prefix: str, label: str = "") -> str:
    """All of them in Prometheus's words."""
    return "".join(
        f"# HELP {prefix}{name} {each.explains}\n# TYPE {prefix}{name} histogram\n"
        + "".join(each.lines(prefix + name, label))
        for name, each in histograms.items()
    )


def _seconds_per_token(end: Finished) -> float | None:
    """After the first; None where there is no other."""
    count = end.usage.generated_tokens - 1
    return (end.timings.total_ms - end.timings.ttft_ms) / 1e3 / count if count > 0 else None


def _seconds_to_first(end: Finished) -> float | None:
    return end.timings.ttft_ms / 1e3 if end.usage.generated_tokens else None


def _read_until(end: Finished) -> float:
    """Milliseconds from the request until its prompt was read."""
    return end.timings.ttft_ms or end.timings.total_ms


_MEASURED: dict[str, tuple[str, Sequence[float], Callable[[Finished], float | None]]] = {
    "time_to_first_token_seconds": ("Time to the first token, from the request.", _FIRST, _seconds_to_first),
    "time_per_output_token_seconds": ("Time per token after the first.", PER_TOKEN, _seconds_per_token),
    "e2e_request_latency_seconds": ("Time of whole answers.", _WHOLE, lambda end: end.timings.total_ms / 1e3),
    "request_queue_time_seconds": ("Time in the queue.", _WHOLE, lambda end: end.timings.queued_ms / 1e3),
    "request_inference_time_seconds": (
        "Time out of the queue.", _WHOLE, lambda end: (end.timings.total_ms - end.timings.queued_ms) / 1e3
    ),
    "request_prefill_time_seconds": (
        "Time of reading prompts.", _WHOLE, lambda end: (_read_until(end) - end.timings.queued_ms) / 1e3
    ),
    "request_decode_time_seconds": (
        "Time of answers after their first tokens.", _WHOLE, lambda end: (end.timings.total_ms - _read_until(end)) / 1e3
    ),
    "request_num_preemptions": (
        "Times that an answer was sent back to the queue.", _FEW, lambda end: end.timings.preemptions
    ),
    "request_prompt_tokens": ("Tokens of prompts.", _TOKENS, lambda end: end.usage.prompt_tokens),
    "request_generation_tokens": ("Tokens of answers.", _TOKENS, lambda end: end.usage.generated_tokens),
}  # fmt: skip


class AnswerHistograms:
    """What the answers since the start of the engine were like."""

    def __init__(self) -> None:
        self.measured = {name: Histogram(bounds, explains) for name, (explains, bounds, _) in _MEASURED.items()}
        self.asked = {
            "request_params_n": Histogram(_FEW[1:], "Answers that a request asks for."),
            "request_params_max_tokens": Histogram(_TOKENS, "Limits on the tokens of answers."),
        }
        self.reasons: Counter[str] = Counter()
        """Why answers ended, in vLLM's words."""
        self.prompt_seconds = self.answer_seconds = 0.0
        """Spent on reading prompts, and on writing what follows the first tokens."""
        self.read = self.cached = self.longest = 0
        """Tokens of prompts that were computed, and those found in the cache; of the longest answer with its prompt."""

    def ask(self, answers: int, most: int | None) -> None:
        """A request begins, for answers of at most ``most`` tokens each."""
        self.asked["request_params_n"].add(answers)
        if most is not None:
            self.asked["request_params_max_tokens"].add(most)

    def add(self, end: Finished) -> None:
        """Count an answer that ended, and measure it if it is whole."""
        self.reasons[_REASONS.get(end.reason, end.reason)] += 1
        if end.reason not in WHOLE:
            return
        usage, times = end.usage, end.timings
        first = _read_until(end)
        self.prompt_seconds += (first - times.queued_ms) / 1e3
        self.answer_seconds += (times.total_ms - first) / 1e3
        self.read += usage.prompt_tokens - usage.cached_tokens
        self.cached += usage.cached_tokens
        self.longest = max(self.longest, usage.prompt_tokens + usage.generated_tokens)
        for name, (_, _, measure) in _MEASURED.items():
            if (value := measure(end)) is not None:
                self.measured[name].add(value)
