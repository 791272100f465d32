"""Bad input on the engine and on the command line: one clear sentence, exit code 1, no traceback, nothing lost."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engine.doors.cli.main import app
from engine.loading.memory import estimate
from engine.loop.commands import AddRequest
from engine.protocol import Delta, Finished, LoadOptions, Sampling
from engine.services.client import EngineClient, EngineError
from tests.broken_models import (
    BREAKAGES,
    DRAFT,
    SOUND,
    STILL_THERE,
    Breakage,
    check_sentence,
    config,
    copy_model,
    make,
    no_numbers,
    remove,
)

REPRESENTATIVE = ("no-weights", "cut-weights", "unknown-architecture", "more-layers", "no-tokenizer", "no-numbers")
GREEDY = Sampling(temperature=0.0, max_tokens=8)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KVASIR_MODELS", raising=False)
    monkeypatch.delenv("KVASIR_DEBUG", raising=False)


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineClient]:
    """One engine for all of them: it has to outlive everything that is done to it."""
    with EngineClient() as client:
        client.load(str(SOUND), str(DRAFT))
        client.set("batch_invariant", True)  # how many drafts a step checks depends on the time that it takes
        yield client


@pytest.fixture(scope="module")
def answer(engine: EngineClient) -> list[int]:
    """What the sound model answers; it has to answer the same after each failure."""
    return engine.answer(prompt(engine), GREEDY).ids


def prompt(engine: EngineClient, text: str = "What is a page?") -> list[int]:
    loaded = engine.engine.loaded
    assert loaded is not None
    return loaded.encode_prompt(text)


def kvasir(*arguments: str, input: str = "") -> Result:
    return CliRunner().invoke(app, arguments, input=input, prog_name="kvasir")


def refusal(done: Result) -> str:
    """The one line on standard error of a command that failed."""
    assert done.exit_code == 1, done.output
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("kvasir: "), done.stderr
    return line.removeprefix("kvasir: ")


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.name)
def test_a_broken_model_is_refused_and_the_loaded_one_goes_on(
    engine: EngineClient, answer: list[int], breakage: Breakage, tmp_path: Path
) -> None:
    before = engine.engine.loaded
    with pytest.raises(EngineError) as refused:
        engine.load(str(make(tmp_path, breakage)))
    text = str(refused.value)
    assert text.endswith(STILL_THERE), text
    check_sentence(text.removesuffix(STILL_THERE), *breakage.says)
    assert engine.engine.loaded is before
    assert engine.answer(prompt(engine), GREEDY).ids == answer


@pytest.mark.parametrize("name", ["nowhere", "a-file"])
def test_no_folder_at_all(engine: EngineClient, name: str, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("x")
    with pytest.raises(EngineError) as refused:
        engine.load(str(tmp_path / name))
    check_sentence(str(refused.value).removesuffix(STILL_THERE), name)


@pytest.mark.parametrize("apply", [remove("tokenizer.json"), config(num_hidden_layers=9)], ids=["tokenizer", "layers"])
def test_a_broken_draft_model_costs_only_the_drafts(tmp_path: Path, apply) -> None:
    broken = copy_model(tmp_path / "draft", DRAFT)
    apply(broken)
    with EngineClient() as client:
        card, _ = client.load(str(SOUND), str(broken))
        assert card.draft == ""
        assert card.draft_refused.startswith("The draft model cannot be used. ")
        check_sentence(card.draft_refused.removeprefix("The draft model cannot be used. "))
        assert client.answer(prompt(client), GREEDY).ids


def test_a_draft_without_numbers_is_left_out(tmp_path: Path) -> None:
    broken = copy_model(tmp_path / "draft", DRAFT)
    no_numbers(broken)
    with EngineClient() as client:
        card, _ = client.load(str(SOUND), str(broken))
        assert card.draft == ""
        check_sentence(card.draft_refused.removeprefix("The draft model cannot be used. "), "draft", "not numbers")


@pytest.mark.parametrize(
    "breakage", [b for b in BREAKAGES if b.name in REPRESENTATIVE], ids=lambda breakage: breakage.name
)
def test_broken_models_on_the_command_line(breakage: Breakage, tmp_path: Path) -> None:
    folder = make(tmp_path, breakage)
    done = kvasir("chat", str(folder), "--prompt", "x")
    assert done.stdout == ""
    check_sentence(refusal(done), *breakage.says)


def test_every_command_refuses_a_broken_model(tmp_path: Path) -> None:
    """`kvasir serve` too: with its first model it would have had nothing to serve."""
    cut = next(breakage for breakage in BREAKAGES if breakage.name == "cut-weights")
    folder = str(make(tmp_path, cut))
    for command in (
        ("doctor", "--model", folder),
        ("serve", "--port", "0", "--model", folder),
        ("bench", "--shapes", "none", "--rounds", "1", "--model", folder),
    ):
        check_sentence(refusal(kvasir(*command)), *cut.says)
    assert not list((tmp_path / "home" / "run").glob("token-*"))


def test_a_half_typed_path_is_shown_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.bin").write_text("x")
    (tmp_path / "weights.gguf").write_text("x")
    check_sentence(refusal(kvasir("chat", "./models/mine", "--prompt", "x")), str(tmp_path / "models" / "mine"))
    check_sentence(refusal(kvasir("chat", "weights.bin", "--prompt", "x")), str(tmp_path / "weights.bin"), "folder")
    check_sentence(refusal(kvasir("chat", "weights.gguf", "--prompt", "x")), "weights.gguf is not a GGUF file")


def test_a_chat_template_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = copy_model(tmp_path / "mine")
    (folder / "tokenizer_config.json").write_text('{"chat_template": ')
    with EngineClient() as client:
        card, _ = client.load(str(folder))
        (notice,) = [notice for notice in card.notices if "template" in notice]
        check_sentence(notice, "tokenizer_config.json")
        assert client.answer(prompt(client), GREEDY).ids


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ raise_exception('No system prompt here') }}", "No system prompt here"),
        ("{% for %}", "line 1"),
        ("{{ messages.__class__.__mro__ }}", "__class__"),
        ("{{ 'x' * 10**10 }}", "too large a text"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "does not end"),
    ],
)
def test_a_chat_template_that_does_not_work(tmp_path: Path, template: str, says: str) -> None:
    folder = copy_model(tmp_path / "mine")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    check_sentence(refusal(kvasir("chat", str(folder), "--prompt", "x")), "chat template", says)


def test_a_model_that_was_deleted_goes_on_until_it_is_needed_again(tmp_path: Path) -> None:
    folder = copy_model(tmp_path / "mine")
    with EngineClient() as client:
        client.load(str(folder))
        shutil.rmtree(folder)
        assert client.answer(prompt(client), GREEDY).ids
        with pytest.raises(EngineError) as refused:
            client.set("weights", "16bit")
        check_sentence(str(refused.value).removesuffix(" mine is still loaded."), str(folder))
        assert client.answer(prompt(client), GREEDY).ids
        assert {spec.key: spec.value for spec in client.engine.catalogue_state()}["weights"] == "packed"


# --- prompts ---------------------------------------------------------------------------------------------------------


def test_a_prompt_longer_than_the_context(engine: EngineClient, answer: list[int]) -> None:
    with pytest.raises(EngineError) as refused:
        engine.answer(prompt(engine, "word " * 9000), GREEDY)
    check_sentence(str(refused.value), "prompt", "8192", "Shorten")
    assert engine.answer(prompt(engine), GREEDY).ids == answer
    check_sentence(refusal(kvasir("chat", "--prompt", "word " * 9000)), "prompt", "8192", "Shorten")


@pytest.mark.slow
@pytest.mark.parametrize("positions", [1024, pytest.param(8192, marks=pytest.mark.long)])
def test_a_prompt_that_fills_the_context_ends_with_it(positions: int, tmp_path: Path) -> None:
    """All that the model has. One token is left for the answer: it comes, and the end says why there is no more."""
    config(max_position_embeddings=positions)(copy_model(tmp_path / "model"))
    with EngineClient() as client:
        card, _ = client.load(str(tmp_path / "model"), str(DRAFT))
        client.set("batch_invariant", True)
        assert card.context == positions
        client.engine.submit(AddRequest("full", [5] * (positions - 1), Sampling(ignore_eos=True)))
        while not isinstance(event := client._next(), Finished):
            pass
    assert (event.reason, event.usage.generated_tokens) == ("context", 1)


@pytest.mark.parametrize(
    ("ids", "sampling", "says"),
    [
        ([], Sampling(), "empty"),
        ([1 << 20], Sampling(), "does not know"),
        ([-1], Sampling(), "does not know"),
        ([5], Sampling(temperature=-1.0), "temperature"),
        ([5], Sampling(temperature=float("nan")), "temperature"),
        ([5], Sampling(top_p=2.0), "top_p"),
        ([5], Sampling(max_tokens=-2), "max_tokens"),
        ([5], Sampling(seed=1 << 70), "seed"),
        ([5], Sampling(logit_bias={5: float("inf")}), "logit_bias"),
    ],
)
def test_prompts_and_settings_that_cannot_be(
    engine: EngineClient, answer: list[int], ids: list[int], sampling: Sampling, says: str
) -> None:
    with pytest.raises(EngineError) as refused:
        engine.answer(ids, sampling)
    check_sentence(str(refused.value), says)
    assert engine.answer(prompt(engine), GREEDY).ids == answer


def test_bytes_that_are_no_text() -> None:
    """As a terminal in another encoding gives them."""
    done = kvasir("chat", "--prompt", "a\udcff", "--max-tokens", "2")
    assert done.exit_code == 0, done.stderr


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [1_000_000.0, 1e-9, 0.0, -3.0, float("inf"), float("nan")])
def test_out_of_memory_at_load(engine: EngineClient, answer: list[int], memory: float) -> None:
    with pytest.raises(EngineError) as refused:
        engine.load(str(SOUND), "", LoadOptions(memory=memory))
    assert str(refused.value).endswith(STILL_THERE)
    check_sentence(str(refused.value).removesuffix(STILL_THERE), "does not fit" if math.isfinite(memory) else "budget")
    assert engine.answer(prompt(engine), GREEDY).ids == answer


@pytest.mark.parametrize("context", [0, -5, 1])
def test_a_context_of_nothing(engine: EngineClient, answer: list[int], context: int) -> None:
    with pytest.raises(EngineError) as refused:
        engine.load(str(SOUND), "", LoadOptions(context=context))
    check_sentence(str(refused.value).removesuffix(STILL_THERE), "context")
    assert engine.answer(prompt(engine), GREEDY).ids == answer


def test_out_of_memory_at_load_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.loading.plan.free_bytes", lambda device: 5_000_000)
    check_sentence(refusal(kvasir("chat", "--prompt", "x")), "does not fit", "5 MB")


def test_the_allocator_says_no_while_loading(engine: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan was right, and another program was quicker: the sentence is torch's, in our words."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("engine.loading.reading.load_model", refuse)
    with pytest.raises(EngineError) as refused:
        engine.load(str(SOUND))
    assert str(refused.value).endswith(STILL_THERE)
    check_sentence(str(refused.value).removesuffix(STILL_THERE), "Memory ran out", "kvasir-guide")


def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 256 tokens, for models whose context is longer."""
    plan = estimate.plan

    def small(**values):
        made = plan(**values)
        return made._replace(pages=17, fit=made.fit)

    monkeypatch.setattr("engine.loading.memory.estimate.plan", small)


