"""The choice between swapping and computing again follows what was measured, and says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.scheduling.preemption import TransferRates, Victim, swap_or_recompute

GPU = TransferRates(swap_out=20e9, swap_in=25e9, prefill=8_000)
SLOW_LINK = TransferRates(swap_out=1e9, swap_in=1e9, prefill=100_000)
LLAMA_1B = 32_768
"""Bytes of a token."""
NOT_YET = "is not measured yet."


def victim(tokens: int, room: bool = True) -> Victim:
    return Victim(tokens, tokens * LLAMA_1B, room)


@pytest.mark.parametrize(
    ("mode", "rates", "room", "swap", "says"),
    [
        ("auto", GPU, True, True, "Swapped: moving SIZE and back takes 12.1 ms, reading 4,096 tokens again 512.0 ms."),
        (
            "auto", SLOW_LINK, True, False,
            "Recomputed: moving SIZE and back takes 268.4 ms, reading 4,096 tokens again 41.0 ms.",
        ),
        ("auto", GPU, False, False, "4,096 tokens will be read again: host memory has no room for SIZE."),
        (
            "auto", TransferRates(None, None, 8_000), True, True,
            f"SIZE go to host memory: the speed of the link {NOT_YET}",
        ),
        ("auto", GPU._replace(prefill=None), True, True, f"SIZE go to host memory: the speed of reading {NOT_YET}"),
        ("auto", GPU._replace(swap_in=0.0), True, True, f"SIZE go to host memory: the speed of the link {NOT_YET}"),
        ("swap", SLOW_LINK, True, True, "SIZE go to host memory, as preemption is set."),
        ("swap", SLOW_LINK, False, False, "4,096 tokens will be read again: host memory has no room for SIZE."),
        ("recompute", GPU, True, False, "4,096 tokens will be read again, as preemption is set."),
    ],
)  # fmt: skip
def test_the_cheaper_is_taken_and_the_reason_given(
    mode: str, rates: TransferRates, room: bool, swap: bool, says: str
) -> None:
    decision = swap_or_recompute(mode, victim(4096, room), rates)  # type: ignore[arg-type]
    assert decision == (swap, says.replace("SIZE", "134.2 MB"))


def test_what_the_prefix_cache_keeps_costs_nothing_to_lose() -> None:
    for mode in ("auto", "swap", "recompute"):
        decision = swap_or_recompute(mode, victim(0), GPU)  # type: ignore[arg-type]
        assert not decision.swap
        assert "prefix cache keeps" in decision.reason


rates = st.one_of(st.none(), st.floats(1e3, 1e12))


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 40), st.booleans(), rates, rates, st.floats(1, 1e6))
def test_nobody_swaps_without_room_nor_at_a_loss(
    tokens: int, size: int, room: bool, out: float | None, back: float | None, prefill: float
) -> None:
    decision = swap_or_recompute("auto", Victim(tokens, size, room), TransferRates(out, back, prefill))
    assert room or not decision.swap
    assert decision.reason.endswith(".")
    if out is not None and back is not None and tokens and room:
        assert decision.swap == (size / out + size / back < tokens / prefill)
