"""Collects the facts from which it is said why answers are as fast as they are; nothing of it waits for the engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.decoding.telemetry.why.facts import Facts, LastPrompt
from engine.decoding.telemetry.why.made_of import made_of
from engine.decoding.telemetry.why.rules import limit, reasons
from engine.loop.admission import NO_MODEL
from engine.protocol import Reasons, Why
from engine.services.answers.refused import Refused
from engine.services.hub import EngineHub

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel


async def why(hub: EngineHub, message: Why, prompt: LastPrompt | None) -> Reasons:
    """``prompt`` is the client's last one. Raises :class:`Refused` without a model."""
    loaded = hub.loaded
    if loaded is None:
        raise Refused("no_model", NO_MODEL)
    frame = await hub.frame()
    machine = await asyncio.to_thread(hub.probes.machine, loaded)
    facts = Facts(
        loaded.card,
        {spec.key: spec for spec in hub.engine.catalogue_state()},
        frame,
        machine,
        bandwidth=hub.bandwidth or 0.0,
        steps=hub.window.steps,
        prompt=prompt,
    )
    facts = _of_weights(loaded, facts)
    return Reasons(id=message.id, reasons=reasons(facts), limit=limit(facts), parts=made_of(facts))


def _of_weights(loaded: LoadedModel, facts: Facts) -> Facts:
    """Add the facts about the weights, if there are any: a test's model may have none."""
    model = loaded.model
    if model is None:
        return facts
    head = model.head
    return facts._replace(
        gpu=loaded.device.type != "cpu",
        weights=loaded.reads.weights,
        head=head.storage_size() if head.kind == "dense" else 0,
        dense=not loaded.reads.packed and all(linear.kind == "dense" for _, linear in model.layers[0].linears()),
        float32=loaded.command.options.dtype == "float32" and not loaded.reads.packed,
    )
