"""Step records of the last seconds, and what follows from them. Pure: time comes in as an argument."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest

import msgspec

from engine.decoding.telemetry.histograms import PER_STEP, PER_TOKEN, Histogram
from engine.decoding.telemetry.records import DraftRecord, EndedAnswer, StepRecord
from engine.protocol import Acceptance, Latencies, MemoryByOwner, PageCounts, QueueCounts, ServiceFigures, Telemetry

RATE_SECONDS = 1.0
"""Rates are over this long."""
MOST_PHASES = 500
"""Changes of phases in a frame."""
MINUTE = 60.0
"""Answers that were in time are counted over this long."""
KEPT_SECONDS = 10.0
"""Percentiles, medians and acceptance are over this long."""


class TelemetryWindow:
    """Takes in step records and makes frames. Times are seconds of the clock that stamped the records.

    A record's ``time`` is the end of its step. Not thread-safe.
    """

    def __init__(self) -> None:
        self._records: deque[StepRecord] = deque()
        self._last: StepRecord | None = None
        self._latencies: deque[tuple[float, float, int]] = deque()  # (time, seconds between tokens, tokens)
        self._energy: deque[tuple[float, float, int]] = deque()  # (time, joules so far, tokens so far)
        self._ended: deque[tuple[float, EndedAnswer]] = deque()
        self.totals: Counter[str] = Counter()
        """Counted since the start of the engine, by the names of engine/decoding/telemetry/prometheus.py."""
        self.histograms = {
            "inter_token_latency_seconds": Histogram(PER_TOKEN, "Time between tokens of an answer."),
            "iteration_tokens_total": Histogram(PER_STEP, "Tokens read and generated in a step."),
        }
        """Measured since the start of the engine."""
        self.steps = 0
        """Steps of the present model."""

    def add(self, record: StepRecord) -> None:
        seconds = inter_token_seconds(self._last, record)
        if seconds is not None:
            self._latencies.append((record.time, seconds, record.generated))
            self.histograms["inter_token_latency_seconds"].add(seconds, record.generated - len(record.ttfts))
        self.histograms["iteration_tokens_total"].add(record.rows.prefill + record.generated)
        self._records.append(record)
        self._last = record
        self.steps += 1
        self.totals.update(
            steps=1,
            generated=record.generated,
            prefilled=record.rows.prefill,
            proposed=sum(draft.draft_tokens for draft in record.drafts),
            accepted=sum(sum(draft.accepted) for draft in record.drafts),
            preemptions=record.preemptions,
            bytes_read=record.bytes_read,
            answers_started=len(record.ttfts),
            drafts=sum(draft.proposed[0] for draft in record.drafts if draft.proposed),
            busy=record.queue.running,
        )
        self._ended.extend((record.time, each) for each in record.ended)
        for each in record.ended:
            self.totals.update({f"{each.service} ended": 1, f"{each.service} in time": each.in_time})
        self._forget(record.time)

    def services(self, now: float, targets: Iterable[ServiceFigures]) -> list[ServiceFigures]:
        """The classes with the answers that ended in the last minute; only those of which there were any."""
        self._forget(now)
        ended = Counter(each.service for _, each in self._ended)
        in_time = Counter(each.service for _, each in self._ended if each.in_time)
        return [
            msgspec.structs.replace(each, ended=ended[each.service], in_time=in_time[each.service])
            for each in targets
            if ended[each.service]
        ]

    def add_energy(self, now: float, joules: float) -> None:
        """The GPU has taken ``joules`` by ``now``, counted from some time on."""
        if self._energy and joules < self._energy[-1][1]:
            self._energy.clear()  # another GPU, or its driver was loaded anew
        self._energy.append((now, joules, self.totals["generated"]))
        self._forget(now)

    def quiet(self, now: float) -> bool:
        """Return True if no step counts any more."""
        self._forget(now)
        return not self._records

    def model_changed(self) -> None:
        """Another model is loaded, or none is."""
        self._last, self.steps = None, 0

    def frame(
        self,
        now: float,
        memory: MemoryByOwner,
        pages: PageCounts,
        bandwidth: float | None = None,
        since: float = 0.0,
        idle: bool = False,
    ) -> Telemetry:
        """The state at ``now``. ``bandwidth`` is the device's, bytes a second. ``preemptions`` counts those after
        ``since`` (the receiver's previous frame). ``idle``: nothing runs, so the last record's queue is out of date."""
        self._forget(now)
        records = self._records
        last = self._last
        queue = QueueCounts(waiting=0, running=0, prefilling=0)
        if last is not None and not idle:
            queue = last.queue
        latencies = [(1e3 * seconds, tokens) for _, seconds, tokens in self._latencies]
        decoding = [r for r in records if r.time > now - RATE_SECONDS and _only_decodes(r)]
        return Telemetry(
            time=now,
            generated_per_second=rate(((r.generated, r) for r in records), now),
            prefilled_per_second=rate(((r.rows.prefill, r) for r in records), now),
            memory=memory,
            pages=pages,
            queue=queue,
            acceptance=acceptance(records),
            latency=Latencies(
                ttft_ms=quantile([(1e3 * t, 1) for r in records for t in r.ttfts], 0.5),
                itl_p50_ms=quantile(latencies, 0.5),
                itl_p95_ms=quantile(latencies, 0.95),
                step_ms=quantile([(1e3 * r.duration, 1) for r in records], 0.5),
                host_ms=quantile([(1e3 * r.host_seconds, 1) for r in records], 0.5),
            ),
            bytes_per_token=bytes_per_token(decoding),
            bytes_per_pass=bytes_per_pass(decoding),
            bandwidth_share=bandwidth_share(decoding, bandwidth),
            preemptions=sum(r.preemptions for r in records if r.time > since),
            captured=captured_share(records),
            eager_reason=commonest_reason(record.eager for record in records if record.captured is False),
            late_reason=commonest_reason(record.late for record in records if record.late),
            joules_per_token=joules_per_token(self._energy),
            phases=[change for r in records if r.time > since for change in r.phases][-MOST_PHASES:],
        )

    def _forget(self, now: float) -> None:
        while self._records and self._records[0].time < now - KEPT_SECONDS:
            self._records.popleft()
        while self._latencies and self._latencies[0][0] < now - KEPT_SECONDS:
            self._latencies.popleft()
        while self._ended and self._ended[0][0] < now - MINUTE:
            self._ended.popleft()
        while self._energy and self._energy[0][0] < now - KEPT_SECONDS:
            self._energy.popleft()


def rate(amounts: Iterable[tuple[int, StepRecord]], now: float) -> float:
    """Amount per second over the last RATE_SECONDS. A step's amount is spread evenly over its duration."""
    begin = now - RATE_SECONDS
    total = 0.0
    for amount, record in amounts:
        if not amount or record.time <= begin:
            continue
        inside = max(0.0, min(now, record.time) - max(begin, record.time - record.duration))
        total += amount * (min(1.0, inside / record.duration) if record.duration > 0 else 1.0)
    return total / RATE_SECONDS


def inter_token_seconds(before: StepRecord | None, record: StepRecord) -> float | None:
    """Seconds between tokens that a reader of one of the running answers saw in this step; None when none went on.

    The time since the end of the step before counts (a long prompt between two tokens is felt), if answers ran then.
    Tokens of one step arrive together; they share its time.
    """
    going_on = record.generated - len(record.ttfts)
    if going_on <= 0:
        return None
    waited = record.duration
    if before is not None and before.queue.running > 0:
        waited = max(waited, record.time - before.time)
    return waited / max(1.0, going_on / record.rows.decode) if record.rows.decode else waited


def quantile(samples: Sequence[tuple[float, int]], share: float) -> float | None:
    """The smallest value that at least ``share`` of the weight does not exceed; None of nothing."""
    ordered = sorted(samples)
    total = sum(weight for _, weight in ordered)
    reached = 0
    for value, weight in ordered:
        reached += weight
        if reached >= share * total:
            return value
    return None


def acceptance(records: Iterable[StepRecord]) -> list[Acceptance]:
    """Per proposer, over all records; length, reason and reasoning are the latest.

    An answer that is drafted for has a draft token at depth 1, so that those counted there are the rounds.
    """
    by_proposer: defaultdict[str, list[DraftRecord]] = defaultdict(list)
    for record in records:
        for draft in record.drafts:
            by_proposer[draft.proposer].append(draft)
    found = []
    for name, drafts in by_proposer.items():
        proposed = _added(draft.proposed for draft in drafts)
        accepted = _added(draft.accepted for draft in drafts)
        shares = (a / p if p else 0.0 for p, a in zip_longest(proposed, accepted[: len(proposed)], fillvalue=0))
        found.append(
            Acceptance(
                proposer=name,
                proposed=sum(draft.draft_tokens for draft in drafts),
                accepted=sum(accepted),
                by_depth=list(shares),
                draft_length=drafts[-1].draft_length,
                off_reason=drafts[-1].off_reason,
                tree_nodes=max(draft.tree_nodes for draft in drafts),
                tokens_per_step=1.0 + sum(accepted) / proposed[0] if proposed and proposed[0] else 1.0,
                reasoning=drafts[-1].reasoning,
            )
        )
    return found


def bytes_per_token(decoding: Sequence[StepRecord]) -> float | None:
    """Bytes of weights, keys and values read for each token generated."""
    tokens = sum(record.generated for record in decoding)
    return sum(record.bytes_read for record in decoding) / tokens if tokens else None


def bytes_per_pass(decoding: Sequence[StepRecord]) -> float | None:
    """Bytes of weights, keys and values that the model reads in a step, without what drafters read."""
    read = [record.bytes_read - record.drafting.bytes_read for record in decoding]
    return sum(read) / len(read) if read else None


def joules_per_token(readings: Sequence[tuple[float, float, int]]) -> float | None:
    """Energy over tokens generated, of (time, joules so far, tokens so far); pauses without a token do not count."""
    steps = [
        (after[1] - before[1], after[2] - before[2]) for before, after in pairwise(readings) if after[2] > before[2]
    ]
    tokens = sum(generated for _, generated in steps)
    return sum(joules for joules, _ in steps) / tokens if tokens else None


def bandwidth_share(decoding: Sequence[StepRecord], bandwidth: float | None) -> float | None:
    """Bytes read a second while decoding, as a share of what the device can read."""
    seconds = sum(record.duration for record in decoding)
    if not bandwidth or seconds <= 0:
        return None
    return sum(record.bytes_read for record in decoding) / seconds / bandwidth


def captured_share(records: Iterable[StepRecord]) -> float | None:
    """Steps that were a captured graph, as a share of those of a device that has them."""
    found = [record.captured for record in records if record.captured is not None]
    return sum(found) / len(found) if found else None


def commonest_reason(reasons: Iterable[str]) -> str:
    """Most frequent reason of steps; "" if there are none."""
    counts = Counter(reasons)
    return counts.most_common(1)[0][0] if counts else ""


def _only_decodes(record: StepRecord) -> bool:
    """Return True if no prompt was read in this step. Without the KV cache all rows of an answer are read for each
    token."""
    return record.generated > len(record.ttfts) and not (record.rows.prefill and record.rows.decode)


def _added(counts: Iterable[Sequence[int]]) -> list[int]:
    """The counts of each depth, added up; those that do not reach it count 0."""
    return [sum(depth) for depth in zip_longest(*counts, fillvalue=0)]
