"""Every message on the wire between the window and the engine, version 1.

Text frames over a websocket; each frame is one JSON object with a ``type`` tag. Unknown fields are
ignored; an unknown type gets an :class:`Error` with code ``unknown_message`` and the connection stays.
This module imports nothing but msgspec and the standard library: it is all that the window knows of the engine.

Units: times are milliseconds unless a name says seconds, sizes are bytes, rates are per second.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

PROTOCOL = 1
MAX_FRAME = 32 * 1024 * 1024
"""Largest frame either side accepts, bytes (a long chat with its system prompt is far below)."""

Value = bool | int | float | str
Source = Literal["target", "draft", "ngram", "corrected", "bonus"]
"""Where a generated token came from: plain decoding, an accepted guess of a proposer, or the verifier's own token
after a rejected guess (``corrected``) or after a fully accepted run (``bonus``)."""
FinishReason = Literal["stop", "length", "context", "cancelled", "memory", "error"]
Quantise = Literal["none", "nf4", "int4", "int8"]
Channel = Literal["content", "thinking"]
Exactness = Literal["lossless", "same distribution", "approximate", "model property"]


class Message(msgspec.Struct, tag_field="type", kw_only=True, omit_defaults=True, frozen=True):
    """Base of all messages."""


class Part(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Base of the records inside messages."""


# --- records -----------------------------------------------------------------------------------------------------


