"""Drafted trees leave the text as it is: a real model in fp32, batch-invariant arithmetic, drafts from an oracle.

The oracle knows what plain decoding writes and hides it in random trees, so that paths of any shape are accepted, at
any place in a page, with every kind of cache and every page policy.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from engine.cache.pool import PAGE_SIZE
from engine.cache.types import tokens_of
from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, HiddenRows, Proposer
from engine.decoding.speculation.control.controller import Controller
from engine.loop import executor as executor_module
from engine.loop.step import moves
from engine.protocol import Sampling
from tests.conformance.texts import VARIANTS
from tests.kit.checkpoints import EOS, write_llama
from tests.kit.hosts import Host
from tests.kit.pairs import pairs

NODES = 16
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0, max_tokens=40, ignore_eos=True),
    "warped": Sampling(
        temperature=0.9, top_p=0.9, repetition_penalty=1.2, logit_bias={3: 2.0}, seed=12, max_tokens=40, ignore_eos=True
    ),
}


class Oracle(Proposer):
    """Random trees in which some of the true continuation is hidden."""

    name = "medusa"
    branches = True

    def __init__(self, layers: int) -> None:
        self.needs_hidden = frozenset({layers})
        self.truth: dict[tuple[int, ...], list[int]] = {}
        """What plain decoding writes after each prompt."""
        self.random = random.Random(5)
        self.sizes: list[int] = []
        self.seen: dict[tuple[str, int], int] = {}

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        return [self._tree(ask) if ask.budget and ask.depth else NO_DRAFT for ask in asks]

    def _tree(self, ask: DraftRequest) -> DraftTree:
        request = ask.request
        truth = self.truth[tuple(request.tokens[: request.prompt_length])][request.generated :]
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        true: list[bool] = []
        for node in range(ask.budget):
            able = [-1, *(i for i in range(node) if depths[i] < ask.depth)]
            parent = self.random.choice(able[-5:])
            depth = depths[parent] + 1 if parent >= 0 else 1
            on_path = (parent < 0 or true[parent]) and depth <= len(truth)
            right = on_path and self.random.random() < 0.7
            tokens.append(truth[depth - 1] if right else self.random.randrange(EOS))
            parents.append(parent)
            depths.append(depth)
            true.append(on_path and tokens[-1] == truth[depth - 1])
        self.sizes.append(len(tokens))
        return DraftTree(tuple(tokens), tuple(parents), proposer=self.name)

    def see(self, seen: Sequence[HiddenRows]) -> None:
        """Every token but the last is seen once, in order, whatever was drafted."""
        for each in seen:
            (states,) = each.hidden.values()
            assert each.start == self.seen.get(each.request.owner, each.start)
            self.seen[each.request.owner] = each.start + states.shape[0]
            assert each.start + states.shape[0] == each.request.num_computed

    def release(self, request: Request) -> None:
        self.seen.pop(request.owner, None)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    write_llama(folder / "target", num_hidden_layers=3)
    with Host(folder / "target", speculation="off") as host:
        yield host


def prompts(count: int) -> list[list[int]]:
    """Ends at all places of a page, and beyond the pages that KIVI packs and QUEST chooses from."""
    long = [(7 * i + i * i // 5) % EOS for i in range(260)]
    return [long[3 * b : 140 + 7 * b] if b % 2 else long[: 9 + 13 * b] for b in range(count)]


def with_oracle(host: Host) -> Oracle:
    stepper = host.stepper
    oracle = Oracle(len(stepper.model.model.layers))  # type: ignore[union-attr]
    stepper.executor.controller = Controller((oracle,))
    host.engine._options.capabilities |= {"medusa heads"}
    return oracle


def drafted(host: Host, oracle: Oracle, count: int, sampling: Sampling, plain: list[Any], budget: int) -> list[Any]:
    oracle.truth = {tuple(prompt): answer.tokens for prompt, answer in zip(prompts(count), plain, strict=True)}
    options: dict[str, bool | int | str] = {"speculation": "medusa", "draft_length": NODES, "tree_nodes": NODES}
    return host.answer(prompts(count), sampling, budget, ngram_first=False, **options)


@pytest.mark.slow
@pairs(
    seldom=lambda variant, **_: variant not in ("16bit", "int4"),
    variant=list(VARIANTS),
    sampling=list(SAMPLINGS),
    batch=[1, 6],
)
def test_trees_leave_the_text_as_it_is(host: Host, variant: str, sampling: str, batch: int) -> None:
    host.fresh(VARIANTS[variant].switches)
    try:
        oracle = with_oracle(host)
        plain = host.answer(prompts(batch), SAMPLINGS[sampling])
        before = sum(outcome.sources.count("target") for outcome in plain)
        assert before == sum(len(outcome.tokens) for outcome in plain)
        for budget in (64, 256):  # the first cuts prompts into chunks beside the trees
            found = drafted(host, oracle, batch, SAMPLINGS[sampling], plain, budget)
            assert [outcome.tokens for outcome in found] == [outcome.tokens for outcome in plain]
            sources = [source for outcome in found for source in outcome.sources]
            assert {"medusa", "corrected"} <= set(sources)
            assert len(host.steps) < sum(len(outcome.tokens) for outcome in plain)
        assert max(oracle.sizes) == NODES
    finally:
        host.fresh()


@pytest.mark.slow
def test_keys_left_where_a_branch_wrote_them_would_be_noticed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the move, later rows read a rejected branch."""
    oracle = with_oracle(host)
    plain = host.answer(prompts(4), SAMPLINGS["greedy"])
    monkeypatch.setattr(executor_module, "moves", lambda taken, group: ([], []))
    found = drafted(host, oracle, 4, SAMPLINGS["greedy"], plain, 256)
    assert [outcome.tokens for outcome in found] != [outcome.tokens for outcome in plain]


