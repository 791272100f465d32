"""What config.json (or quantize_config.json) says about how the weights are packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.checkpoints.config import RawConfig, read_json
from engine.checkpoints.errors import CheckpointError
from engine.models.base import Quantisation

OTHER = "Choose a GPTQ 4-bit version of the model, or one that is not quantised."
FORMATS = {"gptq": 1, "gptq_v2": 0}
"""GPTQ's checkpoint_format -> what to add to a stored zero-point."""


def read_quantisation(raw: RawConfig, folder: Path) -> Quantisation | None:
    """None for a model that is not quantised. Raises :class:`CheckpointError` for a method that is not supported."""
    values = raw.values.get("quantization_config")
    if values is None and (folder / "quantize_config.json").is_file():
        values = {"quant_method": "gptq"} | read_json(folder / "quantize_config.json")
    if values is None:
        return None
    if not isinstance(values, dict):
        raise raw.wrong('"quantization_config" is no JSON object')
    method = values.get("quant_method")
    if method != "gptq":
        raise CheckpointError(
            f"This model is quantised by the method {method!r}, which Kvasir does not read yet. {OTHER}"
        )
    packed = RawConfig(values, raw.file)
    bits, group = packed.integer("bits"), packed.integer("group_size", -1, least=-1)
    if bits != 4:
        raise CheckpointError(f"This model is quantised by GPTQ to {bits} bits, and Kvasir reads 4. {OTHER}")
    if group == 0:
        raise raw.wrong('"group_size" is 0')
    layout = values.get("checkpoint_format") or values.get("format") or "gptq"
    if layout not in FORMATS:
        raise CheckpointError(
            f"This GPTQ model is stored in the layout {layout!r}, which Kvasir does not read. {OTHER}"
        )
    if values.get("pack_dtype", "int32") not in ("int32", "torch.int32"):
        raise CheckpointError(f"This GPTQ model is packed in {values['pack_dtype']}, and Kvasir reads int32. {OTHER}")
    return Quantisation(
        method="gptq",
        bits=bits,
        group_size=group,
        act_order=packed.flag("desc_act", False),
        symmetric=packed.flag("sym", True),
        zero_offset=FORMATS[layout],
        lm_head=packed.flag("lm_head", False),
        skipped=_skipped(values.get("dynamic"), bits, group),
    )


def _skipped(dynamic: Any, bits: int, group: int) -> tuple[str, ...]:
    """GPTQModel's per-module rules: "-:" patterns leave modules unquantised; rules that change nothing are fine."""
    if not isinstance(dynamic, dict):
        return ()
    skipped = []
    for pattern, rule in dynamic.items():
        if pattern.startswith("-:"):
            skipped.append(pattern[2:])
        elif isinstance(rule, dict) and (rule.get("bits", bits) != bits or rule.get("group_size", group) != group):
            raise CheckpointError(
                f"This GPTQ model packs the modules {pattern!r} differently from the rest, "
                f"which Kvasir does not read. {OTHER}"
            )
    return tuple(skipped)
