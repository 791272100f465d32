"""Weights in FP8 (e4m3 or e5m2, arXiv 2209.05433): what DeepSeek-V3, Qwen3.5, Ministral 3 and llm-compressor write.

``weight`` float8 ``[N, K]`` and one scale for all (``weight_scale_inv`` or ``weight_scale``, which both multiply), for
each row ``[N, 1]``, or for each block ``[ceil(N / rows), ceil(K / columns)]``. What activations are quantised by is not
needed where they are not. No processor that Kvasir serves multiplies in FP8, so such a checkpoint is read as one of
16-bit weights, which may be packed in 8 or 4 bits while it is loaded.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.formats.safetensors import TensorFiles, TensorInfo
from engine.formats.tensors import FLOATING, MISMATCH

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
NOTICE = (
    "{name} holds its weights in FP8 and Kvasir computes with 16 bits, so they take twice the file's size. "
    "Load it with int8 or 4-bit weights to halve that or less."
)
USUAL = (128, 128)
"""Rows and columns of a block where the configuration does not say."""
OF_ACTIVATIONS = (".activation_scale", ".input_scale", ".input_global_scale", ".k_scale", ".v_scale")
"""Ends of the names of what activations would be quantised by."""
_SCALES = ("_scale_inv", "_scale")


class Fp8Files(TensorFiles):
    """A checkpoint's tensors, those in FP8 being seen and read as float32, each a copy. Their scales are not seen."""

    def __init__(self, stored: TensorFiles, block: tuple[int, int] = USUAL) -> None:
        """Raises :class:`CheckpointError` for weights without a scale that suits them."""
        entries, self._block = stored.entries, block
        # (The scales of NVFP4's blocks are in FP8 themselves.)
        packed = [entry for name, entry in entries.items() if entry.dtype in FP8 and not name.endswith("_scale")]
        self._scales = {entry.name: _scale_of(entries, entry, block) for entry in packed}
        used = {scale.name for scale in self._scales.values()}
        kept = (entry for entry in entries.items() if entry[0] not in used and not entry[0].endswith(OF_ACTIVATIONS))
        super().__init__(dict(kept))

    def dtype(self, name: str) -> torch.dtype:
        """Dtype of :meth:`view`: float32 for tensors stored in FP8. Overrides :meth:`TensorFiles.dtype`."""
        return torch.float32 if self.entries[name].name in self._scales else super().dtype(name)

    def view(self, name: str) -> Tensor:
        """The tensor, dequantised to float32 where it is stored in FP8. Overrides :meth:`TensorFiles.view`."""
        scale = self._scales.get(self.entries[name].name)
        stored = super().view(name)
        return stored if scale is None else dequantised(stored, self.map(scale), self._block)

    def stays(self, name: str) -> bool:
        """False for tensors stored in FP8. Overrides :meth:`TensorFiles.stays`."""
        return self.entries[name].name not in self._scales and super().stays(name)


def dequantised(weight: Tensor, scale: Tensor, block: tuple[int, int]) -> Tensor:
    """``weight [..., N, K]`` in FP8 times its scale, in float32."""
    out, scale = weight.float(), scale.float()
    if scale.numel() == 1:
        return out.mul_(scale.flatten())
    if scale.ndim < out.ndim:
        scale = scale[..., None]
    if scale.shape[-2:] == (out.shape[-2], 1):
        return out.mul_(scale)
    for at in range(scale.shape[-2]):
        columns = scale[..., at, :].repeat_interleave(block[1], -1)[..., None, : out.shape[-1]]
        out[..., at * block[0] : (at + 1) * block[0], :].mul_(columns)
    return out


def _scale_of(entries: dict[str, TensorInfo], entry: TensorInfo, block: tuple[int, int]) -> TensorInfo:
    """The scale of a tensor in FP8."""
    found = next((entries[entry.name + end] for end in _SCALES if entry.name + end in entries), None)
    if found is None:
        raise CheckpointError(f"The weights lack a scale of {entry.name}, which is in FP8. {MISMATCH}")
    if len(entry.shape) < 2 or found.dtype not in FLOATING:
        raise CheckpointError(
            f"{entry.name} is stored as FP8, and Kvasir reads matrices with a scale there. {MISMATCH}"
        )
    outer, (rows, columns) = entry.shape[:-2], entry.shape[-2:]
    blocks = (*outer, -(-rows // block[0]), -(-columns // block[1]))
    if found.numel != 1 and found.shape not in ((*outer, rows), (*outer, rows, 1), blocks):
        raise CheckpointError(
            f"{found.name} has the shape {list(found.shape)} where {entry.name} of {list(entry.shape)} in blocks of "
            f"{block[0]} by {block[1]} implies {list(blocks)}. {MISMATCH}"
        )
    return found
