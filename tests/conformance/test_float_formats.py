"""FP8, NVFP4 and MXFP4 checkpoints against compressed-tensors' own compressors and transformers' dequantisation."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from engine.base.errors import CheckpointError
from engine.formats.open import open_checkpoint
from engine.formats.quantised.fp8 import dequantised
from tests.conformance.engine_support import Ours
from tests.conformance.packed_support import (
    PROMPT,
    TOLERANCE,
    Parts,
    assert_planned,
    assert_same_weights,
    compare,
    likeliest,
    save,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
    from compressed_tensors.compressors.naive_quantized.base import FloatQuantizationCompressor
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize

pytestmark = pytest.mark.usefixtures("one_thread")
E4M3 = torch.float8_e4m3fn
LARGEST = 448.0


def block_fp8(name: str, weight: torch.Tensor) -> Parts | None:
    """As DeepSeek-V3's are, in blocks of 32 by 64; what they stand for is transformers'."""
    if name.endswith("lm_head"):
        return None
    rows, columns = weight.shape[0] // 32, weight.shape[1] // 64
    scale = weight.view(rows, 32, columns, 64).abs().amax((1, 3)) / LARGEST
    spread = scale.repeat_interleave(32, 0).repeat_interleave(64, 1)
    stored = (weight / spread).to(E4M3)
    stands_for = Fp8Dequantize(None)._dequantize_one(stored, scale, torch.float32)
    return {"weight": stored, "weight_scale_inv": scale}, stands_for


def whole_fp8(name: str, weight: torch.Tensor) -> Parts | None:
    """As Ministral 3's are: one scale for all, and one of the activations that is of no use here."""
    if name.endswith("lm_head"):
        return None
    scale = weight.abs().amax() / LARGEST
    stored = (weight / scale).to(E4M3)
    return {
        "weight": stored,
        "weight_scale_inv": scale.view(()),
        "activation_scale": torch.ones(()),
    }, Fp8Dequantize(None)._dequantize_one(stored, scale.view(1, 1), torch.float32)


def compressor(kind: Any, scheme: Any, scales: Any, more: Any = None) -> Any:
    def pack(name: str, weight: torch.Tensor) -> Parts | None:
        if name.endswith("lm_head"):
            return None
        state = {"weight": weight.clone(), "weight_scale": scales(weight)} | (more(weight) if more else {})
        packed = dict(kind.compress(state, scheme))
        if "weight_packed" not in packed:
            return packed, kind.decompress(dict(packed), scheme)["weight"].float()
        # The package unpacks to bfloat16, in which scales would be rounded.
        codes = unpack_fp4_from_uint8(packed["weight_packed"], *weight.shape, torch.float32)
        scale = kind._decompress_scale(packed["weight_scale"], torch.float32)
        args, outer = scheme.weights, packed.get("weight_global_scale")
        return packed, dequantize(codes, scale, args=args, global_scale=outer, dtype=torch.float32)

    return pack


def _scheme(**weights: Any) -> Any:
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(symmetric=True, **weights))


def _largest(weight: torch.Tensor, group: int) -> torch.Tensor:
    return weight.view(weight.shape[0], -1, group).abs().amax(2)


def _global(weight: torch.Tensor) -> torch.Tensor:
    """Such that the largest block's scale is the largest number of e4m3."""
    return (LARGEST * 6.0 / weight.abs().amax()).view(1)


NVFP4 = compressor(
    NVFP4PackedCompressor,
    _scheme(num_bits=4, type="float", strategy="tensor_group", group_size=16),
    lambda weight: (_largest(weight, 16) / 6.0 * _global(weight)).to(E4M3).float(),
    lambda weight: {"weight_global_scale": _global(weight)},
)
MXFP4 = compressor(
    MXFP4PackedCompressor,
    _scheme(num_bits=4, type="float", strategy="group", group_size=32),
    lambda weight: torch.exp2(torch.ceil(torch.log2(_largest(weight, 32) / 6.0))),
)
ROWS = compressor(
    FloatQuantizationCompressor,
    _scheme(num_bits=8, type="float", strategy="channel"),
    lambda weight: weight.abs().amax(1, keepdim=True) / LARGEST,
)


def modelopt(name: str, weight: torch.Tensor) -> Parts | None:
    """NVIDIA's names: the outer scale multiplies."""
    found = NVFP4(name, weight)
    if found is None:
        return None
    parts, stands_for = found
    own = {"weight": parts["weight_packed"], "weight_scale": parts["weight_scale"], "input_scale": torch.ones(())}
    return own | {"weight_scale_2": 1 / parts["weight_global_scale"].view(())}, stands_for


def mixed(name: str, weight: torch.Tensor) -> Parts | None:
    """ModelOpt's mixture: attention in FP8, the rest in 4 bits."""
    if "self_attn" not in name:
        return modelopt(name, weight)
    scale = weight.abs().amax() / LARGEST
    stored = (weight / scale).to(E4M3)
    return {"weight": stored, "weight_scale": scale.view(()), "input_scale": torch.ones(())}, stored.float() * scale


