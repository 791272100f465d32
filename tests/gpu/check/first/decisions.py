"""What follows from the figures of the first minutes: what to turn on, what to revert, and by which number.

Each rule is one of GPU.md's table and says nothing but "not measured" without its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.gpu import model

Parts = Mapping[str, Mapping[str, Any]]
"""Contents of the files, by the names of parts."""
GAIN = 0.03
"""Share of its time that another choice has to save: less lies within what two runs differ."""
AHEAD_GAIN = 0.02
"""The same for what is fetched ahead, whose two runs differ in nothing else."""
REACHED = 0.9
GO_ON, AHEAD_FIRST, COSTLY = 1.0, 1.5, 0.3
"""Microseconds: with a hand-over of up to the first early launch goes on, up to the second weights are fetched ahead
first; a change of the carve-out that costs more than the third is avoided."""
DELTA_KERNELS = 8
"""Of a layer of a mixture with delta nets, by a trace without a GPU (test_kernel_counts.py)."""
NEAR = 0.15
"""How far the model of a step may be from what is measured."""
GOALS = {"decode 1": 640.0, "decode 8": 4700.0, "decode 32": 13000.0}
"""Tokens a second by answers at once, on an H200."""
DRY = "A DRY RUN on a CPU: its figures try the parts and mean nothing."


class Decision(NamedTuple):
    """``do`` is empty where nothing was measured, and ``by`` then says why."""

    about: str
    do: str
    by: str


Rule = Callable[[Parts], Iterator[Decision]]


def at(parts: Parts, name: str, *path: str) -> Any:
    """The figure at the end of a path; None where it ends before."""
    value: Any = (parts.get(name) or {}).get("figures")
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def card_of(parts: Parts, name: str) -> str:
    """The name of the card that a part ran on."""
    return str(((parts.get(name) or {}).get("machine") or {}).get("card", ""))


def number(parts: Parts, name: str, *path: str) -> float | None:
    """The same, where it is a number."""
    value = at(parts, name, *path)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def absent(parts: Parts, name: str, what: str = "") -> str:
    """Why a figure is not there."""
    content = parts.get(name)
    if content is None:
        return f"not measured: part {name} has not run"
    errors = content.get("errors") or {}
    error = errors.get(what) or next(iter(errors.values()), "")
    reason = str(error).strip().splitlines()[-1][:120] if str(error).strip() else "it has no such figure"
    return f"not measured: {name}, {reason}"


def packaged(parts: Parts) -> Iterator[Decision]:
    about = "compiled kernels"
    misses, hits = number(parts, "start", "load", "misses"), number(parts, "start", "load", "hits")
    seconds = number(parts, "start", "load", "seconds")
    if misses is None or hits is None or seconds is None or not hits + misses:
        yield Decision(about, "", absent(parts, "start", "load"))
        return
    by = f"{hits:.0f} of {hits + misses:.0f} were in the cache, a first load took {seconds:.1f} s"
    missed = ", ".join(list(at(parts, "start", "load", "missed") or ())[:6])
    do = "keep: nothing was compiled" if not misses else f"find out which part of the key differs ({missed})"
    yield Decision(about, do, by)


def under_way(parts: Parts) -> Iterator[Decision]:
    about = "bytes under way (UNDER_WAY)"
    rates = at(parts, "memory", "under way") or {}
    read = number(parts, "memory", "under way", "read")
    known = {int(key): rate for key, rate in rates.items() if key.isdigit()}
    if not known or not read:
        yield Decision(about, "", absent(parts, "memory", "under way"))
        return
    enough = [size for size, rate in sorted(known.items()) if rate >= REACHED * read]
    most = max(known, key=lambda size: known[size])
    if not enough:
        yield Decision(about, f"at least {most} KB", f"{known[most] / read:.0%} of the read ceiling with {most} KB")
    else:
        by = f"{known[enough[0]] / read:.0%} of the read ceiling ({read / 1e12:.2f} TB/s)"
        yield Decision(about, f"{enough[0]} KB a multiprocessor", by)


def latency(parts: Parts) -> Iterator[Decision]:
    far, near = (number(parts, "memory", "latency", each) for each in ("memory", "level 2"))
    if far is None or near is None:
        yield Decision("latency (tests/gpu/model.py)", "", absent(parts, "memory", "latency"))
        return
    yield Decision("latency (tests/gpu/model.py)", f"memory {far:.0f} ns", f"level 2 {near:.0f} ns, of an idle card")


def hand_over(parts: Parts) -> Iterator[Decision]:
    about = "early launch"
    early, plain = (number(parts, "boundary", "boundary", each) for each in ("dependent launch", "triton"))
    wrong, control = (number(parts, "early", "producer", each) for each in ("wrong", "control"))
    if early is None or plain is None:
        yield Decision(about, "", absent(parts, "boundary", "boundary"))
        return
    by = f"{early:.2f} µs a node, {plain:.2f} without"
    if wrong is None:
        yield Decision(about, "leave it off until part early has run", by)
    elif wrong:
        yield Decision(about, "off: replays read what was not written", f"{wrong:.0f} replays were wrong; {by}")
    elif early <= GO_ON:
        yield Decision(about, "go on with it", by)
    elif early <= AHEAD_FIRST:
        yield Decision(about, "fetch the next weights into level 2 first", by)
    else:
        yield Decision(about, "stop: keep five kernels, fetch ahead by a side branch", by)
    if wrong is not None and not control:
        yield Decision(
            "test of early launch", "mend it: its control found nothing", f"{control or 0:.0f} of the control"
        )


def carve_out(parts: Parts) -> Iterator[Decision]:
    cost = number(parts, "boundary", "carve-out", "cost")
    if cost is None:
        yield Decision("carve-out", "", absent(parts, "boundary", "carve-out"))
        return
    do = "one for all kernels of a step" if cost > COSTLY else "each kernel its own"
    yield Decision("carve-out", do, f"{cost:.2f} µs a change")


def quickest(cuts: Mapping[str, Any]) -> tuple[str, float, float | None] | None:
    """The name and microseconds of the quickest cut, and what is served; None without figures."""
    times = {name: each["microseconds"] for name, each in cuts.items() if "microseconds" in each}
    served = times.pop("served", None)
    best = min(times, key=lambda name: times[name], default=None)
    return None if best is None else (best, times[best], served)


def tile(about: str, cuts: Mapping[str, Any]) -> Decision | None:
    """The tile of one matrix for some rows."""
    found = quickest(cuts)
    if found is None:
        return None
    name, best, served = found
    if served is None or best < (1 - GAIN) * served:
        return Decision(about, f"take {name}", f"{best:.1f} µs, as served {served or 0:.1f}")
    return Decision(about, "keep what is served", f"{served:.1f} µs, the best other {best:.1f} ({name})")


def one_row(parts: Parts) -> Iterator[Decision]:
    for name in ("down", "gate_up", "o", "qkv"):
        cuts = at(parts, "one-row", name) or {}
        found = tile(f"{name}, one row", cuts)
        yield found or Decision(f"{name}, one row", "", absent(parts, "one-row", name))
        if name == "down":
            two, four = (number(parts, "one-row", name, each, "microseconds") for each in (SLICES[2], SLICES[4]))
            if two is not None and four is not None:
                do = "keep 4: 2 are slower" if two > four else "revert to 2 at once"
                yield Decision("slices of down", do, f"{two:.1f} µs with 2, {four:.1f} with 4")


def resident(parts: Parts) -> Iterator[Decision]:
    """Of a layer's four products by themselves, and of a whole layer."""
    about = "resident products"
    times: dict[str, list[float]] = {"served": [], "resident": []}
    for name in ("down", "gate_up", "o", "qkv"):
        cuts = at(parts, "one-row", name) or {}
        known = {cut: each["microseconds"] for cut, each in cuts.items() if "microseconds" in each}
        own = [time for cut, time in known.items() if cut.startswith(RESIDENT)]
        if not own or "served" not in known:
            yield Decision(about, "", absent(parts, "one-row", name))
            break
        times["served"].append(known["served"])
        times["resident"].append(min(own))
    else:
        served, own = (sum(times[each]) for each in ("served", "resident"))
        do = "on: they pay" if own < (1 - GAIN) * served else "leave them off"
        yield Decision(about, do, f"{own:.1f} µs for a layer's four, as served {served:.1f}")
        ceiling = number(parts, "memory", "bandwidth", "read") or number(parts, "memory", "under way", "read")
        if ceiling:
            share = model.ROW * 28672 * 4096 / (1e-6 * times["resident"][1]) / ceiling
            do = "Gluon will do" if share >= RING_SHARE else "below it: other tiles, else CUDA C++"
            yield Decision("gates and ups in strips", do, f"{share:.0%} of the read ceiling")
    whole, usual = (number(parts, "chain", each, "us") for each in ("resident", "as served"))
    if whole is not None and usual is not None:
        do = "on: they pay" if whole < (1 - GAIN) * usual else "leave them off"
        yield Decision("a layer with resident products", do, f"{whole:.1f} µs, as served {usual:.1f}")


