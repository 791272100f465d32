"""The live figures, as text. Pure functions of a telemetry frame."""

from __future__ import annotations

from engine.protocol import Acceptance, MemoryByOwner, PageCounts, QueueCounts, Telemetry

PAGE_TOKENS = 16
_GB = 1e9
_MB = 1e6


def size(value: float) -> str:
    """Bytes for people, decimal units: "1.3 MB", "812 MB", "8.9 GB"."""
    if value < 0.9995 * _GB:
        return f"{value / _MB:.{int(0 < value < 9.95 * _MB)}f} MB"
    return f"{value / _GB:.1f} GB" if value < 100 * _GB else f"{value / _GB:.0f} GB"


def rate(frame: Telemetry) -> str:
    return f"{frame.generated_per_second:,.1f}"


def kvasir_bytes(memory: MemoryByOwner) -> int:
    return memory.weights + memory.kv_used + memory.kv_reserved + memory.other_kvasir


def memory_title(memory: MemoryByOwner) -> str:
    return "GPU memory" if memory.scope == "device" else "Process memory"


def memory(memory: MemoryByOwner) -> str:
    """Of a device: all that is in use; of a process: Kvasir's own share, of the machine's memory."""
    used = kvasir_bytes(memory) + (memory.other_programs if memory.scope == "device" else 0)
    total = f"{memory.total / _GB:.{0 if memory.total >= 20 * _GB else 1}f} GB"
    return f"{size(used)} of {total}" if used < _GB else f"{used / _GB:.1f} of {total}"


def waste(pages: PageCounts) -> float:
    """Share of the slots in used pages that hold no token, 0..1."""
    slots = pages.used * PAGE_TOKENS
    return 1 - pages.live_tokens / slots if slots else 0.0


def pages(pages: PageCounts) -> str:
    """Pages of answers, and those that are kept for texts to come."""
    return f"{pages.used - pages.cached:,} used, {pages.cached:,} kept"


def kv_kept(frame: Telemetry) -> int:
    """Bytes of keys and values that no answer reads now, and that are given up when room is needed."""
    pages = frame.pages
    return round(frame.memory.kv_used * pages.cached / pages.used) if pages.used else 0


def queue(queue: QueueCounts) -> str:
    parts = [f"{queue.running} running"] if queue.running or not queue.waiting else []
    if queue.waiting:
        parts.append(f"{queue.waiting} waiting")
    return ", ".join(parts) if queue.running or queue.waiting else "idle"


def accepted(acceptance: list[Acceptance]) -> str:
    proposed = sum(one.proposed for one in acceptance)
    return f"{100 * sum(one.accepted for one in acceptance) / proposed:.0f} %" if proposed else "–"


def per_step(acceptance: list[Acceptance]) -> float | None:
    """Tokens that a step gave an answer, over all proposers; None when nobody guessed.

    Each weighs as many rounds as it had: one that kept guesses had ``accepted / (tokens_per_step - 1)`` of them, one
    that kept none at least as many as its guesses fill.
    """
    tokens = rounds = 0.0
    for one in acceptance:
        if one.accepted and one.tokens_per_step > 1:
            held = one.accepted / (one.tokens_per_step - 1)
        else:
            held = one.proposed / max(1, one.draft_length)
        tokens, rounds = tokens + held * one.tokens_per_step, rounds + held
    return tokens / rounds if rounds else None


def latency(frame: Telemetry) -> str:
    """The line below the token rate: what is known of first token, token gap and bandwidth."""
    parts = []
    if frame.ttft_ms is not None:
        parts.append(f"first {frame.ttft_ms:.0f} ms")
    if frame.itl_p50_ms is not None:
        parts.append(f"{frame.itl_p50_ms:.1f} ms/token")
    if frame.bandwidth_share is not None:
        parts.append(f"{100 * frame.bandwidth_share:.0f} % of bandwidth")
    return " · ".join(parts)


def details(frame: Telemetry) -> str:
    """Everything else that a frame says about speed, one fact a line, for the tooltip."""
    facts: list[tuple[str, float | None, str]] = [
        ("Prompt tokens read", frame.prefilled_per_second or None, "{:,.0f} a second"),
        ("Time to first token", frame.ttft_ms, "{:.0f} ms"),
        ("Between tokens, median", frame.itl_p50_ms, "{:.1f} ms"),
        ("Between tokens, 95 % below", frame.itl_p95_ms, "{:.1f} ms"),
        ("A step", frame.step_ms, "{:.2f} ms"),
        ("of which bookkeeping", frame.host_ms, "{:.2f} ms"),
        ("Share of the measured memory bandwidth", _percent(frame.bandwidth_share), "{:.0f} %"),
    ]
    lines = [f"{name}: {form.format(value)}" for name, value, form in facts if value is not None]
    if frame.bytes_per_token is not None:
        lines.append(f"Bytes read for a token: {size(frame.bytes_per_token)}")
    return "\n".join(lines) or "Nothing has been generated in the last seconds."


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def one_line(frame: Telemetry) -> str:
    """The collapsed strip."""
    share = accepted(frame.acceptance)
    parts = [
        f"{rate(frame)} tok/s",
        f"{memory_title(frame.memory)} {memory(frame.memory)}",
        f"pages {pages(frame.pages)} of {frame.pages.total:,}",
        queue(frame.queue),
    ]
    if share != "–":
        parts.append(f"{share} accepted")
    if (tokens := per_step(frame.acceptance)) is not None:
        parts.append(f"{tokens:.1f} tokens a step")
    return "     ".join(parts)
