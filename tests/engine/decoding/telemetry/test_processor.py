from __future__ import annotations

import subprocess
import sys
import time

import pytest

from engine.decoding.telemetry import processor
from engine.decoding.telemetry.processor import OtherPrograms


def test_what_neither_idles_nor_is_this_process_is_others(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(100.0, 50.0, 10.0), (120.0, 55.0, 14.0)])
    monkeypatch.setattr(processor, "_times", lambda parent: next(times))
    assert OtherPrograms().share() == pytest.approx((20 - 5 - 4) / 20)


def test_a_moment_too_short_for_the_counters_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(100.0, 50.0, 10.0), (100.1, 50.0, 10.0)])
    monkeypatch.setattr(processor, "_times", lambda parent: next(times))
    assert OtherPrograms().share() == 0.0


def test_a_program_that_computes_is_seen() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        others = OtherPrograms()
        while not others.share():
            time.sleep(0.1)
        assert 0 < others.share() <= 1
    finally:
        busy.kill()
        busy.wait()
