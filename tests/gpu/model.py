"""A model of the kernels of a decoding step on a GPU, by which designs are compared before a card is met.

Programs of a kernel start where a multiprocessor has places for their warps, ask for their first pieces of weights,
wait for x, and then compute piece by piece, asking for the next one when the one before is used up. Memory serves
requests in order, none sooner than its latency. How far it is to be trusted: docs/measurements.md, "A model of a step".

    python -m tests.gpu.model    # beside what was measured and published
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

US = 1e-6
PLACES = 32
"""Warps of a multiprocessor that hold registers for products."""
SCHEDULERS = 4
LEAST_CYCLES = 1.5
"""Cycles between two instructions of one warp."""
X, DRAIN = 0.7 * US, 0.8 * US
"""From the start of a program to its input, and from its last sum to its result in memory."""
GAP = 1.8 * US
"""Between the end of a kernel of a graph and the first program of the next: a launch of 1.3, and half a microsecond."""


WITH_NORM = 568.0
"""Instructions a warp and turn of a product that takes x through registers, for the norm (machine_code.py)."""
NORM, LAST_SPLIT = 0.6 * US, 1.4 * US
"""Estimates from latencies of L2: a row read and summed up by every program before its product; and a count, a read of
all parts and a write by the last split."""


class Card(NamedTuple):
    """``bandwidth`` in bytes a second as a read-only pass reaches it, ``latency`` under load, ``clock`` in Hz."""

    processors: int
    bandwidth: float
    latency: float = 0.7 * US
    clock: float = 1.755e9


H200 = Card(132, 4.28e12)


class Kernel(NamedTuple):
    """``programs`` of ``warps`` each, at most ``resident`` on a multiprocessor, which read ``turns`` pieces of
    ``piece`` bytes, ``ahead`` of them asked for at once, and execute ``work`` instructions a warp and turn. A kernel
    that only waits takes ``fixed`` seconds instead."""

    programs: int = 1
    warps: int = 4
    turns: int = 0
    piece: float = 0.0
    work: float = 0.0
    ahead: int = 1
    resident: int = PLACES
    fixed: float = 0.0


def product(outputs: int, inputs: int, slices: int, work: float = 445.0) -> Kernel:
    """`planes.multiply` for one row of int4 in groups of 128, with two stages: 16 outputs a program, 512 inputs of each
    a slice and turn, 168 registers a thread (tests/gpu/machine_code.py)."""
    turns = math.ceil(inputs / (512 * slices))
    return Kernel(math.ceil(outputs / 16), slices, turns, slices * 16 * 512 * 4.25 / 8, work, resident=12 // slices)


def resident(outputs: int, row: float, parts: int = 1, work: float = 150.0) -> Kernel:
    """A product of 16 outputs a program which asks for all of its weights, ``row`` bytes an output, before it waits for
    x; long rows in ``parts``. With 64 KB of them in registers two programs share a multiprocessor."""
    return Kernel(outputs // 16 * parts, PLACES // 2, 1, 16 * row / parts, work)


def seconds(card: Card, chain: Sequence[Kernel], early: bool = False, hand_over: float = 0.9 * US) -> float:
    """Seconds of kernels one after the other in a CUDA graph. ``early``: programs start before the kernel before has
    ended (programmatic dependent launch), and have its results ``hand_over`` after its end."""
    return _Run(card, chain, early, hand_over).run()


class _Run:
    def __init__(self, card: Card, chain: Sequence[Kernel], early: bool, hand_over: float) -> None:
        self.card, self.chain, self.early, self.hand_over = card, chain, early, hand_over
        self.free = card.processors * PLACES
        self.served = 0.0  # when memory has served all requests so far
        self.events: list[tuple[float, int, str, tuple[int, int, int]]] = []
        self.numbers = itertools.count()
        self.started = [0] * len(chain)
        self.ended = [0] * len(chain)
        self.ends: list[float | None] = [None] * len(chain)
        self.opened = 0  # kernels whose programs may start
        self.arrived: dict[tuple[int, int, int], float] = {}
        self.waiting: set[tuple[int, int, int]] = set()
        self.begun: dict[tuple[int, int], float] = {}
        self.held: dict[int, list[int]] = {}  # programs that have no input yet

    def run(self) -> float:
        self._at(GAP, "open", (0, 0, 0))
        now = 0.0
        while self.events:
            now, _, what, place = heapq.heappop(self.events)
            getattr(self, f"_{what}")(now, place)
        assert self.ends[-1] is not None, "every kernel ends"
        return self.ends[-1]

    def _at(self, time: float, what: str, place: tuple[int, int, int]) -> None:
        heapq.heappush(self.events, (time, next(self.numbers), what, place))

    def _open(self, now: float, place: tuple[int, int, int]) -> None:
        self.opened = place[0] + 1
        self._start(now)

    def _start(self, now: float) -> None:
        """Start what has room, kernel by kernel."""
        for number in range(self.opened):
            kernel = self.chain[number]
            most = kernel.resident * self.card.processors
            while (
                self.started[number] < kernel.programs
                and self.free >= kernel.warps
                and self.started[number] - self.ended[number] < most
            ):
                self._begin(now, number)
            if self.started[number] < kernel.programs:
                return
        if self.early and self.opened < len(self.chain):
            self._at(now, "open", (self.opened, 0, 0))

    def _begin(self, now: float, number: int) -> None:
        kernel, program = self.chain[number], self.started[number]
        self.started[number] += 1
        self.free -= kernel.warps
        for piece in range(min(kernel.ahead, kernel.turns)):
            self._at(now, "ask", (number, program, piece))
        before = self.ends[number - 1] if number else -math.inf
        self.begun[number, program] = now
        if before is None:
            self.held.setdefault(number, []).append(program)
        else:
            self._input(now, number, program, before)

    def _input(self, now: float, number: int, program: int, before: float) -> None:
        """Its input is on its way: the kernel before ended at ``before``."""
        ready = max(now, before + (self.hand_over if self.early else 0.0))
        kernel = self.chain[number]
        self._at(ready + (kernel.fixed or X), "end" if kernel.fixed else "ready", (number, program, 0))

    def _ask(self, now: float, place: tuple[int, int, int]) -> None:
        self.served = max(self.served, now) + self.chain[place[0]].piece / self.card.bandwidth
        self.arrived[place] = max(now + self.card.latency, self.served)
        if place in self.waiting:
            self._at(self.arrived[place], "compute", place)

    def _ready(self, now: float, place: tuple[int, int, int]) -> None:
        """It may compute with this piece, once that is there."""
        if place in self.arrived:
            self._at(max(now, self.arrived[place]), "compute", place)
        else:
            self.waiting.add(place)

    def _compute(self, now: float, place: tuple[int, int, int]) -> None:
        number, program, piece = place
        kernel = self.chain[number]
        busy = (self.card.processors * PLACES - self.free) / self.card.processors
        done = now + kernel.work * max(LEAST_CYCLES, busy / SCHEDULERS) / self.card.clock
        if piece + kernel.ahead < kernel.turns:
            self._at(done, "ask", (number, program, piece + kernel.ahead))
        if piece + 1 < kernel.turns:
            self._at(done, "ready", (number, program, piece + 1))
        else:
            self._at(done + DRAIN, "end", place)

    def _end(self, now: float, place: tuple[int, int, int]) -> None:
        number = place[0]
        kernel = self.chain[number]
        self.free += kernel.warps
        self.ended[number] += 1
        if self.ended[number] == kernel.programs:
            self.ends[number] = now
            for program in self.held.pop(number + 1, ()):
                self._input(now, number + 1, program, now)
            if not self.early and number + 1 < len(self.chain):
                self._at(now + GAP, "open", (number + 1, 0, 0))
        self._start(now)


class Check(NamedTuple):
    """Seconds by the model, and as they were measured or published."""

    name: str
    model: float
    known: float
    source: str


def checks() -> Iterator[Check]:
    """What is known of an H200."""
    measured = "an 8B in int4, 26 November 2026"
    for name, kernel, known in (
        ("q, k and v", product(6144, 4096, 2), 7.4),
        ("o", product(4096, 4096, 2), 6.1),
        ("gate and up", product(28672, 4096, 2), 22.8),
        ("down, 4 slices", product(4096, 14336, 4), 12.4),
    ):
        yield Check(name, seconds(H200, [kernel]), known * US, measured)
    yield Check("a step of one answer", served_step(2, 2, 4), 2440 * US, measured)
    yield Check(
        "a 1B in bf16, early launch",
        published_step(),
        794.7 * US,
        "msaroufim, megakernels vs graphs, September 2026",
    )


def served_step(of_qkv: int, of_o: int, of_down: int) -> float:
    """A step of one answer of an 8B as it was served: ten kernels a layer, by slices of three products. The small ones
    take what a profile said, less the gap before them."""
    small, norm = Kernel(fixed=0.1 * US), Kernel(fixed=0.4 * US)
    attention, merge = Kernel(fixed=3.0 * US), Kernel(fixed=1.1 * US)
    layer = [
        *(norm, product(6144, 4096, of_qkv), small, attention, merge, product(4096, 4096, of_o)),
        *(norm, product(28672, 4096, 2), small, product(4096, 14336, of_down)),
    ]
    return (
        32 * _layer(layer, early=False) + 278 * US
    )  # the head in 16 bits 245, sampling and the like 33, by the profile


def five_kernels(of_qkv: int, of_o: int, of_down: int) -> float:
    """The same step with norms, gating and additions within the products, and all of attention one kernel."""
    attention = Kernel(fixed=3.0 * US + LAST_SPLIT)
    layer = [
        *(product(6144, 4096, of_qkv, WITH_NORM), attention, product(4096, 4096, of_o)),
        *(product(28672, 4096, 2, WITH_NORM), product(4096, 14336, of_down)),
    ]
    return 32 * (_layer(layer, early=False) + 2 * NORM) + 278 * US


def published_step() -> float:
    """A 1B in bf16 with six kernels a layer, all of whose weights are asked for before a program waits."""
    row = 2 * 2048
    layer = [
        *(resident(3072, row), Kernel(programs=64, warps=4, fixed=3.6 * US), resident(2048, row)),
        *(resident(16384, row), Kernel(fixed=1.2 * US), resident(2048, 4 * row, 4)),
    ]
    return 16 * _layer(layer, early=True) + seconds(H200, [resident(128256, row)])


def _layer(layer: Sequence[Kernel], early: bool) -> float:
    """Seconds that one more layer takes among others."""
    two, three = (seconds(H200, [*layer] * count, early) for count in (2, 3))
    return three - two


def main() -> None:
    for each in checks():
        off = each.model / each.known - 1
        print(f"{each.name:28} {each.model / US:8.1f} µs, known {each.known / US:8.1f} ({off:+.0%}); {each.source}")
    for name, outputs, inputs in (("q, k and v", 6144, 4096), ("o", 4096, 4096), ("down", 4096, 14336)):
        two, four = (seconds(H200, [product(outputs, inputs, slices)]) / US for slices in (2, 4))
        print(f"{name:28} {two:8.1f} µs with 2 slices, {four:.1f} with 4")
    two, four = served_step(2, 2, 2), served_step(2, 4, 4)
    print(f"a step of five kernels a layer with 4 slices of o and of down: {five_kernels(2, 4, 4) / US:.0f} µs")
    print(f"a step with 2 slices everywhere: {two / US:.0f} µs; with 4 of o and of down: {four / US:.0f}")


if __name__ == "__main__":
    main()
