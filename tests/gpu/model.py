"""A model of the kernels of a decoding step on a GPU, by which designs are compared before a card is met.

Programs of a kernel start where a multiprocessor has places for their warps, ask for their first pieces of weights,
wait for x, and then compute piece by piece, asking for the next one when the one before is used up. Memory serves
requests in order, none sooner than its latency. How far it is to be trusted: docs/measurements.md, "A model of a step".

    python -m tests.gpu.model    # beside what was measured and published, and a table of designs
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from engine.compute.layers.linear.triton.runtime import plane_tile

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
HIT = 0.35 * US
"""From a request to its bytes where the level-2 cache has them."""


class Card(NamedTuple):
    """``bandwidth`` in bytes a second as a read-only pass reaches it, ``latency`` under load, ``clock`` in Hz."""

    processors: int
    bandwidth: float
    latency: float = 0.6 * US
    clock: float = 1.755e9


H200 = Card(132, 4.28e12)
CARDS = {
    "H200": H200,
    "H100": Card(132, 3.0e12),
    "5090": Card(170, 1.66e12, clock=2.4e9),
    "4090": Card(128, 0.93e12, clock=2.5e9),
    "3090": Card(82, 0.86e12, clock=1.7e9),
}
"""By a part of their names. Only the first two are held to times; the others are assumed to wait as long."""
STARTS_EARLY = ("H200", "H100", "5090")
"""Cards whose kernels may start before the one before has ended."""


class Kernel(NamedTuple):
    """``programs`` of ``warps`` each, at most ``resident`` on a multiprocessor, which read ``turns`` pieces of
    ``piece`` bytes, ``ahead`` of them asked for at once, and execute ``work`` instructions a warp and turn, ``before``
    the first request and ``after`` the last turn. A kernel that only waits takes ``fixed`` seconds instead. It has
    ``fetched`` bytes of the next kernel's weights brought into the level-2 cache, one that only waits as soon as it
    starts, another one each program's share after its last turn. With ``own`` a program has so many of its pieces
    brought there before it waits for x, and asks for none else."""

    programs: int = 1
    warps: int = 4
    turns: int = 0
    piece: float = 0.0
    work: float = 0.0
    ahead: int = 1
    resident: int = PLACES
    fixed: float = 0.0
    before: float = 0.0
    after: float = 0.0
    fetched: float = 0.0
    own: int = 0


def product(outputs: int, inputs: int, slices: int, work: float = 445.0) -> Kernel:
    """`planes.multiply` for one row of int4 in groups of 128, with two stages: 16 outputs a program, 512 inputs of each
    a slice and turn, 168 registers a thread (tests/gpu/machine_code.py)."""
    turns = math.ceil(inputs / (512 * slices))
    return Kernel(math.ceil(outputs / 16), slices, turns, slices * 16 * 512 * 4.25 / 8, work, resident=12 // slices,
                  before=224, after=111)  # fmt: skip


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
        self.near: dict[tuple[int, int, int], float] = {}  # pieces on their way into the level-2 cache
        self.waiting: set[tuple[int, int, int]] = set()
        self.begun: dict[tuple[int, int], float] = {}
        self.held: dict[int, list[int]] = {}  # programs that have no input yet
        self.cached = [0.0] * len(chain)  # bytes of each kernel's weights in the level-2 cache that nobody has read
        self.cached_at = [0.0] * len(chain)

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
        if program == 0 and not kernel.turns:
            self._fetch_ahead(now, number, kernel.fetched)
        self.started[number] += 1
        self.free -= kernel.warps
        now += self._issued(kernel.before)
        for piece in range(min(kernel.own, kernel.turns)):
            self._at(now, "fetch", (number, program, piece))
        if not kernel.own:
            for piece in range(min(kernel.ahead, kernel.turns)):
                self._at(now, "ask", (number, program, piece))
        before = self.ends[number - 1] if number else -math.inf
        self.begun[number, program] = now
        if before is None:
            self.held.setdefault(number, []).append(program)
        else:
            self._input(now, number, program, before)

    def _fetch_ahead(self, now: float, number: int, size: float) -> None:
        following = next((n for n in range(number + 1, len(self.chain)) if self.chain[n].turns), number)
        if size and following != number:
            self.served = max(self.served, now) + size / self.card.bandwidth
            self.cached[following] += size
            self.cached_at[following] = self.served

    def _input(self, now: float, number: int, program: int, before: float) -> None:
        """Its input is on its way: the kernel before ended at ``before``."""
        ready = max(now, before + (self.hand_over if self.early else 0.0))
        kernel = self.chain[number]
        if kernel.own:
            for piece in range(min(kernel.ahead, kernel.turns)):
                self._at(ready, "ask", (number, program, piece))
        self._at(ready + (kernel.fixed or X), "end" if kernel.fixed else "ready", (number, program, 0))

    def _fetch(self, now: float, place: tuple[int, int, int]) -> None:
        """Bring a program's own piece into the level-2 cache, if it is not there or on its way."""
        number = place[0]
        piece = self.chain[number].piece
        if self.cached[number] >= piece:
            self.cached[number] -= piece
            self.near[place] = self.cached_at[number]
        else:
            self.served = max(self.served, now) + piece / self.card.bandwidth
            self.near[place] = max(now + self.card.latency, self.served)

    def _ask(self, now: float, place: tuple[int, int, int]) -> None:
        number = place[0]
        piece = self.chain[number].piece
        if place in self.near:
            self.arrived[place] = max(now, self.near.pop(place)) + HIT
        elif self.cached[number] >= piece:
            self.cached[number] -= piece
            self.arrived[place] = max(now + HIT, self.cached_at[number])
        else:
            self.served = max(self.served, now) + piece / self.card.bandwidth
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
        done = now + self._issued(kernel.work)
        if piece + kernel.ahead < kernel.turns:
            self._at(done, "ask", (number, program, piece + kernel.ahead))
        if piece + 1 < kernel.turns:
            self._at(done, "ready", (number, program, piece + 1))
        else:
            self._fetch_ahead(done, number, kernel.fetched / kernel.programs)
            self._at(done + self._issued(kernel.after) + DRAIN, "end", place)

    def _issued(self, instructions: float) -> float:
        """Seconds of so many instructions of a warp among those that are there now, and do not wait for their input."""
        waiting = sum(len(programs) * self.chain[number].warps for number, programs in self.held.items())
        busy = (self.card.processors * PLACES - self.free - waiting) / self.card.processors
        return instructions * max(LEAST_CYCLES, busy / SCHEDULERS) / self.card.clock

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
    """What is known: of an H200, and of an H100 by one publication."""
    measured = "an 8B in int4, 26 November 2026"
    for name, kernel, known in (
        ("q, k and v", product(6144, 4096, 2), 7.4),
        ("o", product(4096, 4096, 2), 6.1),
        ("gate and up", product(28672, 4096, 2), 22.8),
        ("down, 4 slices", product(4096, 14336, 4), 12.4),
    ):
        yield Check(name, seconds(H200, [kernel]), known * US, measured)
    four = sum(seconds(H200, [product(outputs, 4096, 4)]) for outputs in (6144, 4096, 28672))
    yield Check("the first three, 4 slices", four, 38.5 * US, measured)
    yield Check("a step of one answer", _step(H200, ten(2, 2, 4)), 2440 * US, measured)
    for name, known in (("H200", 794.7), ("H100", 979.5)):
        said = "msaroufim, megakernels vs graphs, September 2026"
        yield Check(f"a 1B in bf16, early launch, {name}", published_step(CARDS[name]), known * US, said)


