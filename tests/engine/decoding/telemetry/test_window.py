from __future__ import annotations

import random

import msgspec
import pytest

from engine.decoding.telemetry.prometheus import metrics
from engine.decoding.telemetry.records import DraftCost, DraftRecord, EndedAnswer, StepRows
from engine.decoding.telemetry.window import (
    KEPT_SECONDS,
    TelemetryWindow,
    acceptance,
    inter_token_seconds,
    quantile,
    rate,
)
from engine.protocol import GpuReading, ServiceFigures
from tests.engine.decoding.telemetry.steps import MEMORY, PAGES, frame, running, step


def test_nothing_happened() -> None:
    empty = frame(now=5.0)
    assert (empty.generated_per_second, empty.prefilled_per_second) == (0, 0)
    assert empty.latency.ttft_ms is None
    assert empty.latency.itl_p50_ms is None
    assert empty.bandwidth_share is None
    assert empty.queue.running == 0


def test_the_share_of_captured_steps_and_why_the_others_were_not() -> None:
    window = frame(step(0.1), step(0.2), now=0.3)
    assert (window.captured, window.eager_reason) == (None, ""), "a device without graphs"
    records = [step(0.1 * i, captured=True) for i in range(1, 7)]
    records += [step(0.7, captured=False, eager="a prompt"), step(0.8, captured=False, eager="it is new")]
    records += [step(0.9, captured=False, eager="a prompt"), step(1.0, captured=True)]
    mixed = frame(*records, now=1.1)
    assert (mixed.captured, mixed.eager_reason, mixed.late_reason) == (0.7, "a prompt", "")
    late = [step(0.1 * i, captured=True, late="its trial failed" if i < 3 else "") for i in range(1, 7)]
    assert frame(*late, now=0.7).late_reason == "its trial failed"


def test_steady_decoding() -> None:
    records = [step(0.1 * i, generated=4, rows=StepRows(decode=4)) for i in range(1, 101)]
    now = frame(*records, now=10.0, bandwidth=100_000.0)
    assert now.generated_per_second == pytest.approx(40)
    assert now.latency.itl_p50_ms == pytest.approx(100)
    assert now.latency.itl_p95_ms == pytest.approx(100)
    assert now.latency.step_ms == pytest.approx(100)
    assert now.latency.host_ms == pytest.approx(10)
    assert now.bytes_per_token == pytest.approx(250)
    assert now.bandwidth_share == pytest.approx(0.1)
    assert now.pages == PAGES
    assert (now.queue.waiting, now.queue.running) == (1, 2)


def test_a_rate_adds_up_to_what_was_made() -> None:
    """Frames of one window after another see every token exactly once, whatever the steps' lengths."""
    rng = random.Random(3)
    records, time = [], 0.0
    for _ in range(200):
        duration = rng.choice([0.01, 0.3, 2.5])
        time += duration + rng.choice([0, 0.2])
        records.append(step(time, duration=duration, generated=rng.randrange(9)))
    made = sum(rate(((r.generated, r) for r in records), now) for now in range(1, int(time) + 2))
    assert made == pytest.approx(sum(r.generated for r in records))


def test_a_long_step_counts_at_its_own_speed() -> None:
    reading = step(10.0, duration=4.0, rows=StepRows(prefill=400), generated=1, ttfts=(4.0,))
    now = frame(reading, now=10.0)
    assert now.prefilled_per_second == pytest.approx(100)
    assert now.latency.ttft_ms == 4000
    assert now.latency.itl_p50_ms is None  # its only token was a first one
    assert now.bytes_per_token is None
    assert now.bytes_per_pass is None


def test_what_a_pass_reads_is_counted_without_drafters() -> None:
    drafted = step(1.0, generated=4, bytes_read=1500, drafting=DraftCost(seconds=0.01, passes=3, bytes_read=500))
    now = frame(step(0.9), drafted, now=1.1)
    assert now.bytes_per_pass == 1000
    assert now.bytes_per_token == 500


def test_old_records_are_forgotten() -> None:
    window = TelemetryWindow()
    for i in range(10_000):
        window.add(step(0.1 * i))
    assert len(window._records) <= KEPT_SECONDS * 10 + 2
    assert len(window._latencies) <= KEPT_SECONDS * 10 + 2
    late = window.frame(2000.0, MEMORY, PAGES, idle=True)
    assert late.generated_per_second == 0
    assert late.latency.itl_p50_ms is None
    assert late.queue.running == 0
    assert window.totals["generated"] == 10_000


def test_time_between_tokens() -> None:
    # Two answers, three accepted tokens each, arrive together after 0.3 s.
    assert inter_token_seconds(None, step(1, duration=0.3, generated=6, rows=StepRows(decode=2))) == pytest.approx(0.1)
    # A long prompt was read in between: the reader waited for both steps.
    before = step(1.0, duration=2.0, rows=StepRows(prefill=500), generated=0)
    assert inter_token_seconds(before, step(1.2, duration=0.1)) == pytest.approx(0.2)
    # Nothing ran before: only this step counts.
    assert inter_token_seconds(before._replace(queue=running(0)), step(9.0, duration=0.1)) == pytest.approx(0.1)
    # Without the KV cache the rows of an answer count as reading.
    assert inter_token_seconds(None, step(1, rows=StepRows(prefill=40), generated=1)) == pytest.approx(0.1)


def test_quantile() -> None:
    assert quantile([], 0.5) is None
    assert quantile([(3.0, 1), (1.0, 1), (2.0, 1)], 0.5) == 2.0
    assert quantile([(1.0, 99), (9.0, 1)], 0.95) == 1.0
    assert quantile([(1.0, 9), (9.0, 1)], 0.95) == 9.0


