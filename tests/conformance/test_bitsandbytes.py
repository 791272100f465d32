"""bitsandbytes checkpoints (NF4, FP4, nested or not, and LLM.int8) against the package and transformers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.compute.native.library import declines
from tests.conformance.engine_support import Ours
from tests.conformance.packed_support import (
    ROUNDED,
    TOLERANCE,
    Parts,
    assert_exact,
    assert_same_weights,
    assert_title,
    compare,
    save,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    bitsandbytes = pytest.importorskip("bitsandbytes")
    functional = bitsandbytes.functional

pytestmark = pytest.mark.usefixtures("one_thread", "quiet")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Where the package has no kernel of its own it compiles torch's, which warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def four_bits(weight: torch.Tensor, table: str, nested: bool, block: int = 64, storage=torch.uint8) -> Parts:
    """As bnb.nn.Linear4bit is saved."""
    packed, state = functional.quantize_4bit(
        weight.contiguous(), blocksize=block, compress_statistics=nested, quant_type=table, quant_storage=storage
    )
    tensors = {"weight": packed.clone()}
    tensors |= {f"weight.{key}": value.clone() for key, value in state.as_dict(packed=True).items()}
    return tensors, unpacked(packed, state)


def unpacked(packed: torch.Tensor, state: Any) -> torch.Tensor:
    """What the package dequantises to.

    Its kernel for CPUs takes blocks to end with a row, and compiles another one for large blocks; so where a row is
    not whole blocks it gets the same numbers as rows of one block of 64.
    """
    if state.shape[1] % state.blocksize == 0 and state.blocksize < 2048:
        return functional.dequantize_4bit(packed, state).float()
    absmax = state.absmax
    if state.nested:
        absmax = functional.dequantize_blockwise(absmax, state.state2) + state.offset
    rows = state.shape.numel() // 64
    absmax = absmax.repeat_interleave(state.blocksize // 64)[:rows].contiguous()
    plain = torch.ops.bitsandbytes.dequantize_4bit(packed, absmax, 64, state.quant_type, (rows, 64), torch.float32)
    return plain.view(state.shape)


def eight_bits(weight: torch.Tensor) -> Parts:
    """As bnb.nn.Linear8bitLt is saved."""
    codes, largest, _ = functional.int8_vectorwise_quant(weight.half())
    tensors = {"weight": codes, "SCB": largest.float(), "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return tensors, functional.int8_vectorwise_dequant(codes, largest.float())


def make(
    folder: Path,
    table: str,
    nested: bool = False,
    skip: Any = "lm_head",
    family: str = "Llama",
    options: dict[str, Any] | None = None,
    **quantise: Any,
) -> transformers.PreTrainedModel:
    def pack(name: str, weight: torch.Tensor) -> Parts | None:
        if name.endswith(skip):
            return None
        return four_bits(weight, table, nested, **quantise) if table else eight_bits(weight)

    stated: dict[str, Any] = {"quant_method": "bitsandbytes", "load_in_4bit": bool(table), "load_in_8bit": not table}
    if table:
        stated |= {"bnb_4bit_quant_type": table, "bnb_4bit_use_double_quant": nested}
    torch.manual_seed(2)
    return save(folder, pack, stated, family, options)


CASES: dict[str, dict[str, Any]] = {
    "nf4": {"table": "nf4"},
    "nf4 nested": {"table": "nf4", "nested": True},
    "fp4": {"table": "fp4"},
    "fp4 nested": {"table": "fp4", "nested": True},
    "nf4 blocks of 4096": {"table": "nf4", "block": 4096},
    "nf4 blocks over the ends of rows": {"table": "nf4", "block": 512, "options": {"intermediate_size": 160}},
    "nf4 ragged last block": {"table": "nf4", "block": 4096, "options": {"intermediate_size": 168}},
    "nf4 nested ragged": {"table": "nf4", "nested": True, "block": 2048, "options": {"intermediate_size": 168}},
    "nf4 stored as bfloat16": {"table": "nf4", "storage": torch.bfloat16},
    "nf4 biases": {"table": "nf4", "nested": True, "family": "Qwen2"},
    "nf4 v_proj skipped": {"table": "nf4", "skip": ("v_proj", "lm_head")},
    "nf4 head": {"table": "nf4", "skip": "nothing"},
    "int8": {"table": ""},
    "int8 biases": {"table": "", "family": "Qwen2"},
    "int8 qwen3 down skipped": {"table": "", "family": "Qwen3", "skip": ("down_proj", "lm_head")},
}


@pytest.mark.parametrize("case", CASES)
def test_weights_logits_and_text(case: str, tmp_path: Path) -> None:
    reference = make(tmp_path, **CASES[case])
    ours = assert_exact(tmp_path, reference)
    packed = "table4" if CASES[case]["table"] else "int8"
    kinds = {name.split(".")[-1]: linear for name, linear in ours.model.linears()}
    assert kinds["output"].kind == packed
    native = declines(torch.float32, torch.device("cpu")) is None and CASES[case].get("block", 64) == 64
    assert ("native" in kinds["output"].path) == native
    assert bool(kinds["output"].declined) != native
    apart = CASES[case].get("nested", False) or "ragged" in case
    assert kinds["gate_up"].kind == ("concatenated" if apart else packed)
    assert kinds["head"].kind == ("table4" if case == "nf4 head" else "dense")


@pytest.mark.parametrize("case", CASES)
def test_other_ways_to_hold_them(case: str, tmp_path: Path) -> None:
    reference = make(tmp_path, **CASES[case])
    dequantising = Ours(tmp_path, weights="4bit_torch")
    paths = {linear.path for _, linear in dequantising.model.linears() if linear.kind in ("table4", "int8")}
    assert paths == {"dequantise and multiply"}
    assert_same_weights(dequantising, reference)
    assert compare(dequantising, reference) <= TOLERANCE
    expanded = Ours(tmp_path, weights="16bit")
    assert {linear.kind for _, linear in expanded.model.linears()} == {"dense"}
    assert_same_weights(expanded, reference)
    for invariant in (False, True):
        assert compare(Ours(tmp_path, torch.bfloat16, invariant=invariant), reference) <= ROUNDED


def test_modules_are_saved_under_these_names() -> None:
    """The package's own layers, whose state is what transformers saves."""
    weight = torch.randn(64, 128)
    for nested in (False, True):
        layer = bitsandbytes.nn.Linear4bit(128, 64, bias=False, compress_statistics=nested, quant_type="nf4")
        layer.load_state_dict({"weight": weight})
        state, (ours, _) = layer.to("cpu").state_dict(), four_bits(weight, "nf4", nested)
        assert {key: (value.dtype, value.shape) for key, value in state.items()} == {
            key: (value.dtype, value.shape) for key, value in ours.items()
        }
    layer = bitsandbytes.nn.Linear8bitLt(128, 64, bias=False, has_fp16_weights=False)
    layer.load_state_dict({"weight": weight})
    state, (ours, _) = layer.to("cpu").state_dict(), eight_bits(weight)
    assert {key: (value.dtype, value.shape) for key, value in state.items()} == {
        key: (value.dtype, value.shape) for key, value in ours.items()
    }


@pytest.mark.parametrize(
    ("case", "title"), [("nf4 nested", "bitsandbytes NF4"), ("fp4", "bitsandbytes FP4"), ("int8", "LLM.int8")]
)
def test_the_title_and_the_size(case: str, title: str, tmp_path: Path) -> None:
    reference = make(tmp_path, **CASES[case])
    opened = assert_title(tmp_path, reference, title)
    # What the layers hold is what the file has of them (the rest of it: the token table, the norms).
    planned = opened.planned(torch.float16)
    rest = 2 * (reference.model.embed_tokens.weight.numel() + 5 * 128)
    held = sum(linear.storage_size() for _, linear in planned.linears())
    assert 0.98 * (opened.weight_bytes - rest) < held <= opened.weight_bytes - rest
