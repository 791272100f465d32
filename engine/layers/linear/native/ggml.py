"""Products with ggml's blocks in Kvasir's native code (engine/native/ggml.c), on a CPU.

For few rows the codes are multiplied as they are and weights are never rounded; for many rows the weights are rounded
once, to bfloat16, and torch multiplies. Sums are float32. Rows of the product do not know each other, so it is
batch-invariant as it stands.
"""

from __future__ import annotations

from torch import Tensor

from engine.layers.linear.ggml_blocks import BLOCKS
from engine.native.library import Ggml, find

PATH = "native block matmul on CPU"


def prefer_huge_pages(data: Tensor) -> None:
    """Where there is native code, let the system back ``data``, not yet written, with huge pages."""
    library, _ = find()
    if library is not None:
        library.prefer_huge_pages(data)


class NativeBlocks:
    """The native side of a layer that holds ``data [N, row_bytes]`` of a type and that :func:`declines` let pass."""

    def __init__(self, type: int, data: Tensor) -> None:
        library, reason = find()
        assert library is not None, reason
        self._library = library
        block = BLOCKS[type]
        outputs, row_bytes = data.shape
        # The address is that of memory which the tensor keeps alive.
        self._data = data
        self._weights = Ggml(data.data_ptr(), row_bytes // block.bytes * block.weights, outputs, type, row_bytes)

    def matmul(self, x: Tensor) -> Tensor:
        """``x [T, K]`` bfloat16 or float32 -> ``[T, N]`` float32."""
        return self._library.ggml_matmul(self._weights, x.contiguous())

    def round(self, start: int, stop: int, out: Tensor) -> None:
        """Output features ``[start, stop)`` into ``out [stop - start, K]`` bfloat16."""
        self._library.ggml_round(self._weights, start, stop, out)
