"""AWQ checkpoints: our weights and logits against the weights that the packed ones stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from tests.conformance.packed_support import Parts, assert_exact, assert_other_ways, assert_title, save

pytestmark = pytest.mark.usefixtures("one_thread")

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""AutoAWQ's awq/utils/packing_utils.py: nibble i of a word holds column 8 c + ORDER[i]."""


def pack_columns(values: np.ndarray) -> np.ndarray:
    """``[rows, 8 m]`` of 0..15 -> int32 ``[rows, m]``."""
    words = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
    for place, column in enumerate(ORDER):
        words |= values[:, column::8].astype(np.uint32) << np.uint32(4 * place)
    return words.view(np.int32)


def quantise(weight: torch.Tensor, group: int, zero_point: bool, scales: torch.dtype = torch.float16) -> Parts:
    """As AutoAWQ's WQLinear_GEMM stores it."""
    inputs = weight.shape[1]
    size = group if group > 0 else inputs
    grouped = weight.t().reshape(inputs // size, size, -1)
    if zero_point:
        low, high = grouped.amin(1).clamp(max=0), grouped.amax(1).clamp(min=0)
        scale = ((high - low) / 15).to(scales)
        zero = (-low / scale.float()).round().clamp(0, 15)
    else:
        scale = (grouped.abs().amax(1) / 7).to(scales)
        zero = torch.full(scale.shape, 8.0)
    codes = ((grouped / scale.float()[:, None]).round() + zero[:, None]).clamp(0, 15)
    stands_for = (codes - zero[:, None]) * scale.float()[:, None]
    tensors = {
        "qweight": torch.from_numpy(pack_columns(codes.reshape(inputs, -1).int().numpy())),
        "qzeros": torch.from_numpy(pack_columns(zero.int().numpy())),
        "scales": scale,
    }
    return tensors, stands_for.reshape(inputs, -1).t()


def make(
    folder: Path, group: int = 32, zero_point: bool = True, skip: str = "lm_head", family: str = "Llama", **config
) -> transformers.PreTrainedModel:
    """A checkpoint whose modules are packed but for those whose name ends in ``skip``."""
    scales = config.pop("scales", torch.float16)

    def pack(name: str, weight: torch.Tensor) -> Parts | None:
        return None if name.endswith(skip) else quantise(weight, group, zero_point, scales)

    stated = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": zero_point, "version": "gemm"}
    torch.manual_seed(1)
    return save(folder, pack, {k: v for k, v in (stated | config).items() if v is not None}, family)


CASES = {
    "plain": {},
    "groups of 128": {"group": 128},
    "one group": {"group": -1},
    "no zero-points": {"zero_point": False},
    "biases": {"family": "Qwen2"},
    "qwen3": {"family": "Qwen3"},
    "v_proj skipped": {"skip": ("v_proj", "lm_head"), "modules_to_not_convert": ["v_proj"]},
    "head packed": {"skip": "nothing"},
    "bfloat16 scales": {"scales": torch.bfloat16},
    "AutoRound": {
        "quant_method": "auto-round",
        "packing_format": "auto_round:auto_awq",
        "sym": False,
        "version": None,
    },
    "older names": {"bits": None, "group_size": None, "w_bit": 4, "q_group_size": 32, "version": "GEMM"},
}


@pytest.mark.parametrize("case", CASES)
def test_weights_logits_and_text(case: str, tmp_path: Path) -> None:
    reference = make(tmp_path, **CASES[case])
    ours = assert_exact(tmp_path, reference)
    kinds = {name.split(".")[-1]: linear.kind for name, linear in ours.model.linears()}
    assert kinds["down"] == "int4"
    assert kinds["qkv"] == ("concatenated" if "v_proj" in case else "int4")
    assert kinds["head"] == ("int4" if case == "head packed" else "dense")


@pytest.mark.parametrize("case", CASES)
def test_other_ways_to_hold_them(case: str, tmp_path: Path) -> None:
    reference = make(tmp_path, **CASES[case])
    assert_other_ways(tmp_path, reference)
    if case == "groups of 128":
        assert_title(tmp_path, reference, "AWQ 4-bit, groups of 128")
