"""A ring of time series whose contents are always one contiguous slice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Ring:
    """The last ``capacity`` samples of ``series`` values each.

    Every sample is written twice, ``capacity`` apart, so that the window behind the write position is contiguous and
    reading copies nothing.
    """

    def __init__(self, capacity: int, series: int) -> None:
        self._capacity = capacity
        self._data = np.zeros((series + 1, 2 * capacity))
        self._at = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, time: float, values: Sequence[float]) -> None:
        """Time is in seconds; when it runs backwards (another engine) the ring starts anew."""
        if self._count and time < self.last:
            self._count = 0
        column = (time, *values)
        self._data[:, self._at] = column
        self._data[:, self._at + self._capacity] = column
        self._at = (self._at + 1) % self._capacity
        self._count = min(self._count + 1, self._capacity)

    @property
    def last(self) -> float:
        """The newest sample's time; meaningless while empty."""
        return float(self._data[0, (self._at - 1) % self._capacity])

    @property
    def ages(self) -> NDArray[np.float64]:
        """Seconds relative to the newest sample, shape (len,), all at most 0."""
        return self._window()[0] - self.last

    @property
    def values(self) -> NDArray[np.float64]:
        """Shape (series, len), oldest first. A view: valid until the next append."""
        return self._window()[1:]

    def _window(self) -> NDArray[np.float64]:
        end = self._at + self._capacity
        return self._data[:, end - self._count : end]
