"""Kernels that are launched early read nothing before they wait that a kernel of their step writes."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.compute.native import early
from tests.gpu import early_code
from tests.gpu.early_code import TARGETS, Before, looked_at, of_ptx
from tests.gpu.machine_code import Launch, compiled

pytestmark = pytest.mark.content("engine/compute/layers/linear/triton", "engine/compute/layers/triton/fused_kernels.py",
                                 "engine/compute/attention/triton")  # fmt: skip
TABLES = {"row_start", "kv_len", "table"}
"""What a kernel may read before it waits: written before the step."""
FETCHED = {"words", "scales", "norm", "ahead"}
"""What it may have fetched besides; old keys and values too, for nothing goes stale in the level-2 cache."""
ALWAYS = ("norm and gating, 2", "attention dense", "attention int4", "merge")


@functools.cache
def launches() -> dict[str, Launch]:
    return dict(early_code.early_launches())


def rule(name: str, sm: int) -> None:
    before, code = looked_at(launches()[name], sm)
    attends = name.startswith("attention")
    assert (before.waits, before.lets_in, before.crossed) == (1, 1, False)
    assert before.read <= (TABLES if attends else set())
    assert before.fetched <= FETCHED | ({"k", "v", *TABLES} if attends else set())
    assert not before.written
    own = {"words", "scales"} if "words" in launches()[name].kernel.arg_names else set()
    assert own <= before.fetched
    fetches = sum(line.startswith("UBLKPF") for line in code)
    assert fetches >= len(own) or sm != 90
    if attends:
        assert TABLES - {"table"} <= before.read, "it knows how long its text is before it waits"
        assert sum(line.startswith("LDG") for line in code) >= 3


def test_every_kernel_that_may_be_early_is_looked_at() -> None:
    kernels = {launch.kernel.fn.__name__ for launch in launches().values()}
    attention = {"attend", "attend_bytes", "attend_nibbles", "combine"}
    assert kernels == attention | {"multiply", "multiply_fused", "add_norm", "gate"}
    assert set(ALWAYS) <= set(launches())
    for launch in launches().values():
        assert launch.keywords["EARLY"]
        assert launch.keywords["launch_pdl"]


@pytest.mark.always
@pytest.mark.parametrize("name", ALWAYS)
def test_what_is_read_before_the_wait(name: str) -> None:
    rule(name, 90)


@pytest.mark.slow
def test_what_other_kernels_read_before_the_wait() -> None:
    for name in launches().keys() - set(ALWAYS):
        rule(name, 90)


@pytest.mark.long
@pytest.mark.parametrize("sm", [sm for sm in TARGETS if sm != 90])
def test_what_is_read_before_the_wait_on_other_cards(sm: int) -> None:
    for name in launches():
        rule(name, sm)


@pytest.mark.always
def test_a_kernel_that_is_not_early_has_nothing_of_it() -> None:
    name = "norm and gating, 2"
    launch = launches()[name]
    kept = {word: value for word, value in launch.keywords.items() if word != "launch_pdl"} | {"EARLY": False}
    args = [None if name in ("ahead", "ahead_bytes") else value
            for name, value in zip(launch.kernel.arg_names, launch.args, strict=False)]  # fmt: skip
    plain: Any = compiled(launch._replace(args=tuple(args), keywords=kept), 90)
    assert of_ptx(plain.asm["ptx"], []) == Before(0, 0)
    assert "prefetch" not in plain.asm["ptx"]


ENTRY = """.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u64 .ptr .global .align 1 kernel_param_1,
	.param .u32 kernel_param_2
)
{
	.reg .b32 %r<9>;
"""
LET_IN, WAIT = "\tgriddepcontrol.launch_dependents; // dummy %r1\n", "\tgriddepcontrol.wait; // dummy %r2\n"
READ = """	ld.param.b64 %rd1, [kernel_param_0];
	ld.param.b32 %r3, [kernel_param_2];
	mul.wide.s32 %rd2, %r3, 4;
	add.s64 %rd3, %rd1, %rd2;
	// begin inline asm
	mov.u32 %r4, 0x0;
	@%p1 ld.global.b32 { %r4 }, [ %rd3 + 0 ];
	// end inline asm
"""
THROUGH = """	ld.param.b64 %rd4, [kernel_param_1];
	mad.wide.s32 %rd5, %r4, 4, %rd4;
	cp.async.cg.shared.global [ %r8 + 0 ], [ %rd5 + 0 ], 0x10, %r7;
"""
FETCH = """	ld.param.b64 %rd6, [kernel_param_1];
	{ .reg .pred mine;
.reg .b64 place;
mad.wide.s32 place, %r5, %r6, %rd6;
@mine cp.async.bulk.prefetch.L2.global [place], %r6;
mov.u32 %r7, 0; }
"""
STORE = "\tst.global.v4.b32 [ %rd6 + 0 ], { %r1, %r2, %r3, %r4 };\n"
NAMES = ["x", "words", "size"]


@pytest.mark.always
def test_reads_fetches_and_writes_are_followed_to_their_parameters() -> None:
    found = of_ptx(ENTRY + LET_IN + FETCH + WAIT + READ + STORE + "}", NAMES)
    assert found == Before(1, 1, fetched=frozenset({"words"}))
    found = of_ptx(ENTRY + READ + THROUGH + LET_IN + WAIT + "}", NAMES)
    assert found.read == {"x", "words", "size"}, "where x says that it lies"
    assert of_ptx(ENTRY + FETCH + STORE + WAIT + "}", NAMES).written == {"words", "something"}


@pytest.mark.always
@pytest.mark.parametrize(
    ("body", "waits", "crossed"),
    [
        (WAIT + WAIT, 2, False),
        ("", 0, False),
        ("$L__1:\n" + WAIT + "\t@%p1 bra $L__1;\n", 1, True),
        ("\t@%p1 bra $L__2;\n" + WAIT + "$L__2:\n", 1, True),
        ("$L__3:\n\t@%p1 bra $L__3;\n" + WAIT + "$L__4:\n\t@%p1 bra $L__4;\n", 1, False),
        ("\t@%p1 bra $L__5;\n\tadd.s32 %r1, %r1, 1;\n$L__5:\n" + WAIT, 1, False),
    ],
)
def test_a_wait_in_a_loop_or_left_out_is_noticed(body: str, waits: int, crossed: bool) -> None:
    found = of_ptx(ENTRY + body + "\tret;\n}", NAMES)
    assert (found.waits, found.crossed) == (waits, crossed)


@pytest.mark.always
def test_a_chain_of_kernels_has_the_result_that_is_expected_of_it() -> None:
    assert [early.chained(links) for links in (1, 2, 3)] == [1, 5, 18]
    long = torch.zeros(1, dtype=torch.int32)
    for link in range(40):
        long = 3 * long + link + 1
    assert early.chained(40) == int(long)


@pytest.mark.always
def test_it_is_declined_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    early.declines.cache_clear()
    assert early.declines(torch.device("cpu")) == "the model is not on an NVIDIA GPU"
    monkeypatch.setattr(early, "capability", lambda device: (8, 9))
    assert early.declines(gpu) == early.TOO_OLD
    early.declines.cache_clear()
    monkeypatch.setattr(early, "capability", lambda device: (12, 0))
    monkeypatch.setattr(early, "tried", lambda what, device, compare: compare())
    monkeypatch.setattr(early, "compare", lambda device: "kernels that start early read what was not written yet")
    assert early.declines(gpu) == "kernels that start early read what was not written yet"
    early.declines.cache_clear()