def test_out_of_memory_during_generation_keeps_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    with EngineClient() as client:
        client.load(str(SOUND))
        client.engine.submit(AddRequest("long", prompt(client), Sampling(temperature=0.0, ignore_eos=True)))
        generated = 0
        while not isinstance(event := client._next(), Finished):
            generated += len(event.tokens) if isinstance(event, Delta) else 0
        assert event.reason == "memory"
        assert generated == event.usage.generated_tokens > 200
        check_sentence(event.detail, "memory", "full")
        assert client.answer(prompt(client), GREEDY).ids


def test_out_of_memory_during_generation_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    done = kvasir("chat", "--prompt", "word " * 240, "--max-tokens", "400", "--raw")
    check_sentence(refusal(done), "memory", "full")


def test_the_device_runs_out_in_a_step(
    engine: EngineClient, answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = engine.engine.loaded
    assert loaded is not None
    forward = type(loaded.runner).forward
    steps = 0

    def fails_later(self, rows, **wanted):
        nonlocal steps
        steps += 1
        if steps > 5:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(self, rows, **wanted)

    monkeypatch.setattr(type(loaded.runner), "forward", fails_later)
    engine.engine.submit(AddRequest("oom", prompt(engine), Sampling(temperature=0.0, ignore_eos=True)))
    seen: list[object] = []
    while not isinstance(event := engine._next(), Finished):
        seen.append(event)
    assert event.reason == "memory"
    assert any(isinstance(one, Delta) for one in seen)
    check_sentence(event.detail, "memory")
    monkeypatch.undo()
    assert engine.answer(prompt(engine), GREEDY).ids == answer


# --- the machine -----------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file, where a folder should be")
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "taken"))
    check_sentence(refusal(kvasir("serve", "--port", "0")), str(tmp_path / "taken"))
    assert kvasir("chat", "--prompt", "x", "--max-tokens", "2").exit_code == 0, "which keeps nothing"


