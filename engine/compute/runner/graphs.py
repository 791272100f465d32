"""Captured steps: a step's calls, made once through the model and from then on repeated by one call.

On a GPU they are launches in a CUDA graph, on a processor calls of native code (engine/compute/native/tape.py).
Either repeats its calls with the numbers and addresses of its capture, so nothing that differs between two steps of
one key may come from the host: the model runs over a *frozen* batch (`HostShape.frozen`), whose host shape says the
most that the key allows, and reads lengths, places and pages from the device. Rows that fill up a bucket are sequences
of their own on page 0. What cannot be captured runs eagerly, and :meth:`Graphs.reason` says why.

Sources: CUDA C++ Programming Guide, "CUDA Graphs"; vLLM's and mini-sglang's decode buckets.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.base.errors import is_out_of_memory
from engine.cache.pool import pages_for
from engine.cache.stores.packed import Placement
from engine.cache.stores.store import KVStore
from engine.compute.attention.interface import ModelAttention
from engine.compute.batch import (
    CONTEXT_CLASSES,
    ROW_CLASSES,
    Batch,
    ForwardOutput,
    HostShape,
    SequenceRows,
    context_class,
    row_class,
)
from engine.compute.layers.numerics import Numerics
from engine.compute.runner.buffers import Bucket, StepMemory
from engine.compute.runner.inputs import StepInputs, StepShape, state_runs
from engine.compute.runner.recorders import Captured, Forward, GraphRecorder, first_line

MOST_ROWS = ROW_CLASSES[-1]
MOST_GRAPHS = 48
"""Keys that are captured at once: a long mixed chat meets about half of them. The least recently used one gives way."""
MOST_SEQUENCES = 256
"""Rows of page tables: those of as many answers as may run, so that no step moves the tables."""
EAGER_USES = 2
"""Steps of a key that run eagerly before it is captured in the midst of an answer; in an idle gap one is enough."""

_log = logging.getLogger(__name__)

SWITCHED_OFF = "capturing steps is switched off"
NOT_HERE = "the model is neither on a GPU nor served by Kvasir's native code"
INVARIANT = "batch-invariant arithmetic plans each row on the host"
TOO_MANY_ROWS = "steps of more than {rows} rows are not captured"
CONTINUED = "layers continue from given states"
RESTRICTED = "a policy or the KV cache kind restricts what rows read"
SHARED = "keys that answers share are read once (cascade)"
ADAPTED = "rows of LoRA adapters are grouped on the host"
PICTURES = "places of pictures are planned on the host"
TOO_LONG = "the text is longer than the context that was loaded"
FIRST_USES = "this shape is new: it is captured after a few steps"
NO_MEMORY = "there was no memory to capture graphs"


class ForwardOptions(NamedTuple):
    """Options of a forward besides logits, as in `engine.compute.runner.runner.Runner.forward`."""

    want_hidden: frozenset[int] = frozenset()
    layers: tuple[int, int] | None = None
    skip: frozenset[int] = frozenset()


class GraphKey(NamedTuple):
    """Traits that steps of one graph share: padded sizes, the class of their context, and what is asked for."""

    bucket: Bucket
    decoding: bool
    """Every sequence has one row."""
    context: int
    """No sequence is longer, in tokens."""
    asked: ForwardOptions


class CapturedModel(Protocol):
    """Members of a model that concern its capture (`engine.compute.models.base.CausalLM`)."""

    @property
    def uncaptured(self) -> str:
        """Reason a forward cannot be captured; "" if it can."""

    @property
    def generation(self) -> int:
        """Grows when a captured forward would go on otherwise than a new one."""

    def reserve(self, context: int) -> None:
        """Make what grows with a text large enough for this many tokens, so that those never move it."""


def key_of(exact: Bucket, most_rows: int, longest: int, context: int, asked: ForwardOptions) -> GraphKey:
    """The key of a step of at most :data:`MOST_ROWS` rows, whose sequences have at most ``most_rows`` rows and
    ``longest`` tokens; ``context`` is the longest that was loaded.

    A decoding step is padded with sequences of one row; any other has one sequence for all rows that are missing.
    """
    rows = row_class(exact.T)
    decoding = most_rows == 1
    seqs = rows if decoding else row_class(exact.S) + 1
    return GraphKey(Bucket(rows, seqs, rows, exact.tree), decoding, min(context_class(longest), context), asked)


class Graphs:
    """The captured graphs of one runner: which steps they serve, and when a new one is worth a capture."""

    def __init__(
        self,
        recorder: GraphRecorder,
        inputs: StepInputs,
        model: CapturedModel,
        kv: KVStore,
        attention: ModelAttention,
        context: int,
        switches: Numerics,
        run: Callable[[Batch, ForwardOptions], ForwardOutput],
    ) -> None:
        """``run`` is the model's forward; ``context`` is the longest that was loaded, in tokens."""
        self._switches = switches
        self._recorder, self._inputs, self._model, self._kv = recorder, inputs, model, kv
        self._attention, self._context, self._run = attention, context, run
        self._captured: OrderedDict[GraphKey, Captured] = OrderedDict()
        self._bytes = 0
        """Memory of the host that these hold."""
        self._uses: Counter[GraphKey] = Counter()
        self._refused: dict[GraphKey, str] = {}
        self._no_memory = False
        if recorder.traits.warms:
            model.reserve(context)
        inputs.tables.reserve(MOST_SEQUENCES, pages_for(context))
        self._every_row = torch.arange(MOST_ROWS, device=inputs.tables.device.device)
        self._generation = self._places()

    def __len__(self) -> int:
        return len(self._captured)

    def key(
        self, rows: Sequence[SequenceRows], shape: StepShape, asked: ForwardOptions, hidden_in: Tensor | None = None
    ) -> tuple[GraphKey | None, str]:
        """The key of a step whose launches may be captured, or the reason why they may not."""
        reason = self.declines(rows, shape, hidden_in)
        if reason:
            return None, reason
        most = max(len(row.tokens) for row in rows)
        return key_of(shape.sizes, most, max(shape.kv_len), self._context, asked), ""

    @property
    def late(self) -> str:
        """Reason the last step that was captured has no early launches; "": it has, or none were asked for."""
        return self._recorder.late

    @property
    def too_many(self) -> str:
        """Reason a step is not captured that has more rows than are worth it."""
        return TOO_MANY_ROWS.format(rows=self._recorder.traits.most_rows)

    def declines(self, rows: Sequence[SequenceRows], shape: StepShape, hidden_in: Tensor | None = None) -> str:
        """Reason a step cannot be captured, whatever its key; "" if it may."""
        if reason := self._switched_off():
            return reason
        if hidden_in is not None:
            return CONTINUED
        if self._recorder.traits.most_rows < shape.sizes.T:
            return self.too_many
        if any(row.adapter for row in rows):
            return ADAPTED
        if any(row.axes is not None or row.embedded for row in rows):
            return PICTURES
        if max(shape.kv_len) > self._context:
            return TOO_LONG
        if self._kv.residual or self._kv.ranks_pages or any(_restricted(row) for row in rows):
            return RESTRICTED
        if len(rows) > 1 and self._attention.shares_keys(_host_shape(rows, shape)):
            return SHARED
        return ""

    def _switched_off(self) -> str:
        if not self._switches.graphs:
            return SWITCHED_OFF
        return INVARIANT if self._switches.batch_invariant else ""

    def reason(self, key: GraphKey) -> str:
        """Reason a step of this key, for which there is no graph, runs eagerly."""
        if self._no_memory:
            return NO_MEMORY
        return self._refused.get(key, FIRST_USES)

    def prepare(
        self, key: GraphKey, rows: Sequence[SequenceRows], tokens_there: Tensor | None = None
    ) -> StepMemory | None:
        """Fill the memory of the key's graph with a step; None where there is no graph, nor one due to be captured."""
        if key not in self._captured and not self._due(key, EAGER_USES):
            self._attention.uncaptured = self._model.uncaptured
            return None
        memory = self._fill(key, rows, tokens_there)
        self._forget_moved()  # by this step's own tables too
        if key in self._captured:
            return memory
        if not any(_in_place(row) for row in rows):
            return memory if self._capture(key) else None
        # What a capture moves, the step would move again.
        self._fill(key, ())
        return self._fill(key, rows, tokens_there) if self._capture(key) else None

    def replay(self, key: GraphKey, rows: Sequence[SequenceRows], memory: StepMemory) -> ForwardOutput:
        """The results of the step that :meth:`prepare` filled in."""
        self._captured.move_to_end(key)
        captured = self._captured[key]
        captured.replay()
        logits, hidden = captured.out
        total, wanted = sum(len(row.tokens) for row in rows), sum(row.want_logits for row in rows)
        with torch.inference_mode():
            # (What the graph wrote is written again by its next use.)
            if logits.shape[0]:
                logits = logits.index_select(0, memory.device.want_logits[:wanted])
            return ForwardOutput(logits, {layer: states[:total].clone() for layer, states in hidden.items()})

    def ran_eagerly(self, key: GraphKey) -> None:
        """Note a step of this key, and whether what served it can be captured."""
        if self._attention.uncaptured:
            self._refused[key] = self._attention.uncaptured
        self._uses[key] += 1

    def capture_one(self) -> bool:
        """Capture one graph of those that steps asked for, while there is nothing else to do; whether there was one."""
        if self._switched_off() or len(self) >= MOST_GRAPHS:
            return False
        key = next((key for key, _ in self._uses.most_common() if self._due(key, 1)), None)
        if key is None:
            return False
        self._fill(key, ())
        self._forget_moved()
        self._capture(key)
        return True

    def give_up(self) -> bool:
        """Free the memory of all graphs, because there is none left for a step; whether there were any."""
        had, self._no_memory = bool(self._captured), True
        self._forget_all()
        return had

    def _due(self, key: GraphKey, uses: int) -> bool:
        """Return True if the key is to be captured, as it was met at least ``uses`` times."""
        if self._no_memory or key in self._captured or key in self._refused:
            return False
        return self._uses[key] >= uses

    def _capture(self, key: GraphKey) -> bool:
        """Capture the key; False if that failed: :meth:`reason` knows why. No graph is left where memory ran out."""
        try:
            captured = self._captured[key] = self._recorder.capture(lambda: self._forward(key))
            self._bytes += captured.bytes
            most = self._recorder.traits.most_bytes
            while len(self) > MOST_GRAPHS or (most is not None and len(self) > 1 and self._bytes > most):
                gone, old = self._captured.popitem(last=False)
                self._bytes -= old.bytes
                self._uses[gone] = 0  # it has to be met again to come back
        except Exception as error:
            if is_out_of_memory(error):
                self.give_up()
                _log.warning("no memory for captured steps: they go through the model one by one")
            else:
                self._refused[key] = f"it could not be captured ({first_line(error)})"
                _log.warning("a step could not be captured", exc_info=error)
            return False
        return True

    def _forward(self, key: GraphKey) -> Forward:
        """The forward of the key over a batch of its own, which may wait for a transfer as it is made: no capture
        could."""
        frozen = self._frozen(key)
        return lambda: self._run(frozen, key.asked)

    def _forget_moved(self) -> None:
        """Forget all graphs where the memory that they read moved, or they are to be captured in another way."""
        if self._generation != self._places():
            self._generation = self._places()
            self._forget_all()

    def _forget_all(self) -> None:
        self._captured.clear()
        self._bytes = 0

    def _places(self) -> tuple[int, ...]:
        """Other numbers say that memory moved, or that graphs are to be captured in another way."""
        return *self._inputs.generation, self._model.generation, *self._recorder.settings

    def _fill(self, key: GraphKey, rows: Sequence[SequenceRows], tokens_there: Tensor | None = None) -> StepMemory:
        """Fill the memory of the key with a step, and with sequences on page 0 for the rows that are missing."""
        if not self._recorder.traits.warms:
            self._model.reserve(key.context)
        size = key.bucket
        left = size.T - sum(len(row.tokens) for row in rows)
        # Decoding: a row each. Else the last sequence has them all, and those before it none.
        padding = [1] * left if key.decoding else [0] * (size.S - len(rows) - 1) + [left]
        more = ((0,),) * (self._inputs.groups - 1)
        rows = [*rows, *(SequenceRows(range(count), 0, (0,), more_pages=more) for count in padding)]
        memory = self._inputs.buffers.take(size, padded=True)
        ends = list(accumulate((len(row.tokens) for row in rows), initial=0))
        shape = StepShape(size, ends, [row.start + len(row.tokens) for row in rows])
        self._inputs.fill(rows, memory, shape, tokens_there)
        if self._kv.states is not None:
            self._inputs.frozen_runs(size).fill(state_runs(rows, shape.row_start), shape.row_start)
        return memory

    def _frozen(self, key: GraphKey) -> Batch:
        """The batch that is captured: the memory that steps of the key fill, and the most that they may be."""
        size, device = key.bucket, self._inputs.buffers.take(key.bucket, padded=True).device
        return Batch(
            tokens=device.tokens,
            positions=device.positions,
            placement=Placement(device.slots, [-1] * self._inputs.groups),
            row_start=device.row_start,
            kv_len=device.kv_len,
            page_table=self._inputs.tables.device[:, : size.S],
            ancestors=device.ancestors if size.tree else None,
            want_logits=self._every_row[: size.T],
            want_hidden=key.asked.want_hidden,
            states=None if self._kv.states is None else self._inputs.frozen_runs(size),
            host=HostShape(
                T=size.T,
                S=size.S,
                L=size.L,
                row_start=(),
                kv_len=(),
                pages=(),
                first_page=(),
                max_rows=1 if key.decoding else size.T,
                max_kv=key.context,
                frozen=True,
            ),
        )


def _in_place(row: SequenceRows) -> bool:
    """Return True if the sequence's state is written where it is read."""
    return any(run.target and run.source == run.target for run in row.states)


def _restricted(row: SequenceRows) -> bool:
    return row.policy is not None and row.policy.restricts(row.start + len(row.tokens))


def _host_shape(rows: Sequence[SequenceRows], shape: StepShape) -> HostShape:
    """Host shape of a step, as much of it as says which keys are shared."""
    size = shape.sizes
    return HostShape(
        T=size.T,
        S=size.S,
        L=size.L,
        row_start=shape.row_start,
        kv_len=shape.kv_len,
        pages=[[row.pages for row in rows]],
        first_page=(),
        max_rows=0,
        max_kv=max(shape.kv_len),
    )


def classes_of(context: int) -> list[int]:
    """The classes of context that a model of this context has."""
    return sorted({min(limit, context) for limit in (*CONTEXT_CLASSES, context)})
