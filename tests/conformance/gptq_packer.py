"""Packs weights as GPTQ files do, from the definition of the format, by plain loops over numpy words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Packing:
    """``version`` 1 stores zero-points one too low. ``g_idx``: "derived" from the groups, all "zero", or "missing"."""

    version: int = 1
    symmetric: bool = True
    group: int = 32
    act_order: bool = False
    g_idx: str = "derived"


def quantise(
    weight: np.ndarray, packing: Packing, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """``weight [N, K]`` -> the module's tensors, and the weight ``[N, K]`` float32 that they stand for."""
    outputs, inputs = weight.shape
    size = packing.group if packing.group > 0 else inputs
    groups = -(-inputs // size)
    group_of = np.arange(inputs) // size
    if packing.act_order:
        group_of = group_of[rng.permutation(inputs)]
    codes = np.zeros((inputs, outputs), np.int64)
    scales = np.zeros((groups, outputs), np.float16)
    zeros = np.zeros((groups, outputs), np.int64)
    stands_for = np.zeros((inputs, outputs), np.float32)
    for group in range(groups):
        rows = np.flatnonzero(group_of == group)
        part = weight.T[rows].astype(np.float32)
        if packing.symmetric:
            scale = np.abs(part).max(0) / 7
            zero = np.full(outputs, 8)
        else:
            low, high = np.minimum(part.min(0), 0), np.maximum(part.max(0), 0)
            scale = (high - low) / 15
            # Version 1 cannot store a zero-point of 0 soundly: its packer damages the neighbours in the word.
            zero = np.clip(np.round(-low / scale), 1 if packing.version == 1 else 0, 15).astype(np.int64)
        scales[group] = scale.astype(np.float16)
        zeros[group] = zero
        exact = scales[group].astype(np.float32)
        codes[rows] = np.clip(np.round(part / exact) + zero, 0, 15).astype(np.int64)
        stands_for[rows] = (codes[rows] - zero).astype(np.float32) * exact
    tensors = {
        "qweight": pack_words(codes),
        "qzeros": pack_words((zeros - (1 if packing.version == 1 else 0)).T).T.copy(),
        "scales": scales,
    }
    if packing.g_idx != "missing":
        tensors["g_idx"] = (np.zeros(inputs) if packing.g_idx == "zero" else group_of).astype(np.int32)
    return tensors, stands_for.T.copy()


def pack_words(values: np.ndarray) -> np.ndarray:
    """``[8 m, n]`` of 0..15 -> int32 ``[m, n]``: value 8 i + j in bits 4 j of word i."""
    words = np.zeros((values.shape[0] // 8, values.shape[1]), np.uint32)
    for place in range(8):
        words |= (values[place::8] & 15).astype(np.uint32) << np.uint32(4 * place)
    return words.view(np.int32)
