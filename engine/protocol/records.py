"""Records inside messages."""

from __future__ import annotations

from typing import Final, Literal

from engine.protocol.base import DeviceKind, DeviceName, Exactness, Part, Quantise, Source, Value


class Thinking(Part, frozen=True):
    """Setting of a prompt's thinking in its chat template; ``None`` and "" leave it to the template."""

    on: bool | None = None
    effort: str = ""


class ThinkingModes(Part, frozen=True):
    """Thinking that a chat template allows. ``default``: whether a switchable one thinks unless told otherwise."""

    kind: Literal["none", "always", "switchable"] = "none"
    default: bool = True
    efforts: list[str] = []


class Sampling(Part, frozen=True):
    """Sampling settings; ``None`` means the model's generation_config.json, else the neutral value.

    ``temperature`` 0 is greedy. ``top_k`` 0, ``top_p`` 1, ``min_p`` 0, ``typical_p`` 1, penalties 1/0/0 and
    ``dry_multiplier`` 0 are neutral. ``seed`` ``None`` draws one, which comes back in :class:`Usage`.
    ``logprobs`` asks for that many alternatives per token, from the raw logits (0: the chosen token's alone), or with
    ``logprobs_drawn`` from what is drawn from: after bias, penalties, temperature and truncation. Before ``min_tokens``
    no end of text is drawn, and no stop string looked for.
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
    logprobs_drawn: bool = False
    min_tokens: int = 0


StructureKind = Literal["json_object", "json_schema", "regex", "choice", "grammar"]


class StructuredOutput(Part, frozen=True):
    """Form that the content of an answer must have; what the model thinks before it is free.

    ``source`` is a JSON Schema as JSON, a regular expression, a JSON list of texts to choose from, or a grammar as Lark
    or llama.cpp (GBNF) writes it; nothing for a JSON object of any kind.
    """

    kind: StructureKind
    source: str = ""


class Metric(Part, frozen=True):
    """The figure that shows what a switch does: a field of :class:`Run`.

    ``counted`` figures have no noise. Where one answer shows nothing, ``figure`` is "" and ``elsewhere`` is a sentence
    that says what does.
    """

    figure: str = ""
    title: str = ""
    unit: str = ""
    lower_is_better: bool = False
    counted: bool = False
    elsewhere: str = ""


CACHE_GROUP: Final = "Cache"
SPECULATION_GROUP: Final = "Speculation"
"""Groups of switches for which the window does more than it does for others."""


class Measure(Part, frozen=True, kw_only=False):
    """The sign of what a switch does, in words, and the ``metric`` that shows it."""

    shows: str
    metric: Metric = Metric()
    compare: tuple[Value, ...] = ()
    """The two values (off, on) that "measure" replays; empty when there is nothing to measure."""
    lab: str = ""
    """Name of the Lab's experiment that shows what it does; "" where there is none."""


class NumberRange(Part, frozen=True, kw_only=False):
    """Numbers that a switch may be set to; None: no bound."""

    minimum: float | None = None
    maximum: float | None = None
    zero_means: str = ""
    """Word that the window shows instead of a special 0, such as "automatic"."""


class ChoiceSpec(Part, frozen=True):
    """One value of a choice. ``disabled_reason``: why it cannot apply now; empty where it can."""

    key: str
    title: str
    disabled_reason: str = ""


class OptionMeasurement(Part, frozen=True, kw_only=False):
    """Measurement of a switch with the loaded model: in a few words for the panel's row, and as a sentence."""

    short: str = ""
    sentence: str = ""


class OptionSpec(Part, frozen=True):
    """One optimisation switch as the engine declares it (engine/catalogue), with its present state."""

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
    measure: Measure
    """Its metric is that of the present value."""
    reference: str = ""
    choices: list[ChoiceSpec] = []
    range: NumberRange = NumberRange()
    disabled_reason: str = ""
    """Reason that the setting cannot apply now; empty where it can."""
    of: str = ""
    """Key of another option: this one means something only while that one is at one of ``of_values``. Empty: always."""
    of_values: list[Value] = []
    hidden: bool = False
    """It means nothing on this machine or with this model, whatever the others are at."""
    found: OptionMeasurement = OptionMeasurement()
    common: bool = False
    """It is one of the few that most people set, which are shown before all others."""

    @property
    def titles(self) -> dict[str, str]:
        """Choices by key -> their titles."""
        return {choice.key: choice.title for choice in self.choices}

    @property
    def disabled_choices(self) -> dict[str, str]:
        """Choices that cannot apply now -> the reason."""
        return {choice.key: choice.disabled_reason for choice in self.choices if choice.disabled_reason}