def test_acceptance_by_depth() -> None:
    records = [
        step(1, drafts=(DraftRecord("draft", (4, 4), (3, 1), 2, draft_tokens=8),)),
        step(
            2,
            drafts=(
                DraftRecord("draft", (1,), (1,), 1, draft_tokens=1, reasoning="draft model, 1 ahead"),
                DraftRecord("ngram", (), (), 0, "Nothing repeats."),
            ),
        ),
    ]
    draft, ngram = acceptance(records)
    assert (draft.proposer, draft.proposed, draft.accepted, draft.draft_length) == ("draft", 9, 5, 1)
    assert draft.by_depth == [4 / 5, 1 / 4]
    assert draft.tokens_per_step == 1 + 5 / 5
    assert draft.reasoning == "draft model, 1 ahead"
    assert (ngram.by_depth, ngram.off_reason, ngram.tokens_per_step) == ([], "Nothing repeats.", 1.0)


def test_acceptance_of_trees_counts_answers_by_depth_and_all_drafts() -> None:
    records = [
        step(1, drafts=(DraftRecord("eagle", (2, 2, 1), (2, 1, 0), 3, tree_nodes=20, draft_tokens=30),)),
        step(2, drafts=(DraftRecord("eagle", (1, 1), (1, 1), 3, tree_nodes=8, draft_tokens=8),)),
    ]
    (eagle,) = acceptance(records)
    assert (eagle.proposed, eagle.accepted, eagle.tree_nodes) == (38, 5, 20)
    assert eagle.by_depth == [1.0, 2 / 3, 0.0]
    assert eagle.tokens_per_step == 1 + 5 / 3


def test_preemptions_since_the_last_frame() -> None:
    records = [step(1, preemptions=1), step(2, preemptions=2), step(3)]
    assert frame(*records, now=3, since=1.5).preemptions == 2
    assert frame(*records, now=3, since=0).preemptions == 3


def test_another_model() -> None:
    window = TelemetryWindow()
    window.add(step(1))
    window.model_changed()
    now = window.frame(1.1, MEMORY, PAGES)
    assert now.queue.waiting == 0


def test_prometheus_text() -> None:
    window = TelemetryWindow()
    window.add(step(1, drafts=(DraftRecord("draft", (4, 4), (3, 1), 2, draft_tokens=8),), ttfts=(0.5,)))
    text = metrics(window.totals, window.frame(1.0, MEMORY, PAGES, bandwidth=1e5))
    lines = text.splitlines()
    assert "kvasir_steps_total 1" in lines
    assert "kvasir_proposed_total 8" in lines
    assert "kvasir_accepted_total 4" in lines
    assert 'kvasir_memory_bytes{owner="kv_reserved",scope="process"} 3' in lines
    assert "kvasir_ttft_ms 500" in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    for line in lines:
        assert line.startswith(("# ", "kvasir_"))
        assert line.startswith("# ") or float(line.rsplit(" ", 1)[1]) >= 0


def test_energy_for_each_token_leaves_out_pauses() -> None:
    window = TelemetryWindow()
    assert window.frame(0.0, MEMORY, PAGES).joules_per_token is None
    window.add_energy(0.0, 0.0)
    window.add(step(0.4, generated=10))
    window.add_energy(0.5, 100.0)
    window.add_energy(1.0, 130.0)  # nothing was generated: the GPU rested
    window.add(step(1.4, generated=30))
    window.add_energy(1.5, 230.0)
    assert window.frame(1.5, MEMORY, PAGES).joules_per_token == (100 + 100) / 40
    assert window.frame(12.0, MEMORY, PAGES).joules_per_token is None, "nothing in the last seconds"


def test_energy_that_begins_anew_is_not_compared() -> None:
    window = TelemetryWindow()
    window.add_energy(0.0, 500.0)
    window.add(step(0.4, generated=10))
    window.add_energy(0.5, 0.0)  # another GPU
    assert window.frame(0.5, MEMORY, PAGES).joules_per_token is None
    window.add(step(0.9, generated=10))
    window.add_energy(1.0, 20.0)
    assert window.frame(1.0, MEMORY, PAGES).joules_per_token == 2.0


def test_the_gpu_in_prometheus_text() -> None:
    window = TelemetryWindow()
    frame = window.frame(1.0, MEMORY, PAGES)
    assert "gpu" not in metrics(window.totals, frame)
    reading = GpuReading(watts=250.5, celsius=61.0, joules=1000.0)
    text = metrics(window.totals, msgspec.structs.replace(frame, gpu=reading, joules_per_token=3.5))
    lines = text.splitlines()
    assert "kvasir_gpu_watts 250.5" in lines
    assert "kvasir_gpu_celsius 61" in lines
    assert "kvasir_gpu_joules_total 1000" in lines
    assert "kvasir_joules_per_token 3.5" in lines
    assert "core_mhz" not in text, "what the GPU does not say is not made up"


def test_answers_in_time_are_counted_for_a_minute() -> None:
    window, targets = (
        TelemetryWindow(),
        [ServiceFigures(service=name, first_token=1, between_tokens=1) for name in "ab"],
    )
    window.add(step(1.0, ended=(EndedAnswer("b", in_time=True), EndedAnswer("b", in_time=False))))
    window.add(step(30.0, ended=(EndedAnswer("b", in_time=True),)))
    told = [(each.service, each.in_time, each.ended) for each in window.services(40.0, targets)]
    assert told == [("b", 2, 3)]
    assert [(each.in_time, each.ended) for each in window.services(70.0, targets)] == [(1, 1)]
    assert window.services(91.0, targets) == []
    assert (window.totals["b in time"], window.totals["b ended"]) == (2, 3)
