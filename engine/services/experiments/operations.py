"""Operations of the Lab for clients of the server: its experiments, a run of one, a comparison; each in a thread."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import structs

from engine.library.paths import BUNDLED, find_model, resolve
from engine.loading.model import LoadModel
from engine.protocol import LoadOptions
from engine.protocol.lab import (
    CompareColumns,
    LabComparison,
    LabEvent,
    LabIndex,
    LabOutcome,
    LabResult,
    LabRoofline,
    ListExperiments,
    RunExperiment,
)
from engine.services.client import EngineClient, EngineError
from engine.services.experiments import laboratory
from engine.services.experiments.compare.columns import (
    ComparedPrompt,
    ComparisonRequest,
    parsed_switches,
    prompts_of,
    text_of,
)
from engine.services.experiments.compare.comparison import compare
from engine.services.experiments.experiment import Lab
from engine.services.experiments.kept import newest
from engine.services.experiments.reports import page as report
from engine.services.experiments.served import ServedState, served_engine
from engine.services.operations import Context

CHAT = "this chat"
"""The kind of text that prompts of a chat are."""


def experiments(context: Context, request: ListExperiments, emit: Callable[[LabResult], object]) -> LabIndex:
    """The experiments, after the newest result of each with its usual settings. Raises EngineError, ModelNotFound."""
    for result in newest():
        emit(result)
    known = find_model("")
    bundled = LoadModel(known.path, known.draft, LoadOptions(device=request.device))
    return _index_of_served(context, bundled) or _index(bundled)


def _index_of_served(context: Context, model: LoadModel) -> LabIndex | None:
    """The index, where the served engine is as a new one that has loaded the model; else None."""
    if context.hub is None:
        return None
    engine = context.hub.engine
    loaded, state = engine.loaded, {spec.key: spec for spec in engine.catalogue_state()}
    if loaded is None or ServedState.of(engine) != ServedState.fresh(model):
        return None
    index = laboratory.index(loaded, state)
    return index if engine.loaded is loaded else None  # the engine's thread may have loaded another meanwhile


@functools.cache
def _index(model: LoadModel) -> LabIndex:
    """The index of the model, which is loaded for it beside the one that is served, once."""
    with EngineClient() as client:
        client.load(*model)
        return laboratory.index(client.model, client.state())


def run(context: Context, request: RunExperiment, emit: Callable[[LabEvent], object]) -> LabOutcome:
    """Run an experiment on the served engine, as a new one with its model would.

    Raises LabError, EngineError, ModelNotFound, Refused, Stopped.
    """
    chosen = {}
    if request.name != laboratory.ROOFLINE:
        values = {key: str(value) for key, value in request.chosen.items()}
        chosen = laboratory.chosen(laboratory.find(request.name), values)
    model = LoadModel(*resolve(request.model, request.draft), request.options)
    found: LabResult | LabRoofline | None = None
    warning = ""
    try:
        with _engine(context) as client:
            if not ServedState.fresh(model).take(client):
                client.empty_cache()
            lab = Lab(client, request.seed, request.pairs, request.seconds, chosen)
            found = laboratory.measured(request.name, lab, emit)
            warning = laboratory.unkept(found)
    except EngineError as error:  # what was served did not come back
        if found is None:
            raise
        warning = str(error)
    return LabOutcome(found=found, warning=warning)


def compare_columns(context: Context, request: CompareColumns, emit: Callable[[LabEvent], object]) -> LabComparison:
    """Compare columns, each in an engine of its own. For one of another model than the bundled one the served model is
    unloaded meanwhile.

    Raises LabError, EngineError, Refused, Stopped, OSError.
    """
    prompts = [ComparedPrompt(text, CHAT) for text in request.prompts]
    if request.prompts_file:
        prompts = prompts_of(Path(request.prompts_file))
    columns = [structs.replace(column, set=parsed_switches(column.set)) for column in request.columns]
    asked = ComparisonRequest(
        columns,
        prompts,
        text_of(Path(request.text_file)) if request.text_file else "",
        request.tokens,
        pairs=request.pairs,
        device=request.device,
    )
    with _engine(context) as client:
        if any(column.model not in ("", BUNDLED) for column in columns):
            client.unload()
        found = compare(asked, emit)
    return LabComparison(found=found, report=report.html(found))


@contextlib.contextmanager
def _engine(context: Context) -> Iterator[EngineClient]:
    """The served engine, or a new one where none is served."""
    if context.hub is not None and context.residency is not None:
        with served_engine(context.hub, context.residency) as client:
            yield client
    else:
        with EngineClient() as client:
            yield client
