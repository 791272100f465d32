"""Techniques of the cache, registered with the catalogue: a new one is added here.

Whoever makes a cache imports this package by way of `engine.cache.stores.kinds`. It loads no torch.
"""

from __future__ import annotations

from engine import catalogue
from engine.cache.techniques import by_token, window
from engine.cache.techniques.kivi import technique as kivi
from engine.cache.techniques.quest import technique as quest

catalogue.register(
    window.FULL,
    window.WINDOW,
    quest.TECHNIQUE,
    by_token.SIXTEEN_BITS,
    by_token.INT8,
    by_token.FP8,
    by_token.INT4,
    kivi.TECHNIQUE,
)
