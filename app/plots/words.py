"""The live figures, as text. Pure functions of a telemetry frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.language import figure, tr
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

LIMIT = " " + tr("(the limit for one chat)")
BETWEEN = " " * 5
"""What stands between the figures of :func:`one_line`."""


def count(value: float) -> str:
    """A value of a scale: "0", "2.5", "1,000"."""
    return figure(value, ",.0f" if value == int(value) else "g")


def rate(frame: Telemetry) -> str:
    return figure(frame.generated_per_second, ",.1f")


def kvasir_bytes(memory: MemoryByOwner) -> int:
    return memory.weights + memory.kv_used + memory.kv_reserved + memory.other_kvasir


def memory_title(memory: MemoryByOwner) -> str:
    return tr("GPU memory") if memory.scope == "device" else tr("Process memory")


def memory(memory: MemoryByOwner) -> str:
    """Describe the memory in use: all of it on a device; for a process Kvasir's own share of the machine's memory."""
    used = _used(memory)
    total = f"{figure(memory.total / GB, f'.{0 if memory.total >= 20 * GB else 1}f')} GB"
    return tr("{used} of {total}", used=size(used) if used < GB else figure(used / GB, ".1f"), total=total)


def memory_used(memory: MemoryByOwner) -> str:
    """The same without what there is."""
    return size(_used(memory))


def _used(memory: MemoryByOwner) -> int:
    return kvasir_bytes(memory) + (memory.other_programs if memory.scope == "device" else 0)


def pages(pages: PageCounts) -> str:
    """Pages of answers, and those that are cached for prompts to come."""
    used = tr("{used:,} in use", used=pages.used - pages.cached)
    return f"{used} · {tr('{cached:,} cached', cached=pages.cached)}"


def requests(queue: QueueCounts) -> tuple[int, int, int]:
    """Numbers of requests that are decoding, prefilling and queued."""
    prefilling = min(queue.prefilling, queue.running)
    return queue.running - prefilling, prefilling, queue.waiting


def energy(joules: float) -> str:
    """Format the energy of one token, in joules."""
    if joules < 1:
        return tr("{joules:.0f} mJ/token", joules=1000 * joules)
    return tr("{joules:.1f} J/token", joules=joules) if joules < 100 else tr("{joules:.0f} J/token", joules=joules)


def gpu(frame: Telemetry) -> str:
    """The headline of the GPU's chart: what a token costs, while any is written, else what the GPU takes."""
    if frame.joules_per_token is not None:
        return energy(frame.joules_per_token)
    return "–" if frame.gpu is None or frame.gpu.watts is None else f"{frame.gpu.watts:.0f} W"


def gpu_values(reading: GpuReading) -> list[tuple[str, str, str]]:
    """(field, value, what it is) of all that the driver says."""
    limit = reading.limit_watts
    power = tr("Power") if limit is None else tr("Power of {limit:.0f} W", limit=limit)
    facts = [
        ("watts", reading.watts, "W", power),
        ("celsius", reading.celsius, "°C", tr("Temperature", "in degrees")),
        ("core_mhz", reading.core_mhz, "MHz", tr("Clock of the multiprocessors")),
        ("memory_mhz", reading.memory_mhz, "MHz", tr("Clock of the memory")),
    ]
    return [
        (field, f"{figure(value, ',.0f' if unit == 'MHz' else '.0f')} {unit}", name)
        for field, value, unit, name in facts
        if value is not None
    ]


def answer(newest: PhaseChange, seconds: Mapping[Phase, float]) -> str:
    """An answer in the timeline, for its tooltip."""
    service, prompt, written = newest.service, newest.prompt, newest.generated
    if newest.answer:
        head = tr(
            "{service} answer {number}: prompt of {prompt:,} tokens, {written:,} tokens written",
            service=service,
            number=newest.answer + 1,
            prompt=prompt,
            written=written,
        )
    else:
        head = tr(
            "{service} answer: prompt of {prompt:,} tokens, {written:,} tokens written",
            service=service,
            prompt=prompt,
            written=written,
        )
    return "\n".join([head, *(_doing(phase, each) for phase, each in seconds.items())])


def _doing(phase: Phase, seconds: float) -> str:
    match phase:
        case "waiting":
            return tr("waited {seconds:.2f} s", seconds=seconds)
        case "prefill":
            return tr("prompt read in {seconds:.2f} s", seconds=seconds)
        case "paused":
            return tr("paused {seconds:.2f} s", seconds=seconds)
        case "preempted":
            return tr("without its pages {seconds:.2f} s", seconds=seconds)
        case "swapped":
            return tr("with its pages in host memory {seconds:.2f} s", seconds=seconds)
    return tr("written in {seconds:.2f} s", seconds=seconds)


