"""The parts of a step: rows and draws made from the plan, figures for telemetry, and the tokens that result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from torch import Tensor

from engine.cache.policies import SparseReads, keys_read
from engine.cache.pool import PAGE_SIZE
from engine.cache.types import StateRun
from engine.compute.batch import SequenceRows
from engine.compute.sampling.sampler import Draw, LogProbs
from engine.compute.vision.embeddings import PictureEmbeddings
from engine.decoding.request import Request
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import DraftTree, HiddenRows
from engine.decoding.speculation.verify.verifier import Verdict
from engine.decoding.telemetry.records import StepRows, TreeRecord
from engine.loop.answers import AppendResult
from engine.protocol import Source, TokenInfo


class StepCounts:
    """Figures of what a step computed, counted before its results change the requests."""

    def __init__(self, slices: Sequence[Slice[Request]], trees: Sequence[DraftTree], sparse: SparseReads) -> None:
        self.sequences = len(slices)
        self.rows = StepRows(
            sum(1 for piece in slices if piece.rows == 1),
            sum(piece.rows for piece in slices if piece.rows > 1),
            sum(len(tree.tokens) for tree in trees),
        )
        self.kv_tokens = self.rows.verify + sum(
            keys_read(piece.sequence.options.policy, piece.sequence.num_computed + piece.rows, sparse)
            for piece in slices
        )


def rows_of(
    piece: Slice[Request], tree: DraftTree, seen: PictureEmbeddings | None = None, unread: int = 0
) -> SequenceRows:
    """The rows of a slice with its draft tokens; ``seen`` computes the embeddings of pictures among them. ``unread``:
    the slice follows a step whose token is on the device only (1), or none (0)."""
    request, cache, pictures = piece.sequence, piece.sequence.cache, piece.sequence.pictures
    start = cache.num_computed + unread
    tokens: Sequence[int] = cache.tokens[start : start + piece.rows] or (0,)
    parents: tuple[int, ...] | None = None
    if tree.parents is not None:
        # Row 0 is the last committed token, from which node i's row i + 1 descends.
        parents = (-1, *(parent + 1 for parent in tree.parents))
    wanted = 1 + len(tree.tokens) if piece.last else 0
    states = cache.runs(len(tree.tokens))
    if tree.tokens:
        tokens = [*tokens, *tree.tokens]
    more, policy, adapter = cache.more_pages, cache.policy, request.adapter
    if pictures is None:
        rows = SequenceRows(tokens, start, cache.pages, wanted, parents, more, policy, states, adapter)
        return rows._replace(whole=True, second=request.task.second) if cache.wholes else rows
    shown = seen.rows(pictures, start, start + piece.rows) if seen is not None else ()
    return SequenceRows(tokens, start, cache.pages, wanted, parents, more, policy, states, adapter, request.axes, shown)


def draws_of(request: Request, tree: DraftTree, unread: int = 0) -> list[Draw]:
    """A draw after the last known token and the ``unread`` ones, and one after each draft token along its own path."""
    params, answer, tokens = request.params, request.answer, request.cache.tokens
    before, by = (0,) * unread, (request.history, request.constraint)
    if not tree.tokens:
        return [Draw(params, answer, tokens, before, *by)]
    return [Draw(params, answer, tokens, before + tree.path(node), *by) for node in range(-1, len(tree.tokens))]


class SliceResult(NamedTuple):
    """A slice with what became of it: ``nodes`` of the tree are part of the request.

    The slice's first row has the index ``start`` in the sequence, and was row ``first_row`` of the batch.
    """

    piece: Slice[Request]
    tree: DraftTree
    first_row: int
    start: int
    verdict: Verdict | None
    """None: it draws no token."""
    outcome: AppendResult | None
    nodes: Sequence[int]

    @property
    def root(self) -> int:
        """The index in the sequence of the token that the tree follows."""
        return self.start + self.piece.rows - 1


def moves(taken: Sequence[SliceResult], group: int = 0) -> tuple[list[int], list[int]]:
    """Slots (from, to) of a group to copy so that the keys and values of accepted draft tokens are contiguous.

    A tree's rows were written in node order; of the accepted nodes, the j-th (from 1) belongs j slots after the root.
    Rotary positions are right already: a draft token was rotated to root + depth.
    """
    source: list[int] = []
    target: list[int] = []
    for each in taken:
        cache = each.piece.sequence.cache
        pages = cache.more_pages[group - 1] if group else cache.newest_pages
        for place, node in enumerate(each.nodes):
            if node != place:
                for slots, index in ((source, each.root + 1 + node), (target, each.root + 1 + place)):
                    slots.append(pages[index // PAGE_SIZE] * PAGE_SIZE + index % PAGE_SIZE)
    return source, target


def replays(taken: Sequence[SliceResult]) -> tuple[list[int], list[Sequence[StateRun]]]:
    """Rows of the batch, accepted draft tokens, by which states have to be moved on, and how, for each sequence."""
    rows: list[int] = []
    runs: list[Sequence[StateRun]] = []
    for each in taken:
        piece = each.piece
        mine = piece.sequence.cache.take_replays()
        if mine:
            rows += (each.first_row + piece.rows + node for node in each.nodes)
            runs.append(mine)
    return rows, runs


def seen(taken: Sequence[SliceResult], hidden: dict[int, Tensor]) -> list[HiddenRows]:
    """The states ``hidden`` [T, hidden_size] of the rows that are part of their requests now."""
    found = []
    for each in taken:
        piece, begin = each.piece, each.first_row
        rows = piece.rows
        if all(node == place for place, node in enumerate(each.nodes)):
            mine: slice | list[int] = slice(begin, begin + rows + len(each.nodes))
        else:
            mine = [*range(begin, begin + rows), *(begin + rows + node for node in each.nodes)]
        found.append(HiddenRows(piece.sequence, each.start, {layer: states[mine] for layer, states in hidden.items()}))
    return found


def run_of(verdict: Verdict, tree: DraftTree, logprobs: Sequence[LogProbs | None]) -> list[TokenInfo]:
    """The tokens of a verdict in order, still without their text; the row that drew node i's token is its parent's."""
    source = cast(Source, tree.proposer)
    drawn = [*((tree.tokens[node], source) for node in verdict.nodes), (verdict.token, verdict.source)]
    run = []
    for row, (token, origin) in zip((-1, *verdict.nodes), drawn, strict=True):
        asked = logprobs[row + 1]
        if asked is None:
            run.append(TokenInfo(id=token, source=origin))
        else:
            run.append(TokenInfo(id=token, source=origin, logprob=asked.chosen, top=asked.top))
    return run


def trees_of(taken: Sequence[SliceResult]) -> tuple[TreeRecord, ...]:
    """Draft trees of a step, with the nodes that became part of the requests; empty ones are left out."""
    return tuple(
        TreeRecord(
            *each.piece.sequence.owner,
            each.tree.proposer,
            each.tree.tokens,
            each.tree.parents,
            tuple(each.nodes),
        )
        for each in taken
        if each.tree.tokens
    )
