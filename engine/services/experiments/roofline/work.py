"""Bytes and operations of one forward, computed from the model's shapes and what is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.cache.policies import KEEP_ALL, PagePolicy, keys_read
from engine.cache.stores.kinds import KVKind
from engine.cache.technique import policy_of
from engine.compute.layers.linear.base import Linear
from engine.compute.models.base import CausalLM
from engine.loading.memory.estimate import kv_bytes_per_token
from engine.loading.model import LoadedModel
from engine.loading.runners import flops_per_row
from engine.protocol import OptionSpec
from engine.services.experiments.experiment import LabError


class ForwardWork(NamedTuple):
    """Work of one forward: bytes that it reads of weights and of what is kept, operations with packed weights and
    without them (attention among these), and tokens it gives."""

    weights: float
    kept: float
    packed: float
    dense: float
    tokens: float = 1.0

    @property
    def bytes(self) -> float:
        return self.weights + self.kept

    @property
    def operations(self) -> float:
        return self.packed + self.dense

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.bytes


@dataclass(frozen=True)
class WorkSettings:
    """Settings that the work of a forward depends on. ``weights`` are bytes that one row reads of them."""

    model: LoadedModel
    lm: CausalLM
    weights: float
    experts: float
    """Bytes of all experts."""
    kind: KVKind
    policy: PagePolicy = KEEP_ALL
    """For rows of an answer. Those of a prompt read all of it: its first chunk is shorter than any window."""

    def decode(self, context: int, answers: int = 1, drafts: int = 0) -> ForwardWork:
        """One pass that gives each answer a token after ``context`` of them, and ``drafts`` more where all hold."""
        rows = answers * (1 + drafts)
        stop = context + 1
        seen = keys_read(self.policy, stop, self.model.reads.sparse)
        kept = answers * self._kept(min(seen, stop) + drafts)
        return self._work(rows, rows, kept, rows * _attention(self.lm, seen))

    def prompt(self, rows: int, before: int = 0) -> ForwardWork:
        """One pass over ``rows`` of a prompt, of which ``before`` were read already; only its last needs the head."""
        attention = sum(_attention(self.lm, before + row + 1) for row in range(rows))
        return self._work(rows, 1, self._kept(before + rows), attention)

    def _work(self, rows: int, heads: int, kept: float, attention: float) -> ForwardWork:
        """``heads``: how many of the rows need the output head."""
        head = self.lm.head
        packed, dense = (
            rows * flops_per_row(self.lm, kind)
            + heads * 2.0 * head.in_features * head.out_features * (kind == (head.kind != "dense"))
            for kind in (True, False)
        )
        return ForwardWork(self._weights(rows), kept, packed, dense + attention, float(rows))

    def _weights(self, rows: int) -> float:
        """More rows ask more experts: as many as there are if each asks at random."""
        moe = self.lm.config.moe
        if moe is None:
            return self.weights
        one = moe.experts_per_token / moe.num_experts
        return self.weights + self.experts * ((1 - (1 - one) ** rows) - one)

    def _kept(self, tokens: float) -> float:
        """Bytes of so many tokens' keys and values, and of the state that an answer has once."""
        config, dtype = self.lm.config, self.lm.kv_dtype
        recent = min(tokens, self.kind.residual)  # in 16 bits
        found = (tokens - recent) * kv_bytes_per_token(config, dtype, self.kind, in_window=False)
        found += recent * kv_bytes_per_token(config, dtype, in_window=False)
        widths = [window for window in config.arena_windows if window is not None]
        if widths:
            found += min(tokens, max(widths)) * kv_bytes_per_token(config, dtype, self.kind, in_window=True)
        states = self.model.stores[0].states if self.model.stores else None
        return found + (states.page_bytes if states is not None else 0)


def settings_of(model: LoadedModel, switches: Mapping[str, OptionSpec]) -> WorkSettings:
    """The loaded model as it is set now.

    Raises :class:`LabError` for a model of another kind of loader's.
    """
    lm = model.model
    if lm is None:
        raise LabError("This model does not say what it reads and computes. Load one from a folder or a file.")
    policy = policy_of({key: spec.value for key, spec in switches.items()}, prompt_length=0)
    return WorkSettings(model, lm, float(model.reads.weights), experts_of(lm), model.kind, policy)


def experts_of(lm: CausalLM) -> float:
    """Bytes of all experts."""
    return float(sum(linear.storage_size() for name, linear in lm.linears() if ".experts." in name))


def largest_packed(lm: CausalLM) -> Linear | None:
    """The largest of the layers with packed weights."""
    found = [linear for _, linear in lm.linears() if linear.kind != "dense"]
    return max(found, key=lambda linear: linear.in_features * linear.out_features, default=None)


def _attention(lm: CausalLM, keys_seen: float) -> float:
    """Operations of one row's scores and weighted sums over so many keys: a multiplication and an addition each."""
    heads, latent = lm.config.attention, lm.config.attention.latent
    found = 0.0
    for layer in lm.config.attending:
        window = heads.windows[layer]
        seen = keys_seen if window is None else min(keys_seen, window)
        if latent is not None:  # absorbed: scores over latents and their rotated part, sums over latents
            found += 2 * heads.num_heads * (2 * latent.rank + latent.rope) * seen
        else:
            found += 4 * heads.num_heads * heads.heads_of(layer).width * seen
    return found
