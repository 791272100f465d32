"""Backend calls that make up one attention: the parts of a batch whose rows are restricted (`Batch.views`).

Recent keys are stored apart from packed ones, and sinks apart from the window. Each part is attention over a range of
keys, and the parts are disjoint, so that their results merge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.compute.attention.interface import KeyRange
from engine.compute.batch import RowViews


class AttentionPart(NamedTuple):
    """One call: over the recent arenas or the main ones, with the sinks' queries or the rows' own; None: all keys."""

    recent: bool
    sinks: bool
    keys: KeyRange | None


def parts_of(
    views: RowViews | None, keys: KeyRange | None, packed: bool, window: int | None = None
) -> list[AttentionPart]:
    """The parts that have any key, at least one. `packed`: the arenas hold only what is before `packed_until`. `window`
    is the layer's."""
    views, every = views or RowViews(), keys or KeyRange()
    own = (
        KeyRange(views.first, _until(views, window), ahead=True) if sees_ahead(views, window) else KeyRange(views.first)
    )
    seen = [(False, own.within(every))]
    if views.sinks is not None:
        seen.append((True, KeyRange(None, views.sinks).within(every)))
    stored = [(False, KeyRange())]
    if packed:
        assert views.packed_until is not None, "whoever packs says how far"
        stored = [(False, KeyRange(None, views.packed_until)), (True, KeyRange(views.packed_until))]
    found = [(recent, sinks, range_.within(part)) for sinks, range_ in seen for recent, part in stored]
    some = [part for part in found if not _empty(part[2])] or found[:1]
    return [
        AttentionPart(recent, sinks, None if range_.first is None and range_.stop is None else range_)
        for recent, sinks, range_ in some
    ]


def sees_ahead(views: RowViews | None, window: int | None) -> bool:
    """Return True if rows see keys after their own in a layer with this window."""
    return views is not None and views.until is not None and (views.ahead == "all" or window is not None)


def _until(views: RowViews, window: int | None) -> np.ndarray | None:
    if views.until is None or views.places is None or window is None:
        return views.until
    return np.minimum(views.until, views.places + window)


def _empty(keys: KeyRange) -> bool:
    return keys.stop is not None and bool(np.all(keys.stop <= (0 if keys.first is None else keys.first)))
