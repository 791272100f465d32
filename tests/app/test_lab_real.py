"""All experiments through the page, with the real engine and a bundled model.

What the page then shows is compared with counts made here, of the result's settings and of the models' files.
"""

from __future__ import annotations

import functools
import json
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
import pytest
from PySide6.QtWidgets import QLabel, QWidget

from app.lab.compare.page import ComparePage
from app.lab.page import LabView
from app.lab.runs import LabRuns
from app.link.link import EngineLink
from app.theme.theme import Theme
from engine.library.paths import find_model
from engine.protocol.lab import Cells, Drafts, LabIndex, LabResult, Lanes, Pages, Strip, Tree
from tests.app.lab_support import true_engine
from tests.app.pressing import press

COMMAND = [sys.executable, "-m", "engine.doors.cli.main", "lab"]
PAGE = 16
FEW = " in the one run of each side that was asked for."
"""What one pair of times can say."""
Numbers = list[list[float]]
"""``numbers[figure][side]`` as they stand on the page."""


def kv_cache(result: LabResult, numbers: Numbers) -> str:
    prompt, answer = number(result, "prompt"), number(result, "answer")
    texts = [prompt + written for written in range(answer)]  # before each token
    assert numbers[0] == [sum(texts), prompt + answer - 1]
    assert tokens(result) == answer
    assert [picture.computed for picture in result.pictures if isinstance(picture, Cells)] == [
        texts,
        [prompt] + [1] * (answer - 1),
    ]
    return f" times fewer tokens computed: {prompt + answer - 1:,} instead of {sum(texts):,}."


def weights(result: LabResult, numbers: Numbers) -> str:
    shapes = tensors(result)
    packed = [8 * rows * columns for name, (rows, columns) in shapes.items() if name.endswith(".qweight")]
    columns = [shape[1] for name, shape in shapes.items() if name.endswith(".qweight")]
    scales = sum(rows * columns for name, (rows, columns) in shapes.items() if name.endswith(".scales"))
    plain, eight, four = (1e6 * runs[0] for runs in result.figures[0].runs)
    assert plain - eight == pytest.approx(sum(packed) - 4 * sum(columns))  # a scale of 32 bits for each output
    assert plain - four == pytest.approx(2 * sum(packed) - sum(packed) / 2 - 2 * scales, rel=0.03)
    return f"{plain / four:.2f} times less memory"


def paging(result: LabResult, numbers: Numbers) -> str:
    chats, context, pages = (number(result, key) for key in ("chats", "context", "pages"))
    whole, paged = result.pictures
    assert isinstance(whole, Pages)
    assert isinstance(paged, Pages)
    assert len(whole.owners) == len(paged.owners) == pages
    each = ceil(context / PAGE)
    fit = max(count for count in range(chats) if count * each + count - 1 <= pages)  # a page is free for each that runs
    assert numbers[2][0] == fit < numbers[2][1] <= chats
    owned = Counter(owner for owner in whole.owners if owner >= 0)
    assert set(owned.values()) == {each}
    assert len(owned) <= fit
    parts = list(zip(paged.owners, paged.filled, strict=True))
    assert len({owner for owner, _ in parts if owner >= 0}) <= numbers[2][1]
    # Page by page a chat has one page that is not full, and the one that its next token needs.
    assert max(Counter(owner for owner, part in parts if owner >= 0 and part < 1).values()) <= 2
    assert numbers[1][0] < 50 < 80 < numbers[1][1] <= 100
    return f"{result.figures[0].runs[1][0] / result.figures[0].runs[0][0]:.2f} times as many chats at once"


