"""A command for answers becomes requests, or is refused with a sentence."""

from __future__ import annotations

from engine.cache.policies import LEAST_WINDOW, WindowWithSinks
from engine.catalogue import OptionError
from engine.core.commands import AddRequest
from engine.core.events import ErrorEvent
from engine.core.loaded import LoadedModel
from engine.core.options import EngineOptions
from engine.core.request import Request
from engine.core.stepper import Stepper
from engine.models import restrictions
from engine.sampling.params import resolve

MAX_ANSWERS = 64
ENDLESS = 1 << 40
"""The context of a chat over whose text a window slides, in tokens."""


def requests(
    command: AddRequest, model: LoadedModel, options: EngineOptions, arrivals: int, now: float
) -> list[Request]:
    """One for each answer, numbered from ``arrivals`` + 1 on. Raises OptionError and SamplingError with a sentence."""
    params = resolve(command.sampling, model.sampling)
    chosen = options.for_request(command.optimisations, len(command.prompt_ids))
    context = model.limit
    if command.window is not None:
        chosen, context = chosen._replace(policy=_window(model, command.window)), ENDLESS
    made: list[Request] = []
    for answer in range(command.n):
        stream = model.open_stream(params.stop, command.continues, command.prompt_ids)
        arrival, ids = arrivals + answer + 1, list(command.prompt_ids)
        request = Request(command.id, answer, arrival, ids, params, chosen, context, stream, now)
        request.chat = command.chat
        request.fork_of = made[0] if made else None
        made.append(request)
    return made


def no_model(id: str) -> ErrorEvent:
    return ErrorEvent("no_model", "No model is loaded. Load one first.", id)


def _window(model: LoadedModel, window: int) -> WindowWithSinks:
    """The policy of a chat over whose text a window slides. Raises OptionError where the model allows none."""
    policy = WindowWithSinks(max(window, LEAST_WINDOW))
    if model.kind.residual:
        raise OptionError(f"No window slides over a {model.kind.title} cache. Choose another kind of KV cache.")
    reason = restrictions.refuses(policy, model.model.config) if model.model is not None else ""
    if reason:
        raise OptionError(f"{reason} Choose what else is to happen when the chat outgrows the context.")
    return policy


def refusal(command: AddRequest, stepper: Stepper | None) -> ErrorEvent | None:
    """Why the request cannot be served, before anything is made for it."""
    if stepper is None:
        return no_model(command.id)
    card = stepper.model.card
    prompt = len(command.prompt_ids)
    if any(owner[0] == command.id for owner in stepper.requests):
        text = f"A request called {command.id!r} is being answered already. Use another name."
        return ErrorEvent("duplicate_id", text, command.id)
    if not 1 <= command.n <= MAX_ANSWERS:
        text = f"Between 1 and {MAX_ANSWERS} answers can be asked for, not {command.n}. Ask for fewer."
        return ErrorEvent("bad_request", text, command.id)
    if prompt == 0:
        return ErrorEvent("bad_request", "The prompt is empty. Write something first.", command.id)
    if prompt >= card.context and command.window is None:
        text = (
            f"The prompt has {prompt:,} tokens and the context holds {card.context:,}, the answer included. "
            "Shorten the conversation, or load the model with a longer context."
        )
        return ErrorEvent("prompt_too_long", text, command.id)
    if not all(0 <= token < card.vocabulary for token in command.prompt_ids):
        text = "The prompt contains tokens that the model does not know. Use the model's own tokenizer."
        return ErrorEvent("bad_request", text, command.id)
    return None