class DrafterStyle(Part, frozen=True):
    """Name and colour by which a proposer is shown. ``key``: its value of the switch "speculation", and the source
    of its tokens.

    ``name`` stands in legends, ``by`` after "Drafted", ``offer`` where it is offered for a model. The colour is the
    theme's ``color``, mixed with the panel by ``share``.
    """

    key: str
    name: str
    by: str
    color: str
    share: float = 1.0
    offer: str = ""
    heads: Literal["", "trained", "own"] = ""
    """Heads that were trained for a model and are in a file of their own, or layers of the model's own file."""


class Device(Part, frozen=True):
    kind: DeviceKind
    name: str
    total_bytes: int
    free_bytes: int
    bandwidth: float | None = None
    """Measured read bandwidth, bytes a second; None until measured."""
    index: int = 0
    """Index among the devices of its kind."""


class ModelCard(Part, frozen=True):
    name: str
    path: str
    architecture: str
    parameters: int
    quantisation: str
    """Name for people: "GPTQ 4-bit, groups of 64", "bf16"."""
    context: int
    """Longest sequence in tokens that can be served now (the model's limit, or less where memory sets it)."""
    vocabulary: int
    eos_ids: list[int]
    has_chat_template: bool
    sampling: Sampling
    """generation_config.json's defaults, neutral where it is silent."""
    draft: str = ""
    draft_refused: str = ""
    """Reason that the draft model or the heads asked for are not in use."""
    heads: list[str] = []
    """Kinds of heads in use that draft for this model, as :data:`Source` names them."""
    notices: list[str] = []
    """Fallbacks, each a sentence with its reason."""
    fallbacks: list[str] = []
    """Notices that are about fast paths of layers that declined."""
    computing: str = ""
    """Sentence on how it computes, and why, where that is not the usual way of its device; there is nothing to do about
    it."""
    load_seconds: dict[str, float] = {}
    """Seconds of the weights' load by purpose: "copying", "packing", "quantising", "reading kept weights"."""
    thinking: ThinkingModes = ThinkingModes()
    pictures: bool = False
    """True if messages may have pictures."""


class Fit(Part, frozen=True):
    """Bytes that the load takes, against what was free at that moment."""

    weights: int
    draft_weights: int
    kv: int
    kv_tokens: int
    activations: int
    budget: int
    free: int
    states: int = 0
    """Bytes of layers that carry a state instead of keys and values: those of answers, and snapshots of texts."""


class LoadOptions(Part, frozen=True):
    """``memory`` is a fraction of what is free now when at most 1, else bytes; None takes the default (0.85).

    ``quantise``: how the linear layers of a 16- or 32-bit model are packed while it is loaded, the draft's too. Models
    that are packed in their files ignore it, with a notice.
    """

    memory: float | None = None
    context: int | None = None
    device: DeviceName = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantise: Quantise = "none"


class TokenInfo(Part, frozen=True):
    id: int
    source: Source = "target"
    chars: int = 0
    """Number of characters of this delta's text that the token completed; inside a UTF-8 character, none."""
    cut: int = 0
    """Number of characters of the token that a stop string cut off: they are in no delta."""
    logprob: float | None = None
    top: list[tuple[int, float]] = []


class Usage(Part, frozen=True):
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seed: int
    thinking_tokens: int = 0
    """Number of the generated tokens that were thinking, its marks included."""
    cached_told: bool = True
    """False where another server does not tell ``cached_tokens``."""


class Timings(Part, frozen=True):
    """Timings of an answer. ``ttft_ms`` counts from its arrival; ``tokens_per_second`` leaves the first token out."""

    queued_ms: float
    ttft_ms: float
    total_ms: float
    tokens_per_second: float
    tokens_per_step: float
    steps: int
    proposed: int = 0
    accepted: int = 0
    preemptions: int = 0
