"""The one path by which the model runs: rows of sequences in, logits of the wanted rows out."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import Placement
from engine.cache.stores.states import StateRuns
from engine.cache.stores.store import KVStore
from engine.cache.stores.transfer import on_device
from engine.cache.types import StateRun
from engine.compute.attention.interface import ModelAttention
from engine.compute.batch import Ahead, Batch, ForwardOutput, HostShape, RowViews, SequenceRows
from engine.compute.layers.interface import Norm
from engine.compute.layers.numerics import Numerics
from engine.compute.runner.buffers import BucketPolicy, StepMemory
from engine.compute.runner.graphs import NOT_HERE, CapturedModel, ForwardOptions, Graphs
from engine.compute.runner.inputs import StepInputs, StepShape, adapter_rows, runs_of, shape_of, state_runs
from engine.compute.runner.recorders import GraphRecorder


class RunnableModel(CapturedModel, Protocol):
    """Members of a model that the runner needs (`CausalLM`); what concerns capture only with a recorder."""

    num_groups: int
    norm: Norm
    """The final norm."""

    @property
    def num_layers(self) -> int: ...

    def forward(self, batch: Batch, kv: KVStore, attention: ModelAttention, **options: Any) -> ForwardOutput:
        """Run the model over the batch; the options are `layers`, `hidden_in` and `skip` of `Runner.forward`."""

    def replay(self, kv: KVStore, rows: Tensor, runs: StateRuns) -> None:
        """Move states on by rows of the last step; only of a model that has states."""

    def logits(self, x: Tensor, rows: Tensor) -> Tensor:
        """The final norm and the head over the wanted `rows` [L] of `x` [T, hidden] -> [L, V]."""


class Runner:
    """Runs one model over its own arenas. Not thread-safe: the step loop owns it."""

    def __init__(
        self,
        model: RunnableModel,
        kv: KVStore,
        attention: ModelAttention,
        device: torch.device | str = "cpu",
        policy: BucketPolicy | None = None,
        context: int = 0,
        recorder: GraphRecorder | None = None,
        switches: Numerics | None = None,
    ) -> None:
        """`policy` rounds shapes to buckets; None takes the device's own. `context` is the length of the longest
        sequence, in tokens, where that is known; with it, a `recorder` captures steps while the
        `switches` say so."""
        self.model, self.kv, self.attention = model, kv, attention
        self.batch_seconds = 0.0  # host time that building the last batch took
        self.eager = NOT_HERE
        """Reason the last step went through the model; "": it was a captured one."""
        self._device = torch.device(device)
        self._inputs = StepInputs(max(model.num_groups, kv.num_groups), self._device, policy, context)
        self.graphs: Graphs | None = None
        if recorder is not None:
            # (A circle would outlive the model: what a load makes is kept out of the garbage collector.)
            own = weakref.ref(self)

            def run(batch: Batch, asked: ForwardOptions) -> ForwardOutput:
                runner = own()
                assert runner is not None, "it is this runner's forward that captures"
                return runner._run(batch, asked)

            self.graphs = Graphs(recorder, self._inputs, model, kv, attention, context, switches or Numerics(), run)

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return self.model.num_layers

    def forward(
        self,
        rows: Sequence[SequenceRows],
        *,
        layers: tuple[int, int] | None = None,
        hidden_in: Tensor | None = None,
        want_hidden: frozenset[int] = frozenset(),
        skip: frozenset[int] = frozenset(),
        tokens_there: Tensor | None = None,
    ) -> ForwardOutput:
        """Run the rows; logits [L, V] in the order of the sequences, each sequence's last `want_logits` rows in turn.

        `layers` = (start, stop) runs part of the model; `hidden_in` [T, hidden] replaces the embedding when start >
        0. `want_hidden` names layers whose input is returned, [T, hidden] each. The layers in `skip` do nothing.
        `tokens_there` [n] int64 are the tokens of the first n rows, on the device, where the host does not know them
        yet. Raises
        ValueError for rows that their pages do not cover, for a sequence without rows and for a tree that is no tree.
        """
        began = time.perf_counter()
        shape = shape_of(rows, self._inputs.groups)
        asked = ForwardOptions(want_hidden, layers, skip)
        key = None
        if self.graphs is not None:
            key, self.eager = self.graphs.key(rows, shape, asked, hidden_in)
            memory = None if key is None else self.graphs.prepare(key, rows, tokens_there)
            if key is not None and memory is not None:
                self.batch_seconds = time.perf_counter() - began
                return self.graphs.replay(key, rows, memory)
            if key is not None:
                self.eager = self.graphs.reason(key)
        batch = self.batch(rows, want_hidden, shape, tokens_there)
        self.batch_seconds = time.perf_counter() - began
        out = self._run(batch, asked, hidden_in)
        if self.graphs is not None and key is not None:
            self.graphs.ran_eagerly(key)
        return _without_padding(out, batch.host.T, batch.host.L)

    def run_eagerly(self, rows: Sequence[SequenceRows]) -> ForwardOutput:
        """Same as :meth:`forward`, through the model."""
        return self._run(self.batch(rows), ForwardOptions())

    def _run(self, batch: Batch, asked: ForwardOptions, hidden_in: Tensor | None = None) -> ForwardOutput:
        options: dict[str, Any] = {} if asked.layers is None else {"layers": asked.layers}
        if hidden_in is not None:
            padding = batch.tokens.shape[0] - hidden_in.shape[0]
            options["hidden_in"] = torch.nn.functional.pad(hidden_in, (0, 0, 0, padding)) if padding else hidden_in
        if asked.skip:
            options["skip"] = asked.skip
        with torch.inference_mode():
            return self.model.forward(batch, self.kv, self.attention, **options)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [N, V] of streams [N, hidden] that left the model after any layer: final norm and head."""
        with torch.inference_mode():
            return self.model.logits(hidden, torch.arange(hidden.shape[0], device=hidden.device))

    def normed(self, hidden: Tensor) -> Tensor:
        """The final norm of streams [N, hidden] that left the last layer."""
        with torch.inference_mode():
            return self.model.norm.forward(hidden)

    def replay(self, rows: Sequence[int], runs: Sequence[Sequence[StateRun]]) -> None:
        """Move the states of sequences on by ``rows`` of the last step, draft tokens that were accepted since; the
        ``runs`` of each sequence cover them in order."""
        places = on_device(self._device, np.array(rows, dtype=np.int64))
        with torch.inference_mode():
            self.model.replay(self.kv, places, runs_of(runs))

    def batch(
        self,
        rows: Sequence[SequenceRows],
        want_hidden: frozenset[int] = frozenset(),
        shape: StepShape | None = None,
        tokens_there: Tensor | None = None,
    ) -> Batch:
        """The batch of these rows, in static memory: valid until the next one is built."""
        shape = shape or shape_of(rows, self._inputs.groups)
        memory = self._inputs.buffers.take(shape.sizes)
        filled = self._inputs.fill(rows, memory, shape, tokens_there)
        counts = [len(row.tokens) for row in rows]
        packs = self.kv.packs([row.start for row in rows], counts, filled.tables)
        tree = shape.sizes.tree
        host = HostShape(
            T=shape.sizes.T,
            S=shape.sizes.S,
            L=shape.sizes.L,
            row_start=shape.row_start,
            kv_len=shape.kv_len,
            pages=filled.tables,
            first_page=[
                [pages[0] if run >= n else -1 for pages, run, n in zip(table, run_of, shape.kv_len, strict=True)]
                for table, run_of in zip(filled.tables, filled.runs, strict=True)
            ],
            max_rows=max(counts),
            max_kv=max(shape.kv_len),
            trees=[row.parents is not None for row in rows] if tree else (),
        )
        return Batch(
            tokens=memory.device.tokens,
            positions=memory.device.positions,
            placement=Placement(memory.device.slots, filled.first_slot, packs, self._written(memory)),
            row_start=memory.device.row_start,
            kv_len=memory.device.kv_len,
            page_table=self._inputs.tables.device[:, : memory.bucket.S],
            ancestors=memory.device.ancestors if tree else None,
            want_logits=memory.device.want_logits,
            want_hidden=want_hidden,
            host=host,
            views=self._views(rows, filled.positions, memory.device.tokens),
            states=None if self.kv.states is None else state_runs(rows, shape.row_start),
            adapters=adapter_rows(rows, shape.row_start, self._device),
            axes=self._axes(rows, filled.positions, memory.device.tokens),
            embedded=tuple(
                mine._replace(first=start + mine.first)
                for row, start in zip(rows, shape.row_start, strict=False)
                for mine in row.embedded
            ),
            types=self._types(rows, shape.row_start, memory.device.tokens),
        )

    def _axes(self, rows: Sequence[SequenceRows], positions: Sequence[int], like: Tensor) -> Tensor | None:
        """Positions [3, T] that the rotary embedding sees; None if no sequence has pictures. `like` [T] is padded."""
        if all(row.axes is None for row in rows):
            return None
        at = np.zeros((3, like.shape[0]), dtype=np.int64)
        at[:, : len(positions)] = positions
        end = 0
        for row in rows:
            mine, end = slice(end, end + len(row.tokens)), end + len(row.tokens)
            if row.axes is not None:
                at[:, mine] = row.axes.axes(at[0, mine])
        return on_device(like.device, at)

    def _types(self, rows: Sequence[SequenceRows], row_start: Sequence[int], like: Tensor) -> Tensor | None:
        """Value of `Batch.types`. `like` [T] is padded."""
        if not any(row.second for row in rows):
            return None
        types = np.zeros(like.shape[0], dtype=np.int64)
        for row, start in zip(rows, row_start, strict=False):
            if row.second:
                types[start + row.second : start + len(row.tokens)] = 1
        return on_device(like.device, types)

    def _written(self, memory: StepMemory) -> Tensor | None:
        """The pages that the rows write, for a store that looks at them."""
        if not self.kv.ranks_pages:
            return None
        return on_device(self._device, np.unique(memory.host.slots[0] // PAGE_SIZE))

    def _views(self, rows: Sequence[SequenceRows], positions: Sequence[int], like: Tensor) -> RowViews | None:
        """Limits of policies, store and pictures on the keys of rows; None where there are none. `like` [T] is padded.

        Raises ValueError where rows choose pages and the store cannot rank them.
        """
        index = np.array(positions, dtype=np.int64)
        packed, until, ahead = self.kv.packed_until(index), *_seen_ahead(rows, index)
        if not any(row.policy is not None and row.policy.restricts(row.start + len(row.tokens)) for row in rows):
            free = packed is None and until is None
            near = index if any(row.whole for row in rows) else None
            return None if free else RowViews(packed_until=packed, until=until, ahead=ahead, places=near)
        first, sinks, chosen = np.zeros_like(index), np.zeros_like(index), np.zeros_like(index)
        at = np.zeros(like.shape[0], dtype=np.int64)
        end = 0
        for row in rows:
            mine, end = slice(end, end + len(row.tokens)), end + len(row.tokens)
            if row.policy is not None:
                first[mine], sinks[mine], at[mine] = row.policy.sights(index[mine])
                pages = row.policy.chosen(index[mine])
                chosen[mine] = 0 if pages is None else pages
        if chosen.any() and not self.kv.ranks_pages:
            raise ValueError("Rows choose pages by bounds of their keys, and this KV cache keeps none.")
        return RowViews(
            first if first.any() else None,
            sinks if sinks.any() else None,
            on_device(like.device, at) if sinks.any() else None,
            packed_until=packed,
            sparse=chosen if chosen.any() else None,
            until=until,
            ahead=ahead,
        )


def _seen_ahead(rows: Sequence[SequenceRows], index: np.ndarray) -> tuple[np.ndarray | None, Ahead]:
    """`RowViews.until` and `RowViews.ahead`; ``index [T]`` are the places of the rows in their sequences."""
    if any(row.whole for row in rows):
        return np.concatenate([np.full(len(row.tokens), row.start + len(row.tokens), np.int64) for row in rows]), "all"
    ahead: Ahead = next((each.ahead for row in rows for each in row.embedded), "none")
    if ahead == "none":
        return None, ahead
    until, start = index + 1, 0
    for row in rows:
        for first, vectors, _ in row.embedded:
            stop = first + len(vectors)
            until[start + first : start + stop] = row.start + stop
        start += len(row.tokens)
    return until, ahead


def _without_padding(out: ForwardOutput, rows: int, wanted: int) -> ForwardOutput:
    logits = out.logits[:wanted] if out.logits.shape[0] > wanted else out.logits
    return ForwardOutput(logits, {layer: hidden[:rows] for layer, hidden in out.hidden.items()})
