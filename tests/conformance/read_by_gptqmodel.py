"""What GPTQModel reads of models made here: ``python -m tests.conformance.read_by_gptqmodel`` prints one table.

Not among the tests: GPTQModel wants another torch than Kvasir's constraints name. Install it where this runs
(``pip install --no-deps gptqmodel accelerate logbar device-smi tokenicer pypcre defuser threadpoolctl``). The bundled
model, written out in 16 bits, is made smaller in every way that GPTQModel has a format for. Its kernels compute in
float16 there, so the weights that both unpack are compared too.
"""

# ruff: noqa: T201

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch

from engine.library import paths
from engine.services.quantise.make import make
from engine.services.quantise.plan import MakePlan
from engine.services.quantise.quality import unmeasured
from tests.conformance.engine_support import Ours, relative
from tests.engine.services.quantise.measure_making import TEXT, dense

WAYS: dict[str, tuple[str, dict[str, object]]] = {
    "GPTQ, 4 bits": ("gptq", {}),
    "GPTQ, 4 bits, with zero-points": ("gptq", {"symmetric": False}),
    "GPTQ, 4 bits, columns in the order of their inputs": ("gptq", {"static_groups": False}),
    "GPTQ, 8 bits, groups of 32": ("gptq", {"bits": 8, "group_size": 32}),
    "AWQ, 4 bits": ("awq", {}),
}
LENGTH = 96


def main() -> None:
    torch.set_num_threads(1)
    print("| format | largest difference of weights | of logits | same likeliest token |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        os.environ["KVASIR_HOME"] = f"{name}/home"
        guide = dense(paths.bundled_folder() / "kvasir-guide", Path(name) / "kvasir-guide")
        tokens = torch.randint(10, 4000, (LENGTH,), generator=torch.Generator().manual_seed(0))
        for number, (way, (to, options)) in enumerate(WAYS.items()):
            out = Path(name) / f"made-{number}"
            plan = MakePlan(guide, to, text=(TEXT,), samples=16, length=256, out=out, device="cpu", **options)  # type: ignore[arg-type]
            folder = make(plan, lambda told: None, lambda: False, lambda source, made, *_: unmeasured(source, made))
            print(f"| {way} | {' | '.join(compared(folder, to, tokens))} |", flush=True)


@torch.inference_mode()
def compared(folder: Path, to: str, tokens: torch.Tensor) -> tuple[str, str, str]:
    from gptqmodel import BACKEND, GPTQModel

    ours = Ours(folder)
    kernels = BACKEND.AWQ_TORCH if to == "awq" else BACKEND.TORCH
    theirs = GPTQModel.load(str(folder), device="cpu", backend=kernels, dtype=torch.float16).model
    worst = 0.0
    for our_layer, layer in zip(ours.model.layers, theirs.model.layers, strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        parts = ((attention.q_proj, attention.k_proj, attention.v_proj), (attention.o_proj,),
                 (mlp.gate_proj, mlp.up_proj), (mlp.down_proj,))  # fmt: skip
        for (_, linear), modules in zip(our_layer.linears(), parts, strict=True):
            unpacked = torch.cat([module(torch.eye(linear.in_features).half()).t() for module in modules]).float()
            worst = max(worst, relative(linear.dequantised(torch.float32), unpacked))
    mine, logits = ours.logits([tokens.tolist()])[0], theirs(tokens[None]).logits[0].float()
    same = (mine.argmax(-1) == logits.argmax(-1)).float().mean()
    return f"{worst:.1e}", f"{relative(mine, logits):.1e}", f"{same:.1%}"


if __name__ == "__main__":
    main()
