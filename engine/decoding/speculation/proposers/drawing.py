"""Drawing of draft tokens from a proposer's logits, such that the target is likely to accept them.

For the keyed test a draft token is drawn with the very noise that the target will use at that position, so that where
both agree on the scores they agree on the token (a coupling by common random numbers: Daliri et al. 2024, arXiv
2408.07978). For the ratio test it is drawn with independent noise, and its distribution is handed on to the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.sampling import noise
from engine.compute.sampling.probabilities import draw_from, probabilities
from engine.compute.sampling.sampler import Draw, Kind, blocks, by_kind, processed, sample, survivors


def draw_next(logits: Tensor, draws: Sequence[Draw], modes: Sequence[str]) -> tuple[list[int], Tensor | None]:
    """The next token of each row of logits [L, V], and the probabilities [L, V] float32 that ratio rows drew from.

    ``modes`` are acceptance modes, one per row. Rows of other modes have zeros in the probabilities, which are None
    where no row uses the ratio test. A drawn token must be proposed whichever token it is, or the proposed tokens no
    longer follow the probabilities; a chain may still stop *after* any token.
    """
    ratio = [row for row, mode in enumerate(modes) if mode == "ratio"]
    if not ratio:
        return sample(logits, draws), None
    mine = [draws[row] for row in ratio]
    if len(ratio) == len(draws):
        shares = probabilities(logits, draws)
        return draw_from(shares, draws, noise.DRAFT).tolist(), shares
    some = probabilities(logits[ratio], mine)
    shares = torch.zeros(logits.shape, dtype=torch.float32, device=logits.device)
    shares[ratio] = some
    others = [row for row, mode in enumerate(modes) if mode != "ratio"]
    tokens = dict(zip(others, sample(logits[others], [draws[row] for row in others]), strict=True))
    tokens.update(zip(ratio, draw_from(some, mine, noise.DRAFT).tolist(), strict=True))
    return [tokens[row] for row in range(len(draws))], shares


def children(logits: Tensor, draws: Sequence[Draw], counts: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Up to ``counts[i]`` different tokens for each row of logits [L, V], best first, with a confidence in 0..1.

    The tokens are ordered by the processed scores, at a temperature above 0 plus the target's own Gumbel noise, so that
    the first child is the token this row would draw (Kool et al. 2019, "Stochastic beams and where to find them", for
    the order). The confidence is the softmax of these values. Tokens that truncation removes are not returned.
    """
    found: list[list[tuple[int, float]]] = [[] for _ in draws]
    for rows in blocks(*logits.shape):
        wanted, mine = counts[rows], draws[rows]
        if not any(wanted):
            continue
        scores = processed(logits[rows], mine)
        for kind, members in by_kind(mine).items():
            most = max(wanted[member] for member in members)
            if most == 0:
                continue
            some = scores if len(members) == len(scores) else scores[members]
            best = _best(kind, some, [mine[member] for member in members], most)
            for member, row in zip(members, best, strict=True):
                found[rows.start + member] = row[: wanted[member]]
    return found


def _best(kind: Kind, scores: Tensor, draws: Sequence[Draw], most: int) -> list[list[tuple[int, float]]]:
    """Up to ``most`` tokens of each row of processed scores [R, V], with their confidences."""
    ids, ranks = None, scores
    if kind in ("truncated", "typical"):
        ranks, ids = survivors(kind, scores, draws)
    if kind != "greedy":
        keys = noise.keys([draw.key for draw in draws], scores.device)
        ranks = noise.gumbel(keys, ids, scores.shape[1]).add_(ranks)
    top = torch.topk(ranks, min(most, ranks.shape[1]), dim=-1)
    shares = (top.values - ranks.logsumexp(-1, keepdim=True)).exp().double()
    tokens = top.indices if ids is None else ids.gather(1, top.indices)
    firsts = ranks.argmax(-1, keepdim=True) if kind == "greedy" else tokens[:, :1]
    # One transfer: a token's number is exact in float64.
    moved = torch.cat((firsts.double(), tokens.double(), shares), dim=1).tolist()
    size = tokens.shape[1]
    return [_ordered(int(row[0]), row[1 : 1 + size], row[1 + size :]) for row in moved]


def _ordered(first: int, tokens: Sequence[float], shares: Sequence[float]) -> list[tuple[int, float]]:
    """Pairs of the tokens that survived truncation, ``first`` leading: the order in which topk returns equal scores is
    unspecified, while a draw takes the first of them."""
    pairs = [(int(token), share) for token, share in zip(tokens, shares, strict=True) if share > 0.0]
    if pairs and pairs[0][0] != first:
        pairs = [(first, pairs[0][1]), *(pair for pair in pairs if pair[0] != first)][: len(pairs)]
    return pairs