RESIDENT = ("StripCut", "RingCut")
"""How the names of their cuts begin."""
RING_SHARE = 0.8
SLICES = {2: "Tile(8, 16, 2, 2)", 4: "Tile(8, 16, 4, 2)"}


def some_rows(parts: Parts) -> Iterator[Decision]:
    for count in (8, 16, 32, 64):
        matrices = at(parts, "rows", f"{count} rows")
        if not matrices:
            yield Decision(f"{count} rows", "", absent(parts, "rows", f"{count} rows"))
            continue
        for name, cuts in matrices.items():
            found = tile(f"{name}, {count} rows", cuts)
            if found is not None:
                yield found


def attention(parts: Parts) -> Iterator[Decision]:
    dense = at(parts, "attention", "dense") or {}
    if not dense:
        yield Decision("fewest keys of a split (LEAST_KEYS)", "", absent(parts, "attention", "dense"))
    for context, by_keys in sorted(dense.items(), key=lambda each: int(each[0])):
        times = {keys: each["microseconds"] for keys, each in by_keys.items()}
        best = min(times, key=lambda keys: times[keys])
        by = ", ".join(f"{keys}: {time:.1f} µs" for keys, time in times.items())
        yield Decision(f"fewest keys of a split, {context} keys", best, by)
    for kind in ("int8", "int4"):
        for context in ("32768", "8192"):
            times = [number(parts, "attention", name, context, "256", "microseconds") for name in (kind, "dense")]
            if times[0] is None or times[1] is None:
                continue
            packed, whole = times
            do = "its kernel pays" if packed < whole else "its kernel does not pay: 16 bits are faster"
            yield Decision(f"keys of {kind}, {context}", do, f"{packed:.1f} µs, 16 bits {whole:.1f}")


