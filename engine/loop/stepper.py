"""Runs the steps of a loaded model: schedule, draft, forward, draw, verify, append, settle."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from engine.base.devices import release_cached
from engine.base.errors import is_out_of_memory, lost_device
from engine.cache.offload.saved import SavedChats
from engine.cache.stores.transfer import on_device
from engine.compute.sampling.sampler import LogProbs, log_probs, new_history
from engine.decoding.options import EngineOptions
from engine.decoding.request import Request
from engine.decoding.scheduling.policy import POLICIES, LongestPrefixFirst
from engine.decoding.scheduling.scheduler import Limits, Plan, Scheduler, Slice
from engine.decoding.speculation.base import NO_DRAFT, DraftCost, DraftTree
from engine.decoding.speculation.control.controller import Controller, Round
from engine.decoding.speculation.verify.early_exit import forward_step
from engine.decoding.speculation.verify.verdict import NO_TOKEN
from engine.decoding.speculation.verify.verifier import Verdict, drawn_tokens, judge_all
from engine.decoding.telemetry.records import DraftRecord, HostSeconds, StepRecord
from engine.loading.model import LoadedModel
from engine.loop.answers import AppendResult, extend, flushed
from engine.loop.asynchronous import AsyncScheduler, InFlightStep
from engine.loop.events import Event
from engine.loop.model_cache import ModelCache
from engine.loop.prompt_scores import prompt_scores, wants_scores
from engine.loop.step import SliceResult, StepCounts, draws_of, moves, replays, rows_of, run_of, seen, trees_of
from engine.protocol import Finished, FinishReason, PageCounts, Prefill, TokenInfo

_log = logging.getLogger(__name__)

OUT_OF_PAGES = (
    "The memory for keys and values is full. Shorten the conversation, or load the model with a larger memory budget."
)
OUT_OF_MEMORY = (
    "The device ran out of memory during this step. "
    "Close other programs, or load the model with a smaller memory budget."
)
NO_NUMBERS = (
    "The model computed scores that are not numbers, so the answer ends here. Download the model again, or load it in "
    "float32."
)


class _Forwarded(NamedTuple):
    """The results of a forward pass: a verdict for each slice that draws a token, and log-probabilities of its rows."""

    verdicts: list[Verdict]
    logprobs: list[LogProbs | None]
    hidden: dict[int, Tensor]
    seconds: float
    prompts: Mapping[tuple[str, int], list[TokenInfo]] = {}
    """Log-probabilities of the prompts' own tokens, by request."""


