"""A search for the layers by which a model drafts best for itself: after which one to exit, which ones to skip.

Draft & Verify (arXiv 2309.08168) searches skip sets by Bayesian optimisation. Here a greedy search leaves out one layer
after another, always the one whose absence changes fewest tokens, and a local search goes on from the best set on the
way, adding, dropping and exchanging layers while that helps. What is maximised is the predicted speed-up, from how
often the first draft token of a chain agrees with the model; later ones read keys and values of draft tokens, and agree
less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.compute.batch import SequenceRows
from engine.compute.models.base import CausalLM
from engine.compute.runner.runner import Runner
from engine.decoding.speculation.base import MAX_DEPTH
from engine.decoding.speculation.control.stats import expected_tokens
from engine.decoding.speculation.proposers.layer_choice import LayerChoice
from engine.loading.runners import new_runner

SAMPLES = 256
"""Positions in the texts where draft tokens are judged."""
LONGEST_TEXT = 256
"""Tokens of a piece that a text is cut into."""
MOST_TEXTS = 16
"""Pieces that are read, spread evenly over what is given: their keys and values are kept at once."""
EVALUATIONS = 600
"""Skip sets that are tried at most."""
_HOPELESS = 0.3
"""Below this agreement no more layers are left out."""

Progress = Callable[[str, float], None]


class LayerSearchResult(NamedTuple):
    """The best choice, and how often each kind of draft agreed with the model: ``exits[i]`` after i + 1 layers."""

    choice: LayerChoice
    exits: tuple[float, ...]
    skip_agreement: float
    exit_gain: float
    skip_gain: float


def predicted_gain(agreement: float, share: float) -> float:
    """Tokens per cost of a plain step, at the best length of a chain, where a draft token costs ``share`` of one.

    Each is accepted with probability ``agreement``; verification costs one step, as where reading weights is what
    takes the time (Leviathan et al. 2023, theorem 3.8). 1 where drafting does not pay.
    """
    agreement = min(agreement, 0.99)
    return max(expected_tokens(agreement, length) / (length * share + 1) for length in range(MAX_DEPTH + 1))


class _Samples:
    """Places in texts whose keys and values the arenas hold: each is a row that can be computed again, alone.

    A place has a page of its own for its row, a copy of the text's, so that what one try writes no other row reads:
    the row sees the target's own keys and values of all tokens before it, as the first draft token of a chain does.
    """

    def __init__(self, runner: Runner, texts: Sequence[Sequence[int]]) -> None:
        self._runner = runner
        self.rows: list[SequenceRows] = []
        targets: list[int] = []
        agreed: list[Tensor] = []
        layers = runner.num_layers
        every = -(-sum(len(text) for text in texts) // SAMPLES)
        page = 1
        for text in texts:
            pages = list(range(page, page + pages_for(len(text))))
            page += len(pages)
            places = list(range(min(every, len(text)) - 1, len(text), every))
            wanted = frozenset(range(1, layers + 1))
            hidden = runner.forward([SequenceRows(text, 0, pages)], want_hidden=wanted).hidden
            said = torch.stack([runner.logits(hidden[layer][places]).argmax(-1) for layer in range(1, layers + 1)])
            targets += said[-1].tolist()
            agreed.append(said[:-1] == said[-1])
            for place in places:
                before, last = pages[: place // PAGE_SIZE], pages[place // PAGE_SIZE]
                runner.kv.copy_page(last, page)
                self.rows.append(SequenceRows([text[place]], place, [*before, page], want_logits=1))
                page += 1
        self._targets = torch.tensor(targets)
        self.exits = tuple(torch.cat(agreed, 1).float().mean(1).tolist())

    def agreement(self, skip: frozenset[int]) -> float:
        """The share of places where the model without those layers says the same token."""
        found = self._runner.forward(self.rows, skip=skip).logits.argmax(-1).cpu()
        return float((found == self._targets).float().mean())


class _Search:
    """Skip sets and what they are worth; each is tried once."""

    def __init__(self, model: CausalLM, samples: _Samples, progress: Progress) -> None:
        self._model, self._samples, self._progress = model, samples, progress
        self._known: dict[frozenset[int], float] = {}
        # What the greedy part takes at most, and as much again: only an estimate, for the progress.
        self._expected = min(EVALUATIONS, model.num_layers * (model.num_layers + 1))

    @property
    def exhausted(self) -> bool:
        return len(self._known) >= EVALUATIONS

    def agreement(self, skip: frozenset[int]) -> float:
        if skip not in self._known:
            self._known[skip] = self._samples.agreement(skip)
            self._progress("trying which layers can be skipped", min(0.99, len(self._known) / self._expected))
        return self._known[skip]

    def gain(self, skip: frozenset[int]) -> float:
        return predicted_gain(self.agreement(skip), share_of(self._model, skip))

    def best(self) -> frozenset[int]:
        here = best = frozenset[int]()
        while len(here) < self._model.num_layers - 1 and not self.exhausted:
            # By agreement, not by gain: one layer less seldom pays, and each step must lead towards the next.
            here = max(self._with_one_more(here), key=lambda skip: (self.agreement(skip), -max(skip)))
            if self.agreement(here) < _HOPELESS:
                break
            best = max(best, here, key=self.gain)
        while not self.exhausted:
            better = next((skip for skip in self._neighbours(best) if self.gain(skip) > self.gain(best)), None)
            if better is None:
                break
            best = better
        return best

    def _with_one_more(self, skip: frozenset[int]) -> list[frozenset[int]]:
        return [skip | {layer} for layer in range(self._model.num_layers) if layer not in skip]

    def _neighbours(self, skip: frozenset[int]) -> Iterable[frozenset[int]]:
        """Sets with one layer more, one less, or one exchanged; as many as may still be tried."""
        one_less = [skip - {layer} for layer in sorted(skip)]
        exchanged = [near for less in one_less for near in self._with_one_more(less)]
        for near in (*one_less, *self._with_one_more(skip), *exchanged):
            if self.exhausted:
                return
            if near != skip and len(near) < self._model.num_layers:
                yield near


def share_of(model: CausalLM, skip: frozenset[int]) -> float:
    """Cost of a pass without those layers, as a share of a whole one: by bytes of weights, the head's among them."""
    return model.bytes_read_per_step(skip) / model.bytes_read_per_step()


