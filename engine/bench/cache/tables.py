"""The figures of ``kvasir bench --cache`` and ``--cost`` as tables for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from engine.bench.cache.figures import CacheFigures, CacheSide
from engine.bench.cost import CostFigures

MB = 1e6


def show_cache(figures: CacheFigures, console: Console) -> None:
    for trace in figures.traces:
        table = Table(
            title=f"{figures.model}, {trace.title}: {trace.requests} requests, {trace.prompt_tokens:,} prompt tokens, "
            f"a cache of {trace.cache_tokens:,}; the whole context reserved for each would leave "
            f"{trace.reserved_waste:.0%} of the slots empty"
        )
        for column in (
            "part and way",
            "first token, ms (ratio)",
            "95 % within",
            "tokens/s (ratio)",
            "found",
            "slots empty",
            "pages, MB",
            "preempted, MB moved",
            "answers",
        ):
            table.add_column(column)
        for row in trace.rows:
            for number, side in enumerate(row.sides):
                title = f"  {side.title}" if number else f"{row.title}: {side.title}"
                table.add_row(title, *_cells(side, first=not number))
            table.add_section()
        console.print(table)
    _show_single(figures, console)
    for line in figures.absent:
        console.print(f"left out: {line}")


def _cells(side: CacheSide, first: bool) -> list[str]:
    first_ratio, speed_ratio = ("", "") if first else (f" ({side.first_ratio:.2f})", f" ({side.speed_ratio:.2f})")
    return [
        f"{side.ttft_median:.1f}{first_ratio}",
        f"{side.ttft_p95:.1f}",
        f"{side.tokens_per_second:.0f}{speed_ratio}",
        f"{side.hit_rate:.0%}, {side.saved:,}",
        f"{side.waste:.1%}",
        f"{side.pages}, {side.bytes / MB:.1f}",
        f"{side.preemptions}, {side.swapped / MB:.1f}",
        "" if first else answers_word(side),
    ]


def answers_word(side: CacheSide) -> str:
    """How the answers stand to those of the first way."""
    if side.approximate:
        return f"approximate: {side.equal}/{side.answers} same"
    return "same" if side.equal == side.answers else f"{side.equal}/{side.answers} same"


def _show_single(figures: CacheFigures, console: Console) -> None:
    hit, host, saved = figures.hit, figures.host, figures.saved
    if hit is not None:
        console.print(
            f"{hit.model}, a prompt of {hit.prompt:,} tokens: first token after {hit.cold:.0f} ms, and after "
            f"{hit.hit:.1f} ms with {hit.found:,} of them found ({hit.ratio:.4f} of it)"
        )
    if host is not None:
        console.print(
            f"the host's part of a step of {host.sequences} answers, median of {host.steps}: {host.total:.3f} ms "
            f"(least {host.least:.3f}): scheduling {host.schedule:.3f}, batch {host.batch:.3f}, "
            f"results {host.settle:.3f}"
        )
    if saved is not None:
        console.print(
            f"a chat of {saved.prompt:,} tokens after a restart: first token after {saved.anew:.1f} ms read anew, "
            f"{saved.saved:.1f} ms with {saved.found:,} tokens from files of {saved.bytes / MB:.1f} MB "
            f"({saved.ratio:.2f} of it), {saved.equal} of {saved.rounds} answers the same"
        )


def show_cost(figures: CostFigures, console: Console) -> None:
    for text in figures.texts:
        table = Table(
            title=f"{figures.model}, {text.title}: {text.tokens:,} predictions in {text.pieces} pieces of "
            f"{text.length:,} tokens; perplexity {text.exact:.3f} at 16 bits and all pages"
        )
        for column in ("approximation", "bits a number", "with recent tokens", "perplexity", "KL, nats"):
            table.add_column(column)
        for row in text.rows:
            table.add_row(
                row.setting,
                f"{row.bits:.2f}",
                f"{row.bits_in_all:.2f}",
                f"{row.perplexity:.3f}",
                f"{row.divergence:.5f}",
            )
        console.print(table)
