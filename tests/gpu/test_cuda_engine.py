"""The whole engine on a GPU with the bundled model. Skipped where there is no GPU, or no bundled model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.models.arenas import new_store
from engine.compute.runner.runner import Runner
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.loading.memory.owners import memory_by_owner
from engine.protocol import ChatMessage, LoadOptions, Sampling
from engine.services.client import Answer, EngineClient, EngineError
from tests.gpu.gpu_support import CPU, DEVICE, NO_GPU, relative

BUNDLED = Path(__file__).parents[2] / "assets" / "demo" / "kvasir-guide"
DRAFT = BUNDLED.with_name("kvasir-guide-draft")
ON_GPU = DEVICE.type == "cuda"
if ON_GPU and not torch.cuda.is_available():
    pytest.skip(NO_GPU, allow_module_level=True)
if not (BUNDLED / "model.safetensors").is_file():
    pytest.skip("the bundled model is not built yet", allow_module_level=True)
QUESTIONS = [
    "What is a page?",
    "Why is decoding bound by memory?",
    "What does the draft model do?",
    "Hello!",
    "What is a KV cache and why does it exist?",
]
GREEDY = Sampling(temperature=0.0, max_tokens=40, ignore_eos=True, seed=1)
SAMPLED = Sampling(temperature=1.0, max_tokens=40, ignore_eos=True, seed=7)
WARPED = Sampling(temperature=0.8, top_p=0.9, top_k=40, repetition_penalty=1.1, max_tokens=40, ignore_eos=True, seed=9)


class Loaded:
    """An engine with the bundled model and its draft on the device."""

    def __init__(self, dtype: str, invariant: bool) -> None:
        self.client = EngineClient()
        options = LoadOptions(device=DEVICE.type, dtype=dtype, memory=2e9)  # type: ignore[arg-type]
        self.card, self.fit = self.client.load(str(BUNDLED), str(DRAFT), options)
        self.client.set("batch_invariant", invariant)
        model = self.client.engine.loaded
        assert model is not None
        assert model.device.type == DEVICE.type
        self.model = model
        self.prompts = [model.encode_prompt([ChatMessage.of("user", text)]) for text in QUESTIONS]

    def answers(self, sampling: Sampling, together: bool = False, **optimisations: str | int | bool) -> list[list[int]]:
        if together:
            return [answer.ids for answer in self.client.together(self.prompts, sampling, optimisations)]
        return [self.answer(prompt, sampling, **optimisations).ids for prompt in self.prompts]

    def answer(self, prompt: list[int], sampling: Sampling, **optimisations: str | int | bool) -> Answer:
        return self.client.answer(prompt, sampling, optimisations)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def exact(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """Batch-invariant arithmetic, in which equality holds to the token."""
    loaded = Loaded(request.param, True)
    yield loaded
    loaded.client.close()


@pytest.mark.parametrize(
    ("dtype", "weights", "share"),
    [
        (torch.float32, "4bit", 1e-4),
        (torch.float32, "16bit", 1e-4),
        (torch.bfloat16, "4bit", 0.05),
        (torch.bfloat16, "16bit", 0.05),
        (torch.float16, "4bit", 0.02),
    ],
)
def test_logits_are_the_cpus(dtype: torch.dtype, weights: str, share: float) -> None:
    checkpoint = open_checkpoint(BUNDLED)
    found = []
    for device, kind, packing in ((CPU, torch.float32, "4bit"), (DEVICE, dtype, weights)):
        model = load_model(checkpoint, device, kind, packing)  # type: ignore[arg-type]
        config = model.config
        kv = new_store(config, 20, kind, device)
        runner = Runner(model, kv, AttentionDispatcher(model.numerics), device)
        tokens = [(37 * i + i * i) % config.vocab_size for i in range(200)]
        steps = [(0, 100), (100, 160), *((at, at + 1) for at in range(160, 200))]
        logits = [
            runner.forward([SequenceRows(tokens[start:stop], start, list(range(1, 14)), stop - start)]).logits.clone()
            for start, stop in steps
        ]
        found.append(torch.cat(logits))
    assert relative(found[1], found[0]) < share


def test_greedy_answers_are_the_cpus_own_choice_or_a_near_tie() -> None:
    """Each token of the GPU's answer is the CPU's likeliest after the same text, within float32's error."""
    loaded = Loaded("float32", False)
    try:
        answers = loaded.answers(GREEDY)
    finally:
        loaded.client.close()
    model = load_model(open_checkpoint(BUNDLED), CPU, torch.float32)
    config = model.config
    for prompt, answer in zip(loaded.prompts, answers, strict=True):
        kv = new_store(config, 40, torch.float32)
        runner = Runner(model, kv, AttentionDispatcher())
        text = [*prompt, *answer]
        rows = SequenceRows(text, 0, list(range(1, 40)), len(answer) + 1)
        logits = runner.forward([rows]).logits[:-1]
        gaps = logits.amax(-1) - logits.gather(1, torch.tensor(answer)[:, None]).squeeze(1)
        assert float(gaps.max()) < 1e-3 * float(logits.abs().max())


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, WARPED], ids=["greedy", "sampled", "warped"])
def test_together_is_as_alone(exact: Loaded, sampling: Sampling) -> None:
    alone = exact.answers(sampling)
    assert exact.answers(sampling, together=True) == alone
    assert len({tuple(answer) for answer in alone}) > 1, "equal answers would say nothing"


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, WARPED], ids=["greedy", "sampled", "warped"])
@pytest.mark.parametrize("method", ["draft", "ngram"])
def test_speculation_changes_nothing(exact: Loaded, method: str, sampling: Sampling) -> None:
    plain = exact.answers(sampling)
    for together in (False, True):
        assert exact.answers(sampling, together, speculation=method, draft_length=4) == plain
    assert exact.answers(sampling, speculation=method, draft_length=0) == plain


