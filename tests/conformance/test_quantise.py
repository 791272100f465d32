"""Quantising while loading: the numbers of bitsandbytes bit for bit, and models that compute with what was packed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.dense import Dense
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.formats.quantised import quantise
from engine.formats.quantised.quantise import Module, Quantiser, to_int4, to_int8, to_nf4
from tests.conformance.engine_support import Ours, relative
from tests.conformance.packed_support import (
    PROMPT,
    VOCABULARY,
    save,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    functional = pytest.importorskip("bitsandbytes").functional

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
METHODS = ("nf4", "int4", "int8")
SHAPES = ((64, 128), (7, 8), (129, 40), (3000, 200))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def some_weights(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Normal weights, with outliers, a row of zeros, and values that lie on the bounds between codes."""
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(3)) * 0.05
    weight[0, 0], weight[-1, -1] = 3.0, -1.0
    weight[shape[0] // 2] = 0
    table = torch.tensor(quantise.NF4)
    weight[1, :8] = torch.cat(((table[1:7] + table[:6]) / 2, torch.tensor([1.0, -1.0])))
    return weight.to(dtype)


def quantised(method: Any, weight: torch.Tensor) -> Any:
    packed = Quantiser(method, CPU).packed(Module("m", *weight.shape, lambda: weight))
    assert packed is not None
    return packed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_nf4_is_bitsandbytes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight = some_weights(shape, dtype)
    part = quantised("nf4", weight).read()
    codes, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=False)
    assert torch.equal(part.packed, codes.flatten())
    assert torch.equal(part.absmax, state.absmax.where(state.absmax > 1e-37, 0))
    assert torch.equal(part.table, state.code)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_int8_is_bitsandbytes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight = some_weights(shape, dtype)
    weight[shape[0] // 2, 0] = 0.01  # where a whole row is 0 the package divides by it
    part = quantised("int8", weight).read()
    codes, largest, _ = functional.int8_vectorwise_quant(weight)
    assert torch.equal(part.codes, codes)
    assert torch.equal(part.largest, largest)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_no_numbers_are_refused(method: str, value: float) -> None:
    """In 4 bits an infinity would become a finite weight, which no later check could find."""
    weight = some_weights((64, 128), torch.bfloat16)
    weight[40, 77] = value
    with pytest.raises(CheckpointError, match="m holds values that are not numbers"):
        quantised(method, weight).read()


def test_a_row_of_zeros_stays_one() -> None:
    zeros = torch.zeros(8, 64)
    assert not to_int8(zeros)[0].any()
    codes, scales, points = to_int4(zeros, 64)
    assert not ((codes - points) * scales).any()
    packed, largest = to_nf4(zeros.view(-1))
    assert not largest.any()
    assert torch.equal(packed, torch.full_like(packed, 0x77))


@pytest.mark.parametrize("group", quantise.GROUPS)
def test_int4_is_nearest_and_its_scales_beat_the_span(group: int) -> None:
    weight = torch.randn(96, 256, generator=torch.Generator().manual_seed(5)) * 0.02
    weight[:, :group] += 0.1  # groups of one sign
    codes, scales, zeros = to_int4(weight, group)
    assert codes.max() <= 15
    spread = (scales.float().repeat_interleave(group, 1), zeros.float().repeat_interleave(group, 1))
    found = (codes - spread[1]) * spread[0]
    for code in range(16):
        assert ((found - weight).abs() <= ((code - spread[1]) * spread[0] - weight).abs() + 1e-7).all()
    grouped = weight.view(96, -1, group)
    low, high = grouped.amin(2, keepdim=True).clamp(max=0), grouped.amax(2, keepdim=True).clamp(min=0)
    step = (high - low) / 15
    zero = (-low / step).round()
    plain = (((grouped / step).round() + zero).clamp(0, 15) - zero) * step
    assert (found - weight).square().sum() < (0.99 if group > 16 else 1.0) * (plain - grouped).square().sum()


@pytest.mark.parametrize("method", METHODS)
def test_the_layer_stands_for_what_was_quantised(method: str) -> None:
    """Bit for bit what the definition gives, and near the weights it was made of."""
    weight = some_weights((130, 192), torch.bfloat16)
    packed = quantised(method, weight)
    found = torch.empty(130, 192)
    packed.layout.write(packed.read(), found)
    if method == "nf4":
        codes, state = functional.quantize_4bit(weight.float(), blocksize=64, quant_type="nf4")
        assert torch.equal(found, functional.dequantize_4bit(codes, state))
    elif method == "int8":
        codes, largest = to_int8(weight.float())
        assert torch.equal(found, codes * largest[:, None] * (1 / 127))
    else:
        codes, scales, zeros = to_int4(weight.float(), 64)
        spread = (scales.float().repeat_interleave(64, 1), zeros.float().repeat_interleave(64, 1))
        assert torch.equal(found, (codes - spread[1]) * spread[0])
    error = (found - weight).norm() / weight.norm()
    assert error < {"nf4": 0.12, "int4": 0.12, "int8": 0.02}[method]


def test_what_stays_as_it_is() -> None:
    quantiser = Quantiser("nf4", CPU)
    for name in ("lm_head", "model.layers.0.mlp.gate", "blk.0.ffn_gate_inp", "output"):
        assert quantiser.packed(Module(name, 64, 64, lambda: torch.ones(64, 64))) is None
    assert quantiser.packed(Module("model.layers.0.mlp.gate_proj", 64, 64, lambda: torch.ones(64, 64))) is not None
    assert quantiser.packed(Module("m", 64, 60, lambda: torch.ones(64, 60))) is None, "60 is no multiple of 8"


def folder_of(tmp_path: Path, family: str = "Llama", **options: Any) -> Any:
    torch.manual_seed(2)
    return save(tmp_path, lambda name, weight: None, None, family, options)


@pytest.mark.parametrize("weights", ["4bit", "4bit_torch", "16bit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_the_plan_is_what_is_held(tmp_path: Path, method: Any, dtype: torch.dtype, weights: Any) -> None:
    folder_of(tmp_path)
    plain = open_checkpoint(tmp_path, need_tokenizer=False)
    checkpoint = plain.quantised(method)
    model = load_model(checkpoint, CPU, dtype, weights)
    assert checkpoint.resident_bytes(dtype, weights) == model.storage_size()
    assert (model.storage_size() < 0.8 * plain.resident_bytes(dtype)) == (weights != "16bit")
    assert checkpoint.packed
    assert checkpoint.quantisation_title.startswith(quantise.PACKERS[method].title)


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Phi3"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weights", ["4bit", "4bit_torch", "16bit"])
def test_the_model_computes_with_the_quantised_weights(tmp_path: Path, method: Any, weights: Any, family: str) -> None:
    """transformers' model with each weight replaced by what it was packed as; biases, norms, head, table stay."""
    reference = folder_of(tmp_path, family, **({"pad_token_id": 0} if family == "Phi3" else {}))
    for name, module in reference.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            packed = quantised(method, module.weight.detach().half())
            packed.layout.write(packed.read(), module.weight.data)
    ours = Ours(tmp_path, weights=weights, quantise=method)
    assert isinstance(ours.model.head, Dense)
    kind = {"nf4": "table4", "int8": "int8", "int4": "int4"}[method] if weights != "16bit" else "dense"
    assert {linear.kind for name, linear in ours.model.linears() if name != "head"} == {kind}
    texts = [[3, 5, *range(20, 90)], PROMPT]
    with torch.inference_mode():
        expected = [reference(torch.tensor([text])).logits[0] for text in texts]
    found = ours.logits(texts)
    assert all(relative(a, b) < 1e-4 for a, b in zip(found, expected, strict=True))
    assert found[0].shape[1] == VOCABULARY
