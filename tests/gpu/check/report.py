"""One page of what the parts found: each figure beside its prediction, and a table for docs/measurements.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PREDICTIONS = Path(__file__).with_name("predictions.json")
"""What was predicted before anything ran on a GPU, each with the place where the figure stands that can refute it. The
"review" is the one of the GPU path, the "plan" the one of the kernels: estimates from bytes, from machine code and from
what others measured of theirs. Ranges go by a part of the card's name, "" for those that are not named."""
Range = tuple[float | None, float | None]
Parts = Mapping[str, dict[str, Any]]
"""Contents of the files by the names of parts."""
FAILURES, LINES, KERNELS = 12, 3, 8
"""Failed tests that are named, lines of each, and kernels that take the most time."""


class Prediction(NamedTuple):
    """``path`` leads through a part's figures; ``scale`` turns what stands there into the ``unit``. ``ranges`` are
    least and most, None where there is no bound; ``note`` says what else a reader has to know."""

    name: str
    part: str
    path: tuple[str, ...]
    ranges: dict[str, Range]
    unit: str
    source: str
    scale: float = 1.0
    note: str = ""

    def range_for(self, card: str) -> Range | None:
        """The range that was predicted for a card; None where there is none."""
        named = next((bounds for name, bounds in self.ranges.items() if name and name in card), None)
        return named or self.ranges.get("")


class Line(NamedTuple):
    """One prediction and what became of it."""

    prediction: Prediction
    found: float | None
    predicted: Range | None
    verdict: str


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The files of a folder; one that cannot be read counts as a part with an error."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        try:
            content = json.loads(file.read_text())
            found[str(content["part"])] = content
        except (ValueError, KeyError, TypeError) as error:
            found[file.stem] = {"errors": {"the file": f"{file.name} cannot be read: {error}"}}
    return found


def at(content: Mapping[str, Any] | None, path: Iterable[str]) -> float | None:
    """The figure at the end of a path; None where it ends before, or is not a number."""
    value: Any = (content or {}).get("figures")
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def predictions() -> list[Prediction]:
    """All, in their order."""
    found = []
    for each in json.loads(PREDICTIONS.read_text(encoding="utf-8")):
        ranges = {card: (low, high) for card, (low, high) in each.pop("ranges").items()}
        found.append(Prediction(path=tuple(each.pop("path")), ranges=ranges, **each))
    return found


def judged(prediction: Prediction, content: dict[str, Any] | None) -> Line:
    """A prediction beside what its part found."""
    found = at(content, prediction.path)
    if found is None:
        return Line(prediction, None, None, "not measured")
    found *= prediction.scale
    predicted = prediction.range_for(card_of(content))
    if (content or {}).get("dry"):
        return Line(prediction, found, predicted, "dry run")
    if predicted is None:
        return Line(prediction, found, None, "no prediction")
    low, high = predicted
    if low is not None and found < low:
        return Line(prediction, found, predicted, "FELL, below")
    return Line(prediction, found, predicted, "FELL, above" if high is not None and found > high else "held")


def card_of(content: Mapping[str, Any] | None) -> str:
    """The name of the card that a part ran on."""
    return str(((content or {}).get("machine") or {}).get("card", ""))


def page(parts: Parts) -> str:
    """The whole report."""
    lines = [judged(prediction, parts.get(prediction.part)) for prediction in predictions()]
    blocks = (_head(parts), _troubles(parts), _table(lines), _fallen(lines), _details(parts), _markdown(parts, lines))
    return "\n\n".join("\n".join(block) for block in map(list, blocks) if block) + "\n"


def _head(parts: Parts) -> Iterator[str]:
    """The cards and versions, each once: parts may come from several machines."""
    seen = dict.fromkeys(
        ", ".join(
            [str(content.get("date", ""))] + [f"{key} {value}" for key, value in content["machine"].items() if value]
        )
        for content in parts.values()
        if content.get("machine")
    )
    yield from seen or ["no part has run"]
    if any(content.get("dry") for content in parts.values()):
        yield "A DRY RUN on a CPU: its figures try the parts and mean nothing."
    yield "parts: " + ", ".join(
        f"{name} {content.get('seconds', 0):.0f} s" + ("" if content.get("complete") else " (incomplete)")
        for name, content in parts.items()
    )


def _table(lines: list[Line]) -> Iterator[str]:
    width = max(len(line.prediction.name) for line in lines)
    for line in lines:
        one = line.prediction
        range = _range(line.predicted, one.unit)
        yield f"{line.verdict:13} {one.name:{width}} {_figure(line):>14}  {range:22} {one.source}"


