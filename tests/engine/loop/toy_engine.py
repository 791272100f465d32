"""An engine over a toy model that reads its context from the pages, so that any error of paging changes the text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.cache.offload.saved import SavedChats
from engine.cache.pool import PAGE_SIZE, PagePool
from engine.cache.types import TREE
from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.sampling.params import SamplingParams, resolve
from engine.compute.sampling.sampler import Draw, new_history, sample
from engine.decoding.speculation.base import Proposer
from engine.decoding.speculation.draft_model.proposer import DraftModelProposer
from engine.decoding.speculation.ngram.proposer import NgramProposer
from engine.loading.model import Drafting, LoadedModel, Reads
from engine.loop.commands import AddRequest
from engine.loop.engine import Engine
from engine.protocol import FinishReason, Fit, ModelCard, Sampling
from engine.text.stream import Piece, StopStrings
from tests.kit.listener import Listener

VOCABULARY = 24
EOS = (22, 23)
LONGEST = 4096

_mask = (1 << 64) - 1
_powers = np.array([pow(0x9E3779B97F4A7C15, i + 1, 1 << 64) for i in range(LONGEST)], dtype=np.uint64)


def toy_logits(tokens: np.ndarray, seed: int, blur: float) -> np.ndarray:
    """Logits [V] after a text: mostly by its last two tokens, partly (``blur``) by every token in its place."""
    tail = int(tokens[-1]) * 31 + (int(tokens[-2]) if len(tokens) > 1 else 7)
    whole = int((tokens.astype(np.uint64) + np.uint64(1)) @ _powers[: len(tokens)]) & _mask
    clear = np.random.Generator(np.random.PCG64(tail)).normal(0.0, 2.0, VOCABULARY)
    cloud = np.random.Generator(np.random.PCG64(whole ^ seed)).normal(0.0, blur, VOCABULARY)
    logits = clear + cloud
    logits[list(EOS)] -= 3.0
    return logits.astype(np.float32)


class ToyRunner:
    """Keeps tokens where a model keeps keys and values, and answers from what it finds there."""

    batch_seconds = 0.0
    graphs, eager = None, ""

    def __init__(self, pages: int, seed: int = 0, blur: float = 0.7) -> None:
        self.arena = np.full(pages * PAGE_SIZE, -1, dtype=np.int64)
        self.seed, self.blur = seed, blur
        self.calls = 0
        self.rows = 0
        self.before_forward: Callable[[], None] = lambda: None

    def runs_out_of_memory(self, when: Sequence[bool]) -> None:
        """In those of the next forwards for which it is True."""
        failures = iter(when)

        def fail() -> None:
            if next(failures, False):
                raise RuntimeError("CUDA out of memory")

        self.before_forward = fail

    def forward(self, rows: Sequence[SequenceRows], tokens_there: torch.Tensor | None = None) -> ForwardOutput:
        self.before_forward()
        self.calls += 1
        logits = []
        if tokens_there is not None:
            known = tokens_there.tolist()
            assert all(len(sequence.tokens) == 1 for sequence in rows)
            rows = [sequence._replace(tokens=[token]) for sequence, token in zip(rows, known, strict=True)]
        for sequence in rows:
            self.rows += len(sequence.tokens)
            stop = sequence.start + len(sequence.tokens)
            assert stop <= len(sequence.pages) * PAGE_SIZE, "rows without pages"
            assert 0 not in sequence.pages, "page 0 belongs to nobody"
            pages = np.array(sequence.pages, dtype=np.int64)
            index = np.arange(stop)
            slots = pages[index // PAGE_SIZE] * PAGE_SIZE + index % PAGE_SIZE
            self.arena[slots[sequence.start :]] = list(sequence.tokens)
            text = self.arena[slots]
            logits.extend(
                toy_logits(text[: row + 1], self.seed, self.blur) for row in range(stop - sequence.want_logits, stop)
            )
        stacked = np.stack(logits) if logits else np.zeros((0, VOCABULARY), dtype=np.float32)
        return ForwardOutput(torch.from_numpy(stacked), {})


class ToyStore:
    """The arena of a toy runner as a store of keys and values."""

    num_groups = written_groups = 1
    states = recent = windowed = None

    def __init__(self, runner: ToyRunner) -> None:
        self._pages = runner.arena.reshape(-1, PAGE_SIZE)

    def new_slots(self) -> None:
        """Nothing is addressed by slots."""

    def copy_page(self, src: int, dst: int) -> None:
        self._pages[dst] = self._pages[src]

    page_bytes = PAGE_SIZE * 8
    page_layout = "toy"
    device = torch.device("cpu")

    def clear_pages(self, pages: Sequence[int]) -> None:
        self._pages[list(pages)] = 0

    def export_pages(self, pages: Sequence[int], out: torch.Tensor | None = None) -> torch.Tensor:
        data = torch.from_numpy(self._pages[list(pages)].view(np.uint8).copy())
        return data if out is None else out.copy_(data)

    def import_pages(self, pages: Sequence[int], data: torch.Tensor) -> None:
        self._pages[list(pages)] = data.numpy().view(np.int64)


class ToyStream:
    """Token 0 is "a", 1 is "b"; stop strings as in the real stream."""

    notice = ""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = StopStrings(stop)

    @property
    def stopped(self) -> bool:
        return self._stop.stopped

    @property
    def held(self) -> int:
        return self._stop.held

    def push(self, token_id: int, stops: bool = True) -> Piece:
        text = letter(token_id)
        return Piece(self._stop.push(text) if stops else text, own=1)

    def flush(self) -> Piece:
        return Piece(self._stop.flush())


def letter(token: int) -> str:
    return chr(ord("a") + token)


@dataclass(frozen=True)
class ToyModel(LoadedModel):
    def open_stream(  # type: ignore[override]
        self,
        stop: Sequence[str],
        continues: bool,
        prompt_ids: Sequence[int],
        prefilled: bool = False,
        tools: object = None,
        written: int = 0,
    ) -> ToyStream:
        return ToyStream(stop)


def toy_model(
    pages: int = 64, limit: int = 256, draft_blur: float = 0.3, runner: ToyRunner | None = None, name: str = "toy"
) -> ToyModel:
    """``pages`` counts page 0. The draft agrees with the model on the clear part of the logits."""
    context = min(limit, (pages - 1) * PAGE_SIZE)
    card = ModelCard(name, name, "Toy", 1, "none", context, VOCABULARY, list(EOS), False, Sampling(), draft="toy draft")
    runner = runner or ToyRunner(pages)
    draft = ToyRunner(pages, seed=1, blur=draft_blur)
    proposers: tuple[Proposer, ...] = (
        NgramProposer(),
        DraftModelProposer(draft, VOCABULARY, EOS, weight_bytes=1, kv_bytes_per_token=1.0),
    )
    return ToyModel(
        card,
        Fit(1, 0, 1, context, 0, 1, 1),
        runner,
        torch.device("cpu"),
        pages,
        limit,
        Reads(weights=1, kv_per_token=1.0),
        stores=(ToyStore(runner), ToyStore(draft)),  # type: ignore[arg-type]
        drafting=Drafting(proposers),
    )


class ToyEngine:
    """An engine with a toy model installed, stepped by hand; the pool is checked after every step."""

    def __init__(
        self,
        model: ToyModel | None = None,
        saved: SavedChats | None = None,
        order: random.Random | None = None,
        **options: bool | int | float | str,
    ) -> None:
        """``saved`` keeps chats; with ``order`` free pages are handed out in a random order.

        Rows and steps are counted here, so nothing is drafted unless ``speculation`` says so.
        """
        self.heard = Listener()
        self.engine = Engine(self.heard, loader=None, saved=saved)
        self.model = model or toy_model()
        self.engine.install(self.model)
        if order is not None:
            shuffle_pool(self.stepper.cache.pool, order)
        for key, value in {"speculation": "off", **options}.items():
            self.engine._options.set(key, value)

    @property
    def stepper(self):
        assert self.engine._stepper is not None
        return self.engine._stepper

    def add(
        self,
        id: str,
        prompt: Sequence[int],
        sampling: Sampling | None = None,
        n: int = 1,
        chat: str = "",
        **optimisations,
    ) -> None:
        self.engine.submit(AddRequest(id, list(prompt), sampling or Sampling(seed=1), n, optimisations, chat=chat))

    def step(self) -> bool:
        worked = self.engine.step()
        self.check()
        return worked

    def check(self) -> None:
        """The books of pages and of the prefix tree agree."""
        self.stepper.cache.check(idle=not self.stepper.requests)

    @property
    def owned(self) -> int:
        """Pages that requests hold for themselves."""
        pool = self.stepper.cache.pool
        return sum(len(pool.owned_by(owner)) for owner in pool.owners() if owner != TREE)

    def drain(self, limit: int = 20_000) -> None:
        for _ in range(limit):
            if not self.step():
                break
        else:
            raise AssertionError("the engine does not come to an end")
        assert self.owned == 0, "pages are still owned after draining"
        assert self.stepper.cache.tree.evictable == self.stepper.cache.tree.pages, "somebody still locks the tree"
        assert not self.stepper.requests
        assert not self.stepper.scheduler.running
        assert not self.stepper.scheduler.waiting


def shuffle_pool(pool: PagePool, order: random.Random) -> None:
    """From now on free pages come in a random order, never one after the other but by chance."""

    def take(wish: int) -> int:
        page = order.choice([page for page, count in enumerate(pool.all_refs()) if page and not count])
        pool._refs[page] = 1
        return page

    pool._take = take  # type: ignore[method-assign]


def sequential(
    prompt: Sequence[int], sampling: Sampling, answer: int = 0, limit: int = 256, runner: ToyRunner | None = None
) -> tuple[list[int], str, FinishReason]:
    """What the engine must generate, by the plainest means: no pages, no batch, no stream."""
    params = resolve(sampling, Sampling())
    blur, seed = (runner.blur, runner.seed) if runner else (0.7, 0)
    tokens = list(prompt)
    history = new_history(params, VOCABULARY, len(prompt), torch.device("cpu"))
    while True:
        logits = torch.from_numpy(toy_logits(np.array(tokens, dtype=np.int64), seed, blur))[None]
        token = sample(logits, [Draw(params, answer, tokens, (), history)])[0]
        tokens.append(token)
        output = tokens[len(prompt) :]
        reason = ended(output, params, limit - len(prompt))
        if reason:
            shown = output[:-1] if token in EOS and not params.ignore_eos else output
            text = "".join(letter(t) for t in shown)
            cuts = [text.find(stop) for stop in params.stop if stop in text]
            return output, text[: min(cuts)] if cuts else text, reason


def ended(output: list[int], params: SamplingParams, room: int) -> FinishReason | None:
    if output[-1] in EOS and not params.ignore_eos:
        return "stop"
    text = "".join(letter(t) for t in output)
    if any(stop in text for stop in params.stop):
        return "stop"
    if params.max_tokens is not None and len(output) >= params.max_tokens:
        return "length"
    return "context" if len(output) >= room else None