class Stepper:
    """Serves requests with one loaded model. Used by the engine thread alone."""

    def __init__(
        self,
        model: LoadedModel,
        options: EngineOptions,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        saved: SavedChats | None = None,
        async_scheduler: AsyncScheduler | None = None,
    ) -> None:
        """``async_scheduler`` launches steps ahead of the last one's tokens; None: nothing does."""
        self.model, self.clock = model, clock
        self._options, self._emit = options, emit
        self.cache = ModelCache(model, options, clock, saved)
        self.scheduler: Scheduler[Request] = Scheduler(self.cache.manager, LongestPrefixFirst())
        self.controller = Controller(model.drafting.proposers)
        self.requests: dict[tuple[str, int], Request] = {}
        self._eos = frozenset(model.card.eos_ids)
        self._ttfts: list[float] = []
        self.async_scheduler = async_scheduler
        self._in_flight: InFlightStep | None = None
        self._collected = 0.0

    @property
    def page_counts(self) -> PageCounts:
        """The present counts of pages and of the tokens they hold; for any thread."""
        cache = self.cache
        return PageCounts(
            total=cache.pool.total,
            used=cache.pool.used_count,
            live_tokens=cache.live_tokens(list(self.scheduler.running)),
            cached=cache.tree.evictable,
            share=cache.used_share,
        )

    def add(self, request: Request) -> None:
        """Queue the request. Its prompt fits the context: that was checked before it was made."""
        self.cache.find_saved(request)
        request.history = new_history(
            request.params, self.model.card.vocabulary, request.prompt_length, self.model.device
        )
        self.requests[request.owner] = request
        self.scheduler.add(request)

    def stop_sharing(self) -> None:
        """Stop sharing pages of running requests: the arithmetic changed, so that their pages would be mixed."""
        for request in self.requests.values():
            request.cache.stop_sharing()

    def cancel(self, id: str) -> None:
        """End all answers of a request now; an unknown id is ignored, since the request may just have ended."""
        for request in [request for request in self.requests.values() if request.id == id]:
            self.finish(request, "cancelled")

    def finish(
        self, request: Request, reason: FinishReason, detail: str = "", outcome: AppendResult | None = None
    ) -> None:
        """Free everything the request holds and say how it ended; held-back text is released unless a stop ended it."""
        self.cache.keep(request)
        self.scheduler.remove(request)
        self.controller.release(request)
        self.requests.pop(request.owner, None)
        if outcome is None:
            for event in flushed(request):
                self._emit(event)
        self._emit(self._finished(request, reason, detail))

    def _finished(self, request: Request, reason: FinishReason, detail: str) -> Finished:
        return Finished(
            id=request.id,
            answer=request.answer,
            reason=reason,
            usage=request.usage(),
            timings=request.timings(self.clock()),
            detail=detail,
        )

    def forget(self, chat: str) -> None:
        """Drop what is kept of a deleted chat; answers that still run in it will not be kept either."""
        for request in self.requests.values():
            if request.chat == chat:
                request.cache.chat, request.options = "", request.options._replace(ngram_chats=False)
        self.cache.forget(chat)
        self.controller.forget_chats()

    def finish_all(self, reason: FinishReason, detail: str, adapter: int | None = None) -> None:
        """End all answers, or those of one ``adapter``."""
        for request in list(self.requests.values()):
            if adapter is None or request.adapter == adapter:
                self.finish(request, reason, detail)

    def abandon(self, detail: str) -> None:
        """End every answer without touching ledgers that may be wrong; the stepper is not used after this."""
        for request in self.requests.values():
            self._emit(self._finished(request, "error", detail))
        for request in self.requests.values():
            try:
                self.controller.release(request)  # the proposers are the model's, and go on
            except Exception:
                _log.exception("the draft state of %s stays", request.owner)

    def step(self) -> bool:
        """Do one step; false if there was nothing to do. A failure ends the requests in it and nothing else."""
        flight, self._in_flight = self._in_flight, None
        if not self.requests:
            return False
        if flight is not None:
            self._collect(flight)
            return True
        began = time.perf_counter()
        options = self._options
        self.scheduler.policy = POLICIES[options.admission]
        plan = self.scheduler.plan(self._limits(), self.controller.plan(self.scheduler.running))
        now = self.clock()
        for request in plan.admitted:
            if request.progress.admitted_at is None:
                request.progress.admitted_at, request.progress.cached_tokens = now, request.num_computed
                self.cache.count_hits(request)
        for request in plan.failed:
            self.finish(request, "memory", OUT_OF_PAGES)
        if not plan.slices:
            return True
        if self._submit_first(plan, began):
            return True
        scheduled = time.perf_counter() - began
        try:
            trees, work, wanted = self.controller.propose(plan.slices)
            trees = [
                tree if piece.sequence.options.policy.branches else tree.chain()
                for piece, tree in zip(plan.slices, trees, strict=True)
            ]
            forwarded = self._forward(plan.slices, trees, wanted)
        except Exception as error:
            self._fail(plan, error)
            return True
        self._take_in(plan, trees, work, forwarded, (began, scheduled, time.perf_counter()))
        return True

    def _take_in(
        self,
        plan: Plan[Request],
        trees: Sequence[DraftTree],
        work: DraftCost,
        forwarded: _Forwarded,
        times: tuple[float, float, float],
        comparable: bool = True,
    ) -> None:
        """Let the results change the requests, and record the step.

        ``times``: when it began, the seconds that scheduling took, and when its tokens were there. ``comparable``: its
        time tells what steps cost.
        """
        facts = StepCounts(plan, trees, work, forwarded.seconds, self.model.reads.sparse)
        self.cache.read(facts.prefill_rows, forwarded.seconds)
        self._ttfts.clear()
        taken, drafts = self._accept(plan, trees, forwarded, comparable and facts.prefill_rows == 0)
        limits = self._limits()
        for each in taken:
            self._settle(each, limits)
        self._record(*times, facts, taken, drafts)

    def _limits(self) -> Limits:
        options = self._options
        reading = options.reading_budget(self.model.device)
        return Limits(options.token_budget, options.chunked_prefill, options.whole_context, reading)

    # --- asynchronous scheduling -----------------------------------------------------------------------------------

    @property
    def _goes_ahead(self) -> bool:
        """Batch-invariant logits are float32, for which its kernels were not tried."""
        return self._options.async_scheduling and not self._options.batch_invariant

    def _submit_first(self, plan: Plan[Request], began: float) -> bool:
        """Launch the step of a plan without reading it, where nothing but decoding runs; whether it was."""
        if (
            self.async_scheduler is None
            or not self._goes_ahead
            or self.scheduler.waiting
            or not self.async_scheduler.serves(plan)
        ):
            return False
        if not self.controller.rests(self.scheduler.running):
            return False
        try:
            self._in_flight, self._collected = self.async_scheduler.submit(plan.slices), began
        except Exception as error:
            self._fail(plan, error)
        return True

    def _collect(self, flight: InFlightStep) -> None:
        """Launch the step after this one, if all goes on as it is, and take in this one's tokens meanwhile."""
        assert self.async_scheduler is not None
        self.controller.pass_by()
        launched = self.async_scheduler.seconds
        try:
            after = self._submit_next(flight)
            waited = time.perf_counter()
            pieces, verdicts, known = self.async_scheduler.collect(flight, self._runs)
        except Exception as error:
            self._fail(Plan([piece for piece in flight.pieces if self._runs(piece.sequence)], [], [], []), error)
            return
        read = time.perf_counter()
        # Where a token was not known, the step after it was launched with another.
        self._in_flight = after if known else None
        forwarded = _Forwarded(verdicts, [None] * len(pieces), {}, read - waited)
        times = self._collected, self.async_scheduler.seconds - launched, read
        # What steps cost is learned from those that are read before the next one is launched.
        self._take_in(
            Plan(pieces, [], [], []), [NO_DRAFT] * len(pieces), DraftCost(), forwarded, times, comparable=False
        )
        self._collected = time.perf_counter()

    def _submit_next(self, flight: InFlightStep) -> InFlightStep | None:
        """The step after one whose tokens are not read yet; None where something else comes first."""
        assert self.async_scheduler is not None
        running = self.scheduler.running
        if not self._goes_ahead or self.scheduler.waiting or not self.controller.rests(running):
            return None
        if len(flight.pieces) < len(running):
            return None  # an answer that takes no part in it waits for its turn
        pieces = self.async_scheduler.next_slices(flight, self._runs)
        return self.async_scheduler.submit(pieces, flight) if pieces else None

    def _runs(self, request: Request) -> bool:
        return self.requests.get(request.owner) is request

    # --- inside a step -------------------------------------------------------------------------------------------

    def _forward(
        self, slices: Sequence[Slice[Request]], trees: Sequence[DraftTree], wanted: frozenset[int]
    ) -> _Forwarded:
        began = time.perf_counter()
        rows = [rows_of(piece, tree, self.model.pictures.embeddings) for piece, tree in zip(slices, trees, strict=True)]
        judged = [(piece.sequence, tree) for piece, tree in zip(slices, trees, strict=True) if piece.last]
        draws = [draw for request, tree in judged for draw in draws_of(request, tree)]
        runner = self.model.runner
        scored = frozenset([runner.num_layers]) if wants_scores(slices) else frozenset()
        logits, states = forward_step(runner, rows, trees, wanted | scored)
        prompts = (
            prompt_scores(runner, slices, trees, states[runner.num_layers], self.model.card.vocabulary)
            if scored
            else {}
        )
        hidden = {layer: state for layer, state in states.items() if layer in wanted}
        draft_tokens = [tree for _, tree in judged]
        verdicts = judge_all([request.acceptance for request, _ in judged], draft_tokens, logits, draws)
        asked = any(draw.params.logprobs is not None for draw in draws)
        logprobs = log_probs(logits, draws, drawn_tokens(draft_tokens, verdicts) if asked else ())
        # Building the batch is the host's work, although it happens inside the call.
        seconds = time.perf_counter() - began - runner.batch_seconds
        return _Forwarded(verdicts, logprobs, hidden, seconds, prompts)

    def _accept(
        self, plan: Plan[Request], trees: Sequence[DraftTree], forwarded: _Forwarded, decoding_only: bool
    ) -> tuple[list[SliceResult], tuple[DraftRecord, ...]]:
        """Apply the results: append tokens, move accepted keys and values into place, let the controller learn."""
        taken: list[SliceResult] = []
        verdicts = iter(forwarded.verdicts)
        place = first_row = 0
        for piece, tree in zip(plan.slices, trees, strict=True):
            start = piece.sequence.num_computed
            drawn = 1 + len(tree.tokens) if piece.last else 0
            verdict = next(verdicts) if piece.last else None
            told = forwarded.prompts.get(piece.sequence.owner, [])
            outcome, nodes = self._advance(piece, tree, verdict, forwarded.logprobs[place : place + drawn], told)
            taken.append(SliceResult(piece, tree, start, first_row, verdict, outcome, nodes))
            place += drawn
            first_row += piece.rows + len(tree.tokens)
        store, device = self.model.stores[0], self.model.device
        for group in range(store.written_groups):
            source, target = moves(taken, group)
            if source:
                store.move_slots(on_device(device, source), on_device(device, target), group)
        rows_again, runs = replays(taken)
        if runs:
            self.model.runner.replay(rows_again, runs)
        alive = [each for each in taken if each.piece.sequence.owner in self.requests]
        rounds = [
            Round(each.piece.sequence, each.tree, each.verdict)
            for each in alive
            if each.tree.tokens and each.verdict is not None
        ]
        rows = seen(alive, forwarded.hidden) if forwarded.hidden else []
        return taken, self.controller.record(rounds, rows, decoding_only)

    def _advance(
        self,
        piece: Slice[Request],
        tree: DraftTree,
        verdict: Verdict | None,
        logprobs: Sequence[LogProbs | None],
        told: list[TokenInfo],
    ) -> tuple[AppendResult | None, Sequence[int]]:
        """Append a slice's tokens to its request; returns the outcome and the accepted nodes of the tree. ``told`` are
        tokens of its prompt with their log-probabilities."""
        request = piece.sequence
        reading = request.num_computed < request.prompt_length and not request.generated
        request.cache.advance(piece.rows)
        if reading and request.answer == 0:
            done = min(request.num_computed, request.prompt_length)
            cached = request.progress.cached_tokens
            request.scored += len(told)
            self._emit(Prefill(id=request.id, done=done, cached=cached, total=request.prompt_length, tokens=told))
        if verdict is None:
            return None, ()
        if verdict.token == NO_TOKEN:
            request.cache.stop_sharing()
            self._clear(request)
            self.finish(request, "error", NO_NUMBERS)
            return None, ()
        try:
            outcome = extend(request, run_of(verdict, tree, logprobs), self._eos)
        except Exception as error:
            _log.exception("appending to %s failed", request.owner)
            self.finish(request, "error", f"This answer could not be continued ({error}). Try it again.")
            return None, ()
        nodes = verdict.nodes[: outcome.kept]
        self._count(request, tree, len(nodes))
        for event in outcome.events:
            self._emit(event)
        request.cache.advance(len(nodes))
        return outcome, nodes

    def _clear(self, request: Request) -> None:
        """Write zeros to the pages that only this request holds: in a reused page a NaN in a masked slot would spread,
        since 0 * NaN is NaN."""
        pages = [page for page in request.pages if self.cache.pool.refs(page) == 1]
        for store in self.model.stores if pages else ():
            store.clear_pages(pages)

    def _settle(self, taken: SliceResult, limits: Limits) -> None:
        request, outcome = taken.piece.sequence, taken.outcome
        if request.owner not in self.requests:
            return  # it failed above
        if outcome is None:
            self.scheduler.read(request)
        elif outcome.reason is not None:
            self.finish(request, outcome.reason, outcome=outcome)
        else:
            self.scheduler.settle(request, limits)

    def _count(self, request: Request, tree: DraftTree, accepted: int) -> None:
        progress = request.progress
        progress.steps += 1
        progress.proposed += len(tree.tokens)
        progress.accepted += accepted
        if progress.first_token_at is None and request.generated:
            progress.first_token_at = self.clock()
            self._ttfts.append(progress.first_token_at - progress.arrived_at)

    def _fail(self, plan: Plan[Request], error: Exception) -> None:
        """Handle a failed step, of which nothing was committed.

        Out of memory takes the graphs first, then preempts the newest request, or ends it if no other holds pages;
        other errors end all requests of the step. Raises :class:`DeviceLost` where no later step can succeed.
        """
        requests = [piece.sequence for piece in plan.slices]
        if is_out_of_memory(error) and requests:
            gave_up = [graphs.give_up() for graphs in self.model.graphs]
            release_cached()
            if any(gave_up):
                _log.warning("memory ran out: CUDA graphs are given up, and the step is tried again")
                return
            newest = max(requests, key=lambda request: request.arrival)
            if self.scheduler.lone(newest):
                self.finish(newest, "memory", OUT_OF_MEMORY)
            else:
                self.scheduler.preempt(newest)
            return
        lost = lost_device(error)
        if lost is not None:
            raise lost from error
        _log.exception("a step failed", exc_info=error)
        for request in requests:
            self.finish(
                request, "error", f"The engine failed at this step ({error}). Try again; the log has the details."
            )

    def _record(
        self,
        began: float,
        scheduled: float,
        forwarded_at: float,
        facts: StepCounts,
        taken: Sequence[SliceResult],
        drafts: tuple[DraftRecord, ...],
    ) -> None:
        running, runner = self.scheduler.running, self.model.runner
        ended = time.perf_counter()
        duration, settled = ended - began, ended - forwarded_at
        host = duration - facts.seconds - facts.work.seconds
        bytes_read = self.model.reads.weights + int(self.model.reads.kv_per_token * facts.kv_tokens)
        bytes_read += facts.sequences * self.cache.state_bytes
        self._emit(
            StepRecord(
                time=self.clock(),
                duration=duration,
                host_seconds=host,
                decode_rows=facts.decode_rows,
                prefill_rows=facts.prefill_rows,
                verify_rows=facts.verify_rows,
                generated=sum(each.outcome.kept for each in taken if each.outcome is not None),
                drafts=drafts,
                pages_used=self.cache.pool.used_count,
                live_tokens=self.cache.live_tokens(running),
                pages_cached=self.cache.tree.evictable,
                waiting=len(self.scheduler.waiting),
                running=len(running),
                prefilling=sum(1 for request in running if request.pending > 1),
                bytes_read=bytes_read + facts.work.bytes_read,
                preemptions=facts.preemptions,
                ttfts=tuple(self._ttfts),
                host=HostSeconds(scheduled, host - scheduled - settled, settled),
                drafting=facts.work,
                captured=None if runner.graphs is None else not runner.eager,
                eager=runner.eager,
                trees=trees_of(taken),
            )
        )
