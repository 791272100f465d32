"""One interface for three tests of drafts: what each accepts, that it repeats, and that no request sees another."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
import torch

from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.probabilities import probabilities
from engine.compute.sampling.sampler import Draw, sample
from engine.decoding.speculation.base import NO_DRAFT, DraftTree
from engine.decoding.speculation.proposers.drawing import draw_next
from engine.decoding.speculation.verify.typical import DELTA, EPSILON
from engine.decoding.speculation.verify.verifier import Verdict, drawn_tokens, judge_all, verify

VOCABULARY = 40
WARM = SamplingParams(seed=5, temperature=0.8, top_p=0.9)
GREEDY = SamplingParams(seed=5, temperature=0.0)


def judge(mode: str, tree: DraftTree, logits: torch.Tensor, draws: list[Draw]) -> Verdict:
    """One tree alone."""
    return judge_all([mode], [tree], logits, draws)[0]


def rows_for(tree: DraftTree, params: SamplingParams, tokens: Sequence[int] = (1, 2)) -> list[Draw]:
    return [Draw(params, 0, tokens, tree.path(node)) for node in range(-1, len(tree.tokens))]


def logits_of(*shares: Sequence[float]) -> torch.Tensor:
    """Rows whose softmax is as given."""
    return torch.tensor(shares).log()


def seeds(many: int) -> list[SamplingParams]:
    return [SamplingParams(seed=seed) for seed in range(many)]


def random_step(many: int, seed: int) -> tuple[list[str], list[DraftTree], torch.Tensor, list[Draw]]:
    """Requests of all modes with chains, drawn chains, trees and no drafts at all."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    modes, trees, draws = [], [], []
    for place in range(many):
        mode = rng.choice(["keyed", "ratio", "typical"])
        params = SamplingParams(seed=place, temperature=rng.choice([0.0, 0.5, 1.2]), top_p=rng.choice([1.0, 0.8]))
        size = rng.randrange(6)
        draft_tokens = tuple(rng.randrange(6) for _ in range(size))
        if rng.random() < 0.5:
            tree = DraftTree(draft_tokens, tuple(rng.randrange(-1, node) for node in range(size)))
        elif mode == "ratio" and size and params.temperature:
            own = [Draw(params, place, [1, 2], draft_tokens[:depth]) for depth in range(size)]
            drawn, q = draw_next(torch.randn(size, VOCABULARY), own, ["ratio"] * size)
            tree = DraftTree(tuple(drawn), q=q)
        else:
            tree = DraftTree(draft_tokens)
        modes.append(mode)
        trees.append(tree)
        draws += [Draw(params, place, [1, 2], tree.path(node)) for node in range(-1, len(tree.tokens))]
    logits = torch.randn(len(draws), VOCABULARY)
    logits[:, :6] += 3.0
    return modes, trees, logits, draws


@pytest.mark.parametrize("seed", range(8))
def test_no_request_sees_another_and_a_step_repeats_exactly(seed: int) -> None:
    modes, trees, logits, draws = random_step(40, seed)
    together = judge_all(modes, trees, logits, draws)
    assert together == judge_all(modes, trees, logits, draws)
    row = 0
    for mode, tree, verdict in zip(modes, trees, together, strict=True):
        stop = row + 1 + len(tree.tokens)
        assert judge(mode, tree, logits[row:stop], draws[row:stop]) == verdict
        row = stop


def test_blocks_of_requests_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    step = random_step(60, 1)
    together = judge_all(*step)
    monkeypatch.setattr("engine.decoding.speculation.verify.verifier._BLOCK", 7 * VOCABULARY)
    assert judge_all(*step) == together


def test_keyed_verdicts_are_verify_on_what_the_sampler_draws() -> None:
    _, trees, logits, draws = random_step(40, 2)
    targets = sample(logits, draws)
    row = 0
    for tree, verdict in zip(trees, judge_all(["keyed"] * 40, trees, logits, draws), strict=True):
        assert verdict == verify(tree, targets[row : row + 1 + len(tree.tokens)])
        row += 1 + len(tree.tokens)


