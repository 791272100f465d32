"""The joint law of three tokens under every exact test of drafts is the target's, and the test can tell.

Answers of a toy whose next token depends on the place and the token before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.sampler import Draw, sample
from engine.decoding.speculation.base import NO_DRAFT, DraftTree
from engine.decoding.speculation.proposers.drawing import children, draw_next
from engine.decoding.speculation.verify.verdict import Verdict
from engine.decoding.speculation.verify.verifier import judge_all, verify
from tests.kit.pairs import each_value

VOCABULARY = 6
LENGTH = 3
MANY = 10_000
BATCH = 500
RNG = np.random.default_rng(4)
TARGET = torch.from_numpy(RNG.normal(0, 1.2, (LENGTH + 4, VOCABULARY, VOCABULARY))).float()
DRAFT = TARGET + torch.from_numpy(RNG.normal(0, 0.7, TARGET.shape)).float()
WHOLE = SamplingParams(seed=11)
NUCLEUS = SamplingParams(seed=12, temperature=0.8, top_p=0.85)
DOUBT = 1e-4
"""Below this probability of its deviation a law is held to be another; the seeds are fixed."""

Judge = Callable[[Sequence[DraftTree], torch.Tensor, Sequence[Draw]], list[Verdict]]
DraftFunction = Callable[[Sequence[Draw]], list[DraftTree]]


def rows(model: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Logits of each draw: by the place of the token to draw, and the token before it."""
    places = [len(draw.tokens) + len(draw.path) - 1 for draw in draws]
    return model[places, [(draw.path or draw.tokens)[-1] for draw in draws]]


def no_drafts(draws: Sequence[Draw]) -> list[DraftTree]:
    return [NO_DRAFT] * len(draws)


def drawn_chains(draws: Sequence[Draw]) -> list[DraftTree]:
    """Chains of one to three tokens drawn from the draft model, with what they were drawn from."""
    return chains(draws, "ratio")


def keyed_chains(draws: Sequence[Draw]) -> list[DraftTree]:
    """Chains of one to three drafts with the target's noise."""
    return chains(draws, "keyed")


def chains(draws: Sequence[Draw], mode: str) -> list[DraftTree]:
    paths: list[list[int]] = [[] for _ in draws]
    shares: list[list[torch.Tensor]] = [[] for _ in draws]
    for depth in range(3):
        going = [place for place, draw in enumerate(draws) if draw.answer % 3 >= depth]
        here = [draws[place]._replace(path=paths[place]) for place in going]
        tokens, q = draw_next(rows(DRAFT, here), here, [mode] * len(here))
        for place, token in zip(going, tokens, strict=True):
            paths[place] = [*paths[place], token]
        for place, row in zip(going, () if q is None else q.unbind(), strict=False):
            shares[place].append(row)
    stacked = [torch.stack(some) if some else None for some in shares]
    return [DraftTree(tuple(path), q=q) for path, q in zip(paths, stacked, strict=True)]


def trees(draws: Sequence[Draw]) -> list[DraftTree]:
    """Two or three children of the root, two of the first and one of the second; half of them a level deeper."""
    tokens: list[list[int]] = [[] for _ in draws]
    parents: list[list[int]] = [[] for _ in draws]

    def grow(places: Sequence[int], nodes: Sequence[int], counts: Sequence[int]) -> None:
        known = [DraftTree(tuple(tokens[place]), tuple(parents[place])) for place in places]
        here = [draws[p]._replace(path=tree.path(n)) for p, tree, n in zip(places, known, nodes, strict=True)]
        for place, node, found in zip(places, nodes, children(rows(DRAFT, here), here, counts), strict=True):
            tokens[place] += [token for token, _ in found]
            parents[place] += [node] * len(found)

    everyone = range(len(draws))
    grow(everyone, [-1] * len(draws), [2 + draw.answer % 2 for draw in draws])
    grow(everyone, [0] * len(draws), [2] * len(draws))
    second = [place for place in everyone if len(tokens[place]) > 1 and parents[place][1] == -1]
    grow(second, [1] * len(second), [1] * len(second))
    deeper = [place for place in everyone if draws[place].answer % 4 < 2]
    grow(deeper, [parents[place].index(0) for place in deeper], [1] * len(deeper))
    return [DraftTree(tuple(some), tuple(above)) for some, above in zip(tokens, parents, strict=True)]


def by(mode: str) -> Judge:
    return lambda trees, logits, draws: judge_all([mode] * len(trees), trees, logits, draws)


def written(params: SamplingParams, draft: DraftFunction, judge: Judge, many: int) -> np.ndarray:
    """Counts [V, V, V] of the first three tokens of ``many`` answers, judged a few hundred at a time."""
    counts = np.zeros((VOCABULARY,) * LENGTH)
    for first in range(0, many, BATCH):
        texts = {answer: [0] for answer in range(first, min(many, first + BATCH))}
        while going := [answer for answer, text in texts.items() if len(text) <= LENGTH]:
            starts = [Draw(params, answer, texts[answer]) for answer in going]
            found = draft(starts)
            draws = [
                Draw(params, start.answer, start.tokens, tree.path(node))
                for start, tree in zip(starts, found, strict=True)
                for node in range(-1, len(tree.tokens))
            ]
            for start, tree, verdict in zip(starts, found, judge(found, rows(TARGET, draws), draws), strict=True):
                texts[start.answer] += [tree.tokens[node] for node in verdict.nodes] + [verdict.token]
        np.add.at(counts, tuple(np.array([text[1 : 1 + LENGTH] for text in texts.values()]).T), 1)
    return counts


