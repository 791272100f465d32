"""The capabilities of a loaded model that options may depend on."""

from __future__ import annotations

from engine.base.devices import traits
from engine.cache.stores.kinds import KVKind, KVTechnique
from engine.cache.stores.packed import PackedKV
from engine.cache.stores.store import KVStore
from engine.cache.technique import PolicyTechnique
from engine.catalogue import Capability, option, records
from engine.catalogue.exclusions import excluded
from engine.compute.attention.interface import AttnProblem, AttnSpec
from engine.compute.attention.registry import choose
from engine.compute.models import arenas
from engine.compute.models.base import CausalLM
from engine.compute.native import early
from engine.compute.native.gpu import TURING
from engine.compute.native.library import declines as native_declines
from engine.compute.native.proof import machine_declines
from engine.compute.sampling import device
from engine.compute.sampling.sampler import by_torch
from engine.formats.mapped import stays_mapped
from engine.loading.model import LoadedModel
from engine.loading.runners import quantises_activations, resident_reasons
from engine.protocol import keys


def capabilities(model: LoadedModel) -> frozenset[Capability]:
    found: set[Capability] = {"model"}
    names = {proposer.name for proposer in model.drafting.proposers}
    found |= {need for method in option(keys.SPECULATION).choices if method.key in names for need in method.needs}
    if model.reads.packed:
        found.add("packed weights")
    lm = model.model
    if lm is None:
        policies = records(PolicyTechnique)
        return frozenset(found | {"shared reads"} | {need for each in policies for need in each.choice.needs})
    if model.files is not None and model.files.checkpoint.dense_head:
        found.add("dense head")
    if traits(model.device).kernels:
        declined = machine_declines(lm.dtype, model.device, TURING)
    else:
        declined = native_declines(lm.dtype, model.device)
    has: dict[Capability, bool] = {
        "table apart": stays_mapped(model.device) and (not lm.head.tied or lm.config.layer_inputs > 0),
        "layer windows": 0 < arenas.window_of(lm.config, KVKind(windowed=True)) < model.limit,
        "native kernel": declined is None,
        "quantised activations": quantises_activations(lm),
        "shared reads": all(_reads_shared_keys_once(lm, kv) for kv in forms(model.stores[0])),
        "graphs": _captures(model, lm),
        "early launch": early.unavailable(model.device) is None,
        "resident products": any(reason is None for _, reason in resident_reasons(lm)),
        "async steps": draws_there(model),
    }
    cached: list[KVTechnique | PolicyTechnique] = [*records(KVTechnique), *records(PolicyTechnique)]
    has |= {need: _serves(lm, each) for each in cached for need in each.choice.needs}
    return frozenset(found | {capability for capability, holds in has.items() if holds})


def _serves(model: CausalLM, technique: KVTechnique | PolicyTechnique) -> bool:
    """Return True if a model of this shape can be served with a technique of the cache."""
    if isinstance(technique, KVTechnique):
        return not arenas.refuses(model.config, KVKind(technique.name))
    return not excluded(model.config, technique.switch, technique.name)


def _captures(model: LoadedModel, lm: CausalLM) -> bool:
    """Return True if decoding steps can be captured, as far as the model and its attention say."""
    if not model.graphs or lm.uncaptured:
        return False
    return all(choose(problem(lm, kv)).backend.captures for kv in forms(model.stores[0]))


def forms(store: KVStore) -> list[PackedKV]:
    """One of the layers' arenas for each width of heads that a model has."""
    return list({(kv.k_dim, kv.v_dim): kv for kv in map(store.view, range(store.layers))}.values())


def problem(model: CausalLM, kv: PackedKV) -> AttnProblem:
    """Attention problem of these arenas, in a layer that sees all keys."""
    spec, widths = AttnSpec(1.0, softcap=model.config.attention.softcap), (kv.k_dim, kv.v_dim)
    return AttnProblem(model.device.type, model.dtype, spec, kv.kind, head_dims=widths, kv_dtype=model.kv_dtype)


def draws_there(model: LoadedModel) -> bool:
    """Return True if tokens are drawn on a GPU by Kvasir's kernels."""
    lm = model.model
    if lm is None or not traits(model.device).kernels:
        return False
    return device.declines(lm.dtype, model.card.vocabulary, model.device, by_torch) is None


def _reads_shared_keys_once(model: CausalLM, kv: PackedKV) -> bool:
    """Return True if the attention backend in use can read keys that several answers share in a separate call."""
    alone = problem(model, kv)
    usual, best = (choose(alone._replace(shared=shared)).backend.name for shared in (False, True))
    return usual == best
