"""The choice among backends: in order, with reasons, and live."""

from __future__ import annotations

import pytest
import torch

from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.interface import AttnProblem, AttnSpec
from engine.compute.attention.registry import AttentionDispatcher, choose
from engine.compute.layers.numerics import Numerics
from tests.engine.compute.attention.attention_cases import Case, place

PLAIN = AttnProblem("cpu", torch.bfloat16, AttnSpec(0.125))
FAST = "sdpa" if NativeAttention().declines(PLAIN) else "native"


def test_the_fast_path_first() -> None:
    choice = choose(PLAIN)
    assert choice.backend.name == FAST
    assert [name for name, _ in choice.declined] == ([] if FAST == "native" else ["native", "triton"])


@pytest.mark.parametrize(
    ("problem", "name", "reason"),
    [
        (PLAIN._replace(spec=AttnSpec(1.0, softcap=5.0), head_dims=(80, 80)), "reference", "softcap"),
        (PLAIN._replace(batch_invariant=True), "batch_invariant", "last bits"),
        (PLAIN._replace(head_dims=(80, 64)), "reference", "same width"),
        (PLAIN._replace(head_dims=(64, 80), kind="wide"), "reference", "same width"),
        (PLAIN._replace(dtype=torch.float64), "reference", "float64"),
    ],
)
def test_those_that_decline_say_why(problem: AttnProblem, name: str, reason: str) -> None:
    choice = choose(problem)
    assert choice.backend.name == name
    assert [name for name, _ in choice.declined][:3] == ["native", "triton", "sdpa"]
    assert reason in choice.declined[2][1]


@pytest.mark.parametrize(("kind", "head_dims"), [("latent", (576, 512)), ("wide", (192, 128))])
def test_latent_attention_is_fused(kind: str, head_dims: tuple[int, int]) -> None:
    problem = PLAIN._replace(kind=kind, head_dims=head_dims)
    assert choose(problem).backend.name == FAST
    assert choose(problem._replace(dtype=torch.float32)).backend.name == "sdpa"
    assert choose(PLAIN._replace(kind=kind, head_dims=head_dims, batch_invariant=True)).backend.name == (
        "batch_invariant"
    )


def test_nobody_left() -> None:
    with pytest.raises(ValueError, match="No attention backend serves this model") as error:
        choose(PLAIN._replace(kind="ternary"))
    assert "reference: cannot read the KV kind ternary" in str(error.value)


def test_the_switch_acts_at_the_next_call() -> None:
    numerics = Numerics()
    attention = AttentionDispatcher(numerics)
    case = Case(300, 3).fill(4, 2, 16, torch.float32, torch.Generator().manual_seed(0))
    batch, q, kv = place([case])
    fast, _ = attention.attend(q, kv, AttnSpec(0.25), batch)
    numerics.batch_invariant = True
    exact, _ = attention.attend(q, kv, AttnSpec(0.25), batch)
    single_batch, single_q, single_kv = place([Case(302, 1, None, case.q[2:], case.k, case.v)])
    single, _ = attention.attend(single_q, single_kv, AttnSpec(0.25), single_batch)
    assert torch.equal(single[0], exact[2])
    numerics.batch_invariant = False
    again, _ = attention.attend(q, kv, AttnSpec(0.25), batch)
    assert torch.equal(again, fast)
    assert (fast - exact).abs().max() < 1e-5


def test_a_given_list_of_backends_is_obeyed() -> None:
    case = Case(9, 1).fill(4, 2, 16, torch.float64, torch.Generator().manual_seed(0))
    batch, q, kv = place([case])
    o, _ = AttentionDispatcher(candidates=[ReferenceAttention()]).attend(q, kv, AttnSpec(0.25), batch)
    assert (o - case.expected(AttnSpec(0.25))[0]).abs().max() < 1e-12


def test_every_case_has_its_backend() -> None:
    assert choose(PLAIN).backend.name == FAST
    assert choose(PLAIN._replace(tree=True)).backend.name == FAST
    assert choose(PLAIN._replace(batch_invariant=True)).backend.name == "batch_invariant"
    capped = PLAIN._replace(spec=AttnSpec(0.125, softcap=50.0))
    assert choose(capped).backend.name == ("reference" if FAST == "sdpa" else FAST)
