"""config.json, read with care: every value is checked, and what is wrong is said in one sentence."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from engine.base.errors import CheckpointError
from engine.base.files import REPAIR
from engine.config.feed_forward import ActivationKind
from engine.config.positions import RopeConfig

MAX_DIGITS = 9
"""Most digits of a layer's number."""
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ACTIVATIONS: dict[str, ActivationKind] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
"""Activations as config.json writes them."""


def is_number(value: Any) -> bool:
    """Return True if a JSON value is a number (no boolean) that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


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
        """The integer under ``key``; None where the file says null; ``absent`` where it says nothing."""
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

    def layer_types(
        self,
        layers: int,
        known: Sequence[str] = ("full_attention", "sliding_attention"),
        key: str = "layer_types",
    ) -> list[str] | None:
        """The list under ``key``, one of the ``known`` words for each of the ``layers``; None where the file has none.

        Raises :class:`CheckpointError` for any other value.
        """
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers:
            raise self.wrong(f'"{key}" does not have one entry for each of the {layers} layers')
        for kind in value:
            if kind not in known:
                raise self.wrong(f"its layer type {kind!r} is not one that Kvasir knows")
        return value

    def per_layer(self, layers: int, known: Sequence[str] = ()) -> dict[int, dict[str, Any]]:
        """``per_layer_config`` by the numbers of layers, which transformers writes with leading zeros ("05").

        ``known`` are the values that the family reads there. Any other that differs from the one of the whole model is
        refused, and so is a number that is none of the ``layers``, or stands there twice.
        """
        stated = self.values.get("per_layer_config")
        if stated is None:
            return {}
        if not isinstance(stated, dict) or not all(isinstance(values, dict) for values in stated.values()):
            raise self.wrong('"per_layer_config" is not a JSON object of objects')
        found: dict[int, dict[str, Any]] = {}
        for name, values in stated.items():
            layer = int(name) if name.isascii() and name.isdigit() and len(name) <= MAX_DIGITS else layers
            if layer >= layers or layer in found:
                what = "twice" if layer in found else f"where they are numbered from 0 to {layers - 1}"
                raise self.wrong(f'"per_layer_config" names layer {name[:40]!r} {what}')
            other = next((key for key in values if key not in known and values[key] != self.values.get(key)), None)
            if other is not None:
                raise self.wrong(f"layer {layer} has {other!r:.60} of its own, which this family has not in Kvasir")
            found[layer] = values
        return found

    def dtype(self) -> torch.dtype:
        """The checkpoint's own dtype; float32 where config.json is silent (opening it looks further)."""
        name = self.values.get("dtype") or self.values.get("torch_dtype") or "float32"
        name = str(name).removeprefix("torch.")
        if name not in DTYPES:
            raise self.wrong(f'its "dtype" {name!r} is not one of {", ".join(DTYPES)}')
        return DTYPES[name]

    def activation(self, key: str, known: Sequence[ActivationKind]) -> ActivationKind:
        """The activation under ``key``, one of those that the family has; the first where the file is silent."""
        kind = self.values.get(key)
        if kind is None:
            return known[0]
        found = ACTIVATIONS.get(kind) if isinstance(kind, str) else None
        if found is None or found not in known:
            raise self.wrong(f"its activation {kind!r} is not one that this family has ({', '.join(known)})")
        return found

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if value <= 0:
            raise self.wrong(f'"{key}" is {value!r}, where a positive number is needed')
        return value

    def softcap(self, key: str, absent: float | None) -> float | None:
        """The soft cap under ``key``; None where the file says null; ``absent`` where it says nothing."""
        if key not in self.values:
            return absent
        return None if self.values[key] is None else self.positive(key, 1.0)

    def rope_values(self, layers: str | None = None) -> dict[str, Any]:
        """``rope_parameters`` (transformers 5), else ``rope_scaling`` (before it), else nothing.

        ``layers`` chooses the entry of a layer type where the file has one for each.
        """
        raw = self.values.get("rope_parameters")
        if layers is not None and isinstance(raw, dict):
            raw = raw.get(layers)
        if raw is None:
            raw = self.values.get("rope_scaling")
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            raise self.wrong("its rope parameters are not a JSON object")
        return raw

    def rope(
        self,
        default_theta: float = 10000.0,
        layers: str | None = None,
        partial: float | None = None,
        theta_key: str = "rope_theta",
    ) -> RopeConfig:
        """The rotation: :meth:`rope_values` and ``theta_key``. ``partial``: the share of a head that rotates where the
        file is silent, in a family that may rotate parts; None: it rotates whole heads."""
        raw = self.rope_values(layers)
        theta = self._number(raw, "rope_theta", self.number(theta_key, default_theta))
        kind: Any = raw.get("rope_type") or raw.get("type") or "default"
        kind = "default" if kind == "mrope" else kind  # of text: three axes that advance together are one
        share = self.rotary_share(raw, partial or 1.0)
        if share != 1.0 and partial is None:
            raise self.wrong("it rotates only a part of each head, which this family does not do in Kvasir")
        if kind not in ("default", "linear", "llama3", "yarn"):
            raise CheckpointError(
                f"This model extends its context by the method {kind!r}, which Kvasir does not have "
                "(it has linear, llama3 and yarn). Choose another version of the model."
            )
        if theta <= 0:
            raise self.wrong('"rope_theta" must be positive')
        if kind == "default":
            return RopeConfig(theta, partial=share, sections=self._sections(raw), interleaved=_interleaved(raw))
        position = self.integer("max_position_embeddings")
        original = raw.get("original_max_position_embeddings") or position
        if isinstance(original, bool) or not isinstance(original, int) or original < 1:
            raise self.wrong(f'"original_max_position_embeddings" is {original!r}, where a whole number is needed')
        factor = self._number(raw, "factor", position / original if kind == "yarn" else math.nan)
        if not factor > 0:
            raise self.wrong(f'its {kind} rope scaling has no "factor"')
        config = RopeConfig(
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
            partial=share,
            sections=self._sections(raw),
            interleaved=_interleaved(raw),
        )
        if min(config.low_freq_factor, config.high_freq_factor, config.beta_fast, config.beta_slow) <= 0 or theta == 1:
            raise self.wrong(f"its {kind} rope scaling has a number that is too small")
        return config

    def _sections(self, rope: dict[str, Any]) -> tuple[int, ...]:
        """Value of :attr:`RopeConfig.sections`, from ``mrope_section``: three numbers, or () where there are none."""
        found = rope.get("mrope_section") or []
        if not isinstance(found, list) or len(found) not in (0, 3) or not all(type(n) is int and n >= 0 for n in found):
            raise self.wrong(f'"mrope_section" is {found!r}, where three whole numbers are needed')
        return tuple(found)

    def rotary_share(self, rope: dict[str, Any], default: float = 1.0) -> float:
        """The share of each head that rotates."""
        share = self._number(rope, "partial_rotary_factor", self.number("partial_rotary_factor", default))
        if not 0 < share <= 1:
            raise self.wrong(f'"partial_rotary_factor" is {share!r}, where a share up to 1 is needed')
        return share

    def _optional_number(self, values: dict[str, Any], key: str) -> float | None:
        return None if values.get(key) is None else self._number(values, key, 0.0)

    def _number(self, values: dict[str, Any], key: str, default: float) -> float:
        value = values.get(key)
        if value is None:
            return default
        if not is_number(value):
            raise self.wrong(f'"{key}" is {value!r}, where a number is needed')
        return float(value)


def _interleaved(rope: dict[str, Any]) -> bool:
    """Value of :attr:`engine.config.positions.RopeConfig.interleaved`: True if the pairs of the sections take turns."""
    return rope.get("mrope_interleaved") is True
