"""Whether a preempted sequence's keys and values are swapped to host memory and back, or recomputed."""

from __future__ import annotations

from typing import NamedTuple

from engine.options import Mode


class Rates(NamedTuple):
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
    """Whether host memory has room for them."""


class Decision(NamedTuple):
    """``reason`` is a sentence for the log and the window."""

    swap: bool
    reason: str


class SwapOrRecompute:
    """Chooses what takes less time by the measured rates: moving the bytes and back, or reading the tokens again.

    In mode "auto" it swaps while a rate has not been measured yet, so that it will be. "swap" and "recompute" force the
    choice, except that nothing is swapped when host memory has no room.
    """

    def __init__(self, mode: Mode = "auto") -> None:
        self.mode: Mode = mode

    def decide(self, victim: Victim, rates: Rates) -> Decision:
        if victim.tokens <= 0:
            return Decision(False, "Nothing is lost: the prefix cache keeps all that was computed.")
        if self.mode == "recompute":
            return Decision(False, f"{victim.tokens:,} tokens will be read again, as preemption is set.")
        if not victim.room:
            return Decision(
                False, f"{victim.tokens:,} tokens will be read again: host memory has no room for {_size(victim.size)}."
            )
        if self.mode == "swap":
            return Decision(True, f"{_size(victim.size)} go to host memory, as preemption is set.")
        return _cheaper(victim, rates)


def _cheaper(victim: Victim, rates: Rates) -> Decision:
    out, back, prefill = (_known(rate) for rate in rates)
    if out is None or back is None or prefill is None:
        missing = "the link" if out is None or back is None else "reading"
        return Decision(True, f"{_size(victim.size)} go to host memory: the speed of {missing} is not measured yet.")
    moving, reading = victim.size / out + victim.size / back, victim.tokens / prefill
    both = f"moving {_size(victim.size)} and back takes {_time(moving)}, reading {victim.tokens:,} tokens again"
    swap = moving < reading
    return Decision(swap, f"{'Swapped' if swap else 'Recomputed'}: {both} {_time(reading)}.")


def _known(rate: float | None) -> float | None:
    """The rate, None unless it is positive."""
    return rate if rate is not None and rate > 0 else None


def _size(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.0f} kB"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
