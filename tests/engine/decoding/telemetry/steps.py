"""Records of steps, and the frame that they make."""

from __future__ import annotations

from engine.decoding.telemetry.records import StepRecord, StepRows
from engine.decoding.telemetry.window import TelemetryWindow
from engine.protocol import MemoryByOwner, PageCounts, QueueCounts, Telemetry

MEMORY = MemoryByOwner(
    scope="process", weights=1, kv_used=2, kv_reserved=3, other_kvasir=4, other_programs=5, total=100
)
PAGES = PageCounts(total=100, used=10, live_tokens=150, cached=3)


def running(answers: int, waiting: int = 0) -> QueueCounts:
    return QueueCounts(waiting=waiting, running=answers, prefilling=0)


def step(time: float, **changes: object) -> StepRecord:
    fields: dict[str, object] = {
        "time": time,
        "duration": 0.1,
        "host_seconds": 0.01,
        "rows": StepRows(decode=1),
        "generated": 1,
        "drafts": (),
        "pages": PAGES,
        "queue": running(2, 1),
        "bytes_read": 1000,
        "preemptions": 0,
        "ttfts": (),
    }
    return StepRecord(**{**fields, **changes})  # type: ignore[arg-type]


def frame(*records: StepRecord, now: float, **options: object) -> Telemetry:
    window = TelemetryWindow()
    for record in records:
        window.add(record)
    return window.frame(now, MEMORY, PAGES, **options)  # type: ignore[arg-type]
