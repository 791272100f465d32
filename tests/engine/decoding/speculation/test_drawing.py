"""Drafts take the noise that the target will use, or their own where their distribution is handed on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.sampling import noise
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.probabilities import draw_from, probabilities
from engine.compute.sampling.sampler import Draw, new_history, processed, sample
from engine.decoding.options import RequestOptions
from engine.decoding.speculation.base import DraftRequest
from engine.decoding.speculation.draft_model.proposer import DraftModelProposer
from engine.decoding.speculation.proposers.drawing import children, draw_next
from engine.text.stream import Piece
from tests.engine.loop.requests_support import new_request

CPU = torch.device("cpu")
KINDS = (
    SamplingParams(seed=1, temperature=0.0),
    SamplingParams(seed=2, temperature=0.7),
    SamplingParams(seed=3, top_p=0.5),
    SamplingParams(seed=4, typical_p=0.5),
    SamplingParams(seed=5, temperature=0.0, repetition_penalty=1.5),
)
VOCABULARY = 300


def batch(rows: int, kinds: Sequence[SamplingParams] = KINDS) -> tuple[torch.Tensor, list[Draw]]:
    torch.manual_seed(rows)
    params = [kinds[row % len(kinds)] for row in range(rows)]
    draws = [
        Draw(each, row, [1, 2, 3], [4] * (row % 2), new_history(each, VOCABULARY, 1, CPU))
        for row, each in enumerate(params)
    ]
    return torch.randn(rows, VOCABULARY) * 2, draws


def test_keyed_and_typical_drafts_are_what_the_target_would_draw() -> None:
    logits, draws = batch(20)
    tokens, shares = draw_next(logits, draws, ["keyed", "typical"] * 10)
    assert tokens == sample(logits, draws)
    assert shares is None


def test_ratio_drafts_come_with_their_distribution_and_noise_of_their_own() -> None:
    logits, draws = batch(20)
    modes = ["ratio", "keyed", "ratio", "typical", "ratio"] * 4
    tokens, shares = draw_next(logits, draws, modes)
    everything = probabilities(logits, draws)
    own = draw_from(everything, draws, noise.DRAFT).tolist()
    targets = sample(logits, draws)
    assert shares is not None
    for row, mode in enumerate(modes):
        assert tokens[row] == (own if mode == "ratio" else targets)[row]
        assert torch.equal(shares[row], everything[row] if mode == "ratio" else torch.zeros(VOCABULARY))
    warm = [row for row, draw in enumerate(draws) if not draw.params.greedy]
    assert any(own[row] != targets[row] for row in warm)


@pytest.mark.parametrize("mode", ["keyed", "ratio"])
def test_a_draft_is_the_same_whatever_stands_beside_it(mode: str) -> None:
    logits, draws = batch(20)
    together, _ = draw_next(logits, draws, [mode] * 20)
    mixed, _ = draw_next(logits, draws, [mode, "keyed", "ratio", "typical"] * 5)
    for row in range(20):
        assert draw_next(logits[row : row + 1], [draws[row]], [mode])[0] == [together[row]]
    assert mixed[::4] == together[::4]


def test_the_first_child_is_what_the_row_would_draw_and_no_two_are_alike() -> None:
    logits, draws = batch(25)
    found = children(logits, draws, [6] * 25)
    for row, token in zip(found, sample(logits, draws), strict=True):
        assert row[0][0] == token
        assert len({child for child, _ in row}) == len(row) <= 6
        shares = [share for _, share in row]
        assert shares == sorted(shares, reverse=True)
        assert 0.0 < sum(shares) <= 1.0 + 1e-6


def test_greedy_confidences_are_the_softmax() -> None:
    logits, draws = batch(4, [SamplingParams(seed=0, temperature=0.0, logit_bias={17: 9.0})])
    wanted = torch.softmax(processed(logits, draws), -1).topk(3)
    for row, pairs in enumerate(children(logits, draws, [3] * 4)):
        assert [token for token, _ in pairs] == wanted.indices[row].tolist()
        assert [share for _, share in pairs] == pytest.approx(wanted.values[row].tolist(), rel=1e-4)


def test_warm_confidences_are_the_softmax_with_the_targets_noise() -> None:
    logits, draws = batch(4, [SamplingParams(seed=9, temperature=1.3)])
    keys = noise.keys([draw.key for draw in draws], CPU)
    noised = processed(logits, draws) + noise.gumbel(keys, None, VOCABULARY)
    wanted = torch.softmax(noised, -1).topk(3)
    for row, pairs in enumerate(children(logits, draws, [3] * 4)):
        assert [token for token, _ in pairs] == wanted.indices[row].tolist()
        assert [share for _, share in pairs] == pytest.approx(wanted.values[row].tolist())


def test_counts_and_truncation_limit_the_children() -> None:
    logits, draws = batch(3, [SamplingParams(seed=0, top_k=4)])
    found = children(logits, draws, [9, 0, 2])
    assert [len(row) for row in found] == [4, 0, 2]
    assert {token for token, _ in found[0]} == set(logits[0].topk(4).indices.tolist())
    assert children(logits, draws, [0, 0, 0]) == [[], [], []]
    assert len(children(torch.randn(1, 5), [Draw(SamplingParams(seed=0), 0, [1])], [50])[0]) == 5


@pytest.mark.parametrize("params", [SamplingParams(seed=0, temperature=0.0), SamplingParams(seed=0, top_p=0.9)])
def test_equal_scores_lead_with_the_token_that_is_drawn(params: SamplingParams) -> None:
    logits = torch.zeros(8, 64)
    logits[:, 40:] = 3.0
    draws = [Draw(params, row, [1]) for row in range(8)]
    firsts = [row[0][0] for row in children(logits, draws, [3] * 8)]
    assert firsts == sample(logits, draws)


def test_children_are_the_same_whatever_stands_beside_them() -> None:
    logits, draws = batch(25)
    rng = random.Random(1)
    counts = [rng.randrange(7) for _ in range(25)]
    together = children(logits, draws, counts)
    for row in range(25):
        (alone,) = children(logits[row : row + 1], [draws[row]], [counts[row]])
        assert [token for token, _ in alone] == [token for token, _ in together[row]]
        assert [share for _, share in alone] == pytest.approx([share for _, share in together[row]])


class Bigrams:
    """A draft whose logits depend on the last token alone."""

    batch_seconds = 0.0
    graphs, eager = None, ""
    table = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(2)) * 2

    def forward(self, rows: Sequence[SequenceRows]) -> ForwardOutput:
        return ForwardOutput(self.table[[row.tokens[-1] for row in rows if row.want_logits]], {})


def ask(params: SamplingParams, acceptance: str, answer: int) -> DraftRequest:
    options = RequestOptions(speculation="draft", acceptance=acceptance)
    request = new_request("r", [1, 2, 3 + answer], params, options, 64, answer=answer, arrival=answer)
    request.cache.pages = [1]
    return DraftRequest(request, 3, request.known)


class _Silent:
    stopped = False

    def push(self, token_id: int) -> Piece:
        return Piece("")

    def flush(self) -> Piece:
        return Piece("")


def test_the_draft_model_says_what_it_drew_from_where_ratio_asks() -> None:
    warm, cold = SamplingParams(seed=4, top_p=0.9), SamplingParams(seed=4, temperature=0.0)
    asks = [ask(warm, "ratio", 0), ask(warm, "keyed", 1), ask(cold, "ratio", 2), ask(warm, "ratio", 3)]
    asks[3] = asks[3]._replace(budget=1)
    trees = DraftModelProposer(Bigrams(), VOCABULARY, (), 1, 1.0).propose(asks)
    assert [len(tree.tokens) for tree in trees] == [3, 3, 3, 1]
    assert [None if tree.q is None else tuple(tree.q.shape) for tree in trees] == [(3, 300), None, None, (1, 300)]
    for (request, *_), tree in zip(asks, trees, strict=True):
        before = (request.tokens[-1], *tree.tokens[:-1])
        logits = Bigrams.table[list(before)]
        draws = [
            Draw(request.params, request.answer, request.tokens, tree.path(node - 1)) for node in range(len(before))
        ]
        if tree.q is None:
            assert list(tree.tokens) == sample(logits, draws)
        else:
            assert torch.equal(tree.q, probabilities(logits, draws))
            assert list(tree.tokens) == draw_from(tree.q, draws, noise.DRAFT).tolist()
