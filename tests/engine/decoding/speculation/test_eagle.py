"""Drafts of a feature head: batches, trees, chains, texts that fall back, and pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest
import torch

from engine.cache.policies import WindowWithSinks
from engine.cache.pool import PAGE_SIZE
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.base import OUTPUT, FeatureHead
from engine.compute.runner.runner import Runner
from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest
from engine.decoding.speculation.proposers.trees import BestTree, DraftNode, best_tree
from engine.protocol import Sampling
from tests.contracts.proposer import Make, ProposerContract
from tests.engine.decoding.speculation.decoding import Budget, prompt, shapes
from tests.engine.decoding.speculation.heads_support import EOS, HeadDecoding, write, write_eagle3, write_mtp

SAMPLED = Sampling(temperature=0.8, top_p=0.95, seed=5)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[CausalLM, FeatureHead]]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    made = {each: write(tmp_path_factory.mktemp("models"), each) for each in ("none", "some", "full")}
    made |= {
        "eagle3": write_eagle3(tmp_path_factory.mktemp("models")),
        "mtp": write_mtp(tmp_path_factory.mktemp("models")),
    }
    yield made
    torch.set_num_threads(before)


Models = dict[str, tuple[CausalLM, FeatureHead]]


class TestFeatureHeads(ProposerContract):
    """The EAGLE-1 head foresees a part of its target's texts, the others hardly anything."""

    eos = EOS
    cases: ClassVar[Mapping[str, Mapping[str, str]]] = {"kind": {"eagle": "some", "eagle3": "eagle3", "mtp": "mtp"}}

    @pytest.fixture
    def make(self, models: Models, kind: str) -> Make:
        return lambda: HeadDecoding(*models[kind], breadth=4)

    def count(self, budget: int, depth: int) -> int:
        """A chain where it is to be as deep as it is large, else a tree of at most 7 depths."""
        if budget == depth:
            return budget
        return min(budget, 4 + 16 * (min(depth, 7) - 1)) if depth else 0


def of_nodes(nodes: int, depth: int = 1 << 30) -> Budget:
    return lambda request: (nodes, depth)


