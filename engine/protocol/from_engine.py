"""Messages from the engine to the window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import structs

from engine.protocol.adapters import AdapterCard, Adapters
from engine.protocol.base import Channel, FinishReason, Message, Outcome, Part, Value
from engine.protocol.cache import CacheStats, ContextCut, Cost, PageDescribed, PageMap, RadixTree
from engine.protocol.calls import CallAnswer, CallEvent
from engine.protocol.parts import ToolCallDelta
from engine.protocol.records import Device, DrafterStyle, Fit, Metric, ModelCard, OptionSpec, Timings, TokenInfo, Usage
from engine.protocol.why import Reasons


class KnownModel(Part, frozen=True):
    name: str
    path: str
    draft: str = ""


class Welcome(Message, tag="welcome", frozen=True):
    protocol: int
    version: str
    device: Device
    catalogue: list[OptionSpec]
    devices: list[Device] = []
    """All that a model may compute on, the CPU first."""
    models: list[KnownModel] = []
    loaded: ModelCard | None = None
    adapters: list[AdapterCard] = []
    """LoRA adapters in memory next to the loaded model."""
    notice: str = ""
    """Reason that an installed GPU pack is not used, as a sentence."""
    drafters: list[DrafterStyle] = []
    """What may draft, in the order in which they are shown."""


class Loading(Message, tag="loading", frozen=True):
    """``stage`` is a short phrase such as "reading weights"; ``fraction`` 0..1 of the whole load."""

    model: str
    stage: str
    fraction: float


class Loaded(Message, tag="loaded", frozen=True):
    """``rebuilt``: the model was there already, and only its cache was made again, in another precision."""

    card: ModelCard
    fit: Fit
    rebuilt: bool = False


class Unloaded(Message, tag="unloaded", frozen=True):
    """``idle``: nothing was asked of it for a while. The next request loads it again, and waits for that."""

    reason: str = ""
    idle: bool = False


class Options(Message, tag="options", frozen=True):
    """The catalogue's state, sent whenever a value or an availability changed."""

    catalogue: list[OptionSpec]


class Prefill(Message, tag="prefill", frozen=True):
    """Progress of a prompt's prefill in tokens: ``done`` of ``total``, ``cached`` of them found in the prefix cache.

    ``diverged`` is the first token at which the prompt leaves the conversation that it goes on from, and ``divergence``
    says why; None where it begins with all of it (or goes on from none). ``tokens`` are those of the prompt that were
    read since, with their log-probabilities, where these are asked for.
    """

    id: str
    done: int
    cached: int
    total: int
    diverged: int | None = None
    divergence: str = ""
    tokens: list[TokenInfo] = []


class Delta(Message, tag="delta", frozen=True):
    """A part of an answer. On the channel "tool" it has no text, but parts of ``calls``."""

    id: str
    text: str
    answer: int = 0
    channel: Channel = "content"
    tokens: list[TokenInfo] = []
    calls: list[ToolCallDelta] = []

    @staticmethod
    def joined(deltas: Sequence[Delta]) -> Delta:
        """Join deltas of one answer and channel. Text that no token of its delta completed, the next one completes."""
        tokens: list[TokenInfo] = []
        loose = 0
        for delta in deltas:
            told = delta.tokens
            if loose and told:
                told = [structs.replace(told[0], chars=told[0].chars + loose), *told[1:]]
                loose = 0
            tokens += told
            loose += len(delta.text) - sum(token.chars for token in delta.tokens)
        calls: list[ToolCallDelta] = []
        for call in (call for delta in deltas for call in delta.calls):
            if calls and calls[-1].index == call.index:
                calls[-1] = structs.replace(calls[-1], arguments=calls[-1].arguments + call.arguments)
            else:
                calls.append(call)
        return structs.replace(deltas[-1], text="".join(delta.text for delta in deltas), tokens=tokens, calls=calls)


class Finished(Message, tag="finished", frozen=True):
    id: str
    reason: FinishReason
    usage: Usage
    timings: Timings
    answer: int = 0
    detail: str = ""


