"""Executor of steps: drafts, computes, draws and verifies what the scheduler handed out, and answers with tokens.

A step is submitted and then collected. Usually the one follows the other at once. While nothing but decoding runs, the
next step is submitted before the tokens of the last are collected (asynchronous scheduling): what it needs besides the
token follows from places alone: positions, slots, pages, the keys of the noise. The tokens stay on the device, where
the step finds them. So the device never waits for the host between two steps. An answer that turns out to have ended
wastes the row that was submitted for it.

Source: vLLM's asynchronous scheduling; SGLang's overlap scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor

from engine.cache.stores.transfer import on_device
from engine.compute.sampling.device import DrawsAhead
from engine.compute.sampling.draw import Draw
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.probabilities import log_probs
from engine.compute.sampling.sampler import LogProbs
from engine.decoding.request import Request
from engine.decoding.scheduling.plan import MAX_RUNNING, Slice
from engine.decoding.speculation.base import NO_DRAFT, DraftCost, DraftTree
from engine.decoding.speculation.control.controller import Controller, Proposals, Round
from engine.decoding.speculation.verify.early_exit import forward_step
from engine.decoding.speculation.verify.verifier import Verdict, drawn_tokens, judge_all
from engine.decoding.telemetry.records import DraftRecord
from engine.loading.capabilities import draws_there
from engine.loading.model import LoadedModel
from engine.loop.pooling import pooled_states, wants_pooling
from engine.loop.prompt_scores import prompt_scores, wants_scores
from engine.loop.step import SliceResult, draws_of, moves, replays, rows_of, seen
from engine.protocol import TokenInfo

UNASKED: tuple[LogProbs | None, ...] = (None,)
"""Log-probabilities of a slice of one row for which none are asked."""


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


class StepInput(NamedTuple):
    """A step to compute, as the scheduler handed out its rows."""

    slices: list[Slice[Request]]
    ahead: bool = False
    """The next step may be submitted before this one is collected; :meth:`Executor.draws_ahead` said that it can be."""
    after: StepHandle | None = None
    """The step before it, if that is not collected yet: it draws the last token of each of these requests."""


class StepHandle(NamedTuple):
    """A step that was submitted; what it computed is on the device."""

    slices: list[Slice[Request]]
    trees: list[DraftTree]
    work: DraftCost
    """The cost of drafting the trees."""
    logits: Tensor
    hidden: dict[int, Tensor]
    """[T, hidden_size] for each layer whose input proposers want."""
    states: Tensor | None
    """[T, hidden_size], the input of the final norm, where tokens of prompts are scored or pooled."""
    pending: PendingTokens | None
    """Tokens of a step that was submitted ahead; None: they are drawn when it is collected."""
    seconds: float
    """Seconds that submitting it took, drafting excluded; ..."""
    batch_seconds: float
    """... of them building the batch on the host."""


class StepOutput(NamedTuple):
    """The tokens of a step. Its columns have an item for each slice."""

    first_rows: Sequence[int]
    """Row of the batch."""
    verdicts: Sequence[Verdict | None]
    """None: it draws no token."""
    logprobs: Sequence[Sequence[LogProbs | None]]
    """Of the last known token's row and of each draft token's, if it draws a token."""
    scores: Mapping[tuple[str, int], list[TokenInfo]]
    """Tokens of prompts with their log-probabilities, by answer, for the rows of which they are asked."""
    pooled: Mapping[tuple[str, int], Tensor]
    """Sums of the states of prompts, by request, for the rows of which embeddings are made."""
    seconds: float
    """Seconds in tensor operations, drafting excluded."""
    known: bool
    """All tokens were drawn on the device, so that a step which was submitted after this one has read the same."""


class Executor:
    """Computes steps of a loaded model, at most two at a time. It changes no ledger, and no request."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self.controller = Controller(model.drafting.proposers)
        self.sampler: Sampler | None = DrawsAhead(MAX_RUNNING, model.device) if draws_there(model) else None
        """What draws without waiting; None: no step is submitted ahead."""

    def draws_ahead(self, slices: Sequence[Slice[Request]]) -> bool:
        """Return True if a step of these slices can be submitted ahead: all decode, none with drafts, with a cache that
        is planned step by step, or with settings that the device does not draw by."""
        sampler = self.sampler
        return sampler is not None and all(
            piece.rows == 1 and piece.last and not piece.drafts and _takes(sampler, piece.sequence) for piece in slices
        )

    def submit(self, step: StepInput) -> StepHandle:
        """Draft for a step and launch its forward pass. Of a step ``ahead`` the tokens are drawn, too."""
        slices, runner, pictures = step.slices, self._model.runner, self._model.pictures.embeddings
        trees, work, wanted = (
            Proposals([NO_DRAFT] * len(slices), DraftCost(), frozenset())
            if step.ahead
            else self.controller.propose(slices)
        )
        began = time.perf_counter()
        unread = 0 if step.after is None else 1
        rows = [rows_of(piece, tree, pictures, unread) for piece, tree in zip(slices, trees, strict=True)]
        reads = not step.ahead and (wants_scores(slices) or wants_pooling(slices))
        if step.after is None:
            logits, hidden = forward_step(runner, rows, trees, wanted | {runner.num_layers} if reads else wanted)
        else:
            logits, hidden = runner.forward(rows, tokens_there=_tokens_of(slices, step.after))
        pending = self._launched(slices, logits, unread) if step.ahead else None
        states = hidden[runner.num_layers] if reads else None
        hidden = {layer: each for layer, each in hidden.items() if layer in wanted}
        seconds = time.perf_counter() - began
        return StepHandle(slices, trees, work, logits, hidden, states, pending, seconds, runner.batch_seconds)

    def collect(self, step: StepHandle) -> StepOutput:
        """Wait for the tokens of a step that was submitted, the oldest that was not collected yet."""
        began = time.perf_counter()
        tokens = step.pending.read() if step.pending is not None else [None]
        scores = self._scores(step, step.states) if step.states is not None else {}
        pooled = self._pooled(step, step.states) if step.states is not None else {}
        first_rows: Sequence[int] = range(len(tokens))
        verdicts: Sequence[Verdict | None]
        logprobs: Sequence[Sequence[LogProbs | None]] = [UNASKED] * len(tokens)
        if known := None not in tokens:
            verdicts = [Verdict((), cast(int, token), "target") for token in tokens]
        else:
            first_rows, verdicts, logprobs = _divided(step, *self._judged(step))
        seconds = time.perf_counter() - began
        if step.pending is None:
            # Building the batch is the host's work, although it happens inside the forward.
            seconds += step.seconds - step.batch_seconds
        return StepOutput(first_rows, verdicts, logprobs, scores, pooled, seconds, known)

    def accept(self, step: StepHandle, taken: Sequence[SliceResult], reads: bool) -> tuple[DraftRecord, ...]:
        """Move the keys, values and states of accepted draft tokens into place, and let the controller learn.

        Returns what each proposer did. ``taken`` are the slices of the step whose requests go on, in order; ``reads``
        says that it read a prompt.
        """
        store, device = self._model.stores[0], self._model.device
        for group in range(store.written_groups):
            source, target = moves(taken, group)
            if source:
                store.move_slots(on_device(device, source), on_device(device, target), group)
        rows_again, runs = replays(taken)
        if runs:
            self._model.runner.replay(rows_again, runs)
        rounds = [
            Round(each.piece.sequence, each.tree, each.verdict)
            for each in taken
            if each.tree.tokens and each.verdict is not None
        ]
        rows = seen(taken, step.hidden) if step.hidden else []
        # What steps cost is learned from those that are collected before the next one is submitted.
        return self.controller.record(rounds, rows, decoding_only=step.pending is None and not reads)

    # --- inside a step -------------------------------------------------------------------------------------------

    def _launched(self, slices: Sequence[Slice[Request]], logits: Tensor, unread: int) -> PendingTokens:
        """Draw the tokens of a step without waiting for them."""
        assert self.sampler is not None
        return self.sampler.launch(
            logits, [draw for piece in slices for draw in draws_of(piece.sequence, NO_DRAFT, unread)]
        )

    def _judged(self, step: StepHandle) -> tuple[list[Verdict], list[LogProbs | None]]:
        """Draw and verify: a verdict for each slice that draws a token, and log-probabilities of its rows."""
        judged = [(p.sequence, tree) for p, tree in zip(step.slices, step.trees, strict=True) if p.last]
        draws = [draw for request, tree in judged for draw in draws_of(request, tree)]
        trees = [tree for _, tree in judged]
        verdicts = judge_all([request.acceptance for request, _ in judged], trees, step.logits, draws)
        asked = any(draw.params.logprobs is not None for draw in draws)
        return verdicts, log_probs(step.logits, draws, drawn_tokens(trees, verdicts) if asked else ())

    def _scores(self, step: StepHandle, hidden: Tensor) -> dict[tuple[str, int], list[TokenInfo]]:
        model = self._model
        return prompt_scores(model.runner, step.slices, step.trees, hidden, model.card.vocabulary)

    def _pooled(self, step: StepHandle, hidden: Tensor) -> dict[tuple[str, int], Tensor]:
        return pooled_states(self._model.runner, step.slices, step.trees, hidden)


