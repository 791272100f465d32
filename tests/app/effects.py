"""Figures of comparisons for the tests of the panel."""

from __future__ import annotations

from engine.protocol import Compared, Effect, Metric

SPEED = Metric(figure="tokens_per_second", title="tokens/s")
FIRST = Metric(figure="ttft_ms", title="first token", unit="ms", lower_is_better=True)
BYTES = Metric(
    figure="kv_bytes_per_token", title="KV cache per token", unit="bytes", lower_is_better=True, counted=True
)
WASTE = Metric(figure="unused_slots", title="unused slots", unit="%", lower_is_better=True)


def effect(metric: Metric = SPEED, **changes: object) -> Effect:
    fields: dict = {
        "metric": metric,
        "before": 28.1,
        "after": 60.3,
        "ratio": 2.146,
        "low": 1.94,
        "high": 2.31,
        "pairs": 8,
        "verdict": "better",
    }
    return Effect(**{**fields, **changes})


def result(*effects: object, **changes: object) -> Compared:
    fields: dict = {
        "id": "1",
        "key": "speculation",
        "values": ["off", "ngram"],
        "runs": [],
        "same": True,
        "before": 28.1,
        "after": 60.3,
        "effects": list(effects),
    }
    return Compared(**{**fields, **changes})
