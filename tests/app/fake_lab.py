"""The Lab's operations without a model, in seconds or none.

STATE.json: ``steps`` (seconds of a run; a negative number: none but the first ever ends), ``fails`` (a sentence before
which nothing is found; "" for none), ``dies`` (whether the engine is gone in the middle), ``full`` (whether the disk
is), ``kept`` (names that have a result), ``index_fails`` (a sentence). Runs are noted in ``asked``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

from app.link.calls import GONE
from engine.protocol import Effect, Metric, keys
from engine.protocol.lab import (
    Axis,
    Ceiling,
    LabFigure,
    LabIndex,
    LabOutcome,
    LabPage,
    LabPicture,
    LabProgress,
    LabResult,
    LabRoofline,
    LabSetting,
    LabText,
    LabTreeNode,
    ListExperiments,
    PaperFigure,
    Plot,
    PointGroup,
    RoofPoint,
    RunExperiment,
    Series,
    Tree,
)

PAIRS, USERS = 8, 4
HEADLINE = "10.5 times fewer prompt tokens computed: 1,413 instead of 14,844."
PLOT = Plot(
    title="First token of each user",
    x=Axis(title="user"),
    y=Axis(title="first token", unit="ms"),
    series=[
        Series(name="without", points=[(float(user), 100.0 * user) for user in range(1, USERS + 1)]),
        Series(name="with", points=[(float(user), 12.0 * user) for user in range(1, USERS + 1)]),
    ],
)
PAPER = PaperFigure(
    name="hits",
    paper="Zheng et al. 2024",
    title="SGLang",
    address="https://arxiv.org/abs/2312.07104",
    figure="Figure 5",
    claim="Up to 6.4 times the throughput.",
    setting="Llama-7B, A10G",
    checked="read in the paper",
    plot=PLOT,
)


def page(name: str, number: int, title: str, group: str, **more: object) -> LabPage:
    known = {
        "keys": [keys.PREFIX_CACHE],
        "problem": "Twelve people ask about the same long text. A tree keeps what was read.",
        "question": "How much sooner does the first word come?",
        "choices": ["not at all", "2 times", "5 times", "20 times"],
        "bounds": [1.4, 3.2, 10.0],
        "lesson": "Text that was read once need not be read again.",
        "fails": "The first prompt of all gains nothing.",
        "sides": ["each prompt read whole", "prefix tree"],
        "seconds": 30,
    }
    return LabPage(name=name, number=number, title=title, group=group, **{**known, **more})  # type: ignore[arg-type]


SETTINGS = [
    LabSetting(key="text", title="Tokens of the text", least=200, most=8000, step=200, usual=3000),
    LabSetting(key="users", title="Users", least=3, most=32, step=1, usual=12),
]
PAGES = [
    page("cache", 1, "KV cache", "The basics", use={"kv_cache": False}, seconds=20),
    page(
        "needle",
        5,
        "QUEST",
        "Memory",
        refused="The context is too short.",
        instead="A longer one can.",
        brings="needle-tiny",
    ),
    page(
        "windows",
        6,
        "Window and sinks",
        "Memory",
        refused="This needs a GPU.",
        instead="A machine with one can show it.",
    ),
    page("prefixes", 7, "Prefix caching", "Sharing", papers=[PAPER], adjustable=SETTINGS),
]


def result(name: str, model: str = "kvasir-guide", same: bool = True) -> LabResult:
    """Invented figures: 4.0 times, or for "cache" no clear difference."""
    slow = [400.0 + 5 * at for at in range(PAIRS)]
    fast = [value / (1.02 if name == "cache" else 4.0) for value in slow]
    first = Metric(title="first token, median", unit="ms", lower_is_better=True)
    computed = Metric(title="prompt tokens computed", lower_is_better=True, counted=True)
    clear = name != "cache"
    effects = (
        Effect(
            metric=first,
            before=417.5,
            after=sorted(fast)[4],
            ratio=4.0 if clear else 1.02,
            low=3.9 if clear else 0.97,
            high=4.1 if clear else 1.06,
            pairs=PAIRS,
            verdict="better" if clear else "none",
        ),
        Effect(
            metric=computed, before=14844.0, after=1413.0, ratio=10.5, low=10.5, high=10.5, pairs=1, verdict="better"
        ),
    )
    texts = ["The tree keeps what was read, page by page."] * 2
    if not same:
        texts = ["The tree keeps what was read, page by page.", "The tree keeps what is new, leaf by leaf."]
    return LabResult(
        name=name,
        model=model,
        device="cpu",
        machine="a machine",
        version="0.1.0",
        date="2026-11-26T02:50:53+00:00",
        seed=1,
        settings={"users": 12},
        headline=HEADLINE,
        second="4.0 times sooner (from 3.9 to 4.1 in 8 pairs)."
        if clear
        else "About 1.02 times sooner, from 0.97 to 1.06 in 8 pairs: no clear difference.",
        others=0.1,
        sides=["each prompt read whole", "prefix tree"],
        figures=[
            LabFigure(effects=[effects[0]], runs=[slow, fast]),
            LabFigure(effects=[effects[1]], runs=[[14844.0], [1413.0]]),
        ],
        text=LabText(
            same=same,
            tokens=96,
            sentence="The same text: identical, 96 tokens." if same else "The texts differ from token 6 on.",
            at=-1 if same else 5,
            near_tie=not same,
            texts=texts,
        ),
        taken="12 prompts about one text.",
        same=["one shared text"],
        other=["12 users"],
        why=["14,844 tokens against 1,413."],
        lesson=PAGES[-1].lesson,
        pictures=[tree(side) for side in (0, 1)],
        plots=[PLOT],
    )


def tree(side: int) -> Tree:
    own = [LabTreeNode(parent=-1 if side == 0 else 0, tokens=16, readers=[user]) for user in range(USERS)]
    return Tree(nodes=own if side == 0 else [LabTreeNode(parent=-1, tokens=1221, readers=list(range(USERS))), *own])


def roofline() -> LabRoofline:
    """Invented ceilings, two of each kind close together, and a point of each group; the switches' are close too."""
    memory = Ceiling(name="memory", value=5e9, unit="bytes", taken="The fastest of several sums.")
    products = Ceiling(name="products", value=46e9, unit="operations", taken="The fastest of several products.")
    cache = Ceiling(name="cache", value=5.5e9, unit="bytes", taken="The fastest of several sums in the cache.")
    packed = Ceiling(name="packed products", value=49e9, unit="operations", taken="The fastest of several, packed.")
    limit = 500.0

    def computed(name: str, group: PointGroup, intensity: float, tokens: float) -> RoofPoint:
        roof = min(products.value, memory.value * intensity)
        setting = "computed, the most that the ceilings allow"
        return RoofPoint(name, group, intensity, roof, roof, roof, tokens, setting, roof)

    return LabRoofline(
        model="kvasir-guide",
        device="cpu",
        machine="a machine",
        version="0.1.0",
        date="2026-11-26T02:50:53+00:00",
        context=528,
        weights=8e6,
        kept=2e6,
        operations=2e7,
        limit=limit,
        memory=memory,
        arithmetic=products,
        ceilings=[memory, cache, products, packed],
        points=[
            RoofPoint("decode, batch 1", "measured", 2.0, 6.1e9, 5e9, 7e9, 305.0, "measured: 90 passes", 10e9),
            RoofPoint("prefill", "measured", 700.0, 30e9, 25e9, 40e9, 900.0, "measured: 3 passes", 46e9),
            computed("batch 1, the limit", "batch", 2.0, limit),
            computed("batch 8", "batch", 6.0, 1500.0),
            computed("verify 3 draft tokens", "drafts", 8.0, 2000.0),
            *(computed(f"KV {kind}", "switch", 2.2, 1.2 * limit) for kind in ("int8", "fp8", "int4", "KIVI 2-bit")),
        ],
        sentences=["One answer stands at 61 % of what this memory allows."],
    )


