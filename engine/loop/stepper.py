"""Runs the steps of a loaded model: schedule, submit to the executor, collect, append, settle."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from engine import catalogue
from engine.base.devices import release_cached
from engine.base.errors import is_out_of_memory, lost_device
from engine.base.host_memory import trim_heap
from engine.cache.offload.saved import SavedChats
from engine.compute.sampling.sampler import LogProbs, new_history
from engine.decoding.hand_over import CONTRADICTS, BegunAnswer, HandOverRefused
from engine.decoding.options import EngineOptions
from engine.decoding.request import Request
from engine.decoding.scheduling.plan import Limits, Plan, Slice
from engine.decoding.scheduling.policy import SchedulingPolicy, SchedulingTechnique
from engine.decoding.scheduling.scheduler import Scheduler
from engine.decoding.speculation.base import DraftCost, DraftTree
from engine.decoding.speculation.verify.verdict import NO_TOKEN, Verdict
from engine.decoding.telemetry.phases import Phases
from engine.decoding.telemetry.records import DraftRecord, EndedAnswer, HostSeconds, StepRecord
from engine.loading.model import LoadedModel
from engine.loop.answers import AppendResult, extend, flushed
from engine.loop.events import Embedded, Event
from engine.loop.executor import Executor, StepHandle, StepInput, StepOutput
from engine.loop.model_cache import ModelCache
from engine.loop.step import SliceResult, StepCounts, run_of, trees_of
from engine.protocol import Finished, FinishReason, PageCounts, Prefill, QueueCounts, ServiceFigures, TokenInfo, Value

_log = logging.getLogger(__name__)

OUT_OF_PAGES = (
    "The memory for keys and values is full. Shorten the conversation, or load the model with a larger memory budget."
)
OUT_OF_MEMORY = (
    "The device ran out of memory during this step. "
    "Close other programs, or load the model with a smaller memory budget."
)
ENDED = (
    "This answer has all the tokens that it may have here. Ask for more of them (max_tokens), or load the model with a "
    "longer context."
)
LOST_GRAMMAR = "The form of this answer takes too much work to follow ({reason}). Ask for a simpler one."
NO_NUMBERS = (
    "The model computed scores that are not numbers, so the answer ends here. Download the model again, or load it in "
    "float32."
)


class Stepper:
    """Serves requests with one loaded model. Used by the engine thread alone."""

    def __init__(
        self,
        model: LoadedModel,
        options: EngineOptions,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        saved: SavedChats | None = None,
    ) -> None:
        self.model, self.clock = model, clock
        self._options, self._emit = options, emit
        self.cache = ModelCache(model, options, clock, saved)
        self.scheduler: Scheduler[Request] = Scheduler(self.cache.manager, SchedulingPolicy())
        self.executor = Executor(model)
        self.requests: dict[tuple[str, int], Request] = {}
        self._eos = frozenset(model.card.eos_ids)
        self._ttfts: list[float] = []
        self._in_flight: StepHandle | None = None
        self._began = self._scheduled = 0.0  # of the step that is collected next
        self._preempted = 0
        self._policy = ""
        self._values: Mapping[str, Value] = {}  # of the switches, as they were at the last step
        self._phases = Phases()
        self._ended: list[EndedAnswer] = []

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

    @property
    def service_targets(self) -> list[ServiceFigures]:
        """Service classes with their targets, and the most answers of a step that keeps them; for any thread."""
        costs = self.scheduler.costs
        return [
            ServiceFigures(
                service=name,
                first_token=each.first_token,
                between_tokens=each.between_tokens,
                most=costs.rows(each.between_tokens),
            )
            for name, each in self._options.classes.items()
        ]

    def add(self, request: Request, begun: BegunAnswer | None = None) -> None:
        """Queue the request. Its prompt fits the context: that was checked before it was made. It goes on as another
        engine has ``begun`` it, all of whose tokens are told. Raises :class:`HandOverRefused`."""
        if begun is None:
            self.cache.find_saved(request)
        else:
            self._go_on(request, begun)
        request.history = new_history(
            request.params, self.model.card.vocabulary, request.prompt_length, self.model.device
        )
        self.requests[request.owner] = request
        self.scheduler.add(request)
        self._phases.tell(request, "waiting", self.clock())

    def _go_on(self, request: Request, answer: BegunAnswer) -> None:
        drawn = answer.begun.drawn
        if not all(0 <= token < self.model.card.vocabulary for token in drawn):
            raise HandOverRefused(CONTRADICTS)
        self.cache.receive(request, answer)
        request.params = replace(request.params, seed=answer.begun.seed)
        outcome = extend(request, [TokenInfo(token) for token in drawn], self._eos)
        if outcome.reason is not None:
            raise HandOverRefused(ENDED)
        for event in outcome.events:
            self._emit(event)

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
        """Free everything the request holds and say how it ended; held-back text is released unless a stop ended it.
        One that has all of its ``max_tokens`` is handed over first, if that was asked for."""
        if request.hand_over is not None and reason == "length":
            try:
                request.hand_over(self.cache.handed_over(request))
            except Exception as error:
                _log.exception("handing over %s failed", request.owner)
                reason, detail = "error", f"This answer could not be handed over ({error}). Ask for it here again."
        self.cache.keep(request)
        self.scheduler.remove(request)
        self.executor.controller.release(request)
        self.requests.pop(request.owner, None)
        self._phases.tell(request, "ended", self.clock())
        if reason in ("stop", "length") and request.task.pooling is None:
            self._ended.append(self._in_time(request))
        if outcome is None:
            for event in flushed(request):
                self._emit(event)
        self._emit(self._finished(request, reason, detail))

    def _in_time(self, request: Request) -> EndedAnswer:
        progress, service = request.progress, request.standing.service
        first = (progress.first_token_at or self.clock()) - progress.arrived_at
        return EndedAnswer(service, self.scheduler.policy.classes[service].keeps(first, progress.worst_gap))

    def _finished(self, request: Request, reason: FinishReason, detail: str) -> Finished:
        return Finished(
            id=request.id,
            answer=request.answer,
            reason=reason,
            usage=request.usage(),
            timings=request.timings(self.clock()),
            detail=detail or request.stream.notice,
        )

    def forget(self, chat: str) -> None:
        """Drop what is kept of a deleted chat; answers that still run in it will not be kept either."""
        for request in self.requests.values():
            if request.chat == chat:
                request.cache.chat, request.options = "", request.options._replace(ngram_chats=False)
        self.cache.forget(chat)
        self.executor.controller.forget_chats()

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
                self.executor.controller.release(request)  # the proposers are the model's, and go on
            except Exception:
                _log.exception("the draft state of %s stays", request.owner)

    def step(self) -> bool:
        """Do one step; false if there was nothing to do. A failure ends the requests in it and nothing else."""
        step, self._in_flight = self._in_flight, None
        if not self.requests:
            return False
        if step is None:
            step = self._submit()
        if step is not None:
            self._collect(step)
        return True

    def _submit(self) -> StepHandle | None:
        """Schedule a step and submit it; None where there is nothing to compute, or where it failed."""
        self._began = time.perf_counter()
        plan = self._plan()
        if not plan.slices:
            return None
        ahead = (
            self._may_go_ahead
            and not (plan.preempted or plan.admitted or plan.failed)
            and self.executor.draws_ahead(plan.slices)
            and self.executor.controller.rests(self.scheduler.running)
        )
        self._scheduled, self._preempted = time.perf_counter() - self._began, len(plan.preempted)
        try:
            return self.executor.submit(StepInput(plan.slices, ahead))
        except Exception as error:
            self._fail(plan.slices, error)
            return None

    def _plan(self) -> Plan[Request]:
        """The rows of a step. Requests that were admitted are counted, and those that cannot be served end."""
        now = self.clock()
        self._choose_policy()
        plan = self.scheduler.plan(self._limits(), self.executor.controller.plan(self.scheduler.running), now)
        for request in plan.admitted:
            if request.progress.admitted_at is None:
                request.progress.admitted_at = now
                request.progress.cached_tokens = min(request.num_computed, request.prompt_length)
                self.cache.count_hits(request)
        for request in plan.preempted:
            self._phases.gave_way(request, now)
        self._phases.plan(plan.slices, self.scheduler.running, now)
        for request in plan.failed:
            self.finish(request, "memory", OUT_OF_PAGES)
        for place, piece in enumerate(plan.slices):
            if piece.sequence.task.pooling is not None:
                plan.slices[place] = piece._replace(last=False)  # no token is drawn after it
        return plan

    def _choose_policy(self) -> None:
        """Obey the switches where one was set; a policy that was chosen anew knows nothing of what was before."""
        options = self._options
        if self._values is options.values:
            return
        self._values = options.values
        if self._policy != options.admission:
            self._policy = options.admission
            self.scheduler.follow(catalogue.record(SchedulingTechnique, self._policy).policy())
        self.scheduler.policy.prefix_first = options.prefix_first
        self.scheduler.policy.classes = options.classes

    def _limits(self) -> Limits:
        options = self._options
        reading = options.reading_budget(self.model.device)
        return Limits(
            options.token_budget,
            options.chunked_prefill,
            options.whole_context,
            reading,
            options.max_batch,
            options.step_targets,
        )

    @property
    def _may_go_ahead(self) -> bool:
        """Batch-invariant logits are float32, for which the kernels that draw ahead were not tried."""
        options = self._options
        if self.executor.sampler is None or self.scheduler.waiting:
            return False
        return options.async_scheduling and not options.batch_invariant

    def _submit_after(self, step: StepHandle) -> StepHandle | None:
        """Submit the step after one whose tokens are not known yet; None where something else comes first."""
        controller, running = self.executor.controller, self.scheduler.running
        controller.pass_by()
        if not self._may_go_ahead or not controller.rests(running) or len(step.slices) < len(running):
            return None  # an answer that takes no part in it waits for its turn
        going = [
            piece
            for piece in step.slices
            if self._runs(piece.sequence) and piece.sequence.known + 1 < piece.sequence.reach
        ]
        for piece in going:
            if not piece.sequence.cache.fits(2):
                return None
            piece.sequence.cache.allocate(2)
        return self.executor.submit(StepInput(going, True, step)) if going else None

    def _runs(self, request: Request) -> bool:
        return self.requests.get(request.owner) is request

    def _collect(self, step: StepHandle) -> None:
        """Wait for a step and take in its tokens. The step after it is submitted first, if all goes on as it is."""
        after = None
        try:
            if step.pending is not None:
                after = self._submit_after(step)
                self._scheduled = after.seconds if after is not None else 0.0
            output = self.executor.collect(step)
        except Exception as error:
            self._fail([piece for piece in step.slices if self._runs(piece.sequence)], error)
            return
        # Where a token was drawn otherwise, the step after it was computed with another.
        self._in_flight = after if output.known else None
        self._take_in(step, output)
        if after is not None:
            self._began = time.perf_counter()

    def _take_in(self, step: StepHandle, output: StepOutput) -> None:
        """Let the tokens of a step change the requests that still run, and record it."""
        collected = time.perf_counter()
        slices = step.slices
        computed = list(zip(slices, step.trees, output.first_rows, output.verdicts, output.logprobs, strict=True))
        if step.pending is not None:  # requests may have ended since it was submitted
            computed = [each for each in computed if self._runs(each[0].sequence)]
            slices = [piece for piece, *_ in computed]
        counts = StepCounts(slices, step.trees, self.model.reads.sparse)
        self.cache.read(counts.rows.prefill, output.seconds)
        self._ttfts.clear()
        taken = [
            SliceResult(
                *(piece, tree, row, piece.sequence.num_computed, verdict),
                *self._advance(piece, tree, verdict, logprobs, output),
            )
            for piece, tree, row, verdict, logprobs in computed
        ]
        alive = [each for each in taken if each.piece.sequence.owner in self.requests]
        drafts = self.executor.accept(step, alive, counts.rows.prefill > 0)
        limits = self._limits()
        for each in taken:
            self._settle(each, limits)
        self._record(step.work, output.seconds, collected, counts, taken, drafts)

    # --- inside a step -------------------------------------------------------------------------------------------

    def _advance(
        self,
        piece: Slice[Request],
        tree: DraftTree,
        verdict: Verdict | None,
        logprobs: Sequence[LogProbs | None],
        output: StepOutput,
    ) -> tuple[AppendResult | None, Sequence[int]]:
        """Append a slice's tokens to its request; returns the outcome and the accepted nodes of the tree."""
        request = piece.sequence
        reading = request.num_computed < request.prompt_length and not request.generated
        request.cache.advance(piece.rows)
        if reading and request.answer == 0:
            done = min(request.num_computed, request.prompt_length)
            cached, told = request.progress.cached_tokens, output.scores.get(request.owner, [])
            request.task.scored += len(told)
            self._emit(Prefill(id=request.id, done=done, cached=cached, total=request.prompt_length, tokens=told))
        if request.task.pooling is not None:
            self._pool(request, output.pooled.get(request.owner))
        if verdict is None:
            return None, ()
        if verdict.token == NO_TOKEN:
            request.cache.stop_sharing()
            self._clear(request)
            self.finish(request, "error", NO_NUMBERS)
            return None, ()
        if request.constraint is not None and request.constraint.failed:
            self.finish(request, "error", LOST_GRAMMAR.format(reason=request.constraint.failed.partition("\n")[0]))
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

    def _pool(self, request: Request, states: Tensor | None) -> None:
        """Add the ``states`` of a step's rows to an embedding, which is whole where the prompt is read."""
        if states is not None:
            request.task.pool(states, request.num_computed)
        if request.pending or request.task.pooled is None:
            return
        assert self.model.model is not None
        pooled = request.task.pooled / request.prompt_length if request.task.pooling == "mean" else request.task.pooled
        vector = self.model.model.projected(pooled).cpu().numpy()
        if np.isfinite(vector).all():
            self._emit(Embedded(request.id, vector))
            self.finish(request, "stop")
        else:
            request.cache.stop_sharing()
            self._clear(request)
            self.finish(request, "error", NO_NUMBERS)

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
        if request.generated:
            now = self.clock()
            if progress.first_token_at is None:
                self._ttfts.append(now - progress.arrived_at)
            progress.token_came(now)

    def _fail(self, slices: Sequence[Slice[Request]], error: Exception) -> None:
        """Handle a failed step, of which nothing was committed.

        Out of memory takes the graphs first, then preempts the newest request, or ends it if no other holds pages;
        other errors end all requests of the step. Raises :class:`DeviceLost` where no later step can succeed.
        """
        requests = [piece.sequence for piece in slices]
        if is_out_of_memory(error) and requests:
            gave_up = [graphs.give_up() for graphs in self.model.graphs]
            release_cached()
            trim_heap()
            if any(gave_up):
                _log.warning("memory ran out: captured steps are given up, and the step is tried again")
                return
            newest = max(requests, key=lambda request: request.arrival)
            if self.scheduler.lone(newest):
                self.finish(newest, "memory", OUT_OF_MEMORY)
            else:
                self.scheduler.preempt(newest)
                self._phases.gave_way(newest, self.clock())
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
        work: DraftCost,
        seconds: float,
        collected: float,
        counts: StepCounts,
        taken: Sequence[SliceResult],
        drafts: tuple[DraftRecord, ...],
    ) -> None:
        running, runner = self.scheduler.running, self.model.runner
        unworthy = runner.graphs is None or runner.eager == runner.graphs.too_many
        ended = time.perf_counter()
        duration, settled = ended - self._began, ended - collected
        host = duration - seconds - work.seconds
        self.scheduler.progress([each.piece for each in taken], sum(counts.rows), duration, self.clock())
        bytes_read = self.model.reads.weights + int(self.model.reads.kv_per_token * counts.kv_tokens)
        bytes_read += counts.sequences * self.cache.state_bytes
        self._emit(
            StepRecord(
                time=self.clock(),
                duration=duration,
                host_seconds=host,
                rows=counts.rows,
                generated=sum(each.outcome.kept for each in taken if each.outcome is not None),
                drafts=drafts,
                pages=self.page_counts,
                queue=QueueCounts(
                    waiting=len(self.scheduler.waiting),
                    running=len(running),
                    prefilling=sum(1 for request in running if request.pending > 1),
                ),
                bytes_read=bytes_read + work.bytes_read,
                preemptions=self._preempted,
                ttfts=tuple(self._ttfts),
                host=HostSeconds(self._scheduled, host - self._scheduled - settled, settled),
                drafting=work,
                captured=None if unworthy else not runner.eager,
                eager=runner.eager,
                late="" if runner.graphs is None else runner.graphs.late,
                trees=trees_of(taken),
                phases=self._phases.take(),
                ended=tuple(self._ended),
            )
        )
        self._ended.clear()
