"""Embeddings of the inputs of one request, whatever its dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from starlette.requests import Request

from engine.base.errors import CheckpointError
from engine.base.stopping import Stop
from engine.config.pooling import Pooling
from engine.doors.http.fields import BadField
from engine.doors.http.prompts import MARK, Prompt, known, mixed_ids, words_of
from engine.doors.http.service import HttpService, while_there
from engine.protocol import ChatMessage, Sampling
from engine.services import operations
from engine.services.answers.answering import in_thread
from engine.services.answers.overflow import check_length
from engine.services.answers.pictures import pictured_text
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.answers.stream import PromptRequest, Stream
from engine.services.client import EngineError
from engine.services.operations import OperationFailed
from engine.services.residency import Lease
from engine.text.cut import Side, cut_ids

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

_T = TypeVar("_T")
MOST_INPUTS = 2048
"""Inputs of one request, as OpenAI has it."""
AT_ONCE = 64
"""Inputs that are read together: a chat that comes meanwhile waits for these, and not for all."""
USUAL: Pooling = "mean"
"""Pooling where the checkpoint names none: that of the last token is worse in models that were not trained for it
(BehnamGhader et al. 2024, LLM2Vec, arXiv 2404.05961)."""
TOO_LONG = (
    "This model's maximum context length is {context} tokens, and {where} has {tokens}. Send a shorter text, or load "
    "the model with a longer context."
)
"""Begins with OpenAI's words, by which clients know it."""


class EmbeddingRequest(NamedTuple):
    """Inputs in the ``field`` of the request; what is too long is cut off if it ``truncates``.

    ``pooling`` None: the model's own. ``dimensions`` are the first ones of each vector; None: all. ``most``: the most
    tokens of an input that are not cut off; 0: as many as there is room for. ``side`` is where it is cut. ``normal``:
    vectors get the length 1.
    """

    inputs: Sequence[Prompt]
    field: str
    dimensions: int | None = None
    pooling: Pooling | None = None
    truncates: bool = False
    adapter: str = ""
    most: int = 0
    side: Side = "right"
    normal: bool = True


class Embeddings(NamedTuple):
    """A vector [dimensions] float32 for each input, and how many ``tokens`` all inputs have."""

    vectors: list[np.ndarray]
    tokens: int


class EmbeddingModel(NamedTuple):
    """The model that embeds for a request. ``beside``: its path, where it is the one next to the model that answers."""

    loaded: LoadedModel
    beside: str = ""


async def model_for(
    service: HttpService, request: Request, use: Lease, name: str, ttl: float | None = None
) -> EmbeddingModel:
    """The model of that name: the one next to the model that answers, where it was used and is called so and the other
    is not; else that other one, as of :meth:`Lease.model`. Raises :class:`Refused`, and ClientDisconnect."""
    embedder, answers = service.residency.embedder, service.hub.loaded
    path = embedder.path_of(name)
    if path and (answers is None or name not in (answers.card.name, answers.command.path)):
        return EmbeddingModel(await _beside(request, lambda: embedder.model(path)), path)
    await while_there(request, use.model(name, ttl))
    return EmbeddingModel(service.loaded(name))


async def embedded(
    service: HttpService, request: Request, model: EmbeddingModel, asked: EmbeddingRequest
) -> Embeddings:
    """Raises BadField and :class:`Refused` for what cannot be embedded, and ClientDisconnect."""
    loaded = model.loaded
    _check(loaded, asked)
    words = [ChatMessage.of("user", words_of(each), pictures=_files(each)) for each in asked.inputs]
    prompts = await while_there(request, in_thread(service.hub, words, lambda: _read(loaded, asked)))
    pooling = asked.pooling or loaded.pooling or USUAL
    if model.beside:
        ids = [prompt.ids for prompt in prompts]
        vectors = await _beside(request, lambda: service.residency.embedder.vectors(model.beside, ids, pooling))
        found = Embeddings(vectors, sum(map(len, ids)))
    else:
        found = await pooled(service, request, prompts, pooling, asked.adapter)
    first = [each[: asked.dimensions] for each in found.vectors]
    return found._replace(vectors=[_normal(each) for each in first] if asked.normal else first)


async def _beside(request: Request, work: Callable[[], _T]) -> _T:
    """The result of ``work`` of the embedder, which ends when the client goes away. Raises :class:`Refused`."""
    stop = Stop()
    try:
        return await while_there(request, operations.in_thread(work, stop))
    except (CheckpointError, EngineError, OperationFailed) as error:
        raise Refused("load_failed", str(error)) from error
    finally:
        stop.set()


