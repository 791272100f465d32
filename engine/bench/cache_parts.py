"""The parts of the cache that ``kvasir bench --cache`` measures: their ways, and the traces that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE
from engine.catalogue import BY_KEY
from engine.catalogue.replay import REUSE
from engine.protocol import OptionSpec, Value


class Way(NamedTuple):
    """One way of a part: switches by key in the order that they are set in.

    ``approximate``: its answers may differ from the first way's.
    """

    title: str
    settings: dict[str, Value]
    approximate: bool = False


class Part(NamedTuple):
    """``ways[0]`` is what the others are held against; ``traces`` are names."""

    key: str
    title: str
    ways: tuple[Way, ...]
    traces: tuple[str, ...]


SHOWN_BY: Mapping[str, tuple[str, ...]] = {
    REUSE: ("chats", "shared prompt", "document"),
    "page_reservation": ("chats", "shared prompt"),
    "cascade": ("shared prompt",),
    "kv_kind": ("chats", "document"),
    "page_policy": ("long answers",),
    "admission": ("mixed",),
    "preemption": ("crowd",),
    "host_cache": ("returning",),
}
"""Which traces show what a switch is for."""


def parts(state: Mapping[str, OptionSpec], context: int) -> Iterator[Part | str]:
    """What can be compared with the loaded model; a sentence for what cannot."""
    for key, traces in SHOWN_BY.items():
        spec = state.get(key)
        if spec is None:
            continue
        ways, refused = _ways(spec, context)
        yield from refused
        if len(ways) > 1:
            yield Part(key, spec.title, tuple(ways), traces)


def _ways(spec: OptionSpec, context: int) -> tuple[list[Way], list[str]]:
    match spec.key:
        case "kv_kind":
            ways = [Way("16 bits", {"kv_kind": "16bit"}), *_packed()]
        case "page_policy":
            kept = max(64, context // 8 // PAGE_SIZE * PAGE_SIZE)
            window: dict[str, Value] = {"page_policy": "window_sinks", "window_tokens": kept}
            quest: dict[str, Value] = {"page_policy": "quest", "quest_tokens": kept}
            ways = [
                Way("all pages", {"page_policy": "keep_all"}),
                Way(f"4 and the last {kept}", window, approximate=True),
                Way(f"QUEST, {kept} tokens", quest, approximate=True),
            ]
        case "preemption":
            # Without host memory nothing is moved; with it, pages that were given up may be found again there.
            ways = [
                Way("recompute, no host memory", {"preemption": "recompute", "host_cache": 0.0}),
                Way("recompute", {"preemption": "recompute"}),
                Way("swap", {"preemption": "swap"}),
            ]
        case "admission":
            ways = [Way(_word(spec, value), {spec.key: value, "host_cache": 0.0}) for value in spec.compare]
        case _:
            ways = [Way(_word(spec, value), {spec.key: value}) for value in spec.compare]
    refused = {value: reason for value, reason in spec.disabled_choices.items() if value != spec.value}
    left_out = [f"{spec.title}, {value}: {reason}" for value, reason in refused.items()]
    return [way for way in ways if way.settings[spec.key] not in refused], left_out


def _packed() -> Iterator[Way]:
    for kind in ("int8", "int4"):
        yield Way(kind, {"kv_kind": kind}, approximate=True)
    for bits in ("4", "2"):
        kivi: dict[str, Value] = {"kv_key_bits": bits, "kv_value_bits": bits, "kv_kind": "kivi"}
        yield Way(f"KIVI {bits}-bit", kivi, approximate=True)


def _word(spec: OptionSpec, value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if spec.zero_means and value == 0:
        return spec.zero_means
    entry = BY_KEY[spec.key]
    if isinstance(value, str):
        return next(choice.title for choice in entry.choices if choice.key == value)
    return f"{value:g}"
