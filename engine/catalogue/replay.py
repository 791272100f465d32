"""What to switch off where the same prompt is answered again to be measured."""

from __future__ import annotations

from engine.catalogue import BY_KEY
from engine.protocol import Value

REUSE = "prefix_cache"


def replayed(measured: str = "") -> dict[str, Value]:
    """Overrides of a request under which a prompt costs the same the second time: nothing of it is found in the cache.

    ``measured`` is the switch that is being compared: the reuse itself is left to its own comparison.
    """
    return {REUSE: False} if REUSE in BY_KEY and measured != REUSE else {}
