"""The part of the interface of llama.cpp's server that is spoken here, as records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from engine.compute.sampling.params import MAX_LOGPROBS, resolve
from engine.doors.http.fields import BadField
from engine.doors.http.prompts import PromptsIn
from engine.doors.http.structured import StructuredIn
from engine.doors.http.timings import PromptProgress, TimingsOut
from engine.protocol import Sampling
from engine.text.tokenizer import Tokenizer

NEVER = -1e9
"""A bias with which a token is not drawn; theirs is minus infinity, which JSON writes as null."""
RANDOM = 0xFFFFFFFF
"""Their seed that stands for one drawn anew for each answer."""
SAMPLERS = ("penalties", "dry", "temperature", "top_k", "top_p", "min_p", "typ_p")
"""Steps from the model's scores to a token here, in their words."""


class LlamaIn(StructuredIn, kw_only=True):
    """Fields of both kinds of request. Tokens of ``logit_bias`` are ids or texts; false bars one, and true changes
    nothing."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {}

    model: str = ""
    stream: bool = False
    cache_prompt: bool = True
    logit_bias: dict[str, float | bool] | list[tuple[int | str, float | bool]] | None = None  # type: ignore[assignment]
    n_probs: int = 0
    post_sampling_probs: bool = False
    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    response_fields: list[str] = []

    def sampling(self, tokenizer: Tokenizer, end_ids: Collection[int]) -> Sampling:
        """How the answer is drawn. With ``ignore_eos`` no end of text is, as llama.cpp has it. Raises BadField."""
        if not 0 <= self.n_probs <= MAX_LOGPROBS:
            raise BadField("n_probs", f"n_probs is 0 to {MAX_LOGPROBS}: {self.n_probs} is not.")
        given = msgspec.structs.replace(self, logit_bias=None)  # whose keys may be texts
        base = given.base_sampling(self.max_tokens, self.n_probs or None)
        bias = dict(self._biases(tokenizer)) | (dict.fromkeys(end_ids, NEVER) if self.ignore_eos else {})
        return msgspec.structs.replace(base, logit_bias=bias, logprobs_drawn=self.post_sampling_probs)

    def _biases(self, tokenizer: Tokenizer) -> Iterator[tuple[int, float]]:
        given = self.logit_bias or {}
        for token, bias in given.items() if isinstance(given, dict) else given:
            if bias is True:
                continue
            value = bias if bias is not False else NEVER
            number = token if isinstance(token, int) else _number(token)
            ids = [number] if number is not None else tokenizer.encode(str(token), special=False)
            for id in ids:
                if not 0 <= id < tokenizer.vocabulary:
                    raise BadField("logit_bias", f"The model does not know the token {id}. Use its own tokenizer.")
                yield id, value


def _number(token: str) -> int | None:
    return int(token) if token.isascii() and token.isdigit() else None


class LlamaCompletionIn(LlamaIn, kw_only=True):
    prompt: PromptsIn


class ExtraFile(msgspec.Struct):
    text: str
    filename: str = "file"


class InfillIn(LlamaIn, kw_only=True):
    """``prompt`` is the beginning of the gap, as far as it is written. The last four say how llama.cpp samples and
    cuts, and change nothing here."""

    input_prefix: str
    input_suffix: str
    prompt: str = ""
    input_extra: list[ExtraFile] = []
    samplers: list[str] | str | None = None
    n_indent: int | None = None
    t_max_prompt_ms: float | None = None
    t_max_predict_ms: float | None = None


class Bias(msgspec.Struct):
    token: int
    bias: float | None


class GenerationSettings(msgspec.Struct, kw_only=True):
    """Settings of an answer. Those with a value here are of samplers that llama.cpp has besides, switched off."""

    seed: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    n_predict: int
    max_tokens: int
    ignore_eos: bool
    stop: Sequence[str]
    logit_bias: list[Bias]
    n_probs: int
    post_sampling_probs: bool
    stream: bool = False
    timings_per_token: bool = False
    samplers: Sequence[str] = SAMPLERS
    repeat_last_n: int = -1
    dry_penalty_last_n: int = -1
    dynatemp_range: float = 0.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    mirostat: int = 0
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0


def settings_of(sampling: Sampling, default: Sampling, seed: int) -> GenerationSettings:
    """What the sampler works with. Raises SamplingError."""
    params = resolve(sampling, default)
    most = -1 if params.max_tokens is None else params.max_tokens
    same = {name: getattr(params, name) for name in GenerationSettings.__struct_fields__ if hasattr(params, name)}
    own: dict[str, Any] = {
        "seed": seed,
        "repeat_penalty": params.repetition_penalty,
        "n_predict": most,
        "max_tokens": most,
        "logit_bias": [Bias(id, None if bias == NEVER else bias) for id, bias in params.logit_bias.items()],
        "n_probs": params.logprobs or 0,
        "post_sampling_probs": params.logprobs_drawn,
    }
    return GenerationSettings(**same | own)


StopType = Literal["eos", "limit", "word"]


class PartOut(msgspec.Struct, kw_only=True):
    """A part of an answer; the last has the fields that the request wants. ``tokens_evaluated`` are the prompt's, and
    ``tokens_predicted`` the answer's so far."""

    partial: ClassVar[bool] = True

    index: int
    content: str
    tokens: list[int]
    stop: bool = False
    tokens_predicted: int
    tokens_evaluated: int
    timings: TimingsOut | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET
    completion_probabilities: list[dict[str, Any]] | UnsetType = UNSET


class AnswerOut(PartOut, kw_only=True):
    """A whole answer, or the end of one that was told in parts. ``truncated``: the context ended it."""

    model: str
    generation_settings: GenerationSettings
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: StopType
    stopping_word: str
    tokens_cached: int


AnswersOut = AnswerOut | list[AnswerOut]


class Slot(msgspec.Struct):
    """A place for an answer among those that are written at once."""

    id: int
    n_ctx: int
    is_processing: bool


class Defaults(msgspec.Struct):
    n_ctx: int
    params: GenerationSettings


class Props(msgspec.Struct):
    default_generation_settings: Defaults
    total_slots: int
    model_alias: str
    model_path: str
    modalities: dict[str, bool]
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str
    endpoint_slots: bool = True
    endpoint_props: bool = False
    endpoint_metrics: bool = True
    is_sleeping: bool = False
