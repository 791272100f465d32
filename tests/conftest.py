"""For all tests: Hypothesis judges no durations, which say more of a busy machine than of the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