FORMS = {"one kernel for all kinds": "kernels.attend", "three kernels": "three kernels"}
"""What else a step of one row may be done by, as `tests.gpu.bench_attention` calls it, and for the table."""


def steps(parts: Parts) -> Iterator[Decision]:
    """Below how many keys a step of one row is done by something else than the one kernel that is served."""
    for kind in ("int4", "int8", "dense"):
        about, contexts = f"a step over {kind}", at(parts, "attention", f"{kind}, a step") or {}
        if not contexts:
            yield Decision(about, "", absent(parts, "attention", f"{kind}, a step"))
        for form, name in FORMS.items():
            both = {
                int(keys): (each["one kernel"]["microseconds"], each[form]["microseconds"])
                for keys, each in contexts.items()
                if "one kernel" in each and form in each
            }
            if not both:
                continue
            said = ", ".join(f"{keys}: {served:.1f} / {other:.1f} µs" for keys, (served, other) in both.items())
            yield Decision(f"{about}, or by {name}", _below(name, both), said)


def _below(name: str, both: Mapping[int, tuple[float, float]]) -> str:
    """Where the form ``name`` is taken, by its microseconds after those of what is served, by numbers of keys."""
    faster = {keys: other < (1 - GAIN) * served for keys, (served, other) in sorted(both.items())}
    first = next((keys for keys, pays in faster.items() if not pays), None)
    if first is None:
        return f"take {name} up to {max(faster)} keys"
    if not any(faster.values()):
        return "keep what is served"
    below = all(not pays for keys, pays in faster.items() if keys >= first)
    where = f"below {first} keys" if below else f"at {', '.join(str(keys) for keys in faster if faster[keys])} keys"
    return f"take {name} {where}"


