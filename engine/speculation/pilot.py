"""Steers speculation for all requests: how far to guess, who guesses, and what became of the guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.core.events import GuessRecord
from engine.core.request import Request
from engine.scheduling.scheduler import Slice
from engine.speculation.autolength import Acceptance, Costs, DraftLength
from engine.speculation.base import NO_GUESS, Ask, DraftTree, Proposer, Seen, Work
from engine.speculation.verifier import Verdict


@dataclass(slots=True)
class _Tally:
    """One proposer's part in a step."""

    proposed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    draft_length: int = 0
    off_reason: str = ""

    def count(self, proposed: int, accepted: int) -> None:
        for depths, number in ((self.proposed, proposed), (self.accepted, accepted)):
            depths.extend([0] * (proposed - len(depths)))
            for depth in range(number):
                depths[depth] += 1


class Pilot:
    """Owns the proposers of a loaded model, their costs and their common acceptance."""

    def __init__(self, proposers: Sequence[Proposer]) -> None:
        self.costs = Costs()
        self._proposers = {proposer.name: proposer for proposer in proposers}
        self._priors = {name: Acceptance() for name in self._proposers}
        self._tables: dict[str, list[float] | None] = {}
        self._tallies: dict[str, _Tally] = {}
        self._sequences = 1

    def begin(self, sequences: int) -> None:
        """A step begins, in which so many sequences run."""
        self._sequences = max(1, sequences)
        self._tables.clear()
        self._tallies.clear()

    def wanted(self, request: Request) -> int:
        """How many guesses the request would like in this step."""
        name = request.options.speculation
        if name not in self._proposers:
            return 0
        if request.draft_length is None:
            request.draft_length = DraftLength(request.options.draft_length, self._priors[name])
        if name not in self._tables:
            self._tables[name] = self.costs.table(self._sequences, name)
        choice = request.draft_length.choose(self._tables[name])
        tally = self._tallies.setdefault(name, _Tally())
        tally.draft_length = max(tally.draft_length, choice.length)
        tally.off_reason = tally.off_reason or choice.reason
        return choice.length

    def propose(self, slices: Sequence[Slice[Request]]) -> tuple[list[DraftTree], Work]:
        """One tree per slice, and what proposing them cost; a proposer's cache rides along with chunks of prompts."""
        trees = [NO_GUESS] * len(slices)
        total = Work()
        for name, proposer in self._proposers.items():
            places = [place for place, piece in enumerate(slices) if self._concerns(name, piece)]
            if not places:
                continue
            asks = [self._ask(slices[place]) for place in places]
            for place, tree in zip(places, proposer.propose(asks), strict=True):
                trees[place] = tree
            work = proposer.take_work()
            if all(ask.budget for ask in asks):
                self.costs.observe_draft(name, work.passes, work.seconds)
            total = Work(total.seconds + work.seconds, total.passes + work.passes, total.bytes_read + work.bytes_read)
        return trees, total

    def needs_hidden(self, slices: Sequence[Slice[Request]]) -> frozenset[int]:
        """The layers whose input states :meth:`see` wants of this step."""
        concerned = {piece.sequence.options.speculation for piece in slices}
        layers = (proposer.needs_hidden for name, proposer in self._proposers.items() if name in concerned)
        return frozenset().union(*layers)

    def see(self, seen: Sequence[Seen]) -> None:
        """Rows of this step that are part of their requests now, with the states that were asked for."""
        for name, proposer in self._proposers.items():
            mine = [each for each in seen if each.request.options.speculation == name] if proposer.needs_hidden else []
            if mine:
                proposer.see(mine)

    def observe(self, request: Request, tree: DraftTree, verdict: Verdict) -> None:
        """Learn what became of a tree."""
        if not tree.tokens:
            return
        name = tree.proposer
        accepted = len(verdict.nodes)
        self._proposers[name].observe(request, tree, verdict.nodes)
        if request.draft_length is not None:
            request.draft_length.observe(len(tree.tokens), accepted)
        self._tallies.setdefault(name, _Tally()).count(len(tree.tokens), accepted)

    def release(self, request: Request) -> None:
        """The request ended."""
        proposer = self._proposers.get(request.options.speculation)
        if proposer is not None:
            proposer.release(request)

    def records(self) -> tuple[GuessRecord, ...]:
        """What each proposer did in this step."""
        return tuple(
            GuessRecord(name, tuple(tally.proposed), tuple(tally.accepted), tally.draft_length, tally.off_reason)
            for name, tally in self._tallies.items()
        )

    def _concerns(self, name: str, piece: Slice[Request]) -> bool:
        """Whether the proposer has something to do: guesses to make, or a prompt to read along with the target."""
        if piece.sequence.options.speculation != name:
            return False
        return piece.drafts > 0 or piece.rows > 1

    def _ask(self, piece: Slice[Request]) -> Ask:
        request = piece.sequence
        return Ask(request, piece.drafts, request.num_computed + piece.rows, request.most_depth)
