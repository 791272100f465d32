"""The model of a GPU's step is held to what was measured and published, and tiles to the model."""

from __future__ import annotations

import pytest

from engine.compute.layers.linear.triton.runtime import DEEP, SOME, plane_tile
from tests.gpu.model import (
    CARDS,
    DESIGNS,
    H200,
    MIXTURE_HEAD,
    MIXTURE_LAYER,
    MIXTURE_LAYERS,
    Card,
    Kernel,
    ceiling,
    checks,
    mixture,
    mixture_step,
    product,
    seconds,
    step_of,
    table,
)

US = 1e-6


def test_what_is_known_is_met_within_fifteen_percent() -> None:
    found = {check.name: check.model / check.known for check in checks()}
    assert len(found) == 8
    assert {name: ratio for name, ratio in found.items() if not 0.85 < ratio < 1.15} == {}


def test_a_kernel_takes_no_less_than_its_bytes_and_waits() -> None:
    card = Card(2, 1e12)
    one = Kernel(programs=4, warps=4, turns=3, piece=1e6, work=1.0)
    alone = seconds(card, [one])
    assert 4 * 3e6 / 1e12 < alone < 4 * 3e6 / 1e12 + 8 * US
    assert seconds(card, [Kernel(fixed=5 * US)] * 2) == pytest.approx(2 * (1.8 + 5) * US)
    assert seconds(card, [one, one], early=True) < seconds(card, [one, one]), "its weights are asked for meanwhile"


@pytest.mark.parametrize(
    ("outputs", "inputs", "cut"), [(4096, 4096, DEEP), (4096, 14336, DEEP), (28672, 4096, SOME), (6144, 4096, SOME)]
)
def test_few_outputs_are_cut_into_more_slices(outputs: int, inputs: int, cut: object) -> None:
    """As memory waits else: 16 KB under way on each of 132 multiprocessors, where it takes 20."""
    assert plane_tile(1, outputs, 256, inputs // 512, H200.processors) == cut
    assert plane_tile(1, outputs, 256, inputs // 512, 28) == SOME, "a small card has more programs on each"
    if cut == DEEP:
        some, deep = (seconds(H200, [product(outputs, inputs, tile.slices)]) for tile in (SOME, DEEP))
        assert deep < 0.9 * some


def test_what_is_fetched_ahead_is_there_sooner_and_read_once() -> None:
    card = Card(2, 1e12)
    waits = Kernel(fixed=20 * US)
    reads = Kernel(programs=4, warps=4, turns=2, piece=1e6, work=1.0)
    alone, ahead = (seconds(card, [waits._replace(fetched=size), reads]) for size in (0.0, 8e6))
    assert alone - ahead == pytest.approx(8e6 / 1e12, rel=0.15), "all of it was read meanwhile"
    half = seconds(card, [waits._replace(fetched=4e6), reads])
    assert ahead < half < alone


@pytest.mark.slow
def test_the_table_ranks_designs_on_every_card() -> None:
    """None is faster than reading alone, and each that is to be built gains on an H200."""
    speed = {design.name: 1 / step_of(design, H200) for design in DESIGNS}
    built = [design for design in DESIGNS if design.name.startswith(("five", "the same"))]
    assert len({design.name for design in DESIGNS}) == len(DESIGNS)
    assert all(value < 1 / ceiling(H200) for value in speed.values())
    served = speed["ten kernels, as served"]
    assert speed["ten kernels, 2 slices everywhere"] < served < min(speed[design.name] for design in built)
    assert speed["five kernels, resident products"] < speed["the same, early launch"]
    starting = next(design for design in DESIGNS if design.name == "the same, started early")
    assert step_of(starting, H200, 0.6 * US) < step_of(starting, H200, 1.5 * US), "each kernel waits for its hand-over"
    assert speed["five kernels, resident products"] < speed["five kernels, two resident"], "without early launch"
    assert speed["five kernels, two resident"] > 1.05 * speed["five kernels, the same products"]
    lines = list(table(("H200",)))
    assert lines[0].split()[-1] == "H200"
    rows = {line[:34].strip(): line[34:].split() for line in lines[1:]}
    assert set(rows) == {design.name for design in DESIGNS} | {"reading alone"}
    assert rows["ten kernels, as served"][0] == f"{served:.0f}"
    early = [design for design in DESIGNS if design.early]
    assert [line.split()[-1] for line in table(("3090",), early)][1:-1] == ["-"] * len(early), "none starts early"


@pytest.mark.parametrize("name", list(CARDS))
def test_fewer_kernels_of_a_mixture_gain_on_every_card(name: str) -> None:
    card = CARDS[name]
    least = (MIXTURE_LAYERS * MIXTURE_LAYER + MIXTURE_HEAD) / card.bandwidth
    assert least < mixture_step(card, True) < 0.95 * mixture_step(card, False)
    assert len(mixture(True)) < len(mixture(False)) / 2
