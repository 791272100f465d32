"""What a loaded model can do, of what switches may need."""

from __future__ import annotations

from engine.cache.kinds import KVKind
from engine.cache.policies import WindowWithSinks
from engine.catalogue import Capability
from engine.core.loaded import LoadedModel
from engine.layers.linear.triton.runtime import machine_declines
from engine.models import arenas, restrictions
from engine.native.library import declines as native_declines

_GUESSERS: dict[str, Capability] = {
    "draft": "draft model",
    "exit": "several layers",
    "medusa": "medusa heads",
    "eagle": "eagle head",
    "mtp": "mtp layers",
}
"""What it takes to guess by a proposer of that name."""


def capabilities(model: LoadedModel) -> frozenset[Capability]:
    found: set[Capability] = {"model"}
    names = {proposer.name for proposer in model.proposers}
    found |= {capability for name, capability in _GUESSERS.items() if name in names}
    config = model.model.config if model.model is not None else None
    if config is None or not restrictions.refuses(WindowWithSinks(1024), config):
        found.add("sliding window")
    if model.packed:
        found.add("packed weights")
    if model.model is not None and not arenas.refuses(model.model.config, KVKind("kivi")):
        found.add("packed cache")
    if config is None or config.latent is None:
        found.add("page bounds")
    own_code_declines = machine_declines if model.device.type == "cuda" else native_declines
    if model.model is not None and own_code_declines(model.model.dtype, model.device) is None:
        found.add("native kernel")
    return frozenset(found)
