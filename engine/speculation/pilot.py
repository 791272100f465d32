"""Steers speculation for all requests: who guesses and how far, and what became of the guesses."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from engine.core.events import GuessRecord
from engine.core.request import Request
from engine.core.step_parts import is_out_of_memory
from engine.scheduling.scheduler import Slice
from engine.speculation.base import NO_GUESS, Ask, DraftTree, Proposer, Seen, Work
from engine.speculation.candidate import Candidate, Price, Standing
from engine.speculation.controller import Choice, Chooser
from engine.speculation.costs import Costs
from engine.speculation.neighbours import Guessed, Neighbours, Round
from engine.speculation.pricing import Prices, is_fixed
from engine.speculation.tally import Tally, depth_of
from engine.speculation.verifier import Verdict

_log = logging.getLogger(__name__)

REPEATS = "ngram"
"""The proposer that says beforehand whether it has anything to say."""
FIRST_WORTH = 0.9
"""Repetition goes first unless it is measured to gain so much less than the other: its guesses are free."""
_ALLOWED = 0.01
_MOST_ALLOWED = 8.0
"""Plain steps that may be lost in trying new texts: so much of every step, saved up to so many."""
_READY_BEFORE = 2


@runtime_checkable
class Ready(Protocol):
    """A proposer that knows before pages are given out whether it has a guess."""

    def ready(self, request: Request) -> bool:
        """Whether it would guess now."""


@runtime_checkable
class Remembers(Protocol):
    """A proposer that guesses from texts of chats that have ended."""

    def forget_chats(self) -> None:
        """Forget them."""


class Guessing:
    """One request's choosers: of repetition, where that may go first or is all there is, and of everybody else."""

    def __init__(self, repeats: Chooser | None, others: Chooser | None) -> None:
        self.repeats, self.others = repeats, others
        both = (chooser.candidates for chooser in (repeats, others) if chooser is not None)
        self.candidates: dict[str, Candidate] = {name: one for each in both for name, one in each.items()}


@runtime_checkable
class LastRow(Protocol):
    """A proposer whose guesses follow from the state that drew the last token, whatever came before."""

    last_row_only: bool


class _Gained(NamedTuple):
    """A request's guesses of this step and the tokens that it gained."""

    candidate: Candidate
    tokens: int


def _forgive(name: str, error: Exception) -> None:
    """Where there is no memory to guess, nothing is guessed, and the text goes on. Raises any other error again."""
    if not is_out_of_memory(error):
        raise error
    _log.warning("%s found no memory in this step (%s)", name, error)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


