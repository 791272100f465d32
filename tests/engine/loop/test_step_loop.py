"""The step loop over the toy model: every way of batching gives the text of plain sequential decoding."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from engine.base.errors import DeviceLost, lost_device
from engine.cache.pool import PAGE_SIZE
from engine.cache.types import DraftKVLengths
from engine.compute.batch import ForwardOutput, SequenceRows
from engine.decoding.request import Request
from engine.decoding.speculation.base import DraftTree
from engine.decoding.speculation.draft_model.proposer import DraftModelProposer
from engine.loop.stepper import NO_NUMBERS
from engine.protocol import Cancel, Prefill, Sampling
from tests.engine.loop.toy_engine import EOS, VOCABULARY, ToyEngine, ToyRunner, letter, sequential, toy_model

PROMPT = [(7 * i + 3) % 21 for i in range(45)]


def samplings() -> list[Sampling]:
    return [
        Sampling(temperature=0.0, max_tokens=40, ignore_eos=True),
        Sampling(seed=5, temperature=1.0, max_tokens=40),
        Sampling(seed=6, temperature=1.3, top_p=0.9, max_tokens=40, ignore_eos=True),
        Sampling(seed=7, temperature=0.8, top_k=8, repetition_penalty=1.2, frequency_penalty=0.3, max_tokens=40),
        Sampling(seed=8, temperature=1.0, dry_multiplier=0.8, presence_penalty=0.4, max_tokens=40, ignore_eos=True),
    ]


@pytest.mark.parametrize(
    ("speculation", "budget", "length"),
    [
        pytest.param(speculation, budget, length, marks=() if (i + j + k) % 3 == 0 else pytest.mark.long)
        for i, speculation in enumerate(("off", "ngram", "draft", "auto"))
        for j, budget in enumerate((16, 23, 512))
        for k, length in enumerate((0, 3, 7) if speculation != "off" else (0,))
    ],
)
def test_batched_text_is_the_sequential_text(speculation: str, budget: int, length: int) -> None:
    toy = ToyEngine(token_budget=budget)
    for number, sampling in enumerate(samplings()):
        toy.add(str(number), PROMPT[number:], sampling, speculation=speculation, draft_length=length)
    toy.drain()
    for number, sampling in enumerate(samplings()):
        output, text, reason = sequential(PROMPT[number:], sampling)
        answer = toy.heard.answers[str(number), 0]
        assert (answer.tokens, answer.text, answer.reason) == (output, text, reason)


@pytest.mark.parametrize("options", [{"chunked_prefill": False}, {"page_reservation": "whole_context"}, {}])
@pytest.mark.parametrize("kv_cache", [True, False])
def test_switches_change_no_token(options: dict[str, bool | str], kv_cache: bool) -> None:
    toy = ToyEngine(token_budget=16, **options)
    for number, sampling in enumerate(samplings()):
        toy.add(str(number), PROMPT, sampling, kv_cache=kv_cache)
    toy.drain()
    for number, sampling in enumerate(samplings()):
        assert toy.heard.answers[str(number), 0].tokens == sequential(PROMPT, sampling)[0]


def test_without_kv_cache_every_token_costs_the_whole_text() -> None:
    sampling = Sampling(seed=3, max_tokens=10, ignore_eos=True)
    rows = {}
    for kv_cache in (True, False):
        toy = ToyEngine(toy_model(runner=(runner := ToyRunner(64))))
        toy.add("a", PROMPT, sampling, kv_cache=kv_cache)
        toy.drain()
        rows[kv_cache] = runner.rows
    assert rows[True] == len(PROMPT) + 9
    assert rows[False] == sum(len(PROMPT) + i for i in range(10))


def test_without_kv_cache_no_page_outlives_its_pass() -> None:
    toy = ToyEngine()
    toy.add("a", PROMPT, Sampling(seed=3, max_tokens=10, ignore_eos=True), kv_cache=False)
    while toy.step():
        assert toy.owned == 0


def test_more_requests_than_pages_preempt_and_keep_their_text() -> None:
    toy = ToyEngine(toy_model(pages=13, limit=150))
    sampling = Sampling(seed=9, temperature=1.0, max_tokens=60, ignore_eos=True)
    for number in range(6):
        toy.add(str(number), PROMPT[: 20 + number], sampling, speculation="draft")
    toy.drain()
    for number in range(6):
        answer = toy.heard.answers[str(number), 0]
        assert (answer.tokens, answer.reason) == (sequential(PROMPT[: 20 + number], sampling, limit=150)[0], "length")
    assert sum(step.preemptions for step in toy.heard.steps) > 0


def test_a_lone_request_out_of_pages_ends_with_memory_and_keeps_its_text() -> None:
    toy = ToyEngine(toy_model(pages=5, limit=200))
    sampling = Sampling(seed=9, max_tokens=100, ignore_eos=True)
    toy.add("a", PROMPT[:20], sampling)
    toy.drain()
    answer = toy.heard.answers["a", 0]
    # 64 slots: the 65th token is known but has no place for its keys and values.
    assert answer.reason == "memory"
    assert answer.finished is not None
    assert answer.finished.detail
    assert answer.tokens == sequential(PROMPT[:20], sampling)[0][:45]
    assert answer.text == "".join(letter(token) for token in answer.tokens)


def test_limits_are_reported() -> None:
    toy = ToyEngine(toy_model(limit=50))
    toy.add("length", PROMPT[:20], Sampling(seed=1, max_tokens=7, ignore_eos=True))
    toy.add("context", PROMPT[:20], Sampling(seed=1, ignore_eos=True))
    toy.drain()
    assert (toy.heard.answers["length", 0].reason, len(toy.heard.answers["length", 0].tokens)) == ("length", 7)
    assert (toy.heard.answers["context", 0].reason, len(toy.heard.answers["context", 0].tokens)) == ("context", 30)


def test_any_of_several_end_tokens_ends_the_text_and_has_none() -> None:
    seen = set()
    for seed in range(60):
        toy = ToyEngine()
        toy.add("a", PROMPT, Sampling(seed=seed, temperature=2.0, max_tokens=200))
        toy.drain()
        answer = toy.heard.answers["a", 0]
        if answer.reason == "stop":
            seen.add(answer.tokens[-1])
            assert answer.tokens[-1] in EOS
            assert not set(answer.tokens[:-1]) & set(EOS)
            assert answer.text == "".join(letter(token) for token in answer.tokens[:-1])
    assert seen == set(EOS)


@pytest.mark.parametrize("speculation", ["off", "ngram", "draft", "auto"])
def test_a_stop_string_inside_an_accepted_run_leaks_nothing(speculation: str) -> None:
    plain, text, _ = sequential(PROMPT, Sampling(temperature=0.0, max_tokens=40, ignore_eos=True))
    for start, width in itertools.product(range(5, 30, 3), (1, 2, 3)):
        stop = text[start : start + width]
        cut = text.find(stop)
        toy = ToyEngine(toy_model(draft_blur=0.65))
        sampling = Sampling(temperature=0.0, max_tokens=40, ignore_eos=True, stop=[stop])
        toy.add("a", PROMPT, sampling, speculation=speculation, draft_length=6)
        toy.drain()
        answer = toy.heard.answers["a", 0]
        assert (answer.text, answer.reason) == (text[:cut], "stop")
        assert answer.tokens == plain[: cut + width]


@pytest.mark.parametrize("speculation", ["off", "draft"])
def test_cancelling_frees_everything_within_one_step(speculation: str) -> None:
    toy = ToyEngine(token_budget=16)
    sampling = Sampling(seed=1, ignore_eos=True)
    for number in range(3):
        toy.add(str(number), PROMPT, sampling, n=2, speculation=speculation)
    for _ in range(9):
        toy.step()
    for number in range(3):
        toy.engine.submit(Cancel(id=str(number)))
    toy.step()
    assert toy.owned == 0
    assert {answer.reason for answer in toy.heard.answers.values()} == {"cancelled"}
    toy.drain()


def test_several_answers_differ_and_can_be_had_again() -> None:
    toy = ToyEngine()
    sampling = Sampling(seed=4, temperature=1.0, max_tokens=20, ignore_eos=True)
    toy.add("a", PROMPT, sampling, n=3)
    toy.drain()
    texts = [toy.heard.answers["a", number].tokens for number in range(3)]
    assert len({tuple(text) for text in texts}) == 3
    assert texts == [sequential(PROMPT, sampling, answer=number)[0] for number in range(3)]


def test_a_drawn_seed_is_reported_and_repeats_the_answer() -> None:
    toy = ToyEngine()
    toy.add("a", PROMPT, Sampling(max_tokens=20, ignore_eos=True))
    toy.drain()
    first = toy.heard.answers["a", 0]
    assert first.finished is not None
    toy.add("b", PROMPT, Sampling(seed=first.finished.usage.seed, max_tokens=20, ignore_eos=True))
    toy.add("c", PROMPT, Sampling(max_tokens=20, ignore_eos=True))
    toy.drain()
    assert toy.heard.answers["b", 0].tokens == first.tokens
    assert toy.heard.answers["c", 0].tokens != first.tokens


def test_prompts_that_cannot_be_served_are_refused_before_anything_is_taken() -> None:
    toy = ToyEngine(toy_model(limit=50))
    toy.add("long", [1] * 50)
    toy.add("empty", [])
    toy.add("foreign", [99])
    toy.add("option", [1], kv_cache=False, speculation="draft")
    toy.add("temperature", [1], Sampling(temperature=-1.0))
    assert toy.step()
    codes = {error.id: error.code for error in toy.heard.errors}
    assert codes == {
        "long": "prompt_too_long",
        "empty": "bad_request",
        "foreign": "bad_request",
        "option": "bad_option",
        "temperature": "bad_sampling",
    }
    assert not toy.heard.answers
    assert toy.model.runner.calls == 0  # type: ignore[attr-defined]


def test_a_failing_step_ends_its_requests_and_the_engine_goes_on() -> None:
    runner = ToyRunner(64)
    toy = ToyEngine(toy_model(runner=runner))
    toy.add("a", PROMPT, Sampling(seed=1, max_tokens=10, ignore_eos=True))
    toy.step()

    def fail() -> None:
        raise ValueError("a broken kernel")

    runner.before_forward = fail
    toy.step()
    assert toy.heard.answers["a", 0].reason == "error"
    runner.before_forward = lambda: None
    toy.add("b", PROMPT, Sampling(seed=1, max_tokens=10, ignore_eos=True))
    toy.drain()
    assert toy.heard.answers["b", 0].tokens == sequential(PROMPT, Sampling(seed=1, max_tokens=10, ignore_eos=True))[0]


class LosingRunner(ToyRunner):
    """From place ``after`` on, a text that begins with ``lost`` gets no numbers, as when values overflow.

    With ``token`` only that one's score is none, as where a row of the last weights is damaged.
    """

    lost, after = 20, 50
    token: int | slice = slice(None)

    def forward(self, rows: Sequence[SequenceRows]) -> ForwardOutput:
        logits = super().forward(rows).logits
        first = 0
        for sequence in rows:
            stop = sequence.start + len(sequence.tokens)
            for row in range(stop - sequence.want_logits, stop):
                if self.arena[sequence.pages[0] * PAGE_SIZE] == self.lost and row >= self.after:
                    logits[first + row - stop + sequence.want_logits, self.token] = torch.nan
            first += sequence.want_logits
        return ForwardOutput(logits, {})


@pytest.mark.parametrize(
    ("speculation", "acceptance"), [("off", "keyed"), ("draft", "keyed"), ("draft", "ratio"), ("draft", "typical")]
)
@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0.0}, {"top_p": 0.9}, {"typical_p": 0.5, "logprobs": 2}],
    ids=["greedy", "p", "typical"],
)
@pytest.mark.parametrize("token", [slice(None), 3], ids=["all", "one"])
def test_an_answer_without_numbers_ends_alone(
    speculation: str, acceptance: str, settings: dict[str, float], token: int | slice
) -> None:
    sampling = Sampling(seed=3, max_tokens=30, ignore_eos=True, **settings)  # type: ignore[arg-type]
    runner = LosingRunner(64)
    runner.token = token
    toy, lost = ToyEngine(toy_model(runner=runner)), [LosingRunner.lost, *PROMPT[1:]]
    for name, prompt in (("lost", lost), ("sound", PROMPT)):
        toy.add(name, prompt, sampling, speculation=speculation, acceptance=acceptance)
    toy.drain()
    ended, sound = toy.heard.answers["lost", 0], toy.heard.answers["sound", 0]
    assert ended.finished is not None
    assert ended.finished.detail == NO_NUMBERS
    assert len(ended.tokens) <= LosingRunner.after - len(lost) + 1, "the row of the 51st token has no numbers"
    assert (sound.reason, len(sound.tokens)) == ("length", 30)
    if acceptance == "keyed":
        assert sound.tokens == sequential(PROMPT, sampling)[0]


def test_nobody_goes_on_from_an_answer_without_numbers() -> None:
    runner, sampling = LosingRunner(64), Sampling(temperature=0.0, max_tokens=60, ignore_eos=True)
    runner.after = 63
    toy, lost = ToyEngine(toy_model(runner=runner)), [LosingRunner.lost, *PROMPT[1:]]
    toy.add("a", lost, sampling)
    toy.drain()
    pool = toy.stepper.cache.pool
    free = runner.arena.reshape(-1, PAGE_SIZE)[[page for page in range(1, 64) if not pool.refs(page)]]
    assert not free[free != -1].any(), "whoever gets these pages meets nothing of it in slots that are masked"
    runner.after = 1000
    toy.add("b", [*lost, *toy.heard.answers["a", 0].tokens], Sampling(temperature=0.0, max_tokens=1))
    toy.drain()
    finished = toy.heard.answers["b", 0].finished
    assert finished is not None
    assert finished.usage.cached_tokens == 32, "the pages of the prompt, and no other"


def test_a_fault_in_the_loop_itself_ends_all_answers_and_the_engine_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = ToyEngine()
    sampling = Sampling(seed=1, max_tokens=10, ignore_eos=True)
    toy.add("a", PROMPT, sampling)
    toy.step()
    with monkeypatch.context() as patch:
        patch.setattr(toy.stepper.scheduler, "plan", lambda *_: 1 / 0)
        toy.step()
    assert toy.heard.answers["a", 0].reason == "error"
    toy.add("b", PROMPT, sampling)
    toy.drain()
    assert toy.heard.answers["b", 0].tokens == sequential(PROMPT, sampling)[0]


def test_out_of_memory_makes_the_newest_wait_and_ends_a_lone_request() -> None:
    runner = ToyRunner(64)
    toy = ToyEngine(toy_model(runner=runner))
    sampling = Sampling(seed=1, max_tokens=30, ignore_eos=True)
    for id in "ab":
        toy.add(id, PROMPT, sampling)
    for _ in range(3):
        toy.step()
    runner.runs_out_of_memory([True, False, True])
    toy.step()
    assert [request.id for request in toy.stepper.scheduler.waiting] == ["b"]
    toy.drain()
    reasons = {id: toy.heard.answers[id, 0].reason for id in "ab"}
    assert set(reasons.values()) <= {"length", "memory"}
    assert toy.heard.answers["a", 0].tokens == sequential(PROMPT, sampling)[0][: len(toy.heard.answers["a", 0].tokens)]


def test_out_of_memory_takes_the_graphs_before_an_answer() -> None:
    runner = ToyRunner(64)
    held = [True]

    class Graphs:
        def give_up(self) -> bool:
            had, held[0] = held[0], False
            return had

        def capture_one(self) -> bool:
            return False

    toy = ToyEngine(dataclasses.replace(toy_model(runner=runner), graphs=(Graphs(),)))  # type: ignore[arg-type]
    sampling = Sampling(seed=1, max_tokens=10, ignore_eos=True)
    toy.add("a", PROMPT, sampling)
    toy.step()
    runner.runs_out_of_memory([True])
    toy.drain()
    assert held == [False]
    assert toy.heard.answers["a", 0].tokens == sequential(PROMPT, sampling)[0]


@pytest.mark.parametrize("where", ["in the forward", "while tokens are taken in"])
def test_a_lost_gpu_ends_the_answers_with_a_sentence_and_then_the_engine(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later call would fail too: the process has to end, so that a new one may have its GPU back."""
    runner = ToyRunner(64)
    toy = ToyEngine(toy_model(runner=runner))
    for id in "ab":
        toy.add(id, PROMPT, Sampling(seed=1, max_tokens=30, ignore_eos=True))
    toy.step()

    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...")

    if where == "in the forward":
        runner.before_forward = fail
    else:
        monkeypatch.setattr(toy.stepper.executor, "accept", fail)
    with pytest.raises(DeviceLost):
        toy.step()
    for id in "ab":
        finished = toy.heard.answers[id, 0].finished
        assert finished is not None
        assert finished.reason == "error"
        assert "illegal memory access" in finished.detail
        assert "start again" in finished.detail


