"""config.json, read with care: every value is checked, and what is wrong is said in one sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from engine.checkpoints.errors import CheckpointError
from engine.layers.rotary import RopeConfig

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
REPAIR = "Download the model again, or repair the file."


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises :class:`CheckpointError`."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CheckpointError(f"{file} cannot be read ({_first_line(error)}). {REPAIR}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} holds no JSON object. {REPAIR}")
    return value


def _first_line(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0]


class RawConfig:
    """config.json's values with their types checked. ``file`` is named in the errors."""

    def __init__(self, values: dict[str, Any], file: Path) -> None:
        self.values, self.file = values, file

    def wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.file}: {what}. {REPAIR}")

    @property
    def architecture(self) -> str:
        names = self.values.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise self.wrong("it does not name the model's architecture")
        return names[0]

    def integer(self, key: str, default: int | None = None, least: int = 1, most: int = 1 << 31) -> int:
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise self.wrong(f'"{key}" is missing')
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(f'"{key}" is {value!r}, where a whole number from {least} to {most} is needed')
        return value

    def optional_integer(self, key: str, absent: int | None = None) -> int | None:
        """None where the file says null; ``absent`` where it says nothing."""
        if key not in self.values:
            return absent
        return None if self.values[key] is None else self.integer(key)

    def number(self, key: str, default: float) -> float:
        return self._number(self.values, key, default)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(f'"{key}" is {value!r}, where true or false is needed')
        return value

    def layer_types(self, layers: int) -> list[str] | None:
        """``layer_types``, one word a layer, or None where the file has none."""
        value = self.values.get("layer_types")
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers:
            raise self.wrong(f'"layer_types" does not have one entry for each of the {layers} layers')
        for kind in value:
            if kind not in ("full_attention", "sliding_attention"):
                raise self.wrong(f"its layer type {kind!r} is not one that Kvasir knows")
        return value

    def dtype(self) -> torch.dtype:
        """The file's own dtype; float32 where it is silent."""
        name = self.values.get("dtype") or self.values.get("torch_dtype") or "float32"
        name = str(name).removeprefix("torch.")
        if name not in DTYPES:
            raise self.wrong(f'its "dtype" {name!r} is not one of {", ".join(DTYPES)}')
        return DTYPES[name]

    def require_silu(self) -> None:
        kind = self.values.get("hidden_act", "silu")
        if kind not in ("silu", "swish"):
            raise self.wrong(f"its activation {kind!r} is not one that this family has (silu)")

    def rope(self, default_theta: float = 10000.0) -> RopeConfig:
        """Reads ``rope_parameters`` (transformers 5), else ``rope_scaling`` beside ``rope_theta`` (before it)."""
        raw = self.values.get("rope_parameters")
        if raw is None:
            raw = self.values.get("rope_scaling")
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            raise self.wrong("its rope parameters are no JSON object")
        theta = self._number(raw, "rope_theta", self.number("rope_theta", default_theta))
        kind: Any = raw.get("rope_type") or raw.get("type") or "default"
        if self._number(raw, "partial_rotary_factor", self.number("partial_rotary_factor", 1.0)) != 1.0:
            raise self.wrong("it rotates only a part of each head, which this family does not do in Kvasir")
        if kind not in ("default", "linear", "llama3", "yarn"):
            raise CheckpointError(
                f"This model extends its context by the method {kind!r}, which Kvasir does not have "
                "(it has linear, llama3 and yarn). Choose another version of the model."
            )
        if theta <= 0:
            raise self.wrong('"rope_theta" must be positive')
        if kind == "default":
            return RopeConfig(theta)
        position = self.integer("max_position_embeddings")
        original = raw.get("original_max_position_embeddings") or position
        if isinstance(original, bool) or not isinstance(original, int) or original < 1:
            raise self.wrong(f'"original_max_position_embeddings" is {original!r}, where a whole number is needed')
        factor = self._number(raw, "factor", position / original if kind == "yarn" else math.nan)
        if not factor > 0:
            raise self.wrong(f'its {kind} rope scaling has no "factor"')
        return RopeConfig(
            theta=theta,
            kind=kind,
            factor=factor,
            original_max_position=original,
            low_freq_factor=self._number(raw, "low_freq_factor", 1.0),
            high_freq_factor=self._number(raw, "high_freq_factor", 4.0),
            attention_factor=self._optional_number(raw, "attention_factor"),
            beta_fast=self._number(raw, "beta_fast", 32.0) or 32.0,
            beta_slow=self._number(raw, "beta_slow", 1.0) or 1.0,
            mscale=self._optional_number(raw, "mscale"),
            mscale_all_dim=self._optional_number(raw, "mscale_all_dim"),
            truncate=raw.get("truncate", True) is not False,
        )

    def _optional_number(self, values: dict[str, Any], key: str) -> float | None:
        return None if values.get(key) is None else self._number(values, key, 0.0)

    def _number(self, values: dict[str, Any], key: str, default: float) -> float:
        value = values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.wrong(f'"{key}" is {value!r}, where a number is needed')
        return float(value)
