"""The live figures, as text. Pure functions of a telemetry frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.words import GB, size
from engine.protocol import (
    Acceptance,
    GpuReading,
    MemoryByOwner,
    PageCounts,
    Phase,
    PhaseChange,
    QueueCounts,
    ServiceFigures,
    Telemetry,
)

LIMIT = " (the limit for one chat)"


def count(value: float) -> str:
    """A value of a scale: "0", "2.5", "1,000"."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def rate(frame: Telemetry) -> str:
    return f"{frame.generated_per_second:,.1f}"


def kvasir_bytes(memory: MemoryByOwner) -> int:
    return memory.weights + memory.kv_used + memory.kv_reserved + memory.other_kvasir


def memory_title(memory: MemoryByOwner) -> str:
    return "GPU memory" if memory.scope == "device" else "Process memory"


def memory(memory: MemoryByOwner) -> str:
    """Describe the memory in use: all of it on a device; for a process Kvasir's own share of the machine's memory."""
    used = _used(memory)
    total = f"{memory.total / GB:.{0 if memory.total >= 20 * GB else 1}f} GB"
    return f"{size(used)} of {total}" if used < GB else f"{used / GB:.1f} of {total}"


def memory_used(memory: MemoryByOwner) -> str:
    """The same without what there is."""
    return size(_used(memory))


def _used(memory: MemoryByOwner) -> int:
    return kvasir_bytes(memory) + (memory.other_programs if memory.scope == "device" else 0)


def pages(pages: PageCounts) -> str:
    """Pages of answers, and those that are cached for prompts to come."""
    return f"{pages.used - pages.cached:,} in use · {pages.cached:,} cached"


def requests(queue: QueueCounts) -> tuple[int, int, int]:
    """Numbers of requests that are decoding, prefilling and queued."""
    prefilling = min(queue.prefilling, queue.running)
    return queue.running - prefilling, prefilling, queue.waiting


def energy(joules: float) -> str:
    """Format the energy of one token, in joules."""
    if joules < 1:
        return f"{1000 * joules:.0f} mJ/token"
    return f"{joules:.{1 if joules < 100 else 0}f} J/token"


def gpu(frame: Telemetry) -> str:
    """The headline of the GPU's chart: what a token costs, while any is written, else what the GPU takes."""
    if frame.joules_per_token is not None:
        return energy(frame.joules_per_token)
    return "–" if frame.gpu is None or frame.gpu.watts is None else f"{frame.gpu.watts:.0f} W"


def gpu_values(reading: GpuReading) -> list[tuple[str, str, str]]:
    """(field, value, what it is) of all that the driver says."""
    limit = "" if reading.limit_watts is None else f" of {reading.limit_watts:.0f} W"
    facts = [
        ("watts", reading.watts, "{:.0f} W", f"Power{limit}"),
        ("celsius", reading.celsius, "{:.0f} °C", "Temperature"),
        ("core_mhz", reading.core_mhz, "{:,.0f} MHz", "Clock of the multiprocessors"),
        ("memory_mhz", reading.memory_mhz, "{:,.0f} MHz", "Clock of the memory"),
    ]
    return [(field, form.format(value), name) for field, value, form, name in facts if value is not None]


_DOING: dict[Phase, str] = {
    "waiting": "waited {}",
    "prefill": "prompt read in {}",
    "decode": "written in {}",
    "paused": "paused {}",
    "preempted": "without its pages {}",
    "swapped": "with its pages in host memory {}",
}


def answer(newest: PhaseChange, seconds: Mapping[Phase, float]) -> str:
    """An answer in the timeline, for its tooltip."""
    name = f"answer {newest.answer + 1}" if newest.answer else "answer"
    head = f"{newest.service} {name}: prompt of {newest.prompt:,} tokens, {newest.generated:,} tokens written"
    return "\n".join([head, *(_DOING[phase].format(f"{each:.2f} s") for phase, each in seconds.items())])


def in_time(services: Sequence[ServiceFigures]) -> str:
    """How many answers of the last minute kept to the targets of their classes (goodput); "" of none."""
    ended = sum(each.ended for each in services)
    return f"{sum(each.in_time for each in services)} of {ended} in time" if ended else ""


def targets(services: Sequence[ServiceFigures]) -> str:
    """The classes one by one, with what they are held to, for the tooltip."""
    return "\n".join(
        f"{each.service}: {each.in_time} of {each.ended} answers of the last minute had their first token within "
        f"{each.first_token:g} s and no more than {1e3 * each.between_tokens:,.0f} ms between tokens{_possible(each)}"
        for each in services
    )


def _possible(each: ServiceFigures) -> str:
    if each.most is None:
        return ""
    return f"; steps are as short for up to {each.most:,} at once" if each.most else "; no step is as short here"


def queue(queue: QueueCounts) -> str:
    parts = [f"{queue.running} running"] if queue.running or not queue.waiting else []
    if queue.waiting:
        parts.append(f"{queue.waiting} queued")
    return ", ".join(parts) if queue.running or queue.waiting else "idle"


def accepted(acceptance: list[Acceptance]) -> str:
    proposed = sum(one.proposed for one in acceptance)
    return f"{100 * sum(one.accepted for one in acceptance) / proposed:.0f} %" if proposed else "–"


def per_step(acceptance: list[Acceptance]) -> float | None:
    """Tokens that a step gave an answer, over all proposers; None without drafts.

    Each weighs as many rounds as it had: one with accepted drafts had ``accepted / (tokens_per_step - 1)`` of them,
    one without at least as many as its drafts fill.
    """
    tokens = rounds = 0.0
    for one in acceptance:
        if one.accepted and one.tokens_per_step > 1:
            held = one.accepted / (one.tokens_per_step - 1)
        else:
            held = one.proposed / max(1, one.draft_length)
        tokens, rounds = tokens + held * one.tokens_per_step, rounds + held
    return tokens / rounds if rounds else None


def latency(frame: Telemetry) -> tuple[str, str]:
    """Two lines below the token rate: of times or the prefill that runs, and of what bounds them."""
    times = [f"TTFT {frame.ttft_ms:.0f} ms"] if frame.ttft_ms is not None else []
    if frame.itl_p50_ms is not None:
        times.append(f"{frame.itl_p50_ms:.1f} ms/token")
    if frame.prefilled_per_second:
        times = [f"prefill: {frame.prefilled_per_second:,.0f} tokens/s"]
    share = frame.bandwidth_share
    limit = "" if share is None else f"{100 * share:.0f} % of memory bandwidth{LIMIT}"
    return " · ".join(times), limit


def details(frame: Telemetry) -> str:
    """Everything else that a frame says about speed, one fact a line, for the tooltip."""
    facts: list[tuple[str, float | None, str]] = [
        ("Prefill", frame.prefilled_per_second or None, "{:,.0f} prompt tokens/s"),
        ("Time to first token (TTFT)", frame.ttft_ms, "{:.0f} ms"),
        ("Between tokens, median", frame.itl_p50_ms, "{:.1f} ms"),
        ("Between tokens, 95 % below", frame.itl_p95_ms, "{:.1f} ms"),
        ("A step", frame.step_ms, "{:.2f} ms"),
        ("of which bookkeeping", frame.host_ms, "{:.2f} ms"),
        (f"Share of the measured memory bandwidth{LIMIT}", _percent(frame.bandwidth_share), "{:.0f} %"),
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
        parts.append(f"{tokens:.1f} tokens per step")
    if frame.gpu is not None:
        parts.append(gpu(frame))
    return "     ".join(parts)
