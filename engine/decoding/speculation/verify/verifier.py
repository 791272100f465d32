"""Verification of draft tokens (M5): each of three tests decides which nodes are accepted and which token follows.

Keyed, the default: go down the tree as long as a child carries the token that the target would have drawn, so that the
text is identical to that without speculation. Ratio: the same distribution, though not the same text. Typical: an
approximation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from engine.compute.sampling.sampler import Draw, drawn
from engine.decoding.speculation.base import DraftTree
from engine.decoding.speculation.verify import ratio, typical
from engine.decoding.speculation.verify.verdict import NO_TOKEN, Verdict, children_of, source_after

__all__ = ["Verdict", "drawn_tokens", "judge_all", "verify"]

_TESTS = {"ratio": ratio.judge, "typical": typical.judge}
_BLOCK = 1 << 24
"""Probabilities held at a time: 64 MiB of float32."""


def judge_all(modes: Sequence[str], trees: Sequence[DraftTree], logits: Tensor, draws: Sequence[Draw]) -> list[Verdict]:
    """The verdicts of a step, one per tree, each by its own acceptance mode (keyed, ratio or typical).

    Rows of ``logits`` [L, V] and ``draws`` come tree by tree: after the last committed token, then after each node
    along its own path. At temperature 0 all modes use the keyed test: the only token of the target's distribution is
    the likeliest one. Without draft tokens there is nothing to verify, and the token is drawn as usual.
    """
    spans: list[slice] = []
    tested: dict[str, list[int]] = {}
    row = 0
    for place, (mode, tree) in enumerate(zip(modes, trees, strict=True)):
        plain = mode == "keyed" or not tree.tokens or draws[row].params.greedy
        tested.setdefault("keyed" if plain else mode, []).append(place)
        spans.append(slice(row, row + 1 + len(tree.tokens)))
        row = spans[-1].stop
    verdicts: dict[int, Verdict] = {}
    finite = [False] * row
    for mode, places in tested.items():
        most = row if mode == "keyed" else max(1, _BLOCK // logits.shape[1])
        for some in _blocks(places, spans, most):
            rows = [row for place in some for row in range(spans[place].start, spans[place].stop)]
            whole = len(rows) == len(draws)
            part, mine = (logits, draws) if whole else (logits[rows], [draws[row] for row in rows])
            chosen = [trees[place] for place in some]
            if mode == "keyed":
                tokens, known = drawn(part, mine)
                judged = _keyed(chosen, tokens)
                for each, is_finite in zip(rows, known, strict=True):
                    finite[each] = is_finite
            else:
                judged = _TESTS[mode](chosen, part, mine)
            verdicts.update(zip(some, judged, strict=True))
    return _checked([verdicts[place] for place in range(len(trees))], spans, logits, finite)


def verify(tree: DraftTree, targets: Sequence[int]) -> Verdict:
    """The keyed test. ``targets[0]`` is what the target draws after the last committed token, ``targets[1 + i]`` after
    node i.

    The accepted tokens followed by ``token`` are exactly what plain decoding would have drawn, because the noise of a
    draw depends on its position alone. ``token`` is a correction when the draft's tokens were rejected, a bonus when
    the path reached a leaf, and plain when there were no draft tokens.
    """
    nodes: list[int] = []
    here = -1
    while True:
        drawn = targets[here + 1]
        children = children_of(tree, here)
        match = next((node for node in children if tree.tokens[node] == drawn), None)
        if match is None:
            return Verdict(tuple(nodes), drawn, source_after(tree, bool(children)))
        nodes.append(match)
        here = match


def drawn_tokens(trees: Sequence[DraftTree], verdicts: Sequence[Verdict]) -> list[int]:
    """Token that was appended after each row of :func:`judge_all`, 0 for rows that are not on the accepted path or drew
    none.

    These are the tokens whose log-probabilities are asked for.
    """
    found: list[int] = []
    for tree, verdict in zip(trees, verdicts, strict=True):
        rows = [0] * (1 + len(tree.tokens))
        here = -1
        for node in verdict.nodes:
            rows[here + 1] = tree.tokens[node]
            here = node
        rows[here + 1] = max(0, verdict.token)
        found.extend(rows)
    return found


def _keyed(trees: Sequence[DraftTree], targets: Sequence[int]) -> list[Verdict]:
    verdicts = []
    start = 0
    for tree in trees:
        stop = start + 1 + len(tree.tokens)
        verdicts.append(verify(tree, targets[start:stop]))
        start = stop
    return verdicts


def _checked(verdicts: list[Verdict], spans: Sequence[slice], logits: Tensor, finite: Sequence[bool]) -> list[Verdict]:
    """The verdicts, with NO_TOKEN where a row has a NaN score, which makes all of its probabilities invalid.

    The largest score of a row tells: it is not finite if any score is NaN. ``finite`` are rows known to be without.
    """
    rows = [span.start + 1 + (each.nodes[-1] if each.nodes else -1) for each, span in zip(verdicts, spans, strict=True)]
    unknown = [place for place, row in enumerate(rows) if not finite[row]]
    if unknown:
        largest = logits[[rows[place] for place in unknown]].amax(-1).tolist()
        for place, score in zip(unknown, largest, strict=True):
            if not math.isfinite(score):
                verdicts[place] = verdicts[place]._replace(token=NO_TOKEN)
    return verdicts


def _blocks(places: Sequence[int], spans: Sequence[slice], most: int) -> Iterator[list[int]]:
    """Blocks of consecutive trees with up to ``most`` rows together, at least one tree each."""
    block: list[int] = []
    rows = 0
    for place in places:
        size = spans[place].stop - spans[place].start
        if block and rows + size > most:
            yield block
            block, rows = [], 0
        block.append(place)
        rows += size
    if block:
        yield block