def kivi(result: LabResult, numbers: Numbers) -> str:
    kept, width = numbers_of_a_token(result)
    bits = [16, 8 + 16 / width, 4 + 32 / 32, 4 + 32 / 32, 2 + 32 / 32]  # with scales of a token, or of 32 numbers
    fits = [1e9 / (kept * each / 8) for each in bits]

    def kivis(length: int) -> float:
        packed = 32 * ((length - 128) // 32)  # the others are recent
        return length / (packed / fits[-1] + (length - packed) / fits[0])

    *plain, mixed = (runs[0] for runs in result.figures[0].runs)
    assert plain == pytest.approx(fits[:-1])
    text = number(result, "text")  # which ends with a whole sentence of nine tokens
    assert any(mixed == pytest.approx(kivis(length)) for length in range(text - 8, text + 1))
    assert tokens(result) == number(result, "codes") * number(result, "answer")
    assert numbers[1][0] >= 50, "it finds what is hidden"
    return f"{mixed / plain[0]:.2f} times more tokens of text in 1 GB: "


def quest(result: LabResult, numbers: Numbers) -> str:
    kept, _ = numbers_of_a_token(result)
    text, layers = number(result, "text"), config(result)["num_hidden_layers"]
    budgets = [int(side.removesuffix(" tokens").replace(",", "")) for side in result.sides[1:]]

    def read(budget: int) -> float:
        """MB: two layers read everything, the others what they choose and the bounds of all pages."""
        chosen = budget + ceil(text / PAGE) if budget < text else text
        return 2 * kept * (2 / layers * text + (1 - 2 / layers) * chosen) / 1e6

    shown = [runs[0] for runs in result.figures[0].runs]
    assert shown == pytest.approx([read(budget) for budget in (text, *budgets)], rel=0.005)  # and the question
    for budget, strip in zip(budgets, result.pictures[1:], strict=True):
        assert isinstance(strip, Strip)
        assert sum(strip.read) == pytest.approx(budget / PAGE, rel=0.01)  # pages
    assert tokens(result) == number(result, "codes") * number(result, "answer")
    assert numbers[2][0] >= 50, "it finds what is hidden"
    return f"{shown[0] / shown[-1]:.2f} times less read for a token"


def window(result: LabResult, numbers: Numbers) -> str:
    kept, sinks, length = (number(result, key) for key in ("window", "sinks", "length"))
    alone, held, full = numbers[0]
    assert full == ceil(length / PAGE)
    assert held == alone + ceil(sinks / PAGE)
    assert kept / PAGE <= alone <= kept / PAGE + 1  # and the page that is being filled
    strips = [picture.read for picture in result.pictures if isinstance(picture, Strip)]
    assert [PAGE * sum(read) for read in strips] == pytest.approx([kept, kept + sinks, length])
    curves = [series.points[0][1] for series in result.plots[0].series]
    assert curves == pytest.approx([curves[0]] * 3, rel=1e-4), "within the window nothing is forgotten"
    return f" times fewer KV pages than the full cache: {held:.0f} instead of {full:.0f}."


def prefixes(result: LabResult, numbers: Numbers) -> str:
    users, text = (number(result, key) for key in ("users", "text"))
    whole, shared = numbers[0]
    once = whole - (users - 1) * text
    assert once - users * PAGE <= shared <= once + users * PAGE  # questions begin alike; a page that is not full
    assert tokens(result) == users * number(result, "answer")
    apart, tree = result.pictures
    assert isinstance(apart, Tree)
    assert isinstance(tree, Tree)
    assert len(apart.nodes) == len(tree.nodes) - 1 == users
    assert 0 < sum(node.tokens for node in apart.nodes) - sum(node.tokens for node in tree.nodes) < users * text
    return f" times fewer prompt tokens computed: {shared:,.0f} instead of {whole:,.0f}."


def batching(result: LabResult, numbers: Numbers) -> str:
    lengths = [int(each) for each in str(result.settings["lengths"]).split(", ")]
    slots, passes = number(result, "slots"), numbers[0]
    assert len(lengths) == number(result, "requests")
    assert passes[0] == tokens(result) == sum(lengths)  # alone each token takes a pass
    longest = [max(lengths[start : start + slots]) for start in range(0, len(lengths), slots)]
    assert sum(longest) <= passes[1] < sum(lengths)  # a batch runs as long as its longest answer
    assert max(ceil(sum(lengths) / slots), *lengths) <= passes[2] < sum(lengths)
    for lanes, most in zip(result.pictures, (1, slots, slots), strict=True):
        assert isinstance(lanes, Lanes)
        busy = [[span for span in lane.spans if span.doing in ("reading", "writing")] for lane in lanes.lanes]
        for moment in (spans[0].start for spans in busy):
            assert sum(spans[0].start <= moment < spans[-1].end for spans in busy) <= most
    return f" times fewer passes through the model: {passes[2]:.0f} instead of {passes[0]:.0f}."


def chunked(result: LabResult, numbers: Numbers) -> str:
    """A chunk is all that a pass reads, with a token of each answer; the whole prompt is read in one."""
    prompt, chunk, streams = (number(result, key) for key in ("prompt", "chunk", "streams"))
    whole, chunks, targets = numbers[0]
    assert (whole, chunks) == (prompt, chunk)
    assert streams < targets <= chunk
    for lanes in result.pictures:
        assert isinstance(lanes, Lanes)
        assert len(lanes.lanes) == streams + 1
    return f" times fewer tokens in the largest pass: {chunks:,.0f} instead of {whole:,.0f}."


def mlfq(result: LabResult, numbers: Numbers) -> str:
    lengths, slots = [int(each) for each in str(result.settings["lengths"]).split(", ")], number(result, "slots")
    assert len(lengths) == number(result, "requests")
    assert tokens(result) == sum(lengths)
    for lanes, passes in zip(result.pictures, numbers[0], strict=True):
        assert isinstance(lanes, Lanes)
        assert sum(lengths) / len(lengths) < passes < sum(lengths)  # its own tokens, and others'
        busy = [span for lane in lanes.lanes for span in lane.spans if span.doing in ("reading", "writing")]
        assert max(sum(span.start <= each.start < span.end for span in busy) for each in busy) <= slots
    before, after = result.figures[0].medians
    if max(before, after) < 1.005 * min(before, after):
        return "the same on both sides"
    return f" times {'fewer passes until an answer' if after < before else 'more passes until one'} is done"


def speculation(result: LabResult, numbers: Numbers) -> str:
    """Of the first edit the picture has every pass; the first one reads the prompt and gives one token."""
    ahead = number(result, "ahead")
    plain, drafted = result.pictures
    assert isinstance(plain, Drafts)
    assert isinstance(drafted, Drafts)
    fates = [Counter(token.fate for token in step) for step in drafted.steps]
    accepted = sum(fate["accepted"] for fate in fates)
    assert sum(map(len, plain.steps)) == len(plain.steps) == accepted + sum(fate["own"] for fate in fates)
    assert all(fate["accepted"] + fate["refused"] <= ahead for fate in fates)
    assert numbers[0][0] == numbers[1][0] == numbers[2][0] == 1
    if number(result, "prompts") == 3:  # one of each kind, so that there is no other edit; fast machines do more
        per_step = (len(plain.steps) - 1) / (len(drafted.steps) - 1)
        assert result.figures[0].runs[1] == pytest.approx([per_step])
    passes_of(number(result, "tokens"), result.figures[2].runs, ahead)
    return f"{result.figures[0].runs[1][0]:.2f} tokens a step "


def heads(result: LabResult, numbers: Numbers) -> str:
    ahead, nodes = number(result, "ahead"), number(result, "nodes")
    assert result.sides == str(result.settings["methods"]).split(", ")
    passes_of(number(result, "tokens"), result.figures[4].runs, ahead)
    for side, picture in zip(result.sides, result.pictures, strict=True):
        assert isinstance(picture, Drafts)
        (step,) = picture.steps
        drafts = [token for token in step if token.fate != "own"]
        assert len(drafts) <= (nodes if side in ("Medusa", "EAGLE", "MTP") else ahead)
        kept = [place for place, token in enumerate(step) if token.fate == "accepted"]
        assert [step[place].parent for place in kept] == [-1, *kept][: len(kept)], "one path of the tree"
        assert len(kept) <= ahead
    per_step = dict(zip(result.sides, numbers[0], strict=True))
    best = max(result.sides, key=lambda side: per_step[side])
    return f"{best}: {per_step[best]:.2f} tokens a step of free talk ("


def passes_of(tokens: int, runs: list[list[float]], ahead: int) -> None:
    """Of a text that never ends: its tokens but the first are the passes and what was accepted in them."""
    for (per_step,) in runs:
        passes = (tokens - 1) / per_step
        assert passes == pytest.approx(round(passes))
        assert 0 <= tokens - 1 - passes <= ahead * passes + 1e-6


def batch_size(result: LabResult, numbers: Numbers) -> str:
    sizes = [1, *(int(side.split()[0]) for side in result.sides[1:])]
    asked = sizes.index(8)
    read = [size * mean(runs) for size, runs in zip(sizes, result.figures[0].runs, strict=True)]
    assert read == sorted(read), "weights are read once, keys and values of each"
    assert read[-1] < 2 * read[0]
    assert number(result, "computed") == number(result, "largest")
    read_by = [mean(runs) for runs in result.figures[0].runs]
    return f"{read_by[0] / read_by[asked]:.2f}"


COUNTS: dict[str, Callable[[LabResult, Numbers], str]] = {
    each.__name__: each
    for each in (
        kv_cache, weights, paging, kivi, quest, window, prefixes, batching, batch_size, chunked, mlfq, speculation,
        heads,
    )
}  # fmt: skip
"""Each checks the counts of one experiment, and returns what the headline must say by them."""
UNSURE = {"kivi", "quest", "window", "heads", "batching", "chunked", "mlfq"}
"""Whose lesson not every model shows: another is said then."""
SHORT = "kv_cache"
"""Run in `make test`: tests/engine/services/experiments/lab counts the others, and other tests show made-up results."""


@pytest.fixture
def link(qtbot) -> Iterator[EngineLink]:
    with true_engine(qtbot) as link:
        yield link


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name != SHORT)) for name in COUNTS])
def test_through_the_page(qtbot, theme: Theme, link: EngineLink, name: str) -> None:
    unloaded: list[object] = []
    link.unloaded.connect(unloaded.append)
    runs = LabRuns(link, pairs=1, seconds=1.0)
    runs.index, runs.device = index(), lambda: "cpu"
    page = runs.pages[name]
    view = LabView(runs, lambda: ComparePage(None, theme), theme)
    qtbot.addWidget(view)
    view.resize(1200, 800)
    view.show()
    try:
        view.show_experiment(name)
        assert view.view is not None
        assert (f" with {page.brings}," in view.view.run.text()) == (name in ("kivi", "quest"))
        press(view, "lab.run")
        qtbot.waitUntil(lambda: not runs.running)
        assert not view.view.note.isVisibleTo(view), view.view.note.text()
        assert (link.card, unloaded) == (None, []), "of the run's model nobody else hears"
        result = runs.results[name]
        assert result.model == (page.brings or index().model)
        found = view.view.found
        assert found is not None
        qtbot.waitUntil(lambda: found.rest.over)
        units = [figure.effects[0].metric.unit for figure in result.figures]
        numbers = [figures(figure, unit) for figure, unit in zip(found.figures, units, strict=True)]
        for figure, shown in zip(result.figures, numbers, strict=True):
            assert shown == pytest.approx([mean(side) for side in figure.runs], rel=0.06)  # figures are rounded
        assert said(view, "lab.headline") == result.headline
        assert COUNTS[name](result, numbers).lower() in result.headline.lower()
        assert said(view, "lab.second") == result.second
        assert (FEW in result.second) == (name != "paging")
        assert said(view, "lab.lesson") == result.lesson
        assert name in UNSURE or result.lesson == page.lesson
        assert said(view, "lab.here") == result.why[0]
        qtbot.waitUntil(lambda: not view.lesson.active)
        assert not found.lesson.visibleRegion().isEmpty(), "what it was meant to teach stands on the screen"
        if result.text is None:
            assert view.findChild(QLabel, "lab.text") is None
        else:
            assert said(view, "lab.text").startswith(result.text.sentence)
            assert result.text.same == (len(set(result.text.texts)) == 1)
    finally:
        runs.close_down()
    again = LabRuns(link)
    try:
        again.refresh()
        qtbot.waitUntil(lambda: name in again.results)
        assert again.results[name] == result
    finally:
        again.close_down()


