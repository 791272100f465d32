"""A model and a proposer that decode by hand: the order of a step without scheduler, pool and tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.store import KVStore
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.compute.runner.runner import Runner
from engine.compute.sampling.params import resolve
from engine.compute.sampling.sampler import new_history, sample
from engine.decoding.options import RequestOptions
from engine.decoding.request import Request
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, HiddenRows, Proposer
from engine.decoding.speculation.control.controller import Controller, Round
from engine.decoding.speculation.verify.early_exit import forward_step
from engine.decoding.speculation.verify.verifier import verify
from engine.decoding.telemetry.records import DraftRecord
from engine.loop.step import draws_of, rows_of
from engine.protocol import Sampling
from tests.engine.loop.requests_support import new_request

PAGES = 40
ENDLESS = 1 << 30
Budget = Callable[[Request], tuple[int, int]]
"""The draft tokens that a request asks for, and how deep they may be."""


def none(request: Request) -> tuple[int, int]:
    return 0, ENDLESS


class Recorder:
    """A runner, with a note of every pass."""

    def __init__(self, runner: Runner, passes: list[Sequence[SequenceRows]]) -> None:
        self.runner, self.passes = runner, passes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    def forward(self, rows: Sequence[SequenceRows], **options: Any) -> ForwardOutput:
        self.passes.append(list(rows))
        return self.runner.forward(rows, **options)


class Decoding:
    """Requests that decode side by side; what the engine does about pages is done by hand."""

    def __init__(self, model: CausalLM, drafter: Callable[[Decoding], Proposer], **options: Any) -> None:
        """``drafter`` makes the proposer when the target's runner is there; ``options`` are those of all requests."""
        self.model, self.options = model, options
        store = new_store(model.config, PAGES, torch.float32)
        self.target = Runner(model, store, AttentionDispatcher(model.numerics))
        self.stores: list[KVStore] = [store]
        """The target's, and the proposer's own."""
        self.passes: list[Sequence[SequenceRows]] = []
        """What the proposer ran, a row for each request."""
        self.proposer = drafter(self)
        self.free = list(range(PAGES - 1, 0, -1))
        self.trees: dict[str, list[DraftTree]] = {}
        self.before: dict[str, list[list[int]]] = {}
        """The tokens that each of the trees goes on from."""

    def recorded(self, runner: Runner) -> Any:
        """A runner for the proposer, whose passes are noted."""
        return Recorder(runner, self.passes)

    def request(self, name: str, prompt: Sequence[int], sampling: Sampling | None = None, **options: Any) -> Request:
        params = resolve(sampling or Sampling(temperature=0.0), Sampling())
        chosen = RequestOptions(**{"speculation": self.proposer.name, **self.options, **options})
        self.trees[name], self.before[name] = [], []
        request = new_request(name, prompt, params, chosen, arrival=len(self.trees))
        request.history = new_history(params, self.model.config.vocab_size, len(prompt), torch.device("cpu"))
        return request

    def hold(self, request: Request, tokens: int) -> None:
        """Pages for so many tokens and not one more."""
        while len(request.pages) > pages_for(tokens):
            self.free.append(request.pages.pop())
        while len(request.pages) < pages_for(tokens):
            request.pages.append(self.free.pop())

    def send_away(self, request: Request, found: int = 0, drafts: int = 0) -> None:
        """Preempted: its pages go, and it comes back with the first ``found`` tokens on others, of which the proposer's
        store has ``drafts``."""
        old = request.pages
        request.standing.preemptions += 1
        request.cache.num_computed = found
        request.cache.drafts = request.cache.drafts._replace(head=drafts, model=drafts)
        request.cache.pages = []
        for page in old[: found // PAGE_SIZE]:
            request.pages.append(self.free.pop(0))
            for store in self.stores[: 1 + (len(request.pages) <= drafts // PAGE_SIZE)]:
                store.copy_page(page, request.pages[-1])
        self.free += old

    def step(
        self,
        requests: Sequence[Request],
        budget: Budget = none,
        chunk: int = 512,
        reject: bool = False,
        controller: Controller | None = None,
    ) -> tuple[DraftRecord, ...]:
        """One step: draft, compute, verify, extend, compact, see. With ``reject`` no draft token is accepted; a
        ``controller`` says what is drafted, in place of ``budget``, and its records are the result."""
        wanted = controller.plan(requests) if controller is not None else {}
        pieces, asks = [], []
        for request in requests:
            rows = min(chunk, request.pending)
            last = rows == request.pending
            nodes, depth = budget(request) if request.pending == 1 else (0, ENDLESS)
            nodes = wanted.get(request.owner, 0) if controller is not None else nodes
            self.hold(request, request.num_computed + rows + nodes)
            pieces.append(Slice(request, rows, last, nodes))
            asks.append(DraftRequest(request, nodes, request.num_computed + rows, depth))
        if controller is None:
            trees, needs_hidden = self.proposer.propose(asks), self.proposer.needs_hidden
        else:
            trees, _, needs_hidden = controller.propose(pieces)
        seen, rounds = [], []
        rows_of_all = [rows_of(piece, tree) for piece, tree in zip(pieces, trees, strict=True)]
        out = forward_step(self.target, rows_of_all, trees, needs_hidden)
        draws = [draws_of(p.sequence, tree) if p.last else [] for p, tree in zip(pieces, trees, strict=True)]
        drawn = iter(sample(out.logits, [draw for some in draws for draw in some]))
        end = 0
        for piece, tree, some in zip(pieces, trees, draws, strict=True):
            request, first = piece.sequence, end
            end += piece.rows + len(tree.tokens)
            kept, start = list(range(first, first + piece.rows)), request.num_computed
            request.cache.advance(piece.rows)
            if piece.last:
                mine = [next(drawn) for _ in some]
                verdict = verify(tree, mine) if not reject else verify(NO_DRAFT, mine[:1])
                self.trees[request.id].append(tree)
                self.before[request.id].append(list(request.tokens))
                if tree.tokens:
                    rounds.append(Round(request, tree, verdict))
                self._compact(request, verdict.nodes)
                request.progress.accepted += len(verdict.nodes)
                request.cache.tokens += [*(tree.tokens[node] for node in verdict.nodes), verdict.token]
                request.cache.advance(len(verdict.nodes))
                kept += [first + piece.rows + node for node in verdict.nodes]
            assert request.cache.drafts.head <= start + piece.rows
            seen.append(HiddenRows(request, start, {layer: out.hidden[layer][kept] for layer in out.hidden}))
        if controller is not None:
            return controller.record(rounds, seen, decoding_only=all(piece.rows == 1 for piece in pieces))
        for request, tree, verdict in rounds:
            self.proposer.observe(request, tree, verdict.nodes)
        self.proposer.see(seen)
        return ()

    def decode(
        self, requests: Sequence[Request], count: int, budget: Budget = none, chunk: int = 512
    ) -> list[list[int]]:
        """All of them until each has so many new tokens; returns these."""
        while True:
            active = [request for request in requests if request.generated < count]
            if not active:
                return [request.tokens[request.prompt_length :][:count] for request in requests]
            self.step(active, budget, chunk)

    def _compact(self, request: Request, nodes: Sequence[int]) -> None:
        """Keys and values of accepted rows into consecutive slots, in all stores."""
        base = request.num_computed
        moved = [(base + node, base + place) for place, node in enumerate(nodes) if node != place]
        if moved:
            src, dst = (slots(request, indices) for indices in zip(*moved, strict=True))
            for store in self.stores:
                store.move_slots(src, dst)


def slots(request: Request, indices: Sequence[int]) -> Tensor:
    """The slots of tokens of the request."""
    return torch.tensor([request.pages[i // PAGE_SIZE] * PAGE_SIZE + i % PAGE_SIZE for i in indices], dtype=torch.long)


def prompt(length: int, seed: int = 0, below: int = 47) -> list[int]:
    """Random tokens."""
    return torch.randint(0, below, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def shapes(trees: Sequence[DraftTree]) -> list[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    return [(tree.tokens, tree.parents) for tree in trees if tree is not NO_DRAFT]
