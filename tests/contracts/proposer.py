"""Proposers of draft tokens: no more than was asked for, to each request its own, and no trace of what was rejected.

A kind says how it is served over a small model in float32 (:class:`Decoding`), in batch-invariant arithmetic but for
EAGLE heads and multi-token layers, and which of the properties it cannot have, with the reason. Caches of fewer bits
and the engine around it are the business of tests/conformance/test_speculation_matrix.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree
from engine.decoding.speculation.control.controller import Controller
from engine.decoding.speculation.control.stats import depth_of
from engine.decoding.telemetry.records import DraftCost
from engine.protocol import Sampling
from tests.contracts.registration import Contract
from tests.engine.decoding.speculation.decoding import ENDLESS, Decoding, prompt, shapes, slots

Make = Callable[[], Decoding]
SIZES = ((12, ENDLESS), (4, 4), (0, ENDLESS), (1, 1), (9, 2))
EDGES = [(0, 5), (5, 0), (1, 1), (1, 16), (16, 16), (63, 16), (63, 2), (7, 3), (3, 7)]
ROUNDS, MORE_ROUNDS = 2, 20
GREEDY = Sampling(temperature=0.0, ignore_eos=True)
SAMPLED = Sampling(temperature=0.8, top_p=0.95, seed=5, ignore_eos=True)
PENALISED = Sampling(temperature=0.7, frequency_penalty=0.3, seed=6, ignore_eos=True)
GARBAGE = 1e4
"""Seen by any row that reads it; 0 times it is 0, so that a masked slot that holds it changes nothing."""


def varied(request: Request) -> tuple[int, int]:
    """Another size at each place of a text, the same whenever it is written."""
    return SIZES[(request.known + request.prompt_length) % len(SIZES)]


class ProposerContract(Contract):
    eos: ClassVar[int]
    """The end of the text; the tokens of prompts are below it."""
    warm: ClassVar[int] = 1
    """Tokens that are written before drafts are looked at."""
    samplings: ClassVar[tuple[Sampling, ...]] = (GREEDY, SAMPLED, PENALISED)
    """Those with which it drafts something."""
    without: ClassVar[Mapping[str, str]] = {}
    """Properties that the kind cannot have, and why."""
    holds: ClassVar[bool] = True
    """Whether it keeps something of each request by its name."""
    samples: ClassVar[bool] = True
    """Whether drafts for the ratio test are sampled; otherwise they are chosen."""
    adapts: ClassVar[str] = ""
    """Why drafts of one text may differ: they follow what was accepted before."""
    reads: ClassVar[bool] = True
    """Whether a draft takes passes."""

    def __init_subclass__(cls) -> None:
        for name, reason in cls.without.items():
            assert reason
            assert callable(getattr(ProposerContract, name))
            setattr(cls, name, None)

    @pytest.fixture
    def make(self) -> Make:
        raise NotImplementedError

    def count(self, budget: int, depth: int) -> int:
        """How many draft tokens a request gets that asks for ``budget``, at most ``depth`` ahead."""
        return min(budget, depth)

    # --- what is drafted -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "seed", [pytest.param(seed, marks=pytest.mark.long if seed >= ROUNDS else ()) for seed in range(MORE_ROUNDS)]
    )
    def test_as_many_as_asked_for_and_no_more(self, make: Make, seed: int) -> None:
        host, (request,) = self.begun(make, GREEDY)
        rng = random.Random(seed)
        sizes = EDGES if seed == 0 else [(rng.randint(0, 63), rng.randint(0, 16)) for _ in range(len(EDGES))]
        for budget, depth in sizes:
            assert host.proposer.has_match(request)
            host.step([request], lambda _, size=(budget, depth): size)
            tree = host.trees[request.id][-1]
            assert len(tree.tokens) == self.count(budget, depth), (budget, depth)
            assert depth_of(tree) <= min(depth, host.proposer.max_depth)
            self.check_tree(host, tree)

    def test_nothing_asked_nothing_drafted_and_nothing_computed(self, make: Make) -> None:
        """But what a store of its own lacks of the text, once."""
        host, requests = self.begun(make, GREEDY, GREEDY, GREEDY)
        idle = [DraftRequest(request, 0, request.num_computed) for request in requests]
        self.lend(host, idle)
        assert host.proposer.propose(idle) == [NO_DRAFT] * 3
        host.proposer.take_work()
        host.passes.clear()
        before = contents(host)
        for asks in (idle, []):
            assert host.proposer.propose(asks) == [NO_DRAFT] * len(asks)
        assert host.proposer.take_work() == DraftCost()
        assert not host.passes
        assert alike(contents(host), before)
        one = [idle[0], DraftRequest(requests[1], 3, requests[1].known), idle[2]]
        self.lend(host, one)
        trees = host.proposer.propose(one)
        assert [len(tree.tokens) > 0 for tree in trees] == [False, True, False]
        assert all(len(rows) == 1 for rows in host.passes), "those that ask for nothing are in no pass"

    def test_nothing_follows_the_end_of_the_text(self, make: Make) -> None:
        """But where the text goes on after it."""
        for ignore in (False, True):
            sampling = Sampling(temperature=0.0, ignore_eos=ignore, logit_bias={self.eos: 20.0})
            host, (request,) = self.begun(make, sampling)
            for _ in range(4):
                host.step([request], lambda _: (30, 6))
            trees = [tree for tree in host.trees[request.id] if tree is not NO_DRAFT]
            follows = [tree.tokens[parent] for tree in trees for parent in parents_of(tree) if parent >= 0]
            assert (self.eos in follows) == ignore
            assert any(self.eos in tree.tokens for tree in trees)
            assert not host.proposer.branches or all(len(tree.tokens) == 30 for tree in trees), "others take the places"

    def test_only_drafts_for_the_ratio_test_say_what_they_were_drawn_from(self, make: Make) -> None:
        warm = Sampling(temperature=1.0, top_k=5, seed=3, ignore_eos=True)
        cases = [(warm, "keyed"), (warm, "ratio"), (GREEDY, "ratio"), (warm, "typical"), (GREEDY, "keyed")]
        host = make()
        text = prompt(20, 1, self.eos)
        requests = [host.request(str(n), text, each, acceptance=mode) for n, (each, mode) in enumerate(cases)]
        for _ in range(self.warm):
            host.step(requests)
        for request in requests:  # of one text, so that their drafts can be compared
            request.cache.tokens[:] = [*requests[-1].tokens[: request.known - 1], requests[-1].tokens[-1]]
        asks = [DraftRequest(request, 4, request.known, 4) for request in requests]
        self.lend(host, asks)
        keyed, ratio, *others = host.proposer.propose(asks)
        assert keyed.q is None
        assert all(tree.q is None for tree in others)
        assert shapes(others[:1]) == shapes(others[2:]), "at temperature 0 all tests are the keyed one"
        assert shapes([keyed]) == shapes([others[1]]), "drawn with the target's own noise"
        assert len(ratio.tokens) == self.count(4, 4)
        if not self.samples:
            assert ratio.q is None
            return
        assert ratio.q is not None
        assert ratio.parents is None
        assert ratio.q.shape == (len(ratio.tokens), host.model.config.vocab_size)
        torch.testing.assert_close(ratio.q.sum(-1), torch.ones(len(ratio.tokens)))
        assert (ratio.q > 0).sum(-1).tolist() == [5] * len(ratio.tokens)
        assert (ratio.q.gather(1, torch.tensor(ratio.tokens)[:, None]) > 0).all()

    # --- whose and where -----------------------------------------------------------------------------------------

    def test_text_is_that_of_plain_decoding(self, make: Make) -> None:
        """In a batch of several ways to sample, whose prompts end at different steps."""
        plain = make()
        expected = [plain.decode([request], 24)[0] for request in self.asked(plain, *self.samplings)]
        host = make()
        requests = self.asked(host, *self.samplings)
        assert host.decode(requests, 24, varied, chunk=5) == expected
        proposed = sum(len(tree.tokens) for request in requests for tree in host.trees[request.id])
        assert 0 < sum(request.progress.accepted for request in requests) < proposed

    def test_a_batch_drafts_as_each_alone(self, make: Make) -> None:
        host = make()
        requests = self.asked(host, *self.samplings)
        self.go_on(host, requests)
        for place, request in enumerate(requests):
            alone = make()
            same = self.asked(alone, *self.samplings)[place]
            self.go_on(alone, [same])
            ours, theirs = shapes(alone.trees[request.id]), shapes(host.trees[request.id])
            assert ours[:1] == theirs[:1] != [] if self.adapts else ours == theirs != []
            assert len(alone.passes) <= len(host.passes)
        assert max(map(len, host.passes), default=0) == (len(requests) if self.reads else 0), "they share passes"

    def test_nothing_is_read_or_written_beyond_what_is_lent(self, make: Make) -> None:
        found = []
        for garbage in (False, True):
            host, requests = self.begun(make, GREEDY, GREEDY, GREEDY)
            sizes = ((63, 16), (3, 3), (7, 2))
            asks = [DraftRequest(each, n, each.known, depth) for each, (n, depth) in zip(requests, sizes, strict=True)]
            self.lend(host, asks)
            if garbage:
                spoil(host, requests)
            lent = {ask.request.id: ask.request.known + ask.budget for ask in asks}
            before = contents(host)
            found.append(host.proposer.propose(asks))
            for store, (old, new) in enumerate(zip(before, contents(host), strict=True)):
                foreign = torch.ones(new[0].shape[0], dtype=torch.bool)
                for request in requests:
                    # A store of its own also gets what it lacks of the text.
                    first = request.num_computed if store == 0 else 0
                    foreign[slots(request, range(first, lent[request.id]))] = False
                foreign[0] = False
                assert all(torch.equal(a[foreign], b[foreign]) for a, b in zip(old, new, strict=True))
        assert shapes(found[0]) == shapes(found[1]) != []

    def test_a_rejected_round_leaves_nothing_behind(self, make: Make) -> None:
        """Draft tokens across the end of a page."""
        plain, drafted = self.begun(make, GREEDY, first=11), self.begun(make, GREEDY, first=11)
        for size in (9, 2):
            plain[0].step(plain[1])
            drafted[0].step(drafted[1], lambda _, size=size: (size, ENDLESS), reject=True)
            assert drafted[0].trees["0"][-1].tokens
        known = [len(host.trees["0"]) for host, _ in (plain, drafted)]
        for _ in range(4):
            for host, requests in (plain, drafted):
                host.step(requests, lambda _: (6, ENDLESS))
        assert plain[1][0].tokens == drafted[1][0].tokens
        trees = [host.trees["0"][before:] for (host, _), before in zip((plain, drafted), known, strict=True)]
        assert self.adapts or shapes(trees[0]) == shapes(trees[1]) != []
        computed = [(host, requests[0], requests[0].num_computed) for host, requests in (plain, drafted)]
        (ours, theirs) = (
            [part[slots(request, range(stop))] for part in contents(host)[0]] for host, request, stop in computed
        )
        for one, two in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-4)

    def test_others_go_on_as_they_were(self, make: Make) -> None:
        """When one is cancelled and one preempted in the middle, whose pages then hold something else."""
        calm, host = make(), make()
        undisturbed, (gone, back, stays) = self.asked(calm, *[GREEDY] * 3), self.asked(host, *[GREEDY] * 3)
        expected = calm.decode(undisturbed, self.warm + 24, varied)
        host.decode([gone, back, stays], self.warm + 4, varied)
        before = len(host.trees[back.id])
        host.proposer.release(gone)
        host.free += gone.pages
        gone.cache.pages = []
        host.send_away(back)
        spoil(host, [stays])
        assert host.decode([back, stays], self.warm + 24, varied, 7) == expected[1:]
        assert shapes(host.trees[stays.id]) == shapes(calm.trees[stays.id])
        again = list(zip(host.before[back.id][before:], host.trees[back.id][before:], strict=True))
        text, tree = next((text, tree) for text, tree in reversed(again) if tree.tokens)
        fresh = make()
        same = fresh.request("fresh", text[:-1], GREEDY)
        fresh.step([same])
        size = SIZES[(len(text) + back.prompt_length) % len(SIZES)]
        fresh.step([same], lambda _: size)
        assert self.adapts or shapes(fresh.trees["fresh"]) == shapes([tree]), "as one that was never sent away"

    def test_a_released_request_leaves_nothing(self, make: Make) -> None:
        """And one of the same name begins anew."""
        host, (request, other) = self.begun(make, GREEDY, GREEDY)
        host.proposer.release(host.request("stranger", [1, 2], GREEDY))
        host.step([request, other], lambda _: (6, ENDLESS))
        assert (request.owner in names(host.proposer)) == self.holds
        host.proposer.release(request)
        assert request.owner not in names(host.proposer)
        assert (other.owner in names(host.proposer)) == self.holds
        drafts = []
        for used in (host, make()):
            renamed = used.request(request.id, prompt(25, 9, self.eos), GREEDY)
            used.decode([renamed], self.warm + 8, varied)
            drafts.append(shapes(used.trees[renamed.id]))
        assert drafts[0] != []
        assert self.adapts or drafts[0] == drafts[1]

    # --- what is told --------------------------------------------------------------------------------------------

    def test_work_is_told_once(self, make: Make) -> None:
        host, requests = self.begun(make, GREEDY, GREEDY)
        host.proposer.take_work()
        host.passes.clear()
        host.step(requests, lambda _: (4, 4))
        work = host.proposer.take_work()
        assert work.passes == len(host.passes)
        assert (work.passes > 0) == (work.bytes_read > 0) == (work.seconds > 0) == self.reads
        assert host.proposer.take_work() == DraftCost()

    def test_figures_are_those_of_the_text_and_off_is_off(self, make: Make) -> None:
        plain, host = make(), make()
        expected = plain.decode(self.asked(plain, GREEDY, GREEDY), 24)
        controller = Controller([host.proposer])
        on = host.request("0", prompt(3, 0, self.eos), GREEDY, draft_length=3, tree_nodes=8, ngram_first=False)
        off = host.request("1", prompt(20, 1, self.eos), GREEDY, speculation="off", draft_length=3)
        records = []
        while off.generated < 24 or on.generated < 24:
            records += host.step([on, off], controller=controller)
        assert [each.tokens[each.prompt_length :][:24] for each in (on, off)] == expected
        assert {record.proposer for record in records if record.draft_length} == {host.proposer.name}
        assert sum(record.draft_tokens for record in records) == sum(len(tree.tokens) for tree in host.trees["0"]) > 0
        assert sum(sum(record.accepted) for record in records) == on.progress.accepted > 0
        for record in records:
            assert all(a <= p for a, p in zip(record.accepted, record.proposed, strict=True))
            assert len(record.proposed) <= record.draft_length <= 3
        assert host.trees["1"] == [NO_DRAFT] * len(host.trees["1"])
        assert off.owner not in names(host.proposer)
        assert all(len(rows) == 1 for rows in host.passes)

    # --- helpers -------------------------------------------------------------------------------------------------

    def asked(self, host: Decoding, *samplings: Sampling, first: int = 3) -> list[Request]:
        """A request of each way to sample, with prompts of different lengths."""
        return [host.request(str(n), prompt(first + 17 * n, n, self.eos), each) for n, each in enumerate(samplings)]

    def begun(self, make: Make, *samplings: Sampling, first: int = 3) -> tuple[Decoding, list[Request]]:
        """Requests that have written ``warm`` tokens without drafts."""
        host = make()
        requests = self.asked(host, *samplings, first=first)
        host.decode(requests, self.warm)
        return host, requests

    def go_on(self, host: Decoding, requests: Sequence[Request]) -> None:
        host.decode(requests, self.warm)
        host.step(requests, lambda _: (12, 5))
        host.decode(requests, self.warm + 12, varied)

    def lend(self, host: Decoding, asks: Sequence[DraftRequest]) -> None:
        for ask in asks:
            host.hold(ask.request, ask.request.known + ask.budget)

    def check_tree(self, host: Decoding, tree: DraftTree) -> None:
        """A parent before its children, and siblings that differ."""
        parents = parents_of(tree)
        assert len(parents) == len(tree.tokens)
        assert all(-1 <= parent < node for node, parent in enumerate(parents))
        assert len(set(zip(parents, tree.tokens, strict=True))) == len(tree.tokens)
        assert all(0 <= token < host.model.config.vocab_size for token in tree.tokens)
        chain = all(parent == node - 1 for node, parent in enumerate(parents))
        assert (tree.parents is None) == chain, "chains need no mask"
        assert chain or host.proposer.branches
        assert tree.proposer == (host.proposer.name if tree.tokens else "")


def parents_of(tree: DraftTree) -> tuple[int, ...]:
    return tree.parents if tree.parents is not None else tuple(range(-1, len(tree.tokens) - 1))


def contents(host: Decoding) -> list[list[Tensor]]:
    """Copies of the keys and values of all layers of each store, a row for each slot."""
    return [
        [part.clone() for layer in range(store.layers) for part in (store.view(layer).k, store.view(layer).v)]
        for store in host.stores
    ]


def alike(ours: list[list[Tensor]], theirs: list[list[Tensor]]) -> bool:
    return all(torch.equal(a, b) for one, two in zip(ours, theirs, strict=True) for a, b in zip(one, two, strict=True))


def spoil(host: Decoding, requests: Sequence[Request]) -> None:
    """Write garbage to all slots but those of the computed tokens of these requests."""
    for store in host.stores:
        for layer in range(store.layers):
            for part in (store.view(layer).k, store.view(layer).v):
                wrong = torch.ones(part.shape[0], dtype=torch.bool)
                for request in requests:
                    wrong[slots(request, range(request.num_computed))] = False
                part[wrong] = GARBAGE


def names(thing: object, seen: set[int] | None = None) -> set[Any]:
    """The names of requests by which anything of speculation is kept."""
    seen = set() if seen is None else seen
    if id(thing) in seen or not (
        isinstance(thing, dict) or type(thing).__module__.startswith("engine.decoding.speculation")
    ):
        return set()
    seen.add(id(thing))
    found = set(thing) if isinstance(thing, dict) else set()
    values: Iterator[Any] = iter(thing.values() if isinstance(thing, dict) else getattr(thing, "__dict__", {}).values())
    return found.union(*(names(value, seen) for value in values))


assert PAGE_SIZE == 16, "prompts of 3, 11 and 20 tokens end near the end of a page"
