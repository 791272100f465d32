"""The loss of an approximate KV cache on a text: perplexity and divergence compared with the exact cache.

Both readers take the text chunk by chunk over arenas of their own, so that the pages of running answers are not touched
and other work may be done in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.base import stopping
from engine.cache.policies import PagePolicy
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.types import StateRun
from engine.compute.batch import SequenceRows
from engine.compute.runner.runner import Runner

LEAST_TOKENS = 2
"""A text of fewer predicts nothing."""
TOO_SHORT = "The text is too short to be scored. Choose a longer one."
MOST_TOKENS = 8192
"""Tokens scored at most: the first ones of a longer text."""
_LOGITS = 1 << 23
"""Numbers in the logits of a chunk."""
_LONGEST_CHUNK = 256

Reader = Callable[[Sequence[int], int], Tensor]
"""Takes the tokens of the next chunk and the index of the first; gives the logits after each of them, [n, V]."""
ReaderFactory = Callable[[int], Reader]
"""Makes a reader with arenas for a text of that many tokens."""


class Scores(NamedTuple):
    """Scores of one text: perplexities, and the mean KL(exact || present) of the next-token distributions in nats.

    ``tokens`` counts the predictions. ``setting`` names what was measured. ``error`` is the standard error of
    ln(present / exact), the mean difference of the log-likelihoods, token by token. ``same_top``: the share of
    predictions whose likeliest token is the same.
    """

    tokens: int
    exact: float
    present: float
    divergence: float
    setting: str
    error: float = 0.0
    same_top: float = 1.0


def score(
    token_ids: Sequence[int],
    exact: ReaderFactory,
    present: ReaderFactory,
    vocabulary: int,
    setting: str,
    skipped: int = 0,
) -> Generator[None, None, Scores]:
    """Read the text both ways, yielding between chunks; returns the scores. Raises ValueError for a text too short.

    Row i predicts token i + 1; the first ``skipped`` predictions, which have little before them, are left out of the
    scores. Perplexity is exp of the mean negative log-likelihood (Jelinek et al. 1977).
    """
    ids = list(token_ids[:MOST_TOKENS])
    if len(ids) < LEAST_TOKENS + skipped:
        raise ValueError(TOO_SHORT)
    read_exact, read_present = exact(len(ids)), present(len(ids))
    nll_exact = nll_present = divergence = squares = 0.0
    same_top = 0
    for start, rows in chunks(ids, vocabulary):
        left_out = min(len(rows), max(0, skipped - start))
        targets = torch.tensor(ids[start + 1 + left_out : start + 1 + len(rows)])
        p = torch.log_softmax(read_exact(rows, start)[left_out:].float(), dim=-1)
        yield
        q = torch.log_softmax(read_present(rows, start)[left_out:].float(), dim=-1)
        targets = targets.to(p.device)[:, None]
        logprobs_exact, logprobs_present = (logs.gather(1, targets).double() for logs in (p, q))
        nll_exact -= float(logprobs_exact.sum())
        nll_present -= float(logprobs_present.sum())
        squares += float((logprobs_exact - logprobs_present).square().sum())
        divergence += float(_divergence(p, q).double().sum())
        same_top += int((p.argmax(-1) == q.argmax(-1)).sum())
        yield
    count = len(ids) - 1 - skipped
    nll_exact, nll_present = nll_exact / count, nll_present / count
    error = math.sqrt(max(0.0, squares / count - (nll_present - nll_exact) ** 2) / max(1, count - 1))
    perplexities = _perplexity(nll_exact), _perplexity(nll_present)
    return Scores(count, *perplexities, divergence / count, setting, error, same_top / count)


def scored(work: Generator[None, None, Scores]) -> Scores:
    """Result of :func:`score`, at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            scores: Scores = end.value
            return scores


def chunks(ids: Sequence[int], vocabulary: int) -> Iterator[tuple[int, Sequence[int]]]:
    """The tokens that predict another one, in the chunks that they are read in, each with the index of its first.

    Raises :class:`engine.base.stopping.Stopped` before a chunk once the reader's work is to stop.
    """
    stop = stopping.current()
    size = max(PAGE_SIZE, min(_LONGEST_CHUNK, _LOGITS // max(1, vocabulary)))
    for start in range(0, len(ids) - 1, size):
        stop.check()
        yield start, ids[start : min(start + size, len(ids) - 1)]


def reader(runner: Runner, policy: PagePolicy | None = None) -> Reader:
    """Reads one sequence through a runner whose arenas hold nothing else: page 0 is scratch, page i + 1 its page i."""
    more = runner.kv.num_groups - 1

    def read(tokens: Sequence[int], start: int) -> Tensor:
        stop = start + len(tokens)
        pages = range(1, 1 + pages_for(stop))
        rows = SequenceRows(
            tokens,
            start,
            pages,
            want_logits=len(tokens),
            more_pages=(pages,) * more,
            policy=policy,
            states=StateRun.alone(len(tokens), start),
        )
        return runner.forward([rows]).logits

    return read


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of each row of log-probabilities [n, V]; a token that p rules out adds nothing."""
    terms = p.exp() * (p - q)
    return torch.where(p == -torch.inf, torch.zeros_like(terms), terms).sum(dim=-1)


def _perplexity(mean: float) -> float:
    return math.exp(mean) if mean < 700 else math.inf


class Readers(NamedTuple):
    """Readers that score a text with one model: exactly, and with its present settings, which ``setting`` names."""

    exact: ReaderFactory
    present: ReaderFactory
    setting: str


ReadersFactory = Callable[[PagePolicy], Readers]
"""The readers of a model, the present one with a page policy."""
