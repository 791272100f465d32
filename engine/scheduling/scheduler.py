"""Hands out the rows of each step, so that what is computed catches up with what is known.

Running decodes come first (one row each), then sequences that still have a chunk to read, then admissions; guesses for
speculation take rows that are left over. Pages follow the rows; when they run out, the policy's victim gives up its
pages and is computed again later. Pure: no tensors, no clock.

Invariants: the rows of a plan are at most the token budget (but for a whole prompt when prompts are not cut); a
sequence in a plan holds pages for all its rows; a sequence that waits holds none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple

from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.radix_node import common
from engine.scheduling.memory import Memory
from engine.scheduling.policy import Policy, S

MAX_RUNNING = 256
MOST_GUESSES = 256
"""Guesses in a step, of all sequences: each row that is checked has logits over the whole vocabulary."""
HELD_BACK_PAGES = 2
"""A sequence waits for a neighbour that is about to read at least so many pages that it begins with too."""


class Limits(NamedTuple):
    """The switches that scheduling obeys, read anew at each step."""

    token_budget: int = 512
    chunked: bool = True
    whole_context: bool = False


class Slice(NamedTuple, Generic[S]):
    """Work of one sequence in a step: ``rows`` of its known tokens, then up to ``drafts`` guesses to be checked.

    ``last``: all known tokens will be computed, so that a token is drawn.
    """

    sequence: S
    rows: int
    last: bool
    drafts: int = 0


class Plan(NamedTuple, Generic[S]):
    """One step. ``preempted`` went back to the queue; ``failed`` can never get the pages it needs."""

    slices: list[Slice[S]]
    admitted: list[S]
    preempted: list[S]
    failed: list[S]


class Scheduler(Generic[S]):
    """Owns the queue, the running set and every page of both."""

    def __init__(
        self, pool: PagePool, policy: Policy, max_running: int = MAX_RUNNING, memory: Memory[S] | None = None
    ) -> None:
        self.pool, self.policy, self.max_running = pool, policy, max_running
        self.memory: Memory[S] = memory or Memory(pool)
        self.waiting: list[S] = []
        self.running: list[S] = []
        self._step = 0
        self._read_last = False

    def add(self, sequence: S) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: S) -> None:
        """Forget the sequence, wherever it is, and free its pages; the prefix tree keeps what is full of them."""
        self.memory.commit(sequence)
        self.memory.close(sequence)
        for queue in (self.running, self.waiting):
            if sequence in queue:
                queue.remove(sequence)

    def plan(self, limits: Limits, wanted: Callable[[S], int]) -> Plan[S]:
        """The rows of one step; their pages are allocated. ``wanted`` says how many guesses a decode would like."""
        self._step += 1
        plan: Plan[S] = Plan([], [], [], [])
        decodes = [sequence for sequence in self.running if sequence.pending == 1]
        reading = [sequence for sequence in self.running if sequence.pending > 1]
        if limits.chunked:
            self._plan_chunked(plan, limits, decodes, reading, wanted)
        else:
            self._plan_whole(plan, limits, decodes, reading, wanted)
        for piece in plan.slices:
            piece.sequence.last_step = self._step
        return plan

    def settle(self, sequence: S, limits: Limits) -> None:
        """After a step: free pages wholly beyond what is computed, but for the one that the next token needs.

        Without a KV cache everything goes, and the sequence starts from nothing again.
        """
        if not sequence.cached:
            self.memory.close(sequence)
            return
        self.read(sequence)
        if not limits.whole_context:
            self.memory.shrink(sequence, pages_for(sequence.num_computed + 1))

    def read(self, sequence: S) -> None:
        """After a chunk of a prompt: it is shared at once, and pages that no row will read again are free."""
        if sequence.num_computed <= sequence.prompt_length:
            self.memory.commit(sequence, ended=False)
        self.memory.shed(sequence)

    def preempt(self, sequence: S) -> None:
        """Take the sequence's pages and send it back to the queue; its tokens stay."""
        self.memory.preempt(sequence)
        sequence.preemptions += 1
        self.running.remove(sequence)
        self.waiting.append(sequence)

    def lone(self, sequence: S) -> bool:
        """Whether nobody else that runs holds pages."""
        return not any(other.pages for other in self.running if other is not sequence)

    # --- prompts in chunks ---------------------------------------------------------------------------------------

    def _plan_chunked(
        self, plan: Plan[S], limits: Limits, decodes: list[S], reading: list[S], wanted: Callable[[S], int]
    ) -> None:
        left = self._decode(plan, decodes, limits.token_budget)
        guesses = self._wish(plan, left if not (reading or self.waiting) else left * 3 // 4, wanted)
        left -= sum(guesses.values())
        for sequence in reading:
            if left <= 0:
                break
            rows = min(sequence.pending, left, sequence.longest_chunk, self.memory.most_rows)
            if self._grant(plan, sequence, rows):
                left -= rows
        self._admit(plan, limits, left)
        self._give_guesses(plan, guesses)

    def _decode(self, plan: Plan[S], decodes: list[S], budget: int) -> int:
        """One row each, longest unserved first if there are too many; returns what is left of the budget."""
        if len(decodes) > budget:
            decodes = sorted(decodes, key=lambda sequence: sequence.last_step)[:budget]
        for sequence in decodes:
            self._grant(plan, sequence, 1)
        return budget - len(plan.slices)

    def _wish(self, plan: Plan[S], rows: int, wanted: Callable[[S], int]) -> dict[tuple[str, int], int]:
        """How many guesses each decode of the plan may have, of ``rows`` in all; the older ask first."""
        guesses: dict[tuple[str, int], int] = {}
        rows = min(rows, MOST_GUESSES)
        for piece in plan.slices:
            sequence = piece.sequence
            count = min(wanted(sequence), rows, sequence.most_guesses)
            if count > 0:
                guesses[sequence.owner] = count
                rows -= count
        return guesses

    def _give_guesses(self, plan: Plan[S], guesses: dict[tuple[str, int], int]) -> None:
        """Attach the guesses whose pages are free: guessing never preempts anybody."""
        if not guesses:
            return
        for place, piece in enumerate(plan.slices):
            sequence = piece.sequence
            count = guesses.get(sequence.owner, 0)
            if count and piece.rows == 1 and piece.last:
                room = (len(sequence.pages) + self.memory.room.pages) * PAGE_SIZE - sequence.known
                count = min(count, room)
                if self.memory.lacks_recent(sequence, 1 + count):
                    continue
                self.memory.grow(sequence, pages_for(sequence.known + count))
                self.memory.grow_recent(sequence, 1 + count)
                plan.slices[place] = piece._replace(drafts=count)

    # --- prompts whole -------------------------------------------------------------------------------------------

    def _plan_whole(
        self, plan: Plan[S], limits: Limits, decodes: list[S], reading: list[S], wanted: Callable[[S], int]
    ) -> None:
        """A step either reads prompts, each whole (one alone may exceed the budget), or decodes; reading goes first.

        After a step of reading the decodes get a turn, so that sequences which read all the time cannot starve them.
        """
        if not (self._read_last and decodes):
            left = limits.token_budget
            for sequence in reading:
                if plan.slices and sequence.pending > left:
                    break
                rows = min(sequence.pending, self.memory.most_rows)
                if self._grant(plan, sequence, rows):
                    left -= rows
            self._admit(plan, limits, left)
            if plan.slices:
                self._read_last = True
                return
        self._read_last = False
        left = self._decode(plan, decodes, limits.token_budget)
        self._give_guesses(plan, self._wish(plan, left, wanted))

    # --- pages ---------------------------------------------------------------------------------------------------

    def _admit(self, plan: Plan[S], limits: Limits, left: int) -> None:
        if not self.waiting or plan.preempted:
            return
        for sequence in self.policy.admission_order(self.waiting, self.memory.found):
            if len(self.running) >= min(self.max_running, limits.token_budget) or left <= 0:
                break
            if self.memory.lacking(sequence, sequence.known + 1, self._chunk(limits)) > self.pool.total:
                plan.failed.append(sequence)
                continue
            if self._held_back(sequence):
                continue
            rows = self._try(plan, sequence, limits, left)
            if rows is None:
                break
            left -= rows
        if plan.admitted:
            newest = max(sequence.arrival for sequence in plan.admitted)
            for sequence in self.waiting:
                sequence.overtaken += sequence.arrival < newest

    def _try(self, plan: Plan[S], sequence: S, limits: Limits, left: int) -> int | None:
        """Admit the sequence if there is room for it; returns its rows of this step."""
        memory = self.memory
        memory.open(sequence)
        fits = self._fits(sequence, limits) or (memory.take_less(sequence) and self._fits(sequence, limits))
        if not fits or (not limits.chunked and plan.slices and sequence.pending > left):
            self._close(sequence)
            return None
        self.waiting.remove(sequence)
        self.running.append(sequence)
        plan.admitted.append(sequence)
        memory.restore(sequence)
        if limits.whole_context and sequence.cached:
            reserved = self._goal(sequence, limits)
            if sequence.kept_pages(reserved) >= pages_for(reserved):  # else pages come back as others are needed
                memory.grow(sequence, pages_for(reserved))
        rows = min(sequence.pending, left, sequence.longest_chunk) if limits.chunked else sequence.pending
        rows = min(rows, memory.most_rows)
        self._grant(plan, sequence, rows)
        return rows

    def _fits(self, sequence: S, limits: Limits) -> bool:
        """Whether an opened sequence finds the pages that an admission needs."""
        tokens = self._goal(sequence, limits)
        memory, chunk = self.memory, self._chunk(limits)
        if memory.lacks_recent(sequence, min(sequence.pending, chunk)):
            return False
        if self.running and memory.crowds_recent((*self.running, sequence), chunk):
            return False
        need = memory.lacking(sequence, tokens, chunk)
        # The watermark: one page for everyone who runs, so that an admission is not undone by the next step.
        return need <= memory.room.pages - self._promised(limits) - len(self.running)

    def _goal(self, sequence: S, limits: Limits) -> int:
        """Tokens that the sequence is admitted for."""
        tokens = sequence.known + 1
        if limits.whole_context and sequence.cached:
            tokens = max(tokens, min(sequence.reach, self.pool.total * PAGE_SIZE))
        return tokens

    def _close(self, sequence: S) -> None:
        """Undo the opening of a sequence for which there is no room; what a tier keeps of it stays there."""
        if sequence.held is None:
            self.memory.close(sequence)

    def _held_back(self, sequence: S) -> bool:
        """Whether somebody who runs is about to read what this one begins with, so that waiting saves reading it."""
        other = sequence.fork_of
        if other is not None and other in self.running and other.pending > 1 and sequence.namespace is not None:
            return True
        found = self.memory.found(sequence) // PAGE_SIZE
        keys = self.memory.wanted(sequence)
        if sequence.namespace is None or len(keys) - found < HELD_BACK_PAGES:
            return False
        for running in self.running:
            if running.pending > 1 and running.namespace == sequence.namespace:
                theirs = self.memory.keys(running, min(running.known, running.shareable))
                alike = common(keys, theirs, 0) if theirs and keys[0] == theirs[0] else 0
                if not self.memory.will_find(alike, running):
                    continue
                if alike - found >= HELD_BACK_PAGES and running.num_computed < alike * PAGE_SIZE:
                    return True
        return False

    def _promised(self, limits: Limits) -> int:
        """Pages that running sequences will still take for tokens they already have."""
        chunk = self._chunk(limits)
        return sum(self.memory.lacking(running, self._goal(running, limits), chunk) for running in self.running)

    def _chunk(self, limits: Limits) -> int:
        """The most rows that a sequence reads before its dead pages are given back."""
        return min(limits.token_budget if limits.chunked else 1 << 40, self.memory.most_rows)

    def _grant(self, plan: Plan[S], sequence: S, rows: int) -> bool:
        """Put the rows into the plan if their pages can be had, by preemption if need be."""
        if plan.preempted and sequence in plan.preempted:
            return False
        memory, tokens = self.memory, sequence.num_computed + rows
        if memory.ready(sequence, tokens):
            plan.slices.append(Slice(sequence, rows, rows == sequence.pending))
            return True
        while memory.missing(sequence, tokens) > memory.room.pages or memory.lacks_recent(sequence, rows):
            holders = [other for other in self.running if other.pages or other is sequence]
            victim = self.policy.victim(holders)
            if victim is sequence and self.lone(sequence):
                plan.failed.append(sequence)
                return False
            self._evict(plan, victim)
            if victim is sequence:
                return False
        memory.own(sequence)
        memory.grow(sequence, pages_for(tokens))
        memory.grow_recent(sequence, rows)
        plan.slices.append(Slice(sequence, rows, rows == sequence.pending))
        return True

    def _evict(self, plan: Plan[S], victim: S) -> None:
        self.preempt(victim)
        plan.preempted.append(victim)
        plan.slices[:] = [piece for piece in plan.slices if piece.sequence is not victim]