def _fallen(lines: list[Line]) -> Iterator[str]:
    counts = Counter(line.verdict.split(",")[0] for line in lines)
    yield ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    for line in lines:
        if line.verdict.startswith("FELL"):
            note = f" ({line.prediction.note})" if line.prediction.note else ""
            predicted = _range(line.predicted, line.prediction.unit)
            yield f"{line.verdict}: {line.prediction.name}: {_figure(line)}, predicted {predicted}{note}"


def _troubles(parts: Parts) -> Iterator[str]:
    """What failed: tests with their first lines, and measurements."""
    for name, content in parts.items():
        for what, error in (content.get("errors") or {}).items():
            yield f"FAILED: {name}, {what}: {str(error).splitlines()[-1] if error else ''}"
        failures = ((content.get("figures") or {}).get("tests") or {}).get("failures") or []
        for failure in failures[:FAILURES]:
            yield f"  {failure['test']}"
            yield from (f"    {line}" for line in failure["lines"][:LINES])
        if len(failures) > FAILURES:
            yield f"  and {len(failures) - FAILURES} more in {name}.json"


def _details(parts: Parts) -> Iterator[str]:
    """What no prediction names: which tile was quickest, why steps ran eagerly, which kernels take the time."""
    for matrix, kinds in ((parts.get("products") or {}).get("figures") or {}).items():
        times = {
            kind: at({"figures": kinds}, (kind, "1", "microseconds")) for kind in kinds if kind.startswith("int4 g128")
        } if isinstance(kinds, dict) else {}  # fmt: skip
        known = {kind: time for kind, time in times.items() if time is not None}
        if "int4 g128" in known:
            best = min(known, key=lambda kind: known[kind])
            told = "is the quickest tile" if best == "int4 g128" else f"{_number(known[best])} µs with {best[11:]}"
            yield f"{matrix}, one row: {_number(known['int4 g128'])} µs as served; {told}"
    figures = (parts.get("engine") or {}).get("figures") or {}
    for reason, count in ((figures.get("chat") or {}).get("eager steps") or {}).items():
        yield f"chat: {count} decoding steps ran eagerly ({reason})"
    for row in ((figures.get("profile") or {}).get("both") or {}).get("top", [])[:KERNELS]:
        yield f"{row['us a step']:8.1f} µs a step in {row['a step']:6.1f} x {row['kernel']}"


def _markdown(parts: Parts, lines: Iterable[Line]) -> Iterator[str]:
    """Tables for docs/measurements.md: decoding, drafts, and the figures that were predicted."""
    figures = (parts.get("engine") or {}).get("figures") or {}
    decoded = [(name[7:], rows) for name, rows in figures.items() if name.startswith("decode ")]
    if decoded:
        yield "| answers | drawn | eager, tok/s | graphs | asynchronous | both | both, of the read ceiling |"
        yield "|---:|---|---:|---:|---:|---:|---:|"
        for batch, rows in decoded:
            for drawn in (name for name in ("greedy", "default") if name in rows):
                modes = rows[drawn]
                speeds = " | ".join(_number(row["tok/s"]) for row in modes.values())
                yield f"| {batch} | {drawn} | {speeds} | {modes['both']['of read']:.0%} |"
        yield ""
    pair = ((parts.get("speculation") or {}).get("figures") or {}).get("pair") or {}
    if pair:
        yield from ["| a synthetic pair agrees | answers | way | tok/s | to plain |", "|---:|---:|---|---:|---:|"]
        for rate, batches in pair.items():
            for batch, ways in batches.items():
                for way, row in ways.items():
                    speed, gain = _number(row["tokens_per_second"]), _number(row["speedup"])
                    yield f"| {rate} | {batch[6:]} | {way} | {speed} | {gain} |"
        yield ""
    yield from ["| figure | measured | predicted | |", "|---|---:|---|---|"]
    for line in lines:
        if line.found is not None:
            one = line.prediction
            yield f"| {one.name} | {_figure(line)} | {_range(line.predicted, one.unit)} | {line.verdict} |"


def _figure(line: Line) -> str:
    return "" if line.found is None else f"{_number(line.found)} {line.prediction.unit}"


def _range(predicted: Range | None, unit: str) -> str:
    low, high = predicted or (None, None)
    if low is None and high is None:
        return ""
    if low is None or high is None:
        word, bound = ("at most", high) if low is None else ("at least", low)
        assert bound is not None
        return f"{word} {_number(bound)} {unit}"
    return f"{_number(low)} to {_number(high)} {unit}"


def _number(value: float) -> str:
    """In three digits, or whole."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
