"""Scores of documents for queries, whatever the form in which they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request

from engine.doors.http.embedding import MOST_INPUTS, pooled
from engine.doors.http.fields import BadField
from engine.doors.http.service import HttpService, while_there
from engine.services.answers.answering import in_thread
from engine.services.answers.overflow import check_length
from engine.services.answers.refused import Refused
from engine.services.answers.request import PromptTokens
from engine.text.ranking import judge_prompt, pair_prompt

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

NOT_MADE = (
    "{name} is not made to rank documents. Load a reranker, such as bge-reranker, ms-marco-MiniLM or Qwen3-Reranker."
)
NO_INSTRUCTION = "{name} reads a query and a document alone, and takes no instruction. Leave it out."
TOO_LONG = (
    "This model's maximum context length is {context} tokens, and {where} has {tokens} with its query. Please reduce "
    "the length of the input prompt{or_cut}."
)
"""Begins with OpenAI's words and goes on with vLLM's, by which clients know it."""
TOO_MANY = (
    "{field} of {tokens} is not among 1 to {most} tokens, or -1 for all. Please request a smaller truncation size."
)
"""Ends with vLLM's words."""


class RankRequest(NamedTuple):
    """Pairs of a query and a document of the ``field`` of a request. A document is cut off after ``most`` tokens (0: it
    is not), and so that the whole prompt has at most ``limit`` (-1: as many as the model reads; None: a longer one is
    refused)."""

    pairs: Sequence[tuple[str, str]]
    field: str
    instruction: str = ""
    most: int = 0
    limit: int | None = None
    adapter: str = ""


class RerankScores(NamedTuple):
    """A logit for each pair, and how many ``tokens`` all prompts have."""

    logits: list[float]
    tokens: int


async def scored(service: HttpService, request: Request, loaded: LoadedModel, asked: RankRequest) -> RerankScores:
    """Raises BadField and :class:`Refused` for what cannot be scored, PromptError, and ClientDisconnect."""
    limit = _limit(loaded, asked)
    words = "".join(query + document for query, document in asked.pairs)
    prompts = await while_there(request, in_thread(service.hub, words, partial(_prompts, loaded, asked, limit)))
    assert loaded.pooling is not None
    found = await pooled(service, request, prompts, loaded.pooling, asked.adapter)
    return RerankScores([float(vector[0]) for vector in found.vectors], found.tokens)


def _limit(loaded: LoadedModel, asked: RankRequest) -> int:
    """Tokens that a prompt may have."""
    if not loaded.ranks:
        raise Refused("no_rerank", NOT_MADE.format(name=loaded.card.name))
    if len(asked.pairs) > MOST_INPUTS:
        text = f"There are {len(asked.pairs):,} documents, and at most {MOST_INPUTS:,} are read at once. Send fewer."
        raise BadField(asked.field, text)
    if not all(query for query, _ in asked.pairs):
        raise BadField("query", "The query is empty. Send some text.")
    if asked.instruction and loaded.encodes:
        raise BadField("instruction", NO_INSTRUCTION.format(name=loaded.card.name))
    most = loaded.card.context
    limit = most if asked.limit in (None, -1) else asked.limit
    if limit is None or not 1 <= limit <= most:
        field = "truncate_prompt_tokens"
        raise BadField(field, TOO_MANY.format(field=field, tokens=asked.limit, most=most))
    return limit


def _prompts(loaded: LoadedModel, asked: RankRequest, limit: int) -> list[PromptTokens]:
    """The tokens of all pairs."""
    assert loaded.files is not None
    tokenizer = loaded.files.tokenizer
    made = pair_prompt if loaded.encodes else partial(judge_prompt, instruction=asked.instruction)
    cuts, found = asked.limit is not None, list[PromptTokens]()
    for number, (query, document) in enumerate(asked.pairs):
        check_length(query + document, tokenizer, None if cuts or asked.most else limit)
        prompt = made(tokenizer, query, document)
        if asked.most:
            prompt = prompt.cut(asked.most)
        room = limit - len(prompt.before) - len(prompt.after)
        if room < (min(1, len(prompt.document)) if cuts else len(prompt.document)):
            or_cut = "" if cuts else ", or set truncate_prompt_tokens so that documents are cut off"
            where, tokens = f"{asked.field}[{number}]", len(prompt.ids)
            text = TOO_LONG.format(context=limit, where=where, tokens=tokens, or_cut=or_cut)
            raise Refused("prompt_too_long", text, {"n_prompt_tokens": tokens, "n_ctx": limit})
        found.append(PromptTokens(prompt.cut(room).ids, second=prompt.typed))
    return found