def _takes(sampler: Sampler, request: Request) -> bool:
    cache, params = request.cache, request.params
    if not request.cached or cache.packs or cache.runs(0) or cache.policy.restricts(request.reach):
        return False
    return params.logprobs is None and request.constraint is None and sampler.draws(params)


def _tokens_of(slices: Sequence[Slice[Request]], step: StepHandle) -> Tensor:
    """[n]: the tokens that a step draws for some of its answers."""
    assert step.pending is not None
    tokens = step.pending.tokens
    if len(slices) == len(step.slices):
        return tokens
    goes_on = {piece.sequence.owner for piece in slices}
    places = [place for place, piece in enumerate(step.slices) if piece.sequence.owner in goes_on]
    # Runs of neighbours, because a list of places would have to be copied to the device.
    starts = [place for place in places if place - 1 not in places]
    stops = [place + 1 for place in places if place + 1 not in places]
    return torch.cat([tokens[start:stop] for start, stop in zip(starts, stops, strict=True)])


def _divided(
    step: StepHandle, verdicts: Sequence[Verdict], logprobs: Sequence[LogProbs | None]
) -> tuple[Sequence[int], Sequence[Verdict | None], Sequence[Sequence[LogProbs | None]]]:
    """Divide the results of a step among its slices: the first row of each, its verdict, its log-probabilities."""
    first_rows: list[int] = []
    of_slices: list[Verdict | None] = []
    asked: list[Sequence[LogProbs | None]] = []
    left = iter(verdicts)
    place = first_row = 0
    for piece, tree in zip(step.slices, step.trees, strict=True):
        drawn = 1 + len(tree.tokens) if piece.last else 0
        first_rows.append(first_row)
        of_slices.append(next(left) if piece.last else None)
        asked.append(logprobs[place : place + drawn])
        place += drawn
        first_row += piece.rows + len(tree.tokens)
    return first_rows, of_slices, asked
