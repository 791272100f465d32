"""The parts of the cache that ``kvasir bench --cache`` measures: their ways, and the traces that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import KVKind, kv_kinds
from engine.cache.technique import PolicyTechnique
from engine.catalogue import records
from engine.protocol import OptionSpec, Value, keys


class FeatureVariant(NamedTuple):
    """One way of a part: switches by key in the order that they are set in.

    ``approximate``: its answers may differ from the first way's.
    """

    title: str
    settings: dict[str, Value]
    approximate: bool = False


class CacheFeature(NamedTuple):
    """A part of the cache. The other ways are compared with ``ways[0]``; ``traces`` are names."""

    key: str
    title: str
    ways: tuple[FeatureVariant, ...]
    traces: tuple[str, ...]


SHOWN_BY: Mapping[str, tuple[str, ...]] = {
    keys.PREFIX_CACHE: ("chats", "shared prompt", "document"),
    keys.PAGE_RESERVATION: ("chats", "shared prompt"),
    keys.CASCADE: ("shared prompt",),
    keys.KV_KIND: ("chats", "document"),
    keys.WINDOW_PAGES: ("chats", "document", "long answers", "returning"),
    keys.PAGE_POLICY: ("long answers",),
    keys.PREFIX_FIRST: ("mixed",),
    keys.PREEMPTION: ("crowd",),
    keys.HOST_CACHE: ("returning",),
}
"""The traces that show the effect of each switch."""


def parts(state: Mapping[str, OptionSpec], context: int) -> Iterator[CacheFeature | str]:
    """Yield the parts of the cache that can be compared with the loaded model, and a sentence for each that cannot."""
    for key, traces in SHOWN_BY.items():
        spec = state.get(key)
        if spec is None or spec.hidden:
            continue
        ways, refused = _ways(spec, context)
        yield from refused
        if len(ways) > 1:
            yield CacheFeature(key, spec.title, tuple(ways), traces)


def _ways(spec: OptionSpec, context: int) -> tuple[list[FeatureVariant], list[str]]:
    match spec.key:
        case keys.KV_KIND:
            ways = [FeatureVariant("16 bits", {keys.KV_KIND: "16bit"}), *_packed()]
        case keys.PAGE_POLICY:
            kept = max(64, context // 8 // PAGE_SIZE * PAGE_SIZE)
            ways = [_seeing(each, kept) for each in records(PolicyTechnique) if each.sees]
        case keys.PREEMPTION:
            # Without host memory nothing is moved; with it, pages that were given up may be found again there.
            ways = [
                FeatureVariant("recompute, no host memory", {keys.PREEMPTION: "recompute", keys.HOST_CACHE: 0.0}),
                FeatureVariant("recompute", {keys.PREEMPTION: "recompute"}),
                FeatureVariant("swap", {keys.PREEMPTION: "swap"}),
            ]
        case _:
            besides: dict[str, Value] = {keys.HOST_CACHE: 0.0} if spec.key == keys.PREFIX_FIRST else {}
            ways = [FeatureVariant(_word(spec, value), {spec.key: value} | besides) for value in spec.measure.compare]
    refused = {value: reason for value, reason in spec.disabled_choices.items() if value != spec.value}
    left_out = [f"{spec.title}, {value}: {reason}" for value, reason in refused.items()]
    return [way for way in ways if way.settings[spec.key] not in refused], left_out


def _seeing(policy: PolicyTechnique, kept: int) -> FeatureVariant:
    chosen: dict[str, Value] = {keys.PAGE_POLICY: policy.name}
    if policy.tokens:
        chosen[policy.tokens] = kept
    return FeatureVariant(policy.sees.format(kept), chosen, approximate=bool(policy.tokens))


def _packed() -> Iterator[FeatureVariant]:
    for each in kv_kinds():
        for bits in each.bits:
            kind = KVKind(each.name, bits, bits)
            chosen: dict[str, Value] = {keys.KV_KIND: each.name}
            if len(each.bits) > 1:
                chosen |= {keys.KV_KEY_BITS: str(bits), keys.KV_VALUE_BITS: str(bits)}
            if kind != KVKind():
                yield FeatureVariant(kind.title, chosen, approximate=True)


def _word(spec: OptionSpec, value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if spec.range.zero_means and value == 0:
        return spec.range.zero_means
    return spec.titles[value] if isinstance(value, str) else f"{value:g}"
