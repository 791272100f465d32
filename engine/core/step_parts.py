"""What a step is made of: rows and draws from the plan, facts before results change the requests, a run afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from engine.core.answers import Drawn
from engine.core.request import Request
from engine.core.runner import SequenceRows
from engine.protocol import Source
from engine.sampling.sampler import Draw, LogProbs
from engine.scheduling.scheduler import Plan, Slice
from engine.speculation.base import DraftTree, Work
from engine.speculation.verifier import Verdict


class Facts:
    """What a step computed, counted before its results change the requests."""

    def __init__(self, plan: Plan[Request], trees: Sequence[DraftTree], work: Work, seconds: float) -> None:
        self.work, self.seconds = work, seconds
        self.preemptions = len(plan.preempted)
        self.decode_rows = sum(1 for piece in plan.slices if piece.rows == 1)
        self.prefill_rows = sum(piece.rows for piece in plan.slices if piece.rows > 1)
        self.verify_rows = sum(len(tree.tokens) for tree in trees)
        self.kv_tokens = self.verify_rows + sum(piece.sequence.num_computed + piece.rows for piece in plan.slices)

    @property
    def rows(self) -> int:
        return self.decode_rows + self.prefill_rows + self.verify_rows

    @property
    def decoding_only(self) -> bool:
        return self.prefill_rows == 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that the device or the host had no memory left."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in text or "can't allocate memory" in text or "not enough memory" in text)
    )


def rows_of(piece: Slice[Request], tree: DraftTree) -> SequenceRows:
    request = piece.sequence
    start = request.num_computed
    tokens = request.tokens[start : start + piece.rows]
    parents: tuple[int, ...] | None = None
    if tree.parents is not None:
        # Row 0 is the last committed token, from which node i's row i + 1 descends.
        parents = (-1, *(parent + 1 for parent in tree.parents))
    wanted = 1 + len(tree.tokens) if piece.last else 0
    more = (request.recent,) if request.recent else ()
    return SequenceRows([*tokens, *tree.tokens], start, request.pages, wanted, parents, more, request.options.policy)


def draws_of(request: Request, tree: DraftTree) -> list[Draw]:
    """One draw after the last known token, and one after each guess along its own path."""
    fixed = request.params, request.answer, request.tokens
    if not tree.tokens:
        return [Draw(*fixed, (), request.history)]
    return [Draw(*fixed, tree.path(node), request.history) for node in range(-1, len(tree.tokens))]


def run_of(verdict: Verdict, tree: DraftTree, logprobs: Sequence[LogProbs | None]) -> list[Drawn]:
    """The tokens of a verdict in order; the row that drew node i's token is its parent's."""
    source = cast(Source, tree.proposer)
    rows = (-1, *verdict.nodes)
    run = [Drawn(tree.tokens[node], source, logprobs[rows[i] + 1]) for i, node in enumerate(verdict.nodes)]
    run.append(Drawn(verdict.token, verdict.source, logprobs[rows[-1] + 1]))
    return run
