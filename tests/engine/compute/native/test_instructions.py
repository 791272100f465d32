"""KVASIR_NATIVE: what each of its values uses, and what is said where that is not to be had."""

from __future__ import annotations

import pytest
import torch

from engine.compute.native import build, library
from engine.compute.native.instructions import AVX512_BF16, OFF, PORTABLE, SETS, VARIABLE, NoSuchInstructions, wanted
from engine.doors.cli.doctor import compiler_facts
from engine.loading.loader import CheckpointLoader
from engine.loading.memory.probe import choose_dtype, cpu_has_bfloat16
from tests.engine.compute.native.instruction_sets import at_hand

CPU = torch.device("cpu")
BF16, FP32 = torch.bfloat16, torch.float32


@pytest.fixture(params=at_hand())
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param


def test_an_unknown_value_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sse9")
    for ask in (wanted, library.find, cpu_has_bfloat16, CheckpointLoader):
        with pytest.raises(NoSuchInstructions, match=r"^KVASIR_NATIVE is 'sse9', which is none of auto, .* and off\.$"):
            ask()
    monkeypatch.setenv(VARIABLE, "")
    assert wanted() == "auto"


def test_a_forced_set_is_the_one_used(instructions: str) -> None:
    found, reason = library.find()
    assert found is not None, reason
    assert found.set == SETS[instructions]
    assert library.declines(FP32, CPU) is None
    assert library.declines(BF16, CPU) is None
    assert cpu_has_bfloat16() == (instructions == AVX512_BF16)
    if instructions != AVX512_BF16:
        choice = choose_dtype(CPU)
        assert choice.dtype == FP32
        assert f"because KVASIR_NATIVE={instructions} leaves bfloat16 instructions" in choice.notice
    facts = dict(compiler_facts(CPU))
    assert f"{found.instructions} (KVASIR_NATIVE={instructions})" in facts["its instructions"]


def test_off_is_no_native_code_and_the_processor_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "auto")
    had = cpu_has_bfloat16()
    monkeypatch.setenv(VARIABLE, OFF)
    assert library.find().library is None
    assert library.declines(FP32, CPU) == "KVASIR_NATIVE=off leaves Kvasir's native code out"
    assert cpu_has_bfloat16() == had
    assert dict(compiler_facts(CPU))["its instructions"] == "none (KVASIR_NATIVE=off)"


@pytest.mark.parametrize("name", SETS)
def test_what_is_not_to_be_had_is_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "library_file", lambda _: build.FOLDER / "none.so")
    with pytest.raises(NoSuchInstructions, match=f"^KVASIR_NATIVE={name} cannot be had: .* is not built[ ,].*\\.$"):
        library.find_with.__wrapped__(name)


def test_a_processor_without_the_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    if library.load(SETS[PORTABLE]).library is None:
        pytest.skip(library.load(SETS[PORTABLE]).reason)
    monkeypatch.setattr(library, "runs_here", lambda each: each.name == PORTABLE)
    for name in SETS:
        if name != PORTABLE:
            with pytest.raises(NoSuchInstructions, match=f"^KVASIR_NATIVE={name} cannot be had: this processor lacks"):
                library.find_with.__wrapped__(name)
    found = library.find_with.__wrapped__("auto").library
    assert found is not None
    assert found.set.name == PORTABLE
