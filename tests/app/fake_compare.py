"""A comparison without an engine. Its figures are invented, and follow from the columns.

STATE.json: ``way`` is how it goes ("well" or "fails"), ``waits`` seconds before the result. The request is noted in
``request``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from engine.protocol.lab import CompareColumns, LabCompared, LabComparison, LabProgress
from tests.app.fake_lab import Steps

SECOND = "The pool hands out pages, and a page holds sixteen tokens of one chat."
METRICS = (
    ({"figure": "tokens_per_second", "title": "tokens/s"}, [151.2, 148.0, 155.1], [212.0, 208.4, 219.3]),
    ({"title": "TTFT", "unit": "ms", "lower_is_better": True}, [14.5, 13.9, 15.2], [14.6, 14.0, 15.0]),
    ({"title": "memory", "unit": "bytes", "lower_is_better": True, "counted": True}, [9e6] * 3, [7.5e6] * 3),
    ({"title": "accepted", "unit": "%", "counted": True}, [0.0] * 3, [52.9] * 3),
)  # fmt: skip


def compare(path: Path, request: CompareColumns) -> Steps:
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "request": msgspec.to_builtins(request)}))
    if told["way"] == "fails":
        raise RuntimeError("There is no model 'gone'. Give the full path of a model folder.")
    yield LabProgress(name="prose", done=0, total=6, side=1, sentence="warming up")
    yield LabProgress(name="prose", done=2, total=6, run=3, side=0)
    yield told["waits"]
    result = compared(msgspec.to_builtins(request)["columns"], told.get("lossless", False))
    for each in result["kinds"]:
        each["prompts"] *= told.get("prompts", 1)
        each["texts"] *= told.get("prompts", 1)
        for figure in each["figures"]:
            hide(figure, [column.get("remote") for column in result["columns"]])
    found = msgspec.convert(result, LabCompared)
    return LabComparison(found=found, report="<!doctype html><title>report</title>")


def compared(columns: list[dict[str, Any]], lossless: bool) -> dict[str, Any]:
    """Columns that are set alike find alike; any other writes another text, and is faster."""
    others = [column.get("set") == columns[0].get("set") for column in columns[1:]]
    return {
        "type": "LabCompared", "columns": columns, "models": ["kvasir-guide"] * len(columns), "device": "a processor",
        "machine": "x86_64, 1 threads", "version": "0.1.0", "date": "2026-01-02T03:04:05+00:00", "seed": 1,
        "kinds": [kind("prose", others), kind("code", others)],
        "quality": [None if same else quality() for same in others], "lossless": [lossless or same for same in others],
        "taken": "Each column answered every prompt in 8 tokens.", "absent": ["Energy: no counter was found."],
    }  # fmt: skip


def kind(name: str, others: list[bool]) -> dict[str, Any]:
    first = "The pool hands out pages, and a page holds 16 tokens of one chat."
    return {
        "kind": name, "prompts": [f"What is a page of {name}?\nIn a sentence."],
        "figures": [figure(metric, one, [one if same else other for same in others]) for metric, one, other in METRICS],
        "texts": [[text(first, first if same else SECOND) for same in others]],
    }  # fmt: skip


def figure(metric: dict[str, Any], one: list[float], others: list[list[float]]) -> dict[str, Any]:
    effects = []
    for other in others:
        pairs = sorted(b / a if metric.get("lower_is_better") else a / b for a, b in zip(other, one, strict=True) if b)
        verdict = "none" if not pairs or 0.97 < pairs[1] < 1.03 else "better"
        spread = (
            {"ratio": pairs[1], "low": pairs[0], "high": pairs[2]} if pairs else {"ratio": None, "low": 0, "high": 0}
        )
        verdict = "few" if not pairs and other != one else verdict
        before, after = sorted(one)[1], sorted(other)[1]
        effects.append({"metric": metric, "before": before, "after": after, "pairs": 8, "verdict": verdict, **spread})
    return {"effects": effects, "runs": [one, *others]}


def hide(figure: dict[str, Any], remotes: list[Any]) -> None:
    """Of another server's column only times are seen."""
    unseen = [
        remote is not None and figure["effects"][0]["metric"]["title"] in ("memory", "accepted") for remote in remotes
    ]
    if any(remotes):
        figure["remarks"] = ["Not seen from here." if each else "" for each in unseen]
        figure["runs"] = [[] if each else runs for each, runs in zip(unseen, figure["runs"], strict=True)]


def text(one: str, other: str) -> dict[str, Any]:
    if one == other:
        return {"same": True, "tokens": 8, "sentence": "Identical, 8 tokens.", "texts": [one, other]}
    sentence = "Differs from token 11 on: log-probabilities 0.412 apart."
    return {"same": False, "tokens": 16, "at": 10, "sentence": sentence, "texts": [one, other]}


def quality() -> dict[str, Any]:
    return {"first": 12.5, "perplexity": 12.6, "kl": 0.0123, "same_top": 0.97, "tokens": 400}
