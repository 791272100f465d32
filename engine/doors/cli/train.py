"""`kvasir train-heads`: the recipe with a progress line, and what it gained."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn
from rich.table import Table

from engine.base.terminal import console as plain_console
from engine.base.terminal import text_column
from engine.doors.cli.arguments import TRAINED
from engine.doors.cli.errors import handled
from engine.services.training.acceptance import AcceptanceFigures
from engine.services.training.layers import choose_layers
from engine.services.training.target import Opening
from engine.services.training.train_heads import TrainingPlan, TrainingResult, train_heads
from engine.services.training.training import Show, TrainingProgress

STOPPED = 130
_LINE_SECONDS = 10.0
"""Seconds between lines where no terminal shows a bar."""


def run_train_heads(plan: TrainingPlan) -> int:
    """Train as planned. Ctrl-C saves what was trained so far; a second one ends at once."""
    console = plain_console(soft_wrap=True)
    with _stopping() as stop, _shown(console) as show:
        outcome = train_heads(plan, show, stop.is_set)
    if outcome.after is None or outcome.before is None:
        console.print(f"Stopped after {outcome.steps} steps. The same command continues from there.")
        return STOPPED
    _tell(console, plan.kind, outcome, outcome.before, outcome.after)
    return 0


def run_choose_layers(model: str, text: Sequence[Path], length: int, out: Path | None, opening: Opening) -> None:
    """Search for the layers by which the model drafts for itself. Ctrl-C ends it; nothing is kept then."""
    console = plain_console(soft_wrap=True)
    with _shown(console) as show:
        found, file = choose_layers(
            model, text, length, out, opening, lambda stage, done: show(TrainingProgress(stage, done))
        )
    agreement = found.exits[found.choice.exit_layer - 1]
    console.print(
        f"Early exit: the first {found.choice.exit_layer} of {len(found.exits) + 1} layers say what all of them say "
        f"{agreement:.1%} of the time. Expected gain {found.exit_gain:.2f}."
    )
    skipped = ", ".join(str(layer) for layer in sorted(found.choice.skip)) or "none"
    console.print(
        f"Layer skipping: without the layers {skipped} (counted from 0) it does {found.skip_agreement:.1%} of the "
        f"time. Expected gain {found.skip_gain:.2f}."
    )
    console.print(f"Written to {file}")


@contextlib.contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, once."""
    stop, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    with handled(signal.SIGINT, interrupted):
        yield stop


@contextlib.contextmanager
def _shown(console: Console) -> Iterator[Show]:
    """A bar on a terminal, a line now and then elsewhere."""
    columns = (
        text_column("{task.description}"), BarColumn(), TaskProgressColumn(), text_column("{task.fields[facts]}")
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task, last = progress.add_task("", total=1.0, facts=""), -_LINE_SECONDS

        def show(report: TrainingProgress) -> None:
            nonlocal last
            if console.is_terminal:
                progress.update(task, description=report.stage, completed=report.share, facts=_facts(report))
            elif (now := progress.get_time()) - last >= _LINE_SECONDS or report.share >= 1:
                last = now
                console.print(f"{report.stage} {report.share:.0%} {_facts(report)}".rstrip())

        yield show


def _facts(report: TrainingProgress) -> str:
    parts = [f"step {report.step}"] if report.step else []
    if report.loss is not None:
        parts.append(f"loss {report.loss:.3f}")
    if report.accuracy is not None:
        parts.append(f"first choice right {report.accuracy:.0%}")
    if report.seconds_left is not None:
        minutes, seconds = divmod(round(report.seconds_left), 60)
        parts.append(f"{minutes}:{seconds:02} left")
    return ", ".join(parts)


def _tell(
    console: Console, kind: str, outcome: TrainingResult, before: AcceptanceFigures, after: AcceptanceFigures
) -> None:
    """Print how often draft tokens are right, and how many tokens a step yields with them."""
    several = next(each.training.several for each in TRAINED if each.name == kind and each.training is not None)
    table = Table(box=None, pad_edge=False)
    for name in ("head" if several else "depth", "first choice right", "right so far", "before training"):
        table.add_column(name, justify="right")
    shares = [row[0] for row in after.accuracies] if several else after.by_depth
    for number, (share, reached, was) in enumerate(zip(shares, after.reached, before.reached, strict=True), 1):
        table.add_row(str(number), f"{share:.1%}", f"{reached:.1%}", f"{was:.1%}")
    console.print(f"Measured at {after.positions:,} places of held-out text:")
    console.print(table)
    console.print(
        f"Tokens per step: {after.tokens_per_step:.2f} with a chain of {len(after.reached)} "
        f"({before.tokens_per_step:.2f} before training, 1 without speculation)."
    )
    for size, length in after.trees.items():
        console.print(f"{length:.2f} with a tree of {size} ({before.trees[size]:.2f} before).")
    console.print(
        f"{outcome.steps:,} steps on {outcome.rows:,} rows, {outcome.tokens:,} tokens. Written to {outcome.folder}"
    )
    sys.stdout.flush()
