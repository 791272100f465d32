"""A draft model: a proposer with keys and values of its own for the whole text."""

from __future__ import annotations

import pytest
import torch

from engine.attention.registry import AttentionDispatcher
from engine.models.arenas import new_store
from engine.runner.runner import Runner
from engine.speculation.proposers.draft_model import DraftModelProposer
from tests.contracts.proposer import Make, ProposerContract
from tests.engine.speculation.decoding import PAGES, Decoding
from tests.engine.speculation.target_support import EOS, SMALL, small_model
from tests.kit.models import VOCABULARY


class TestDraftModel(ProposerContract):
    """Its layers say less than the target's, so that most drafts hold and not all."""

    eos, holds = EOS, False

    @pytest.fixture
    def make(self) -> Make:
        def drafter(host: Decoding) -> DraftModelProposer:
            draft, store = small_model(quiet=0.2), new_store(SMALL, PAGES, torch.float32)
            host.stores.append(store)
            runner = host.recorded(Runner(draft, store, AttentionDispatcher(draft.numerics)))
            return DraftModelProposer(runner, VOCABULARY, {EOS}, 1, 1.0)

        return lambda: Decoding(small_model(), drafter)
