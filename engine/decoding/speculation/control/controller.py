"""Decides which proposer drafts for a request and how many tokens, and learns from what became of them.

A draft is worth the tokens that a round is expected to give (Leviathan et al. 2023, section 3.3, with the acceptance
measured at each depth) over the plain steps that a step with it takes, both as measured on this machine. Whatever
promises the most is asked; where nothing gains, the step is plain, and every proposer is tried again now and then.
Three calls a step: :meth:`Controller.plan`, :meth:`~Controller.propose`, :meth:`~Controller.record`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import torch

from engine.base.errors import is_out_of_memory
from engine.decoding.options import RequestOptions
from engine.decoding.request import Request
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import (
    MAX_DEPTH,
    NO_DRAFT,
    DraftCost,
    DraftRequest,
    DraftTree,
    HiddenRows,
    Proposer,
)
from engine.decoding.speculation.control.candidate import Candidate, Outcome, Standing
from engine.decoding.speculation.control.cost import StepTimes
from engine.decoding.speculation.control.lines import AS_SET, TO_TRY, Price, off_line, on_line
from engine.decoding.speculation.control.stats import SIZES, Tally
from engine.decoding.speculation.verify.verifier import Verdict
from engine.decoding.telemetry.records import DraftRecord
from engine.protocol import DrafterStyle

_log = logging.getLogger(__name__)


FORCED = DrafterStyle(
    key="grammar", name="grammar", by="because nothing else may come (grammar)", color="mute", offer="grammar"
)
"""How tokens are shown that a grammar forced."""


class DraftChoice(NamedTuple):
    """Candidate to ask in this step, and the shape to ask for; no ``nodes``: nothing is asked. ``line()`` says why."""

    candidate: Candidate
    nodes: int
    depth: int
    line: Callable[[], str]


class Proposals(NamedTuple):
    """One tree per slice, what proposing them cost, and the layers whose input states are wanted of this step."""

    trees: list[DraftTree]
    work: DraftCost
    needs_hidden: frozenset[int]


class Round(NamedTuple):
    """Draft tokens of a request, and the verdict on them."""

    request: Request
    tree: DraftTree
    verdict: Verdict


class Controller:
    """Owns the proposers of a loaded model."""

    def __init__(self, proposers: Sequence[Proposer], clock: Callable[[], float] = time.perf_counter) -> None:
        self._proposers = {proposer.name: proposer for proposer in proposers}
        self._standings = {proposer.name: Standing(proposer.branches) for proposer in proposers}
        self._times, self._clock = StepTimes(), clock
        self._began = 0.0
        self._step = 0
        self._sequences = self._drafters = 1
        self._tried = ""  # one proposer at a time: a step in which two draft tells of neither what it costs
        self._choices: dict[tuple[str, int], DraftChoice] = {}
        self._tallies: dict[str, Tally] = {}
        self._followers: dict[str, set[tuple[str, int]]] = {}  # of this step, by proposer that reads states
        self._rows: dict[str, int] = {}  # draft tokens of this step, by proposer
        self._known: dict[tuple[str, int, int], list[Price]] = {}  # prices of this step
        self._forced: dict[tuple[str, int], list[int]] = {}  # tokens of this step that no draw can change

    # --- a step ----------------------------------------------------------------------------------------------------

    def plan(self, requests: Sequence[Request]) -> dict[tuple[str, int], int]:
        """A step begins: how many draft tokens each of the running requests that decode would like."""
        self._began = self._clock()
        self._step += 1
        self._sequences = max(1, len(requests))
        self._choices.clear()
        self._tallies.clear()
        self._rows.clear()
        self._known.clear()
        self._tried = ""
        plain = self._times.wants_plain(self._sequences)
        decoding = [request for request in requests if request.pending == 1]
        self._forced = {request.owner: tokens for request in decoding if (tokens := _forced(request))}
        decoding = [request for request in decoding if request.owner not in self._forced]
        able = {request.owner: found for request in decoding if (found := self._able(request, plain))}
        # Passes of different proposers add up in a step, those of one are shared: who can drafts with the others.
        gains: Counter[str] = Counter()
        for each in able.values():
            gains.update({one.name: one.gain - 1.0 for one in each})
        for owner, each in able.items():
            self._choices[owner] = self._asked(max(each, key=lambda one: gains[one.name]))
        wished = {owner: len(tokens) for owner, tokens in self._forced.items()}
        return wished | {owner: choice.nodes for owner, choice in self._choices.items()}

    def rests(self, requests: Sequence[Request]) -> bool:
        """Return True if no proposer drafts for these requests in this step or the next, nor follows their states."""
        return not any(
            one.on or one.trying or one.due(self._step + 1) or self._follows(self._proposers[one.name], request)
            for request in requests
            for one in self._candidates(request).values()
        )

    def pass_by(self) -> None:
        """A step goes by in which nobody is asked to draft, because :meth:`rests` said so."""
        self._step += 1

    def propose(self, slices: Sequence[Slice[Request]]) -> Proposals:
        """Draft for the slices that were given room; a proposer's cache rides along with chunks of prompts."""
        trees, total = [NO_DRAFT] * len(slices), DraftCost()
        busy = self._choices or any(piece.rows > 1 for piece in slices)
        for name, proposer in self._proposers.items() if busy else ():
            asks = {place: ask for place, piece in enumerate(slices) if (ask := self._ask(name, piece)) is not None}
            if not asks:
                continue
            try:
                found = proposer.propose(list(asks.values()))
            except Exception as error:
                _forgive(name, error)
                found = [NO_DRAFT] * len(asks)
            for (place, ask), tree in zip(asks.items(), found, strict=True):
                trees[place] = tree if ask.request.options.policy.branches else tree.chain()
                if ask.budget and not tree.tokens:
                    self._learn(ask.request, 0, drafted=False)
            work = proposer.take_work()
            total = DraftCost(
                total.seconds + work.seconds, total.passes + work.passes, total.bytes_read + work.bytes_read
            )
        for place, piece in enumerate(slices):
            if piece.drafts and (tokens := self._forced.get(piece.sequence.owner)):
                trees[place] = DraftTree(tuple(tokens[: piece.drafts]), proposer=FORCED.key)
        drafting = [piece.sequence for piece in slices if self._candidates(piece.sequence)]
        self._followers = {
            name: {request.owner for request in drafting if self._follows(proposer, request)}
            for name, proposer in self._proposers.items()
            if proposer.needs_hidden
        }
        wanted = (self._proposers[name].needs_hidden for name, owners in self._followers.items() if owners)
        return Proposals(trees, total, frozenset().union(*wanted))

    def record(
        self, rounds: Sequence[Round], seen: Sequence[HiddenRows], decoding_only: bool
    ) -> tuple[DraftRecord, ...]:
        """The step is over: learn from its results. ``seen`` are the rows that are part of their requests now.

        Returns what each proposer did. ``decoding_only``: the step read no prompt, so that its time can be compared.
        """
        proposed = [each for each in rounds if each.tree.proposer != FORCED.key]
        for request, tree, verdict in proposed:
            self._proposers[tree.proposer].observe(request, tree, verdict.nodes)
        for name, owners in self._followers.items():
            mine = [each for each in seen if each.request.owner in owners]
            try:
                if mine:
                    self._proposers[name].see(mine)
            except Exception as error:
                _forgive(name, error)
        for _, tree, verdict in rounds:
            self._tally(tree.proposer).count(tree, len(verdict.nodes))
            self._rows[tree.proposer] = self._rows.get(tree.proposer, 0) + len(tree.tokens)
        if decoding_only:
            self._time(len(proposed))
            self._known.clear()
        for request, _, verdict in proposed:
            self._learn(request, len(verdict.nodes), drafted=True)
        return tuple(tally.record(name) for name, tally in self._tallies.items())

    def release(self, request: Request) -> None:
        """The request ended."""
        for proposer in self._proposers.values():
            proposer.release(request)

    def forget_chats(self) -> None:
        """A chat was deleted: no proposer drafts from its text any more."""
        for proposer in self._proposers.values():
            proposer.forget_chats()

    # --- who and how far -------------------------------------------------------------------------------------------

    def _able(self, request: Request, plain: bool) -> Sequence[Candidate]:
        """Candidates that may draft now: one that the user has set, or whose turn it is to be tried; else all that are
        on."""
        candidates = self._candidates(request).values()
        if not candidates:
            return ()
        active = [one for one in candidates if one.on or one.trying or one.due(self._step)]
        able = [one for one in active if self._proposers[one.name].has_match(request)]
        for one in able:
            if one.fixed:
                if not one.price.nodes:
                    one.begin(self._prices(one, request.options), known=True)
                return [one]
        if plain:
            return ()
        for one in able:
            if self._tried in ("", one.name):
                if one.due(self._step):
                    one.begin(self._prices(one, request.options), self._times.knows(one.name))
                if one.trying:
                    self._tried = one.name
                    return [one]
        if not active and not self._tallies:
            self._say_why_not(candidates)
        return [one for one in able if one.on]

    def _prices(self, one: Candidate, options: RequestOptions) -> list[Price]:
        """Price of each shape. Requests that draft bear alone what draft tokens add to a step."""
        key = one.name, options.draft_length, options.tree_nodes
        if key not in self._known:  # the same for all requests of a step
            count, share = self._drafters, self._sequences / self._drafters
            self._known[key] = [
                Price(nodes, depth, 1.0 + share * (self._times.ratio(one.name, self._sequences, count * nodes) - 1.0))
                for nodes, depth in shapes(self._proposers[one.name], options)
            ]
        return self._known[key]

    def _learn(self, request: Request, accepted: int, drafted: bool) -> None:
        """A round is over."""
        one, nodes, depth, _ = self._choices[request.owner]
        others = (each for each in self._candidates(request).values() if each.on and each is not one)
        rival = max((each.gain for each in others), default=1.0)
        outcome = Outcome(nodes, depth, accepted, drafted, rival)
        one.learn(outcome, self._step, lambda: self._prices(one, request.options))

    def _asked(self, one: Candidate) -> DraftChoice:
        price, how = one.price, AS_SET if one.fixed else TO_TRY if one.trying else ""
        choice = DraftChoice(one, price.nodes, price.depth, partial(on_line, one.name, one.acceptance, price, how))
        tally = self._tally(one.name)
        tally.draft_length = max(tally.draft_length, price.depth)
        tally.on_line = tally.on_line or choice.line
        return choice

    def _say_why_not(self, candidates: Collection[Candidate]) -> None:
        best = max(candidates, key=lambda one: one.gain)
        tally = self._tally(best.name)
        wait = max(0, min(one.standing.try_at for one in candidates) - self._step)
        tally.off_line = tally.off_line or partial(off_line, best.acceptance, best.price, wait)

    def _tally(self, name: str) -> Tally:
        return self._tallies.setdefault(name, Tally())

    def _time(self, drafters: int) -> None:
        seconds = self._clock() - self._began
        if not self._rows:
            self._times.take_plain(self._sequences, seconds)
            return
        if not drafters:
            return  # what is forced tells nothing of drafts
        self._drafters = drafters
        if len(self._rows) == 1:
            ((name, rows),) = self._rows.items()
            self._times.take_drafted(name, self._sequences, rows, seconds)

    # --- requests --------------------------------------------------------------------------------------------------

    def _candidates(self, request: Request) -> dict[str, Candidate]:
        """The request's candidates by name, found when first asked for; empty: it does not draft."""
        if request.drafting is None:
            options = request.options
            # Without a cache every step reads the whole text, and there is no time to draft for it.
            name = options.speculation if options.kv_cache else "off"
            names = [name] if name in self._proposers else list(self._proposers) if name == "auto" else []
            if names and options.ngram_first and "ngram" in self._proposers and "ngram" not in names:
                names.insert(0, "ngram")
            request.drafting = {each: self._candidate(each, options, 1 / len(names)) for each in names}
        return request.drafting

    def _candidate(self, name: str, options: RequestOptions, share: float) -> Candidate:
        proposer, standing = self._proposers[name], self._standings[name]
        # A head must follow a text from its beginning: states that it missed are gone.
        anywhere = not proposer.needs_hidden or proposer.last_row_only
        follows = anywhere or standing.try_at <= self._step
        return Candidate(name, standing, is_fixed(proposer, options), share, follows)

    def _ask(self, name: str, piece: Slice[Request]) -> DraftRequest | None:
        """Task of a proposer for a slice: to draft, or to read a prompt along with the target; None: neither."""
        request = piece.sequence
        end = request.num_computed + piece.rows
        choice = self._choices.get(request.owner)
        if piece.drafts and choice is not None:
            if choice.candidate.name != name:
                return None
            depth = min(choice.depth, request.most_depth, piece.drafts)
            self._choices[request.owner] = choice._replace(nodes=piece.drafts, depth=depth)
            return DraftRequest(request, piece.drafts, end, depth)
        return DraftRequest(request, 0, end) if piece.rows > 1 and self._reads_along(name, request) else None

    def _reads_along(self, name: str, request: Request) -> bool:
        """Return True if a proposer reads a prompt as the target does. One that failed lately can read the text at any
        later time, when it is tried."""
        one = self._candidates(request).get(name)
        return one is not None and (one.on or one.standing.try_at <= self._step)

    def _follows(self, proposer: Proposer, request: Request) -> bool:
        """Return True if a proposer that reads the target's states gets those of this request.

        It gets all of them from the prompt on, until a trial fails. A head that needs only the last row gets states
        while it is on or about to be tried.
        """
        one = self._candidates(request).get(proposer.name)
        if one is None or one.on or one.trying:
            return one is not None
        if proposer.last_row_only:
            return one.standing.try_at - self._step <= 2
        one.follows = one.follows and one.standing.try_at <= self._step
        return one.follows