def test_draft_tokens_hold(exact: Loaded) -> None:
    """Otherwise the equalities above would say little."""
    timings = exact.answer(exact.prompts[0], GREEDY, speculation="draft", draft_length=4).timings
    assert timings.accepted > 0
    assert timings.tokens_per_step > 1


def test_switches_that_are_lossless_change_nothing(exact: Loaded) -> None:
    plain = exact.answers(GREEDY)
    assert exact.answers(GREEDY, kv_cache=False) == plain
    for key, value in (("token_budget", 16), ("page_reservation", "whole_context"), ("chunked_prefill", False)):
        before = {spec.key: spec.value for spec in exact.client.engine.catalogue_state()}[key]
        exact.client.set(key, value)
        assert exact.answers(GREEDY, together=True) == plain
        exact.client.set(key, before)


def test_fast_mode_answers_and_uses_the_int4_kernel() -> None:
    loaded = Loaded("auto", False)
    try:
        assert all(len(answer) == 40 for answer in loaded.answers(SAMPLED, together=True))
        assert loaded.model.model is not None
        paths = {linear.path for name, linear in loaded.model.model.linears() if name != "head"}
        if ON_GPU and torch.cuda.get_device_capability(DEVICE) >= (8, 0):
            assert paths == {"Triton kernel"}
            assert not loaded.card.notices
        loaded.client.set("weights", "16bit")
        assert all(len(answer) == 40 for answer in loaded.answers(SAMPLED, together=True))
    finally:
        loaded.client.close()


def test_memory_belongs_to_someone() -> None:
    before = torch.cuda.memory_allocated(DEVICE) if ON_GPU else 0
    loaded = Loaded("auto", False)
    try:
        fit = loaded.fit
        owners = memory_by_owner(DEVICE, fit.weights + fit.draft_weights, 0, fit.kv)
        parts = owners.weights + owners.kv_used + owners.kv_reserved + owners.other_kvasir + owners.other_programs
        assert parts <= owners.total
        if ON_GPU:
            assert torch.cuda.memory_allocated(DEVICE) - before >= fit.weights + fit.draft_weights + fit.kv
            assert owners.other_kvasir < 4e9
        assert loaded.model.model is not None
        weights = weakref.ref(loaded.model.model)
        del loaded.model
    finally:
        loaded.client.close()
    gc.collect()
    assert weights() is None, "an engine that has ended holds no model"


def test_a_model_that_does_not_fit_is_refused_in_a_sentence() -> None:
    with EngineClient() as client, pytest.raises(EngineError, match="does not fit"):
        client.load(str(BUNDLED), "", LoadOptions(device=DEVICE.type, memory=1e6))  # type: ignore[arg-type]