class ChatMessage(Part, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str
    thinking: str = ""
    """Of an assistant, for chat templates that show a model its earlier thinking; most leave it out."""


class Thinking(Part, frozen=True):
    """How a prompt's chat template is to let the model think; ``None`` and "" leave it to the template."""

    on: bool | None = None
    effort: str = ""


class ThinkingModes(Part, frozen=True):
    """What a model's chat template allows. ``default``: whether a switchable one thinks unless told otherwise."""

    kind: Literal["none", "always", "switchable"] = "none"
    default: bool = True
    efforts: list[str] = []


class Sampling(Part, frozen=True):
    """Sampling settings; ``None`` means the model's generation_config.json, else the neutral value.

    ``temperature`` 0 is greedy. ``top_k`` 0, ``top_p`` 1, ``min_p`` 0, ``typical_p`` 1, penalties 1/0/0 and
    ``dry_multiplier`` 0 are neutral. ``seed`` ``None`` draws one, which comes back in :class:`Usage`.
    ``logprobs`` asks for that many alternatives per token, from the raw logits (0: the chosen token's alone).
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    max_tokens: int | None = None
    stop: list[str] = []
    ignore_eos: bool = False
    logprobs: int | None = None


class OptionSpec(Part, frozen=True):
    """One optimisation switch as the engine declares it (engine/catalogue.py), with its present state."""

    key: str
    title: str
    group: str
    kind: Literal["bool", "choice", "int", "float"]
    default: Value
    value: Value
    scope: Literal["request", "engine"]
    applies: Literal["live", "next request", "cache", "reload"]
    exactness: Exactness
    explains: str
    shows: str
    reference: str = ""
    choices: list[str] = []
    choice_titles: list[str] = []
    minimum: float | None = None
    maximum: float | None = None
    zero_means: str = ""
    """For an int whose 0 is special: the word the window shows instead, such as "automatic"."""
    disabled_reason: str = ""
    """Not empty: the setting cannot apply now, and why."""
    disabled_choices: dict[str, str] = {}
    """Choices that cannot apply now -> the reason."""
    compare: list[Value] = []
    """The two values (off, on) that "measure" replays; empty when there is nothing to measure."""


class Device(Part, frozen=True):
    kind: Literal["cpu", "cuda"]
    name: str
    total_bytes: int
    free_bytes: int
    bandwidth: float | None = None
    """Measured read bandwidth, bytes a second; None until measured."""


class ModelCard(Part, frozen=True):
    name: str
    path: str
    architecture: str
    parameters: int
    quantisation: str
    """For people: "GPTQ 4-bit, groups of 64", "bf16"."""
    context: int
    """Longest sequence in tokens that can be served now (the model's limit, or less where memory sets it)."""
    vocabulary: int
    eos_ids: list[int]
    has_chat_template: bool
    sampling: Sampling
    """generation_config.json's defaults, neutral where it is silent."""
    draft: str = ""
    draft_refused: str = ""
    """Why the draft model asked for is not in use."""
    notices: list[str] = []
    """Fallbacks, each a sentence with its reason."""
    load_seconds: dict[str, float] = {}
    """What the weights' load took, by what for: "copying", "packing", "quantising", "reading kept weights"."""
    thinking: ThinkingModes = ThinkingModes()


class Fit(Part, frozen=True):
    """What the load takes, in bytes, against what was free at that moment."""

    weights: int
    draft_weights: int
    kv: int
    kv_tokens: int
    activations: int
    budget: int
    free: int


class LoadOptions(Part, frozen=True):
    """``memory`` is a fraction of what is free now when at most 1, else bytes; None takes the default (0.85).

    ``quantise``: how the linear layers of a 16- or 32-bit model are packed while it is loaded, the draft's too. Models
    that are packed in their files ignore it, with a notice.
    """

    memory: float | None = None
    context: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantise: Quantise = "none"


class TokenInfo(Part, frozen=True):
    id: int
    source: Source = "target"
    chars: int = 0
    """How many characters of this delta's text the token completed; inside a UTF-8 character, none."""
    logprob: float | None = None
    top: list[tuple[int, float]] = []


class Usage(Part, frozen=True):
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seed: int
    thinking_tokens: int = 0
    """How many of the generated ones were thinking, its marks included."""


class Timings(Part, frozen=True):
    """Of one answer. ``ttft_ms`` counts from its arrival; ``tokens_per_second`` leaves the first token out."""

    queued_ms: float
    ttft_ms: float
    total_ms: float
    tokens_per_second: float
    tokens_per_step: float
    steps: int
    proposed: int = 0
    accepted: int = 0
    preemptions: int = 0


# --- from the window ---------------------------------------------------------------------------------------------


class Hello(Message, tag="hello", frozen=True):
    token: str
    protocol: int


class Load(Message, tag="load", frozen=True):
    """Load a model by path or by a name of Welcome.models. ``draft``: "" is none, None the model's own if bundled."""

    model: str
    draft: str | None = None
    options: LoadOptions = LoadOptions()


class Unload(Message, tag="unload", frozen=True):
    pass


class CancelLoad(Message, tag="cancel_load", frozen=True):
    pass


class Generate(Message, tag="generate", frozen=True):
    """Ask for an answer. ``prompt`` is a conversation (the chat template is applied) or plain text to continue."""

    id: str
    prompt: list[ChatMessage] | str
    parent: str = ""
    n: int = 1
    sampling: Sampling = Sampling()
    optimisations: dict[str, Value] = {}
    thinking: Thinking = Thinking()


class Cancel(Message, tag="cancel", frozen=True):
    id: str


class Set(Message, tag="set", frozen=True):
    key: str
    value: Value


class Compare(Message, tag="compare", frozen=True):
    """Replay a prompt with one switch both ways, same seed, interleaved ``rounds`` times -> :class:`Compared`."""

    id: str
    key: str
    prompt: list[ChatMessage] | str
    sampling: Sampling = Sampling()
    rounds: int = 3
    values: list[Value] = []
    thinking: Thinking = Thinking()


class Estimate(Message, tag="estimate", frozen=True):
    id: str
    model: str
    draft: str | None = None
    options: LoadOptions = LoadOptions()


class CountTokens(Message, tag="count_tokens", frozen=True):
    """How many tokens a conversation takes once rendered (for the context bar)."""

    id: str
    prompt: list[ChatMessage] | str
    thinking: Thinking = Thinking()


class Subscribe(Message, tag="subscribe", frozen=True):
    """Topics: "telemetry". ``rate`` at most 10 frames a second."""

    topics: list[str]
    rate: float = 10.0


ToEngine = Hello | Load | Unload | CancelLoad | Generate | Cancel | Set | Compare | Estimate | CountTokens | Subscribe


# --- from the engine ---------------------------------------------------------------------------------------------


class KnownModel(Part, frozen=True):
    name: str
    path: str
    draft: str = ""


class Welcome(Message, tag="welcome", frozen=True):
    protocol: int
    version: str
    device: Device
    catalogue: list[OptionSpec]
    models: list[KnownModel] = []
    loaded: ModelCard | None = None


class Loading(Message, tag="loading", frozen=True):
    """``stage`` is a short phrase such as "reading weights"; ``fraction`` 0..1 of the whole load."""

    model: str
    stage: str
    fraction: float


class Loaded(Message, tag="loaded", frozen=True):
    card: ModelCard
    fit: Fit


class Unloaded(Message, tag="unloaded", frozen=True):
    reason: str = ""


class Options(Message, tag="options", frozen=True):
    """The catalogue's state, sent whenever a value or an availability changed."""

    catalogue: list[OptionSpec]


class Prefill(Message, tag="prefill", frozen=True):
    id: str
    done: int
    cached: int
    total: int


class Delta(Message, tag="delta", frozen=True):
    id: str
    text: str
    answer: int = 0
    channel: Channel = "content"
    tokens: list[TokenInfo] = []


class Finished(Message, tag="finished", frozen=True):
    id: str
    reason: FinishReason
    usage: Usage
    timings: Timings
    answer: int = 0
    detail: str = ""


class Run(Part, frozen=True):
    """One run of a comparison."""

    value: Value
    tokens_per_second: float
    ttft_ms: float
    tokens: int
    tokens_per_step: float
    prefill_ms: float = 0.0


class CompareProgress(Message, tag="compare_progress", frozen=True):
    id: str
    done: int
    total: int


class Compared(Message, tag="compared", frozen=True):
    """``before`` and ``after`` are medians of tokens per second over the runs with values[0] and values[1].

    ``same`` says whether all answers were equal token for token. When they were not, ``ratio`` is None (unlike
    answers are never compared) and ``first_difference`` is the index of the first differing token.
    """

    id: str
    key: str
    values: list[Value]
    runs: list[Run]
    same: bool
    before: float
    after: float
    ratio: float | None = None
    ttft_before: float = 0.0
    ttft_after: float = 0.0
    first_difference: int | None = None
    near_tie: bool | None = None
    note: str = ""


class Estimated(Message, tag="estimated", frozen=True):
    id: str
    fits: bool
    fit: Fit | None = None
    sentence: str = ""


class Counted(Message, tag="counted", frozen=True):
    id: str
    tokens: int


class MemoryByOwner(Part, frozen=True):
    """``scope`` "device": GPU memory. "process" (a CPU engine): this process within the machine's RAM, labelled so."""

    scope: Literal["device", "process"]
    weights: int
    kv_used: int
    kv_reserved: int
    other_kvasir: int
    other_programs: int
    total: int


class PageCounts(Part, frozen=True):
    total: int
    used: int
    live_tokens: int
    """Tokens held in used pages: used * 16 - live_tokens slots are waste."""


class QueueCounts(Part, frozen=True):
    waiting: int
    running: int
    prefilling: int


class Acceptance(Part, frozen=True):
    """Of one proposer, over the last seconds. ``by_depth[i]``: share of the guesses proposed at depth i+1 accepted."""

    proposer: str
    proposed: int
    accepted: int
    by_depth: list[float]
    draft_length: int
    off_reason: str = ""


class Telemetry(Message, tag="telemetry", frozen=True):
    """One frame, from the step records since the last. Percentiles cover 10 seconds; None: nothing happened."""

    time: float
    generated_per_second: float
    prefilled_per_second: float
    memory: MemoryByOwner
    pages: PageCounts
    queue: QueueCounts
    acceptance: list[Acceptance] = []
    ttft_ms: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    step_ms: float | None = None
    host_ms: float | None = None
    """Median host bookkeeping per step: the step less its tensor operations."""
    bytes_per_token: float | None = None
    bandwidth_share: float | None = None
    preemptions: int = 0


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
    | Error
)


class Ready(Message, tag="ready", frozen=True):
    """The line that the engine process prints on standard output once it listens."""

    port: int
    protocol: int
    version: str
    pid: int


_encoder = msgspec.json.Encoder()
_to_engine = msgspec.json.Decoder(ToEngine)
_from_engine = msgspec.json.Decoder(FromEngine)
_ready = msgspec.json.Decoder(Ready)


def encode(message: Message) -> str:
    """One frame's text."""
    return _encoder.encode(message).decode()


def decode_to_engine(frame: str | bytes) -> Any:
    """A :data:`ToEngine` message. Raises msgspec.ValidationError (or DecodeError) with a sentence on anything else."""
    return _to_engine.decode(frame)


def decode_from_engine(frame: str | bytes) -> Any:
    """A :data:`FromEngine` message. Raises msgspec.ValidationError (or DecodeError) on anything else."""
    return _from_engine.decode(frame)


def decode_ready(line: str | bytes) -> Ready:
    """The ready line. Raises msgspec.DecodeError when the line is something else."""
    return _ready.decode(line)