def test_a_chain_moves_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    stepper = host.stepper
    moved: list[int] = []

    def counted(taken: Any, group: int) -> tuple[list[int], list[int]]:
        source, target = moves(taken, group)
        moved.extend(source)
        return source, target

    monkeypatch.setattr(executor_module, "moves", counted)
    stepper.executor.controller = Controller(stepper.model.drafting.proposers)
    copying = [[*prompts(1)[0][:6]] * 4]
    found = host.answer(
        copying, Sampling(temperature=0.0, max_tokens=3 * PAGE_SIZE), speculation="ngram", draft_length=4
    )
    assert "ngram" in found[0].sources
    assert moved == []


@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_limits_right_behind_an_accepted_path(host: Host, sampling: str) -> None:
    """Drafts end before a limit, so that no path goes on behind it: the token at a limit is drawn."""
    oracle, last = with_oracle(host), set()
    plain = host.answer(prompts(1), SAMPLINGS[sampling])
    for length in range(1, 14):
        limited = replace(SAMPLINGS[sampling], max_tokens=length)
        (found,) = drafted(host, oracle, 1, limited, plain, 256)
        assert (found.tokens, found.reason) == (plain[0].tokens[:length], "length")
        last.add(found.sources[-1])
    assert "bonus" in last, "no path reached a limit"
    assert "medusa" not in last


@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_stop_strings_inside_an_accepted_path(host: Host, sampling: str) -> None:
    oracle, last = with_oracle(host), set()
    plain = host.answer(prompts(1), SAMPLINGS[sampling])
    for start in range(1, 12):
        stop = plain[0].text[start : start + 2]
        cut = plain[0].text.find(stop)
        (found,) = drafted(host, oracle, 1, replace(SAMPLINGS[sampling], stop=[stop]), plain, 256)
        assert (found.text, found.reason) == (plain[0].text[:cut], "stop")
        assert found.tokens == plain[0].tokens[: cut + 2]
        last.add(found.sources[-1])
    assert "medusa" in last, "no path went on behind a stop string"


def test_the_end_of_the_text_inside_an_accepted_path(host: Host) -> None:
    """In the truth the text goes on behind its end, so that paths through the end are there to be accepted."""
    oracle, last = with_oracle(host), set()
    for seed in range(8):
        endless = Sampling(temperature=1.0, seed=seed, logit_bias={EOS: 3.0}, max_tokens=40, ignore_eos=True)
        truth = host.answer(prompts(1), endless)
        (found,) = drafted(host, oracle, 1, replace(endless, ignore_eos=False), truth, 256)
        end = truth[0].tokens.index(EOS) + 1
        assert (found.tokens, found.reason) == (truth[0].tokens[:end], "stop")
        last.add(found.sources[-1])
    assert "medusa" in last, "no path went on behind an end"


@pytest.mark.slow
@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_only_accepted_tokens_enter_the_prefix_tree(host: Host, sampling: str) -> None:
    """Neither their ids nor their keys and values: texts that go on from what is kept there are those read anew."""
    cache = host.stepper.cache
    oracle = with_oracle(host)
    plain = host.answer(prompts(6), SAMPLINGS[sampling], prefix_cache=False)
    cache.tree.evict(1 << 30)
    cache.space.resize(0)
    found = drafted(host, oracle, 6, SAMPLINGS[sampling], plain, 256)
    texts = [[*prompt, *outcome.tokens] for prompt, outcome in zip(prompts(6), found, strict=True)]
    kept = [
        [token for each in reversed([*node.path()]) for key in each.keys for token in tokens_of(key)]
        for node in cache.tree.nodes()
    ]
    assert all(any(text[: len(part)] == part for text in texts) for part in kept)
    assert sum(part == text[: len(part)] for part in kept for text in texts if len(part) > len(text) - 40) >= 6
    longer = [[*text, 5, 7] for text in texts]
    expected = host.answer(longer, SAMPLINGS[sampling], prefix_cache=False)
    assert [each.tokens for each in host.answer(longer, SAMPLINGS[sampling])] == [each.tokens for each in expected]