Steps = Generator[Any, None, Any]
"""Events, and numbers of seconds to wait; at last an answer. Raises RuntimeError with what is said of a failure."""


def experiments(path: Path, request: ListExperiments) -> Steps:
    state = json.loads(path.read_text())
    for name in state["kept"]:
        yield result(name)
    if state["index_fails"]:
        raise RuntimeError(state["index_fails"])
    return LabIndex(model="kvasir-guide", device="cpu", pages=PAGES)


def write(path: Path, state: dict) -> None:
    """At once: others read it meanwhile."""
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(state))
    new.replace(path)


def run(path: Path, request: RunExperiment) -> Steps:
    state = json.loads(path.read_text())
    write(path, {**state, "asked": [*state["asked"], msgspec.to_builtins(request)]})
    name = request.name
    for done in range(2):
        said = "" if done else "warming up"
        yield LabProgress(name=name, done=done, total=4, run=done, side=done, sentence=said)
        yield LabPicture(name=name, side=done, picture=tree(done))
        if state["dies"]:
            raise RuntimeError(GONE)
        yield 60.0 if state["steps"] < 0 else state["steps"]
    if name == "roofline":
        return LabOutcome(found=roofline())
    if state["fails"]:
        raise RuntimeError(state["fails"])
    yield LabProgress(name=name, done=4, total=4)
    usual = {each.key: each.usual for each in SETTINGS}
    chosen = {key: value for key, value in request.chosen.items() if value != usual[key]}
    found = result(name, Path(request.model).name or "kvasir-guide", state["same"])
    full = "The result could not be kept: No space left on device."
    found = msgspec.structs.replace(found, chosen=chosen, settings={**found.settings, **chosen})
    return LabOutcome(found=found, warning=full if state["full"] else "")
