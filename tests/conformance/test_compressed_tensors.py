"""compressed-tensors checkpoints ("pack-quantized") against the package's own compressor and transformers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.compute.layers.linear.coded import pack, unpack
from engine.formats.quantised.compressed import CompressedWeights
from tests.conformance.compressed_packer import pack_older, quantise
from tests.conformance.packed_support import Parts, assert_exact, assert_other_ways, assert_title, save

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

pytestmark = pytest.mark.usefixtures("one_thread")


def reordered(weight: torch.Tensor, bits: int, group: int, *ways: Any) -> Parts:
    """As :func:`quantise`, but groups are of features that are no neighbours, and ``weight_g_idx`` says which.

    (GPTQ's order by activations, which llm-compressor wrote until 2026; the codes keep the order of the features.)
    Modules of the same inputs have the same order, as there.
    """
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(9))
    tensors, stands_for = quantise(weight[:, order].contiguous(), bits, group, *ways)
    codes = unpack_from_int32(tensors["weight_packed"], bits, weight.shape)
    back = order.argsort()
    tensors["weight_packed"] = pack_to_int32(codes[:, back].contiguous(), bits)
    return tensors | {"weight_g_idx": (back // group).int()}, stands_for[:, back]


def make(
    folder: Path,
    bits: int = 4,
    group: int = 32,
    symmetric: bool = True,
    scales: torch.dtype = torch.bfloat16,
    skip: Any = "lm_head",
    family: str = "Llama",
    drop: str = "",
    other: dict[str, int] | None = None,
    older: bool = False,
    order: str | None = None,
) -> transformers.PreTrainedModel:
    """``other`` packs the down projections otherwise; ``drop`` leaves a tensor of each module away.

    ``order`` is ``actorder``: with "group" features of a group are no neighbours, with "weight" they are.
    """

    def pack(name: str, weight: torch.Tensor) -> Parts | None:
        if name.endswith(skip):
            return None
        ways = {"bits": bits, "group": group} | ((other or {}) if name.endswith("down_proj") else {})
        packer = reordered if order == "group" else quantise
        tensors, stands_for = packer(weight, ways["bits"], ways["group"], symmetric, scales, older)
        return {key: value for key, value in tensors.items() if key != drop}, stands_for

    def scheme(targets: list[str], bits: int, group: int) -> dict[str, Any]:
        weights = {
            "num_bits": bits, "type": "int", "symmetric": symmetric, "actorder": order, "dynamic": False,
            "strategy": "group" if group > 0 else "channel", "group_size": group if group > 0 else None,
        }  # fmt: skip
        return {"targets": targets, "weights": weights, "input_activations": None, "output_activations": None}

    groups = {"group_0": scheme(["Linear"], bits, group)}
    if other:
        groups["group_1"] = scheme(["re:(a+)+b.*down_proj"], **({"bits": bits, "group": group} | other))
    stated = {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
        "config_groups": groups, "ignore": ["lm_head"], "kv_cache_scheme": None,
    }  # fmt: skip
    torch.manual_seed(4)
    return save(folder, pack, stated, family)


CASES: dict[str, dict[str, Any]] = {
    "int4": {},
    "int4 asymmetric": {"symmetric": False},
    "int4 float16 scales": {"scales": torch.float16},
    "int4 float32 scales": {"scales": torch.float32, "symmetric": False},
    "int4 groups of 128": {"group": 128},
    "int4 channels": {"group": -1},
    "int4 channels asymmetric": {"group": -1, "symmetric": False},
    "int4 biases": {"family": "Qwen2"},
    "int4 v_proj skipped": {"skip": ("v_proj", "lm_head")},
    "int4 head": {"skip": "nothing"},
    "int4 no weight_shape": {"drop": "weight_shape"},
    "int8": {"bits": 8},
    "int8 channels": {"bits": 8, "group": -1},
    "int8 asymmetric": {"bits": 8, "symmetric": False},
    "int3": {"bits": 3},
    "int2 asymmetric": {"bits": 2, "symmetric": False},
    "int5": {"bits": 5},
    "int6 asymmetric": {"bits": 6, "symmetric": False},
    "int3 older": {"bits": 3, "older": True},
    "int5 older asymmetric": {"bits": 5, "older": True, "symmetric": False},
    "int6 older channels": {"bits": 6, "older": True, "group": -1},
    "int7 older asymmetric": {"bits": 7, "older": True, "symmetric": False},
    "int4 older asymmetric": {"older": True, "symmetric": False},
    "int4 order of groups": {"order": "group"},
    "int4 order of groups asymmetric": {"order": "group", "symmetric": False},
    "int8 order of groups": {"order": "group", "bits": 8},
    "int4 order of weights": {"order": "weight"},
    "int4, down in int8": {"other": {"bits": 8}},
    "int4, down in groups of 64": {"other": {"group": 64}},
}


TITLES = {
    "int4": "compressed-tensors 4-bit, groups of 32",
    "int8 channels": "compressed-tensors 8-bit, one group per column",
    "int4, down in int8": "compressed-tensors 4/8-bit, groups of 32",
}


@pytest.mark.parametrize("case", CASES)
def test_weights_logits_and_text(case: str, tmp_path: Path) -> None:
    reference = make(tmp_path, **CASES[case])
    ours = assert_exact(tmp_path, reference)
    packed = case.replace(",", "").split()[0]
    kinds = {name.split(".")[-1]: linear.kind for name, linear in ours.model.linears()}
    assert kinds["down"] == ("int8" if "down in int8" in case else packed)
    assert kinds["qkv"] == ("concatenated" if "v_proj" in case else packed)
    assert kinds["head"] == (packed if "head" in case else "dense")


OFTEN = {
    *TITLES, "int4 asymmetric", "int4 float32 scales", "int8 asymmetric", "int3", "int5", "int6 older channels",
    "int7 older asymmetric", "int4 order of groups asymmetric", "int4 v_proj skipped",
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in OFTEN else pytest.mark.long) for case in CASES]
)
def test_other_ways_to_hold_them(case: str, tmp_path: Path) -> None:
    reference = make(tmp_path, **CASES[case])
    assert_other_ways(tmp_path, reference)
    if title := TITLES.get(case):
        assert_title(tmp_path, reference, title, "down" not in case)


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("count", [32, 64, 7, 100])
def test_streams_of_bits_are_the_packages(bits: int, count: int) -> None:
    half = 2 ** (bits - 1)
    values = torch.randint(-half, half, (5, count), dtype=torch.int8)
    words = pack_to_int32(values, bits).t()
    found = unpack(words, bits, count)
    assert torch.equal(found.t().int() - half, values.int())
    assert torch.equal(pack(found, bits), words)


@pytest.mark.parametrize("bits", [3, 5, 6, 7])
def test_columns_of_older_files_start_anywhere(bits: int) -> None:
    half = 2 ** (bits - 1)
    codes, zeros = (torch.randint(-half, half, shape, dtype=torch.int8) for shape in ((45, 64), (45, 2)))
    words, zero_point = pack_older(codes, bits, 1), pack_older(zeros, bits, 0)
    part = CompressedWeights("m", words, torch.rand(45, 2), zero_point, None, 64, 32, bits, padded=True)
    for start, stop in ((0, 45), (1, 9), (31, 45), (40, 41)):
        columns = part.columns(start, stop)
        assert torch.equal(unpack(columns.words, bits, 64).t().int() - half, codes[start:stop].int())
        assert torch.equal(columns.zeros.t().int() - half, zeros[start:stop].int())


def test_groups_in_an_order_of_their_own() -> None:
    """Older files name the group of each input feature; -1 everywhere says nothing."""
    codes = torch.randint(-8, 8, (16, 64), dtype=torch.int8)
    scale = torch.rand(16, 2)
    for order in (torch.randperm(64) // 32, torch.full((64,), -1)):
        part = CompressedWeights("m", pack_to_int32(codes, 4), scale, None, order.int(), 64, 32, 4)
        columns = part.columns(3, 9)
        group = torch.arange(64) // 32 if part.group_of is None else part.group_of.long()
        assert (part.group_of is None) == bool((order == -1).all())
        weight = (unpack(columns.words, 4, 64).float() - columns.zeros.float()[group]) * columns.scales[group]
        expected = codes.float() * scale[:, group]
        assert torch.equal(weight.t(), expected[3:9])
