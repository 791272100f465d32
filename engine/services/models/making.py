"""Models that were begun to be made and are not done."""

from __future__ import annotations

from engine.protocol.making import MakeProgress
from engine.protocol.operations import ListUnfinished
from engine.services.operations import Context, Emit
from engine.services.quantise import plan


def unfinished(context: Context, request: ListUnfinished, emit: Emit) -> list[MakeProgress]:
    if request.discard:
        plan.discard(request.discard)
    return list(plan.unfinished())