async def pooled(
    service: HttpService, request: Request, prompts: Sequence[PromptTokens], pooling: Pooling, adapter: str
) -> Embeddings:
    """What the model makes of the pooled states of each prompt. Raises :class:`Refused`, and ClientDisconnect."""
    given = AnswerRequest([], Sampling(max_tokens=1), adapter=adapter, pooling=pooling)
    vectors: list[np.ndarray] = []
    tokens = 0
    for first in range(0, len(prompts), AT_ONCE):
        some = prompts[first : first + AT_ONCE]
        commands = [PromptRequest(given.command(prompt)) for prompt in some]
        vectors += await service.answer(request, commands, False, partial(_vectors, tokens))
        tokens += sum(len(prompt.ids) for prompt in some)
    return Embeddings(vectors, tokens)


async def _vectors(before: int, stream: Stream) -> list[np.ndarray]:
    stream.prompt_tokens += before  # so that the access log tells those of the whole request
    async for _ in stream.messages():
        pass
    return [vector for _, vector in sorted(stream.embeddings.items())]


def _check(loaded: LoadedModel, asked: EmbeddingRequest) -> None:
    if loaded.ranks:
        text = f"{loaded.card.name} ranks documents and makes no embeddings. Load a model that is made for them."
        raise Refused("no_embedding", text)
    if len(asked.inputs) > MOST_INPUTS:
        text = f"There are {len(asked.inputs):,} inputs, and at most {MOST_INPUTS:,} are read at once. Send fewer."
        raise BadField(asked.field, text)
    for number, given in enumerate(asked.inputs):
        if not given:
            raise BadField(asked.field, f"{_where(asked, number)} is empty. Send some text.")
        if isinstance(given, list) and not known(given, loaded.card.vocabulary):
            text = f"{_where(asked, number)} has tokens that are out of vocabulary. Use the model's own tokenizer."
            raise BadField(asked.field, text)
    most = loaded.embedding_size
    if asked.dimensions is not None and not 1 <= asked.dimensions <= most:
        raise BadField(
            "dimensions", f"This model's embeddings have 1 to {most:,} dimensions: {asked.dimensions} is not."
        )


def _read(loaded: LoadedModel, asked: EmbeddingRequest) -> list[PromptTokens]:
    """The tokens of all inputs. Raises :class:`Refused`, and PromptError."""
    assert loaded.files is not None
    most = loaded.card.context
    if asked.most > most:
        text = f"truncate_prompt_tokens is 1 to {most}, or -1 for as many as there is room for: {asked.most} is not."
        raise BadField("truncate_prompt_tokens", text)
    most = asked.most or most
    found = []
    for number, given in enumerate(asked.inputs):
        prompt = _encoded(loaded, given, most, asked.side if asked.truncates else None)
        if len(prompt.ids) > most:
            text = TOO_LONG.format(context=most, where=_where(asked, number), tokens=len(prompt.ids))
            raise Refused("prompt_too_long", text, {"n_prompt_tokens": len(prompt.ids), "n_ctx": most})
        found.append(prompt)
    return found


def _files(given: Prompt) -> list[bytes]:
    return given.pictures if isinstance(given, ChatMessage) else []


def _encoded(loaded: LoadedModel, given: Prompt, most: int, side: Side | None) -> PromptTokens:
    """One input, whole or cut to ``most`` tokens on a ``side``, but for one with pictures."""
    assert loaded.files is not None
    tokenizer, limit = loaded.files.tokenizer, most if side is None else None
    if isinstance(given, ChatMessage):
        return pictured_text(loaded, given, MARK, limit)
    check_length(words_of(given), tokenizer, limit)
    ids = tokenizer.encode(given) if isinstance(given, str) else mixed_ids(tokenizer, given)
    if side is None or len(ids) <= most:
        return PromptTokens(ids)
    return PromptTokens(cut_ids(tokenizer, given if isinstance(given, str) else None, ids, most, side))


def _where(asked: EmbeddingRequest, number: int) -> str:
    return asked.field if len(asked.inputs) == 1 else f"{asked.field}[{number}]"


def _normal(vector: np.ndarray) -> np.ndarray:
    """The vector at length 1, also where it is the first dimensions of one (Kusupati et al. 2022, Matryoshka
    representations, arXiv 2205.13147)."""
    return vector / max(float(np.linalg.norm(vector)), 1e-12)