def find_layers(
    model: CausalLM, texts: Sequence[Sequence[int]], progress: Progress = lambda stage, done: None
) -> LayerSearchResult:
    """The exit and the skip set with the best predicted speed-up on ``texts`` (token ids).

    Deterministic. Raises ValueError if there is no text, or the model has one layer.
    """
    layers = model.num_layers
    pieces = [text[at : at + LONGEST_TEXT] for text in texts for at in range(0, len(text), LONGEST_TEXT)]
    if not pieces:
        raise ValueError("There is no text to try layers on.")
    if layers < 2:
        raise ValueError("A model of one layer has none to leave out.")
    progress("reading the texts", 0.0)
    if len(pieces) > MOST_TEXTS:
        pieces = [pieces[at * len(pieces) // MOST_TEXTS] for at in range(MOST_TEXTS)]
    pages = sum(pages_for(len(piece)) for piece in pieces) + SAMPLES + len(pieces) + 1
    samples = _Samples(new_runner(model, pages, model.device), pieces)
    gains = [
        predicted_gain(share, share_of(model, frozenset(range(exit_layer, layers))))
        for exit_layer, share in enumerate(samples.exits, 1)
    ]
    exit_layer = 1 + max(range(layers - 1), key=lambda index: gains[index])
    search = _Search(model, samples, progress)
    skip = search.best()
    choice = LayerChoice(exit_layer, skip)
    return LayerSearchResult(choice, samples.exits, search.agreement(skip), gains[exit_layer - 1], search.gain(skip))
