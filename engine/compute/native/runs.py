"""The runs of a step (engine/cache/stores/states.py) as native code reads them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cache.stores.states import StateRuns


class RunTables(NamedTuple):
    """Arrays to keep as long as their addresses are in use."""

    runs: np.ndarray
    begins: np.ndarray
    """[sequences + 1] int64: each one's first run."""
    parents: np.ndarray | None

    @classmethod
    def of(cls, table: StateRuns) -> RunTables:
        if table.begins is not None:
            return cls(table.runs, table.begins, table.parents)
        runs = np.ascontiguousarray(table.runs)
        return cls(runs, np.append(np.flatnonzero(runs[:, 4]), len(runs)).astype(np.int64), table.parents)

    @property
    def addresses(self) -> tuple[int | None, ...]:
        """Addresses of the three arrays, in this order; None for an absent one."""
        return tuple(None if array is None else array.ctypes.data for array in self)

    @property
    def sequences(self) -> int:
        return len(self.begins) - 1