class Run(Part, frozen=True):
    """One run of a comparison.

    ``cached_tokens`` of its prompt were found in the cache. ``unused_slots`` is the share (0..1) of the slots of its
    pages that held no token, over its steps; ``cache_bytes`` is the most that its pages took, and
    ``read_bytes_per_token`` what its steps after the prompt read of weights, keys and values.
    """

    value: Value
    tokens_per_second: float
    ttft_ms: float
    tokens: int
    tokens_per_step: float
    cached_tokens: int = 0
    kv_bytes_per_token: float = 0.0
    weight_bytes: int = 0
    cache_bytes: float = 0.0
    unused_slots: float = 0.0
    read_bytes_per_token: float = 0.0


class Effect(Part, frozen=True):
    """Result of a comparison for one figure: medians of both sides, and the gain pair by pair.

    ``ratio`` is above 1 where values[1] is better, in an interval from ``low`` to ``high``; None where nothing can be
    divided. ``verdict``: "none" is no clear difference, "few" too few pairs to tell
    (engine/decoding/telemetry/pairs.py).
    """

    metric: Metric
    before: float
    after: float
    ratio: float | None
    low: float
    high: float
    pairs: int
    verdict: Outcome


class CompareProgress(Message, tag="compare_progress", frozen=True):
    id: str
    done: int
    total: int


class Compared(Message, tag="compared", frozen=True):
    """``before`` and ``after`` are medians of tokens per second over the runs with values[0] and values[1].

    ``same`` says whether all answers were equal token for token. When they were not, ``ratio`` is None,
    ``first_difference`` is the index of the first differing token, and ``texts`` are one answer of each side.
    ``effects`` begins with the switch's own figure; of unlike answers they are figures of unlike answers.
    """

    id: str
    key: str
    values: list[Value]
    runs: list[Run]
    same: bool
    before: float
    after: float
    ratio: float | None = None
    first_difference: int | None = None
    near_tie: bool | None = None
    note: str = ""
    effects: list[Effect] = []
    texts: list[str] = []


class Estimated(Message, tag="estimated", frozen=True):
    id: str
    fits: bool
    fit: Fit | None = None
    sentence: str = ""


class Counted(Message, tag="counted", frozen=True):
    """``kept`` of the ``tokens`` need not be read, as they are in the cache or on disk; None: not asked for, or not
    known."""

    id: str
    tokens: int
    kept: int | None = None


class MemoryByOwner(Part, frozen=True):
    """``scope`` "device": GPU memory. "process" (a CPU engine): this process within the machine's RAM, labelled so."""

    scope: Literal["device", "process"]
    weights: int
    kv_used: int
    kv_reserved: int
    other_kvasir: int
    other_programs: int
    total: int
    pictures: int = 0
    """Bytes of prepared pictures, kept for the next messages: part of ``other_kvasir``, or of the host's memory next to
    a GPU."""
    embedder: int = 0
    """Bytes of an embedding model that is loaded next to the one that answers; counted as ``pictures`` are."""


class PageCounts(Part, frozen=True):
    total: int
    used: int
    live_tokens: int
    """Different tokens held in used pages: used * 16 - live_tokens slots are waste."""
    cached: int = 0
    """Used pages that hold text which no answer reads now: they are given up when room is needed."""
    share: float | None = None
    """Share of the cache's bytes in use, where layers keep different numbers of tokens; None: it is that of pages."""

    @property
    def read_share(self) -> float:
        """Share of the pages that answers in progress read, as vLLM tells the use of its cache."""
        return (self.used - self.cached) / max(self.total, 1)


Phase = Literal["waiting", "prefill", "decode", "paused", "preempted", "swapped", "ended"]
"""What an answer is doing: it waits for its first step, its prompt is read, its tokens are written, it keeps its pages
without taking part in steps, it gave its pages up and waits to be read again or, swapped, to have them back from host
memory, or it is over."""


class PhaseChange(Part, frozen=True):
    """An answer enters a phase at ``at``, seconds of the frames' clock. ``service`` is its class, ``prompt`` and
    ``generated`` its tokens so far."""

    id: str
    answer: int
    phase: Phase
    at: float
    chat: str = ""
    service: str = ""
    prompt: int = 0
    generated: int = 0


