"""How much of the machine's processor other programs take, while something is measured."""

from __future__ import annotations

import psutil

_LEAST_S = 0.2
"""Seconds of processor time below which the counters' ticks are too coarse."""


class OtherPrograms:
    """Measures what other programs took since it was made."""

    def __init__(self) -> None:
        self._began = _times()

    def share(self) -> float:
        """The share (0..1) of the time of all cores that neither this process nor idling took."""
        total, idle, own = (now - then for now, then in zip(_times(), self._began, strict=True))
        return max(0.0, total - idle - own) / total if total > _LEAST_S else 0.0


def _times() -> tuple[float, float, float]:
    """Seconds since the start: of all cores, of it idle, and of this process."""
    all_cores = psutil.cpu_times()._asdict()
    for counted in ("guest", "guest_nice"):  # within user and nice already
        all_cores.pop(counted, None)
    own = psutil.Process().cpu_times()
    return sum(all_cores.values()), all_cores["idle"] + all_cores.get("iowait", 0.0), own.user + own.system
