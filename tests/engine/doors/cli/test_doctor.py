"""What `kvasir doctor` says of the kernels that lie between products, on a GPU that is pretended."""

from __future__ import annotations

from unittest import mock

import pytest

pytest.importorskip("triton")

from engine.compute.layers.experts import few
from engine.compute.layers.linear.triton import resident, surrounded
from engine.compute.layers.triton import fused
from engine.compute.models.registry import family
from engine.doors.cli.doctor import fused_kernels, resident_kernels
from engine.loading.runners import fallbacks
from tests.gpu.pretended import LLAMA_8B, QWEN3_30B, Weights, pretended, shortened


def test_the_doctor_says_which_kernels_serve_and_why_others_do_not() -> None:
    with pretended():
        model = family("LlamaForCausalLM").Model(shortened(LLAMA_8B, 2), Weights())
        served = list(fused_kernels(model))
        with mock.patch.object(fused, "gate_disagrees", return_value="it computes wrongly"):
            declined = list(fused_kernels(model))
        with mock.patch.object(surrounded, "disagrees", return_value="it computes wrongly"):
            apart = list(fused_kernels(model))[-1]
    assert [kernel.chosen for kernel in served] == ["Triton kernel"] * 5
    assert apart == (
        "norm, gating and addition within products", 2, "kernels of their own", ("Triton kernel: it computes wrongly",)
    )  # fmt: skip
    assert declined[-2] == ("gating", 2, "torch", ("Triton kernel: it computes wrongly",))


def test_the_doctor_says_how_few_rows_pass_a_mixture() -> None:
    with pretended():
        model = family("Qwen3MoeForCausalLM").Model(shortened(QWEN3_30B, 2), Weights())
        served = list(fused_kernels(model))[-1]
        with mock.patch.object(few, "disagrees", return_value="it computes wrongly"):
            apart = list(fused_kernels(model))[-1]
    part = "norm, choice and addition within the products of experts"
    assert served == (part, 2, "Triton kernel", ())
    assert apart == (part, 2, "kernels of their own", ("Triton kernel: it computes wrongly",))


def test_the_doctor_and_a_load_say_which_products_are_not_resident() -> None:
    as_well = "with so few output features the other kernel keeps memory at work as well"
    with pretended():
        model = family("LlamaForCausalLM").Model(shortened(LLAMA_8B, 2), Weights())
        found = list(resident_kernels(model))
        assert list(fallbacks(model, "Llama")) == [], "the switch is off"
        model.numerics.resident = True
        assert list(fallbacks(model, "Llama")) == [f"4 layers of Llama have no resident products ({as_well})."]
        with mock.patch.object(resident, "disagrees", return_value="it computes wrongly"):
            declined = list(resident_kernels(model))
    name = "resident products (a switch)"
    assert found == [
        (name, 4, "products that are not", (f"Triton kernel: {as_well}",)), (name, 4, "Triton kernel", ())
    ]  # fmt: skip
    assert declined[1] == (name, 4, "products that are not", ("Triton kernel: it computes wrongly",))
