"""What became of guesses, by how deep they were, and how many tokens a round may be expected to give.

Chains: each depth has a chance of its own, given that everything above it held. Trees: the same for each class of
sizes, since more alternatives at a depth hold more often.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

SIZES = (1, 2, 4, 8, 16, 32, 63)
"""Sizes of trees that are compared, in guesses; a tree between two of them counts as the larger."""
DEEPEST = 16
"""How deep anybody may be asked to guess."""
_OFTEN = 8
_FIRST = 0.7
"""The share that is believed of a proposer of which nothing was seen."""
_WEIGHT = 3.0
"""A prior counts as much as so many rounds."""
_FORGET = 0.94
_FORGET_SHARED = 0.99
_HOPE = 0.85
"""A size never tried is believed to fail so much less often than the size below it, so that it is tried."""


def expected_tokens(acceptance: float, length: int) -> float:
    """Tokens per step of a chain of ``length`` guesses, each accepted with probability ``acceptance`` if reached.

    (1 - a^(g+1)) / (1 - a), Leviathan et al. 2023.
    """
    if acceptance >= 1.0:
        return length + 1.0
    return (1.0 - acceptance ** (length + 1)) / (1.0 - acceptance)


class ByDepth:
    """The share of rounds that kept a guess at each depth, of those to guess there that kept the one above it.

    ``prior(longest)`` gives the shares believed without evidence; evidence of the depth above counts there too, so
    that depths never reached look like those before them. Old evidence fades with every round.
    """

    def __init__(self, prior: Callable[[int], list[float]], forget: float) -> None:
        self._prior, self._forget = prior, forget
        self._kept: list[float] = []
        self._tried: list[float] = []

    def shares(self, longest: int) -> list[float]:
        """The chances at depths 1 to ``longest``, each given that the depth above held."""
        found: list[float] = []
        for depth, believed in enumerate(self._prior(longest)):
            if found:
                believed = 0.25 * believed + 0.75 * found[-1]
            kept, tried = (self._kept[depth], self._tried[depth]) if depth < len(self._tried) else (0.0, 0.0)
            found.append((kept + _WEIGHT * believed) / (tried + _WEIGHT))
        return found

    def observe(self, depth: int, accepted: int) -> None:
        """A round was to guess to ``depth`` and kept ``accepted`` guesses, one below the other."""
        missing = depth - len(self._tried)
        self._kept += [0.0] * missing
        self._tried += [0.0] * missing
        for place in range(min(depth, accepted + 1)):
            self._kept[place] = self._kept[place] * self._forget + (place < accepted)
            self._tried[place] = self._tried[place] * self._forget + 1.0

    def fade(self) -> None:
        """What is known is old: from now on it counts no more than one round."""
        for place, tried in enumerate(self._tried):
            if tried > 1.0:
                self._kept[place], self._tried[place] = self._kept[place] / tried, 1.0


class Acceptance:
    """Of one proposer: in one request with what all requests together saw as its ``prior``, or in all of them."""

    def __init__(self, branches: bool, prior: Acceptance | None = None) -> None:
        self.branches, self._prior = branches, prior
        self._classes: dict[int, ByDepth] = {}
        self._known: dict[int, tuple[tuple[int, int], tuple[list[float], list[float]]]] = {}
        self._rounds = self._version = 0

    def shares(self, nodes: int, longest: int) -> list[float]:
        """The chances at depths 1 to ``longest`` in trees of so many ``nodes``, each given that those above held."""
        return self._reckoned(self._class(nodes))[0][:longest]

    def tokens(self, nodes: int, longest: int) -> list[float]:
        """Tokens per round expected of guessing 0 to ``longest`` deep; the model's own token is one of them."""
        return self._reckoned(self._class(nodes))[1][: longest + 1]

    def hold(self, nodes: int, depth: int) -> float:
        """The share of guesses that hold, of those whose forerunners held."""
        tokens = self.tokens(nodes, depth)
        return (tokens[-1] - 1.0) / tokens[-2] if depth else 0.0

    def observe(self, nodes: int, depth: int, accepted: int) -> None:
        """Asked for ``nodes`` guesses down to ``depth``, it made some, of which ``accepted`` in a line were kept.

        What it was asked for and did not guess was not kept either.
        """
        self._of(self._class(nodes)).observe(depth, accepted)
        self._rounds += 1
        # What all saw moves slowly: it is not worth reckoning anew for every request of a large batch.
        if self._prior is not None or self._rounds < _OFTEN or self._rounds % _OFTEN == 0:
            self._version += 1
        if self._prior is not None:
            self._prior.observe(nodes, depth, accepted)

    def fade(self) -> None:
        """What is known is old: see :meth:`ByDepth.fade`. What all requests saw stays."""
        self._version += 1
        for each in self._classes.values():
            each.fade()

    def _class(self, nodes: int) -> int:
        return min(bisect_left(SIZES, nodes), len(SIZES) - 1) if self.branches else 0

    def _reckoned(self, size: int) -> tuple[list[float], list[float]]:
        """Shares and tokens of a class of sizes, at all depths; reckoned anew when something was observed."""
        stamp = self._version, self._prior._version if self._prior is not None else 0
        known = self._known.get(size)
        if known is None or known[0] != stamp:
            shares = self._of(size).shares(DEEPEST)
            tokens, reached = [1.0], 1.0
            for share in shares:
                reached *= share
                tokens.append(tokens[-1] + reached)
            known = self._known[size] = stamp, (shares, tokens)
        return known[1]

    def _of(self, size: int) -> ByDepth:
        found = self._classes.get(size)
        if found is None:
            forget = _FORGET_SHARED if self._prior is None else _FORGET
            found = self._classes[size] = ByDepth(lambda longest: self._believed(size, longest), forget)
        return found

    def _believed(self, size: int, longest: int) -> list[float]:
        """The shares without evidence: what others saw of this size, or a little more than the size below gives."""
        if self._prior is not None:
            return self._prior._reckoned(size)[0]
        if size == 0:
            return [_FIRST] * longest
        return [1.0 - _HOPE * (1.0 - share) for share in self._reckoned(size - 1)[0]]
