"""Hands out the rows of each step, until every known token of a sequence has been computed.

The policy ranks whoever runs or waits; at most ``max_batch`` of them take part in a step, and running ones that do not
keep their pages. Decodes come first (one row each), then prefill chunks of running sequences, then admissions; draft
tokens take rows that are left over.

While one at most half as long waits behind it, a prompt takes only a share of the step, so that the short one is read
in the same step, and that step is short; the oldest always gets its share, so that nobody starves. Pages are allocated
with the rows. Pure: no tensors, no clock.

Invariants: the rows of a plan are at most the token budget, or the larger one while nothing decodes (except for a whole
prompt when prompts are not chunked, and for one picture whose tokens see each other); a sequence in a plan holds pages
for all its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.cache.policies import NO_LIMIT
from engine.cache.pool import PAGE_SIZE
from engine.decoding.scheduling.admission import Admission
from engine.decoding.scheduling.plan import Limits, Plan, Slice, shares
from engine.decoding.scheduling.policy import S, Tier

MAX_DRAFT_TOKENS = 256
"""Draft tokens in a step, of all sequences: each verified row has logits over the whole vocabulary."""
MOST_UNREAD = 16
"""Waiting sequences that a share is kept for: whoever stands further back waits for these anyway."""


class Scheduler(Admission[S]):
    """Plans the steps of those who were let in."""

    _step = 0
    _read_last = False

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
            piece.sequence.standing.last_step = self._step
        return plan

    def progress(self, slices: Sequence[Slice[S]], rows: int, seconds: float, now: float) -> None:
        """Count a step of these slices which took ``seconds``, ``rows`` in all with draft tokens, and ended at
        ``now``."""
        self.costs.learn(rows, seconds)
        for piece in slices:
            self.policy.on_progress(piece.sequence, piece.rows, seconds, now)

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
        left = limits.token_budget - plan.rows
        for sequence in ranked:
            if left <= 0 or len(plan.slices) >= limits.max_batch:
                return
            if sequence.cache.pending == 1 and sequence.cache.fits(1):
                left -= self._grant(plan, sequence, 1)

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
        if not plan.reads:
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
        self._decode(plan, decodes, max(0, within - plan.rows))
        room_within, left = within - plan.rows, budget - plan.rows
        if left <= 0:
            return
        draft_tokens = self._wish(plan, left if not (reading or self.waiting) else left * 3 // 4, wanted)
        left = min(left - sum(draft_tokens.values()), room_within)  # what drafts are worth is their controller's matter
        parts = shares([sequence.cache.pending for sequence in reading], self._unread(queue))
        for sequence, part in zip(reading, parts, strict=False):
            if left <= 0:
                break
            if not part:
                continue
            rows = self._next(sequence, max(1, left // part))
            if rows > left and plan.reads:
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
        parts = shares([plan.slices[place].sequence.cache.pending for place in reads], [])
        for place, part in zip(reads, parts, strict=True):
            piece = plan.slices[place]
            cache = piece.sequence.cache
            rows = self._next(piece.sequence, (piece.rows + left) // part) if part else 0
            if piece.rows < rows <= piece.rows + left and cache.fits(rows):
                cache.allocate(rows)
                plan.slices[place] = piece._replace(rows=rows, last=rows == cache.pending)
                left -= rows - piece.rows

    def _decode(self, plan: Plan[S], decodes: list[S], budget: int) -> None:
        """Grant one row each; if there are too many, in the policy's tiers and longest unserved first."""
        if len(decodes) > budget:
            decodes = sorted(decodes, key=lambda each: (self.policy.tier(each), each.standing.last_step))[:budget]
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
        self._give_drafts(plan, self._wish(plan, limits.token_budget - plan.rows, wanted))


def _decodes(sequence: S) -> bool:
    return sequence.cache.pending == 1


def _split(sequences: Sequence[S], first: Callable[[S], bool]) -> tuple[list[S], list[S]]:
    """Those that are ``first``, and the others."""
    firsts: list[S] = []
    others: list[S] = []
    for each in sequences:
        (firsts if first(each) else others).append(each)
    return firsts, others
