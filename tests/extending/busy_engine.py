"""An engine in which everything happens at once: chunks, prefix hits, preemption, draft tokens. Texts stay the same."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.loading.model import LoadModel
from engine.loop.commands import AddRequest
from engine.loop.engine import Engine
from engine.protocol import LoadOptions, Sampling, Set, Value
from tests.kit.checkpoints import write_small
from tests.kit.listener import Listener

COMMON = [3, 1, 4, 1, 5, 9, 2, 6] * 5
PROMPTS = [[*COMMON, *range(last, last + 12)] for last in range(1, 7)]
"""Forty tokens alike, and others after them."""
PAGES = 12


def write_model(folder: Path) -> Path:
    """A random Llama of two layers."""
    return write_small(folder, num_hidden_layers=2)


class Served:
    """The model of a folder with some switches set, in an engine of its own, stepped by hand."""

    def __init__(self, folder: Path, switches: dict[str, Value], pages: int = 0, **load: str) -> None:
        """``pages`` limits the pages of its cache."""
        torch.set_num_threads(1)
        self.heard = Listener()
        self.engine = Engine(self.heard, device="cpu")
        for key, value in {"batch_invariant": True, **switches}.items():
            self.engine.submit(Set(key=key, value=value))
        memory = 300e6
        for _ in range(2 if pages else 1):
            settings = LoadOptions(device="cpu", dtype="float32", memory=memory, **load)
            self.engine.submit(LoadModel(str(folder), "", settings))
            self.run()
            model = self.engine.loaded
            assert model is not None, self.heard.errors
            memory = model.fit.weights + model.fit.activations + int(pages * 16 * model.reads.kv_per_token)
        assert not self.heard.errors

    def run(self) -> None:
        while self.engine.step():
            pass

    def shown(self, key: str) -> list[Value]:
        """The values of a switch that the catalogue offers."""
        return list(next(spec.titles for spec in self.engine.catalogue_state() if spec.key == key))

    def ask(self, number: int, overrides: dict[str, Value]) -> None:
        sampling = Sampling(temperature=0.0, max_tokens=60, ignore_eos=True)
        self.engine.submit(AddRequest(f"r{number}", PROMPTS[number], sampling, 1, overrides))

    def text(self, number: int) -> list[int]:
        return self.heard.answers[f"r{number}", 0].tokens


def check(
    folder: Path,
    switches: dict[str, Value],
    overrides: dict[str, Value] | None = None,
    speculation: str = "ngram",
    shares: bool = True,
    **load: str,
) -> Served:
    """Prove that the texts of a busy engine are those of one that serves request after request, and that it was busy.

    ``switches`` hold for the engine, ``overrides`` for each request. Returns the busy engine.
    """
    alone = Served(folder, switches, **load)
    for number in range(len(PROMPTS)):
        alone.ask(number, {"prefix_cache": False, **(overrides or {}), "speculation": "off"})
        alone.run()
    busy = Served(folder, {"token_budget": 48, **switches}, PAGES, **load)
    chosen: dict[str, Value] = {**(overrides or {}), "speculation": speculation, "draft_length": 3}
    busy.ask(0, chosen)
    for _ in range(12):
        busy.engine.step()
    for number in range(1, len(PROMPTS)):
        busy.ask(number, chosen)
    busy.run()
    assert not busy.heard.errors, busy.heard.errors
    for number in range(len(PROMPTS)):
        assert busy.text(number) == alone.text(number), number
    finished = [busy.heard.answers[f"r{number}", 0].finished for number in range(len(PROMPTS))]
    usages = [each.usage for each in finished if each is not None]
    assert len(usages) == len(PROMPTS)
    assert any(usage.cached_tokens for usage in usages) is shares, "prefix hits"
    assert sum(step.preemptions for step in busy.heard.steps) > 0
    assert any(step.rows.prefill and step.rows.decode for step in busy.heard.steps), "chunks beside decoding"
    drafts = [draft for step in busy.heard.steps for draft in step.drafts]
    assert sum(draft.draft_tokens for draft in drafts if draft.proposer == speculation) > 0
    return busy