@pytest.mark.parametrize("mode", ["ratio", "typical"])
def test_greedy_modes_keep_the_likeliest_tokens_alone(mode: str) -> None:
    tree = DraftTree((5, 6, 8, 9), (-1, 0, -1, 2))
    logits = torch.zeros(5, VOCABULARY)
    for row, likeliest in enumerate([8, 0, 0, 9, 3]):
        logits[row, likeliest] = 0.01
    assert judge(mode, tree, logits, rows_for(tree, GREEDY)) == ((2, 3), 3, "bonus")
    logits[0, 7] = 1.0
    assert judge(mode, tree, logits, rows_for(tree, GREEDY)) == ((), 7, "corrected")


@pytest.mark.parametrize("mode", ["keyed", "ratio", "typical"])
def test_without_drafts_every_mode_draws_as_ever(mode: str) -> None:
    logits = torch.randn(1, VOCABULARY)
    draws = [Draw(WARM, 0, [1, 2, 3])]
    assert judge(mode, NO_DRAFT, logits, draws) == ((), sample(logits, draws)[0], "target")


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(KeyError):
        judge("lenient", DraftTree((1,)), torch.zeros(2, VOCABULARY), rows_for(DraftTree((1,)), WARM))


def test_a_draft_whose_q_is_p_is_always_accepted() -> None:
    logits = torch.randn(4, VOCABULARY)
    for params in seeds(200):
        start = [Draw(params, 0, [1, 2], [0] * depth) for depth in range(3)]
        drawn, q = draw_next(logits[:3], start, ["ratio"] * 3)
        tree = DraftTree(tuple(drawn), q=q)
        verdict = judge("ratio", tree, logits, rows_for(tree, params))
        assert (verdict.nodes, verdict.source) == ((0, 1, 2), "bonus")


def test_a_draft_that_the_target_cannot_draw_is_rejected_and_not_drawn_again() -> None:
    """p has no mass on token 0; q has all of it there. And a point mass that failed never comes back."""
    p = logits_of([0.0, 0.5, 0.5], [0.2, 0.4, 0.4])
    for params in seeds(100):
        tree = DraftTree((0,), q=torch.tensor([[1.0, 0.0, 0.0]]))
        verdict = judge("ratio", tree, p, rows_for(tree, params))
        assert verdict.nodes == ()
        assert verdict.token in (1, 2)
        verdict = judge("ratio", DraftTree((1,)), p, rows_for(DraftTree((1,)), params))
        assert verdict.nodes == (0,) or verdict.token == 2


def test_children_that_hold_all_of_p_leave_nothing_to_draw() -> None:
    """Thirds do not add up to 1 in float32: the last child has whatever is left."""
    third = 1.0 / 3.0
    tree = DraftTree((2, 0, 1), (-1, -1, -1))
    p = logits_of(*[[third, third, third, 0.0]] * 4)
    counts = [0, 0, 0]
    for params in seeds(300):
        verdict = judge("ratio", tree, p, rows_for(tree, params))
        assert len(verdict.nodes) == 1
        counts[verdict.nodes[0]] += 1
    assert min(counts) > 70


@pytest.mark.parametrize("children", [(3, 0, 1, 2), (0, 3, 1, 2), (2, 1, 0, 3)])
def test_a_child_without_any_probability_is_never_kept(children: tuple[int, ...]) -> None:
    tree = DraftTree(children, (-1,) * 4)
    p = logits_of(*[[0.3, 0.1, 0.6, 0.0]] * 5)
    for params in seeds(200):
        verdict = judge("ratio", tree, p, rows_for(tree, params))
        assert 3 not in (verdict.token, *(tree.tokens[node] for node in verdict.nodes))


def test_equal_children_are_tried_once() -> None:
    """Had the second a chance of its own, a third more would be accepted."""
    tree = DraftTree((0, 0), (-1, -1))
    p = logits_of(*[[0.5, 0.25, 0.25]] * 3)
    many = 2000
    verdicts = [judge("ratio", tree, p, rows_for(tree, params)) for params in seeds(many)]
    assert abs(sum(bool(verdict.nodes) for verdict in verdicts) / many - 0.5) < 0.05
    assert all(verdict.nodes == (0,) or verdict.token != 0 for verdict in verdicts)


def test_where_nothing_is_left_of_p_it_serves_itself() -> None:
    """As when q is p and a draft fails by the last bit; here q is twice p, so that half of them fail."""
    shares = torch.tensor([[0.5, 0.5, 0.0]])
    tree = DraftTree((1,), q=2.0 * shares)
    failed = 0
    for params in seeds(100):
        verdict = judge("ratio", tree, shares.expand(2, -1).log(), rows_for(tree, params))
        failed += not verdict.nodes
        assert verdict.token in (0, 1)
    assert failed > 20