@pytest.mark.parametrize("host", ["256.1.1.1", "192.0.2.1", "::ffff:zz"])
def test_an_address_that_is_not_here(host: str) -> None:
    check_sentence(refusal(kvasir("serve", "--port", "0", "--host", host)), host, "--host")


@pytest.mark.parametrize("switch", ["weights=5bit", "token_budget=-1", "kv_cache=maybe", "colour=red"])
def test_switches_that_cannot_be(switch: str) -> None:
    check_sentence(refusal(kvasir("chat", "--prompt", "x", "--set", switch)), switch.split("=")[0])


def test_no_gpu_where_one_was_asked_for() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    check_sentence(refusal(kvasir("chat", "--prompt", "x", "--device", "cuda")), "GPU", "cpu")


def test_an_error_that_nobody_thought_of_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("engine.doors.cli.chat.run_chat", fail)
    line = refusal(kvasir("chat", "--prompt", "x"))
    assert "ZeroDivisionError" in line
    assert line.endswith("KVASIR_DEBUG=1 to see where.")


def test_error_events_are_sentences(engine: EngineClient) -> None:
    """What the engine says of commands that make no sense at all."""
    with pytest.raises(EngineError) as refused:
        engine._run([AddRequest("many", [5], GREEDY, n=100_000)])
    check_sentence(str(refused.value), "answers")