class Pilot:
    """Owns the proposers of a loaded model, their costs and their common acceptance."""

    def __init__(self, proposers: Sequence[Proposer]) -> None:
        self.costs = Costs()
        self._proposers = {proposer.name: proposer for proposer in proposers}
        repeats = self._proposers.get(REPEATS)
        self._repeats = repeats if isinstance(repeats, Ready) else None
        self._standings = {proposer.name: Standing(proposer.branches) for proposer in proposers}
        self._neighbours: dict[int, Neighbours] = {}
        self._prices = Prices(self.costs, self._neighbours)
        self._choices: dict[tuple[str, int], Choice] = {}
        self._wished: dict[tuple[str, int], tuple[int, int]] = {}  # (nodes, depth) asked for, by owner
        self._tallies: dict[str, Tally] = {}
        self._gained: list[_Gained] = []
        self._asked: dict[str, int] = {}
        self._rows = 0
        self._guessers = 0
        self._step = 0
        self._measuring = False
        self._allowance = _MOST_ALLOWED / 4
        self._favourite = ""
        self._following: dict[str, set[tuple[str, int]]] = {}  # of this step, by proposer that reads states

    # --- the order of a step ---------------------------------------------------------------------------------------

    def begin(self, sequences: int) -> None:
        """A step begins, in which so many sequences run."""
        self._step += 1
        sequences = max(1, sequences)
        # Where nobody guessed lately, whoever begins will not be alone: requests are alike, and probe together.
        self._prices.begin(sequences, self._guessers or sequences)
        self._measuring = self._prices.neighbours.due
        self._choices.clear()
        self._wished.clear()
        self._tallies.clear()
        self._gained.clear()
        self._asked.clear()
        self._rows = 0

    def wanted(self, request: Request) -> int:
        """How many guesses the request would like in this step."""
        guessing = self._guessing(request)
        if guessing is None:
            return 0
        if self._measuring and not any(one.fixed for one in guessing.candidates.values()):
            return 0
        choice = self._choose(request, guessing)
        if choice.name:
            self._tallies.setdefault(choice.name, Tally()).choose(choice)
        if choice.nodes:
            self._choices[request.owner] = choice
        return choice.nodes

    def propose(self, slices: Sequence[Slice[Request]]) -> tuple[list[DraftTree], Work]:
        """One tree per slice, and what proposing them cost; a proposer's cache rides along with chunks of prompts."""
        trees = [NO_GUESS] * len(slices)
        total = Work()
        for name, proposer in self._proposers.items():
            asks = {place: ask for place, piece in enumerate(slices) if (ask := self._ask(name, piece)) is not None}
            if not asks:
                continue
            try:
                found = proposer.propose(list(asks.values()))
            except Exception as error:
                _forgive(name, error)
                found = [NO_GUESS] * len(asks)
            for place, tree in zip(asks, found, strict=True):
                trees[place] = tree
                if not tree.tokens and asks[place].budget:
                    self._guessing_of(slices[place].sequence).candidates[name].silent()
            work = proposer.take_work()
            depths = [min(ask.depth, ask.budget) for ask in asks.values() if ask.budget]
            if depths:
                self._asked[name] = max(depths)
            if len(depths) == len(asks):
                self.costs.observe_proposer(name, len(asks), max(depths), work.passes, work.seconds)
            total = Work(total.seconds + work.seconds, total.passes + work.passes, total.bytes_read + work.bytes_read)
        self._rows = len(slices) + sum(len(tree.tokens) for tree in trees)
        return trees, total

    def observe(self, request: Request, tree: DraftTree, verdict: Verdict) -> None:
        """Learn what became of a tree."""
        if not tree.tokens:
            return
        name, accepted = tree.proposer, len(verdict.nodes)
        self._proposers[name].observe(request, tree, verdict.nodes)
        self._tallies.setdefault(name, Tally()).count(tree, depth_of(tree), accepted)
        candidate = self._guessing_of(request).candidates[name]
        candidate.observe(*self._wished[request.owner], accepted)
        self._gained.append(_Gained(candidate, accepted + 1))

    def told(self, seconds: float, decoding_only: bool) -> None:
        """The whole step took so many ``seconds``, the host's part included; prompts were read unless
        ``decoding_only``."""
        if not decoding_only:
            return
        neighbours, sequences = self._prices.neighbours, self._prices.sequences
        plain = neighbours.plain
        if not self._asked:
            neighbours.take_plain(self._step, seconds)
        elif self._gained:
            alone = next(iter(self._asked)) if len(self._asked) == 1 else ""
            depth = max(self._asked.values())
            believed = partial(self._prices.steps, alone, sequences, len(self._gained), self._rows, depth)
            rounds = [Round(gained.tokens, gained.candidate.pair) for gained in self._gained]
            neighbours.take_guessed(self._step, Guessed(seconds, alone, believed, rounds))
        self._guessers = len(self._gained) or (self._guessers if self._measuring else 0)
        self._allowance = min(_MOST_ALLOWED, self._allowance + _ALLOWED)
        if plain and any(choice.probe for choice in self._choices.values()):
            tokens = sequences + sum(gained.tokens - 1 for gained in self._gained)
            self._allowance -= max(0.0, seconds / plain - tokens / sequences)

    def release(self, request: Request) -> None:
        """The request ended. Proposers may hear of requests that they never saw."""
        for proposer in self._proposers.values():
            proposer.release(request)

    def forget_chats(self) -> None:
        """A chat was deleted: nobody guesses from its text any more."""
        for proposer in self._proposers.values():
            if isinstance(proposer, Remembers):
                proposer.forget_chats()

    def records(self) -> tuple[GuessRecord, ...]:
        """What each proposer did in this step."""
        return tuple(tally.record(name) for name, tally in self._tallies.items())

    # --- states of the target --------------------------------------------------------------------------------------

    def needs_hidden(self, slices: Sequence[Slice[Request]]) -> frozenset[int]:
        """The layers whose input states :meth:`see` wants of this step."""
        self._following = {
            name: {piece.sequence.owner for piece in slices if self._follows(name, piece.sequence)}
            for name, proposer in self._proposers.items()
            if proposer.needs_hidden
        }
        return frozenset().union(
            *(self._proposers[name].needs_hidden for name, mine in self._following.items() if mine)
        )

    def see(self, seen: Sequence[Seen]) -> None:
        """Rows of this step that are part of their requests now, with the states that were asked for."""
        for name, owners in self._following.items():
            mine = [each for each in seen if each.request.owner in owners]
            try:
                if mine:
                    self._proposers[name].see(mine)
            except Exception as error:
                _forgive(name, error)

    def _follows(self, name: str, request: Request) -> bool:
        """Whether a proposer that reads the target's states gets those of this request.

        It gets all of them from the prompt on as long as it may be chosen: states that it missed are gone, and a head
        whose cache has a hole can guess no more. What was probed in vain ever more rarely, up to the rarest, is given
        up: then plain requests pay nothing for it. Its last probes still come; for a head that needs only the last
        row (Medusa) states flow only while it is chosen or shortly before a probe, a lagging one has nothing to say and
        stays away.
        """
        guessing = self._guessing(request)
        candidate = guessing.candidates.get(name) if guessing is not None else None
        if candidate is None:
            return False
        if candidate.fixed or candidate.probing:
            return True
        soon = candidate.next_probe is not None and candidate.next_probe - self._step <= _READY_BEFORE
        if isinstance(self._proposers[name], LastRow):
            chosen = guessing.others.chosen if guessing is not None and guessing.others is not None else None
            return soon or candidate is chosen or (candidate.next_probe is None and not candidate.given_up)
        return soon or not candidate.given_up

    # --- who and how far -------------------------------------------------------------------------------------------

    def _choose(self, request: Request, guessing: Guessing) -> Choice:
        """Repetition where the text repeats and it pays; else the best of the others."""
        options = request.options
        step, sequences = self._step, self._prices.sequences
        allowance = self._allowance / sequences

        def prices(candidate: Candidate) -> Sequence[Price]:
            return self._prices.of(self._proposers[candidate.name], options)

        other = Choice()
        if guessing.others is not None:
            other = guessing.others.choose(step, sequences, prices, allowance)
            if other.nodes and not other.probe:
                self._favourite = other.name
        if guessing.repeats is None:
            return other
        if self._repeats is not None and not self._repeats.ready(request):
            return other if guessing.others is not None else Choice(REPEATS)
        repeats = guessing.repeats.choose(step, sequences, prices, allowance)
        if not repeats.nodes:
            return other if other.nodes or guessing.others is not None else repeats
        if other.probe and not repeats.probe:
            return other
        least = FIRST_WORTH if options.ngram_first else 1.0
        fixed = guessing.candidates[REPEATS].fixed and options.ngram_first
        if repeats.probe or fixed or not other.nodes or repeats.gain >= least * other.gain:
            return repeats
        return other

    def _guessing(self, request: Request) -> Guessing | None:
        """The request's choosers, made when first asked for; None: it does not guess."""
        if request.guessing is None:
            # Without a cache every step reads the whole text, and there is no time to guess for it.
            name = request.options.speculation if request.options.kv_cache else "off"
            names = [name] if name in self._proposers else list(self._proposers) if name == "auto" else []
            others = [self._candidate(one, request) for one in names if one != REPEATS]
            first = REPEATS in names or (bool(names) and request.options.ngram_first and REPEATS in self._proposers)
            repeats = [self._candidate(REPEATS, request)] if first else []
            request.guessing = Guessing(Chooser(repeats) if repeats else None, Chooser(others) if others else None)
        return request.guessing if request.guessing.candidates else None

    def _guessing_of(self, request: Request) -> Guessing:
        guessing = self._guessing(request)
        assert guessing is not None, "who was asked guesses"
        return guessing

    def _candidate(self, name: str, request: Request) -> Candidate:
        return Candidate(name, self._standings[name], is_fixed(self._proposers[name].branches, request.options))

    def _ask(self, name: str, piece: Slice[Request]) -> Ask | None:
        """What the proposer has to do for a slice: guesses to make, or a prompt to read along with the target."""
        request = piece.sequence
        end = request.num_computed + piece.rows
        choice = self._choices.get(request.owner)
        if piece.drafts and choice is not None:
            if choice.name != name:
                return None
            depth = min(choice.depth, request.most_depth)
            self._wished[request.owner] = piece.drafts, min(depth, piece.drafts)
            return Ask(request, piece.drafts, end, depth)
        return Ask(request, 0, end) if piece.rows > 1 and self._rides(name, request) else None

    def _rides(self, name: str, request: Request) -> bool:
        """Whether a proposer reads a prompt as the target does. Under "auto" only who guessed last: a draft model can
        read the text at any later time, when it is first asked."""
        guessing = self._guessing(request)
        if guessing is None or name not in guessing.candidates or guessing.candidates[name].given_up:
            return False
        return request.options.speculation == name or self._favourite == name
