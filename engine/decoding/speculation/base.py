"""The interface of a proposer (drafter): it reads requests, proposes draft tokens, and changes no committed state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from engine.decoding.request import Request
from engine.decoding.telemetry.records import DraftCost

MAX_DEPTH = 16
"""Maximum number of tokens ahead that any proposer may be asked to draft."""


class DraftTree(NamedTuple):
    """Draft tokens for one request: ``tokens[i]`` follows node ``parents[i]``; -1 is the last committed token.

    A parent comes before its children. ``parents`` None is a chain, each token following the one before it. At most
    63 nodes. ``proposer`` names the proposer that drafted them, a source of :data:`engine.protocol.Source`.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    q: Tensor | None = None
    """[nodes, V] float32, for the ratio test: the probabilities (after temperature and truncation) that the tokens of a
    chain were *sampled* from; None where the proposer chose its tokens deterministically."""
    proposer: str = ""
    early: Tensor | None = None
    """[k, hidden_size]: the residual stream after ``exit_layer`` layers of the target for the last committed token and
    the first k - 1 draft tokens. Those layers have already written the keys and values of these rows."""
    exit_layer: int = 0

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens from the root to ``node``, itself included; -1 gives none."""
        if self.parents is None:
            return self.tokens[: node + 1]
        found: list[int] = []
        while node >= 0:
            found.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(found))

    def chain(self) -> DraftTree:
        """The path that takes the first child of each node, for rows that allow no branches."""
        if self.parents is None:
            return self
        path: list[int] = []
        for node, parent in enumerate(self.parents):
            if parent == (path[-1] if path else -1):
                path.append(node)
        return self._replace(tokens=tuple(self.tokens[node] for node in path), parents=None)


NO_DRAFT = DraftTree()


class DraftRequest(NamedTuple):
    """A request in this step: propose up to ``budget`` tokens after its last known one.

    With budget 0 nothing is proposed, but the proposer may bring its own cache up to the first ``end`` tokens, whose
    pages exist; otherwise there are pages for ``budget`` more tokens. No draft token may be deeper than ``depth``.
    """

    request: Request
    budget: int
    end: int
    depth: int = 1 << 30


class HiddenRows(NamedTuple):
    """Rows that a step computed and that are now part of a request: its tokens from index ``start`` on.

    ``hidden[i]`` [n, hidden_size] is the stream that entered layer i (``num_layers``: the input of the final norm), for
    the layers in the proposer's ``needs_hidden``. The new tokens have already been appended to the request, so the
    token after each of these rows is known.
    """

    request: Request
    start: int
    hidden: Mapping[int, Tensor]


class Proposer:
    """A source of draft tokens. This one has none; the others change what they must."""

    name: str
    """The source in TokenInfo, and its value of the switch "speculation"."""
    needs_hidden: frozenset[int] = frozenset()
    """Layers whose input states :meth:`see` wants."""
    last_row_only = False
    """Draft tokens follow from the state that drew the last token, whatever came before."""
    branches = False
    """Its trees can be wider than a chain."""
    max_depth = MAX_DEPTH
    """The most tokens that it can draft ahead."""
    _work = DraftCost()

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        """One tree per ask, in order; an empty one where nothing is proposed."""
        return [NO_DRAFT] * len(asks)

    def has_match(self, request: Request) -> bool:
        """Return True if the proposer would draft for the request now; called before rows and pages are given out."""
        return True

    def observe(self, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        """Called when these ``nodes`` of a proposed tree, root first, were accepted into the request."""

    def see(self, seen: Sequence[HiddenRows]) -> None:
        """Called once a step with rows of the requests that use this proposer, and the states in ``needs_hidden``."""

    def release(self, request: Request) -> None:
        """Called when the request ended, whether or not it ever drafted for it."""

    def forget_chats(self) -> None:
        """A chat was deleted: draft from the text of no chat that has ended."""

    def take_work(self) -> DraftCost:
        """The work done since the last call."""
        work, self._work = self._work, DraftCost()
        return work

    def _count(self, seconds: float, bytes_read: int = 0, passes: int = 1) -> None:
        """Add to the work done."""
        done = self._work
        self._work = DraftCost(done.seconds + seconds, done.passes + passes, done.bytes_read + bytes_read)
