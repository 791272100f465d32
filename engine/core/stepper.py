"""One step after another over a loaded model: schedule, guess, forward, draw, verify, append, settle."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.attention.transfer import on_device
from engine.cache.saved import SavedChats
from engine.core.answers import Outcome, extend, flushed
from engine.core.events import Event, FinishedEvent, HostSeconds, PrefillEvent, StepRecord
from engine.core.forwarding import forward_step
from engine.core.loaded import LoadedModel
from engine.core.model_cache import ModelCache
from engine.core.options import EngineOptions
from engine.core.request import Request
from engine.core.step_parts import Facts, Taken, draws_of, is_out_of_memory, moves, rows_of, run_of, seen
from engine.protocol import FinishReason, PageCounts
from engine.sampling.sampler import LogProbs, log_probs, new_history
from engine.scheduling.policy import FirstComeFirstServed, LongestPrefixFirst
from engine.scheduling.scheduler import Limits, Plan, Scheduler, Slice
from engine.speculation.base import DraftTree
from engine.speculation.pilot import Pilot
from engine.speculation.verifier import Verdict, drawn_tokens, judge_all

_log = logging.getLogger(__name__)

OUT_OF_PAGES = (
    "The memory for keys and values is full. Shorten the conversation, or load the model with a larger memory budget."
)
OUT_OF_MEMORY = (
    "The device ran out of memory during this step. "
    "Close other programs, or load the model with a smaller memory budget."
)


class _Forwarded(NamedTuple):
    """What the tensors gave: a verdict on the guesses of each slice that draws, and log-probabilities of its rows."""

    verdicts: list[Verdict]
    logprobs: list[LogProbs | None]
    hidden: dict[int, Tensor]
    seconds: float


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
        self.model, self._options, self._emit, self._clock = model, options, emit, clock
        self.cache = ModelCache(model, options, clock, saved)
        self.scheduler: Scheduler[Request] = Scheduler(self.cache.pool, LongestPrefixFirst(), memory=self.cache.memory)
        self._policies = {"longest_prefix": LongestPrefixFirst(), "first_come": FirstComeFirstServed()}
        self.pilot = Pilot(model.proposers)
        self.requests: dict[tuple[str, int], Request] = {}
        self._eos = frozenset(model.card.eos_ids)
        self._ttfts: list[float] = []

    @property
    def now(self) -> float:
        """The time on the engine's clock."""
        return self._clock()

    @property
    def page_counts(self) -> PageCounts:
        """Pages and what they hold now; for any thread."""
        cache = self.cache
        return PageCounts(
            total=cache.pool.total,
            used=cache.pool.used_count,
            live_tokens=cache.live_tokens(list(self.scheduler.running)),
            cached=cache.tree.evictable,
        )

    @property
    def busy(self) -> bool:
        return bool(self.requests)

    def add(self, request: Request) -> None:
        """Queue the request. Its prompt fits the context: that was checked before it was made."""
        self.cache.welcome(request)
        request.history = new_history(
            request.params, self.model.card.vocabulary, request.prompt_length, self.model.device
        )
        self.requests[request.owner] = request
        self.scheduler.add(request)

    def stop_sharing(self) -> None:
        """The arithmetic changed: what runs now goes on with mixed pages, which nobody else may have."""
        for request in self.requests.values():
            request.namespace = None

    def cancel(self, id: str) -> None:
        """End all answers of a request now; unknown ids are none of our business (it may just have ended)."""
        for request in [request for request in self.requests.values() if request.id == id]:
            self.finish(request, "cancelled")

    def finish(self, request: Request, reason: FinishReason, detail: str = "", outcome: Outcome | None = None) -> None:
        """Free everything the request holds and say how it ended; held-back text is released unless a stop ended it."""
        self.cache.keep(request)
        self.scheduler.remove(request)
        self.pilot.release(request)
        self.requests.pop(request.owner, None)
        if outcome is None:
            for event in flushed(request):
                self._emit(event)
        timings = request.timings(self._clock())
        self._emit(FinishedEvent(request.id, request.answer, reason, request.usage(), timings, detail))

    def forget(self, chat: str) -> None:
        """A chat was deleted: what is kept of it goes, and of an answer that still runs in it nothing will be kept."""
        for request in self.requests.values():
            if request.chat == chat:
                request.chat, request.options = "", request.options._replace(ngram_chats=False)
        self.cache.forget(chat)
        self.pilot.forget_chats()

    def finish_all(self, reason: FinishReason, detail: str) -> None:
        for request in list(self.requests.values()):
            self.finish(request, reason, detail)

    def abandon(self, detail: str) -> None:
        """Say that every answer ended, without touching books that may be wrong; the stepper is not used after this."""
        for request in self.requests.values():
            timings = request.timings(self._clock())
            self._emit(FinishedEvent(request.id, request.answer, "error", request.usage(), timings, detail))
        for request in self.requests.values():
            try:
                self.pilot.release(request)  # the proposers are the model's, and go on
            except Exception:
                _log.exception("what was kept to guess for %s stays", request.owner)

    def step(self) -> bool:
        """Do one step; false if there was nothing to do. A failure ends the requests in it and nothing else."""
        if not self.requests:
            return False
        began = time.perf_counter()
        self.pilot.begin(len(self.scheduler.running))
        limits = self._limits()
        plan = self.scheduler.plan(limits, self.pilot.wanted)
        now = self._clock()
        for request in plan.admitted:
            if request.admitted_at is None:
                request.admitted_at = now
                self.cache.admitted(request)
        for request in plan.failed:
            self.finish(request, "memory", OUT_OF_PAGES)
        if not plan.slices:
            return True
        scheduled = time.perf_counter() - began
        try:
            trees, work = self.pilot.propose(plan.slices)
            trees = [
                tree if piece.sequence.branches else tree.chain()
                for piece, tree in zip(plan.slices, trees, strict=True)
            ]
            forwarded = self._forward(plan.slices, trees)
        except Exception as error:
            self._fail(plan, error)
            return True
        forwarded_at = time.perf_counter()
        facts = Facts(plan, trees, work, forwarded.seconds)
        self.cache.read(facts.prefill_rows, forwarded.seconds)
        if facts.decoding_only:
            self.pilot.costs.observe_target(facts.rows, forwarded.seconds)
        self._ttfts.clear()
        generated = self._accept(plan, trees, forwarded, limits)
        self.pilot.told(time.perf_counter() - began, facts.decoding_only)
        self._record(began, scheduled, forwarded_at, facts, generated)
        return True

    # --- inside a step -------------------------------------------------------------------------------------------

    def _limits(self) -> Limits:
        options = self._options
        self.scheduler.policy = self._policies[options.admission]
        return Limits(options.token_budget, options.chunked_prefill, options.whole_context)

    def _forward(self, slices: Sequence[Slice[Request]], trees: Sequence[DraftTree]) -> _Forwarded:
        rows = [rows_of(piece, tree) for piece, tree in zip(slices, trees, strict=True)]
        judged = [(piece.sequence, tree) for piece, tree in zip(slices, trees, strict=True) if piece.last]
        draws = [draw for request, tree in judged for draw in draws_of(request, tree)]
        began = time.perf_counter()
        wanted = self.pilot.needs_hidden(slices)
        logits, hidden = forward_step(self.model.runner, rows, trees, wanted)
        guesses = [tree for _, tree in judged]
        verdicts = judge_all([request.acceptance for request, _ in judged], guesses, logits, draws)
        asked = any(draw.params.logprobs is not None for draw in draws)
        logprobs = log_probs(logits, draws, drawn_tokens(guesses, verdicts) if asked else ())
        # Building the batch is the host's work, although it happens inside the call.
        return _Forwarded(verdicts, logprobs, hidden, time.perf_counter() - began - self.model.runner.batch_seconds)

    def _accept(self, plan: Plan[Request], trees: Sequence[DraftTree], forwarded: _Forwarded, limits: Limits) -> int:
        """Take in the results: answers grow, then keys and values find their place, then pages change hands.

        Returns the number of tokens generated.
        """
        taken: list[Taken] = []
        verdicts = iter(forwarded.verdicts)
        place = first_row = 0
        for piece, tree in zip(plan.slices, trees, strict=True):
            start = piece.sequence.num_computed
            drawn = 1 + len(tree.tokens) if piece.last else 0
            verdict = next(verdicts) if piece.last else None
            outcome, nodes = self._advance(piece, tree, verdict, forwarded.logprobs[place : place + drawn])
            taken.append(Taken(piece, tree, start, first_row, outcome, nodes))
            place += drawn
            first_row += piece.rows + len(tree.tokens)
        source, target = moves(taken)
        if source:
            self.model.stores[0].move_slots(*(on_device(self.model.device, slots) for slots in (source, target)))
        for each in taken:
            self._settle(each, limits)
        if forwarded.hidden:
            alive = [each for each in taken if each.piece.sequence.owner in self.requests]
            self.pilot.see(seen(alive, forwarded.hidden))
        return sum(each.outcome.kept for each in taken if each.outcome is not None)

    def _advance(
        self, piece: Slice[Request], tree: DraftTree, verdict: Verdict | None, logprobs: Sequence[LogProbs | None]
    ) -> tuple[Outcome | None, Sequence[int]]:
        """What a slice makes of its request's tokens; the guesses that became part of them."""
        request = piece.sequence
        reading = request.num_computed < request.prompt_length and not request.generated
        request.num_computed += piece.rows
        if reading and request.answer == 0:
            done = min(request.num_computed, request.prompt_length)
            self._emit(PrefillEvent(request.id, done, request.cached_tokens or 0, request.prompt_length))
        if verdict is None:
            return None, ()
        try:
            outcome = extend(request, run_of(verdict, tree, logprobs), self._eos)
        except Exception as error:
            _log.exception("appending to %s failed", request.owner)
            self.finish(request, "error", f"This answer could not be continued ({error}). Try it again.")
            return None, ()
        nodes = verdict.nodes[: outcome.kept]
        self.pilot.observe(request, tree, verdict)
        self._count(request, tree, len(nodes))
        for event in outcome.events:
            self._emit(event)
        request.num_computed += len(nodes)
        return outcome, nodes

    def _settle(self, taken: Taken, limits: Limits) -> None:
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
        request.steps += 1
        request.proposed += len(tree.tokens)
        request.accepted += accepted
        if request.first_token_at is None:
            request.first_token_at = self._clock()
            self._ttfts.append(request.first_token_at - request.arrived_at)

    def _fail(self, plan: Plan[Request], error: Exception) -> None:
        """A step failed and nothing of it was committed.

        Out of memory sends the newest request away until others ended; another failure ends the step's requests.
        """
        requests = [piece.sequence for piece in plan.slices]
        if is_out_of_memory(error):
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            newest = max(requests, key=lambda request: request.arrival)
            if self.scheduler.lone(newest):
                self.finish(newest, "memory", OUT_OF_MEMORY)
            else:
                self.scheduler.preempt(newest)
            return
        _log.exception("a step failed", exc_info=error)
        for request in requests:
            self.finish(
                request, "error", f"The engine failed at this step ({error}). Try again; the log has the details."
            )

    def _record(self, began: float, scheduled: float, forwarded_at: float, facts: Facts, generated: int) -> None:
        running = self.scheduler.running
        ended = time.perf_counter()
        duration, settled = ended - began, ended - forwarded_at
        host = duration - facts.seconds - facts.work.seconds
        bytes_read = self.model.weight_bytes + int(self.model.kv_bytes_per_token * facts.kv_tokens)
        self._emit(
            StepRecord(
                time=self._clock(),
                duration=duration,
                host_seconds=host,
                decode_rows=facts.decode_rows,
                prefill_rows=facts.prefill_rows,
                verify_rows=facts.verify_rows,
                generated=generated,
                guesses=self.pilot.records(),
                pages_total=self.cache.pool.total,
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
            )
        )