def in_time(services: Sequence[ServiceFigures]) -> str:
    """How many answers of the last minute kept to the targets of their classes (goodput); "" of none."""
    ended = sum(each.ended for each in services)
    return tr("{n} of {ended} in time", n=sum(each.in_time for each in services), ended=ended) if ended else ""


def targets(services: Sequence[ServiceFigures]) -> str:
    """The classes one by one, with what they are held to, for the tooltip."""
    return "\n".join(
        tr(
            "{service}: {n} of {ended} answers of the last minute had their first token within {first:g} s and no more "
            "than {between:,.0f} ms between tokens",
            service=each.service,
            n=each.in_time,
            ended=each.ended,
            first=each.first_token,
            between=1e3 * each.between_tokens,
        )
        + _possible(each)
        for each in services
    )


def _possible(each: ServiceFigures) -> str:
    if each.most is None:
        return ""
    said = (
        tr("steps are as short for up to {n:,} at once", n=each.most) if each.most else tr("no step is as short here")
    )
    return f"; {said}"


def queue(queue: QueueCounts) -> str:
    parts = [tr("{n} running", n=queue.running)] if queue.running or not queue.waiting else []
    if queue.waiting:
        parts.append(tr("{n} queued", n=queue.waiting))
    return ", ".join(parts) if queue.running or queue.waiting else tr("idle")


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


def tokens_per_step(tokens: float) -> str:
    return tr("{tokens:.1f} tokens per step", tokens=tokens)


def latency(frame: Telemetry) -> tuple[str, str]:
    """Two lines below the token rate: of times or the prefill that runs, and of what bounds them."""
    times = [tr("TTFT {ms:.0f} ms", ms=frame.latency.ttft_ms)] if frame.latency.ttft_ms is not None else []
    if frame.latency.itl_p50_ms is not None:
        times.append(tr("{ms:.1f} ms/token", ms=frame.latency.itl_p50_ms))
    if frame.prefilled_per_second:
        times = [tr("prefill: {rate:,.0f} tokens/s", rate=frame.prefilled_per_second)]
    share = frame.bandwidth_share
    limit = "" if share is None else tr("{percent:.0f} % of memory bandwidth", percent=100 * share) + LIMIT
    return " · ".join(times), limit


def details(frame: Telemetry) -> str:
    """Everything else that a frame says about speed, one fact a line, for the tooltip."""
    rate = frame.prefilled_per_second
    lines = [tr("Prefill: {rate:,.0f} prompt tokens/s", rate=rate)] if rate else []
    facts: list[tuple[str, float | None, str, str]] = [
        (tr("Time to first token (TTFT)"), frame.latency.ttft_ms, ".0f", "ms"),
        (tr("Between tokens, median"), frame.latency.itl_p50_ms, ".1f", "ms"),
        (tr("Between tokens, 95 % below"), frame.latency.itl_p95_ms, ".1f", "ms"),
        (tr("A step"), frame.latency.step_ms, ".2f", "ms"),
        (tr("of which bookkeeping"), frame.latency.host_ms, ".2f", "ms"),
        (tr("Share of the measured memory bandwidth") + LIMIT, _percent(frame.bandwidth_share), ".0f", "%"),
    ]
    lines += [f"{name}: {figure(value, spec)} {unit}" for name, value, spec, unit in facts if value is not None]
    if frame.bytes_per_token is not None:
        lines.append(tr("Bytes read for a token: {size}", size=size(frame.bytes_per_token)))
    return "\n".join(lines) or tr("Nothing has been generated in the last seconds.")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def one_line(frame: Telemetry) -> str:
    """The collapsed strip."""
    share = accepted(frame.acceptance)
    parts = [
        f"{rate(frame)} tok/s",  # not shown
        f"{memory_title(frame.memory)} {memory(frame.memory)}",
        tr("pages {pages} of {total:,}", pages=pages(frame.pages), total=frame.pages.total),
        queue(frame.queue),
    ]
    if share != "–":
        parts.append(tr("{share} of drafts accepted", share=share))
    if (tokens := per_step(frame.acceptance)) is not None:
        parts.append(tokens_per_step(tokens))
    if frame.gpu is not None:
        parts.append(gpu(frame))
    return BETWEEN.join(parts)
