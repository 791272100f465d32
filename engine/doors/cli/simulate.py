"""`kvasir simulate`: scheduling policies on virtual time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.terminal import console, say, send
from engine.doors.cli.arguments import path_or_name_of
from engine.doors.cli.errors import CommandFailed, importing, report_errors

if TYPE_CHECKING:
    from engine.decoding.scheduling.costs import StepCosts
    from engine.decoding.simulate.figures import TraceSummary
    from engine.decoding.simulate.simulator import Simulator
    from engine.decoding.simulate.trace import TraceRequest

STEP_HELP = "Milliseconds of a step, and of each of its rows, as 20,1; measured with --model if left out."
ROOF_HELP = "GB/s and TFLOP/s of another machine, as 4800,990, from which steps of --model are computed."
TRACE_HELP = (
    "A file with a JSON object a line (at, prompt, answer, service), or what `kvasir serve --access-log` wrote, in "
    "place of a synthetic trace."
)
CLASS_HELP = "CLASS=SHARE of the requests: interactive, standard or batch; repeatable."
MOST_TRACE = 256 << 20
"""Bytes of a trace."""
MANY = 256


def simulate(
    requests: Annotated[int, typer.Option(min=1, max=10_000_000, help="Requests of the trace.")] = 10_000,
    rate: Annotated[float, typer.Option(min=1e-6, help="Requests a second.")] = 1.0,
    arrivals: Annotated[str, typer.Option(help="How they arrive: poisson or bursty.")] = "poisson",
    lengths: Annotated[str, typer.Option(help="How long they are: sharegpt, heavy or fixed.")] = "sharegpt",
    classes: Annotated[list[str] | None, typer.Option("--class", help=CLASS_HELP)] = None,
    trace: Annotated[Path | None, typer.Option(help=TRACE_HELP)] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Policies, repeatable; all if left out.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=256, help="The most requests of a step.")] = 16,
    tokens: Annotated[int, typer.Option(min=16, help="The most tokens of a step.")] = 512,
    pages: Annotated[int, typer.Option(min=2, help="Pages of the cache, of 16 tokens each.")] = 8192,
    step: Annotated[str, typer.Option(help=STEP_HELP, show_default=False)] = "",
    roofline: Annotated[str, typer.Option(help=ROOF_HELP, show_default=False)] = "",
    model: Annotated[str, typer.Option(help="The model whose steps are measured; the bundled one if left out.")] = "",
    seed: Annotated[int, typer.Option(help="The same seed makes the same trace.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for other programs.")] = False,
) -> None:
    """Serve a trace by each scheduling policy in virtual time, with the costs of this machine's steps.

    "shortest" is told the true lengths here, so that it is a bound of what a policy can reach that is not.
    """
    with report_errors():
        with importing():
            from engine.catalogue import records
            from engine.decoding.scheduling.plan import Limits
            from engine.decoding.scheduling.policy import SchedulingTechnique
            from engine.decoding.simulate import trace as traces
            from engine.decoding.simulate.figures import summary
            from engine.decoding.simulate.simulator import Simulator
        techniques = {each.name: each for each in records(SchedulingTechnique)}
        chosen = policy or [*techniques]
        _known("--policy", chosen, techniques)
        _known("--arrivals", [arrivals], traces.ARRIVALS)
        _known("--lengths", [lengths], traces.LENGTHS)
        spec = traces.TraceSpec(requests, rate, arrivals, lengths, seed, _shares(classes))  # type: ignore[arg-type]
        if step and roofline:
            raise CommandFailed("Costs of steps come from one place: give either --step or --roofline.")
        recorded = _read(trace) if trace is not None else None
        costs = _given(step) if step else _of_model(model, roofline, batch, tokens)
        limits = Limits(tokens, max_batch=batch)
        rows = []
        for name in chosen:
            began = time.perf_counter()
            simulator = Simulator(techniques[name].policy(), limits, costs, pages)
            ended = simulator.run(traces.synthetic(spec) if recorded is None else recorded)
            if (first := next(ended, None)) is None:
                raise CommandFailed(f"No request of the trace fits into {pages:,} pages. Give more, with --pages.")
            figures = summary(chain([first], ended))
            seconds = time.perf_counter() - began
            rows.append((name, figures, simulator))
            if json:
                _tell(name, figures, simulator)
            else:
                say(f"{techniques[name].choice.title}: {simulator.now:,.0f} s of steps in {seconds:.1f} s", error=True)
        if not json:
            _table(rows, costs)


def _known(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = [*known]
    for each in given:
        if each not in names:
            raise CommandFailed(f"{option} knows no {each}. Choose one of {', '.join(names)}.")


def _shares(classes: list[str] | None) -> tuple[tuple[str, float], ...]:
    from engine.decoding.scheduling.service import CLASSES

    shares = []
    for each in classes or ["standard=1"]:
        name, _, share = each.partition("=")
        _known("--class", [name], CLASSES)
        shares.append((name, _number(share or "1", each)))
    return tuple(shares)


def _given(step: str) -> StepCosts:
    from engine.decoding.scheduling.costs import StepCosts

    least, more = (each / 1e3 for each in _two(step))
    return StepCosts((1, least + more), (MANY, least + MANY * more))


def _two(given: str) -> tuple[float, float]:
    first, _, second = given.partition(",")
    return _number(first, given), _number(second, given)


def _number(text: str, given: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < 1e9:
        raise CommandFailed(f"{given} is not understood: a number above 0 is missing in it.")
    return number


def _of_model(model: str, roofline: str, batch: int, tokens: int) -> StepCosts:
    """The costs of steps of a model on this machine, or on one of that ``roofline``."""
    with importing():
        from engine.services.experiments.bench import BenchOptions, loaded
        from engine.services.experiments.measures.scheduling import roof_costs, step_costs
    roof = _two(roofline) if roofline else None
    path = Path(path_or_name_of(model)) if model else None
    with loaded(BenchOptions(model=path).load("")) as client:
        if roof is None:
            return step_costs(client)
        return roof_costs(client, 1e9 * roof[0], 1e12 * roof[1], batch, tokens)


def _read(file: Path) -> list[TraceRequest]:
    """Raises CommandFailed."""
    from engine.decoding.scheduling.service import CLASSES
    from engine.decoding.simulate.trace import read

    try:
        if file.stat().st_size > MOST_TRACE:
            raise CommandFailed(f"{file} is larger than {MOST_TRACE >> 20} MiB. Give a shorter trace.")
        found = read(file.read_bytes())
    except (OSError, ValueError) as error:
        raise CommandFailed(
            f"{file} cannot be read as a trace ({error}). Each line is a JSON object, or one of an access log."
        ) from None
    if not found:
        raise CommandFailed(f"{file} has no request.")
    _known("service", {arrival.service for arrival in found}, CLASSES)
    return found


def _tell(name: str, figures: TraceSummary, simulator: Simulator) -> None:
    import msgspec

    extra = {"policy": name, "failed": simulator.failed, "steps": simulator.steps, "seconds": simulator.now}
    send(msgspec.json.encode({**extra, **msgspec.structs.asdict(figures)}))


def _table(rows: Sequence[tuple[str, TraceSummary, Simulator]], costs: StepCosts) -> None:
    from rich.table import Table

    steps = ", ".join(f"{rows:.0f}: {1e3 * seconds:.1f}" for rows, seconds in costs.points)
    say(f"Milliseconds of a step by its rows: {steps}. Seconds to the end, and to the first token:")
    table = Table("policy", "mean", "median", "p99", "first", "its p99", "goodput", "fairness", "failed")
    services = sorted({name for _, figures, _ in rows for name in figures.services})
    for name in services if len(services) > 1 else ():
        table.add_column(f"{name}'s p99")
    for name, figures, simulator in rows:
        times = (figures.mean, figures.median, figures.p99, figures.first_mean, figures.first_p99)
        shares = (f"{figures.goodput:.0%}", f"{figures.fairness:.2f}", str(simulator.failed))
        each_class = (f"{figures.services[each]:.2f}" for each in services if len(services) > 1)
        table.add_row(name, *(f"{each:.2f}" for each in times), *shares, *each_class)
    console().print(table)
