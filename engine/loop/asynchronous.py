"""Asynchronous scheduling: while nothing but decoding runs, a step is launched before the tokens of the last are read.

What the next step needs besides the token follows from places alone: positions, slots, pages, the keys of the noise.
The tokens stay on the device, where the step finds them. So the device never waits for the host between two steps. An
answer that turns out to have ended wastes the row that was launched for it; whatever else happens (a prompt, a draft, a
setting that the device does not draw by) ends that, and an ordinary step follows.

Source: vLLM's asynchronous scheduling; SGLang's overlap scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.compute.batch import SequenceRows
from engine.compute.runner.runner import Runner
from engine.compute.sampling.device import DrawsAhead
from engine.compute.sampling.draw import Draw
from engine.compute.sampling.params import SamplingParams
from engine.decoding.request import Request
from engine.decoding.scheduling.scheduler import MAX_RUNNING, Plan, Slice
from engine.decoding.speculation.base import NO_DRAFT
from engine.decoding.speculation.verify.verifier import Verdict, judge_all
from engine.loading.capabilities import draws_there
from engine.loading.model import LoadedModel


class PendingTokens(Protocol):
    """Drawn tokens that are on their way to the host."""

    @property
    def tokens(self) -> Tensor:
        """[n] int64 on the device; of a row whose token is not known, any."""

    def read(self) -> list[int | None]:
        """The tokens, once they are here; None for rows that have to be drawn otherwise."""


class Sampler(Protocol):
    """Draws on the device without waiting for it."""

    def draws(self, params: SamplingParams) -> bool:
        """Return True if it serves rows with these settings."""

    def launch(self, logits: Tensor, draws: Sequence[Draw]) -> PendingTokens:
        """Draw a token of each row of ``logits`` [n, V]; what two launches ago came of it must have been read."""


def async_scheduler_of(model: LoadedModel) -> AsyncScheduler | None:
    """The asynchronous scheduler of a model on a GPU that samples by Kvasir's kernels; None for others."""
    return AsyncScheduler(model.runner, DrawsAhead(MAX_RUNNING, model.device)) if draws_there(model) else None


class InFlightStep(NamedTuple):
    """A step that was launched and not read."""

    pieces: list[Slice[Request]]
    logits: Tensor
    pending: PendingTokens


class CollectedStep(NamedTuple):
    """The answers of a flight that still run, and what was drawn for each; whether all its tokens were known there."""

    pieces: list[Slice[Request]]
    verdicts: list[Verdict]
    known: bool


class AsyncScheduler:
    """Launches decoding steps ahead of their tokens. It changes no ledger but for the pages that a row needs."""

    def __init__(self, runner: Runner, sampler: Sampler) -> None:
        self._runner, self._sampler = runner, sampler
        self.seconds = 0.0
        """Seconds that the host spent on launches, in all."""

    def serves(self, plan: Plan[Request]) -> bool:
        """Return True if the step of a plan may be launched ahead: the same answers go on, none with drafts, with a
        cache that is planned step by step, or with settings that the device does not draw by."""
        if plan.preempted or plan.admitted or plan.failed:
            return False
        return all(
            piece.rows == 1 and piece.last and not piece.drafts and self._takes(piece.sequence) for piece in plan.slices
        )

    def _takes(self, request: Request) -> bool:
        cache, params = request.cache, request.params
        if not request.cached or cache.packs or cache.runs(0) or cache.policy.restricts(request.reach):
            return False
        return params.logprobs is None and self._sampler.draws(params)

    def submit(self, pieces: list[Slice[Request]], after: InFlightStep | None = None) -> InFlightStep:
        """Launch a step of these answers, ``after`` the one that is in flight and knows their last tokens."""
        began = time.perf_counter()
        ahead = 0 if after is None else 1
        rows, draws = [], []
        for piece in pieces:
            request = piece.sequence
            start = request.num_computed + ahead
            tokens = request.tokens[start : start + 1] or (0,)
            own = request.cache.more_pages, request.cache.policy, (), request.adapter, request.axes
            rows.append(SequenceRows(tokens, start, request.pages, 1, None, *own))
            draws.append(_draw(request, ahead))
        there = None if after is None else _tokens_of(pieces, after)
        logits = self._runner.forward(rows, tokens_there=there).logits
        pending = self._sampler.launch(logits, draws)
        self.seconds += time.perf_counter() - began
        return InFlightStep(pieces, logits, pending)

    def collect(self, flight: InFlightStep, running: Callable[[Request], bool]) -> CollectedStep:
        """Wait for the tokens of a flight; return those of the answers that still run."""
        tokens = flight.pending.read()
        alive = [place for place, piece in enumerate(flight.pieces) if running(piece.sequence)]
        pieces = [flight.pieces[place] for place in alive]
        verdicts = {place: Verdict((), token, "target") for place in alive if (token := tokens[place]) is not None}
        rest = [place for place in alive if place not in verdicts]
        if rest:
            draws = [_draw(flight.pieces[place].sequence, 0) for place in rest]
            trees = [NO_DRAFT] * len(rest)
            judged = judge_all(["keyed"] * len(rest), trees, flight.logits[rest], draws)
            verdicts.update(zip(rest, judged, strict=True))
        return CollectedStep(pieces, [verdicts[place] for place in alive], None not in tokens)

    def next_slices(self, flight: InFlightStep, running: Callable[[Request], bool]) -> list[Slice[Request]]:
        """Slices of a flight whose answers go on for all that is known, with pages for a row more; none where there are
        too few pages for all of them."""
        goes_on = [
            piece
            for piece in flight.pieces
            if running(piece.sequence) and piece.sequence.known + 1 < piece.sequence.reach
        ]
        for piece in goes_on:
            if not piece.sequence.cache.fits(2):
                return []
            piece.sequence.cache.allocate(2)
        return goes_on


def _tokens_of(pieces: Sequence[Slice[Request]], flight: InFlightStep) -> Tensor:
    """[n]: the tokens that a flight draws for some of its answers."""
    if len(pieces) == len(flight.pieces):
        return flight.pending.tokens
    goes_on = {piece.sequence.owner for piece in pieces}
    places = [place for place, piece in enumerate(flight.pieces) if piece.sequence.owner in goes_on]
    # Runs of neighbours, because a list of places would have to be copied to the device.
    starts = [place for place in places if place - 1 not in places]
    stops = [place + 1 for place in places if place + 1 not in places]
    return torch.cat([flight.pending.tokens[start:stop] for start, stop in zip(starts, stops, strict=True)])


def _draw(request: Request, unknown: int) -> Draw:
    """The draw of its next token but ``unknown``."""
    return Draw(request.params, request.answer, request.tokens, (0,) * unknown, request.history)
