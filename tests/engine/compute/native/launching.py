"""Launch kernels on a driver that only takes them down: run by test_triton_compiler.py.

Arguments: kinds of layers and of attention ("" for all).
"""

from __future__ import annotations

import ctypes
import json
import sys
from types import SimpleNamespace
from typing import Any

import torch

from engine.compute.native import triton_compiler

SIZES = {"i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "fp16": 2, "bf16": 2, "i32": 4, "u32": 4, "fp32": 4}
PLAIN = {"num_ctas": 1, "global_scratch_size": 0, "global_scratch_align": 1, "profile_scratch_size": 0,
         "profile_scratch_align": 1, "launch_cooperative_grid": False, "launch_pdl": False}  # fmt: skip
TAKEN = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p)
)
EVERY = {"*bf16": 0x1230, "*fp32": None, "i1": True, "i8": 100, "i16": 3000, "i32": -70000, "i64": -(1 << 40),
         "u8": 200, "u16": 60000, "u32": 1 << 31, "u64": (1 << 64) - 1, "fp16": 1.5, "bf16": -3.140625,
         "fp32": 2.7182817, "fp64": 0.1, "constexpr": 7}  # fmt: skip


class Tensor:
    """Stands for one on the GPU."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


class Recorder:
    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self._callback = TAKEN(self._take)
        self.library.when_launched(self._callback)
        self.sizes: list[int] = []
        self.taken: list[Any] = []

    def _take(self, shape: Any, stream: int, function: int, params: Any) -> None:
        values = [ctypes.string_at(params[i], size).hex() for i, size in enumerate([*self.sizes, 8, 8])]
        self.taken.append([list(shape[:7]), stream, function, values])

    def launch(self, signature: dict[str, str], values: list[Any], hooks: tuple[Any, Any] = (None, None)) -> Any:
        from triton.backends.nvidia.driver import CudaLauncher

        self.taken.clear()
        self.sizes = [SIZES.get(kind, 8) for kind in signature.values() if kind != "constexpr"]
        source = SimpleNamespace(constants={}, signature=signature, fn=SimpleNamespace(arg_names=list(signature)))
        launcher = CudaLauncher(source, SimpleNamespace(**PLAIN))
        try:
            launcher(3, 2, 1, 0x5, 0xF00, (4, 1, 1024), "metadata", *hooks, *values)
        except Exception as error:
            return [type(error).__name__]
        return list(self.taken)


def main(kinds: list[str], attention: list[str]) -> None:
    triton_compiler.install()
    from triton.backends.nvidia.driver import CudaUtils
    from triton.runtime import driver

    utils = CudaUtils()
    driver.set_active(SimpleNamespace(utils=utils))  # since 3.7 kernels are launched by what is active
    recorder = Recorder()
    seen: list[Any] = []
    found = {"every type": recorder.launch({str(i): kind for i, kind in enumerate(EVERY)}, list(EVERY.values()))}
    found["none"] = recorder.launch({}, [])
    some = dict(zip("xynfs", ("*fp16", "*i8", "i32", "fp32", "i16"), strict=True))
    good = {"x": Tensor(0x40), "y": Tensor(0), "n": 5, "f": 1, "s": -3}
    found["tensors"] = recorder.launch(some, list(good.values()))
    found["hooks"] = recorder.launch(some, list(good.values()), (seen.append, seen.append))
    for name, value in {"n": 1 << 31, "f": "x", "x": Tensor(0xBAD0), "y": "x", "s": None}.items():
        found[f"wrong {name}"] = recorder.launch(some, list((good | {name: value}).values()))
    found |= _of_kvasir(recorder, kinds, attention)
    result = {
        "compiler": triton_compiler.c_compiler(),
        "utils": sorted(name for name in vars(utils) if not name.startswith("_")),
        "hooks": seen,
        "launches": found,
    }
    sys.stdout.write("\n" + json.dumps(result) + "\n")


def _of_kvasir(recorder: Recorder, kinds: list[str], attention: list[str]) -> dict[str, Any]:
    """Launches of Kvasir's own kernels, with numbers in place of tensors."""
    from tests.gpu.attention_code import CASES
    from tests.gpu.kernel_kinds import KINDS
    from tests.gpu.machine_code import cases, launches, specialised

    made = {
        f"{name} {rows}": launches(name, torch.bfloat16, cut)
        for name in kinds or list(KINDS)
        for rows, cut in cases(name, 90)
    }
    made |= {name: CASES[name](torch.bfloat16).launch for name in attention or list(CASES)}
    found = {}
    for name, one in made.items():
        signature, _, _ = specialised(one)
        values = [None if kind == "constexpr" else 0x1000 * (i + 1) if kind.startswith("*") else one.args[i]
                  for i, kind in enumerate(signature.values())]  # fmt: skip
        found[name] = recorder.launch(signature, values)
    return found


if __name__ == "__main__":
    main(*(part.split(";") if part else [] for part in sys.argv[1:3]))
