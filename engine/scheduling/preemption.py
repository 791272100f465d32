"""What becomes of a preempted answer's keys and values: copied to host memory and back, or computed again."""

from __future__ import annotations

from typing import Literal, NamedTuple

Mode = Literal["auto", "recompute", "swap"]


class Rates(NamedTuple):
    """What was measured so far; None where nothing was. Bytes per second over the link, tokens per second read."""

    swap_out: float | None = None
    swap_in: float | None = None
    prefill: float | None = None


class Victim(NamedTuple):
    """What is at stake."""

    tokens: int
    """Whose keys and values would have to be computed again: not those that the prefix tree keeps on the device."""
    size: int
    """Bytes of these, in all stores."""
    room: bool
    """Whether host memory has room for them."""


class Decision(NamedTuple):
    """``reason`` is a sentence for the log and the window."""

    swap: bool
    reason: str


class SwapOrRecompute:
    """Takes what costs less time: bytes over the link and back, or tokens read again, by what was measured.

    In mode "auto" a rate that nobody has measured yet is found out by swapping. "swap" and "recompute" do as they say,
    except that nobody swaps without room.
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
    """A rate that can be divided by."""
    return rate if rate is not None and rate > 0 else None


def _size(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.0f} kB"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
