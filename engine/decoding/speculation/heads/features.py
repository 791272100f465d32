"""Heads that run over arenas: their runner, and the kinds of those that go on from their own states."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from engine.cache.stores.store import KVStore
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import FIRST_ROW
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.assistant import Assistant
from engine.compute.models.heads.base import FeatureHead
from engine.compute.runner.runner import RunnableModel, Runner
from engine.decoding.speculation.heads.kind import AttachedHead, HeadFiles, HeadKind, HeadTarget
from engine.decoding.speculation.proposers.features import FeatureProposer


def tried(head: FeatureHead | Assistant, arena: KVStore, target: HeadTarget) -> Runner:
    """Runner of a head over these arenas, after a first pass."""
    runner = Runner(cast(RunnableModel, head), arena, AttentionDispatcher(head.numerics), target.model.device)
    first = FIRST_ROW._replace(more_pages=[[1]] * (arena.num_groups - 1))
    runner.forward([first], hidden_in=target.no_state())
    return runner


class FeatureHeads(HeadKind):
    """Base of kinds of one head that goes on from its own states, with arenas of its own."""

    goes_on = True

    def sizes(self, files: HeadFiles, planned: Callable[[], CausalLM]) -> tuple[int, float]:
        head: FeatureHead = self.read(files, planned())
        return head.storage_size(), head.kv_bytes_per_token()

    def attach(self, head: FeatureHead, target: HeadTarget) -> AttachedHead:
        arena = head.new_store(target.pages)
        return AttachedHead(FeatureProposer(head, tried(head, arena, target), target.eos_ids), arena)