def law(params: SamplingParams) -> np.ndarray:
    """Joint probabilities [V, V, V] of three tokens by the definition of temperature and nucleus, in numpy."""
    scores = TARGET.double().numpy() / params.temperature
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    order = np.argsort(-shares, axis=-1)
    falling = np.take_along_axis(shares, order, -1)
    falling[np.cumsum(falling, -1) - falling >= params.top_p] = 0.0
    np.put_along_axis(shares, order, falling, -1)
    shares /= shares.sum(-1, keepdims=True)
    return np.einsum("a,ab,bc->abc", shares[0, 0], shares[1], shares[2])


def chance(counts: np.ndarray, params: SamplingParams) -> float:
    """How probable so large a chi-square is under the law; cells with fewer than five expected are taken together."""
    expected = law(params) * counts.sum()
    if counts[expected == 0].any():
        return 0.0
    many = expected >= 5
    pairs = [*zip(counts[many], expected[many], strict=True), (counts[~many].sum(), expected[~many].sum())]
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in pairs if wanted > 0)
    freedom = sum(wanted > 0 for _, wanted in pairs) - 1
    halves = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(*halves))


LAWS = {"whole": WHOLE, "nucleus": NUCLEUS}
both_laws = pytest.mark.parametrize("params", LAWS.values(), ids=LAWS)


@pytest.mark.slow
@pytest.mark.content
@each_value(
    seldom=lambda many, **_: many > MANY,
    many=[MANY, 6 * MANY],
    way={"drawn-chain": ("ratio", drawn_chains), "ratio-tree": ("ratio", trees), "keyed": ("keyed", no_drafts)},
    params=LAWS,
)
def test_three_tokens_follow_the_joint_law_of_the_target(
    params: SamplingParams, way: tuple[str, DraftFunction], many: int
) -> None:
    mode, draft = way
    assert chance(written(params, draft, by(mode), many), params) > DOUBT


@pytest.mark.content
@pytest.mark.always
@both_laws
def test_keyed_chains_and_trees_write_the_text_without_drafts(params: SamplingParams) -> None:
    """Hence they follow its law."""
    plain, *drafted = (written(params, draft, by("keyed"), 1000) for draft in (no_drafts, keyed_chains, trees))
    assert all(np.array_equal(counts, plain) for counts in drafted)


@pytest.mark.slow
@pytest.mark.content
@both_laws
def test_control_the_target_instead_of_the_residual(params: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.decoding.speculation.verify.ratio._residual", lambda p, *_: p)
    assert chance(written(params, drawn_chains, by("ratio"), MANY), params) < DOUBT


def by_path(alone: bool) -> Judge:
    """Each path from the root to a leaf is judged by draws of its own (``alone``), and the longest is kept.

    So does Medusa's nucleus sampling: a node that several paths share gets as many draws, hence as many chances.
    """

    def judge(found: Sequence[DraftTree], logits: torch.Tensor, draws: Sequence[Draw]) -> list[Verdict]:
        best: dict[int, Verdict] = {}
        for nth in range(VOCABULARY):
            mine = [draw._replace(answer=draw.answer + alone * nth * MANY) for draw in draws]
            targets = sample(logits, mine)
            start = 0
            for place, tree in enumerate(found):
                stop = start + 1 + len(tree.tokens)
                leaves = [node for node in range(len(tree.tokens)) if node not in (tree.parents or ())]
                if nth < len(leaves):
                    path = nodes_to(tree, leaves[nth])
                    own = targets[start:stop]
                    kept = verify(DraftTree(tree.path(leaves[nth])), [own[0], *(own[1 + node] for node in path)])
                    verdict = kept._replace(nodes=tuple(path[: len(kept.nodes)]))
                    best[place] = max(best.get(place, verdict), verdict, key=lambda each: len(each.nodes))
                start = stop
        return [best[place] for place in range(len(found))]

    return judge


def nodes_to(tree: DraftTree, leaf: int) -> list[int]:
    assert tree.parents is not None
    path = [leaf]
    while (above := tree.parents[path[0]]) >= 0:
        path.insert(0, above)
    return path


@pytest.mark.slow
@pytest.mark.content
@pytest.mark.parametrize("alone", [True, False], ids=["per-path", "per-node"])
def test_control_draws_per_path_instead_of_per_node(alone: bool) -> None:
    """The same code with one draw per node passes, so it is nothing else that fails."""
    deviation = chance(written(NUCLEUS, trees, by_path(alone), MANY), NUCLEUS)
    assert deviation < DOUBT if alone else deviation > DOUBT