def groups(layout: str, **weights: Any) -> dict[str, Any]:
    scheme = {"targets": ["Linear"], "format": layout, "weights": weights, "input_activations": {"num_bits": 8}}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": scheme}}


CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "blocks": (block_fp8, {"quant_method": "fp8", "weight_block_size": [32, 64], "activation_scheme": "dynamic"}, ""),
    "one scale": (whole_fp8, {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}, ""),
    "rows": (ROWS, groups("float-quantized", num_bits=8, type="float", strategy="channel"), ""),
    "nvfp4": (NVFP4, groups("nvfp4-pack-quantized", num_bits=4, type="float", group_size=16), "NVFP4"),
    "mxfp4": (MXFP4, groups("mxfp4-pack-quantized", num_bits=4, type="float", group_size=32), "MXFP4"),
    "modelopt": (modelopt, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "NVFP4"),
    "modelopt mixture": (mixed, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "NVFP4"),
}


@pytest.mark.parametrize("case", CASES)
def test_weights_and_logits(case: str, tmp_path: Path) -> None:
    pack, stated, title = CASES[case]
    reference = save(tmp_path, pack, stated)
    checkpoint = open_checkpoint(tmp_path, need_tokenizer=False)
    assert checkpoint.packed == bool(title)
    if title:
        assert checkpoint.quantisation_title == title
    else:
        assert any("FP8" in notice for notice in checkpoint.notices)
    assert checkpoint.parameters == sum(parameter.numel() for parameter in reference.parameters())
    assert checkpoint.weight_bytes <= sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    ours = Ours(tmp_path)
    if not case.startswith("modelopt"):  # whose outer scale is rounded once more, and whose neighbours may differ
        assert_same_weights(ours, reference)
    assert compare(ours, reference) <= TOLERANCE
    text = ours.greedy(PROMPT, 12)
    assert text == likeliest(reference, text)
    assert_planned(ours, tmp_path)
    if title:
        packed = [linear for name, linear in ours.model.linears() if "down" in name]
        assert all(linear.kind == "table4" for linear in packed)


def test_fp8_may_be_packed_again(tmp_path: Path) -> None:
    pack, stated, _ = CASES["blocks"]
    save(tmp_path, pack, stated)
    checkpoint = open_checkpoint(tmp_path, need_tokenizer=False)
    assert checkpoint.quantised("int8").resident_bytes(torch.bfloat16) < checkpoint.resident_bytes(torch.bfloat16)


def test_stacked_experts_in_fp8(tmp_path: Path) -> None:
    weight, scale = torch.randn(3, 64, 96), torch.rand(3, 2, 3) + 0.5
    stored = weight.to(E4M3)
    for expert in range(3):
        expected = Fp8Dequantize(None)._dequantize_one(stored[expert], scale[expert], torch.float32)
        assert torch.equal(dequantised(stored, scale, (32, 32))[expert], expected)


def test_blocks_that_do_not_divide(tmp_path: Path) -> None:
    stored, scale = torch.randn(70, 40).to(E4M3), torch.rand(3, 2)
    spread = scale.repeat_interleave(32, 0).repeat_interleave(32, 1)[:70, :40]
    assert torch.equal(dequantised(stored, scale, (32, 32)), stored.float() * spread)


@pytest.mark.parametrize(
    ("case", "change", "said"),
    [
        ("blocks", lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.weight_scale_inv"), "lack a scale"),
        ("blocks", lambda tensors: tensors.update({"model.layers.0.mlp.up_proj.weight_scale_inv": torch.ones(3, 5)}),
         r"has the shape \[3, 5\]"),
        ("nvfp4", lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight_global_scale"), "weight_global_scale"),
        ("nvfp4", lambda tensors: tensors.update({"model.layers.1.mlp.up_proj.weight_scale":
         torch.ones(256, 4).to(E4M3)}), "weight_scale has the shape"),
        ("mxfp4", lambda tensors: tensors.pop("model.layers.0.self_attn.q_proj.weight_scale"), "weight_scale"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(case: str, change: Any, said: str, tmp_path: Path) -> None:
    pack, stated, _ = CASES[case]
    save(tmp_path, pack, stated)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=said):
        open_checkpoint(tmp_path, need_tokenizer=False)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128]}, "not a pair of whole numbers"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "packed by ModelOpt as 'W4A8_AWQ'"),
        (groups("mxfp8-quantized", num_bits=8, type="float"), "layout 'mxfp8-quantized'"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"format": ["x"]}}}, r"layout \['x'\]"),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "a": {"format": "nvfp4-pack-quantized", "weights": {}}, "b": {"format": "mxfp4-pack-quantized",
            "weights": {}}}}, "several ways at once"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_said(stated: dict[str, Any], said: str, tmp_path: Path) -> None:
    save(tmp_path, lambda name, weight: None, stated)
    with pytest.raises(CheckpointError, match=said):
        open_checkpoint(tmp_path, need_tokenizer=False)


def test_modelopt_may_say_it_in_a_file_of_its_own(tmp_path: Path) -> None:
    save(tmp_path, modelopt, {"quant_method": "modelopt"})
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    assert open_checkpoint(tmp_path, need_tokenizer=False).quantisation_title == "NVFP4"
