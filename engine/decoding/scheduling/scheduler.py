"""Hands out the rows of each step, until every known token of a sequence has been computed.

Running decodes come first (one row each), then prefill chunks of running sequences, then admissions; draft tokens take
rows that are left over. While one at most half as long waits behind it, a prompt takes only a share of the step, so
that the short one is read in the same step, and that step is short; the oldest always gets its share, so that nobody
starves. Pages are allocated with the rows; when they run out, the policy's victim gives up its pages and is computed
again later. Pure: no tensors, no clock.

Invariants: the rows of a plan are at most the token budget, or the larger one while nothing decodes (except for a whole
prompt when prompts are not chunked, and for one picture whose tokens see each other); a sequence in a plan holds pages
for all its rows; a sequence that waits holds none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple

from engine.cache.manager import KVCacheManager
from engine.cache.policies import NO_LIMIT
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.types import common
from engine.decoding.scheduling.policy import FirstComeFirstServed, S

MAX_RUNNING = 256
MAX_DRAFT_TOKENS = 256
"""Draft tokens in a step, of all sequences: each verified row has logits over the whole vocabulary."""
SHARE = 3
"""A prompt takes one part in this many of the rows that are left while one at most half as long waits. The step
that reads a short newcomer is a short one, too: with the rest of the step in which it came, one and a half at most."""
MOST_LOOKED_AT = 16
"""Waiting sequences that a share is kept for: whoever stands further back waits for these anyway."""
HELD_BACK_PAGES = 2
"""A sequence waits while a running one is about to read at least this many pages of a prefix that both share."""


class Limits(NamedTuple):
    """The options that scheduling obeys, read again at each step."""

    token_budget: int = 512
    chunked: bool = True
    whole_context: bool = False
    reading_budget: int = 0
    """The token budget of a step in which nothing decodes, so that no answer waits for it, where it is the larger."""

    @property
    def most(self) -> int:
        """The most tokens of any step."""
        return max(self.token_budget, self.reading_budget)


class Slice(NamedTuple, Generic[S]):
    """Work of one sequence in a step: ``rows`` of its known tokens, then up to ``drafts`` draft tokens to verify.

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
    """Owns the queue and the running set."""

    def __init__(self, manager: KVCacheManager, policy: FirstComeFirstServed, max_running: int = MAX_RUNNING) -> None:
        self.manager, self.policy, self.max_running = manager, policy, max_running
        self.waiting: list[S] = []
        self.running: list[S] = []
        self._step = 0
        self._read_last = False

    def add(self, sequence: S) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: S) -> None:
        """Remove the sequence from its queue and free its pages; the prefix tree keeps the full ones."""
        sequence.cache.commit()
        sequence.cache.close()
        for queue in (self.running, self.waiting):
            if sequence in queue:
                queue.remove(sequence)

    def plan(self, limits: Limits, wanted: Mapping[tuple[str, int], int]) -> Plan[S]:
        """The rows of one step, with pages allocated. ``wanted``: draft tokens that decodes ask for, by owner."""
        self._step += 1
        plan: Plan[S] = Plan([], [], [], [])
        decodes = [sequence for sequence in self.running if sequence.cache.pending == 1]
        reading = [sequence for sequence in self.running if sequence.cache.pending > 1]
        if limits.chunked:
            self._plan_chunked(plan, limits, decodes, reading, wanted)
        else:
            self._plan_whole(plan, limits, decodes, reading, wanted)
        for piece in plan.slices:
            piece.sequence.last_step = self._step
        return plan

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

    def preempt(self, sequence: S) -> None:
        """Take the sequence's pages and send it back to the queue; its tokens stay."""
        sequence.cache.preempt()
        sequence.preemptions += 1
        self.running.remove(sequence)
        self.waiting.append(sequence)

    def lone(self, sequence: S) -> bool:
        """Return True if no other running sequence holds pages."""
        return not any(other.cache.pages for other in self.running if other is not sequence)

    # --- prompts in chunks ---------------------------------------------------------------------------------------

    def _plan_chunked(
        self, plan: Plan[S], limits: Limits, decodes: list[S], reading: list[S], wanted: Mapping[tuple[str, int], int]
    ) -> None:
        left = self._decode(plan, decodes, limits.token_budget if decodes else limits.most)
        draft_tokens = self._wish(plan, left if not (reading or self.waiting) else left * 3 // 4, wanted)
        left -= sum(draft_tokens.values())
        queue = self._queue() if left > 0 else ()
        parts = _parts([sequence.cache.pending for sequence in reading], self._unread(queue))
        for sequence, part in zip(reading, parts, strict=False):
            if left <= 0:
                break
            if not part:
                continue
            rows = self._next(sequence, max(1, left // part))
            if rows > left and _reads(plan):
                break
            if self._grant(plan, sequence, rows):
                left -= rows
        left -= self._admit(plan, limits, left, queue, parts[len(reading) :])
        if left > 0 and not plan.admitted:
            self._fill_up(plan, left)
        self._give_drafts(plan, draft_tokens)

    def _queue(self) -> Sequence[S]:
        """Waiting sequences in the policy's order."""
        return (
            self.policy.admission_order(self.waiting, lambda sequence: sequence.cache.found()) if self.waiting else ()
        )

    def _unread(self, queue: Sequence[S]) -> list[int]:
        """The rows that the first of the queue have to read, without those that wait for another's prefix."""
        first = queue[:MOST_LOOKED_AT] if len(self.running) < self.max_running else ()
        return [
            NO_LIMIT if self._held_back(sequence) else len(sequence.cache.tokens) - sequence.cache.found()
            for sequence in first
        ]

    def _fill_up(self, plan: Plan[S], left: int) -> None:
        """The prompts of the plan take what was kept for newcomers of whom none could be admitted."""
        reads = [place for place, piece in enumerate(plan.slices) if piece.sequence.cache.pending > 1]
        parts = _parts([plan.slices[place].sequence.cache.pending for place in reads], [])
        for place, part in zip(reads, parts, strict=True):
            piece = plan.slices[place]
            cache = piece.sequence.cache
            rows = self._next(piece.sequence, (piece.rows + left) // part) if part else 0
            if piece.rows < rows <= piece.rows + left and cache.fits(rows):
                cache.allocate(rows)
                plan.slices[place] = piece._replace(rows=rows, last=rows == cache.pending)
                left -= rows - piece.rows

    def _next(self, sequence: S, left: int) -> int:
        """The rows that a step reads which has ``left``, or more where a picture that is read whole comes next."""
        cache = sequence.cache
        return cache.whole(min(cache.pending, left, cache.longest_chunk))

    def _decode(self, plan: Plan[S], decodes: list[S], budget: int) -> int:
        """Grant one row each, longest unserved first if there are too many; returns what is left of the budget."""
        if len(decodes) > budget:
            decodes = sorted(decodes, key=lambda sequence: sequence.last_step)[:budget]
        for sequence in decodes:
            self._grant(plan, sequence, 1)
        return budget - len(plan.slices)

    def _wish(self, plan: Plan[S], rows: int, wanted: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """The number of draft tokens that each decode of the plan may have, ``rows`` in all, in the plan's order."""
        draft_tokens: dict[tuple[str, int], int] = {}
        rows = min(rows, MAX_DRAFT_TOKENS)
        for piece in plan.slices if wanted else ():
            sequence = piece.sequence
            count = min(wanted.get(sequence.cache.owner, 0), rows, sequence.max_draft_tokens)
            if count > 0:
                draft_tokens[sequence.cache.owner] = count
                rows -= count
        return draft_tokens

    def _give_drafts(self, plan: Plan[S], draft_tokens: dict[tuple[str, int], int]) -> None:
        """Attach the draft tokens whose pages are free: drafting never preempts a sequence."""
        if not draft_tokens:
            return
        for place, piece in enumerate(plan.slices):
            sequence = piece.sequence
            count = draft_tokens.get(sequence.cache.owner, 0)
            if count and piece.rows == 1 and piece.last:
                cache = sequence.cache
                count = min(count, (len(cache.pages) + self.manager.room) * PAGE_SIZE - len(cache.tokens))
                if cache.fits(1 + count):
                    cache.allocate(1 + count)
                    plan.slices[place] = piece._replace(drafts=count)

    # --- prompts whole -------------------------------------------------------------------------------------------

    def _plan_whole(
        self, plan: Plan[S], limits: Limits, decodes: list[S], reading: list[S], wanted: Mapping[tuple[str, int], int]
    ) -> None:
        """A step either reads prompts, each whole (one alone may exceed the budget), or decodes; reading goes first.

        After a step of reading the decodes get a turn, so that sequences which read all the time cannot starve them.
        """
        if not (self._read_last and decodes):
            left = limits.token_budget
            for sequence in reading:
                if plan.slices and sequence.cache.pending > left:
                    break
                rows = self._whole(sequence)
                if self._grant(plan, sequence, rows):
                    left -= rows
            self._admit(plan, limits, left, self._queue())
            if plan.slices:
                self._read_last = True
                return
        self._read_last = False
        left = self._decode(plan, decodes, limits.token_budget)
        self._give_drafts(plan, self._wish(plan, left, wanted))

    def _whole(self, sequence: S) -> int:
        return sequence.cache.whole(min(sequence.cache.pending, self.manager.most_rows))

    # --- pages ---------------------------------------------------------------------------------------------------

    def _admit(self, plan: Plan[S], limits: Limits, left: int, queue: Sequence[S], parts: Sequence[int] = ()) -> int:
        """Admit from the queue; returns the rows that it took. ``parts``: see :func:`_parts`, 1 from their end on."""
        budget = left
        if plan.preempted:
            return 0
        for place, sequence in enumerate(queue):
            if len(self.running) >= min(self.max_running, limits.token_budget) or left <= 0:
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
            for sequence in self.waiting:
                sequence.overtaken += sequence.arrival < newest
        return budget - left

    def _try(self, plan: Plan[S], sequence: S, limits: Limits, left: int, part: int) -> int | None:
        """Admit the sequence if there is room for it; returns its rows of this step."""
        cache = sequence.cache
        cache.open()
        fits = self._fits(sequence, limits) or (cache.take_less() and self._fits(sequence, limits))
        if limits.chunked:
            crowded = self._next(sequence, left) > left and _reads(plan)
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

    def _goal(self, sequence: S, limits: Limits) -> int:
        """The number of tokens that pages must suffice for at admission."""
        tokens = len(sequence.cache.tokens) + 1
        if limits.whole_context and sequence.cached:
            tokens = max(tokens, min(sequence.reach, self.manager.pool.total * PAGE_SIZE))
        return tokens

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

    def _chunk(self, limits: Limits) -> int:
        """The most rows that a sequence reads before its dead pages are freed."""
        return min(limits.most if limits.chunked else NO_LIMIT, self.manager.most_rows)

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
            self.preempt(victim)
            plan.preempted.append(victim)
            plan.slices[:] = [piece for piece in plan.slices if piece.sequence is not victim]
            if victim is sequence:
                return False
        sequence.cache.allocate(rows)
        plan.slices.append(Slice(sequence, rows, rows == sequence.cache.pending))
        return True


def _parts(reading: list[int], queue: list[int]) -> list[int]:
    """Divisors for the prompts in order: the rows that are left when a prompt's turn comes are divided by it; 0: no
    turn.

    A prompt gives way where one at most half as long comes after it or waits. The first that does takes its share all
    the same, so that it comes to its end; the others have no turn, so that the step is short.
    """
    lengths = reading + queue
    newest = min(queue, default=NO_LIMIT)
    shortest = list(accumulate(reversed(reading[1:]), min, initial=newest))[::-1] if reading else []
    shortest += [newest] * len(queue)
    gives_way = [2 * other <= length < NO_LIMIT for length, other in zip(lengths, shortest, strict=True)]
    first = gives_way.index(True) if True in gives_way else None
    return [1 if not way else SHARE if place == first else 0 for place, way in enumerate(gives_way)]


def _reads(plan: Plan[S]) -> bool:
    """Return True if some prompt is read in the step."""
    return any(piece.rows > 1 for piece in plan.slices)