def chain(parts: Parts) -> Iterator[Decision]:
    served, apart = (number(parts, "chain", each, "us") for each in ("as served", "unfused"))
    if served is None:
        yield Decision("a layer", "", absent(parts, "chain", "as served"))
        return
    card = next((card for name, card in model.CARDS.items() if name in card_of(parts, "chain")), None)
    by = f"{served:.1f} µs" + (f", unfused {apart:.1f}" if apart is not None else "")
    if card is None:
        yield Decision("a layer", "describe this card in tests/gpu/model.py", by)
    else:
        expected = 1e6 * model.layer_seconds(card)
        near = abs(served - expected) <= NEAR * served
        do = "as the model of a step has it" if near else "mend the model of a step, or what it is served by"
        yield Decision("a layer", do, f"{by}, the model {expected:.1f}")
    if apart is not None and apart < served:
        yield Decision("fused kernels", "off: they are slower", f"{served:.1f} µs, without {apart:.1f}")
    differ = number(parts, "chain", "replays", "differ")
    if differ is not None:
        yield Decision(
            "replays", "equal bit for bit" if not differ else "find out why they differ", f"{differ:.0f} differ"
        )


def early_layers(parts: Parts) -> Iterator[Decision]:
    """Whether to turn early launch on, and how much to fetch ahead: by the microseconds of a layer."""
    about = "a layer that starts early"
    served, early = (number(parts, "chain", each, "us") for each in ("as served", "early"))
    if served is None or early is None:
        yield Decision(about, "", absent(parts, "chain", "early"))
        return
    differ, wrong = number(parts, "chain", "early replays", "differ"), number(parts, "early", "producer", "wrong")
    by = f"{early:.1f} µs, as served {served:.1f}"
    if differ or wrong:
        yield Decision(about, "off: its replays differ", f"{differ or 0:.0f} and {wrong or 0:.0f} differ; {by}")
    elif early > (1 - GAIN) * served:
        yield Decision(about, "leave it off: it gains nothing", by)
    elif differ is None or wrong is None:
        yield Decision(about, "leave it off until its replays are compared", by)
    else:
        yield Decision(about, "turn it on for this card", by)
    ahead = {name: number(parts, "chain", name, "us") for name in parts["chain"]["figures"] if name.endswith("ahead")}
    times = {name: each for name, each in ahead.items() if each is not None}
    if times:
        best = min(times, key=lambda name: times[name])
        pays = times[best] < (1 - AHEAD_GAIN) * early
        said = ", ".join(f"{name}: {each:.1f} µs" for name, each in times.items())
        yield Decision("megabytes fetched ahead", best if pays else "leave it out", said)


def served(parts: Parts) -> Iterator[Decision]:
    for name, goal in GOALS.items():
        speed = number(parts, "engine", name, "greedy", "both", "tok/s")
        if speed is None:
            yield Decision(name, "", absent(parts, "engine", name))
            continue
        early = number(parts, "engine", name, "greedy", "early", "tok/s")
        by = f"{speed:,.0f} tok/s of {goal:,.0f}" + (f", early {early:,.0f}" if early is not None else "")
        yield Decision(name, "reached" if max(speed, early or 0) >= goal else "below the goal", by)
    top = at(parts, "engine", "profile", "both", "top") or []
    if top:
        first = top[0]
        yield Decision("next to look at", str(first["kernel"])[:48], f"{first['us a step']:.0f} µs a step")
    gain = number(parts, "engine", "8-bit head", "gain")
    if gain is not None:
        yield Decision("8-bit head", "offer it" if gain >= 1 + GAIN else "not worth its bits", f"{gain:.2f} times")


