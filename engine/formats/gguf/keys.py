"""One architecture's metadata with its types checked."""

from __future__ import annotations

import math
from pathlib import Path

from engine.base.errors import CheckpointError
from engine.config.raw import REPAIR
from engine.formats.gguf.metadata import Value

MAX_LAYERS = 10_000


class MetadataKeys:
    """The keys that begin with ``architecture``. ``file`` is named in the errors."""

    def __init__(self, metadata: dict[str, Value], architecture: str, file: Path) -> None:
        self.metadata, self.architecture, self.file = metadata, architecture, file

    def wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.file.name}: {what}. {REPAIR}")

    def get(self, key: str) -> Value | None:
        return self.metadata.get(f"{self.architecture}.{key}")

    def optional_integer(self, key: str) -> int | None:
        """A list, one value a layer, counts as its value where all are the same."""
        value = self.get(key)
        if isinstance(value, list) and value:
            if any(other != value[0] for other in value):
                raise self.wrong(f'"{key}" differs from layer to layer, which this family does not do in Kvasir')
            value = value[0]
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise self.wrong(f'"{key}" is {short(value)}, where a whole number is needed')
        return value

    def of_layers(self, key: str) -> list[int]:
        """A whole number for each layer, from a list or one value for all."""
        value = self.get(key)
        if not isinstance(value, list):
            return [self.integer(key)] * self.layers
        if len(value) < self.layers or not all(type(each) is int and 0 <= each < 1 << 31 for each in value):
            raise self.wrong(f'"{key}" is not one whole number for each of the {self.layers} layers')
        return value[: self.layers]

    def integer(self, key: str) -> int:
        value = self.optional_integer(key)
        if not value:
            raise self.wrong(f'"{self.architecture}.{key}" is missing')
        return value

    def optional_number(self, key: str) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
            raise self.wrong(f'"{key}" is {short(value)}, where a number is needed')
        return float(value)  # type: ignore[arg-type]

    def number(self, key: str) -> float:
        value = self.optional_number(key)
        if value is None:
            raise self.wrong(f'"{self.architecture}.{key}" is missing')
        return value

    def flag(self, key: str, missing: bool) -> bool:
        value = self.get(key)
        if value is None:
            return missing
        if type(value) is not bool:
            raise self.wrong(f'"{key}" is {short(value)}, where true or false is needed')
        return value

    @property
    def layers(self) -> int:
        layers = self.integer("block_count")
        if layers > MAX_LAYERS:
            raise self.wrong(f"{layers:,} layers are absurd")
        return layers


def short(value: object) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
