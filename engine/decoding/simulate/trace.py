"""Traces for the simulator: when requests arrive, how long they are, and their service class."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec

Arrivals = Literal["poisson", "bursty"]
Lengths = Literal["sharegpt", "heavy", "fixed"]
ARRIVALS: tuple[Arrivals, ...] = get_args(Arrivals)
LENGTHS: tuple[Lengths, ...] = get_args(Lengths)
BURSTINESS = 4.0
"""Coefficient of variation of the times between arrivals of a bursty trace; those of a Poisson process have 1."""
SHAREGPT = (161.3, 338.0)
"""Mean tokens of prompts and of answers of ShareGPT, by figure 11 of Kwon et al. 2023 (arXiv 2309.06180)."""
SPREAD = 1.0
"""Standard deviation of the logarithm of these lengths."""
PARETO = 1.1
"""Shape of heavy-tailed answers; below 2 their variance has no bound."""
LONGEST = 2048
MOST_TOKENS = 1 << 20


class TraceRequest(NamedTuple):
    """A request of a trace: seconds from its beginning, tokens of its prompt and of its answer."""

    at: float
    prompt: int
    answer: int
    service: str = "standard"


class _Line(msgspec.Struct):
    at: Annotated[float, msgspec.Meta(ge=0)]
    prompt: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
    answer: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
    service: str = "standard"


def read(text: bytes) -> list[TraceRequest]:
    """A recorded trace: a JSON object a line, or the log of a server with lines of its access log.

    Raises ValueError, of which msgspec.MsgspecError is one.
    """
    if text.lstrip().startswith(b"{"):
        found = msgspec.json.Decoder(_Line).decode_lines(text)
    else:
        found = [line for each in text.decode(errors="replace").splitlines() if (line := _logged(each)) is not None]
        began = min((line.at for line in found), default=0.0)
        found = [msgspec.structs.replace(line, at=line.at - began) for line in found]
    return sorted((TraceRequest(*msgspec.structs.astuple(line)) for line in found), key=lambda arrival: arrival.at)


def _logged(line: str) -> _Line | None:
    """An answer in the access log (logfmt); None for other lines of the log."""
    said = dict(word.split("=", 1) for word in line.split() if "=" in word)
    told = {name: said.get(key, "0") for name, key in (("prompt", "prompt_tokens"), ("answer", "generated_tokens"))}
    if "0" in told.values() or "time" not in said:
        return None
    told["service"] = said.get("service", "standard")
    return msgspec.convert({"at": datetime.fromisoformat(said["time"]).timestamp(), **told}, _Line, strict=False)


class TraceSpec(NamedTuple):
    """A synthetic trace of ``requests`` which come at ``rate`` a second. ``shares`` are the classes'."""

    requests: int
    rate: float
    arrivals: Arrivals = "poisson"
    lengths: Lengths = "sharegpt"
    seed: int = 0
    shares: tuple[tuple[str, float], ...] = (("standard", 1.0),)


def synthetic(spec: TraceSpec) -> Iterator[TraceRequest]:
    """The same requests each time for the same ``spec``."""
    rng = random.Random(spec.seed)
    names, weights = zip(*spec.shares, strict=True)
    now = 0.0
    for _ in range(spec.requests):
        now += _gap(spec, rng)
        prompt, answer = _lengths(spec.lengths, rng)
        yield TraceRequest(now, prompt, answer, rng.choices(names, weights)[0])


def _gap(spec: TraceSpec, rng: random.Random) -> float:
    if spec.arrivals == "poisson":
        return rng.expovariate(spec.rate)
    shape = 1 / BURSTINESS**2
    return rng.gammavariate(shape, 1 / (shape * spec.rate))


def _lengths(kind: Lengths, rng: random.Random) -> tuple[int, int]:
    match kind:
        case "sharegpt":
            prompt, answer = (rng.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD) for mean in SHAREGPT)
        case "heavy":
            prompt, answer = rng.lognormvariate(math.log(32), SPREAD), 8 * rng.paretovariate(PARETO)
        case "fixed":
            prompt, answer = SHAREGPT
    return min(LONGEST, max(1, round(prompt))), min(LONGEST, max(1, round(answer)))
