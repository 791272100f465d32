"""4-bit floating-point weights: NVFP4 and MXFP4, as compressed-tensors and NVIDIA's ModelOpt write them.

Two codes a byte, the first in its low nibble: a sign and an index into 0, 0.5, 1, 1.5, 2, 3, 4, 6. NVFP4 has a scale in
e4m3 for 16 weights, and one of the module besides: compressed-tensors divides by it (``weight_global_scale``), ModelOpt
multiplies (``weight_scale_2``). MXFP4 has a power of two for 32 weights, an exponent plus 127. (OCP Microscaling
Formats 1.0; compressed_tensors compressors/nvfp4 and mxfp4.)
"""

from __future__ import annotations

import torch

from engine.base.errors import CheckpointError
from engine.config.model import Quantisation
from engine.formats.quantised.layouts import PackedModule, TableLayout, TablePart
from engine.formats.tensors import Tensors

_HALF = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = (*_HALF, *(-value for value in _HALF))
GROUPS = {"nvfp4": 16, "mxfp4": 32}


def packed(
    tensors: Tensors, quantisation: Quantisation, name: str, out_features: int, in_features: int
) -> PackedModule | None:
    """The module, checked against the headers; None where it is not packed in 4 bits of this kind."""
    codes = next((code for code in (f"{name}.weight_packed", f"{name}.weight") if tensors.has(code)), "")
    if not codes or tensors.dtype(codes) != torch.uint8:
        return None
    group, scale = GROUPS[quantisation.table], f"{name}.weight_scale"
    if in_features % group:
        raise CheckpointError(
            f"{name} has {in_features} input features, which are not a whole number of {quantisation.table.upper()} "
            f"blocks of {group}. Download the model again."
        )
    tensors.check(codes, (out_features, in_features // 2), (torch.uint8,), packed=True)
    stored = torch.float8_e4m3fn if group == 16 else torch.uint8
    tensors.check(scale, (out_features, in_features // group), (stored,), packed=True)
    outer = None
    if group == 16:
        outer = next((end for end in ("weight_global_scale", "weight_scale_2") if tensors.has(f"{name}.{end}")), "")
        one = tensors.shape(f"{name}.{outer or 'weight_global_scale'}")
        tensors.check(f"{name}.{outer}", () if one == () else (1,), (torch.float32,), packed=True)

    def read() -> TablePart:
        words = tensors.view(codes)
        if outer is None:
            magnitudes = torch.exp2(tensors.view(scale).float() - 127)
        else:
            whole = tensors.view(f"{name}.{outer}").float()
            magnitudes = tensors.view(scale).float()
            magnitudes = magnitudes / whole if outer == "weight_global_scale" else magnitudes * whole
        # A table's first code is in the high nibble.
        swapped = ((words << 4) | (words >> 4)).flatten()
        return TablePart(out_features, swapped, torch.tensor(VALUES), magnitudes.flatten())

    return PackedModule(TableLayout(in_features, group, VALUES, None, ""), read)
