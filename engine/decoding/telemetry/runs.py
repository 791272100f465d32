"""Runs of models on this machine: how fast they decoded and read prompts, and what drafting brought.

One small file in the data folder, written between answers, that expectations of speed (`kvasir models fit`) are read
from.
"""

from __future__ import annotations

import contextlib
import logging
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from engine.base import folders
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.decoding.telemetry.records import StepRecord

_log = logging.getLogger(__name__)

MOST, ALIKE = 400, 5
"""Runs that are kept, and those of one kind among them: the newest."""
LEAST = 16
"""Steps that a run of decoding or of drafting has at the least; fewer tell of the machine's hiccups."""
LEAST_ROWS = 32
"""Rows of a step that counts as one of reading a prompt."""
LIMIT = 1 << 20
"""Bytes; a larger file is none of ours."""

What = Literal["decode", "prefill", "draft"]


class ServedModel(NamedTuple):
    """A model as it is served. ``read``: bytes of weights that a step of one row reads; ``flops``: floating-point
    operations that a row of a prompt takes in linear layers."""

    device: str
    format: str
    model: str
    """Path of the model, or its name on the hub."""
    read: int
    flops: float

    @property
    def order(self) -> int:
        """The order of size: the power of two next to :attr:`read`."""
        return round(math.log2(max(1, self.read)))


class MeasuredRate(msgspec.Struct, frozen=True):
    """One measurement. ``value``: "decode": achieved bytes a second over those that the device was measured to read;
    "prefill": seconds for each floating-point operation; "draft": tokens a step. ``rate``: of "draft", tokens a second.
    ``trial``: it was measured with some layers of made-up weights, not while chatting."""

    what: What
    device: str
    format: str
    order: int
    model: str
    value: float
    rate: float = 0.0
    proposer: str = ""
    trial: bool = False


class Expected(NamedTuple):
    """``value`` as in :class:`MeasuredRate`; ``model`` is whose runs it is from, "" where several models'."""

    value: float
    model: str
    trial: bool


def file() -> Path:
    """Path of the file of runs."""
    return folders.data_place() / "runs.json"


def read() -> list[MeasuredRate]:
    """All runs, the oldest first; none where there is no file, or one that is damaged."""
    with contextlib.suppress(UnreadableFileError):
        return decode_file(file(), list[MeasuredRate], LIMIT) or []
    return []


def add(new: Sequence[MeasuredRate]) -> None:
    """Keep these runs too. A disk that is full or read-only keeps none."""
    busy = TimeoutError("another Kvasir is writing some")
    try:
        file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock(file().with_name("runs.json.lock"), busy, 10.0):
            unfinished = file().with_name("runs.json.new")
            unfinished.write_bytes(msgspec.json.encode(_newest(new)))
            unfinished.replace(file())
    except OSError as error:
        _log.info("runs are not kept: %s", error)


def _newest(new: Sequence[MeasuredRate]) -> list[MeasuredRate]:
    """The runs to keep, of those there are and ``new`` ones."""
    kept: list[MeasuredRate] = []
    seen: dict[tuple[object, ...], int] = {}
    for run in reversed([*read(), *(run for run in new if math.isfinite(run.value) and run.value > 0)]):
        kind = (run.what, run.device, run.format, run.order, run.model, run.proposer, run.trial)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= ALIKE and len(kept) < MOST:
            kept.append(run)
    return kept[::-1]


def expected(what: What, served: ServedModel, runs: Sequence[MeasuredRate]) -> Expected | None:
    """Median of runs of this model, else of those of its format and order of size, else of trials; None: there are
    none."""
    alike = [
        run for run in runs
        if (run.what, run.device, run.format, run.order) == (what, served.device, served.format, served.order)
    ]  # fmt: skip
    chatted = [run for run in alike if not run.trial]
    own = [run for run in chatted if run.model == served.model]
    for some in (own, chatted, alike):
        if some:
            models = {run.model for run in some}
            return Expected(
                statistics.median(run.value for run in some), models.pop() if len(models) == 1 else "", not chatted
            )
    return None


def best_draft(served: ServedModel, runs: Sequence[MeasuredRate]) -> MeasuredRate | None:
    """The proposer with which this very model was fastest, its figures the median of its runs; None: none was used."""
    found: dict[str, list[MeasuredRate]] = {}
    for run in runs:
        if (run.what, run.device, run.model) == ("draft", served.device, served.model):
            found.setdefault(run.proposer, []).append(run)
    usual = [
        msgspec.structs.replace(
            some[-1],
            value=statistics.median(run.value for run in some),
            rate=statistics.median(run.rate for run in some),
        )
        for some in found.values()
    ]
    return max(usual, key=lambda run: run.rate, default=None)


class Recorder:
    """Makes runs of the steps of a served model. Only those count in which a single answer is read or written."""

    def __init__(self, served: ServedModel, bandwidth: float) -> None:
        self._served, self._bandwidth = served, bandwidth
        self._decoded: list[float] = []
        self._read: list[float] = []
        self._drafted: dict[str, list[tuple[int, float]]] = {}

    def add(self, step: StepRecord) -> None:
        """Take in one step."""
        if step.duration <= 0 or step.queue.running > 1:
            return
        drafting = [draft.proposer for draft in step.drafts if draft.draft_tokens]
        if step.rows.prefill >= LEAST_ROWS and not step.rows.decode and self._served.flops:
            self._read.append(step.duration / step.rows.prefill / self._served.flops)
        elif step.rows.decode != 1 or step.rows.prefill:
            return
        elif len(drafting) == 1:
            self._drafted.setdefault(drafting[0], []).append((step.generated, step.duration))
        elif not drafting and not step.rows.verify and not step.drafting.passes and step.generated == 1:
            self._decoded.append(step.bytes_read / step.duration / self._bandwidth)

    def take(self) -> list[MeasuredRate]:
        """The runs since the last call."""
        found = []
        if len(self._decoded) >= LEAST:
            found.append(self._run("decode", statistics.median(self._decoded)))
            self._decoded = []
        if self._read:
            found.append(self._run("prefill", statistics.median(self._read)))
            self._read = []
        for proposer, steps in self._drafted.items():
            if len(steps) >= LEAST:
                tokens, seconds = sum(step[0] for step in steps), sum(step[1] for step in steps)
                found.append(self._run("draft", tokens / len(steps), tokens / seconds, proposer))
        self._drafted = {name: steps for name, steps in self._drafted.items() if len(steps) < LEAST}
        return found

    def _run(self, what: What, value: float, rate: float = 0.0, proposer: str = "") -> MeasuredRate:
        own = self._served
        return MeasuredRate(what, own.device, own.format, own.order, own.model, value, rate, proposer)