class ServiceFigures(Part, frozen=True):
    """A service class with its targets in seconds, and how many of the answers that ended in the last minute kept to
    them. ``most``: the most answers of a step that takes no longer than ``between_tokens``, by the steps measured so
    far, drafts aside; 0: not even one, None: not known."""

    service: str
    first_token: float
    between_tokens: float
    most: int | None = None
    ended: int = 0
    in_time: int = 0


class QueueCounts(Part, frozen=True):
    waiting: int
    running: int
    prefilling: int


class Acceptance(Part, frozen=True):
    """The acceptance of one proposer, over the last seconds.

    ``by_depth[i]``: of the rounds that drafted to depth i+1, the share that accepted a token there. ``reasoning`` is
    the controller's latest line: what it chose and why.
    """

    proposer: str
    proposed: int
    accepted: int
    by_depth: list[float]
    draft_length: int
    off_reason: str = ""
    tree_nodes: int = 0
    """The most draft tokens of one round; more than ``draft_length`` where they branch."""
    tokens_per_step: float = 1.0
    """Tokens that a round gave an answer: the draft tokens accepted and the model's own one."""
    reasoning: str = ""


class GpuReading(Part, frozen=True):
    """Readings of the GPU's driver now; None: it does not say. ``joules`` count from the first reading on."""

    watts: float | None = None
    limit_watts: float | None = None
    celsius: float | None = None
    core_mhz: float | None = None
    memory_mhz: float | None = None
    joules: float | None = None


class Latencies(Part, frozen=True):
    """Milliseconds; medians where the name says nothing else."""

    ttft_ms: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    step_ms: float | None = None
    host_ms: float | None = None
    """Host bookkeeping of a step: the step less its tensor operations."""


class Telemetry(Message, tag="telemetry", frozen=True):
    """One frame, from the step records since the last. Percentiles cover 10 seconds; None: nothing happened."""

    time: float
    generated_per_second: float
    prefilled_per_second: float
    memory: MemoryByOwner
    pages: PageCounts
    queue: QueueCounts
    acceptance: list[Acceptance] = []
    latency: Latencies = Latencies()
    bytes_per_token: float | None = None
    bandwidth_share: float | None = None
    preemptions: int = 0
    cache: CacheStats = CacheStats()
    captured: float | None = None
    """Captured steps, as a share of all; None where none can be."""
    eager_reason: str = ""
    """Most frequent reason that the others were not."""
    late_reason: str = ""
    """Most frequent reason that no kernel of a captured step starts early, where that was asked for."""
    gpu: GpuReading | None = None
    """None on a CPU, and where the driver says nothing."""
    joules_per_token: float | None = None
    """Joules of the GPU for each token generated in the last ten seconds, pauses aside; None: no token, or unknown."""
    bytes_per_pass: float | None = None
    """Bytes of weights, keys and values that a pass of the model reads while decoding, without what drafters read."""
    phases: list[PhaseChange] = []
    """Phases that answers entered since the receiver's previous frame, in order; of very many the newest."""
    services: list[ServiceFigures] = []
    """Service classes of which answers ended in the last minute."""


class Error(Message, tag="error", frozen=True):
    """``message`` is for people: what happened, then what to do. ``code`` is for programs, in snake_case."""

    code: str
    message: str
    id: str = ""


FromEngine = (
    Welcome
    | Loading
    | Loaded
    | Unloaded
    | Options
    | Prefill
    | Delta
    | Finished
    | CompareProgress
    | Compared
    | Estimated
    | Counted
    | Telemetry
    | PageMap
    | PageDescribed
    | RadixTree
    | ContextCut
    | Cost
    | Adapters
    | Reasons
    | CallEvent
    | CallAnswer
    | Error
)


class Ready(Message, tag="ready", frozen=True):
    """The line that the engine process prints on standard output once it listens."""

    port: int
    protocol: int
    version: str
    pid: int
