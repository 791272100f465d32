"""A small random Llama with arenas, its requests, and the steps that serve them: what a proposer sees of an engine."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from engine.cache.policies import KeepAll, PagePolicy, WindowWithSinks
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import KVKind
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.families.llama import Model as Llama
from engine.compute.runner.runner import Runner
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.sampler import new_history, sample
from engine.decoding.options import RequestOptions
from engine.decoding.request import Request
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, Proposer
from engine.decoding.speculation.verify.early_exit import forward_step
from engine.decoding.speculation.verify.verifier import verify
from engine.loop.step import draws_of, rows_of
from tests.engine.loop.requests_support import new_request
from tests.kit.models import VOCABULARY, deep

SEED, LAYERS, EOS, PAGES, EACH = 5, 6, 49, 96, 14
"""``EACH``: pages of a request. ``SEED``: one whose drafts tell what the tests are to tell."""


class Weights:
    """A `WeightSource` of random weights, seeded by their names, whatever is asked for first.

    ``quiet`` scales what the layers add, so that they agree more.
    """

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, numerics: Numerics, quiet: float) -> None:
        self.numerics, self._quiet = numerics, quiet

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Dense:
        weight = self._random(prefix + names[0], sum(sizes), in_features) / in_features**0.5
        adds = names[0] in ("o_proj", "down_proj")
        return Dense(weight * self._quiet if adds else weight, None, self.numerics)

    def experts(self, *wanted: Any) -> list[Dense]:
        raise AssertionError("there are none")

    def vector(self, name: str, size: int) -> Tensor:
        return torch.ones(size)

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        raise AssertionError("there is none")

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        return self._random(name, rows, columns)

    def head(self, table: Tensor | None, rows: int, columns: int) -> Dense:
        return Dense(self._random("head", rows, columns) / columns**0.5 * 4, None, self.numerics)

    def _random(self, name: str, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED + zlib.crc32(name.encode())))


CONFIG, SMALL = deep(LAYERS, head_dim=32), deep(3, head_dim=32)


@cache
def small_model(quiet: float = 0.25) -> Llama:
    """A model of three layers in batch-invariant arithmetic, one for all that ask for the same. ``quiet`` as above."""
    return Llama(SMALL, Weights(Numerics(True), quiet))


KINDS = [
    (KVKind(), KeepAll()),
    (KVKind("int8"), KeepAll()),
    (KVKind("fp8"), KeepAll()),
    (KVKind("int4"), KeepAll()),
    (KVKind("kivi", 2, 4, 64), KeepAll()),
    (KVKind(), WindowWithSinks(64)),
    (KVKind(bounds=True), QuestPolicy(48, 40)),
]
"""Each kind of cache and each page policy."""
NAMES = [f"{kind.title} {policy.name}" for kind, policy in KINDS]


class CountingRunner(Runner):
    """Counts its passes and how many sequences were in each."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.passes: list[int] = []

    def forward(self, rows: Sequence[SequenceRows], **options: Any) -> ForwardOutput:
        self.passes.append(len(rows))
        return super().forward(rows, **options)


class Target:
    """The model and its arenas; request s has ``EACH`` pages of its own in each layer group."""

    def __init__(self, kind: KVKind | None = None, quiet: float = 0.25, invariant: bool = True) -> None:
        torch.set_num_threads(1)
        numerics = Numerics(invariant)
        self.model = Llama(CONFIG, Weights(numerics, quiet))
        self.store = new_store(CONFIG, PAGES, torch.float32, kind=kind or KVKind())
        self.runner = CountingRunner(self.model, self.store, AttentionDispatcher(numerics))
        self.requests: list[Request] = []
        self.proposed = self.accepted = 0

    def add(self, prompt: Sequence[int], policy: PagePolicy | None = None, **options: Any) -> Request:
        """A request whose prompt is read but for its last token. ``options`` are of sampling or of the request."""
        number = len(self.requests)
        own = {name: options.pop(name) for name in list(options) if name in RequestOptions._fields}
        params = SamplingParams(**{"seed": 7, "temperature": 0.0, **options})
        chosen = RequestOptions(policy=policy or KeepAll(), **own)
        residual = self.store.residual if self.store.num_groups > 1 else 0
        request = new_request(str(number), prompt, params, chosen, arrival=number, residual=residual)
        request.history = new_history(params, VOCABULARY, len(prompt), torch.device("cpu"))
        request.cache.pages = list(range(1 + EACH * number, 1 + EACH * (number + 1)))
        assert request.pages[-1] < PAGES
        request.cache.newest_pages[:] = request.pages
        self.requests.append(request)
        if len(prompt) > 1:
            self.runner.forward([rows_of(Slice(request, len(prompt) - 1, False), NO_DRAFT)])
            request.cache.num_computed = len(prompt) - 1
        return request

    def step(self, requests: Sequence[Request], trees: Sequence[DraftTree], reject: bool = False) -> list[int]:
        """Check the drafts and extend the requests; how many drafts of each were accepted (``reject``: none)."""
        rows = [rows_of(Slice(request, 1, True), tree) for request, tree in zip(requests, trees, strict=True)]
        draws = [draw for request, tree in zip(requests, trees, strict=True) for draw in draws_of(request, tree)]
        drawn = sample(forward_step(self.runner, rows, trees).logits, draws)
        accepted = []
        for request, tree in zip(requests, trees, strict=True):
            mine, drawn = drawn[: 1 + len(tree.tokens)], drawn[1 + len(tree.tokens) :]
            verdict = verify(NO_DRAFT if reject else tree, mine)
            request.cache.tokens += [*(tree.tokens[node] for node in verdict.nodes), verdict.token]
            request.cache.num_computed = request.known - 1
            accepted.append(len(verdict.nodes))
            self.proposed += len(tree.tokens)
            self.accepted += len(verdict.nodes)
        return accepted

    def answer(self, proposer: Proposer | None, budgets: Sequence[int], until: int) -> list[list[int]]:
        """Steps until each request has so many tokens; the budget of a request is another in each step."""
        step = 0
        while going := [request for request in self.requests if request.known < until]:
            asks = [
                DraftRequest(request, budgets[(step + request.arrival) % len(budgets)], request.known)
                for request in going
            ]
            trees = proposer.propose(asks) if proposer is not None else [NO_DRAFT] * len(asks)
            self.step(going, trees)
            step += 1
        return [request.tokens[:until] for request in self.requests]

    def content(self, request: Request, stop: int) -> list[Tensor]:
        """Of each layer what the arenas hold of the request's first ``stop`` tokens: all parts of it, recent ones too.

        Parts that belong to pages, such as KIVI's scales, are whole pages'.
        """
        slots = torch.tensor([request.pages[i // PAGE_SIZE] * PAGE_SIZE + i % PAGE_SIZE for i in range(stop)])
        found = []
        for layer in range(LAYERS):
            kv = self.store.view(layer)
            parts = [kv.k, kv.v, kv.k_meta, kv.v_meta]
            if kv.recent is not None:
                parts += [kv.recent.k, kv.recent.v]
            held = [part for part in parts if part is not None]
            found += [part[slots if part.shape[0] == PAGES * PAGE_SIZE else slots // PAGE_SIZE] for part in held]
        return found


def prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, EOS, (length,), generator=generator).tolist()