LAYERS = 32
OTHERS = 33 * US
"""Embedding, sampling and the like, by the profile of an 8B."""
HEAD = 128256 * 4096 * 2
"""Bytes of its output head, in 16 bits."""
ROW = 4.25 / 8
"""Bytes of a weight in groups of 128."""
LAYER_BYTES = ROW * (4096 * (6144 + 4096 + 28672) + 14336 * 4096)


def served(processors: int) -> list[Kernel]:
    """The ten kernels of a layer of an 8B as it is served on a card with so many multiprocessors."""

    def slices(outputs: int, inputs: int) -> int:
        return plane_tile(1, outputs, 2 * 128, inputs // 512, processors).slices

    return ten(slices(6144, 4096), slices(4096, 4096), slices(4096, 14336))


def ten(of_qkv: int, of_o: int, of_down: int) -> list[Kernel]:
    """The same by slices of three products. The small ones take what a profile said, less the gap before them."""
    small, norm = Kernel(fixed=0.1 * US), Kernel(fixed=0.4 * US)
    attention, merge = Kernel(fixed=3.0 * US), Kernel(fixed=1.1 * US)
    return [
        *(norm, product(6144, 4096, of_qkv), small, attention, merge, product(4096, 4096, of_o)),
        *(norm, product(28672, 4096, 2), small, product(4096, 14336, of_down)),
    ]


ATTENTION = Kernel(programs=64, warps=4, fixed=3.6 * US)
"""With rotation, writing and merge, of a short text."""
NORM = 180
"""Instructions a warp for the norm of x, by every program of a product that has it."""


def strips(outputs: int, inputs: int, turns: int = 1, ahead: int = 1, norm: bool = False) -> Kernel:
    """`resident.strip` in groups of 128: programs of 8 warps have 16 outputs and ask for ``ahead`` of their ``turns``
    at once, before they wait for x; 2.2 instructions a weight, and three programs a multiprocessor, or two where they
    hold two turns (tests/gpu/machine_code.py)."""
    work = 2.2 * 16 * inputs / turns / 256
    return Kernel(outputs // 16, 8, turns, 16 * inputs * ROW / turns, work + NORM * norm, ahead, 3 if ahead == 1 else 2)


def ring(processors: int, outputs: int, inputs: int, ahead: int = 3) -> Kernel:
    """`resident.ring`: one program a multiprocessor, which takes strips of 16 outputs in turn and has ``ahead`` of them
    under way."""
    turns = math.ceil(outputs / 16 / processors)
    piece = outputs * inputs * ROW / processors / turns
    return Kernel(processors, 8, turns, piece, 1.98 * 16 * inputs / 256, ahead, 1, before=NORM)


HAND_OVERS = (0.6, 0.9, 1.2, 1.5)
"""Microseconds from the end of a kernel to its results in the next one, which no card has measured."""


class Design(NamedTuple):
    """Kernels of a layer on a card with so many multiprocessors; ``early``: they start before the one before ends."""

    name: str
    layer: Callable[[int], list[Kernel]]
    early: bool = False


def _fused(processors: int) -> list[Kernel]:
    """Norms, residual, gating, rotation, writing and merge within the products and attention, as these are now."""
    _, qkv, _, _, _, o, _, up, _, down = served(processors)
    qkv, up = (kernel._replace(before=kernel.before + NORM) for kernel in (qkv, up))
    return [qkv, ATTENTION, o, up, down]


def _starting(processors: int, fetched: float = 0.0) -> list[Kernel]:
    """The same, of which the products fetch the weights of their first turn before they wait, and norms come
    afterwards; attention has o's weights fetched, and down the next layer's q, k and v."""
    qkv, attention, o, up, down = _fused(processors)

    def starting(kernel: Kernel, norm: bool = False) -> Kernel:
        return kernel._replace(own=1, before=kernel.before - NORM * norm, after=kernel.after + NORM * norm)

    sizes = (ROW * 4096 * 4096, ROW * 6144 * 4096)
    return [
        *(starting(qkv, True), attention._replace(fetched=min(fetched, sizes[0])), starting(o), starting(up, True)),
        starting(down)._replace(fetched=min(fetched, sizes[1])),
    ]


def _resident(processors: int, fetched: float = 0.0) -> list[Kernel]:
    """All weights of q, k and v, of o and half of down's in registers, gate and up by a ring. Attention has o's weights
    fetched, and down the next layer's q, k and v, at most ``fetched`` bytes."""
    down = strips(4096, 14336, turns=4, ahead=2)
    sizes = (ROW * 4096 * 4096, ROW * 6144 * 4096)
    return [
        *(strips(6144, 4096, norm=True), ATTENTION._replace(fetched=min(fetched, sizes[0])), strips(4096, 4096)),
        *(ring(processors, 28672, 4096), down._replace(fetched=min(fetched, sizes[1]))),
    ]


def _switched(processors: int) -> list[Kernel]:
    """What the switch "Resident products" serves: gates and ups, and down."""
    qkv, attention, o, _, _ = _fused(processors)
    *_, up, down = _resident(processors)
    return [qkv, attention, o, up, down]


def _ten_resident(processors: int) -> list[Kernel]:
    qkv, _, o, up, down = _resident(processors)
    norm, _, small, attention, merge, *_ = served(processors)
    return [norm, qkv, small, attention, merge, o, norm, up, small, down]


DESIGNS = (
    Design("ten kernels, 2 slices everywhere", lambda _: ten(2, 2, 2)),
    Design("ten kernels, as served", served),
    Design("five kernels, the same products", _fused),
    Design("the same, started early", _starting, early=True),
    Design("the same, 16 MB ahead", lambda processors: _starting(processors, 16e6), early=True),
    Design("ten kernels, resident products", _ten_resident),
    Design("five kernels, two resident", _switched),
    Design("five kernels, resident products", _resident),
    Design("the same, early launch", _resident, early=True),
    Design("the same, 4 MB fetched ahead", lambda processors: _resident(processors, 4e6), early=True),
    Design("the same, 16 MB fetched ahead", lambda processors: _resident(processors, 16e6), early=True),
)


@functools.cache
def step_of(design: Design, card: Card, hand_over: float = 0.9 * US) -> float:
    """Seconds of a step of one answer of an 8B in groups of 128, whose head is in 16 bits."""
    return _step(card, design.layer(card.processors), design.early, hand_over)


def ceiling(card: Card) -> float:
    """The same if a step did nothing but read."""
    return (LAYERS * LAYER_BYTES + HEAD) / card.bandwidth


def _step(card: Card, layer: Sequence[Kernel], early: bool = False, hand_over: float = 0.9 * US) -> float:
    return LAYERS * _layer(layer, early, card, hand_over) + HEAD / card.bandwidth + OTHERS


def published_step(card: Card) -> float:
    """A 1B in bf16 with six kernels a layer, all of whose weights are asked for before a program waits."""
    row = 2 * 2048
    layer = [
        *(resident(3072, row), Kernel(programs=64, warps=4, fixed=3.6 * US), resident(2048, row)),
        *(resident(16384, row), Kernel(fixed=1.2 * US), resident(2048, 4 * row, 4)),
    ]
    return 16 * _layer(layer, True, card) + seconds(card, [resident(128256, row)])


CHOICE = 700
"""Instructions a warp for the choice of 8 experts among 256, by every program of few_experts.py."""
MIXTURE_HEAD = 248320 * 2048 * 2
MIXTURE_LAYERS = 40
"""Of Qwen3.6-35B-A3B: 2,048 wide, 256 experts of 512 inner features, of which a row asks 8, and a shared one."""
EXPERT = ROW * 3 * 2048 * 512
"""Bytes of an expert."""
MIXTURE_LAYER = ROW * 2048 * (12288 + 64 + 4096) + 4 * 256 * 2048 + 9 * EXPERT + 4e6
"""Bytes of a layer with a delta net, whose state is 2 MB, read and written."""


def mixture(few: bool) -> list[Kernel]:
    """The kernels of such a layer for one row: with a block of experts by three kernels for few rows, and the delta net
    in one, or with rows that are sorted by expert and norms of their own."""
    small, norm, rule = Kernel(fixed=0.1 * US), Kernel(fixed=0.4 * US), Kernel(fixed=2.0 * US)
    mixed, gates, out = product(12288, 2048, 2), product(64, 2048, 2), product(2048, 4096, 4)
    of_each = product(1024, 2048, 2), product(2048, 512, 2)
    scores = Kernel(256, 4, 1, 8192.0, 100, resident=8)
    if few:
        judged = scores._replace(programs=257, warps=8, before=NORM, resident=4)
        chosen = of_each[0]._replace(programs=9 * of_each[0].programs, before=of_each[0].before + CHOICE)
        summed = Kernel(128, 8, 2, 16 * 512 * 9 / 2 * ROW, 500, resident=1, before=224, after=150)
        within = (each._replace(before=each.before + NORM) for each in (mixed, gates))
        return [*within, rule, out, judged, chosen, summed]
    up, down = (each._replace(programs=8 * each.programs) for each in of_each)
    shared = [of_each[0], of_each[1], norm, small, small]
    block = [scores, Kernel(fixed=1.0 * US), Kernel(fixed=0.6 * US), up, small, down, norm]
    return [norm, mixed, gates, rule, small, small, out, norm, *shared, *block]


@functools.cache
def mixture_step(card: Card, few: bool, early: bool = False) -> float:
    """Seconds of a step of one answer of Qwen3.6-35B-A3B in groups of 128, whose head is in 16 bits; its layers with
    attention are counted as the others."""
    return MIXTURE_LAYERS * _layer(mixture(few), early, card) + MIXTURE_HEAD / card.bandwidth + OTHERS


@functools.cache
def layer_seconds(card: Card) -> float:
    """Of a layer of an 8B as it is served."""
    return _layer(served(card.processors), False, card)


def _layer(layer: Sequence[Kernel], early: bool, card: Card, hand_over: float = 0.9 * US) -> float:
    """Seconds that one more layer takes among others."""
    two, three = (seconds(card, [*layer] * count, early, hand_over) for count in (2, 3))
    return three - two


def table(names: Sequence[str] = tuple(CARDS), designs: Sequence[Design] = DESIGNS) -> Iterator[str]:
    """Tokens per second of designs on cards, and their share of what reading alone would allow."""
    cards = {name: CARDS[name] for name in names}
    yield f"{'tok/s of an 8B, one answer':34}" + "".join(f"{name:>13}" for name in names)
    for design in designs:
        cells = []
        for name, card in cards.items():
            if design.early and name not in STARTS_EARLY:
                cells.append(f"{'-':>13}")
            else:
                step = step_of(design, card)
                cells.append(f"{1 / step:6.0f} ({ceiling(card) / step:4.0%})".rjust(13))
        yield f"{design.name:34}" + "".join(cells)
    yield f"{'reading alone':34}" + "".join(f"{1 / ceiling(card):6.0f}       ".rjust(13) for card in cards.values())


def main() -> None:
    for each in checks():
        off = each.model / each.known - 1
        print(f"{each.name:34} {each.model / US:8.1f} µs, known {each.known / US:8.1f} ({off:+.0%}); {each.source}")
    for name, outputs, inputs in (("q, k and v", 6144, 4096), ("o", 4096, 4096), ("down", 4096, 14336)):
        two, four = (seconds(H200, [product(outputs, inputs, slices)]) / US for slices in (2, 4))
        print(f"{name:34} {two:8.1f} µs with 2 slices, {four:.1f} with 4")
    print("\n".join(table()))
    for name, card in CARDS.items():
        sorted_by, few = (mixture_step(card, each) for each in (False, True))
        bytes_a_step = MIXTURE_LAYERS * MIXTURE_LAYER + MIXTURE_HEAD
        early = f", early launch {1 / mixture_step(card, True, True):.0f}" if name in STARTS_EARLY else ""
        counts, alone = (len(mixture(each)) for each in (False, True)), card.bandwidth / bytes_a_step
        print("a mixture (35B-A3B), {:6}: {} kernels a layer".format(name, " and ".join(map(str, counts))),
              f"{1 / sorted_by:.0f} and {1 / few:.0f} tok/s{early}, reading alone {alone:.0f}")  # fmt: skip
    for design in (each for each in DESIGNS if each.early):
        steps = ", ".join(f"{over:.1f} µs: {1 / step_of(design, H200, over * US):.0f}" for over in HAND_OVERS)
        print(f"{design.name:34} tok/s on an H200 by hand-over, {steps}")


if __name__ == "__main__":
    main()
