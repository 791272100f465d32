"""What one forward reads and multiplies: its bytes and operations, from the model's shapes and what is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.cache.policies import KEEP_ALL, POLICIES, PagePolicy, PolicySettings, keys_read
from engine.cache.stores.kinds import KVKind
from engine.lab.experiment import LabError
from engine.layers.linear.base import Linear
from engine.loading.model import LoadedModel
from engine.loading.speed import flops_per_row
from engine.memory.estimate import kv_bytes_per_token
from engine.models.base import CausalLM
from engine.protocol import OptionSpec, keys


class Work(NamedTuple):
    """What one forward does: bytes that it reads of weights and of what is kept, operations, and tokens it gives."""

    weights: float
    kept: float
    operations: float
    tokens: float = 1.0
    packed: bool = False
    """Whether it multiplies with packed weights."""

    @property
    def bytes(self) -> float:
        return self.weights + self.kept

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.bytes


@dataclass(frozen=True)
class Settings:
    """What the work of a forward depends on. ``weights`` are bytes that one row reads of them."""

    model: LoadedModel
    lm: CausalLM
    weights: float
    experts: float
    """Bytes of all experts."""
    kind: KVKind
    policy: PagePolicy = KEEP_ALL
    packed: bool = False
    """Whether products are with packed weights."""

    def decode(self, context: int, answers: int = 1, drafts: int = 0) -> Work:
        """One pass that gives each answer a token after ``context`` of them, and ``drafts`` more where all hold."""
        rows = answers * (1 + drafts)
        stop = context + 1
        seen = keys_read(self.policy, stop, self.model.sparse)
        kept = answers * (self._kept(min(seen, stop)) + drafts * self._kept(1))
        attention = rows * _attention(self.lm, seen)
        products = flops_per_row(self.lm) + _head(self.lm)
        return Work(self._weights(rows), kept, rows * products + attention, float(rows), self.packed)

    def prompt(self, rows: int, before: int = 0) -> Work:
        """One pass over ``rows`` of a prompt, of which ``before`` were read already; only its last needs the head."""
        seen = [keys_read(self.policy, before + row + 1, self.model.sparse) for row in range(rows)]
        attention = sum(_attention(self.lm, each) for each in seen)
        operations = rows * flops_per_row(self.lm) + _head(self.lm) + attention
        return Work(self._weights(rows), self._kept(seen[0] + rows - 1), operations, float(rows), self.packed)

    def _weights(self, rows: int) -> float:
        """More rows ask more experts: as many as there are if each asks at random."""
        moe = self.lm.config.moe
        if moe is None:
            return self.weights
        one = moe.experts_per_token / moe.num_experts
        return self.weights + self.experts * ((1 - (1 - one) ** rows) - one)

    def _kept(self, tokens: float) -> float:
        """Bytes of keys and values of so many tokens that one row reads, and of its answer's state."""
        config, dtype = self.lm.config, self.lm.kv_dtype
        recent = min(tokens, self.kind.residual)  # in 16 bits
        found = (tokens - recent) * kv_bytes_per_token(config, dtype, self.kind, in_window=False)
        found += recent * kv_bytes_per_token(config, dtype, in_window=False)
        widths = [window for window in config.arena_windows if window is not None]
        if widths:
            found += min(tokens, max(widths)) * kv_bytes_per_token(config, dtype, self.kind, in_window=True)
        states = self.model.stores[0].states if self.model.stores else None
        return found + (states.page_bytes if states is not None else 0)


def settings_of(model: LoadedModel, switches: Mapping[str, OptionSpec], prompt: int) -> Settings:
    """The loaded model as it is set now, for answers to prompts of ``prompt`` tokens.

    Raises :class:`LabError` for a model of another kind of loader's.
    """
    lm = model.model
    if lm is None:
        raise LabError("This model does not say what it reads and computes. Load one from a folder or a file.")
    experts = sum(linear.storage_size() for name, linear in lm.linears() if ".experts." in name)
    policy = policy_of(switches, str(switches[keys.PAGE_POLICY].value), prompt)
    packed = largest_packed(lm) is not None
    return Settings(model, lm, float(model.weight_bytes), float(experts), model.kind, policy, packed)


def policy_of(switches: Mapping[str, OptionSpec], name: str, prompt: int) -> PagePolicy:
    """The policy of that name with the present window and budget, of an answer to a prompt of ``prompt`` tokens."""
    window, budget = (int(switches[key].value) for key in (keys.WINDOW_TOKENS, keys.QUEST_TOKENS))
    return POLICIES[name](PolicySettings(window, budget, prompt))


def largest_packed(lm: CausalLM) -> Linear | None:
    """The largest of the layers with packed weights."""
    found = [linear for _, linear in lm.linears() if linear.kind != "dense"]
    return max(found, key=lambda linear: linear.in_features * linear.out_features, default=None)


def _head(lm: CausalLM) -> float:
    return 2.0 * lm.head.in_features * lm.head.out_features


def _attention(lm: CausalLM, keys_seen: float) -> float:
    """Operations of one row's scores and weighted sums over so many keys: a multiplication and an addition each."""
    config = lm.config
    found = 0.0
    for layer in config.attending:
        window = config.windows[layer]
        seen = keys_seen if window is None else min(keys_seen, window)
        if config.latent is not None:  # absorbed: scores over latents and their rotated part, sums over latents
            found += 2 * config.num_heads * (2 * config.latent.rank + config.latent.rope) * seen
        else:
            found += 4 * config.num_heads * config.heads_of(layer).width * seen
    return found
