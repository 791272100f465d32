"""The kinds of cache that a person can choose: how many bits a key and a value take, and what stays as it was."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.stores.packed import BYTE_KINDS, CHANNEL_GROUP, value_group

BITS = {"16bit": 16, "int8": 8, "fp8": 8, "int4": 4}
"""Bits of an element of each kind but "kivi", without its share of scales; a new kind is added here."""
MIXING = ("int8", "int4")
"""Kinds whose steps are as wide for all numbers that share a scale, so that they gain by being mixed: floats have their
own for each size."""
RESIDUAL = 128
"""Recent tokens that KIVI keeps unpacked (its paper's R): more than the rows of any draft tree, so that no draft token
is packed before it has been verified."""
LEAST_RESIDUAL = 64
_HALF = 16
"""Bits of a scale, and of a minimum."""


@dataclass(frozen=True, slots=True)
class KVKind:
    """``key_bits``, ``value_bits`` and ``residual`` say something of "kivi" alone; the others have their own."""

    name: str = "16bit"
    key_bits: int = 2
    value_bits: int = 2
    residual: int = RESIDUAL
    bounds: bool = False
    """True if bounds of each page's keys are kept too, by which rows may choose pages (QUEST); "16bit" only."""
    windowed: bool = False
    """True if layers with a sliding window keep the tokens in it alone (`engine.cache.groups.window`)."""
    hadamard: bool = False
    """True if keys are mixed before they are packed (`engine.compute.layers.hadamard`); "int8" and "int4" only."""

    def __post_init__(self) -> None:
        if self.bounds and self.name != "16bit":
            raise ValueError("pages are ranked by keys of 16 bits")
        if self.hadamard and self.name not in MIXING:
            raise ValueError(f"keys of kind {self.name} are not mixed")
        if self.name != "kivi":
            bits = BITS[self.name]
            for field, value in (("key_bits", bits), ("value_bits", bits), ("residual", 0)):
                object.__setattr__(self, field, value)
        elif not {self.key_bits, self.value_bits} <= {2, 4}:
            raise ValueError(f"KIVI packs to 2 or 4 bits, not to {self.key_bits} and {self.value_bits}")
        elif self.residual < LEAST_RESIDUAL or self.residual % CHANNEL_GROUP:
            raise ValueError(f"KIVI keeps {LEAST_RESIDUAL} recent tokens or more, in groups of {CHANNEL_GROUP}")

    @property
    def title(self) -> str:
        """Name for people: "16-bit", "int8 with rotated keys", "KIVI 2-bit", "KIVI 4-bit keys, 2-bit values"."""
        if self.name != "kivi":
            return "16-bit" if self.name == "16bit" else self.name + " with rotated keys" * self.hadamard
        if self.key_bits == self.value_bits:
            return f"KIVI {self.key_bits}-bit"
        return f"KIVI {self.key_bits}-bit keys, {self.value_bits}-bit values"

    def key_element_bits(self, width: int) -> float:
        """Bits of one element of a key of ``width`` channels, its share of scale and minimum included."""
        if self.name == "kivi":
            return self.key_bits + 2 * _HALF / CHANNEL_GROUP
        return self._along_channels(self.key_bits, width)

    def value_element_bits(self, width: int) -> float:
        """Bits of one element of a value of ``width`` channels, its share of scale and minimum included."""
        return self._along_channels(self.value_bits, width)

    def bits_per_element(self, width: int) -> float:
        """The mean over keys and values, each of ``width`` channels; KIVI's recent tokens (16 bits) are not counted."""
        return (self.key_element_bits(width) + self.value_element_bits(width)) / 2

    def _along_channels(self, bits: int, width: int) -> float:
        if bits == 16:
            return 16.0
        return bits + (_HALF / width if self.name in BYTE_KINDS else 2 * _HALF / value_group(width))