def test_what_is_a_lost_device() -> None:
    assert lost_device(RuntimeError("CUDA error: unspecified launch failure")) is not None
    assert lost_device(RuntimeError("CUDA out of memory. Tried to allocate 2 MiB")) is None
    assert lost_device(RuntimeError("CUDA error: out of memory")) is None
    assert lost_device(RuntimeError("CUDA error: invalid argument")) is None
    assert lost_device(RuntimeError("CUDA error: operation not permitted when stream is capturing")) is None
    assert (
        lost_device(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")) is None
    )
    assert lost_device(RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")) is not None
    assert lost_device(RuntimeError("Triton Error [CUDA]: unspecified launch failure")) is not None
    assert lost_device(RuntimeError("Triton Error [CUDA]: invalid argument")) is None
    assert lost_device(RuntimeError("Triton Error [CUDA]: out of memory")) is None
    assert lost_device(RuntimeError("a step failed")) is None
    assert lost_device(ValueError("CUDA error: not said by CUDA")) is None


def test_prefill_progress_ends_with_the_whole_prompt() -> None:
    toy = ToyEngine(token_budget=16)
    toy.add("a", PROMPT, Sampling(seed=1, max_tokens=2), n=2)
    toy.drain()
    done = [event.done for event in toy.heard.others if isinstance(event, Prefill)]
    assert done == sorted(done)
    assert done[-1] == len(PROMPT)
    assert done[0] == 16


def test_sources_tell_where_tokens_came_from() -> None:
    toy = ToyEngine(toy_model(draft_blur=0.7))
    sampling = Sampling(temperature=0.0, max_tokens=60, ignore_eos=True)
    toy.add("a", PROMPT, sampling, speculation="draft", draft_length=3, ngram_first=False)
    toy.drain()
    answer = toy.heard.answers["a", 0]
    sources = {info.source for info in answer.infos}
    assert {"draft", "corrected", "target"} <= sources
    assert answer.finished is not None
    assert answer.finished.timings.accepted == sum(info.source == "draft" for info in answer.infos)
    assert answer.finished.timings.tokens_per_step > 1.2


@pytest.mark.parametrize("speculation", ["off", "draft"])
def test_an_answer_ends_no_earlier_than_it_may(speculation: str) -> None:
    ending: dict[str, Any] = {"seed": 1, "logit_bias": {EOS[0]: 100.0}}
    settings = {
        "early": Sampling(**ending),
        "late": Sampling(**ending, min_tokens=5),
        "stopped": Sampling(temperature=0.0, stop=[letter(token) for token in range(VOCABULARY)], min_tokens=4),
    }
    toy = ToyEngine()
    for name, sampling in settings.items():
        toy.add(name, PROMPT, sampling, speculation=speculation)
    toy.drain()
    answers = {name: toy.heard.answers[name, 0] for name in settings}
    assert {name: len(answer.tokens) for name, answer in answers.items()} == {"early": 1, "late": 6, "stopped": 4}
    assert [token in EOS for token in answers["late"].tokens] == [False] * 5 + [True]
    assert len(answers["stopped"].text) == 3, "the fourth token is the stop string"


def test_log_probabilities_come_with_every_token() -> None:
    toy = ToyEngine()
    toy.add(
        "a", PROMPT, Sampling(seed=1, max_tokens=12, logprobs=3, ignore_eos=True), speculation="ngram", draft_length=4
    )
    toy.drain()
    for info in toy.heard.answers["a", 0].infos:
        assert info.logprob is not None
        assert len(info.top) == 3
        assert info.logprob <= info.top[0][1] + 1e-6


def answers_of_a_perfect_draft(temperature: float) -> list[list[str]]:
    """Sources of the tokens when the draft is the target."""
    model = toy_model()
    draft = model.drafting.proposers[1]
    draft._runner.seed, draft._runner.blur = 0, 0.7  # type: ignore[attr-defined]
    toy = ToyEngine(model)
    sampling = Sampling(seed=2, temperature=temperature, max_tokens=60, ignore_eos=True)
    for number in range(3):
        toy.add(str(number), PROMPT[: 30 + number], sampling, speculation="draft", draft_length=4, ngram_first=False)
    toy.drain()
    return [[info.source for info in toy.heard.answers[str(number), 0].infos] for number in range(3)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_that_is_the_target_is_always_right(temperature: float) -> None:
    for sources in answers_of_a_perfect_draft(temperature):
        assert "corrected" not in sources
        assert sources.count("draft") > 40


def test_a_draft_that_lacks_its_last_token_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control, the trap after full acceptance: the last draft token was never fed to the draft model."""

    def trapped(self: object, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        request.cache.drafts = DraftKVLengths(request.cache.drafts.model + len(nodes))

    monkeypatch.setattr(DraftModelProposer, "observe", trapped)
    assert any("corrected" in sources for sources in answers_of_a_perfect_draft(0.0))
