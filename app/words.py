"""Figures in words that several parts of the window show."""

from __future__ import annotations

import re

from app.language import figure, plural
from engine.protocol import PageCounts, Telemetry

PAGE_TOKENS = 16
GB = 1e9
MB = 1e6
_CORES = re.compile(r"\((\d+) cores?\)")


def size(value: float) -> str:
    """Bytes for people, decimal units: "1.3 MB", "812 MB", "8.9 GB"."""
    if value < 0.9995 * GB:
        return f"{figure(value / MB, '.1f' if 0 < value < 9.95 * MB else '.0f')} MB"
    return f"{figure(value / GB, '.1f' if value < 100 * GB else '.0f')} GB"


def hardware(name: str) -> str:
    """A device's name; the engine has the cores of a processor in it, in English."""
    return _CORES.sub(lambda cores: plural("(1 core)", "({n} cores)", int(cores[1])), name)


def waste(pages: PageCounts) -> float:
    """Share of the slots in used pages that hold no token, 0..1."""
    slots = pages.used * PAGE_TOKENS
    return 1 - pages.live_tokens / slots if slots else 0.0


def kv_cached(frame: Telemetry) -> int:
    """Bytes of keys and values that no answer reads now, and that are evicted when room is needed."""
    pages = frame.pages
    return round(frame.memory.kv_used * pages.cached / pages.used) if pages.used else 0
