"""Phases of answers on their way, told as they change."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decoding.request import Request
from engine.decoding.scheduling.plan import Slice
from engine.protocol import Phase, PhaseChange


class Phases:
    """What each answer does now. ``take`` gives what changed since it was last called."""

    def __init__(self) -> None:
        self._now: dict[tuple[str, int], Phase] = {}
        self._changes: list[PhaseChange] = []

    def tell(self, request: Request, phase: Phase, at: float) -> None:
        """The answer is in ``phase`` from ``at`` on, seconds of the engine's clock."""
        if self._now.get(request.owner) == phase:
            return
        self._now[request.owner] = phase
        if phase == "ended":
            del self._now[request.owner]
        self._changes.append(
            PhaseChange(
                id=request.id,
                answer=request.answer,
                phase=phase,
                at=at,
                chat=request.chat,
                service=request.standing.service,
                prompt=request.prompt_length,
                generated=request.generated,
            )
        )

    def gave_way(self, request: Request, at: float) -> None:
        """The answer gave its pages up."""
        self.tell(request, "preempted" if request.cache.held is None else "swapped", at)

    def plan(self, slices: Sequence[Slice[Request]], running: Sequence[Request], now: float) -> None:
        """A step of these slices begins; who runs besides pauses."""
        for piece in slices:
            self.tell(piece.sequence, "decode" if piece.rows == 1 and piece.last else "prefill", now)
        if len(slices) < len(running):
            served = {piece.sequence.owner for piece in slices}
            for request in running:
                if request.owner not in served:
                    self.tell(request, "paused", now)

    def take(self) -> tuple[PhaseChange, ...]:
        changes, self._changes = self._changes, []
        return tuple(changes)
