"""Random BitNet files: a checkpoint's linear layers by transformers' own packer."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers.integrations.bitnet import pack_weights


def write_bitnet(folder: Path, dense: Path) -> None:
    """Pack the model in ``folder``; write to ``dense`` the one of the weights that the packed ones stand for."""
    tensors, exact = load_file(folder / "model.safetensors"), {}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        divisor = 1 / tensors[name].abs().mean()
        codes = (tensors[name] * divisor).round().clamp(-1, 1)
        exact[name] = codes / divisor
        tensors[name] = pack_weights(codes.clone())
        tensors[f"{name}_scale"] = divisor.reshape(1)
    config = json.loads((folder / "config.json").read_text())
    for place, held, values in (
        (dense, {name: tensor for name, tensor in tensors.items() if not name.endswith("_scale")} | exact, config),
        (folder, tensors, config | {"quantization_config": {"quant_method": "bitnet"}}),
    ):
        place.mkdir(exist_ok=True)
        save_file(held, place / "model.safetensors", {"format": "pt"})
        (place / "config.json").write_text(json.dumps(values))
