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
    bits: int = 4

    @property
    def top(self) -> int:
        """The largest code."""
        return 2**self.bits - 1


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
            scale = np.abs(part).max(0) / (packing.top // 2)
            zero = np.full(outputs, packing.top // 2 + 1)
        else:
            low, high = np.minimum(part.min(0), 0), np.maximum(part.max(0), 0)
            scale = (high - low) / packing.top
            # Version 1 cannot store a zero-point of 0 soundly: its packer damages the neighbours in the word.
            zero = np.clip(np.round(-low / scale), 1 if packing.version == 1 else 0, packing.top).astype(np.int64)
        scales[group] = scale.astype(np.float16)
        zeros[group] = zero
        exact = scales[group].astype(np.float32)
        codes[rows] = np.clip(np.round(part / exact) + zero, 0, packing.top).astype(np.int64)
        stands_for[rows] = (codes[rows] - zero).astype(np.float32) * exact
    tensors = {
        "qweight": pack_words(codes, packing.bits),
        "qzeros": pack_words((zeros - (1 if packing.version == 1 else 0)).T, packing.bits).T.copy(),
        "scales": scales,
    }
    if packing.g_idx != "missing":
        tensors["g_idx"] = (np.zeros(inputs) if packing.g_idx == "zero" else group_of).astype(np.int32)
    return tensors, stands_for.T.copy()


def pack_words(values: np.ndarray, bits: int = 4) -> np.ndarray:
    """``[m, n]`` of ``bits`` bits -> int32 ``[m * bits / 32, n]``.

    2, 4 and 8 bits: as many to a word as go in, the first one lowest. 3 bits: 32 in three words as AutoGPTQ writes
    them: ten, then one cut 2 and 1; ten from bit 1 on, then one cut 1 and 2; ten from bit 2 on.
    """
    values = (values & (2**bits - 1)).astype(np.uint32)
    words = np.zeros((values.shape[0] * bits // 32, values.shape[1]), np.uint32)
    if bits != 3:
        for place in range(32 // bits):
            words |= values[place :: 32 // bits] << np.uint32(bits * place)
        return words.view(np.int32)
    for run in range(len(values) // 32):
        v, w = values[32 * run :], words[3 * run :]
        for place in range(10):
            w[0] |= v[place] << np.uint32(3 * place)
            w[1] |= v[11 + place] << np.uint32(3 * place + 1)
            w[2] |= v[22 + place] << np.uint32(3 * place + 2)
        w[0] |= v[10] << np.uint32(30)
        w[1] |= (v[10] >> np.uint32(2)) & np.uint32(1)
        w[1] |= v[21] << np.uint32(31)
        w[2] |= (v[21] >> np.uint32(1)) & np.uint32(3)
    return words.view(np.int32)