def test_typical_keeps_what_is_not_too_unlikely() -> None:
    """H of [0.8, 0.15, 0.05] is 0.613 nats: delta exp(-H) = 0.163, so epsilon = 0.09 decides."""
    row = [0.8, 0.15, 0.05]
    assert DELTA * math.exp(-0.613) > EPSILON
    plain = SamplingParams(seed=0)
    for token, kept in ((0, True), (1, True), (2, False)):
        tree = DraftTree((token,))
        draws = rows_for(tree, plain)
        verdict = judge("typical", tree, logits_of(row, row), draws)
        last = sample(logits_of(row), [draws[len(verdict.nodes)]])[0]
        assert verdict == ((0,) if kept else (), last, "bonus" if kept else "corrected")


def test_typical_asks_less_where_the_question_is_open() -> None:
    """Of 100 equal tokens each has 0.01, and delta exp(-H) = 0.003."""
    logits = torch.zeros(2, 100)
    tree = DraftTree((17,))
    assert judge("typical", tree, logits, rows_for(tree, SamplingParams(seed=0))).nodes == (0,)
    truncated = SamplingParams(seed=0, top_k=1)
    logits[:, 3] = 1e-3
    assert judge("typical", tree, logits, rows_for(tree, truncated)).nodes == ()


def test_typical_takes_the_longest_path_and_of_those_the_likeliest() -> None:
    #      root -> 0 ; root -> 1 -> 0 ; root -> 1 -> 1
    tree = DraftTree((0, 1, 0, 1), (-1, -1, 1, 1))
    rows = [[0.7, 0.3], [0.5, 0.5], [0.4, 0.6], [0.5, 0.5], [0.5, 0.5]]
    assert judge("typical", tree, logits_of(*rows), rows_for(tree, SamplingParams(seed=0))).nodes == (1, 3)
    rows[2] = [0.6, 0.4]
    assert judge("typical", tree, logits_of(*rows), rows_for(tree, SamplingParams(seed=0))).nodes == (1, 2)


def test_drawn_tokens_stand_in_the_rows_that_drew_them() -> None:
    tree = DraftTree((5, 6, 8, 9), (-1, 0, -1, 2))
    verdicts = [Verdict((2, 3), 4, "bonus"), Verdict((), 7, "target"), Verdict((2,), 3, "corrected")]
    assert drawn_tokens([tree, NO_DRAFT, tree], verdicts) == [8, 0, 0, 9, 4, 7, 8, 0, 0, 3, 0]


@pytest.mark.parametrize("params", [SamplingParams(seed=0), SamplingParams(seed=0, temperature=1.4, top_p=0.9)])
def test_acceptance_is_what_theory_says(params: SamplingParams) -> None:
    """Ratio accepts 1 - TV(p, q) of the drafts; common noise at least (1 - TV) / (1 + TV), and no more than ratio.

    Sources: Leviathan et al. 2023, section 3.1; Daliri et al. 2024 (arXiv 2408.07978), theorem on Gumbel coupling.
    """
    many = 6000
    torch.manual_seed(7)
    target, proposer = torch.randn(12) * 1.5, torch.randn(12)
    proposer = target + proposer
    own = [Draw(params, place, [1]) for place in range(many)]
    apart = 0.5 * float((probabilities(target[None], own[:1]) - probabilities(proposer[None], own[:1])).abs().sum())
    assert 0.2 < apart < 0.8
    found = {}
    for mode in ("keyed", "ratio"):
        tokens, q = draw_next(proposer.expand(many, -1), own, [mode] * many)
        trees = [DraftTree((token,), q=None if q is None else q[row][None]) for row, token in enumerate(tokens)]
        draws = [Draw(params, row, [1], tree.path(node)) for row, tree in enumerate(trees) for node in (-1, 0)]
        verdicts = judge_all([mode] * many, trees, target.expand(2 * many, -1), draws)
        found[mode] = sum(bool(verdict.nodes) for verdict in verdicts) / many
    # Five standard deviations of a share at most 0.5 / sqrt(many).
    slack = 2.5 / math.sqrt(many)
    assert abs(found["ratio"] - (1 - apart)) < slack
    assert (1 - apart) / (1 + apart) - slack < found["keyed"] < 1 - apart + slack
