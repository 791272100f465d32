"""What each format loses: ``python tests/engine/services/quantise/measure_making.py [--threads 1]`` prints one table.

The bundled model (its packed weights written out in 16 bits first) and its hybrid sibling are made smaller in every
way, calibrated with the text that both learned from, and measured on the evaluation's, which neither saw.
"RTN" rounds each weight to the nearest value of GPTQ's format.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.library import paths
from engine.library.local import report_of
from engine.protocol.making import MakeReport, ModelQuality
from engine.services.quantise import calibrated, quality
from engine.services.quantise.gptq import GPTQSettings
from engine.services.quantise.grid import GroupedWeights, nearest
from engine.services.quantise.make import make
from engine.services.quantise.plan import MakePlan

TEXT = paths.bundled_folder() / "knowledge"
WAYS = {
    "RTN, 4 bits": ("gptq", {"symmetric": True}),
    "GPTQ, 4 bits": ("gptq", {"symmetric": True}),
    "GPTQ, 4 bits, with zero-points": ("gptq", {"symmetric": False}),
    "AWQ, 4 bits": ("awq", {}),
    "NF4": ("nf4", {}),
}
ROTATED = {
    f"{way}, rotated": (to, options | {"rotate": True}) for way, (to, options) in WAYS.items() if "AWQ" not in way
}
"""Of the bundled model alone: hybrids are not rotated."""


class Rounding:
    """In the place of GPTQ's solver."""

    def __init__(self, hessian: Tensor, settings: GPTQSettings) -> None:
        self.settings = settings

    def quantised(self, weight: Tensor) -> GroupedWeights:
        return nearest(weight, self.settings.grid, self.settings.group)


def dense(source: Path, folder: Path) -> Path:
    """The model with its packed weights in float16."""
    checkpoint = open_checkpoint(source)
    model = load_model(checkpoint, torch.device("cpu"), torch.float32, weights="16bit")
    files = checkpoint.files
    tensors = {name: files.view(name).clone() for name, entry in files.entries.items() if entry.dtype.is_floating_point}
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(".scales")}
    for index, layer in enumerate(model.layers):
        for linear, names in zip(
            layer.linears(),
            (["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["self_attn.o_proj"],
             ["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]),
            strict=True,
        ):  # fmt: skip
            modules = [f"model.layers.{index}.{name}" for name in names]
            sizes = [files.entries[f"{module}.scales"].shape[1] for module in modules]
            weights = linear[1].dequantised(torch.float16).split(sizes)
            tensors |= {f"{module}.weight": each.clone() for module, each in zip(modules, weights, strict=True)}
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "heads"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def own_text(
    source: Path,
    made: Path,
    text: Sequence[str] | None,
    report: Callable[[int, int], None],
    stopped: Callable[[], bool],
) -> quality.Quality:
    """Measured on the evaluation's text, whatever was kept apart of the other."""
    return quality.compare(source, made, None, report, stopped)


def measured(source: Path, way: str, out: Path) -> MakeReport:
    to, options = (WAYS | ROTATED)[way]
    solver = calibrated.Solver
    if way.startswith("RTN"):
        calibrated.Solver = Rounding  # type: ignore[assignment,misc]
    try:
        plan = MakePlan(source, to, text=(TEXT,), samples=48, length=256, out=out, device="cpu", **options)  # type: ignore[arg-type]
        report = report_of(make(plan, lambda told: None, lambda: False, own_text))
        assert report is not None
        return report
    finally:
        calibrated.Solver = solver  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    print("| model | format | kB | perplexity | KL, nats | same likeliest token |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        os.environ["KVASIR_HOME"] = f"{name}/home"
        guide = dense(paths.bundled_folder() / "kvasir-guide", Path(name) / "kvasir-guide")
        for source in (guide, paths.bundled_folder() / "kvasir-hybrid"):
            for number, way in enumerate(WAYS | ROTATED if source is guide else WAYS):
                found = measured(source, way, Path(name) / f"{source.name}-{number}")
                if number == 0:
                    _row(source.name, "16 bits", found.before)
                _row("", way, found.after, f"{found.kl:.4f}", f"{found.same_top:.1%}")


def _row(model: str, way: str, quality: ModelQuality, kl: str = "", same: str = "") -> None:
    cells = (model, way, f"{quality.bytes / 1000:,.0f}", f"{quality.perplexity:.2f}", kl, same)
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
