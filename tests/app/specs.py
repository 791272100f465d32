"""Options and telemetry frames for the tests of panel and plots."""

from __future__ import annotations

from engine.protocol import Acceptance, MemoryByOwner, OptionSpec, PageCounts, QueueCounts, Telemetry
from tests.kit.specs import spec_of

GB = 10**9
DRAFTERS = ("draft", "ngram", "exit", "skip", "medusa", "eagle", "mtp", "assistant")


def switch(**changes: object) -> OptionSpec:
    fields: dict = {
        "key": "kv_cache",
        "title": "KV cache",
        "group": "Cache",
        "kind": "bool",
        "default": True,
        "value": True,
        "scope": "engine",
        "applies": "next request",
        "exactness": "lossless",
        "explains": "Keeps keys and values.",
        "shows": "tokens per second",
        "compare": [False, True],
    }
    return spec_of(**{**fields, **changes})


def choice(value: str = "off", **changes: object) -> OptionSpec:
    fields: dict = {
        "key": "speculation",
        "title": "Speculation",
        "group": "Speculation",
        "kind": "choice",
        "default": "off",
        "choices": ["off", "ngram", "draft"],
        "choice_titles": ["off", "n-gram", "draft model"],
        "compare": ["off", "ngram"],
    }
    return switch(**{**fields, "value": value, **changes})


def number(value: float = 0, **changes: object) -> OptionSpec:
    fields: dict = {
        "key": "draft_length",
        "title": "Draft length",
        "group": "Speculation",
        "kind": "int",
        "default": 0,
        "minimum": 0,
        "maximum": 16,
        "zero_means": "auto",
        "compare": [4, 0],
    }
    return switch(**{**fields, "value": value, **changes})


def frame(time: float, rate: float = 30.0, scope: str = "device", **changes: object) -> Telemetry:
    fields: dict = {
        "time": time,
        "generated_per_second": rate,
        "prefilled_per_second": 0.0,
        "memory": MemoryByOwner(
            scope=scope,  # type: ignore[arg-type]
            weights=4 * GB,
            kv_used=GB,
            kv_reserved=GB // 2,
            other_kvasir=GB // 2,
            other_programs=3 * GB,
            total=24 * GB,
        ),
        "pages": PageCounts(total=4096, used=612, live_tokens=9700, cached=153),
        "queue": QueueCounts(waiting=1, running=2, prefilling=1),
        "acceptance": [
            Acceptance(
                proposer="draft",
                proposed=100,
                accepted=71,
                by_depth=[0.9, 0.7, 0.5],
                draft_length=3,
                tokens_per_step=2.4,
            )
        ],
    }
    return Telemetry(**{**fields, **changes})