def prompts(parts: Parts) -> Iterator[Decision]:
    about = "rows of torch's product (MANY_PLANE_ROWS)"
    found = at(parts, "prompts") or {}
    pairs = sorted((int(rows), each) for rows, each in found.items())
    if not pairs:
        yield Decision(about, "", absent(parts, "prompts"))
        return
    lost = [rows for rows, each in pairs if each["packed"] <= each["dequantised"]]
    by = ", ".join(f"{rows}: {each['packed']:.0f} / {each['dequantised']:.0f} µs" for rows, each in pairs)
    yield Decision(about, f"above {max(lost)}" if lost else f"from fewer than {pairs[0][0]}", by)


def equal(parts: Parts) -> Iterator[Decision]:
    for about, path in (("answers", ("answers", "differ")), ("answers of the shape", ("shape", "differ")),
                        ("a long chat compiles", ("chat", "compiled"))):  # fmt: skip
        found = number(parts, "equal", *path)
        if found is None:
            yield Decision(about, "", absent(parts, "equal", path[0]))
        else:
            yield Decision(about, "as it has to be" if not found else "mend it first", f"{found:.0f}")


def mixture(parts: Parts) -> Iterator[Decision]:
    for rows, about in (("", "a mixture's layer"), ("eight rows", "a mixture's layer, 8 rows")):
        served = rows or "as served"
        each, kernels = (number(parts, "mixture", served, of) for of in ("us", "kernels"))
        apart = number(parts, "mixture", f"{rows}, sorted" if rows else "sorted", "us")
        if each is None or apart is None:
            yield Decision(about, "", absent(parts, "mixture", served))
        else:
            yield Decision(about, "three kernels for its experts" if each <= apart else "sort its rows: that is faster",
                           f"{each:.1f} µs in {kernels or 0:.0f} kernels, sorted {apart:.1f}")  # fmt: skip
    taken, kernels = (number(parts, "mixture", "with delta nets", of) for of in ("kernel us", "kernels"))
    if taken and kernels:
        yield Decision("a layer with a delta net", "as it has to be" if kernels <= DELTA_KERNELS else "find the others",
                       f"{taken:.1f} µs in {kernels:.1f} kernels")  # fmt: skip


RULES: tuple[Rule, ...] = (packaged, under_way, latency, hand_over, carve_out, one_row, resident, some_rows, attention,
                           steps, chain, early_layers, served, prompts, equal, mixture)  # fmt: skip


def decided(parts: Parts) -> list[Decision]:
    """All decisions, in the order of the parts. A rule that fails on a figure says so."""
    found: list[Decision] = []
    for rule in RULES:
        try:
            found += list(rule(parts))
        except (KeyError, TypeError, ValueError) as error:
            found.append(Decision(rule.__name__.replace("_", " "), "", f"its figures cannot be read: {error!r}"))
    return found


def table(parts: Parts, code: str = "") -> str:
    """One line a decision, with the card, and what failed."""
    lines = [*dict.fromkeys(", ".join(map(str, (content.get("machine") or {}).values())) for content in parts.values())]
    if any(content.get("dry") for content in parts.values()):
        lines.append(DRY)
    if code and any(content.get("code") not in (None, code) for content in parts.values()):
        lines.append("Some figures are of another state of the code.")
    rows = decided(parts)
    widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
    lines += [f"{row.about:{widths[0]}}  {row.do or '-':{widths[1]}}  {row.by}" for row in rows]
    for name, content in parts.items():
        for what, error in (content.get("errors") or {}).items():
            said = str(error).strip().splitlines()
            lines.append(f"FAILED: {name}, {what}: {said[-1] if said else ''}")
    return "\n".join(lines) + "\n"
