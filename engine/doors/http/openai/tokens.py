"""Tokens of texts and conversations over HTTP, as vLLM's and llama.cpp's servers tell them: /tokenize, /detokenize,
/apply-template, /tokenizer_info, and the number alone of a conversation's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import BadField, decoded, named
from engine.doors.http.openai.types import OpenAIChat
from engine.doors.http.openapi import Served
from engine.doors.http.pictures import fetch_pictures
from engine.doors.http.service import HttpService
from engine.doors.security import error_response
from engine.protocol import ChatMessage
from engine.services.answers.answering import rendered_text, tokenised
from engine.services.answers.refused import Refused
from engine.services.residency import Lease
from engine.text.tokenizer import Tokenizer

CLASS = "PreTrainedTokenizerFast"
"""transformers' class for a tokenizer.json, which each tokenizer is here."""


class ConversationIn(OpenAIChat, kw_only=True):
    return_token_strs: bool = False
    with_pieces: bool = False


class TextIn(msgspec.Struct, kw_only=True):
    """``prompt`` is vLLM's, with the tokens that the tokenizer puts around a text unless it is told otherwise;
    ``content`` is llama.cpp's, without them."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {"parse_special": (True,)}

    model: str = ""
    prompt: str | None = None
    content: str | None = None
    add_special_tokens: bool = True
    add_special: bool = False
    return_token_strs: bool = False
    with_pieces: bool = False


class TokensIn(msgspec.Struct):
    tokens: list[int]
    model: str = ""


class TokenRoutes:
    """Nothing of these asks the model, but its files are needed."""

    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        posted = [
            Served(path, self._serving(answer), ["POST"], takes)
            for path, answer, takes in (
                ("/tokenize", self._tokenise, [TextIn, ConversationIn]),
                ("/detokenize", self._detokenise, [TokensIn]),
                ("/apply-template", self._apply_template, [ConversationIn]),
                ("/v1/chat/completions/input_tokens", self._count, [ConversationIn]),
                ("/chat/completions/input_tokens", self._count, [ConversationIn]),
            )
        ]
        return [*posted, Served("/tokenizer_info", self._info, gives=dict[str, Any])]

    async def _info(self, request: Request) -> Response:
        """What lm-eval and others read in a tokenizer_config.json, of any kind of model."""
        if (refusal := self._service.stranger(request)) is not None:
            return refusal
        try:
            loaded = self._service.loaded("")
        except Refused as error:
            return _refused(error)
        assert loaded.files is not None
        template = loaded.files.template
        told = template.special_tokens | ({"chat_template": template.source} if template.own else {})
        return JSONResponse({"tokenizer_class": CLASS, "model_max_length": loaded.card.context, **told})

    def _serving(
        self, answer: Callable[[bytes, Lease], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        return self._service.serving(lambda _, body, use: answer(body, use), _refused)

    async def _tokenise(self, body: bytes, use: Lease) -> Response:
        asked: ConversationIn | TextIn
        asked = decoded(body, ConversationIn) if "messages" in named(body) else decoded(body, TextIn)
        await use.model(asked.model)
        loaded = self._service.loaded(asked.model)
        assert loaded.files is not None
        tokenizer = loaded.files.tokenizer
        if isinstance(asked, ConversationIn):
            ids = await self._ids(asked, loaded.card.vocabulary)
        elif asked.content is not None:
            ids = tokenizer.encode(asked.content, special=asked.add_special)
        elif asked.prompt is not None:
            ids = tokenizer.encode(asked.prompt, special=asked.add_special_tokens)
        else:
            raise BadField("prompt", "There is no text. Send prompt, content or messages.")
        strings = [tokenizer.token(id) for id in ids] if asked.return_token_strs else None
        told = {"tokens": ids, "count": len(ids), "max_model_len": loaded.card.context, "token_strs": strings}
        if asked.with_pieces:
            told["tokens"] = [{"id": id, "piece": _piece(tokenizer, id)} for id in ids]
        return JSONResponse(told)

    async def _ids(self, asked: ConversationIn, vocabulary: int) -> Sequence[int]:
        """The tokens of a conversation. Raises BadField."""
        return (
            await tokenised(self._service.hub, await self._said(asked, vocabulary), asked.wanted_thinking(), asked.form)
        ).ids

    async def _said(self, asked: ConversationIn, vocabulary: int) -> list[ChatMessage]:
        """The conversation, with the pictures at its addresses. Raises BadField."""
        asked.check(vocabulary)
        if self._service.fetches:
            await fetch_pictures(asked.pictured)
        return asked.prompt()

    async def _count(self, body: bytes, use: Lease) -> Response:
        asked = decoded(body, ConversationIn)
        await use.model(asked.model)
        ids = await self._ids(asked, self._service.loaded(asked.model).card.vocabulary)
        return JSONResponse({"object": "response.input_tokens", "input_tokens": len(ids)})

    async def _detokenise(self, body: bytes, use: Lease) -> Response:
        asked = decoded(body, TokensIn)
        await use.model(asked.model)
        loaded = self._service.loaded(asked.model)
        assert loaded.files is not None
        if unknown := [id for id in asked.tokens if not 0 <= id < loaded.card.vocabulary]:
            text = f"The model knows the tokens 0 to {loaded.card.vocabulary - 1:,}: {unknown[0]} is not one of them."
            raise BadField("tokens", text)
        text = loaded.files.tokenizer.decode(asked.tokens, skip_special=False)
        return JSONResponse({"prompt": text, "content": text})

    async def _apply_template(self, body: bytes, use: Lease) -> Response:
        asked = decoded(body, ConversationIn)
        await use.model(asked.model)
        said = await self._said(asked, self._service.loaded(asked.model).card.vocabulary)
        text = await rendered_text(self._service.hub, said, asked.wanted_thinking(), asked.form)
        return JSONResponse({"prompt": text})


def _piece(tokenizer: Tokenizer, id: int) -> str | list[int]:
    """Text of a token, the bytes of one that is no whole text."""
    data = tokenizer.id_to_bytes(id) or tokenizer.token(id).encode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def _refused(error: Exception) -> Response:
    return error_response(refusal_of(error, "prompt"))
