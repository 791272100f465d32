"""Choice between swapping a preempted sequence's keys and values to host memory and back, and recomputing them."""

from __future__ import annotations

from typing import NamedTuple

from engine.decoding.options import Mode


class TransferRates(NamedTuple):
    """The rates measured so far, None where not measured: bytes per second over the link, prefill tokens per second."""

    swap_out: float | None = None
    swap_in: float | None = None
    prefill: float | None = None


class Victim(NamedTuple):
    """The keys and values that a preempted sequence would lose."""

    tokens: int
    """Tokens that would have to be computed again, without those that the prefix tree keeps on the device."""
    size: int
    """Bytes of these, in all stores."""
    room: bool
    """True if host memory has room for them."""


class Decision(NamedTuple):
    """``reason`` is a sentence for the log and the window."""

    swap: bool
    reason: str


def swap_or_recompute(mode: Mode, victim: Victim, rates: TransferRates) -> Decision:
    """Choose what takes less time by the measured rates: moving the bytes and back, or reading the tokens again.

    In mode "auto" it swaps while a rate has not been measured yet, so that it will be. "swap" and "recompute" force the
    choice, except that nothing is swapped when host memory has no room.
    """
    tokens, size = f"{victim.tokens:,} tokens", _size(victim.size)
    if victim.tokens <= 0:
        return Decision(False, "Nothing is lost: the prefix cache keeps all that was computed.")
    if mode == "recompute":
        return Decision(False, f"{tokens} will be read again, as preemption is set.")
    if not victim.room:
        return Decision(False, f"{tokens} will be read again: host memory has no room for {size}.")
    if mode == "swap":
        return Decision(True, f"{size} go to host memory, as preemption is set.")
    out, back, prefill = (rate or 0.0 for rate in rates)
    if out <= 0 or back <= 0 or prefill <= 0:
        missing = "the link" if out <= 0 or back <= 0 else "reading"
        return Decision(True, f"{size} go to host memory: the speed of {missing} is not measured yet.")
    moving, reading = victim.size / out + victim.size / back, victim.tokens / prefill
    swap = moving < reading
    both = f"moving {size} and back takes {_time(moving)}, reading {tokens} again {_time(reading)}"
    return Decision(swap, f"{'Swapped' if swap else 'Recomputed'}: {both}.")


def _size(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.0f} kB"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
