"""Fields of a request that say how tokens are drawn, in the names that most servers give them."""

from __future__ import annotations

import re

import msgspec

from engine.decoding.scheduling.service import BATCH, CLASSES, INTERACTIVE, STANDARD
from engine.doors.http.fields import BadField
from engine.protocol import Sampling
from engine.services.answers.refused import shortened

TIERS = {**{name: name for name in CLASSES}, "default": STANDARD.name, "priority": INTERACTIVE.name, "flex": BATCH.name}
"""Service classes by the tiers that OpenAI sells, and by their own names."""
UNLIMITED = -1
"""As a number of tokens: no limit but the context, as llama.cpp and Ollama write it."""


class SamplingIn(msgspec.Struct, kw_only=True):
    """From ``top_k`` on these are the names of other servers than OpenAI's."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    service_tier: str | None = None

    @property
    def service(self) -> str:
        """The service class of the tier, by OpenAI's names or Kvasir's; "" for other words, as auto."""
        return TIERS.get(self.service_tier or "", "")

    def check(self, vocabulary: int) -> None:
        """Raises BadField with a sentence for what cannot be served by a model with this vocabulary."""
        unknown = [token for token in self.biases if not 0 <= token < vocabulary]
        if unknown:
            text = f"The model's vocabulary has {vocabulary} tokens, from 0 on: {unknown[0]} is not one of them."
            raise BadField("logit_bias", text)

    @property
    def biases(self) -> dict[int, float]:
        """What is added to the scores of tokens, by their ids. Raises BadField."""
        given = self.logit_bias or {}
        if bad := [shortened(key) for key in given if not re.fullmatch(r"-?[0-9]{1,99}", key)]:
            text = (
                f"logit_bias has token ids, which {', '.join(map(repr, bad[:8]))} are not. Use the model's tokenizer."
            )
            raise BadField("logit_bias", text)
        return {int(key): value for key, value in given.items()}

    def base_sampling(self, max_tokens: int | None, logprobs: int | None) -> Sampling:
        """The fields that are called as they are here; what is not given keeps its default."""
        given = {name: getattr(self, name, None) for name in Sampling.__struct_fields__}
        given["logit_bias"] = self.biases
        given["stop"] = [self.stop] if isinstance(self.stop, str) else self.stop
        given |= {"max_tokens": None if max_tokens == UNLIMITED else max_tokens, "logprobs": logprobs}
        return Sampling(**{name: value for name, value in given.items() if value is not None})
