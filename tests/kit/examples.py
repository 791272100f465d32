"""How many examples are tried: all of them in Hypothesis' profile ``full``, a quarter in ``quick``.

``make test`` takes ``quick``, as every run does that names none; ``make test-all`` takes ``full``. Neither judges
durations, which tell of a busy machine, not of the code.
"""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import settings

_FULL = 100
LEAST = 10
T = TypeVar("T")

settings.register_profile("full", max_examples=_FULL, deadline=None)
settings.register_profile("quick", max_examples=_FULL // 4, deadline=None)


def examples(full: int, **more: Any) -> settings:
    """``full`` examples in the profile of that name, their share in others but no fewer than :data:`LEAST`; ``more``
    is passed on to Hypothesis."""
    assert settings.default is not None
    share = full * settings.default.max_examples // _FULL
    return settings(max_examples=min(full, max(LEAST, share)), **more)


def some(*values: T, more: tuple[T, ...] = ()) -> tuple[T, ...]:
    """These; in the profile ``full`` these and ``more``. Asked within a test, when the profile is chosen."""
    assert settings.default is not None
    return (*values, *more) if settings.default.max_examples == _FULL else values
