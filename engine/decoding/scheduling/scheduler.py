"""Hands out the rows of each step, until every known token of a sequence has been computed.

The policy ranks whoever runs or waits; at most ``max_batch`` of them take part in a step, and running ones that do not
keep their pages. Decodes come first (one row each), then prefill chunks of running sequences, then admissions; draft
tokens take rows that are left over.

While one at most half as long waits behind it, a prompt takes only a share of the step, so that the short one is read
in the same step, and that step is short; the oldest always gets its share, so that nobody starves. Pages are allocated
with the rows; when they run out, the policy's victim gives up its pages and is computed again later. Pure: no tensors,
no clock.

Invariants: the rows of a plan are at most the token budget, or the larger one while nothing decodes (except for a whole
prompt when prompts are not chunked, and for one picture whose tokens see each other); a sequence in a plan holds pages
for all its rows; a sequence that waits holds none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple

from engine.cache.manager import KVCacheManager
from engine.cache.policies import NO_LIMIT
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.types import common
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.policy import S, SchedulingPolicy, Tier
from engine.decoding.scheduling.waiting import WaitingQueue

MAX_RUNNING = 256
MAX_DRAFT_TOKENS = 256
"""Draft tokens in a step, of all sequences: each verified row has logits over the whole vocabulary."""
SHARE = 3
"""A prompt takes one part in this many of the rows that are left while one at most half as long waits. The step
that reads a short newcomer is a short one, too: with the rest of the step in which it came, one and a half at most."""
MOST_UNREAD = 16
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
    max_batch: int = MAX_RUNNING
    """The most sequences of a step."""
    targets: bool = True
    """Steps are held to the targets of service classes."""

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

    def __init__(self, manager: KVCacheManager, policy: SchedulingPolicy, max_running: int = MAX_RUNNING) -> None:
        self.manager, self.policy, self.max_running = manager, policy, max_running
        self.costs = StepCosts()
        self.waiting: WaitingQueue[S] = WaitingQueue(lambda sequence: self.policy.lane(sequence))
        self.running: list[S] = []
        self._step = 0
        self._read_last = False

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

    def plan(self, limits: Limits, wanted: Mapping[tuple[str, int], int], now: float = 0.0) -> Plan[S]:
        """The rows of one step at ``now``, with pages allocated. ``wanted``: draft tokens that decodes ask for, by
        owner."""
        self._step += 1
        plan: Plan[S] = Plan([], [], [], [])
        queue, ranked = self._queue(now), sorted(self.running, key=self.policy.tier)
        taking = self._taking_part(ranked, queue, limits.max_batch)
        rows = self._plan_chunked if limits.chunked else self._plan_whole
        rows(plan, limits, taking, queue, wanted)
        behind = [sequence for sequence in ranked[len(taking) :] if sequence not in plan.preempted]
        if plan.slices:
            self._serve_more(plan, limits, behind)
        elif behind:  # nobody of the queue has room, so that those who run go on, with prompts, too
            rows(plan, limits, behind[: limits.max_batch], [], wanted)
        for piece in plan.slices:
            piece.sequence.last_step = self._step
        return plan

    def progress(self, slices: Sequence[Slice[S]], rows: int, seconds: float, now: float) -> None:
        """Count a step of these slices which took ``seconds``, ``rows`` in all with draft tokens, and ended at
        ``now``."""
        self.costs.learn(rows, seconds)
        for piece in slices:
            self.policy.on_progress(piece.sequence, piece.rows, seconds, now)

    def _queue(self, now: float) -> list[S]:
        """The first of those that wait, in the order in which they are tried."""
        heads = self.waiting.heads()
        self.policy.begin(self.running, heads, now)
        self.waiting.refile(heads)
        if not (heads and self.policy.admits(self.running)):
            return []
        return self.policy.order(heads, lambda sequence: sequence.cache.found())

    def _taking_part(self, ranked: list[S], queue: Sequence[S], most: int) -> list[S]:
        """The first of the running ones that take part in a step; the places of those behind are the queue's, by the
        policy's tiers."""
        taking = ranked[:most]
        for place, sequence in enumerate(queue[:most]):
            if len(taking) + place < most:
                continue
            if not taking or self.policy.tier(taking[-1]) <= self.policy.tier(sequence):
                break
            taking.pop()
        return taking

    def _serve_more(self, plan: Plan[S], limits: Limits, ranked: Sequence[S]) -> None:
        """Places that were kept for the queue and that it could not take go to running sequences."""
        left = limits.token_budget - _rows(plan)
        for sequence in ranked:
            if left <= 0 or len(plan.slices) >= limits.max_batch:
                return
            if sequence.cache.pending == 1 and sequence.cache.fits(1):
                left -= self._grant(plan, sequence, 1)

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
        self, plan: Plan[S], limits: Limits, taking: list[S], queue: list[S], wanted: Mapping[tuple[str, int], int]
    ) -> None:
        room = limits.max_batch - len(taking)
        queue = queue if room > 0 else []
        best = self._best_unread(taking, queue) if self.policy.patient else None
        if best is None:
            self._plan_rows(plan, limits, taking, queue, room, wanted)
            return
        first, later = _split(taking, lambda each: self.policy.tier(each) <= best)
        soon, queue = _split(queue, lambda each: self.policy.tier(each) <= best)
        self._plan_rows(plan, limits, first, soon, room, wanted)
        if not _reads(plan):
            self._plan_rows(plan, limits, later, queue, room - len(plan.admitted), wanted)

    def _plan_rows(
        self,
        plan: Plan[S],
        limits: Limits,
        taking: list[S],
        queue: list[S],
        room: int,
        wanted: Mapping[tuple[str, int], int],
    ) -> None:
        """Give rows to these, and to as many of the queue as there is ``room`` for."""
        decodes, reading = _split(taking, _decodes)
        budget = within = limits.token_budget if decodes or plan.slices else limits.most
        if limits.targets:
            within = self.policy.budget([*decodes, *(piece.sequence for piece in plan.slices)], budget, self.costs)
        self._decode(plan, decodes, max(0, within - _rows(plan)))
        room_within, left = within - _rows(plan), budget - _rows(plan)
        if left <= 0:
            return
        draft_tokens = self._wish(plan, left if not (reading or self.waiting) else left * 3 // 4, wanted)
        left = min(left - sum(draft_tokens.values()), room_within)  # what drafts are worth is their controller's matter
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
        left -= self._admit(plan, limits, left, queue, room, parts[len(reading) :])
        if left > 0 and not plan.admitted:
            self._fill_up(plan, left)
        self._give_drafts(plan, draft_tokens)

    def _best_unread(self, taking: list[S], queue: Sequence[S]) -> Tier | None:
        """The first tier of which a prompt is to be read."""
        unread = [*(sequence for sequence in taking if sequence.cache.pending > 1), *queue[:1]]
        return min((self.policy.tier(sequence) for sequence in unread), default=None)

    def _unread(self, queue: Sequence[S]) -> list[int]:
        """The rows that the first of the queue have to read, without those that wait for another's prefix."""
        return [
            NO_LIMIT if self._held_back(sequence) else len(sequence.cache.tokens) - sequence.cache.found()
            for sequence in queue[:MOST_UNREAD]
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

    def _decode(self, plan: Plan[S], decodes: list[S], budget: int) -> None:
        """Grant one row each; if there are too many, in the policy's tiers and longest unserved first."""
        if len(decodes) > budget:
            decodes = sorted(decodes, key=lambda each: (self.policy.tier(each), each.last_step))[:budget]
        for sequence in decodes:
            self._grant(plan, sequence, 1)

    def _wish(self, plan: Plan[S], rows: int, wanted: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """The number of draft tokens that each decode of the plan may have, ``rows`` in all, in the plan's order."""
        draft_tokens: dict[tuple[str, int], int] = {}
        rows = min(rows, MAX_DRAFT_TOKENS)
        for piece in plan.slices if wanted else ():
            sequence = piece.sequence
            count = min(wanted.get(sequence.cache.owner, 0), rows, sequence.max_draft_tokens)
            if count > 0 and not piece.drafts:
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
        self, plan: Plan[S], limits: Limits, taking: list[S], queue: list[S], wanted: Mapping[tuple[str, int], int]
    ) -> None:
        """A step either reads prompts, each whole (one alone may exceed the budget), or decodes; reading goes first.

        After a step of reading the decodes get a turn, so that sequences which read all the time cannot starve them.
        """
        decodes, reading = _split(taking, _decodes)
        if not (self._read_last and decodes):
            left = limits.token_budget
            for sequence in reading:
                if plan.slices and sequence.cache.pending > left:
                    break
                rows = self._whole(sequence)
                if self._grant(plan, sequence, rows):
                    left -= rows
            self._admit(plan, limits, left, queue, limits.max_batch - len(taking))
            if plan.slices:
                self._read_last = True
                return
        self._read_last = False
        self._decode(plan, decodes, limits.token_budget)
        self._give_drafts(plan, self._wish(plan, limits.token_budget - _rows(plan), wanted))

    def _whole(self, sequence: S) -> int:
        return sequence.cache.whole(min(sequence.cache.pending, self.manager.most_rows))

    # --- pages ---------------------------------------------------------------------------------------------------

    def _admit(
        self, plan: Plan[S], limits: Limits, left: int, queue: Sequence[S], most: int, parts: Sequence[int] = ()
    ) -> int:
        """Admit ``most`` of the queue; returns the rows that it took. ``parts``: see :func:`_parts`, 1 from their end
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

    def _gives_way(self, sequence: S) -> S | None:
        """The running sequence that gives its pages to one that waits, None if there is none."""
        level = self.policy.level(sequence)
        holders = [other for other in self.running if self.policy.page_level(other) > level]
        return self.policy.victim(holders) if holders else None

    def _displace(self, plan: Plan[S], victim: S) -> None:
        self.preempt(victim)
        plan.preempted.append(victim)
        plan.slices[:] = [piece for piece in plan.slices if piece.sequence is not victim]

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
            self._displace(plan, victim)
            if victim is sequence:
                return False
        sequence.cache.allocate(rows)
        plan.slices.append(Slice(sequence, rows, rows == sequence.cache.pending))
        return True


def _decodes(sequence: S) -> bool:
    return sequence.cache.pending == 1


def _split(sequences: Sequence[S], first: Callable[[S], bool]) -> tuple[list[S], list[S]]:
    """Those that are ``first``, and the others."""
    return [each for each in sequences if first(each)], [each for each in sequences if not first(each)]


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


def _rows(plan: Plan[S]) -> int:
    """Rows of a step, draft tokens included."""
    return sum(piece.rows + piece.drafts for piece in plan.slices)


def _reads(plan: Plan[S]) -> bool:
    """Return True if some prompt is read in the step."""
    return any(piece.rows > 1 for piece in plan.slices)