def _forced(request: Request) -> list[int]:
    """Tokens that must come next, by the grammar that constrains the request; as many as one step may read."""
    if request.constraint is None or not (request.options.forced_tokens and request.cached):
        return []
    return request.constraint.forced(request.tokens)[: min(MAX_DEPTH, request.most_depth)]


def is_fixed(proposer: Proposer, options: RequestOptions) -> bool:
    """Return True if the user set the shape, or a part of it that matters: then nothing is switched off."""
    return options.draft_length > 0 or (proposer.branches and options.tree_nodes > 0)


def shapes(proposer: Proposer, options: RequestOptions) -> list[tuple[int, int]]:
    """(draft tokens, depth) to choose from; what the user set is kept, 0 is automatic."""
    most = proposer.max_depth
    depths = [min(options.draft_length, most)] if options.draft_length else list(range(1, most + 1))
    if not proposer.branches:
        return [(depth, depth) for depth in depths]
    if options.tree_nodes:
        nodes = options.tree_nodes
        return [(nodes, depth) for depth in depths if options.draft_length or depth <= nodes]
    # Wide trees of the depth that a full binary one would have, and chains, in which every token goes deeper.
    return [
        (nodes, depth)
        for depth in depths
        for nodes in SIZES
        if nodes >= depth and (options.draft_length or depth in (nodes, nodes.bit_length()))
    ]


def _forgive(name: str, error: Exception) -> None:
    """Log that there is no memory to draft: nothing is drafted, and decoding goes on. Raises any other error again."""
    if not is_out_of_memory(error):
        raise error
    _log.warning("%s found no memory in this step (%s)", name, error)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
