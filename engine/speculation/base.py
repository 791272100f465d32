"""What a proposer of guesses is: it looks at requests, proposes continuations, and touches no committed state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from engine.core.request import Request


class DraftTree(NamedTuple):
    """Guesses for one request: ``tokens[i]`` follows node ``parents[i]``, -1 being the last committed token.

    A parent comes before its children. ``parents`` None is a chain, each token following the one before it. At most
    63 nodes. ``proposer`` is who guessed, a source of :data:`engine.protocol.Source`.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    q: Tensor | None = None
    """[nodes, V] float32: of a chain whose tokens were *drawn*, the probabilities that they were drawn from (after
    temperature and truncation), for the ratio test; None where they are the proposer's certain choice."""
    proposer: str = ""
    early: Tensor | None = None
    """[k, hidden_size]: the stream after ``exit_layer`` layers of the target for the last committed token and the first
    k - 1 guesses, whose keys and values those layers have already written."""
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


NO_GUESS = DraftTree()


class Ask(NamedTuple):
    """A request in this step: propose up to ``budget`` tokens after its last known one.

    With budget 0 nothing is proposed, but the proposer may bring its own cache up to the first ``end`` tokens, whose
    pages exist; with a budget there are pages for as many tokens more. No guess may be deeper than ``depth``.
    """

    request: Request
    budget: int
    end: int
    depth: int = 1 << 30


class Seen(NamedTuple):
    """Rows of a request that a step computed and that are part of it now: its tokens from index ``start`` on.

    ``hidden[i]`` [n, hidden_size] is the stream that entered layer i (``num_layers``: what the final norm reads), for
    the layers in the proposer's ``needs_hidden``. When it is told, the request has its new tokens already, so that
    the token after each of these rows is known.
    """

    request: Request
    start: int
    hidden: Mapping[int, Tensor]


class Work(NamedTuple):
    """What proposing cost: seconds spent in tensor operations, forward passes of the proposer, bytes they read."""

    seconds: float = 0.0
    passes: int = 0
    bytes_read: int = 0


class Proposer(Protocol):
    """A source of guesses. ``name`` is the source in TokenInfo; ``needs_hidden`` the layers whose states it reads.

    ``branches``: its trees can be wider than a chain.
    """

    name: str
    needs_hidden: frozenset[int]
    branches: bool

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """One tree per ask, in order; an empty one where there is nothing to say."""

    def observe(self, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        """These ``nodes`` of a tree proposed before, root first, became part of the request."""

    def see(self, seen: Sequence[Seen]) -> None:
        """Rows of requests that concern this proposer, once a step, with the states that it ``needs_hidden``."""

    def release(self, request: Request) -> None:
        """The request ended."""

    def take_work(self) -> Work:
        """What was spent since the last call."""
