"""Records of steps, and the frame that they make."""

from __future__ import annotations

from engine.decoding.telemetry.records import StepRecord
from engine.decoding.telemetry.window import TelemetryWindow
from engine.protocol import MemoryByOwner, PageCounts, Telemetry

MEMORY = MemoryByOwner(
    scope="process", weights=1, kv_used=2, kv_reserved=3, other_kvasir=4, other_programs=5, total=100
)


def step(time: float, **changes: object) -> StepRecord:
    fields: dict[str, object] = {
        "time": time,
        "duration": 0.1,
        "host_seconds": 0.01,
        "decode_rows": 1,
        "prefill_rows": 0,
        "verify_rows": 0,
        "generated": 1,
        "drafts": (),
        "pages_used": 10,
        "pages_cached": 3,
        "live_tokens": 150,
        "waiting": 1,
        "running": 2,
        "prefilling": 0,
        "bytes_read": 1000,
        "preemptions": 0,
        "ttfts": (),
    }
    return StepRecord(**{**fields, **changes})  # type: ignore[arg-type]


PAGES = PageCounts(total=100, used=10, live_tokens=150, cached=3)


def frame(*records: StepRecord, now: float, **options: object) -> Telemetry:
    window = TelemetryWindow()
    for record in records:
        window.add(record)
    return window.frame(now, MEMORY, PAGES, **options)  # type: ignore[arg-type]
