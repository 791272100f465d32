"""Overrides of a request that answers the same prompt again to be measured."""

from __future__ import annotations

from engine.protocol import Value, keys


def replayed(measured: str = "") -> dict[str, Value]:
    """Overrides of a request under which a prompt costs the same the second time: nothing of it is found in the cache.

    ``measured`` is the switch that is being compared: the reuse itself is left to its own comparison.
    """
    return {keys.PREFIX_CACHE: False} if measured != keys.PREFIX_CACHE else {}
