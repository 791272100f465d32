"""Figures that ``kvasir bench --cache`` measured."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from engine.services.experiments.reports.tables import MB, show_absent, show_line, show_table


class CacheSide(msgspec.Struct, frozen=True):
    """One way of a part on one trace: times to first token in ms over all answers; tokens, pages and bytes of a round.

    ``tokens_per_second``: those written, of all answers together, from the first request to the last answer.
    ``hit_rate`` is the share of prompt tokens that were found, ``saved`` their number. ``waste`` is the share of the
    slots of used pages that held no token, over all steps. ``pages`` are the most in use, ``bytes`` what they take,
    with the most that the recent tokens can take where those are kept apart. ``swapped``: bytes that left the device.

    Compared with the first way, by round, median: ``first_ratio`` is its time to first token over this one's,
    ``speed_ratio`` this one's speed over its. ``equal``: answers with the same tokens, of ``answers``. Where
    ``approximate``, different tokens are to be expected, and the ratios are of unlike answers.
    """

    title: str
    approximate: bool
    ttft_median: float
    ttft_p95: float
    tokens_per_second: float
    hit_rate: float
    saved: int
    waste: float
    pages: int
    bytes: int
    preemptions: int
    swapped: int
    first_ratio: float
    speed_ratio: float
    equal: int
    answers: int

    @property
    def answers_word(self) -> str:
        """Comparison of the answers with those of the first way, for the table."""
        if self.approximate:
            return f"approximate: {self.equal}/{self.answers} same"
        return "same" if self.equal == self.answers else f"{self.equal}/{self.answers} same"


class CacheRow(msgspec.Struct, frozen=True):
    """A part of the cache in all its ways; the others are compared with the first."""

    part: str
    title: str
    sides: list[CacheSide]

    def cells(self) -> Iterator[str]:
        """The rows of the table, one for each way."""
        for number, side in enumerate(self.sides):
            title = f"  {side.title}" if number else f"{self.title}: {side.title}"
            first, speed = (f" ({side.first_ratio:.2f})", f" ({side.speed_ratio:.2f})") if number else ("", "")
            yield (
                f"{title} | {side.ttft_median:.1f}{first} | {side.ttft_p95:.1f} | "
                f"{side.tokens_per_second:.0f}{speed} | {side.hit_rate:.0%}, {side.saved:,} | {side.waste:.1%} | "
                f"{side.pages}, {side.bytes / MB:.1f} | {side.preemptions}, {side.swapped / MB:.1f} | "
                f"{side.answers_word if number else ''}"
            )


class TraceFigures(msgspec.Struct, frozen=True):
    """``reserved_waste``: share of the slots that would hold nothing if each answer reserved the whole context.

    ``cache_tokens`` is what the cache holds in all.
    """

    name: str
    title: str
    requests: int
    prompt_tokens: int
    reserved_waste: float
    rows: list[CacheRow]
    cache_tokens: int = 0


class ReuseFigures(msgspec.Struct, frozen=True):
    """Time to first token, ms, medians: of a prompt with ``found`` tokens in the cache, and of one read anew.

    ``ratio`` is hit / cold, pair by pair. After a restart the tokens come from files of ``bytes``; there both prompts
    of a pair are the same, and so should the answers be: ``equal`` of ``rounds``.
    """

    model: str
    prompt: int
    found: int
    cold: float
    hit: float
    ratio: float
    rounds: int
    bytes: int = 0
    equal: int = 0


class HostFigures(msgspec.Struct, frozen=True):
    """The host's part of a step that writes a token for each of ``sequences`` answers: ms, medians over the steps.

    ``least`` is the smallest of the totals; on a busy machine the medians include the time that other programs took.
    """

    sequences: int
    steps: int
    schedule: float
    batch: float
    settle: float
    total: float
    least: float


class CacheFigures(msgspec.Struct, frozen=True):
    """``absent`` says which parts were left out, and why."""

    model: str
    context: int
    rounds: int
    traces: list[TraceFigures]
    absent: list[str] = []
    hit: ReuseFigures | None = None
    host: HostFigures | None = None
    saved: ReuseFigures | None = None

    def show(self) -> None:
        for trace in self.traces:
            show_table(
                f"{self.model}, {trace.title}: {trace.requests} requests, {trace.prompt_tokens:,} prompt tokens, "
                f"a cache of {trace.cache_tokens:,}; the whole context reserved for each would leave "
                f"{trace.reserved_waste:.0%} of the slots empty",
                "part and way | first token, ms (ratio) | 95 % within | tokens/s (ratio) | found | slots empty | "
                "pages, MB | preempted, MB moved | answers",
                (cells for row in trace.rows for cells in row.cells()),
            )
        hit, host, saved = self.hit, self.host, self.saved
        if hit is not None:
            show_line(
                f"{hit.model}, a prompt of {hit.prompt:,} tokens: first token after {hit.cold:.0f} ms, and after "
                f"{hit.hit:.1f} ms with {hit.found:,} of them found ({hit.ratio:.4f} of it)"
            )
        if host is not None:
            show_line(
                f"the host's part of a step of {host.sequences} answers, median of {host.steps}: {host.total:.3f} ms "
                f"(least {host.least:.3f}): scheduling {host.schedule:.3f}, batch {host.batch:.3f}, "
                f"results {host.settle:.3f}"
            )
        if saved is not None:
            show_line(
                f"a chat of {saved.prompt:,} tokens after a restart: first token after {saved.cold:.1f} ms read again, "
                f"{saved.hit:.1f} ms with {saved.found:,} tokens from files of {saved.bytes / MB:.1f} MB "
                f"({saved.ratio:.2f} of it), {saved.equal} of {saved.rounds} answers the same"
            )
        show_absent(self.absent)
