"""Who is let in, whose pages hold what a step computes, and who gives them up. Pure: no tensors, no clock.

When pages run out, the policy's victim gives up its own and is computed again later, or comes back from a tier below.
A sequence that waits holds none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from engine.cache.manager import KVCacheManager
from engine.cache.policies import NO_LIMIT
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.types import common
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.plan import MAX_RUNNING, Limits, Plan, Slice
from engine.decoding.scheduling.policy import S, SchedulingPolicy
from engine.decoding.scheduling.waiting import WaitingQueue

HELD_BACK_PAGES = 2
"""A sequence waits while a running one is about to read at least this many pages of a prefix that both share."""


class Admission(Generic[S]):
    """Owns the queue, the running set and the pages of both."""

    def __init__(self, manager: KVCacheManager, policy: SchedulingPolicy, max_running: int = MAX_RUNNING) -> None:
        self.manager, self.policy, self.max_running = manager, policy, max_running
        self.costs = StepCosts()
        self.waiting: WaitingQueue[S] = WaitingQueue(lambda sequence: self.policy.lane(sequence))
        self.running: list[S] = []

    def add(self, sequence: S) -> None:
        self.policy.enter(sequence, self.costs)
        self.waiting.append(sequence)

    def follow(self, policy: SchedulingPolicy) -> None:
        """Obey another policy from now on."""
        self.policy = policy
        for sequence in (*self.running, *self.waiting):
            policy.enter(sequence, self.costs)
        self.waiting.refile(list(self.waiting))

    def remove(self, sequence: S) -> None:
        """Remove the sequence from its queue and free its pages; the prefix tree keeps the full ones."""
        sequence.cache.commit()
        sequence.cache.close()
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def preempt(self, sequence: S) -> None:
        """Take the sequence's pages and send it back to the queue; its tokens stay."""
        sequence.cache.preempt()
        sequence.standing.preemptions += 1
        self.running.remove(sequence)
        self.waiting.append(sequence)

    def lone(self, sequence: S) -> bool:
        """Return True if no other running sequence holds pages."""
        return not any(other.cache.pages for other in self.running if other is not sequence)

    def settle(self, sequence: S, limits: Limits) -> None:
        """After a step: free the pages after the computed tokens, except the one that the next token needs.

        Without a KV cache all pages are freed, and the next step computes the whole sequence again.
        """
        if not sequence.cached:
            sequence.cache.close()
            return
        self.read(sequence)
        if not limits.whole_context:
            sequence.cache.shrink(pages_for(sequence.cache.num_computed + 1))

    def read(self, sequence: S) -> None:
        """After a chunk of a prompt: share its full pages at once, and free pages that no row will read again."""
        cache = sequence.cache
        if cache.num_computed <= cache.prompt_length:
            cache.commit(ended=False)
        cache.shed()

    def _queue(self, now: float) -> list[S]:
        """The first of those that wait, in the order in which they are tried."""
        heads = self.waiting.heads()
        self.policy.begin(self.running, heads, now)
        self.waiting.refile(heads)
        if not (heads and self.policy.admits(self.running)):
            return []
        return self.policy.order(heads, lambda sequence: sequence.cache.found())

    def _admit(
        self, plan: Plan[S], limits: Limits, left: int, queue: Sequence[S], most: int, parts: Sequence[int] = ()
    ) -> int:
        """Admit ``most`` of the queue; returns the rows that it took. ``parts``: see :func:`shares`, 1 from their end
        on."""
        budget = left
        for place, sequence in enumerate(queue):
            full = len(plan.admitted) >= most or len(self.running) >= min(self.max_running, limits.token_budget)
            if full or left <= 0 or plan.preempted:
                break
            if sequence.cache.lacking(len(sequence.cache.tokens) + 1, self._chunk(limits)) > self.manager.pool.total:
                plan.failed.append(sequence)
                continue
            if self._held_back(sequence):
                continue
            part = parts[place] if place < len(parts) else 1
            if not part:
                continue
            rows = self._try(plan, sequence, limits, left, part)
            if rows is None:
                break
            left -= rows
        if plan.admitted:
            newest = max(sequence.arrival for sequence in plan.admitted)
            for sequence in queue:
                sequence.standing.overtaken += sequence.arrival < newest
        return budget - left

    def _try(self, plan: Plan[S], sequence: S, limits: Limits, left: int, part: int) -> int | None:
        """Admit the sequence if there is room for it; returns its rows of this step."""
        cache = sequence.cache
        cache.open()
        fits = self._fits(sequence, limits) or (cache.take_less() and self._fits(sequence, limits))
        while not fits and (behind := self._gives_way(sequence)):
            self._displace(plan, behind)
            fits = self._fits(sequence, limits)
        if limits.chunked:
            crowded = self._next(sequence, left) > left and plan.reads
        else:
            crowded = bool(plan.slices) and cache.pending > left
        if not fits or crowded:
            if cache.held is None:  # what a tier below keeps stays there
                cache.close()
            return None
        self.waiting.remove(sequence)
        self.running.append(sequence)
        plan.admitted.append(sequence)
        cache.restore()
        if limits.whole_context and sequence.cached:
            reserved = self._goal(sequence, limits)
            if cache.policy.kept_pages(reserved) >= pages_for(reserved):  # else pages come back as others are needed
                cache.reserve(reserved)
        rows = self._next(sequence, max(1, left // part)) if limits.chunked else self._whole(sequence)
        self._grant(plan, sequence, rows)
        return rows

    def _fits(self, sequence: S, limits: Limits) -> bool:
        """Return True if an opened sequence finds the pages that an admission needs."""
        tokens = self._goal(sequence, limits)
        cache, chunk = sequence.cache, self._chunk(limits)
        if not self.manager.admits(cache, [running.cache for running in self.running], chunk):
            return False
        # Pages that running sequences still need for the tokens they were admitted for.
        promised = sum(running.cache.lacking(self._goal(running, limits), chunk) for running in self.running)
        # The watermark: one page for each running sequence, so that the next step does not undo an admission.
        return cache.lacking(tokens, chunk) <= self.manager.room - promised - len(self.running)

    def _gives_way(self, sequence: S) -> S | None:
        """The running sequence that gives its pages to one that waits, None if there is none."""
        level = self.policy.level(sequence)
        holders = [other for other in self.running if self.policy.page_level(other) > level]
        return self.policy.victim(holders) if holders else None

    def _displace(self, plan: Plan[S], victim: S) -> None:
        self.preempt(victim)
        plan.preempted.append(victim)
        plan.slices[:] = [piece for piece in plan.slices if piece.sequence is not victim]

    def _grant(self, plan: Plan[S], sequence: S, rows: int) -> bool:
        """Put the rows into the plan if their pages can be allocated, with preemption if necessary."""
        if plan.preempted and sequence in plan.preempted:
            return False
        while not sequence.cache.fits(rows):
            holders = [other for other in self.running if other.cache.pages or other is sequence]
            victim = self.policy.victim(holders)
            if victim is sequence and self.lone(sequence):
                plan.failed.append(sequence)
                return False
            self._displace(plan, victim)
            if victim is sequence:
                return False
        sequence.cache.allocate(rows)
        plan.slices.append(Slice(sequence, rows, rows == sequence.cache.pending))
        return True

    def _next(self, sequence: S, left: int) -> int:
        """The rows that a step reads which has ``left``, or more where a picture that is read whole comes next."""
        cache = sequence.cache
        return cache.whole(min(cache.pending, left, cache.longest_chunk))

    def _whole(self, sequence: S) -> int:
        return sequence.cache.whole(min(sequence.cache.pending, self.manager.most_rows))

    def _goal(self, sequence: S, limits: Limits) -> int:
        """The number of tokens that pages must suffice for at admission."""
        tokens = len(sequence.cache.tokens) + 1
        if limits.whole_context and sequence.cached:
            tokens = max(tokens, min(sequence.reach, self.manager.pool.total * PAGE_SIZE))
        return tokens

    def _chunk(self, limits: Limits) -> int:
        """The most rows that a sequence reads before its dead pages are freed."""
        return min(limits.most if limits.chunked else NO_LIMIT, self.manager.most_rows)

    def _held_back(self, sequence: S) -> bool:
        """Return True if a running sequence is about to read a prefix shared with this one, so that waiting saves the
        work."""
        cache = sequence.cache
        if cache.namespace is None:
            return False
        reading = [running.cache for running in self.running if running.cache.pending > 1]
        if any(other is cache.fork_of for other in reading):
            return True
        found, keys = cache.found() // PAGE_SIZE, cache.keys(cache.reusable)
        if len(keys) - found < HELD_BACK_PAGES:
            return False
        for other in reading:
            if other.namespace == cache.namespace:
                theirs = other.keys(other.shareable)
                alike = common(keys, theirs)
                unread = alike - found >= HELD_BACK_PAGES and other.num_computed < alike * PAGE_SIZE
                if unread and self.manager.will_find(alike, other):
                    return True
        return False
