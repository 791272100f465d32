"""How many kernels a layer's products take on a GPU: launches are taken down, and torch's operators counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton")

from engine.compute.layers.linear.triton import runtime
from engine.compute.layers.linear.triton.kernels import fma, gemm, planes
from engine.compute.layers.linear.triton.layer import TritonLinear
from engine.compute.layers.numerics import Numerics
from engine.compute.native.triton_launch import Launch, gathering
from engine.loading.memory.estimate import GPU_SCRATCH_BYTES, SCRATCH_BYTES
from tests.gpu.kernel_kinds import KINDS

META = torch.device("meta")
LLAMA = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
"""Output and input features of a Llama 8B's layer: q, k and v; o; gate and up; down."""
NO_KERNEL = {"empty", "new_empty", "view", "t", "slice", "detach", "alias", "_unsafe_view", "transpose", "as_strided"}


class Operators(TorchDispatchMode):
    """Counts torch's operators that are kernels on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name not in NO_KERNEL:
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


def layer_of(kind: str, outputs: int, inputs: int) -> TritonLinear:
    """Of that size, but only planned: packing random weights of it would take long."""
    small = KINDS[kind](16, 512, torch.bfloat16, META, Numerics()).layer
    layer = object.__new__(type(small))
    layer.__dict__.update({name: value for name, value in vars(small).items() if not name.startswith("_")})
    layer.in_features, layer.out_features = inputs, outputs
    if hasattr(layer, "blocks"):
        layer.blocks = inputs // layer.program_inputs
    return layer


def counted(call: Callable[[], object]) -> tuple[list[Launch], Counter[str]]:
    with gathering() as launches, Operators() as operators:
        call()
    return launches, operators.found


@pytest.mark.parametrize(("kind", "rows"), [("int4 g128", 256), ("Q4_K", 256), ("Q6_K", 512), ("int4 g128", 2048)])
def test_a_chunk_of_a_prompt_takes_at_most_16_launches_a_layer(kind: str, rows: int) -> None:
    total = 0
    for outputs, inputs in LLAMA:
        layer, x = layer_of(kind, outputs, inputs), torch.empty(rows, inputs, dtype=torch.bfloat16, device=META)
        launches, operators = counted(lambda layer=layer, x=x: layer.forward(x))  # type: ignore[misc]
        assert set(operators) <= {"mm"}, "products are written where they belong"
        assert operators["mm"] in (0, len(launches))
        if not operators:
            assert [launch.kernel for launch in launches] == [gemm.gemm]
        total += len(launches) + operators["mm"]
    assert total == (4 if (kind, rows) in (("int4 g128", 256), ("Q4_K", 256)) else 16)


def test_blocks_fit_into_what_is_counted_as_scratch() -> None:
    for outputs, inputs in (*LLAMA, (128256, 4096), (40, 512), (512, 1 << 20)):
        layer = layer_of("int4 g128", outputs, inputs)
        for dtype in (torch.bfloat16, torch.float32):
            with gathering():
                blocks = [(start, block.shape, block.nbytes) for start, block in layer.weight_blocks(dtype)]
            assert sum(shape[1] for _, shape, _ in blocks) == outputs
            assert [start for start, _, _ in blocks] == [i * blocks[0][1][1] for i in range(len(blocks))]
            granule = layer.granule * inputs * dtype.itemsize
            assert max(size for *_, size in blocks) <= max(granule, SCRATCH_BYTES + GPU_SCRATCH_BYTES - (32 << 20))
            # None is much smaller than the others.
            assert blocks[-1][2] > blocks[0][2] - len(blocks) * granule


def test_which_kernel_serves_which_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernels(rows: int) -> list[Any]:
        layer = layer_of("int4 g128", 4096, 4096)
        launches, _ = counted(lambda: layer.forward(torch.empty(rows, 4096, dtype=torch.float16, device=META)))
        return [launch.kernel for launch in launches]

    assert kernels(runtime.FEW_ROWS) == [planes.multiply]
    assert kernels(runtime.FEW_ROWS + 1) == [gemm.gemm, gemm.add_parts]
    assert kernels(runtime.MANY_HOPPER_ROWS) == [gemm.gemm]
    assert kernels(runtime.MANY_HOPPER_ROWS + 1) == [planes.dequantise]
    with monkeypatch.context() as others:
        others.setattr("engine.compute.layers.linear.triton.plane_layer.capability", lambda device: (8, 9))
        assert kernels(runtime.MANY_PLANE_ROWS) == [gemm.gemm]
        assert kernels(runtime.MANY_PLANE_ROWS + 1) == [planes.dequantise]
    assert runtime.most_plane_rows((10, 0)) == runtime.MANY_HOPPER_ROWS < runtime.most_plane_rows((12, 0))
    monkeypatch.setattr("engine.compute.layers.linear.triton.plane_layer.tensor_cores", lambda device: False)
    assert kernels(8) == [fma.fma]
    assert kernels(9) == [planes.dequantise]


def test_a_product_is_written_into_columns_of_the_result() -> None:
    """What torch.mm is asked for, with numbers: the columns beside stay as they are."""
    x, weight = torch.randn(5, 32), torch.randn(24, 32)
    out = torch.full((5, 40), 7.0)
    torch.mm(x, weight.t(), out=out[:, 8:32])
    assert torch.equal(out[:, 8:32], x @ weight.t())
    assert (out[:, :8] == 7).all()
    assert (out[:, 32:] == 7).all()


def test_every_cut_that_serves_is_tried() -> None:
    layer: Any = layer_of("int4 g128", 4096, 4096)
    served = {layer.cut(rows) for rows in range(1, runtime.MANY_HOPPER_ROWS + 1)} | {layer.fixed}
    assert runtime.DEEP in served
    assert served <= set(layer.cuts())
    other = layer_of("Q6_K", 4096, 4096)
    assert {other.cut(rows) for rows in range(1, runtime.MANY_ROWS + 1)} | {other.fixed} <= set(other.cuts())
