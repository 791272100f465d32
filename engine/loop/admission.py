"""Turns a command for answers into requests, or refuses it with a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from engine import catalogue
from engine.cache.policies import LEAST_WINDOW, KeepAll, WindowWithSinks
from engine.catalogue import OptionError
from engine.catalogue.exclusions import NO_WINDOW, NO_WINDOW_OVER_KIND
from engine.compute.sampling.params import MAX_LOGPROBS, SamplingError, resolve, with_least_length
from engine.decoding.options import EngineOptions
from engine.decoding.request import PromptTask, Request
from engine.decoding.scheduling.service import STANDARD
from engine.loading.model import LoadedModel
from engine.loading.parts.adapter import find_adapter
from engine.loop.commands import AddRequest, HandOver
from engine.loop.stepper import Stepper
from engine.protocol import Error, keys
from engine.text.grammar import Grammar, GrammarConstraint

MAX_ANSWERS = 64
NO_MODEL = "No model is loaded. Load one first."
TEXT_ONLY = "{name} reads text only. Take the pictures out, or load a model that sees them."
ENCODER = "{name} {makes} and writes no text. Load a language model to get answers."
TOO_LONG = (
    "This model's maximum context length is {context} tokens, the answer included, and {what} {tokens} tokens. "
    "Shorten the messages, or load the model with a longer context."
)
"""Begins with OpenAI's words, by which clients know it; its figures are plain, for those that read them."""
ENDLESS_GRAMMAR = (
    "ignore_eos does not go with structured output, which ends where its form does. Leave one of them out."
)
ONE_HANDED_OVER = (
    "Only a single answer, without an embedding or prompt_logprobs, can be handed over to another engine. Ask for one."
)
ENDLESS = 1 << 40
"""The context, in tokens, of a chat with a sliding window."""


def requests(command: AddRequest, stepper: Stepper, options: EngineOptions, arrivals: int) -> list[Request]:
    """One for each answer, numbered from ``arrivals`` + 1 on. Raises OptionError, SamplingError and
    LoadFailed (for an unknown adapter) with a sentence."""
    model = stepper.model
    adapter = find_adapter(model, command.adapter)
    params = resolve(command.sampling, model.card.sampling)
    if command.grammar is not None and params.ignore_eos:
        raise SamplingError(ENDLESS_GRAMMAR)
    params = with_least_length(params, len(command.prompt_ids), model.card.eos_ids)
    chosen = options.for_request(command.optimisations, len(command.prompt_ids))
    context = model.limit
    if command.window is not None:
        chosen, context = chosen._replace(policy=_window(model, command.window)), ENDLESS
    prompt, shown = list(command.prompt_ids), command.pictures
    marks = shown.marks(prompt) if shown is not None else ()
    tower = model.pictures.embeddings
    wholes: Sequence[tuple[int, int]] = shown.spans() if shown is not None and tower is not None and tower.whole else ()
    if command.prompt_logprobs is not None:
        chosen = chosen._replace(prefix_cache=False)
    if model.encodes:
        chosen, wholes = chosen._replace(prefix_cache=False, policy=KeepAll()), ((0, len(prompt)),)
    if command.pooling is not None:
        chosen = chosen._replace(prefix_cache=chosen.prefix_cache and command.pooling == "last", speculation="off")
    made: list[Request] = []
    for answer in range(command.n):
        stream = model.open_stream(
            params.stop, command.continues, command.prompt_ids, command.prefilled, command.tools, command.written
        )
        first = made[0].cache if made else None
        contents = "" if adapter is None else adapter.fingerprint
        cache = stepper.cache.new(
            (command.id, answer), list(prompt), chosen, command.chat, first, contents, marks, wholes
        )
        request = Request(arrivals + answer + 1, cache, params, chosen, context, stream, stepper.clock())
        request.adapter, request.pictures = 0 if adapter is None else adapter.number, shown
        told = command.prompt_logprobs if answer == 0 else None
        request.task = PromptTask(told, command.pooling, command.second)
        request.standing.service = command.service or STANDARD.name
        request.hand_over = command.hand_over.give
        if command.grammar is not None:
            request.constraint = _constraint(command, command.grammar, model)
        made.append(request)
    return made


def _constraint(command: AddRequest, grammar: Grammar, model: LoadedModel) -> GrammarConstraint:
    assert model.files is not None
    style, length = model.files.channels, len(command.prompt_ids)
    if style is None or command.continues or grammar.at_once:
        return grammar.constraint(length, None)
    return grammar.constraint(length, style.parser(command.prompt_ids), style.opens if command.thinks else ())


def _window(model: LoadedModel, window: int) -> WindowWithSinks:
    """The policy of a chat with a sliding window. Raises OptionError where the model allows none."""
    policy = WindowWithSinks(max(window, LEAST_WINDOW))
    if catalogue.conflict({keys.PAGE_POLICY: policy.name, keys.KV_KIND: model.kind.name}):
        raise OptionError(NO_WINDOW_OVER_KIND.format(kind=model.kind.title))
    reason = policy.refuses(model.model.config) if model.model is not None else ""
    if reason:
        raise OptionError(NO_WINDOW.format(reason=reason))
    return policy


def refusal(command: AddRequest, stepper: Stepper | None) -> Error | None:
    """The reason why the request cannot be served, None if it can; nothing is created for it."""
    if stepper is None:
        return Error(code="no_model", message=NO_MODEL, id=command.id)
    card = stepper.model.card
    prompt = len(command.prompt_ids)
    if any(owner[0] == command.id for owner in stepper.requests):
        text = f"A request called {command.id!r} is being answered already. Use another name."
        return Error(code="duplicate_id", message=text, id=command.id)
    if not 1 <= command.n <= MAX_ANSWERS:
        text = f"Between 1 and {MAX_ANSWERS} answers can be asked for, not {command.n}. Ask for fewer."
        return Error(code="bad_request", message=text, id=command.id)
    if not 0 <= (command.prompt_logprobs or 0) <= MAX_LOGPROBS:
        text = f"prompt_logprobs lies between 0 and {MAX_LOGPROBS}: {command.prompt_logprobs} does not."
        return Error(code="bad_sampling", message=text, id=command.id)
    several = command.n != 1 or command.pooling is not None or command.prompt_logprobs is not None
    if command.hand_over != HandOver() and several:
        return Error(code="bad_request", message=ONE_HANDED_OVER, id=command.id)
    if prompt == 0:
        return Error(code="bad_request", message="The prompt is empty. Write something first.", id=command.id)
    if prompt >= card.context + (command.pooling is not None) and command.window is None:
        text = TOO_LONG.format(context=card.context, what="the prompt has", tokens=prompt)
        return Error(code="prompt_too_long", message=text, id=command.id)
    if not all(0 <= token < card.vocabulary for token in command.prompt_ids):
        text = "The prompt contains tokens that the model does not know. Use the model's own tokenizer."
        return Error(code="bad_request", message=text, id=command.id)
    if command.pooling is None and stepper.model.encodes:
        makes = "ranks documents" if stepper.model.ranks else "makes embeddings"
        return Error(code="encoder", message=ENCODER.format(name=card.name, makes=makes), id=command.id)
    if command.pictures is not None and stepper.model.pictures.embeddings is None:
        return Error(code="no_pictures", message=TEXT_ONLY.format(name=card.name), id=command.id)
    return None