def grown(
    host: HeadDecoding, tokens: list[int], size: int, depth: int, breadth: int, ends: tuple[int, ...] = (EOS,)
) -> BestTree:
    """EAGLE-2's tree by its definition, greedy: every path is a text that is read from its beginning."""
    model, head = host.model, host.head
    pages = list(range(1, (len(tokens) + depth) // PAGE_SIZE + 2))
    target = Runner(model, new_store(model.config, len(pages) + 1, torch.float32), AttentionDispatcher())
    hidden = target.forward([SequenceRows(tokens, 0, pages)], want_hidden=frozenset(head.reads)).hidden
    first = head.features(hidden)[:-1]

    def read(path: list[int], states: list[torch.Tensor]) -> torch.Tensor:
        runner = Runner(head, head.new_store(len(pages) + 1), AttentionDispatcher())
        rows = [SequenceRows([*tokens[1:], *path], 0, pages)]
        given = torch.cat([first, *(state[None] for state in states)])
        return runner.forward(rows, hidden_in=given, want_hidden=frozenset({OUTPUT})).hidden[OUTPUT][-1]

    nodes: list[DraftNode] = []
    paths: dict[int, tuple[list[int], list[torch.Tensor]]] = {-1: ([], [])}
    worth = {-1: 1.0}
    leaves = [-1]
    for _ in range(depth):
        fresh = []
        for leaf in leaves:
            path, states = paths[leaf]
            output = read(path, states)
            with torch.inference_mode():
                shares = torch.softmax(head.logits(output[None])[0], -1)
            top = shares.topk(breadth)
            for token, share in zip(top.indices.tolist(), top.values.tolist(), strict=True):
                if share == 0.0:
                    continue
                node = len(nodes)
                nodes.append(DraftNode(token, leaf, share))
                worth[node] = worth[leaf] * share
                paths[node] = ([*path, token], [*states, output])
                if token not in ends:
                    fresh.append(node)
        leaves = sorted(sorted(fresh, key=lambda node: -worth[node])[:breadth])
    return best_tree(nodes, size)


def test_a_padded_batch_drafts_as_one_that_is_not(models: Models) -> None:
    sizes = {"2": (20, 5), "17": (6, 6), "33": (9, 2)}

    def budget(request: Request) -> tuple[int, int]:
        return sizes[request.id]

    together = HeadDecoding(*models["eagle3"], breadth=4)
    requests = [together.request(name, prompt(int(name), 7), SAMPLED) for name in sizes]
    together.decode(requests, 16, budget, chunk=8)
    for name in sizes:
        alone = HeadDecoding(*models["eagle3"], padded=True, breadth=4)
        alone.decode([alone.request(name, prompt(int(name), 7), SAMPLED)], 16, budget, chunk=8)
        assert shapes(alone.trees[name]) == shapes(together.trees[name])
        branched = [parents is not None for _, parents in shapes(alone.trees[name])]
        assert any(branched) == (name != "17")


@pytest.mark.parametrize("kind", ["none", "eagle3", "mtp"])
def test_a_tree_is_the_one_of_the_definition(models: Models, kind: str) -> None:
    host = HeadDecoding(*models[kind], breadth=2, depth=5)
    host.decode([host.request("a", prompt(21, 3))], 9, of_nodes(14))
    branched = 0
    for tree, tokens in zip(host.trees["a"], host.before["a"], strict=True):
        if tree is not NO_DRAFT:
            expected = grown(host, tokens, 14, 5, 2)
            assert (tree.tokens, tree.parents) == (expected.tokens, expected.parents)
            branched += tree.parents is not None
    assert branched > 3


def test_a_chain_is_the_best_draft_after_the_best_draft(models: Models) -> None:
    host = HeadDecoding(*models["none"])
    host.decode([host.request("a", prompt(18, 4), Sampling(temperature=0.0, ignore_eos=True))], 12, of_nodes(5, 5))
    for tree, tokens in zip(host.trees["a"][1:], host.before["a"][1:], strict=True):
        assert tree.parents is None
        assert tree.q is None
        assert tree.tokens == grown(host, tokens, 5, 5, 1, ()).tokens
    assert all(len(row.tokens) == 1 for rows in host.recorder.passes[-4:] for row in rows), "nothing is read twice"


def test_drafts_for_the_ratio_test_are_a_chain_of_the_heads_depth(models: Models) -> None:
    host = HeadDecoding(*models["none"], depth=6)
    ratio = host.request("ratio", prompt(9, 1), Sampling(temperature=1.0, seed=3, ignore_eos=True), acceptance="ratio")
    keyed = host.request("keyed", prompt(9, 2), Sampling(temperature=1.0, seed=3, ignore_eos=True))
    host.decode([ratio, keyed], 1)
    for request in (ratio, keyed):
        host.hold(request, request.known + 12)
    trees = host.proposer.propose([DraftRequest(each, 12, each.known) for each in (ratio, keyed)])
    assert len(trees[0].tokens) == 6
    assert trees[0].parents is None
    assert trees[1].parents is not None


def test_a_head_that_knows_the_target_is_believed(models: Models) -> None:
    for sampling in (Sampling(temperature=0.0, ignore_eos=True), Sampling(temperature=1.3, seed=2, ignore_eos=True)):
        host = HeadDecoding(*models["full"])
        request = host.request("a", prompt(5, 9), sampling)
        host.decode([request], 41, of_nodes(4, 4))
        trees = [tree for tree in host.trees["a"] if tree is not NO_DRAFT]
        assert len(trees) == 8, "5 tokens a step"
        assert request.progress.accepted == 32
    host = HeadDecoding(*models["full"])
    request = host.request("a", prompt(5, 9), Sampling(temperature=1.3, seed=2, ignore_eos=True))
    host.decode([request], 40, of_nodes(30))
    assert request.progress.accepted / sum(tree is not NO_DRAFT for tree in host.trees["a"]) > 3


# --- texts and pages ---------------------------------------------------------------------------------------------


def spoil(host: HeadDecoding) -> None:
    """Numbers that show in whatever reads them."""
    for arena in (host.store.view(0).k, host.store.view(0).v):
        arena.fill_(float("nan"))


@pytest.mark.parametrize("drafts", [0, 16, 32])
def test_a_prefix_that_no_head_had_read_is_not_seen(models: Models, drafts: int) -> None:
    """Found in the cache are 32 tokens of the target, of which the head's arena has some: the rest of it is garbage."""
    plain = HeadDecoding(*models["none"])
    expected = plain.decode([plain.request("a", prompt(40, 8))], 24)
    texts, draft_tokens = [], []
    for garbage in (False, True):
        host = HeadDecoding(*models["none"], breadth=4)
        request = host.request("a", prompt(40, 8))
        host.decode([request], 6, of_nodes(8))
        known = len(host.trees["a"])
        host.send_away(request, 32, drafts)
        if garbage:
            kept = host.store.export_pages(request.pages[: drafts // PAGE_SIZE])
            spoil(host)
            host.store.import_pages(request.pages[: drafts // PAGE_SIZE], kept)
        texts += host.decode([request], 24, of_nodes(8))
        draft_tokens.append(shapes(host.trees["a"][known:]))
        assert request.cache.drafts.head == (request.num_computed - 1 if drafts == 32 else drafts) or drafts == 32
        assert (request.cache.drafts.head > 32) == (drafts == 32), "what is missing at the front is nobody's to find"
    assert texts == expected * 2
    assert draft_tokens[0] == draft_tokens[1]
    assert len(draft_tokens[0]) > 2


def test_what_was_read_before_a_gap_is_seen(models: Models) -> None:
    """Of 32 tokens that were found the head's arena has 16: drafts depend on these, and on nothing up to the 32nd."""
    draft_tokens = []
    for page in (None, 0, 1):
        host = HeadDecoding(*models["none"], breadth=4)
        request = host.request("a", prompt(40, 8))
        host.decode([request], 6, of_nodes(8))
        known = len(host.trees["a"])
        host.send_away(request, 32, 16)
        if page is not None:
            for arena in (host.store.view(0).k, host.store.view(0).v):
                arena[request.pages[page] * PAGE_SIZE :][:PAGE_SIZE] = 3.0
        host.decode([request], 24, of_nodes(8))
        draft_tokens.append(shapes(host.trees["a"][known:]))
    assert draft_tokens[1] != draft_tokens[0]
    assert draft_tokens[2] == draft_tokens[0]


def test_a_page_that_gave_way_to_one_of_the_target_alone_is_not_seen(models: Models) -> None:
    """The prefix tree had the same text already, and no head had read it there."""
    draft_tokens = []
    for value in (1.0, float("nan")):
        host = HeadDecoding(*models["none"], breadth=4)
        request = host.request("a", prompt(40, 8))
        host.decode([request], 6, of_nodes(8))
        known = len(host.trees["a"])
        old, request.pages[1] = request.pages[1], host.free.pop()
        host.target.kv.copy_page(old, request.pages[1])
        for arena in (host.store.view(0).k, host.store.view(0).v):
            arena[request.pages[1] * PAGE_SIZE :][:PAGE_SIZE] = value
        request.cache.drafts = request.cache.drafts.at_most(16)
        host.decode([request], 24, of_nodes(8))
        assert request.cache.drafts.head == 16
        draft_tokens.append(shapes(host.trees["a"][known:]))
    assert draft_tokens[0] == draft_tokens[1] != []


def test_another_answer_to_a_prompt_sees_what_the_first_has_read_of_it(models: Models) -> None:
    """It begins with the first one's pages before the head has read them, and with a copy of the last."""
    host = HeadDecoding(*models["none"], breadth=4)
    first, second = (host.request(name, prompt(40, 8)) for name in "ab")
    host.decode([first], 1)
    host.hold(second, 40)
    host.target.kv.copy_page(first.pages[2], second.pages[2])
    host.free += second.pages[:2]
    second.pages[:2] = first.pages[:2]
    second.cache.num_computed, second.cache.fork_of = 39, first.cache
    host.decode([first, second], 20, of_nodes(8))
    text = host.proposer._texts[second.owner]
    assert (text.known, text.first) == (32, 39)
    assert second.cache.drafts.head == 0, "a part of it is missing"
    assert second.tokens == first.tokens[: second.known] or first.tokens == second.tokens[: first.known]
    assert shapes(host.trees["b"])


def test_drafts_resume_after_a_step_that_failed(models: Models) -> None:
    """The features were read, nothing new came: the last output is still there."""
    host = HeadDecoding(*models["none"], breadth=4)
    request = host.request("a", prompt(11, 8))
    host.decode([request], 3, of_nodes(6))
    host.hold(request, request.known + 6)
    ask = DraftRequest(request, 6, request.known)
    first = host.proposer.propose([ask])
    passes = len(host.recorder.passes)
    assert shapes(host.proposer.propose([ask])) == shapes(first) != []
    assert len(host.recorder.passes) - passes < passes


def test_a_long_text_is_read_in_several_passes(models: Models) -> None:
    host = HeadDecoding(*models["none"], max_rows=16)
    request = host.request("a", prompt(60, 8))
    host.decode([request], 1)
    host.hold(request, request.known + 6)
    found = [shapes(host.proposer.propose([DraftRequest(request, 6, request.known)])) for _ in range(4)]
    assert [len(trees) for trees in found] == [0, 0, 0, 1]
    assert [sum(len(row.tokens) for row in rows) for rows in host.recorder.passes[:4]] == [16, 16, 16, 12]
    assert request.cache.drafts.head == 60
    request.tokens.append(3)
    assert host.proposer.propose([DraftRequest(request, 6, 60)]) == [NO_DRAFT], (
        "what follows the last token but one is known"
    )


def test_what_waits_holds_no_memory_of_others(models: Models) -> None:
    host = HeadDecoding(*models["none"])
    requests = [host.request(name, prompt(length, 8)) for name, length in (("a", 5), ("b", 40))]
    host.decode(requests, 1)
    for request in requests:
        text = host.proposer._texts[request.owner]
        features = text.next(text.waiting)
        assert features.shape[0] == request.prompt_length
        assert features.untyped_storage().nbytes() == features.nbytes


def test_features_do_not_pile_up(models: Models) -> None:
    """Of a request that never drafts, the newest are kept; what is lost is missing, and hidden."""
    host = HeadDecoding(*models["none"], max_rows=4)
    request = host.request("a", prompt(30, 8))
    proposer = host.proposer
    host.proposer.propose = lambda asks: [NO_DRAFT] * len(asks)  # type: ignore[method-assign]
    host.decode([request], 20)
    text = proposer._texts[request.owner]
    assert text.waiting == 16
    assert (text.first, text.held) == (33, 33)
    del host.proposer.propose  # type: ignore[attr-defined]
    spoil(host)
    host.decode([request], 40, of_nodes(4))
    assert shapes(host.trees["a"])
    assert request.cache.drafts.head == 0
    plain = HeadDecoding(*models["none"])
    assert plain.decode([plain.request("a", prompt(30, 8))], 40) == [request.tokens[30:70]]


def test_a_window_hides_pages_from_the_head_too(models: Models) -> None:
    texts, draft_tokens = [], []
    for spoiled in (False, True):
        host = HeadDecoding(*models["none"], breadth=4)
        request = host.request("a", prompt(100, 8), policy=WindowWithSinks(64))
        for _ in range(30):
            first, stop = request.cache.dead_pages
            if spoiled and stop > first:
                # Page 0 stands for a page that is dead, as in the engine.
                request.pages[first:stop] = [0] * (stop - first)
                for arena in (host.store.view(0).k, host.store.view(0).v):
                    arena[:PAGE_SIZE].fill_(float("nan"))
            host.step([request], of_nodes(6))
        texts.append(request.tokens[:125])
        draft_tokens.append(shapes(host.trees["a"])[:12])
        assert request.cache.dead_pages[1] > request.cache.dead_pages[0]
    assert texts[0] == texts[1]
    assert draft_tokens[0] == draft_tokens[1]


def test_work_is_counted(models: Models) -> None:
    host = HeadDecoding(*models["none"])
    request = host.request("a", prompt(10, 8))
    host.decode([request], 5, of_nodes(6))
    work = host.proposer.take_work()
    assert work.passes > 4
    assert work.bytes_read > work.passes * host.head.bytes_read_per_step()
