"""Medusa's proposer: trees of what the heads say, from the right state, shaped by what held."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.sampler import Draw, new_history, sample
from engine.decoding.options import RequestOptions
from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, HiddenRows
from engine.decoding.speculation.medusa.accuracy import REFIT_EVERY
from engine.decoding.speculation.medusa.proposer import MedusaProposer
from engine.decoding.speculation.verify.verifier import verify
from tests.contracts.proposer import Make, ProposerContract
from tests.engine.decoding.speculation import target_support
from tests.engine.decoding.speculation.decoding import Decoding
from tests.engine.loop.requests_support import new_request

VOCABULARY, LAYERS, EOS = 50, 7, 49
ROWS = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0)) * 3
"""Logits of the toy target after each token: it looks at nothing else."""


class ToyHeads:
    """The state is the number of the row's token; head i says what the target says after i + 1 likeliest tokens.

    ``swapped``: with the two best choices in each other's place.
    """

    def __init__(self, heads: int = 4) -> None:
        self.num_heads = heads
        self.passes: list[tuple[int, int]] = []
        self.swapped = False

    def normed(self, stream: Tensor) -> Tensor:
        return stream + 1000

    def forward(self, hidden: Tensor, heads: int) -> Tensor:
        self.passes.append((hidden.shape[0], heads))
        token = (hidden[:, 0] - 1000).long()
        said = []
        for _ in range(heads):
            token = ROWS[token].argmax(-1)
            logits = ROWS[token].clone()
            if self.swapped:
                best = logits.topk(2, -1).indices
                logits.scatter_(1, best, logits.gather(1, best.flip(-1)))
            said.append(logits)
        return torch.stack(said)

    def bytes_read(self, heads: int) -> int:
        return 10 * heads


def proposer(heads: ToyHeads | None = None) -> MedusaProposer:
    return MedusaProposer(heads or ToyHeads(), LAYERS, None, (EOS,))


def request(
    number: int = 0, prompt: Sequence[int] = (3, 1, 4), acceptance: str = "keyed", **sampling: object
) -> Request:
    params = SamplingParams(**({"seed": 5, "temperature": 0.0, "ignore_eos": True} | sampling))  # type: ignore[arg-type]
    options = RequestOptions(speculation="medusa", acceptance=acceptance)  # type: ignore[arg-type]
    made = new_request(str(number), prompt, params, options, 4096, arrival=number)
    made.history = new_history(params, VOCABULARY, len(prompt), torch.device("cpu"))
    return made


def states(tokens: Sequence[int]) -> dict[int, Tensor]:
    return {LAYERS: torch.tensor(tokens, dtype=torch.float32).unsqueeze(1).repeat(1, 2)}


def ready(made: MedusaProposer, *requests: Request) -> None:
    """The step that read each whole prompt and drew a first token."""
    for one in requests:
        one.tokens.append(int(ROWS[one.tokens[-1]].argmax()))
    made.see([HiddenRows(one, 0, states(one.tokens[:-1])) for one in requests])


def ask(one: Request, budget: int = 20, depth: int = 1 << 30) -> DraftRequest:
    return DraftRequest(one, budget, len(one.tokens), depth)


def parents_of(tree: DraftTree) -> tuple[int, ...]:
    return tree.parents if tree.parents is not None else tuple(range(-1, len(tree.tokens) - 1))


def depths(tree: DraftTree) -> list[int]:
    found: list[int] = []
    for parent in parents_of(tree):
        found.append(1 + (found[parent] if parent >= 0 else 0))
    return found


def step(made: MedusaProposer, one: Request, budget: int = 20) -> tuple[DraftTree, int]:
    """Propose, verify as the target would, extend, see; the number of drafts that held."""
    tree = made.propose([ask(one, budget)])[0]
    draws = [
        Draw(one.params, one.answer, one.tokens, tree.path(node), one.history) for node in range(-1, len(tree.tokens))
    ]
    fed = [one.tokens[-1], *tree.tokens]
    verdict = verify(tree, sample(ROWS[fed], draws))
    made.observe(one, tree, verdict.nodes)
    start = len(one.tokens) - 1
    accepted = [tree.tokens[node] for node in verdict.nodes]
    one.cache.tokens += [*accepted, verdict.token]
    made.see([HiddenRows(one, start, states([fed[0], *accepted]))])
    return tree, len(accepted)


class FollowingHeads(ToyHeads):
    """Head i says what the target would, if only its last token counted, after i + 1 likeliest tokens."""

    def __init__(self, host: Decoding) -> None:
        super().__init__()
        self.target, self.noted = host.model, host.passes

    @torch.inference_mode()
    def normed(self, stream: Tensor) -> Tensor:
        return self.target.norm.forward(stream)

    @torch.inference_mode()
    def forward(self, hidden: Tensor, heads: int) -> Tensor:
        self.noted.append([()] * hidden.shape[0])
        said = [self.target.head_logits(hidden)]
        for _ in range(heads):
            embedded = self.target.embedding.forward(said[-1].argmax(-1))
            said.append(self.target.head_logits(self.target.norm.forward(embedded)))
        return torch.stack(said[1:])


class TestMedusa(ProposerContract):
    eos, samples = target_support.EOS, False
    adapts = "the shape of trees follows which choices were right"

    @pytest.fixture
    def make(self) -> Make:
        model = target_support.small_model()
        return lambda: Decoding(
            model, lambda host: MedusaProposer(FollowingHeads(host), model.num_layers, None, {self.eos})
        )

    def count(self, budget: int, depth: int) -> int:
        return min(budget, sum(10**level for level in range(1, min(depth, 4) + 1)))


# --- whole answers -----------------------------------------------------------------------------------------------


def test_heads_that_know_the_target_are_always_right() -> None:
    made, one = proposer(), request()
    ready(made, one)
    expected = list(one.tokens)
    for _ in range(10):
        tree, accepted = step(made, one)
        assert accepted == 4 == max(depths(tree))
        assert tree.proposer == "medusa"
        assert tree.q is None
    while len(expected) < len(one.tokens):
        expected.append(int(ROWS[expected[-1]].argmax()))
    assert one.tokens == expected


def test_choices_take_the_noise_that_the_target_will_use() -> None:
    """The first head knows what the target says after the drawn token if that was the likeliest one."""
    for seed in range(30):
        made, one = proposer(), request(seed=seed, temperature=1.5)
        ready(made, one)
        tree = made.propose([ask(one, 1)])[0]
        drawn = sample(ROWS[one.tokens[-1:]], [Draw(one.params, 0, one.tokens)])
        assert list(tree.tokens) == drawn


def test_for_the_ratio_test_the_likeliest_come_first() -> None:
    differs = 0
    for seed in range(30):
        made, one = proposer(), request(acceptance="ratio", seed=seed, temperature=1.5)
        ready(made, one)
        tree = made.propose([ask(one, 1)])[0]
        assert tree.tokens == (int(ROWS[one.tokens[-1]].argmax()),)
        differs += [*tree.tokens] != sample(ROWS[one.tokens[-1:]], [Draw(one.params, 0, one.tokens)])
    assert differs > 3


# --- trees -------------------------------------------------------------------------------------------------------


def test_truncation_leaves_fewer_choices() -> None:
    """With one token left by top-k there is one choice at each depth."""
    made, one = proposer(), request(temperature=0.8, top_k=1)
    ready(made, one)
    tree = made.propose([ask(one, 20)])[0]
    assert (len(tree.tokens), tree.parents) == (4, None)


# --- batches -----------------------------------------------------------------------------------------------------


def test_work_is_counted() -> None:
    made, one = proposer(), request()
    ready(made, one)
    made.propose([ask(one)])
    made.propose([ask(one, 1)])
    work = made.take_work()
    # A tree of one draft runs a second head, to learn what it is worth.
    assert (work.passes, work.bytes_read) == (2, 40 + 20)


# --- states ------------------------------------------------------------------------------------------------------


def test_without_a_state_nothing_is_proposed() -> None:
    heads = ToyHeads()
    made, one = proposer(heads), request()
    assert made.propose([ask(one), DraftRequest(one, 0, 2)]) == [NO_DRAFT, NO_DRAFT]
    assert made.needs_hidden == {LAYERS}
    assert heads.passes == []


def test_a_chunk_of_a_prompt_is_no_state() -> None:
    made, one = proposer(), request(prompt=[1, 2, 3, 4, 5])
    made.see([HiddenRows(one, 0, states([1, 2, 3]))])
    assert made.propose([ask(one)]) == [NO_DRAFT]
    one.tokens.append(int(ROWS[5].argmax()))
    made.see([HiddenRows(one, 3, states([4, 5]))])
    assert made.propose([ask(one, 4)])[0].tokens


def test_a_state_before_the_last_token_is_stale() -> None:
    made, one = proposer(), request()
    ready(made, one)
    one.tokens.append(7)  # written without this proposer being told
    assert made.propose([ask(one)]) == [NO_DRAFT]
    one.tokens.pop()
    assert made.propose([ask(one)]) == [NO_DRAFT], "it is gone for good"


def test_a_preempted_request_needs_a_new_state() -> None:
    made, one = proposer(), request()
    ready(made, one)
    one.standing.preemptions += 1
    assert made.propose([ask(one)]) == [NO_DRAFT]
    # It is read again, in two chunks, the second of which draws a token.
    made.see([HiddenRows(one, 0, states(one.tokens[:2]))])
    assert made.propose([ask(one)]) == [NO_DRAFT]
    one.tokens.append(int(ROWS[one.tokens[-1]].argmax()))
    made.see([HiddenRows(one, 2, states(one.tokens[2:-1]))])
    assert step(made, one)[1] == 4


def test_a_state_does_not_keep_the_whole_step() -> None:
    made, one = proposer(), request()
    one.tokens.append(1)
    rows = torch.zeros(3, 2)
    made.see([HiddenRows(one, 0, {LAYERS: rows})])
    rows += 9
    assert made._rows.of([one]).tolist() == [[0.0, 0.0]]


# --- learning ----------------------------------------------------------------------------------------------------


def test_the_tree_follows_the_choices_that_hold() -> None:
    """Heads whose second choice is always right soon have it tried first, in this request and in new ones."""
    heads = ToyHeads()
    made, one = proposer(heads), request()
    heads.swapped = True
    ready(made, one)
    before = step(made, one, 4)[1]
    for _ in range(8 * REFIT_EVERY):
        tree, accepted = step(made, one, 4)
    assert before < 4
    assert (accepted, tree.parents) == (4, None)
    fresh = request(1, prompt=[8])
    ready(made, fresh)
    assert step(made, fresh, 4)[1] > before
