"""What a proposer of guesses is: it looks at requests, proposes continuations, and touches no committed state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from engine.core.request import Request


class DraftTree(NamedTuple):
    """Guesses for one request: ``tokens[i]`` follows node ``parents[i]``, -1 being the last committed token.

    A parent comes before its children. ``parents`` None is a chain, each token following the one before it. ``q`` are
    the proposer's probabilities where it has them; the keyed-noise verifier needs none.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    q: Tensor | None = None

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens from the root to ``node``, itself included; -1 gives none."""
        if self.parents is None:
            return self.tokens[: node + 1]
        found: list[int] = []
        while node >= 0:
            found.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(found))


NO_GUESS = DraftTree()


class Ask(NamedTuple):
    """A request in this step: propose up to ``budget`` tokens after its last known one.

    With budget 0 nothing is proposed, but the proposer may bring its own cache up to the first ``end`` tokens, whose
    pages exist.
    """

    request: Request
    budget: int
    end: int


class Work(NamedTuple):
    """What proposing cost: seconds spent in tensor operations, forward passes of the proposer, bytes they read."""

    seconds: float = 0.0
    passes: int = 0
    bytes_read: int = 0


class Proposer(Protocol):
    """A source of guesses. ``name`` is the source in TokenInfo; ``needs_hidden`` the layers whose states it reads."""

    name: str
    needs_hidden: frozenset[int]

    def propose(self, asks: Sequence[Ask], hidden: dict[int, Tensor] | None = None) -> list[DraftTree]:
        """One tree per ask, in order; an empty one where there is nothing to say."""

    def observe(
        self, request: Request, tree: DraftTree, accepted: int, hidden: dict[int, Tensor] | None = None
    ) -> None:
        """``accepted`` nodes of a tree proposed before became part of the request."""

    def release(self, request: Request) -> None:
        """The request ended."""

    def take_work(self) -> Work:
        """What was spent since the last call."""