@functools.cache
def index() -> LabIndex:
    """With a context in which the guide finds nothing, so that the pages on finding offer the model for it."""
    asked = [*COMMAND, "--json", "--device", "cpu", "--context", "1024"]
    return msgspec.json.decode(subprocess.run(asked, check=True, capture_output=True).stdout, type=LabIndex)


def said(view: QWidget, name: str) -> str:
    found = view.findChild(QLabel, name)
    assert found is not None
    return found.text()


_BYTES = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


def figures(row: QWidget, unit: str) -> list[float]:
    """The number of each side in a row of figures on the page, in the unit of its runs."""
    texts = [label.text() for label in row.findChildren(QLabel) if label.property("role") == "figure"]
    scales = _BYTES if unit == "bytes" else {}
    return [float(text.split()[0].replace(",", "")) * scales.get(text.split()[-1], 1.0) for text in texts]


def number(result: LabResult, key: str) -> int:
    found = result.settings[key]
    assert isinstance(found, int)
    return found


def tokens(result: LabResult) -> int:
    """Of the texts that were compared."""
    assert result.text is not None
    return result.text.tokens


def folder(result: LabResult) -> Path:
    return Path(find_model(result.model).path)


def config(result: LabResult) -> dict[str, Any]:
    return json.loads((folder(result) / "config.json").read_text("utf-8"))


def numbers_of_a_token(result: LabResult) -> tuple[int, int]:
    """In keys and values of all layers, and of one head."""
    of = config(result)
    width = of.get("head_dim") or of["hidden_size"] // of["num_attention_heads"]
    return 2 * of["num_hidden_layers"] * of["num_key_value_heads"] * width, width


def tensors(result: LabResult) -> dict[str, list[int]]:
    """The matrices of the model's file, by the header of it."""
    with (folder(result) / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return {name: each["shape"] for name, each in header.items() if len(each.get("shape", ())) == 2}
