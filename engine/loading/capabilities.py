"""The capabilities of a loaded model that options may depend on."""

from __future__ import annotations

from engine.attention.interface import AttnProblem, AttnSpec
from engine.attention.registry import choose
from engine.cache.policies import QuestPolicy, WindowWithSinks
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import PackedKV
from engine.catalogue import Capability, keys, option
from engine.catalogue.exclusions import excluded
from engine.loading.model import LoadedModel
from engine.models import arenas
from engine.models.base import CausalLM
from engine.native.library import declines as native_declines
from engine.native.proof import machine_declines


def capabilities(model: LoadedModel) -> frozenset[Capability]:
    found: set[Capability] = {"model"}
    names = {proposer.name for proposer in model.proposers}
    found |= {need for method in option(keys.SPECULATION).choices if method.key in names for need in method.needs}
    config = model.model.config if model.model is not None else None
    if config is None or not excluded(config, keys.PAGE_POLICY, WindowWithSinks.name):
        found.add("sliding window")
    if config is None or not excluded(config, keys.PAGE_POLICY, QuestPolicy.name):
        found.add("page bounds")
    if model.packed:
        found.add("packed weights")
    if model.model is not None and not arenas.refuses(model.model.config, KVKind("kivi")):
        found.add("packed cache")
    own_code_declines = machine_declines if model.device.type == "cuda" else native_declines
    if model.model is not None and own_code_declines(model.model.dtype, model.device) is None:
        found.add("native kernel")
    if model.model is None or _reads_shared_keys_once(model.model, model.stores[0].view(0)):
        found.add("shared reads")
    return frozenset(found)


def _reads_shared_keys_once(model: CausalLM, kv: PackedKV) -> bool:
    """Whether the attention backend in use can read keys that several answers share in a separate call."""
    config = model.config
    width = config.head_dim if config.latent is None else config.cached_width
    spec = AttnSpec(1.0, softcap=config.attention_softcap)
    alone = AttnProblem(model.device.type, model.dtype, spec, kv.kind, head_dims=(width, kv.v_dim))
    usual, best = (choose(alone._replace(shared=shared)).backend.name for shared in (False, True))
    return usual == best
