"""Facts about the engine and its machine that can make answers slow, and the finding of a rule about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.protocol import ModelCard, OptionSpec, Reason, Telemetry, Value


class Machine(NamedTuple):
    """Present state of the machine; 0, "" and () where it is unknown.

    ``cores`` are those of its own that the engine may use, ``threads`` those that it computes with, and ``others`` the
    cores that other programs kept busy over the last seconds. ``free`` and ``total`` are the machine's memory,
    ``swapped`` the engine's own that lies on the disk, ``cache`` the last level of the processor's caches, in bytes.
    ``held`` are names of programs and the bytes of the GPU's memory that they hold, the most first; ``throttled`` says
    why the GPU runs below its clock.
    """

    cores: int = 0
    threads: int = 0
    others: float = 0.0
    free: int = 0
    total: int = 0
    swapped: int = 0
    cache: int = 0
    held: tuple[tuple[str, int], ...] = ()
    throttled: str = ""
    battery: bool = False
    no_gpu: str = ""
    """Reason that an installed GPU pack is not used."""


class LastPrompt(NamedTuple):
    """``cached`` of its ``tokens`` were not computed again; it left the conversation before it, of ``before``
    tokens, at ``diverged``."""

    tokens: int
    cached: int
    diverged: int | None = None
    divergence: str = ""
    before: int = 0


class Facts(NamedTuple):
    """``weights`` are the bytes of them that one row reads, ``head`` of these a 16- or 32-bit output head's.

    ``dense``: the model's weights are in 16 or 32 bits. ``float32``: it was asked to compute in that. ``bandwidth`` of
    the device in bytes a second, 0: not known. ``steps`` since the model was loaded.
    """

    card: ModelCard
    switches: dict[str, OptionSpec]
    frame: Telemetry
    machine: Machine = Machine()
    gpu: bool = False
    weights: int = 0
    head: int = 0
    dense: bool = False
    float32: bool = False
    bandwidth: float = 0.0
    steps: int = 1 << 30
    prompt: LastPrompt | None = None

    @property
    def cached(self) -> bool:
        """True if a processor's cache holds the weights, so that reading fewer bytes of them brings little."""
        return not self.gpu and self.weights < self.machine.cache

    def value(self, key: str) -> Value | None:
        return self.switches[key].value if key in self.switches else None

    def can(self, key: str, value: Value) -> bool:
        """Return True if the switch is not at that value, and could be."""
        spec = self.switches.get(key)
        if spec is None or spec.hidden or spec.disabled_reason or str(value) in spec.disabled_choices:
            return False
        return spec.value != value


class WhyReason(NamedTuple):
    """``gain``: about how many times faster answers are with it mended; 1 where it says how things are."""

    gain: float
    reason: Reason


Rule = Callable[[Facts], WhyReason | None]
